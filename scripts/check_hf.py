#!/usr/bin/env python3
"""Checks that a checkpoint means the same to Hugging Face transformers as to compact.

Loads the folder with transformers.LlamaForCausalLM as it is and compares, in fp32:
  1. the mean loss over token shards with that of `compact eval --json`,
  2. log-probabilities of single ids after a fixed context, each asked from `compact eval` through a shard of its own,
  3. where the checkpoint has a tokenizer, the greedy continuation of a prompt with that of `compact generate`.
Exit code 0 when all agree within --tolerance.

Needs torch, transformers 4.44.2 and sentencepiece. With Debian's torch 1.13 (python3-torch):
    /usr/bin/python3 -m venv --system-site-packages VENV
    VENV/bin/pip install transformers==4.44.2 sentencepiece==0.2.0
    VENV/bin/python scripts/check_hf.py RUN/checkpoints/step_00001000 --data 'data/x_val_*.bin'
"""
import argparse
import array
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

HEADER_BYTES = 1024
MAGIC = {20240520: ("H", 1), 20240801: ("I", 7)}  # llm.c's: type code of the tokens, version


def read_shard(path):
    with open(path, "rb") as f:
        data = f.read()
    magic, _, count = struct.unpack_from("<3i", data)
    tokens = array.array(MAGIC[magic][0])
    tokens.frombytes(data[HEADER_BYTES:])
    assert len(tokens) == count, f"{path}: {len(tokens)} tokens, the header says {count}"
    return list(tokens)


def write_shard(path, tokens):
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240801, 7, len(tokens), *([0] * 253)))
        f.write(array.array("I", tokens).tobytes())


def manifest_of(path):
    """The json beside a shard that lists it, or None."""
    for name in glob.glob(os.path.join(glob.escape(os.path.dirname(path) or "."), "*.json")):
        with open(name, encoding="utf-8") as f:
            try:
                content = json.load(f)
            except ValueError:
                continue
        shards = content.get("shards") if isinstance(content, dict) else None
        if isinstance(shards, list) and any(s.get("file") == os.path.basename(path) for s in shards):
            return content
    return None


def windows(path, length):
    """Inputs and labels of a shard as `compact eval` takes them: T + 1 tokens at stride T, or rows of T."""
    tokens, manifest = read_shard(path), manifest_of(path)
    if manifest is None or manifest["layout"] == "packed":
        for at in range(0, len(tokens) - length, length):
            yield tokens[at:at + length], tokens[at + 1:at + length + 1]
        return
    length, padding = manifest["row_length"], manifest["padding_id"]
    for at in range(0, len(tokens), length):
        row = tokens[at:at + length]
        used = length
        while used > 0 and row[used - 1] == padding:
            used -= 1
        if 0 < used < length and padding == manifest["end_of_text_id"]:
            used += 1
        yield row, [row[i + 1] if i + 1 < used else -100 for i in range(length)]


def sequence_length(folder):
    with open(os.path.join(folder, "state.json"), encoding="utf-8") as f:
        return json.load(f)["config"]["data"]["sequence_length"]


class Compact:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def call(self, command, *words):
        done = subprocess.run([self.binary, command, self.folder, *words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compact {command}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def loss(self, pattern, length):
        result = json.loads(self.call("eval", "--data", pattern, "--sequence-length", str(length), "--json"))
        return result["loss"], result["tokens"]

    def sum_of_losses(self, tokens, scratch):
        """Summed over one window: every token but the first has a loss."""
        path = os.path.join(scratch, "window.bin")
        write_shard(path, tokens)
        loss, count = self.loss(path, len(tokens) - 1)
        return loss * count


def losses(torch, model, inputs, labels):
    with torch.no_grad():
        logits = model(torch.tensor(inputs)).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten(), ignore_index=-100,
                                             reduction="sum").item()


def check_mean_loss(torch, model, compact, pattern, length, tolerance):
    total, count, batch = 0.0, 0, []
    shards = sorted(glob.glob(pattern))
    if not shards:
        sys.exit(f"no shard matches {pattern}")

    def finish():
        nonlocal total, count
        labels = [b[1] for b in batch]
        total += losses(torch, model, [b[0] for b in batch], labels)
        count += sum(x != -100 for row in labels for x in row)
        batch.clear()

    for path in shards:
        for window in windows(path, length):
            batch.append(window)
            if len(batch) == 8:
                finish()
    if batch:
        finish()
    ours, tokens = compact.loss(pattern, length)
    print(f"mean loss over {count} tokens: transformers {total / count:.7f}, compact {ours:.7f}, "
          f"difference {abs(total / count - ours):.1e}")
    return tokens == count and abs(total / count - ours) <= tolerance


def check_log_probabilities(torch, model, compact, context, vocabulary, targets, tolerance):
    with torch.no_grad():
        theirs = torch.log_softmax(model(torch.tensor([context])).logits[0, -1].double(), dim=-1)
    ids = sorted({i * (vocabulary - 1) // max(targets - 1, 1) for i in range(targets)} | {theirs.argmax().item()})
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        before = compact.sum_of_losses(context, scratch)
        for i in ids:
            ours = before - compact.sum_of_losses(context + [i], scratch)
            worst = max(worst, abs(ours - theirs[i].item()))
    print(f"log-probabilities of {len(ids)} ids after {len(context)} tokens: largest difference {worst:.1e}")
    return worst <= tolerance


def check_greedy(torch, model, compact, tokenizer_file, prompt, count, tolerance):
    import sentencepiece
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=tokenizer_file)
    ids = tokenizer.encode(prompt)
    closest = float("inf")  # between the likeliest id and the next: below the tolerance, rounding may choose
    for _ in range(count):
        with torch.no_grad():
            best = model(torch.tensor([ids])).logits[0, -1].double().topk(2)
        closest = min(closest, (best.values[0] - best.values[1]).item())
        following = best.indices[0].item()
        if following == tokenizer.eos_id() or following >= tokenizer.vocab_size():
            break
        ids.append(following)
    theirs = tokenizer.decode(ids)
    ours = compact.call("generate", "--prompt", prompt, "--max-tokens", str(count), "--temperature", "0").removesuffix("\n")
    same = ours == theirs
    print(f"greedy continuation of {prompt!r}: {'the same' if same else 'differs'} over {len(ids)} tokens, closest "
          f"choice {closest:.1e}")
    if not same:
        print(f"  transformers: {theirs!r}\n  compact:      {ours!r}")
    return same or closest <= tolerance


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--data", required=True, help="glob of token shards")
    parser.add_argument("--compact", default="build/compact", help="the binary (default: %(default)s)")
    parser.add_argument("--sequence-length", type=int, help="default: as in the checkpoint's state.json")
    parser.add_argument("--targets", type=int, default=24, help="ids of the second check (default: %(default)s)")
    parser.add_argument("--prompt", default="It was", help="text of the third check (default: %(default)s)")
    parser.add_argument("--max-tokens", type=int, default=32, help="of the third check (default: %(default)s)")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()

    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    model = transformers.LlamaForCausalLM.from_pretrained(args.checkpoint, torch_dtype=torch.float32,
                                                          attn_implementation="eager").eval()
    compact = Compact(args.compact, args.checkpoint)
    length = args.sequence_length or sequence_length(args.checkpoint)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {args.checkpoint}")
    good = check_mean_loss(torch, model, compact, args.data, length, args.tolerance)
    context = read_shard(sorted(glob.glob(args.data))[0])[:min(length, 32)]
    good &= check_log_probabilities(torch, model, compact, context, model.config.vocab_size, args.targets,
                                    args.tolerance)
    tokenizers = glob.glob(os.path.join(glob.escape(args.checkpoint), "*.model"))
    if len(tokenizers) == 1:
        good &= check_greedy(torch, model, compact, tokenizers[0], args.prompt, args.max_tokens, args.tolerance)
    else:
        print("greedy continuation: left out, the checkpoint has no tokenizer")
    print("all agree" if good else f"differs by more than {args.tolerance}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
