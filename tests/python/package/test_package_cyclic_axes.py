"""Ranges across the end of a cyclic axis: one result, in the order asked, in every format, command and binding."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tesseral
import tesseral.xarray  # noqa: F401
import xarray as xr

TET = os.environ.get("TET_BIN") or str(Path(__file__).resolve().parents[3] / "target" / "release" / "tet")
LON = np.arange(0, 360, 15, dtype="f4")
# Requested range, and the positions of its coordinates in order.
RANGES = {
    (-45, 30): [21, 22, 23, 0, 1, 2],
    (300, 400): [20, 21, 22, 23, 0, 1, 2],
    (-180, 180): [13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    (15, 60): [1, 2, 3, 4],
    (-60, -30): [20, 21, 22],
    # From west to east.
    (330, 30): [22, 23, 0, 1, 2],
    (60, -60): list(range(4, 21)),
}


def tet(*arguments):
    return subprocess.run([TET, *map(str, arguments)], capture_output=True, check=True).stdout


def dataset():
    """Packed cells with missing ones, a text and a mask along longitude, and a variable without longitude."""
    rng = np.random.default_rng(12)
    stored = rng.integers(-500, 500, (3, 4, len(LON))).astype("i2")
    stored[rng.random(stored.shape) < 0.1] = -999
    attrs = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-999), "units": "K"}
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), stored, attrs),
            "plain": (("lat", "lon"), rng.random((4, len(LON)))),
            "words": (("lon",), np.array([f"word {i}" * (i % 3) for i in range(len(LON))], object)),
            "apart": (("time",), np.arange(3)),
        },
        {
            "lon": ("lon", LON, {"units": "degrees_east", "standard_name": "longitude"}),
            "lat": ("lat", np.linspace(-60, 60, 4), {"units": "degrees_north"}),
        },
    )


@pytest.fixture(scope="module", params=[".tet", ".tgm", ".tiledb", ".zarr", "chunks of 7.tet", "chunks of 5.tiledb"])
def source(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("cyclic") / f"a{request.param}"
    plain = path.with_name("plain.tet")
    dataset().tesseral.to_tet(plain)
    chunk = [f"--chunk=lon={request.param.split()[2].split('.')[0]}"] if "chunks" in request.param else []
    tet("convert", plain, path, *chunk)
    return path


def name_of(source, name):
    """The name that the command line takes: objects of messages are numbered."""
    document = json.loads(tet("info", source, "--json"))
    return next(array["name"] for array in document["arrays"] if (array.get("variable") or array["name"]) == name)


@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_cells_come_in_the_order_asked(source, ends):
    ds, at, selection = dataset(), RANGES[ends], f"lon={ends[0]}..{ends[1]}"
    for name in ("t", "plain", "lon"):
        raw = tet("cat", source, name_of(source, name), selection, "--raw")
        want = ds[name].values[..., at]
        np.testing.assert_array_equal(np.frombuffer(raw, want.dtype).reshape(want.shape), want)
        array = tesseral.open(source).variables[name]
        found = array.sel(lon=slice(*ends))
        np.testing.assert_array_equal(np.ma.getdata(found[...]), want)
        np.testing.assert_array_equal(found.coords["lon"], LON[at])
        # A window of a range is one of the array.
        np.testing.assert_array_equal(np.ma.getdata(found.isel(lon=slice(1, None, 2))[...]), want[..., 1::2])
        np.testing.assert_array_equal(np.ma.getdata(found[..., ::-1]), want[..., ::-1])
        np.testing.assert_array_equal(np.ma.getdata(pickle.loads(pickle.dumps(found))[...]), want)
    words = tesseral.open(source).variables["words"].sel(lon=slice(*ends))
    assert list(words[...]) == list(ds.words.values[at])


@pytest.mark.parametrize("ends", RANGES, ids=str)
def test_statistics_are_of_the_selected_cells(source, ends):
    at, selection = RANGES[ends], f"lon={ends[0]}..{ends[1]}"
    stored = dataset().t.values[..., at]
    physical = np.ma.masked_array(stored * 0.5 + 10.0, stored == -999)
    found = json.loads(tet("stat", source, name_of(source, "t"), selection, "--json"))
    assert (found["count"], found["nulls"]) == (stored.size, (stored == -999).sum())
    assert (found["min"], found["max"], found["sum"]) == (physical.min(), physical.max(), physical.sum())
    array = tesseral.open(source).variables["t"].sel(lon=slice(*ends))
    np.testing.assert_array_equal(array.sum(axis=(0, 1)), physical.sum((0, 1)).filled())
    np.testing.assert_array_equal(array.sum(axis=(0, 1), stored=True), np.where(stored == -999, 0, stored).sum((0, 1)))
    above = tesseral.open(source).variables["plain"].sel(lon=slice(*ends)).cells(where="plain > 0.5 and lon >= 30")
    plain = dataset().plain.values[:, at]
    keep = (plain > 0.5) & (LON[at] >= 30)
    # Fields of messages are numbered.
    (name,) = above.keys() - {"lat", "lon"}
    np.testing.assert_array_equal(above[name], plain[keep])
    np.testing.assert_array_equal(above["lon"], np.broadcast_to(LON[at], plain.shape)[keep])


def test_conversions_hold_the_range(source, tmp_path):
    at = RANGES[-45, 30]
    for ending in (".tet", ".tgm", ".tiledb", ".zarr"):
        out = tmp_path / f"cut{ending}"
        tet("convert", source, out, "--select", "lon=-45..30", "--check")
        with xr.open_dataset(out, engine="tesseral", decode_cf=False) as found:
            found = found.load()
        want = dataset().isel(lon=at)
        for name in ("t", "plain", "lon", "apart"):
            np.testing.assert_array_equal(found[name].values, want[name].values)
        assert list(found.words.values) == list(want.words.values)
        # The axis is selected like any other.
        again = np.frombuffer(tet("cat", out, name_of(out, "lon"), "lon=-15..15", "--raw"), "f4")
        np.testing.assert_array_equal(again, [345, 0, 15])


def test_text_has_stored_coordinates_and_plots_ascending_ones(source):
    rows = tet("cat", source, name_of(source, "plain"), "lat=0", "lon=-30..15", "--where", "plain >= 0", "--format", "csv").decode().splitlines()
    column = rows[0].split(",").index("lon")
    assert [float(row.split(",")[column]) for row in rows[1:]] == [330, 345, 0, 15]
    drawn = json.loads(tet("plot", source, name_of(source, "plain"), "lon=-30..15", "--json"))
    axis = next(axis for axis in json_axes(drawn) if axis["name"] == "lon")
    assert (float(axis["first"]), float(axis["last"])) == (-30, 15)


def test_the_nearest_coordinate_is_found_around_the_end(source):
    """As on the command line: longitudes are cyclic, and of two at the same distance the larger one is nearest."""
    array = tesseral.open(source).variables["plain"]
    values = [359, -1, -14, -173, 7.4, 7.5, 352.5, 720, 1234.5]
    places = []
    for value in values:
        raw = tet("cat", source, name_of(source, "lon"), f"lon=~{value}", "--raw")
        places.append(int(np.flatnonzero(np.frombuffer(raw, "f4")[0] == LON)[0]))
        np.testing.assert_array_equal(array.sel(lon=value, method="nearest")[...], dataset().plain.values[:, places[-1]])
    assert places[:4] == [0, 0, 23, 12]
    np.testing.assert_array_equal(array.sel(lon=values, method="nearest"), dataset().plain.values[:, places])
    np.testing.assert_array_equal(array.sel(lon=np.array(values), method="nearest"), dataset().plain.values[:, places])
    # Only positions of a window are candidates, also of one that crosses the end.
    window = array.isel(lon=slice(4, 20, 3))
    assert window.sel(lon=-1, method="nearest").coords.keys() == {"lat"}
    np.testing.assert_array_equal(window.sel(lon=-1, method="nearest")[...], dataset().plain.values[:, 4])
    np.testing.assert_array_equal(window.sel(lon=-20, method="nearest")[...], dataset().plain.values[:, 19])
    np.testing.assert_array_equal(array.isel(lon=slice(None, None, -1)).sel(lon=31, method="nearest")[...], dataset().plain.values[:, 2])
    turned = array.sel(lon=slice(-45, 30))
    np.testing.assert_array_equal(turned.sel(lon=-3, method="nearest")[...], dataset().plain.values[:, 0])
    np.testing.assert_array_equal(turned.sel(lon=200, method="nearest")[...], dataset().plain.values[:, 21])


def json_axes(document):
    if isinstance(document, dict):
        if {"name", "first", "last"} <= document.keys():
            yield document
        for value in document.values():
            yield from json_axes(value)
    elif isinstance(document, list):
        for value in document:
            yield from json_axes(value)


def test_query_documents_cross_the_end_by_labels(source, tmp_path):
    document = tmp_path / "query.json"
    name = name_of(source, "plain")
    select = [{}, {"start_label": "330.0", "stop_label": "30.0"}]
    document.write_text(json.dumps({"dataset": name, "selection": select, "max": []}))
    plain = dataset().plain.values
    found = json.loads(tet("query", document, "-t", source, "-x", "--json"))
    assert str(plain[:, [22, 23, 0, 1]].max()) in json.dumps(found)


def test_windows_of_parts_of_an_axis():
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"tesseral-cyclic-{os.getpid()}.tet"
    try:
        dataset().tesseral.to_tet(folder)
        array = tesseral.open(folder).variables["plain"]
        west = array.isel(lon=slice(0, 12)).sel(lon=slice(-45, 30))
        np.testing.assert_array_equal(west.coords["lon"], [0, 15, 30])
        with pytest.raises(tesseral.InvalidRequestError):
            array.isel(lon=slice(1, 23)).sel(lon=slice(-45, 30))
        turned = array.sel(lon=slice(-60, 60))
        np.testing.assert_array_equal(turned.sel(lon=slice(-15, 15)).coords["lon"], [345, 0, 15])
        np.testing.assert_array_equal(turned.sel(lon=slice(0, 30)).coords["lon"], [0, 15, 30])
        np.testing.assert_array_equal(turned.sel(lon=slice(300, 345)).coords["lon"], [300, 315, 330, 345])
    finally:
        folder.unlink(missing_ok=True)
