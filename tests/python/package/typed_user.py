"""A program as users write them, which type checkers accept in their strict modes."""

import asyncio
import datetime

import numpy as np
import numpy.typing as npt
import tesseral


def coldest(path: str) -> tuple[str, float]:
    with tesseral.open(path) as container:
        air = container["air"]
        alps = air.sel(lat=slice(44, 48), lon=slice(5, 15))
        means = alps.groupby("time.date").mean(...)
        labels = alps.groupby("time.date").labels
        day = int(means.argmin())
        return str(labels[day]), float(means[day])


def window(array: tesseral.Array) -> npt.NDArray[np.float32]:
    cells: npt.NDArray[np.float32] = array[0, 40:60, ::2]
    if array.ndim > 2 and array.chunks is not None:
        cells = array.isel(time=0)[...]
    out = np.empty((2, 3), np.float32)
    array.read((slice(0, 2), slice(0, 3)), out=out)
    return cells.astype(np.float32)


async def both(a: tesseral.Array, b: tesseral.Array) -> list[npt.NDArray[np.float64]]:
    return list(await asyncio.gather(a.read_async(0), b.read_async(slice(None))))


container = tesseral.open("a.tet", as_of=datetime.datetime(2020, 1, 1), memory_limit=1 << 20)
array: tesseral.Array = container["group/a"]
group: tesseral.Group = container.group("group")
names: list[str] = [*container, *group]
container.info()
shape: tuple[int, ...] = array.shape
lowest: float = float(array.min()) - float(array.mean("time").max())
both_quantiles = array.quantile([0.1, 0.9], axis=("time", "lat"), skipna=False)
counts, edges = array.histogram(10, range=(0.0, 1.0))
coordinates: npt.NDArray[np.float64] = array.coords["x"]
report: tesseral.Report = tesseral.verify("a.tet", deep=True)
table: tesseral.Dataset = tesseral.dataset("a.tet", "a")
rows: int = table.count_rows()
grid: tesseral.Grid = tesseral.from_table({"x": [1]}, "x")
stored: int = array.nbytes_stored
array[0, 2:4] = 5
for box, cells in array.blocks(nbytes=1 << 20):
    print(box[0].start, cells.sum())
with tesseral.open(b"") as other:
    other.close()
tesseral.write("b.tet", {"a": np.zeros(3)}, dims=("x",), chunks=(2,), codec="zstd", attrs={"a": {"units": "K"}})
with tesseral.create("c.tet") as session:
    session.add("a", (3,), "f4", codec=["shuffle", ("zstd", {"level": 3})])[...] = 0
tesseral.append("grid", np.ones((2, 6)), region=np.s_[1:3])
try:
    array[0]
except tesseral.CorruptError as error:
    place: tuple[int, ...] | None = error.chunk
