"""Allocations of the library crates whose size is not evidently bounded.

A size that a file determines must be allocated by `tesseral_core::alloc`, which fails with `Limit` instead of ending the process. Everything else that
sizes a vector is found here by its text. Sizes derived from constants and from lengths of data in memory need no justification; each
other one has a line in `allocations.txt` that states its bound."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Not reached by bytes of a file: programs, and the suite of tests.
APART = {"tesseral-cli", "tesseral-python", "tesseral-conformance"}
CRATES = sorted(path.name for path in (ROOT / "crates").iterdir() if path.name not in APART)
TABLE = Path(__file__).with_name("allocations.txt")
#: Written for tests, though not all of it is compiled for them alone.
TESTS = re.compile(r"/(tests?|testing)(/|\.rs$)|/round_trips\.rs$|/kernel/testing\.rs$")
START = re.compile(r"with_capacity\(|\.resize\(|\.resize_with\(|\.reserve\(|\.reserve_exact\(|\bvec!\[")
#: What is already in memory, constants, and arithmetic that does not enlarge beyond a constant factor.
HELD = re.compile(
    r"(?:(?:[a-z_][\w.]*(?:\[[^\]]*\])?\.)+len\(\)|\b[A-Z][A-Z0-9_]*\b|\b\d[\d_]*(?:usize)?\b|size_of::<[^>]+>\(\)|\bN\b|\brank\b"
    r"|\.(?:min|max|div_ceil|next_multiple_of|saturating_add|saturating_mul)\(|as usize|<<|[-+*/() ])+$")


def argument(text, at, close):
    """The text from `at` to the bracket that closes it."""
    depth, start = 1, at
    while depth:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[at], 0)
        at += 1
    return text[start : at - 1]


def parts(text, separator):
    out, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, "[": 1, "{": 1, "<": 0, ")": -1, "]": -1, "}": -1}.get(letter, 0)
        if letter == separator and depth == 0:
            out.append(text[last:at])
            last = at + 1
    return [*out, text[last:]]


def size_of(start, inner):
    """The expression that decides how many elements there are; None where it is not an allocation by size."""
    if start == "vec![":
        return parts(inner, ";")[-1] if len(parts(inner, ";")) == 2 else None
    return parts(inner, ",")[0]


def found():
    """Every allocation by a size that is not evidently bounded: file, and the size without spaces."""
    for crate in CRATES:
        folder = ROOT / "crates" / crate / "src"
        for path in sorted(folder.rglob("*.rs")):
            name = str(path.relative_to(ROOT))
            if TESTS.search(name) or name == "crates/tesseral-core/src/alloc.rs":
                continue
            code = path.read_text().split("#[cfg(test)]\nmod ")[0]
            code = "\n".join(line.split("//")[0] for line in code.splitlines())
            for match in START.finditer(code):
                before = code[max(0, match.start() - 12) : match.start()]
                if before.endswith("alloc::") or before.endswith("BufWriter::") or "SmallVec::" in before:
                    continue
                inner = argument(code, match.end(), "]" if match.group() == "vec![" else ")")
                size = size_of(match.group().strip("."), inner)
                if size is not None and not HELD.match(size.strip()):
                    yield name, re.sub(r"\s+", "", size)


def allowed():
    """File and size of each allocation whose bound is known, and the bound."""
    out = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            name, text, bound = (part.strip() for part in line.split("\t"))
            out[name, text] = bound
    return out
