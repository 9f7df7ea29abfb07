"""Zarr stores: datasets equal those of xarray's own engine, and what is written is what xarray reads."""

import warnings

import numpy as np
import pytest
import tesseral
import xarray as xr

warnings.filterwarnings("ignore")

VERSIONS = [2, 3]


def dataset(seed):
    """Coordinates of several kinds, packed and masked variables, dates, text, a scalar."""
    rng = np.random.default_rng(seed)
    out = xr.Dataset(
        {
            "t": (("time", "y", "x"), rng.normal(size=(4, 3, 5)).astype("f4"), {"units": "K", "levels": [1, 2, 3]}),
            "packed": (("time", "x"), np.round(rng.normal(size=(4, 5)), 1)),
            "count": (("y", "x"), rng.integers(0, 3, (3, 5)).astype("i2")),
            "flag": (("x",), rng.integers(0, 2, 5).astype(bool)),
            "wave": (("x",), rng.normal(size=5) + 1j * rng.normal(size=5)),
            "label": (("y",), np.array(["a", "längs", "ccc"], dtype=object)),
            "level": ((), 2.5),
        },
        coords={
            "time": np.array("2020-01-01", "M8[ns]") + np.arange(4) * np.timedelta64(6, "h"),
            "x": np.linspace(0, 1, 5),
            "lat": (("y", "x"), rng.normal(size=(3, 5))),
        },
        attrs={"title": "test", "version": 3, "ratio": 0.5, "list": [1, 2]},
    )
    out["t"].values[0, 0, 0] = np.nan
    out["packed"].values[1] = np.nan
    out["packed"].encoding = {"dtype": "i2", "scale_factor": 0.1, "add_offset": 2.0, "_FillValue": -999}
    return out


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_datasets_equal_those_of_the_zarr_engine(tmp_path, version, consolidated, seed):
    path = str(tmp_path / "x.zarr")
    dataset(seed).chunk(time=2, x=3).to_zarr(path, zarr_format=version, consolidated=consolidated)
    theirs = xr.open_dataset(path, engine="zarr", consolidated=consolidated)
    ours = xr.open_dataset(path, engine="tesseral")
    xr.testing.assert_identical(theirs.load(), ours.load())
    for name in theirs.variables:
        # Text is of NumPy's StringDType there, and objects here, as in every other format.
        expected = np.dtype(object) if theirs[name].dtype.kind == "T" else theirs[name].dtype
        assert ours[name].dtype == expected, name


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_equal_those_of_the_zarr_engine(tmp_path, version):
    path = str(tmp_path / "x.zarr")
    tree = xr.DataTree.from_dict({"/": dataset(0)[["level"]], "/a": dataset(1)[["count"]], "/a/b": dataset(2)[["t"]]})
    tree.to_zarr(path, zarr_format=version)
    theirs = xr.open_datatree(path, engine="zarr")
    ours = xr.open_datatree(path, engine="tesseral")
    xr.testing.assert_identical(theirs.load(), ours.load())


@pytest.mark.parametrize("version", VERSIONS)
def test_arrays_open_by_name(tmp_path, version):
    path = str(tmp_path / "x.zarr")
    expected = dataset(0)
    expected.to_zarr(path, zarr_format=version)
    container = tesseral.open(path)
    assert container["t"][1:3, :, 2].tobytes() == expected["t"].values[1:3, :, 2].tobytes()
