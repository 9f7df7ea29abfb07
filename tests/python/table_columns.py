"""Columns of every type, and their comparison with what pyarrow has, for formats that store tables."""

import datetime

import numpy as np
import pyarrow as pa
from support import tet, tet_json

ROWS = 700

TYPES = {
    "bool": (pa.bool_(), "bool", lambda r: r.random() < 0.5),
    "i8": (pa.int8(), "int8", lambda r: r.randrange(-128, 128)),
    "i16": (pa.int16(), "int16", lambda r: r.randrange(-(2**15), 2**15)),
    "i32": (pa.int32(), "int32", lambda r: r.randrange(-(2**31), 2**31)),
    "i64": (pa.int64(), "int64", lambda r: r.randrange(-(2**63), 2**63)),
    "u8": (pa.uint8(), "uint8", lambda r: r.randrange(256)),
    "u16": (pa.uint16(), "uint16", lambda r: r.randrange(2**16)),
    "u32": (pa.uint32(), "uint32", lambda r: r.randrange(2**32)),
    "u64": (pa.uint64(), "uint64", lambda r: r.randrange(2**64)),
    "f16": (pa.float16(), "float16", lambda r: np.float16(r.choice([0.5, -0.0, np.inf, np.nan, r.uniform(-99, 99)]))),
    "f32": (pa.float32(), "float32", lambda r: r.choice([0.1, -0.0, np.inf, np.nan, r.uniform(-1e9, 1e9)])),
    "f64": (pa.float64(), "float64", lambda r: r.choice([0.1, -0.0, -np.inf, np.nan, r.uniform(-1e99, 1e99)])),
    "date": (pa.date32(), "datetime64[D]", lambda r: datetime.date(r.randrange(1900, 2100), 2, 3)),
    "ms": (pa.timestamp("ms"), "datetime64[ms]", lambda r: r.randrange(-(2**40), 2**40)),
    "us": (pa.timestamp("us", tz="UTC"), "datetime64[us]", lambda r: r.randrange(-(2**50), 2**50)),
    "ns": (pa.timestamp("ns"), "datetime64[ns]", lambda r: r.randrange(-(2**62), 2**62)),
    "time": (pa.time64("us"), "timedelta64[us]", lambda r: r.randrange(86_400_000_000)),
    "text": (pa.string(), "string_utf8", lambda r: r.choice(["", "a", "é漢", "rain " * r.randrange(9)])),
    "blob": (pa.binary(), "bytes", lambda r: r.randbytes(r.randrange(9))),
    "word": (pa.dictionary(pa.int32(), pa.string()), "string_utf8", lambda r: r.choice(["rain", "sun", "snow"])),
}


def column(rng, kind, rows, nulls):
    arrow, _, value = TYPES[kind]
    return pa.array([None if nulls and rng.random() < 0.2 else value(rng) for _ in range(rows)], arrow)


def expected_bytes(values):
    """The bytes of `tet cat --raw`: null cells are zeros or empty."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    text = [pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_string_view, pa.types.is_binary_view]
    if any(is_text(values.type) for is_text in text):
        cells = [b"" if v is None else v.encode() if isinstance(v, str) else v for v in values.to_pylist()]
        return b"".join(len(cell).to_bytes(8, "little") + cell for cell in cells)
    valid = np.array(values.is_valid().to_pylist(), bool)
    if pa.types.is_boolean(values.type):
        return np.array([bool(v) for v in values.to_pylist()]).tobytes()
    width = values.type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], "u1")[values.offset * width :][: len(values) * width].reshape(-1, width).copy()
    raw[~valid] = 0
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        return raw.copy().view("<i4").astype("<i8").tobytes()
    return raw.tobytes()


def compare(path, table):
    info = {array["name"]: array for array in tet_json("info", path)["arrays"]}
    assert list(info) == table.column_names
    for name in table.column_names:
        values = table[name].combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
        array = info[name]
        assert array["shape"] == [table.num_rows] and array["dims"] == ["row"], name
        if name in TYPES:
            assert array["fields"][0]["dtype"] == TYPES[name][1], name
        assert tet("cat", path, name, "--raw") == expected_bytes(values), name
        valid = np.frombuffer(tet("cat", path, name, "--validity"), "u1").astype(bool)
        assert valid.tolist() == values.is_valid().to_pylist(), name
