"""What users of NumPy, h5py, zarr and xarray try first."""

import asyncio
import io
import pickle

import numpy as np
import pytest
import tesseral

VALUES = np.arange(24.0).reshape(4, 6)


@pytest.fixture
def holed():
    cells = VALUES.copy()
    cells[1, 2] = np.nan
    return cells


def written(path, cells, **options):
    tesseral.write(path, {"a": cells}, dims=("y", "x"), chunks=(2, 3), overwrite=True, **options)
    return path


@pytest.mark.parametrize("name", ["a.tet", "a.tgm", "a.tdb"])
def test_functions_of_numpy_follow_numpy(tmp_path, holed, name):
    options = {"format": "tiledb"} if name == "a.tdb" else {}
    array = tesseral.open(written(tmp_path / name, holed, **options))["a"]
    for function in (np.mean, np.sum, np.min, np.max, np.std, np.var, np.prod, np.argmin, np.argmax, np.any, np.all):
        for axis in (None, 0, 1):
            np.testing.assert_allclose(function(array, axis=axis), function(holed, axis=axis), rtol=1e-14, err_msg=f"{function} {axis}")
    for function in (np.nanmean, np.nansum, np.nanmin, np.nanmax, np.nanstd):
        np.testing.assert_allclose(function(array, axis=0), function(holed, axis=0), rtol=1e-14, err_msg=str(function))
    # Methods skip NaN, as those of xarray; skipna decides.
    assert array.mean() == np.nanmean(holed) and np.isnan(array.mean(skipna=False)) and array.argmax() == 23
    out = np.empty(6)
    assert np.mean(array, axis=0, out=out) is out and np.isnan(out[2])


def test_cells_of_a_format_with_versions_are_replaced(tmp_path):
    container = tesseral.open(written(tmp_path / "a.tdb", VALUES, format="tiledb"))
    array, want = container["a"], VALUES.copy()
    before = tesseral.open(tmp_path / "a.tdb")["a"]
    for key, cells in [((1, 2), -5.0), (slice(0, 2), 7), ((slice(1, 4), 5), np.arange(3.0)), ((..., slice(2, 4)), np.ones((4, 2)))]:
        array[key] = want[key] = cells
        np.testing.assert_array_equal(array[...], want)
        np.testing.assert_array_equal(container["a"][...], want)
    corner = array.isel(y=slice(2, 4), x=slice(4, 6))
    corner[0] = want[2, 4:6] = [8, 9]
    np.testing.assert_array_equal(tesseral.open(tmp_path / "a.tdb")["a"][...], want)
    np.testing.assert_array_equal(before[...], VALUES)
    with pytest.raises(tesseral.InvalidRequestError, match="box"):
        array[::2] = 0
    with pytest.raises(tesseral.InvalidRequestError, match="box"):
        array[[0, 1]] = 0
    with pytest.raises(ValueError):
        array[0] = np.zeros(5)
    earlier = tesseral.open(tmp_path / "a.tdb", as_of="2100-01-01")["a"]
    with pytest.raises(tesseral.InvalidRequestError, match="as_of"):
        earlier[0] = 0
    np.testing.assert_array_equal(tesseral.open(tmp_path / "a.tdb")["a"][...], want)


@pytest.mark.parametrize("name", ["a.tet", "a.tgm", "a.nc"])
def test_cells_of_other_formats_are_not_replaced(tmp_path, name):
    path = written(tmp_path / "a.tet", VALUES)
    if name != "a.tet":
        tesseral.convert(path, tmp_path / name)
    array = tesseral.open(tmp_path / name)["a"]
    with pytest.raises(tesseral.UnsupportedError, match="replacing") as raised:
        array[0] = 0
    assert "tesseral.write" in raised.value.hint
    np.testing.assert_array_equal(array[...], VALUES)


def test_bytes_and_files_are_opened(tmp_path):
    content = written(tmp_path / "a.tet", VALUES).read_bytes()
    for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
        container = tesseral.open(source)
        assert container.format == "tet" and container.url == "<memory>"
        np.testing.assert_array_equal(container["a"][...], VALUES)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(container["a"]))[1:], VALUES[1:])
    with (tmp_path / "a.tet").open("rb") as file:
        np.testing.assert_array_equal(tesseral.open(file)["a"][...], VALUES)
    assert tesseral.dataset(content).count_rows() == 24
    with pytest.raises(TypeError, match="binary"):
        tesseral.open(io.StringIO("text"))
    with pytest.raises(TypeError, match="expected a path"):
        tesseral.open(3)
    with pytest.raises(tesseral.FormatError):
        tesseral.open(b"nothing that is known")
    with pytest.raises(tesseral.TesseralError):
        tesseral.open(content[:100])["a"][...]


def test_containers_are_closed(tmp_path):
    path = written(tmp_path / "a.tet", VALUES)
    with tesseral.open(path) as container:
        array = container["a"]
        assert not container.closed
    assert container.closed and "closed" in repr(container) and "closed" in container._repr_html_()
    for use in (lambda: container["a"], lambda: list(container), lambda: container.attrs, lambda: container.variables):
        with pytest.raises(tesseral.InvalidRequestError, match="closed"):
            use()
    np.testing.assert_array_equal(array[...], VALUES)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(container))["a"][...], VALUES)
    container.close()


def test_arrays_say_what_they_store(tmp_path):
    zeros = tesseral.open(written(tmp_path / "a.tet", np.zeros((4, 6)), codec="zstd", digests=False))["a"]
    raw = tesseral.open(written(tmp_path / "b.tet", VALUES))["a"]
    assert raw.nbytes_stored == raw.nbytes == 192 and 0 < zeros.nbytes_stored < 192
    assert raw.fill_value == raw.fill
    np.testing.assert_array_equal(raw.to_dask().compute(), VALUES)
    assert raw.to_dask(chunks=(2, 6)).chunks == ((2, 2), (6,))


def test_reads_are_awaited(tmp_path):
    array = tesseral.open(written(tmp_path / "a.tet", VALUES))["a"]

    async def read():
        out = np.empty(6)
        row, rest, _ = await asyncio.gather(array.read_async(0), array.read_async(slice(1, 4)), array.read_async(2, out=out))
        return row, rest, out

    row, rest, out = asyncio.run(read())
    np.testing.assert_array_equal(np.vstack([row, rest]), VALUES)
    np.testing.assert_array_equal(out, VALUES[2])


def test_info_prints_variables_and_coordinates(tmp_path, capsys):
    arrays = {"t2m": np.zeros((3, 2), "f4"), "words": np.array(["a", "b"])}
    coords = {"time": np.arange("2001-01-01", "2001-01-04", dtype="M8[D]")}
    tesseral.write(tmp_path / "a.tet", arrays, dims={"t2m": ("time", "x"), "words": ("x",)}, coords=coords, attrs={"t2m": {"units": "K"}, "title": "\x1b[31mred"})
    container = tesseral.open(tmp_path / "a.tet")
    assert container.info() is None
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert "float32" in lines["t2m"] and "time: 3" in lines["t2m"] and " K " in lines["t2m"]
    assert "2001-01-01 … 2001-01-03" in lines["time"] and "words" in lines
    assert "\x1b" not in out
    container["t2m"].info()
    assert "tesseral.Array 't2m'" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["tet", "tgm", "tdb", "zarr", "nc"])
def test_names_of_variables_are_keys_in_every_format(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    with tesseral.create(path, "tiledb" if ending == "tdb" else "") as session:
        for i, name in enumerate(["top", "ocean/sst", "ocean/deep/sst"]):
            session.add(name, values=np.arange(3.0) + 10 * i, dims=("x",))
        session.set_attrs({"title": "sea"}, "ocean")
    container = tesseral.open(path)
    assert set(container.variables) == {"top", "ocean/sst", "ocean/deep/sst"}
    for i, name in enumerate(["top", "ocean/sst", "ocean/deep/sst"]):
        assert name in container and container[name][0] == 10 * i and container[f"/{name}"][0] == 10 * i
    ocean = container.group("ocean")
    assert set(ocean) == {"sst", "deep/sst"} and len(ocean) == 2 and ocean.groups == ["deep"] and ocean.attrs == {"title": "sea"}
    assert ocean["sst"][0] == 10 and ocean["deep/sst"][0] == 20 and "sst" in repr(ocean)
    with pytest.raises(KeyError, match="is a group"):
        container["ocean"]
    with pytest.raises(KeyError, match="unknown group"):
        container.group("land")
    assert set(container.group("")) == set(container.variables)


def test_statistics_of_packed_cells_are_physical(tmp_path):
    pytest.importorskip("xarray")
    import tesseral.xarray
    import xarray as xr

    cells = np.array([[0, 150], [-30, -999]], "i2")
    days = np.array(["2001-01-01T00", "2001-01-01T12"], "M8[ns]")
    packed = xr.Dataset({"t": (("time", "x"), cells, {"scale_factor": 0.1, "_FillValue": np.int16(-999)})}, {"time": days})
    packed.tesseral.to_tet(tmp_path / "a.tet")
    t = tesseral.open(tmp_path / "a.tet")["t"]
    assert t.max() == 15.0 and t.max(stored=True) == 150 and t.count() == 3
    assert t.groupby("time.date").max(...).tolist() == [15.0] and t.groupby("time.date").labels == ["2001-01-01"]
    assert t.groupby("time.date").max(..., stored=True).tolist() == [150]
    assert t.rolling(time=2, min_periods=1).max().tolist()[-1] == [0.0, 15.0]
    assert t[0].tolist() == [0, 150] and "packed" in repr(t)


def test_progress_is_reported_and_can_stop(tmp_path):
    cells = np.random.default_rng(1).integers(0, 9, (64, 1024, 512))
    tesseral.write(tmp_path / "a.tet", {"a": cells}, chunks=(1, 1024, 512), codec="zstd:9")
    seen = []
    with tesseral.progress(lambda done, total: seen.append((done, total))):
        tesseral.convert(tmp_path / "a.tet", tmp_path / "b.tet", codec="zstd:12")
    assert seen[-1] == (None, None)
    steps = [step for step in seen if step[0] is not None]
    assert steps == sorted(steps) and all(0 <= done <= total for done, total in steps)
    count = len(seen)
    tesseral.verify(tmp_path / "b.tet", deep=True)
    assert len(seen) == count, "nothing is reported after the end"

    def stop(done, total):
        if done is not None:
            raise RuntimeError("enough")

    with tesseral.progress(stop), pytest.raises(RuntimeError, match="enough"):
        tesseral.convert(tmp_path / "a.tet", tmp_path / "c.tet", codec="zstd:12")
    assert not (tmp_path / "c.tet").exists()


def test_bars_of_terminals_and_notebooks(tmp_path, monkeypatch):
    import io

    out = io.StringIO()
    bar = tesseral.progress(file=out, after=0)
    bar._show(0, 10)
    bar._show(5, 10)
    assert " 50 %" in out.getvalue() and "█" in out.getvalue()
    bar._show(None, None)
    assert out.getvalue().endswith("\r")
    shown = []

    class Handle:
        def update(self, data, *, raw):
            shown.append(data)

    bar = tesseral.progress(after=0)
    monkeypatch.setattr("tesseral._progress._in_notebook", lambda: True)
    bar._handle = Handle()
    bar._show(3, 4)
    assert '<progress value="3" max="4">' in shown[0]["text/html"]
    bar._show(None, None)
    assert shown[-1] == {"text/plain": ""}


@pytest.fixture
def daily(tmp_path):
    """Packed values every 12 hours, with a scalar coordinate and dimensions under other names than `time` and `lat`."""
    import tesseral.xarray
    import xarray as xr

    cells = np.arange(6 * 3 * 4, dtype="i2").reshape(6, 3, 4)
    cells[0, 0, 0] = -999
    times = np.arange("2001-01-01T06", "2001-01-04T06", 12, dtype="M8[h]").astype("M8[ns]")
    coords = {"valid_time": times, "latitude": [50.0, 45.0, 40.0], "longitude": ("longitude", [0.0, 90.0, 180.0, 270.0], {"units": "degrees_east"}), "height": ((), 2.0, {"units": "m"})}
    data = {"t2m": (("valid_time", "latitude", "longitude"), cells, {"scale_factor": 0.5, "_FillValue": np.int16(-999), "coordinates": "height"})}
    xr.Dataset(data, coords).tesseral.to_netcdf(tmp_path / "a.nc")
    return tmp_path / "a.nc"


def test_groups_name_the_axis_of_times(daily):
    array = tesseral.open(daily)["t2m"]
    with pytest.raises(KeyError, match="did you mean 'valid_time.date'"):
        array.groupby("time.date")
    for by, wanted in [("valid_time", "valid_time.date"), ("month", "valid_time.month")]:
        with pytest.raises(ValueError, match=f"such as '{wanted}'"):
            array.groupby(by)


def test_axes_have_the_name_of_xarray_too(daily):
    array = tesseral.open(daily)["t2m"]
    np.testing.assert_array_equal(array.mean(dim="latitude"), array.mean("latitude"))
    np.testing.assert_array_equal(array.quantile([0.5], dim=["valid_time"]), array.quantile([0.5], "valid_time"))
    assert array.groupby("valid_time.date").max(dim=("valid_time", "latitude", "longitude")).shape == (3,)
    with pytest.raises(TypeError, match="two names"):
        array.mean("latitude", dim="latitude")
    with pytest.raises(TypeError, match="'dims'"):
        array.mean(dims="latitude")


def test_an_array_becomes_a_data_array(daily):
    container = tesseral.open(daily)
    array, whole = container["t2m"], container.to_xarray()["t2m"]
    assert array.to_xarray().identical(whole)
    part = array.sel(latitude=slice(40, 45), longitude=slice(-90, 90)).isel(valid_time=-1).to_xarray()
    assert part.identical(whole.isel(valid_time=-1, latitude=slice(1, 3), longitude=[3, 0, 1])) and part.longitude.values.tolist() == [270.0, 0.0, 90.0]
    assert array.isel(longitude=slice(None, None, -2)).to_xarray().identical(whole.isel(longitude=slice(None, None, -2)))
    assert float(part.mean()) == array.sel(latitude=slice(40, 45), longitude=slice(-90, 90)).isel(valid_time=-1).mean()


def test_info_shows_dates_and_scalar_coordinates(daily):
    out = io.StringIO()
    tesseral.open(daily).info(out)
    coordinates = out.getvalue().split("coordinates:")[1]
    assert "2001-01-01T06:00:00 … 2001-01-03T18:00:00" in coordinates and "50.0 … 40.0" in coordinates
    assert "height" in coordinates and "2.0" in coordinates


def test_numpy_warns_of_stored_numbers(daily):
    array = tesseral.open(daily)["t2m"]
    with pytest.warns(UserWarning, match="stored numbers of 't2m'"):
        assert np.asarray(array)[0, 0, 1] == 1
    assert np.mean(array) == array.decoded().mean() and float(np.ma.median(array.decoded())) == array.median()
