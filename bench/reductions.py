"""Reductions compared with NumPy, bottleneck, xarray with flox, zarr-python with zarrs, TileDB, DuckDB and Polars, with the error of each answer.

    python bench/reductions.py [--quick] [--rounds N] [--only CASE]... [--data FOLDER] [--keep]

Each library runs in a separate process, reads the same cells in the format that it is made for, and keeps it open. Libraries take turns:
one run of a case by each, then the next round, so that other load on the machine affects all of them. The table has the median of the
rounds, and how many units in the last place of a double each answer is from the exact one, computed with integers.

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

CASES = {
    "sum": "sum of float32",
    "mean": "mean of float32",
    "mean_f64": "mean of float64",
    "std": "standard deviation of float32",
    "std_f64": "standard deviation of float64",
    "min": "minimum of float32",
    "all": "count, minimum, maximum, mean and standard deviation of float32",
    "axis0": "mean of float32 over the first axis",
    "axis2": "mean of float32 over the last axis",
    "where": f"mean of the cells above {LIMIT:g}",
    "month": "mean by month of the time axis",
    "weights": "mean with the cosines of latitudes as weights",
    "median": "median of float32",
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
        if case in ("sum", "mean", "mean_f64", "std", "std_f64", "all", "stored"):
            n, total, squares = self.moments(dtype)
            mean, std = float(total * unit / n), root(Fraction(n * squares - total * total, n * n) * unit * unit)
            if case == "all":
                cube = self.cube(dtype)
                return [float(n), float(cube.min()), float(cube.max()), mean, std]
            return [{"sum": float(total * unit), "stored": float(total * unit), "mean": mean, "std": std}[case.removesuffix("_f64")]]
        cube = self.cube()
        if case == "min":
            return [float(cube.min())]
        if case == "where":
            found = [(plane.size, int(plane.sum())) for plane in (p[p > int(LIMIT * 2 ** SCALE[dtype])] for p in self.integers(dtype))]
            return [float(sum(s for _, s in found) * unit / sum(n for n, _ in found))]
        if case == "month":
            sums = {}
            for month, plane in zip(self.month.tolist(), self.integers(dtype)):
                n, total = sums.get(month, (0, 0))
                sums[month] = (n + plane.size, total + int(plane.sum()))
            return [float(total * unit / n) for _, (n, total) in sorted(sums.items())]
        if case == "weights":
            weights = [Fraction(w) for w in np.cos(np.deg2rad(self.lat)).tolist()]
            rows = np.zeros(self.shape[1], "i8")
            for plane in self.integers(dtype):
                rows += plane.reshape(self.shape[1:]).sum(axis=1)
            total = sum(w * int(row) for w, row in zip(weights, rows)) * unit
            return [float(total / (sum(weights) * self.shape[0] * self.shape[2]))]
        if case in ("axis0", "axis2"):
            axis = int(case[-1])
            sums = sum(plane for plane in self.integers(dtype)) if axis == 0 else np.concatenate([p.reshape(self.shape[1:]).sum(axis=1) for p in self.integers(dtype)])
            return sample([float(int(s) * unit / self.shape[axis]) for s in np.ravel(sums)[places(sums.size)]], sums.size)
        if case == "median":
            values = np.sort(cube, axis=None)
            middle = values.size // 2
            return [float(values[middle]) if values.size % 2 else float((Fraction(float(values[middle - 1])) + Fraction(float(values[middle]))) / 2)]
        first = cube[:WINDOW].astype("f8").sum(axis=0) / WINDOW
        return sample([float(first.ravel()[0])], None) if case == "rolling" else None


def places(size):
    return np.linspace(0, size - 1, 50).astype(int)


def sample(values, size):
    """Some answers of many."""
    values = np.ravel(values)
    return [float(v) for v in (values if size is None or values.size != size else values[places(size)])] if len(values) != 50 else [float(v) for v in values]


def root(fraction):
    scale = 1 << 200
    return float(Fraction(math.isqrt(fraction.numerator * scale * scale // fraction.denominator), scale))


def units_apart(a, b):
    """Doubles between two numbers."""
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
            tesseral.write(self.data.file(f"{dtype}.tet"), arrays, dims=dims, attrs=attrs, chunks={"v": chunk})
            if dtype == "f4":
                tesseral.write(self.data.file("stored.tet"), arrays, dims=dims, attrs=attrs, chunks={"v": chunk}, statistics=True)

    def open(self):
        import tesseral

        self.v = {name: tesseral.open(self.data.file(f"{name}.tet"))["v"] for name in ("f4", "f8", "stored")}

    def sum(self):
        return self.v["f4"].sum()

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
        return self.v["f4"].rolling(time=WINDOW).mean()[WINDOW - 1, 0, 0]

    def stored(self):
        return self.v["stored"].sum()


class Numpy(Library):
    def open(self):
        self.v = {dtype: self.data.cube(dtype) for dtype in ("f4", "f8")}

    def sum(self):
        return self.v["f4"].sum()

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

    mean_f64 = std_f64 = min = all = where = weights = median = None


class Bottleneck(Library):
    def open(self):
        import bottleneck

        self.bn, self.v = bottleneck, {dtype: self.data.cube(dtype) for dtype in ("f4", "f8")}

    def sum(self):
        return self.bn.nansum(self.v["f4"])

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
        return self.bn.move_mean(self.v["f4"], WINDOW, axis=0)[WINDOW - 1, 0, 0]


class Xarray(Library):
    """With bottleneck and flox, as it uses them where they are installed."""

    def open(self):
        import flox  # noqa: F401
        import xarray

        coords = {"time": np.datetime64("2001-01-01", "ns") + self.data.time.astype("timedelta64[D]"), "lat": self.data.lat}
        self.v = xarray.DataArray(self.data.cube(), dims=("time", "lat", "lon"), coords=coords)

    def mean(self):
        return self.v.mean()

    def std(self):
        return self.v.std()

    def axis0(self):
        return self.v.mean("time")

    def axis2(self):
        return self.v.mean("lon")

    def where(self):
        return self.v.where(self.v > LIMIT).mean()

    def month(self):
        return self.v.groupby("time.month").mean(...)

    def weights(self):
        return self.v.weighted(np.cos(np.deg2rad(self.v["lat"]))).mean()

    def rolling(self):
        return self.v.rolling(time=WINDOW).mean()[WINDOW - 1, 0, 0]


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
    """A column of cells in a Parquet file, with the month and the weight of each."""

    def prepare(self):
        import pyarrow
        from pyarrow import parquet

        if self.data.file("f4.parquet").exists():
            return
        for dtype in ("f4", "f8"):
            cube = self.data.cube(dtype)
            schema = pyarrow.schema([("v", pyarrow.float32() if dtype == "f4" else pyarrow.float64()), ("month", pyarrow.int32()), ("w", pyarrow.float64())])
            weights = np.repeat(np.cos(np.deg2rad(self.data.lat)), cube.shape[2])
            with parquet.ParquetWriter(self.data.file(f"{dtype}.parquet"), schema, compression="none", use_dictionary=["month", "w"]) as out:
                for month, plane in zip(self.data.month, cube):
                    out.write_table(pyarrow.table({"v": plane.ravel(), "month": np.full(plane.size, month, "i4"), "w": weights}, schema=schema))


class DuckDB(Table):
    def open(self):
        import duckdb

        self.connection = duckdb.connect()

    def ask(self, what, dtype="f4", rest=""):
        return self.connection.execute(f"SELECT {what} FROM '{self.data.file(dtype + '.parquet')}' {rest}").fetchall()

    def sum(self):
        return self.ask("sum(v::DOUBLE)")[0][0]

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
        return [mean for _, mean in self.ask("month, avg(v)", rest="GROUP BY month ORDER BY month")]

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


def serve(name, data):
    """Runs cases named on standard input, and prints the time and the answer of each."""
    library = LIBRARIES[name](data)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        library.prepare()
        library.open()
        print(json.dumps({"cases": [case for case in CASES if getattr(library, case, None)]}), file=out, flush=True)
    except Exception as error:  # noqa: BLE001: the table shows why a library is absent
        print(json.dumps({"absent": f"{type(error).__name__}: {error}".splitlines()[0]}), file=out, flush=True)
        return
    for line in sys.stdin:
        case = line.strip()
        begin = time.perf_counter()
        try:
            answer = getattr(library, case)()
            seconds = time.perf_counter() - begin
            flat = np.ravel(np.ma.asarray(answer)).astype("f8")
            flat = flat[places(flat.size)] if case in ("axis0", "axis2") else flat
            print(json.dumps({"seconds": seconds, "answer": flat.tolist()}), file=out, flush=True)
        except Exception as error:  # noqa: BLE001
            print(json.dumps({"failed": f"{type(error).__name__}: {error}".splitlines()[0][:120]}), file=out, flush=True)


class Worker:
    def __init__(self, name, args):
        command = [sys.executable, __file__, "--serve", name, "--data", args.data, "--shape", ",".join(map(str, args.shape))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline() or '{"absent": "it ended"}')
        self.absent, self.cases, self.found = ready.get("absent"), ready.get("cases", []), {}

    def run(self, case):
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline() or '{"failed": "it ended"}')
        self.found.setdefault(case, []).append(found)
        if "failed" in found:
            self.cases.remove(case)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


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
        print(f"| {CASES[case]} | " + " | ".join(row) + " |")
    for name, worker in workers.items():
        if worker.absent:
            print(f"\nwithout {name}: {worker.absent}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data: checks that everything works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--library", action="append", choices=LIBRARIES)
    parser.add_argument("--data", help="the folder of the data, which is created if it does not exist")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--shape", type=lambda text: tuple(int(n) for n in text.split(",")))
    args = parser.parse_args()
    args.shape = args.shape or ((24, 60, 80) if args.quick else (120, 500, 500))
    if args.serve:
        return serve(args.serve, Data(args.data, args.shape))
    args.data = args.data or tempfile.mkdtemp(prefix="tesseral-reductions-")
    data = Data(args.data, args.shape)
    data.folder.mkdir(parents=True, exist_ok=True)
    if not data.file("f8.npy").exists():
        data.make()
    workers = {name: Worker(name, args) for name in LIBRARIES if name in (args.library or LIBRARIES)}
    cases = [case for case in CASES if case in (args.only or CASES)]
    for case in cases:
        for _ in range(args.rounds + 1):
            for worker in workers.values():
                if case in worker.cases:
                    worker.run(case)
    for worker in workers.values():
        worker.close()
    report(workers, cases, {case: data.exact(case) for case in cases})
    if not args.keep:
        shutil.rmtree(args.data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
