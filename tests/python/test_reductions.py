"""Every reduction of every dtype over every set of axes, for all kinds of cells, in every format, compared with exact arithmetic.

Integers, counts, extremes and places are compared exactly, in Python's own integers. Floats are held to what exact fractions give,
within bounds that are given with each: u is half a unit in the last place, 2^-53.
"""

import itertools
import json
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import tiledb
from support import DTYPES, example, number, tet, write, tet_json
from tiledb.sparse_array import _setitem_impl_sparse

SHAPE, CHUNK = (5, 4, 6), (2, 4, 3)
AXES = [axes for n in range(3) for axes in itertools.combinations(range(3), n)]
U = 2.0**-53

FLOAT_PATTERNS = ["tame", "nan", "all_nan", "inf", "one_inf", "zeros", "wide", "huge", "tiny"]
INT_PATTERNS = ["tame", "wide", "ends"]
REDUCTIONS = ["count", "sum", "mean", "min", "max", "var", "std", "product", "norm_l1", "norm_l2", "all_finite", "any_nan", "any_inf",
              "arg_min", "arg_max", "median", "nan_count", "inf_count", "nan_mean", "nan_std", "quantile", "histogram", "binned", "null_count"]


def cells_of(dtype, pattern, seed=0):
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(SHAPE) < (0.5 if pattern == "tame" else 0.05)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        if pattern == "ends":
            ends = [info.min, info.min + 1, info.max, info.max - 1, 0]
            return rng.choice(np.array(ends, dtype), SHAPE)
        low, high = (max(info.min, -9), 9) if pattern == "tame" else (info.min, info.max)
        return rng.integers(low, high, SHAPE, dtype=dtype, endpoint=True)
    info = np.finfo(dtype)
    cells = (rng.integers(-40, 40, SHAPE) * 0.25).astype(dtype)
    match pattern:
        case "nan": cells[rng.random(SHAPE) < 0.2] = np.nan
        case "all_nan": cells[1] = cells[:, 2] = np.nan
        case "inf": cells[0, 0, 0], cells[3, 1, 2], cells[2, 2, 2] = np.inf, -np.inf, np.nan
        case "one_inf": cells[1], cells[2, 2, 2] = np.inf, -np.inf
        case "zeros": cells = rng.choice(np.array([0.0, -0.0], dtype), SHAPE)
        case "wide": cells = (rng.standard_normal(SHAPE) * 10.0 ** rng.integers(-3, 3, SHAPE)).astype(dtype)
        case "huge": cells = rng.choice(np.array([info.max, info.min, info.max / 2, 1], dtype), SHAPE)
        case "tiny": cells = rng.choice(np.array([info.smallest_subnormal, -info.tiny, info.tiny, 0], dtype), SHAPE)
    return cells


def all_cells(dtypes):
    for dtype in dtypes:
        for pattern in FLOAT_PATTERNS if np.dtype(dtype).kind == "f" else INT_PATTERNS:
            yield f"{dtype}_{pattern}", cells_of(dtype, pattern)


class Cells:
    """The content of an array: its cells, which of them exist, which are null, and which value counts as null."""

    def __init__(self, cells, there=None, null=None, fill=None):
        self.cells, self.fill, self.known = cells, fill, {}
        self.there = np.ones(SHAPE, bool) if there is None else there
        self.null = np.zeros(SHAPE, bool) if null is None else null

    def __getitem__(self, at):
        return Cells(self.cells[at], self.there[at], self.null[at], self.fill)

    def where(self, kept):
        return Cells(self.cells, self.there & kept, self.null, self.fill)

    def fibers(self, axes):
        """The cells of each result in order, and the results' shape."""
        if not axes:
            return [self[...].flat()], None
        kept = [d for d in range(self.cells.ndim) if d not in axes]
        shape = [self.cells.shape[d] for d in kept]
        parts = []
        for at in np.ndindex(*shape):
            index = [slice(None)] * self.cells.ndim
            for d, i in zip(kept, at):
                index[d] = i
            parts.append(self[tuple(index)].flat())
        return parts, shape

    def flat(self):
        return Cells(self.cells.ravel(), self.there.ravel(), self.null.ravel(), self.fill)

    def results(self, key, axes):
        """The expected result of a reduction over some axes, its shape, and the cells of each element."""
        if (key, axes) not in self.known:
            fibers, shape = self.fibers(axes)
            self.known[key, axes] = [expected(key, fiber) for fiber in fibers], shape, fibers
        return self.known[key, axes]

    def values(self):
        """The values that folds include, and their positions."""
        places = np.flatnonzero(self.there & ~self.null)
        picked = self.cells[places]
        return (picked.astype("f8").tolist() if self.cells.dtype.kind == "f" else [int(v) for v in picked]), places.tolist()


class Near:
    """A number within a bound."""

    def __init__(self, value, bound):
        self.value, self.bound = value, bound

    def __repr__(self):
        return f"{self.value} ± {self.bound}"


def as_float(value):
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def special(values):
    """The sum of values with NaN or infinities; None for finite numbers."""
    if any(v != v for v in values) or (math.inf in values and -math.inf in values):
        return math.nan
    return math.inf if math.inf in values else -math.inf if -math.inf in values else None


def total(values, is_float):
    if not is_float:
        return sum(values)
    odd = special(values)
    if odd is not None:
        return odd
    exact, size = sum(map(Fraction, values)), sum(abs(Fraction(v)) for v in values)
    # If the sum of magnitudes overflows, a partial sum may be infinite, as in NumPy.
    return ... if as_float(size) > 1.7e308 else Near(as_float(exact), as_float(8 * Fraction(U) * size))


def mean(values, is_float):
    if not values:
        return None
    if not is_float:
        # Rounded once for the integer part, once for the rest, once for their sum.
        return Near(as_float(Fraction(sum(values), len(values))), 4 * U * abs(sum(values) / len(values)))
    whole = total(values, True)
    if not isinstance(whole, Near):
        return whole
    return Near(whole.value / len(values), whole.bound / len(values) + U * abs(whole.value) / len(values) + 5e-324)


def variance(values, root):
    if not values:
        return None
    if special(values) is not None:
        return math.nan
    n, exact = len(values), [Fraction(v) for v in values]
    var = sum(v * v for v in exact) / n - (sum(exact) / n) ** 2
    largest = max(map(abs, exact))
    if largest > 1e150:
        return ...
    # Squares around a mean that is itself rounded.
    bound = 64 * U * as_float(var) + (16 * U * as_float(largest)) ** 2 + 5e-324
    if not root:
        return Near(as_float(var), bound)
    return Near(math.sqrt(var), max(math.sqrt(as_float(var) + bound) - math.sqrt(var), 64 * U * math.sqrt(var)) + 1e-161)


def product(values, is_float):
    if not is_float:
        exact = math.prod(values)
        return exact if abs(exact) < 2**127 else Near(as_float(exact), as_float(2 * len(values) * Fraction(U) * abs(exact)))
    odd = [v for v in values if v != v or math.isinf(v)]
    negative = sum(math.copysign(1, v) < 0 for v in values) % 2
    if any(v != v for v in values) or (odd and 0 in values):
        return math.nan
    if odd or 0 in values:
        return math.copysign(math.inf if odd else 0.0, -1 if negative else 1)
    exact = math.prod(map(Fraction, values))
    return Near(as_float(exact), as_float(2 * len(values) * Fraction(U) * abs(exact)) + 5e-324)


def quantile(values, q, is_float):
    if not values:
        return None
    if any(v != v for v in values):
        return math.nan
    ordered = sorted(values, key=lambda v: (v, math.copysign(1, v)))
    place = q * (len(values) - 1)
    low, part = int(place), Fraction(place) - int(place)
    if not part or ordered[low] == ordered[low + 1]:
        return float(ordered[low]) if is_float else ordered[low]
    a, b = ordered[low], ordered[low + 1]
    if math.inf in (abs(a), abs(b)):
        return a + b
    exact = Fraction(a) + (Fraction(b) - Fraction(a)) * part
    if part == Fraction(1, 2) and not is_float:
        return Near(as_float(exact), 0)
    return Near(as_float(exact), 4 * U * max(abs(a), abs(b)))


def edges_of(values, bins):
    low, high = float(min(values)), float(max(values))
    width = high - low
    part = [i / bins for i in range(bins)]
    if math.isinf(width):
        return [low * (1 - t) + high * t for t in part] + [high]
    return [low + width * t for t in part] + [high]


def histogram(values, edges):
    counts = [0] * (len(edges) - 1)
    for v in values:
        # A single value has no range to divide.
        counts[sum(v >= edge for edge in edges[1:-1]) if edges[0] < edges[-1] else 0] += 1
    return counts


def expected(key, fiber):
    """The result of exact arithmetic; `...` if any result is accepted."""
    is_float = fiber.cells.dtype.kind == "f"
    values, places = fiber.values()
    left = [v for v in values if v == v]
    nan = len(left) < len(values)
    infinities = sum(math.isinf(v) for v in left) if is_float else 0
    match key:
        case "count": return int(fiber.there.sum())
        case "nan_count": return len(values) - len(left)
        case "inf_count": return infinities
        case "any_nan": return nan
        case "any_inf": return infinities > 0
        case "all_finite": return not nan and not infinities
        case "sum": return total(values, is_float)
        case "mean": return mean(values, is_float)
        case "nan_mean": return mean(left, is_float)
        case "min": return min(left, key=lambda v: (v, math.copysign(1, v)), default=None)
        case "max": return max(left, key=lambda v: (v, math.copysign(1, v)), default=None)
        case "var" | "std": return math.nan if nan else variance(values, key == "std")
        case "nan_std": return variance(left, True)
        case "product": return product(values, is_float)
        case "norm_l1": return total([abs(v) for v in values], is_float)
        case "norm_l2":
            if is_float:
                # An infinity together with NaN is NaN too.
                want = math.nan if nan else math.hypot(*values)
            else:
                want = math.sqrt(sum(v * v for v in values))
            return want if not math.isfinite(want) else Near(want, 8 * U * want + 5e-324)
        case "arg_min" | "arg_max":
            if not left:
                return None
            best = min(left) if key == "arg_min" else max(left)
            return next(p for v, p in zip(values, places) if v == best)
        case "median": return quantile(values, 0.5, is_float)
        case "quantile": return quantile(values, 0.3, is_float)
        case "histogram":
            if not left:
                return [0] * 7
            return "error" if infinities else histogram(left, edges_of(left, 7))
        case "binned": return histogram(left, [-2.0, -1.0, 0.0, 1.0, 2.0])
        case "null_count":
            fill = 0 if fiber.fill is None else fiber.fill
            return int((fiber.there & fiber.null).sum()) + sum(v == fill or (v != v and fill != fill) for v in values)
    raise AssertionError(key)


def agrees(got, want):
    if want is ...:
        return True
    if isinstance(want, list):
        return got == want
    got = number(got)
    if want is None or isinstance(want, bool):
        return got is want
    if got is None or isinstance(got, bool):
        return False
    if isinstance(want, Near):
        if math.isinf(want.value) or math.isinf(want.bound):
            return got == want.value or abs(got) > 1.7e308
        return abs(Fraction(got) - Fraction(want.value)) <= Fraction(want.bound) if math.isfinite(got) else abs(want.value) > 1.79e308
    if isinstance(want, int):
        return got == want and isinstance(got, int)
    if math.isnan(want):
        return math.isnan(got)
    # The sign of a zero counts.
    return got == want and math.copysign(1, got) == math.copysign(1, want)


def ask(path, documents, *jobs):
    """Results of many documents from one process."""
    done = example("answer_queries", path, *jobs, input="".join(json.dumps(d) + "\n" for d in documents).encode())
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def document(name, key, axes):
    axes = list(axes)
    match key:
        case "quantile": return {"dataset": name, "quantile": {"q": 0.3, "axes": axes}}
        case "histogram": return {"dataset": name, "histogram": {"bins": 7, "axes": axes}}
        case "binned": return {"dataset": name, "histogram": {"bins": 4, "min": -2, "max": 2, "axes": axes}}
        case "null_count": return {"dataset": name, "null_count": {"axes": axes}}
    return {"dataset": name, key: axes}


def check(path, arrays, names=lambda name: name):
    """Compare every reduction of every array over every set of axes with the expected result."""
    asked = list(itertools.product(arrays, REDUCTIONS, AXES))
    documents = []
    for name, key, axes in asked:
        doc = document(names(name), key, axes)
        if key == "null_count" and arrays[name].fill is None:
            doc["null_count"]["fill"] = 0
        documents.append(doc)
    wrong = []
    for (name, key, axes), doc, got in zip(asked, documents, ask(path, documents), strict=True):
        want, shape, fibers = arrays[name].results(key, axes)
        if "error" in want:
            if "error" not in got:
                wrong.append((doc, "no error"))
            continue
        if "error" in got or got["shape"] != shape or len(got["answers"]) != len(want):
            wrong.append((doc, got.get("error", got["shape"] if "shape" in got else None)))
            continue
        for at, (have, must) in enumerate(zip(got["answers"], want)):
            if not agrees(have, must):
                wrong.append((doc, at, have, must))
        if key == "histogram" and not axes and any(v == v for v in fibers[0].values()[0]):
            values = [v for v in fibers[0].values()[0] if v == v]
            low, high = Fraction(min(values)), Fraction(max(values))
            for i, edge in enumerate(got["edges"]):
                want = low + (high - low) * Fraction(i, 7)
                if abs(Fraction(number(edge)) - want) > 8 * U * max(abs(low), abs(high)):
                    wrong.append((doc, "edge", i, edge, float(want)))
    assert not wrong, f"{len(wrong)} wrong answers, the first: " + "\n".join(map(repr, wrong[:12]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reductions")


@pytest.fixture(scope="module")
def plain(folder):
    """Arrays without missing cells, as a `.tet` file."""
    arrays = {name: Cells(cells) for name, cells in all_cells(DTYPES)}
    entries = [{"name": name, "cells": a.cells, "chunk_shape": CHUNK, "dims": ["time", "lat", "lon"]} for name, a in arrays.items()]
    return write(folder, folder / "plain.tet", entries), arrays


def test_tet(plain):
    check(*plain)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_tet_with_statistics(folder, plain, codec):
    _, arrays = plain
    entries = [{"name": n, "cells": a.cells, "chunk_shape": (3, 2, 4), "dims": ["t", "y", "x"], "codec": codec} for n, a in arrays.items()]
    check(write(folder, folder / f"zones-{codec}.tet", entries, zone_maps=True), arrays)


def test_tet_with_fill(folder):
    """Cells equal to the declared value are missing."""
    arrays = {}
    for name, cells in all_cells(DTYPES):
        fill = cells[0, 1, 1]
        missing = np.isnan(cells) if fill != fill else cells == fill
        arrays[name] = Cells(cells, None, missing, float(fill) if cells.dtype.kind == "f" else int(fill))
    entries = [{"name": name, "cells": a.cells, "chunk_shape": CHUNK, "attrs": {"_FillValue": repr(a.fill).replace("inf", "Infinity")}}
               for name, a in arrays.items()]
    check(write(folder, folder / "fill.tet", entries, zone_maps=True), arrays)


def test_tgm(folder, plain):
    path, arrays = plain
    tet("convert", path, folder / "plain.tgm")
    numbers = {name: f"0/{i}" for i, name in enumerate(arrays)}
    check(folder / "plain.tgm", arrays, numbers.get)


def test_tiledb(folder, plain):
    path, arrays = plain
    held = {name: a for name, a in arrays.items() if not name.startswith("float16")}
    options = [option for name in held for option in ("--array", name)]
    tet("convert", path, folder / "plain.tdb", *options)
    check(folder / "plain.tdb", held)


TILEDB = ["int8", "uint8", "int64", "uint64", "float64", "bool"]


def tiledb_cells(there=None):
    rng = np.random.default_rng(4)
    arrays = {}
    for name, cells in all_cells(TILEDB):
        arrays[name] = Cells(cells, there)
        null = rng.random(SHAPE) < 0.3
        null[2] = null[:, 1] = True
        arrays[f"{name}_null"] = Cells(cells, there, null)
        # A declared fill value counts as null; the package's default, such as 255, does not.
        if cells.dtype.kind != "b":
            arrays[f"{name}_fill"] = Cells(cells, there, fill=cells[0, 0, 0].item())
    return arrays


def tiledb_array(path, arrays, sparse):
    dims = [tiledb.Dim(name, domain=(10, 9 + n), tile=tile, dtype="i4") for name, n, tile in zip("tyx", SHAPE, CHUNK)]
    attrs = [tiledb.Attr(name, dtype=a.cells.dtype, nullable=bool(a.null.any()), fill=a.fill) for name, a in arrays.items()]
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(*dims), attrs, sparse=sparse, capacity=7))
    at = np.nonzero(next(iter(arrays.values())).there) if sparse else (...,)

    columns = {name: np.ascontiguousarray(a.cells[at]) for name, a in arrays.items()}
    nulls = {name: a.null[at] for name, a in arrays.items() if a.null.any()}
    with tiledb.open(str(path), "w") as array:
        if sparse:
            valid = {name: (~null).astype("u1") for name, null in nulls.items()}
            _setitem_impl_sparse(array, tuple(i + 10 for i in at), columns, valid)
        else:
            array[:] = {name: np.ma.MaskedArray(c, nulls[name]) if name in nulls else c for name, c in columns.items()}
    with tiledb.open(str(path)) as array:
        for name, a in arrays.items():
            if not sparse and name in nulls:
                # The package treats NaN and infinities of masked arrays as null.
                a.null = np.ma.getmaskarray(array.query(attrs=[name])[:][name])
    return path


@pytest.fixture(scope="module")
def dense(folder):
    arrays = tiledb_cells()
    return tiledb_array(folder / "dense", arrays, sparse=False), undeclared(arrays)


@pytest.fixture(scope="module")
def sparse(folder):
    there = np.random.default_rng(3).random(SHAPE) < 0.6
    there[4] = there[:, 3] = False
    arrays = tiledb_cells(there)
    return tiledb_array(folder / "sparse", arrays, sparse=True), undeclared(arrays)


def undeclared(arrays):
    """The fill value of an attribute declares nothing about cells that were written."""
    return {name: Cells(a.cells, a.there, a.null) for name, a in arrays.items()}


def test_tiledb_with_nulls(dense):
    check(*dense)


def test_sparse(sparse):
    check(*sparse)


def test_sparse_spread_over_positions(folder, sparse):
    """An empty position of the sparse array is null in the dense one."""
    path, arrays = sparse
    nullable = {name: a for name, a in arrays.items() if a.null.any()}
    options = [option for name in nullable for option in ("--array", name)]
    tet("convert", path, folder / "spread", "--sparse-as", "dense", *options)
    check(folder / "spread", {n: Cells(a.cells, None, a.null | ~a.there, a.fill) for n, a in nullable.items()})


def test_tgm_of_small_dtypes(folder, dense):
    path, arrays = dense
    held = {name: a for name, a in arrays.items() if not name.endswith("_null") and not name.startswith("bool")}
    options = [option for name in held for option in ("--array", name)]
    tet("convert", path, folder / "small.tgm", *options)
    numbers = {array["attributes"]["name"]: array["name"] for array in tet_json("info", folder / "small.tgm")["arrays"]}
    check(folder / "small.tgm", held, numbers.get)


FILTERS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def meets(cells, key, bound):
    """Which cells satisfy a comparison, integers as Python integers; NaN is unequal to everything and neither less nor greater."""
    if cells.cells.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return FILTERS[key](cells.cells.astype("f8"), bound)
    compare = {"eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}[key]
    return np.array([compare(int(v), bound) for v in cells.cells.ravel()]).reshape(cells.cells.shape)


def random_document(rng, name, cells):
    """A document with a selection, a filter and a reduction, and the cells it is about."""
    slices, axes = [], []
    for n in SHAPE:
        start = rng.randrange(n)
        stop = rng.randint(start + 1, n)
        step = rng.choice([1, 1, 2, 3])
        slices.append(slice(start, stop, step))
        axes.append({"start": start, "stop": stop, "step": step})
    part, doc = cells, {}
    if rng.random() < 0.7:
        part, doc["selection"] = part[tuple(slices)], axes
    if rng.random() < 0.7:
        kept = ~part.null
        chosen = rng.sample(["lt", "le"], 1) * rng.randint(0, 1) + rng.sample(["gt", "ge"], 1) * rng.randint(0, 1)
        chosen = chosen or [rng.choice(["eq", "ne"])]
        is_float = cells.cells.dtype.kind == "f"
        some = [v for v in (cells.cells.astype("f8").ravel().tolist() if is_float else map(int, cells.cells.ravel())) if abs(v) < math.inf]
        bounds = sorted(rng.choice(some or [0]) for _ in chosen)
        if len(bounds) == 2 and bounds[0] == bounds[1]:
            chosen, bounds = ["ne"], bounds[:1]
        # Lower bounds come second among what was chosen, first among the bounds.
        doc["filter"] = dict(zip(reversed(chosen), bounds))
        for key, bound in doc["filter"].items():
            kept &= meets(part, key, bound)
        part = part.where(kept)
    key, over = rng.choice(REDUCTIONS), rng.choice(AXES)
    doc.update(document(name, key, over))
    if key == "null_count" and cells.fill is None:
        doc["null_count"]["fill"] = 0
    return key, over, part, doc


@pytest.mark.parametrize("kind", ["plain", "dense", "sparse"])
def test_selections_and_filters(kind, request):
    """Random parts of random arrays under random conditions."""
    path, arrays = request.getfixturevalue(kind)
    rng = random.Random(kind)
    chosen = [rng.choice(list(arrays)) for _ in range(4000)]
    asked = [random_document(rng, name, arrays[name]) for name in chosen]
    for (key, over, part, doc), got in zip(asked, ask(path, [a[3] for a in asked]), strict=True):
        want, shape, _ = part.results(key, over)
        if "error" in want:
            assert "error" in got, doc
            continue
        assert got.get("shape") == shape, (doc, got)
        for have, must in zip(got["answers"], want, strict=True):
            assert agrees(have, must), (doc, have, must, want)


def test_formats_agree(folder, plain):
    """A query on an array and on its conversions gives the same results in every format."""
    path, arrays = plain
    held = {name: a for name, a in arrays.items() if not name.startswith("float16")}
    options = [option for name in held for option in ("--array", name)]
    tet("convert", path, folder / "same.tgm", *options)
    tet("convert", path, folder / "same.tdb", *options)
    tet("convert", folder / "same.tgm", folder / "back.tet")
    numbers = {array["attributes"]["name"]: array["name"] for array in tet_json("info", folder / "same.tgm")["arrays"]}
    rng = random.Random(9)
    chosen = [rng.choice(list(held)) for _ in range(3000)]
    asked = [random_document(rng, name, held[name]) for name in chosen]
    documents = [doc for *_, doc in asked]
    first, same = ask(path, documents), ask(folder / "same.tdb", documents)
    renamed = [{**doc, "dataset": numbers[doc["dataset"]]} for doc in documents]
    whole, back = ask(folder / "same.tgm", renamed), ask(folder / "back.tet", documents)
    # Floats that are summed in another order round differently: an object is one chunk.
    spreads = {"var", "std", "nan_std", "product"}
    rounded = {"sum", "mean", "norm_l1", "norm_l2", "nan_mean"}
    for name, (key, *_, doc), a, b, c, d in zip(chosen, asked, first, same, whole, back, strict=True):
        if "error" in a:
            assert all("error" in other for other in (b, c, d)), doc
            continue
        if key in spreads or (key in rounded and name.startswith("float")):
            continue
        assert a == b == c == d, doc


@pytest.mark.parametrize("kind", ["plain", "dense", "sparse"])
def test_jobs_give_the_whole(kind, request):
    path, arrays = request.getfixturevalue(kind)
    documents = [document(name, key, axes) for name, axes in zip(arrays, itertools.cycle(AXES)) for key in REDUCTIONS if key != "null_count"]
    whole, parts = ask(path, documents), ask(path, documents, 3)
    assert [{**answer, "jobs": 0} for answer in whole] == [{**answer, "jobs": 0} for answer in parts]


def test_jobs_of_sparse_arrays(tmp_path):
    """Cells of a large sparse array are divided among threads."""
    rng = np.random.default_rng(5)
    dims = [tiledb.Dim("x", domain=(-1000, 9_999_999), tile=1000, dtype="i8"), tiledb.Dim("y", domain=(0, 3), tile=2, dtype="i8")]
    schema = tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("v", dtype="f8")], sparse=True, capacity=500)
    tiledb.Array.create(str(tmp_path / "s"), schema)
    x, y, v = np.arange(40_000) % 20_000 - 500, np.arange(40_000) // 20_000, rng.standard_normal(40_000)
    with tiledb.open(str(tmp_path / "s"), "w") as array:
        array[x, y] = v
    # The same positions again, some cells newer.
    v[::7] += 1
    with tiledb.open(str(tmp_path / "s"), "w") as array:
        array[x[::7], y[::7]] = v[::7]
    little = {"dataset": "v", "execution": {"memory_budget_bytes": 1}}
    windows = {"window": {"axis": "x", "size": 1_000_000, "mode": "rolling", "step": 333_333}}
    documents = [{**little, **d} for d in [
        {"sum": []}, {"mean": ["x"]}, {"var": ["x"]}, {"arg_max": []}, {"arg_min": ["x"]}, {"median": ["x"]}, {"count": []},
        {"sum": [], "filter": {"gt": 0.5}}, {"histogram": {"bins": 9}}, {"sum": ["x", "y"], **windows}, {"product": ["x"]},
        {"max": ["x"], "selection": [{"start": 3, "stop": 9_000_000, "step": 7}, {"start": 1, "stop": 3}]},
    ]]
    whole, parts = ask(tmp_path / "s", documents), ask(tmp_path / "s", documents, 4)
    for doc, one, other in zip(documents, whole, parts, strict=True):
        assert "error" not in one and one["answers"] == other["answers"], doc
        assert other["jobs"] in (3, 4), doc
    assert abs(whole[0]["answers"][0] - math.fsum(v)) < 1e-9 and whole[6]["answers"] == [40_000]
    assert whole[3]["answers"][0] == (x[v.argmax()] + 1000) * 4 + y[v.argmax()]


def covariances(table, counts, correlation):
    """Of each two columns over the rows that have both."""
    order = table.shape[1]
    out = np.full((order, order), np.nan, object)
    for i, j in np.ndindex(order, order):
        both = counts[:, i] & counts[:, j]
        if not both.any():
            out[i, j] = None
            continue
        a, b = table[both, i].astype("f8"), table[both, j].astype("f8")
        a, b = a - a.mean(), b - b.mean()
        with np.errstate(invalid="ignore", divide="ignore"):
            out[i, j] = (a * b).mean() / (np.sqrt((a * a).mean() * (b * b).mean()) if correlation else 1)
    return out.ravel().tolist()


def test_matrices(folder):
    """Covariance and correlation of all cells, of those under a condition, and beside nulls, in every format."""
    rng = np.random.default_rng(8)
    table = rng.standard_normal((60, 5)) * [1, 10, 100, 1, 1] + [0, 5, -1e6, 3, 0]
    table[:, 4] = 2.5
    labels = ["dry" if i % 3 else "wet" for i in range(60)]
    path = write(folder, folder / "table.tet", [{"name": "t", "cells": table, "chunk_shape": (7, 2), "dims": ["day", "what"],
                                                 "labels": {"day": labels}}])
    tet("convert", path, folder / "table.tgm")
    null = rng.random(table.shape) < 0.3
    null[:, 3] = True
    schema = tiledb.ArraySchema(tiledb.Domain(tiledb.Dim("day", domain=(0, 59), tile=9, dtype="i4"), tiledb.Dim("what", domain=(0, 4), tile=3, dtype="i4")),
                                [tiledb.Attr("t", dtype="f8", nullable=True)])
    tiledb.Array.create(str(folder / "table.tdb"), schema)
    with tiledb.open(str(folder / "table.tdb"), "w") as array:
        array[:] = {"t": np.ma.MaskedArray(table, null)}
    every = np.ones(table.shape, bool)
    wet = np.array([[label == "wet"] for label in labels]) & every
    cases = [({}, every), ({"filter": {"gt": 0.5}}, table > 0.5), ({"label_filter": {"axis": "day", "eq": "wet"}}, wet),
             ({"filter": {"lt": 1}, "label_filter": {"axis": 0, "eq": "wet"}}, wet & (table < 1))]
    asked = [(path, "t", more, counts) for more, counts in cases] + [(folder / "table.tgm", "0/0", more, counts) for more, counts in cases]
    asked += [(folder / "table.tdb", "t", {}, ~null), (folder / "table.tdb", "t", {"filter": {"gt": 0.5}}, ~null & (table > 0.5))]
    for source, name, more, counts in asked:
        for key in ("covariance", "correlation"):
            [got] = ask(source, [{"dataset": name, key: ["day"], **more}])
            assert got["shape"] == [5, 5]
            for have, must in zip(got["answers"], covariances(table, counts, key == "correlation"), strict=True):
                have = number(have)
                if must is None or must != must:
                    assert have is None if must is None else have != have, (source, key, more)
                else:
                    assert abs(have - must) <= 1e-12 * max(1, abs(must)) * (1 if key == "correlation" else 1e4), (source, key, more)


def test_stat_leaves_nan_out_of_quantiles(folder):
    cells = np.array([[1, np.nan, 3, -np.inf], [4, 5, np.inf, np.nan], [9, np.nan, 5, np.nan]])
    path = write(folder, folder / "gaps.tet", [{"name": "t", "cells": cells, "dims": ["y", "x"]}])
    [rows] = [json.loads(tet("stat", path, "t", "--median", "y", "--json"))["rows"]]
    assert [row["median"] for row in rows] == [4.0, 5.0, 5.0, "-Infinity"]
    assert json.loads(tet("stat", path, "t", "--quantile", "0.5", "--json"))["rows"][0]["quantile_0.5"] == 4.5


def test_cells_that_nobody_wrote(folder):
    """They are null in statistics, and written cells are not, for any value; both are printed as values."""
    schema = tiledb.ArraySchema(tiledb.Domain(tiledb.Dim("y", domain=(0, 9), tile=4, dtype="i4"), tiledb.Dim("x", domain=(0, 9), tile=3, dtype="i4")),
                                [tiledb.Attr("a", dtype="u1"), tiledb.Attr("b", dtype="f4"), tiledb.Attr("c", dtype="i2", fill=-9)])
    path = folder / "partly"
    tiledb.Array.create(str(path), schema)
    rng = np.random.default_rng(2)
    written = {"a": rng.choice(np.array([1, 7, 255], "u1"), (4, 5)), "b": np.full((4, 5), 0.5, "f4"), "c": rng.choice(np.array([3, -9], "i2"), (4, 5))}
    written["b"][0] = np.nan
    with tiledb.open(str(path), "w") as array:
        array[2:6, 1:6] = written
    for name, cells in written.items():
        stat = json.loads(tet("stat", path, name, "--json"))
        kept = cells.astype("f8")
        assert (stat["count"], stat["nulls"], stat["nan"]) == (100, 80, int(np.isnan(kept).sum())), name
        assert (stat["min"], stat["max"], stat["sum"]) == (np.nanmin(kept), np.nanmax(kept), np.nansum(kept)), name
        # Along a dimension, in unwritten rows and in partially written ones.
        rows = json.loads(tet("stat", path, name, "--sum", "x", "--count", "x", "--median", "x", "--json"))["rows"]
        for y, row in enumerate(rows):
            inside = cells[y - 2].astype("f8") if 2 <= y < 6 else np.empty(0)
            inside = inside[~np.isnan(inside)]
            assert (row["count"], row["sum"]) == (inside.size, inside.sum()), (name, y)
            assert row["median"] == (np.median(inside) if inside.size else None), (name, y)
    # In query documents too, where written cells are included regardless of their value.
    for name, cells in written.items():
        for more, kept in ({}, cells), ({"filter": {"ge": 3}}, cells[cells >= 3]):
            asked = {"dataset": name, "nan_mean": [], **more}
            answer = json.loads(tet("query", json.dumps(asked), "-t", path, "-x", "--json"))["execution"]
            if kept.size:
                assert math.isclose(answer["operation_nan_mean"], np.nanmean(kept.astype("f8")), rel_tol=1e-15), (name, more)
