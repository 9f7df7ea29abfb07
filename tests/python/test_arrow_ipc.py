"""Arrow IPC files: columns equal those of pyarrow bit for bit, in every layout and codec; pyarrow and pandas read what is written."""

import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tiledb
from pyarrow import feather, ipc
from support import tet, tet_json
from table_columns import ROWS, TYPES, column, compare, expected_bytes

LAYOUTS = {
    "large": (pa.large_string(), "text"),
    "view": (pa.string_view(), "text"),
    "big": (pa.large_binary(), "blob"),
    "blobview": (pa.binary_view(), "blob"),
    "clock": (pa.time32("ms"), None),
    "step": (pa.duration("us"), None),
    "stamp": (pa.timestamp("s"), None),
    "word8": (pa.dictionary(pa.int8(), pa.string()), "word"),
    "code": (pa.dictionary(pa.uint16(), pa.int64()), None),
}


def layout(rng, kind, rows, nulls):
    """A column of a layout that no other format has."""
    arrow, like = LAYOUTS[kind]
    value = TYPES[like][2] if like else lambda r: r.randrange(86_400_000)
    if kind == "code":
        value = lambda r: r.choice([5, -7, 2**40])
    return pa.array([None if nulls and rng.random() < 0.2 else value(rng) for _ in range(rows)], arrow)


def write(path, table, codec=None, rows=ROWS, stream=False):
    options = ipc.IpcWriteOptions(compression=codec)
    new = ipc.new_stream if stream else ipc.new_file
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


def read(path):
    with ipc.open_file(str(path)) as reader:
        return reader.read_all()


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_columns_equal_pyarrow(tmp_path, codec, nulls, stream):
    rng = random.Random(f"{codec} {nulls} {stream}")
    columns = {kind: column(rng, kind, ROWS, nulls) for kind in TYPES}
    table = pa.table(columns | {kind: layout(rng, kind, ROWS, nulls) for kind in LAYOUTS})
    write(tmp_path / "t.arrow", table, codec, rng.choice([100, 333, 5000]), stream)
    compare(tmp_path / "t.arrow", table)
    assert tet_json("verify", tmp_path / "t.arrow", "--deep")["ok"]


@pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
def test_feather_files_of_pandas(tmp_path, compression):
    frame = pd.DataFrame({"n": [1, 2, 3], "x": [0.5, np.nan, -0.0], "word": pd.Categorical(["a", None, "a"])})
    feather.write_feather(frame, str(tmp_path / "t.feather"), compression=compression)
    # NaN of pandas are nulls of Arrow.
    assert tet("cat", tmp_path / "t.feather", "x", "--raw") == np.array([0.5, 0, -0.0]).tobytes()
    assert list(tet("cat", tmp_path / "t.feather", "x", "--validity")) == [1, 0, 1]
    assert tet("cat", tmp_path / "t.feather", "word", "--format", "csv").split()[1:] == [b"0,a", b"1,", b"2,a"]


def test_slices_groups_lists_and_deltas(tmp_path):
    rng = random.Random(3)
    cells = [[rng.random() for _ in range(3)] for _ in range(40)]
    table = pa.table({
        "g": pa.array([{"x": n, "y": str(n)} if n % 3 else None for n in range(40)]),
        "fixed": pa.array([None if n == 5 else cell for n, cell in enumerate(cells)], pa.list_(pa.float64(), 3)),
        "list": pa.array([list(range(n % 4)) for n in range(40)], pa.list_(pa.int16())),
        "holes": pa.array([[None, 1]] * 40, pa.list_(pa.int16())),
        "map": pa.array([[("a", 1)]] * 40, pa.map_(pa.string(), pa.int32())),
        "none": pa.nulls(40),
        "after": pa.array(range(40), pa.uint8()),
    }).slice(7, 30)
    write(tmp_path / "t.arrow", table, rows=11)
    info = tet_json("info", tmp_path / "t.arrow")
    assert [array["name"] for array in info["arrays"]] == ["g.x", "g.y", "fixed", "list", "after"]
    path = tmp_path / "t.arrow"
    present = [n for n in range(7, 37) if n % 3]
    assert list(tet("cat", path, "g.x", "--validity")) == [int(n % 3 != 0) for n in range(7, 37)]
    assert np.frombuffer(tet("cat", path, "g.x", "--raw"), "<i8").tolist() == [n if n % 3 else 0 for n in range(7, 37)]
    assert tet_json("stat", path, "g.x")["sum"] == sum(present)
    assert np.frombuffer(tet("cat", path, "fixed", "--raw"), "<f8").tolist() == sum(cells[7:37], [])
    assert np.frombuffer(tet("cat", path, "after", "--raw"), "u1").tolist() == list(range(7, 37))
    expected = [np.arange(n % 4, dtype="<i2").tobytes() for n in range(7, 37)]
    assert tet("cat", path, "list", "--raw") == b"".join(len(cell).to_bytes(8, "little") + cell for cell in expected)
    # A dictionary that grows from batch to batch.
    words = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c", "a"]).dictionary_encode()]
    grown = [words[0], pa.DictionaryArray.from_arrays(pa.array([1, 2, 0], pa.int32()), ["a", "b", "c"])]
    schema = pa.schema([("w", words[0].type)])
    with ipc.new_stream(str(tmp_path / "d.arrows"), schema, options=ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as writer:
        for part in grown:
            writer.write_batch(pa.record_batch([part], schema=schema))
    got = tet("cat", tmp_path / "d.arrows", "w", "--format", "csv").split()[1:]
    assert got == [b"0,a", b"1,b", b"2,b", b"3,c", b"4,a"]


def test_metadata_are_attributes(tmp_path):
    field = pa.field("t", pa.float32(), metadata={"units": "K"})
    table = pa.table([pa.array([1.5], pa.float32())], pa.schema([field], metadata={"title": "air", "pandas": "{}"}))
    write(tmp_path / "t.arrow", table)
    info = tet_json("info", tmp_path / "t.arrow")
    assert info["attributes"] == {"title": "air"} and info["arrays"][0]["attributes"] == {"units": "K"}
    tet("convert", tmp_path / "t.arrow", tmp_path / "back.arrow", "--check")
    back = read(tmp_path / "back.arrow").schema
    assert back.metadata[b"title"] == b"air" and back.field("t").metadata == {b"units": b"K"}


@pytest.mark.parametrize("target, codec", [("tdb", None), ("tdb", "zstd"), ("arrow", None), ("feather", "zstd"), ("arrow", "lz4"), ("parquet", "zstd")])
def test_round_trips_are_checked(tmp_path, target, codec):
    rng = random.Random(11)
    kinds = ["i32", "u64", *([] if target == "tdb" else ["f16"]), "f32", "f64", "ms", "text", "date", "bool", "time"]
    table = pa.table({kind: column(rng, kind, ROWS, nulls=kind in ("f64", "text", "ms")) for kind in kinds})
    write(tmp_path / "t.arrow", table, rows=200)
    out = tmp_path / f"out.{target}"
    tet("convert", tmp_path / "t.arrow", out, "--check", *(["--codec", codec] if codec else []))
    tet("convert", out, tmp_path / "back.arrow", "--check")
    for name in kinds:
        for path in (out, tmp_path / "back.arrow"):
            assert tet("cat", path, name, "--raw") == tet("cat", tmp_path / "t.arrow", name, "--raw"), name
    got = read(tmp_path / "back.arrow")
    got.validate(full=True)
    assert got.column_names == kinds and got.num_rows == ROWS
    for name in kinds:
        theirs, ours = table[name].combine_chunks(), got[name].combine_chunks()
        assert ours.is_valid().equals(theirs.is_valid()), name
        if name == "date":
            assert ours.type == pa.timestamp("s") and ours.cast(pa.date32()).equals(theirs)
        elif name == "time":
            assert ours.type == pa.duration("us") and ours.cast(pa.int64()).equals(theirs.cast(pa.int64()))
        else:
            assert expected_bytes(ours) == expected_bytes(theirs), name
    assert feather.read_feather(str(tmp_path / "back.arrow")).shape == (ROWS, len(kinds))


def test_not_a_time_is_null_to_others(tmp_path):
    times = np.array(["2020-01-01", "NaT", "1960-05-06"], "M8[D]")
    np.savez(tmp_path / "t.npz", t=times)
    tet("convert", tmp_path / "t.npz", tmp_path / "t.arrow", "--check")
    assert tet("cat", tmp_path / "t.arrow", "t", "--raw") == times.tobytes()
    assert read(tmp_path / "t.arrow")["t"].is_null().to_pylist() == [False, True, False]


def test_sparse_arrays_and_tables_of_text(tmp_path):
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=10, dtype="i8"), tiledb.Dim("y", domain=(0, 999), tile=10, dtype="i8"))
    attrs = [tiledb.Attr("v", dtype="f8"), tiledb.Attr("pair", dtype="c8")]
    tiledb.Array.create(str(tmp_path / "s.tdb"), tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True))
    rng = np.random.default_rng(3)
    cells = rng.choice(1_000_000, 500, replace=False)
    x, y = np.sort(cells) // 1000, np.sort(cells) % 1000
    v, pair = rng.normal(size=500), rng.normal(size=1000).astype("f4").view("c8")
    with tiledb.open(str(tmp_path / "s.tdb"), "w") as array:
        array[x, y] = {"v": v, "pair": pair}
    tet("convert", tmp_path / "s.tdb", tmp_path / "s.arrow", "--check")
    got = read(tmp_path / "s.arrow")
    assert got.column_names == ["x", "y", "v", "pair"]
    assert got["x"].to_pylist() == x.tolist() and got["v"].to_numpy().tobytes() == v.tobytes()
    assert np.array(got["pair"].to_pylist(), "f4").tobytes() == pair.tobytes()
    (tmp_path / "t.csv").write_text('when,n,word\n2012/01/01,1,a\n2012/01/02,,"b,c"\n')
    tet("convert", tmp_path / "t.csv", tmp_path / "t.arrow", "--check")
    got = read(tmp_path / "t.arrow")
    assert got["n"].to_pylist() == [1, None] and got["word"].to_pylist() == ["a", "b,c"]
    assert got["when"].cast(pa.date32()).to_pylist()[1].isoformat() == "2012-01-02"


def test_what_cat_writes_is_read(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6, dtype="f4"))
    tet("cat", tmp_path / "a.npy", "--format", "arrow", "-o", tmp_path / "a.arrow")
    (tmp_path / "s.bin").write_bytes(tet("cat", tmp_path / "a.npy", "--format", "arrow"))
    for name in ("a.arrow", "s.bin"):
        arrays = tet_json("info", tmp_path / name)["arrays"]
        assert tet("cat", tmp_path / name, arrays[-1]["name"], "--raw") == np.arange(6, dtype="f4").tobytes()


def test_windows_and_conditions(tmp_path):
    write(tmp_path / "t.arrow", pa.table({"n": pa.array(range(1000), pa.int32())}), rows=100)
    assert tet_json("stat", tmp_path / "t.arrow", "n", "--where", "n >= 950")["count"] == 50
    for text, expected in [("row=98:102", range(98, 102)), ("row=0:1000:7", range(0, 1000, 7)), ("row=400:990:250", range(400, 990, 250))]:
        assert np.frombuffer(tet("cat", tmp_path / "t.arrow", "n", text, "--raw"), "<i4").tolist() == list(expected)


def test_files_without_rows(tmp_path):
    write(tmp_path / "t.arrow", pa.table({"n": pa.array([], pa.int32()), "w": pa.array([], pa.string())}))
    assert [array["shape"] for array in tet_json("info", tmp_path / "t.arrow")["arrays"]] == [[0], [0]]
    tet("convert", tmp_path / "t.arrow", tmp_path / "o.arrow", "--check")
    assert read(tmp_path / "o.arrow").num_rows == 0


def test_what_no_table_holds_is_rejected_before_writing(tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((3, 4)))
    tet("convert", tmp_path / "m.npy", tmp_path / "m.arrow", code=7)
    np.savez(tmp_path / "far.npz", t=np.array([2**62], "M8[D]"))
    tet("convert", tmp_path / "far.npz", tmp_path / "far.arrow", code=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far.npz", "m.npy"]


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("stream", [False, True])
def test_every_truncation_is_damage(tmp_path, codec, stream):
    write(tmp_path / "t.arrow", pa.table({"a": [1, 2, 3], "b": ["x", None, "y"]}), codec, stream=stream)
    whole = (tmp_path / "t.arrow").read_bytes()
    for end in range(0, len(whole) - 8, 37):
        (tmp_path / "cut.arrow").write_bytes(whole[:end])
        code = (0, 4, 5) if stream else (4, 5)
        tet("info", tmp_path / "cut.arrow", code=code)
