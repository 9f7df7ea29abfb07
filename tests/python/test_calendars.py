"""Times of CF: shown, selected and compared in their calendar, as cftime has them."""

import csv
import io
import subprocess

import cftime
import numpy as np
import pytest
import tiledb
from support import TET, tet, tet_json

CALENDARS = ["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]
UNITS = ["days since 1850-01-01", "hours since 2000-02-28 06:00:00", "seconds since 1970-01-01T00:00:00Z", "minutes since 1999-12-30 23:30 +01:00"]
FORMATS = ["tet", "tgm", "tdb"]


def create(folder, form, numbers, units, calendar):
    """A variable over a time axis, with the numbers as its index coordinate, by the reference of TileDB; then converted."""
    group = folder / "group"
    tiledb.Group.create(str(group))
    for name, cells in (("time", numbers), ("v", np.arange(len(numbers), dtype="i4"))):
        path = group / name
        domain = tiledb.Domain(tiledb.Dim("time", domain=(0, len(numbers) - 1), tile=len(numbers), dtype="u8"))
        attribute = tiledb.Attr("time.data" if name == "time" else name, dtype=cells.dtype)
        tiledb.Array.create(str(path), tiledb.ArraySchema(domain=domain, attrs=[attribute]))
        with tiledb.open(str(path), "w") as array:
            array[:] = cells
            if name == "time":
                array.meta.update(units=units, calendar=calendar)
        with tiledb.Group(str(group), "w") as members:
            members.add(name, name=name, relative=True)
    if form == "tdb":
        return group
    out = folder / f"out.{form}"
    tet("convert", group, out)
    return out


def shown(time):
    """A time as it is displayed: with as much of the time of day as is not zero."""
    text = f"{time.year:04}-{time.month:02}-{time.day:02}"
    if (time.hour, time.minute, time.second, time.microsecond) != (0, 0, 0, 0):
        text += f"T{time.hour:02}:{time.minute:02}"
        if (time.second, time.microsecond) != (0, 0):
            text += f":{time.second:02}"
        if time.microsecond:
            text += f".{time.microsecond:06}"
    return text


def rows(*arguments):
    return list(csv.reader(io.StringIO(tet(*arguments, "--format", "csv").decode())))[1:]


@pytest.fixture(scope="module", params=[(c, f) for c in CALENDARS for f in FORMATS], ids=lambda p: "-".join(p))
def axis(request, tmp_path_factory):
    calendar, form = request.param
    rng = np.random.default_rng(CALENDARS.index(calendar))
    numbers = np.sort(rng.choice(30_000, 400, replace=False)).astype("f8")
    # Parts of days that are whole microseconds.
    numbers[::7] += 0.25
    units = "days since 1950-01-01 00:00:00"
    path = create(tmp_path_factory.mktemp("calendar"), form, numbers, units, calendar)
    return path, numbers, cftime.num2date(numbers, units, calendar)


def name(path):
    """The variable v: in Tensogram by its number."""
    arrays = tet_json("info", path)["arrays"]
    return next(a["name"] for a in arrays if a["name"] == "v" or a["attributes"].get("name") == "v")


def test_times_are_shown(axis):
    path, _, times = axis
    want = [shown(time) for time in times]
    assert [row[0] for row in rows("cat", path, name(path))] == want
    variable = "time"
    assert [row[-1] for row in rows("cat", path, variable)] == want
    assert tet_json("cat", path, variable)["data"] == want
    stored = [float(row[-1]) for row in rows("cat", path, variable, "--stored")]
    assert stored == axis[1].tolist()
    [coordinate] = [a for a in tet_json("info", path)["arrays"] if a["name"] == name(path)]
    found = coordinate["coords"]["time"]
    assert (found["first"], found["last"]) == (want[0], want[-1])
    assert want[0].encode() in tet("cat", path, name(path))


def test_months_and_years_are_selected(axis):
    path, _, times = axis
    v = name(path)
    keys = [(t.year, t.month) for t in times]
    for year, month in sorted(set(keys))[::17]:
        expected = [i for i, key in enumerate(keys) if key == (year, month)]
        assert [int(row[1]) for row in rows("cat", path, v, f"time=@{year}-{month:02}")] == expected
        expected = [i for i, key in enumerate(keys) if key[0] == year]
        assert [int(row[1]) for row in rows("cat", path, v, f"time=@{year}")] == expected
        expected = [i for i, key in enumerate(keys) if (year, month) <= key <= (year + 3, 2)]
        assert [int(row[1]) for row in rows("cat", path, v, f"time={year}-{month:02}..{year + 3}-02")] == expected


def test_days_are_selected(axis):
    path, _, times = axis
    v = name(path)
    for i in range(0, len(times), 57):
        day = f"{times[i].year:04}-{times[i].month:02}-{times[i].day:02}"
        expected = [k for k, t in enumerate(times) if (t.year, t.month, t.day) == (times[i].year, times[i].month, times[i].day)]
        assert [int(row[1]) for row in rows("cat", path, v, f"time=@{day}")] == expected
        expected = list(range(expected[-1] + 1, len(times)))
        assert [int(row[1]) for row in rows("cat", path, v, "--where", f"time > '{day}'")] == expected
    # Numbers select what they count.
    assert [int(row[1]) for row in rows("cat", path, v, f"time=@{axis[1][5]!r}")] == [5]


def test_conditions_compare_times(axis):
    path, _, times = axis
    v = name(path)
    keys = [(t.year, t.month) for t in times]
    year, month = keys[200]
    for condition, holds in [
        (f"time == '{year}-{month:02}'", lambda key: key == (year, month)),
        (f"time != '{year}'", lambda key: key[0] != year),
        (f"time < '{year}-{month:02}'", lambda key: key < (year, month)),
        (f"time <= '{year}'", lambda key: key[0] <= year),
        (f"not time >= '{year}-{month:02}'", lambda key: key < (year, month)),
        (f"time in ('{year}', '{year + 2}')", lambda key: key[0] in (year, year + 2)),
    ]:
        expected = [i for i, key in enumerate(keys) if holds(key)]
        assert [int(row[1]) for row in rows("cat", path, v, "--where", condition)] == expected, condition


@pytest.mark.parametrize("calendar", CALENDARS)
def test_random_numbers_are_the_times_of_cftime(tmp_path, calendar):
    rng = np.random.default_rng(11)
    for i, units in enumerate(UNITS):
        per_day = {"d": 1, "h": 24, "s": 86_400, "m": 1440}[units[0]]
        numbers = np.unique(rng.integers(-100_000 * per_day, 200_000 * per_day, 300))
        folder = tmp_path / str(i)
        folder.mkdir()
        path = create(folder, "tdb", numbers, units, calendar)
        want = [shown(time) for time in cftime.num2date(numbers, units, calendar)]
        assert [row[0] for row in rows("cat", path, "v")] == want, units


def fails(*arguments):
    done = subprocess.run([TET, *map(str, arguments)], capture_output=True)
    assert done.returncode not in (0, 101), done
    return done.stderr.decode()


def test_dates_that_a_calendar_lacks_are_rejected(tmp_path):
    for calendar, date in [("360_day", "2000-01-31"), ("noleap", "2000-02-29"), ("standard", "1582-10-10"), ("julian", "2000-13")]:
        folder = tmp_path / calendar
        folder.mkdir()
        path = create(folder, "tdb", np.arange(5.0), "days since 2000-01-01", calendar)
        assert calendar in fails("cat", path, "v", f"time=@{date}")
    assert "CET" in fails("cat", path, "v", "time=@2000-01-01T00:00 CET")


def test_zones_are_understood_or_rejected(tmp_path):
    path = create(tmp_path, "tdb", np.arange(48.0), "hours since 2000-01-01", "standard")
    assert [row[1] for row in rows("cat", path, "v", "time=@2000-01-01T06:00+02:00")] == ["4"]
    assert [row[1] for row in rows("cat", path, "v", "--where", "time >= '2000-01-02T23:00-00:30'")] == []


def test_numbers_without_a_time_are_never_selected(tmp_path):
    numbers = np.array([0.0, np.nan, 2.0, np.inf])
    path = create(tmp_path, "tdb", numbers, "days since 2000-01-01", "standard")
    assert [row[1] for row in rows("cat", path, "v", "--where", "time >= '1900'")] == ["0", "2"]
    assert [row[1] for row in rows("cat", path, "v", "time=@2000-01-03")] == ["2"]


def test_units_that_are_not_known_stay_numbers(tmp_path):
    path = create(tmp_path, "tdb", np.arange(3.0), "months since 2000-01-01", "standard")
    assert [row[0] for row in rows("cat", path, "v")] == ["0.0", "1.0", "2.0"]
    assert [row[1] for row in rows("cat", path, "v", "time=1..2")] == ["1", "2"]


@pytest.mark.parametrize("dtype", ["i4", "f8"])
@pytest.mark.parametrize("calendar, form", list(zip(CALENDARS, FORMATS * 2)))
def test_statistics_of_times_are_times(tmp_path, calendar, form, dtype):
    """Minimum, maximum, mean, median and quantiles are times, the deviation is a length of time, a sum is not defined."""
    numbers = np.array([3, 10, 11, 40, 100], dtype)
    units = "days since 2000-01-28"
    source = create(tmp_path, form, numbers, units, calendar)
    at = lambda number: shown(cftime.num2date(number, units, calendar))  # noqa: E731
    arrays = tet_json("info", source)["arrays"]
    array = next(a["name"] for a in arrays if "time" in (a["name"], a["variable"]))
    found = tet_json("stat", source, array)
    assert [found[key] for key in ("min", "max", "mean")] == [at(3), at(100), at(32.8)]
    length, unit = found["std"].split()
    assert (float(length), unit) == (pytest.approx(numbers.std()), "days")
    assert (found["sum"], found["not_defined"]) == (None, ["sum"])
    row = tet("stat", source, array).decode().splitlines()[-1]
    assert at(32.8) in row and row.endswith("not defined")
    [asked] = tet_json("stat", source, array, "--median", "--mean", "--quantile", "0.125", "--std", "--count")["rows"]
    assert (asked["median"], asked["mean"], asked["quantile_0.125"], asked["count"]) == (at(11), at(32.8), at(6.5), 5)
    assert asked["std"] == found["std"]
    edges = tet_json("stat", source, array, "--histogram", "2,0,100")["histogram_edges"]
    assert edges == [at(0), at(50), at(100)]
    for undefined in ("--sum", "--var", "--product"):
        tet("stat", source, array, undefined, code=2)
    stored = tet_json("stat", source, array, "--stored")
    assert (stored["min"], stored["mean"], stored["sum"]) == (3, 32.8, 164)


def test_statistics_of_dates_are_exact(tmp_path):
    """Beyond the integers that a double holds, and in units that the mean does not have."""
    for unit, counts, mean in (
        ("ns", [1_600_000_000_000_000_001, 1_600_000_000_000_000_002, 1_600_000_000_000_000_003], "2020-09-13T12:26:40.000000002"),
        ("D", [0, 1], "1970-01-01T12"),
        ("s", [0, 1, 1], "1970-01-01T00:00:00.666667"),
        ("M", [0, 2], "1970-02"),
    ):
        path = tmp_path / unit
        dates = np.array(counts, f"M8[{unit}]")
        tiledb.from_numpy(str(path), dates).close()
        found = tet_json("stat", path)
        assert (found["min"], found["max"], found["mean"], found["sum"]) == (str(dates[0]), str(dates[-1]), mean, None)
        assert tet_json("stat", path, "--mean")["rows"][0]["mean"] == mean
