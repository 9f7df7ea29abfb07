#!/usr/bin/env python3
"""Make the `.tet` fixtures: files written by the reference, and a corpus of broken ones.

    make_fixtures_tet.py good     --writer BIN     # needs tet-py 0.8.3 and numpy
    make_fixtures_tet.py corrupt  [--tet BIN]      # pure Python; with the reference's `tet`, observes its verdicts
    make_fixtures_tet.py check                     # committed files against manifest.json and expected.json
    make_fixtures_tet.py writer-source DIR         # cargo project of the helper that `--writer` wants

tet-py writes only raw payloads, only footer version 2 and only the present time, so the other files are written
through a small program on the reference crate. Files that no interface of the reference can write are made by
hand and say so in their `writer` field; the reference reads and verifies every one of them.

`good` rewrites files with new time stamps (tet-py has no way to set them), hence new sha256 values.
"""

import argparse
import hashlib
import itertools
import json
import math
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "fixtures" / "tet"
TAGS = {"float32": 1, "float64": 2, "int32": 3, "int64": 4, "uint8": 5,
        "uint16": 6, "int16": 7, "uint32": 8, "float16": 9, "uint64": 10}
SIZES = {1: 4, 2: 8, 3: 4, 4: 8, 5: 1, 6: 2, 7: 2, 8: 4, 9: 2, 10: 8}
RAW, ZSTD = 0, 1

WRITER_TOML = """[package]
name = "tet-reference-writer"
version = "0.0.0"
edition = "2024"
[dependencies]
tetration = { version = "=0.8.3", default-features = false }
serde_json = "1"
"""

WRITER_RS = r"""// Reads one JSON job from stdin and writes one .tet file with the reference crate.
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use tetration::catalog::*;

struct Dataset { name: String, dtype: u32, shape: Vec<u64>, chunk: Vec<u64>, codec: u32, data: Vec<u8> }

fn hex(s: &str) -> Vec<u8> {
    (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
}
fn nums(v: &Value) -> Vec<u64> {
    v.as_array().unwrap().iter().map(|x| x.as_u64().unwrap()).collect()
}
fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let job: Value = serde_json::from_str(&text).unwrap();
    let out = Path::new(job["out"].as_str().unwrap());
    let budget = FileExecutionSettingsV1 {
        memory_budget_percent_bps: job["bps"].as_u64().unwrap_or(0) as u16,
        memory_budget_bytes: job["budget"].as_u64().unwrap_or(0) as u32,
    };
    let datasets: Vec<Dataset> = job["datasets"].as_array().unwrap().iter().map(|d| Dataset {
        name: d["name"].as_str().unwrap().into(),
        dtype: d["dtype"].as_u64().unwrap() as u32,
        shape: nums(&d["shape"]),
        chunk: nums(&d["chunk"]),
        codec: d["codec"].as_u64().unwrap() as u32,
        data: hex(d["hex"].as_str().unwrap()),
    }).collect();
    let specs: Vec<RawArrayWrite<'_>> = datasets.iter()
        .map(|d| RawArrayWrite::from_tensor(&d.name, d.dtype, &d.shape, &d.chunk, d.codec, &d.data, Some(budget)))
        .collect();
    write_multi_raw_array_file(out, &specs).unwrap();
    let footer: FooterBlobV1 = match job.get("footer") {
        Some(f) if !f.is_null() => serde_json::from_value(f.clone()).unwrap(),
        _ => FooterBlobV1::default(),
    };
    write_footer_blob(out, &footer).unwrap();
    if job["embed"] == true {
        embed_indexes_in_tet(out, EMBEDDED_STANDALONE_GENERATION).unwrap();
    }
}
"""


# ---------------------------------------------------------------- hand-written bytes

def align8(n):
    return (n + 7) & ~7


def record(name, tag, shape, chunk, ndim=None):
    name = name if isinstance(name, bytes) else name.encode()
    head = struct.pack("<IIII", len(name), tag, len(shape) if ndim is None else ndim, 0) + name
    head += bytes(align8(len(head)) - len(head))
    return head + struct.pack(f"<{len(shape) + len(chunk)}Q", *shape, *chunk)


def row(dataset, coords, offset, raw, stored, codec=RAW):
    slots = list(coords) + [0] * (8 - len(coords))
    return struct.pack("<Q8QQQQII", dataset, *slots, offset, raw, stored, codec, 0)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def tail(text, version, length=None, magic=b"THST"):
    return struct.pack("<QI", len(text) if length is None else length, version) + magic


def grid(shape, chunk):
    return itertools.product(*(range(-(-s // c)) for s, c in zip(shape, chunk)))


def tiles(data, size, shape, chunk):
    """(coords, clipped tile bytes) of a row-major array, last axis fastest."""
    for coords in grid(shape, chunk):
        spans = [range(i * c, min((i + 1) * c, s)) for i, c, s in zip(coords, chunk, shape)]
        out = bytearray()
        for cell in itertools.product(*spans):
            at = 0
            for i, s in zip(cell, shape):
                at = at * s + i
            out += data[at * size:(at + 1) * size]
        yield coords, bytes(out)


def zstd_frame(payload, repeat=0):
    """A valid zstd frame without a compressor: raw blocks, then `repeat` RLE blocks of 128 KiB of zeros."""
    blocks = [(0, payload[i:i + 65536]) for i in range(0, len(payload), 65536)]
    blocks += [(1, b"\0")] * repeat
    out = b"\x28\xb5\x2f\xfd\x00\x38"  # no content size, no checksum, window 128 KiB
    if not blocks:
        return out + struct.pack("<I", 1)[:3]
    for i, (kind, body) in enumerate(blocks):
        size = 131072 if kind else len(body)
        out += struct.pack("<I", (i == len(blocks) - 1) | kind << 1 | size << 3)[:3] + body
    return out


class File:
    """A .tet under construction; every region can be replaced before `bytes()`."""

    def __init__(self, datasets, encode=lambda k, tile: (tile, RAW), gap=b""):
        self.records = b"".join(record(n, t, s, c) for n, t, s, c, _ in datasets)
        self.count = len(datasets)
        self.index_at = align8(40 + len(self.records))
        self.rows, self.payloads = [], []
        todo = [(i, co, tile) for i, (_, t, s, c, d) in enumerate(datasets) for co, tile in tiles(d, SIZES[t], s, c)]
        at = self.index_at + 32 + 104 * len(todo)
        for k, (i, coords, tile) in enumerate(todo):
            stored, codec = encode(k, tile)
            self.rows.append([i, list(coords), at, len(tile), len(stored), codec])
            self.payloads.append(stored)
            at += len(stored) + (len(gap) if k == 0 else 0)
            if k == 0 and gap:
                self.payloads.append(gap)
        self.footer = None

    def body(self):
        index = b"TIDX" + struct.pack("<IQHHIQ", 1, len(self.rows), 0, 0, 0, 0) + b"".join(row(*r) for r in self.rows)
        head = struct.pack("<Q", len(self.records)) + self.records
        return head + bytes(self.index_at - 32 - len(head)) + index + b"".join(self.payloads)

    def bytes(self):
        body = self.body()
        extra = self.footer(32 + len(body)) if callable(self.footer) else self.footer
        flags = 0 if extra is None else 1
        length = 32 + 104 * len(self.rows)
        return b"TETR" + struct.pack("<IIIQQ", 1, self.count, flags, self.index_at, length) + body + (extra or b"")


def footer(value, version=1, spill=b""):
    text = value if isinstance(value, bytes) else compact(value)
    return spill + text + tail(text, version)


# ---------------------------------------------------------------- good files

def le(array):
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def numbers(np, dtype, count, seed):
    """Values from a fixed generator, preceded by the dtype's edge cases."""
    state, out = seed * 2654435761 % 2**32 or 1, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 8)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        info = np.finfo(kind)
        values = (np.array(out, "f8") / 2**22 - 2).astype(kind)
        special = np.array([0.0, -0.0, np.inf, -np.inf, info.max, info.tiny, info.smallest_subnormal, np.nan], kind)
        bits = special.view(f"u{kind.itemsize}")
        bits[7] |= 0x15  # a NaN payload that must survive
        values[:min(8, count)] = special[:min(8, count)]
    else:
        info = np.iinfo(kind)
        values = np.array([info.min + v * 2654435761 % (info.max - info.min + 1) for v in out], kind)
        values[:min(2, count)] = [info.min, info.max][:min(2, count)]
    return values


def attrs_entry(attrs):
    """Attributes, or a digest of their compact JSON (keys sorted) if they are too large for the manifest."""
    text = compact(dict(sorted(attrs.items())))
    if len(text) <= 4096:
        return {"attrs": attrs}
    return {"attrs_count": len(attrs), "attrs_sha256": hashlib.sha256(text).hexdigest()}


def make_good(args):
    import numpy as np
    import tet
    assert tet.__version__ == "0.8.3", tet.__version__
    work = Path(tempfile.mkdtemp())
    manifest = []

    def entry(name, writer, recipe, datasets, history_version, meta=None, path=None):
        """datasets: [(name, ndarray, chunk, codec)]"""
        path = path or ROOT / name
        data = path.read_bytes()
        meta = meta or {}
        manifest.append({
            "file": name, "writer": writer, "recipe": recipe, "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(), "history_version": history_version,
            "datasets": [{
                "name": n, "dtype": str(a.dtype), "shape": list(a.shape), "chunk_shape": list(c), "codec": k,
                "chunks": math.prod(-(-s // t) for s, t in zip(a.shape, c)),
                "sha256": hashlib.sha256(le(a)).hexdigest(),
                "dim_names": meta.get(n, {}).get("dim_names"), **attrs_entry(meta.get(n, {}).get("attrs", {})),
                "coords": {x: y["labels"] for x, y in meta.get(n, {}).get("coords", {}).items()},
            } for n, a, c, k in datasets]})

    def py(name, recipe, datasets, meta=None, append=None):
        os.chdir(ROOT)
        writer = tet.TetWriter.create(name)
        for batch in [datasets] + ([append] if append else []):
            if batch is append:
                writer = tet.TetWriter.open_append(name)
            for n, a, c in batch:
                m = (meta or {}).get(n, {})
                writer.write_dataset(n, a, chunk_shape=c, attrs=m.get("attrs"), dim_names=m.get("dim_names"),
                                     coords={x: y["labels"] for x, y in m["coords"].items()} if "coords" in m else None)
            writer.commit()
        entry(name, "tet-py 0.8.3", recipe, [(n, a, c, "raw") for n, a, c in datasets + (append or [])], 2, meta)

    def crate(name, recipe, datasets, meta=None, history=(), embed=False, file=None, **header):
        job = {"out": str(ROOT / name), "embed": embed, **header, "datasets": [
            {"name": n, "dtype": TAGS[str(a.dtype)], "shape": a.shape, "chunk": c,
             "codec": ZSTD if k == "zstd" else RAW, "hex": le(a).hex()} for n, a, c, k in datasets]}
        has_meta = meta or file
        if history or has_meta:
            job["footer"] = {"history": list(history)}
            if has_meta:
                job["footer"]["metadata"] = {**({"file": file} if file else {}), "datasets": meta or {}}
        (ROOT / name).unlink(missing_ok=True)
        subprocess.run([args.writer], input=json.dumps(job), text=True, check=True)
        version = 2 if embed else 1 if history or has_meta else None
        entry(name, "tetration 0.8.3", recipe, datasets, version, meta)

    def hand(name, recipe, data, datasets, version, meta=None):
        (ROOT / name).write_bytes(data)
        entry(name, "by hand; tetration 0.8.3 verifies it", recipe, datasets, version, meta)

    ROOT.mkdir(parents=True, exist_ok=True)
    wrote = {"op": "write", "source": "fixture", "at": "1700000000"}

    for seed, dtype in enumerate(TAGS, 1):
        a = numbers(np, dtype, 35, seed).reshape(5, 7)
        py(f"dtype_{dtype}.tet", "TetWriter, 5x7, chunks 2x3, extremes and non-finite values first",
           [("values", a, (2, 3))], {"values": {"dim_names": ["y", "x"], "attrs": {"units": "1"}}})

    shapes = [(7,), (3, 5), (2, 3, 4), (2, 3, 2, 3), (2, 1, 3, 2, 2), (1, 2, 2, 1, 3, 2), (2, 1, 2, 1, 2, 1, 3), (2, 1, 2, 1, 1, 2, 1, 3)]
    ranks = [(f"rank{len(s)}", numbers(np, "int32", math.prod(s), 20 + len(s)).reshape(s),
              tuple(max(1, x - 1) for x in s)) for s in shapes]
    crate("ranks_raw_v1.tet", "write_multi_raw_array_file, ranks 1..8, ragged grids", [(*r, "raw") for r in ranks], history=[wrote])
    crate("ranks_zstd_v1.tet", "as ranks_raw_v1.tet with codec 1", [(*r, "zstd") for r in ranks[::-1]], history=[wrote])

    wave = (np.arange(600) % 50).astype("float32").reshape(20, 30)
    long = np.arange(1000, dtype="int64") // 10
    crate("zstd_v1.tet", "codec 1, no embedded index", [("wave", wave, (8, 16), "zstd")], {"wave": {"dim_names": ["y", "x"]}})
    crate("zstd_v2.tet", "codec 1, embed_indexes_in_tet", [("long", long, (300,), "zstd")], history=[wrote], embed=True)
    crate("codecs_by_dataset_v1.tet", "one raw and one zstd dataset; payloads after the odd-sized zstd ones are unaligned",
          [("packed", wave[:7], (3, 11), "zstd"), ("plain", np.arange(9, dtype="float64"), (4,), "raw")], history=[wrote])
    crate("no_footer.tet", "write_multi_raw_array_file alone: flag bit 0 clear", [("a", np.arange(10, dtype="uint16"), (4,), "raw")])
    crate("budget_header_v1.tet", "memory budget 12.5 % and 1 MiB in the index header",
          [("a", np.arange(10, dtype="uint8"), (4,), "raw")], history=[wrote], bps=1250, budget=1 << 20)
    crate("chunk_beyond_shape_v1.tet", "chunk_shape larger than shape; names with a slash and beyond ASCII",
          [("grp/übung", np.arange(6, dtype="int16").reshape(2, 3), (5, 9), "raw"), ("grp/b", np.arange(3, dtype="uint32"), (64,), "zstd")],
          {"grp/übung": {"attrs": {"long_name": "größe \"q\" \\ / \u007f", "note": "tab\tnl\n"}}})

    labels = {"temp": {"dim_names": ["time", "lat", "station"],
                       "attrs": {"units": "K", "_FillValue": "-9999", "long_name": "air temperature"},
                       "coords": {"time": {"labels": ["2024-01-01", "2024-01-02", "2024-01-03"]},
                                  "lat": {"labels": ["60.5", "55", "-10.25", "-90"]},
                                  "station": {"labels": ["b", "a", "b"]}}}}
    temp = np.arange(36, dtype="float32").reshape(3, 4, 3)
    temp[0, :2] = -9999
    temp[1, 0, 0] = np.nan
    py("labels_v2.tet", "labels on three axes (text, descending numbers, repeated), fill value, an all-null chunk",
       [("temp", temp, (1, 2, 3))], labels)
    crate("labels_v1.tet", "the same array with a version 1 footer", [("temp", temp, (1, 2, 3), "zstd")], labels, [wrote])
    crate("labels_by_axis_number_v1.tet", "coords keyed by axis number and by the only fitting extent, no dim_names",
          [("a", np.arange(12, dtype="float64").reshape(3, 4), (2, 2), "raw")],
          {"a": {"coords": {"0": {"labels": ["10", "20", "30"]}, "lon": {"labels": ["0", "90", "180", "270"]}}}}, embed=True)
    crate("history_v1.tet", "every history field, file metadata", [("a", np.arange(4, dtype="int64"), (4,), "raw")], {},
          [wrote, {"op": "transform", "source": "a.tet", "at": "1700000001", "parents": ["p1", "p2"], "params": {"z": "1", "b": "2"},
                   "agent": "someone", "activity": "zscore", "entity": "a"}],
          file={"tool": "fixture", "library_version": "0.8.3", "created_at": "1700000000"})
    crate("wide_values_v2.tet", "more than 64 distinct values: zone maps without secondary index",
          [("a", np.arange(130, dtype="uint16"), (65,), "raw")], history=[wrote], embed=True)
    big = {"a": {"attrs": {f"key{i:02}": chr(97 + i % 26) * 1024 for i in range(64)}, "dim_names": ["x"]}}
    for version in (1, 2):
        crate(f"metadata_spill_v{version}.tet", "metadata above 64 KiB goes to the spill (the one kind of file that cannot be small)",
              [("a", np.arange(5, dtype="int32"), (2,), "raw")], big, [wrote], embed=version == 2)
    py("appended_v2.tet", "open_append after a first commit", [("first", np.arange(6, dtype="int16").reshape(2, 3), (1, 2))],
       {"first": {"dim_names": ["y", "x"]}, "second": {"attrs": {"k": "v"}}}, [("second", np.arange(5, dtype="float64"), (2,))])

    # a package: two generations, CURRENT on the second
    package = ROOT / "package.tet.d"
    shutil.rmtree(package, ignore_errors=True)
    tet.create(package)
    parts = {n: np.arange(8, dtype="float32") + i for i, n in enumerate(("left", "right"))}
    os.chdir(work)  # the writer records the path it was given
    for n, a in parts.items():
        tet.write_dataset(f"{n}.tet", n, a, chunk_shape=(3,), attrs={"side": n})
    tet.publish(package, [tet.ingest(package, work / "left.tet", session_id="s0")])
    tet.publish(package, [tet.ingest(package, work / "left.tet", session_id="s1", part_id="left2"),
                          tet.ingest(package, work / "right.tet", session_id="s2")])
    shutil.rmtree(package / "staging", ignore_errors=True)
    for g, names in ((1, ["left"]), (2, ["left", "right"])):
        path = package / "generations" / f"{g:08}" / "packed.tet"
        entry(str(path.relative_to(ROOT)), "tet-py 0.8.3", f"package generation {g}", [(n, parts[n], (3,), "raw") for n in names], 2, path=path,
              meta={"left": {"attrs": {"side": "left"}}} if g == 1 else None)

    # files that no writer of the reference produces
    hand("empty.tet", "the 32-byte empty file", b"TETR" + struct.pack("<IIIQQ", 1, 0, 0, 32, 0), [], None)
    hand("empty_footer_v1.tet", "no dataset, with a footer", b"TETR" + struct.pack("<IIIQQ", 1, 0, 1, 32, 0) + footer({"history": [wrote]}), [], 1)
    a = np.arange(24, dtype="int32").reshape(4, 6)
    d = [("a", 3, a.shape, (2, 2), le(a))]
    f = File(d, encode=lambda k, t: (zstd_frame(t[:4]) + zstd_frame(t[4:]), ZSTD) if k % 2 else (t, RAW), gap=b"\xee" * 5)
    order = [5, 0, 3, 1, 4, 2]
    f.rows = [f.rows[i] for i in order]
    f.footer = lambda end: footer({"unknown": [1], "history": [["write", "old", "1"], {**wrote, "x": 1}],
                                   "metadata": {"datasets": {"a": {"dim_names": ["y", "x"], "more": {}}}, "other": 1}})
    hand("odd_but_valid_v1.tet", "rows out of order, a gap, codecs mixed within a dataset, two zstd frames per chunk, triple history row, unknown keys",
         f.bytes(), [("a", a, (2, 2), "raw+zstd")], 1, {"a": {"dim_names": ["y", "x"]}})
    f = File([("a", 3, a.shape, (4, 6), le(a))])
    meta = compact({"datasets": {"a": {"attrs": {"units": "m"}, "dim_names": ["y", "x"]}}})
    f.footer = lambda end: footer({"history": [], "metadata_ref": {"offset": end, "len": len(meta)}}, spill=meta)
    hand("small_spill_v1.tet", "a metadata spill below the size at which writers spill", f.bytes(), [("a", a, (4, 6), "raw")], 1,
         {"a": {"attrs": {"units": "m"}, "dim_names": ["y", "x"]}})

    shutil.rmtree(work)
    text = json.dumps({"format": "tet", "fixtures": manifest}, indent=1, ensure_ascii=False)
    (ROOT / "manifest.json").write_text(text + "\n")
    print(len(manifest), "good files")


# ---------------------------------------------------------------- broken files

class Corpus:
    """Broken files and the expected result of a correct reader.

    open:         ok | corrupt | unsupported | limit     kind of error when the catalog is opened
    verify_check: first check that fails, null when sound. Whatever stops the catalog is the check `parse`
    read:         ok | damaged | unsupported | limit     outcome of reading every array in full; null when not opened
    """

    def __init__(self):
        self.files, self.expected = {}, {}

    def add(self, name, data, opened, check=None, read=None, note=None):
        assert name not in self.files
        if opened != "ok":
            check = "parse"
        self.files[name] = bytes(data)
        self.expected[name] = {"open": opened, "verify_check": check,
                               "read": (read or ("damaged" if check else "ok")) if opened == "ok" else None}
        if note:
            self.expected[name]["note"] = note


def floats(count):
    return b"".join(struct.pack("<f", i) for i in range(count))


def shorts(count):
    return b"".join(struct.pack("<h", i - 1) for i in range(count))


PLAIN = {"history": [{"op": "write", "source": "s", "at": "1"}], "metadata": {"datasets": {"a": {"dim_names": ["y", "x"]}}}}


def base(value=PLAIN, version=1, encode=lambda k, t: (t, RAW)):
    """f32 `a` 3x5 in 2x2 chunks (6 rows) and i16 `b` of 3 in chunks of 2 (2 rows)."""
    f = File([("a", 1, (3, 5), (2, 2), floats(15)), ("b", 7, (3,), (2,), shorts(3))], encode)
    f.footer = footer(value, version)
    return f


def patched(data, at, new):
    out = bytearray(data)
    assert at >= 0 and at + len(new) <= len(out)
    out[at:at + len(new)] = new
    return bytes(out)


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def superblock_cases(c):
    good = base().bytes()
    c.add("file_empty", b"", "corrupt")
    c.add("superblock_31_bytes", good[:31], "corrupt")
    c.add("superblock_magic", patched(good, 0, b"TETX"), "corrupt")
    c.add("superblock_version_2", patched(good, 4, u32(2)), "unsupported")
    c.add("superblock_version_0", patched(good, 4, u32(0)), "unsupported")
    c.add("superblock_unknown_flags", patched(good, 12, u32(0xFFFFFFFF)), "ok", note="only bit 0 has a meaning")
    c.add("superblock_index_past_eof", patched(good, 24, u64(len(good))), "corrupt")
    c.add("superblock_index_overflow", patched(good, 16, u64(2**64 - 8)), "corrupt")
    c.add("superblock_index_offset_wrong", patched(good, 16, u64(base().index_at + 8)), "corrupt")
    c.add("superblock_count_max", patched(good, 8, u32(0xFFFFFFFF)), "corrupt")
    c.add("superblock_count_plus_one", patched(good, 8, u32(3)), "corrupt")
    c.add("superblock_count_minus_one", patched(good, 8, u32(1)), "corrupt")


def directory_cases(c):
    good, f = base().bytes(), base()
    c.add("directory_absent", b"TETR" + struct.pack("<IIIQQ", 1, 1, 0, 32, 0), "corrupt")
    c.add("directory_length_past_eof", patched(good, 32, u64(len(good))), "corrupt")
    c.add("directory_length_max", patched(good, 32, u64(2**64 - 1)), "corrupt")
    c.add("directory_length_short", patched(good, 32, u64(len(f.records) - 8)), "corrupt")
    c.add("directory_ndim_0", patched(good, 48, u32(0)), "corrupt")
    c.add("directory_ndim_9", patched(good, 48, u32(9)), "corrupt")
    c.add("directory_name_len_max", patched(good, 40, u32(0xFFFFFFFF)), "corrupt")
    c.add("directory_name_not_utf8", patched(good, 56, b"\xff"), "corrupt")
    c.add("directory_truncated", good[:60], "corrupt")
    c.add("directory_dtype_11", patched(good, 44, u32(11)), "ok", "dataset_tensor_bytes", "unsupported")
    c.add("directory_dtype_0", patched(good, 44, u32(0)), "ok", "dataset_tensor_bytes", "unsupported")
    c.add("directory_chunk_shape_zero", patched(good, 80, u64(0)), "ok", "dataset_tensor_bytes")
    c.add("directory_shape_zero", patched(good, 64, u64(0)), "ok", "dataset_tensor_bytes", "ok",
          "an empty array is read as such; its six rows belong to no chunk")
    f = base()
    f.records = record("a", 2, (2**33, 2**33), (2, 2)) + record("b", 7, (3,), (2,))
    c.add("directory_shape_overflow", f.bytes(), "ok", "dataset_tensor_bytes")
    f = base()
    f.records = record("a", 1, (2**60, 1), (1, 1)) + record("b", 7, (3,), (2,))
    f.rows = f.rows[6:]
    at = f.index_at + 32 + 208
    f.payloads = f.payloads[6:]
    for r in f.rows:
        r[2], at = at, at + r[4]
    c.add("directory_grid_of_2_60_chunks", f.bytes(), "ok", "dataset_tensor_bytes", "limit", "counting or listing the grid must not be attempted")
    f = File([("a", 7, (3,), (2,), shorts(3)), ("a", 7, (3,), (3,), shorts(3)), ("", 7, (1,), (1,), shorts(1))])
    c.add("directory_names_twice_and_empty", f.bytes(), "ok", note="readers open it; a name finds the first match")


def index_cases(c):
    good, f = base().bytes(), base()
    at = f.index_at
    c.add("index_magic", patched(good, at, b"TIDY"), "corrupt")
    c.add("index_version_2", patched(good, at + 4, u32(2)), "unsupported")
    c.add("index_count_plus_one", patched(good, at + 8, u64(9)), "corrupt")
    c.add("index_count_overflow", patched(good, at + 8, u64(2**61)), "corrupt")
    c.add("index_length_minus_row", patched(good, 24, u64(32 + 104 * 7)), "corrupt")
    c.add("index_length_below_header", patched(good, 24, u64(16)), "corrupt")
    c.add("index_truncated", good[:at + 32 + 104 * 3 + 50], "corrupt")

    def rows(name, change, *expected, **more):
        f = base()
        change(f.rows)
        c.add(name, f.bytes(), *expected, **more)

    def put(row_number, field, value):
        return lambda rows: rows[row_number].__setitem__(field, value)

    first = f.rows[0][2]
    rows("row_codec_7", put(2, 5, 7), "unsupported")
    rows("row_raw_stored_differ", put(2, 4, 15), "corrupt")
    rows("row_payload_past_eof", put(7, 2, 2**40), "corrupt")
    rows("row_payload_into_footer", put(7, 2, f.rows[7][2] + 1), "corrupt")
    rows("row_payload_overflow", put(7, 2, 2**64 - 1), "corrupt")
    rows("row_raw_claims_1_tib", lambda r: (put(7, 3, 2**40)(r), put(7, 4, 2**40)(r)), "corrupt")
    rows("row_payload_in_superblock", put(0, 2, 0), "corrupt", note="the reference returns catalog bytes as values")
    rows("row_payload_in_index", put(0, 2, f.index_at + 40), "corrupt", note="the reference returns catalog bytes as values")
    rows("row_payloads_overlap", put(1, 2, first + 4), "ok", read="ok", note="worth a warning; two rows with one offset are an error")
    rows("row_payload_shared", put(1, 2, first), "ok", "payload_offsets", "ok")
    rows("row_coords_twice", put(1, 1, [0, 0]), "ok", "chunk_coords", note="chunk 0,1 of `a` is missing")
    rows("row_coords_out_of_grid", put(0, 1, [9, 9]), "ok", "dataset_tensor_bytes")
    rows("row_coords_max", put(0, 1, [2**64 - 1, 2**64 - 1]), "ok", "dataset_tensor_bytes")
    rows("row_coords_unused_slot", put(0, 1, [0, 0, 7]), "ok", note="slots beyond the rank are ignored on read")
    rows("row_dataset_2", put(7, 0, 2), "ok", "chunk_dataset_ids")
    rows("row_dataset_max", put(7, 0, 2**64 - 1), "ok", "chunk_dataset_ids")
    rows("row_length_not_the_tile", lambda r: (put(0, 3, 12)(r), put(0, 4, 12)(r)), "ok", "dataset_tensor_bytes")
    f = base()
    del f.rows[3]
    gone = 104
    for r in f.rows:
        r[2] -= gone
    c.add("row_missing", f.bytes(), "ok", "dataset_tensor_bytes", note="a chunk that is absent is an error, never fill")
    f = base()
    f.rows.append([0, [0, 0], f.rows[1][2], 16, 16, RAW])
    for r in f.rows:
        r[2] += 104
    c.add("row_extra", f.bytes(), "ok", "dataset_tensor_bytes", "damaged", "two rows for chunk 0,0 of `a`, with different bytes")
    plain = File([("b", 7, (3,), (2,), shorts(3))])
    c.add("payload_truncated", plain.bytes()[:-1], "corrupt")


def zstd_cases(c):
    def with_payload(name, make, *expected, row=0, **more):
        c.add(name, base(encode=lambda k, t: (make(t), ZSTD) if k == row else (t, RAW)).bytes(), *expected, **more)

    with_payload("zstd_sound", zstd_frame, "ok")
    with_payload("zstd_garbage", lambda t: b"not a zstd frame", "ok", "chunk_decode")
    with_payload("zstd_no_bytes", lambda t: b"", "ok", "chunk_decode", row=7)
    with_payload("zstd_too_few", lambda t: zstd_frame(t[:-4]), "ok", "chunk_decode")
    with_payload("zstd_too_many", lambda t: zstd_frame(t + b"\1\0\0\0"), "ok", "chunk_decode")
    with_payload("zstd_truncated", lambda t: zstd_frame(t)[:-3], "ok", "chunk_decode")
    with_payload("zstd_junk_after_frame", lambda t: zstd_frame(t) + b"junk", "ok", "chunk_decode")
    with_payload("zstd_second_frame_overflows", lambda t: zstd_frame(t) + zstd_frame(b"", 1), "ok", "chunk_decode")
    with_payload("zstd_bomb", lambda t: zstd_frame(t, 2048), "ok", "chunk_decode",
                 note="256 MiB behind 8 KiB for a 16-byte tile: stop at the declared length")
    f = File([("a", 5, (4,), (4,), bytes(4))], lambda k, t: (zstd_frame(t), ZSTD))
    f.records = record("a", 5, (2**40,), (2**40,))
    f.rows[0][3] = 2**40
    c.add("zstd_claims_1_tib", f.bytes(), "ok", "chunk_decode", "limit", "a frame of 4 bytes that declares 1 TiB")
    bad = bytearray(zstd_frame(floats(4)))
    bad[4] = 0x08  # reserved bit of the frame descriptor
    with_payload("zstd_reserved_bit", lambda t: bytes(bad), "ok", "chunk_decode")


def footer_cases(c):
    good, f = base().bytes(), base()
    start = 32 + len(f.body())
    text = compact(PLAIN)
    c.add("footer_absent", good[:start], "corrupt", note="flag bit 0 set, nothing after the payloads")
    c.add("footer_truncated", good[:-5], "corrupt")
    c.add("footer_bytes_after_tail", good + b"\0", "corrupt")
    c.add("footer_magic", good[:-1] + b"X", "corrupt")
    c.add("footer_version_0", good[:-8] + u32(0) + b"THST", "unsupported")
    c.add("footer_version_3", good[:-8] + u32(3) + b"THST", "unsupported")
    c.add("footer_length_past_start", patched(good, len(good) - 16, u64(len(good))), "corrupt")
    c.add("footer_length_max", patched(good, len(good) - 16, u64(2**64 - 1)), "corrupt")
    c.add("footer_length_into_payload", patched(good, len(good) - 16, u64(len(text) + 4)), "corrupt")

    def json_case(name, value, *expected, version=1, spill=b"", **more):
        g = base()
        g.footer = (lambda end: footer(value(end), version, spill)) if callable(value) else footer(value, version, spill)
        c.add(name, g.bytes(), *expected, **more)

    json_case("footer_json_empty", b"", "corrupt")
    json_case("footer_json_broken", b'{"history":[', "corrupt")
    json_case("footer_json_not_utf8", b'{"history":[{"op":"\xff","source":"s","at":"1"}]}', "corrupt")
    json_case("footer_json_is_array", b"[]", "corrupt", note="serde reads an array as a struct by position; we want an object")
    json_case("footer_json_key_twice", b'{"history":[],"history":[]}', "corrupt")
    json_case("footer_json_trailing", b'{"history":[]} x', "corrupt")
    json_case("footer_history_is_object", {"history": {}}, "corrupt")
    json_case("footer_history_row_short", {"history": [["op", "source"]]}, "corrupt")
    json_case("footer_nesting_open", b'{"history":[],"k":' + b"[" * 100000, "corrupt", note="must not exhaust the stack")
    json_case("footer_nesting_closed", b'{"history":[],"metadata":{"datasets":' + b"[" * 2000 + b"]" * 2000 + b"}}", "corrupt")
    json_case("footer_ref_unknown_key", lambda e: {"history": [], "metadata_ref": {"offset": e, "len": 2, "x": 1}}, "corrupt", spill=b"{}")
    json_case("footer_ref_negative", {"history": [], "metadata_ref": {"offset": -1, "len": 2}}, "corrupt", spill=b"{}")
    json_case("footer_ref_past_eof", {"history": [], "metadata_ref": {"offset": 2**40, "len": 2}}, "corrupt", spill=b"{}")
    json_case("footer_ref_overflow", {"history": [], "metadata_ref": {"offset": 2**64 - 1, "len": 2}}, "corrupt", spill=b"{}")
    json_case("footer_ref_longer_than_file", {"history": [], "metadata_ref": {"offset": 0, "len": 2**40}}, "corrupt", spill=b"{}")
    json_case("footer_ref_swallows_payload", lambda e: {"history": [], "metadata_ref": {"offset": e - 2, "len": 4}}, "corrupt", spill=b"{}",
              note="the declared spill reaches into the last payload")
    json_case("footer_spill_not_json", lambda e: {"history": [], "metadata_ref": {"offset": e, "len": 4}}, "corrupt", spill=b"{...")
    json_case("footer_zone_ref_longer_than_file", {"history": [], "zone_maps_ref": {"offset": 0, "len": 2**40}}, "corrupt", version=2)
    json_case("footer_zone_ref_past_eof", {"history": [], "zone_maps_ref": {"offset": 2**40, "len": 3}}, "ok", version=2, spill=b"{}\n",
              note="an accelerator that cannot be read is no accelerator; worth a warning")
    json_case("footer_zone_not_json", lambda e: {"history": [], "zone_maps_ref": {"offset": e, "len": 3}}, "ok", version=2, spill=b"{.\n",
              note="as above")
    labels = {"datasets": {"a": {"coords": {"x": {"labels": [str(i) for i in range(65)]}}}}}
    json_case("footer_65_labels", {"history": [], "metadata": labels}, "ok", "footer_metadata", "ok", note="the reference's limit, not the format's")
    spilled = compact(labels)
    json_case("footer_65_labels_spilled", lambda e: {"history": [], "metadata_ref": {"offset": e, "len": len(spilled)}}, "ok", "footer_metadata", "ok",
              spill=spilled, note="the reference refuses to open it; we read it and let verify complain")
    json_case("footer_empty_attr", {"history": [], "metadata": {"datasets": {"a": {"attrs": {"k": ""}}}}}, "ok", "footer_metadata", "ok")
    json_case("footer_attr_not_text", {"history": [], "metadata": {"datasets": {"a": {"attrs": {"k": 1}}}}}, "corrupt")
    # flag bit 0 clear: the last payload is never parsed as a footer
    f = File([("a", 5, (16,), (16,), u64(3) + u32(9) + b"THST")])
    c.add("payload_looks_like_footer", f.bytes(), "ok", note="sound; the reference looks at the tail although the flag is clear and fails")


def make_corrupt(args):
    folder = ROOT / "corrupt"
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus()
    for build in (superblock_cases, directory_cases, index_cases, zstd_cases, footer_cases):
        build(corpus)
    listing = folder / "expected.json"
    seen = json.loads(listing.read_text()) if listing.exists() else {}
    for old in folder.glob("*.tet"):
        old.unlink()
    for name, data in corpus.files.items():
        (folder / f"{name}.tet").write_bytes(data)
        entry = corpus.expected[name]
        entry["sha256"] = hashlib.sha256(data).hexdigest()
        if args.tet:
            entry.update(observe(args.tet, folder / f"{name}.tet"))
        else:
            entry.update({k: v for k, v in seen.get(f"{name}.tet", {}).items() if k.startswith("reference_")})
    listing.write_text(json.dumps({f"{k}.tet": v for k, v in corpus.expected.items()}, indent=1) + "\n")
    print(len(corpus.files), "broken files")


def observe(tet, path):
    """The result of the reference, under our own memory and time limit."""
    def limits():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    try:
        done = subprocess.run([tet, "verify", "--deep", "--json", str(path)], capture_output=True, text=True, timeout=20, preexec_fn=limits)
    except subprocess.TimeoutExpired:
        return {"reference_verify": "hangs", "reference_check": None}
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"reference_verify": "crashed" if done.returncode < 0 or "panicked" in done.stderr else "failed", "reference_check": None}
    failing = [x["check"] for x in report["findings"] if not x["ok"]]
    return {"reference_verify": "ok" if report["ok"] else "failed", "reference_check": failing[0] if failing else None}


def check(_):
    wrong = 0
    for item in json.loads((ROOT / "manifest.json").read_text())["fixtures"]:
        wrong += differs(ROOT / item["file"], item["sha256"])
    expected = json.loads((ROOT / "corrupt" / "expected.json").read_text())
    for name, item in expected.items():
        wrong += differs(ROOT / "corrupt" / name, item["sha256"])
    for path in (ROOT / "corrupt").glob("*.tet"):
        if path.name not in expected:
            wrong += 1
            print("no expectation for", path.name)
    sys.exit(1 if wrong else 0)


def differs(path, sha256):
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
        return False
    print("differs or missing:", path)
    return True


def writer_source(args):
    folder = Path(args.dir)
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(WRITER_TOML)
    (folder / "src" / "main.rs").write_text(WRITER_RS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    good = commands.add_parser("good")
    good.add_argument("--writer", required=True, type=os.path.abspath)
    good.set_defaults(run=make_good)
    corrupt = commands.add_parser("corrupt")
    corrupt.add_argument("--tet", type=os.path.abspath)
    corrupt.set_defaults(run=make_corrupt)
    commands.add_parser("check").set_defaults(run=check)
    source = commands.add_parser("writer-source")
    source.add_argument("dir")
    source.set_defaults(run=writer_source)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
