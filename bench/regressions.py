#!/usr/bin/env python3
"""Compares a result file of a benchmark with a recorded one: regressions.py RECORDED NEW [--tolerance 0.2] [--partial]

Times depend on the machine and the day; how many times as long as Tesseral another library takes, in one run, does less. This script
reads these ratios from the tables of two files in `bench/results`, and lists those that fell by more than the tolerance: Tesseral
became slower, or the other library faster. Exit status 1 if there are any, or if the new file lacks ratios that were recorded,
unless it is from a partial run.
"""

import argparse
import re
import sys

UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}
TIME = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?) (s|ms|µs|us|ns)\b")
OURS = "tesseral"


def seconds(cell):
    """The times in a cell, without what is in parentheses: one, or the first operation and its repetitions."""
    return [float(number) * UNITS[unit] for number, unit in TIME.findall(re.sub(r"\(.*?\)", "", cell))]


def tables(lines):
    """Tables of a Markdown file: the heading above each, its header, and its rows."""
    heading, header = "", None
    rows = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            # A bar inside of code is not a border.
            cells = [cell.strip() for cell in re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "¦"), line).strip().strip("|").split("|")]
            if header is None:
                header = cells
            elif not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(cells)
            continue
        if header is not None:
            yield heading, header, rows
            header, rows = None, []
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()


def pairs(header, rows):
    """Case, library, our times and those of the library, for each comparison in a table."""
    if OURS in header and "peer" in header and "time" in header:
        ours, peer, time = (header.index(name) for name in (OURS, "peer", "time"))
        for row in rows:
            if len(row) == len(header):
                yield row[0], row[peer], seconds(row[ours]), seconds(row[time])
    elif OURS in header:
        at = header.index(OURS)
        for row in rows:
            for who in range(at + 1, len(row)):
                if who < len(header):
                    yield row[0], header[who], seconds(row[at]), seconds(row[who])
    elif header[0] == "library":
        # A row for each library, a column for each operation with its unit.
        for column, name in enumerate(header):
            unit = re.fullmatch(r"(.+), (s|ms)", name)
            if not unit:
                continue
            times = {row[0]: [float(row[column]) * UNITS[unit[2]]] for row in rows if re.fullmatch(r"[\d.]+", row[column])}
            for ours in [name for name in times if name.startswith(OURS)]:
                for other in [name for name in times if not name.startswith(OURS)]:
                    yield f"{ours}: {unit[1]}", other, times[ours], times[other]


def ratios(lines):
    """How many times as long as Tesseral each library takes, by table, case, library and kind of time."""
    found = {}
    for heading, header, rows in tables(lines):
        for case, library, ours, theirs in pairs(header, rows):
            for kind, own, other in zip(("first", "repeated"), ours, theirs):
                if own > 0 and library:
                    found[heading, case, library, kind] = other / own
    return found


def peers(lines):
    return next((line for line in lines if line.startswith("- peers:")), "")


def compare(recorded, new, tolerance):
    """Ratios that fell by more than the tolerance, the worst first, and those that are missing."""
    fallen = [(new[key] / old, key) for key, old in recorded.items() if key in new and new[key] < old * (1 - tolerance)]
    return sorted(fallen), [key for key in recorded if key not in new]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recorded")
    parser.add_argument("new")
    parser.add_argument("--tolerance", type=float, default=0.2, help="part of a ratio that it may fall by")
    parser.add_argument("--partial", action="store_true", help="ratios that only the recorded file has are no failure")
    given = parser.parse_args()
    lines = [open(path, encoding="utf-8").read().splitlines() for path in (given.recorded, given.new)]
    recorded, new = map(ratios, lines)
    if not recorded:
        parser.error(f"{given.recorded} has no table with times of {OURS} and another library")
    fallen, missing = compare(recorded, new, given.tolerance)
    common = len(recorded) - len(missing)
    print(f"{common} ratios in both files, {len(fallen)} fell by more than {given.tolerance:.0%}")
    if peers(lines[0]) != peers(lines[1]):
        print(f"\nThe versions of the other libraries differ:\n{peers(lines[0])}\n{peers(lines[1])}")
    if fallen:
        print("\n| table | case | library | time | recorded | now | of it | |\n|---|---|---|---|---|---|---|---|")
        for part, key in fallen:
            behind = "now behind" if new[key] < 1 <= recorded[key] else ""
            print(f"| {' | '.join(key)} | {recorded[key]:.3g}× | {new[key]:.3g}× | {part:.0%} | {behind} |")
    if missing and not given.partial:
        print(f"\n{len(missing)} recorded ratios are missing:")
        for key in missing:
            print(f"- {', '.join(key)}")
    return 1 if fallen or (missing and not given.partial) else 0


if __name__ == "__main__":
    sys.exit(main())
