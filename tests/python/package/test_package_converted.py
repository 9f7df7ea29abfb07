"""NetCDF files, converted by `tet convert` to every format that it writes, are what xarray reads from the original; and every format has the same statistics."""

import json
import os
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import tesseral
import tesseral.xarray
import xarray as xr
from test_package_roundtrip import FILES, KINDS, added, lost, quiet, reserved_attributes

TET = os.environ.get("TET_BIN") or str(Path(__file__).resolve().parents[3] / "target" / "release" / "tet")
TARGETS = [".tet", ".tgm", ".tiledb", ".zarr"]
NETCDF = [path for path in FILES if path.suffix == ".nc"]
STATISTICS = ("count", "nulls", "nan", "inf", "min", "max", "mean", "std", "sum")


def run(*words):
    return subprocess.run([TET, *map(str, words)], capture_output=True, check=True).stdout


def assert_same(ours, theirs, direct):
    """As xarray reads the original, orders of names and attributes included, and as we read the original."""
    for want, shown in ((theirs, as_netcdf4(ours)), (direct, ours)):
        xr.testing.assert_identical(shown, want)
        # Text of variable length is objects here; xarray makes arrays of the longest size of it. Sizes of texts are those of the longest.
        excused = lambda name, values: set(values) <= {"U", "O"} or (name.endswith("encoding dtype") and "U" in values[0])  # noqa: E731
        gone = {name: values for name, values in lost(want, shown).items() if not excused(name, values)}
        assert not gone and not added(want, shown)


def as_netcdf4(ds):
    """Attributes of bytes that are not UTF-8, which are kept, as netCDF4 shows them: with replacement characters."""
    shown = ds.copy()
    for attrs in (shown.attrs, *(variable.attrs for variable in shown.variables.values())):
        attrs.update({key: value.decode(errors="replace").replace("\0", "") for key, value in attrs.items() if isinstance(value, bytes)})
    return shown


def original(path):
    return [quiet(xr.load_dataset, path, engine=engine) for engine in ("netcdf4", "tesseral")]


def nan_payload():
    """A fill value whose bits are not those of the usual NaN, beside cells that hold the usual one."""
    payload = np.array([0x7FF8000000001234], "u8").view("f8")
    cells = np.concatenate([[1.5], payload, [np.nan, -0.0]])
    return xr.Dataset({"t": (("x",), cells, {"_FillValue": payload[0]}), "n": (("x",), np.arange(4, dtype="i2"))})


def reserved_attributes_of_others():
    """Names that the conventions use. In files of others, `container:` still marks an attribute of the container (docs/formats/netcdf.md)."""
    ds = reserved_attributes()
    del ds["t"].attrs["container:x"]
    return ds


OTHERS = [reserved_attributes_of_others if kind is reserved_attributes else kind for kind in KINDS]


def unlimited():
    ds = xr.Dataset({"t": (("time", "x"), np.arange(6.0).reshape(3, 2))}, coords={"time": ("time", [0.0, 1.0, 2.5], {"units": "days since 2000-01-01"})})
    ds.encoding["unlimited_dims"] = {"time"}
    ds.t.encoding |= {"chunksizes": (1, 2), "zlib": True, "complevel": 3, "shuffle": True}
    return ds


def stored(kind, folder):
    path = folder / "a.nc"
    try:
        quiet(kind().to_netcdf, path, engine="netcdf4")
    except (ValueError, TypeError, NotImplementedError) as error:
        pytest.skip(f"netCDF does not hold it: {error}")
    return path


@pytest.mark.parametrize("kind", [*OTHERS, nan_payload, unlimited], ids=lambda kind: kind.__name__)
def test_every_kind_of_dataset(tmp_path, kind):
    path = stored(kind, tmp_path)
    for ending in TARGETS:
        out = tmp_path / f"b{ending}"
        run("convert", path, out)
        assert_same(quiet(xr.load_dataset, out, engine="tesseral"), *original(path))
        raw, want = (quiet(xr.load_dataset, p, engine=e, decode_cf=False) for p, e in ((out, "tesseral"), (path, "netcdf4")))
        for name, variable in want.variables.items():
            if variable.dtype.kind in "iufcb":
                assert raw[name].values.tobytes() == np.ascontiguousarray(variable.values).tobytes(), (ending, name)


@pytest.mark.parametrize("ending", TARGETS)
def test_unlimited_dimensions(tmp_path, ending):
    """In conversions, in xarray, in text (whose stored form has other dimensions), in groups, and when a dataset grows."""
    ds = unlimited().assign(word=("time", ["a", "bcd", ""]), none=(("time", "y"), np.zeros((3, 0))))
    inner = xr.Dataset({"v": ("step", [1.0, 2.0]), "w": ("time", [1, 2, 3])})
    inner.encoding["unlimited_dims"] = {"step"}
    quiet(ds.to_netcdf, tmp_path / "a.nc", engine="netcdf4", unlimited_dims=["time"])
    quiet(inner.to_netcdf, tmp_path / "a.nc", engine="netcdf4", mode="a", group="g", unlimited_dims=["step"])
    run("convert", tmp_path / "a.nc", tmp_path / f"b{ending}")
    run("convert", tmp_path / f"b{ending}", tmp_path / "c.nc")
    tree = xr.open_datatree(tmp_path / f"b{ending}", engine="tesseral")
    # NetCDF has no other dimensions of length 0.
    assert tree.encoding["unlimited_dims"] == {"time", "y"} and "step" in tree["g"].encoding["unlimited_dims"]
    tesseral.xarray.write(tree, tmp_path / f"d{ending}")
    run("convert", tmp_path / f"d{ending}", tmp_path / "e.nc")
    for name in ("c.nc", "e.nc"):
        with netCDF4.Dataset(tmp_path / name) as file:
            assert file["t"].get_dims()[0].isunlimited() and not file["t"].get_dims()[1].isunlimited()
            assert file["g/v"].get_dims()[0].isunlimited()
    grown = tmp_path / f"f{ending}"
    for part in (slice(2), slice(2, None)):
        tesseral.xarray.write(ds.isel(time=part), grown, append_dim="time")
    assert xr.open_dataset(grown, engine="tesseral").encoding["unlimited_dims"] == {"time"}
    tesseral.xarray.write(ds, tmp_path / f"g{ending}", unlimited_dims=[])
    assert not xr.open_dataset(tmp_path / f"g{ending}", engine="tesseral").encoding.get("unlimited_dims")


@pytest.mark.skipif(not NETCDF, reason="the folder of published files is not beside the checkout")
@pytest.mark.parametrize("ending", TARGETS)
@pytest.mark.parametrize("path", NETCDF or [None], ids=lambda path: path and path.name)
def test_published_files(tmp_path, path, ending):
    out = tmp_path / f"b{ending}"
    run("convert", path, out, "--check")
    assert_same(quiet(xr.load_dataset, out, engine="tesseral"), *original(path))


def statistics(path):
    """Statistics of every variable in physical units, by its name."""
    found = json.loads(run("stat", path, "--json"))
    out = {}
    for row in found.get("arrays", [found]):
        # Fields of one TileDB array, which is named as its folder, are variables.
        name = row["field"] if row["array"] == path.name else row["variable"]
        out[name] = {key: row.get(key) for key in STATISTICS if "error" not in row}
    return out


def from_python(path):
    container = tesseral.open(path)
    found = {}
    for name, array in container.variables.items():
        if np.dtype(array.dtype).kind in "iuf" and array.size:
            decoded = array.decoded()
            if decoded.dtype.kind in "iuf":
                found[name] = (np.ma.getdata(decoded).dtype.str, np.ma.count(decoded), repr(np.ma.asarray(decoded).sum(dtype="f8")))
    return found


@pytest.mark.skipif(not FILES, reason="the folder of published files is not beside the checkout")
@pytest.mark.parametrize("path", NETCDF or [None], ids=lambda path: path and path.name)
def test_statistics_of_published_files(tmp_path, path):
    want, python = None, None
    for ending in ("", *TARGETS):
        out = path if not ending else tmp_path / f"b{ending}"
        if ending:
            run("convert", path, out)
        found, read = statistics(out), from_python(out)
        want, python = want or found, python or read
        assert found == want, ending
        assert read == python, ending
