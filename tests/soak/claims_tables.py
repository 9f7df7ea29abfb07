"""Sizes that Parquet and Arrow files and .npz archives claim: integers at boundary values, and files made by hand."""

import copy
import io
import random
import struct
import zipfile
import zlib
from collections.abc import Sequence

from claims_interchange import VALUES
from common import PYTHON, run

MIB = 1 << 20


# Parquet: Thrift in the compact protocol, whose integers have no fixed width: structures are parsed, changed and written again.

def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def zigzag(value):
    """The encoding of a value modulo 2^64."""
    value = (value + 2**63) % 2**64 - 2**63
    return varint((value << 1 ^ value >> 63) % 2**64)


BYTE, INTEGERS, DOUBLE, BINARY, LIST, STRUCT = 3, (4, 5, 6), 7, 8, 9, 12


def read_value(kind, data, at):
    """A value: an integer, or a dictionary of what it consists of."""
    if kind in (1, 2):
        return {"flag": kind}, at
    if kind == BYTE:
        return {"raw": data[at : at + 1]}, at + 1
    if kind in INTEGERS:
        value, at = read_varint(data, at)
        return value >> 1 ^ -(value & 1), at
    if kind == DOUBLE:
        return {"raw": data[at : at + 8]}, at + 8
    if kind == BINARY:
        size, at = read_varint(data, at)
        return {"size": size, "bytes": data[at : at + size]}, at + size
    if kind == LIST:
        size, of = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = read_varint(data, at)
        items = []
        for _ in range(size):
            item, at = read_value(of, data, at)
            items.append(item)
        return {"size": size, "of": of, "items": items}, at
    if kind == STRUCT:
        return read_struct(data, at)
    raise ValueError(f"Thrift type {kind}")


def read_struct(data, at):
    fields, number = [], 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            number += step
        else:
            value, at = read_varint(data, at)
            number = value >> 1 ^ -(value & 1)
        value, at = read_value(kind, data, at)
        fields.append([number, kind, value])
    return {"fields": fields}, at + 1


def write_value(kind, value):
    if kind in (1, 2):
        return b""
    if kind in INTEGERS:
        return zigzag(value)
    if kind == BINARY:
        return varint(value["size"]) + value["bytes"]
    if kind == LIST:
        head = bytes([240 | value["of"]]) + varint(value["size"])
        return head + b"".join(write_value(value["of"], item) for item in value["items"])
    if kind == STRUCT:
        return write_struct(value)
    return value["raw"]


def write_struct(value):
    out = b""
    for number, kind, field in value["fields"]:
        out += bytes([kind]) + zigzag(number) + write_value(kind, field)
    return out + b"\0"


def sizes(value, path=()):
    """The paths of all integers: numbers, and sizes of lists and texts."""
    if isinstance(value, int):
        yield path
    elif "fields" in value:
        for at, (_, kind, field) in enumerate(value["fields"]):
            if kind not in (1, 2, BYTE, DOUBLE):
                yield from sizes(field, (*path, "fields", at, 2))
    elif "size" in value:
        yield (*path, "size")
        for at, item in enumerate(value.get("items", [])):
            yield from sizes(item, (*path, "items", at))


def with_size(value, path, size):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = size
    return value


#: Values of integers of up to 64 bits, with a sign.
SIGNED = (-1, 0, 1, 2**7, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63))


class ParquetClaims(Sequence):
    """Every integer of the metadata and of the header of the first page; generated on demand."""

    def __init__(self, name, data):
        self.name, self.data = name, data
        self.end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        self.metadata, _ = read_struct(data, self.end)
        self.page, self.page_end = read_struct(data, 4)
        self.places = [(True, path) for path in sizes(self.metadata)] + [(False, path) for path in sizes(self.page)]

    def __len__(self):
        return len(self.places) * len(SIGNED)

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        place, case = divmod(number, len(SIGNED))
        whole, path = self.places[place]
        value = SIGNED[case] if path[-1] != "size" else SIGNED[case] % 2**64
        metadata, page = self.metadata, self.page
        metadata, page = (with_size(metadata, path, value), page) if whole else (metadata, with_size(page, path, value))
        footer = write_struct(metadata)
        first = self.data[4 : self.page_end] if whole else write_struct(page)
        data = b"PAR1" + first + self.data[self.page_end : self.end] + footer + struct.pack("<I", len(footer)) + b"PAR1"
        label = ".".join(str(key) for key in path if key not in ("fields", "items", 2))
        return f"parquet {self.name} {'metadata' if whole else 'page'} {label}={value}", ".parquet", data


#: Files that the reference writes, each of at most 1 MiB: those whose integers are changed, and those that declare much for their size.
PARQUET = r"""
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
out = sys.argv[1]
def put(name, table, **options):
    pq.write_table(table, f"{out}/{name}.parquet", **{"use_dictionary": False, "compression": "none", **options})
base = lambda **columns: pa.table(columns)
put("base-plain", base(a=pa.array(np.arange(40, dtype="i4"))))
put("base-nulls", base(a=pa.array([1.5, None] * 20)), compression="zstd", data_page_version="2.0")
put("base-texts", base(a=pa.array(["x", "yy", "zzz"] * 9)), use_dictionary=True, compression="snappy")
put("base-delta", base(a=pa.array(np.arange(200, dtype="i8"))), column_encoding={"a": "DELTA_BINARY_PACKED"}, compression="gzip")
put("base-split", base(a=pa.array(np.arange(40, dtype="f8"))), column_encoding={"a": "BYTE_STREAM_SPLIT"})
zeros = lambda n, dtype: base(a=pa.array(np.zeros(n, dtype)))
put("constant", zeros(2**24, "i1"), use_dictionary=True)
put("constant-f8", zeros(2**22, "f8"), use_dictionary=True)
for codec in ("zstd", "gzip", "brotli", "lz4", "snappy"):
    put(f"zeros-{codec}", zeros(2**22, "f8"), compression=codec)
put("nulls", base(a=pa.nulls(2**24, pa.float64())))
put("delta", zeros(2**23, "i8"), column_encoding={"a": "DELTA_BINARY_PACKED"})
long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**18, "i4")), pa.array(["x" * 500_000]))
put("texts", base(a=long), use_dictionary=True)
put("null-texts", base(a=pa.nulls(2**23, pa.string())))
put("shared-texts", base(a=pa.array(["x" * 50_000 + str(i) for i in range(4000)])), column_encoding={"a": "DELTA_BYTE_ARRAY"})
put("columns", pa.table({f"c{i}": pa.array([1], pa.int8()) for i in range(3000)}), write_statistics=False)
put("groups", base(a=pa.array(np.arange(6000, dtype="i1") % 100)), row_group_size=1, write_statistics=False)
# One row group of one page, just within the limit of a chunk and beyond it.
def page(name, table, **options):
    put(f"page-{name}", table, row_group_size=2**30, data_page_size=2**30, max_rows_per_page=2**30, write_statistics=False, **options)
for mib in (12, 15, 26, 28):
    n = mib * 2**17
    for codec in ("zstd", "lz4"):
        page(f"{codec}-{mib}", zeros(n, "f8"), compression=codec)
    page(f"delta-{mib}", zeros(n, "i8"), column_encoding={"a": "DELTA_BINARY_PACKED"})
    page(f"split-{mib}", zeros(n, "f8"), column_encoding={"a": "BYTE_STREAM_SPLIT"}, compression="zstd")
    page(f"constant-{mib}", zeros(8 * n // 2, "i1"), use_dictionary=True)
    page(f"nulls-{mib}", base(a=pa.nulls(8 * n // 2, pa.int8())))
    page(f"bools-{mib}", zeros(8 * n // 2, bool), compression="zstd")
"""


def crafted_parquet(folder):
    """Files of at most 1 MiB that the reference wrote; none where it is missing."""
    if not PYTHON.exists():
        return
    made = written(folder)
    for path in sorted(made.glob("*.parquet")):
        if path.stat().st_size <= MIB and not path.stem.startswith("base"):
            yield path.stem, ".parquet", path.read_bytes()
    base = (made / "base-plain.parquet").read_bytes()
    yield "footer", ".parquet", base[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1"
    # A schema of nested groups, and one of a list of nothing.
    nested = b"\x15\x04\x19\xfc" + varint(60_000) + b"\x15\x00\x15\x02\x25\x00\x18\x01a\x00" * 60_000 + b"\x16\x00\x19\x0c\x00"
    yield "nested schema", ".parquet", b"PAR1" + nested + struct.pack("<I", len(nested)) + b"PAR1"
    deep = b"\x1c" * 200_000 + b"\0" * 200_001
    yield "nested structs", ".parquet", b"PAR1" + deep + struct.pack("<I", len(deep)) + b"PAR1"


def written(folder):
    made = folder / "parquet"
    if not made.exists():
        made.mkdir()
        run(PYTHON, "-c", PARQUET, made)
    return made


def parquet_claims(folder):
    if not PYTHON.exists():
        return []
    return [ParquetClaims(path.stem, path.read_bytes()) for path in sorted(written(folder).glob("base-*.parquet"))]


# .npz archives: little-endian integers of two, four and eight bytes. The checksums of members are recomputed.

def npy(shape, content, descr="<f8"):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + content


def npz(members, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, allowZip64=True, compresslevel=9 if method else None) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


class NpzClaims(Sequence):
    """Every offset of an archive, for three widths, at boundary values."""

    WIDTHS = (2, 4, 8)

    def __init__(self, name, data):
        self.name, self.data, self.each = name, data, len(self.WIDTHS) * len(VALUES)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.members = []
            for info in archive.infolist():
                local = info.header_offset
                start = local + 30 + sum(struct.unpack_from("<HH", data, local + 26))
                self.members.append((local, start, info.compress_size, info.compress_type, data.index(b"PK\1\2")))
        at = data.index(b"PK\1\2")
        for number, member in enumerate(self.members):
            self.members[number] = (*member[:4], at)
            at = data.find(b"PK\1\2", at + 4)

    def __len__(self):
        return len(self.data) * self.each

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        at, case = divmod(number, self.each)
        width = self.WIDTHS[case % len(self.WIDTHS)]
        value = VALUES[case // len(self.WIDTHS)](len(self.data)) % (1 << 8 * width)
        changed = bytearray(self.data)
        part = value.to_bytes(width, "little")[: len(changed) - at]
        changed[at : at + len(part)] = part
        for local, start, size, method, central in self.members:
            if start <= at < start + size and method == zipfile.ZIP_STORED:
                digest = zlib.crc32(changed[start : start + size])
                struct.pack_into("<I", changed, local + 14, digest)
                struct.pack_into("<I", changed, central + 16, digest)
        return f"npz {self.name} {at}:{width}={value}", ".npz", bytes(changed)


def npz_claims():
    members = [("a.npy", npy("(2, 3)", bytes(48))), ("b.npy", npy("(4,)", bytes(4), "|u1"))]
    return [NpzClaims("stored", npz(members)), NpzClaims("deflated", npz(members, zipfile.ZIP_DEFLATED))]


def overlapping(count, content):
    """An archive whose entries all are one member."""
    whole = npz([("a.npy", content)], zipfile.ZIP_DEFLATED)
    at = whole.index(b"PK\1\2")
    entry = whole[at : whole.index(b"PK\5\6")]
    entries = b""
    for number in range(count):
        name = b"%05d" % number
        entries += entry[:28] + struct.pack("<HHH", len(name), 0, 0) + entry[34:46] + name
    return whole[:at] + entries + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(entries), at, 0)


def crafted_npz():
    deflated = zipfile.ZIP_DEFLATED
    for mib in (27, 40, 63, 255):
        yield f"zeros {mib} MiB", ".npz", npz([("a.npy", npy(f"({mib * MIB // 8},)", bytes(mib * MIB)))], deflated)
    yield "short member", ".npz", npz([("a.npy", npy("(1152921504606846975,)", bytes(8)))])
    yield "short deflated member", ".npz", npz([("a.npy", npy("(1048576, 1048576)", bytes(MIB)))], deflated)
    yield "members", ".npz", npz([(f"{i}.npy", npy("(1,)", bytes(8))) for i in range(4000)])
    yield "deflated members", ".npz", npz([(f"{i}.npy", npy("(65536,)", bytes(MIB // 2))) for i in range(1000)], deflated)
    noise = random.Random(1).randbytes(500_000)
    yield "overlapping members", ".npz", overlapping(9000, npy("(62500,)", noise))
    yield "overlapping zeros", ".npz", overlapping(9000, npy(f"({20 * MIB // 8},)", bytes(20 * MIB)))
    yield "directory", ".npz", npz([])[:-22] + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 65535, 65535, 2**32 - 1, 0, 0)
    yield "long header", ".npz", npz([("a.npy", b"\x93NUMPY\2\0" + struct.pack("<I", 900_000) + b"{" * 900_000)])


# Arrow IPC: FlatBuffers, whose integers have places of their own in each file, so every offset is one.

#: Files that the reference writes: those whose integers are changed, and those that claim much for their size.
ARROW = r"""
import sys, numpy as np, pyarrow as pa
out = sys.argv[1]
def put(name, table, codec=None, stream=False, batch=None):
    options = pa.ipc.IpcWriteOptions(compression=codec)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(f"{out}/{name}.arrow", "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)
small = pa.table({"a": pa.array([1.5, None, 2.5] * 5), "t": pa.array(["x", "yy", None] * 5), "d": pa.array(["p", "q", "p"] * 5).dictionary_encode(),
                  "l": pa.array(np.arange(15).astype("datetime64[D]")), "b": pa.array([True, False, None] * 5)})
put("base-file", small, batch=8)
put("base-stream", small, stream=True)
put("base-zstd", small, "zstd", batch=8)
put("base-lz4", small.select(["a", "t"]), "lz4")
for codec in ("zstd", "lz4"):
    for mib in (8, 40, 63, 255):
        put(f"zeros-{codec}-{mib}", pa.table({"a": np.zeros(mib * 2**17)}), codec)
    put(f"empty-texts-{codec}", pa.table({"a": pa.array([""] * 2**22)}), codec)
    put(f"nulls-{codec}", pa.table({"a": pa.nulls(2**23, pa.float64())}), codec)
    put(f"null-texts-{codec}", pa.table({"a": pa.nulls(2**22, pa.string())}), codec)
    indices = pa.array(np.zeros(2**20, "i4"))
    put(f"one-text-{codec}", pa.table({"a": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 400_000]))}), codec)
    put(f"views-{codec}", pa.table({"a": pa.array(["x" * 300_000] * 3, pa.string_view())}), codec)
put("null", pa.table({"a": pa.nulls(2**30, pa.null())}))
put("columns", pa.table({f"c{i}": pa.array([1], pa.int8()) for i in range(2500)}))
put("batches", pa.table({"a": pa.array(np.arange(3000, dtype="i1") % 100)}), batch=1)
nested = pa.array([1])
for _ in range(60):
    nested = pa.StructArray.from_arrays([nested], ["n"])
put("nested", pa.table({"a": nested}))
put("members", pa.table({"a": pa.StructArray.from_arrays([pa.array([1])] * 2000, [f"m{i}" for i in range(2000)])}))
put("long-names", pa.table({"x" * 100_000 + str(i): pa.array([1]) for i in range(4)}))
"""


def written_arrow(folder):
    made = folder / "arrow"
    if not made.exists():
        made.mkdir()
        run(PYTHON, "-c", ARROW, made)
    return made


def arrow_claims(folder):
    """Every offset of small files, for four widths, at boundary values; none where the reference is missing."""
    from claims_fields import ByteClaims

    if not PYTHON.exists():
        return []
    return [ByteClaims(f"arrow {path.stem}", ".arrow", path.read_bytes(), (1, 2, 4, 8), "little")
            for path in sorted(written_arrow(folder).glob("base-*.arrow"))]


def crafted_arrow(folder):
    """Files of at most 1 MiB that the reference wrote; none where it is missing."""
    if not PYTHON.exists():
        return
    for path in sorted(written_arrow(folder).glob("*.arrow")):
        if path.stat().st_size <= MIB and not path.stem.startswith("base"):
            yield path.stem, ".arrow", path.read_bytes()
