"""Shared helpers: running the binary and the examples, random arrays, expectations in NumPy."""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
_RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
TET = os.environ.get("TET_BIN", str(_RELEASE / "tet"))
EXAMPLES = Path(os.environ.get("TET_EXAMPLES", _RELEASE / "examples"))

DTYPES = ["float16", "float32", "float64", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def tet(*arguments, code=0, **options):
    """Run the binary, check its exit code, return its output as bytes."""
    done = subprocess.run([TET, *map(str, arguments)], capture_output=True, timeout=120, **options)
    wanted = code if isinstance(code, tuple) else (code,)
    reported = done.stderr.decode(errors="replace")
    assert done.returncode in wanted, f"tet {arguments} ended with {done.returncode}: {reported}"
    assert "panicked" not in reported
    return done.stdout


def tet_json(*arguments, code=0):
    return json.loads(tet(*arguments, "--json", code=code))


def example(name, *arguments, **options):
    return subprocess.run([EXAMPLES / name, *map(str, arguments)], capture_output=True, timeout=120, **options)


def write(folder, out, arrays, **recipe):
    """Write a file with our writer. An array is a dict with `name`, `cells` and the keys of the recipe."""
    entries = []
    for i, array in enumerate(arrays):
        entry = {k: v for k, v in array.items() if k != "cells"}
        cells = array["cells"]
        data = Path(folder) / f"{Path(out).stem}.{i}.bin"
        cells.tofile(data)
        entry.update(data=str(data), dtype=cells.dtype.name, shape=list(cells.shape))
        entry["chunk_shape"] = list(array.get("chunk_shape", cells.shape))
        entries.append(entry)
    recipe = {"out": str(out), "arrays": entries, **recipe}
    done = example("npy_to_tet", input=json.dumps(recipe).encode())
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return Path(out)


def random_shape(rng, rank=None):
    rank = rank or rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8])
    most = [0, 60, 17, 9, 6, 4, 3, 3, 2][rank]
    shape = tuple(rng.randint(1, most) for _ in range(rank))
    return shape, tuple(rng.randint(1, n + 1) for n in shape)


def random_cells(rng, dtype, shape, kind):
    """`bits`: random bits; `few`: few distinct numbers; `tame`: numbers with exact sums; `wild`: finite floats."""
    dtype = np.dtype(dtype)
    count = math.prod(shape)
    if kind == "few":
        cells = np.array([rng.choice([0, 1, 2, 7, 100]) for _ in range(count)]).astype(dtype)
    elif kind == "tame":
        low = 0 if dtype.kind == "u" else -100
        cells = np.array([rng.randint(low, 100) for _ in range(count)]).astype(dtype)
        cells = cells * dtype.type(0.25) if dtype.kind == "f" else cells
    else:
        cells = np.frombuffer(rng.randbytes(count * dtype.itemsize), dtype).copy()
        if kind == "wild" and dtype.kind == "f":
            cells[np.isnan(cells)] = -0.0
    return cells.reshape(shape)


WORDS = ["K", "m s-1", "β", 'say "hi"', "back\\slash", "line\nfeed", "\x01", "/", "tab\t", "x" * 1024]


def random_metadata(rng, shape):
    """Attributes, dimension names and labels in the form of our recipe."""
    out = {}
    if rng.random() < 0.6:
        names = rng.sample(["units", "long_name", "ß", "q\"", "z/y", "comment"], rng.randint(1, 4))
        out["attrs"] = {name: rng.choice(WORDS) for name in names}
    if rng.random() < 0.6:
        out["dims"] = rng.sample(["time", "lat", "lon", "level", "ü", "d 1", "x", "y", "run"], len(shape))
    if rng.random() < 0.5:
        labels = {}
        for d, extent in enumerate(shape):
            if rng.random() < 0.3:
                continue
            kinds = [
                [str(1.5 * i - 3) for i in range(extent)],
                [str(-i) for i in range(extent)],
                [f"2015-07-{i % 28 + 1:02}" for i in range(extent)],
                [rng.choice("abc") + str(i) for i in range(extent)],
            ]
            labels[out["dims"][d] if "dims" in out else str(d)] = rng.choice(kinds)
        if labels:
            out["labels"] = labels
    return out


def number(value):
    """Parse a number of a JSON document, where integers beyond 2^53 and non-finite floats are strings."""
    if not isinstance(value, str):
        return value
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return special[value] if value in special else int(value)


def near(got, want, scale, ulps=4):
    """Equal up to the rounding of a few operations on numbers of that scale."""
    if math.isnan(want) or math.isinf(want):
        return got == want or (math.isnan(got) and math.isnan(want))
    return abs(got - want) <= ulps * np.finfo("f8").eps * max(scale, np.finfo("f8").tiny)


def check_stat(document, cells, null=None):
    """Compare `tet stat --json` with NumPy: integers and extremes exactly, sums of floats up to the last digits."""
    flat = np.ascontiguousarray(cells).ravel()
    is_float = flat.dtype.kind == "f"
    gone = np.zeros(flat.shape, bool) if null is None else null.ravel()
    nan = np.isnan(flat) & ~gone if is_float else np.zeros(flat.shape, bool)
    left = flat[~gone & ~nan]
    counts = (len(flat), gone.sum(), nan.sum(), np.isinf(left).sum() if is_float else 0)
    assert tuple(document[k] for k in ("count", "nulls", "nan", "inf")) == counts
    if not len(left):
        assert document["min"] is None and document["max"] is None and document["mean"] is None
        return
    low, high, mean, std, total = (number(document[k]) for k in ("min", "max", "mean", "std", "sum"))
    if not is_float:
        exact = [int(v) for v in left]
        assert (low, high, total) == (min(exact), max(exact), sum(exact))
        assert near(mean, sum(exact) / len(exact), max(map(abs, exact)))
        return
    assert (left.dtype.type(low), left.dtype.type(high)) == (left.min(), left.max())
    wide = left.astype("f8")
    if np.isinf(wide).any():
        return
    with np.errstate(over="ignore"):
        scale = float(np.abs(wide).sum())
    if not math.isfinite(scale):
        return
    assert near(total, math.fsum(wide), scale) and near(mean, math.fsum(wide) / len(wide), scale / len(wide))
    deviations = wide - math.fsum(wide) / len(wide)
    largest = float(np.abs(deviations).max())
    if 1e-150 < largest < 1e150:
        want = math.sqrt(math.fsum((deviations / largest) ** 2) / len(wide)) * largest
        assert abs(std - want) <= 1e-9 * want + 1e-15 * float(np.abs(wide).max())
