"""Datasets come back from every format as they were: values, dtypes, coordinates, attributes, names and encoding.

netCDF and Zarr are the controls: what both of them keep of a dataset, every format here keeps.
"""

import json
import os
import subprocess
import warnings
from pathlib import Path

import cftime
import numpy as np
import pandas as pd
import pytest
import tesseral.xarray  # noqa: F401
import xarray as xr
import xarray.testing.strategies as xrst
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REAL = Path(__file__).resolve().parents[4] / "shared" / "real"
ENDINGS = {"tet": ".tet", "tgm": ".tgm", "tiledb": ".tiledb"}
# What a variable's encoding says about its values and how they are to be written again.
ENCODING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "units", "calendar", "dtype", "coordinates", "grid_mapping")


# Datasets of every kind


def attributes():
    return {
        "zulu": "text",
        "alpha": 3,
        "int8": np.int8(-5),
        "int16": np.int16(300),
        "uint8": np.uint8(200),
        "int32": np.int32(-70000),
        "uint64": np.uint64(2**64 - 1),
        "small uint64": np.uint64(1),
        "float32": np.float32(0.1),
        "float64": 0.1,
        "nan": np.float32("nan"),
        "infinite": -np.inf,
        "negative zero": -0.0,
        "empty": "",
        "unicode": "Grüße, 世界 🌍",
        "lines": "one\ntwo\ttab",
        "number as text": "03772",
        "float32s": np.array([0.1, 0.2], "f4"),
        "int16s": np.array([1, -2, 3], "i2"),
        "uint8s": np.array([1, 2], "u1"),
        "float64s": [1.0, 2.5],
        "ints": [1, 2, 3],
        "texts": ["a", "bcd", ""],
    }


def scalars():
    return xr.Dataset(
        {
            "f8": ((), 1.5),
            "f4": ((), np.float32(0.1)),
            "i1": ((), np.int8(-3)),
            "u8": ((), np.uint64(2**63 + 1)),
            "text": ((), "one"),
            "flag": ((), True),
            "when": ((), np.datetime64("2020-02-03T04:05:06", "ns")),
        }
    )


def integers():
    out = {}
    for dtype in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        limits = np.iinfo(dtype)
        out[dtype] = (("x",), np.array([limits.min, 0, 1, limits.max], dtype))
    return xr.Dataset(out)


def floats():
    special = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, 5e-324]
    return xr.Dataset({dtype: (("x",), np.array(special, dtype)) for dtype in ("f4", "f8")})


def float16():
    return xr.Dataset({"f2": (("x",), np.array([0.5, -1.0, np.inf, 6e-8], "f2"))})


def complexes():
    return xr.Dataset({"c8": (("x",), np.array([1 + 2j, -0.5j], "c8")), "c16": (("x",), np.array([0.1 - 2j, np.inf], "c16"))})


def booleans():
    return xr.Dataset(
        {"flag": (("x",), np.array([True, False, True])), "mask": (("x", "y"), np.eye(3, 2, dtype=bool), {"long_name": "where"})}
    )


def texts():
    return xr.Dataset(
        {
            "fixed": (("x",), np.array(["a", "bcd", ""])),
            "objects": (("x",), np.array(["station one", "", "é"], object)),
            "unicode": (("x",), np.array(["Grüße", "世界", "🌍"])),
            "empty": (("x",), np.array(["", "", ""])),
            "leading zeros": (("x",), np.array(["03772", "00100", "1e3"])),
            "two": (("x", "y"), np.array([["p", "qq"], ["rrr", ""], ["s", "t"]])),
        }
    )


def text_coordinates():
    return xr.Dataset(
        {"t": (("station",), np.arange(3.0))},
        coords={
            "station": ("station", np.array(["03772", "00100", "71624"]), {"long_name": "WMO number"}),
            "name": ("station", np.array(["Heathrow", "Bodø", ""], object)),
        },
    )


def byte_strings():
    return xr.Dataset({"fixed": (("x",), np.array([b"abc", b"de", b""])), "wide": (("x",), np.array([b"0123456789"] * 3))})


def float32_coordinates():
    return xr.Dataset(
        {"t": (("lat", "lon"), np.arange(6, dtype="f4").reshape(2, 3), {"units": "K"})},
        coords={
            "lat": ("lat", np.array([0.1, 0.2], "f4"), {"units": "degrees_north", "axis": "Y"}),
            "lon": ("lon", np.array([-10.3, 0.7, 1e-8], "f4"), {"units": "degrees_east"}),
        },
        attrs={"title": "float32"},
    )


def narrow_coordinates():
    return xr.Dataset(
        {"t": (("a", "b", "c"), np.zeros((2, 3, 2)))},
        coords={"a": np.array([-1, 5], "i1"), "b": np.array([7, 1, 3], "u2"), "c": np.array([2**40, 2**41], "i8")},
    )


def two_dimensional_coordinates():
    lat, lon = np.meshgrid(np.linspace(50, 60, 3), np.linspace(0, 5, 4), indexing="ij")
    return xr.Dataset(
        {"t": (("time", "y", "x"), np.arange(24.0).reshape(2, 3, 4)), "n": (("y", "x"), np.arange(12).reshape(3, 4))},
        coords={
            "lat": (("y", "x"), lat, {"units": "degrees_north"}),
            "lon": (("y", "x"), lon.astype("f4"), {"units": "degrees_east"}),
            "time": np.array(["2000-01-01", "2000-01-02"], "M8[ns]"),
            "cell": (("y", "x"), np.arange(12, dtype="i2").reshape(3, 4)),
        },
    )


def scalar_coordinates():
    return xr.Dataset(
        {"t": (("x",), np.arange(3.0))},
        coords={
            "height": ((), 2.0, {"units": "m", "positive": "up"}),
            "reference": ((), np.datetime64("2001-02-03", "ns")),
            "member": ((), np.int32(7)),
            "source": ((), "station"),
            "x": [1, 2, 3],
        },
    )


def bounds_and_grid_mapping():
    time = np.array(["2000-01-16", "2000-02-15"], "M8[ns]")
    edges = np.array([["2000-01-01", "2000-02-01"], ["2000-02-01", "2000-03-01"]], "M8[ns]")
    ds = xr.Dataset(
        {
            "t": (("time", "y"), np.arange(6.0).reshape(2, 3), {"grid_mapping": "crs", "cell_methods": "time: mean", "units": "K"}),
            "time_bnds": (("time", "nv"), edges),
            "y_bnds": (("y", "nv"), np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])),
            "crs": ((), np.int32(0), {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": np.array([30.0, 60.0])}),
        },
        coords={"time": ("time", time, {"bounds": "time_bnds"}), "y": ("y", np.array([0.5, 1.5, 2.5]), {"bounds": "y_bnds"})},
        attrs={"Conventions": "CF-1.10"},
    )
    for name in ("time", "time_bnds"):
        ds[name].encoding |= {"units": "days since 1999-01-01", "calendar": "standard", "dtype": np.dtype("f8")}
    return ds


def packed():
    """Cells that packing restores bit by bit: what xarray decodes from the stored numbers."""
    stored = np.array([[-32768, 0, 1], [2, 32767, -100]], "i2")
    raw = xr.Dataset(
        {
            "negative": (
                ("y", "x"),
                stored,
                {"scale_factor": -0.0017, "add_offset": 61.5, "_FillValue": np.int16(-32768), "units": "m"},
            ),
            "float32": (("y", "x"), stored, {"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15)}),
            "scaled": (("y", "x"), stored.astype("u1"), {"scale_factor": 0.5}),
        }
    )
    return xr.decode_cf(raw)


def unsigned():
    raw = xr.Dataset(
        {
            "u": (("x",), np.array([-1, 0, 100, -56], "i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1), "scale_factor": 0.5}),
            "plain": (("x",), np.array([-1, 0, 100, -56], "i1"), {"_Unsigned": "true", "_FillValue": np.int8(-1)}),
        }
    )
    return xr.decode_cf(raw)


def fill_values():
    raw = xr.Dataset(
        {
            "float": (("x",), np.array([1.0, -99.9, 3.0], "f4"), {"_FillValue": np.float32(-99.9)}),
            "integer": (("x",), np.array([1, -999, 3], "i4"), {"_FillValue": np.int32(-999)}),
            "missing": (("x",), np.array([1, -1, 3], "i1"), {"missing_value": np.int8(-1)}),
            "both": (("x",), np.array([1.0, 1e20, 3.0]), {"missing_value": 1e20, "_FillValue": 1e20}),
            "nan": (("x",), np.array([1.0, np.nan, 3.0]), {"_FillValue": np.nan}),
        }
    )
    return xr.decode_cf(raw)


def dates():
    out = {}
    for unit in ("s", "ms", "us", "ns"):
        out[unit] = (("x",), np.array(["1969-12-31T23:59:59", "2020-02-29", "NaT"], f"M8[{unit}]"))
    out["fine"] = (("x",), np.array([1, 2, 3], "M8[ns]"))
    return xr.Dataset(out)


def encoded_dates():
    ds = xr.Dataset({"t": (("time",), np.arange(4.0))}, coords={"time": pd.date_range("2001-03-01", periods=4, freq="6h", unit="ns")})
    ds["when"] = ("time", np.array(["2000-01-01", "NaT", "2000-01-03", "2000-01-04"], "M8[ns]"))
    ds.time.encoding = {"units": "hours since 1900-01-01", "calendar": "proleptic_gregorian", "dtype": np.dtype("i4")}
    ds.when.encoding = {"units": "days since 1990-01-01", "dtype": np.dtype("f8"), "_FillValue": np.nan}
    return ds


def durations():
    ds = xr.Dataset(coords={"step": np.array([0, 6, 12], "m8[h]").astype("m8[ns]")})
    ds["s"] = ("step", np.array([1, -1, "NaT"], "m8[s]"))
    ds["encoded"] = ("step", np.array([1, 2, 3], "m8[D]").astype("m8[ns]"))
    ds.encoded.encoding = {"units": "days", "dtype": np.dtype("i4")}
    return ds


def calendars():
    ds = xr.Dataset()
    for calendar in ("360_day", "noleap", "all_leap", "julian"):
        dates = [cftime.datetime(2000, 2, day, 6, calendar=calendar) for day in (27, 28)]
        dim = f"time_{calendar}"
        ds.coords[dim] = (dim, dates, {"long_name": calendar})
        ds[f"t_{calendar}"] = (dim, [1.0, 2.0])
    ds.time_360_day.encoding = {"units": "days since 1859-12-01", "calendar": "360_day", "dtype": np.dtype("f8")}
    return ds


def cf_attribute_text():
    """The order of attributes, and all types of them, on variables, coordinates and the dataset."""
    ds = xr.Dataset({"t": (("x",), np.arange(2.0), attributes())}, attrs=attributes())
    ds.coords["x"] = ("x", [1, 2], attributes())
    return ds


def bytes_attribute():
    return xr.Dataset({"t": (("x",), np.arange(2.0), {"blob": b"\x00\xff"})}, attrs={"blob": b"abc\x00"})


def without_coordinates():
    return xr.Dataset({"t": (("y", "x"), np.zeros((2, 3))), "u": (("x",), np.arange(3))})


def coordinates_alone():
    return xr.Dataset(
        {"t": (("x",), np.arange(2.0))},
        coords={"band": ("band", ["red", "green"]), "level": ("level", np.array([850.0, 500.0], "f4"), {"units": "hPa"}), "area": ("level", [1, 2])},
    )


def nothing():
    return xr.Dataset()


def attributes_alone():
    return xr.Dataset(attrs={"title": "only this", "n": np.int16(3)})


def empty_dimensions():
    return xr.Dataset(
        {"t": (("time", "x"), np.zeros((0, 3), "f4"), {"units": "K"}), "n": (("time",), np.zeros(0, "i2"))},
        coords={"x": [1.0, 2.0, 3.0], "time": ("time", np.zeros(0, "i8"), {"long_name": "none yet"})},
    )


def unicode_names():
    return xr.Dataset(
        {"Größe": (("Länge", "幅"), np.arange(6.0).reshape(2, 3), {"Einheit": "µm"})},
        coords={"Länge": ("Länge", [1.5, 2.5]), "Höhe": ((), 3.0)},
        attrs={"Überschrift": "ja"},
    )


def odd_names():
    return xr.Dataset(
        {"two words": (("x y",), np.arange(3.0)), "UPPER": (("x y",), np.arange(3)), "upper": (("x y",), np.arange(3, 6)), "dash-dot.1": ((), 1.0)},
        coords={"x y": ("x y", [1, 2, 3]), "aux": ("x y", [4, 5, 6])},
    )


def order_of_names():
    return xr.Dataset({name: (("x",), np.arange(2)) for name in ("zulu", "alpha", "mike", "bravo")}, coords={"x": [1, 2]})


def decreasing_and_repeated():
    return xr.Dataset(
        {"t": (("lat", "k"), np.arange(6.0).reshape(3, 2))}, coords={"lat": [10.0, 0.0, -10.0], "k": np.array([5, 5])}
    )


def grib_like():
    """Coordinates as cfgrib gives them."""
    ds = xr.Dataset(
        {"t2m": (("number", "step"), np.arange(6, dtype="f4").reshape(2, 3), {"GRIB_paramId": 167, "units": "K"})},
        coords={
            "number": ("number", [0, 1], {"units": "1"}),
            "step": np.array([0, 24, 48], "m8[h]").astype("m8[ns]"),
            "time": ((), np.datetime64("2018-10-01", "ns")),
            "surface": ((), 0.0),
        },
    )
    return ds.assign_coords(valid_time=ds.time + ds.step)


def repeated_dimensions():
    """Covariances have one dimension twice."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.Dataset(
            {"cov": (("a", "a"), np.arange(9.0).reshape(3, 3)), "same": (("a", "a", "a"), np.ones((3, 3, 3), "i2")), "v": (("a",), [1, 2, 3])},
            coords={"a": [10, 20, 30], "matrix": (("b", "b"), np.eye(2, dtype="i1"))},
        )


def single_bytes():
    return xr.Dataset({"flag": (("x",), np.array([b"a", b"", b"c"])), "grid": (("y", "x"), np.array([[b"a", b"b", b"c"]] * 2))}, coords={"x": np.array([b"p", b"q", b"r"])})


def suffixed_names():
    """Names that formats give to variables for reasons of their own."""
    names = ("t.data", "t.index", "name", "shape", "lat", "Time")
    return xr.Dataset({name: (("t",), np.arange(3) + i) for i, name in enumerate(names)}, coords={"t": [1, 2, 4], "dim_0": ("t", [5, 6, 7])})


def climatology():
    edges = np.array([["1961-01-01", "1990-02-01"], ["1961-02-01", "1990-03-01"]], "M8[ns]")
    ds = xr.Dataset(
        {"tas": (("time",), [1.0, 2.0], {"cell_methods": "time: mean within years time: mean over years"}), "bounds": (("time", "nv"), edges)},
        coords={"time": ("time", np.array(["1961-01-15", "1961-02-15"], "M8[ns]"), {"climatology": "bounds"})},
    )
    ds.time.encoding = {"units": "days since 1960-01-01", "calendar": "standard", "dtype": np.dtype("i4")}
    return ds


def satellite():
    """Packed coordinates, unsigned counts, flags, and a time that belongs to no variable."""
    raw = xr.Dataset(
        {
            "Rad": (("y", "x"), np.array([[0, 100], [1023, -1]], "i2"), {"_FillValue": np.int16(1023), "_Unsigned": "true", "scale_factor": np.float32(0.04), "valid_range": np.array([0, 1022], "i2"), "grid_mapping": "proj", "ancillary_variables": "DQF"}),
            "DQF": (("y", "x"), np.array([[0, 1], [-1, 2]], "i1"), {"_FillValue": np.int8(-1), "_Unsigned": "true", "flag_values": np.array([0, 1], "i1"), "flag_meanings": "good bad"}),
            "proj": ((), np.int32(-2147483647), {"grid_mapping_name": "geostationary"}),
        },
        coords={"x": ("x", np.array([0, 1], "i2"), {"scale_factor": np.float32(0.1), "add_offset": np.float32(-1), "units": "rad"}), "t": ((), 1.5, {"units": "seconds since 2000-01-01 12:00:00"})},
    )
    return xr.decode_cf(raw)


def ragged():
    return xr.Dataset(
        {"temp": (("obs",), np.arange(7.0)), "row_size": (("station",), np.array([3, 4], "i4"), {"sample_dimension": "obs"}), "index": (("obs",), np.array([0, 1, 0, 1, 1, 0, 1]), {"instance_dimension": "station"})},
        coords={"time": ("obs", np.arange(7)), "station": ["a", "b"], "landpoint": ("landpoint", np.array([1, 4]), {"compress": "lat lon"})},
        attrs={"featureType": "timeSeries"},
    )


def nothing_along_a_dimension():
    dtypes = ("i1", "u2", "i8", "f4", "?", "M8[ns]", "m8[ns]", "c8", "S3", "U2", "O")
    return xr.Dataset({f"v{i}": (("x",), np.zeros(0, dtype)) for i, dtype in enumerate(dtypes)} | {"two": (("x", "y"), np.zeros((0, 0)))}, coords={"x": np.zeros(0, "U4")})


def attributes_of_python():
    """What netCDF does not take; JSON and xarray do."""
    held = {"nothing": None, "map": {"a": 1, "b": [1, {"c": 2.5}]}, "table": [[1, 2], [3, 4]], "mixed": [1, "a", 2.5], "flag": True, "no": np.bool_(False), "complex": 1 - 2j, "date": np.datetime64("2001-02-03"), "empty": [], "reserved": "x", "name": "n", "dim_names": "q", "_FillValue_": 1}
    return xr.Dataset({"t": (("x",), [1.0], held)}, attrs={**held, "tool": "me", "created_at": "now", "history": "one\ntwo"})


def eight_dimensions():
    cells = np.arange(16.0).reshape((1, 2) * 4)
    return xr.Dataset({"v": (tuple("abcdefgh"), cells), "words": (tuple("abcdefgh"), cells.astype("U4"))})


def missing_text():
    """Some of the texts are missing. xarray makes them empty in the files of the controls."""
    cells = {"fixed": ["a", np.nan, "b"], "with empty": ["", None, "b"], "with words": ["", "missing", np.nan]}
    two = np.array([["p", np.nan], [None, ""], ["q", "r"]], object)
    return xr.Dataset({name: (("x",), np.array(values, object)) for name, values in cells.items()} | {"two": (("x", "y"), two)})


def bytes_of_any_length():
    return xr.Dataset({"blob": (("x",), np.array([b"a", b"\0b\0", b"", b"\xff\xfe"], object))}, coords={"id": ("x", np.array([b"one", b"", b"three", b"4"], object))})


def reserved_attributes():
    """Names that the conventions and formats use for purposes of their own."""
    names = ["container:x", "attribute:name", "attribute:y", "y", "__tiledb_attr.t.u", "__tesseral:file:x", "__tesseral:labels:x", "_tesseral", "name", "dim_names", "_NumpyDtype", "base", "coords"]
    held = {name: i for i, name in enumerate(names)}
    return xr.Dataset({"t": (("x",), [1.0], held)}, attrs=held)


def missing_coordinates():
    return xr.Dataset({"v": (("x",), [1.0, 2.0, 3.0])}, coords={"x": [1.0, np.nan, -0.0], "when": ("x", np.array(["2001-01-01", "NaT", "2002-01-01"], "M8[s]"))})


KINDS = [
    scalars, integers, floats, float16, complexes, booleans, texts, text_coordinates, byte_strings, float32_coordinates,
    narrow_coordinates, two_dimensional_coordinates, scalar_coordinates, bounds_and_grid_mapping, packed, unsigned, fill_values,
    dates, encoded_dates, durations, calendars, cf_attribute_text, bytes_attribute, without_coordinates,
    coordinates_alone, nothing, attributes_alone, empty_dimensions, unicode_names, odd_names, order_of_names, decreasing_and_repeated,
    grib_like, repeated_dimensions, single_bytes, suffixed_names, climatology, satellite, ragged, nothing_along_a_dimension,
    attributes_of_python, eight_dimensions, missing_coordinates, missing_text, bytes_of_any_length, reserved_attributes,
]  # fmt: skip


# What is kept of a dataset


def value_of(value):
    """A value that compares by type and bits. Python's numbers are NumPy's of 64 bits, a list of one kind is an array."""
    if isinstance(value, type):
        return np.dtype(value).str
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, (str, bytes)):
        return value
    cells = np.asarray(value)
    if cells.dtype.kind in "UO":
        return cells.shape, cells.tolist()
    return cells.dtype.newbyteorder("=").str, cells.shape, cells.astype(cells.dtype.newbyteorder("=")).tobytes()


def cells_of(variable):
    cells = np.asarray(variable.values)
    if cells.dtype.kind in "OUST":
        return cells.shape, [str(cell) if isinstance(cell, str) else cell for cell in cells.ravel().tolist()]
    if cells.dtype.kind in "Mm":
        # Dates are the same in whatever unit.
        return cells.shape, [None if np.isnat(cell) else int(cell.astype("M8[ns]" if cells.dtype.kind == "M" else "m8[ns]").astype("i8")) for cell in cells.ravel()]
    return cells.shape, np.ascontiguousarray(cells).tobytes()


def facts(ds):
    """Everything that a dataset says, each as a name and a value."""
    out = {"names": [*ds.data_vars, *ds.coords], "sizes": dict(ds.sizes), "attribute order": list(ds.attrs), "indexes": sorted(map(str, ds.xindexes))}
    out |= {f"attribute {key}": value_of(value) for key, value in ds.attrs.items()}
    for name, variable in ds.variables.items():
        out[f"{name}: role"] = "coordinate" if name in ds.coords else "data"
        out[f"{name}: dims"] = variable.dims
        out[f"{name}: dtype"] = variable.dtype.kind if variable.dtype.kind in "OUT" else variable.dtype.newbyteorder("=").str
        out[f"{name}: cells"] = cells_of(variable)
        out[f"{name}: attribute order"] = list(variable.attrs)
        out |= {f"{name}: attribute {key}": value_of(value) for key, value in variable.attrs.items()}
        out |= {f"{name}: encoding {key}": value_of(variable.encoding[key]) for key in ENCODING if variable.encoding.get(key) is not None}
    return out


def lost(ds, again):
    """What a dataset says and the other one does not."""
    found = facts(again)
    return {name: (value, found.get(name)) for name, value in facts(ds).items() if name not in found or found[name] != value}


def added(ds, again):
    """Variables and attributes that did not exist."""
    return {name for name in facts(again).keys() - facts(ds).keys() if "encoding" not in name}


def quiet(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


def through_netcdf(ds, folder):
    quiet(ds.to_netcdf, folder / "control.nc", engine="netcdf4")
    return quiet(xr.load_dataset, folder / "control.nc", engine="netcdf4")


def through_zarr(ds, folder):
    quiet(ds.to_zarr, folder / "control.zarr", mode="w", consolidated=False)
    return quiet(xr.load_dataset, folder / "control.zarr", engine="zarr", consolidated=False)


def through(ds, format, folder):
    path = folder / f"a{ENDINGS[format]}"
    quiet(getattr(ds.tesseral, f"to_{format}"), path)
    return quiet(xr.load_dataset, path, engine="tesseral")


def lost_by_control(control, ds, folder):
    try:
        return lost(ds, control(ds, folder))
    except Exception:
        return facts(ds)


def assert_kept(ds, again, folder):
    """What both controls keep is kept."""
    gone = lost(ds, again)
    if gone:
        excused = lost_by_control(through_netcdf, ds, folder).keys() | lost_by_control(through_zarr, ds, folder).keys()
        gone = {name: values for name, values in gone.items() if name not in excused}
    assert not gone
    assert not added(ds, again)


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_dataset_is_identical(tmp_path, kind, format):
    ds = kind()
    again = through(ds, format, tmp_path)
    xr.testing.assert_identical(again, ds)
    assert not lost(ds, again) and not added(ds, again)


@pytest.mark.parametrize("format", ENDINGS)
def test_several_missing_values(tmp_path, format):
    """Compared as stored: xarray does not write a list of missing values again once it decoded them."""
    ds = xr.Dataset({"t": (("x",), np.array([1, -1, -2, 4], "i2"), {"missing_value": np.array([-1, -2], "i2")})})
    path = tmp_path / f"a{ENDINGS[format]}"
    getattr(ds.tesseral, f"to_{format}")(path)
    stored = xr.load_dataset(path, engine="tesseral", mask_and_scale=False)
    xr.testing.assert_identical(stored, ds)
    assert not lost(ds, stored)
    np.testing.assert_array_equal(quiet(xr.load_dataset, path, engine="tesseral").t, [1, np.nan, np.nan, 4])


# Files that others wrote


def read_netcdf(path):
    return {"": xr.load_dataset(path, engine="netcdf4")}


def read_grib(path):
    return {"": xr.load_dataset(path, engine="cfgrib", decode_timedelta=True, indexpath="")}


def read_csv(path):
    return {"": pd.read_csv(path, parse_dates=["date"]).set_index("date").to_xarray()}


READERS = {".nc": read_netcdf, ".grib": read_grib, ".csv": read_csv}
FILES = sorted(path for path in REAL.glob("*") if path.suffix in READERS)


@pytest.mark.skipif(not FILES, reason="the folder of published files is not beside the checkout")
@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("path", FILES or [None], ids=lambda path: path and path.name)
def test_published_files_are_identical(tmp_path, path, format):
    ds = quiet(READERS[path.suffix], path)[""]
    again = through(ds, format, tmp_path)
    xr.testing.assert_identical(again, ds)
    assert_kept(ds, again, tmp_path)


STATISTICS = ("count", "nulls", "nan", "min", "max", "mean", "sum", "std")


def statistics(path):
    """What the command line says of every variable, in physical units."""
    run = lambda *words: json.loads(subprocess.run([os.environ["TET_BIN"], *words, path, "--json"], capture_output=True, check=True).stdout)  # noqa: E731
    given = {array["name"]: array["attributes"].get("name", array["name"]) for array in run("info")["arrays"]}
    found = run("stat")
    rows = found.get("rows") or found.get("arrays") or [found]
    name = lambda row: given[row["array"]] if given[row["array"]] != path.name else row["field"]  # noqa: E731
    return {name(row): {key: row.get(key) for key in STATISTICS} for row in rows}


@pytest.mark.skipif("TET_BIN" not in os.environ, reason="the command line is absent")
def test_variables_have_one_name_in_every_format(tmp_path):
    """In `stat`, `info`, and the columns of rows; also of an array of several fields, and of one that is alone."""
    run = lambda *words: json.loads(subprocess.run([os.environ["TET_BIN"], *words, "--json"], capture_output=True, check=True).stdout)  # noqa: E731
    pair = xr.Dataset({"lat": (("obs",), [1.0, 2.0], {"units": "degrees_north"}), "t": (("obs",), [3.0, 4.0], {"units": "K", "coordinates": "lat"})})
    for name, ds in {"pair": pair, "alone": pair[["t"]]}.items():
        pairs = tmp_path / f"{name}.nc"
        ds.to_netcdf(pairs, engine="netcdf4")
        found = []
        for ending in (".nc", *ENDINGS.values()):
            path = tmp_path / f"{name}{ending}"
            if path != pairs:
                subprocess.run([os.environ["TET_BIN"], "convert", pairs, path], check=True, capture_output=True)
            report = run("stat", path)
            rows = report.get("arrays", [report])
            found.append({row["variable"]: [row[key] for key in STATISTICS] for row in rows})
            text = subprocess.run([os.environ["TET_BIN"], "info", path], capture_output=True, check=True, text=True).stdout
            assert path.name + "/" not in text and [line.split()[0] for line in text.splitlines() if line.startswith(("t ", "lat "))] == sorted(ds.variables, reverse=True)
            columns = run("cat", path, "t", "--where", "t > 3.5")["columns"]
            assert [column["name"] for column in columns] == ["obs", "t"]
            array = tesseral.open(path)["t"]
            # Rows of an array have all of its fields.
            assert list(array.cells()) == list(array.to_pandas()) == array.to_arrow().column_names in (["obs", "t"], ["obs", "lat", "t"])
        assert all(one == found[0] for one in found) and set(found[0]) == set(ds.variables)


@pytest.mark.skipif(not FILES or "TET_BIN" not in os.environ, reason="the published files or the command line are absent")
@pytest.mark.parametrize("path", FILES or [None], ids=lambda path: path and path.name)
def test_statistics_of_published_files_agree(tmp_path, path):
    ds = quiet(READERS[path.suffix], path)[""]
    found = []
    for format, ending in ENDINGS.items():
        out = tmp_path / f"a{ending}"
        quiet(getattr(ds.tesseral, f"to_{format}"), out)
        found.append(statistics(out))
    assert found[0] == found[1] == found[2]
    for name, variable in ds.variables.items():
        row = found[0].get(name)
        if row is not None and variable.dtype.kind in "iuf" and isinstance(row["mean"], float):
            cells = np.asarray(variable.values, "f8")
            assert row["mean"] == pytest.approx(cells[np.isfinite(cells)].mean(), rel=1e-5, abs=1e-8), name


# Whatever hypothesis makes

DTYPES = st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "f2", "c8", "c16", "?", "M8[ns]", "M8[ms]", "M8[s]", "m8[ns]", "m8[s]", "<U5", "S3", "S1"]).map(np.dtype)
ATTRIBUTES = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6).filter(lambda name: name not in CF_NAMES),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=3)
    | st.sampled_from([np.float32(0.1), np.int8(-1), np.uint16(9), np.array([1.5, 2.5], "f4"), np.nan, -np.inf, True, None, [], ["a", ""], b"\0\xff", {"a": [1]}]),
    max_size=3,
)
# Names that say how values are stored.
CF_NAMES = {*ENCODING, "bounds"}
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=4)


def arrays_of(*, shape, dtype):
    from hypothesis.extra.numpy import arrays

    # Bytes and text without the zero that ends them.
    elements = None
    if dtype.kind == "U":
        elements = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    if dtype.kind == "S":
        elements = st.binary(max_size=dtype.itemsize).map(lambda cell: cell.replace(b"\0", b"-"))
    return arrays(dtype, shape, elements=elements)


@st.composite
def datasets(draw):
    sizes = draw(xrst.dimension_sizes(dim_names=NAMES, min_dims=0, max_dims=3, min_side=0, max_side=3))
    names = draw(st.lists(NAMES.filter(lambda name: name not in sizes), max_size=4, unique=True))
    variables = {}
    for name in names:
        dims = draw(xrst.unique_subset_of(sizes)) if sizes else {}
        variables[name] = draw(xrst.variables(array_strategy_fn=arrays_of, dims=st.just(dims), dtype=DTYPES, attrs=ATTRIBUTES))
    for dim, extent in sizes.items():
        if draw(st.booleans()):
            variables[dim] = draw(xrst.variables(array_strategy_fn=arrays_of, dims=st.just({dim: extent}), dtype=DTYPES, attrs=ATTRIBUTES))
    ds = xr.Dataset(variables, attrs=draw(ATTRIBUTES))
    return ds.set_coords(draw(st.lists(st.sampled_from(names), unique=True)) if names else [])


@pytest.mark.parametrize("format", ENDINGS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(ds=datasets())
def test_whatever_datasets(tmp_path_factory, format, ds):
    folder = tmp_path_factory.mktemp("any")
    again = through(ds, format, folder)
    xr.testing.assert_identical(again, ds)
    assert not lost(ds, again) and not added(ds, again)


@pytest.mark.parametrize("format", ENDINGS)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(nodes=st.dictionaries(st.sampled_from(["/a", "/a/inner", "/größe", "/x y/z"]), datasets(), min_size=1, max_size=3), attrs=ATTRIBUTES)
def test_whatever_trees(tmp_path_factory, format, nodes, attrs):
    # Index coordinates of a group are those of the groups inside it: here only the innermost have any.
    dt = xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **{path: ds for path, ds in nodes.items() if path != "/a" or "/a/inner" not in nodes}})
    path = tmp_path_factory.mktemp("any") / f"a{ENDINGS[format]}"
    quiet(getattr(dt.tesseral, f"to_{format}"), path)
    again = quiet(xr.open_datatree, path, engine="tesseral").load()
    xr.testing.assert_identical(again, dt)
    for node in dt.subtree:
        ds, found = node.to_dataset(inherit=False), again[node.path].to_dataset(inherit=False)
        assert not lost(ds, found) and not added(ds, found)


@pytest.mark.parametrize("format", ENDINGS)
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(ds=datasets().filter(lambda ds: any(n > 1 for n in ds.sizes.values())), data=st.data())
def test_whatever_is_appended(tmp_path_factory, format, ds, data):
    """A dataset that is written in two parts along a dimension is the one that is written at once."""
    dim = data.draw(st.sampled_from(sorted(dim for dim, n in ds.sizes.items() if n > 1)))
    at = data.draw(st.integers(1, ds.sizes[dim] - 1))
    # Labels must be new; their order is free where there is none.
    ds = ds.assign_coords({dim: np.arange(ds.sizes[dim])}) if dim in ds.coords else ds
    folder = tmp_path_factory.mktemp("any")
    path, whole = (folder / f"{name}{ENDINGS[format]}" for name in "ab")
    for part in (slice(at), slice(at, None)):
        quiet(getattr(ds.isel({dim: part}).tesseral, f"to_{format}"), path, append_dim=dim)
    quiet(getattr(ds.tesseral, f"to_{format}"), whole)
    again, want = (quiet(xr.load_dataset, place, engine="tesseral") for place in (path, whole))
    xr.testing.assert_identical(again, want)
    assert not lost(want, again) and not added(want, again)


# Trees


def tree():
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset({"total": ((), 3.5)}, coords={"time": pd.date_range("2020", periods=2, unit="ns")}, attrs={"title": "root", "n": np.int16(1)}),
            "/coarse": xr.Dataset({"t": (("time", "x"), np.zeros((2, 3), "f4"))}, coords={"x": ("x", np.array([1, 2, 3], "i1"), {"units": "m"})}),
            "/coarse/inner": xr.Dataset({"flag": (("k",), [True, False])}, attrs={"depth": 2}),
            "/fine": xr.Dataset({"t": (("x",), np.arange(5.0))}, coords={"x": np.arange(5.0)}),
            "/empty": xr.Dataset(attrs={"note": "no variables"}),
        }
    )


@pytest.mark.parametrize("format", ENDINGS)
def test_trees_are_identical(tmp_path, format):
    dt = tree()
    path = tmp_path / f"a{ENDINGS[format]}"
    getattr(dt.tesseral, f"to_{format}")(path)
    again = xr.open_datatree(path, engine="tesseral").load()
    xr.testing.assert_identical(again, dt)
    for node in dt.subtree:
        ds = again[node.path].to_dataset(inherit=False)
        assert not lost(node.to_dataset(inherit=False), ds) and not added(node.to_dataset(inherit=False), ds)
    xr.testing.assert_identical(xr.load_dataset(path, engine="tesseral"), dt.to_dataset())
    xr.testing.assert_identical(xr.load_dataset(path, engine="tesseral", group="fine"), dt["fine"].to_dataset(inherit=False))
    inner = xr.open_datatree(path, engine="tesseral", group="coarse").load()["inner"]
    xr.testing.assert_identical(inner.to_dataset(inherit=False), dt["coarse/inner"].to_dataset(inherit=False))
    with pytest.raises(KeyError, match="nope"):
        xr.open_dataset(path, engine="tesseral", group="nope")


@pytest.mark.parametrize("format", ENDINGS)
def test_arrays_are_identical(tmp_path, format):
    for i, name in enumerate(("t", None)):
        array = xr.DataArray(np.arange(3.0), dims="x", coords={"x": [1, 2, 3], "height": 2.0}, name=name, attrs={"units": "K"})
        path = tmp_path / f"{i}{ENDINGS[format]}"
        getattr(array.tesseral, f"to_{format}")(path)
        xr.testing.assert_identical(xr.load_dataarray(path, engine="tesseral"), array)


# Appending


def days(first, count, **encoding):
    time = np.datetime64("2020-01-01", "ns") + (first + np.arange(count)) * np.timedelta64(1, "D")
    cells = (first + np.arange(count * 6)).reshape(count, 2, 3) / 4
    ds = xr.Dataset(
        {"t": (("time", "y", "x"), cells, {"units": "K"}), "n": (("time",), np.arange(first, first + count)), "area": (("y", "x"), np.ones((2, 3)))},
        coords={"time": ("time", time, {"long_name": "day"}), "x": [1.0, 2.0, 3.0], "member": ((), 3), "word": ("time", [f"day {first + i}" for i in range(count)])},
        attrs={"title": "days"},
    )
    ds.time.encoding = encoding
    return ds


@pytest.mark.parametrize("encoding", [{}, {"units": "hours since 1999-12-31", "dtype": np.dtype("i4")}], ids=["dates", "hours"])
@pytest.mark.parametrize("format", ENDINGS)
def test_appending_grows_a_dataset(tmp_path, format, encoding):
    path = tmp_path / f"a{ENDINGS[format]}"
    for ds in (days(0, 5, **encoding), days(5, 5), days(10, 1, units="days since 2020-01-01")):
        getattr(ds.tesseral, f"to_{format}")(path, append_dim="time", chunks={"time": 3})
    again = xr.load_dataset(path, engine="tesseral")
    xr.testing.assert_identical(again, xr.concat([days(0, 5), days(5, 5), days(10, 1)], "time", data_vars="minimal", coords="minimal", compat="equals", join="exact"))
    # An object of a message is one chunk.
    assert again.t.encoding["chunksizes"] == ((11, 2, 3) if format == "tgm" else (3, 2, 3))
    assert {key: again.time.encoding.get(key) for key in encoding} == encoding


CREATORS = {
    "plain.nc": lambda ds, path: ds.to_netcdf(path, engine="netcdf4", unlimited_dims=["time"]),
    "checked.nc": lambda ds, path: ds.to_netcdf(path, engine="netcdf4", encoding={"t": {"zlib": True, "shuffle": True, "fletcher32": True, "chunksizes": (2, 2, 3)}}),
    "packed.nc": lambda ds, path: ds.to_netcdf(path, engine="netcdf4", encoding={"t": {"dtype": "i2", "scale_factor": 0.25, "_FillValue": -1}}),
    "v3.zarr": lambda ds, path: ds.to_zarr(path, zarr_format=3, consolidated=False),
    "v2.zarr": lambda ds, path: ds.to_zarr(path, zarr_format=2, consolidated=False),
    "ours.nc": lambda ds, path: tesseral.xarray.write(ds, path),
    "ours.zarr": lambda ds, path: tesseral.xarray.write(ds, path),
}


@pytest.mark.parametrize("name", CREATORS)
def test_appending_grows_files_of_every_format(tmp_path, name):
    whole = days(0, 8)
    quiet(CREATORS[name], whole.isel(time=slice(3)), tmp_path / name)
    for part in (slice(3, 7), slice(7, None)):
        tesseral.xarray.write(whole.isel(time=part), tmp_path / name, append_dim="time")
    found = quiet(xr.load_dataset, tmp_path / name, engine="tesseral")
    xr.testing.assert_equal(found, whole)
    theirs = {"engine": "netcdf4"} if name.endswith(".nc") else {"engine": "zarr", "consolidated": False}
    xr.testing.assert_equal(quiet(xr.load_dataset, tmp_path / name, **theirs), whole)


@pytest.mark.parametrize("format", ENDINGS)
def test_appending_stored_numbers(tmp_path, format):
    """Numbers that were not decoded are appended as they are."""
    stored = xr.Dataset({"t": (("x",), np.arange(6, dtype="i2"), {"scale_factor": 0.1, "missing_value": np.array([-1, -2], "i2")})})
    path = tmp_path / f"a{ENDINGS[format]}"
    for part in (slice(2), slice(2, None)):
        getattr(stored.isel(x=part).tesseral, f"to_{format}")(path, append_dim="x")
    xr.testing.assert_identical(quiet(xr.load_dataset, path, engine="tesseral", mask_and_scale=False), stored)


@pytest.mark.parametrize("format", ENDINGS)
def test_appending_never_overwrites(tmp_path, format):
    path = tmp_path / f"a{ENDINGS[format]}"
    write = lambda ds: getattr(ds.tesseral, f"to_{format}")(path, append_dim="time")  # noqa: E731
    first = days(5, 5)
    write(first)
    shifted = days(10, 2).assign_coords(x=[1.0, 2.0, 4.0])
    half = days(10, 2).assign_coords(time=days(10, 2).time + np.timedelta64(1, "ns"))
    wrong = {
        "already exists": days(9, 3),
        "labels increase": days(0, 5),
        "values differ": shifted,
        "positions": days(10, 2).isel(x=slice(2)).drop_vars(["x", "area"]),
        "lacks 'n'": days(10, 2).drop_vars("n"),
        "which the container lacks": days(10, 2).assign(more=1),
        "the dimensions are": days(10, 2).transpose("y", ...),
        "dtype is int64": days(10, 2).assign(n=("time", ["a", "b"])),
        "cannot be stored exactly": days(10, 2).assign(n=("time", [1.5, 2.0])),
    }
    for message, ds in wrong.items():
        with pytest.raises(tesseral.InvalidRequestError, match=message):
            write(ds)
        xr.testing.assert_identical(xr.load_dataset(path, engine="tesseral"), first)
    write(half)
    assert xr.load_dataset(path, engine="tesseral").time.values[-1] == half.time.values[-1]
    with pytest.raises(tesseral.InvalidRequestError, match="no variable has a dimension 'nope'"):
        getattr(days(20, 1).tesseral, f"to_{format}")(path, append_dim="nope")


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize(
    "first, encoding, later",
    [
        ([1.0, np.nan], {"_FillValue": 1e20}, [2.0, 1e20]),
        ([1.0, np.nan], {"dtype": "i2", "_FillValue": -2}, [2.0, -2.0]),
        ([1.0, np.nan], {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -2}, [2.0, -1.0]),
        (np.array(["a", None], object), {}, np.array(["", "b"], object)),
    ],
    ids=["floats", "integers", "packed", "text"],
)
def test_appending_never_makes_cells_missing(tmp_path, format, first, encoding, later):
    path = tmp_path / f"a{ENDINGS[format]}"
    write = lambda cells, **options: getattr(xr.Dataset({"v": ("t", cells)}).tesseral, f"to_{format}")(path, append_dim="t", **options)  # noqa: E731
    write(first, encoding={"v": encoding})
    with pytest.raises(tesseral.InvalidRequestError, match="cannot be stored exactly"):
        write(later)
    write(first)
    np.testing.assert_array_equal(pd.isnull(xr.load_dataset(path, engine="tesseral").v), [False, True] * 2)


def test_appending_dates_that_the_units_cannot_hold(tmp_path):
    days(0, 2, units="days since 2020-01-01", dtype=np.dtype("i4")).tesseral.to_tet(tmp_path / "a.tet")
    halves = days(2, 2).assign_coords(time=days(2, 2).time + np.timedelta64(12, "h"))
    with pytest.raises((tesseral.InvalidRequestError, ValueError)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        halves.tesseral.to_tet(tmp_path / "a.tet", append_dim="time")
    assert xr.load_dataset(tmp_path / "a.tet", engine="tesseral").sizes["time"] == 2


# Options


@pytest.mark.parametrize("format", ENDINGS)
def test_encoding_says_how_values_are_stored(tmp_path, format):
    ds = xr.Dataset({"t": (("x",), [1.0, np.nan, 3.5])}, coords={"time": ((), np.datetime64("2020-01-02", "ns"))})
    wanted = {
        "t": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunksizes": (2,)},
        "time": {"units": "days since 2020-01-01", "calendar": "noleap", "dtype": "i4"},
    }
    path = tmp_path / f"a{ENDINGS[format]}"
    getattr(ds.tesseral, f"to_{format}")(path, encoding=wanted)
    stored = xr.load_dataset(path, engine="tesseral", decode_cf=False)
    assert stored.t.dtype == "i2" and stored.t.values.tolist() == [2, -1, 7] and stored.time.dtype == "i4" and stored.time.item() == 1
    again = xr.load_dataset(path, engine="tesseral")
    np.testing.assert_array_equal(again.t, ds.t)
    assert again.time.item() == cftime.DatetimeNoLeap(2020, 1, 2) and ds.t.encoding == {}
    for wrong in ({"nope": {}}, {"t": {"zlib": True}}, {"/group": {}}):
        with pytest.raises(tesseral.InvalidRequestError):
            ds.tesseral.to_tet(tmp_path / "b.tet", encoding=wrong)
    assert not (tmp_path / "b.tet").exists()


def test_what_no_format_holds_is_rejected_first(tmp_path):
    """Errors name the variable or the attribute."""
    with pytest.raises(tesseral.InvalidRequestError, match="without a name"):
        xr.Dataset({"": 1}).tesseral.to_tet(tmp_path / "a.tet")
    for name, cells in {"mixed": np.array([1.5, "a"], object), "v": np.array([b"a", None], object), "kinds": pd.Categorical(["a", "b"]), "n": pd.array([1, None], dtype="Int64")}.items():
        with pytest.raises(tesseral.InvalidRequestError, match=f'"{name}"'):
            xr.Dataset({name: (("x",), cells)}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(TypeError, match="started"):
        xr.Dataset({"t": ((), 1, {"started": object()})}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(NotImplementedError, match='i4.*array "pairs"'):
        xr.Dataset({"pairs": (("x",), np.zeros(2, [("p", "i4"), ("q", "f8")]))}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(NotImplementedError, match='array "wide"'):
        xr.Dataset({"wide": (("x",), np.zeros(2, np.longdouble))}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(TypeError, match="name 1 of an attribute"):
        xr.Dataset({"t": ((), 1, {1: 2})}).tesseral.to_tet(tmp_path / "a.tet")
    for cells in ([b"a", None], [1.5, "a"], [object()], [1, None]):
        with pytest.raises(tesseral.InvalidRequestError, match="'t'|array \"t\"|t"):
            xr.Dataset({"t": (("x",), np.array(cells, object))}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(tesseral.InvalidRequestError, match="DataTree"):
        xr.Dataset({"a/b": ((), 1)}).tesseral.to_tet(tmp_path / "a.tet")
    with pytest.raises(NotImplementedError, match="MultiIndex"):
        index = pd.MultiIndex.from_product([[1, 2], [3]], names=["i", "j"])
        xr.Dataset(coords=xr.Coordinates.from_pandas_multiindex(index, "m")).tesseral.to_tet(tmp_path / "a.tet")
    assert not (tmp_path / "a.tet").exists()
