#!/usr/bin/env python3
"""Make the TileDB fixtures: small arrays written by the reference package (`tiledb` 0.36.1), and what it reads back.

    make_fixtures_tiledb.py        # rewrites fixtures/tiledb; names carry new random parts, so hashes change
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tiledb

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "python"))
from tiledb_arrays import expectation  # noqa: E402

ROOT = HERE.parent / "fixtures" / "tiledb"
KEY = b"0123456789abcdef0123456789abcdef"


def write(uri, time, box, values):
    with tiledb.open(uri, "w", timestamp=time) as array:
        subarray = tiledb.Subarray(array)
        subarray.add_ranges([[(np.int32(a), np.int32(b))] for a, b in box])
        array.write_subarray(subarray, values)


def dense_dims(**options):
    x = tiledb.Dim("x", domain=(-3, 6), tile=4, dtype="int32")
    y = tiledb.Dim("y", domain=(1, 5), tile=3, dtype="int32")
    return tiledb.Domain(x, y)


def dense_overlay(uri, **orders):
    attrs = [
        tiledb.Attr("value", dtype="int32", filters=[tiledb.ZstdFilter()]),
        tiledb.Attr("maybe", dtype="float64", nullable=True),
        tiledb.Attr("text", dtype="ascii", var=True, filters=[tiledb.GzipFilter()]),
    ]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=dense_dims(), attrs=attrs, **orders))
    for time, box in [(10, [(-3, 3), (1, 5)]), (20, [(0, 6), (2, 3)]), (30, [(2, 3), (3, 3)])]:
        shape = tuple(b - a + 1 for a, b in box)
        count = shape[0] * shape[1]
        value = (np.arange(count) + 100 * time).astype("int32").reshape(shape)
        maybe = np.ma.MaskedArray(np.arange(count) / 4, mask=np.arange(count) % 3 == 0).reshape(shape)
        text = np.array([f"{time}:" + "x" * (i % 4) for i in range(count)], dtype="O").reshape(shape)
        write(uri, time, box, {"value": value, "maybe": maybe, "text": text})


def dense_columns(uri):
    dense_overlay(uri, cell_order="col-major", tile_order="col-major")


def filters(uri):
    chains = {
        "plain": [], "noop": [tiledb.NoOpFilter()], "gzip": [tiledb.GzipFilter()], "zstd": [tiledb.ZstdFilter()],
        "lz4": [tiledb.LZ4Filter()], "bzip2": [tiledb.Bzip2Filter()], "rle": [tiledb.RleFilter()],
        "double_delta": [tiledb.DoubleDeltaFilter()], "delta": [tiledb.DeltaFilter()],
        "bit_width": [tiledb.BitWidthReductionFilter()], "positive_delta": [tiledb.PositiveDeltaFilter()],
        "bitshuffle": [tiledb.BitShuffleFilter()], "byteshuffle": [tiledb.ByteShuffleFilter()],
        "xor": [tiledb.XORFilter()], "md5": [tiledb.ChecksumMD5Filter()], "sha256": [tiledb.ChecksumSHA256Filter()],
        "many": [tiledb.BitWidthReductionFilter(), tiledb.ByteShuffleFilter(), tiledb.ZstdFilter(), tiledb.ChecksumMD5Filter()],
    }
    attrs = [tiledb.Attr(name, dtype="int32", filters=chain) for name, chain in chains.items()]
    attrs.append(tiledb.Attr("float_scale", dtype="float64", filters=[tiledb.FloatScaleFilter(0.5, 1.0, 2)]))
    attrs.append(tiledb.Attr("rle_text", dtype="ascii", var=True, filters=[tiledb.RleFilter()]))
    attrs.append(tiledb.Attr("dictionary", dtype="ascii", var=True, filters=[tiledb.DictionaryFilter(), tiledb.ZstdFilter()]))
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 29), tile=30, dtype="int32"))
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=domain, attrs=attrs))
    values = {name: (np.arange(30) ** 2 // 7).astype("int32") for name in chains}
    values["float_scale"] = np.arange(30) / 2 - 3
    for name in ("rle_text", "dictionary"):
        values[name] = np.array(["abc"[: i // 10 + 1] for i in range(30)], dtype="O")
    write(uri, 10, [(0, 29)], values)


def sparse_dims():
    x = tiledb.Dim("x", domain=(0, 99), tile=10, dtype="int32")
    k = tiledb.Dim("k", domain=(None, None), tile=None, dtype="ascii")
    return tiledb.Domain(x, k)


def sparse_history(uri):
    attrs = [tiledb.Attr("v", dtype="int64"), tiledb.Attr("n", dtype="float32", nullable=True)]
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=sparse_dims(), attrs=attrs, sparse=True, capacity=3))

    def put(time, xs, keys, v):
        n = np.ma.MaskedArray(np.array(v, "float32"), mask=[i % 2 == 0 for i in range(len(v))])
        with tiledb.open(uri, "w", timestamp=time) as array:
            array[np.array(xs, "int32"), np.array(keys, dtype="O")] = {"v": np.array(v, "int64"), "n": n}

    put(10, [3, 5, 41, 42, 80], ["aaa", "b", "q", "r", "zz"], [1, 2, 3, 4, 5])
    put(20, [5, 42, 7], ["b", "r", "c"], [20, 40, 70])
    with tiledb.open(uri, "d", timestamp=25) as array:
        array.query(cond="v > 3 and v < 30").submit()
    tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.timestamp_end": 28}))
    put(30, [3, 99], ["aaa", ""], [300, 990])


def sparse_duplicates(uri):
    attrs = [tiledb.Attr("v", dtype="uint16", filters=[tiledb.BitShuffleFilter(), tiledb.LZ4Filter()])]
    domain = tiledb.Domain(tiledb.Dim("t", domain=(0.0, 10.0), tile=2.5, dtype="float64"))
    schema = tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=4, allows_duplicates=True,
                                cell_order="hilbert")
    tiledb.Array.create(uri, schema)
    for time in (10, 20):
        with tiledb.open(uri, "w", timestamp=time) as array:
            array[np.array([0.5, 0.5, 9.25, 3.0, 7.5])] = {"v": np.arange(5, dtype="uint16") + time}


def evolved(uri):
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 5), tile=3, dtype="int32"))
    tiledb.Array.create(uri, tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("a", dtype="uint8")]))
    write(uri, 10, [(0, 3)], {"a": np.arange(4, dtype="uint8")})
    evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
    evolution.add_attribute(tiledb.Attr("b", dtype="float32", fill=2.5))
    evolution.timestamp(20)
    evolution.array_evolve(uri)
    write(uri, 30, [(2, 4)], {"a": np.array([9, 9, 9], "uint8"), "b": np.array([0.5, 1.5, np.nan], "float32")})


def enumerated(uri):
    colors = tiledb.Enumeration("color", True, dtype="U5", values=["red", "green", "blue"])
    attr = tiledb.Attr("c", dtype="int8", enum_label="color")
    current = tiledb.CurrentDomain(tiledb.default_ctx())
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 99), tile=4, dtype="int32"))
    box = tiledb.NDRectangle(tiledb.default_ctx(), domain)
    box.set_range(0, 0, 5)
    current.set_ndrectangle(box)
    schema = tiledb.ArraySchema(domain=domain, attrs=[attr], enums=[colors])
    schema.set_current_domain(current) if hasattr(schema, "set_current_domain") else schema._set_current_domain(current)
    tiledb.Array.create(uri, schema)
    write(uri, 10, [(1, 4)], {"c": np.array([0, 2, 1, 0], "int8")})
    with tiledb.open(uri, "w", timestamp=11) as array:
        array.meta.update({"title": "colours", "year": 2026, "scale": 0.25, "pair": (1, 2), "raw": b"\x00\xff"})


def encrypted(uri):
    config = tiledb.Config({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": KEY.decode()})
    context = tiledb.Ctx(config)
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 9), tile=5, dtype="int32", ctx=context), ctx=context)
    schema = tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("a", dtype="int32", ctx=context)], ctx=context)
    tiledb.Array.create(uri, schema, ctx=context)
    with tiledb.open(uri, "w", timestamp=10, ctx=context) as array:
        array[:] = np.arange(10, dtype="int32") * 3


RECIPES = {
    "dense_overlay": (dense_overlay, [(0, 100), (0, 20), (15, 25)]),
    "dense_columns": (dense_columns, [(0, 100)]),
    "filters": (filters, [(0, 100)]),
    "sparse_history": (sparse_history, [(0, 100), (0, 15), (0, 22), (0, 29), (15, 40)]),
    "sparse_duplicates": (sparse_duplicates, [(0, 100), (0, 10)]),
    "evolved": (evolved, [(0, 9999999999999), (0, 15)]),
    "enumerated": (enumerated, [(0, 100)]),
    "encrypted": (encrypted, []),
}


def main():
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(parents=True)
    manifest = {"writer": f"tiledb {tiledb.__version__}, core {'.'.join(map(str, tiledb.libtiledb.version()))}",
                "recipe": "scripts/make_fixtures_tiledb.py", "arrays": {}}
    for name, (make, ranges) in RECIPES.items():
        folder = ROOT / name
        make(str(folder))
        is_sparse = name.startswith("sparse")
        expected = [expectation(str(folder), times, is_sparse) for times in ranges]
        if name == "encrypted":
            cells = (np.arange(10, dtype="int32") * 3).tobytes().hex()
            expected = [{"as_of": [0, 100], "sparse": False, "columns": {"a": {"raw": cells, "validity": "01" * 10}}}]
        files = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
                 for p in sorted(folder.rglob("*")) if p.is_file()}
        manifest["arrays"][name] = {"expected": expected, "sha256": files}
    group = ROOT / "group"
    tiledb.Group.create(str(group))
    inner = group / "one"
    evolved(str(inner))
    with tiledb.Group(str(group), "w") as g:
        g.add("one", relative=True, name="first")
        g.meta["about"] = "a group"
    (ROOT / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(sum(p.stat().st_size for p in ROOT.rglob("*") if p.is_file()), "bytes")


if __name__ == "__main__":
    main()
