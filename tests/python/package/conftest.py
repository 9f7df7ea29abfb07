"""Arrays of every format, written once: by this package and by the reference packages."""

import numpy as np
import pytest
import tensogram
import tesseral
import tiledb

SHAPE, CHUNKS = (7, 5, 6), (3, 2, 4)


def cells(dtype="float32"):
    return (np.arange(np.prod(SHAPE)) * 7 % 101).astype(dtype).reshape(SHAPE)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("package")


def tiledb_array(path, values, chunks, origin=0, dims="xyz", timestamp=None):
    domain = tiledb.Domain(
        *[tiledb.Dim(d, domain=(origin, origin + n - 1), tile=c, dtype="int32") for d, n, c in zip(dims, values.shape, chunks)]
    )
    schema = tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype=values.dtype)], sparse=False)
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w", timestamp=timestamp) as array:
        array[:] = values
    return path


@pytest.fixture(scope="session")
def arrays(folder):
    """The same cells in every format and layout."""
    values = cells()
    tesseral.write(folder / "raw.tet", {"a": values}, chunks=CHUNKS)
    tesseral.write(folder / "one.tet", {"a": values}, chunks=SHAPE)
    tesseral.write(folder / "zstd.tet", {"a": values}, chunks=CHUNKS, codec="zstd:1", statistics=True)
    tesseral.write(folder / "ours.tgm", {"a": values}, codec="zstd")
    described = {"type": "ntensor", "ndim": 3, "shape": list(SHAPE), "dtype": "float32"}
    described |= {"byte_order": "little", "encoding": "none", "filter": "none", "compression": "none"}
    described["strides"] = [30, 6, 1]
    (folder / "theirs.tgm").write_bytes(tensogram.encode({}, [(described, values)]))
    tiledb_array(folder / "dense", values, CHUNKS)
    found = {}
    for name in ("raw.tet", "one.tet", "zstd.tet", "ours.tgm", "theirs.tgm", "dense"):
        container = tesseral.open(folder / name)
        found[name] = container[next(iter(container))]
    return found
