"""`tet cat --format arrow`, read by pyarrow: types, nulls, labels, streams and files."""

import io

import numpy as np
import pyarrow as pa
import pytest
import tiledb
from support import tet
from tiledb.sparse_array import _setitem_impl_sparse

COUNT = 9


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A sparse array with a column of every kind, and its expected cells."""
    uri = str(tmp_path_factory.mktemp("arrow") / "points")
    colors = tiledb.Enumeration("colors", True, values=["red", "green", "blue"])
    steps = tiledb.Enumeration("steps", False, dtype="int64", values=[5, -3])
    dims = [
        tiledb.Dim("when", domain=(np.datetime64(0, "ms"), np.datetime64(10**6, "ms")), tile=np.timedelta64(100, "ms"),
                   dtype="datetime64[ms]"),
        tiledb.Dim("place", domain=(None, None), tile=None, dtype="ascii"),
    ]
    attrs = [
        tiledb.Attr("i", dtype="int16", nullable=True),
        tiledb.Attr("u", dtype="uint64"),
        tiledb.Attr("f", dtype="float32"),
        tiledb.Attr("b", dtype="bool"),
        tiledb.Attr("text", dtype="U0", var=True, nullable=True),
        tiledb.Attr("bytes", dtype="S0", var=True),
        tiledb.Attr("three", dtype="S3"),
        tiledb.Attr("pair", dtype="complex128"),
        tiledb.Attr("triple", dtype=[("", "<f4")] * 3),
        tiledb.Attr("many", dtype="int32", var=True),
        tiledb.Attr("day", dtype="datetime64[D]"),
        tiledb.Attr("span", dtype="timedelta64[ns]"),
        tiledb.Attr("color", dtype="uint8", enum_label="colors", nullable=True),
        tiledb.Attr("step", dtype="int8", enum_label="steps"),
    ]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=attrs, sparse=True, capacity=4,
                                                enums=[colors, steps]))
    many = np.empty(COUNT, "O")
    many[:] = [np.arange(i % 3 + 1, dtype="i4") for i in range(COUNT)]
    cells = {
        "i": np.arange(-4, COUNT - 4).astype("i2"),
        "u": np.arange(COUNT).astype("u8") + np.uint64(2**63),
        "f": np.array([0.5, -0.0, np.nan, np.inf] + [1.25] * (COUNT - 4), "f4"),
        "b": np.arange(COUNT) % 2 == 0,
        "text": np.array([f"é{i}" for i in range(COUNT)], "O"),
        "bytes": np.array([b"x" * (i + 1) for i in range(COUNT)], "O"),
        "three": np.array([b"abc", b"xyz"] * 5, "S3")[:COUNT],
        "pair": np.arange(2.0 * COUNT).view("c16"),
        "triple": np.arange(3 * COUNT).astype("f4").view([("", "<f4")] * 3),
        "many": many,
        "day": np.array(["NaT"] + [f"2020-02-{i:02}" for i in range(1, COUNT)], "datetime64[D]"),
        "span": np.arange(COUNT).astype("timedelta64[ns]"),
        "color": (np.arange(COUNT) % 3).astype("u1"),
        "step": (np.arange(COUNT) % 2).astype("i1"),
    }
    valid = (np.arange(COUNT) % 4 != 1).astype("u1")
    coords = (np.arange(COUNT).astype("datetime64[ms]"), np.array([f"p{i}" for i in range(COUNT)], "O"))
    with tiledb.open(uri, "w") as array:
        _setitem_impl_sparse(array, coords, dict(cells), {name: valid for name in ("i", "text", "color")})
    return uri, cells, valid


def stream(*arguments):
    with pa.ipc.open_stream(io.BytesIO(tet("cat", *arguments, "--format", "arrow"))) as reader:
        return reader.read_all()


def test_every_kind_of_column(table):
    uri, cells, valid = table
    got = stream(uri)
    kinds = {
        "when": pa.timestamp("ms"), "place": pa.string(), "i": pa.int16(), "u": pa.uint64(), "f": pa.float32(),
        "b": pa.bool_(), "text": pa.string(), "bytes": pa.binary(), "three": pa.binary(3), "day": pa.timestamp("s"),
        "span": pa.duration("ns"), "color": pa.dictionary(pa.uint8(), pa.string(), True),
        "step": pa.dictionary(pa.int8(), pa.int64(), False),
    }
    assert got.column_names == ["when", "place", *cells]
    assert {name: got.schema.field(name).type for name in kinds} == kinds
    got.validate(full=True)
    nulls = {name: [v if ok else None for v, ok in zip(want, valid)] for name, want in {
        "i": cells["i"].tolist(), "text": cells["text"].tolist(), "color": ["red", "green", "blue"] * 3}.items()}
    for name, want in nulls.items():
        assert got[name].to_pylist() == want
    for name in ("u", "b", "bytes", "three"):
        assert got[name].to_pylist() == cells[name].tolist()
    assert got["f"].to_numpy().tobytes() == cells["f"].tobytes()
    assert got["pair"].to_pylist() == cells["pair"].view("f8").reshape(-1, 2).tolist()
    assert got["triple"].to_pylist() == cells["triple"].view("f4").reshape(-1, 3).tolist()
    assert got["many"].to_pylist() == [list(cell) for cell in cells["many"]]
    assert got["place"].to_pylist() == [f"p{i}" for i in range(COUNT)]
    assert got["step"].to_pylist() == [[5, -3][i % 2] for i in range(COUNT)]
    assert got["day"].null_count == 1
    assert np.array_equal(got["day"][1:].to_numpy().astype("datetime64[D]"), cells["day"][1:])
    assert np.array_equal(got["span"].to_numpy(), cells["span"])


def test_selections_conditions_and_files(table, tmp_path):
    uri, cells, _ = table
    assert stream(uri, "u", "place=p2..p4").to_pydict()["u"] == cells["u"][2:5].tolist()
    assert stream(uri, "--where", "b == true").num_rows == 5
    empty = stream(uri, "--where", "f > 1e30 and f < 0")
    assert empty.num_rows == 0 and empty.schema == stream(uri).schema
    out = tmp_path / "points.arrow"
    tet("cat", uri, "--format", "arrow", "-o", out)
    with pa.ipc.open_file(out) as reader:
        found = reader.read_all()
    assert found.schema == stream(uri).schema
    # A NaN equals nothing.
    assert found.drop(["f"]).equals(stream(uri).drop(["f"]))


def test_batches_stay_within_memory(tmp_path):
    uri = str(tmp_path / "many")
    dim = tiledb.Dim("d", domain=(0, 10**6), tile=1000, dtype="int64")
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=tiledb.Domain(dim), attrs=[tiledb.Attr("v", dtype="f8")],
                                                sparse=True, capacity=1000))
    where = np.arange(0, 10**6, 5)
    with tiledb.open(uri, "w") as array:
        array[where] = np.sqrt(where)
    data = tet("cat", uri, "--format", "arrow", "--memory", "2MiB")
    with pa.ipc.open_stream(io.BytesIO(data)) as reader:
        batches = list(reader)
    assert len(batches) > 4
    rows = pa.Table.from_batches(batches)
    assert np.array_equal(rows["d"], where) and np.array_equal(rows["v"], np.sqrt(where))


def test_dense_arrays_come_as_rows(tmp_path):
    uri = str(tmp_path / "dense")
    cells = np.arange(12, dtype="f4").reshape(3, 4)
    dims = [tiledb.Dim("y", domain=(5, 7), tile=2, dtype="int32"), tiledb.Dim("x", domain=(0, 3), tile=3, dtype="int32")]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("t", dtype="f4")]))
    with tiledb.open(uri, "w") as array:
        array[:] = cells
    rows = stream(uri)
    assert rows.column_names == ["y", "x", "t"]
    assert rows["y"].to_pylist() == np.repeat(np.arange(5, 8), 4).tolist()
    assert rows["t"].to_numpy().tobytes() == cells.tobytes()
    assert stream(uri, "y=6..6", "x=1:3")["t"].to_pylist() == cells[1, 1:3].tolist()
    tet("cat", uri, "--format", "arrow", "--json", code=2)
