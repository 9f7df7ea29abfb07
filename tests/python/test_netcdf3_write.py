"""NetCDF classic files that we write: netCDF4 and xarray read them, bit for bit, in all three kinds."""

import os
import random

import numpy as np
import pytest
from support import tet, tet_json

netCDF4 = pytest.importorskip("netCDF4")
xr = pytest.importorskip("xarray")
import netcdf_files as files  # noqa: E402

SEEDS = range(int(os.environ.get("TET_NETCDF_SEEDS", "4")))
CLASSIC = ["i1", "i2", "i4", "f4", "f8", "S1"]
WIDE = [*CLASSIC, "u1", "u2", "u4", "i8", "u8"]
MODEL = {"classic": "NETCDF3_CLASSIC", "offset64": "NETCDF3_64BIT_OFFSET", "data64": "NETCDF3_64BIT_DATA"}


def random_file(path, seed, kind):
    rng, values = random.Random(seed), np.random.default_rng(seed)
    with netCDF4.Dataset(path, "w", format=MODEL[kind]) as out:
        for name in "txy":
            out.createDimension(name, rng.randrange(1, 9))
        for n, dtype in enumerate(WIDE if kind == "data64" else CLASSIC):
            dims = [dim for dim in "txy" if rng.random() < 0.7]
            variable = out.createVariable(f"v{n}", dtype, dims)
            variable.set_auto_maskandscale(False)
            shape = variable.shape
            raw = values.integers(65, 91, int(np.prod(shape)) * np.dtype(dtype).itemsize, "u1")
            variable[...] = np.frombuffer(raw.tobytes(), dtype).reshape(shape)
            variable.units = "é"
            variable.factor = np.float32(0.1)
            variable.pair = np.array([1, 2], "i2")
        out.title = "random"
    return path


def cells(path):
    with netCDF4.Dataset(path) as read:
        read.set_auto_maskandscale(False)
        read.set_auto_chartostring(False)
        model = read.data_model
        dims = {name: len(dim) for name, dim in read.dimensions.items()}
        out = {}
        for name, variable in read.variables.items():
            attributes = {key: (np.asarray(variable.getncattr(key)).dtype.str, np.asarray(variable.getncattr(key)).tolist()) for key in variable.ncattrs()}
            values = np.ascontiguousarray(variable[...])
            out[name] = (variable.dimensions, variable.dtype, values.astype(values.dtype.newbyteorder("<")).tobytes(), attributes)
        return model, dims, out, {key: read.getncattr(key) for key in read.ncattrs()}


@pytest.mark.parametrize("kind", MODEL)
@pytest.mark.parametrize("unlimited", [None, "t"])
@pytest.mark.parametrize("seed", SEEDS)
def test_files_read_back_bit_for_bit(tmp_path, kind, unlimited, seed):
    path, out = random_file(tmp_path / "in.nc", seed, kind), tmp_path / "out.nc"
    options = ["--option", f"kind={kind}", *(["--option", f"unlimited={unlimited}"] if unlimited else [])]
    tet("convert", path, out, "--to", "netcdf3", "--check", *options)
    theirs, ours = cells(path), cells(out)
    assert ours[0] == MODEL[kind]
    assert ours[2] == theirs[2] and ours[3] == theirs[3]
    used = {dim for variable in theirs[2].values() for dim in variable[0]}
    assert ours[1] == {name: length for name, length in theirs[1].items() if name in used}
    with netCDF4.Dataset(out) as read:
        assert {name for name, dim in read.dimensions.items() if dim.isunlimited()} == ({"t"} & used if unlimited else set())
    xr.testing.assert_identical(xr.load_dataset(path, engine="netcdf4"), xr.load_dataset(out, engine="netcdf4"))
    back = tmp_path / "back.nc"
    tet("convert", out, back, "--check")
    xr.testing.assert_identical(xr.load_dataset(path), xr.load_dataset(back))


def test_the_kind_is_the_first_that_holds_the_arrays(tmp_path):
    for dtype, kind in [("f4", "classic"), ("i8", "data64")]:
        np.save(tmp_path / "a.npy", np.zeros((2, 3), dtype))
        tet("convert", tmp_path / "a.npy", tmp_path / f"{kind}.nc3", "--check")
        assert netCDF4.Dataset(tmp_path / f"{kind}.nc3").data_model == MODEL[kind]
    error = tet("convert", tmp_path / "a.npy", tmp_path / "b.nc3", "--option", "kind=classic", code=7)
    assert not (tmp_path / "b.nc3").exists() and error is not None


@pytest.mark.parametrize("seed", SEEDS)
def test_netcdf4_survives(tmp_path, seed):
    """Text, dates and 64-bit numbers of NetCDF-4 without groups."""
    rng = np.random.default_rng(seed)
    dataset = xr.Dataset(
        {
            "word": ("x", np.array(["a", "rain", "é漢", ""], object)),
            "t": (("time", "x"), rng.normal(size=(3, 4)).astype("f4"), {"units": "K"}),
            "n": (("time",), rng.integers(0, 2**40, 3)),
        },
        {"time": np.array(["2012-01-01", "2012-01-02", "2012-01-05"], "M8[ns]")},
        {"title": "x", "count": 5},
    )
    dataset.to_netcdf(tmp_path / "a.nc")
    tet("convert", tmp_path / "a.nc", tmp_path / "a.nc3", "--check")
    tet("convert", tmp_path / "a.nc3", tmp_path / "b.nc", "--check")
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "b.nc"), xr.load_dataset(tmp_path / "a.nc"))
    read = xr.load_dataset(tmp_path / "a.nc3", engine="netcdf4")
    xr.testing.assert_equal(read[["t", "n"]], dataset[["t", "n"]])
    assert [word.decode() for word in read["word"].values.astype("S")] == ["a", "rain", "é漢", ""]
    assert len(tet_json("log", tmp_path / "a.nc3")["history"]) == 1


def test_groups_are_rejected_before_writing(tmp_path):
    files.netcdf4(tmp_path / "a.nc", 0)
    tet("convert", tmp_path / "a.nc", tmp_path / "a.nc3", code=7)
    assert not (tmp_path / "a.nc3").exists()
