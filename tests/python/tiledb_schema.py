"""Schemas of older format versions, byte by byte: the reference package writes only its own version, and reads them all."""

import struct

ZSTD, RLE, VAR = 2, 4, 0xFFFFFFFF
TYPES = {"int32": (0, "<i", -(2**31)), "int64": (1, "<q", -(2**63)), "float64": (3, "<d", float("nan")), "ascii": (11, "B", 0)}


def pipeline(*compressors):
    out = struct.pack("<II", 65536, len(compressors))
    return out + b"".join(struct.pack("<BIBi", kind, 5, kind, -1) for kind in compressors)


def text(name):
    return struct.pack("<I", len(name)) + name.encode()


def dimension(name, dtype, low, high, tile):
    number, form, _ = TYPES[dtype]
    ends = struct.pack(form, low) + struct.pack(form, high)
    return text(name) + struct.pack("<BI", number, 1) + pipeline() + struct.pack("<Q", len(ends)) + ends + b"\0" + struct.pack(form, tile)


def attribute(version, name, dtype, nullable, *compressors):
    number, form, fill = TYPES[dtype]
    fill = struct.pack(form, fill)
    out = text(name) + struct.pack("<BI", number, VAR if dtype == "ascii" else 1) + pipeline(*compressors)
    out += struct.pack("<Q", len(fill)) + fill + bytes([nullable, 0])
    return out + (b"\0" if version >= 17 else b"") + (struct.pack("<I", 0) if version >= 20 else b"")


def schema(version, sparse, duplicates, dims, attributes):
    out = struct.pack("<IBBBBQ", version, duplicates, sparse, 0, 0, 7 if sparse else 10000)
    out += pipeline(ZSTD) + pipeline(ZSTD) + pipeline(RLE)
    out += struct.pack("<I", len(dims)) + b"".join(dimension(*d) for d in dims)
    out += struct.pack("<I", len(attributes)) + b"".join(attribute(version, *a) for a in attributes)
    for since in (18, 20):
        out += struct.pack("<I", 0) if version >= since else b""
    return out + (struct.pack("<IB", 0, 1) if version >= 22 else b"")


def generic_tile(version, payload):
    filtered = struct.pack("<QIII", 1, len(payload), len(payload), 0) + payload
    empty = pipeline()
    head = struct.pack("<IQQBQBI", version, len(filtered), len(payload), 4, 1, 0, len(empty))
    return head + empty + filtered


def create(folder, version, sparse=False, duplicates=False, dims=(), attributes=()):
    """An empty array of a given version."""
    for name in ("__schema", "__fragments", "__commits", "__fragment_meta", "__meta"):
        (folder / name).mkdir(parents=True)
    payload = schema(version, sparse, duplicates, dims, attributes)
    (folder / "__schema" / f"__1_1_{'0' * 31}1").write_bytes(generic_tile(version, payload))
