"""GRIB compared with ecCodes (values, points) and cfgrib (variables, coordinates, attributes), on files of every packing, grid and edition."""

from pathlib import Path

import pytest
from support import tet, tet_json

eccodes = pytest.importorskip("eccodes")
cfgrib = pytest.importorskip("cfgrib")
import grib_files as grib  # noqa: E402
import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402

REAL = Path(__file__).resolve().parents[3] / "shared" / "real" / "forecast_monthly_ukmo.grib"


def cells(path, name="t", dtype="f8"):
    return np.frombuffer(tet("cat", path, name, "--raw"), dtype)


def write(path, *messages):
    path.write_bytes(b"".join(messages))
    return path


def same_bits(path, expected):
    """Bit for bit; missing points are null."""
    found = cells(path)
    missing = np.isnan(expected)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found[~missing].view("i8"), expected[~missing].view("i8"))
    if missing.any():
        np.testing.assert_array_equal(np.frombuffer(tet("cat", path, "t", "--validity"), "u1"), ~missing)


@pytest.mark.parametrize(("edition", "packing"), [(edition, packing) for edition, names in grib.PACKINGS.items() for packing in names])
def test_packings_equal_eccodes(tmp_path, edition, packing):
    for bits in (1, 7, 12, 16, 20):
        path = write(tmp_path / "a.grib", grib.message(edition, packing=packing, bits=bits, small=packing != "grid_png"))
        same_bits(path, grib.fields(path)[0])


@pytest.mark.parametrize(
    ("edition", "packing"),
    [(1, "grid_simple"), (1, "grid_second_order"), *((2, f"grid_{name}") for name in ("simple", "complex", "complex_spatial_differencing", "ccsds", "ieee"))],
)
def test_missing_points_are_null(tmp_path, edition, packing):
    missing = np.random.default_rng(5).random(63) < 0.3
    path = write(tmp_path / "a.grib", grib.message(edition, packing=packing, missing=missing))
    same_bits(path, grib.fields(path)[0])
    assert tet_json("stat", path, "t")["nulls"] == missing.sum()


@pytest.mark.parametrize("form", ["rows", "constant", "general"])
@pytest.mark.parametrize("with_bitmap", [False, True])
def test_older_forms_of_second_order_packing_equal_eccodes(tmp_path, form, with_bitmap):
    for seed in range(5):
        missing = np.random.default_rng(seed).random(63) < 0.3 if with_bitmap else None
        data = grib.second_order(form, missing=missing, seed=seed)
        path = write(tmp_path / "a.grib", data)
        expected = grib.fields(path)[0]
        assert np.isnan(expected).sum() == (0 if missing is None else missing.sum())
        same_bits(path, expected)
        tet("verify", path)
    # Without an end, or with another number of groups, it is an error.
    for end in range(len(data) - 40, len(data)):
        path.write_bytes(data[:end])
        tet("cat", path, "t", "--raw", code=(4, 5))
    changed = bytearray(data)
    changed[len(data) - 4 - len(_section4(data)) + 17] += 1
    path.write_bytes(bytes(changed))
    tet("cat", path, "t", "--raw", code=5)


def _section4(data):
    """The last section of a message of edition 1."""
    at = 8
    for _ in range(2 + (data[8 + 7] >> 6 & 1)):
        at += int.from_bytes(data[at : at + 3], "big")
    return data[at:-4]


def test_run_lengths_equal_eccodes(tmp_path):
    # ecCodes takes what fills up the last byte for a value.
    bits, rng = 8, np.random.default_rng(8)
    levels = np.array([0.0, 1.5, 2.5, 40.0])
    for runs in (np.ones(63, int), rng.integers(1, 40, 9)):
        values = np.repeat(levels[rng.integers(0, 4, len(runs))], runs)[:63]
        values = np.concatenate([values, np.full(63 - values.size, 2.5)])
        path = write(tmp_path / "a.grib", grib.run_length(values, levels, bits))
        expected = grib.fields(path)[0]
        assert np.array_equal(np.isnan(expected), values == 0) and np.array_equal(expected[values != 0], values[values != 0])
        same_bits(path, expected)
    data = path.read_bytes()
    for end in range(len(data) - 30, len(data)):
        path.write_bytes(data[:end])
        tet("cat", path, "t", "--raw", code=(4, 5))


@pytest.mark.parametrize("decimal", [-3, 2, 5])
def test_scales_round_as_eccodes(tmp_path, decimal):
    for bits in (3, 24, 33, 48):
        values = np.random.default_rng(bits).normal(size=63) * 1e-3 + 3
        path = write(tmp_path / "a.grib", grib.message(2, values=values, bits=bits, keys={"decimalScaleFactor": decimal}))
        same_bits(path, grib.fields(path)[0])


def test_constant_fields(tmp_path):
    for packing in ("grid_simple", "grid_complex", "grid_ccsds"):
        path = write(tmp_path / "a.grib", grib.message(2, packing=packing, values=np.full(63, 273.16)))
        same_bits(path, grib.fields(path)[0])


def test_projected_grids_have_the_points_of_eccodes(tmp_path):
    corner = {"latitudeOfFirstGridPointInDegrees": 41, "longitudeOfFirstGridPointInDegrees": 3, "LaDInDegrees": 46, "jScansPositively": 1}
    steps = {"DxInMetres": 20000, "DyInMetres": 20000}
    grids = {
        "lambert": {**corner, **steps, "Nx": 5, "Ny": 4, "LoVInDegrees": 5, "Latin1InDegrees": 44, "Latin2InDegrees": 49},
        "polar_stereographic": {**corner, **steps, "Nx": 5, "Ny": 4, "orientationOfTheGridInDegrees": 10},
        "mercator": {**corner, "Ni": 5, "Nj": 4, "DiInMetres": 20000, "DjInMetres": 20000},
    }
    for name, keys in grids.items():
        for shape in (6, 5):
            if name == "polar_stereographic" and shape == 5:
                # ecCodes supports only spheres.
                continue
            keys = {"gridType": name, "shapeOfTheEarth": shape, **keys}
            path = write(tmp_path / "a.grib", grib.message(2, values=np.arange(20.0), small=False, keys=keys))
            for found, expected in zip(("latitude", "longitude"), grib.points(path), strict=True):
                np.testing.assert_allclose(cells(path, found), expected, rtol=0, atol=1e-9)


def equal_to_cfgrib(path, tolerance=1e-12):
    """Names, dimensions, coordinates, values and attributes of all variables."""
    options = {"indexpath": "", "values_dtype": np.dtype("f8")}
    with xr.open_dataset(path, engine="cfgrib", decode_times=False, decode_timedelta=False, backend_kwargs=options) as expected:
        info = tet_json("info", path)
        arrays = {array["name"]: array for array in info["arrays"]}
        assert set(arrays) == set(expected.variables)
        for name, variable in expected.variables.items():
            assert tuple(arrays[name]["dims"]) == variable.dims
            found, values = cells(path, name, variable.dtype), variable.values.ravel()
            if name in expected.data_vars:
                valid = ~np.isnan(values)
                np.testing.assert_array_equal(found[valid], values[valid])
            else:
                np.testing.assert_allclose(found, values, rtol=0, atol=tolerance)
            # The value of missing points in cfgrib's memory; where coordinates are listed.
            attrs = {key: value for key, value in variable.attrs.items() if key != "GRIB_missingValue"}
            own = {key: value for key, value in arrays[name]["attributes"].items() if key != "coordinates"}
            assert set(own) == set(attrs), name
            for key, value in attrs.items():
                np.testing.assert_array_equal(own[key], value, err_msg=f"{name} {key}")
        assert info["attributes"] == {key: value for key, value in expected.attrs.items() if key != "history"}


@pytest.mark.parametrize("edition", [1, 2])
def test_cubes_equal_cfgrib(tmp_path, edition):
    equal_to_cfgrib(grib.cube(tmp_path / "a.grib", edition, members=3 if edition == 2 else 1))


@pytest.mark.parametrize("edition", [1, 2])
@pytest.mark.parametrize("grid", list(grib.GRIDS))
def test_grids_equal_cfgrib(tmp_path, edition, grid):
    keys = {"jScansPositively": 1} if grid == "polar_stereographic" else {}
    # ecCodes rounds the points of rotated grids in single precision.
    equal_to_cfgrib(write(tmp_path / "a.grib", grib.message(edition, grid=grid, keys=keys)), 3e-5 if grid == "rotated_ll" else 1e-12)


@pytest.mark.parametrize("edition", [1, 2])
def test_parameters_equal_cfgrib(tmp_path, edition):
    names = ["2t", "10u", "10v", "msl", "sp", "skt", "swvl1", "lsm", "cape", "tcwv", *(["tp", "tcc", "sst", "sd", "ssr"] if edition == 1 else ["tp", "prmsl"])]
    for name in names:
        equal_to_cfgrib(write(tmp_path / "a.grib", grib.message(edition, keys={"shortName": name})))
    for name in ["u", "v", "z", "q", "r", "w", "gh"]:
        equal_to_cfgrib(write(tmp_path / "a.grib", grib.message(edition, keys={"shortName": name, "level": 500})))


def test_incomplete_cubes_have_null_fields(tmp_path):
    keys = [{"level": level, "dataDate": date} for level, date in [(500, 20200101), (850, 20200102), (500, 20200103)]]
    path = write(tmp_path / "a.grib", *(grib.message(2, bits=12 + i, keys=key) for i, key in enumerate(keys)))
    equal_to_cfgrib(path)
    assert tet_json("stat", path, "t")["nulls"] == 3 * 63


def test_level_types_are_groups(tmp_path):
    keys = [{"shortName": "2t"}, {"shortName": "10u"}, {"shortName": "msl"}, {"shortName": "t", "level": 500}, {"shortName": "t", "level": 850}]
    path = write(tmp_path / "a.grib", *(grib.message(2, keys=key) for key in keys))
    expected = cfgrib.open_datasets(str(path), backend_kwargs={"indexpath": ""})
    arrays = {array["name"]: array for array in tet_json("info", path)["arrays"]}
    groups = {name.split("/")[0] for name in arrays}
    assert groups == {"heightAboveGround", "heightAboveGround_2", "meanSea", "isobaricInhPa"} and len(expected) == len(groups)
    assert {name.split("/")[1] for name in arrays} == {str(name) for dataset in expected for name in dataset.variables}
    assert arrays["isobaricInhPa/t"]["dims"] == ["isobaricInhPa", "latitude", "longitude"]


def test_scanning_modes(tmp_path):
    """Rows that go north, columns that are consecutive, alternating rows: cells are where their coordinates say."""
    base = np.arange(63.0).reshape(7, 9)  # from north to south and west to east
    for north in (0, 1):
        for columns in (0, 1):
            for alternate in (0, 1):
                grid = base[::-1] if north else base
                stored = (grid.T if columns else grid).copy()
                if alternate:
                    stored[1::2] = stored[1::2, ::-1]
                first, last = (24, 30) if north else (30, 24)
                keys = {
                    "jScansPositively": north, "jPointsAreConsecutive": columns, "alternativeRowScanning": alternate,
                    "latitudeOfFirstGridPointInDegrees": first, "latitudeOfLastGridPointInDegrees": last,
                }
                path = write(tmp_path / "a.grib", grib.message(2, values=stored.ravel(), keys=keys))
                np.testing.assert_allclose(cells(path).reshape(7, 9), grid, atol=1e-3)
                np.testing.assert_array_equal(cells(path, "latitude"), np.linspace(first, last, 7))


def test_messages_of_several_fields(tmp_path):
    message = eccodes.codes_grib_multi_new()
    for level in (500, 850):
        handle = eccodes.codes_new_from_message(grib.message(2, keys={"level": level}, bits=level // 50))
        eccodes.codes_grib_multi_append(handle, 4, message)
        eccodes.codes_release(handle)
    path = tmp_path / "a.grib"
    with open(path, "wb") as file:
        eccodes.codes_grib_multi_write(message, file)
    eccodes.codes_grib_multi_release(message)
    assert tet_json("info", path)["grib"]["messages"] == 1
    # Pressure decreases along the dimension.
    same_bits(path, np.concatenate(grib.fields(path)[::-1]))


def test_lengths_beyond_8_mib_of_edition_1(tmp_path):
    path = write(tmp_path / "a.grib", grib.message(1, keys={"Ni": 2000, "Nj": 1500}, bits=24))
    assert path.stat().st_size > 8 << 20
    same_bits(path, grib.fields(path)[0])


@pytest.mark.skipif(not REAL.exists(), reason="real files are not in this checkout")
def test_real_file_equals_cfgrib():
    equal_to_cfgrib(REAL)
