"""Hand-written TileDB arrays, one per rule: a valid fixture with one change, and the expected outcome."""

import shutil
import struct
import zlib

from common import ROOT

FIXTURES = ROOT / "fixtures/tiledb"


def unfiltered(tile):
    version, stored, plain, datatype, cell, encryption, pipeline = struct.unpack_from("<IQQBQBI", tile)
    at = 34 + pipeline
    (chunks,) = struct.unpack_from("<Q", tile, at)
    at, out = at + 8, b""
    for _ in range(chunks):
        _, filtered, meta = struct.unpack_from("<III", tile, at)
        at += 12 + meta + filtered
        out += zlib.decompress(tile[at - filtered : at])
    return out


def generic(plain, *, version=22, stored=None, size=None, datatype=4, cell=1, encryption=0, pipeline=None, chunks=1, original=None,
            filtered=None, meta=0):
    """A generic tile without filters; each field of its header can be set."""
    pipeline = struct.pack("<II", 65536, 0) if pipeline is None else pipeline
    body = struct.pack("<Q", chunks)
    body += struct.pack("<III", len(plain) if original is None else original, len(plain) if filtered is None else filtered, meta)
    body += plain
    head = struct.pack("<IQQBQBI", version, len(body) if stored is None else stored, len(plain) if size is None else size,
                       datatype, cell, encryption, len(pipeline))
    return head + pipeline + body


class Array:
    """A copy of a fixture."""

    def __init__(self, folder, name):
        shutil.copytree(FIXTURES / name, folder)
        self.folder = folder

    def schema(self):
        return next(p for p in sorted((self.folder / "__schema").iterdir()) if p.is_file())

    def fragment(self):
        return sorted((self.folder / "__fragments").iterdir())[0]

    def commits(self):
        return self.folder / "__commits"

    def put(self, at, value):
        """Change the unfiltered bytes of the schema."""
        plain = bytearray(unfiltered(self.schema().read_bytes()))
        at = len(plain) + at if at < 0 else at
        plain[at : at + len(value)] = value
        self.schema().write_bytes(generic(bytes(plain)))

    def tile(self, **header):
        """Rewrite the schema with a changed header."""
        self.schema().write_bytes(generic(unfiltered(self.schema().read_bytes()), **header))

    def footer(self, at, value):
        """Change bytes of a fragment's footer; negative offsets count from its end."""
        path = self.fragment() / "__fragment_metadata.tdb"
        data = bytearray(path.read_bytes())
        start = len(data) - 8 - int.from_bytes(data[-8:], "little")
        place = start + at if at >= 0 else len(data) - 8 + at
        data[place : place + len(value)] = value
        path.write_bytes(data)


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n % 2**64)


HUGE = (2**63, 2**64 - 1)


def cases():
    """Name, fixture, change, expected outcome: ok, bad, or any (the change may affect bytes that are not read; no crash in any case)."""
    dense, sparse = "dense_overlay", "sparse_duplicates"
    yield "plain_dense", dense, lambda a: None, "ok"
    yield "plain_sparse", sparse, lambda a: None, "ok"
    yield "schema_unfiltered", dense, lambda a: a.tile(), "ok"
    # Generic tiles.
    for name, header in {
        "version_0": {"version": 0}, "version_4": {"version": 4}, "version_24": {"version": 24}, "version_huge": {"version": 2**32 - 1},
        "stored_huge": {"stored": 2**64 - 1}, "stored_long": {"stored": 10**6}, "size_huge": {"size": 2**64 - 1},
        "size_0": {"size": 0}, "size_long": {"size": 10**6}, "datatype": {"datatype": 200}, "cell_0": {"cell": 0}, "encryption": {"encryption": 9},
        "pipeline_cut": {"pipeline": b"\0" * 7}, "pipeline_filters_huge": {"pipeline": u32(0) + u32(2**32 - 1)},
        "pipeline_filter_unknown": {"pipeline": u32(0) + u32(1) + b"\xc8" + u32(0)},
        "pipeline_options_huge": {"pipeline": u32(0) + u32(1) + b"\1" + u32(2**32 - 1)},
        "chunks_0": {"chunks": 0}, "chunks_2": {"chunks": 2}, "chunks_huge": {"chunks": 2**64 - 1}, "original_huge": {"original": 2**32 - 1},
        "original_0": {"original": 0}, "filtered_huge": {"filtered": 2**32 - 1}, "meta_huge": {"meta": 2**32 - 1},
    }.items():
        yield f"tile_{name}", dense, lambda a, h=header: a.tile(**h), "any" if name in ("version_4", "datatype", "cell_0", "encryption") else "bad"
    yield "tile_empty", dense, lambda a: a.schema().write_bytes(b""), "bad"
    yield "tile_noise", dense, lambda a: a.schema().write_bytes(b"noise" * 40), "bad"
    # Schemas.
    for version in (0, 24, 2**32 - 1):
        yield f"schema_version_{version}", dense, lambda a, v=version: a.put(0, u32(v)), "bad"
    yield "schema_duplicates_2", sparse, lambda a: a.put(4, b"\2"), "bad"
    yield "schema_kind_7", dense, lambda a: a.put(5, b"\7"), "bad"
    yield "schema_tile_order_9", dense, lambda a: a.put(6, b"\x09"), "bad"
    yield "schema_cell_order_9", dense, lambda a: a.put(7, b"\x09"), "bad"
    yield "schema_capacity_0", sparse, lambda a: a.put(8, u64(0)), "any"
    yield "schema_capacity_huge", sparse, lambda a: a.put(8, u64(-1)), "any"
    yield "schema_pipeline_filters_huge", dense, lambda a: a.put(20, u32(2**32 - 1)), "bad"
    yield "schema_cut", dense, lambda a: a.schema().write_bytes(generic(unfiltered(a.schema().read_bytes())[:40])), "bad"
    yield "schema_gone", dense, lambda a: a.schema().unlink(), "bad"
    yield "schema_name_odd", dense, lambda a: a.schema().rename(a.schema().with_name("schema")), "any"
    for at in range(24, 120, 8):
        yield f"schema_ff_at_{at}", dense, lambda a, at=at: a.put(at, b"\xff" * 4), "any"
    # Fragments.
    for at in (0, 4):
        yield f"footer_ff_at_{at}", dense, lambda a, at=at: a.footer(at, b"\xff" * 4), "bad"
    for at in range(-8, -200, -24):
        for value in HUGE:
            yield f"footer_{value:x}_at_{-at}_from_end", sparse, lambda a, at=at, v=value: a.footer(at, u64(v)), "any"
    yield "footer_length_huge", dense, lambda a: a.footer(0, b"") or tail(a, u64(-1)), "bad"
    yield "footer_length_0", dense, lambda a: tail(a, u64(0)), "bad"
    yield "footer_cut", dense, lambda a: cut(a.fragment() / "__fragment_metadata.tdb", -9), "bad"
    yield "footer_empty", dense, lambda a: (a.fragment() / "__fragment_metadata.tdb").write_bytes(b""), "bad"
    yield "footer_gone", dense, lambda a: (a.fragment() / "__fragment_metadata.tdb").unlink(), "bad"
    yield "tiles_gone", dense, lambda a: (a.fragment() / "a0.tdb").unlink(), "bad"
    yield "tiles_cut", dense, lambda a: cut(a.fragment() / "a0.tdb", -1), "bad"
    yield "tiles_empty", dense, lambda a: (a.fragment() / "a0.tdb").write_bytes(b""), "bad"
    yield "tiles_long", dense, lambda a: append(a.fragment() / "a0.tdb", b"more"), "any"
    yield "tiles_chunk_count_huge", dense, lambda a: poke(a.fragment() / "a0.tdb", 0, u64(-1)), "bad"
    yield "tiles_chunk_original_huge", dense, lambda a: poke(a.fragment() / "a0.tdb", 8, u32(2**32 - 1)), "bad"
    yield "tiles_chunk_filtered_huge", dense, lambda a: poke(a.fragment() / "a0.tdb", 12, u32(2**32 - 1)), "bad"
    yield "tiles_chunk_meta_huge", dense, lambda a: poke(a.fragment() / "a0.tdb", 16, u32(2**32 - 1)), "bad"
    yield "coordinates_gone", sparse, lambda a: (a.fragment() / "d0.tdb").unlink(), "bad"
    yield "coordinates_cut", sparse, lambda a: cut(a.fragment() / "d0.tdb", -1), "bad"
    # Folders.
    yield "fragment_uncommitted", dense, lambda a: (a.commits() / f"{a.fragment().name}.wrt").unlink(), "any"
    yield "commit_without_fragment", dense, lambda a: (a.commits() / f"__1_1_{'0' * 32}_22.wrt").write_bytes(b""), "any"
    yield "commit_name_odd", dense, lambda a: (a.commits() / "what.wrt").write_bytes(b""), "any"
    yield "commit_times_swapped", dense, lambda a: (a.commits() / f"__9_1_{'0' * 32}_22.wrt").write_bytes(b""), "any"
    yield "vacuum_file_escapes", sparse, lambda a: (a.commits() / f"__1_2_{'0' * 32}_22.vac").write_bytes(b"../../../etc/passwd\n"), "any"
    yield "vacuum_file_noise", sparse, lambda a: (a.commits() / f"__1_2_{'0' * 32}_22.vac").write_bytes(b"\xff" * 99), "any"
    yield "ignore_file_noise", sparse, lambda a: (a.commits() / f"__1_2_{'0' * 32}_22.ign").write_bytes(b"\xff" * 99), "any"
    yield "consolidated_commits_noise", sparse, lambda a: (a.commits() / f"__1_2_{'0' * 32}_22.con").write_bytes(b"\xff" * 99), "any"
    yield "delete_noise", sparse, lambda a: (a.commits() / f"__99_99_{'0' * 32}_22.del").write_bytes(b"\xff" * 99), "bad"
    yield "delete_empty", sparse, lambda a: (a.commits() / f"__99_99_{'0' * 32}_22.del").write_bytes(b""), "bad"
    yield "delete_deep", sparse, lambda a: (a.commits() / f"__99_99_{'0' * 32}_22.del").write_bytes(generic((b"\0\2\1" + bytes(7)) * 3000)), "bad"
    yield "delete_of_nothing", sparse, lambda a: (a.commits() / f"__99_99_{'0' * 32}_22.del").write_bytes(generic(b"\0\0" + bytes(8))), "bad"
    yield "delete_and_more", sparse, lambda a: (a.commits() / f"__99_99_{'0' * 32}_22.del").write_bytes(generic(b"\1\xfe" + bytes(12) + b"more")), "bad"
    yield "attributes_noise", "enumerated", lambda a: one_of(a, "__meta").write_bytes(b"\xff" * 99), "bad"
    yield "attributes_cut", "enumerated", lambda a: cut(one_of(a, "__meta"), -3), "bad"
    yield "attributes_count_huge", "enumerated", lambda a: one_of(a, "__meta").write_bytes(generic(u32(2**32 - 1) + b"k" * 20)), "bad"
    yield "enumeration_gone", "enumerated", lambda a: one_of(a, "__schema/__enumerations").unlink(), "bad"
    yield "enumeration_noise", "enumerated", lambda a: one_of(a, "__schema/__enumerations").write_bytes(b"\xff" * 99), "bad"
    yield "footers_consolidated_noise", dense, lambda a: put_meta(a, b"\xff" * 99), "any"


def tail(array, value):
    path = array.fragment() / "__fragment_metadata.tdb"
    path.write_bytes(path.read_bytes()[:-8] + value)


def cut(path, at):
    path.write_bytes(path.read_bytes()[:at])


def append(path, more):
    path.write_bytes(path.read_bytes() + more)


def poke(path, at, value):
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(data)


def one_of(array, folder):
    return next(p for p in sorted((array.folder / folder).iterdir()) if p.is_file())


def put_meta(array, content):
    folder = array.folder / "__fragment_meta"
    folder.mkdir(exist_ok=True)
    (folder / f"__1_99_{'0' * 32}_22.meta").write_bytes(content)
