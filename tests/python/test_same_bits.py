"""The same question has the same bits through `stat`, `--by`, query documents, Python, Dask jobs and conditions, and they are those of
exact rational arithmetic."""

import json
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import tesseral
import tesseral.dask as td
from support import tet, tet_json

DTYPES = ["float32", "float64", "float16", "int64", "uint64", "int8"]
FORMATS = ["tet", "tgm", "tiledb", "zarr"]
CALENDARS = ["standard", "noleap", "360_day", "julian"]
DIMS = ("time", "lat", "lon")


def random_values(rng, dtype, shape, kind):
    dtype = np.dtype(dtype)
    size = math.prod(shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        edges = [limits.min, limits.max, limits.max - 1, 0, 1, limits.max // 2]
        return np.array([rng.choice(edges) if rng.random() < 0.5 else rng.randint(limits.min, limits.max) for _ in range(size)], dtype).reshape(shape)
    limits = np.finfo(dtype)
    edges = [limits.max, -limits.max, limits.smallest_subnormal, -limits.smallest_subnormal, limits.tiny, 0.0, -0.0, 1.0, -1.0, 0.1]
    special = [math.nan, math.inf, -math.inf] if kind == "special" else [math.nan] if kind == "nan" else []
    decades = {2: 4, 4: 37, 8: 300}[dtype.itemsize]

    def one():
        choice = rng.random()
        if special and choice < 0.08:
            return rng.choice(special)
        if kind == "tame":
            return 280 + rng.gauss(0, 10)
        return rng.choice(edges) if choice < 0.4 else rng.uniform(-1, 1) * 10.0 ** rng.randint(-decades, decades)

    with np.errstate(over="ignore"):
        return np.array([one() for _ in range(size)], "f8").astype(dtype).reshape(shape)


class Case:
    """Cells in several formats and chunkings, and the ways to ask about them."""

    def __init__(self, folder, seed):
        self.rng = rng = random.Random(seed)
        self.dtype = DTYPES[seed % len(DTYPES)]
        self.kind = ["tame", "wild", "nan", "special"][seed // len(DTYPES) % 4]
        shape = (rng.randint(5, 40), rng.randint(1, 5), rng.randint(1, 6))
        self.cells = random_values(rng, self.dtype, shape, self.kind)
        self.calendar = rng.choice(CALENDARS)
        time = np.cumsum([rng.randint(1, 40) for _ in range(shape[0])])
        lat = np.linspace(-80, 80, shape[1]).astype("f4")
        self.area = np.array([rng.choice([0.0, 1.0, 0.1, 1e-30, 3e200]) for _ in range(shape[1])])
        self.time, self.lat = time, lat
        self.paths = []
        attrs = {"time": {"units": "days since 1999-11-03", "calendar": self.calendar}}
        arrays = {"v": self.cells, "time": time, "lat": lat, "area": self.area}
        dims = {"v": DIMS, "time": ("time",), "lat": ("lat",), "area": ("lat",)}
        for format in rng.sample(FORMATS, 2):
            path = folder / f"{seed}.{format}"
            chunks = {"v": tuple(rng.randint(1, n) for n in shape)} if format != "tgm" else None
            tesseral.write(path, arrays, dims=dims, attrs=attrs, chunks=chunks, format=format)
            self.paths.append(path)

    def __repr__(self):
        return f"{self.dtype} {self.kind} {self.cells.shape} {self.calendar} {[p.name for p in self.paths]}"

    def array(self, path):
        return tesseral.open(path)["v"]


def bits(value):
    """What must be equal: the dtype's kind, and bits of floats, whatever the NaN."""
    array = np.ma.asarray(value)
    mask = np.ma.getmaskarray(array)
    if array.dtype.kind == "f":
        plain = np.asarray(array.filled(np.nan), "f8")
        return [None if hidden or math.isnan(v) else float(v).hex() for v, hidden in zip(plain.ravel(), mask.ravel())]
    return [None if hidden else int(v) for v, hidden in zip(array.data.ravel(), mask.ravel())]


def number(value):
    if value is None:
        return math.nan
    if isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}.get(value) if value[-1:].isalpha() else int(value)
    return value


def from_rows(rows, name, dtype):
    """Answers of the command line. Cells are printed with the digits of their own dtype."""
    values = [number(row[name]) for row in rows]
    kind = np.dtype(dtype).kind
    if name in ("min", "max", "first", "last", "mode") and kind == "f":
        return bits(np.array(values, dtype))
    if kind in "iu" and name in ("min", "max", "sum", "first", "last", "mode", "count", "argmin", "argmax"):
        return [None if isinstance(v, float) and math.isnan(v) else int(v) for v in values]
    return bits(np.array(values, "f8")) if name not in ("count", "argmin", "argmax") else [None if v != v else int(v) for v in values]


def real(fraction):
    try:
        return fraction.numerator / fraction.denominator
    except OverflowError:
        return math.inf if fraction > 0 else -math.inf


def root(fraction):
    scale = 1 << 2400
    return real(Fraction(math.isqrt(fraction.numerator * scale * scale // fraction.denominator), scale))


def exact(values, what, weights=None):
    """The correctly rounded answer; integers for sums of integers."""
    integers = np.asarray(values).dtype.kind in "iu"
    kept = [(v, w) for v, w in zip(values.tolist(), weights or [1] * len(values)) if v == v]
    if what == "count":
        return len(kept)
    infinities = {v for v, _ in kept if isinstance(v, float) and math.isinf(v)}
    if not kept and what != "sum":
        return math.nan
    if infinities:
        assert what in ("sum", "mean", "std", "var")
        return infinities.pop() if len(infinities) == 1 and what in ("sum", "mean") else math.nan
    terms = [(Fraction(v), Fraction(w)) for v, w in kept]
    total = sum((v * w for v, w in terms), Fraction(0))
    n = sum((w for _, w in terms), Fraction(0))
    if what == "sum":
        return int(total) if integers and weights is None else real(total)
    if not n:
        return math.nan
    if what == "mean":
        return real(total / n)
    variance = sum(((v - total / n) ** 2 for v, _ in terms), Fraction(0)) / n
    return real(variance) if what == "var" else root(variance)


def along(cells, axes):
    """Cells of each slot, row-major over the kept axes."""
    kept = [a for a in range(cells.ndim) if a not in axes]
    turned = np.transpose(cells, kept + list(axes))
    return turned.reshape(math.prod(turned.shape[: len(kept)]), -1)


def query(path, document):
    text = json.dumps({"dataset": "v", **document})
    return json.loads(tet("query", text, "-t", path, "-x", "--format", "json"))["execution"]


@pytest.mark.parametrize("seed", range(24))
def test_every_way_gives_the_same_bits(tmp_path, seed):
    case = Case(tmp_path, seed)
    rng, dtype = case.rng, case.dtype
    names = ["sum", "mean", "min", "max", "std", "var", "count", "median", "first", "last"]
    for axes in rng.sample([(0, 1, 2), (0,), (1,), (2,), (0, 1), (1, 2)], 2):
        dims = ",".join(DIMS[a] for a in axes)
        axis = None if len(axes) == 3 else axes
        slots = along(case.cells, axes)
        want = None
        for path in case.paths:
            array = case.array(path)
            found = {name: bits(value) for name, value in array.statistics(*names, axis=axis).items()}
            for name in ("sum", "mean", "std", "var", "count"):
                expected = [exact(slot, name) for slot in slots]
                assert found[name] == bits(np.array(expected, object if found[name] and isinstance(found[name][0], int) else "f8")), (case, name, axes)
            want = want or found
            assert found == want, case
            name = rng.choice(names)
            assert bits(getattr(array, name)(axis)) == want[name], (case, name)
            lazy = td.reduce(array, name, axis, nbytes=rng.choice([1, 64, 1 << 10, 1 << 20]))
            assert bits(lazy.compute(scheduler="sync")) == want[name], (case, name, "dask")
            options = rng.choice([[], ["--threads", "1"], ["--threads", "3"], ["--memory", "2MiB"]])
            rows = tet_json(*options, "stat", path, "v", *(f"--{n}={dims}" for n in names))["rows"]
            for n in names:
                assert from_rows(rows, n, dtype) == want[n], (case, n, options)
        # Functions of NumPy propagate NaN.
        nan = [dtype.startswith("f") and bool(np.isnan(slot).any()) for slot in slots]
        propagated = [None if lost else mean for lost, mean in zip(nan, want["mean"], strict=True)]
        assert bits(np.mean(case.array(case.paths[0]), axis=axis)) == propagated
        got = query(case.paths[0], {"nan_mean": [DIMS[a] for a in axes] if axis else []})
        values = [got["operation_nan_mean"]] if axis is None else got["operation_reduced_nan_mean"]
        assert bits(np.array([number(v) for v in values], "f8")) == want["mean"], case


@pytest.mark.parametrize("seed", range(100, 112))
def test_conditions_and_selections(tmp_path, seed):
    case = Case(tmp_path, seed)
    rng, dtype = case.rng, case.dtype
    flat = case.cells.ravel()
    limit = flat[rng.randrange(len(flat))]
    limit = dtype and (0 if limit != limit or np.isinf(limit) else limit)
    text = str(int(limit)) if np.dtype(dtype).kind in "iu" else repr(float(limit))
    op, numpy_op = rng.choice([(">", np.greater), ("<=", np.less_equal), ("!=", np.not_equal)])
    start = rng.randrange(case.cells.shape[0])
    with np.errstate(invalid="ignore"):
        chosen = case.cells[start:]
        kept = chosen[numpy_op(chosen, np.dtype(dtype).type(limit))]
    want = {name: exact(kept, name) for name in ("sum", "count", "mean", "std")}
    for path in case.paths:
        array = case.array(path).isel(time=slice(start, None))
        condition = f"v {op} {text}"
        found = array.statistics("sum", "count", "mean", "std", where=condition)
        row = tet_json("stat", path, "v", f"time={start}:", "--where", condition)
        selection = [{"start": start}, {}, {}]
        key = {">": "gt", "<=": "le", "!=": "ne"}[op]
        for name, value in want.items():
            reported = row["count"] - row["nan"] if name == "count" else number(row[name])
            expected = bits(np.array([value], object if isinstance(value, int) else "f8"))
            assert bits(found[name]) == expected, (case, name, condition)
            if not (name == "sum" and not row["count"]):
                assert bits(np.array([reported], object if isinstance(value, int) else "f8")) == expected, (case, name, condition)
        if case.kind in ("tame", "wild"):
            answer = query(path, {"selection": selection, "filter": {key: int(limit) if text.lstrip("-").isdigit() else float(limit)}, "count": []})
            assert answer["operation_element_count"] == want["count"]


@pytest.mark.parametrize("seed", range(200, 212))
def test_groups_windows_and_weights(tmp_path, seed):
    import cftime

    case = Case(tmp_path, seed)
    dates = cftime.num2date(case.time, "days since 1999-11-03", case.calendar)
    part = case.rng.choice(["year", "month", "season", "day", "dayofyear", "hour"])
    season = {12: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2, 8: 2, 9: 3, 10: 3, 11: 3}
    of = {"season": lambda d: season[d.month], "dayofyear": lambda d: d.dayofyr}.get(part, lambda d: getattr(d, part))
    parts = np.array([of(date) for date in dates])
    labels = sorted(set(parts.tolist()))
    shown = [["DJF", "MAM", "JJA", "SON"][n] if part == "season" else n for n in labels]
    size = case.rng.randint(1, 6)
    weights = np.cos(np.deg2rad(case.lat.astype("f8"))).tolist()
    for path in case.paths:
        array = case.array(path)
        grouped = array.groupby(f"time.{part}")
        assert grouped.labels == shown, case
        rows = tet_json("stat", path, "v", "--by", f"time.{part}")["rows"]
        assert [row["coordinate"] for row in rows] == [str(label) for label in shown]
        kept = grouped.mean()
        assert kept.shape == (len(labels), *case.cells.shape[1:])
        lazy = td.reduce(array, "mean", by=f"time.{part}", nbytes=64).compute(scheduler="sync")
        assert bits(lazy) == bits(kept)
        whole = grouped.statistics("mean", "std", "sum", axis=...)
        listed = tet_json("stat", path, "v", "--mean=time", "--by", f"time.{part}")["rows"]
        assert from_rows(listed, "mean", "f8") == bits(kept)
        for i, label in enumerate(labels):
            cells = case.cells[parts == label]
            assert bits(kept[i]) == bits(np.array([exact(slot, "mean") for slot in along(cells, (0,))]))
            for name in ("mean", "std", "sum"):
                expected = exact(cells.ravel(), name)
                expected = bits(np.array([expected], object if isinstance(expected, int) else "f8"))
                assert bits(whole[name][i]) == expected, (case, name, part)
                assert from_rows([rows[i]], name, case.dtype) == expected, (case, name, part)

        document = query(path, {"nan_mean": [], "group_by": {"by": part, "axes": ["time"]}})
        assert document["group_labels"] == [str(label) for label in shown]
        assert bits(np.array([number(v) for v in document["operation_reduced_nan_mean"]], "f8")) == bits(whole["mean"])

        rolled = array.rolling(time=size, min_periods=1).mean()
        windows = [case.cells[max(0, i + 1 - size) : i + 1] for i in range(case.cells.shape[0])]
        assert bits(rolled) == [b for w in windows for b in bits(np.array([exact(slot, "mean") for slot in along(w, (0,))]))]
        lines = tet_json("stat", path, "v", "--mean", "--rolling", f"time={size}", "--min-count", "1")["rows"]
        assert from_rows(lines, "mean", "f8") == bits(rolled)
        lazy = td.reduce(array, "mean", rolling={"time": size}, min_periods=1, nbytes=100).compute(scheduler="sync")
        assert bits(lazy) == bits(rolled)

        each = np.broadcast_to(np.array(weights)[None, :, None], case.cells.shape)
        for name, given, text in (("cosine", each, "cos(lat)"), ("variable", np.broadcast_to(case.area[None, :, None], case.cells.shape), "area")):
            if case.kind == "special" or (name == "variable" and not case.area.any()):
                continue
            mean = array.mean(weights=text)
            # The last digit of NumPy's cosines depends on the platform.
            if name == "variable":
                assert bits(mean) == bits(np.array([exact(case.cells.ravel(), "mean", given.ravel().tolist())])), case
            else:
                close = exact(case.cells.ravel(), "mean", given.ravel().tolist())
                assert math.isclose(mean, close, rel_tol=1e-9) or case.kind != "tame" or math.isnan(close)
            line = tet_json("stat", path, "v", "--mean", "--weights", text)["rows"]
            assert from_rows(line, "mean", "f8") == bits(mean)
            document = query(path, {"nan_mean": [], "weights": text})
            assert bits(np.array([number(document["operation_nan_mean"])], "f8")) == bits(mean)
            assert bits(td.reduce(array, "mean", weights=text, nbytes=50).compute(scheduler="sync")) == bits(mean)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_histograms_and_quantiles(tmp_path, dtype):
    rng = random.Random(dtype)
    cells = random_values(rng, dtype, (9, 7), "tame" if dtype[0] == "f" else "wild")
    tesseral.write(tmp_path / "a.tet", {"v": cells}, dims=("time", "lat"), chunks=(4, 3))
    array = tesseral.open(tmp_path / "a.tet")["v"]
    for bins, limits in ((7, None), (3, (0, 100)), (10, (0.1, 0.7))):
        counts, edges = array.histogram(bins, limits)
        low, high = (cells.min().item(), cells.max().item()) if limits is None else limits
        exact_edges = [real(Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(i, bins)) for i in range(bins + 1)]
        assert edges.tolist() == exact_edges
        inside = [v for v in cells.ravel().tolist() if Fraction(low) <= Fraction(v) <= Fraction(high)]
        expected = [0] * bins
        for value in inside:
            expected[max(i for i in range(bins) if i == 0 or Fraction(value) >= Fraction(exact_edges[i]))] += 1
        assert counts.tolist() == expected
        lazy = td.reduce(array, "histogram", bins=bins, range=limits, nbytes=30).compute(scheduler="sync")
        assert lazy.counts.tolist() == expected and lazy.edges.tolist() == exact_edges
        option = str(bins) if limits is None else f"{bins},{limits[0]},{limits[1]}"
        document = tet_json("stat", tmp_path / "a.tet", "--histogram", option)
        assert document["rows"][0]["histogram"] == expected and [number(e) for e in document["histogram_edges"]] == exact_edges
    for q in (0.0, 0.1, 0.25, 0.5, 0.9, 1.0):
        for axis in (None, 0):
            got = np.ravel(array.quantile(q, axis)).tolist()
            expected = []
            for slot in along(cells, (0, 1) if axis is None else (0,)):
                ordered = sorted(slot.tolist())
                rank = q * (len(ordered) - 1)
                low = math.floor(rank)
                a, b = Fraction(ordered[low]), Fraction(ordered[min(low + 1, len(ordered) - 1)])
                expected.append(real(a + (b - a) * Fraction(rank - low)))
            assert got == expected, (q, axis)
            assert np.ravel(td.reduce(array, "quantile", axis, q=q, nbytes=20).compute(scheduler="sync")).tolist() == expected


def centered(x, y):
    """n·Σxy − Σx·Σy."""
    return len(x) * sum((a * b for a, b in zip(x, y)), Fraction(0)) - sum(x, Fraction(0)) * sum(y, Fraction(0))


def covariance(x, y, ddof=0):
    return real(centered(x, y) / (len(x) * (len(x) - ddof))) if len(x) > ddof else math.nan


def is_correlation(found, x, y):
    """Whether a number is within one unit in the last place of the correlation."""
    own, other, both = centered(x, x), centered(y, y), centered(x, y)
    if not own or not other:
        return math.isnan(found)
    if not both:
        return found == 0
    low, high = (Fraction(math.nextafter(abs(found), to)) for to in (0.0, math.inf))
    return (found > 0) == (both > 0) and low**2 <= both**2 / (own * other) <= high**2


@pytest.mark.parametrize("seed", range(400, 412))
def test_covariances_and_correlations(tmp_path, seed):
    rng = random.Random(seed)
    dtypes = [rng.choice(["float32", "float64", "int64", "uint64", "int16"]), rng.choice(["float32", "float64", "int32"])]
    kind, shape = rng.choice(["tame", "wild", "nan"]), (rng.randint(3, 20), rng.randint(1, 6))
    x, y = (random_values(rng, dtype, shape, kind) for dtype in dtypes)
    condition = y > 0
    for format in rng.sample(["tet", "zarr", "tiledb", "tgm"], 2):
        path = tmp_path / f"a.{format}"
        chunks = {name: tuple(rng.randint(1, n) for n in shape) for name in "vw"} if format != "tgm" else None
        tesseral.write(path, {"v": x, "w": y}, dims={"v": DIMS[:2], "w": DIMS[:2]}, chunks=chunks, format=format)
        array = tesseral.open(path)["v"]
        for axes in ((0, 1), (0,), (1,)):
            pairs = [
                [(Fraction(a), Fraction(b)) for a, b in zip(p.tolist(), q.tolist()) if a == a and b == b]
                for p, q in zip(along(x, axes), along(y, axes))
            ]
            columns = [([a for a, _ in pair], [b for _, b in pair]) for pair in pairs]
            axis, dims = (None if len(axes) == 2 else axes), ",".join(DIMS[a] for a in axes)
            for ddof in (0, 1):
                found = bits(array.cov("w", axis, ddof=ddof))
                assert found == bits(np.array([covariance(*pair, ddof) for pair in columns], "f8")), (seed, axes)
                rows = tet_json("stat", path, "v", "--cov", "w", "--corr", "w", "--over", dims, "--ddof", ddof)["rows"]
                assert from_rows(rows, "cov", "f8") == found
                assert bits(td.reduce(array, "cov", axis, other="w", ddof=ddof, nbytes=rng.choice([1, 100])).compute(scheduler="sync")) == found
            correlation = array.corr("w", axis)
            assert all(is_correlation(float(r), *pair) if pair[0] else math.isnan(r) for r, pair in zip(np.ravel(correlation), columns)), (seed, axes)
            assert from_rows(rows, "corr", "f8") == bits(correlation)
            if len(axes) == 2 and not np.isnan(x.astype("f8") + y.astype("f8")).any():
                answers = query(path, {"correlation": {"with": "w", "axes": []}})
                assert bits(np.array([number(answers["operation_correlation"])], "f8")) == bits(correlation)
                answers = query(path, {"covariance": {"with": "w", "axes": []}})
                assert number(answers["operation_covariance"]) == array.cov("w")
        chosen = x > 0
        some = [(Fraction(a), Fraction(b)) for a, b in zip(x[chosen].tolist(), y[chosen].tolist()) if b == b]
        wanted = covariance([a for a, _ in some], [b for _, b in some]) if some else math.nan
        assert bits(array.cov("w", where="v > 0")) == bits(np.array([wanted])), (seed, condition.sum())
    with pytest.raises(Exception, match="second variable"):
        array.statistics("cov")


def weighted_quantile(cells, weights, q):
    """Type 7 for an effective number of values, as in xarray."""
    pairs = sorted((Fraction(v), Fraction(w)) for v, w in zip(cells, weights) if v == v)
    total, squares = sum((w for _, w in pairs), Fraction(0)), sum((w * w for _, w in pairs), Fraction(0))
    if not total:
        return math.nan
    low = Fraction(q) * (total**2 - squares)
    below, before, result = Fraction(0), low, Fraction(0)
    for value, weight in pairs:
        below += weight * total
        reached = min(max(below, low), low + squares)
        result += value * (reached - before)
        before = reached
    return real(result / squares)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("kind", ["tame", "nan", "wild"])
def test_weighted_quantiles(tmp_path, dtype, kind):
    import xarray

    rng = random.Random(dtype + kind)
    cells = random_values(rng, dtype, (9, 5), kind)
    weights = np.array([rng.choice([0.0, 1.0, 0.1, 2.5]) for _ in range(5)])
    arrays = {"v": cells, "w": weights, "even": np.ones(5), "bad": -np.ones(5)}
    dims = {"v": ("time", "lat"), **dict.fromkeys(("w", "even", "bad"), ("lat",))}
    for format in ("tet", "zarr"):
        tesseral.write(tmp_path / f"a.{format}", arrays, dims=dims, chunks={"v": (4, 2)} if format == "tet" else None, format=format)
        array = tesseral.open(tmp_path / f"a.{format}")["v"]
        for q in (0.0, 0.1, 0.5, 0.9, 1.0):
            found = array.quantile(q, weights="w")
            each = np.broadcast_to(weights, cells.shape).ravel().tolist()
            assert bits(found) == bits(np.array([weighted_quantile(cells.ravel().tolist(), each, q)]))
            rows = tet_json("stat", tmp_path / f"a.{format}", "v", "--quantile", q, "--weights", "w")["rows"]
            assert from_rows(rows, f"quantile_{q:g}", "f8") == bits(found)
            assert bits(td.reduce(array, "quantile", q=q, weights="w", nbytes=30).compute(scheduler="sync")) == bits(found)
            if kind == "tame" and dtype[0] == "f":
                theirs = xarray.DataArray(cells, dims=("time", "lat")).weighted(xarray.DataArray(weights, dims=("lat",))).quantile(q)
                assert math.isclose(found, float(theirs), rel_tol=1e-6)
                answers = query(tmp_path / f"a.{format}", {"quantile": {"q": q, "axes": []}, "weights": "w"})
                assert number(answers["operation_quantile"]) == found
        assert bits(array.median(weights="even")) == bits(array.median())
        assert array.median("lat", weights="w").shape == (9,)
        with pytest.raises(Exception, match="not negative"):
            array.median(weights="bad")
