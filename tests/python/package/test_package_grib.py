"""GRIB files through the xarray engine, compared with cfgrib's own."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

pytest.importorskip("cfgrib")
ROOT = Path(__file__).resolve().parents[3]
REAL = ROOT.parent / "shared" / "real" / "forecast_monthly_ukmo.grib"
FIXTURES = ["cube", "constant", "bitmap_grid_simple_1", "bitmap_grid_ccsds_2", "grid_complex_spatial_differencing_2", "grid_second_order_1"]


def both(path):
    kwargs = {"indexpath": "", "values_dtype": np.dtype("f8")}
    return xr.open_dataset(path, engine="tesseral"), xr.open_dataset(path, engine="cfgrib", backend_kwargs=kwargs)


def compare(path):
    ours, theirs = both(path)
    assert set(ours.variables) == set(theirs.variables)
    assert set(ours.coords) == set(theirs.coords)
    for name, expected in theirs.variables.items():
        found = ours.variables[name]
        assert (found.dims, found.dtype) == (expected.dims, expected.dtype), name
        np.testing.assert_array_equal(found.values, expected.values, err_msg=name)


@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures_equal_cfgrib(name):
    compare(ROOT / "fixtures" / "grib" / f"{name}.grib")


@pytest.mark.skipif(not REAL.exists(), reason="the published file is not here")
def test_a_published_forecast_equals_cfgrib():
    compare(REAL)
    dataset, _ = both(REAL)
    assert dataset["time"].dtype.kind == "M" and dataset["step"].dtype.kind == "m"
