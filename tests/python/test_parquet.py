"""Parquet: columns equal those of pyarrow bit for bit, in every encoding and codec; pyarrow and pandas read what is written."""

import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiledb
from support import tet, tet_json
from table_columns import ROWS, TYPES, column, compare, expected_bytes

@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("nulls", [False, True])
def test_columns_equal_pyarrow(tmp_path, codec, nulls):
    rng = random.Random(f"{codec} {nulls}")
    table = pa.table({kind: column(rng, kind, ROWS, nulls) for kind in TYPES})
    version = "1.0" if nulls else "2.0"
    pq.write_table(table, tmp_path / "t.parquet", compression=codec, row_group_size=rng.choice([100, 333, 5000]), data_page_version=version)
    compare(tmp_path / "t.parquet", table)
    assert tet_json("verify", tmp_path / "t.parquet", "--deep")["ok"]


@pytest.mark.parametrize("encoding, kinds", [
    ("DELTA_BINARY_PACKED", ["i32", "i64"]),
    ("DELTA_LENGTH_BYTE_ARRAY", ["text", "blob"]),
    ("DELTA_BYTE_ARRAY", ["text", "blob"]),
    ("BYTE_STREAM_SPLIT", ["f32", "f64", "i32", "i64"]),
    ("RLE", ["bool"]),
    ("PLAIN", ["i32", "text", "f64", "bool"]),
])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_encodings_equal_pyarrow(tmp_path, encoding, kinds, page):
    rng = random.Random(encoding + page)
    table = pa.table({kind: column(rng, kind, ROWS, nulls=page == "2.0") for kind in kinds})
    pq.write_table(table, tmp_path / "t.parquet", use_dictionary=False, column_encoding=dict.fromkeys(kinds, encoding), data_page_version=page, data_page_size=512, row_group_size=300)
    compare(tmp_path / "t.parquet", table)


def test_windows_of_uneven_row_groups(tmp_path):
    table = pa.table({"n": pa.array(range(1000), pa.int64())})
    with pq.ParquetWriter(tmp_path / "t.parquet", table.schema) as writer:
        for start, end in [(0, 10), (10, 500), (500, 500), (500, 501), (501, 1000)]:
            writer.write_table(table.slice(start, end - start))
    for text, expected in [("row=8:12", range(8, 12)), ("row=0:1000:7", range(0, 1000, 7)), ("row=500:501", range(500, 501)), ("row=400:990:250", range(400, 990, 250))]:
        assert np.frombuffer(tet("cat", tmp_path / "t.parquet", "n", text, "--raw"), "<i8").tolist() == list(expected)
    stat = tet_json("stat", tmp_path / "t.parquet", "n")
    assert (stat["count"], stat["min"], stat["max"], stat["sum"]) == (1000, 0, 999, 499500)


def test_old_timestamps_and_nested_columns(tmp_path):
    table = pa.table({"t": pa.array([0, None, 10**18, -(10**17)], pa.timestamp("ns")), "g": [{"x": 1}, None, {"x": None}, {"x": 4}], "l": [[1], [], None, [2, 3]]})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    info = tet_json("info", tmp_path / "t.parquet")
    assert [array["name"] for array in info["arrays"]] == ["t", "g.x"]
    assert np.frombuffer(tet("cat", tmp_path / "t.parquet", "t", "--raw"), "<i8").tolist() == [0, 0, 10**18, -(10**17)]
    assert np.frombuffer(tet("cat", tmp_path / "t.parquet", "g.x", "--raw"), "<i8").tolist() == [1, 0, 0, 4]
    assert list(tet("cat", tmp_path / "t.parquet", "g.x", "--validity")) == [1, 0, 0, 1]


@pytest.mark.parametrize("target, codec", [("tdb", None), ("tdb", "zstd"), ("parquet", None), ("parquet", "zstd"), ("parquet", "snappy")])
def test_round_trips_are_checked(tmp_path, target, codec):
    rng = random.Random(11)
    kinds = ["i32", "u64", "f32", "f64", "ms", "text", "date", "bool"]
    table = pa.table({kind: column(rng, kind, ROWS, nulls=kind in ("f64", "text", "ms")) for kind in kinds})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=200)
    out = tmp_path / f"out.{target}"
    tet("convert", tmp_path / "t.parquet", out, "--check", *(["--codec", codec] if codec else []))
    tet("convert", out, tmp_path / "back.parquet", "--check")
    for name in kinds:
        for path in (out, tmp_path / "back.parquet"):
            assert tet("cat", path, name, "--raw") == tet("cat", tmp_path / "t.parquet", name, "--raw"), name
    read = pq.read_table(tmp_path / "back.parquet")
    assert read.column_names == kinds and read.num_rows == ROWS
    for name in kinds:
        if name == "date":
            continue  # Days have no timestamp of Parquet: integers, by the conventions.
        assert expected_bytes(read[name].combine_chunks()) == expected_bytes(table[name].combine_chunks()), name
        assert read[name].combine_chunks().is_valid().equals(table[name].combine_chunks().is_valid()), name
    assert pd.read_parquet(tmp_path / "back.parquet").shape == (ROWS, len(kinds))


def test_sparse_arrays_are_tables(tmp_path):
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=10, dtype="i8"), tiledb.Dim("y", domain=(0, 999), tile=10, dtype="i8"))
    attrs = [tiledb.Attr("v", dtype="f8"), tiledb.Attr("n", dtype="i4")]
    tiledb.Array.create(str(tmp_path / "s.tdb"), tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True))
    rng = np.random.default_rng(3)
    cells = rng.choice(1_000_000, 500, replace=False)
    x, y = np.sort(cells) // 1000, np.sort(cells) % 1000
    v, n = rng.normal(size=500), rng.integers(-9, 9, 500).astype("i4")
    with tiledb.open(str(tmp_path / "s.tdb"), "w") as array:
        array[x, y] = {"v": v, "n": n}
    tet("convert", tmp_path / "s.tdb", tmp_path / "s.parquet", "--check")
    read = pq.read_table(tmp_path / "s.parquet")
    assert read.column_names == ["x", "y", "v", "n"]
    assert read["x"].to_pylist() == x.tolist() and read["y"].to_pylist() == y.tolist()
    assert read["v"].to_numpy().tobytes() == v.tobytes() and read["n"].to_numpy().tobytes() == n.tobytes()


def test_csv_becomes_parquet(tmp_path):
    (tmp_path / "t.csv").write_text("when,n,x,word\n2012/01/01,1,0.5,a\n2012/01/02,,-0.0,\"b,c\"\n")
    tet("convert", tmp_path / "t.csv", tmp_path / "t.parquet", "--check")
    read = pq.read_table(tmp_path / "t.parquet")
    assert read["n"].to_pylist() == [1, None] and read["word"].to_pylist() == ["a", "b,c"]
    assert np.signbit(read["x"].to_numpy()).tolist() == [False, True]
    assert tet("cat", tmp_path / "t.parquet", "when", "--format", "csv") == tet("cat", tmp_path / "t.csv", "when", "--format", "csv")


def test_conditions_select_rows(tmp_path):
    table = pa.table({"n": pa.array(range(1000), pa.int32())})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    assert tet_json("stat", tmp_path / "t.parquet", "n", "--where", "n >= 950")["count"] == 50


def test_what_no_table_holds_is_rejected_before_writing(tmp_path):
    np.save(tmp_path / "m.npy", np.zeros((3, 4)))
    tet("convert", tmp_path / "m.npy", tmp_path / "m.parquet", code=7)
    assert not (tmp_path / "m.parquet").exists()


def test_every_truncation_is_damage(tmp_path):
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for end in range(0, len(whole), 37):
        (tmp_path / "cut.parquet").write_bytes(whole[:end])
        tet("info", tmp_path / "cut.parquet", code=(4, 5))
