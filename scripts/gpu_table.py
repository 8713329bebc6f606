#!/usr/bin/env python3
"""gpu_table.py RESULT.json [--write docs/gpu_results.md]

The short table of a JSON of scripts/gpu_check.sh; with --write also as a page. Needs the standard library only.
"""
import argparse
import json
import pathlib
import sys

TORCH = "PyTorch"


def number(value, form="{:,.0f}", factor=1):
    return form.format(value * factor) if isinstance(value, (int, float)) else "n/a"


def row_of(name, row, torch):
    """name, micro-batch, tokens/s, of the measured peak, of the data sheet's, peak memory, beside PyTorch"""
    if "error" in row:
        return [name, "", "failed", "", "", "", ""]
    torch_speed = (torch or {}).get("tokens_per_second")
    ratio = row["tokens_per_second"] / torch_speed if torch_speed else None
    return [name, number(row.get("micro_batch")), number(row["tokens_per_second"]),
            number(row.get("peak_fraction"), "{:.0f}%", 100), number(row.get("data_sheet_fraction"), "{:.0f}%", 100),
            number(row["peak_bytes"], "{:.2f} GiB", 2**-30), number(ratio, "{:.2f} x")]


def tables(result):
    """(title, header, rows) of all tables."""
    found = []
    header = ["", "micro-batch", "tokens/s", "of peak", "of sheet", "peak memory", "beside PyTorch"]
    for model, entry in result["models"].items():
        torch = entry.get("torch")
        rows = []
        if torch:
            name = torch.get("name", TORCH) + (f" ({torch['version']})" if "version" in torch else "")
            rows.append(row_of(name, torch, torch))
        rows += [row_of(row["name"], row, torch) for row in entry["rows"]]
        parameters = next((row["parameters"] for row in entry["rows"] if "parameters" in row), None)
        found.append((f"{model}, {number(parameters)} parameters, bf16", header, rows))
    for model, entry in result["models"].items():
        good = [row for row in entry["rows"] if "ops" in row][:2]
        if not good:
            continue
        names = list(dict.fromkeys(op["name"] for row in good for op in row["ops"]))
        rows = []
        for name in names:
            cells = [name]
            for row in good:
                op = next((op for op in row["ops"] if op["name"] == name), None)
                cells += [number(op and op["seconds"], "{:.2f}", 1e3), number(op and op["floor_fraction"], "{:.0f}%", 100)]
            rows.append(cells)
        header_ops = ["op"] + [text for row in good for text in (f"{row['name']}: ms a step", "of floor")]
        found.append((f"{model}: time by op, each launch waited for", header_ops, rows))
    return found


def goals(result):
    """Lines on the goals that the figures decide."""
    rows = {row["name"]: row for row in result["models"].get("1b", {}).get("rows", []) if "error" not in row}
    torch = result["models"].get("1b", {}).get("torch") or {}
    full, quarter = rows.get("full rank, lean"), rows.get("CompAct n/4, lean")
    lines = []

    def goal(text, value, least, form="{:.2f}"):
        if value is not None:
            lines.append(f"{text}: {form.format(value)}, goal {form.format(least)}: {'reached' if value >= least else 'missed'}")

    if full:
        goal("1B full rank, fraction of the measured bf16 peak", full["peak_fraction"], 0.5)
        if "tokens_per_second" in torch:
            goal("1B full rank beside PyTorch", full["tokens_per_second"] / torch["tokens_per_second"], 1.0)
        if quarter:
            goal("1B CompAct n/4 beside full rank", quarter["tokens_per_second"] / full["tokens_per_second"], 1.1)
    for op in (quarter or {}).get("ops", []):
        if op["name"] in ("projections", "optimizer"):
            goal(f"1B CompAct n/4, {op['name']}, fraction of the floor", op["floor_fraction"], 0.7)
    return lines


def failures(result):
    """One line for each reason, with what failed for it."""
    by_reason = {}
    for model, entry in result["models"].items():
        for row in [{"name": TORCH, **(entry["torch"] or {})}, *entry["rows"]]:
            if "error" in row:
                by_reason.setdefault(row["error"], []).append(f"{model} {row['name']}")
    return [f"failed: {'; '.join(names)}: {reason}" for reason, names in by_reason.items()]


def about(result):
    machine, card = result.get("machine") or {}, result.get("card") or {}
    lines = [machine.get("card") or card.get("name") or "no card was measured"]
    if machine:
        sheet = (machine.get("data_sheet_peak") or {}).get("bf16")
        peak = machine["gemm_peak"].get("bf16")
        lines.append(f"memory {machine['bytes_per_second'] / 1e9:,.1f} GB/s, bf16 products {number(peak, '{:,.2f}', 1e-12)} "
                     f"TFLOP/s (data sheet {number(sheet, '{:,.1f}', 1e-12)})")
    lines.append(f"{result['when']}, commit {result.get('commit') or 'unknown'}"
                 + (", a rehearsal on the emulated device: its speeds mean nothing" if result.get("rehearsal") else ""))
    return lines


def plain(result):
    lines = about(result)
    for title, header, rows in tables(result):
        columns = list(zip(header, *rows))
        widths = [max(map(len, column)) for column in columns]
        lines += ["", title]
        for cells in [header, *rows]:
            first, *others = (cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(cells, widths)))
            lines.append("  ".join([first, *others]).rstrip())
    for more in (goals(result), failures(result)):
        if more:
            lines += ["", *more]
    lines += ["", "parts: " + "; ".join(
        f"{part['name']} {part['result']} {part['seconds']} s" + (f" ({part['note']})" if part["note"] else "")
        for part in result["parts"])]
    return "\n".join(lines)


def page(result):
    lines = ["# Results on a GPU", "",
             "Written by `scripts/gpu_check.sh --docs` from one run of it. Steps are whole training steps on random tokens in bf16 "
             "(weights,", "gradients and moments), updated layer by layer; *of peak* is the fraction of the bf16 products "
             "measured first, *of sheet* of", "the data sheet's peak.", ""]
    lines += [f"- {line}" for line in about(result)]
    for title, header, rows in tables(result):
        lines += ["", f"## {title}", "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    lines += ["", "## Goals", ""] + [f"- {line}" for line in goals(result) or ["no figures of the 1B model"]]
    lines += ["", "## Checks", ""]
    lines += [f"- {part['name']}: {part['result']}, {part['seconds']} s" + (f" ({part['note']})" if part["note"] else "")
              for part in result["parts"]]
    lines += [f"- {line}" for line in failures(result)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result")
    parser.add_argument("--write", metavar="PAGE", help="the same as Markdown")
    args = parser.parse_args()
    try:
        result = json.loads(pathlib.Path(args.result).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"gpu_table.py: {args.result} cannot be read: {error}")
    print(plain(result))
    if args.write:
        if result.get("rehearsal"):
            sys.exit("gpu_table.py: a rehearsal's figures go on no page")
        if not any("error" not in row for entry in result["models"].values() for row in entry["rows"]):
            sys.exit(f"gpu_table.py: {args.result} has no figures; {args.write} is not written")
        pathlib.Path(args.write).write_text(page(result), encoding="utf-8")


if __name__ == "__main__":
    main()
