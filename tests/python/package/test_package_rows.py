"""Cells row by row: sparse arrays, conditions, data frames."""

import pickle

import numpy as np
import pytest
import tesseral
import tiledb


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("sparse") / "cells")
    domain = tiledb.Domain(
        tiledb.Dim("x", domain=(0, 99), tile=10, dtype="int32"), tiledb.Dim("k", domain=(None, None), tile=None, dtype="ascii")
    )
    colors = tiledb.Enumeration("color", True, dtype="U5", values=["red", "green", "blue"])
    attrs = [
        tiledb.Attr("v", dtype="float64"),
        tiledb.Attr("n", dtype="int64", nullable=True),
        tiledb.Attr("when", dtype="datetime64[D]"),
        tiledb.Attr("word", dtype="U0", var=True),
        tiledb.Attr("c", dtype="int8", enum_label="color"),
    ]
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, enums=[colors]))
    x = np.array([42, 7, 7, 99, 0], "i4")
    k = np.array(["b", "b", "a", "zz", "m"], "S2")
    cells = {
        "v": np.array([1.5, 2.5, np.nan, 4.5, 5.5]),
        "n": np.array([1, None, 3, 2**60, 5], "O"),
        "when": np.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04", "2020-01-05"], "M8[D]"),
        "word": np.array(["one", "two", "é", "four", "five"], "O"),
        "c": np.array([0, 1, 2, 0, 1], "i1"),
    }
    with tiledb.open(path, "w") as array:
        array[x, k] = cells
    return path


def test_columns(sparse):
    container = tesseral.open(sparse)
    array = container["v"]
    assert array.sparse and list(container) == ["v", "n", "when", "word", "c"]
    rows = array.cells()
    assert list(rows) == ["x", "k", "v", "n", "when", "word", "c"]
    assert rows["x"].tolist() == [0, 7, 7, 42, 99] and rows["k"].tolist() == ["m", "a", "b", "b", "zz"]
    assert rows["x"].dtype == "i4" and rows["when"].dtype == "M8[D]" and rows["word"].tolist() == ["five", "é", "two", "one", "four"]
    assert rows["n"].tolist() == [5, 3, None, 1, 2**60] and rows["c"].tolist() == [1, 2, 1, 0, 0]
    np.testing.assert_array_equal(rows["v"], [5.5, np.nan, 2.5, 1.5, 4.5])
    with tiledb.open(sparse) as reference:
        theirs = reference[:]
        assert theirs["x"].tolist() == rows["x"].tolist()
    assert array.enumerations == {"c": ["red", "green", "blue"]}


def test_selections_and_conditions(sparse):
    array = tesseral.open(sparse)["v"]
    assert array.cells(x=7)["k"].tolist() == ["a", "b"]
    assert array.cells(x=slice(7, 42), k=slice("b", None), columns=["v"])["v"].tolist() == [2.5, 1.5]
    assert array.cells("v > 2 and x < 50", ["x", "v"])["v"].tolist() == [5.5, 2.5]
    assert len(array.cells(x=slice(50, 60))["x"]) == 0
    assert sorted(array.cells(sort=False)["x"].tolist()) == [0, 7, 7, 42, 99]
    batches = list(array.cell_batches(columns=["x"]))
    assert [x for batch in batches for x in batch["x"].tolist()] == [0, 7, 7, 42, 99]
    with pytest.raises(KeyError):
        array.cells(nope=3)
    with pytest.raises(KeyError):
        array.cells(columns=["nope"])
    with pytest.raises(ValueError):
        array.cells("v >")
    with pytest.raises(tesseral.TesseralError):
        array[...]


def test_frames_and_tables(sparse):
    pandas = pytest.importorskip("pandas")
    array = tesseral.open(sparse)["v"]
    frame = array.to_pandas()
    assert frame["c"].tolist() == ["green", "blue", "green", "red", "red"] and frame["c"].cat.ordered
    assert frame["n"].isna().tolist() == [False, False, True, False, False] and frame["n"].iloc[4] == 2**60
    assert frame["when"].iloc[0] == pandas.Timestamp("2020-01-05") and frame["word"].iloc[1] == "é"
    pytest.importorskip("pyarrow")
    table = array.to_arrow(columns=["x", "n", "word", "c", "when"])
    assert table.column("n").null_count == 1 and table.column("word").to_pylist()[0] == "five"
    assert pytest.importorskip("pyarrow").table(array).column("x").to_pylist() == [0, 7, 7, 42, 99]
    assert table.column("c").to_pylist() == ["green", "blue", "green", "red", "red"]


def test_dense_arrays_have_rows_too(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.arange(6.0).reshape(2, 3)}, dims=("y", "x"), coords={"y": [10, 20]})
    rows = tesseral.open(tmp_path / "a.tet")["a"].cells("a >= 4")
    assert rows["a"].tolist() == [4, 5] and len(rows["x"]) == 2


@pytest.mark.parametrize("ending", ["tet", "tgm"])
def test_rows_of_labeled_dimensions_hold_their_labels(tmp_path, ending):
    """Conditions compare labels, so rows show them."""
    path = tmp_path / f"a.{ending}"
    cells = np.arange(6, dtype="i4").reshape(2, 3)
    tesseral.write(path, {"v": cells}, dims=["time", "lat"], coords={"lat": [10.0, 20.0, 30.0]})
    array = tesseral.open(path).variables["v"]
    rows = array.cells(where="lat > 15")
    assert rows["lat"].tolist() == [20.0, 30.0, 20.0, 30.0] and rows["time"].tolist() == [0, 0, 1, 1]
    (batch,) = array.cell_batches(where="lat > 25")
    assert batch["lat"].tolist() == [30.0, 30.0] and array.to_pandas()["lat"].max() == 30.0
    # The cells of a coordinate are its labels.
    assert tesseral.open(path).variables["lat"].cells(where="lat > 15")["lat"].tolist() == [20.0, 30.0]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A sparse array over integers, which have positions: x from 10 on, y from -3 on."""
    path = str(tmp_path_factory.mktemp("grid") / "cells")
    domain = tiledb.Domain(
        tiledb.Dim("x", domain=(10, 29), tile=5, dtype="int32"), tiledb.Dim("y", domain=(-3, 6), tile=5, dtype="int64")
    )
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype="int32")], sparse=True))
    x, y = np.divmod(np.arange(0, 200, 3), 10)
    with tiledb.open(path, "w") as array:
        array[x + 10, y - 3] = np.arange(len(x), dtype="i4")
    return path, {(a + 10, b - 3): i for i, (a, b) in enumerate(zip(x.tolist(), y.tolist()))}


@pytest.mark.parametrize(
    "narrow, xs, ys",
    [
        (lambda a: a.isel(x=slice(2, 7)), range(12, 17), range(-3, 7)),
        (lambda a: a.isel(x=3), [13], range(-3, 7)),
        (lambda a: a.isel(x=slice(None, 4), y=slice(8, 2, -1)), range(10, 14), range(0, 6)),
        (lambda a: a.sel(x=slice(12, 16), y=slice(0, None)), range(12, 17), range(0, 7)),
        (lambda a: a.sel(y=-3).isel(x=slice(5, None)), range(15, 30), [-3]),
        (lambda a: a.isel(x=slice(4, 4)), [], []),
        (lambda a: a.sel(x=slice(12, 25)).isel(x=slice(1, -1)), range(13, 25), range(-3, 7)),
    ],
)
def test_rows_of_narrowed_arrays_are_those_inside(grid, narrow, xs, ys):
    path, cells = grid
    inside = sorted((x, y, v) for (x, y), v in cells.items() if x in xs and y in ys)
    array = narrow(tesseral.open(path)["v"])
    rows = array.cells()
    assert list(zip(rows["x"].tolist(), rows["y"].tolist(), rows["v"].tolist())) == inside
    assert array.to_pandas()["v"].tolist() == array.to_arrow().column("v").to_pylist() == rows["v"].tolist()
    assert [v for batch in array.cell_batches() for v in batch["v"].tolist()] == rows["v"].tolist()


def test_coordinates_are_chosen_inside_what_was_narrowed(grid):
    path, cells = grid
    array = tesseral.open(path)["v"].isel(x=slice(2, 10))
    assert set(array.cells(x=slice(None, 14))["x"].tolist()) == {12, 13, 14}
    assert set(array.cells(x=13, y=slice(0, 3))["v"].tolist()) == {v for (x, y), v in cells.items() if x == 13 and 0 <= y <= 3}
    with pytest.raises(tesseral.InvalidRequestError, match="x"):
        array.isel(x=0).cells(x=12)
    with pytest.raises(tesseral.InvalidRequestError, match="cannot have a step"):
        array.isel(x=slice(None, None, 2)).cells()
    with pytest.raises(tesseral.InvalidRequestError, match="lists"):
        array.isel(x=[1, 2])


def test_selected_coordinates_without_positions(sparse):
    """Text has no positions, so that `sel` keeps coordinates, in handles that travel too."""
    array = tesseral.open(sparse)["v"].sel(x=slice(5, 50), k="b")
    for handle in (array, pickle.loads(pickle.dumps(array))):
        assert handle.cells()["x"].tolist() == [7, 42] and handle["word"].cells()["word"].tolist() == ["two", "one"]
    assert array.cells("v > 2")["v"].tolist() == [2.5]
    for wrong in (lambda: array.sel(k="a"), lambda: array.cells(k="a"), lambda: array.sel(x=[1, 2]), lambda: array.isel(x=0)):
        with pytest.raises(tesseral.InvalidRequestError):
            wrong()


def test_rows_of_narrowed_dense_arrays(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.arange(12.0).reshape(3, 4)}, dims=("y", "x"), coords={"y": ["p", "q", "r"]})
    array = tesseral.open(tmp_path / "a.tet")["a"]
    rows = array.isel(y=slice(1, None), x=3).cells()
    assert rows["a"].tolist() == [7, 11] and rows["y"].tolist() == ["q", "r"] and rows["x"].tolist() == [3, 3]
    assert array.sel(y="r").to_pandas()["y"].tolist() == ["r"] * 4
