#!/usr/bin/env python3
"""Make the HDF5 and NetCDF-4 fixtures: small files written by h5py 3.16 and netCDF4 1.7.5.

    make_fixtures_hdf5.py          # writes fixtures/hdf5 and its manifest

Rust tests run the conformance suite on them, truncate them and flip their bytes. Comparisons with the references are in
tests/python/package/test_package_netcdf.py, on files of every feature.
"""

import hashlib
import json
from pathlib import Path

import h5py
import netCDF4
import numpy as np

ROOT = Path(__file__).resolve().parent.parent / "fixtures" / "hdf5"


def layouts(path, libver):
    """Every layout, chunk index and a filter of each kind that needs no plugin."""
    values = (np.arange(60) * 7 % 31).reshape(6, 10)
    with h5py.File(path, "w", libver=libver) as file:
        file["contiguous"] = values.astype(">i2")
        file["scalar"] = np.float64(2.5)
        file.create_dataset("deflate", data=values.astype("f4"), chunks=(4, 4), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("lzf", data=values.astype("i8"), chunks=(6, 10), compression="lzf")
        file.create_dataset("packed", data=values.astype("i4"), chunks=(6, 5), scaleoffset=0)
        file.create_dataset("coded", data=values.astype("u2"), chunks=(6, 10), compression="szip", compression_opts=("nn", 8))
        grows = file.create_dataset("grows", (9, 3), "f8", chunks=(2, 2), maxshape=(None, 3), fillvalue=-1.5)
        grows[:4] = 1.0
        both = file.create_dataset("both", (5, 5), "u1", chunks=(2, 2), maxshape=(None, None))
        both[3:] = 9
        file.create_dataset("unwritten", (3, 4), "i4", fillvalue=7)
        text = file.create_dataset("text", (4,), h5py.string_dtype())
        text[...] = ["", "a", "longer text", "β"]
        file["fixed"] = np.array([b"ab", b"c"], "S3")
        file["truth"] = np.array([True, False, True])
        file["complex"] = np.array([1 + 2j], "c8")
        for i in range(12):
            file.attrs[f"attribute_{i}"] = np.full(2, i, "i2")
            file[f"group/member_{i}"] = np.int8(i)


def netcdf(path):
    """Dimensions, records, groups, coordinates, characters, an enumeration."""
    with netCDF4.Dataset(path, "w") as file:
        file.title = "a fixture"
        file.createDimension("time", None)
        file.createDimension("x", 3)
        time = file.createVariable("time", "f8", ["time"])
        time.units = "days since 2000-01-01"
        time[:] = [0, 1, 2]
        air = file.createVariable("air", "i2", ["time", "x"], zlib=True, shuffle=True, chunksizes=(2, 3), fill_value=-999)
        air.scale_factor, air.add_offset = np.float32(0.1), np.float32(20)
        air.set_auto_maskandscale(False)
        air[:] = np.arange(9).reshape(3, 3)
        short = file.createVariable("short", "f4", ["time"])
        short[:1] = [4]
        names = file.createVariable("names", "S1", ["x"])
        names[:] = np.array([b"a", b"b", b"c"], "S1")
        kinds = file.createEnumType(np.uint8, "kind_t", {"low": 1, "high": 4})
        file.createVariable("kind", kinds, ["x"], fill_value=1)[:] = np.array([1, 4, 1], "u1")
        inner = file.createGroup("inner")
        inner.createVariable("y", "f4", ["x"])[:] = [1, 2, 3]


def virtual(path):
    """Cells in other files: virtual datasets over the file itself and over `latest.h5`, and a raw file that does not exist."""
    with h5py.File(path, "w", libver="v110") as file:
        file.create_dataset("own", data=np.arange(12, dtype="i4").reshape(3, 4), chunks=(2, 3))
        layout = h5py.VirtualLayout((4, 8), "i4")
        layout[:3, :4] = h5py.VirtualSource(".", "own", (3, 4))
        layout[1:4, 5:8] = h5py.VirtualSource(".", "own", (3, 4))[:, 1:]
        file.create_virtual_dataset("beside", layout, fillvalue=-1)
        layout = h5py.VirtualLayout((6, 10), "f4")
        layout[::2] = h5py.VirtualSource("latest.h5", "deflate", (6, 10))[3:]
        layout[1, :3] = h5py.VirtualSource("absent.h5", "x", (3,))
        file.create_virtual_dataset("elsewhere", layout, fillvalue=2.5)
        layout = h5py.VirtualLayout((5,), h5py.string_dtype())
        layout[1:] = h5py.VirtualSource("latest.h5", "text", (4,))
        file.create_virtual_dataset("text", layout)
        file.create_dataset("raw", (4, 3), ">i2", external=[("a.raw", 1, 10), ("b.raw", 0, 14)])


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    layouts(ROOT / "earliest.h5", "earliest")
    layouts(ROOT / "latest.h5", "latest")
    netcdf(ROOT / "netcdf4.nc")
    virtual(ROOT / "virtual.h5")
    versions = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version}), netCDF4 {netCDF4.__version__}"
    names = sorted(path.name for path in ROOT.iterdir() if path.suffix in (".h5", ".nc"))
    sums = {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in names}
    (ROOT / "manifest.json").write_text(json.dumps({"writer": versions, "sha256": sums}, indent=1) + "\n")


if __name__ == "__main__":
    main()
