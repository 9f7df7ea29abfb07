"""GRIB fields and tables beside the libraries that people read them with: ecCodes, pyarrow, Polars.

    python bench/tables.py [--quick] [--rounds N] [--only CASE]... [--data FOLDER]

Each library reads the same file in a process of its own, from the page cache, and returns the cells: GRIB with one thread, because the figure
is that of one core, tables with the threads that the library takes by default. Libraries take turns, one run by each and then the next round.
The table has the median of the rounds. Answers are compared: every value of GRIB fields bit for bit, tables as Arrow tables.

Requirements: numpy, eccodes, pyarrow, polars and the package `tesseral`. A library that does not import is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PACKINGS = ["grid_simple", "grid_ccsds", "grid_complex", "grid_complex_spatial_differencing", "grid_jpeg", "grid_png"]
CASES = {**{name: f"GRIB2 {name}, 16 bits, one thread" for name in PACKINGS}, "csv": "CSV", "parquet": "Parquet, zstd", "arrow": "Arrow IPC, zstd"}
PEERS = {**dict.fromkeys(PACKINGS, ["tesseral", "eccodes"]), "csv": ["tesseral", "pyarrow", "polars"], "parquet": ["tesseral", "pyarrow", "polars"], "arrow": ["tesseral", "pyarrow", "polars"]}


def smooth(rng, rows, columns):
    """A field like a temperature: waves and noise."""
    y, x = np.mgrid[0:rows, 0:columns]
    waves = sum(rng.normal() * np.cos(x * rng.uniform(0, 0.05) + y * rng.uniform(0, 0.05) + rng.uniform(0, 6)) for _ in range(12))
    return 280 + 8 * waves + rng.normal(size=(rows, columns)) * 0.05


def make_grib(path, packing, fields, rows=721, columns=1440):
    import eccodes

    rng = np.random.default_rng(7)
    with open(path, "wb") as file:
        for field in range(fields):
            handle = eccodes.codes_grib_new_from_samples("regular_ll_pl_grib2")
            for key, value in {
                "Ni": columns, "Nj": rows, "latitudeOfFirstGridPointInDegrees": 90, "longitudeOfFirstGridPointInDegrees": 0,
                "latitudeOfLastGridPointInDegrees": -90, "longitudeOfLastGridPointInDegrees": 359.75,
                "iDirectionIncrementInDegrees": 0.25, "jDirectionIncrementInDegrees": 0.25, "level": 1000 - field, "shortName": "t",
            }.items():
                eccodes.codes_set(handle, key, value)
            values = smooth(rng, rows, columns).ravel()
            eccodes.codes_set_values(handle, values)
            if packing != "grid_simple":
                eccodes.codes_set(handle, "packingType", packing)
            eccodes.codes_set(handle, "bitsPerValue", 16)
            eccodes.codes_set_values(handle, values)
            file.write(eccodes.codes_get_message(handle))
            eccodes.codes_release(handle)


def make_table(rows):
    import pyarrow as pa

    rng = np.random.default_rng(3)
    names = np.array(["Potsdam", "Lindenberg", "Hohenpeißenberg", "Zugspitze, Gipfel", "List auf Sylt"])
    days = np.datetime64("2001-01-01") + np.arange(rows) // 50
    return pa.table({
        "day": pa.array(days, pa.date32()),
        "station": pa.array(names[rng.integers(0, len(names), rows)]),
        "lat": np.round(rng.uniform(47, 55, rows), 4),
        "lon": np.round(rng.uniform(6, 15, rows), 4),
        "t2m": np.round(rng.normal(283, 8, rows), 2),
        "count": rng.integers(0, 100000, rows),
    })


def make(folder, case, size):
    path = folder / {"csv": "t.csv", "parquet": "t.parquet", "arrow": "t.arrow"}.get(case, f"{case}.grib")
    if path.exists():
        return path
    if case in PACKINGS:
        make_grib(path, case, max(2, size // 100_000))
        return path
    table = make_table(size)
    if case == "csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(quoting_style="needed"))
    elif case == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path, compression="zstd", row_group_size=1 << 17)
    else:
        import pyarrow.feather

        pyarrow.feather.write_feather(table, path, compression="zstd", chunksize=1 << 17)
    return path


def reader(library, case, path):
    """A function that reads the whole file."""
    path = str(path)
    if case in PACKINGS:
        if library == "eccodes":
            import eccodes

            def read():
                out = []
                with open(path, "rb") as file:
                    while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
                        out.append(eccodes.codes_get_values(handle))
                        eccodes.codes_release(handle)
                return np.array(out)

            return read
        import tesseral

        return lambda: np.asarray(tesseral.open(path)["t"][...]).reshape(-1, 721 * 1440)
    if library == "tesseral":
        import pyarrow.dataset  # noqa: F401 - as for the others, the import is not part of the time
        import tesseral

        return lambda: tesseral.dataset(path).to_table()
    if library == "pyarrow":
        import pyarrow.csv
        import pyarrow.feather
        import pyarrow.parquet

        return lambda: {"csv": pyarrow.csv.read_csv, "parquet": pyarrow.parquet.read_table, "arrow": pyarrow.feather.read_table}[case](path)
    import polars as pl

    return lambda: {"csv": lambda p: pl.read_csv(p, try_parse_dates=True), "parquet": pl.read_parquet, "arrow": pl.read_ipc}[case](path)


def digest(library, answer):
    """What all libraries must agree on."""
    import hashlib

    if isinstance(answer, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(answer).tobytes()).hexdigest()
    table = answer.to_arrow() if library == "polars" else answer
    names = ["day", "station", "lat", "lon", "t2m", "count"]
    digest = hashlib.sha256()
    for name in names:
        column = table.column(name)
        if name == "day":
            digest.update(np.asarray(column.to_numpy(), "M8[D]").tobytes())
        elif name == "station":
            digest.update("\n".join(column.to_pylist()).encode())
        else:
            digest.update(np.ascontiguousarray(column.to_numpy()).tobytes())
    return digest.hexdigest()


def worker(library, case, path):
    """Runs in a process of its own: a line per run."""
    read = reader(library, case, path)
    print(json.dumps(digest(library, read())), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        answer = read()
        seconds = time.perf_counter() - start
        del answer
        print(json.dumps(seconds), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--worker", nargs=3)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(*arguments.worker)
    size = 100_000 if arguments.quick else 1_000_000
    with tempfile.TemporaryDirectory(dir=arguments.data) as temporary:
        folder = arguments.data or Path(temporary)
        print("| case | library | median | relative |\n|---|---|---|---|")
        for case in arguments.only or CASES:
            path = make(folder, case, size)
            threads = {"RAYON_NUM_THREADS": "1"} if case in PACKINGS else {}
            workers, answers, times = {}, {}, {}
            for library in PEERS[case]:
                command = [sys.executable, __file__, "--worker", library, case, str(path)]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads})
                line = process.stdout.readline()
                if line:
                    workers[library], answers[library], times[library] = process, json.loads(line), []
            assert len(set(answers.values())) == 1, f"{case}: different answers {answers}"
            for _ in range(arguments.rounds):
                for library, process in workers.items():
                    process.stdin.write("\n")
                    process.stdin.flush()
                    times[library].append(json.loads(process.stdout.readline()))
            for process in workers.values():
                process.stdin.close()
                process.wait()
            own = statistics.median(times["tesseral"])
            megabytes = path.stat().st_size / 1e6
            for library, seconds in times.items():
                median = statistics.median(seconds)
                title = f"{CASES[case]}, {megabytes:.0f} MB" if library == "tesseral" else ""
                print(f"| {title} | {library} | {median * 1e3:.1f} ms | {median / own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
