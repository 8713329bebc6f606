#!/usr/bin/env python3
"""What ranks cost: bytes on the wire, and weak scaling on the CPU.

Bytes: for each model, full-rank and CompAct n/4 and n/8, what a rank sends in a step, as `compact plan --ranks N` says,
and as a short run under mpirun counts it. The two must be equal.

Weak scaling: one process with one thread against N processes with one thread each and N times the tokens a step, so
that each does the same work. The runs take turns; efficiency is the median over the rounds of (step of one process) /
(step of N processes), each the median of its run's steps but for the first two.

    scripts/bench_ranks.py
    scripts/bench_ranks.py --only scaling --models 60m --sequences 8 --rounds 5
"""

import argparse
import array
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VARIANTS = {
    "full rank": {"name": "adamw"},
    "CompAct n/4": {"name": "compact", "rank": 0.25},
    "CompAct n/8": {"name": "compact", "rank": 0.125},
}


def fail(text):
    sys.exit(f"bench_ranks.py: {text}")


def write_shard(path, tokens, vocab_size):
    """Random ids in the layout of llm.c (docs/formats.md)."""
    generator = random.Random(1)
    header = array.array("i", [20240520, 1, tokens] + [0] * 253)
    ids = array.array("H", (generator.randrange(vocab_size) for _ in range(tokens)))
    if sys.byteorder != "little":
        header.byteswap()
        ids.byteswap()
    with open(path, "wb") as file:
        file.write(header.tobytes() + ids.tobytes())


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.runs = args, folder, 0

    def write_run(self, model, variant, ranks, sequences, steps):
        chosen = VARIANTS[variant]
        run = {
            "model": os.path.join(ROOT, "configs/model", f"llama_{model}.json"),
            "data": {"train": "train.bin", "sequence_length": self.args.length},
            "batch": {"tokens_per_step": ranks * sequences * self.args.length, "micro_batch": sequences},
            "optimizer": {"name": chosen["name"]},
            "train": {"steps": steps, "eval_every": 0, "checkpoint_every": 0, "out_dir": f"out{self.runs}"},
            "precision": self.args.precision,
            "threads": 1,
        }
        if "rank" in chosen:
            run["compact"] = {"rank": chosen["rank"]}
        if self.args.shard_optimizer:
            run["dist"] = {"shard_optimizer": True}
        self.runs += 1
        with open(os.path.join(self.folder, "run.json"), "w", encoding="utf-8") as file:
            json.dump(run, file)
        return run

    def call(self, words):
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"{shlex.join(words)} ended with {done.returncode}:\n{done.stderr.strip()[-2000:]}")
        return done.stdout

    def plan(self, model, variant, ranks):
        self.write_run(model, variant, ranks, 1, 1)
        return json.loads(self.call([self.args.compact, "plan", "run.json", "--json", "--ranks", str(ranks)]))

    def steps(self, model, variant, ranks, sequences, steps):
        """The events of the steps of a run."""
        run = self.write_run(model, variant, ranks, sequences, steps)
        launcher = [] if ranks == 1 else shlex.split(self.args.mpirun) + ["-np", str(ranks)]
        self.call(launcher + [self.args.compact, "train", "run.json"])
        out = os.path.join(self.folder, run["train"]["out_dir"])
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            events = [json.loads(line) for line in file]
        self.call(["rm", "-r", out])  # a checkpoint of a large model
        return [event for event in events if event["event"] == "step"]


def bytes_on_the_wire(bench, args):
    rows = []
    for model in args.wire_models:
        full = None
        for variant in VARIANTS:
            planned = bench.plan(model, variant, args.ranks)["wire_bytes"]
            full = full or planned
            counted = bench.steps(model, variant, args.ranks, 1, 2)[-1]["wire_bytes"]
            if counted != planned:
                fail(f"{model}, {variant}: a rank sends {counted} bytes a step, and the plan says {planned}")
            rows.append({"model": model, "variant": variant, "ranks": args.ranks, "planned": planned,
                         "counted": counted, "of_full_rank": planned / full})
            print(f"{model:>6}  {variant:<12} {args.ranks} ranks: {planned / 1e6:10.1f} MB a step and rank, "
                  f"{planned / full:.3f} of full rank; counted: {counted / 1e6:.1f} MB", flush=True)
    return rows


def weak_scaling(bench, args):
    rows = []
    for model in args.models:
        for variant in ("full rank", "CompAct n/4"):
            ratios, ones, manies, waits = [], [], [], []
            for _ in range(args.rounds):
                one = bench.steps(model, variant, 1, args.sequences, args.steps)[2:]
                many = bench.steps(model, variant, args.ranks, args.sequences, args.steps)[2:]
                ones.append(statistics.median(event["step_ms"] for event in one))
                manies.append(statistics.median(event["step_ms"] for event in many))
                waits.append(statistics.median(event["ranks_waited_ms"] for event in many))
                ratios.append(ones[-1] / manies[-1])
            row = {"model": model, "variant": variant, "ranks": args.ranks, "tokens_of_a_rank":
                   args.sequences * args.length, "one_ms": statistics.median(ones),
                   "many_ms": statistics.median(manies), "waited_ms": statistics.median(waits),
                   "efficiency": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}
            rows.append(row)
            print(f"{model:>6}  {variant:<12} 1 process {row['one_ms']:8.1f} ms, {args.ranks} processes "
                  f"{row['many_ms']:8.1f} ms a step (of it {row['waited_ms']:.1f} ms waiting): efficiency "
                  f"{row['efficiency']:.3f} ({row['lowest']:.3f} to {row['highest']:.3f})", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", default=os.path.join(ROOT, "build/compact"), help="the program")
    parser.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none"
                        + (" --allow-run-as-root" if os.geteuid() == 0 else ""), help="the launcher, with its options")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", choices=["bytes", "scaling"], help="one of the two parts")
    parser.add_argument("--wire-models", nargs="+", default=["60m", "350m"], help="models of the first part")
    parser.add_argument("--models", nargs="+", default=["60m"], help="models of the second part")
    parser.add_argument("--sequences", type=int, default=8, help="of a rank and step, in one micro-batch")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=7, help="of a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--shard-optimizer", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    args = parser.parse_args()
    args.compact = os.path.abspath(args.compact)
    if not os.access(args.compact, os.X_OK):
        fail(f"there is no program {args.compact}; build it (ninja -C build compact) or name it with --compact")
    if args.ranks < 2 or args.steps < 3 or args.rounds < 1 or args.sequences < 1 or args.length < 1:
        fail("expected at least 2 ranks, 3 steps, 1 round, 1 sequence and 1 token")

    result = {}
    with tempfile.TemporaryDirectory(prefix="bench_ranks_") as folder:
        tokens = args.ranks * max(args.sequences, 1) * args.length * args.steps + 1
        write_shard(os.path.join(folder, "train.bin"), max(tokens, 4096), 32000)
        bench = Bench(args, folder)
        if args.only != "scaling":
            result["bytes"] = bytes_on_the_wire(bench, args)
        if args.only != "bytes":
            result["scaling"] = weak_scaling(bench, args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
