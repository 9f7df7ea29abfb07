"""Shared helpers of the soak tests: paths of programs, running them, sample sources, and the table of figures."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TET = Path(os.environ.get("TET_BIN", TARGET / "release/tet"))
EXAMPLES = Path(os.environ.get("TET_EXAMPLES", TARGET / "release/examples"))
SOAK = Path(os.environ.get("TET_SOAK", EXAMPLES / "soak"))
#: The environment with the reference packages, created by scripts/test.
PYTHON = Path(os.environ.get("TET_PYTHON", TARGET / "venv/bin/python"))
SECONDS = 60


class Failed(Exception):
    """A guarantee that did not hold."""


def need(truth, *what):
    if not truth:
        raise Failed(" ".join(map(str, what)))


def run(*command, code=0, **options):
    """Run a program, check its exit code (any of several), return its output."""
    done = subprocess.run([*map(str, command)], capture_output=True, timeout=SECONDS, **options)
    wanted = code if isinstance(code, tuple) else (code,)
    reported = done.stderr.decode(errors="replace")
    need(done.returncode in wanted and "panicked" not in reported, command, "ended with", done.returncode, reported)
    return done.stdout


def tet(*arguments, code=0, **options):
    return run(TET, *arguments, code=code, **options)


def tet_json(*arguments, code=0):
    return json.loads(tet(*arguments, "--json", code=code))


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@contextlib.contextmanager
def workspace():
    """A temporary folder, in memory if possible."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared, prefix="soak-") as folder:
        yield Path(folder)


TILEDB = """
import sys, numpy as np, tiledb
out, random = sys.argv[1], np.random.default_rng(7)
check = tiledb.FilterList([tiledb.ZstdFilter(), tiledb.ChecksumSHA256Filter()])
dims = [tiledb.Dim(n, domain=(0, 29), tile=7, dtype=np.int32) for n in "ab"]
tiledb.Array.create(out + "/dense", tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[
    tiledb.Attr("f", dtype=np.float64, filters=check), tiledb.Attr("i", dtype=np.int16, nullable=True, filters=check)],
    coords_filters=check, offsets_filters=check, validity_filters=check))
for t, box in enumerate([(slice(0, 30), slice(0, 30)), (slice(3, 11), slice(5, 25))]):
    shape = tuple(s.stop - s.start for s in box)
    with tiledb.open(out + "/dense", "w", timestamp=t + 1) as a:
        a[box] = {"f": random.random(shape), "i": random.integers(0, 99, shape).astype("i2")}
dims = [tiledb.Dim("x", domain=(0, 999), tile=100, dtype=np.int64, filters=check),
        tiledb.Dim("s", dtype="ascii", filters=check)]
tiledb.Array.create(out + "/sparse", tiledb.ArraySchema(domain=tiledb.Domain(*dims), sparse=True, capacity=20, attrs=[
    tiledb.Attr("v", dtype=np.float32, filters=check)], offsets_filters=check, validity_filters=check))
for t in (1, 2):
    with tiledb.open(out + "/sparse", "w", timestamp=t) as a:
        n = 60
        a[random.integers(0, 999, n), [f"k{i % 13}" for i in range(n)]] = {"v": random.random(n).astype("f4")}
"""


#: Arrays without a filter, as sources of conversions with default options.
PLAIN = """
import sys, numpy as np, tiledb
out, random = sys.argv[1], np.random.default_rng(9)
labels = tiledb.Enumeration("labels", False, ["red", "green", "blue"])
attrs = [tiledb.Attr("f", dtype=np.float64), tiledb.Attr("i", dtype=np.int16, nullable=True), tiledb.Attr("t", dtype="U0", var=True),
         tiledb.Attr("e", dtype=np.int32, enum_label="labels")]

def cells(shape):
    n = int(np.prod(shape))
    words = np.array([f"w{i}" * (i % 4) for i in random.integers(0, 99, n)], dtype="U").reshape(shape)
    return {"f": random.random(shape), "i": random.integers(0, 99, shape).astype("i2"), "t": words,
            "e": random.integers(0, 3, shape).astype("i4")}

dims = [tiledb.Dim(n, domain=(0, 29), tile=10, dtype=np.int32) for n in "ab"]
tiledb.Array.create(out + "/plain-dense", tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, enums=[labels]))
dims = [tiledb.Dim("x", domain=(0, 999), tile=100, dtype=np.int64), tiledb.Dim("s", dtype="ascii")]
tiledb.Array.create(out + "/plain-sparse", tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, enums=[labels],
                                                              sparse=True, capacity=40))
with tiledb.open(out + "/plain-dense", "w") as a:
    a[:, :] = cells((30, 30))
with tiledb.open(out + "/plain-sparse", "w") as a:
    a[random.choice(1000, 200, replace=False), [f"k{i % 13}" for i in range(200)]] = cells((200,))
for name in ("/plain-dense", "/plain-sparse"):
    with tiledb.open(out + name, "w") as a:
        a.meta["title"], a.meta["numbers"] = "an array", (1, 2, 3)
"""


def samples(folder):
    """A small source of each format as we write it by default, and two arrays of the TileDB package where that is available."""
    for path in (folder / "ranks.tet", folder / "ranks.tgm"):
        tet("convert", ROOT / "fixtures/tet/ranks_zstd_v1.tet", path)
        yield path
    # Several arrays: a group.
    tet("convert", ROOT / "fixtures/tet/ranks_zstd_v1.tet", folder / "ours-group", "--to", "tiledb")
    yield folder / "ours-group"
    if PYTHON.exists():
        run(PYTHON, "-c", PLAIN, folder)
        for kind in ("dense", "sparse"):
            tet("convert", folder / f"plain-{kind}", folder / f"ours-{kind}", "--to", "tiledb")
            yield folder / f"ours-{kind}"
        # Attributes, a condition and replaced commits: every kind of file that edits leave.
        tet("convert", folder / "plain-sparse", folder / "ours-edited", "--to", "tiledb")
        tet("set", folder / "ours-edited", "-s", "title=other")
        tet("delete", folder / "ours-edited", "--where", "f > 0.9")
        tet("consolidate", folder / "ours-edited", "--part", "commits")
        tet("consolidate", folder / "ours-edited", "--part", "array-meta")
        tet("consolidate", folder / "ours-edited", "--part", "fragment-meta")
        yield folder / "ours-edited"
    if PYTHON.exists():
        run(PYTHON, "-c", TILEDB, folder)
        yield from (folder / "dense", folder / "sparse")
    else:
        print(f"without TileDB arrays of the reference: there is no {PYTHON}", file=sys.stderr)
