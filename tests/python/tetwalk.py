"""An independent check of `.tet` files: a walk over every region, written from docs/formats/tet.md alone.

It shares no code with the crates and holds files to the letter of the format, where readers are lenient.
"""

import fractions
import itertools
import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xxhash

DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "<i8", 5: "u1", 6: "<u2", 7: "<i2", 8: "<u4", 9: "<f2", 10: "<u8"}


def align8(n):
    return (n + 7) & ~7


@dataclass
class Dataset:
    name: str
    dtype: np.dtype
    shape: tuple
    chunk_shape: tuple

    def grid(self):
        return [-(-n // c) for n, c in zip(self.shape, self.chunk_shape)]

    def tile(self, coords):
        return tuple(
            slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(coords, self.chunk_shape, self.shape)
        )


@dataclass
class Row:
    dataset: int
    coords: tuple
    offset: int
    raw: int
    stored: int
    codec: int


@dataclass
class Walked:
    data: bytes
    datasets: list = field(default_factory=list)
    rows: list = field(default_factory=list)
    budget: tuple = (0, 0)
    footer: dict | None = None
    footer_version: int | None = None
    digests: list | None = None
    #: Names and ends of the regions in file order.
    regions: list = field(default_factory=list)

    def metadata(self):
        footer = self.footer or {}
        if "metadata_ref" in footer:
            return json.loads(self.region(footer["metadata_ref"]))
        return footer.get("metadata", {})

    def of(self, name):
        return self.metadata().get("datasets", {}).get(name, {})

    def region(self, ref):
        return self.data[ref["offset"] : ref["offset"] + ref["len"]]

    def payload(self, row):
        return self.data[row.offset : row.offset + row.stored]

    def array(self, name):
        """The cells of a raw dataset, assembled from its payloads; None when some chunk is compressed."""
        number = next(i for i, d in enumerate(self.datasets) if d.name == name)
        dataset = self.datasets[number]
        out = np.empty(dataset.shape, dataset.dtype)
        for row in self.rows:
            if row.dataset != number:
                continue
            if row.codec != 0:
                return None
            tile = dataset.tile(row.coords)
            out[tile] = np.frombuffer(self.payload(row), dataset.dtype).reshape(out[tile].shape)
        return out


def walk(path):
    """Walk a file of one of the writers and assert its invariants."""
    data = Path(path).read_bytes()
    out = Walked(data)
    assert data[:4] == b"TETR"
    version, count, flags, index_at, index_len = struct.unpack("<IIIQQ", data[4:32])
    assert version == 1 and flags in (0, 1)
    end = 32
    if count:
        (blob_len,) = struct.unpack("<Q", data[32:40])
        at = 40
        for _ in range(count):
            at = _record(data, at, out)
        assert at == 40 + blob_len
        assert index_at == align8(at) and not any(data[at:index_at])
        assert data[index_at : index_at + 4] == b"TIDX"
        version, n, bps, zero, fixed, zeros = struct.unpack("<IQHHIQ", data[index_at + 4 : index_at + 32])
        assert version == 1 and zero == zeros == 0 and index_len == 32 + 104 * n
        out.budget = (bps, fixed)
        for i in range(n):
            _row(data, index_at + 32 + 104 * i, out)
        end = index_at + index_len
        _payloads(out, end)
        end = max([end, *(row.offset + row.stored for row in out.rows)])
    else:
        assert (index_at, index_len) == (32, 0)
    out.regions.append(("payloads", end))
    if flags:
        _footer(data, out, end, index_at + index_len)
    else:
        assert len(data) == end
    return out


def _record(data, at, out):
    name_len, tag, rank, reserved = struct.unpack("<IIII", data[at : at + 16])
    assert reserved == 0 and 1 <= rank <= 8
    name = data[at + 16 : at + 16 + name_len].decode()
    shape_at = at + align8(16 + name_len)
    assert not any(data[at + 16 + name_len : shape_at])
    numbers = struct.unpack(f"<{2 * rank}Q", data[shape_at : shape_at + 16 * rank])
    shape, chunk = numbers[:rank], numbers[rank:]
    assert 0 not in chunk
    out.datasets.append(Dataset(name, np.dtype(DTYPES[tag]), shape, chunk))
    return shape_at + 16 * rank


def _row(data, at, out):
    dataset, *coords, offset, raw, stored, codec, zero = struct.unpack("<Q8QQQQII", data[at : at + 104])
    assert zero == 0 and codec in (0, 1)
    rank = len(out.datasets[dataset].shape)
    assert not any(coords[rank:])
    out.rows.append(Row(dataset, tuple(coords[:rank]), offset, raw, stored, codec))


def _payloads(out, start):
    """Rows in canonical order, one for each chunk of each grid, payloads without gap or overlap."""
    want = [
        (i, coords) for i, d in enumerate(out.datasets) for coords in itertools.product(*map(range, d.grid()))
    ]
    assert [(row.dataset, row.coords) for row in out.rows] == want
    for row in out.rows:
        dataset = out.datasets[row.dataset]
        cells = math.prod(s.stop - s.start for s in dataset.tile(row.coords))
        assert row.raw == cells * dataset.dtype.itemsize
        assert row.codec == 1 or row.stored == row.raw
    placed = sorted(out.rows, key=lambda row: (row.offset, row.stored))
    for row in placed:
        assert row.offset == start, "payloads abut"
        start += row.stored


def _footer(data, out, end, catalog_end):
    assert data[-4:] == b"THST"
    json_len, version = struct.unpack("<QI", data[-16:-4])
    at = len(data) - 16 - json_len
    text = data[at:-16].decode()
    out.footer_version, out.footer = version, json.loads(text)
    footer = out.footer
    compact = json.dumps(footer, separators=(",", ":"), ensure_ascii=False)
    assert text == compact, "compact, nothing escaped that need not be, keys once"
    assert len(text.encode()) <= 65536
    order = ["history", "metadata", "metadata_ref", "zone_maps_ref", "secondary_index_ref", "digests_ref"]
    assert list(footer) == [key for key in order if key in footer] and "history" in footer
    assert not ("metadata" in footer and "metadata_ref" in footer)
    assert version == (2 if "zone_maps_ref" in footer else 1)
    if "digests_ref" in footer:
        ref = footer["digests_ref"]
        assert ref["offset"] == align8(end) and not any(data[end : ref["offset"]])
        out.digests = _digests(out, out.region(ref), data[32:catalog_end])
        end = ref["offset"] + ref["len"]
        out.regions.append(("digests", end))
    start = align8(end)
    if data[start : start + 4] == b"TSTA":
        assert not any(data[end:start])
        length = _statistics(out, start, data[32:catalog_end])
        if "digests_ref" in footer:
            stored = int(footer["digests_ref"]["statistics"], 16)
            assert stored == xxhash.xxh3_64_intdigest(data[start : start + length])
        end = start + length
        out.regions.append(("statistics", end))
    for key in ("zone_maps_ref", "secondary_index_ref", "metadata_ref"):
        if key in footer:
            assert list(footer[key]) == ["offset", "len"] and footer[key]["offset"] == end
            end += footer[key]["len"]
            out.regions.append((key, end))
    assert end == at, "nothing lies between the regions"
    if "zone_maps_ref" in footer:
        _zone_maps(out)


def _digests(out, region, catalog):
    magic, version, algorithm, block, n, over_catalog = struct.unpack("<4sIIIQQ", region[:32])
    assert (magic, algorithm, n) == (b"TDIG", 1, len(out.rows))
    assert over_catalog == xxhash.xxh3_64_intdigest(catalog)
    payloads = [out.payload(row) for row in out.rows]
    if version == 1:
        assert (block, len(region)) == (0, 40 + 8 * n)
        digests = struct.unpack(f"<{n}Q", region[32:-8])
        end, first, table = len(region) - 8, [None] * n, []
    else:
        (m,) = struct.unpack("<Q", region[32:40])
        end = 40 + 16 * n
        assert (version, len(region)) == (2, end + 8 + 8 * m) and block >= 4096 and m > 0
        pairs = struct.unpack(f"<{2 * n}Q", region[40:end])
        digests, first = pairs[::2], [None if at == 2**64 - 1 else at for at in pairs[1::2]]
        table = struct.unpack(f"<{m}Q", region[end + 8 :])
    assert struct.unpack("<Q", region[end : end + 8]) == (xxhash.xxh3_64_intdigest(region[:end]),)
    used = 0
    for payload, row, digest, at in zip(payloads, out.rows, digests, first):
        if at is None:
            assert digest == xxhash.xxh3_64_intdigest(payload)
            continue
        blocks = [xxhash.xxh3_64_intdigest(payload[i : i + block]) for i in range(0, len(payload), block)]
        assert len(blocks) > 1 and at == used and list(table[at : at + len(blocks)]) == blocks
        assert digest == xxhash.xxh3_64_intdigest(struct.pack(f"<{len(blocks)}Q", *blocks))
        used += len(blocks)
    assert used == len(table)
    return list(digests)


def _varint(data, at):
    """An unsigned LEB128 integer and the place after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at



def _statistics(out, start, catalog):
    """Exact statistics of chunks match the cells of raw ones; returns the length of the region."""
    data = out.data
    version, n, listed, sums, over_catalog = struct.unpack("<IQQQQ", data[start + 4 : start + 40])
    assert version == 1 and over_catalog == xxhash.xxh3_64_intdigest(catalog)
    rows_at = start + 40 + listed
    heap_at = rows_at + 48 * n
    end = heap_at + align8(sums)
    assert struct.unpack("<Q", data[end : end + 8]) == (xxhash.xxh3_64_intdigest(data[start:end]),)
    at, first_index, used = start + 40, 0, 0
    for number, dataset in enumerate(out.datasets):
        rows = [row for row in out.rows if row.dataset == number]
        first, count = struct.unpack("<QQ", data[at : at + 16])
        missing = [data[at + 16 + 8 * i : at + 24 + 8 * i] for i in range(count)]
        at += 16 + 8 * count
        if first == 2**64 - 1:
            continue
        assert first == first_index
        first_index += len(rows)
        values = [np.frombuffer(value, dataset.dtype, 1)[0] for value in missing]
        for i, row in enumerate(rows):
            head = data[rows_at + 48 * (first + i) :][:48]
            gone, nans, low, high, place, length, flags = struct.unpack("<QQ8s8sQII", head)
            if flags & 1 == 0:
                continue
            assert place == used
            used += length
            if row.codec != 0:
                continue
            cells = np.frombuffer(out.payload(row), dataset.dtype)
            lost = np.zeros(cells.shape, bool)
            for value in values:
                lost |= np.isnan(cells) if value != value else cells == value
            nan = ~lost & (cells != cells)
            left = cells[~lost & ~nan]
            assert (gone, nans, flags >> 1) == (lost.sum(), nan.sum(), int(len(left) > 0))
            if len(left):
                order = _total_order(left)
                for stored, index in ((low, np.argmin(order)), (high, np.argmax(order))):
                    assert stored[: dataset.dtype.itemsize] == left[index].tobytes()
            finite = left[np.isfinite(left)] if left.dtype.kind == "f" else left
            expected = sum((fractions.Fraction(value) for value in finite.tolist()), fractions.Fraction(0))
            flags_of_sum, at_sum = data[heap_at + place], heap_at + place + 1
            for _ in range(2 * (flags_of_sum & 1)):
                _, at_sum = _varint(data, at_sum)
            head, at_sum = _varint(data, at_sum)
            negative, total = head & 1, fractions.Fraction(0)
            if head:
                power, at_sum = _varint(data, at_sum)
                power = power >> 1 ^ -(power & 1)
                magnitude = int.from_bytes(data[at_sum : at_sum + (head >> 1)], "little")
                total = magnitude * fractions.Fraction(256) ** power
            assert (-total if negative else total) == expected
    assert (at, first_index, used) == (rows_at, n, sums)
    return end + 8 - start


def fill_of(attrs, dtype):
    """The bytes that mean "missing", by the rule of the format."""
    text = next((attrs[k] for k in ("_FillValue", "missing_value", "fill_value") if k in attrs), None)
    if text is None or "_" in text:
        return None
    try:
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return np.array([float(text)]).astype(dtype).tobytes()
        return np.array([int(text)], dtype).tobytes()
    except (ValueError, OverflowError):
        return None


def nulls(cells, fill):
    found = np.isnan(cells) if cells.dtype.kind == "f" else np.zeros(cells.shape, bool)
    if fill is not None:
        bits = np.dtype(f"<u{cells.dtype.itemsize}")
        found = found | (cells.view(bits) == np.frombuffer(fill, bits)[0])
    return found


def _total_order(cells):
    if cells.dtype.kind != "f":
        return cells
    bits = cells.view(f"<i{cells.dtype.itemsize}").astype("i8")
    return np.where(bits < 0, bits ^ ((1 << (8 * cells.dtype.itemsize - 1)) - 1), bits)


def _zone_maps(out):
    """Zone maps of raw datasets match their cells."""
    text = out.region(out.footer["zone_maps_ref"]).decode()
    document = json.loads(text)
    assert text == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert document["version"] == 1 and len(document["chunks"]) == len(out.rows)
    for row, zone in zip(out.rows, document["chunks"]):
        dataset = out.datasets[row.dataset]
        assert (zone["dataset_id"], zone["chunk_index"]) == (row.dataset, list(row.coords))
        assert zone["element_count"] == row.raw // dataset.dtype.itemsize
        if row.codec != 0:
            continue
        cells = np.frombuffer(out.payload(row), dataset.dtype)
        gone = nulls(cells, fill_of(out.of(dataset.name).get("attrs", {}), dataset.dtype))
        assert zone["null_count"] == gone.sum()
        left = cells[~gone]
        if len(left):
            order = _total_order(left)
            assert zone["min_le"] == left[np.argmin(order)].tobytes().hex()
            assert zone["max_le"] == left[np.argmax(order)].tobytes().hex()
        else:
            assert "min_le" not in zone and "max_le" not in zone
