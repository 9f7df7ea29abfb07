"""Values of metadata that take much more memory than bytes: lists and maps of nothing, short texts, labels and groups, made by hand."""

import json
import struct
import zlib

import hostile_tgm as tgm
import hostile_tiledb
from claims_interchange import BYTES, document, netcdf3_file, zarr2, zarr3
from claims_tables import PYTHON, run

MIB = 1 << 20
#: Left for everything but the values.
ROOM = MIB - 2000

#: Values of a list as JSON, and as CBOR.
JSON = {"zeros": b"0", "lists": b"[0]", "empty lists": b"[]", "maps": b'{"":0}', "texts": b'""', "pairs": b'["a"]'}
CBOR = {"zeros": b"\0", "lists": b"\x81\0", "empty lists": b"\x80", "maps": b"\xa1\x60\0", "texts": b"\x60", "tags": b"\xc0\xc0\0"}


def listed(unit, room=ROOM):
    """A JSON list of one value, repeated."""
    return b"[" + b",".join([unit] * (room // (len(unit) + 1))) + b"]"


def named(room=ROOM):
    """A JSON map of short names."""
    out, size, number = [], 2, 0
    while size < room - 12:
        out.append(b'"%x":0' % number)
        size, number = size + len(out[-1]) + 1, number + 1
    return b"{" + b",".join(out) + b"}"


def lists(unit, room=ROOM):
    """A CBOR list of one value, repeated."""
    count = room // len(unit)
    return tgm.Raw(tgm.head(4, count) + unit * count)


def crafted_zarr():
    array = zarr3([2], [2], [BYTES])
    with_attributes = lambda metadata, text: document({**metadata, "attributes": "?"}).replace(b'"?"', text)
    group = {"zarr_format": 3, "node_type": "group"}
    for name, unit in JSON.items():
        yield f"{name} of an array", ".zarr", {"zarr.json": with_attributes(array, b'{"a":' + listed(unit) + b"}"), "c/0": bytes(8)}
        yield f"{name} of a group", ".zarr", {"zarr.json": with_attributes(group, b'{"a":' + listed(unit) + b"}")}
    yield "names", ".zarr", {"zarr.json": with_attributes(array, named()), "c/0": bytes(8)}
    yield "names of version 2", ".zarr", {".zarray": document(zarr2([2], [2], None)), ".zattrs": named(), "0": bytes(8)}
    shared = b'{"a":' + listed(b"0", 100_000) + b"}"
    yield "arrays", ".zarr", {"zarr.json": document({**group, "attributes": {}}),
                              **{f"a{i}/zarr.json": with_attributes(array, shared) for i in range(10)}}
    node = {"zarr_format": 3, "node_type": "group"}
    groups = {f"{i:x}": node for i in range(18_000)}
    nested = json.dumps({**node, "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": groups}}, separators=(",", ":"))
    yield "groups", ".zarr", {"zarr.json": nested.encode()}
    marker = json.dumps('{"version":1,"attributes":' + listed(b'["a"]', ROOM // 2).decode() + "}").encode()
    yield "marker", ".zarr", {"zarr.json": with_attributes(array, b'{"_tesseral":' + marker + b"}"), "c/0": bytes(8)}


def crafted_tgm():
    of = lambda metadata, *objects: tgm.message(tgm.frame(1, tgm.cbor(metadata)), *objects)
    for name, unit in CBOR.items():
        yield f"{name} of a message", ".tgm", of({"base": [{}], "_extra_": {"a": lists(unit)}}, tgm.tensor())
        yield f"{name} of an object", ".tgm", of({"base": [{"a": lists(unit)}]}, tgm.tensor())
        yield f"{name} of a descriptor", ".tgm", tgm.message(tgm.META, tgm.tensor(tgm.described(a=lists(unit))))
    small = lists(b"\0", 50_000)
    yield "messages of zeros", ".tgm", of({"base": [{"a": small}]}, tgm.tensor()) * 20
    yield "objects of zeros", ".tgm", of({"base": [{"a": small}] * 20}, *[tgm.tensor()] * 20)
    yield "descriptors of zeros", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}] * 20})), *[tgm.tensor(tgm.described(a=small))] * 20)
    for name, unit in JSON.items():
        text = '{"version":1,"attributes":[["b",' + listed(unit).decode() + "]]}"
        yield f"{name} of a marker", ".tgm", of({"base": [{"_tesseral": text}]}, tgm.tensor())
    text = '{"version":1,"groups":[' + ",".join(f'["{i:x}",[]]' for i in range(80_000)) + "]}"
    yield "groups of a marker", ".tgm", of({"base": [{}], "_extra_": {"_tesseral": text}}, tgm.tensor())
    # Descriptors and lists that no index refers to.
    yield "index", ".tgm", tgm.message(tgm.META, tgm.frame(2, tgm.cbor({"offsets": lists(b"\0"), "lengths": []})), tgm.tensor())


#: What is counted for a value, a name, a list and a map: as in `metadata_cost.rs`.
VALUE, NAME, LIST, MAP = 560, 800, 1024, 1920
#: What is allowed, except the rest of a file.
ALLOWED = 66_500_000


def within():
    """Files that hold almost as much as is allowed."""
    weights = {"zeros": VALUE, "lists": LIST + VALUE, "maps": MAP + NAME + VALUE, "texts": VALUE}
    for name, weight in weights.items():
        count = ALLOWED // weight
        values = b"[" + b",".join([JSON[name]] * count) + b"]"
        array = document({**zarr3([2], [2], [BYTES]), "attributes": "?"})
        yield f"allowed {name}", ".zarr", {"zarr.json": array.replace(b'"?"', b'{"a":' + values + b"}"), "c/0": bytes(8)}
        count = ALLOWED // (weight + VALUE * (name == "maps"))
        values = tgm.Raw(tgm.head(4, count) + CBOR[name] * count)
        yield f"allowed {name} of an object", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{"a": values}]})), tgm.tensor())
        yield f"allowed {name} of a message", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}], "_extra_": {"a": values}})), tgm.tensor())
    names = b"{" + b",".join(b'"%x":0' % i for i in range(ALLOWED // (NAME + VALUE))) + b"}"
    array = document({**zarr3([2], [2], [BYTES]), "attributes": "?"})
    yield "allowed names", ".zarr", {"zarr.json": array.replace(b'"?"', names), "c/0": bytes(8)}
    group = {"zarr_format": 3, "node_type": "group"}
    nodes = {f"{i:x}": group for i in range(10_000)}
    yield "allowed groups", ".zarr", {"zarr.json": json.dumps({**group, "consolidated_metadata": {
        "kind": "inline", "must_understand": False, "metadata": nodes}}, separators=(",", ":")).encode()}


def crafted_classic():
    for name, unit in JSON.items():
        text = b'{"version":1,"attributes":[["b",' + listed(unit, ROOM // 2 - 200) + b"]]}"
        yield f"{name} of a marker", ".nc", netcdf3_file(1, attribute=text).replace(b"\0\0\0\4note", b"\0\0\0\x09_tesseral\0\0\0")


def tile(plain):
    """A generic tile with gzip."""
    packed = zlib.compress(plain, 9)
    parts = struct.pack("<IIII", 0, 1, len(plain), len(packed))
    pipeline = struct.pack("<II", 65536, 1) + struct.pack("<BI", 1, 5) + struct.pack("<Bi", 1, 9)
    return hostile_tiledb.generic(parts + packed, size=len(plain), original=len(plain), filtered=len(packed), meta=len(parts), pipeline=pipeline)


def entry(key, value, datatype=11):
    return struct.pack("<I", len(key)) + key + struct.pack("<BBI", 0, datatype, len(value)) + value


class Metadata:
    """Adds a file of array metadata."""

    def __init__(self, content):
        self.content = content

    def __call__(self, array):
        folder = array.folder / "__meta"
        folder.mkdir(exist_ok=True)
        (folder / ("__5_5_" + "0" * 32)).write_bytes(tile(self.content))


def relabeled(array):
    """Labels of one character each."""
    path = next(p for p in sorted((array.folder / "__schema/__enumerations").iterdir()) if p.is_file())
    plain = hostile_tiledb.unfiltered(path.read_bytes())
    at = 4
    for _ in range(2):
        at += 4 + struct.unpack_from("<I", plain, at)[0]
    count = 30 * MIB
    path.write_bytes(tile(plain[:at] + struct.pack("<BI", 11, 1) + b"\0" + struct.pack("<Q", count) + b"x" * count))


def crafted_tiledb():
    names = b"".join(entry(b"%06x" % i, b"") for i in range(300_000))
    yield "names", "", ("dense_overlay", Metadata(names))
    for name, unit in JSON.items():
        yield f"{name} as JSON", "", ("dense_overlay", Metadata(entry(b"__tesseral:json:a", listed(unit, 25 * MIB))))
    yield "labels of dimensions", "", ("dense_overlay", Metadata(entry(b"__tesseral:labels:0", listed(b'""', 25 * MIB))))
    yield "labels", "", ("enumerated", relabeled)


#: HDF5 attributes of many texts, and documents in the metadata of tables.
WRITTEN = r"""
import sys, json, numpy as np, h5py, pyarrow as pa, pyarrow.parquet as pq
out = sys.argv[1]
with h5py.File(f"{out}/fixed.h5", "w", libver="latest") as f:
    d = f.create_dataset("a", (4,), "f4")
    for i in range(15):
        d.attrs.create(f"k{i}", np.full(40_000, b"x", "S1"))
with h5py.File(f"{out}/large.h5", "w", libver="latest") as f:
    f.create_dataset("a", (4,), "f4").attrs.create("k", np.full(1_000_000, b"x", "S1"))
with h5py.File(f"{out}/shared.h5", "w", libver="latest") as f:
    f.create_dataset("a", (4,), "f4").attrs.create("k", np.array(["x" * 60_000] * 10, dtype=object), dtype=h5py.string_dtype())
with h5py.File(f"{out}/variable.h5", "w", libver="latest") as f:
    f.create_dataset("a", (4,), "f4").attrs.create("k", np.array(["x"] * 25_000, dtype=object), dtype=h5py.string_dtype())
units = {"zeros": "0", "lists": "[0]", "maps": '{"":0}'}
for name, unit in units.items():
    values = "[" + ",".join([unit] * (1_000_000 // (len(unit) + 1))) + "]"
    text = '{"attributes":{"a":' + values + '},"history":[],"columns":{}}'
    table = pa.table({"a": pa.array([1, 2])}).replace_schema_metadata({"tesseral": text})
    # The schema of a file is stored twice.
    with pa.OSFile(f"{out}/{name}.arrows", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pq.ParquetWriter(f"{out}/{name}.parquet", pa.schema(table.schema, metadata=None), store_schema=False) as writer:
        writer.write_table(table.replace_schema_metadata(None))
        writer.add_key_value_metadata({"tesseral": text})
"""


def crafted_written(folder):
    """Files of at most 1 MiB that the references write; none where they are missing."""
    if not PYTHON.exists():
        return
    folder.mkdir()
    run(PYTHON, "-c", WRITTEN, folder)
    for path in sorted(folder.iterdir()):
        if path.stat().st_size <= MIB:
            yield path.stem, path.suffix, path.read_bytes()


def crafted_index(folder):
    from claims_fields import ENTRY, Seal

    if not PYTHON.exists():
        return
    seal = Seal()
    count = lambda n: struct.pack("<I", n)
    text = lambda word: count(len(word)) + word

    def sealed(metadata):
        return bytes(seal(bytearray(b"\x89TIX\r\n\x1a\n" + struct.pack("<IIQQQQQQ", 1, 0, 0, len(metadata), 0, 0, 0, 0) + metadata)))

    units = {"nulls": b"\0", "lists": b"\x08" + count(1) + b"\0", "maps": b"\x09" + count(1) + text(b"") + b"\0", "texts": b"\x06" + count(0)}
    for name, unit in units.items():
        number = ROOM // len(unit)
        yield name, ".tix", sealed(count(0) * 3 + count(1) + text(b"a") + b"\x08" + count(number) + unit * number + count(0))


def crafted(folder):
    yield from within()
    yield from crafted_zarr()
    yield from crafted_tgm()
    yield from crafted_classic()
    yield from crafted_written(folder / "written")
    yield from crafted_index(folder)
