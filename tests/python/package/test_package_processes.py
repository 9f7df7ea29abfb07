"""Forks, threads, pickles and Ctrl-C."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tesseral
from conftest import SHAPE, cells, tiledb_array


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Large enough that reads go to several threads."""
    path = tmp_path_factory.mktemp("large") / "a.tet"
    values = np.arange(1 << 20, dtype="i4").reshape(1024, 1024)
    tesseral.write(path, {"a": values}, chunks=(64, 64), codec="zstd:1")
    return path, values


@pytest.mark.parametrize("name", ["raw.tet", "zstd.tet", "ours.tgm", "dense"])
def test_pickles_keep_the_window(arrays, name):
    window = arrays[name].isel({arrays[name].dims[0]: slice(None, None, -2), arrays[name].dims[1]: 3})
    again = pickle.loads(pickle.dumps(window))
    assert np.array_equal(again[...], cells()[::-2, 3]) and again.shape == window.shape
    assert again.__dask_tokenize__() == window.__dask_tokenize__() != arrays[name].__dask_tokenize__()


def test_pickles_are_pinned(tmp_path):
    path = tmp_path / "a.tet"
    tesseral.write(path, {"a": np.zeros(3)})
    pickled = pickle.dumps(tesseral.open(path)["a"])
    time.sleep(0.01)
    tesseral.write(path, {"a": np.ones(3)}, overwrite=True)
    with pytest.raises(tesseral.ChangedError):
        pickle.loads(pickled)
    import tiledb

    folder = tiledb_array(tmp_path / "t", np.zeros(4, "i4"), (2,), dims="i")
    time.sleep(0.01)
    pickled = pickle.dumps(tesseral.open(folder)["v"])
    time.sleep(0.01)
    with tiledb.open(str(folder), "w") as array:
        array[:] = np.ones(4, "i4")
    assert pickle.loads(pickled).sum() == 0 and tesseral.open(folder)["v"].sum() == 4


def test_large_results_are_apart(large):
    path, values = large
    array = tesseral.open(path)["a"]
    first = array[...]
    first[...] = 0
    second = array[...]
    assert np.array_equal(second, values) and second.flags.writeable and not np.shares_memory(first, second)
    view = second[3:5]
    del first, second
    third = array[...]
    assert np.array_equal(view, values[3:5]) and np.array_equal(third, values)


def test_an_open_container_does_not_change(tmp_path):
    path = tmp_path / "a.tet"
    tesseral.write(path, {"a": np.zeros(3)})
    array = tesseral.open(path)["a"]
    tesseral.write(path, {"a": np.ones(3)}, overwrite=True)
    assert array[...].sum() == 0


def _child(array, expected, queue):
    queue.put((bool(np.array_equal(array[...], expected)), int(array.sum()), os.getpid()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_reads_after_a_fork(large):
    path, values = large
    array = tesseral.open(path)["a"]
    assert np.array_equal(array[...], values)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    for _ in range(2):
        children = [context.Process(target=_child, args=(array, values, queue)) for _ in range(2)]
        for child in children:
            child.start()
        for child in children:
            ok, total, process = queue.get(timeout=60)
            assert ok and total == values.sum(dtype="i8") and process != os.getpid()
        for child in children:
            child.join(timeout=60)
            assert child.exitcode == 0


def test_spawned_processes(large):
    path, values = large
    script = "import pickle, sys; a = pickle.load(sys.stdin.buffer); print(int(a.sum()))"
    pickled = pickle.dumps(tesseral.open(path)["a"])
    done = subprocess.run([sys.executable, "-c", script], input=pickled, capture_output=True, timeout=120, check=True)
    assert int(done.stdout) == values.sum(dtype="i8")


def test_threads_read_at_once(large):
    path, values = large
    array = tesseral.open(path)["a"]
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda i: array[i * 8 : i * 8 + 8], range(128)))
    assert np.array_equal(np.concatenate(rows), values)


def test_others_run_while_cells_are_decoded(large):
    path, _ = large
    array = tesseral.open(path)["a"]
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    before = len(ticks)
    for _ in range(5):
        array[...]
    stop.set()
    ticker.join()
    assert len(ticks) > before + 3


def test_threads_write_at_once(tmp_path):
    values = np.arange(64 * 64, dtype="i4").reshape(64, 64)
    with tesseral.create(tmp_path / "a.tet") as session:
        array = session.add("a", values.shape, "i4", chunks=(8, 8), codec="zstd")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda i: array.__setitem__(slice(i * 8, i * 8 + 8), values[i * 8 : i * 8 + 8]), range(8)))
    assert np.array_equal(tesseral.open(tmp_path / "a.tet")["a"][...], values)


def test_ctrl_c_ends_a_long_read(tmp_path):
    path = tmp_path / "a.tet"
    tesseral.write(path, {"a": np.zeros((256, 1 << 18), "f4")}, chunks=(1, 1 << 18), codec="zstd:1")
    script = (
        "import sys, tesseral\na = tesseral.open(sys.argv[1])['a']\nprint('go', flush=True)\n"
        "try:\n    while True: a[...]\nexcept KeyboardInterrupt:\n    print('stopped')\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out == "stopped\n" and child.returncode == 0


def test_shapes_survive(arrays):
    assert pickle.loads(pickle.dumps(arrays["raw.tet"])).shape == SHAPE
    container = tesseral.open(arrays["raw.tet"]._container.url)
    assert list(pickle.loads(pickle.dumps(container))) == list(container)
