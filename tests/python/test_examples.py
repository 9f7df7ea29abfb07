"""Every example does what its docstring states."""

import numpy as np
import pytest
import tet as reference
from support import example, tet, tet_json


@pytest.fixture(scope="module")
def weather(tmp_path_factory):
    path = tmp_path_factory.mktemp("weather") / "weather.tet"
    assert example("make_weather", path, "tet").returncode == 0
    return path


def test_make_weather(weather):
    with reference.open(weather) as file:
        temperature = file.read_numpy("temperature")
        precipitation = file.read_numpy("precipitation")
        assert file.dataset("elevation").dim_names == ("station",)
    assert temperature.shape == precipitation.shape == (48, 36, 60)
    assert np.isfinite(temperature).all() and 180 < temperature.min() < temperature.max() < 330
    equator, pole = temperature[:, 18].mean(), temperature[:, 0].mean()
    assert equator > pole + 20, "warm at the equator"
    january, july = temperature[0:4, 5].mean(), temperature[24:28, 5].mean()
    assert july > january, "the north is warm in July"
    missing = precipitation == -32768
    assert missing.any() and not missing[:, 2:34].any()
    info = tet_json("info", weather)
    assert [a["name"] for a in info["arrays"]] == ["temperature", "precipitation", "elevation", "time", "lat", "lon"]
    assert info["arrays"][3]["attributes"]["units"] == "hours since 2024-01-01"
    assert info["arrays"][1]["attributes"]["_FillValue"] == -32768
    stat = tet_json("stat", weather, "precipitation", "--stored")
    assert stat["nulls"] == missing.sum() and stat["max"] == int(precipitation.max())
    assert tet_json("verify", weather, "--deep")["ok"]


def test_read_window(weather):
    done = example("read_window", weather, "temperature", "time=@2024-07", "lat=-10..10", "lon=0:3")
    assert done.returncode == 0, done.stderr.decode()
    got = np.array([line.split() for line in done.stdout.decode().splitlines()], "f4")
    with reference.open(weather) as file:
        want = file.read_numpy("temperature")[24:28, 16:20, 0:3]
    assert np.array_equal(got.reshape(want.shape), want)
    assert example("read_window", weather, "no such").returncode != 0


def test_statistics(weather):
    done = example("statistics", weather, "temperature", "time")
    assert done.returncode == 0, done.stderr.decode()
    got = np.array([line.split() for line in done.stdout.decode().splitlines()], "f8")
    with reference.open(weather) as file:
        want = file.read_numpy("temperature").astype("f8").mean(axis=0)
    assert np.allclose(got, want, rtol=1e-12)


def test_write_large(tmp_path):
    path = tmp_path / "large.tet"
    done = example("write_large", path, "96", "5")
    assert done.returncode == 0, done.stderr.decode()
    peak = int(done.stderr.decode().split("at most")[1].split("kB")[0])
    assert peak < 60 * 1024, f"{peak} kB for an array of 96 MiB"
    stat = tet_json("stat", path)
    assert stat["count"] == 96 << 18 and 0 <= stat["min"] < stat["max"] < 1 and abs(stat["mean"] - 0.5) < 1e-3
    again = tmp_path / "again.tet"
    assert example("write_large", again, "2", "5").returncode == 0
    rows = 2 * 64
    assert tet("cat", again, "--raw") == tet("cat", path, f"0=0:{rows}", "--raw"), "a cell depends on its place alone"
