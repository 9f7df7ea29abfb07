"""Sizes that a file claims: every integer of the wire structures set to boundary values, every command run on the result.

Whatever a file of up to 1 MiB claims, a command answers or refuses it within a second of CPU time and 64 MiB above what an idle `tet`
takes. Checksums are left out of the samples, so that nothing but the claim itself is wrong."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import hostile_tgm as tgm
import hostile_tiledb
from common import TET, need

MIB = 1 << 20
#: Allowed above an idle process, in MiB.
ABOVE_IDLE = 64
#: Allowed CPU time, in seconds; a debug build may be given more.
CPU = float(os.environ.get("TET_CLAIMS_CPU", "1"))
#: The process is ended when it takes this much longer.
CPU_STOP = 20 * CPU

VALUES = (0, 1, 2**7, 2**15 - 1, 2**16, 2**24 - 1, 2**26, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def commands(path, out):
    """Every command that reads a source: name and arguments."""
    yield "info", ["info", path]
    yield "stat", ["stat", path]
    yield "stat along", ["stat", path, "--by", "0"]
    yield "cat", ["cat", path, "--raw"]
    yield "cat csv", ["cat", path, "--format", "csv"]
    yield "verify", ["verify", path]
    yield "verify deep", ["verify", path, "--full"]
    yield "repair", ["repair", path]
    yield "recover", ["recover", "-f", path, out / f"recovered{path.suffix}"]
    yield "convert tet", ["convert", "-f", path, out / "out.tet"]
    yield "convert tgm", ["convert", "-f", path, out / "out.tgm"]
    yield "convert tiledb", ["convert", "-f", path, out / "out.tdb", "--to", "tiledb"]
    yield "rechunk", ["rechunk", "-f", path, out / "rechunked.tet", "--chunk", "0=3"]
    yield "diff", ["diff", path, path]
    yield "plot", ["plot", path]


#: Starts commands from a process of its own, because the peak of a child counts what its parent held when it was started.
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


def npy_claims():
    for value in VALUES:
        for shape in (f"({value},)", f"(2, {value})"):
            head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
            yield f"npy {shape}", ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + bytes(32)
    for length in (0, 1, 2**15, 2**16 - 1):
        yield f"npy header {length}", ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", length) + b"{" * 200


KINDS = {"tet": lambda: [*tet_claims(0), *tet_claims(1)], "tgm": lambda: list(tgm_claims()), "tiledb": lambda: list(tiledb_claims()),
         "npy": lambda: list(npy_claims())}


def made(case, folder):
    """The file or folder of a case."""
    _, ending, content = case
    path = folder / f"case{ending}"
    if path.is_dir():
        shutil.rmtree(path)
    if ending:
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
    cases = KINDS[kind]()
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
