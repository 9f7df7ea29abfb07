"""The model from Python: decoded values, labels on demand, roles by CF attributes, and what other programs see of our files."""

import json
import os
import subprocess

import cftime
import numpy as np
import pytest
import tesseral
import tesseral.xarray  # noqa: F401
import xarray as xr

ENDINGS = {"tet": ".tet", "tgm": ".tgm", "tiledb": ".tiledb"}
CALENDARS = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]


def through(ds, format, folder):
    path = folder / f"a{ENDINGS[format]}"
    getattr(ds.tesseral, f"to_{format}")(path)
    return tesseral.open(path)


# Decoded cells


@pytest.mark.parametrize("format", ENDINGS)
def test_packed_cells_are_decoded(tmp_path, format):
    stored = np.array([[0, 150, -999], [7, -3, 20]], "i2")
    attrs = {"scale_factor": 0.1, "add_offset": 5.0, "_FillValue": np.int16(-999)}
    array = through(xr.Dataset({"t": (("y", "x"), stored, attrs)}), format, tmp_path).variables["t"]
    np.testing.assert_array_equal(array[...], stored)
    decoded = array.decoded()
    assert decoded.mask.tolist() == [[False, False, True], [False] * 3]
    np.testing.assert_array_equal(decoded.compressed(), (stored * 0.1 + 5.0)[stored != -999])
    np.testing.assert_array_equal(array.isel(y=1).decoded(), stored[1] * 0.1 + 5.0)
    with_mask = xr.open_dataset(tmp_path / f"a{ENDINGS[format]}", engine="tesseral").t
    np.testing.assert_array_equal(decoded.filled(np.nan), with_mask)


@pytest.mark.parametrize("calendar", CALENDARS)
@pytest.mark.parametrize("format", ENDINGS)
def test_times_are_decoded_as_cftime_does(tmp_path, format, calendar):
    rng = np.random.default_rng(5)
    units = "hours since 1600-01-01"
    numbers = np.sort(rng.integers(0, 5_000_000, 50)) + 0.5
    attrs = {"units": units, "calendar": calendar, "_FillValue": -1.0}
    cells = np.append(numbers, -1.0)
    found = through(xr.Dataset({"when": ("x", cells, attrs)}), format, tmp_path).variables["when"].decoded()
    assert found.mask.tolist() == [False] * 50 + [True]
    want = cftime.num2date(numbers, units, calendar)
    if calendar in ("standard", "proleptic_gregorian"):
        assert found.dtype == np.dtype("M8[us]")
        assert found.compressed().tolist() == [np.datetime64(time.isoformat(), "us").item() for time in want]
    else:
        assert found.compressed().tolist() == want.tolist()


def test_times_before_the_reform_are_cftime(tmp_path):
    attrs = {"units": "days since 1500-01-01", "calendar": "standard"}
    ds = xr.Dataset({"when": ("x", np.array([0, 100_000]), attrs)})
    found = through(ds, "tet", tmp_path)["when"].decoded()
    assert found.tolist() == cftime.num2date([0, 100_000], attrs["units"], "standard").tolist()


@pytest.mark.parametrize("calendar", ["standard", "360_day"])
@pytest.mark.parametrize("ending", [*ENDINGS.values(), ".nc", ".zarr"])
def test_bounds_count_the_time_of_their_coordinate(tmp_path, ending, calendar):
    """CF leaves units and calendar of bounds to the coordinate, of one dimension or none."""
    attrs = {"units": "days since 2000-01-01", "calendar": calendar}
    edges = np.array([[0.0, 30.0], [30.0, 60.0]])
    ds = xr.Dataset(
        {"v": ("time", [1.0, 2.0]), "edges": (("time", "side"), edges), "whole": ("side", [0, 60]), "plain": (("time", "side"), edges), "own": (("time", "side"), edges, {"units": "m"})},
        coords={"time": ("time", [15.0, 45.0], {**attrs, "bounds": "edges"}), "middle": ((), 30.0, {**attrs, "climatology": "whole"}), "y": ("y", [1.0], {"bounds": "own"})},
    )
    path = tmp_path / f"a{ending}"
    tesseral.write(path, ds)
    variables = tesseral.open(path).variables
    want = cftime.num2date(edges, **attrs)
    found = variables["edges"].decoded()
    assert [[str(time)[:10] for time in row] for row in found.tolist()] == [[str(time)[:10] for time in row] for row in want]
    assert str(variables["whole"].decoded().tolist()[1])[:10] == str(want[1, 1])[:10]
    np.testing.assert_array_equal(variables["edges"][...], edges)
    for name in ("plain", "own"):
        np.testing.assert_array_equal(variables[name].decoded(), edges)
    if "TET_BIN" in os.environ:
        done = subprocess.run([os.environ["TET_BIN"], "stat", path, "--json"], capture_output=True, check=True)
        rows = {(row["field"] if row["array"] == path.name else row["variable"]).rpartition("/")[2]: row for row in json.loads(done.stdout)["arrays"]}
        assert rows["edges"]["max"] == str(want[1, 1])[:10] and rows["plain"]["max"] == 60.0


# Labels


@pytest.mark.parametrize("format", ENDINGS)
def test_coordinates_in_calendars_are_selected(tmp_path, format):
    attrs = {"units": "days since 2000-01-01", "calendar": "360_day"}
    ds = xr.Dataset({"v": ("time", np.arange(720))}, coords={"time": ("time", np.arange(720), attrs)})
    array = through(ds, format, tmp_path).variables["v"]
    assert array.sel(time="2000-02")[...].tolist() == list(range(30, 60))
    assert array.sel(time=slice("2001-12-30", None))[...].tolist() == [719]
    with pytest.raises(tesseral.InvalidRequestError, match="360_day"):
        array.sel(time="2000-01-31")


def test_labels_are_physical_values_of_packed_coordinates(tmp_path):
    lat = ("lat", np.array([0, 5, 10], "i2"), {"scale_factor": 0.5, "add_offset": -1.0})
    ds = xr.Dataset({"v": ("lat", [1, 2, 3])}, coords={"lat": lat})
    array = through(ds, "tet", tmp_path)["v"]
    assert array.sel(lat=1.5)[...].tolist() == 2
    assert array.coords["lat"].tolist() == [-1.0, 1.5, 4.0]


def test_labels_are_read_when_they_are_needed(tmp_path):
    """A damaged coordinate does not stop reads that do not need it; those that do report it."""
    path = tmp_path / "a.tet"
    marks = np.arange(1000, dtype="f8") + 0.123
    tesseral.write(path, {"v": np.arange(1000)}, dims=("x",), coords={"x": marks})
    held = bytearray(path.read_bytes())
    at = held.find(marks.tobytes()[:64])
    held[at + 8] ^= 1
    path.write_bytes(held)
    array = tesseral.open(path)["v"]
    assert array.isel(x=slice(3, 5))[...].tolist() == [3, 4] and "x" in array.coords
    with pytest.raises(tesseral.CorruptError):
        array.sel(x=slice(1, 2))


def test_large_coordinates_have_labels(tmp_path):
    """More than is read with an array: selections read it, within the memory limit."""
    count = 9_000_000
    path = tmp_path / "a.tet"
    tesseral.write(path, {"v": np.arange(count, dtype="u1")}, dims=("x",), coords={"x": np.arange(count, dtype="f8") / 2})
    array = tesseral.open(path)["v"]
    assert array.sel(x=slice(100.0, 101.0))[...].tolist() == [200, 201, 202]
    small = tesseral.open(path, memory_limit=32 << 20)["v"]
    with pytest.raises(tesseral.LimitError, match="labels"):
        small.sel(x=100.0)
    assert small.isel(x=slice(0, 3))[...].tolist() == [0, 1, 2]


# Roles


def cf_dataset():
    cells = np.arange(12.0).reshape(3, 4)
    return xr.Dataset(
        {
            "t": (("y", "x"), cells, {"coordinates": "lat lon", "grid_mapping": "crs", "ancillary_variables": "quality", "cell_measures": "area: cell_area"}),
            "lat": (("y", "x"), cells),
            "lon": (("y", "x"), cells),
            "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
            "quality": (("y", "x"), cells.astype("i1")),
            "cell_area": (("y", "x"), cells),
            "y_bnds": (("y", "side"), np.zeros((3, 2))),
            "other": ((), 1),
        },
        coords={"y": ("y", np.arange(3.0), {"bounds": "y_bnds"})},
    )


@pytest.mark.parametrize("format", ENDINGS)
def test_roles_follow_from_attributes(tmp_path, format):
    container = through(cf_dataset(), format, tmp_path)
    roles = {name: array.role for name, array in container.variables.items()}
    assert roles == {
        "t": "data", "lat": "auxiliary", "lon": "auxiliary", "crs": "grid_mapping", "quality": "ancillary",
        "cell_area": "ancillary", "y_bnds": "bounds", "other": "data", "y": "index",
    }
    # xarray finds them by the same attributes.
    path = tmp_path / f"a{ENDINGS[format]}"
    assert {"lat", "lon"} <= set(xr.open_dataset(path, engine="tesseral").coords)
    assert {"y_bnds", "crs", "cell_area"} <= set(xr.open_dataset(path, engine="tesseral", decode_coords="all").coords)
    assert "lat" in xr.open_dataset(path, engine="tesseral", decode_coords=False).data_vars
    if "TET_BIN" in os.environ:
        done = subprocess.run([os.environ["TET_BIN"], "info", path, "--json"], capture_output=True, check=True)
        shown = {a["attributes"].get("name", a["name"]): a["role"] for a in json.loads(done.stdout)["arrays"]}
        assert {name.removesuffix(".data"): role for name, role in shown.items()} == roles


# What other programs see


def test_tensogram_xarray_opens_our_messages(tmp_path):
    pytest.importorskip("tensogram_xarray")
    ds = xr.Dataset(
        {"t": (("time", "latitude", "longitude"), np.arange(24.0).reshape(2, 3, 4), {"units": "K"}), "n": ("time", [1, 2])},
        coords={"time": [10, 20], "latitude": [1.0, 2.0, 3.0], "longitude": np.arange(4.0)},
        attrs={"title": "t"},
    )
    path = tmp_path / "a.tgm"
    ds.tesseral.to_tgm(path)
    theirs = xr.open_dataset(path, engine="tensogram")
    assert set(theirs.coords) == {"time", "latitude", "longitude"}
    for name in ("t", "n", "time", "latitude", "longitude"):
        np.testing.assert_array_equal(theirs[name], ds[name])
        assert theirs[name].dims == ds[name].dims
    assert theirs.t.attrs["units"] == "K" and theirs.attrs["title"] == "t"


def test_tensogram_xarray_opens_curvilinear_grids(tmp_path):
    """Variables named as coordinates that are none of one dimension have another name there, and their own here."""
    pytest.importorskip("tensogram_xarray")
    grid = np.arange(12.0).reshape(3, 4)
    ds = xr.Dataset(
        {"t": (("y", "x"), grid)},
        coords={"lat": (("y", "x"), grid + 0.5), "lon": (("y", "x"), -grid), "time": 7.0, "depth": ("x", np.arange(4.0)), "Level": ("y", [1, 2, 3])},
    )
    path = tmp_path / "a.tgm"
    ds.tesseral.to_tgm(path)
    theirs = xr.open_dataset(path, engine="tensogram")
    assert set(theirs.variables) == {"t", "lat.data", "lon.data", "time.data", "depth.data", "Level.data"}
    np.testing.assert_array_equal(theirs["lat.data"], grid + 0.5)
    assert theirs["lat.data"].dims == ("y", "x")
    xr.testing.assert_identical(xr.load_dataset(path, engine="tesseral"), ds)
    assert set(tesseral.open(path).variables) == {"t", "lat", "lon", "time", "depth", "Level"}


# The same statistics of every format, in physical units


@pytest.mark.skipif("TET_BIN" not in os.environ, reason="the command line is not built")
def test_statistics_are_physical_and_the_same_in_every_format(tmp_path):
    rng = np.random.default_rng(1)
    stored = rng.integers(-500, 500, (4, 30)).astype("i2")
    stored[1, :7] = -999
    ds = xr.Dataset({"t": (("y", "x"), stored, {"scale_factor": 0.25, "add_offset": 280.0, "_FillValue": np.int16(-999)})})
    want = np.ma.masked_equal(stored, -999) * 0.25 + 280.0
    rows = []
    for format, ending in ENDINGS.items():
        path = tmp_path / f"a{ending}"
        getattr(ds.tesseral, f"to_{format}")(path)
        done = subprocess.run([os.environ["TET_BIN"], "stat", path, "--json"], capture_output=True, check=True)
        row = json.loads(done.stdout)
        rows.append({key: row[key] for key in ("count", "nulls", "nan", "min", "max", "mean", "sum", "std")})
    assert rows[0] == rows[1] == rows[2]
    assert (rows[0]["count"], rows[0]["nulls"]) == (120, 7)
    for key in ("min", "max", "mean", "sum", "std"):
        assert rows[0][key] == pytest.approx(float(getattr(want, key)()), rel=1e-12)
