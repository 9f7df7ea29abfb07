"""NetCDF and HDF5: cells, attributes and datasets equal those of netCDF4, h5py and xarray's own engines, bit for bit."""

import os
import sys
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import tesseral
import xarray as xr

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import netcdf_files as files  # noqa: E402

SEEDS = range(int(os.environ.get("TET_NETCDF_SEEDS", "6")))
REAL = sorted(Path(os.environ.get("TET_REAL_FILES", "/nonexistent")).glob("*.nc"))


def bits(values):
    values = np.ascontiguousarray(values)
    return values.astype(values.dtype.newbyteorder("<")).tobytes(), values.shape


def same_cells(ours, theirs, name):
    if theirs.dtype.kind == "O":
        flat = [np.asarray(v).tolist() if isinstance(v, np.ndarray) else (v.decode() if isinstance(v, bytes) else v) for v in np.ravel(theirs)]
        mine = [np.asarray(v).tolist() if isinstance(v, np.ndarray) else v for v in np.ravel(np.asarray(ours, object))]
        assert mine == flat, name
        return
    ours = np.asarray(ours)
    assert (ours.dtype.newbyteorder("="), ours.shape) == (theirs.dtype.newbyteorder("="), theirs.shape), name
    assert bits(ours) == bits(theirs), name


def opened(path, **options):
    return tesseral.open(path, **options)


def netcdf_variables(group, prefix=""):
    for name, variable in group.variables.items():
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        yield prefix + name, variable
    for name, inner in group.groups.items():
        yield from netcdf_variables(inner, f"{prefix}{name}/")


def same_attributes(ours, theirs, name):
    theirs = {key: theirs.getncattr(key) for key in theirs.ncattrs()}
    assert set(ours) == set(theirs), name
    for key, value in theirs.items():
        mine = ours[key]
        if isinstance(value, (str, list)):
            assert (mine if isinstance(mine, str) else list(mine)) == value, (name, key)
        else:
            # 64-bit integers are Python's.
            mine = np.asarray(mine, value.dtype) if isinstance(mine, int) else np.asarray(mine)
            assert (mine.dtype, bits(mine)) == (np.asarray(value).dtype, bits(value)), (name, key)


def compare_with_netcdf4(path):
    container = opened(path)
    with netCDF4.Dataset(path) as file:
        expected = dict(netcdf_variables(file))
        assert set(container) == set(expected)
        for name, variable in expected.items():
            array = container[name]
            enumeration = isinstance(variable.datatype, netCDF4.EnumType)
            same_cells(array[...], np.asarray(variable[...]), name)
            assert tuple(array.dims) == variable.dimensions, name
            attrs = dict(array.attrs)
            if enumeration:
                attrs.pop("flag_values"), attrs.pop("flag_meanings")
            same_attributes(attrs, variable, name)
        same_attributes(container.attrs, file, "")


@pytest.mark.parametrize("format", files.CLASSIC)
@pytest.mark.parametrize("seed", SEEDS)
def test_classic_files_equal_netcdf4(tmp_path, format, seed):
    compare_with_netcdf4(files.classic(tmp_path / "a.nc", format, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_netcdf4_files_equal_netcdf4(tmp_path, seed):
    compare_with_netcdf4(files.netcdf4(tmp_path / "a.nc", seed))


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("seed", SEEDS)
def test_hdf5_files_equal_h5py(tmp_path, seed, libver):
    path = files.hdf5(tmp_path / "a.h5", seed, libver)
    container = opened(path)
    with h5py.File(path) as file:
        expected = {}
        file.visititems(lambda name, item: expected.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        assert set(container) == set(expected)
        for name, dataset in expected.items():
            theirs = dataset[...]
            if name == "types/dates":
                theirs = theirs.astype("M8[ns]")
            same_cells(container[name][...], np.asarray(theirs), name)
            if dataset.ndim == 2 and name.startswith(("filter", "index/fixed")):
                window = (slice(1, 5), slice(None, None, 2))
                same_cells(container[name][window], dataset[...][window], name)
        assert np.unique(container.attrs["attribute_07"]) == [7]
        assert list(container.attrs["flags"]) == [True, False] and container.attrs["big"] == 1.5


def test_user_blocks_are_skipped(tmp_path):
    for size in (512, 1024, 2048, 4096):
        path = tmp_path / f"{size}.h5"
        with h5py.File(path, "w", userblock_size=size) as file:
            file["a"] = np.arange(5)
        np.testing.assert_array_equal(opened(path)["a"][...], np.arange(5))


def test_unsupported_datasets_are_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["fine"] = np.arange(3)
        file["pairs"] = np.zeros(2, [("when", "i8"), ("what", "f4")])
        file["pointer"] = file["fine"].ref
        file["away"] = h5py.ExternalLink("other.h5", "/x")
    container = opened(path)
    assert list(container) == ["fine", "pairs/when", "pairs/what"]
    assert container["pairs/what"][:].tolist() == [0, 0]
    for name in ("pointer", "away"):
        with pytest.raises(tesseral.UnsupportedError):
            container[name]


def xarray_samples(folder):
    yield from (files.classic(folder / f"{format}.nc", format, seed) for seed, format in enumerate(files.CLASSIC))
    yield from (files.netcdf4(folder / f"{seed}.nc", seed) for seed in range(3))


def without_flags(dataset):
    """Enumerations are integers with CF attributes here, and integers without names in xarray."""
    if "flags" in dataset:
        del dataset["flags"].attrs["flag_values"], dataset["flags"].attrs["flag_meanings"]
    return dataset


def identical(path, **options):
    with xr.open_dataset(path, engine="netcdf4", **options) as theirs, xr.open_dataset(path, engine="tesseral", **options) as ours:
        xr.testing.assert_identical(without_flags(ours.load()), theirs.load())
        for name in theirs.variables:
            assert ours[name].dtype == theirs[name].dtype or theirs[name].dtype.kind in "OU", name


def test_datasets_equal_those_of_xarray(tmp_path):
    for path in xarray_samples(tmp_path):
        identical(path)
        identical(path, decode_cf=False)


def test_groups_equal_those_of_xarray(tmp_path):
    path = files.netcdf4(tmp_path / "a.nc", 1)
    for group in ("inner", "inner/deeper"):
        identical(path, group=group)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_equal_those_of_xarray(path):
    identical(path)


@pytest.mark.parametrize("target", ["a.tet", "a.tgm", "a.tdb"])
def test_conversions_are_identical(tmp_path, target):
    for path in [*xarray_samples(tmp_path), *REAL]:
        out = tmp_path / f"{path.stem}.{target}"
        tesseral.convert(path, out, check=True)
        with xr.open_dataset(path, engine="netcdf4") as theirs, xr.open_dataset(out, engine="tesseral") as ours:
            xr.testing.assert_identical(without_flags(ours.load()), theirs.load())
