#!/usr/bin/env python3
"""Draws the loss curves of runs and, beside them, bars of their peak memory by category.

The thin line is the training loss smoothed over about 2 % of the run, the points are evaluations.
Needs matplotlib (Debian: python3-matplotlib).
"""
import argparse
import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit(f"plot_run.py: {sys.executable} cannot import matplotlib; install python3-matplotlib and use "
             "/usr/bin/python3")
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import matplotlib.ticker

from compare_runs import CATEGORIES, Run, human_bytes, number

RUN_COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8e5ea2", "#b8860b", "#3c4a57"]
CATEGORY_COLOURS = dict(zip(CATEGORIES, ["#4c72b0", "#8c8c8c", "#dd8452", "#55a868", "#c44e52", "#9c7a1f"]))


def smoothed(values, window):
    """Mean of the last `window` values (fewer at the start)."""
    result, total = [], 0.0
    for i, value in enumerate(values):
        total += value
        if i >= window:
            total -= values[i - window]
        result.append(total / min(i + 1, window))
    return result


def draw_losses(axes, runs):
    lowest, highest = [], []
    for run, colour in zip(runs, RUN_COLOURS * len(runs)):
        steps = [s for s in run.steps if s.get("loss") is not None]
        losses = smoothed([s["loss"] for s in steps], max(1, len(steps) // 50))
        tokens = [s["tokens"] for s in steps]
        axes.plot(tokens, losses, color=colour, linewidth=1.1, alpha=0.55)
        label = run.name
        if run.evals:
            label += f": validation {number(run.evals[-1]['loss'], '.3f')}"
            # An evaluation's own `tokens` are those it looked at.
            seen = {s["step"]: s["tokens"] for s in run.steps}
            evals = [e for e in run.evals if e["step"] in seen and e["loss"] is not None]
            axes.plot([seen[e["step"]] for e in evals], [e["loss"] for e in evals], "o-", color=colour, markersize=4,
                      linewidth=1.6, label=label)
        else:
            axes.plot([], [], color=colour, label=label)
        # The first steps stand far above the rest and would flatten all that follows.
        tail = losses[len(losses) // 20:] + [e["loss"] for e in run.evals if e["loss"] is not None]
        lowest.append(min(tail))
        highest.append(max(tail))
    low, high = min(lowest), max(highest)
    margin = 0.05 * (high - low) or 0.1
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(left=0)
    axes.set_xlabel("tokens")
    axes.set_ylabel("loss (thin: training, points: validation)")
    axes.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def draw_memory(axes, runs):
    peaks = [run.peak() for run in runs]
    totals = [sum(p.values()) for p in peaks]
    highest = max(totals)
    bottoms = [0.0] * len(runs)
    for category in CATEGORIES:
        heights = [p[category] / 2**20 for p in peaks]
        if not any(heights):
            continue
        axes.bar(range(len(runs)), heights, 0.6, bottom=bottoms, color=CATEGORY_COLOURS[category], label=category)
        for x, (height, bottom) in enumerate(zip(heights, bottoms)):
            if height * 2**20 > 0.04 * highest:
                axes.text(x, bottom + height / 2, human_bytes(int(height * 2**20)), ha="center", va="center",
                          fontsize=8, color="white")
        bottoms = [b + h for b, h in zip(bottoms, heights)]
    for x, total in enumerate(totals):
        text = human_bytes(total)
        if x > 0 and totals[0]:
            text += f"\n({100 * (total / totals[0] - 1):+.1f} %)"
        axes.text(x, total / 2**20, text, ha="center", va="bottom", fontsize=9, fontweight="bold")
    axes.set_ylim(0, 1.12 * highest / 2**20 or 1)
    axes.set_xlim(-0.6, len(runs) - 0.4)
    axes.set_xticks(range(len(runs)), [run.name for run in runs], rotation=20 if len(runs) > 2 else 0,
                    ha="right" if len(runs) > 2 else "center", fontsize=8)
    axes.set_ylabel("peak memory (MiB)")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN_FOLDER")
    parser.add_argument("--out", required=True, metavar="FILE.png", help="the picture to write")
    parser.add_argument("--title", default="", help="a line above the picture")
    options = parser.parse_args()
    runs = [Run(folder) for folder in options.runs]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 5.2), width_ratios=[1.9, 0.7 + 0.3 * min(len(runs), 4)],
                                         constrained_layout=True)
    draw_losses(left, runs)
    draw_memory(right, runs)
    if options.title:
        figure.suptitle(options.title)
    pathlib.Path(options.out).resolve().parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(options.out, dpi=130)
    except (OSError, ValueError) as error:
        sys.exit(f"plot_run.py: {options.out} cannot be written: {error}")
    print(options.out)


if __name__ == "__main__":
    main()
