"""Dask: few large blocks, reductions inside tasks, workers that die."""

import os
import signal

import dask
import dask.array as da
import numpy as np
import pytest
import tesseral
import tesseral.dask as td
from conftest import CHUNKS, cells
from dask.base import tokenize
from tesseral._array import block_shape


@pytest.mark.parametrize("name", ["raw.tet", "zstd.tet", "ours.tgm", "dense"])
def test_reductions_inside_tasks(arrays, name):
    array = arrays[name]
    for what in ("sum", "mean", "min", "max", "std", "var", "count"):
        for axis in (None, 0, (1, 2), array.dims[2]):
            want = getattr(array, what)(axis)
            got = td.reduce(array, what, axis, nbytes=100).compute(scheduler="threads")
            assert np.shape(got) == np.shape(want)
            np.testing.assert_allclose(got, want, rtol=1e-13)
    with pytest.raises(ValueError):
        td.reduce(array, "median", 0)


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
        np.testing.assert_allclose(np.ma.filled(got, 0), np.ma.filled(want, 0))


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


def test_tokens_are_the_same_for_the_same_cells(arrays, tmp_path):
    array = arrays["raw.tet"]
    again = tesseral.open(array._container.url)["a"]
    assert tokenize(array) == tokenize(again) and td.from_array(array).name == td.from_array(again).name
    assert tokenize(array) != tokenize(array.isel(dim_0=0)) != tokenize(arrays["zstd.tet"])


def test_store(tmp_path):
    values = np.arange(600, dtype="i4").reshape(20, 30)
    lazy = da.from_array(values, chunks=(7, 11))
    with dask.config.set(scheduler="threads"):
        td.store({"a": lazy, "b": lazy + 1}, tmp_path / "a.tet", chunks=(5, 10), dims=("y", "x"), codec="zstd")
    container = tesseral.open(tmp_path / "a.tet")
    assert np.array_equal(container["b"][...], values + 1) and container["a"].dims == ("y", "x")


def test_a_worker_that_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    values = np.arange(1 << 18, dtype="i8").reshape(512, 512)
    tesseral.write(tmp_path / "a.tet", {"a": values}, chunks=(16, 512), codec="zstd:1")
    array = tesseral.open(tmp_path / "a.tet")["a"]
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            total = client.compute(td.reduce(array, "sum", nbytes=16 * 512 * 8))
            mean = client.compute(td.reduce(array, "mean", 0, nbytes=16 * 512 * 8))
            victim = next(iter(client.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
            assert total.result(timeout=90) == values.sum()
            np.testing.assert_allclose(mean.result(timeout=90), values.mean(0))
            td.store({"b": td.from_array(array, nbytes=1 << 19) * 2}, tmp_path / "b.tet")
    assert np.array_equal(tesseral.open(tmp_path / "b.tet")["b"][...], values * 2)
