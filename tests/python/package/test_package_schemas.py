"""Arrays created from a schema or a table, read by the reference."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tesseral
import tiledb

SCHEMA = {
    "sparse": True,
    "capacity": 100,
    "cell_order": "hilbert",
    "coordinates": "zstd",
    "dims": [
        {"name": "day", "dtype": np.dtype("M8[D]"), "domain": [np.datetime64("2020-01-01"), np.datetime64("2020-12-31")], "tile": 30},
        {"name": "x", "dtype": np.float64, "domain": [np.float64(-180), 180.0]},
    ],
    "fields": [
        {"name": "v", "dtype": "float32", "codecs": ["byteshuffle", {"name": "zstd", "level": np.int64(5)}]},
        {"name": "n", "dtype": "int64", "nullable": True, "fill": -1},
        {"name": "word", "dtype": "string_utf8"},
        {"name": "c", "dtype": "int8", "enumeration": {"name": "color", "labels": ("red", "green"), "ordered": True}},
        {"name": "pair", "dtype": "int16", "cell": 2},
    ],
}


def test_every_word_of_a_schema(tmp_path):
    path = str(tmp_path / "a")
    tesseral.create(path, SCHEMA, timestamp=5)
    with tiledb.open(path) as reference:
        schema = reference.schema
    assert schema.sparse and schema.capacity == 100 and schema.cell_order == "hilbert" and not schema.allows_duplicates
    assert schema.domain.dim("day").domain == (np.datetime64("2020-01-01"), np.datetime64("2020-12-31"))
    assert schema.domain.dim("day").tile == np.timedelta64(30, "D") and schema.domain.dim("x").domain == (-180.0, 180.0)
    assert [type(f).__name__ for f in schema.attr("v").filters] == ["ByteShuffleFilter", "ZstdFilter"]
    assert schema.attr("v").filters[1].level == 5 and schema.attr("n").isnullable and not schema.attr("v").isnullable
    cells = {"day": np.array(["2020-02-03", "2020-01-02"], "M8[D]"), "x": [1.5, -2.0], "v": [1, 2], "n": [None, 7]}
    cells |= {"word": ["", "zwei"], "c": ["green", "red"], "pair": np.array([(1, 2), (3, 4)], "i2,i2")}
    tesseral.append(path, cells, timestamp=6)
    with tiledb.open(path) as reference:
        theirs = reference[:]
        assert list(reference.enum("color").values()) == ["red", "green"]
    order = np.argsort(theirs["x"])
    assert theirs["v"][order].tolist() == [2, 1] and theirs["word"][order].tolist() == ["zwei", ""] and theirs["c"][order].tolist() == ["red", "green"]
    rows = tesseral.open(path)["v"].cells()
    assert rows["n"].tolist() == [7, None] and rows["pair"].tolist() == [(3, 4), (1, 2)]
    assert len(tesseral.open(path, as_of=5)["v"].cells()["x"]) == 0


def test_dense_arrays_that_grow(tmp_path):
    dims = [{"name": "t", "dtype": "int32", "domain": [0, 999], "tile": 10, "current": [0, 19]}, {"name": "x", "dtype": "int32", "domain": [0, 3]}]
    tesseral.create(tmp_path / "a", {"dims": dims, "fields": [{"name": "v", "dtype": "int16", "fill": -9}]})
    array = tesseral.open(tmp_path / "a")["v"]
    assert array.shape == (20, 4) and array.chunks == (10, 4)
    tesseral.append(tmp_path / "a", np.ones((10, 4), "i2"), region=np.s_[:10])
    with tiledb.open(str(tmp_path / "a")) as reference:
        assert reference[:20]["v"].sum() == 40 - 9 * 40


@pytest.mark.parametrize(
    "wrong, word",
    [
        ({"dims": []}, "dim"),
        ({**SCHEMA, "fields": []}, "field"),
        ({**SCHEMA, "color": 1}, "color"),
        ({**SCHEMA, "sparse": "yes"}, "sparse"),
        ({**SCHEMA, "cell_order": "random"}, "random"),
        ({**SCHEMA, "dims": [{"name": "x", "dtype": "int32", "domain": [0]}]}, "0"),
        ({**SCHEMA, "dims": [{"name": "x", "dtype": "int32", "domain": [5, 1]}]}, "5"),
        ({**SCHEMA, "dims": [{"name": "x", "dtype": "int32", "range": [0, 1]}]}, "range"),
        ({**SCHEMA, "fields": [{"name": "v", "dtype": "float33"}]}, "float33"),
        ({**SCHEMA, "fields": [{"dtype": "float32"}]}, "name"),
        ({**SCHEMA, "fields": [{"name": "v", "dtype": "float32", "codecs": ["zsdt"]}]}, "zsdt"),
    ],
)
def test_mistakes_are_named_and_leave_no_trace(tmp_path, wrong, word):
    with pytest.raises((tesseral.InvalidRequestError, tesseral.NotFoundError, tesseral.UnsupportedError)) as refused:
        tesseral.create(tmp_path / "a", wrong)
    assert word in str(refused.value) and not list(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path):
    tesseral.create(tmp_path / "a", SCHEMA)
    with pytest.raises(ValueError):
        tesseral.create(tmp_path / "a", SCHEMA)
    tesseral.create(tmp_path / "a", {**SCHEMA, "capacity": 7}, overwrite=True)
    with tiledb.open(str(tmp_path / "a")) as reference:
        assert reference.schema.capacity == 7
    with pytest.raises(tesseral.TesseralError):
        tesseral.create(tmp_path / "a.tet", SCHEMA)
    with tesseral.create(tmp_path / "b", "tiledb") as session:
        session.add("v", (3,), "f4")[...] = 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


FRAME = pd.DataFrame(
    {
        "x": np.array([5, 1, 3], "i4"),
        "when": pd.to_datetime(["2020-01-03", "2020-01-01", "2020-01-02"]),
        "station": ["b", "a", "c"],
        "v": [1.5, np.nan, -0.0],
        "n": pd.array([2**60, None, 3], "Int64"),
        "word": pd.Series(["one", None, "drei é"], dtype=object),
        "c": pd.Categorical(["blue", "red", "red"], categories=["red", "green", "blue"], ordered=True),
        "flag": [True, False, True],
    }
)


def tables():
    arrow = pa.Table.from_pandas(FRAME)
    columns = {name: FRAME[name] for name in FRAME}
    return {"frame": FRAME, "arrow": arrow, "columns": columns, "batches": pa.table(arrow).to_reader()}


@pytest.mark.parametrize("kind", ["frame", "arrow", "columns", "batches"])
def test_tables(tmp_path, kind):
    path = str(tmp_path / "cells")
    tesseral.write_cells(path, tables()[kind], ["x", "station"], domain={"x": (0, 99)}, tile={"x": 10}, codec={"v": "zstd"}, timestamp=3)
    back = tesseral.open(path)["v"].to_pandas()
    wanted = FRAME.sort_values("x")
    for name in ("x", "station", "flag"):
        assert back[name].tolist() == wanted[name].tolist(), name
    np.testing.assert_array_equal(back["v"], wanted["v"])
    assert np.signbit(back["v"][1]) and back["n"].isna().tolist() == [True, False, False] and back["n"].iloc[2] == 2**60
    assert back["word"].isna().tolist() == [True, False, False] and back["word"].iloc[1] == "drei é"
    assert back["when"].tolist() == wanted["when"].tolist() and back["c"].tolist() == ["red", "red", "blue"]
    if kind in ("frame", "columns"):
        assert back["c"].cat.ordered and list(back["c"].cat.categories) == ["red", "green", "blue"]
    with tiledb.open(path) as reference:
        theirs = reference[:]
        assert reference.schema.domain.dim("x").domain == (0, 99) and reference.schema.domain.dim("x").tile == 10
    assert theirs["x"].tolist() == [1, 3, 5] and theirs["flag"].tolist() == [False, True, True]
    more = FRAME.assign(x=np.array([7, 8, 9], "i4"))
    tesseral.append(path, pa.Table.from_pandas(more) if kind in ("arrow", "batches") else more)
    assert len(tesseral.open(path)["v"].cells()["x"]) == 6 and tesseral.verify(path, deep=True)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64", "int64", "float32", "float64", "M8[ns]", "M8[D]", "m8[s]", "str"])
def test_dimensions_of_every_dtype(tmp_path, dtype):
    path = str(tmp_path / "cells")
    at = np.array([3, 1, 2], "i8").astype(dtype)
    tesseral.write_cells(path, {"at": at, "v": [1, 2, 3]}, "at")
    assert tesseral.open(path)["v"].cells()["v"].tolist() == [2, 3, 1]
    # The reference package does not support dimensions of time spans.
    if np.dtype(dtype).kind != "m":
        with tiledb.open(path) as reference:
            assert reference[:]["v"].tolist() == [2, 3, 1]


def test_tables_that_make_no_array(tmp_path):
    path = tmp_path / "cells"
    with pytest.raises(KeyError):
        tesseral.write_cells(path, FRAME, "y")
    with pytest.raises(ValueError):
        tesseral.write_cells(path, FRAME, "word")
    with pytest.raises(ValueError):
        tesseral.write_cells(path, {"x": [1], "o": [object()]}, "x")
    with pytest.raises(ValueError):
        tesseral.write_cells(path, [1, 2], "x")
    assert not path.exists()
    tesseral.write_cells(path, {"x": [1, 1], "v": [5, 6]}, "x", duplicates=True)
    assert tesseral.open(path)["v"].cells()["v"].tolist() == [5, 6]
    twice = tmp_path / "twice"
    with pytest.raises(ValueError):
        tesseral.write_cells(twice, {"x": [1, 1], "v": [5, 6]}, "x")
    assert not twice.exists()
