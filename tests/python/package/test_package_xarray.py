"""The xarray engine."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
import tensogram
import tesseral
import tiledb
import xarray as xr
from conftest import SHAPE, cells, tiledb_array
from tesseral.xarray import TesseralBackendEntrypoint, to_tet, to_tgm, to_tiledb


def dataset():
    return xr.Dataset(
        {
            "t": (("time", "lat", "lon"), cells("f4"), {"units": "K"}),
            "n": (("time",), np.arange(7, dtype="i4")),
            "flag": (("lat",), np.array([True, False, True, True, False])),
            "when": (("time",), np.datetime64("2020-01-01T06", "ns") + np.arange(7) * np.timedelta64(1, "h")),
        },
        coords={
            "time": np.datetime64("2020-01-01", "ns") + np.arange(7) * np.timedelta64(1, "D"),
            "lat": np.linspace(-1, 1, 5),
            "lon": ["a", "b", "c", "d", "e", "f"],
            "area": (("lat", "lon"), np.arange(30.0).reshape(5, 6)),
        },
    )


@pytest.mark.parametrize("write, name", [(to_tet, "a.tet"), (to_tgm, "a.tgm"), (to_tiledb, "a")])
def test_round_trip(tmp_path, write, name):
    ds = dataset()
    write(ds, tmp_path / name, codec="zstd")
    again = xr.open_dataset(tmp_path / name, engine="tesseral")
    xr.testing.assert_identical(again, ds)
    np.testing.assert_array_equal(again.t.sel(time="2020-01-03", lat=0.5).values, ds.t.sel(time="2020-01-03", lat=0.5).values)


def test_reads_only_what_is_asked_for(tmp_path):
    to_tet(dataset(), tmp_path / "a.tet", chunks={"time": 3, "lat": 2, "lon": 4})
    whole = (tmp_path / "a.tet").read_bytes()
    last = tesseral.open(tmp_path / "a.tet")["t"].isel(time=6, lat=4, lon=5)
    ((coords, *_, at),) = last._view.chunk_table()
    assert coords == [2, 2, 1]
    (tmp_path / "a.tet").write_bytes(whole[:at] + b"\x55" + whole[at + 1 :])
    ds = xr.open_dataset(tmp_path / "a.tet")
    assert ds.t.encoding["chunksizes"] == (3, 2, 4)
    assert (ds.t[:6].values == cells("f4")[:6]).all()
    with pytest.raises(tesseral.CorruptError):
        ds.t.load()


def test_every_indexer(arrays):
    values = cells()
    for name in ("raw.tet", "zstd.tet", "ours.tgm", "dense"):
        ds = xr.open_dataset(arrays[name]._container.url, engine="tesseral")
        array = ds[next(iter(ds))]
        x, y, z = array.dims
        np.testing.assert_array_equal(array[::-2, 1, [5, 0]].values, values[::-2, 1, [5, 0]])
        points = xr.DataArray([0, 3, 6], dims="p"), xr.DataArray([4, 0, 1], dims="p")
        np.testing.assert_array_equal(array.isel({x: points[0], y: points[1]}).values, values[[0, 3, 6], [4, 0, 1]])
        np.testing.assert_allclose(array.mean(y).values, values.mean(1), rtol=1e-6)
        np.testing.assert_array_equal(array.isel({z: slice(1, 5, 3)}).transpose().values, values[..., 1:5:3].T)


def test_guesses_by_content(arrays, tmp_path, monkeypatch):
    engine = TesseralBackendEntrypoint()
    monkeypatch.setattr("tesseral.xarray.entry_points", lambda group, name: [])
    for name in ("raw.tet", "dense", "ours.tgm"):
        assert engine.guess_can_open(arrays[name]._container.url)
    other = tmp_path / "a.tet"
    other.write_text("not one")
    assert not engine.guess_can_open(tmp_path / "nope.tet") and not engine.guess_can_open(b"bytes")
    odd = tmp_path / "strange.bin"
    odd.write_bytes(open(arrays["raw.tet"]._container.url, "rb").read())
    assert engine.guess_can_open(odd) and xr.open_dataset(odd).a.shape == SHAPE
    # Another engine of that name takes precedence for its own files.
    monkeypatch.setattr("tesseral.xarray.entry_points", lambda group, name: ["there is"] if name == "tensogram" else [])
    assert not engine.guess_can_open(arrays["ours.tgm"]._container.url)
    assert xr.open_dataset(arrays["ours.tgm"]._container.url, engine="tesseral").a.shape == SHAPE


def test_dask_chunks_are_few_and_whole(arrays):
    ds = xr.open_dataset(arrays["raw.tet"]._container.url, chunks={})
    assert ds.a.chunks == ((7,), (5,), (6,))
    np.testing.assert_array_equal(ds.a.values, cells())


def test_blocks_grow_with_the_array():
    from tesseral.xarray import _block_size

    # The working memory of tasks is a multiple of their blocks; a graph of a million tasks is slower than the work.
    assert [_block_size(n << 20) >> 20 for n in (1, 250, 1200, 16_000, 10**6)] == [8, 8, 10, 128, 128]
    with dask.config.set({"array.chunk-size": "1MiB"}):
        assert _block_size(10**9) == 1 << 20


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists maps")
def test_files_are_not_mapped(arrays):
    """Pages of a map count as memory of the process."""
    path = arrays["raw.tet"]._container.url
    here = Path(path).with_name("unmapped.tet")
    here.write_bytes(Path(path).read_bytes())
    ds = xr.open_dataset(here, chunks={})
    np.testing.assert_array_equal(ds.a.values, cells())
    assert here.name not in Path("/proc/self/maps").read_text()
    mapped = tesseral.open(here)
    np.testing.assert_array_equal(mapped["a"][...], cells())
    assert here.name in Path("/proc/self/maps").read_text()


@pytest.mark.filterwarnings("error")
def test_blocks_are_lazy_and_silent(tmp_path):
    """Any requested blocks that do not split stored chunks."""
    values = {"narrow": np.zeros((60, 50, 100), "u1"), "wide": np.arange(300_000.0).reshape(60, 50, 100)}
    tesseral.write(tmp_path / "a.tet", values, dims=("t", "y", "x"), chunks=(5, 10, 20))
    with dask.config.set({"array.chunk-size": "400kB"}):
        for chunks in ({}, "auto", {"t": "auto"}, {"t": 15}, {"y": 20, "x": 40}, {"t": -1}):
            ds = xr.open_dataset(tmp_path / "a.tet", chunks=chunks)
            assert not ds.wide._in_memory and not ds.narrow._in_memory
            for sizes, chunk in zip(ds.wide.chunks, (5, 10, 20)):
                assert all(n % chunk == 0 for n in sizes)
    assert pickle.loads(pickle.dumps(ds.wide.encoding)) == ds.wide.encoding == copy.deepcopy(ds.wide.encoding)
    ds = xr.open_dataset(tmp_path / "a.tet", chunks={})
    # Variables with the same chunks have the same blocks, so they can be iterated together.
    assert ds.chunks["t"] == ds.wide.chunks[0] == (60,)
    np.testing.assert_array_equal(ds.wide.values, values["wide"])


def test_blocks_that_cut_chunks_are_told_of(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros((60, 50))}, dims=("t", "y"), chunks=(5, 10))
    with pytest.warns(UserWarning, match="stored chunks"):
        xr.open_dataset(tmp_path / "a.tet", chunks={"t": 7})


def test_cf_is_left_to_xarray(tmp_path):
    packed = np.array([0, 10, -99, 30], "i2")
    attrs = {"scale_factor": "0.5", "add_offset": "1", "_FillValue": "-99"}
    tesseral.write(tmp_path / "a.tet", {"p": packed}, dims=("i",), attrs={"p": attrs})
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "a.tet").p.values, [1, 6, np.nan, 16])
    raw = xr.open_dataset(tmp_path / "a.tet", decode_cf=False).p
    assert raw.dtype == "i2" and raw.values.tolist() == packed.tolist()
    to_tet(xr.open_dataset(tmp_path / "a.tet"), tmp_path / "b.tet")
    again = tesseral.open(tmp_path / "b.tet")["p"]
    assert again.dtype == "i2" and again[...].tolist() == packed.tolist() and again.fill == -99


def test_nulls_and_domains_of_tiledb(tmp_path):
    path = str(tmp_path / "t")
    domain = tiledb.Domain(tiledb.Dim("i", domain=(5, 8), tile=2, dtype="int32"))
    attrs = [tiledb.Attr("n", dtype="int32", nullable=True), tiledb.Attr("s", dtype="U0", var=True)]
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=False))
    with tiledb.open(path, "w") as array:
        array[:] = {"n": np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0]), "s": np.array(["a", "bb", "c", "d"], "O")}
    ds = xr.open_dataset(path)
    assert ds.i.values.tolist() == [5, 6, 7, 8] and ds.s.values.tolist() == ["a", "bb", "c", "d"]
    np.testing.assert_array_equal(ds.n.sel(i=[5, 6]).values, [1, np.nan])
    assert xr.open_dataset(path, drop_variables="s").keys() == {"n"}


def test_arrays_that_share_names_of_dimensions(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros(3), "b": np.zeros(4), "g/c": np.zeros(3)}, dims={"a": ["x"], "b": ["x"], "g/c": ["x"]})
    ds = xr.open_dataset(tmp_path / "a.tet")
    assert ds.a.dims == ("x",) and ds.b.dims == ("b_x",) and "g/c" not in ds
    assert xr.open_dataset(tmp_path / "a.tet", group="g").keys() == {"c"}
    tree = xr.open_datatree(tmp_path / "a.tet", engine="tesseral")
    assert tree["g/c"].shape == (3,) and tree["a"].shape == (3,)


def test_messages_as_a_tree(tmp_path):
    described = {"type": "ntensor", "ndim": 1, "shape": [2], "strides": [1], "dtype": "float32", "byte_order": "little"}
    described |= {"encoding": "none", "filter": "none", "compression": "none"}
    messages = [tensogram.encode({"base": [{"name": "t"}]}, [(described, np.full(2, i, "f4"))]) for i in range(2)]
    (tmp_path / "a.tgm").write_bytes(b"".join(messages))
    tree = xr.open_datatree(tmp_path / "a.tgm", engine="tesseral")
    assert tree["1/t"].values.tolist() == [1, 1]
    assert set(xr.open_dataset(tmp_path / "a.tgm", engine="tesseral")) == {"0/0", "1/0"}


def test_datasets_in_blocks_are_written_in_blocks(tmp_path):
    ds = dataset()[["t"]].chunk({"time": 2, "lat": 5, "lon": 4})
    to_tet(ds, tmp_path / "a.tet", chunks={"time": 3})
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "a.tet").t.values, cells("f4"))


def test_write_takes_datasets(tmp_path):
    ds = dataset()[["t", "when"]]
    tesseral.write(tmp_path / "a.tgm", ds, codec="zstd")
    again = xr.open_dataset(tmp_path / "a.tgm", engine="tesseral")
    xr.testing.assert_identical(again, ds)


def test_versions(tmp_path):
    path = tiledb_array(tmp_path / "t", np.zeros(4, "i4"), (2,), dims="i", timestamp=10)
    with tiledb.open(str(path), "w", timestamp=20) as array:
        array[:] = np.ones(4, "i4")
    assert xr.open_dataset(path).v.sum() == 4 and xr.open_dataset(path, engine="tesseral", as_of=15).v.sum() == 0


def test_sparse_arrays_are_rejected_with_the_way_to_a_table(tmp_path):
    tesseral.write_cells(tmp_path / "cells", {"x": [1, 5], "v": [1.5, 2.5]}, "x")
    with pytest.raises(tesseral.UnsupportedError, match="to_pandas"):
        xr.open_dataset(tmp_path / "cells", engine="tesseral")
    assert tesseral.open(tmp_path / "cells")["v"].to_pandas()["v"].tolist() == [1.5, 2.5]
    assert not xr.open_dataset(tmp_path / "cells", engine="tesseral", drop_variables="v").variables


@pytest.mark.parametrize("ending", ["tet", "tgm", "tiledb"])
def test_lazy_datasets(tmp_path, ending):
    """Cells of Dask arrays are written block by block, also when they are appended."""
    ds = dataset().drop_vars("when")
    lazy = ds.chunk({"time": 2, "lat": 5, "lon": 4})
    path = tmp_path / f"a.{ending}"
    for part in (lazy.isel(time=slice(3)), lazy.isel(time=slice(3, None))):
        getattr(part.tesseral, f"to_{ending}")(path, append_dim="time", chunks={"time": 2})
    xr.testing.assert_identical(xr.open_dataset(path, engine="tesseral", chunks={}).load(), ds)


def test_containers_as_datasets_and_trees(tmp_path):
    tree = xr.DataTree.from_dict({"/": dataset(), "/inner": xr.Dataset({"a": ("k", [1, 2])})})
    tree.tesseral.to_tet(tmp_path / "a.tet", encoding={"/inner": {"a": {"dtype": "i1"}}})
    container = tesseral.open(tmp_path / "a.tet")
    xr.testing.assert_identical(container.to_xarray(), dataset())
    xr.testing.assert_identical(container.to_datatree(), tree)
    inner = container.to_xarray("inner", mask_and_scale=False)
    assert inner.a.dtype == "i1" and inner.a.values.tolist() == [1, 2]
    assert "t" in container.to_xarray(drop_variables=["n"]) and "n" not in container.to_xarray(drop_variables=["n"])


def test_the_accessor_is_registered_with_the_engine():
    """Whichever is imported first, once xarray searched engines."""
    for script in ("import xarray, tesseral", "import tesseral, xarray; xarray.backends.list_engines()", "import tesseral.xarray, xarray"):
        check = "; assert callable(xarray.Dataset().tesseral.to_tet) and callable(xarray.DataTree().tesseral.to_tgm)"
        subprocess.run([sys.executable, "-c", script + check], check=True)
