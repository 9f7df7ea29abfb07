"""Dask on an object store: processes that share an S3 server and nothing else but the temporary folder for outputs."""

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from s3_server import BUCKET, s3  # noqa: F401  (a fixture)
from support import ROOT

tesseral = pytest.importorskip("tesseral")
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
xr = pytest.importorskip("xarray")
da = pytest.importorskip("dask.array")
td = pytest.importorskip("tesseral.dask")

SHAPE, CHUNKS = (64, 60, 40), (4, 30, 40)
# Four chunks: 32 blocks of the cube, of which a worker computes several.
BLOCK = 4 * 4 * 30 * 40 * 8


def keys(client, prefix):
    return sorted(entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", []))


@pytest.fixture(scope="module")
def values():
    """Numbers of very different size, whose sum depends on the order of plain additions."""
    rng = np.random.default_rng(11)
    return rng.normal(size=SHAPE) * 10.0 ** rng.integers(-12, 12, SHAPE)


@pytest.fixture(scope="module")
def url(s3, values):
    """The same cube in a bucket."""
    path = f"s3://{BUCKET}/dask/cube.tet"
    tesseral.write(path, {"v": values}, dims=("time", "y", "x"), chunks=CHUNKS, codec="zstd:1")
    return path


@pytest.fixture(scope="module")
def cluster(s3):
    """Two processes. They get the address and the credentials of the server from their environment."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
        with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
            yield client


def bits(result):
    return np.asarray(result).tobytes()


def test_partial_results_have_the_bits_of_one_process(cluster, url, values):
    array = tesseral.open(url)["v"]
    assert array[5, :, 3].tobytes() == values[5, :, 3].tobytes()
    plans = {}
    for what, axis in (("sum", None), ("mean", "time"), ("std", ("y", "x")), ("var", None), ("median", None), ("max", "x")):
        lazy = td.reduce(array, what, axis, nbytes=BLOCK)
        assert len(dict(lazy.__dask_graph__())) > 8, what
        plans[what, axis] = lazy
    # What is sent to workers has no credentials.
    sent = pickle.dumps(array)
    assert b"hidden-password" not in sent and url.encode() in sent
    for (what, axis), found in zip(plans, dask.compute(*plans.values())):
        assert bits(found) == bits(getattr(array, what)(axis)), (what, axis)
    # Blocks of another size, in another order.
    again = td.reduce(array, "sum", nbytes=3 * BLOCK)
    assert bits(again.compute()) == bits(array.sum())


def test_datasets_of_xarray_are_read_by_workers(cluster, url, values):
    with xr.open_dataset(url, engine="tesseral", chunks={"time": 8}) as ds:
        assert ds.v.data.npartitions == 8
        np.testing.assert_array_equal(ds.v.isel(time=slice(3, 40)).compute().values, values[3:40])
        np.testing.assert_allclose(ds.v.mean(("y", "x")).compute().values, values.mean((1, 2)), rtol=1e-9)
    # By options instead of the environment; the endpoint goes with the graph.
    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": "us-east-1"}
    with xr.open_dataset(url, engine="tesseral", chunks={}, storage_options=options) as ds:
        np.testing.assert_array_equal(ds.v.compute().values, values)


def test_blocks_grow_with_the_array(s3):
    """About 120 blocks of at least 8 and at most 128 MiB, of whole chunks; planned without reading one of them."""
    sizes = {}
    for name, extent in (("small", 256), ("medium", 16_000), ("large", 64_000)):
        side = {"dtype": "int32", "domain": [0, extent - 1], "tile": 64}
        fields = [{"name": "v", "dtype": "float32"}]
        place = f"s3://{BUCKET}/dask/{name}.tdb"
        tesseral.create(place, {"dims": [{"name": "y", **side}, {"name": "x", **side}], "fields": fields})
        with xr.open_dataset(place, engine="tesseral", chunks={}) as ds:
            sizes[name] = ds.v.data.npartitions
            largest = np.prod([max(blocks) for blocks in ds.v.chunks]) * 4
            assert largest <= 128 << 20 and all(n % 64 == 0 for blocks in ds.v.chunks for n in blocks[:-1])
            if name != "large":
                continue
            # A million chunks.
            assert np.prod([extent // 64] * 2) == 1_000_000
            array = tesseral.open(place)["v"]
            plans = [ds.v.data, ds.v.mean().data, td.reduce(array, "mean"), td.reduce(array, "mean", "y"), td.from_array(array).sum()]
            for plan in plans:
                assert sizes[name] <= len(dict(plan.__dask_graph__())) <= 10_000
        with xr.open_dataset(place, engine="tesseral", chunks={}) as ds, dask.config.set({"array.chunk-size": "32MiB"}):
            with xr.open_dataset(place, engine="tesseral", chunks={}) as smaller:
                assert smaller.v.data.npartitions >= ds.v.data.npartitions
    assert sizes["small"] == 1 and 60 <= sizes["medium"] <= 130 and 120 <= sizes["large"] <= 200, sizes


@pytest.mark.parametrize("name", ["out.tet", "out.tdb"])
def test_a_store_is_one_commit(cluster, s3, url, values, name):
    place = f"s3://{BUCKET}/dask/one-commit/{name}"
    prefix = f"dask/one-commit/{name}"

    def unless_visible(block):
        import tesseral

        try:
            tesseral.open(place)
        except (tesseral.FileMissingError, tesseral.NotFoundError):
            return block * 2
        raise AssertionError("the output is visible before it is complete")

    lazy = td.from_array(tesseral.open(url)["v"], nbytes=BLOCK).map_blocks(unless_visible, dtype="f8", meta=np.empty((0, 0, 0)))
    td.store({"w": lazy}, place, chunks=CHUNKS, dims=("time", "y", "x"))
    assert tesseral.open(place)["w"][...].tobytes() == (values * 2).tobytes()
    assert tesseral.verify(place, deep=True)
    # Neither parts nor claims are left, here and in the bucket.
    assert not [key for key in keys(s3, prefix) if "tesseral-" in key]
    with pytest.raises(ValueError):
        td.store({"w": lazy}, place)


def test_blocks_that_fail_leave_nothing_in_the_bucket(cluster, s3, url):
    def broken(block):
        raise RuntimeError("no")

    lazy = td.from_array(tesseral.open(url)["v"], nbytes=BLOCK).map_blocks(broken, dtype="f8", meta=np.empty((0, 0, 0)))
    for name in ("out.tet", "out.tdb"):
        with pytest.raises(RuntimeError):
            td.store({"w": lazy}, f"s3://{BUCKET}/dask/broken/{name}")
    assert keys(s3, "dask/broken/") == []


def test_fragments_of_pyarrow_are_scanned_by_workers(cluster, url, values):
    pytest.importorskip("pyarrow.dataset")
    fragments = list(tesseral.dataset(url, nbytes=BLOCK).get_fragments())
    assert len(fragments) >= 8

    def scanned(fragment):
        import pyarrow.compute as pc

        table = fragment.to_table(columns=["v"], filter=pc.field("v") > 0)
        return table.num_rows, os.getpid()

    found = cluster.gather(cluster.map(scanned, fragments))
    assert sum(rows for rows, _ in found) == (values > 0).sum()
    assert os.getpid() not in {process for _, process in found}


def slowly(seconds):
    def run(block):
        time.sleep(seconds)
        return block * 2

    return run


def test_killed_workers_are_restarted_and_their_work_repeated(cluster, s3, url, values):
    array = tesseral.open(url)["v"]
    before = set(cluster.run(os.getpid).values())

    def kill():
        os.kill(next(iter(before)), signal.SIGKILL)

    place = f"s3://{BUCKET}/dask/killed.tet"
    lazy = td.from_array(array, nbytes=BLOCK).map_blocks(slowly(0.05), dtype="f8", meta=np.empty((0, 0, 0)))
    mean = cluster.compute(td.reduce(array, "mean", "time", nbytes=BLOCK // 4))
    killer = threading.Timer(0.3, kill)
    killer.start()
    td.store({"w": lazy}, place, chunks=CHUNKS)
    killer.join()
    assert bits(mean.result(timeout=60)) == bits(array.mean("time"))
    assert tesseral.open(place)["w"][...].tobytes() == (values * 2).tobytes()
    # The nanny started another one, which takes part.
    cluster.wait_for_workers(2, timeout=60)
    after = set(cluster.run(os.getpid).values())
    assert len(after) == 2 and after != before
    assert bits(td.reduce(array, "sum", nbytes=BLOCK).compute()) == bits(array.sum())
    assert [key for key in keys(s3, "dask/killed") if key != "dask/killed.tet"] == []


def test_the_guide_works(s3, tmp_path):
    """The example of the guide about object stores, as a program of its own."""
    guide = (ROOT / "docs/guides/object-stores.md").read_text()
    [block] = re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)
    cells = np.random.default_rng(5).normal(280, 5, (30, 20, 10)).astype("f4")
    tesseral.write(f"s3://{BUCKET}/ocean.tet", {"sst": cells}, dims=("time", "lat", "lon"), chunks=(5, 20, 10))
    (tmp_path / "example.py").write_text(block)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    anomaly = tesseral.open(f"s3://{BUCKET}/anomaly.tet")["anomaly"]
    np.testing.assert_allclose(anomaly[...], cells - cells.mean(0, dtype="f8"), atol=1e-4)
    assert anomaly.dims == ("time", "lat", "lon")


class Processes:
    """A scheduler and two workers as commands, as on several machines."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self.folder, self.running = folder, []

    def start(self):
        common = ["--no-dashboard"]
        scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", self.address.rpartition(":")[2], *common]
        worker = ["distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder), *common]
        for command in (scheduler, worker, worker):
            command = [sys.executable, "-m", *command]
            self.running.append(subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def kill(self):
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait()
        self.running = []


def test_a_scheduler_that_is_killed_leaves_nothing_and_can_be_restarted(s3, url, values, tmp_path, monkeypatch):
    # Parts of the output are written here by workers.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    place = f"s3://{BUCKET}/dask/restarted.tet"
    array = tesseral.open(url)["v"]
    lazy = td.from_array(array, nbytes=BLOCK)
    processes = Processes(tmp_path)
    # Without a scheduler, a client waits no longer than this.
    settings = {"distributed.comm.timeouts.connect": "2s", "distributed.comm.retry.count": 0}

    def written():
        return [*Path(tmp_path).glob("*/part-*"), *Path(tmp_path).glob("*/*/part-*")]

    with dask.config.set(settings):
        processes.start()
        try:
            with distributed.Client(processes.address, timeout="60s") as client:
                client.wait_for_workers(2, timeout=60)

                def kill():
                    while not written():
                        time.sleep(0.02)
                    processes.kill()

                killer = threading.Thread(target=kill)
                killer.start()
                slow = lazy.map_blocks(slowly(0.1), dtype="f8", meta=np.empty((0, 0, 0)))
                with pytest.raises(Exception) as failure:
                    td.store({"w": slow}, place, chunks=CHUNKS)
                assert not isinstance(failure.value, AssertionError)
                killer.join()
            assert keys(s3, "dask/restarted") == [] and not written()
            # The same handles and graphs, with a scheduler that knows nothing of them.
            processes.start()
            with distributed.Client(processes.address, timeout="60s") as client:
                client.wait_for_workers(2, timeout=60)
                td.store({"w": lazy * 2}, place, chunks=CHUNKS)
                assert bits(td.reduce(array, "sum", nbytes=BLOCK).compute()) == bits(array.sum())
        finally:
            processes.kill()
    assert tesseral.open(place)["w"][...].tobytes() == (values * 2).tobytes()
    assert not written() and keys(s3, "dask/restarted") == ["dask/restarted.tet"]
