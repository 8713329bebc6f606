#!/usr/bin/env python3
"""unpack_text.py BIBLE_DATA AUSTEN_RDB OUT_FOLDER

Turns the data files of Debian's bible-kjv-text and r-cran-janeaustenr into plain text: OUT_FOLDER/bible.txt and
OUT_FOLDER/austen.txt, one chapter a document, documents separated by lines `<|endoftext|>`, one verse or paragraph
a line. Needs the standard library and gzip only.
"""
import bz2
import lzma
import pathlib
import re
import struct
import subprocess
import sys
import zlib

SEPARATOR = "<|endoftext|>"


def bible_text(data):
    """bible.data: text in windows of 64 KiB, each packed by the old `compress` (LZW), its 3-byte header left out.

    Big-endian words from byte 84: bytes a window, windows, then the offset of each window and of the end.
    """
    if data[:4] != b"EC02":
        raise ValueError("bible.data does not begin with EC02: not the format of the bible-kjv-text package")
    window_bytes, windows = struct.unpack_from(">2I", data, 84)
    offsets = struct.unpack_from(f">{windows + 1}I", data, 92)
    parts = []
    for i, (begin, end) in enumerate(zip(offsets, offsets[1:])):
        unpacked = subprocess.run(["gzip", "-dc"], input=b"\x1f\x9d\x90" + data[begin:end], stdout=subprocess.PIPE,
                                  check=True).stdout
        if len(unpacked) != window_bytes and i + 1 < windows:
            raise ValueError(f"bible.data: window {i} gives {len(unpacked)} bytes, expected {window_bytes}")
        parts.append(unpacked)
    return b"".join(parts).decode("ascii")


def bible_documents(text):
    """Lines `Ge1:1 In the beginning ...`; the first line is a title. The references are dropped."""
    chapters = {}
    for line in text.splitlines()[1:]:
        match = re.fullmatch(r"(\d?[A-Z][A-Za-z]*\d+):\d+ (.+)", line)
        if not match:
            raise ValueError(f"bible.data: a line that is no verse: {line[:60]!r}")
        chapters.setdefault(match.group(1), []).append(match.group(2).strip())
    return ["\n".join(verses) for verses in chapters.values()]


def unpack_chunk(data, begin):
    """One object of an R lazy-load database: length, then zlib data, or a letter and bzip2, xz or plain data.

    Returns the unpacked bytes and where the next object begins.
    """
    length, = struct.unpack_from(">I", data, begin)
    kind = data[begin + 4:begin + 5]
    if kind in (b"2", b"Z"):
        decoder = bz2.BZ2Decompressor() if kind == b"2" else lzma.LZMADecompressor(lzma.FORMAT_AUTO)
        unpacked, rest = decoder.decompress(data[begin + 5:]), decoder.unused_data
    else:
        decoder = zlib.decompressobj()
        unpacked, rest = decoder.decompress(data[begin + 4:]), decoder.unused_data
    if len(unpacked) != length:
        raise ValueError(f"Rdata.rdb: the object at byte {begin} has {len(unpacked)} bytes, expected {length}")
    return unpacked, len(data) - len(rest)


def r_strings(data):
    """The strings of a character vector in R's binary serialization (XDR, versions 2 and 3)."""
    if data[:2] != b"X\n":
        raise ValueError("Rdata.rdb: an object is not in R's XDR serialization")
    version, = struct.unpack_from(">I", data, 2)
    at = 14
    if version == 3:
        at += 4 + struct.unpack_from(">I", data, at)[0]  # the name of the encoding
    flags, count = struct.unpack_from(">2I", data, at)
    at += 8
    if flags & 255 != 16:
        raise ValueError(f"Rdata.rdb: an object of R type {flags & 255} where a character vector (16) was expected")
    strings = []
    for _ in range(count):
        _, length = struct.unpack_from(">Ii", data, at)
        at += 8
        if length >= 0:  # -1: NA
            strings.append(data[at:at + length].decode("utf-8"))
            at += length
    return strings


def paragraphs(lines):
    """Joins the lines of a paragraph; empty lines part them."""
    joined = [" ".join(p.split()) for p in re.split(r"\n\s*\n", "\n".join(lines))]
    return "\n".join(p for p in joined if p)


def austen_documents(data):
    documents, begin = [], 0
    while begin < len(data):
        unpacked, begin = unpack_chunk(data, begin)
        chapter = []
        for line in r_strings(unpacked):
            if line == "A NOTE ON THE TEXT":  # a modern editor's words
                break
            if re.fullmatch(r"chapter [\dIVXLC]+\.?", line.strip(), re.IGNORECASE) and chapter:
                documents.append(paragraphs(chapter))
                chapter = []
            chapter.append(line)
        documents.append(paragraphs(chapter))
    return [d for d in documents if len(d) > 200]  # not the title pages


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[3])
    works = {
        "bible.txt": bible_documents(bible_text(pathlib.Path(sys.argv[1]).read_bytes())),
        "austen.txt": austen_documents(pathlib.Path(sys.argv[2]).read_bytes()),
    }
    for name, documents in works.items():
        text = f"\n{SEPARATOR}\n".join(documents) + "\n"
        (out / name).write_text(text, encoding="utf-8")
        print(f"{out / name}: {len(documents)} documents, {len(text.encode()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
