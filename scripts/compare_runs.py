#!/usr/bin/env python3
"""compare_runs.py RUN_FOLDER...

A table (Markdown, aligned) of runs side by side: validation loss, perplexity, speed, and the bytes of the memory peak
by category with the saving against the first run. Reads metrics.jsonl; needs the standard library only.
"""
import json
import math
import pathlib
import statistics
import sys

CATEGORIES = ["weights", "master", "gradients", "optimizer", "activations", "workspace"]


class Run:
    """The events of one run folder's metrics.jsonl."""

    def __init__(self, folder):
        path = pathlib.Path(folder) / "metrics.jsonl"
        self.name = pathlib.Path(folder).resolve().name
        self.start, self.steps, self.evals, self.skips = {}, [], [], 0
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            sys.exit(f"{path}: cannot be read ({error.strerror}); expected the folder of a run")
        for number, line in enumerate(lines, 1):
            try:
                event = json.loads(line)
            except ValueError:
                if number == len(lines):  # a run that is going on, or was killed while it wrote
                    break
                sys.exit(f"{path}: line {number} is no JSON object")
            kind = event.get("event")
            if kind == "start":
                self.start = event
            elif kind == "step":
                self.steps.append(event)
            elif kind == "eval":
                self.evals.append(event)
            elif kind == "skip":
                self.skips += 1
        if not self.steps:
            sys.exit(f"{path}: no step in it yet")

    def peak(self):
        """Bytes by category at the highest point."""
        memory = [{c: s["memory"].get(c, 0) for c in CATEGORIES} for s in self.steps if s.get("memory")]
        return max(memory, key=lambda m: sum(m.values()), default={c: 0 for c in CATEGORIES})

    def tokens_per_second(self):
        speeds = [s["tokens_per_second"] for s in self.steps if s.get("tokens_per_second")]
        return statistics.median(speeds) if speeds else math.nan


def human_bytes(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def number(value, form):
    return "-" if value is None else format(value, form)


def rows_of(runs):
    """Lists of cells, the first of them the name of the row."""
    last = [run.evals[-1] if run.evals else {} for run in runs]
    peaks = [run.peak() for run in runs]
    totals = [sum(p.values()) for p in peaks]
    rows = [
        ["validation loss"] + [number(e.get("loss"), ".4f") for e in last],
        ["validation perplexity"] + [number(e.get("perplexity"), ".2f") for e in last],
        ["tokens trained on"] + [number(run.steps[-1].get("tokens"), ",") for run in runs],
        ["tokens/s (median)"] + [number(run.tokens_per_second(), ",.0f") for run in runs],
    ]
    if any(run.skips for run in runs):
        rows.append(["skipped steps"] + [str(run.skips) for run in runs])
    for category in CATEGORIES:
        if any(p[category] for p in peaks):
            rows.append([f"peak memory: {category}"] + [human_bytes(p[category]) for p in peaks])
    rows.append(["peak memory: total"] + [human_bytes(t) for t in totals])
    if len(runs) > 1 and totals[0]:
        savings = [f"{100 * (1 - t / totals[0]):.1f} %" for t in totals[1:]]
        rows.append([f"saving against {runs[0].name}", "-"] + savings)
    return rows


def markdown(header, rows):
    widths = [max(len(row[i]) for row in [header] + rows) for i in range(len(header))]

    def line(cells):
        padded = [cells[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(cells[1:], widths[1:])]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "-" * (widths[0] + 2) + "|" + "|".join("-" * (w + 1) + ":" for w in widths[1:]) + "|"
    return "\n".join([line(header), rule] + [line(row) for row in rows])


def main():
    if "-h" in sys.argv[1:] or "--help" in sys.argv[1:]:
        print(__doc__.strip())
        return
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    runs = [Run(folder) for folder in sys.argv[1:]]
    print(markdown([""] + [run.name for run in runs], rows_of(runs)))


if __name__ == "__main__":
    main()
