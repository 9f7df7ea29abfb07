"""Single bits flipped in data files of arrays that the reference wrote without checksums: what `verify --deep` detects by decoding and by
stored statistics, and what no statistic shows."""

import random
import shutil

from common import PYTHON, need, run, tet, tet_json

#: Arrays of 8 tiles of 512 cells, one field each: name, arguments of the field, cells. `s` marks sparse arrays.
ARRAYS = """
import sys, numpy as np, tiledb
out, random = sys.argv[1], np.random.default_rng(11)
N, TILE = 4096, 512
words = np.array(["".join(chr(97 + c) for c in random.integers(0, 26, n)) for n in random.integers(3, 12, N)], dtype="U")
accents = np.array([w.replace("e", "\\u00e9") for w in words], dtype="U")
holes = random.random(N)
holes[::TILE] = np.nan
whole = lambda dtype: random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, N, dtype=dtype, endpoint=True)
fields = {
    "int8": ("i1", whole("i1"), []), "int16": ("i2", whole("i2"), []), "int32": ("i4", whole("i4"), []),
    "int64": ("i8", whole("i8") >> 12, []), "uint64": ("u8", whole("u8") >> np.uint64(12), []),
    "float32": ("f4", random.random(N).astype("f4"), []), "float64": ("f8", random.random(N), []), "float64-nan": ("f8", holes, []),
    "float64-gzip": ("f8", random.random(N), [tiledb.GzipFilter()]), "float64-zstd": ("f8", random.random(N), [tiledb.ZstdFilter()]),
    "text-ascii": ("ascii", words.astype("S"), []), "text-utf8": ("U0", accents, []),
}
for sparse in (False, True):
    for name, (dtype, cells, filters) in fields.items():
        path = f"{out}/{'sparse' if sparse else 'dense'}-{name}"
        text = dtype in ("ascii", "U0")
        plain = tiledb.FilterList(filters)
        attr = tiledb.Attr("v", dtype=dtype, var=True if text else None, filters=plain)
        dim = tiledb.Dim("x", domain=(0, N - 1), tile=TILE, dtype=np.int64, filters=tiledb.FilterList([]))
        tiledb.Array.create(path, tiledb.ArraySchema(domain=tiledb.Domain(dim), attrs=[attr], sparse=sparse, coords_filters=plain,
                            offsets_filters=tiledb.FilterList([]), **({"capacity": TILE} if sparse else {})))
        with tiledb.open(path, "w") as a:
            if sparse:
                a[np.arange(N)] = {"v": cells}
            else:
                a[:] = cells
"""

#: Shares of flips that change cells and that nothing in the array shows: sums are rounded (float64), are NaN, or do not exist (text).
HIDDEN = {"float64": 0.2, "float64-nan": 1.0, "text-ascii": 1.0, "text-utf8": 1.0, "float64-zstd": 0.2}


def content(array):
    return tet("cat", array, "--format", "csv")


def flips(array, name, count, chance):
    """Outcomes of flips in the file of the values, or of the coordinates."""
    (data,) = (array / "__fragments").glob(f"*/{name}")
    whole, before = data.read_bytes(), content(array)
    found = {"found": 0, "harmless": 0, "hidden": 0}
    for _ in range(count):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        if not tet_json("verify", array, "--deep", code=(0, 1))["ok"]:
            found["found"] += 1
        else:
            found["harmless" if content(array) == before else "hidden"] += 1
    data.write_bytes(whole)
    return found


def soak(part, folder, count, seed=1):
    """`count` flips of each field of the arrays of one kind."""
    folder = folder / part
    folder.mkdir()
    if not PYTHON.exists():
        return {"skipped": str(PYTHON)}
    run(PYTHON, "-c", ARRAYS, folder)
    out, chance = {}, random.Random(seed)
    for array in sorted(folder.glob(f"{part}-*")):
        name = array.name.split("-", 1)[1]
        text = name.startswith("text")
        out[name] = flips(array, "a0_var.tdb" if text else "a0.tdb", count, chance)
        need(out[name]["hidden"] <= HIDDEN.get(name, 0.01) * count + 2 * (name in HIDDEN), part, name, out[name])
        if part == "sparse" and name == "int32":
            out["coordinates"] = flips(array, "d0.tdb", count, chance)
            need(out["coordinates"]["hidden"] == 0, part, "coordinates", out["coordinates"])
        shutil.rmtree(array)
    return out
