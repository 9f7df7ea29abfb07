"""GRIB through the package and the xarray engine, compared with ecCodes and cfgrib."""

import sys
from pathlib import Path

import numpy as np
import pytest

import tesseral

eccodes = pytest.importorskip("eccodes")
cfgrib = pytest.importorskip("cfgrib")
xr = pytest.importorskip("xarray")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import grib_files as grib  # noqa: E402

REAL = Path(__file__).resolve().parents[4] / "shared" / "real"
#: Attributes of cfgrib that describe its own process: the value that stands for missing points in memory, and the program.
OWN = {"GRIB_missingValue", "history"}


def cells(path, name=None):
    """The cells of the only data variable, missing ones as NaN."""
    with tesseral.open(path) as source:
        names = [key for key, array in source.variables.items() if any(dim in ("latitude", "y", "values") for dim in array.dims) and key.split("/")[-1] not in ("latitude", "longitude")]
        found = source.variables[name or names[0]][...]
    return np.ma.filled(np.ma.asarray(found), np.nan)


def write(path, *messages):
    path.write_bytes(b"".join(messages))
    return path


def same_bits(found, expected):
    """Bit for bit, except that a missing value has no defined bits."""
    found, expected = np.asarray(found, "f8").ravel(), np.asarray(expected, "f8").ravel()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    valid = ~np.isnan(expected)
    np.testing.assert_array_equal(found[valid].view("i8"), expected[valid].view("i8"))


@pytest.mark.parametrize(("edition", "packing"), [(edition, packing) for edition, names in grib.PACKINGS.items() for packing in names])
@pytest.mark.parametrize("bits", [1, 7, 8, 12, 16, 20])
def test_packings_equal_eccodes(tmp_path, edition, packing, bits):
    options = {"small": packing != "grid_png"}
    path = write(tmp_path / "a.grib", grib.message(edition, packing=packing, bits=bits, **options))
    same_bits(cells(path), grib.fields(path)[0])


@pytest.mark.parametrize(("edition", "packing"), [(1, "grid_simple"), (1, "grid_second_order"), (2, "grid_simple"), (2, "grid_complex"), (2, "grid_complex_spatial_differencing"), (2, "grid_ccsds"), (2, "grid_jpeg"), (2, "grid_ieee")])
def test_missing_points_are_null(tmp_path, edition, packing):
    missing = np.random.default_rng(5).random(63) < 0.3
    path = write(tmp_path / "a.grib", grib.message(edition, packing=packing, missing=missing))
    found = cells(path)
    assert np.isnan(found).ravel().tolist() == missing.tolist()
    same_bits(found, grib.fields(path)[0])
    with tesseral.open(path) as source:
        assert source.variables["t"].nullable


@pytest.mark.parametrize("decimal", [-3, 0, 2, 5])
@pytest.mark.parametrize("bits", [3, 24, 31, 33, 48])
def test_scales_round_as_eccodes(tmp_path, bits, decimal):
    values = np.random.default_rng(bits).normal(size=63) * 1e-3 + 3
    path = write(tmp_path / "a.grib", grib.message(2, values=values, bits=bits, keys={"decimalScaleFactor": decimal}))
    same_bits(cells(path), grib.fields(path)[0])


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_ccsds"])
def test_constant_fields(tmp_path, packing):
    path = write(tmp_path / "a.grib", grib.message(2, packing=packing, values=np.full(63, 273.16)))
    same_bits(cells(path), grib.fields(path)[0])


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("grid", list(grib.GRIDS))
def test_grids_have_the_points_of_eccodes(tmp_path, edition, grid):
    path = write(tmp_path / "a.grib", grib.message(edition, grid=grid))
    same_bits(cells(path), grib.fields(path)[0])
    latitudes, longitudes = grib.points(path)
    with tesseral.open(path) as source:
        found = [source.variables[name][...] for name in ("latitude", "longitude")]
    if grid in ("regular_ll", "regular_gg"):
        found = np.meshgrid(*found, indexing="ij")
    # ecCodes rounds the points of rotated grids in single precision.
    tolerance = 3e-5 if grid == "rotated_ll" else 1e-8
    np.testing.assert_allclose(np.ravel(found[0]), latitudes, rtol=0, atol=tolerance)
    turn = np.abs(np.ravel(found[1]) - longitudes)
    np.testing.assert_allclose(np.minimum(turn, 360 - turn), 0, rtol=0, atol=tolerance)


def equal_to_cfgrib(found, expected):
    """Names, dimensions, coordinates and values; attributes except cfgrib's own."""
    assert set(found.variables) == set(expected.variables)
    assert set(found.coords) == set(expected.coords)
    for name in expected.variables:
        own, theirs = found[name], expected[name]
        assert own.dims == theirs.dims, name
        if name in expected.data_vars:
            same_bits(own.values, theirs.values)
        else:
            np.testing.assert_allclose(own.values.astype("f8"), theirs.values.astype("f8"), rtol=0, atol=1e-9)
            assert own.dtype == theirs.dtype, name
        attrs = {key: value for key, value in theirs.attrs.items() if key not in OWN}
        assert set(own.attrs) == set(attrs), name
        for key, value in attrs.items():
            np.testing.assert_array_equal(own.attrs[key], value, err_msg=f"{name} {key}")
    assert {key: value for key, value in expected.attrs.items() if key not in OWN} == dict(found.attrs)


def by_cfgrib(path):
    return xr.open_dataset(path, engine="cfgrib", decode_timedelta=True, backend_kwargs={"indexpath": "", "values_dtype": np.dtype("f8")})


@pytest.mark.parametrize("edition", [1, 2])
def test_cubes_equal_cfgrib(tmp_path, edition):
    path = grib.cube(tmp_path / "a.grib", edition, members=3 if edition == 2 else 1)
    with by_cfgrib(path) as expected, xr.open_dataset(path, engine="tesseral", decode_timedelta=True) as found:
        equal_to_cfgrib(found, expected)


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("grid", list(grib.GRIDS))
def test_grids_equal_cfgrib(tmp_path, edition, grid):
    path = write(tmp_path / "a.grib", grib.message(edition, grid=grid))
    with by_cfgrib(path) as expected, xr.open_dataset(path, engine="tesseral", decode_timedelta=True) as found:
        if grid == "rotated_ll":
            assert found["t"].dims == expected["t"].dims == ("y", "x")
            return
        equal_to_cfgrib(found, expected)


def test_incomplete_cubes_have_null_fields(tmp_path):
    keys = [{"level": level, "dataDate": date} for level, date in [(500, 20200101), (850, 20200102), (500, 20200103)]]
    path = write(tmp_path / "a.grib", *(grib.message(2, bits=12 + i, keys=key) for i, key in enumerate(keys)))
    with by_cfgrib(path) as expected, xr.open_dataset(path, engine="tesseral", decode_timedelta=True) as found:
        assert found["t"].shape == (3, 2, 7, 9) and int(np.isnan(found["t"]).sum()) == 3 * 63
        equal_to_cfgrib(found, expected)


def test_level_types_are_groups(tmp_path):
    keys = [{"shortName": "2t"}, {"shortName": "10u"}, {"shortName": "msl"}, {"shortName": "t", "level": 500}, {"shortName": "t", "level": 850}]
    path = write(tmp_path / "a.grib", *(grib.message(2, keys=key) for key in keys))
    expected = cfgrib.open_datasets(str(path), backend_kwargs={"indexpath": "", "values_dtype": np.dtype("f8")})
    with tesseral.open(path) as source:
        groups = {name: source.to_xarray(name) for name in source.groups}
        # As many datasets as cfgrib makes, with the same variables.
        assert sorted(sorted(map(str, dataset.data_vars)) for dataset in groups.values()) == sorted(sorted(map(str, dataset.data_vars)) for dataset in expected)
        assert {"heightAboveGround", "heightAboveGround_2", "meanSea", "isobaricInhPa"} == set(groups)
        assert groups["isobaricInhPa"]["t"].dims == ("isobaricInhPa", "latitude", "longitude")


def test_scanning_modes(tmp_path):
    """Rows that go north, columns that are consecutive, points that go west, alternating rows: cells are where their coordinates say."""
    base = np.arange(63.0).reshape(7, 9)  # by latitude from north to south and longitude from west to east
    for j_up in (0, 1):
        for consecutive in (0, 1):
            for alternate in (0, 1):
                grid = base[::-1] if j_up else base
                stored = (grid.T if consecutive else grid).copy()
                if alternate:
                    stored[1::2] = stored[1::2, ::-1]
                latitudes = (24, 30) if j_up else (30, 24)
                keys = {
                    "jScansPositively": j_up, "jPointsAreConsecutive": consecutive, "alternativeRowScanning": alternate,
                    "latitudeOfFirstGridPointInDegrees": latitudes[0], "latitudeOfLastGridPointInDegrees": latitudes[1],
                }
                path = write(tmp_path / "a.grib", grib.message(2, values=stored.ravel(), keys=keys))
                with xr.open_dataset(path, engine="tesseral") as found:
                    found = found["t"].sortby("latitude", ascending=False)
                    np.testing.assert_allclose(found.values, base, atol=1e-3)
                    assert found["latitude"].values[0] == 30


@pytest.mark.skipif(not (REAL / "forecast_monthly_ukmo.grib").exists(), reason="real files are not in this checkout")
def test_real_file_equals_cfgrib():
    path = REAL / "forecast_monthly_ukmo.grib"
    with by_cfgrib(path) as expected, xr.open_dataset(path, engine="tesseral", decode_timedelta=True) as found:
        equal_to_cfgrib(found, expected)
