#!/usr/bin/env python3
"""The same LLaMA training step in PyTorch and in compact, in turns: tokens a second and peak memory.

A step is forward, loss, backward and the AdamW update of 8 x 256 tokens (on a GPU 128 x 256); compact updates layer by
layer in backward, which changes no bit of its result. First PyTorch's settings are tried one after
another (eager and torch.compile, bf16 weights and autocast, each with and without tuned malloc); the fastest is the
baseline. Then rounds: some steps of the baseline, some of each variant of compact, and so on. A ratio is the median of
the rounds' ratios, so that a noisy minute hits both sides.

    scripts/bench_vs_torch.py --python /path/to/venv/bin/python
    scripts/bench_vs_torch.py --device cuda --models 350m --precisions bf16
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# ---- the PyTorch side: a process that makes steps when it is told to ------------------------------------------------


def peak_bytes(torch, setting):
    if setting["device"] == "cuda":
        return torch.cuda.max_memory_allocated()
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def make_model(torch, shape, length):
    nn, F = torch.nn, torch.nn.functional
    hidden, mlp, heads = shape["hidden_size"], shape["intermediate_size"], shape["num_attention_heads"]
    width = hidden // heads

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x):
            return F.rms_norm(x, (hidden,), self.weight, shape["rms_norm_eps"])

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = Norm(), Norm()
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.o = nn.Linear(hidden, hidden, bias=False)
            self.gate_up = nn.Linear(hidden, 2 * mlp, bias=False)
            self.down = nn.Linear(mlp, hidden, bias=False)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, heads, width).permute(2, 0, 3, 1, 4)

            def rotate(t):
                first, second = t.chunk(2, dim=-1)
                return t * cos + torch.cat((-second, first), dim=-1) * sin

            seen = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
            x = x + self.o(seen.transpose(1, 2).reshape(B, T, hidden))
            gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(shape["vocab_size"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["num_hidden_layers"]))
            self.norm = Norm()
            self.head = nn.Linear(hidden, shape["vocab_size"], bias=False)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=shape["initializer_range"])
            angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, ids, labels):
            x = self.embedding(ids)
            for block in self.blocks:
                x = block(x, self.cos, self.sin)
            logits = self.head(self.norm(x))
            return F.cross_entropy(logits.float().view(-1, shape["vocab_size"]), labels.view(-1))

    return Llama()


def worker(setting):
    import torch  # only this process needs it

    torch.set_num_threads(setting["threads"])
    torch.manual_seed(1)
    with open(setting["shape"], encoding="utf-8") as file:
        shape = json.load(file)
    device, sequences, length = setting["device"], setting["sequences"], setting["length"]
    with torch.device(device):
        model = make_model(torch, shape, length)
    if setting["numbers"] == "bf16":
        model = model.to(torch.bfloat16)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.0, fused=True)
    except (RuntimeError, TypeError):  # versions without a fused step on the CPU
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.0, foreach=True)
    run = torch.compile(model) if setting["compiled"] else model
    tokens = torch.randint(shape["vocab_size"], (sequences, length + 1), device=device)
    ids, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=setting["numbers"] == "autocast"):
            loss = run(ids, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(2):  # compiles, makes the optimizer's states
        step()
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"version": torch.__version__, "parameters": parameters}), flush=True)
    for line in sys.stdin:
        seconds = []
        step()  # untimed, as the other side's first: after its turn memory may have cooled down
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes(torch, setting)}), flush=True)


# ---- the other side: starting both, in turns -------------------------------------------------------------------------


class Failed(Exception):
    pass


def torch_environment(setting):
    env = dict(os.environ, OMP_NUM_THREADS=str(setting["threads"]))
    # A hint of another CPU or cache size in these makes OpenBLAS slow.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    if setting["malloc"] != "plain":
        # Freed memory stays with the process: else each large tensor is mapped and zeroed again.
        env.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(64 << 20))
        cpus = sorted(os.sched_getaffinity(0))[: setting["threads"]]
        env["GOMP_CPU_AFFINITY"] = " ".join(str(cpu) for cpu in cpus)
    if setting["malloc"] == "huge pages":
        env["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
    return env


class TorchWorker:
    def __init__(self, python, setting):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [python, os.path.abspath(__file__), "--worker", json.dumps(setting)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=torch_environment(setting))
        self.about = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.errors.seek(0)
        raise Failed((self.errors.read().strip().splitlines() or ["no message"])[-1])

    def steps(self, count):
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def text_of(setting):
    numbers = {"fp32": "", "bf16": ", bf16 weights", "autocast": ", autocast"}[setting["numbers"]]
    malloc = f", malloc {setting['malloc']}" if setting["device"] == "cpu" else ""
    return f"PyTorch {'torch.compile' if setting['compiled'] else 'eager'}{numbers}{malloc}"


def torch_settings(args, model, precision):
    return [
        {"shape": f"{ROOT}/configs/model/llama_{model}.json", "numbers": numbers, "compiled": compiled,
         "malloc": malloc, "threads": args.threads, "device": args.device, "sequences": args.sequences,
         "length": args.length}
        for numbers in (["fp32"] if precision == "fp32" else ["bf16", "autocast"])
        for compiled in (False, True)
        for malloc in (("plain", "tuned", "huge pages") if args.device == "cpu" else ("plain",))
    ]


def try_settings(args, model, precision):
    """Every setting for a few steps; the fastest step of each counts, as noise only adds."""
    tried = []
    for setting in torch_settings(args, model, precision):
        if not any(words in text_of(setting) for words in args.settings.split(";")):
            continue
        result = {"setting": setting, "name": text_of(setting)}
        try:
            running = TorchWorker(args.python, setting)
            answer = running.steps(args.trial_steps)
            result.update(running.about, seconds=min(answer["seconds"]), peak_bytes=answer["peak_bytes"],
                          median_seconds=statistics.median(answer["seconds"]))
            running.close()
            note = f"{result['seconds']:.3f} s a step, {result['peak_bytes'] / 2**30:.2f} GiB"
        except Failed as error:
            result["error"] = note = str(error)
        print(f"{model} {precision} {result['name']}: {note}", file=sys.stderr, flush=True)
        tried.append(result)
    working = [result for result in tried if "error" not in result]
    if not working:
        sys.exit(f"no setting of PyTorch works for {model} in {precision}; the last error: {tried[-1]['error']}")
    return tried, min(working, key=lambda result: result["seconds"])


def compact_variants(args, model, precision):
    base = {
        "model": f"{ROOT}/configs/model/llama_{model}.json",
        "data": {"train": "none", "sequence_length": args.length},
        "batch": {"tokens_per_step": args.sequences * args.length, "micro_batch": args.sequences},
        "optimizer": {"name": "adamw", "lr": 0.001, "update": "per_layer"},
        "compact": {"rank": 0.25},
        "memory": {"preset": "lean"},
        "train": {"steps": 1000, "out_dir": "none"},
        "precision": precision,
        "device": args.device,
        "threads": args.threads,
    }

    def changed(**optimizer):
        return dict(base, optimizer=dict(base["optimizer"], **optimizer))

    variants = {"full rank": base, "CompAct n/4": changed(name="compact")}
    if precision == "bf16":  # PyTorch's pure bf16 keeps gradients and moments in bf16 too
        variants["full rank, bf16 states"] = changed(state_dtype="bf16", gradient_dtype="bf16")
    return {f"compact {name}": run for name, run in variants.items()}


def compact_steps(binary, run, count):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(run, file)
        done = subprocess.run([binary, "bench", path, "--steps-only", "--json", "--repeats", str(count)],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{binary} bench: {done.stderr.strip()}")
    step = json.loads(done.stdout)["steps"][0]
    peak = step["peak_bytes"] if run["device"] == "cuda" else step["resident_peak_bytes"]
    return step["step_seconds"], peak, step["parameters"]


def compare(args, model, precision):
    tried, best = try_settings(args, model, precision)
    variants = {} if args.torch_only else compact_variants(args, model, precision)
    rows = {best["name"]: {"seconds": [], "peak_bytes": 0}}
    rows.update({name: {"seconds": [], "peak_bytes": 0} for name in variants})
    if args.torch_only:  # its trial is all there is to know
        rows[best["name"]].update(seconds=[best["median_seconds"]], peak_bytes=best["peak_bytes"])
    else:
        take_turns(args, model, precision, best, variants, rows)
    first = rows[best["name"]]
    for row in rows.values():
        row["step_seconds"] = statistics.median(row["seconds"])
        row["tokens_per_second"] = args.sequences * args.length / row["step_seconds"]
        row["speed_ratio"] = statistics.median(a / b for a, b in zip(first["seconds"], row["seconds"]))
        row["memory_ratio"] = row["peak_bytes"] / first["peak_bytes"]
    return {"model": model, "precision": precision, "torch": best["version"], "tried": tried, "rows": rows}


def take_turns(args, model, precision, best, variants, rows):
    baseline = TorchWorker(args.python, best["setting"])
    for number in range(args.rounds):
        answer = baseline.steps(args.steps)
        taken = [(best["name"], statistics.median(answer["seconds"]), answer["peak_bytes"])]
        for name, run in variants.items():
            seconds, peak, parameters = compact_steps(args.compact, run, args.steps)
            if parameters != best["parameters"]:
                sys.exit(f"{model}: compact has {parameters} parameters and PyTorch {best['parameters']}")
            taken.append((name, seconds, peak))
        for name, seconds, peak in taken:
            rows[name]["seconds"].append(seconds)
            rows[name]["peak_bytes"] = max(rows[name]["peak_bytes"], peak)
        print(f"{model} {precision} round {number + 1}: " + ", ".join(f"{n} {s:.3f} s" for n, s, _ in taken),
              file=sys.stderr, flush=True)
    baseline.close()


def markdown(results):
    lines = ["| model | precision | | s a step | tokens/s | peak memory | speed | memory |",
             "|---|---|---|---|---|---|---|---|"]
    for result in results:
        for name, row in result["rows"].items():
            lines.append(
                f"| {result['model']} | {result['precision']} | {name} | {row['step_seconds']:.3f} | "
                f"{row['tokens_per_second']:,.0f} | {row['peak_bytes'] / 2**30:.2f} GiB | "
                f"{row['speed_ratio']:.2f} x | {row['memory_ratio']:.2f} x |")
    lines += ["", "PyTorch's settings, the fastest of a few steps each:", "",
              "| model | precision | setting | s a step | peak memory |", "|---|---|---|---|---|"]
    for result in results:
        for tried in result["tried"]:
            end = tried["error"] if "error" in tried else \
                f"{tried['seconds']:.3f} | {tried['peak_bytes'] / 2**30:.2f} GiB"
            lines.append(f"| {result['model']} | {result['precision']} | {tried['name']} | {end} |")
    return "\n".join(lines)


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", default=f"{ROOT}/build/compact", help="the program")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--models", default="60m,130m", help="of configs/model/llama_*.json")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sequences", type=int, help="of a step; default: 8 on the CPU, 128 on a GPU")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--torch-only", action="store_true", help="PyTorch alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of each side in a round")
    parser.add_argument("--trial-steps", type=int, default=3, help="steps to try a setting of PyTorch with")
    parser.add_argument("--settings", default="PyTorch",
                        help="only PyTorch settings whose name holds one of these texts, separated by ;")
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of tables")
    args = parser.parse_args()
    args.sequences = args.sequences or (8 if args.device == "cpu" else 128)
    if not args.torch_only and not os.access(args.compact, os.X_OK):
        sys.exit(f"{args.compact} is missing: build compact first, or name it with --compact.")
    # Looked for only: importing takes long, and the worker does it.
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.run([args.python, "-c", find], capture_output=True, check=False).returncode != 0:
        sys.exit(f"PyTorch is missing: install it with `{args.python} -m pip install torch`, or name an interpreter "
                 "that has it with --python.")
    results = [compare(args, model, precision)
               for model in args.models.split(",") for precision in args.precisions.split(",")]
    print(json.dumps(results, indent=1) if args.json else markdown(results))


if __name__ == "__main__":
    main()
