"""Write arrays of an old TileDB format version with the library of that time, through its C interface.

`python make_fixtures_tiledb_versions.py LIBRARY FOLDER` writes FOLDER/dense, FOLDER/sparse and FOLDER/words. The libraries are in old wheels of the
package `tiledb`, which this Python version cannot import; `pip download --no-deps --only-binary=:all: --python-version 3.8 --abi cp38 --platform
manylinux2010_x86_64 tiledb==0.6.6` brings one. `fixtures/tiledb_versions` was made by tiledb 0.6.6 (core 2.0, version 5), 0.7.7 (2.1, 6), 0.8.0
(2.2.2, 7), 0.8.11 (2.2.9, 8) and 0.9.5 (2.3, 9), of Python 3.8; 0.4.2 (core 1.5.1, version 2), 0.4.4 (1.6.3, 3) and 0.5.9 (1.7.7, 4), of Python 3.7.
No wheel has a library of version 1: `v1.tar.gz` is FOLDER of `--rewrite`, which turns the arrays of version 2 into those of version 1.
"""

import ctypes
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np

TYPES = {"i4": 0, "i8": 1, "f4": 2, "f8": 3, "char": 4, "i2": 7, "u2": 8}
ASCII, VAR = 11, 0xFFFFFFFF
GZIP, ZSTD, LZ4, BIT_WIDTH, BITSHUFFLE, BYTESHUFFLE = 1, 2, 3, 7, 8, 9
ROW_MAJOR, UNORDERED, WRITE = 0, 3, 1


class Library:
    def __init__(self, path):
        self.library, self.kept = ctypes.CDLL(path), []
        numbers = [ctypes.c_int32() for _ in range(3)]
        self.library.tiledb_version(*map(ctypes.byref, numbers))
        self.version = tuple(number.value for number in numbers)
        self.context = ctypes.c_void_p()
        assert self.library.tiledb_ctx_alloc(None, ctypes.byref(self.context)) == 0

    def call(self, name, *arguments):
        if getattr(self.library, f"tiledb_{name}")(self.context, *arguments):
            error, text = ctypes.c_void_p(), ctypes.c_char_p()
            self.library.tiledb_ctx_get_last_error(self.context, ctypes.byref(error))
            self.library.tiledb_error_message(error, ctypes.byref(text))
            raise RuntimeError(f"{name}: {text.value}")

    def new(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(f"{name}_alloc", *arguments, ctypes.byref(made))
        return made

    def cells(self, array):
        self.kept.append(array)
        return array.ctypes.data_as(ctypes.c_void_p)

    def size(self, array):
        self.kept.append(ctypes.c_uint64(array.nbytes))
        return ctypes.byref(self.kept[-1])

    def create(self, path, sparse, dims, attributes, duplicates=False, coords=None):
        schema, domain = self.new("array_schema", ctypes.c_int(sparse)), self.new("domain")
        for name, dtype, ends, extent in dims:
            kind, bounds, tile = ctypes.c_int(ASCII), None, None
            if dtype != "ascii":
                kind = ctypes.c_int(TYPES[dtype])
                bounds, tile = self.cells(np.array(ends, dtype)), self.cells(np.array([extent], dtype))
            self.call("domain_add_dimension", domain, self.new("dimension", name.encode(), kind, bounds, tile))
        self.call("array_schema_set_domain", schema, domain)
        if coords is not None:
            chain = self.new("filter_list")
            for number in coords:
                self.call("filter_list_add_filter", chain, self.new("filter", ctypes.c_int(number)))
            self.call("array_schema_set_coords_filter_list", schema, chain)
        for name, dtype, count, nullable, filters in attributes:
            attribute = self.new("attribute", name.encode(), ctypes.c_int(TYPES[dtype]))
            chain = self.new("filter_list")
            for number in filters:
                self.call("filter_list_add_filter", chain, self.new("filter", ctypes.c_int(number)))
            self.call("attribute_set_filter_list", attribute, chain)
            self.call("attribute_set_cell_val_num", attribute, ctypes.c_uint32(count))
            if nullable:
                self.call("attribute_set_nullable", attribute, ctypes.c_uint8(1))
            self.call("array_schema_add_attribute", schema, attribute)
        self.call("array_schema_set_capacity", schema, ctypes.c_uint64(3))
        if duplicates:
            self.call("array_schema_set_allows_dups", schema, ctypes.c_int(1))
        self.call("array_create", str(path).encode(), schema)

    def write(self, path, layout, columns, region=None, metadata=()):
        array = self.new("array", str(path).encode())
        self.call("array_open", array, ctypes.c_int(WRITE))
        for key, value in metadata:
            kind = ctypes.c_int(TYPES[value.dtype.str[1:]])
            self.call("array_put_metadata", array, key.encode(), kind, ctypes.c_uint32(value.size), self.cells(value))
        query = self.new("query", array, ctypes.c_int(WRITE))
        self.call("query_set_layout", query, ctypes.c_int(layout))
        if region is not None:
            self.call("query_set_subarray", query, self.cells(region))
        for name, column in columns.items():
            buffers, setter = [column], "query_set_buffer"
            if isinstance(column, list):
                starts = np.concatenate([[0], np.cumsum([len(text) for text in column])[:-1]]).astype("u8")
                buffers, setter = [starts, np.frombuffer(b"".join(column), "u1").copy()], "query_set_buffer_var"
            elif isinstance(column, tuple):
                buffers, setter = list(column), "query_set_buffer_nullable"
            arguments = [argument for buffer in buffers for argument in (self.cells(buffer), self.size(buffer))]
            self.call(setter, query, name.encode(), *arguments)
        self.call("query_submit", query)
        self.call("query_finalize", query)
        self.call("array_close", array)


def write_before_5(old, folder):
    """Versions 2 to 4: coordinates are zipped in one file, dimensions have one type, a dense array can hold sparse fragments."""
    attributes = [
        ("a", "i4", 1, False, (ZSTD,)),
        ("b", "f8", 1, False, (BYTESHUFFLE, ZSTD)),
        ("t", "char", VAR, False, (GZIP,)),
        ("two", "f4", 2, False, (BITSHUFFLE, LZ4)),
        ("n+m", "u2", 1, False, (BIT_WIDTH,)),
    ]
    old.create(folder / "dense", 0, [("y", "i4", (1, 10), 4), ("x", "i4", (-3, 4), 3)], attributes)
    metadata = [("answer", np.array([42, 7], "i4"))] if old.version >= (1, 7) else []
    for first, region in [(0, (1, 8, -3, 2)), (100, (3, 5, 0, 4))]:
        count = (region[1] - region[0] + 1) * (region[3] - region[2] + 1)
        n = np.arange(count) + first
        columns = {"a": (n * 7 - 100).astype("i4"), "b": n / 3.0, "t": [b"ab%d" % i * (1 + i % 4) for i in n.tolist()]}
        columns |= {"two": (np.arange(2 * count) / 4 + first).astype("f4"), "n+m": (n % 9).astype("u2")}
        old.write(folder / "dense", ROW_MAJOR, columns, np.array(region, "i4"), metadata)

    # Coordinates through their default filter, without filters, and through filters that depend on the type.
    attributes = [("v", "f4", 1, False, (ZSTD,)), ("w", "char", VAR, False, (ZSTD,))]
    for name, coords in [("sparse", None), ("plain", ()), ("shuffled", (BYTESHUFFLE, GZIP))]:
        old.create(folder / name, 1, [("r", "i8", (0, 99), 10), ("c", "i8", (0, 99), 10)], attributes, coords=coords)
        rng = np.random.default_rng(3)
        for k in range(2):
            n = np.arange(11)
            columns = {"v": (n + k * 100).astype("f4"), "w": [b"x" * (i % 5) + b"%d" % i for i in n.tolist()]}
            cells = np.stack([rng.integers(0, 99, 11), rng.permutation(99)[:11]], axis=1)
            old.write(folder / name, UNORDERED, columns | {"__coords": np.ascontiguousarray(cells)})
    old.create(folder / "floats", 1, [("f", "f8", (-10.0, 10.0), 5.0)], [("v", "i4", 1, False, (ZSTD,))])
    old.write(folder / "floats", UNORDERED, {"__coords": np.linspace(-9, 9, 8), "v": np.arange(8, dtype="i4")})
    old.create(folder / "mixed", 0, [("y", "i4", (1, 4), 2), ("x", "i4", (1, 4), 2)], [("a", "i4", 1, False, (ZSTD,))])
    old.write(folder / "mixed", ROW_MAJOR, {"a": np.arange(16, dtype="i4")}, np.array((1, 4, 1, 4), "i4"))
    old.write(folder / "mixed", UNORDERED, {"a": np.array([100, 200], "i4"), "__coords": np.array([[2, 3], [4, 1]], "i4")})


def generic_tile(content):
    """The bytes of a generic tile, unfiltered, and its header."""
    stored, pipeline = int.from_bytes(content[4:12], "little"), int.from_bytes(content[30:34], "little")
    at, out = 34 + pipeline, b""
    tile = content[at : at + stored]
    count, at = int.from_bytes(tile[:8], "little"), 8
    for _ in range(count):
        filtered, meta = (int.from_bytes(tile[at + 4 * i : at + 4 * i + 4], "little") for i in (1, 2))
        out += zlib.decompress(tile[at + 12 + meta : at + 12 + meta + filtered])
        at += 12 + meta + filtered
    return out


def unfiltered_tile(content):
    """A generic tile of version 1, without filters."""
    number = lambda n, size: n.to_bytes(size, "little")
    tile = number(1, 8) + number(len(content), 4) * 2 + number(0, 4) + content
    header = number(1, 4) + number(len(tile), 8) + number(len(content), 8) + b"\x04" + number(1, 8) + b"\0" + number(8, 4)
    return header + number(1 << 16, 4) + number(0, 4) + tile


def rewrite(folder, rewritten):
    """Copies arrays of version 2 as version 1, which differs in the coordinates that no compressor filters: they are stored cell by cell."""
    shutil.copytree(folder, rewritten)
    for file in [*rewritten.glob("*/__array_schema.tdb"), *rewritten.glob("*/*/__fragment_metadata.tdb")]:
        content = generic_tile(file.read_bytes())
        assert content[:4] == b"\2\0\0\0"
        file.write_bytes(unfiltered_tile(b"\1\0\0\0" + content[4:]))
    for file in (rewritten / "plain").glob("*/__coords.tdb"):
        content, at = bytearray(file.read_bytes()), 0
        while at < len(content):
            chunks, at = [], at + 8
            for _ in range(int.from_bytes(content[at - 8 : at], "little")):
                size, filtered, meta = np.frombuffer(content, "<u4", 3, at).tolist()
                assert (filtered, meta) == (size, 0)
                chunks.append(slice(at + 12, at + 12 + size))
                at += 12 + size
            cells = np.frombuffer(b"".join(content[chunk] for chunk in chunks), "<i8").reshape(2, -1)
            zipped = np.ascontiguousarray(cells.T).tobytes()
            for chunk in chunks:
                size = chunk.stop - chunk.start
                content[chunk], zipped = zipped[:size], zipped[size:]
        file.write_bytes(content)


def main(library, folder, rewritten=None):
    if library == "--rewrite":
        return rewrite(folder, Path(rewritten))
    old, folder = Library(library), Path(folder)
    folder.mkdir(parents=True)
    if old.version < (2, 0):
        return write_before_5(old, folder)
    # Nulls came with 2.2; its first releases wrote those of sparse arrays wrongly. Names with a slash came with version 8.
    nulls, named = old.version >= (2, 2, 0), old.version >= (2, 2, 5)
    odd = "n/m" if named else "n+m"
    attributes = [
        ("a", "i4", 1, False, (ZSTD,)),
        ("b", "f8", 1, False, (BYTESHUFFLE, ZSTD)),
        ("t", "char", VAR, False, (GZIP,)),
        ("two", "f4", 2, False, (BITSHUFFLE, LZ4)),
        (odd, "u2", 1, False, (BIT_WIDTH,)),
    ]
    attributes += [("null", "i2", 1, True, (ZSTD,))] if nulls else []
    old.create(folder / "dense", 0, [("y", "i4", (1, 10), 4), ("x", "i4", (-3, 4), 3)], attributes)
    # Two overlapping fragments, and cells that neither holds.
    for first, region in [(0, (1, 8, -3, 2)), (100, (3, 5, 0, 4))]:
        count = (region[1] - region[0] + 1) * (region[3] - region[2] + 1)
        n = np.arange(count) + first
        columns = {"a": (n * 7 - 100).astype("i4"), "b": n / 3.0, "t": [b"ab%d" % i * (1 + i % 4) for i in n.tolist()]}
        columns |= {"two": (np.arange(2 * count) / 4 + first).astype("f4"), odd: (n % 9).astype("u2")}
        columns |= {"null": ((n - 5).astype("i2"), (n % 3 > 0).astype("u1"))} if nulls else {}
        old.write(folder / "dense", ROW_MAJOR, columns, np.array(region, "i4"), [("answer", np.array([42, 7], "i4"))])

    attributes = [("v", "f4", 1, False, (ZSTD,)), ("w", "char", VAR, False, (ZSTD,))]
    attributes += [("null", "i4", 1, True, (ZSTD,))] if named else []
    old.create(folder / "sparse", 1, [("r", "i8", (0, 99), 10), ("c", "i8", (0, 99), 10)], attributes)
    rng = np.random.default_rng(3)
    for k in range(2):
        n = np.arange(11)
        columns = {"v": (n + k * 100).astype("f4"), "w": [b"x" * (i % 5) + b"%d" % i for i in n.tolist()]}
        columns |= {"r": rng.integers(0, 99, 11), "c": rng.permutation(99)[:11]}
        columns |= {"null": (n.astype("i4"), (n % 2).astype("u1"))} if named else {}
        old.write(folder / "sparse", UNORDERED, columns)

    old.create(folder / "words", 1, [("s", "ascii", None, None), ("f", "f8", (-10.0, 10.0), 5.0)], [("v", "i4", 1, False, (ZSTD,))], True)
    words = [b"ab%d" % (i * 37 % 11) * (1 + i % 2) for i in range(8)]
    old.write(folder / "words", UNORDERED, {"s": words, "f": np.linspace(-9, 9, 8), "v": np.arange(8, dtype="i4")})


if __name__ == "__main__":
    main(*sys.argv[1:])
