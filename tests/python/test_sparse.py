"""Sparse arrays in every command: converted, compared, queried, aggregated; checked by the reference package and NumPy."""

import json

import numpy as np
import pytest
import tiledb
from support import number, tet, tet_json

from test_convert import peak
from test_query import ask, results

COUNT = 500


@pytest.fixture(scope="module")
def cells():
    """Coordinates and fields of distinct positions, in no order."""
    rng = np.random.default_rng(7)
    where = rng.choice(1000 * 100, COUNT, replace=False)
    return {
        "x": where // 100 + 1,
        "y": where % 100 - 50,
        "v": np.where(rng.random(COUNT) < 0.02, np.inf, rng.integers(-400, 400, COUNT) / 4),
        "n": rng.integers(-100, 100, COUNT).astype("i4"),
        "s": np.array([f"w{i % 37}" for i in range(COUNT)], dtype="O"),
    }


def make(path, cells, rows=slice(None), order="row-major", duplicates=False, timestamp=1000):
    dims = [
        tiledb.Dim("x", domain=(1, 1000), tile=100, dtype=np.int64),
        tiledb.Dim("y", domain=(-50, 49), tile=10, dtype=np.int64),
    ]
    attrs = [
        tiledb.Attr("v", dtype="f8", filters=tiledb.FilterList([tiledb.ZstdFilter()])),
        tiledb.Attr("n", dtype="i4"),
        tiledb.Attr("s", dtype="U0", var=True),
    ]
    schema = tiledb.ArraySchema(
        tiledb.Domain(*dims), attrs, sparse=True, capacity=64, cell_order=order, allows_duplicates=duplicates
    )
    tiledb.Array.create(str(path), schema)
    put(path, cells, rows, timestamp)
    return path


def put(path, cells, rows, timestamp):
    with tiledb.open(str(path), "w", timestamp=timestamp) as array:
        array[cells["x"][rows], cells["y"][rows]] = {name: cells[name][rows] for name in "vns"}
        array.meta["units"] = "K"


def rows_of(path, timestamp=None):
    with tiledb.open(str(path), timestamp=timestamp) as array:
        got = array.query(order="U")[:]
    names = sorted(got)
    return sorted(zip(*(got[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("order", ["row-major", "col-major", "hilbert"])
@pytest.mark.parametrize("options", [[], ["--check"], ["--memory", "64KiB", "--check"]])
def test_sparse_stays_sparse(tmp_path, cells, order, options):
    source, out = make(tmp_path / "a", cells, order=order), tmp_path / "out.tdb"
    put(source, {**cells, "n": cells["n"] + 1}, slice(0, 100), 2000)
    tet("convert", source, out, *options)
    assert rows_of(out) == rows_of(source)
    with tiledb.open(str(out)) as array:
        assert array.schema.sparse and array.schema.cell_order == order
        assert [array.schema.domain.dim(d).tile for d in range(2)] == [100, 10]
        assert array.meta["units"] == "K"
        assert array.schema.attr("v").filters[0].__class__.__name__ == "ZstdFilter"
    assert tet_json("diff", source, out)["same"]
    assert tet_json("verify", out)["ok"]
    then = tmp_path / "then.tdb"
    tet("convert", source, then, "--as-of", "1500")
    assert rows_of(then) == rows_of(source, 1500) != rows_of(source)


def test_parts_fields_casts_and_tiles(tmp_path, cells):
    source, out = make(tmp_path / "a", cells), tmp_path / "out.tdb"
    tet("rechunk", source, out, "--chunks", "x=50,y=20")
    with tiledb.open(str(out)) as array:
        assert [array.schema.domain.dim(d).tile for d in range(2)] == [50, 20]
    part = tmp_path / "part.tdb"
    tet("convert", source, part, "--array", "n", "--select", "x=200..300", "--cast", "n=int64")
    inside = (cells["x"] >= 200) & (cells["x"] <= 300)
    want = sorted(zip(cells["n"][inside].tolist(), cells["x"][inside].tolist(), cells["y"][inside].tolist()))
    assert rows_of(part) == want
    assert tet_json("info", part)["arrays"][0]["fields"][0]["dtype"] == "int64"
    reported = tet_json("convert", source, tmp_path / "no.tdb", "--dry-run")
    assert reported["arrays"][0]["sparse"] and not (tmp_path / "no.tdb").exists()
    tet("convert", source, tmp_path / "bad.tdb", "--cast", "v=int8", code=7)
    assert not (tmp_path / "bad.tdb").exists()


def test_duplicates_and_any_coordinates(tmp_path):
    for name, dtype, where in [("f", np.float64, np.array([1.0, 1.0, 2.5, 7.0])), ("t", "ascii", np.array(["a", "b", "b", "cc"]))]:
        text = dtype == "ascii"
        dim = tiledb.Dim("d", domain=(None, None) if text else (0.0, 10.0), tile=None if text else 1.0, dtype=dtype)
        schema = tiledb.ArraySchema(
            tiledb.Domain(dim), [tiledb.Attr("v", dtype="i4")], sparse=True, allows_duplicates=True
        )
        source, out = tmp_path / name, tmp_path / f"{name}.tdb"
        tiledb.Array.create(str(source), schema)
        with tiledb.open(str(source), "w") as array:
            array[where] = np.array([1, 2, 3, 4], "i4")
        tet("convert", source, out, "--check")
        assert rows_of(out) == rows_of(source)
        assert tet_json("diff", source, out)["same"]
        with tiledb.open(str(out), "w") as array:
            array[where[:1]] = np.array([9], "i4")
        found = tet_json("diff", source, out, code=1)["values"][0]
        assert (found["only_left"], found["only_right"], found["differing"]) == (0, 1, 1)
        rows = tet_json("stat", source, "v", "--by", "d")["rows"]
        assert [row["coordinate"] for row in rows] == sorted({str(w) for w in where.tolist()})
        assert sum(row["count"] for row in rows) == 4


def test_differences_by_coordinates(tmp_path, cells):
    left, right = make(tmp_path / "a", cells, slice(0, 400)), make(tmp_path / "b", cells, slice(50, 500))
    put(right, {**cells, "v": cells["v"] + 0.5}, slice(100, 103), 2000)
    for memory in ["64MiB", "48KiB"]:
        found = {v["array"]: v for v in tet_json("diff", left, right, "--memory", memory, code=1)["values"]}
        assert {(v["cells"], v["only_left"], v["only_right"]) for v in found.values()} == {(500, 50, 100)}
        assert found["n"]["differing"] == 150
        changed = np.isfinite(cells["v"][100:103]).sum()
        assert found["v"]["differing"] == 150 + changed
        tolerant = tet_json("diff", left, right, "--max-abs-error", "0.5", "--memory", memory, code=1)
        assert {v["differing"] for v in tolerant["values"]} == {150}
    first = found["n"]["first"]
    at = [int(c) for c in first["coordinates"]]
    alone = {tuple(p) for p in zip(cells["x"][:50], cells["y"][:50])} | {tuple(p) for p in zip(cells["x"][400:], cells["y"][400:])}
    assert tuple(at) == min(alone) and first["only"] in ("left", "right")
    assert b"only on the left" in tet("diff", left, right, code=1)


def test_spread_over_positions(tmp_path, cells):
    source = make(tmp_path / "a", cells)
    want = np.full((1000, 100), np.nan)
    want[cells["x"] - 1, cells["y"] + 50] = cells["v"]
    tet("convert", source, tmp_path / "no.tet", code=7)
    for out in [tmp_path / "o.tet", tmp_path / "o.tgm", tmp_path / "o.tdb"]:
        tet("convert", source, out, "--array", "v", "--sparse-as", "dense", "--check")
        name = "0/0" if out.suffix == ".tgm" else "v"
        got = np.frombuffer(tet("cat", out, name, "--raw"), "f8").reshape(want.shape)
        if out.suffix == ".tdb":
            valid = np.frombuffer(tet("cat", out, name, "--validity"), bool).reshape(want.shape)
            assert valid.sum() == COUNT
            got = np.where(valid, got, np.nan)
        assert np.array_equal(got, want, equal_nan=True), out
        assert tet_json("stat", out, name)["nulls"] == want.size - COUNT
        fields = tet_json("info", out)["arrays"][0]
        assert fields["shape"] == [1000, 100]
    part = tmp_path / "part.tet"
    tet("convert", source, part, "--array", "v", "--sparse-as", "dense", "--select", "x=10:400:3", "--chunk", "7,9")
    got = np.frombuffer(tet("cat", part, "v", "--raw"), "f8").reshape(130, 100)
    assert np.array_equal(got, want[10:400:3], equal_nan=True)
    # A cell that holds the fill value could not be distinguished from an empty position.
    fill = make(tmp_path / "fill", {**cells, "n": np.full(COUNT, np.iinfo("i4").min, "i4")})
    tet("convert", fill, tmp_path / "fill.tet", "--array", "n", "--sparse-as", "dense", code=7)
    for out in [tmp_path / "fill.tet", tmp_path / "fill.tdb"]:
        tet("convert", fill, out, "--array", "n", "--sparse-as", "dense", "--check", *(["--fill", "5"] if out.suffix == ".tet" else []))
        found = tet_json("stat", out, "n")
        assert (found["count"], found["nulls"], found["max"]) == (100_000, 100_000 - COUNT, np.iinfo("i4").min)
    tet("convert", source, tmp_path / "s.tdb", "--array", "s", "--sparse-as", "dense", code=7)


def test_rows_as_arrays(tmp_path, cells):
    source = make(tmp_path / "a", cells)
    order = np.lexsort((cells["y"], cells["x"]))
    for out in [tmp_path / "o.tet", tmp_path / "o.tgm", tmp_path / "o.tdb"]:
        for options in [[], ["--memory", "64KiB"]]:
            tet("convert", source, out, "--array", "v", "--array", "n", "--sparse-as", "rows", "--check", "-f", *options)
            for i, (name, dtype) in enumerate([("x", "i8"), ("y", "i8"), ("v", "f8"), ("n", "i4")]):
                array = f"0/{i}" if out.suffix == ".tgm" else name
                got = np.frombuffer(tet("cat", out, array, "--raw"), dtype)
                assert np.array_equal(got, cells[name][order].astype(dtype)), (out, name)
    tet("convert", source, tmp_path / "s.tet", "--sparse-as", "rows", code=7)
    tet("convert", source, tmp_path / "s.tdb", "--sparse-as", "rows", "--check")
    text = json.loads(tet("cat", tmp_path / "s.tdb", "s", "--format", "json"))
    assert str(cells["s"][order][0]) in json.dumps(text)


REDUCTIONS = {
    "sum": lambda v: v.sum(),
    "mean": lambda v: v.mean(),
    "min": lambda v: v.min(),
    "max": lambda v: v.max(),
    "count": lambda v: v.size,
    "std": lambda v: v.std(),
    "median": lambda v: np.median(v),
    "norm_l1": lambda v: np.abs(v).sum(),
}


@pytest.mark.parametrize("key", REDUCTIONS)
def test_queries(tmp_path, cells, key):
    source = make(tmp_path / "a", cells)
    values = cells["n"].astype("f8")
    for options in [[], ["--memory", "1MiB"], ["--threads", "1"]]:
        whole = ask(source, {"dataset": "n", key: []}, *options)
        assert np.isclose(results(whole, key, False)[0], REDUCTIONS[key](values))
    chosen = ask(source, {"dataset": "n", key: [], "filter": {"gt": 10}})
    assert np.isclose(results(chosen, key, False)[0], REDUCTIONS[key](values[values > 10]))
    by_y = results(ask(source, {"dataset": "n", key: [], "group_by": ["y"]}), key, True)
    for y, got in zip(range(-50, 50), by_y, strict=True):
        group = values[cells["y"] == y]
        if group.size:
            assert np.isclose(got, REDUCTIONS[key](group)), y
        else:
            assert got in (None, 0), y
    selection = [{"start": 100, "stop": 300}, {"start": 1, "stop": 99, "step": 2}]
    part = ask(source, {"dataset": "n", key: [], "selection": selection})
    x, y = cells["x"] - 1, cells["y"] + 50
    inside = (x >= 100) & (x < 300) & (y >= 1) & (y < 99) & ((y - 1) % 2 == 0)
    assert np.isclose(results(part, key, False)[0], REDUCTIONS[key](values[inside]))


def test_windows_and_places(tmp_path, cells):
    source = make(tmp_path / "a", cells)
    grid = np.full((1000, 100), np.nan)
    grid[cells["x"] - 1, cells["y"] + 50] = cells["n"]
    got = results(ask(source, {"dataset": "n", "arg_max": ["x"]}), "arg_max", True)
    for y in range(100):
        column = grid[:, y]
        want = None if np.isnan(column).all() else int(np.nanargmax(column))
        assert got[y] == want, y
    window = {"axis": "y", "size": 10, "mode": "rolling"}
    got = results(ask(source, {"dataset": "n", "window": window, "sum": ["x", "y"]}), "sum", True)
    want = [np.nansum(grid[:, w : w + 10]) for w in range(91)]
    assert np.allclose(got, want)
    for refused in [{}, {"covariance": ["x"]}, {"transform": {"method": "center"}}]:
        tet("query", json.dumps({"dataset": "n", **refused}), "-t", source, "-x", code=7)


def test_statistics_by_dimension_and_condition(tmp_path, cells):
    source = make(tmp_path / "a", cells)
    rows = tet_json("stat", source, "n", "--by", "y")["rows"]
    assert [row["coordinate"] for row in rows] == [str(y) for y in np.unique(cells["y"])]
    for row in rows:
        group = cells["n"][cells["y"] == int(row["coordinate"])]
        assert (row["count"], row["min"], row["max"], row["sum"]) == (group.size, group.min(), group.max(), group.sum())
        assert row["position"] == int(row["coordinate"]) + 50
    dense = tmp_path / "dense.tet"
    tet("convert", source, dense, "--array", "v", "--sparse-as", "dense")
    for path, field in [(source, "n"), (source, "v"), (dense, "v")]:
        chosen = cells[field] > 10
        assert tet_json("stat", path, field, "--where", f"{field} > 10")["count"] == chosen.sum()
        rows = tet_json("stat", path, field, "--where", f"{field} > 10", "--by", "y")["rows"]
        assert sum(row["count"] for row in rows) == chosen.sum()
        reported = tet_json("stat", path, field, "--where", f"{field} > 10", "--median", "--max", "--count")
        got = reported["rows"][0]
        assert got["median"] == np.median(cells[field][chosen]) and got["count"] == chosen.sum()
        along = tet_json("stat", path, field, "--where", f"{field} > 10", "--min", "x", "--by", "y")["rows"]
        for row in along:
            y = row["positions"][0] - 50
            assert number(row["min"]) == cells[field][chosen & (cells["y"] == y)].min()
    median = tet_json("stat", source, "n", "--quantile", "0.9", "--sketch", "0.01")
    exact = np.quantile(cells["n"], 0.9, method="nearest")
    assert median["quantile_relative_error"] == 0.01
    assert abs(median["rows"][0]["quantile_0.9"] - exact) <= 0.011 * abs(exact)
    tet("stat", source, "n", "--median", "--memory", "100", code=6)


def test_as_csv(tmp_path, cells):
    source, out = make(tmp_path / "a", cells), tmp_path / "out.tdb"
    tet("convert", source, out)
    assert tet("cat", source, "--format", "csv") == tet("cat", out, "--format", "csv")


def test_memory_stays_within_the_limit(tmp_path):
    limit, count = 4 << 20, 1_400_000
    where = np.random.default_rng(3).permutation(count)
    dims = [
        tiledb.Dim("x", domain=(0, 1399), tile=100, dtype=np.int64),
        tiledb.Dim("y", domain=(0, 999), tile=100, dtype=np.int64),
    ]
    schema = tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("v", dtype="f8")], sparse=True)
    source, out = tmp_path / "a", tmp_path / "out.tdb"
    tiledb.Array.create(str(source), schema)
    with tiledb.open(str(source), "w") as array:
        array[where // 1000, where % 1000] = where / 2
    assert count * 24 >= 8 * limit
    for arguments in [["convert", source, out], ["stat", out, "v", "--by", "x"]]:
        code, used, reported = peak([*arguments, "--memory", "4MiB"])
        assert code == 0, reported
        assert used <= limit + (32 << 20), f"{arguments[0]}: {used >> 20} MiB"
