#!/usr/bin/env python3
"""kernel_table.py [FILE.cu ...]

Compiles kernels/*_cuda.cu (or the files named) for sm_80 and sm_90 with `nvcc -Xptxas -v` and prints a Markdown table of
registers, static shared memory and spills of each kernel, as in docs/cuda.md. Dynamic shared memory is chosen at launch
and not in it. Ends with status 1 where a kernel spills. Needs nvcc and c++filt.

    scripts/kernel_table.py --write docs/cuda.md     puts the table between the page's marks
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHITECTURES = (80, 90)
BEGIN, END = "<!-- kernel table: scripts/kernel_table.py --write docs/cuda.md -->", "<!-- end of the kernel table -->"


def compiler():
    found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.access(found, os.X_OK):
        sys.exit("kernel_table.py: nvcc was not found; put it on PATH")
    return found


def said(nvcc, file, architecture):
    """What ptxas says of a file's kernels: {mangled name: (registers, shared bytes, spilled bytes)}."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [nvcc, "-std=c++20", "-O3", "-DNDEBUG", "-fmad=false", f"-arch=sm_{architecture}", "-Xptxas", "-v", "-cubin",
             f"-I{ROOT}/include", f"-I{ROOT}", f"-I{ROOT}/kernels/card", "-o", f"{folder}/out.cubin", str(file)],
            capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kernel_table.py: {file} does not compile:\n{done.stderr.strip()}")
    kernels, name, spilled = {}, None, 0
    for line in done.stderr.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)' for 'sm_", line):
            name, spilled = match.group(1), 0
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            # A stack frame without spills is local memory all the same: an array that is not in registers.
            spilled = sum(map(int, match.groups()))
        elif (match := re.search(r"Used (\d+) registers", line)) and name:
            shared = re.search(r"(\d+) bytes smem", line)
            kernels[name] = (int(match.group(1)), int(shared.group(1)) if shared else 0, spilled)
            name = None
    return kernels


def readable(mangled):
    """rmsnorm_forward<Bf16, true> of a mangled name: without namespaces, return type and parameters."""
    out = subprocess.run(["c++filt", "-p", *mangled], capture_output=True, text=True, check=True).stdout.splitlines()
    names = []
    for text in out:
        text = re.sub(r"\(anonymous namespace\)::|compact::|cuda::|std::", "", text)
        text = re.sub(r"^void ", "", text)
        names.append(re.sub(r"\((?:bool|int|long|unsigned int|unsigned long)\)", "", text))
    return names


def table(files):
    nvcc = compiler()
    jobs = [(file, architecture) for file in files for architecture in ARCHITECTURES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda job: said(nvcc, *job), jobs))
    rows, spills = [], []
    for i, file in enumerate(files):
        of_80, of_90 = results[2 * i], results[2 * i + 1]
        mangled = sorted(of_80)
        for name, text in sorted(zip(mangled, readable(mangled)), key=lambda pair: pair[1]) if mangled else []:
            first, second = of_80[name], of_90[name]
            rows.append([file.name.removesuffix("_cuda.cu"), f"`{text}`", *(f"{a} / {b}" for a, b in zip(first, second))])
            if first[2] or second[2]:
                spills.append(f"{file.name}: {text}")
    lines = ["| file | kernel | registers (sm_80 / sm_90) | static shared bytes | spilled bytes |", "|---|---|---|---|---|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows], spills


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--write", metavar="PAGE", help="replace what stands between the marks of a page")
    args = parser.parse_args()
    lines, spills = table(args.files or sorted((ROOT / "kernels").glob("*_cuda.cu")))
    if args.write:
        page = pathlib.Path(args.write)
        text = page.read_text(encoding="utf-8")
        if BEGIN not in text or END not in text:
            sys.exit(f"kernel_table.py: {page} lacks the marks \"{BEGIN}\" and \"{END}\"")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        page.write_text(before + BEGIN + "\n\n" + "\n".join(lines) + "\n\n" + END + after, encoding="utf-8")
    else:
        print("\n".join(lines))
    if spills:
        sys.exit("kernel_table.py: registers are spilled in " + "; ".join(spills))


if __name__ == "__main__":
    main()
