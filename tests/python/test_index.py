"""Indexes of existing files: equal to what xarray makes of the files, noticed changes, damage."""

import json
import os
import shutil
import subprocess
import time

import numpy as np
import pytest
from support import TET, tet, tet_json

netCDF4 = pytest.importorskip("netCDF4")
xr = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")


def write(path, day, *, format="NETCDF4", x=6, units="K", dtype="f4", scale=1, compression="zlib"):
    rng = np.random.default_rng(day)
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.title = "demo"
        file.day = day
        file.createDimension("time", 3)
        file.createDimension("y", 4)
        file.createDimension("x", x)
        file.createVariable("x", "f8", ["x"])[:] = np.arange(x) * scale
        variable = file.createVariable("time", "i4", ["time"])
        variable.units = "days since 2000-01-01"
        variable[:] = np.arange(3) + 3 * day
        options = {"compression": compression, "shuffle": True, "chunksizes": (2, 4, 3)} if format == "NETCDF4" and compression else {}
        variable = file.createVariable("air", dtype, ["time", "y", "x"], **options)
        variable.units = units
        variable[:] = rng.normal(size=(3, 4, x))


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC", "plain"])
def test_files_joined_along_a_dimension_are_those_of_xarray(tmp_path, format):
    options = {"format": "NETCDF4", "compression": None} if format == "plain" else {"format": format}
    paths = [tmp_path / f"{day:03}.nc" for day in range(5)]
    for day, path in enumerate(paths):
        write(path, day, **options)
    out = tmp_path / "all.tix"
    done = json.loads(tet("mosaic", out, *paths, "--along", "time", "--json"))
    assert done["sources"] == 5 and done["opened"] == []
    expected = xr.open_mfdataset(paths, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override", decode_cf=False)
    raw = lambda name, *selection: tet("cat", out, name, *selection, "--raw")  # noqa: E731
    for name in ("air", "time", "x"):
        assert raw(name) == expected[name].values.tobytes()
    assert raw("air", "time=4:11:3", "x=1:5") == np.ascontiguousarray(expected["air"].values[4:11:3, :, 1:5]).tobytes()
    info = tet_json("info", out)
    assert info["format"] == "index" and info["attributes"] == {"title": "demo"}
    shapes = {array["name"]: array["shape"] for array in info["arrays"]}
    assert shapes == {"air": [15, 4, 6], "time": [15], "x": [6]}
    tet("verify", out, "--deep")
    tet("convert", out, tmp_path / "copy.tet", "--check")


def test_a_new_dimension_and_files_of_different_variables(tmp_path):
    for day in range(3):
        write(tmp_path / f"{day}.nc", 0, units="K")
    paths = [tmp_path / f"{day}.nc" for day in range(3)]
    tet("mosaic", tmp_path / "new.tix", *paths, "--new", "member")
    cells = xr.open_dataset(paths[0], decode_cf=False)["air"].values
    assert tet("cat", tmp_path / "new.tix", "air", "--raw") == cells.tobytes() * 3
    assert tet("cat", tmp_path / "new.tix", "air", "member=1", "time=2", "--raw") == cells[2].tobytes()
    root = zarr.open_group(tmp_path / "other.zarr", mode="w", zarr_format=3)
    root.create_array("wind", data=np.arange(12.0).reshape(3, 4), chunks=(2, 3), dimension_names=["time", "y"])
    tet("convert", paths[0], tmp_path / "third.tet", "--array", "air", "--codec", "zstd")
    tet("index", tmp_path / "both.tix", paths[1], tmp_path / "other.zarr")
    assert tet("cat", tmp_path / "both.tix", "wind", "--raw") == np.arange(12.0).tobytes()
    assert tet("cat", tmp_path / "both.tix", "air", "--raw") == cells.tobytes()
    # A format without recipes is opened to be read.
    done = json.loads(tet("index", tmp_path / "tet.tix", tmp_path / "third.tet", "--json"))
    assert "air" in done["opened"]
    assert tet("cat", tmp_path / "tet.tix", "air", "x=1:4", "--raw") == np.ascontiguousarray(cells[:, :, 1:4]).tobytes()


@pytest.mark.parametrize(("change", "word"), [({"units": "C"}, "units"), ({"x": 7}, "x=7"), ({"dtype": "f8"}, "float64"), ({"scale": 2}, "coordinates")])
def test_files_that_do_not_fit_are_named_with_the_difference(tmp_path, change, word):
    write(tmp_path / "a.nc", 0)
    write(tmp_path / "b.nc", 1, **change)
    done = subprocess.run([TET, "mosaic", tmp_path / "o.tix", tmp_path / "a.nc", tmp_path / "b.nc", "--along", "time"], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "a.nc" in done.stderr and "b.nc" in done.stderr and word in done.stderr, done.stderr
    assert not (tmp_path / "o.tix").exists()


def test_changed_sources_are_errors_that_name_them(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(3)]
    for day, path in enumerate(paths):
        write(path, day)
    out = tmp_path / "all.tix"
    tet("mosaic", out, *paths, "--along", "time")
    os.utime(paths[1], ns=(1, 1))
    tet("cat", out, "air", "time=0:3")
    tet("cat", out, "air", "time=3:6", code=(5, 8))
    paths[2].unlink()
    tet("cat", out, "air", "time=6:9", code=3)
    # Sources are found next to a moved index.
    write(paths[2], 2)
    tet("mosaic", out, *paths, "--along", "time", "--force")
    (tmp_path / "moved").mkdir()
    for path in [*paths, out]:
        shutil.move(path, tmp_path / "moved" / path.name)
    assert len(tet("cat", tmp_path / "moved/all.tix", "air", "--raw")) == 9 * 24 * 4


def test_a_thousand_files_open_at_once(tmp_path):
    paths = [tmp_path / f"{day:04}.nc" for day in range(1000)]
    for day, path in enumerate(paths):
        write(path, day, format="NETCDF3_CLASSIC")
    out = tmp_path / "all.tix"
    tet("mosaic", out, *paths, "--along", "time")
    started = time.perf_counter()
    expected = xr.open_mfdataset(paths, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override", decode_cf=False)
    theirs = time.perf_counter() - started
    started = time.perf_counter()
    assert tet_json("info", out)["arrays"]
    ours = time.perf_counter() - started
    print(f"opened in {ours:.3f} s; xarray {theirs:.1f} s")
    cells = expected["air"].values
    assert tet("cat", out, "air", "--raw") == cells.tobytes()
    assert tet("cat", out, "air", "x=2", "--raw") == np.ascontiguousarray(cells[:, :, 2]).tobytes()
    assert out.stat().st_size < 1000 * (24 * 3 + 200) + 10_000


def test_an_entry_without_stored_cells_is_damage(tmp_path):
    xxhash = pytest.importorskip("xxhash")
    source, out = tmp_path / "0.nc", tmp_path / "all.tix"
    write(source, 0, format="NETCDF3_CLASSIC")
    tet("index", out, source)
    data = bytearray(out.read_bytes())
    entries, length = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24))
    end = 64 + 24 * entries
    # The flags of every entry, and the digests that cover them.
    for number in range(entries):
        data[64 + 24 * number + 20 : 64 + 24 * number + 24] = bytes(4)
    put = lambda at, part: data.__setitem__(slice(at, at + 8), xxhash.xxh3_64_intdigest(bytes(part)).to_bytes(8, "little"))
    put(32, data[64:end])
    put(40, data[end : end + length])
    put(56, data[:56])
    out.write_bytes(data)
    for command in (["cat", out, "air"], ["stat", out, "air"], ["diff", out, source]):
        tet(*command, code=(4, 5))


def test_opening_and_coordinates_need_no_source(tmp_path):
    paths = [tmp_path / f"{day}.nc" for day in range(4)]
    for day, path in enumerate(paths):
        write(path, day)
    expected = xr.open_mfdataset(paths, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override").load()
    tet("mosaic", tmp_path / "all.tix", *paths, "--along", "time")
    for path in paths:
        path.rename(path.with_suffix(".away"))
    info = tet("info", tmp_path / "all.tix").decode()
    assert "2000-01-01" in info and "2000-01-12" in info
    assert tet("cat", tmp_path / "all.tix", "time", "time=2..5", "--raw") == np.arange(2, 6, dtype="i4").tobytes()
    assert json.loads(tet("stat", tmp_path / "all.tix", "x", "--json"))["count"] == 6
    # Cells are in the sources.
    tet("cat", tmp_path / "all.tix", "air", code=(3, 4, 5))
    for path in paths:
        path.with_suffix(".away").rename(path)
    assert tet("cat", tmp_path / "all.tix", "air", "time=@2000-01-05", "--raw") == np.ascontiguousarray(expected["air"].values[4]).tobytes()
