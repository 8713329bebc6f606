#!/usr/bin/env python3
"""The measuring half of scripts/gpu_check.sh: what the card can do, then tokens/s, fraction of its peak, memory and the
time of each op for three models, full rank and CompAct, beside PyTorch where an interpreter has it. Every measurement
is written to the JSON as soon as it is there, has a time limit, and may fail alone. Needs the standard library only.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LENGTH = 256
# A card has the room for larger chunks than the default, each of which passes the head's whole gradient once.
LOGITS_CHUNK = 256 << 20
# Memory that the CUDA context, cuBLASLt and a graph take beside the arena.
BESIDE_ARENA = 2 << 30
VARIANTS = [
    ("full rank, lean", {"optimizer.name": "adamw", "memory.preset": "lean"}),
    ("CompAct n/4, lean", {"optimizer.name": "compact", "compact.rank": 0.25, "memory.preset": "lean"}),
    ("CompAct n/4, tight", {"optimizer.name": "compact", "compact.rank": 0.25, "memory.preset": "tight"}),
    ("CompAct n/4, block", {"optimizer.name": "compact", "compact.rank": 0.25, "memory.preset": "block"}),
    ("CompAct n/8, lean", {"optimizer.name": "compact", "compact.rank": 0.125, "memory.preset": "lean"}),
    ("CompAct n/8, tight", {"optimizer.name": "compact", "compact.rank": 0.125, "memory.preset": "tight"}),
    ("CompAct n/8, block", {"optimizer.name": "compact", "compact.rank": 0.125, "memory.preset": "block"}),
]


class Failed(Exception):
    pass


class Check:
    def __init__(self, args):
        self.args = args
        self.began = time.monotonic()
        self.work = tempfile.TemporaryDirectory()
        # Speeds are measured anew, and the first to ask measures them for all.
        self.env = dict(os.environ, XDG_CACHE_HOME=self.work.name)
        self.run_file = os.path.join(self.work.name, "run.json")
        self.result = {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "rehearsal": args.rehearse, "commit": self.commit(), "host": platform.platform(),
            "card": {"name": args.card} if args.card else None,
            "parts": self.read_parts(), "machine": None, "models": {}}

    def commit(self):
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True,
                              check=False)
        return done.stdout.strip() or None

    def read_parts(self):
        parts = []
        if self.args.parts:
            for line in pathlib.Path(self.args.parts).read_text(encoding="utf-8").splitlines():
                name, result, seconds, note = line.split("\t", 3)
                parts.append({"name": name, "result": result, "seconds": int(seconds), "note": note})
        return parts

    def left(self):
        return self.args.seconds - (time.monotonic() - self.began)

    def log(self, text):
        with open(self.args.log, "a", encoding="utf-8") as file:
            file.write(text.rstrip("\n") + "\n")

    def say(self, text):
        print(text, flush=True)
        self.log(text)

    def write(self):
        path = pathlib.Path(self.args.out)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)

    def run(self, command, limit, env=None):
        """The output of a command; Failed with its last words where it ends badly or late."""
        limit = min(limit, self.left())
        self.log("$ " + " ".join(map(str, command)))
        if limit < 2:
            raise Failed("out of time")
        # A group of its own, since PyTorch's compiler leaves helpers behind where only the parent is ended.
        with subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=env or self.env,
                              start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                self.log(out + err)
                raise Failed(f"out of time ({limit:.0f} s)") from None
        self.log(out + err)
        if process.returncode != 0:
            words = (err.strip() or out.strip() or "no message").splitlines()[-1]
            raise Failed(words.replace(self.run_file, "run.json")[:300])
        return out

    # ---- compact ------------------------------------------------------------------------------------------------

    def settings(self, model, micro_batch, changes):
        length = 32 if self.args.rehearse else LENGTH
        values = {
            "model": f"{ROOT}/configs/model/llama_{model}.json",
            "data.sequence_length": length, "batch.micro_batch": micro_batch,
            "batch.tokens_per_step": micro_batch * length, "memory.logits_chunk_bytes": LOGITS_CHUNK, **changes}
        return [f"{key}={json.dumps(value) if not isinstance(value, str) else value}" for key, value in values.items()]

    def compact(self, command, model, micro_batch, changes, limit, *options):
        if not os.path.exists(self.run_file):
            with open(self.run_file, "w", encoding="utf-8") as file:
                json.dump({"model": "", "data": {"train": "none"}, "batch": {"tokens_per_step": 1, "micro_batch": 1},
                           "optimizer": {"state_dtype": "bf16", "gradient_dtype": "bf16", "update": "per_layer"},
                           "train": {"steps": 1000, "out_dir": "none"}, "precision": "bf16", "device": "cuda"}, file)
        return json.loads(self.run([self.args.compact, command, self.run_file, *self.settings(model, micro_batch, changes),
                                    "--json", *options], limit))

    def free_memory(self):
        try:
            out = self.run(["nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version,compute_cap",
                            "--format=csv,noheader,nounits"], 20)
            name, total, free, driver, capability = [word.strip() for word in out.splitlines()[0].split(",")]
            self.result["card"] = {"name": name, "bytes": int(total) << 20, "free_bytes": int(free) << 20,
                                   "driver": driver, "compute_capability": capability}
            return int(free) << 20
        except (Failed, OSError, ValueError, IndexError) as error:
            self.log(f"nvidia-smi does not tell the free memory: {error}")
            return 4 << 30

    def fitting_batch(self, model, changes, free):
        """The largest micro-batch of 128, 64, ... whose plan fits."""
        batch = 2 if self.args.rehearse else 128
        while batch > 1:
            plan = self.compact("plan", model, batch, changes, 60)
            if plan["peak_bytes"] + BESIDE_ARENA <= free:
                break
            batch //= 2
        return batch

    def bench(self, model, name, changes, free, limit):
        batch = self.fitting_batch(model, changes, free)
        repeats = "1" if self.args.rehearse else "5"
        while True:
            try:
                bench = self.compact("bench", model, batch, changes, limit, "--steps-only", "--repeats", repeats)
                break
            except Failed as error:
                if "memory" not in str(error) or batch == 1:
                    raise
                batch //= 2
        self.result["machine"] = bench["machine"]  # measured once, then the same for all
        step = bench["steps"][0]
        step["name"], step["seconds_taken"] = name, None
        return step

    def measure(self, model, name, changes, free, limit=90):
        rows = self.result["models"].setdefault(model, {"rows": [], "torch": None})["rows"]
        began = time.monotonic()
        try:
            row = self.bench(model, name, changes, free, limit)
            row["seconds_taken"] = round(time.monotonic() - began, 1)
            self.say(f"{model} {name}: {row['tokens_per_second']:.0f} tokens/s, {100 * row['peak_fraction']:.0f}% of the "
                     f"measured peak, {row['peak_bytes'] / 2**30:.2f} GiB")
        except (Failed, OSError, ValueError, KeyError, IndexError) as error:
            row = {"name": name, "error": str(error) or type(error).__name__}
            self.say(f"{model} {name}: failed: {row['error']}")
        rows.append(row)
        self.write()
        return row

    # ---- PyTorch ------------------------------------------------------------------------------------------------

    def torch_env(self):
        """PyTorch brings libraries of its own; those found for compact may be of another version."""
        paths = [path for path in self.env.get("LD_LIBRARY_PATH", "").split(":") if path and path != self.args.libraries]
        return dict(self.env, LD_LIBRARY_PATH=":".join(paths))

    def torch(self, model, batch, limit):
        entry = self.result["models"].setdefault(model, {"rows": [], "torch": None})
        if not self.args.python:
            entry["torch"] = {"error": "no interpreter with PyTorch 2.4 or newer"}
            return
        device = "cpu" if self.args.rehearse else "cuda"
        # Compiled is the baseline; eager where the compiler fails or is late.
        settings = ["eager, bf16 weights, malloc plain"] if self.args.rehearse else \
            ["torch.compile, bf16 weights", "eager, bf16 weights"]
        steps = "2" if self.args.rehearse else "5" if model == "1b" else "10"
        while True:
            command = [self.args.python, ROOT / "scripts/bench_vs_torch.py", "--torch-only", "--json", "--device", device,
                       "--models", model, "--precisions", "bf16", "--sequences", batch, "--length",
                       32 if self.args.rehearse else LENGTH, "--trial-steps", steps, "--settings", settings[0]]
            try:
                found = json.loads(self.run(command, limit, self.torch_env()))[0]
                name, row = next(iter(found["rows"].items()))
                entry["torch"] = {"name": name, "version": found["torch"], "micro_batch": batch, "tried": found["tried"],
                                  **{key: row[key] for key in ("step_seconds", "tokens_per_second", "peak_bytes")}}
                self.say(f"{model} {name} ({found['torch']}): {row['tokens_per_second']:.0f} tokens/s, "
                         f"{row['peak_bytes'] / 2**30:.2f} GiB")
            except (Failed, OSError, ValueError, KeyError, IndexError) as error:
                if "memory" in str(error).lower() and batch > 1:
                    batch //= 2
                    continue
                if len(settings) > 1 and self.left() > 5:
                    self.say(f"{model} PyTorch {settings.pop(0)}: failed: {error}")
                    limit = 70
                    continue
                entry["torch"] = {"error": str(error) or type(error).__name__}
                self.say(f"{model} PyTorch: failed: {error}")
            self.write()
            return

    def execute(self):
        free = self.free_memory()
        self.write()
        # The card's speeds first, beside a model so small that nothing depends on it.
        self.measure("tiny", *VARIANTS[0], free)
        machine = self.result["machine"]
        if machine:
            self.say(f"{machine['card']}: memory {machine['bytes_per_second'] / 1e9:.1f} GB/s, bf16 products "
                     f"{machine['gemm_peak']['bf16'] / 1e12:.2f} TFLOP/s")
        models = ["tiny"] if self.args.rehearse else ["1b", "60m", "350m"]
        if self.args.rehearse:
            self.result["models"].clear()
        # Of each model the two that matter most and PyTorch, then the others, so that a slow card loses the least.
        for number, model in enumerate(models):
            for name, changes in VARIANTS[:2]:
                row = self.measure(model, name, changes, free)
            # The first start of PyTorch and its compiler reads gigabytes from the disk.
            limit = 150 if number == 0 else 100
            try:
                self.torch(model, row.get("micro_batch") or self.fitting_batch(model, VARIANTS[0][1], free), limit)
            except (Failed, OSError, ValueError, KeyError) as error:  # the batch is not known
                self.result["models"][model]["torch"] = {"error": str(error) or type(error).__name__}
                self.write()
        for model in models:
            for name, changes in VARIANTS[2:]:
                self.measure(model, name, changes, free)
        self.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", help="the program; without it only what is known before is written")
    parser.add_argument("--out", required=True, help="the JSON to write")
    parser.add_argument("--log", required=True, help="file to which everything is appended")
    parser.add_argument("--parts", help="parts that ran before: name, result, seconds, note, separated by tabs")
    parser.add_argument("--card", help="its name, until it is asked for its memory")
    parser.add_argument("--libraries", help="a folder in LD_LIBRARY_PATH that is for compact alone")
    parser.add_argument("--python", help="an interpreter that has PyTorch")
    parser.add_argument("--seconds", type=float, default=300, help="for all measurements")
    parser.add_argument("--rehearse", action="store_true", help="tiny size")
    args = parser.parse_args()
    if args.compact is None:
        Check(args).write()
        return
    args.compact = os.path.abspath(args.compact)
    Check(args).execute()


if __name__ == "__main__":
    main()
