"""Kinds of pictures, and questions about a dataset whose variables are not named: what a first look at a file needs."""

import subprocess

import netCDF4
import numpy as np
import pytest
from support import TET, tet, tet_json


def weather(path, seed):
    """One data variable with a grid mapping, bounds and coordinates, which describe it."""
    t = np.random.default_rng(seed).normal(280, 10, (3, 4, 5, 6)).astype("f4")
    t[0, 1, 2, 3] = -999
    with netCDF4.Dataset(path, "w") as file:
        for name, size in [("time", 3), ("level", 4), ("lat", 5), ("lon", 6), ("two", 2)]:
            file.createDimension(name, size)
        coordinates = {
            "time": ("i4", [0, 31, 59], {"units": "days since 2001-01-01", "bounds": "time_bnds"}),
            "level": ("f4", [1000, 850, 500, 200], {"units": "hPa"}),
            "lat": ("f8", np.linspace(-40, 40, 5), {"units": "degrees_north"}),
            "lon": ("f8", np.arange(6) * 60, {"units": "degrees_east"}),
        }
        for name, (dtype, values, attributes) in coordinates.items():
            variable = file.createVariable(name, dtype, (name,))
            variable[:] = values
            variable.setncatts(attributes)
        file.createVariable("time_bnds", "i4", ("time", "two"))[:] = [[0, 31], [31, 59], [59, 90]]
        file.createVariable("crs", "i4", ()).grid_mapping_name = "latitude_longitude"
        variable = file.createVariable("t", "f4", ("time", "level", "lat", "lon"), fill_value=-999.0)
        variable.setncatts({"units": "K", "grid_mapping": "crs"})
        variable[:] = t
    return np.ma.masked_equal(t, -999)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / "a.nc", folder / "b.nc"]
    return paths, [weather(path, seed) for seed, path in enumerate(paths)]


def test_the_only_data_variable_needs_no_name(files):
    (path, _), (t, _) = files
    for source in [path, path.with_suffix(".tet"), path.with_suffix(".tgm"), path.with_suffix(".tdb")]:
        if source != path:
            tet("convert", path, source)
        values = tet_json("cat", source, "time=1", "level=2")["data"]
        assert np.array_equal(np.array(values, "f4")[0, 0], t[1, 2].data), source
        assert tet("plot", source, "time=0", "level=0", "--width", 40), source


def test_kinds_of_pictures(files):
    (path, other), (t, against) = files
    field = tet_json("plot", path, "t", "time=0", "level=1")
    assert field["kind"] == "field" and field["nulls"] == 1
    profile = tet_json("plot", path, "t", "time=0", "lat=0", "lon=0")
    assert profile["kind"] == "profile" and profile["axes"][0]["name"] == "level"
    assert np.array_equal(np.array(profile["values"], "f4"), t[0, :, 0, 0].data)
    assert tet_json("plot", path, "t", "time=0", "lat=0", "lon=0", "--kind", "line")["kind"] == "line"
    line = tet_json("plot", path, "t", "level=0", "lat=0", "lon=0")
    assert line["kind"] == "line" and len(line["values"]) == 3
    tet("plot", path, "t", "level=0", "lat=0", "lon=0", "--kind", "field", code=2)

    histogram = tet_json("plot", path, "t", "--kind", "histogram", "--bins", 7)
    values = t.compressed().astype("f8")
    counts, edges = np.histogram(values, bins=7)
    assert histogram["kind"] == "histogram" and histogram["values"] == counts.tolist()
    axis = histogram["axes"][0]
    assert (float(axis["first"]), float(axis["last"])) == (edges[0], edges[-1]) and axis["units"] == "K"

    difference = tet_json("plot", path, "t", "time=2", "level=3", "--against", other)
    expected = t[2, 3].astype("f8") - against[2, 3].astype("f8")
    assert np.array_equal(np.array(difference["values"]), expected.data)
    assert difference["high"] == -difference["low"] == np.abs(expected).max()
    missing = tet_json("plot", path, "t", "time=0", "level=1", "--against", other)
    assert missing["nulls"] == 1 and missing["values"][2][3] is None
    tet("plot", path, "t", "time=0", "level=0", "--against", other, "--kind", "histogram", code=2)


def test_profiles_have_the_surface_below(files):
    (path, _), _ = files
    shown = tet("plot", path, "t", "time=1", "lat=0", "lon=0", "--width", 40).decode().splitlines()
    labels = [words[0] for words in map(str.split, shown[2:]) if words and words[0].isdigit()]
    levels = [int(label) for label in labels if int(label) >= 100]
    assert levels == sorted(levels) and len(levels) >= 3, shown


def test_pictures_in_files(files, tmp_path):
    (path, other), _ = files
    for i, arguments in enumerate([
        ["t", "time=0", "lat=0", "lon=0"],
        ["t", "--kind", "histogram"],
        ["t", "time=0", "level=0", "--against", other],
    ]):
        tet("plot", path, *arguments, "-o", tmp_path / f"{i}.png")
        tet("plot", path, *arguments, "-o", tmp_path / f"{i}.svg")
        assert (tmp_path / f"{i}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{i}.svg").read_text().rstrip().endswith("</svg>")
    assert "minus" in (tmp_path / "2.svg").read_text()


def test_positions_of_extremes_have_coordinates(files):
    (path, _), (t, _) = files
    [row] = tet_json("stat", path, "t", "lat=1:5:2", "--argmax", "--min")["rows"]
    part = t[:, :, 1:5:2]
    index = np.unravel_index(part.argmax(), part.shape)
    assert row["argmax"] == part.argmax()
    days = ["2001-01-01", "2001-02-01", "2001-03-01"]
    assert row["argmax_coordinates"] == {
        "time": days[index[0]],
        "level": str([1000.0, 850.0, 500.0, 200.0][index[1]]),
        "lat": str([-20.0, 20.0][index[2]]),
        "lon": str(60.0 * index[3]),
    }
    # The printed selection selects the cell.
    shown = tet("stat", path, "t", "lat=1:5:2", "--argmax").decode().splitlines()[-1].split()
    assert np.float32(tet("cat", path, "t", *shown[1:], "--format", "csv").decode().split(",")[-1]) == part.max()
    rows = tet_json("stat", path, "t", "--argmin", "time")["rows"]
    assert [r["argmin_coordinates"]["time"] for r in rows] == [days[i] for i in t.argmin(axis=0).ravel()]


def test_tables_are_printed_as_rows(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("day,rain,kind\n2012-01-01,0.5,sun\n2012-01-02,,fog\n")
    shown = tet("cat", path, "--format", "csv").decode().splitlines()
    assert shown == ["row,day,rain,kind", "0,2012-01-01,0.5,sun", "1,2012-01-02,,fog"]
    assert "fog" in tet("cat", path, "row=1:2").decode()
    tet("cat", path, "--raw", code=2)


def test_positions_beyond_an_axis_suggest_coordinates(files):
    (path, _), _ = files
    done = subprocess.run([TET, "cat", path, "t", "level=850"], capture_output=True)
    assert done.returncode == 2 and b"level=@" in done.stderr and b"1000.0 to 200.0" in done.stderr


def test_lines_show_every_extreme(tmp_path):
    """Points of a long line are means, but its range and its band are those of the cells."""
    cells = np.zeros(100_000, "f4")
    cells[[3, 51_234]] = -2, 7
    np.save(tmp_path / "a.npy", cells)
    line = tet_json("plot", tmp_path / "a.npy")
    assert (line["low"], line["high"]) == (-2, 7) and max(line["values"]) < 1
    assert len(line["ends"]) == len(line["values"]) and [0, 7] in line["ends"] and [-2, 0] in line["ends"]
    shown = tet("plot", tmp_path / "a.npy", "--width", 60).decode().splitlines()
    assert shown[1].split()[0] == "7" and any(row.startswith("-2") for row in shown)
    tet("plot", tmp_path / "a.npy", "-o", tmp_path / "a.svg")
    assert "their lowest to their highest" in (tmp_path / "a.svg").read_text()
    np.save(tmp_path / "b.npy", cells[:10])
    assert "ends" not in tet_json("plot", tmp_path / "b.npy")


def test_characters_are_twice_as_high_as_wide(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(90 * 180.0).reshape(90, 180))
    rows = tet("plot", tmp_path / "a.npy", "--width", 70).decode().splitlines()
    assert 16 <= len(rows) - 5 <= 19, rows
    np.save(tmp_path / "b.npy", np.arange(12.0).reshape(3, 4))
    assert len(tet("plot", tmp_path / "b.npy", "--width", 70).decode().splitlines()) >= 3 + 4


def test_histograms_name_their_selection(files, tmp_path):
    (path, _), _ = files
    tet("plot", path, "t", "level=850..500", "time=0", "--kind", "histogram", "-o", tmp_path / "h.svg")
    assert "time = 2001-01-01, level = 850.0 .. 500.0, over lat, over lon" in (tmp_path / "h.svg").read_text()


def test_groups_without_a_dimension_name_the_one_of_times(files):
    (path, _), _ = files
    done = subprocess.run([TET, "stat", path, "t", "--mean", "--by", "month"], capture_output=True, text=True)
    assert done.returncode == 3 and "`time.month`" in done.stderr
    shown = tet("info", path).decode()
    assert f"tet stat {path} t level=1000.0..200.0 --mean --by time.date" in shown
