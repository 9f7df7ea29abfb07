"""Reductions compared with NumPy, bottleneck, xarray with flox, zarr-python with zarrs, TileDB, DuckDB and Polars, with the error of each answer.

    python bench/reductions.py [--quick] [--rounds N] [--fresh] [--only CASE]... [--data FOLDER] [--keep]

Each library runs in a separate process, reads the same cells in the format that it is made for, and keeps it open. Libraries take turns:
one run of a case by each, then the next round, so that other load on the machine affects all of them. The table has the median of the
rounds, and how many units in the last place of a double each answer is from the exact one, computed with integers. With `--fresh` every run
opens its files in a new process, and its time includes that of opening them, but not of starting Python and importing the library.

Requirements: bench/requirements-reductions.txt and the package `tesseral`. A library that does not import is left out.
"""

import argparse
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

#: Cells are multiples of 2^-SCALE below 2^9, so that sums of their integers are exact.
SCALE = {"f4": 15, "f8": 43}
LIMIT = 290.0
WINDOW = 7
BINS, RANGE = 50, (230.0, 340.0)
#: Cases with many answers: some of them are compared.
SAMPLED = ("axis0", "axis0_f64", "axis1", "axis2", "std_axis0", "max_axis0", "month_map", "median_axis0", "rolling")

CASES = {
    "sum": "sum of float32",
    "sum_f64": "sum of float64",
    "mean": "mean of float32",
    "mean_f64": "mean of float64",
    "var": "variance of float32",
    "std": "standard deviation of float32",
    "std_f64": "standard deviation of float64",
    "count": "number of cells that are not NaN",
    "min": "minimum of float32",
    "min_f64": "minimum of float64",
    "all": "count, minimum, maximum, mean and standard deviation of float32",
    "axis0": "mean of float32 over the first axis",
    "axis0_f64": "mean of float64 over the first axis",
    "axis1": "mean of float32 over the second axis",
    "axis2": "mean of float32 over the last axis",
    "std_axis0": "standard deviation of float32 over the first axis",
    "max_axis0": "maximum of float32 over the first axis",
    "where": f"mean of the cells above {LIMIT:g}",
    "label": "mean of each latitude",
    "month": "mean by month of the time axis",
    "month_map": "mean by month of each place",
    "weights": "mean with the cosines of latitudes as weights",
    "median": "median of float32",
    "quantile": "quantile 0.9 of float32",
    "median_axis0": "median of float32 over the first axis",
    "histogram": f"histogram of {BINS} bins",
    "rolling": f"mean of {WINDOW} neighboring times",
    "stored": "sum where statistics of chunks are stored",
}


def cells(shape, dtype, seed):
    """Like temperatures in kelvin, in multiples of a power of two."""
    unit = 2.0 ** -SCALE[dtype]
    random = np.random.default_rng(seed)
    out = np.empty(shape, dtype)
    for plane in out:
        plane[...] = np.round((285 + 10 * random.standard_normal(shape[1:])) / unit) * unit
    return out


class Data:
    """The files in a folder, and their exact statistics."""

    def __init__(self, folder, shape):
        self.folder, self.shape = Path(folder), shape
        # Positions are days.
        self.time = np.arange(shape[0], dtype="i4")
        self.month = (np.datetime64("2001-01-01") + self.time).astype("datetime64[M]").astype("i4") % 12
        self.lat = np.linspace(-89, 89, shape[1])

    def file(self, name):
        return self.folder / name

    def cube(self, dtype="f4"):
        return np.load(self.file(f"{dtype}.npy"), mmap_mode="r")

    def make(self):
        for seed, dtype in enumerate(("f4", "f8")):
            shape = self.shape if dtype == "f4" else (self.shape[0] // 2, *self.shape[1:])
            np.save(self.file(f"{dtype}.npy"), cells(shape, dtype, seed))

    def integers(self, dtype):
        """Planes of cells as integers, which are exact."""
        for plane in self.cube(dtype):
            yield np.asarray(plane * 2.0 ** SCALE[dtype], "i8").ravel()

    def moments(self, dtype):
        """Number, sum and sum of squares of the integers."""
        n = total = squares = 0
        for plane in self.integers(dtype):
            n += plane.size
            high, low = plane >> 26, plane & ((1 << 26) - 1)
            total += (int(high.sum()) << 26) + int(low.sum())
            # Products of 26 bits, as many as 63 bits hold.
            pieces = range(0, plane.size, 1 << 10)
            parts = [sum(int(np.dot(a[i : i + 1024], b[i : i + 1024])) for i in pieces) for a, b in ((high, high), (high, low), (low, low))]
            squares += (parts[0] << 52) + (parts[1] << 27) + parts[2]
        return n, total, squares

    def exact(self, case):
        """Correctly rounded answers; `None` where only their agreement is of interest."""
        dtype = "f8" if case.endswith("f64") else "f4"
        unit = Fraction(1, 1 << SCALE[dtype])
        name, cube = case.removesuffix("_f64"), self.cube(dtype)
        if name in ("sum", "stored", "mean", "var", "std", "all"):
            n, total, squares = self.moments(dtype)
            var = Fraction(n * squares - total * total, n * n) * unit * unit
            if name == "all":
                return [float(n), float(cube.min()), float(cube.max()), float(total * unit / n), root(var)]
            return [{"sum": float(total * unit), "stored": float(total * unit), "mean": float(total * unit / n), "var": float(var), "std": root(var)}[name]]
        if name == "count":
            return [float(cube.size)]
        if name == "min":
            return [float(cube.min())]
        if name == "max_axis0":
            return sample(cube.max(axis=0))
        if name == "where":
            found = [(plane.size, int(plane.sum())) for plane in (p[p > int(LIMIT * 2 ** SCALE[dtype])] for p in self.integers(dtype))]
            return [float(sum(s for _, s in found) * unit / sum(n for n, _ in found))]
        if name == "histogram":
            return np.histogram(cube, np.linspace(*RANGE, BINS + 1))[0].astype("f8").tolist()
        if name in ("median", "quantile"):
            values, rank = np.sort(cube, axis=None), (cube.size - 1) * {"median": 0.5, "quantile": 0.9}[name]
            low = math.floor(rank)
            a, b = (Fraction(float(values[min(i, values.size - 1)])) for i in (low, low + 1))
            return [float(a + (b - a) * Fraction(rank - low))]
        if name == "median_axis0":
            values, middle = np.sort(cube.reshape(len(cube), -1)[:, places(cube[0].size)], axis=0).astype("f8"), len(cube) // 2
            return (values[middle] if len(cube) % 2 else (values[middle - 1] + values[middle]) / 2).tolist()
        if name == "weights":
            weights = [Fraction(w) for w in np.cos(np.deg2rad(self.lat)).tolist()]
            rows = np.zeros(self.shape[1], "i8")
            for plane in self.integers(dtype):
                rows += plane.reshape(self.shape[1:]).sum(axis=1)
            total = sum(w * int(row) for w, row in zip(weights, rows)) * unit
            return [float(total / (sum(weights) * self.shape[0] * self.shape[2]))]
        means = lambda sums, n: [float(int(s) * unit / n) for s in np.ravel(sums)]  # noqa: E731
        if name in ("axis0", "std_axis0"):
            chosen = np.array([plane[places(plane.size)] for plane in self.integers(dtype)])
            if name == "axis0":
                return means(chosen.sum(axis=0), len(cube))
            return [root(Fraction(len(cube) * sum(v * v for v in c) - sum(c) ** 2, len(cube) ** 2) * unit * unit) for c in chosen.T.tolist()]
        if name in ("axis1", "axis2"):
            axis = int(name[-1])
            sums = np.concatenate([plane.reshape(self.shape[1:]).sum(axis=axis - 1) for plane in self.integers(dtype)])
            return means(sums[places(sums.size)], self.shape[axis])
        if name == "label":
            return means(sum(plane.reshape(self.shape[1:]).sum(axis=1) for plane in self.integers(dtype)), self.shape[0] * self.shape[2])
        if name in ("month", "month_map"):
            sums, counts = {}, {}
            for month, plane in zip(self.month.tolist(), self.integers(dtype)):
                sums[month] = sums.get(month, 0) + plane
                counts[month] = counts.get(month, 0) + 1
            if name == "month":
                return [float(int(sums[m].sum()) * unit / (counts[m] * sums[m].size)) for m in sorted(sums)]
            flat = np.concatenate([sums[m] for m in sorted(sums)])
            return [float(int(flat[i]) * unit / counts[sorted(sums)[i // cube[0].size]]) for i in places(flat.size)]
        assert name == "rolling"
        # The first windows are not full.
        chosen = [divmod(int(i), cube[0].size) for i in places(cube.size)]
        flat = cube.reshape(len(cube), -1)
        return [math.nan if t < WINDOW - 1 else math.fsum(flat[t + 1 - WINDOW : t + 1, at].tolist()) / WINDOW for t, at in chosen]


def places(size):
    return np.linspace(0, size - 1, 50).astype(int)


def sample(values):
    """Some answers of many."""
    values = np.ravel(values)
    return values[places(values.size)].astype("f8").tolist()


def root(fraction):
    scale = 1 << 200
    return float(Fraction(math.isqrt(fraction.numerator * scale * scale // fraction.denominator), scale))


def units_apart(a, b):
    """Doubles between two numbers."""
    if math.isnan(a) and math.isnan(b):
        return 0
    bits = [struct.unpack("<q", struct.pack("<d", x))[0] for x in (a, b)]
    first, second = (n if n >= 0 else -(n + (1 << 63)) for n in bits)
    return abs(first - second)


# ---- libraries ----


class Library:
    """Opens the data; has a method for each supported case."""

    def __init__(self, data):
        self.data = data

    def prepare(self):
        """Writes its files, which is not timed."""


class Tesseral(Library):
    def prepare(self):
        import tesseral

        coords = {"time": self.data.time, "lat": self.data.lat}
        dims = {"v": ("time", "lat", "lon"), "time": ("time",), "lat": ("lat",)}
        attrs = {"time": {"units": "days since 2001-01-01", "calendar": "standard"}}
        for dtype in ("f4", "f8"):
            if self.data.file(f"{dtype}.tet").exists():
                continue
            cube = self.data.cube(dtype)
            chunk = (min(25, cube.shape[0]), *cube.shape[1:])
            arrays = {"v": cube, "time": coords["time"][: cube.shape[0]], "lat": coords["lat"]}
            # Files have statistics of chunks by default, which would answer most of the questions without a look at the cells.
            tesseral.write(self.data.file(f"{dtype}.tet"), arrays, dims=dims, attrs=attrs, chunks={"v": chunk}, statistics=False)
            if dtype == "f4":
                tesseral.write(self.data.file("stored.tet"), arrays, dims=dims, attrs=attrs, chunks={"v": chunk})

    def open(self):
        import tesseral

        self.v = {name: tesseral.open(self.data.file(f"{name}.tet"))["v"] for name in ("f4", "f8", "stored")}

    def sum(self):
        return self.v["f4"].sum()

    def sum_f64(self):
        return self.v["f8"].sum()

    def var(self):
        return self.v["f4"].var()

    def count(self):
        return self.v["f4"].count()

    def min_f64(self):
        return self.v["f8"].min()

    def axis0_f64(self):
        return self.v["f8"].mean(0)

    def axis1(self):
        return self.v["f4"].mean(1)

    def std_axis0(self):
        return self.v["f4"].std(0)

    def max_axis0(self):
        return self.v["f4"].max(0)

    def label(self):
        return self.v["f4"].mean((0, 2))

    def month_map(self):
        return self.v["f4"].groupby("time.month").mean()

    def quantile(self):
        return self.v["f4"].quantile(0.9)

    def median_axis0(self):
        return self.v["f4"].median(0)

    def histogram(self):
        return self.v["f4"].histogram(BINS, RANGE)[0]

    def mean(self):
        return self.v["f4"].mean()

    def mean_f64(self):
        return self.v["f8"].mean()

    def std(self):
        return self.v["f4"].std()

    def std_f64(self):
        return self.v["f8"].std()

    def min(self):
        return self.v["f4"].min()

    def all(self):
        return list(self.v["f4"].statistics("count", "min", "max", "mean", "std").values())

    def axis0(self):
        return self.v["f4"].mean(0)

    def axis2(self):
        return self.v["f4"].mean(2)

    def where(self):
        return self.v["f4"].mean(where=f"v > {LIMIT}")

    def month(self):
        return self.v["f4"].groupby("time.month").statistics("mean", axis=...)["mean"]

    def weights(self):
        return self.v["f4"].mean(weights="cos(lat)")

    def median(self):
        return self.v["f4"].median()

    def rolling(self):
        return self.v["f4"].rolling(time=WINDOW).mean()

    def stored(self):
        return self.v["stored"].sum()


class Numpy(Library):
    def open(self):
        self.v = {dtype: self.data.cube(dtype) for dtype in ("f4", "f8")}

    def sum(self):
        return self.v["f4"].sum()

    def sum_f64(self):
        return self.v["f8"].sum()

    def var(self):
        return self.v["f4"].var()

    def count(self):
        return np.count_nonzero(~np.isnan(self.v["f4"]))

    def min_f64(self):
        return self.v["f8"].min()

    def axis0_f64(self):
        return self.v["f8"].mean(axis=0)

    def axis1(self):
        return self.v["f4"].mean(axis=1)

    def std_axis0(self):
        return self.v["f4"].std(axis=0)

    def max_axis0(self):
        return self.v["f4"].max(axis=0)

    def label(self):
        return self.v["f4"].mean(axis=(0, 2))

    def month(self):
        return [self.v["f4"][self.data.month == month].mean() for month in np.unique(self.data.month)]

    def month_map(self):
        return np.stack([self.v["f4"][self.data.month == month].mean(axis=0) for month in np.unique(self.data.month)])

    def quantile(self):
        return np.quantile(self.v["f4"], 0.9)

    def median_axis0(self):
        return np.median(self.v["f4"], axis=0)

    def histogram(self):
        return np.histogram(self.v["f4"], BINS, RANGE)[0]

    def mean(self):
        return self.v["f4"].mean()

    def mean_f64(self):
        return self.v["f8"].mean()

    def std(self):
        return self.v["f4"].std()

    def std_f64(self):
        return self.v["f8"].std()

    def min(self):
        return self.v["f4"].min()

    def all(self):
        v = self.v["f4"]
        return [v.size, v.min(), v.max(), v.mean(), v.std()]

    def axis0(self):
        return self.v["f4"].mean(axis=0)

    def axis2(self):
        return self.v["f4"].mean(axis=2)

    def where(self):
        v = self.v["f4"]
        return v.mean(where=v > LIMIT)

    def weights(self):
        return np.average(self.v["f4"], weights=np.broadcast_to(np.cos(np.deg2rad(self.data.lat))[None, :, None], self.data.shape))

    def median(self):
        return np.median(self.v["f4"])


class Float64(Numpy):
    """NumPy with sums in doubles."""

    def sum(self):
        return self.v["f4"].sum(dtype="f8")

    def mean(self):
        return self.v["f4"].mean(dtype="f8")

    def std(self):
        return self.v["f4"].std(dtype="f8")

    def axis0(self):
        return self.v["f4"].mean(axis=0, dtype="f8")

    def axis2(self):
        return self.v["f4"].mean(axis=2, dtype="f8")

    def var(self):
        return self.v["f4"].var(dtype="f8")

    def axis1(self):
        return self.v["f4"].mean(axis=1, dtype="f8")

    def std_axis0(self):
        return self.v["f4"].std(axis=0, dtype="f8")

    def label(self):
        return self.v["f4"].mean(axis=(0, 2), dtype="f8")

    sum_f64 = mean_f64 = std_f64 = count = min = min_f64 = all = axis0_f64 = max_axis0 = where = month = month_map = None
    weights = median = quantile = median_axis0 = histogram = None


class Bottleneck(Library):
    def open(self):
        import bottleneck

        self.bn, self.v = bottleneck, {dtype: self.data.cube(dtype) for dtype in ("f4", "f8")}

    def sum(self):
        return self.bn.nansum(self.v["f4"])

    def sum_f64(self):
        return self.bn.nansum(self.v["f8"])

    def var(self):
        return self.bn.nanvar(self.v["f4"])

    def min_f64(self):
        return self.bn.nanmin(self.v["f8"])

    def axis0_f64(self):
        return self.bn.nanmean(self.v["f8"], axis=0)

    def axis1(self):
        return self.bn.nanmean(self.v["f4"], axis=1)

    def std_axis0(self):
        return self.bn.nanstd(self.v["f4"], axis=0)

    def max_axis0(self):
        return self.bn.nanmax(self.v["f4"], axis=0)

    def median_axis0(self):
        return self.bn.nanmedian(self.v["f4"], axis=0)

    def mean(self):
        return self.bn.nanmean(self.v["f4"])

    def mean_f64(self):
        return self.bn.nanmean(self.v["f8"])

    def std(self):
        return self.bn.nanstd(self.v["f4"])

    def std_f64(self):
        return self.bn.nanstd(self.v["f8"])

    def min(self):
        return self.bn.nanmin(self.v["f4"])

    def axis0(self):
        return self.bn.nanmean(self.v["f4"], axis=0)

    def axis2(self):
        return self.bn.nanmean(self.v["f4"], axis=2)

    def median(self):
        return self.bn.nanmedian(self.v["f4"])

    def rolling(self):
        return self.bn.move_mean(self.v["f4"], WINDOW, axis=0)


class Xarray(Library):
    """With bottleneck and flox, as it uses them where they are installed."""

    def open(self):
        import flox  # noqa: F401
        import xarray

        time = np.datetime64("2001-01-01", "ns") + self.data.time.astype("timedelta64[D]")
        cubes = {dtype: self.data.cube(dtype) for dtype in ("f4", "f8")}
        self.v = {
            dtype: xarray.DataArray(cube, dims=("time", "lat", "lon"), coords={"time": time[: len(cube)], "lat": self.data.lat})
            for dtype, cube in cubes.items()
        }

    def sum(self):
        return self.v["f4"].sum()

    def mean(self):
        return self.v["f4"].mean()

    def mean_f64(self):
        return self.v["f8"].mean()

    def var(self):
        return self.v["f4"].var()

    def std(self):
        return self.v["f4"].std()

    def count(self):
        return self.v["f4"].count()

    def min(self):
        return self.v["f4"].min()

    def axis0(self):
        return self.v["f4"].mean("time")

    def axis0_f64(self):
        return self.v["f8"].mean("time")

    def axis1(self):
        return self.v["f4"].mean("lat")

    def axis2(self):
        return self.v["f4"].mean("lon")

    def std_axis0(self):
        return self.v["f4"].std("time")

    def max_axis0(self):
        return self.v["f4"].max("time")

    def where(self):
        return self.v["f4"].where(self.v["f4"] > LIMIT).mean()

    def label(self):
        return self.v["f4"].mean(("time", "lon"))

    def month(self):
        return self.v["f4"].groupby("time.month").mean(...)

    def month_map(self):
        return self.v["f4"].groupby("time.month").mean()

    def weights(self):
        return self.v["f4"].weighted(np.cos(np.deg2rad(self.v["f4"]["lat"]))).mean()

    def median(self):
        return self.v["f4"].median()

    def quantile(self):
        return self.v["f4"].quantile(0.9)

    def median_axis0(self):
        return self.v["f4"].median("time")

    def rolling(self):
        return self.v["f4"].rolling(time=WINDOW).mean()


class Zarrs(Library):
    """Chunks decoded by zarrs, folded slab by slab with NumPy in doubles."""

    def prepare(self):
        import zarr

        cube = self.data.cube()
        zarr.create_array(self.data.file("f4.zarr"), data=np.asarray(cube), chunks=(min(25, cube.shape[0]), *cube.shape[1:]), compressors=None, overwrite=True)

    def open(self):
        import zarr

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
        self.v = zarr.open_array(self.data.file("f4.zarr"), mode="r")

    def slabs(self):
        depth = self.v.chunks[0]
        return (self.v[i : i + depth] for i in range(0, self.v.shape[0], depth))

    def sum(self):
        return sum(slab.sum(dtype="f8") for slab in self.slabs())

    def mean(self):
        return self.sum() / self.v.size

    def min(self):
        return min(slab.min() for slab in self.slabs())

    def axis0(self):
        return sum(slab.sum(axis=0, dtype="f8") for slab in self.slabs()) / self.v.shape[0]


class TileDB(Library):
    def prepare(self):
        import tiledb

        cube, path = self.data.cube(), str(self.data.file("f4.tiledb"))
        if Path(path).exists():
            return
        tiledb.from_numpy(path, np.asarray(cube), tile=(min(25, cube.shape[0]), *cube.shape[1:])).close()

    def open(self):
        import tiledb

        self.v = tiledb.open(str(self.data.file("f4.tiledb")))

    def where(self):
        return self.v.query(cond=f"attr('') > {LIMIT}").agg("mean")[...]

    def stored(self):
        return self.v.query().agg("sum")[...]


class Table(Library):
    """A column of cells in a Parquet file, with the month, the weight, the latitude and the place of each."""

    def prepare(self):
        import pyarrow
        from pyarrow import parquet

        if self.data.file("f4.parquet").exists():
            return
        for dtype in ("f4", "f8"):
            cube = self.data.cube(dtype)
            number = pyarrow.float32() if dtype == "f4" else pyarrow.float64()
            rest = [("month", pyarrow.int32()), ("w", pyarrow.float64()), ("lat", pyarrow.int32()), ("place", pyarrow.int32())]
            schema = pyarrow.schema([("v", number), *rest])
            weights = np.repeat(np.cos(np.deg2rad(self.data.lat)), cube.shape[2])
            latitudes, places = np.repeat(np.arange(cube.shape[1], dtype="i4"), cube.shape[2]), np.arange(cube[0].size, dtype="i4")
            with parquet.ParquetWriter(self.data.file(f"{dtype}.parquet"), schema, compression="none", use_dictionary=["month", "w", "lat"]) as out:
                for month, plane in zip(self.data.month, cube):
                    columns = {"v": plane.ravel(), "month": np.full(plane.size, month, "i4"), "w": weights, "lat": latitudes, "place": places}
                    out.write_table(pyarrow.table(columns, schema=schema))


class DuckDB(Table):
    def open(self):
        import duckdb

        self.connection = duckdb.connect()

    def ask(self, what, dtype="f4", rest=""):
        return self.connection.execute(f"SELECT {what} FROM '{self.data.file(dtype + '.parquet')}' {rest}").fetchall()

    def sum(self):
        return self.ask("sum(v::DOUBLE)")[0][0]

    def sum_f64(self):
        return self.ask("sum(v)", "f8")[0][0]

    def var(self):
        return self.ask("var_pop(v)")[0][0]

    def count(self):
        return self.ask("count(v) FILTER (NOT isnan(v))")[0][0]

    def min_f64(self):
        return self.ask("min(v)", "f8")[0][0]

    def axis0(self):
        return self.rows("place, avg(v) AS m", "GROUP BY place ORDER BY place")

    def max_axis0(self):
        return self.rows("place, max(v) AS m", "GROUP BY place ORDER BY place")

    def label(self):
        return self.rows("lat, avg(v) AS m", "GROUP BY lat ORDER BY lat")

    def month_map(self):
        return self.rows("month, place, avg(v) AS m", "GROUP BY month, place ORDER BY month, place")

    def rows(self, what, rest):
        return self.connection.execute(f"SELECT {what} FROM '{self.data.file('f4.parquet')}' {rest}").fetchnumpy()["m"]

    def quantile(self):
        return self.ask("quantile_cont(v, 0.9)")[0][0]

    def histogram(self):
        low, width = RANGE[0], (RANGE[1] - RANGE[0]) / BINS
        found = dict(self.ask(f"least(floor((v - {low}) / {width}), {BINS - 1})::INT AS bin, count(*)", rest=f"WHERE v BETWEEN {low} AND {RANGE[1]} GROUP BY bin"))
        return [found.get(i, 0) for i in range(BINS)]

    def mean(self):
        return self.ask("avg(v)")[0][0]

    def mean_f64(self):
        return self.ask("avg(v)", "f8")[0][0]

    def std(self):
        return self.ask("stddev_pop(v)")[0][0]

    def std_f64(self):
        return self.ask("stddev_pop(v)", "f8")[0][0]

    def min(self):
        return self.ask("min(v)")[0][0]

    def all(self):
        return self.ask("count(v), min(v), max(v), avg(v), stddev_pop(v)")[0]

    def where(self):
        return self.ask("avg(v)", rest=f"WHERE v > {LIMIT}")[0][0]

    def month(self):
        return self.rows("month, avg(v) AS m", "GROUP BY month ORDER BY month")

    def weights(self):
        return self.ask("sum(v * w) / sum(w)")[0][0]

    def median(self):
        return self.ask("median(v)")[0][0]


class Polars(Table):
    def open(self):
        import polars

        self.pl = polars
        self.v = {dtype: polars.scan_parquet(self.data.file(f"{dtype}.parquet")) for dtype in ("f4", "f8")}

    def ask(self, *what, dtype="f4"):
        return self.v[dtype].select(*what).collect(engine="streaming").row(0)

    def sum(self):
        return self.ask(self.pl.col("v").sum())[0]

    def sum_f64(self):
        return self.ask(self.pl.col("v").sum(), dtype="f8")[0]

    def var(self):
        return self.ask(self.pl.col("v").var(ddof=0))[0]

    def count(self):
        return self.ask(self.pl.col("v").is_not_nan().sum())[0]

    def min_f64(self):
        return self.ask(self.pl.col("v").min(), dtype="f8")[0]

    def grouped(self, answer, *keys):
        return self.v["f4"].group_by(*keys).agg(answer).sort(*keys).collect(engine="streaming")["v"].to_numpy()

    def axis0(self):
        return self.grouped(self.pl.col("v").mean(), "place")

    def max_axis0(self):
        return self.grouped(self.pl.col("v").max(), "place")

    def label(self):
        return self.grouped(self.pl.col("v").mean(), "lat")

    def month_map(self):
        return self.grouped(self.pl.col("v").mean(), "month", "place")

    def quantile(self):
        return self.ask(self.pl.col("v").quantile(0.9, interpolation="linear"))[0]

    def histogram(self):
        v, (low, high) = self.pl.col("v"), RANGE
        part = (((v - low) * (BINS / (high - low))).floor().cast(self.pl.Int32)).clip(0, BINS - 1).alias("part")
        found = self.v["f4"].filter(v.is_between(low, high)).group_by(part).agg(self.pl.len()).sort("part").collect(engine="streaming")
        counts = np.zeros(BINS)
        counts[found["part"].to_numpy()] = found["len"].to_numpy()
        return counts

    def mean(self):
        return self.ask(self.pl.col("v").mean())[0]

    def mean_f64(self):
        return self.ask(self.pl.col("v").mean(), dtype="f8")[0]

    def std(self):
        return self.ask(self.pl.col("v").std(ddof=0))[0]

    def std_f64(self):
        return self.ask(self.pl.col("v").std(ddof=0), dtype="f8")[0]

    def min(self):
        return self.ask(self.pl.col("v").min())[0]

    def all(self):
        v = self.pl.col("v")
        return self.ask(v.count().alias("n"), v.min().alias("low"), v.max().alias("high"), v.mean().alias("mean"), v.std(ddof=0).alias("std"))

    def where(self):
        return self.v["f4"].filter(self.pl.col("v") > LIMIT).select(self.pl.col("v").mean()).collect(engine="streaming").row(0)[0]

    def month(self):
        return self.v["f4"].group_by("month").agg(self.pl.col("v").mean()).sort("month").collect(engine="streaming")["v"].to_list()

    def weights(self):
        return self.ask((self.pl.col("v") * self.pl.col("w")).sum() / self.pl.col("w").sum())[0]

    def median(self):
        return self.ask(self.pl.col("v").median())[0]


LIBRARIES = {
    "tesseral": Tesseral, "numpy": Numpy, "numpy float64": Float64, "bottleneck": Bottleneck, "xarray+flox": Xarray, "zarr+zarrs": Zarrs,
    "tiledb": TileDB, "duckdb": DuckDB, "polars": Polars,
}


def serve(name, data, fresh):
    """Runs cases named on standard input, and prints the time and the answer of each."""
    library = LIBRARIES[name](data)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        library.prepare()
        if not fresh:
            library.open()
        print(json.dumps({"cases": [case for case in CASES if getattr(library, case, None)]}), file=out, flush=True)
    except Exception as error:  # noqa: BLE001: the table shows why a library is absent
        print(json.dumps({"absent": f"{type(error).__name__}: {error}".splitlines()[0]}), file=out, flush=True)
        return
    for line in sys.stdin:
        case = line.strip()
        begin = time.perf_counter()
        try:
            if fresh:
                library.open()
            answer = getattr(library, case)()
            seconds = time.perf_counter() - begin
            flat = np.ravel(np.ma.asarray(answer))
            flat = flat[places(flat.size)] if case in SAMPLED else flat
            print(json.dumps({"seconds": seconds, "answer": flat.astype("f8").tolist()}), file=out, flush=True)
            del answer, flat
        except Exception as error:  # noqa: BLE001
            print(json.dumps({"failed": f"{type(error).__name__}: {error}".splitlines()[0][:120]}), file=out, flush=True)


class Worker:
    """A library in a process of its own, or with `fresh` in one for each run."""

    def __init__(self, name, args):
        self.fresh, self.found, self.process = args.fresh, {}, None
        self.command = [sys.executable, __file__, "--serve", name, "--data", args.data, "--shape", ",".join(map(str, args.shape))]
        self.command += ["--fresh"] if args.fresh else []
        ready = self.start()
        self.absent, self.cases = ready.get("absent"), ready.get("cases", [])

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return json.loads(self.process.stdout.readline() or '{"absent": "it ended"}')

    def run(self, case):
        if self.process is None:
            self.start()
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline() or '{"failed": "it ended"}')
        self.found.setdefault(case, []).append(found)
        if "failed" in found:
            self.cases.remove(case)
        if self.fresh:
            self.close()

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def median(values):
    return sorted(values)[len(values) // 2]


def shown(seconds):
    return f"{seconds * 1e3:.3g} ms"


def report(workers, cases, exact):
    names = [name for name, worker in workers.items() if not worker.absent]
    print("| case | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names))
    for case in cases:
        row = []
        ours = None
        for name in names:
            runs = workers[name].found.get(case, [])
            seconds = [run["seconds"] for run in runs[1:] or runs if "seconds" in run]
            if not seconds:
                row.append("–" if not runs else runs[0]["failed"])
                continue
            middle = median(seconds)
            ours = ours or middle
            apart = max(map(units_apart, runs[0]["answer"], exact[case])) if exact[case] and len(exact[case]) == len(runs[0]["answer"]) else None
            far = "" if apart is None else f", {apart:,} ulp" if apart < 10**6 else f", {apart:.0e} ulp"
            row.append(shown(middle) + ("" if name == "tesseral" else f" ({middle / ours:.2g}×)") + far)
        print(f"| {CASES[case]} | " + " | ".join(row) + " |", flush=True)
    for name, worker in workers.items():
        if worker.absent:
            print(f"\nwithout {name}: {worker.absent}")


def exact_answers(data, cases):
    """The exact answers, which are kept beside the data."""
    path = data.file("exact.json")
    known = json.loads(path.read_text()) if path.exists() else {}
    for case in cases:
        if case not in known:
            known[case] = data.exact(case)
    path.write_text(json.dumps(known))
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data: checks that everything works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="open the files in a new process for each run")
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--library", action="append", choices=LIBRARIES)
    parser.add_argument("--data", help="the folder of the data, which is created if it does not exist")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--prepare", action="store_true", help="write the files and the exact answers, and measure nothing")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=lambda text: tuple(int(n) for n in text.split(",")))
    args = parser.parse_args()
    args.shape = args.shape or ((24, 60, 80) if args.quick else (250, 500, 500))
    if args.serve:
        return serve(args.serve, Data(args.data, args.shape), args.fresh)
    args.data = args.data or tempfile.mkdtemp(prefix="tesseral-reductions-")
    data = Data(args.data, args.shape)
    data.folder.mkdir(parents=True, exist_ok=True)
    if not data.file("f8.npy").exists():
        data.make()
    cases = [case for case in CASES if case in (args.only or CASES)]
    exact = exact_answers(data, cases)
    workers = {name: Worker(name, args) for name in LIBRARIES if name in (args.library or LIBRARIES)}
    if args.fresh or args.prepare:
        for worker in workers.values():
            worker.close()
    for case in [] if args.prepare else cases:
        for _ in range(args.rounds + 1):
            for worker in workers.values():
                if case in worker.cases:
                    worker.run(case)
    for worker in workers.values():
        worker.close()
    if not args.prepare:
        report(workers, cases, exact)
    if not (args.keep or args.prepare):
        shutil.rmtree(args.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
