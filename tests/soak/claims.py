"""Sizes that a file claims: every integer of the wire structures set to boundary values, every command run on the result.

Whatever a file of up to 1 MiB claims, a command answers or refuses it within a second of CPU time and 64 MiB above what an idle `tet`
takes. Checksums are left out of the samples, so that only the declared value is wrong."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import claims_fields as fields
import claims_interchange as interchange
import claims_tables as tables
import claims_values as values
import hostile_tgm as tgm
import hostile_tiledb
from common import PYTHON, ROOT, TET, need

MIB = 1 << 20
#: Allowed above an idle process, in MiB.
ABOVE_IDLE = 64
#: Allowed CPU time, in seconds; a debug build may be given more.
CPU = float(os.environ.get("TET_CLAIMS_CPU", "1"))
#: The process is ended after this much CPU time.
CPU_STOP = 4 * CPU

VALUES = (0, 1, 2**7, 2**15 - 1, 2**16, 2**24 - 1, 2**26, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def commands(path, out):
    """Every command that reads a source: name and arguments."""
    yield "info", ["info", path]
    yield "info json", ["info", path, "--json"]
    yield "log", ["log", path]
    yield "cat", ["cat", path]
    for form in ("csv", "json", "raw", "npy", "arrow"):
        yield f"cat {form}", ["cat", path, "--format", form]
    yield "cat validity", ["cat", path, "--validity"]
    yield "cat where", ["cat", path, "--where", f"`{dataset(path)}` == 7"]
    yield "stat", ["stat", path]
    yield "stat by", ["stat", path, "--by", "0"]
    yield "stat mean", ["stat", path, "--mean", "0"]
    yield "stat median", ["stat", path, "--median"]
    yield "plot", ["plot", path]
    yield "plot png", ["plot", "-f", path, "-o", out / "plot.png"]
    yield "query mean", ["query", json.dumps({"dataset": dataset(path), "mean": []}), "-t", path, "-x"]
    yield "query count", ["query", json.dumps({"dataset": dataset(path), "filter": {"gt": 0}, "count": []}), "-t", path, "-x"]
    yield "advise", ["advise", path, "--read", "0=0"]
    yield "verify", ["verify", path]
    yield "verify deep", ["verify", path, "--deep"]
    yield "verify full", ["verify", path, "--full"]
    yield "repair", ["repair", path]
    yield "recover", ["recover", "-f", path, out / f"recovered{path.suffix}"]
    for form in ("tet", "tgm", "tiledb", "zarr"):
        yield f"convert {form}", ["convert", "-f", path, out / f"out.{form}", "--to", form]
    yield "convert npy", ["convert", "-f", path, out / "out.npy"]
    yield "rechunk", ["rechunk", "-f", path, out / "rechunked.tet", "--chunk", "0=3"]
    yield "diff", ["diff", path, path]
    if path.suffix == ".tgm":
        yield "dump", ["dump", path]
        yield "get", ["get", path, "--keys", "shape"]
        yield "copy", ["copy", "-f", path, out / "copied.tgm"]


def dataset(path):
    """The name of the first array, as queries give it."""
    return {".tgm": "0/0", ".npy": path.stem}.get(path.suffix, "a")


#: Starts commands from a separate process, because the peak of a child counts what its parent held when it was started.
RUNNER = """
import json, os, resource, sys
for line in sys.stdin:
    command, seconds = json.loads(line)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        null = os.open("/dev/null", os.O_RDWR)
        for to, fd in ((0, null), (1, null), (2, write)):
            os.dup2(fd, to)
        os.execv(command[0], command)
    os.close(write)
    words = b""
    while piece := os.read(read, 65536):
        words = (words + piece)[-400:]
    os.close(read)
    _, status, used = os.wait4(child, 0)
    result = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, words.decode(errors="replace")
    print(json.dumps(result), flush=True)
"""


class Runner:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-S", "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, arguments):
        """Exit code, CPU seconds, peak MiB and the last words of a run of `tet`."""
        print(json.dumps([[str(TET), *map(str, arguments)], int(CPU_STOP)]), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def boundaries(size, original, width):
    """Values to set an integer of `width` bytes to."""
    near = (original - 1, original + 1, size - 1, size, size + 1)
    return sorted({v % (1 << 8 * width) for v in (*VALUES, *near)} - {original})


# `.tet`: one dataset of two raw chunks, every field by its place.

def tet_file(codec=0):
    name = b"a"
    record = struct.pack("<IIII", len(name), 1, 2, 0) + name + bytes(7) + struct.pack("<4Q", 4, 6, 4, 3)
    head = 40 + len(record)
    index = head + 32 + 2 * 104
    rows, payload = b"", b""
    for column in range(2):
        cells = struct.pack("<12f", *range(12))
        stored = cells if codec == 0 else zeros_frame(48)
        rows += struct.pack("<9Q", 0, 0, column, *([0] * 6)) + struct.pack("<3QII", index + len(payload), 48, len(stored), codec, 0)
        payload += stored
    out = b"TETR" + struct.pack("<IIIQQQ", 1, 1, 0, head, 32 + 208, len(record)) + record
    out += b"TIDX" + struct.pack("<IQHHIQ", 1, 2, 0, 0, 0, 0) + rows + payload
    return bytearray(out)


def zeros_frame(n):
    """A Zstandard frame of `n` zero bytes in run-length blocks of 128 KiB."""
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x78")
    while True:
        size = min(n, 128 << 10)
        n -= size
        out += (size << 3 | 1 << 1 | (n == 0)).to_bytes(3, "little") + b"\0"
        if n == 0:
            return bytes(out)


def tet_claims(codec):
    base = tet_file(codec)
    index = base.index(b"TIDX")
    fields = [(8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 4)] + [(at, 8) for at in range(64, 96, 8)]
    fields += [(index + at, width) for at, width in ((4, 4), (8, 8), (16, 2), (20, 4))]
    for row in (index + 32, index + 136):
        fields += [(row + at, 8) for at in (0, 8, 16, 24, 72, 80, 88)] + [(row + 96, 4)]
    for at, width in fields:
        original = int.from_bytes(base[at : at + width], "little")
        for value in boundaries(len(base), original, width):
            changed = bytearray(base)
            changed[at : at + width] = value.to_bytes(width, "little")
            yield f"tet{codec} {at}={value}", ".tet", bytes(changed)
    # Shape and chunk shape together, with the sizes of a row made to agree: chunks that are claimed, and absent.
    for value in VALUES[3:]:
        if value * 6 * 4 < 2**64:
            changed = bytearray(base)
            struct.pack_into("<4Q", changed, 64, value, 6, value, 3)
            yield f"tet{codec} rows={value}", ".tet", bytes(changed)
            for row in (index + 32, index + 136):
                struct.pack_into("<Q", changed, row + 80, value * 12)
            yield f"tet{codec} rows={value} agreed", ".tet", bytes(changed)


# `.tgm`: every integer of the descriptor and of the frames.

def integers(item, path=()):
    """Where integers are in a description."""
    if isinstance(item, bool):
        return
    if isinstance(item, int):
        yield path, item
    elif isinstance(item, dict):
        for key, value in item.items():
            yield from integers(value, (*path, key))
    elif isinstance(item, list):
        for at, value in enumerate(item):
            yield from integers(value, (*path, at))


def changed(item, path, value):
    if not path:
        return value
    if isinstance(item, dict):
        return {k: changed(v, path[1:], value) if k == path[0] else v for k, v in item.items()}
    return [changed(v, path[1:], value) if at == path[0] else v for at, v in enumerate(item)]


def tgm_samples():
    packed = dict(dtype="float64", encoding="simple_packing", sp_reference_value=1.0, sp_binary_scale_factor=0, sp_decimal_scale_factor=0)
    plain = tgm.described()
    yield "plain", plain, tgm.PLAIN
    yield "masked", {**plain, "masks": {"nan": {"method": "none", "offset": 16, "length": 1}}}, tgm.PLAIN + b"\x80"
    yield "mask rle", {**plain, "masks": {"nan": {"method": "rle", "offset": 16, "length": 5}}}, tgm.PLAIN + b"\0\0\0\x04\0"
    yield "packed", tgm.described(**packed, sp_bits_per_value=8), b"\1\2\3\4"
    yield "constant", tgm.described(**packed, sp_bits_per_value=0), b""
    yield "packed zstd", tgm.described(**packed, sp_bits_per_value=8, compression="zstd"), zeros_frame(4)
    yield "zstd", tgm.described(compression="zstd"), zeros_frame(16)
    yield "zstd large", tgm.described(compression="zstd"), zeros_frame(2**30)
    yield "lz4", tgm.described(compression="lz4"), b"\x10\0\0\0\x10\0" + bytes(2)
    yield "lz4 large", tgm.described(compression="lz4"), b"\x1f\0\1\0" + b"\xff" * 200_000 + b"\0"
    yield "szip", tgm.described(compression="szip", szip_rsi=128, szip_block_size=16, szip_flags=8), bytes(16)
    yield "blosc2", tgm.described(compression="blosc2"), b"\x9e\xa8b2frame\0" + bytes(80)
    yield "zfp", tgm.described(compression="zfp", dtype="float64", zfp_mode="fixed_rate", zfp_rate=8), bytes(32)
    yield "sz3", tgm.described(compression="sz3", dtype="float64", sz3_error_bound_mode="abs", sz3_error_bound=1.0), bytes(64)
    yield "shuffled", tgm.described(filter="shuffle", shuffle_element_size=4), tgm.PLAIN
    yield "shuffled zstd", tgm.described(filter="shuffle", shuffle_element_size=4, compression="zstd"), zeros_frame(16)
    yield "bits", tgm.described(dtype="bitmask", shape=[9]), b"\xff\x80"
    yield "bits rle", tgm.described(dtype="bitmask", shape=[9], compression="rle"), b"\0\0\0\x09\0"
    yield "bits roaring", tgm.described(dtype="bitmask", shape=[9], compression="roaring"), b"\0\0\0\x09" + bytes(8)


def tgm_claims():
    for name, descriptor, payload in tgm_samples():
        # Cells of one row, so that one changed extent is the whole claim.
        for path, original in integers(descriptor):
            for value in boundaries(len(payload), original, 8):
                body = tgm.message(tgm.META, tgm.tensor(changed(descriptor, path, value), payload))
                yield f"tgm {name} {'.'.join(map(str, path))}={value}", ".tgm", body
    base = bytearray(tgm.message(tgm.META, tgm.tensor()))
    heads = [at for at in range(len(base)) if base[at : at + 2] == b"FR"]
    tail = len(base) - 24
    fields = [(8, 2), (10, 2), (12, 4), (16, 8), (tail, 8), (tail + 8, 8)]
    for at in heads:
        fields += [(at + 2, 2), (at + 4, 2), (at + 6, 2), (at + 8, 8)]
    fields.append((base.index(b"ENDF", heads[-1]) - 16, 8))
    for at, width in fields:
        original = int.from_bytes(base[at : at + width], "big")
        for value in boundaries(len(base), original, width):
            body = bytearray(base)
            body[at : at + width] = value.to_bytes(width, "big")
            yield f"tgm frame {at}={value}", ".tgm", bytes(body)


# TileDB: the schema, the fragment metadata and the tiles. Integers have no alignment there, so every offset is one.

def tiledb_claims():
    for fixture in ("dense_overlay", "sparse_duplicates", "enumerated"):
        probe = Path(tempfile.mkdtemp(prefix="claims-"))
        array = hostile_tiledb.Array(probe / "a", fixture)
        schema = hostile_tiledb.unfiltered(array.schema().read_bytes())
        tiles = sorted(p for p in array.fragment().rglob("*.tdb"))
        sizes = {p.name: p.stat().st_size for p in tiles}
        shutil.rmtree(probe)
        for at in range(len(schema)):
            for width in (4, 8):
                original = int.from_bytes(schema[at : at + width], "little")
                for value in boundaries(len(schema), original, width):
                    put = lambda a, at=at, v=value, w=width: a.put(at, v.to_bytes(w, "little")[: len(schema) - at])
                    yield f"tiledb {fixture} schema {at}:{width}={value}", "", (fixture, put)
        for name, size in sizes.items():
            places = range(max(0, size - 400), size - 7) if name == "__fragment_metadata.tdb" else range(0, min(size, 24), 4)
            for at in places:
                for value in boundaries(size, -1, 8):
                    def put(a, at=at, v=value, name=name):
                        hostile_tiledb.poke(a.fragment() / name, at, v.to_bytes(8, "little"))
                    yield f"tiledb {fixture} {name} {at}={value}", "", (fixture, put)


class VersionClaims(Sequence):
    """Structures of the format versions 1 to 4, which have files of their own: every offset, for two widths, at some values."""

    def __init__(self, version):
        with tarfile.open(ROOT / f"fixtures/tiledb_versions/v{version}.tar.gz") as archive:
            files = {m.name.partition("/")[2]: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
        self.version, self.cases = version, []
        for array in sorted({name.partition("/")[0] for name in files}):
            own = {name.partition("/")[2]: content for name, content in files.items() if name.startswith(array + "/")}
            for name, content in own.items():
                if name.endswith("__fragment_metadata.tdb") and version > 2:
                    self.cases += [(array, own, name, content, False, at) for at in range(max(0, len(content) - 300), len(content))]
                elif name.endswith(("__fragment_metadata.tdb", "__array_schema.tdb")):
                    # Version 1 stores these without a filter.
                    plain = content[-struct.unpack_from("<Q", content, 12)[0] :] if version == 1 else hostile_tiledb.unfiltered(content)
                    self.cases += [(array, own, name, plain, True, at) for at in range(len(plain))]
        self.each = 2 * len(VALUES)

    def __len__(self):
        return len(self.cases) * self.each

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        place, case = divmod(number, self.each)
        array, files, name, content, filtered, at = self.cases[place]
        width, value = (4, 8)[case % 2], VALUES[case // 2]
        changed = bytearray(content)
        part = (value % (1 << 8 * width)).to_bytes(width, "little")[: len(changed) - at]
        changed[at : at + len(part)] = part
        stored = hostile_tiledb.generic(bytes(changed), version=self.version) if filtered else bytes(changed)
        return f"tiledb v{self.version} {array} {name} {at}:{width}={value}", "", {**files, name: stored}


# The statistics of chunks in `.tet`: a region with a separate digest, and one in the footer.

#: Writes a file with statistics, then computes digests: one line of hexadecimal digits each.
STATISTICS = """
import sys, numpy as np, tesseral, xxhash
cells = np.arange(4096, dtype="f8").reshape(4, 1024)
cells[0, :7] = np.nan
tesseral.write(sys.argv[1], {"a": cells, "b": (cells[:2] > 9).astype("i4")}, chunks=(1, 1024), statistics=True)
print(flush=True)
for line in sys.stdin: print(xxhash.xxh3_64_hexdigest(bytes.fromhex(line)), flush=True)
"""


class StatisticsClaims(Sequence):
    """Every offset of the region, for two widths, at some values; digests are recomputed."""

    def __init__(self, folder):
        path = folder / "statistics.tet"
        self.process = subprocess.Popen([PYTHON, "-c", STATISTICS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        need(self.process.stdout.readline() == "\n", "a file with statistics was not written")
        self.data = path.read_bytes()
        self.start = self.data.index(b"TSTA")
        rows, datasets, sums = struct.unpack_from("<3Q", self.data, self.start + 8)
        self.end = self.start + 40 + datasets + 48 * rows + -(-sums // 8) * 8 + 8
        self.json = len(self.data) - 16 - int.from_bytes(self.data[-16:-8], "little")
        self.each = 2 * len(VALUES)

    def digest(self, data):
        print(bytes(data).hex(), file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip().encode()

    def __len__(self):
        return (self.end - 8 - self.start) * self.each

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError
        at, case = divmod(number, self.each)
        at, width, value = at + self.start, (4, 8)[case % 2], VALUES[case // 2]
        changed = bytearray(self.data)
        part = (value % (1 << 8 * width)).to_bytes(width, "little")[: self.end - 8 - at]
        changed[at : at + len(part)] = part
        changed[self.end - 8 : self.end] = bytes.fromhex(self.digest(changed[self.start : self.end - 8]).decode())[::-1]
        self.put(changed, b'"statistics":"', self.digest(changed[self.start : self.end]))
        self.put(changed, b'"json":"', b"0" * 16)
        self.put(changed, b'"json":"', self.digest(changed[self.json : -16]))
        return f"tet statistics {at}:{width}={value}", ".tet", bytes(changed)

    def put(self, changed, key, digits):
        at = changed.index(key, self.json) + len(key)
        changed[at : at + 16] = digits


def npy_claims():
    for value in VALUES:
        for shape in (f"({value},)", f"(2, {value})"):
            head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            yield f"npy {shape}", ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(32)
    for length in (0, 1, 2**15, 2**16 - 1):
        yield f"npy header {length}", ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", length) + b"{" * 200


# Files made by hand: what claims most for its size, and what stays just within each limit.

def tet_chunks(dtype, width, extents, chunk, payloads, codec=1, shared=False):
    """A `.tet` file of one dataset, its chunks along the first dimension; a shared payload is stored once."""
    rank = len(extents)
    name = b"a"
    record = struct.pack("<IIII", len(name), dtype, rank, 0) + name + bytes(7) + struct.pack(f"<{2 * rank}Q", *extents, *chunk)
    head = 40 + len(record)
    at = head + 32 + 104 * len(payloads)
    rows, stored = [], []
    for i, (payload, size) in enumerate(payloads):
        rows.append(struct.pack("<9Q", 0, i, *([0] * 7)) + struct.pack("<3QII", at, size * width, len(payload), codec, 0))
        if not shared:
            at += len(payload)
        if not shared or i == 0:
            stored.append(payload)
    out = b"TETR" + struct.pack("<IIIQQQ", 1, 1, 0, head, 32 + 104 * len(payloads), len(record)) + record
    return out + b"TIDX" + struct.pack("<IQHHIQ", 1, len(payloads), 0, 0, 0, 0) + b"".join(rows) + b"".join(stored)


def padded_frame(n, stored, seed=1):
    """A Zstandard frame of `n` bytes that takes `stored` bytes: noise in raw blocks, then zeros in run-length blocks."""
    noise = random.Random(seed).randbytes(stored - 4 * (n >> 17) - 64)
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x78")
    for at in range(0, len(noise), 128 << 10):
        part = noise[at : at + (128 << 10)]
        out += (len(part) << 3).to_bytes(3, "little") + part
    return bytes(out) + zeros_frame(n - len(noise))[6:]


def constant(cells):
    return dict(dtype="float64", shape=[cells], encoding="simple_packing", sp_reference_value=1.5, sp_binary_scale_factor=0,
                sp_decimal_scale_factor=0, sp_bits_per_value=0)


def of_tgm(payload=b"", **changes):
    return tgm.message(tgm.META, tgm.tensor(tgm.described(**changes), payload))


UINT8, FLOAT32, FLOAT64 = 5, 1, 2


def crafted():
    gib, bomb = zeros_frame(1 << 30), b"\x1f\0\1\0" + b"\xff" * 200_000 + b"\0"
    # Claims far beyond what is stored.
    yield "absent_chunk", ".tet", tet_chunks(UINT8, 1, [640 << 30], [640 << 30], [])
    yield "wrong_row", ".tet", tet_chunks(UINT8, 1, [640 << 30], [640 << 30], [(bytes(16), 16)], codec=0)
    yield "zstd_gib", ".tet", tet_chunks(UINT8, 1, [1 << 30], [1 << 30], [(gib, 1 << 30)])
    yield "zstd_exbi", ".tet", tet_chunks(UINT8, 1, [1 << 60], [1 << 60], [(gib, 1 << 60)])
    yield "empty_grid", ".tet", tet_chunks(UINT8, 1, [2**64 - 1], [1], [(b"\7", 1)], codec=0)
    yield "zstd_gib", ".tgm", of_tgm(gib, dtype="uint8", shape=[1 << 30], compression="zstd")
    yield "lz4_2_gib", ".tgm", of_tgm(bomb, dtype="uint8", shape=[(1 << 31) - 1], compression="lz4")
    yield "constant_4_gib", ".tgm", of_tgm(**constant(1 << 29))
    yield "constant_exbi", ".tgm", of_tgm(**constant(1 << 57))
    yield "zstd_short", ".tgm", of_tgm(zeros_frame(1 << 20), dtype="uint8", shape=[1 << 29], compression="zstd")
    yield "bits", ".tgm", of_tgm(b"\xff" * 5 + b"\0", dtype="bitmask", shape=[1 << 40], compression="rle")
    yield "szip", ".tgm", of_tgm(bytes(64), dtype="uint8", shape=[1 << 40], compression="szip")
    yield "huge", ".npy", npy_file(f"({2**63 - 1},)")
    # Claims just within the limits.
    for mib in (8, 27, 40, 55):
        n = mib * MIB
        yield f"constant {mib} MiB", ".tgm", of_tgm(**constant(n // 8))
        yield f"uint8 zstd {mib} MiB", ".tgm", of_tgm(zeros_frame(n), dtype="uint8", shape=[n], compression="zstd")
        yield f"float32 zstd {mib} MiB", ".tgm", of_tgm(zeros_frame(n), dtype="float32", shape=[n // 4096, 1024], strides=[1024, 1], ndim=2, compression="zstd")
        yield f"uint8 zstd {mib} MiB", ".tet", tet_chunks(UINT8, 1, [n], [n], [(zeros_frame(n), n)])
        yield f"float32 zstd {mib} MiB", ".tet", tet_chunks(FLOAT32, 4, [n // 4096, 1024], [n // 4096, 1024], [(zeros_frame(n), n // 4)])
        yield f"bits rle {mib} MiB", ".tgm", of_tgm(bytes([n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255, 1]), dtype="bitmask", shape=[n], compression="rle")
    for mib in (63, 255, 511):
        n = mib * MIB
        yield f"constant {mib} MiB", ".tgm", of_tgm(**constant(n // 8))
        k = n // 32
        yield f"float32 zstd 32 x {mib // 32} MiB", ".tet", tet_chunks(FLOAT32, 4, [n // 4096, 1024], [k // 4096, 1024], [(zeros_frame(k), k // 4)] * 32)
    # Claims that a file of 1 MiB justifies.
    for mib in (40, 63):
        n, stored = mib * MIB, MIB - 600
        frame = padded_frame(n, stored)
        for name, dtype, width in (("uint8", UINT8, 1), ("float32", FLOAT32, 4), ("float64", FLOAT64, 8)):
            yield f"{name} justified {mib} MiB", ".tet", tet_chunks(dtype, width, [n // width], [n // width], [(frame, n // width)])
            yield f"{name} justified {mib} MiB", ".tgm", of_tgm(frame, dtype=name, shape=[n // width], compression="zstd")
    # One payload stored for many chunks; many small chunks; many arrays.
    frame = padded_frame(20 * MIB, 500_000)
    yield "shared payload", ".tet", tet_chunks(FLOAT32, 4, [5 * MIB * 1000], [5 * MIB], [(frame, 5 * MIB)] * 1000, shared=True)
    yield "shared zeros", ".tet", tet_chunks(FLOAT32, 4, [MIB * 5000], [MIB], [(zeros_frame(4 * MIB), MIB)] * 5000, shared=True)
    yield "small chunks", ".tet", tet_chunks(FLOAT32, 4, [9000], [1], [(bytes(4), 1)] * 9000, codec=0)
    yield "objects", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}] * 3000})), *[tgm.tensor(tgm.described()) for _ in range(3000)])
    yield "constant objects", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}] * 2400})),
                                                  *[tgm.tensor(tgm.described(**constant(6 * MIB)), b"") for _ in range(2400)])
    few = tgm.tensor(tgm.described(**constant(2 * MIB)), b"")
    yield "smaller constant objects", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}] * 2400})), *[few] * 2400)
    packed = tgm.tensor(tgm.described(dtype="float32", shape=[4 * MIB], compression="zstd"), zeros_frame(16 * MIB))
    yield "compressed objects", ".tgm", tgm.message(tgm.frame(1, tgm.cbor({"base": [{}] * 1200})), *[packed] * 1200)
    yield "compressed chunks", ".tet", tet_chunks(FLOAT32, 4, [2 * MIB * 2000], [2 * MIB], [(zeros_frame(8 * MIB), 2 * MIB)] * 2000)
    yield "empty", ".npy", npy_file("(65536, 65536, 65536, 0)")
    yield "messages", ".tgm", tgm.message(tgm.META, tgm.tensor()) * 2500
    yield "constant messages", ".tgm", of_tgm(**constant(6 * MIB)) * 1800
    yield "noise", ".npy", npy_file(f"({MIB // 8 - 16},)", random.Random(1).randbytes(MIB - 128))
    yield "bytes", ".npy", npy_file(f"({MIB - 128},)", random.Random(1).randbytes(MIB - 128), "|u1")


def npy_file(shape, content=b"", descr="<f8"):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + content


def crafted_cases(made):
    cases = [(f"crafted {name}{ending}", ending, content) for name, ending, content in made]
    need(all(size(content) <= MIB for _, _, content in cases), [(name, size(c)) for name, _, c in cases if size(c) > MIB])
    return cases


def size(content):
    """Bytes of a file, or of all files of a folder."""
    return sum(map(len, content.values())) if isinstance(content, dict) else len(content)


def interchange_cases(folder):
    return crafted_cases([*interchange.crafted_netcdf3(), *interchange.crafted_zarr(), *interchange.crafted_hdf5(folder / "h5")])


def field_cases(folder):
    return crafted_cases([*fields.crafted_grib(), *fields.crafted_csv(), *fields.crafted_index(folder)])


def table_cases(folder):
    return crafted_cases([*tables.crafted_parquet(folder), *tables.crafted_npz(), *tables.crafted_arrow(folder)])


def value_cases(folder):
    arrays = [(f"crafted {name}", ending, content) for name, ending, content in values.crafted_tiledb()]
    return [*crafted_cases(values.crafted(folder)), *arrays]


KINDS = {"crafted": lambda _: crafted_cases(crafted()), "interchange": interchange_cases,
         "tet": lambda _: [*tet_claims(0), *tet_claims(1)], "tgm": lambda _: list(tgm_claims()), "tiledb": lambda _: list(tiledb_claims()),
         "npy": lambda _: list(npy_claims()), "netcdf3": lambda _: list(interchange.netcdf3_claims(boundaries)),
         "hdf5": lambda _: interchange.hdf5_claims(), "fields": field_cases,
         "grib": lambda _: interchange.Joined(*fields.grib_claims()), "csv": lambda _: interchange.Joined(*fields.csv_claims()),
         "index": lambda folder: interchange.Joined(*fields.index_claims(folder)),
         "values": value_cases,
         "tables": table_cases, "parquet": lambda folder: interchange.Joined(*tables.parquet_claims(folder)),
         "arrow": lambda folder: interchange.Joined(*tables.arrow_claims(folder)),
         "npz": lambda _: interchange.Joined(*tables.npz_claims()),
         "compound": lambda folder: interchange.Joined(*interchange.compound_claims(folder)),
         "versions": lambda _: interchange.Joined(*map(VersionClaims, (1, 2, 3, 4))),
         "statistics": lambda folder: StatisticsClaims(folder) if PYTHON.exists() else [],
         "zarr": lambda _: list(interchange.zarr_claims(boundaries, integers, changed))}


def made(case, folder):
    """The file or folder of a case."""
    _, ending, content = case
    path = folder / f"case{ending}"
    if path.is_dir():
        shutil.rmtree(path)
    if isinstance(content, dict):
        for name, part in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(part)
    elif ending:
        path.write_bytes(content)
    else:
        fixture, change = content
        change(hostile_tiledb.Array(path, fixture))
    return path


def idle(folder, measured):
    path = folder / "idle.tet"
    path.write_bytes(tet_file())
    return measured(["info", path])[2]


def judge(label, name, arguments, floor, measured):
    """Runs one command; gives CPU seconds and MiB above idle, or says what was too much."""
    code, cpu, mib, words = measured(arguments)
    wrong = []
    if not 0 <= code <= 8 or "panicked" in words:
        wrong.append(f"ended with {code}: {words[-200:]}")
    if cpu > CPU:
        wrong.append(f"took {cpu:.1f} s of CPU time")
    if mib - floor > ABOVE_IDLE:
        wrong.append(f"took {mib - floor:.0f} MiB above idle")
    return cpu, mib - floor, [f"{label}: {name}: {what}" for what in wrong]


def soak(kind, folder, count, seed=1):
    """`count` of the claims of a format, each under every command; fewer claims meet a few commands."""
    folder = folder / kind
    folder.mkdir()
    cases = KINDS[kind](folder)
    chance = random.Random(seed)
    some = cases if count >= len(cases) else chance.sample(cases, count)
    measured = Runner()
    floor = idle(folder, measured)
    most_cpu, most_mib, runs, wrong = 0.0, 0.0, 0, []
    for case in some:
        path = made(case, folder)
        wanted = list(commands(path, folder))
        for name, arguments in wanted if count > 100 else chance.sample(wanted, 4):
            cpu, mib, found = judge(case[0], name, arguments, floor, measured)
            most_cpu, most_mib, runs = max(most_cpu, cpu), max(most_mib, mib), runs + 1
            wrong += found
    need(not wrong, f"{len(wrong)} of {runs} runs:\n" + "\n".join(wrong[:40]))
    return {"claims": len(some), "of": len(cases), "runs": runs, "most_cpu_s": round(most_cpu, 2), "most_mib": round(most_mib, 1)}
