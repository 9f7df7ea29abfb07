"""The guide `coldest-day.md`: one question on the command line, in the page, in SQL and in Python, with one answer."""

import contextlib
import datetime
import json
import re
import shlex
import subprocess
import urllib.parse
import urllib.request

import netCDF4
import numpy as np
import pytest
from support import ROOT, TET, tet

GUIDE = (ROOT / "docs" / "guides" / "coldest-day.md").read_text()
LAT, LON = np.arange(75, 14, -2.5), np.arange(0, 360, 2.5)


@pytest.fixture(scope="module")
def air(tmp_path_factory):
    """Packed temperatures every six hours on latitudes from north to south, the day and the mean of its Alpine cells."""
    folder = tmp_path_factory.mktemp("air")
    rng = np.random.default_rng(7)
    hours = np.arange(4 * 120) * 6.0
    cells = rng.integers(-4000, 3000, (len(hours), len(LAT), len(LON))).astype("i2")
    with netCDF4.Dataset(folder / "air.nc", "w") as file:
        for name, values, units in [("time", hours, "hours since 2013-01-01"), ("lat", LAT, "degrees_north"), ("lon", LON, "degrees_east")]:
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.units = units
            axis[:] = values
        variable = file.createVariable("air", "i2", ("time", "lat", "lon"), zlib=True, chunksizes=(31, 13, 36), fill_value=-32767)
        variable.scale_factor, variable.add_offset, variable.units = 0.01, 273.15, "degK"
        variable.set_auto_scale(False)
        variable[:] = cells
    alps = cells[:, (LAT >= 44) & (LAT <= 48)][:, :, (LON >= 5) & (LON <= 15)]
    means = alps.reshape(120, -1).mean(1) * 0.01 + 273.15
    day = datetime.date(2013, 1, 1) + datetime.timedelta(int(means.argmin()))
    return folder, day.isoformat(), means.min()


def blocks(heading, language):
    section = GUIDE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


def test_on_the_command_line(air, monkeypatch):
    folder, day, mean = air
    monkeypatch.chdir(folder)
    [commands] = blocks("On the command line", "sh")
    outputs = [tet(*shlex.split(command)[1:]).decode() for command in commands.splitlines()]
    assert "time" in outputs[0] and "lat" in outputs[0]
    first = outputs[1].splitlines()[1].split()
    assert first[0] == day and float(first[1]) == pytest.approx(mean, rel=1e-14)


def test_in_sql(air, monkeypatch):
    folder, day, mean = air
    monkeypatch.chdir(folder)
    [code] = blocks("In SQL", "python")
    # DuckDB finds `ds` among the variables of its caller.
    names = {}
    exec(code.replace("duckdb.sql(", "rows = duckdb.sql("), names)
    [(found_day, found_mean)] = names["rows"]
    assert found_day.isoformat() == day and found_mean == pytest.approx(mean, rel=1e-13)


def test_in_python(air, monkeypatch):
    folder, day, mean = air
    monkeypatch.chdir(folder)
    [code] = blocks("In Python", "python")
    lines = code.strip().splitlines()
    names = {}
    exec("\n".join([*lines[:-1], f"found = {lines[-1]}"]), names)
    assert names["found"][0] == day and names["found"][1] == pytest.approx(mean, rel=1e-14)


def test_the_answers_have_the_same_digits(air):
    """The command line and Python ask the same fold: not a bit differs."""
    import tesseral

    folder, day, _ = air
    rows = json.loads(tet("stat", folder / "air.nc", "air", "lat=44..48", "lon=5..15", "--mean", "--by", "time.date", "--sort", "mean", "-n", 1, "--json"))["rows"]
    days = tesseral.open(folder / "air.nc")["air"].sel(lat=slice(44, 48), lon=slice(5, 15)).groupby("time.date")
    means = days.mean(...)
    assert rows[0]["mean"] == means.min() and rows[0]["coordinates"] == [days.labels[means.argmin()]] == [day]


@contextlib.contextmanager
def page(path):
    """A server, as a function that requests a document, and a map of names to numbers of arrays."""
    server = subprocess.Popen([TET, "serve", path], stdout=subprocess.PIPE, text=True)
    try:
        base, token = server.stdout.readline().strip().split("/?token=")

        def ask(what, **query):
            request = urllib.request.Request(f"{base}/api/{what}?{urllib.parse.urlencode(query)}", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request) as answer:
                return answer.read() if what in ("plane", "download") else json.load(answer)

        yield ask, {array["variable"]: array["index"] for array in ask("arrays", source=0)["arrays"]}
    finally:
        server.terminate()
        server.wait()


def test_in_the_page(air):
    folder, day, mean = air
    with page(folder / "air.nc") as (ask, arrays):
        index = arrays["air"]
        part = [ask("between", source=0, array=index, dim=d, low=low, high=high) for d, low, high in [(1, 44, 48), (2, 5, 15)]]
        at = ",".join(["0:480", *(f"{p['from']}:{p['to']}" for p in part)])
        ends = ask("means", source=0, array=index, at=at, along=0, by="date")["ends"]
        assert ends["low"]["text"] == day and ends["low"]["value"] == pytest.approx(mean, rel=1e-14)
        series = ask("means", source=0, array=index, at=at, along=0)
        assert len(series["values"]) == 480 and series["ends"]["low"]["position"] is not None


def test_a_part_across_the_end_of_the_axis_in_the_page(air):
    folder, _, _ = air
    with page(folder / "air.nc") as (ask, arrays):
        index = arrays["air"]
        part = ask("between", source=0, array=index, dim=2, low=-10, high=10)
        assert part == {"from": 140, "to": 149}
        at = "7,3:9,140:149"
        selection = ["time=7", "lat=3:9", "lon=-10..10"]
        wanted = json.loads(tet("stat", folder / "air.nc", "air", *selection, "--json"))
        found = ask("statistics", source=0, array=index, at=at)
        assert {key: found[key] for key in ("min", "max", "mean", "count")} == {key: wanted[key] for key in ("min", "max", "mean", "count")}
        answer = ask("plane", source=0, array=index, at=at, x=2, width=100, height=100)
        header = json.loads(answer[4 : 4 + int.from_bytes(answer[:4], "little")])
        assert (header["width"], header["height"], header["low"], header["high"]) == (9, 6, wanted["min"], wanted["max"])
        rows = ask("download", source=0, array=index, at=at, kind="csv").decode().splitlines()
        assert len(rows) == 1 + 6 * 9 and {row.split(",")[2] for row in rows[1:]} == {f"{lon % 360}" for lon in np.arange(-10, 12.5, 2.5)}
        (folder / "part.tet").write_bytes(ask("download", source=0, array=index, at=at, kind="tet"))
        kept = json.loads(tet("stat", folder / "part.tet", "air", "--json"))
        assert (kept["mean"], kept["count"]) == (wanted["mean"], 54)
        means = ask("means", source=0, array=index, at="0:480,3:9,140:149", along=2)
        assert len(means["values"]) == 9
