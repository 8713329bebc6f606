#!/usr/bin/env python3
"""A tiny training run on a CUDA device beside the same on the CPU: losses agree, a resumed run ends on the same bits,
a checkpoint of the CPU goes on on the card, and the result evaluates and generates. Makes its own text. Needs the standard
library only; scripts/gpu_check.sh calls it.

    scripts/gpu_smoke.py --compact build/compact [--steps N] [--under "compute-sanitizer --tool memcheck"]
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Both devices round sums in other orders, and bf16 to three digits.
TOLERANCE = {"fp32": 2e-4, "bf16": 3e-2}
RUN = {
    "model": "", "data": {"train": "none", "sequence_length": 32}, "batch": {"tokens_per_step": 128, "micro_batch": 2},
    "optimizer": {"lr": 0.002}, "compact": {"update_gap": 5}, "eval": {"max_tokens": 256},
    "train": {"steps": 1, "eval_every": 0, "checkpoint_every": 0, "out_dir": "none"},
}


def run(command, env):
    print("$", *command, flush=True)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env)
    print(done.stdout + done.stderr, flush=True)
    if done.returncode != 0:
        sys.exit(f"{command[-1] if len(command) < 3 else command[1]}: exit status {done.returncode}: "
                 f"{(done.stderr.strip() or done.stdout.strip() or 'no message').splitlines()[-1]}")
    return done.stdout


def write_text(path):
    """Sentences of made-up words with a frequency that falls, so that there is something to learn."""
    chance = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "ir", "os")]
    words = ["".join(chance.choices(syllables, k=chance.choice((1, 2, 2, 3)))) for _ in range(1500)]
    weights = [1 / (i + 3) for i in range(len(words))]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(6000):
            file.write(" ".join(chance.choices(words, weights, k=chance.randint(4, 14))).capitalize() + ".\n")
            if i % 50 == 49:
                file.write("<|endoftext|>\n")


def losses(folder):
    with open(folder / "metrics.jsonl", encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return [event["loss"] for event in events if event.get("event") == "step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--under", default="", help="a tool that runs the program on the card, with its options")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        env = dict(os.environ, XDG_CACHE_HOME=str(work / "cache"))
        compact, under = [os.path.abspath(args.compact)], args.under.split()
        write_text(work / "text.txt")
        run([*compact, "tokenizer-train", "--vocab-size", "1000", "--out", work / "t", work / "text.txt"], env)
        run([*compact, "tokenize", "--tokenizer", work / "t.model", "--out", work / "data", "--val-fraction", "0.05",
             work / "text.txt"], env)

        with open(work / "run.json", "w", encoding="utf-8") as file:
            json.dump(RUN, file)

        def train(folder, device, *settings, tool=()):
            run([*tool, *compact, "train", work / "run.json",
                 f"model={ROOT}/configs/model/llama_tiny.json", f"data.train={work}/data_train_*.bin",
                 f"data.val={work}/data_val_*.bin", f"train.steps={args.steps}", f"train.out_dir={work / folder}",
                 f"device={device}", *settings], env)
            return losses(work / folder)

        bf16 = ["precision=bf16", "optimizer.gradient_dtype=bf16", "optimizer.state_dtype=bf16"]
        kinds = {
            "fp32 full rank": ["optimizer.name=adamw"],
            "fp32 CompAct": ["optimizer.name=compact"],
            "bf16 full rank": ["optimizer.name=adamw", *bf16],
            "bf16 CompAct": ["optimizer.name=compact", *bf16],
        }
        if under:  # under a tool: that nothing is found, not what comes out
            for number, kind in enumerate(("fp32 full rank", "bf16 CompAct")):  # slow, so as few as launch every kernel
                train(f"tool_{number}", "cuda", *kinds[kind], tool=under)
            print("nothing found")
            return
        for number, (kind, settings) in enumerate(kinds.items()):
            cpu = train(f"cpu_{number}", "cpu", *settings)
            card = train(f"cuda_{number}", "cuda", *settings)
            worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, card))
            print(f"{kind}: losses of CPU and card differ by up to {worst:.2e}: {cpu} {card}")
            if len(cpu) != args.steps or len(card) != args.steps or not worst <= TOLERANCE[kind[:4]]:
                sys.exit(f"{kind}: losses of CPU and card differ by {worst:.2e}, allowed are {TOLERANCE[kind[:4]]}")
        half = f"train.checkpoint_every={args.steps // 2}"
        whole = train("whole", "cuda", *kinds["bf16 CompAct"], half)
        # The run without its last checkpoint goes on from the one before.
        newest = sorted((work / "whole" / "checkpoints").iterdir())[-1]
        before = (newest / "model.safetensors").read_bytes()
        subprocess.run(["rm", "-r", str(newest)], check=True)
        again = train("whole", "cuda", *kinds["bf16 CompAct"], half, "--resume")
        if again != whole or (newest / "model.safetensors").read_bytes() != before:
            sys.exit(f"a resumed run ended otherwise: losses {whole} and {again}")
        more = f"train.steps={args.steps + 2}"
        train("cpu_1", "cuda", *kinds["fp32 CompAct"], more, "--resume")
        train("cuda_1", "cpu", *kinds["fp32 CompAct"], more, "--resume")
        run([*compact, "eval", work / "whole", "--data", f"{work}/data_val_*.bin", "--device", "cuda"], env)
        run([*compact, "generate", work / "whole", "--prompt", "Ba", "--max-tokens", "8", "--temperature", "0",
             "--device", "cuda"], env)
        print("all agree")


if __name__ == "__main__":
    main()
