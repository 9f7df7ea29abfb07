"""Sizes that NetCDF, HDF5 and Zarr sources claim: integers at boundary values, and files made by hand."""

import json
import struct
import zlib
from collections.abc import Sequence

from common import PYTHON, ROOT, run

MIB = 1 << 20
FIXTURES = ROOT / "fixtures/hdf5"


# NetCDF classic: a header of big-endian integers, four bytes each except the sizes of CDF-5.

def netcdf3_file(version=1, records=2, extents=(0, 3), cells=6, attribute=b"abc"):
    """One record variable of two dimensions with one attribute."""
    wide = version == 5
    n = lambda value: struct.pack(">Q" if wide else ">I", value)
    name = lambda text: n(len(text)) + text + bytes(-len(text) % 4)
    tag = lambda value: struct.pack(">I", value)
    out = b"CDF" + bytes([version]) + n(records)
    out += tag(10) + n(len(extents)) + b"".join(name(b"d%d" % i) + n(extent) for i, extent in enumerate(extents))
    attributes = tag(12) + n(1) + name(b"note") + tag(2) + name(attribute)
    out += attributes + tag(11) + n(1) + name(b"a") + n(len(extents)) + b"".join(n(i) for i in range(len(extents))) + attributes + tag(5)
    offset = 4 if version == 1 else 8
    begin = len(out) + len(n(0)) + offset
    return out + n(12) + begin.to_bytes(offset, "big") + struct.pack(f">{cells}f", *range(cells))


def netcdf3_claims(boundaries):
    for version in (1, 2, 5):
        base = netcdf3_file(version)
        for at in range(4, len(base) - 24, 4):
            for width in (4, 8):
                original = int.from_bytes(base[at : at + width], "big")
                for value in boundaries(len(base), original, width):
                    changed = base[:at] + value.to_bytes(width, "big") + base[at + width :]
                    yield f"netcdf3 v{version} {at}:{width}={value}", ".nc", changed


# HDF5: integers have no fixed places, so every offset of a file is one. Checksums are recomputed.

def lookup3(data):
    """The checksum of HDF5 structures."""
    mask = 0xFFFFFFFF
    rotate = lambda x, k: (x << k | x >> (32 - k)) & mask
    a = b = c = (0xDEADBEEF + len(data)) & mask
    at = 0
    word = lambda i: int.from_bytes(data[at + i : at + i + 4], "little")
    while len(data) - at > 12:
        a, b, c = (a + word(0)) & mask, (b + word(4)) & mask, (c + word(8)) & mask
        a = (a - c) & mask ^ rotate(c, 4); c = (c + b) & mask
        b = (b - a) & mask ^ rotate(a, 6); a = (a + c) & mask
        c = (c - b) & mask ^ rotate(b, 8); b = (b + a) & mask
        a = (a - c) & mask ^ rotate(c, 16); c = (c + b) & mask
        b = (b - a) & mask ^ rotate(a, 19); a = (a + c) & mask
        c = (c - b) & mask ^ rotate(b, 4); b = (b + a) & mask
        at += 12
    if at == len(data):
        return c
    a, b, c = (a + word(0)) & mask, (b + word(4)) & mask, (c + word(8)) & mask
    c = ((c ^ b) - rotate(b, 14)) & mask
    a = ((a ^ c) - rotate(c, 11)) & mask
    b = ((b ^ a) - rotate(a, 25)) & mask
    c = ((c ^ b) - rotate(b, 16)) & mask
    a = ((a ^ c) - rotate(c, 4)) & mask
    b = ((b ^ a) - rotate(a, 14)) & mask
    return ((c ^ b) - rotate(b, 24)) & mask


SIGNATURES = (b"\x89HDF", b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"FHIB", b"BTHD", b"BTIN", b"BTLF", b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB",
              b"EADB", b"SMTB", b"SMLI", b"FSHD", b"FSSE")
#: Structures longer than this keep a wrong checksum.
LONGEST = 700


def checksums(data):
    """Structures that end with a checksum: start and the position of the checksum."""
    found = []
    for signature in SIGNATURES:
        at = data.find(signature)
        while at >= 0:
            for end in range(at + 4, min(at + LONGEST, len(data) - 3)):
                if int.from_bytes(data[end : end + 4], "little") == lookup3(data[at:end]):
                    found.append((at, end))
                    break
            at = data.find(signature, at + 1)
    return found


class Hdf5Claims(Sequence):
    """Every offset of a file, for two widths, at some boundary values; generated on demand."""

    def __init__(self, path):
        self.name, self.data = path.name, path.read_bytes()
        self.sums = None
        self.each = 2 * len(VALUES)

    def __len__(self):
        return (len(self.data) - 8) * self.each

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        if self.sums is None:
            self.sums = checksums(self.data)
        at, case = divmod(number, self.each)
        width, value = (4, 8)[case % 2], VALUES[case // 2](len(self.data))
        changed = bytearray(self.data)
        changed[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
        for start, end in self.sums:
            if start <= at < end:
                changed[end : end + 4] = lookup3(bytes(changed[start:end])).to_bytes(4, "little")
        return f"hdf5 {self.name} {at}:{width}={value}", ".h5", bytes(changed)


#: Boundary values, by the length of the file.
VALUES = [*(lambda _, v=v: v for v in (0, 1, 255, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**40, 2**63, 2**64 - 1)),
          lambda n: n - 1, lambda n: n, lambda n: n // 2]


class Joined(Sequence):
    """Several sequences as one."""

    def __init__(self, *parts):
        self.parts = parts

    def __len__(self):
        return sum(map(len, self.parts))

    def __getitem__(self, number):
        for part in self.parts:
            if number < len(part):
                return part[number]
            number -= len(part)
        raise IndexError


def hdf5_claims():
    return Joined(*(Hdf5Claims(FIXTURES / name) for name in ("earliest.h5", "latest.h5", "netcdf4.nc")))


#: Small files with compound types, made by the reference.
COMPOUND = r"""
import sys, numpy as np, h5py
out = sys.argv[1]
inner = np.dtype([("x", "f4"), ("y", "i2")])
kinds = np.dtype([("number", "<i4"), ("wide", ">f8"), ("text", "S5"), ("pair", inner), ("row", "f4", (2, 3))])
for libver in ("earliest", "latest"):
    with h5py.File(f"{out}/compound-{libver}.h5", "w", libver=libver) as f:
        f["a"] = np.zeros(6, kinds)
        f.create_dataset("b", data=np.zeros(8, inner), chunks=(4,), compression="gzip")
        f["a"].attrs["one"] = np.zeros(1, inner)
"""


def compound_claims(folder):
    """Claims of files with compound types; none where the reference is missing."""
    if not PYTHON.exists():
        return []
    run(PYTHON, "-c", COMPOUND, folder)
    return [Hdf5Claims(path) for path in sorted(folder.glob("compound-*.h5"))]


#: Files of HDF5 that the reference writes, each of at most 1 MiB: name and how it is made in `f`.
HDF5 = r"""
import sys, numpy as np, h5py
out = sys.argv[1]
def put(name, libver="earliest", **more):
    def made(make):
        with h5py.File(f"{out}/{name}.h5", "w", libver=libver, **more) as f:
            make(f)
    return made
put("unwritten")(lambda f: f.create_dataset("a", (2**40,), "f4"))
for libver in ("earliest", "latest"):
    put(f"cells-{libver}", libver)(lambda f: f.create_dataset("a", (2**40,), "f4", chunks=(1,)))
    put(f"chunk-{libver}", libver)(lambda f: f.create_dataset("a", (2**28,), "f4", chunks=(2**28,), compression="gzip"))
    @put(f"bomb-{libver}", libver)
    def _(f):
        made = f.create_dataset("a", (2**25,), "f4", chunks=(2**25,), compression="gzip", compression_opts=1)
        made[...] = 0
    @put(f"chunks-{libver}", libver)
    def _(f):
        f.create_dataset("a", (9000,), "f8", chunks=(1,), maxshape=(None,))[...] = 1
    @put(f"grid-{libver}", libver)
    def _(f):
        made = f.create_dataset("a", (2**20, 2**20), "f4", chunks=(2, 2), maxshape=(None, None))
        made[::2**15, ::2**15] = 1
    @put(f"datasets-{libver}", libver)
    def _(f):
        for i in range(1500):
            f.create_dataset(f"d{i}", (2,), "f4")
    @put(f"groups-{libver}", libver)
    def _(f):
        for i in range(700):
            f.create_group(f"g{i}")
    @put(f"deep-{libver}", libver)
    def _(f):
        for i in range(500):
            f = f.create_group("g")
    @put(f"links-{libver}", libver)
    def _(f):
        f["a"] = np.arange(4)
        for i in range(9000):
            f[f"l{i}"] = f["a"]
    @put(f"attributes-{libver}", libver, track_order=libver == "latest")
    def _(f):
        d = f.create_dataset("a", (4,), "f4")
        for i in range(1000 if libver == "earliest" else 6000):
            d.attrs[f"k{i}"] = i
    @put(f"linked-{libver}", libver)
    def _(f):
        d = f.create_dataset("a", (4,), "f4")
        for i in range(300):
            d.attrs[f"k{i}"] = "x" * 100
        for i in range(5000):
            f[f"l{i}"] = d
put("scalar")(lambda f: f.create_dataset("a", data=np.zeros(250_000, "u1")))
nested = np.dtype("u1")
for _ in range(60):
    nested = np.dtype([("n", nested)])
for libver in ("earliest", "latest"):
    members = np.dtype([(f"m{i}", "u1") for i in range(1200)])
    put(f"members-{libver}", libver)(lambda f: f.create_dataset("a", (4,), members))
    put(f"nested-{libver}", libver)(lambda f: f.create_dataset("a", (4,), nested))
    put(f"arrays-{libver}", libver)(lambda f: f.create_dataset("a", (2**40,), np.dtype([("m", "u1", (2**16, 2**10))]), chunks=(1,)))
    @put(f"compounds-{libver}", libver)
    def _(f):
        f.create_dataset("a", (2**22,), np.dtype([("x", "f8"), ("y", "f8")]), chunks=(2**22,), compression="gzip")[...] = 0
    @put(f"member-sets-{libver}", libver)
    def _(f):
        for i in range(24):
            f.create_dataset(f"d{i}", (2,), np.dtype([(f"m{j}", "u1") for j in range(800)]))
# References that all point to one long text.
with h5py.File(f"{out}/texts.h5", "w") as f:
    d = f.create_dataset("a", (50_000,), h5py.string_dtype())
    d[0] = "x" * 60_000
    offset = d.id.get_offset()
data = bytearray(open(f"{out}/texts.h5", "rb").read())
data[offset : offset + 16 * 50_000] = data[offset : offset + 16] * 50_000
open(f"{out}/texts.h5", "wb").write(data)
# Datasets that each map their only cell many times to the one before.
for many in (30, 100, 400):
    with h5py.File(f"{out}/mapped-{many}.h5", "w", libver="latest") as f:
        f["d0"] = np.zeros(1, "u1")
        for level in range(1, 4):
            layout = h5py.VirtualLayout((1,), "u1")
            for _ in range(many):
                layout[0:1] = h5py.VirtualSource(".", f"d{level - 1}", (1,))
            f.create_virtual_dataset("a" if level == 3 else f"d{level}", layout)
# Chunks that all are at one place.
with h5py.File(f"{out}/shared.h5", "w", libver="latest") as f:
    d = f.create_dataset("a", (2**20 * 2000,), "u1", chunks=(2**20,), compression="gzip", compression_opts=9)
    d[: 2**20] = 0
    d[2**20 : 2**21] = 0
"""


def crafted_hdf5(folder):
    """Files of at most 1 MiB that the reference wrote; none where it is missing."""
    if not PYTHON.exists():
        return
    folder.mkdir()
    run(PYTHON, "-c", HDF5, folder)
    for path in sorted(folder.iterdir()):
        if path.stat().st_size <= MIB:
            yield path.stem, ".h5", path.read_bytes()


# Zarr: folders of JSON documents and chunks.

def zarr3(shape, chunk, codecs, dtype="float32", **more):
    return {"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": 0, "attributes": {},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs, **more}


def zarr2(shape, chunk, compressor, dtype="<f4"):
    return {"zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": dtype, "compressor": compressor, "fill_value": 0, "order": "C", "filters": None}


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 5}}


def gzipped(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def shard(inner, count):
    """A shard of equal inner chunks, and its index at the end."""
    index = b"".join(struct.pack("<QQ", 0, len(inner)) for _ in range(count))
    return inner + index


def document(content):
    return json.dumps(content).encode()


def zarr_samples():
    """Metadata document by name, and the other files."""
    cells = struct.pack("<12f", *range(12))
    yield "v3", "zarr.json", zarr3([4, 6], [4, 3], [BYTES]), {"c/0/0": cells, "c/0/1": cells}
    yield "v3 gzip", "zarr.json", zarr3([4, 6], [4, 3], [BYTES, GZIP]), {"c/0/0": gzipped(cells), "c/0/1": gzipped(cells)}
    sharding = {"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2, 3], "codecs": [BYTES], "index_codecs": [BYTES], "index_location": "end"}}
    yield "v3 shard", "zarr.json", zarr3([4, 6], [4, 6], [sharding]), {"c/0/0": shard(cells[:24], 4)}
    yield "v2", ".zarray", zarr2([4, 6], [4, 3], None), {"0.0": cells, "0.1": cells}
    yield "v2 zlib", ".zarray", zarr2([4, 6], [4, 3], {"id": "zlib", "level": 1}), {"0.0": zlib.compress(cells), "0.1": zlib.compress(cells)}


def zarr_claims(boundaries, integers, changed):
    for name, key, metadata, files in zarr_samples():
        for path, original in integers(metadata):
            for value in boundaries(48, original, 8):
                content = {**files, key: document(changed(metadata, path, value))}
                yield f"zarr {name} {'.'.join(map(str, path))}={value}", ".zarr", content
    # The index of a shard.
    name, key, metadata, files = next(s for s in zarr_samples() if s[0] == "v3 shard")
    whole = files["c/0/0"]
    for at in range(len(whole) - 64, len(whole), 8):
        for value in boundaries(len(whole), -1, 8):
            content = {key: document(metadata), "c/0/0": whole[:at] + value.to_bytes(8, "little") + whole[at + 8 :]}
            yield f"zarr {name} index {at}={value}", ".zarr", content


def crafted_zarr():
    yield "unwritten", ".zarr", {"zarr.json": document(zarr3([2**40, 2**20], [1, 1], [BYTES]))}
    yield "absent_chunk", ".zarr", {"zarr.json": document(zarr3([2**40], [2**40], [BYTES]))}
    bomb = gzipped(bytes(2**27))
    yield "bomb", ".zarr", {"zarr.json": document(zarr3([2**25], [2**25], [BYTES, GZIP])), "c/0": bomb}
    yield "bomb", ".zarr", {".zarray": document(zarr2([2**25], [2**25], {"id": "gzip", "level": 5})), "0": bomb}
    sharding = {"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1], "codecs": [BYTES], "index_codecs": [BYTES], "index_location": "end"}}
    yield "shard", ".zarr", {"zarr.json": document(zarr3([60_000], [60_000], [sharding])), "c/0": shard(bytes(4), 60_000)}
    yield "shard claims", ".zarr", {"zarr.json": document(zarr3([2**40], [2**40], [sharding])), "c/0": shard(bytes(4), 100)}
    array = document(zarr3([2], [2], [BYTES]))
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    yield "arrays", ".zarr", {"zarr.json": document(group), **{f"a{i}/zarr.json": array for i in range(1500)}}
    listed = {f"a{i}": zarr3([2], [2], [BYTES]) for i in range(2500)}
    yield "consolidated", ".zarr", {"zarr.json": document({**group, "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": listed}})}
    yield "attributes", ".zarr", {"zarr.json": document({**group, "attributes": {f"k{i}": i for i in range(60_000)}})}
    nested = {}
    for _ in range(200):
        nested = {"n": nested}
    yield "deep", ".zarr", {"zarr.json": document({**group, "attributes": nested})}
    yield "names", ".zarr", {"zarr.json": document({**zarr3([2] * 32, [1] * 32, [BYTES])})}
    yield "codecs", ".zarr", {"zarr.json": document(zarr3([2], [2], [BYTES] + [GZIP] * 10_000)), "c/0": bytes(8)}


def crafted_netcdf3():
    yield "records", ".nc", netcdf3_file(1, 2**31 - 1)
    yield "cells", ".nc", netcdf3_file(5, 2**40, (0, 2**20))
    yield "fixed", ".nc", netcdf3_file(5, 0, (2**30, 2**30))
    yield "attribute", ".nc", netcdf3_file(1, attribute=b"x" * 450_000)
    n = lambda value: struct.pack(">I", value)
    dims = n(10) + n(60_000) + b"".join(n(4) + b"%04x" % i + n(1) for i in range(60_000))
    yield "dimensions", ".nc", b"CDF\1" + n(0) + dims + bytes(16)
    variables = b"".join(n(4) + b"%04x" % i + n(0) + bytes(8) + n(5) + n(4) + n(40 + 44) for i in range(20_000))
    yield "variables", ".nc", b"CDF\1" + n(0) + bytes(16) + n(11) + n(20_000) + variables + bytes(64)
    many = n(12) + n(50_000) + b"".join(n(4) + b"%04x" % i + n(4) + n(1) + n(7) for i in range(50_000))
    yield "attributes", ".nc", b"CDF\1" + n(0) + bytes(8) + many + bytes(8)
