"""Dask: few large blocks, reductions inside tasks, workers that die."""

import os
import signal
import threading
import time
import tracemalloc
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
import tesseral
import tesseral.dask as td
import xarray as xr
from conftest import CHUNKS, cells
from dask.base import tokenize
from tesseral._array import block_shape


@pytest.mark.parametrize("name", ["raw.tet", "zstd.tet", "ours.tgm", "dense"])
def test_reductions_inside_tasks(arrays, name):
    array = arrays[name]
    for what in ("sum", "mean", "min", "max", "std", "var", "count", "median", "argmax"):
        for axis in (None, 0, (1, 2), array.dims[2]):
            want = getattr(array, what)(axis)
            got = td.reduce(array, what, axis, nbytes=100).compute(scheduler="threads")
            assert np.shape(got) == np.shape(want)
            np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError):
        td.reduce(array, "average", 0)


def test_integers_stay_exact(tmp_path):
    values = np.full((4, 3), np.iinfo("i8").max)
    tesseral.write(tmp_path / "a.tet", {"a": values}, chunks=(1, 1))
    array = tesseral.open(tmp_path / "a.tet")["a"]
    assert td.reduce(array, "sum", nbytes=8).compute(scheduler="sync") == 12 * (2**63 - 1)
    assert td.reduce(array, "sum", 0, nbytes=8).compute(scheduler="sync").tolist() == [4 * (2**63 - 1)] * 3
    nulls = np.where(values > 0, np.arange(12).reshape(4, 3) % 5, 0)
    tesseral.write(tmp_path / "b.tet", {"a": nulls}, chunks=(1, 1), fill=0)
    array = tesseral.open(tmp_path / "b.tet")["a"]
    for what in ("min", "max", "mean", "std", "count"):
        want, got = getattr(array, what)(0), td.reduce(array, what, 0, nbytes=8).compute(scheduler="sync")
        np.testing.assert_array_equal(np.ma.getmaskarray(got), np.ma.getmaskarray(want))
        np.testing.assert_array_equal(np.ma.filled(got, 0), np.ma.filled(want, 0))


def test_blocks_are_whole_chunks(arrays):
    array = arrays["raw.tet"]
    lazy = td.from_array(array, nbytes=200)
    assert all(n % c == 0 for blocks, c in zip(lazy.chunks, CHUNKS) for n in blocks[:-1])
    assert np.array_equal(lazy.compute(scheduler="threads"), cells())
    assert np.array_equal(lazy[::-2, 1].compute(scheduler="threads"), cells()[::-2, 1])
    assert td.from_array(array).npartitions == 1


def test_blocks_grow_to_the_size_asked_for(tmp_path):
    with tesseral.create(tmp_path / "a.tgm") as session:
        session.add("a", (1000, 300), "f8", chunks=(10, 30))[...] = 0
    array = tesseral.open(tmp_path / "a.tgm")["a"]
    # Tensogram objects are one chunk.
    assert block_shape(array) == (1000, 300)
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros((1000, 300))}, chunks=(10, 30))
    array = tesseral.open(tmp_path / "a.tet")["a"]
    assert block_shape(array, 240_000) == (100, 300) and block_shape(array, 10_000) == (10, 120) and block_shape(array, 1) == (10, 30)


def test_a_million_chunks_are_planned_in_few_tasks(tmp_path):
    side = {"dtype": "int32", "domain": [0, 63_999], "tile": 64}
    schema = {"dims": [{"name": "y", **side}, {"name": "x", **side}], "fields": [{"name": "v", "dtype": "float32"}]}
    tesseral.create(tmp_path / "large", schema)
    tracemalloc.start()
    array = tesseral.open(tmp_path / "large")["v"]
    lazy = td.from_array(array)
    ds = xr.open_dataset(tmp_path / "large", chunks={})
    plans = [lazy.mean(), td.reduce(array, "mean"), td.reduce(array, "mean", "y"), ds.v.mean().data]
    tasks = [len(dict(plan.__dask_graph__())) for plan in plans]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.prod([n // c for n, c in zip(array.shape, array.chunks)]) == 1_000_000
    # About 128 MiB in a block: 16.4 GB are 123 of them and a few more, as they are whole chunks.
    assert 123 <= lazy.npartitions <= 200 and ds.v.data.npartitions == lazy.npartitions
    assert all(lazy.npartitions <= count <= 10_000 for count in tasks), tasks
    # One entry per chunk would be larger.
    assert peak < 8_000_000


def test_tokens_are_the_same_for_the_same_cells(arrays, tmp_path):
    array = arrays["raw.tet"]
    again = tesseral.open(array._container.url)["a"]
    assert tokenize(array) == tokenize(again) and td.from_array(array).name == td.from_array(again).name
    assert tokenize(array) != tokenize(array.isel(dim_0=0)) != tokenize(arrays["zstd.tet"])


@pytest.mark.parametrize("name", ["a.tet", "a.tgm", "a.tiledb"])
def test_store(tmp_path, name):
    values = np.arange(600, dtype="i4").reshape(20, 30)
    lazy = da.from_array(values, chunks=(7, 11))
    codec = "zstd:5" if name != "a.tgm" else "lz4"
    with dask.config.set(scheduler="threads"):
        td.store({"a": lazy, "b": lazy + 1}, tmp_path / name, chunks=(5, 10), dims=("y", "x"), codec=codec)
        with pytest.raises(ValueError):
            td.store({"a": lazy}, tmp_path / name)
        td.store({"a": lazy * 3}, tmp_path / name, chunks=(5, 10), dims=("y", "x"), codec=codec, overwrite=True)
    array = next(iter(tesseral.open(tmp_path / name).values()))
    assert np.array_equal(array[...], values * 3) and array.dims == ("y", "x")
    assert tesseral.verify(tmp_path / name, deep=True) and os.listdir(tmp_path) == [name]


def test_blocks_that_fail_leave_nothing(tmp_path):
    def broken(block):
        raise RuntimeError("no")

    lazy = da.zeros((20, 30), chunks=(10, 10)).map_blocks(broken, dtype="f8")
    for name in ("a.tet", "a.tgm", "a.tiledb"):
        with dask.config.set(scheduler="threads"), pytest.raises(RuntimeError):
            td.store({"a": lazy}, tmp_path / name)
    assert not os.listdir(tmp_path)


def test_parts_are_taken_over_as_they_are(tmp_path):
    values = np.random.default_rng(0).integers(0, 9, (40, 60))
    with dask.config.set(scheduler="threads"):
        td.store({"a": da.from_array(values, chunks=(13, 60))}, tmp_path / "a.tet", chunks=(10, 20), codec="zstd:7")
    tesseral.write(tmp_path / "b.tet", {"a": values}, chunks=(10, 20), codec="zstd:7")
    ours, plain = (tesseral.open(tmp_path / name)["a"]._view.chunk_table() for name in ("a.tet", "b.tet"))
    assert [row[:4] for row in ours] == [row[:4] for row in plain]


@contextmanager
def two_workers():
    """A client of two processes, and a function that kills one of them."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            victim = next(iter(client.run(os.getpid).values()))
            yield client, lambda: os.kill(victim, signal.SIGKILL)


def stored(tmp_path):
    values = np.arange(1 << 18, dtype="i8").reshape(512, 512)
    tesseral.write(tmp_path / "a.tet", {"a": values}, chunks=(16, 512), codec="zstd:1")
    return values, tesseral.open(tmp_path / "a.tet")["a"]


def test_reductions_outlive_a_worker(tmp_path):
    values, array = stored(tmp_path)
    with two_workers() as (client, kill):
        total = client.compute(td.reduce(array, "sum", nbytes=16 * 512 * 8))
        mean = client.compute(td.reduce(array, "mean", 0, nbytes=16 * 512 * 8))
        kill()
        assert total.result(timeout=90) == values.sum()
        np.testing.assert_allclose(mean.result(timeout=90), values.mean(0))


@pytest.mark.parametrize("name", ["b.tet", "b.tiledb"])
def test_writes_outlive_a_worker(tmp_path, name):
    values, array = stored(tmp_path)

    def slowly(block):
        time.sleep(0.1)
        return block * 2

    with two_workers() as (client, kill):
        killer = threading.Timer(0.3, kill)
        killer.start()
        td.store({"b": td.from_array(array, nbytes=1 << 17).map_blocks(slowly)}, tmp_path / name, chunks=(64, 256))
        killer.join()
    assert np.array_equal(tesseral.open(tmp_path / name)["b"][...], values * 2)
    assert sorted(os.listdir(tmp_path)) == ["a.tet", name]
