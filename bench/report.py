"""Turn the output of bench/compare into Markdown and check that all results agree: report.py LINES FACTS.

Exit 1 when answers differ or one of our cases failed. A missed goal is not a failure: it is what the table is for.
"""

import json
import math
import statistics
import struct
import sys

PEERS = ["tetration", "tet-py", "zarrs", "h5py", "zarr-python", "tiledb", "dask"]
OTHERS = ["numpy", *PEERS[:-1]]
PIPELINES = {
    "none": "plain cells", "sp16": "16 bits a cell", "sp7": "7 bits a cell", "sp12": "12 bits a cell", "sp31": "31 bits a cell",
    "sp16+szip": "16 bits a cell, szip", "shuffle": "bytes shuffled", "zstd": "zstd level 3", "lz4": "lz4",
}

WHAT = {
    "read_full": "full read, raw chunks, into fresh memory",
    "read_view": "full read where the layout allows a view",
    "read_zstd": "full read, zstd chunks",
    "write_raw": "write, raw",
    "write_raw_tgm": "the same to `.tgm`",
    "write_raw_tdb": "the same to TileDB",
    "write_raw_memory": "write, raw, to memory, without synchronizing (`durability = none`)",
    "write_zstd": "write, zstd level 3",
    "window": "one window of 8×32×32 (mean of 50 places)",
    "series": "one series along the first axis (mean of 50 places)",
    "window_zstd": "the same of zstd chunks",
    "mean": "mean of all cells",
    "mean_view": "mean, chunks of whole planes",
    "mean_slab": "mean, chunks of one plane",
    "mean_pillar": "mean, chunks as pillars through the first axis",
    "mean_ragged": "mean, chunks that divide no extent",
    "min": "minimum",
    "max": "maximum",
    "std": "standard deviation",
    "mean_stats": "mean, file with statistics",
    "min_stats": "minimum, file with statistics",
    **{f"{op}_zstd_default": f"{what}, zstd chunks, as each library answers by default" for op, what in (
        ("mean", "mean"), ("min", "minimum"), ("max", "maximum"))},
    **{f"{op}_slab_default": f"{what}, chunks of one plane, as each library answers by default" for op, what in (
        ("mean", "mean"), ("min", "minimum"))},
    "mean_axis0": "mean over the first axis",
    "sum_chunks": "sum over many small chunks, a file as tet-py writes it",
    "sum_chunks_bare": "the same as we write it, without zone maps and indexes",
    **{f"open_summary_{n}": f"open and list {n:,} chunks" for n in (900, 10_000, 99_856, 1_000_000)},
}

KINDS = {
    "read_f64": "full read, float64, zstd chunks",
    "read_i32": "full read, int32 classes, zstd chunks",
    "small_arrays": "open a file of 10,000 arrays of 16×16 and read each",
}

MESSAGES = {
    **{f"{verb}_{name}": f"{verb} a field of 721×1440, {what}" for name, what in PIPELINES.items() for verb in ("encode", "decode")},
    "decode_sp16+szip_threads": "decode it, 16 bits a cell, szip, on two threads",
    "decode_view": "decode the same, plain cells, hash not checked (`verify_hash = false`)",
    "range_none": "1,000 cells out of the middle, plain cells",
    "range_sp16": "the same, 16 bits a cell",
    "range_sp16+szip": "the same, szip",
    "metadata_of_file": "metadata of a message of 67 MB, from a file",
    "range_of_file": "10 cells of it, from a file",
    "count_messages": "open a file of 50,000 messages and count them",
    "some_messages": "open it and decode 50 of them",
    "all_messages": "decode 1,000 messages of 181×360, 16 bits a cell",
    "append_messages": "append a message of 4 KB, each durable (mean of 1,000)",
    "append_messages_memory": "the same to memory, not synchronized",
    "verify_message": "check the hashes of a message",
    "ten_read_none": "read 250 MB in ten messages, plain cells",
    "ten_read_zstd": "the same, zstd level 3",
    "ten_write_none": "write 250 MB in ten messages, plain cells",
    "ten_write_zstd": "the same, zstd level 3",
    "ten_verify": "verify a file of 250 MB in ten messages",
}

VERSIONS = {
    "open_one_fragment": "open an array of one fragment",
    "open_many_fragments": "open an array of 1,000 fragments",
    "one_cell": "one cell of an open array (mean of 50 places)",
    "tiles_raw": "full read of the cube, no filter",
    "tiles_zstd": "full read of the cube, zstd",
    "tiles_series": "one series through all tiles (mean of 50 places)",
    "rows_hundredth": "1 % of 5 million sparse cells, by ranges",
    "rows_few": "0.01 % of them",
    "rows_all": "all of them",
    "rows_where": "those above a value, of all of them",
    "rows_none": "those above a value that no cell reaches",
    "total_aligned": "sum over a box of whole tiles",
    "total_cut": "sum over a box that cuts tiles",
    **{f"{op}_tiles": f"{op} of all cells of the cube, from statistics" for op in ("mean", "min", "max")},
}

COMMANDS = {
    "tet_thousand_messages": "`tet FILE` of 1,000 messages, as a process",
    "tet_array": "`tet FILE` of the cube",
    "tet_verify": "`tet verify FILE` of the cube, raw",
}

FORMATS = {"tet": "`.tet`", "tgm": "`.tgm`", "tdb": "TileDB"}
TRANSFERS = {
    **{f"{op}_zstd": f"{what}, zstd chunks without statistics" for op, what in (
        ("mean", "mean"), ("min", "minimum"), ("max", "maximum"), ("std", "standard deviation"))},
    "sum_where_all": "sum of the cells above a value that one chunk in a hundred reaches",
    "sum_where": "the same, file with statistics",
    **{f"read_{name}": f"read all of {what}" for name, what in FORMATS.items()},
    **{f"write_{name}": f"write all to {what}" for name, what in FORMATS.items()},
    **{f"convert_{a}_{b}": f"{FORMATS[a]} to {FORMATS[b]}" for a in FORMATS for b in FORMATS if a != b},
    "rechunk": "other chunks, within 64 MiB",
}

PYTHON = {
    "py_window": "one window of 8×32×32 from Python (mean of 50 places)",
    "py_read_zstd": "full read, zstd chunks, from Python",
    **{f"py_{verb}_{name}": f"{verb} a field of 721×1440 from NumPy, {PIPELINES[name]}" for name in ("none", "sp16") for verb in ("encode", "decode")},
    "py_import": "a process that imports the package and shows a file; NumPy alone beside it",
    "py_xarray_mean": "mean over the first axis through xarray, `chunks={}`, zstd chunks, opened each time",
}

WRITES = {
    "write_tiles_raw": "write the cube as a dense array, no filter",
    "write_tiles_zstd": "the same, zstd",
    "write_rows": "write 5 million sparse cells that come in any order",
    "write_small": "create an array of 100 cells in a folder of its own (mean of 100)",
    "append_small": "add a row of 100 cells to an array (mean of 1,000)",
    "consolidate_rows": "one fragment of 100, 2 million sparse cells",
    "consolidate_tiles": "one fragment of 100, a dense array of 2000×2000 cells",
}

# One table each: title, cases, peers.
SECTIONS = [("Arrays", WHAT, OTHERS), ("Other kinds of arrays", KINDS, ["tet-py", "h5py", "zarr-python", "tiledb"]),
            ("Tensogram messages", MESSAGES, ["tensogram"]),
            ("TileDB arrays, written by the reference", VERSIONS, ["tiledb", "parquet"]),
            ("Folds, conditions, conversions", TRANSFERS, ["tet-py", "zarrs", "h5py", "zarr-python", "dask"]),
            ("From Python", PYTHON, ["numpy", "tet-py", "h5py", "zarr-python", "tiledb", "netcdf4", "tensogram-py"]),
            ("Writing TileDB arrays", WRITES, ["tiledb", "parquet"]), ("Command line", COMMANDS, [])]

# What each side does by default: digests, durability of writes, threads, and copies.
CONDITIONS = {
    "tesseral": ("checked at the first read of a block or chunk, once per open array; ranges of a message in memory: not", "files and folders", "all cores", "results are new memory, or views where the row's name ends in `_view`"),
    "numpy": ("none", "–", "one", "copies of a mapped file"),
    "tetration": ("none in its files", "the file, by the benchmark", "one", "mapped file, new results"),
    "tet-py": ("none in its files", "the file, by the benchmark", "one", "mapped file, new results"),
    "zarrs": ("none", "files and folders, by the benchmark", "all cores", "files read, new results"),
    "h5py": ("none", "the file, by the benchmark", "one", "files read, new results"),
    "netcdf4": ("none", "the file, by the benchmark", "one; Dask on all cores", "files read, new results"),
    "zarr-python": ("none", "files and folders, by the benchmark", "all cores (zarrs)", "files read, new results"),
    "tiledb": ("none", "files, by the library", "all cores", "files read, new results"),
    "dask": ("none", "–", "all cores", "files read, new results"),
    "parquet": ("none", "the file, by the benchmark", "all cores", "files read, new results"),
    "tensogram": ("`verify_hash` off for decoding, on for validation", "the file, by the benchmark", "all cores where it has them", "new results"),
    "tensogram-py": ("`verify_hash=True`", "–", "one", "new results"),
}

# Cases that skip a peer, and why; the others run it or show its failure.
CANNOT = {
    ("write_zstd", "tet-py"): "it cannot write zstd",
    ("write_raw", "numpy"): "a plain file has no chunks",
    ("write_zstd", "numpy"): "a plain file has no codecs",
    ("read_zstd", "numpy"): "a plain file has no codecs",
    ("small_arrays", "tet-py"): "it looks at all chunks for each array, which took eight minutes",
}
NOT_ASKED = "no goal of this case refers to it, so it is not asked"

# Cases with results over the same cells.
SAME = {
    "cells": ["copy", "read_full", "read_view", "read_zstd", "write_raw", "write_raw_tgm", "write_raw_tdb", "write_raw_memory", "write_zstd",
              "write_tiles_raw", "write_tiles_zstd",
              "py_read_zstd", "rechunk", *(name for name in TRANSFERS if name.split("_")[0] in ("read", "write", "convert"))],
    "mean": ["sum2", "mean", "mean_zstd", "mean_view", "mean_slab", "mean_pillar", "mean_ragged", "mean_stats", "mean_zstd_default", "mean_slab_default"],
    "min": ["min", "min_stats", "min_zstd", "min_zstd_default", "min_slab_default"],
    "max": ["max", "max_zstd", "max_zstd_default"],
    "std": ["std", "std_zstd"],
    "sum_where": ["sum_where_all", "sum_where"],
    "window": ["window", "window_zstd", "py_window"],
    "sum": ["sum_chunks", "sum_chunks_bare"],
    **{name: [f"encode_{name}", f"decode_{name}", f"decode_{name}_threads"] for name in PIPELINES},
}


class Missing(Exception):
    pass


class Table:
    def __init__(self, lines):
        self.lines, self.absent = {}, {}
        rounds = {}
        for line in lines:
            if "absent" in line:
                self.absent[line["who"]] = line["absent"]
            else:
                rounds.setdefault((line["case"], line["who"]), []).append(line)
        for key, each in rounds.items():
            done = [line for line in each if "failed" not in line]
            self.lines[key] = each[0] if not done else {
                **done[0],
                **{name: statistics.median(line[name] for line in done) for name in ("seconds_first", "seconds_median", "extra_bytes")},
            }

    def seconds(self, case, who="tesseral", name="seconds_first"):
        line = self.lines.get((case, who))
        if line is None or "failed" in line:
            raise Missing(f"no figure of {who} for {case}")
        return line[name]

    def best(self, case):
        there = [p for p in PEERS if "seconds_first" in self.lines.get((case, p), {})]
        if not there:
            raise Missing(f"no peer did {case}")
        return min(there, key=lambda p: self.seconds(case, p))


def share(base, least):
    """At least this share of the speed of a plain loop."""

    def check(table, case):
        ratio = table.seconds(base) / table.seconds(case)
        return ratio >= least, f"{ratio:.0%} of {base} ({time(table.seconds(base))})"

    return check


def times(peer, least):
    """At least so many times as fast as a peer, or as the best one."""

    def check(table, case):
        who = peer or table.best(case)
        ratio = table.seconds(case, who) / table.seconds(case)
        return ratio >= least, f"{ratio:.3g}× {who}"

    return check


def beside(case_of, least):
    """At least so many times as fast as another case of ours."""

    def check(table, case):
        ratio = table.seconds(case_of) / table.seconds(case)
        return ratio >= least, f"{ratio:.3g}× {case_of}"

    return check


def slower(*parts, least):
    """At least this share of the speed of the slower of two other cases."""

    def check(table, case):
        slow = max(parts, key=table.seconds)
        ratio = table.seconds(slow) / table.seconds(case)
        return ratio >= least, f"{ratio:.0%} of {slow} ({time(table.seconds(slow))})"

    return check


def overhead(base, seconds, part):
    def check(table, case):
        repeated = lambda name: table.seconds(name, name="seconds_median")  # noqa: E731
        more = repeated(case) - repeated(base)
        return more <= seconds + part * repeated(base), f"{time(max(more, 0))} more than {base}"

    return check


def beyond(who, most):
    def check(table, case):
        more = table.seconds(case) - table.seconds(case, who)
        return more <= most, f"{time(max(more, 1e-9))} more than {who}"

    return check


def within(seconds):
    def check(table, case):
        return table.seconds(case) < seconds, time(table.seconds(case))

    return check


def stored(who, most):
    """At most this share more bytes on disk than a peer writes."""

    def check(table, case):
        ours, theirs = (table.lines.get((case, w), {}).get("stored_bytes") for w in ("tesseral", who))
        if not ours or not theirs:
            raise Missing(f"no sizes for {case}")
        return ours <= theirs * (1 + most), f"{ours / theirs - 1:+.2%} ({ours / 1e6:.1f} MB)"

    return check


def memory_share(most):
    """At most this many times the bytes of the cells."""

    def check(table, case):
        table.seconds(case)
        line = table.lines[(case, "tesseral")]
        return line["extra_bytes"] <= line["bytes"] * most, f"{line['extra_bytes'] / line['bytes']:.2f}×"

    return check


def memory_beyond(most):
    """At most this many bytes more than the cells."""

    def check(table, case):
        table.seconds(case)
        line = table.lines[(case, "tesseral")]
        more = line["extra_bytes"] - line["bytes"]
        return more <= most, f"{more / 1e6:.0f} MB"

    return check


def memory_within(most):
    def check(table, case):
        table.seconds(case)
        extra = table.lines[(case, "tesseral")]["extra_bytes"]
        return extra <= most, f"{extra / 1e6:.1f} MB"

    return check


def linear(table, _):
    points = sorted((int(c.removeprefix("scaling_")), t["seconds_first"]) for (c, _), t in table.lines.items()
                    if c.startswith("scaling_") and "failed" not in t)
    if len(points) < 2:
        raise Missing("fewer than two sizes")
    (n0, t0), (n1, t1) = points[0], points[-1]
    growth = (t1 / t0) / (n1 / n0)
    listed = ", ".join(f"{n:,}: {time(t)}" for n, t in points)
    return growth <= 1.25, f"{n1 / n0:.0f}× the chunks take {t1 / t0:.1f}× the time ({listed})"


GOALS = [
    ("read_full", "≥ 85 % of a plain copy into fresh huge pages", share("copy", 0.85)),
    ("read_zstd", "≥ 1.8× the best peer", times(None, 1.8)),
    ("write_raw", "≤ 32 MB of extra memory", memory_within(32_000_000)),
    ("write_raw", "≥ 1× the best peer", times(None, 1)),
    ("write_zstd", "≥ 85 % of libzstd alone on all cores", share("zstd_lib_write", 0.85)),
    ("write_zstd", "≤ 32 MB of extra memory", memory_within(32_000_000)),
    ("window", "≥ 1× a slice of a NumPy memmap", times("numpy", 1)),
    ("window_zstd", "≥ 1.5× the best peer", times(None, 1.5)),
    ("series", "≥ 1.5× the best peer", times(None, 1.5)),
    *((case, "≥ 1.5× the best peer", times(None, 1.5)) for case in ("mean", "min", "max", "std", "mean_axis0", "mean_zstd", "min_zstd", "max_zstd", "std_zstd")),
    *((f"{op}_{kind}_default", "≥ 1.5× tiledb", times("tiledb", 1.5)) for kind, ops in (("zstd", ("mean", "min", "max")), ("slab", ("mean", "min"))) for op in ops),
    *((case, "≥ 50 % of a plain sum over mapped memory on all cores", share("sum2", 0.5))
      for case in ("mean", "mean_view", "mean_slab", "mean_pillar", "mean_ragged")),
    ("scaling", "time grows linearly with the chunks (within 25 %)", linear),
    *((f"open_summary_{n}", "at most 2× the time of the reference", times("tetration", 0.5)) for n in (10_000, 99_856, 1_000_000)),
    *((case, "≥ 1.5× the reference", times("tensogram", 1.5)) for case in MESSAGES),
    *((f"encode_{name}", "at most 1.2× the cells in memory", memory_share(1.2)) for name in ("none", "sp16", "zstd")),
    *((case, "≥ 1× the best peer", times(None, 1)) for case in KINDS),
    ("rows_where", "≥ 1× Parquet through pyarrow", times("parquet", 1)),
    ("write_rows", "≥ 1.2× Parquet through pyarrow", times("parquet", 1.2)),
    *((case, "≥ 1.5× the reference", times("tiledb", 1.5)) for case in [*VERSIONS, *WRITES]),
    ("sum_where", "≥ 20× without statistics, which prune 99 %", beside("sum_where_all", 20)),
    *((f"convert_{a}_{b}", "≥ 70 % of the slower of reading and writing", slower(f"read_{a}", f"write_{b}", least=0.7))
      for a in FORMATS for b in FORMATS if a != b),
    ("rechunk", "≥ 1.5× a copy by zarr-python within the same memory", times("zarr-python", 1.5)),
    ("py_window", "≤ 5 µs + 1 % more than the call from Rust, repeated", overhead("window", 5e-6, 0.01)),
    ("py_read_zstd", "≥ 1.5× the best peer", times(None, 1.5)),
    ("py_import", "≤ 60 ms more than NumPy alone", beyond("numpy", 0.06)),
    ("py_xarray_mean", "≥ 1.5× netCDF4", times("netcdf4", 1.5)),
    *((f"py_{verb}_{name}", "≥ 1.5× the reference's package", times("tensogram-py", 1.5))
      for name in ("none", "sp16") for verb in ("encode", "decode")),
    *((case, "at most 2 % larger than the reference's", stored("tiledb", 0.02)) for case in WRITES if case != "write_small"),
    *((case, "≤ 256 MiB of extra memory", memory_within(256 << 20)) for case in ("consolidate_rows", "consolidate_tiles")),
    *((case, "result + 64 MiB of memory", memory_beyond(64 << 20)) for case in ("read_full", "read_zstd", "tiles_raw", "tiles_zstd")),
    ("tet_thousand_messages", "≤ 3 ms", within(0.003)),
]


def time(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def times_of(line):
    """The first operation of a process, and repetitions."""
    return f"{time(line['seconds_first'])}; {time(line['seconds_median'])}"


def behind(table):
    """The rows in which a library is faster, first or repeated."""
    for _, cases, others in SECTIONS:
        for case in cases:
            ours = table.lines.get((case, "tesseral"), {})
            for who in [*others, "tiledb", "parquet"] if "seconds_first" in ours else []:
                theirs = table.lines.get((case, who), {})
                if "seconds_first" in theirs:
                    ratios = [theirs[name] / ours[name] for name in ("seconds_first", "seconds_median")]
                    if min(ratios) < 1:
                        yield f"| `{case}` | {who} | {ratios[0]:.2f}× | {ratios[1]:.2f}× |"


def conditions(table):
    yield "| library | digests | durable writes | threads | copies |"
    yield "|---|---|---|---|---|"
    for who in sorted({who for _, who in table.lines}, key=list(CONDITIONS).index):
        yield f"| {who} | " + " | ".join(CONDITIONS[who]) + " |"


def agree(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(math.isclose(x, y, rel_tol=1e-5) for x, y in zip(a, b))
    return a == b


def disagreements(table):
    group = {case: name for name, cases in SAME.items() for case in cases}
    first = {}
    for (case, who), line in table.lines.items():
        if line.get("answer") is None:
            continue
        name = group.get(case, case)
        expected = first.setdefault(name, (case, who, line["answer"]))
        if not agree(expected[2], line["answer"]):
            yield f"{case} by {who}: {line['answer']}, but {expected[0]} by {expected[1]}: {expected[2]}"


#: Reductions whose answers are rounded numbers.
ROUNDED = [*SAME["mean"], *SAME["std"], "mean_axis0"]


def units_apart(a, b):
    """Doubles between two finite numbers."""
    bits = [struct.unpack("<q", struct.pack("<d", x))[0] for x in (a, b)]
    # Negative numbers run the other way.
    first, second = (n if n >= 0 else -(n + (1 << 63)) for n in bits)
    return abs(first - second)


def errors(table):
    """One row per reduction: how far the answers of each library are from ours, which are the correctly rounded ones."""
    libraries = [who for who in OTHERS + PEERS[-1:] if any((case, who) in table.lines for case in ROUNDED)]
    yield "| case | " + " | ".join(libraries) + " |"
    yield "|---|" + "---:|" * len(libraries)
    for case in ROUNDED:
        ours = table.lines.get((case, "tesseral"), {}).get("answer")
        if not isinstance(ours, list):
            continue
        cells = []
        for who in libraries:
            theirs = table.lines.get((case, who), {}).get("answer")
            same = isinstance(theirs, list) and len(theirs) == len(ours)
            cells.append(f"{max(map(units_apart, ours, theirs)):,}" if same else "–")
        yield f"| `{case}` | " + " | ".join(cells) + " |"


def figures(table, cases, others):
    """One row per case: our time, then the time of each peer and its ratio to ours."""
    notes = []

    def note(text):
        if text not in notes:
            notes.append(text)
        return f"[{notes.index(text) + 1}]"

    def cell(case, who, ours):
        line = table.lines.get((case, who))
        if line is None:
            why = table.absent.get(who) or CANNOT.get((case, who)) or NOT_ASKED
            return f"– {note(f'{who}: {why}' if why != NOT_ASKED else why)}"
        if "failed" in line:
            return f"– {note(f'{who}, {case}: ' + line['failed'])}"
        return times_of(line) + (f" ({line['seconds_first'] / ours['seconds_first']:.3g}×; {line['seconds_median'] / ours['seconds_median']:.3g}×)" if "seconds_first" in ours else "")

    if not any(who in others for _, who in table.lines):
        others = []
    yield "| case | | tesseral | " + "".join(f"{who} | " for who in others)
    yield "|---|---|---|" + "---|" * len(others)
    for case, what in cases.items():
        if not any(c == case for c, _ in table.lines):
            continue
        line = table.lines.get((case, "tesseral"), {"failed": "it was not run"})
        row = [f"`{case}`", what, times_of(line) if "seconds_first" in line else f"– {note(f'tesseral, {case}: ' + line['failed'])}"]
        yield "| " + " | ".join(row + [cell(case, who, line) for who in others]) + " |"
    yield ""
    for number, text in enumerate(notes, 1):
        yield f"[{number}] {text}  "


def memories(table):
    """A row for each case in which a library uses much memory."""
    columns = ["tesseral", *OTHERS, "dask", "tensogram", "tensogram-py", "parquet"]
    columns = [who for who in columns if any(w == who for _, w in table.lines)]
    yield "| case | " + " | ".join(columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for case in (case for _, cases, _ in SECTIONS for case in cases):
        extra = [table.lines.get((case, who), {}).get("extra_bytes") for who in columns]
        if max((e for e in extra if e), default=0) >= 16e6:
            yield f"| `{case}` | " + " | ".join("–" if e is None else f"{e / 1e6:.0f}" for e in extra) + " |"


def goals(table):
    done = {case for case, _ in table.lines}
    yield "| case | goal | measured | |"
    yield "|---|---|---|---|"
    for case, goal, check in GOALS:
        if case not in done and not (case == "scaling" and any(c.startswith("scaling_") for c in done)):
            continue
        try:
            reached, measured = check(table, case)
            verdict = "reached" if reached else "**missed**"
        except Missing as missing:
            measured, verdict = str(missing), "not measured"
        yield f"| `{case}` | {goal} | {measured} | {verdict} |"


def main():
    lines = [json.loads(line) for line in open(sys.argv[1]) if line.strip()]
    facts = dict(line.rstrip("\n").split("=", 1) for line in open(sys.argv[2]))
    table = Table(lines)
    wrong = list(disagreements(table))
    failed = [f"{case}: {line['failed']}" for (case, who), line in table.lines.items()
              if who == "tesseral" and "failed" in line]

    print(f"# Tesseral beside other libraries, {facts['date']}\n")
    print(f"- machine: {facts['cpu']}, {facts['cores']} cores, {facts['memory']}, {facts['kernel']}; load {facts['load']} at the end")
    print(f"- commit: {facts['commit']}; {facts['rustc']}")
    print(f"- command: `{facts['command'].strip()}`")
    if "versions" in facts:
        print(f"- peers: {facts['versions']}")
    print(f"- data: {facts['cube']}; {facts['shapes']}; small chunks are 8×8 cells")
    print(f"- warm page cache; {facts['rounds']} interleaved rounds, in each one process per library and row; writes go to a disk ({facts['disk']}) and are durable unless the row states otherwise")
    if facts["quick"]:
        print("- **quick run**: the data is smaller than what the goals speak of; the verdicts mean nothing")
    print("\n## Figures\n")
    print("The first operation of a process, then the median of its repetitions; medians over the rounds. In parentheses: how many times as long as Tesseral; above 1× Tesseral is faster.\n")
    for title, cases, others in SECTIONS:
        if any(case in cases for case, _ in table.lines):
            print(f"### {title}\n")
            print("\n".join(figures(table, cases, others)) + "\n")
    loops = [f"`{case}` {time(table.seconds(case))}" for case in ("copy", "zstd_lib", "zstd_lib_read_pieces", "zstd_lib_write", "zstd_lib_pieces", "sum2", "xxh3")
             if "seconds_first" in table.lines.get((case, "tesseral"), {})]
    if loops:
        print("\nPlain loops: " + ", ".join(loops) + ".")
    print("\n## Conditions\n")
    print("Libraries run with their defaults; rows with other options state them.\n")
    print("\n".join(conditions(table)))
    print("\n## Rows in which another library is faster\n")
    print("| case | library | first | repeated |\n|---|---|---|---|\n" + "\n".join(dict.fromkeys(behind(table))))
    print("\n## Errors\n")
    print("Units in the last place of a double between the answers of each library and those of Tesseral, which are the correctly rounded ones (`tests/python/test_same_bits.py` compares them with rational arithmetic); the largest of several.\n")
    print("\n".join(errors(table)))
    print("\n## Memory\n")
    print("Peak memory of one run in MB, relative to the start; pages of mapped files count. Cases in which a library uses at least 16 MB.\n")
    print("\n".join(memories(table)))
    print("\n## Goals\n")
    print("The best peer is the fastest of " + ", ".join(PEERS) + "; a NumPy memmap has neither chunks nor codecs and is shown beside them. TileDB folds cells here like the others; what it answers from stored statistics is in the cases named so.\n")
    print("\n".join(goals(table)))
    print("\n## Answers\n")
    print("\n".join(f"- **differs**: {text}" for text in wrong) or "All runners gave the same answers.")
    print("".join(f"\n- **failed**: {text}" for text in failed))
    return 1 if wrong or failed else 0


if __name__ == "__main__":
    sys.exit(main())
