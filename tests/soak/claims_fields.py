"""Sizes that GRIB, CSV and index files claim: integers at boundary values, and files made by hand."""

import random
import struct
import subprocess
from collections.abc import Sequence

from claims_interchange import VALUES, netcdf3_file
from common import PYTHON, ROOT, tet

MIB = 1 << 20


class ByteClaims(Sequence):
    """Every offset of a file, for some widths, at boundary values; generated on demand."""

    def __init__(self, name, ending, data, widths, order, start=0, sealed=lambda changed: changed):
        self.name, self.ending, self.data, self.widths, self.order = name, ending, data, widths, order
        self.start, self.sealed, self.each = start, sealed, len(widths) * len(VALUES)

    def __len__(self):
        return (len(self.data) - self.start) * self.each

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        at, case = divmod(number, self.each)
        at, width = at + self.start, self.widths[case % len(self.widths)]
        value = VALUES[case // len(self.widths)](len(self.data)) % (1 << 8 * width)
        changed = bytearray(self.data)
        part = value.to_bytes(width, self.order)[: len(changed) - at]
        changed[at : at + len(part)] = part
        return f"{self.name} {at}:{width}={value}", self.ending, bytes(self.sealed(changed))


# GRIB: big-endian integers of one to eight bytes, without checksums.

def grib_claims():
    files = sorted((ROOT / "fixtures/grib").glob("*.grib"))
    return [ByteClaims(f"grib {path.stem}", ".grib", path.read_bytes(), (1, 2, 3, 4, 8), "big") for path in files]


def grib2(*sections):
    """A message of edition 2."""
    body = b"".join(struct.pack(">IB", 5 + len(content), number) + content for number, content in sections)
    return b"GRIB\0\0\0\2" + struct.pack(">Q", 20 + len(body)) + body + b"7777"


def grib_field(columns, rows, bits=0, data=b"", template=0, points=None, step=0, parameter=(0, 0), more=b""):
    """A field on a regular grid; without bits it is constant."""
    grid = bytearray(67)
    struct.pack_into(">IB", grid, 1, points if points is not None else min(columns * rows, 2**32 - 1), 0)
    struct.pack_into(">II", grid, 25, columns, rows)
    product = bytearray(29)
    product[4:6] = parameter
    product[18] = 1
    struct.pack_into(">I", product, 13, step)
    product[24] = 255
    packing = struct.pack(">IHfhhBB", points if points is not None else min(columns * rows, 2**32 - 1), template, 1.5, 0, 0, bits, 0) + more
    identification = bytes([0, 98, 0, 0, 30, 0, 1]) + struct.pack(">HBBBBB", 2020, 1, 1, 0, 0, 0) + b"\0\1"
    return grib2((1, identification), (3, bytes(grid)), (4, bytes(product)), (5, packing), (6, b"\xff"), (7, data))


#: Large fields of few different values in every packing, just within the limit of a chunk and beyond it.
GRIB = r"""
import sys, numpy as np, eccodes
out = sys.argv[1]
for rows in (1000, 1450, 2000):
    values = np.zeros(2000 * rows)
    values[::200_000], values[5] = 1, 60_000
    for packing in ("grid_jpeg", "grid_png", "grid_ccsds", "grid_complex", "grid_complex_spatial_differencing"):
        handle = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
        for key, value in (("Ni", 2000), ("Nj", rows), ("iDirectionIncrementInDegrees", 0.18), ("jDirectionIncrementInDegrees", 180 / rows),
                           ("packingType", packing), ("bitsPerValue", 16)):
            eccodes.codes_set(handle, key, value)
        eccodes.codes_set_values(handle, values)
        open(f"{out}/{packing}-{rows}.grib", "wb").write(eccodes.codes_get_message(handle))
"""


def written_grib(folder):
    """Files that the reference wrote; none where it is missing."""
    if not PYTHON.exists():
        return
    made = folder / "grib"
    made.mkdir()
    run(PYTHON, "-c", GRIB, made)
    for path in sorted(made.iterdir()):
        yield path.stem, ".grib", path.read_bytes()


def crafted_grib():
    yield "constant", ".grib", grib_field(2**16, 2**15)
    yield "constant, most points", ".grib", grib_field(2**31, 2**31, points=2**32 - 1)
    yield "points without bytes", ".grib", grib_field(2**16, 2**15, bits=8, data=bytes(64))
    yield "bits of nothing", ".grib", grib_field(4, 4, bits=255, data=bytes(64))
    for template in (2, 3, 40, 41, 42, 4):
        yield f"template {template}", ".grib", grib_field(2**14, 2**14, bits=16, data=bytes(200), template=template, more=bytes(60))
    one = grib_field(2, 2)
    yield "messages", ".grib", one * (MIB // len(one))
    steps = [grib_field(2, 2, step=i) for i in range(MIB // len(one))]
    yield "steps", ".grib", b"".join(steps)
    large = [grib_field(2**12, 2**11, step=i) for i in range(MIB // len(one))]
    yield "large constant steps", ".grib", b"".join(large)
    yield "grids", ".grib", b"".join(grib_field(2 + i % 977, 1 + i // 977) for i in range(MIB // len(one)))
    yield "parameters", ".grib", b"".join(grib_field(2, 2, parameter=(i >> 8, i & 255)) for i in range(MIB // len(one)))
    yield "no messages", ".grib", b"GRIB" * (MIB // 4)
    yield "long message", ".grib", b"GRIB\0\0\0\2" + struct.pack(">Q", 2**63) + bytes(1000) + b"7777"
    sections = [(1, bytes(16))] + [(4, bytes(29))] * 20_000
    yield "sections", ".grib", grib2(*sections)
    # Second-order packing of edition 1: groups of no values, and of one each, whose descriptions have no bits.
    for name, columns, groups in (("empty groups", 4, 2**24 - 1), ("many groups", 2**11, 2**22)):
        yield name, ".grib", grib1(columns, columns, groups) * (1 if columns > 4 else 2000)


def grib1(columns, rows, groups):
    """A field of edition 1 in the general extended form of second-order packing."""
    grid = bytearray(25)
    grid[0], grid[1] = 0, 255
    struct.pack_into(">HH", grid, 3, columns, rows)
    data = bytearray(25 - 3)
    # Flags, scale, reference, bits; octets 12 to 25.
    struct.pack_into(">BHIB", data, 0, 0x50, 0, 0x41100000, 0)
    data[10] = 0x18
    struct.pack_into(">H", data, 13, groups & 0xFFFF)
    data[17] = groups >> 16
    product = bytes([0, 0, 28, 2, 98, 1, 255, 128, 11, 1, 0, 0, 20, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0])[3:]
    section = lambda body: struct.pack(">I", 3 + len(body))[1:] + bytes(body)
    body = section(product) + section(grid + bytes(4)) + section(data)
    return b"GRIB" + struct.pack(">I", 8 + len(body) + 4)[1:] + b"\x01" + body + b"7777"


# CSV: no integers but those of the cells.

def crafted_csv():
    text = {
        "one row": b"1," * (MIB // 2 - 1) + b"1",
        "names": b",".join(b"c%d" % i for i in range(120_000)) + b"\n",
        "names and a row": b",".join(b"c%d" % i for i in range(60_000)) + b"\n" + b",".join([b"7"] * 60_000) + b"\n",
        "equal names": b"a," * 60_000 + b"a\n" + b"1," * 60_000 + b"1\n",
        "rows": b"a\n" + b"1\n" * (MIB // 2 - 1),
        "empty rows": b"a\n" + b"\n" * (MIB - 2),
        "long cell": b"a\n" + b"x" * (MIB - 2),
        "long quoted cell": b'a\n"' + b'""' * (MIB // 2 - 3) + b'"',
        "open quotes": b'a\n' + b'"\n' * (MIB // 2 - 1),
        "long number": b"a\n1" + b"0" * (MIB - 3),
        "long fraction": b"a\n0." + b"1" * (MIB - 4),
        "exponents": b"a\n" + b"1e999999999\n" * 80_000,
        "texts": b"a\n" + b"".join(b"t%d\n" % i for i in range(130_000)),
        "late text": b"a\n" + b"1\n" * 500_000 + b"t\n",
        "dates": b"a\n" + b"9999-12-31T23:59:59.999999999\n" * 34_000,
        "one long text": b"a\n" + b"x\n" * 100_000 + b"y" * 800_000,
        "coordinates": b"lat,lon,v\n" + b"".join(b"%d,%d,1\n" % (i * 7, i * 13) for i in range(50_000)),
        "bytes": b"a\n" + random.Random(1).randbytes(MIB - 2),
    }
    for name, content in text.items():
        yield name, ".csv", content[:MIB]


def csv_claims():
    base = b"time,lat,v\n2020-01-01,10,1.5\n2020-01-02,20,2.5\n"
    return [ByteClaims("csv", ".csv", base, (1, 2, 4), "little")]


# Indexes: little-endian integers, with digests that are recomputed.

#: Digests of what is written to it, one line of hexadecimal digits each.
DIGESTS = "import sys, xxhash\nfor line in sys.stdin: print(xxhash.xxh3_64_intdigest(bytes.fromhex(line)), flush=True)"
HEADER, ENTRY = 64, 24


class Seal:
    """Makes the digests of an index right again."""

    def __init__(self):
        self.process = subprocess.Popen([PYTHON, "-c", DIGESTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def digest(self, data):
        print(bytes(data).hex(), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def __call__(self, changed):
        entries, metadata = struct.unpack_from("<QQ", changed, 16)
        end = min(HEADER + ENTRY * entries, len(changed))
        struct.pack_into("<QQ", changed, 32, self.digest(changed[HEADER:end]), self.digest(changed[end : end + metadata]))
        struct.pack_into("<Q", changed, 56, self.digest(changed[:56]))
        return changed


def index_claims(folder):
    """An index of two small files, which stay next to it; none where the digests cannot be computed."""
    if not PYTHON.exists():
        return []
    sources = [folder / "first.nc", folder / "second.nc"]
    for source in sources:
        source.write_bytes(netcdf3_file(1))
    made = []
    for name, command in (("joined", ["mosaic", folder / "joined.tix", *sources, "--new", "run"]), ("one", ["index", folder / "one.tix", sources[0]])):
        path = folder / f"{name}.tix"
        tet(*command)
        made.append(ByteClaims(f"index {name}", ".tix", path.read_bytes(), (4, 8), "little", 8, Seal()))
    return made


def crafted_index(folder):
    if not PYTHON.exists():
        return
    seal = Seal()
    sealed = lambda entries, metadata: bytes(seal(bytearray(
        b"\x89TIX\r\n\x1a\n" + struct.pack("<IIQQQQQQ", 1, 0, len(entries) // ENTRY, len(metadata), 0, 0, 0, 0) + entries + metadata)))
    count = lambda n: struct.pack("<I", n)
    yield "sources", ".tix", sealed(b"", count(2**32 - 1))
    yield "arrays", ".tix", sealed(b"", count(0) + count(0) + count(2**32 - 1))
    text = lambda word: count(len(word)) + word
    files = b"".join(text(b"%d.nc" % i) + text(b"netcdf3") + struct.pack("<Qq", 2**64 - 1, -(2**63)) for i in range(20_000))
    yield "many sources", ".tix", sealed(b"", count(20_000) + files + count(0) + count(0) + count(0) + count(0))
    yield "many entries", ".tix", sealed(bytes(ENTRY) * 40_000, count(0) * 5)
    # An index that is its own source.
    size = 0
    for _ in range(2):
        source = count(1) + text(b"case.tix") + text(b"index") + struct.pack("<Qq", size, -(2**63))
        form = count(1) + text(b"index") + text(b"a") + b"\x02" + count(0) + count(0)
        array = count(1) + text(b"a") + text(b"a") + text(b"float32") + b"\0" + count(1) + b"\0\0" + count(0) + count(1) + text(b"x") + struct.pack("<Q", 4)
        array += count(1) + struct.pack("<Q", 4) + count(0) + count(2**32 - 1) + b"\0" + count(1) + struct.pack("<IIQQQ", 0, 0, 0, 1, 0)
        itself = sealed(b"", source + form + array + count(0) + count(0))
        size = len(itself)
    yield "itself", ".tix", itself
    nested = text(b"a") + b"\x08" + b"".join(count(1) + b"\x08" for _ in range(100_000))
    yield "nested attributes", ".tix", sealed(b"", count(0) * 3 + count(1) + nested)
