"""Reading the formats that data starts in, beside the packages that people read them with: NetCDF-4, HDF5, Zarr, many files as one dataset.

    python bench/interchange.py [--quick] [--rounds N] [--only CASE]... [--data FOLDER] [--report FILE]

Each run is a process of its own that opens the file and times one operation, the first one: result memory is fresh, nothing was decoded before.
Libraries take turns, in reverse order in every other round. The table has the medians. Libraries run with their defaults. Data is read
through a warm page cache. Every answer is compared with the cells that were written.

Requirements: bench/requirements.txt and the package `tesseral`. A library that does not import is left out.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from peers import WINDOWS, digest, windows

#: Extents of windows.
WINDOW = (8, 32, 32)
FILES = 1000

#: Case: what it is, file, and peers with the factor that is the goal.
CASES = {
    "nc4_read": ("NetCDF-4, shuffle and deflate: full read", "cube.nc", {"h5py": 1.8, "netCDF4": 1.5}),
    "h5_read": ("HDF5, contiguous: full read", "contiguous.h5", {"h5py": 3}),
    "zarr_zstd_read": ("Zarr v3, zstd: full read", "zstd.zarr", {"zarrs": 1.2, "zarr-python": None, "zarr-python+zarrs": 1.3}),
    "zarr_blosc_read": ("Zarr v3, blosc: full read", "blosc.zarr", {"zarrs": 1.2, "zarr-python": None, "zarr-python+zarrs": 1.3}),
    "nc4_window": ("NetCDF-4: 50 windows of 8×32×32", "cube.nc", {"h5py": 5, "netCDF4": 5}),
    "h5_window": ("HDF5, contiguous: 50 windows", "contiguous.h5", {"h5py": 5}),
    "h5_chunks_window": ("HDF5, chunks without filters: 50 windows", "chunks.h5", {"h5py": 5}),
    "zarr_zstd_window": ("Zarr v3, zstd: 50 windows", "zstd.zarr", {"zarrs": 5, "zarr-python": 5, "zarr-python+zarrs": 5}),
    "zarr_blosc_window": ("Zarr v3, blosc: 50 windows", "blosc.zarr", {"zarrs": 5, "zarr-python": 5, "zarr-python+zarrs": 5}),
    "open_files": ("open 1,000 chunked NetCDF-4 files as one dataset, through an index", "all.tix", {"open_mfdataset": 20}),
    "files_read": ("the same, and read a time series of one cell", "all.tix", {"open_mfdataset": None}),
}


def cells(shape):
    """Like a weather field, as those of bench/compare: smooth along every axis, with noise of six bits on top, in multiples of 1/64."""
    random = np.random.default_rng(21)
    t, y, x = ((900 * np.sin(2 * np.pi * np.arange(n) / period)).astype("i4") for n, period in zip(shape, (37, 211, 307)))
    out = np.empty(shape, "f4")
    for at in range(shape[0]):
        out[at] = (18000 + t[at] + y[:, None] + x[None, :] + random.integers(0, 64, shape[1:], "i4")) / np.float32(64)
    return out


def make(folder, shape, chunk, files):
    """Files and answers."""
    import h5py
    import netCDF4
    import zarr
    from zarr.codecs import BloscCodec, ZstdCodec

    done = folder / "answers.json"
    if done.exists():
        return json.loads(done.read_text())
    cube = cells(shape)
    np.save(folder / "cube.npy", cube)
    with netCDF4.Dataset(folder / "cube.nc", "w") as out:
        for name, n in zip("tyx", shape):
            out.createDimension(name, n)
        out.createVariable("cube", "f4", tuple("tyx"), zlib=True, shuffle=True, complevel=4, chunksizes=chunk, fill_value=False)[:] = cube
    with h5py.File(folder / "contiguous.h5", "w") as out:
        out["cube"] = cube
    with h5py.File(folder / "chunks.h5", "w") as out:
        out.create_dataset("cube", data=cube, chunks=chunk)
    for name, codec in (("zstd", ZstdCodec()), ("blosc", BloscCodec(cname="zstd", shuffle="shuffle"))):
        root = zarr.create_group(folder / f"{name}.zarr", zarr_format=3, overwrite=True)
        root.create_array("cube", data=cube, chunks=chunk, compressors=[codec], dimension_names=list("tyx"))
        zarr.consolidate_metadata(root.store)
    small = folder / "files"
    small.mkdir(exist_ok=True)
    days = 4
    for at in range(files):
        with netCDF4.Dataset(small / f"{at:05}.nc", "w") as out:
            for name, n in (("time", None), ("lat", 40), ("lon", 60)):
                out.createDimension(name, n)
            for name, n in (("lat", 40), ("lon", 60)):
                out.createVariable(name, "f4", [name])[:] = np.arange(n)
            time_ = out.createVariable("time", "i4", ["time"])
            time_.units = "days since 2000-01-01"
            time_[:] = np.arange(days) + days * at
            for name in ("air", "rain"):
                out.createVariable(name, "f4", ["time", "lat", "lon"], zlib=True, shuffle=True, chunksizes=(1, 40, 60))[:] = cube[:days, :40, :60] + at
    paths = sorted(small.iterdir())
    tet = os.environ.get("TET_BIN") or shutil.which("tet") or Path(__file__).parents[1] / "target/release/tet"
    subprocess.run([tet, "mosaic", folder / "all.tix", "--along", "time", *paths], check=True, stdout=subprocess.DEVNULL)
    series = np.concatenate([cube[:days, 20, 30] + np.float32(at) for at in range(files)])
    answers = {"read": digest([cube]), "window": digest(cube[box] for box in windows(shape, WINDOW)), "files": files * days, "series": digest([series])}
    done.write_text(json.dumps(answers))
    return answers


def opener(who, path):
    """A function that reads a box of the cube in a file: `...` for all of it."""
    if who == "tesseral":
        import tesseral

        return tesseral.open(path)["cube"].__getitem__
    if who == "h5py":
        import h5py

        return h5py.File(path)["cube"].__getitem__
    if who == "netCDF4":
        import netCDF4

        variable = netCDF4.Dataset(path)["cube"]
        variable.set_auto_maskandscale(False)
        return variable.__getitem__
    import zarr

    if who == "zarr-python+zarrs":
        import zarrs  # noqa: F401

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    return zarr.open_group(path, mode="r")["cube"].__getitem__


def work(who, case, path, shape):
    """Seconds of the operation and its answer."""
    if case in ("open_files", "files_read"):
        # Packages are imported before the clock starts: dask, and the engines of xarray, of which some take long.
        warnings.simplefilter("ignore")
        import dask.array  # noqa: F401
        import xarray

        xarray.backends.list_engines()
        if who == "tesseral":
            opening = lambda: xarray.open_dataset(path, engine="tesseral", chunks={})
        else:
            files = sorted((path.parent / "files").iterdir())
            opening = lambda: xarray.open_mfdataset(files, combine="nested", concat_dim="time", data_vars="minimal", coords="minimal", compat="override")
        start = time.perf_counter()
        dataset = opening()
        if case == "open_files":
            return time.perf_counter() - start, dataset.sizes["time"]
        series = dataset["air"][:, 20, 30].values
        return time.perf_counter() - start, digest([series])
    read = opener(who, path)
    if case.endswith("read"):
        start = time.perf_counter()
        found = read(...)
        return time.perf_counter() - start, digest([found])
    wanted = windows(shape, WINDOW)
    start = time.perf_counter()
    found = [np.asarray(read(box)) for box in wanted]
    return time.perf_counter() - start, digest(found)


def expected(case, answers):
    if case == "open_files":
        return answers["files"]
    return answers["series" if case == "files_read" else "read" if case.endswith("read") else "window"]


def available(who):
    modules = {"zarr-python": ["zarr"], "zarr-python+zarrs": ["zarr", "zarrs"], "open_mfdataset": ["xarray", "dask", "netCDF4"]}
    if who == "zarrs":
        return rust_peer() is not None
    return all(importlib.util.find_spec(name) for name in modules.get(who, [who]))


def rust_peer():
    """The program of bench/peers, if `bench/compare` built it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[1] / "target"))
    path = Path(os.environ.get("BENCH_PEERS", target / "peers/release/tesseral-bench-peers"))
    return path if path.exists() else None


def measure(who, case, path, shape, chunk, answers):
    if who == "zarrs":
        kind = "read" if case.endswith("read") else "window"
        command = [rust_peer(), "zarrs", kind, path / "cube", "--label", case, "--runs", "0", "--seconds", "1"]
        extents = ["--shape", ",".join(map(str, shape)), "--chunk", ",".join(map(str, chunk))]
        found = json.loads(subprocess.run([*command, *extents], capture_output=True, text=True, check=True).stdout)
        if found.get("answer") != expected(case, answers):
            raise SystemExit(f"{who} {case}: {found.get('failed', 'a wrong answer')}")
        return found["seconds_first"] * (WINDOWS if kind == "window" else 1)
    done = subprocess.run([sys.executable, __file__, "--run", who, case, str(path), json.dumps(shape)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} {case}: {done.stderr}")
    seconds, answer = json.loads(done.stdout.splitlines()[-1])
    if answer != expected(case, answers):
        raise SystemExit(f"{who} {case}: a wrong answer")
    return seconds


def text(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def versions():
    from importlib.metadata import PackageNotFoundError, version

    for name in ("numpy", "h5py", "netCDF4", "xarray", "dask", "zarr", "zarrs"):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data: checks that everything works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=CASES, default=[])
    parser.add_argument("--data", type=Path, help="keep the data there, and use what is there")
    parser.add_argument("--report", type=Path, help="write the table there too")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        who, case, path, shape = args.run
        print(json.dumps(work(who, case, Path(path), tuple(json.loads(shape)))))
        return
    shape, chunk, files = ((24, 200, 300), (12, 50, 60), 20) if args.quick else ((240, 361, 720), (24, 91, 90), FILES)
    own = None if args.data else tempfile.mkdtemp(prefix="tesseral-interchange.")
    folder = args.data or Path(own)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        answers = make(folder, shape, chunk, files)
        times = {}
        for number in range(args.rounds):
            for case, (_, file, peers) in CASES.items():
                if args.only and case not in args.only:
                    continue
                everyone = [who for who in ("tesseral", *peers) if available(who)]
                for who in everyone if number % 2 == 0 else reversed(everyone):
                    times.setdefault((case, who), []).append(measure(who, case, folder / file, shape, chunk, answers))
        lines = ["| case | tesseral | peer | time | factor | goal |", "|---|---|---|---|---|---|"]
        for case, (title, _, peers) in CASES.items():
            for who, goal in peers.items():
                if (case, who) not in times:
                    continue
                ours, theirs = (statistics.median(times[case, one]) for one in ("tesseral", who))
                verdict = "–" if goal is None else f"≥ {goal:g}×, {'reached' if theirs / ours >= goal else 'missed'}"
                lines.append(f"| {title} | {text(ours)} | {who} | {text(theirs)} | {theirs / ours:.2f}× | {verdict} |")
        table = "\n".join(lines)
        print(f"{platform.machine()}, {os.cpu_count()} cores; {', '.join(versions())}; medians of {args.rounds} rounds\n\n{table}")
        if args.report:
            args.report.write_text(table + "\n")
    finally:
        if own:
            shutil.rmtree(own)


if __name__ == "__main__":
    main()
