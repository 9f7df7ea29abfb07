"""Files of every feature of NetCDF and HDF5, written by netCDF4 and h5py. Random ones are seeded."""

import random

import h5py
import netCDF4
import numpy as np

CLASSIC = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
KINDS = ["i1", "i2", "i4", "f4", "f8"]
WIDE = KINDS + ["u1", "u2", "u4", "i8", "u8"]


def cells(rng, dtype, shape):
    """Random cells: smooth enough for scale-offset, with a NaN and a negative zero in floats."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "f":
        values = np.array([rng.uniform(-1e3, 1e3) for _ in range(count)], dtype)
        if count > 2:
            values[rng.randrange(count)], values[rng.randrange(count)] = np.nan, -0.0
    elif dtype.kind == "c":
        values = np.array([complex(rng.uniform(-9, 9), rng.uniform(-9, 9)) for _ in range(count)], dtype)
    elif dtype.kind == "b":
        values = np.array([rng.random() < 0.5 for _ in range(count)], dtype)
    else:
        info = np.iinfo(dtype)
        values = np.array([rng.randint(max(info.min, -(10**6)), min(info.max, 10**6)) for _ in range(count)], dtype)
    return values.reshape(shape)


def attributes(rng, target):
    target.setncattr("title", rng.choice(["plain", "β ° 日本", ""]))
    target.setncattr("count", np.int32(rng.randint(-9, 9)))
    target.setncattr("range", np.array([0.5, rng.random()], "f4"))
    target.setncattr("exact", np.float64(rng.random()))
    target.setncattr("small", np.array([1, 2, 3], "i2"))


def variables(rng, group, kinds, unlimited, options):
    """Variables over the dimensions of a group: with and without records, scalars, text as characters."""
    size = {"x": rng.randint(1, 9), "y": rng.randint(1, 12), "n": 4}
    for name, extent in size.items():
        group.createDimension(name, extent)
    group.createDimension("time", None if unlimited else 5)
    records = rng.choice([0, 1, 5, 7]) if unlimited else 5
    for name, dims in [("time", ["time"]), ("x", ["x"]), ("a", ["time", "y", "x"]), ("b", ["time"]), ("c", ["y", "x"]), ("s", []), ("d", ["time", "n"])]:
        dtype = rng.choice(kinds)
        extra = options([size.get(dim, 5) for dim in dims]) if dims else {}
        if rng.random() < 0.4:
            extra["fill_value"] = np.dtype(dtype).type(7)
        variable = group.createVariable(name, dtype, dims, **extra)
        variable.set_auto_maskandscale(False)
        attributes(rng, variable)
        shape = tuple(records if dim == "time" else size[dim] for dim in dims)
        written = records - 2 if name == "b" and records > 2 else records
        values = cells(rng, dtype, shape)
        if not dims:
            variable[...] = values
        elif dims[0] == "time":
            variable[:written] = values[:written]
        else:
            variable[:] = values
    text = group.createVariable("text", "S1", ["y", "n"])
    text[:] = np.array([list(f"{i:04d}".encode()) for i in range(size["y"])], "u1").view("S1").reshape(size["y"], 4)


def classic(path, format, seed):
    rng = random.Random(seed)
    with netCDF4.Dataset(path, "w", format=format) as file:
        attributes(rng, file)
        variables(rng, file, WIDE if format == "NETCDF3_64BIT_DATA" else KINDS, rng.random() < 0.7, lambda extents: {})
    return path


def netcdf4(path, seed):
    """NetCDF-4: groups, chunks, filters, text of variable length, enumerations, byte orders."""
    rng = random.Random(seed)

    def options(extents):
        out = {}
        if rng.random() < 0.8:
            out["chunksizes"] = [rng.randint(1, min(n, 4)) for n in extents]
            codec = rng.choice([None, "zlib", "zlib"])
            if codec:
                out.update(compression=codec, shuffle=rng.random() < 0.5, fletcher32=rng.random() < 0.3)
        return {**out, "endian": rng.choice(["native", "big", "little"])}

    with netCDF4.Dataset(path, "w") as file:
        attributes(rng, file)
        file.setncattr("words", ["one", "zwei", "三"])
        variables(rng, file, WIDE, rng.random() < 0.7, options)
        names = file.createVariable("names", str, ["y"])
        for i in range(len(file.dimensions["y"])):
            names[i] = rng.choice(["", "short", "β" * 9, "x" * 300])
        color = file.createEnumType(np.uint8, "color", {"red": 1, "green": 5, "blue": 9})
        flags = file.createVariable("flags", color, ["x"], fill_value=1)
        flags[:] = np.array([rng.choice([1, 5, 9]) for _ in range(len(file.dimensions["x"]))], "u1")
        inner = file.createGroup("inner")
        attributes(rng, inner)
        shared = inner.createVariable("shared", "f4", ["y"])
        shared[:] = cells(rng, "f4", (len(file.dimensions["y"]),))
        deeper = inner.createGroup("deeper")
        variables(rng, deeper, WIDE, True, options)
    return path


FILTERS = [
    {},
    {"compression": "gzip", "shuffle": True},
    {"compression": "gzip", "compression_opts": 9},
    {"shuffle": True},
    {"compression": "lzf"},
    {"compression": "lzf", "shuffle": True, "fletcher32": True},
    {"fletcher32": True},
    {"compression": "szip", "compression_opts": ("nn", 16)},
    {"compression": "szip", "compression_opts": ("ec", 8), "fletcher32": True},
    {"scaleoffset": True},
    {"scaleoffset": True, "compression": "gzip"},
]


def plugins():
    """Filters of hdf5plugin, if it is installed."""
    try:
        import hdf5plugin
    except ImportError:
        return []
    blosc = [hdf5plugin.Blosc(cname=name, shuffle=shuffle) for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd") for shuffle in (0, 1, 2)]
    blosc2 = [hdf5plugin.Blosc2(cname=name, filters=shuffle) for name in ("blosclz", "lz4", "zlib", "zstd") for shuffle in (0, 1, 2)]
    bits = [hdf5plugin.Bitshuffle(cname=name) for name in ("none", "lz4", "zstd")] + [hdf5plugin.Bitshuffle(nelems=64, cname="lz4")]
    return blosc + blosc2 + bits + [hdf5plugin.LZ4(), hdf5plugin.LZ4(nbytes=64), hdf5plugin.Zstd(), hdf5plugin.BZip2()]


def hdf5(path, seed, libver="earliest"):
    """HDF5: layouts and chunk indexes of every kind, filters, datatypes, many links and attributes."""
    rng = random.Random(seed)
    with h5py.File(path, "w", libver=libver, track_order=rng.random() < 0.3) as file:
        for i, options in enumerate(FILTERS + [dict(p) for p in plugins()]):
            dtype = rng.choice(["<i4", ">i2", "<u8", "<i8"] if "scaleoffset" in options else ["<f4", ">f8", "<i2", "<u1", "<f2", "<i8"])
            if options.get("compression") == "szip" and np.dtype(dtype).itemsize == 2 and dtype[1] == "f":
                dtype = "<f4"
            shape = (rng.randint(1, 40), rng.randint(1, 30))
            chunks = tuple(rng.randint(1, n) for n in shape)
            if options.get("compression") == "szip":
                # A chunk has at least one block of pixels.
                shape, chunks = (40, 30), (rng.randint(5, 40), rng.randint(7, 30))
            values = cells(rng, dtype, shape)
            file.create_dataset(f"filter_{i}", data=values, chunks=chunks, **options)
        for name, dtype in [("bool", bool), ("c8", "<c8"), ("c16", ">c16"), ("f2", ">f2"), ("u8", ">u8")]:
            file[f"types/{name}"] = cells(rng, dtype, (3, 4))
        file["types/fixed"] = np.array([b"a", b"bcd", b""], "S5")
        file["types/char"] = np.array([b"a", b"b"], "S1")
        file["types/opaque"] = np.frombuffer(rng.randbytes(12), "V4")
        file["types/dates"] = np.array(["2020-01-01", "NaT"], "M8[ns]").astype(h5py.opaque_dtype("M8[ns]"))
        file["types/array"] = np.arange(24, dtype="<i4").view(np.dtype(("<i4", (2, 3))).base).reshape(4, 2, 3)
        text = file.create_dataset("types/text", (3, 2), h5py.string_dtype(), chunks=(2, 1))
        text[...] = [["", "a"], ["β" * 40, "x" * 5000], ["y", "z"]]
        sequences = file.create_dataset("types/sequences", (3,), h5py.vlen_dtype(np.dtype("<i4")))
        for i in range(3):
            sequences[i] = np.arange(i * 3)
        shaped = file.create_dataset("types/subarrays", (3,), np.dtype((">f4", (2, 2))), chunks=(2,))
        shaped[...] = np.arange(12, dtype="f4").reshape(3, 2, 2)
        chunk_indexes(rng, file)
        for i in range(40):
            file[f"many/d{i:02d}"] = np.int32(i)
            file.attrs[f"attribute_{i:02d}"] = np.full(rng.randint(1, 3), i, "<i2")
        file.attrs["empty"] = h5py.Empty("f4")
        file.attrs["flags"] = np.array([True, False])
        file.attrs["big"] = np.float64(1.5).astype(">f8")
    return path


def chunk_indexes(rng, file):
    """A dataset for every kind of index, each with unwritten chunks."""
    cases = {
        "single": ((5, 6), (5, 6), None),
        "fixed": ((9, 11), (2, 3), None),
        "fixed_max": ((5, 7), (2, 2), (9, 20)),
        "extensible": ((50, 3), (3, 2), (None, 3)),
        "extensible_long": ((3000,), (2,), (None,)),
        "tree": ((9, 8), (2, 3), (None, None)),
        "shrunk": ((9, 8), (2, 3), (None, 8)),
    }
    for name, (shape, chunks, most) in cases.items():
        for filtered in (False, True):
            extra = {"compression": "gzip"} if filtered else {}
            values = cells(rng, "<f8", shape)
            made = file.create_dataset(f"index/{name}_{filtered}", shape, "<f8", chunks=chunks, maxshape=most, fillvalue=-3.5, **extra)
            if shape[0] > 100:
                made[:1000], made[2001:2900] = values[:1000], values[2001:2900]
            elif name == "single":
                made[...] = values
            else:
                made[: shape[0] // 2] = values[: shape[0] // 2]
            if name == "shrunk":
                made.resize((3, 5 if most[1] is None else 8))
    file.create_dataset("index/contiguous", data=cells(rng, ">i4", (7, 3)))
    file.create_dataset("index/unwritten", (4, 4), "<i2", fillvalue=9)
    file.create_dataset("index/empty", (0, 4), "<f4", chunks=(2, 2), maxshape=(None, 4))
    file.create_dataset("index/scalar", data=np.float32(2.5))
    space = h5py.h5s.create_simple((3, 4))
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file["index"].id, b"compact", h5py.h5t.STD_I16BE, space, compact).write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(12, dtype=">i2").reshape(3, 4))
