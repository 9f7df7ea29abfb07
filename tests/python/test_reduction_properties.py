"""Random selections, memory limits, numbers of threads, formats and chunks do not change a bit of an answer, and each is that of exact
rational arithmetic: whole, along axes, by group, in windows, weighted, of two variables, and under conditions."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import tesseral
import tesseral.dask as td
from support import tet_json
from test_same_bits import DIMS, Case, along, bits, covariance, exact, from_rows, is_correlation, number, query, random_values

NAMES = ["sum", "mean", "std", "var", "count", "min", "max"]
SEASONS = {12: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 2, 7: 2, 8: 2, 9: 3, 10: 3, 11: 3}


def expected(slots, name):
    if name in ("min", "max"):
        keep = [slot[slot == slot] for slot in slots]
        # -0.0 is smaller than 0.0.
        order = lambda v: (v, math.copysign(1, v))  # noqa: E731
        pick = min if name == "min" else max
        return bits(np.array([pick(slot.tolist(), key=order) if len(slot) else math.nan for slot in keep], object if slots.dtype.kind in "iu" else "f8"))
    values = [exact(slot, name) for slot in slots]
    return bits(np.array(values, object if isinstance(values[0], int) else "f8"))


def ways(rng):
    """Memory limits and numbers of threads."""
    limits = [[], ["--memory", "64KiB"], ["--memory", "1MiB"]]
    threads = [[], ["--threads", "1"], ["--threads", "2"], ["--threads", "7"]]
    return [rng.choice(limits) + rng.choice(threads) for _ in range(3)]


def opened(path, rng):
    return tesseral.open(path, memory_limit=rng.choice([None, 1 << 16, 1 << 24]), mapped=rng.random() < 0.5)["v"]


class Cut:
    """A case and a random part of it."""

    def __init__(self, folder, seed):
        self.case = case = Case(folder, seed)
        self.rng = rng = case.rng
        self.slices = []
        for extent in case.cells.shape:
            start = rng.randrange(extent) if rng.random() < 0.7 else 0
            stop = rng.randint(start + 1, extent) if rng.random() < 0.7 else extent
            self.slices.append(slice(start, stop, rng.choice([1, 1, 2, 3])))
        self.cells = case.cells[tuple(self.slices)]
        self.words = [f"{dim}={s.start}:{s.stop}:{s.step}" for dim, s in zip(DIMS, self.slices)]

    def of(self, array):
        return array.isel(dict(zip(DIMS, self.slices)))

    def __repr__(self):
        return f"{self.case} {self.words}"


@pytest.mark.parametrize("seed", range(500, 524))
def test_any_selection_limit_and_number_of_threads(tmp_path, seed):
    cut = Cut(tmp_path, seed)
    rng, dtype = cut.rng, cut.case.dtype
    for axes in rng.sample([(0, 1, 2), (0,), (1,), (2,), (0, 1), (1, 2)], 2):
        dims, axis = ",".join(DIMS[a] for a in axes), None if len(axes) == 3 else axes
        slots = along(cut.cells, axes)
        want = {name: expected(slots, name) for name in NAMES}
        for path in cut.case.paths:
            for options in ways(rng):
                rows = tet_json(*options, "stat", path, "v", *cut.words, *(f"--{name}={dims}" for name in NAMES))["rows"]
                for name in NAMES:
                    assert from_rows(rows, name, dtype) == want[name], (cut, name, axes, options)
            array = cut.of(opened(path, rng))
            found = array.statistics(*NAMES, axis=axis)
            assert {name: bits(value) for name, value in found.items()} == want, (cut, axes)
            name = rng.choice(NAMES)
            lazy = td.reduce(array, name, axis, nbytes=rng.choice([1, 100, 1 << 20]))
            assert bits(lazy.compute(scheduler=rng.choice(["sync", "threads"]))) == want[name], (cut, name, "dask")
    # The summary without options, and its rows by position.
    row = tet_json(*rng.choice(ways(rng)), "stat", cut.case.paths[0], "v", *cut.words)
    rows = tet_json(*rng.choice(ways(rng)), "stat", cut.case.paths[1], "v", *cut.words, "--by", "lat")["rows"]
    for found, slots in (([row], along(cut.cells, (0, 1, 2))), (rows, along(cut.cells, (0, 2)))):
        for name in ("sum", "mean", "std"):
            assert from_rows(found, name, dtype) == expected(slots, name), (cut, name)


@pytest.mark.parametrize("seed", range(600, 616))
def test_any_groups_and_windows(tmp_path, seed):
    import cftime

    cut = Cut(tmp_path, seed)
    rng, cells = cut.rng, cut.cells
    dates = cftime.num2date(cut.case.time[cut.slices[0]], "days since 1999-11-03", cut.case.calendar)
    part = rng.choice(["year", "month", "season"])
    numbers = np.array([SEASONS[d.month] if part == "season" else getattr(d, part) for d in dates])
    groups = [cells[numbers == n] for n in sorted(set(numbers.tolist()))]
    size, center = rng.randint(1, 5), rng.random() < 0.5
    before = size // 2 if center else size - 1
    windows = [cells[max(0, i - before) : max(0, i - before + size)] if i >= before else cells[: size - before + i] for i in range(len(cells))]
    for path in cut.case.paths:
        array = cut.of(opened(path, rng))
        for name in ("sum", "mean", "std", "max"):
            want = [b for group in groups for b in expected(along(group, (0,)), name)]
            assert bits(getattr(array.groupby(f"time.{part}"), name)()) == want, (cut, name, part)
            lazy = td.reduce(array, name, by=f"time.{part}", nbytes=rng.choice([1, 200]))
            assert bits(lazy.compute(scheduler="sync")) == want, (cut, name, part)
            rows = tet_json(*rng.choice(ways(rng)), "stat", path, "v", *cut.words, f"--{name}=time", "--by", f"time.{part}")["rows"]
            assert from_rows(rows, name, cut.case.dtype) == want, (cut, name, part)
            want = [b for window in windows for b in expected(along(window, (0,)), name)]
            rolled = getattr(array.rolling(time=size, center=center, min_periods=0), name)()
            assert bits(rolled) == want, (cut, name, size, center)
            lazy = td.reduce(array, name, rolling={"time": size}, center=center, min_periods=0, nbytes=rng.choice([1, 200]))
            assert bits(lazy.compute(scheduler="sync")) == want, (cut, name, size, center)


@pytest.mark.parametrize("seed", [seed for seed in range(696, 720) if seed // 6 % 4 != 3])
def test_any_weights(tmp_path, seed):
    # Infinities times weights are tested beside the engine.
    cut = Cut(tmp_path, seed)
    assert cut.case.kind != "special"
    rng, cells = cut.rng, cut.cells
    area = cut.case.area[cut.slices[1]]
    for axes in rng.sample([(0, 1, 2), (1,), (0, 1), (1, 2)], 2):
        axis, dims = None if len(axes) == 3 else axes, ",".join(DIMS[a] for a in axes)
        each = np.broadcast_to(area[None, :, None], cells.shape)
        slots, weights = along(cells, axes), along(each, axes)
        want = {name: bits(np.array([exact(s, name, w.tolist()) for s, w in zip(slots, weights)], "f8")) for name in ("sum", "mean")}
        for path in cut.case.paths:
            array = cut.of(opened(path, rng))
            for name in ("sum", "mean"):
                assert bits(getattr(array, name)(axis, weights="area")) == want[name], (cut, name, axes)
                lazy = td.reduce(array, name, axis, weights="area", nbytes=rng.choice([1, 100])).compute(scheduler="sync")
                assert bits(lazy) == want[name], (cut, name, axes)
                rows = tet_json(*rng.choice(ways(rng)), "stat", path, "v", *cut.words, f"--{name}={dims}", "--weights", "area")["rows"]
                assert from_rows(rows, name, "f8") == want[name], (cut, name, axes)


@pytest.mark.parametrize("seed", range(800, 812))
def test_any_covariance(tmp_path, seed):
    cut = Cut(tmp_path, seed)
    kind = "tame" if cut.case.kind == "special" else cut.case.kind
    rng = cut.rng
    x = random_values(rng, cut.case.dtype, cut.case.cells.shape, kind)
    y = random_values(rng, "float64", cut.case.cells.shape, kind)
    part = tuple(cut.slices)
    for format in rng.sample(["tet", "tgm", "tiledb", "zarr"], 2):
        path = tmp_path / f"pair.{format}"
        chunks = {name: tuple(rng.randint(1, n) for n in x.shape) for name in "vw"} if format != "tgm" else None
        tesseral.write(path, {"v": x, "w": y}, dims={"v": DIMS, "w": DIMS}, chunks=chunks, format=format)
        array = cut.of(opened(path, rng))
        for axes in rng.sample([(0, 1, 2), (0,), (1, 2)], 2):
            axis, dims = None if len(axes) == 3 else axes, ",".join(DIMS[a] for a in axes)
            columns = []
            for a, b in zip(along(x[part], axes), along(y[part], axes)):
                pairs = [(Fraction(v), Fraction(w)) for v, w in zip(a.tolist(), b.tolist()) if v == v and w == w]
                columns.append(([v for v, _ in pairs], [w for _, w in pairs]))
            want = bits(np.array([covariance(*column) for column in columns], "f8"))
            assert bits(array.cov("w", axis)) == want, (cut, axes)
            correlations = np.ravel(array.corr("w", axis))
            assert all(is_correlation(float(r), *column) if column[0] else math.isnan(r) for r, column in zip(correlations, columns)), (cut, axes)
            lazy = td.reduce(array, "cov", axis, other="w", nbytes=rng.choice([1, 100])).compute(scheduler="sync")
            assert bits(lazy) == want, (cut, axes)
            rows = tet_json(*rng.choice(ways(rng)), "stat", path, "v", *cut.words, "--cov", "w", "--over", dims)["rows"]
            assert from_rows(rows, "cov", "f8") == want, (cut, axes)


@pytest.mark.parametrize("seed", range(900, 916))
def test_any_condition(tmp_path, seed):
    cut = Cut(tmp_path, seed)
    rng, dtype, cells = cut.rng, cut.case.dtype, cut.cells
    numbers = [v for v in cells.ravel().tolist() if v == v and not (isinstance(v, float) and math.isinf(v))] or [0]
    low, high = sorted((rng.choice(numbers), rng.choice(numbers)))
    with np.errstate(invalid="ignore"):
        below, above = cells < np.dtype(dtype).type(low), cells > np.dtype(dtype).type(high)
        inside = (cells >= np.dtype(dtype).type(low)) & (cells <= np.dtype(dtype).type(high))
    nan = cells != cells
    text = lambda v: str(v) if isinstance(v, int) else repr(float(v))  # noqa: E731
    choices = [
        (f"v < {text(low)} or v > {text(high)}", below | above),
        (f"not (v < {text(low)} or v > {text(high)})", inside | nan),
        (f"v >= {text(low)} and v <= {text(high)}", inside),
    ]
    for condition, mask in choices:
        kept = cells[mask]
        by_lat = [cells[:, i][mask[:, i]] for i in range(cells.shape[1])]
        for path in cut.case.paths:
            options = rng.choice(ways(rng))
            row = tet_json(*options, "stat", path, "v", *cut.words, "--where", condition)
            assert row["count"] == mask.sum(), (cut, condition, options)
            if len(kept):
                for name in ("sum", "mean", "std"):
                    assert from_rows([row], name, dtype) == expected(kept[None], name), (cut, condition, name)
            # Positions without a matching cell are not listed.
            rows = tet_json(*options, "stat", path, "v", *cut.words, "--where", condition, "--by", "lat")["rows"]
            some = [slot for slot in by_lat if len(slot)]
            assert [r["count"] for r in rows] == [len(slot) for slot in some], (cut, condition)
            for r, slot in zip(rows, some):
                assert from_rows([r], "mean", dtype) == expected(slot[None], "mean"), (cut, condition)
            array = cut.of(opened(path, rng))
            found = array.statistics("sum", "count", "mean", where=condition)
            assert {name: bits(v) for name, v in found.items()} == {name: expected(kept[None], name) for name in found}, (cut, condition)
            lazy = td.reduce(array, "mean", where=condition, nbytes=rng.choice([1, 100])).compute(scheduler="sync")
            assert bits(lazy) == expected(kept[None], "mean"), (cut, condition)
    # A document has the same answer.
    if cut.case.kind in ("tame", "wild"):
        selection = [{"start": s.start, "stop": s.stop, "step": s.step} for s in cut.slices]
        value = int(high) if isinstance(high, int) else float(high)
        kept = cells[above]
        answer = query(cut.case.paths[0], {"selection": selection, "filter": {"gt": value}, "mean": []})
        assert json.dumps(answer) and bits(np.array([number(answer["operation_mean"])], "f8")) == expected(kept[None], "mean"), cut
