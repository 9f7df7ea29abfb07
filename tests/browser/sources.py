"""Sources of the browser tests: python sources.py TET FOLDER."""

import shutil
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np

TET, FOLDER = sys.argv[1], Path(sys.argv[2])


def tet(*words: object) -> None:
    subprocess.run([TET, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def weather(path: Path) -> None:
    """Two years of monthly temperatures, some of them missing, and rain as packed integers."""
    with netCDF4.Dataset(path, "w") as file:
        for name, values, units, standard in [
            ("time", np.arange(24) * 30.5, "days since 2020-01-16", "time"),
            ("lat", np.linspace(-87.5, 87.5, 45), "degrees_north", "latitude"),
            ("lon", np.arange(72) * 5.0, "degrees_east", "longitude"),
        ]:
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.units, axis.standard_name = units, standard
            axis[:] = values
        time, lat, lon = np.meshgrid(np.arange(24), np.deg2rad(np.linspace(-87.5, 87.5, 45)), np.deg2rad(np.arange(72) * 5.0), indexing="ij")
        field = 28 * np.cos(lat) ** 1.5 - 12 + 9 * np.sin(lat) * np.cos((time - 6) * np.pi / 6) * -1 + 2.5 * np.sin(3 * lon + lat) * np.cos(lat)
        cells = file.createVariable("temperature", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(6, 15, 36), fill_value=-999.0)
        cells.units, cells.long_name = "degC", "2 metre temperature"
        masked = np.ma.masked_array(field, mask=(np.sin(2 * lon + 1) * np.cos(3 * lat) > 0.93))
        cells[:] = masked
        rain = file.createVariable("rain", "i2", ("time", "lat", "lon"))
        rain.scale_factor, rain.add_offset, rain.units, rain.long_name = 0.1, 0.0, "mm day-1", "Precipitation rate"
        rain[:] = np.abs(np.sin(lon + time) * np.cos(lat)) * 20
        file.title, file.institution = "A small climate", "Tesseral"


def odd(path: Path) -> None:
    """Only missing cells, a scalar, text, and one dimension."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 12)
        file.createDimension("y", 8)
        file.createVariable("gaps", "f4", ("y", "x"), fill_value=-1.0)[:] = -1.0
        file.createVariable("scalar", "i4", ())[...] = 42
        words = file.createVariable("words", str, ("y",))
        for i in range(8):
            words[i] = f"word {i}"
        file.createVariable("line", "f8", ("x",))[:] = np.sin(np.arange(12))


def hostile(path: Path) -> None:
    """Markup wherever a file can hold text."""
    markup = "<img src=x onerror=window.hacked=1>"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("d\"'<b>&", 4)
        file.createDimension("e", 5)
        cells = file.createVariable("v<img src=x onerror=window.hacked=1>", "f8", ("d\"'<b>&", "e"))
        cells[:] = np.arange(20).reshape(4, 5)
        cells.units, cells.long_name = f"K{markup}", "</title><script>window.hacked=2</script>"
        cells.setncattr("a'\"><svg onload=window.hacked=3>", "javascript:window.hacked=4")
        file.title = markup


def late(path: Path) -> None:
    """Only the third of four planes is stored."""
    import zarr

    array = zarr.open_group(path, mode="w").create_array("late", shape=(4, 5, 6), chunks=(1, 5, 6), dtype="f4", fill_value=np.nan)
    array[2] = np.arange(30).reshape(5, 6)


FOLDER.mkdir(parents=True, exist_ok=True)
for old in FOLDER.iterdir():
    shutil.rmtree(old) if old.is_dir() else old.unlink()
weather(FOLDER / "weather.nc")
for name in ["weather.tet", "weather.tgm", "weather.zarr"]:
    tet("convert", FOLDER / "weather.nc", FOLDER / name)
tet("convert", FOLDER / "weather.nc", FOLDER / "weather.tdb", "--to", "tiledb")
odd(FOLDER / "odd.nc")
late(FOLDER / "late.zarr")
hostile(FOLDER / "hostile.nc")
damaged = bytearray((FOLDER / "weather.tet").read_bytes())
damaged[len(damaged) // 10 : len(damaged) * 9 // 10] = bytes(len(damaged) * 9 // 10 - len(damaged) // 10)
(FOLDER / "damaged.tet").write_bytes(damaged)
cells = FOLDER / "cells.tdb"
tet("create", cells, "--to", "tiledb", "--sparse", "--dim", "x=0..99/10:int32", "--dim", "y=0..49/10:int32", "--field", "value:float64")
rng = np.random.default_rng(1)
for part in range(2):
    rows = sorted({(int(x), int(y)) for x, y in zip(rng.integers(50 * part, 50 * part + 50, 300), rng.integers(0, 50, 300), strict=True)})
    table = FOLDER / "rows.csv"
    table.write_text("x,y,value\n" + "".join(f"{x},{y},{x * 0.5 + y}\n" for x, y in rows))
    tet("append", cells, table, "--timestamp", 1_600_000_000_000 + part * 86_400_000)
