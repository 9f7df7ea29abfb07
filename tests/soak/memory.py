"""Every operation on every layout under memory limits: the process stays within the limit plus 64 MiB, or refuses before it allocates."""

import shutil
import subprocess
from pathlib import Path

from common import EXAMPLES, PYTHON, SECONDS, TET, need, run, tet

MIB = 1 << 20
LIMITS = (16, 64, 256)
#: What a process may take in addition to the limit: code, stacks, allocator, metadata.
SLACK = 64
#: What a source holds, in MiB: more than any limit and its slack together.
SIZE = 352
#: What a field is called where not as it was written.
FIELDS = {".tgm": "`0/0`"}
#: A query document over every cell, by the name of the array.
QUERY = {".tgm": '{"dataset": "0/0", "mean": []}', "": '{"dataset": "noise", "mean": []}'}
#: Columns of the dense sources, and their rows per MiB of float32.
COLUMNS, ROWS = 4096, 64

#: A sparse array of `rows` cells in four fragments, with tiles of a quarter of a million cells; and one with text.
SPARSE = """
import sys, numpy as np, tiledb
out, rows, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
packed = tiledb.FilterList([tiledb.ZstdFilter(level=1)])
dims = [tiledb.Dim("x", domain=(0, 2**40), tile=2**30, dtype=np.int64, filters=packed),
        tiledb.Dim("y", domain=(0, 2**20), tile=2**18, dtype=np.int64, filters=packed)]
attrs = [tiledb.Attr("v", dtype=np.float64, filters=packed)]
if kind == "text":
    attrs.append(tiledb.Attr("s", dtype="ascii", var=True, filters=packed))
tiledb.Array.create(out, tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, sparse=True, capacity=250_000))
random = np.random.default_rng(3)
for part in range(4):
    n = rows // 4
    cells = {"v": random.random(n)}
    if kind == "text":
        cells["s"] = np.array([f"a text of cell {i}" for i in range(n)], dtype="S")
    with tiledb.open(out, "w", timestamp=part + 1) as array:
        array[random.integers(part * 2**37, (part + 1) * 2**37, n), random.integers(0, 2**19, n)] = cells
"""

def shape(size):
    return f"{size * ROWS},{COLUMNS}"


def converted(source, out, *options):
    tet("convert", "-f", source, out, *options)
    return out


#: How each source is made from `big.tet`, whose chunks are of one MiB.
SOURCES = {
    "tet small chunks": lambda f, n: f / "big.tet",
    "tet one raw chunk": lambda f, n: converted(f / "big.tet", f / "huge.tet", "--chunk", shape(n)),
    "tet two raw chunks": lambda f, n: converted(f / "big.tet", f / "two.tet", "--chunk", shape(n // 2)),
    "tet one zstd chunk": lambda f, n: converted(f / "big.tet", f / "zstd.tet", "--chunk", shape(n), "--codec", "zstd:1"),
    "tgm plain": lambda f, n: converted(f / "big.tet", f / "plain.tgm"),
    "tgm packed": lambda f, n: converted(f / "big.tet", f / "packed.tgm", "--codec", "simple_packing:16", "--cast", "float64"),
    "tgm szip": lambda f, n: converted(f / "big.tet", f / "szip.tgm", "--codec", "szip"),
    "tgm zstd": lambda f, n: converted(f / "big.tet", f / "zstd.tgm", "--codec", "zstd:1"),
    "tgm blosc2": lambda f, n: converted(f / "big.tet", f / "blosc.tgm", "--codec", "blosc2"),
    "tiledb small tiles": lambda f, n: converted(f / "big.tet", f / "small.tdb", "--to", "tiledb"),
    "tiledb raw tiles": lambda f, n: converted(f / "big.tet", f / "raw.tdb", "--to", "tiledb", "--chunk", shape(n // 2)),
    "tiledb zstd tiles": lambda f, n: converted(
        f / "big.tet", f / "filtered.tdb", "--to", "tiledb", "--chunk", shape(n // 2), "--codec", "zstd:1"),
    "sparse": lambda f, n: sparse(f / "sparse", n, "numbers"),
    "sparse text": lambda f, n: sparse(f / "text", n // 4, "text"),
}


def sparse(out, size, kind):
    """Coordinates and a value take 24 bytes; texts about as much again."""
    run(PYTHON, "-c", SPARSE, out, size * MIB // 24, kind)
    return out


def dense_operations(source, folder):
    out = folder / "out"
    return {
        "info": ["info", source],
        "cat raw": ["cat", source, "--raw"],
        "cat csv": ["cat", source, "0=100:120", "--format", "csv"],
        "cat npy": ["cat", source, "--format", "npy", "-f", "-o", f"{out}.npy"],
        "cat column": ["cat", source, "1=7", "--raw"],
        "stat": ["stat", source],
        "stat by rows": ["stat", source, "--by", "0", "0=0:64"],
        "stat by columns": ["stat", source, "--by", "1", "1=0:16"],
        "stat mean rows": ["stat", source, "--mean", "0"],
        "stat mean columns": ["stat", source, "--mean", "1"],
        "stat where": ["stat", source, "--where", f"{FIELDS.get(Path(source).suffix, 'noise')} > 0.5"],
        "stat sketch": ["stat", source, "--quantile", "0.5", "--sketch", "0.01"],
        "verify": ["verify", source],
        "verify deep": ["verify", source, "--deep"],
        "verify full": ["verify", source, "--full"],
        "convert to tet": ["convert", "-f", source, f"{out}.tet"],
        "convert to chunks": ["convert", "-f", source, f"{out}.tet", "--chunk", "64,4096", "--codec", "zstd:1"],
        "convert to tgm": ["convert", "-f", source, f"{out}.tgm", "--codec", "raw"],
        "convert to tiledb": ["convert", "-f", source, f"{out}.tdb", "--to", "tiledb", "--chunk", "64,4096"],
        "rechunk": ["rechunk", "-f", source, f"{out}.re.tet", "--chunks", "512,512"],
        "rechunk tiledb": ["rechunk", "-f", source, f"{out}.re.tdb", "--chunks", "512,512"],
        "diff": ["diff", source, source],
        "recover": ["recover", "-f", source, f"{out}.recovered"],
        "plot": ["plot", source],
        "query": ["query", "-x", "--format", "stats", "-t", source, QUERY.get(Path(source).suffix, QUERY[""])],
    }


def sparse_operations(source, folder):
    out = folder / "out"
    return {
        "info": ["info", source],
        "cat raw": ["cat", source, "v", "--raw"],
        "cat csv": ["cat", source, "--format", "csv"],
        "stat": ["stat", source, "v"],
        "stat by": ["stat", source, "v", "--by", "y"],
        "stat where": ["stat", source, "v", "--where", "v > 0.5"],
        "verify": ["verify", source],
        "verify deep": ["verify", source, "--deep"],
        "convert to tiledb": ["convert", "-f", source, f"{out}.sparse", "--to", "tiledb"],
        "convert to rows": ["convert", "-f", source, f"{out}.tet", "--sparse-as", "rows"],
        "diff": ["diff", source, source],
        "recover": ["recover", "-f", source, f"{out}.recovered"],
    }


def changes(folder, size):
    """Commands that change an array, each with its limit: appending files that are larger than it, and consolidating the result."""
    rows = size * ROWS
    cells = folder / "cells.npy"
    tet("cat", folder / "big.tet", "--format", "npy", "-f", "-o", cells)
    for limit in LIMITS:
        array = folder / f"grown-{limit}"
        tet("create", array, "--dim", f"t=0..{2 * rows - 1}/64:uint64", "--dim", f"x=0..{COLUMNS - 1}/{COLUMNS}:uint64",
            "--field", "v:float32:zstd")
        yield "append", limit, ["append", array, cells, f"t=0:{rows}"]
        yield "append again", limit, ["append", array, cells, f"t={rows}:{2 * rows}"]
        yield "consolidate", limit, ["consolidate", array]
        shutil.rmtree(array)
        if (folder / "sparse").exists():
            shutil.copytree(folder / "sparse", array)
            yield "consolidate sparse", limit, ["consolidate", array]
            shutil.rmtree(array)


def operations(name, source, folder):
    return (sparse_operations if name.startswith("sparse") else dense_operations)(source, folder)


def peak(command):
    """Exit code, peak resident memory in MiB, and its error output."""
    script = ("import resource, subprocess, sys\n"
              "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)\n"
              "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
              "print(done.stderr.decode(errors='replace'))")
    done = subprocess.run(["python3", "-c", script, *map(str, command)], capture_output=True, text=True, timeout=4 * SECONDS)
    first, message = done.stdout.split("\n", 1)
    code, kib = first.split()
    return int(code), int(kib) / 1024, message.strip()


#: Operations whose answer needs no more memory than any limit has: they must not be refused.
ANSWERED = {"info", "cat raw", "cat csv", "cat column", "stat", "stat mean rows", "stat mean columns", "verify", "verify deep", "diff",
            "convert to chunks", "convert to tiledb", "rechunk", "plot"}
#: Sources whose chunks are read in pieces.
STREAMED = ("tet small chunks", "tet one raw chunk", "tet two raw chunks", "tgm plain", "tgm packed", "tiledb")
#: What a smoke test does: each fault that was once found.
SMOKE = [("tet one raw chunk", "stat", 16), ("tet one raw chunk", "verify deep", 16), ("tet one raw chunk", "diff", 16),
         ("tet two raw chunks", "cat raw", 16), ("tet small chunks", "stat mean rows", 16), ("tgm plain", "stat", 16),
         ("tgm plain", "verify", 16), ("tgm zstd", "stat", 16), ("tiledb raw tiles", "rechunk tiledb", 16),
         ("tiledb zstd tiles", "convert to chunks", 16), ("sparse", "convert to tiledb", 16)]
#: MiB of a smoke test's sources: more than its limit and slack together, where a chunk is held once.
SMALL = 96


def codes(source, operation):
    """Exit codes that are right: 0, 6 where something cannot be smaller than it is, 7 where a format has no chunks or no texts."""
    if source.startswith(STREAMED) and operation in ANSWERED:
        return (7,) if source.startswith("tgm") and operation.startswith("rechunk") else (0,)
    text = source == "sparse text" and operation == "convert to rows"
    return (0, 6, 7) if source.startswith("tgm") or text else (0, 6)


def soak(name, folder, count, seed=1):
    """All operations on all sources under all limits; the smoke test where there are to be few."""
    folder = folder / name
    folder.mkdir()
    smoke = count <= len(SMOKE)
    size = SMALL if smoke else SIZE
    run(EXAMPLES / "write_large", folder / "big.tet", size)
    most, answered, refused = 0.0, 0, 0

    def measure(layout, operation, limit, command, right):
        nonlocal most, answered, refused
        code, mib, message = peak([TET, "--memory", f"{limit}MiB", *command])
        what = f"{layout}: {operation} within {limit} MiB"
        need(code in right, what, "ended with", code, message)
        need(mib <= limit + SLACK, what, f"took {mib:.0f} MiB")
        most = max(most, mib - limit)
        answered, refused = answered + (code == 0), refused + (code != 0)

    for layout, make in SOURCES.items():
        wanted = [(op, limit) for source, op, limit in SMOKE if source == layout]
        if smoke and not wanted or layout.startswith("sparse") and not PYTHON.exists():
            continue
        source = make(folder, size)
        commands = operations(layout, source, folder)
        cases = wanted if smoke else [(op, limit) for limit in LIMITS for op in commands]
        for operation, limit in cases:
            measure(layout, operation, limit, commands[operation], codes(layout, operation))
    for operation, limit, command in changes(folder, size) if not smoke else ():
        measure("tiledb", operation, limit, command, (0, 6))
    return {"operations": answered + refused, "answered": answered, "refused": refused, "most_above_limit_mib": round(most, 1)}
