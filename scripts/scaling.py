#!/usr/bin/env python3
"""Step time of the 7B model on 8 to 1024 GPUs, on paper: full rank against CompAct n/4.

Operations and bytes come from `compact plan --ranks N`; speeds are data-sheet figures and one assumption, all of them
constants of this script. docs/scaling.md has the formulas and the table, which --write renews.

    scripts/scaling.py
    scripts/scaling.py --write docs/scaling.md
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- tables of scripts/scaling.py -->", "<!-- end of the tables -->"

LENGTH, TOKENS = 2048, 4194304  # of a sequence; of a step, whatever the number of GPUs
MICRO_BATCH = 2  # sequences
PER_NODE = 8
PEAK = 989e12  # operations a second: H100 SXM, bf16, dense (data sheet)
UTILIZATION = 0.4  # of it, assumed
NVLINK = 450e9  # bytes a second and direction and GPU: NVLink 4 (data sheet: 900 GB/s both ways)
LATENCY = 5e-6  # seconds of one hop of a collective, assumed
BUCKET = 25 * 2**20  # dist.bucket_bytes
LINKS = {  # bytes a second and direction and GPU, between nodes
    "InfiniBand, 400 Gb/s a GPU": 50e9,
    "Ethernet, 100 Gb/s a node": 12.5e9 / PER_NODE,
    "Ethernet, 25 Gb/s a node": 3.125e9 / PER_NODE,
}


def plan(compact, folder, variant, ranks):
    run = {
        "model": os.path.join(ROOT, "configs/model/llama_7b.json"),
        "data": {"train": "none.bin", "sequence_length": LENGTH},
        "batch": {"tokens_per_step": TOKENS, "micro_batch": MICRO_BATCH},
        "optimizer": {"name": variant, "lr": 0.001, "state_dtype": "bf16", "gradient_dtype": "bf16"},
        "memory": {"preset": "block"},
        "train": {"steps": 1, "out_dir": "none"},
        "precision": "bf16",
        "device": "cuda",
    }
    path = os.path.join(folder, "run.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(run, file)
    done = subprocess.run([compact, "plan", path, "--json", "--ranks", str(ranks)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"scaling.py: {done.stderr.strip()}")
    return json.loads(done.stdout)


def reduction_seconds(gradient_bytes, ranks, link):
    """Reduce-scatter within a node, all-reduce between nodes of each GPU's part, all-gather within the node."""
    nodes = ranks // PER_NODE
    inside = 2 * gradient_bytes * (PER_NODE - 1) / PER_NODE / NVLINK
    between = 2 * gradient_bytes / PER_NODE * (nodes - 1) / nodes / link
    hops = 2 * (math.log2(PER_NODE) + math.log2(nodes))
    return inside + between + math.ceil(gradient_bytes / BUCKET) * hops * LATENCY


def step_seconds(numbers, ranks, link):
    rate = PEAK * UTILIZATION
    micro = (numbers["micro_batch_gemm_flops"] + numbers["micro_batch_attention_flops"]) / rate
    compute = numbers["micro_batches"] * micro + numbers["update_flops"] / rate
    gradient_bytes = numbers["wire_bytes"] / (2 * (ranks - 1) / ranks)
    reduction = reduction_seconds(gradient_bytes, ranks, link)
    backward = micro * 2 / 3  # of the last micro-batch, beside which gradients go
    return compute, reduction, compute + max(0.0, reduction - backward)


def table(compact):
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        plans = {(name, ranks): plan(compact, folder, name, ranks)
                 for ranks in (8, 16, 32, 64, 128, 256, 512, 1024) for name in ("adamw", "compact")}
    first = {name: plans[name, 8]["wire_bytes"] / (2 * 7 / 8) for name in ("adamw", "compact")}
    lines.append(f"Gradients: {first['adamw'] / 1e9:.2f} GB at full rank, {first['compact'] / 1e9:.2f} GB with n/4 "
                 f"({first['compact'] / first['adamw']:.3f}).")
    for name, link in LINKS.items():
        lines += ["", f"{name}:", "",
                  "| GPUs | micro-batches | full rank: computing, s | reduction, s | step, s | n/4: computing, s "
                  "| reduction, s | step, s | speed |", "|---|---|---|---|---|---|---|---|---|"]
        for ranks in (8, 16, 32, 64, 128, 256, 512, 1024):
            full = step_seconds(plans["adamw", ranks], ranks, link)
            quarter = step_seconds(plans["compact", ranks], ranks, link)
            lines.append(f"| {ranks} | {plans['adamw', ranks]['micro_batches']} | "
                         + " | ".join(f"{s:.3f}" for s in full + quarter) + f" | {full[2] / quarter[2]:.2f} x |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", default=os.path.join(ROOT, "build/compact"), help="the program")
    parser.add_argument("--write", metavar="FILE", help="put the tables between the markers of this file")
    args = parser.parse_args()
    if not os.access(args.compact, os.X_OK):
        sys.exit(f"scaling.py: there is no program {args.compact}; build it, or name it with --compact")
    text = table(args.compact)
    if not args.write:
        print(text, end="")
        return
    with open(args.write, encoding="utf-8") as file:
        page = file.read()
    if BEGIN not in page or END not in page.split(BEGIN, 1)[1]:
        sys.exit(f"scaling.py: {args.write} has no lines {BEGIN} and {END}")
    before, rest = page.split(BEGIN, 1)
    with open(args.write, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + text + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
