"""Cells row by row: sparse arrays, conditions, data frames."""

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
    array = next(iter(tesseral.open(path).values()))
    rows = array.cells(where="lat > 15")
    assert rows["lat"].tolist() == [20.0, 30.0, 20.0, 30.0] and rows["time"].tolist() == [0, 0, 1, 1]
    (batch,) = array.cell_batches(where="lat > 25")
    assert batch["lat"].tolist() == [30.0, 30.0] and array.to_pandas()["lat"].max() == 30.0
