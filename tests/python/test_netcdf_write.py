"""NetCDF-4 that we write: netCDF4, h5py, xarray and ncdump read it, bit for bit, whatever format it came from."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from support import tet, tet_json

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
xr = pytest.importorskip("xarray")
pytest.importorskip("h5netcdf")
import netcdf_files as files  # noqa: E402
import numpy as np  # noqa: E402

SEEDS = range(int(os.environ.get("TET_NETCDF_SEEDS", "4")))
REAL = sorted(Path(os.environ.get("TET_REAL_FILES", "/nonexistent")).glob("*.nc"))
ENGINES = ["netcdf4", "h5netcdf"]


def groups(path, engine, **options):
    """The datasets of all groups, without decoding and with it."""
    yield xr.open_groups(path, engine=engine, decode_cf=False, **options)
    yield xr.open_groups(path, engine=engine, **options)


def same(path, out, drop=()):
    for engine in ENGINES:
        options = {"phony_dims": "access"} if engine == "h5netcdf" else {}
        for theirs, ours in zip(groups(path, "netcdf4"), groups(out, engine, **options)):
            assert set(theirs) == set(ours)
            for group in theirs:
                left, right = (dataset.drop_vars(drop, errors="ignore") for dataset in (theirs[group], ours[group]))
                xr.testing.assert_identical(left, right)
                for name in left.variables:
                    one, other = left[name].dtype, right[name].dtype
                    assert one.newbyteorder("=") == other.newbyteorder("=") or one.kind in "OUT", (name, one, other)


def cells_of(group, prefix=""):
    for name, variable in group.variables.items():
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        values = np.asarray(variable[...])
        yield prefix + name, values.tolist() if values.dtype.kind == "O" else np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    for name, inner in group.groups.items():
        yield from cells_of(inner, f"{prefix}{name}/")


def same_bits(path, out):
    with netCDF4.Dataset(path) as theirs, netCDF4.Dataset(out) as ours:
        assert dict(cells_of(theirs)) == dict(cells_of(ours))
        assert list(theirs.variables) == list(ours.variables)
        for name, variable in ours.variables.items():
            assert variable.dimensions == theirs[name].dimensions
            # Of the reference's own files the order of messages is kept, which netCDF4 does not follow.
            assert set(variable.ncattrs()) - {"flag_values", "flag_meanings"} == set(theirs[name].ncattrs())


@pytest.mark.parametrize("seed", SEEDS)
def test_random_files_survive_every_format(tmp_path, seed):
    path = files.netcdf4(tmp_path / "in.nc", seed)
    direct = tmp_path / "direct.nc"
    tet("convert", path, direct, "--check")
    same_bits(path, direct)
    # The names of an enumeration are attributes here.
    same(path, direct, drop=["flags"])
    for target in ["tet", "tgm", "tdb", "zarr"]:
        between, out = tmp_path / f"a.{target}", tmp_path / f"{target}.nc"
        tet("convert", path, between)
        tet("convert", between, out, "--check")
        same_bits(path, out)
        same(path, out, drop=["flags"])


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_survive(tmp_path, path):
    out = tmp_path / "out.nc"
    tet("convert", path, out, "--check", "--codec", "gzip")
    same(path, out)


@pytest.mark.parametrize("format", files.CLASSIC)
def test_classic_files_become_netcdf4(tmp_path, format):
    path, out = files.classic(tmp_path / "in.nc", format, 5), tmp_path / "out.nc"
    tet("convert", path, out, "--check")
    same_bits(path, out)
    same(path, out)


@pytest.mark.parametrize(
    "codec, filters",
    [
        ("raw", (None, None, False, False)),
        ("gzip", ("gzip", 4, True, False)),
        ("gzip:9", ("gzip", 9, True, False)),
        ("deflate:1", ("gzip", 1, False, False)),
        ("shuffle+deflate+fletcher32", ("gzip", 4, True, True)),
        ("fletcher32", (None, None, False, True)),
    ],
)
def test_chunks_and_filters_are_those_asked_for(tmp_path, codec, filters):
    rng = random.Random(3)
    cells = {name: files.cells(rng, name, (37, 11)) for name in files.WIDE}
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for name, values in cells.items():
            file[name] = values
    tet("convert", tmp_path / "in.h5", tmp_path / "out.h5", "--chunk", "5,4", "--codec", codec, "--check")
    with h5py.File(tmp_path / "out.h5") as file:
        for name, values in cells.items():
            dataset = file[name]
            assert dataset.chunks == (5, 4)
            found = (dataset.compression, dataset.compression_opts, dataset.shuffle, dataset.fletcher32)
            assert found == filters or (values.itemsize == 1 and found == (*filters[:2], codec.startswith("shuffle"), filters[3]))
            assert dataset.dtype == values.dtype and dataset[...].tobytes() == values.tobytes()


def test_many_chunks_are_found_in_a_deep_tree(tmp_path):
    values = np.arange(70 * 75, dtype="<i4").reshape(70, 75)
    np.save(tmp_path / "a.npy", values)
    tet("convert", tmp_path / "a.npy", tmp_path / "a.nc", "--chunk", "1,1")
    with h5py.File(tmp_path / "a.nc") as file:
        assert file["a"].id.get_num_chunks() == values.size
        assert file["a"][...].tolist() == values.tolist()
        assert file["a"][63:66, 5].tolist() == values[63:66, 5].tolist()


def test_what_the_model_has_and_netcdf_lacks_is_kept(tmp_path):
    """Booleans, complex numbers, dates and half floats are stored as NetCDF has them and come back as they were."""
    source, middle, back = (tmp_path / name for name in ("a.zarr", "b.nc", "c.zarr"))
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(source, mode="w")
    arrays = {
        "truth": np.array([True, False, True]),
        "half": np.array([1, 2, np.nan], "f2"),
        "pairs": np.array([1 + 2j, 3, -4j]),
        "when": np.array(["2020-01-01", "NaT", "1969-12-31T23"], "M8[s]"),
    }
    for name, values in arrays.items():
        group.create_array(name, data=values, dimension_names=["n"])
    tet("convert", source, middle, "--check")
    tet("convert", middle, back, "--check")
    for name in arrays:
        assert tet("cat", back, name, "--raw") == tet("cat", source, name, "--raw")
    info = {array["name"]: array["dtype"] for array in tet_json("info", middle)["arrays"]}
    assert info == {"truth": "bool", "half": "float16", "pairs": "complex128", "when": "datetime64[s]"}
    with xr.open_dataset(middle) as dataset:
        assert dataset["when"].values[0] == np.datetime64("2020-01-01") and np.isnat(dataset["when"].values[1])
        assert dataset["truth"].values.tolist() == [1, 0, 1]


def test_dimensions_are_scales(tmp_path):
    path = files.netcdf4(tmp_path / "in.nc", 1)
    tet("convert", path, tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc") as file:
        assert file["a"].dims[1][0] == file["y"] and file["a"].dims[2][0] == file["x"]
        assert file["inner/shared"].dims[0][0] == file["y"]
        assert h5py.h5ds.is_scale(file["y"].id) and h5py.h5ds.is_attached(file["a"].id, file["y"].id, 1)
        assert file.attrs["_NCProperties"].startswith(b"version=2,tesseral=")
    assert tet_json("info", tmp_path / "out.nc", "--history")["history"][-1]["op"] == "convert"


def test_files_can_be_extended_by_the_reference(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    tet("convert", tmp_path / "a.npy", tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "a") as file:
        file["b"] = [1, 2, 3]
        file["a"].attrs["more"] = list(range(20))
        file["a"][0, 0] = 9
    with h5py.File(tmp_path / "a.nc") as file:
        assert file["a"][...].tolist() == [[9, 1, 2], [3, 4, 5]] and file["b"][...].tolist() == [1, 2, 3]
    assert np.frombuffer(tet("cat", tmp_path / "a.nc", "b", "--raw"), "<i8").tolist() == [1, 2, 3]


@pytest.mark.skipif(not shutil.which("ncdump"), reason="ncdump is not installed")
def test_ncdump_shows_the_same(tmp_path):
    path = files.netcdf4(tmp_path / "in.nc", 2)
    tet("convert", path, tmp_path / "out.nc")

    def cdl(path):
        text = subprocess.run(["ncdump", str(path)], capture_output=True, text=True, check=True).stdout
        data = text.split("data:", 1)[1]
        return [line for line in data.splitlines() if "flags" not in line]

    assert cdl(path)[:40] == cdl(tmp_path / "out.nc")[:40]


def test_what_cannot_be_held_is_refused_before_anything_is_written(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("a", data=np.arange(3), dimension_names=["x"])
    group.create_array("b", data=np.arange(4), dimension_names=["x"])
    tet("convert", tmp_path / "a.zarr", tmp_path / "a.nc", code=7)
    assert not (tmp_path / "a.nc").exists()
    np.save(tmp_path / "a.npy", np.arange(3))
    error = json.loads(tet("convert", tmp_path / "a.npy", tmp_path / "b.nc", "--codec", "zstd", "--json", code=7) or b"{}")
    assert not (tmp_path / "b.nc").exists() and error is not None
