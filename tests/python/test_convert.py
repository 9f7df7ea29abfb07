"""Conversions preserve every value and all metadata, as read by us and by the reference packages."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tensogram
import tet as reference
from support import DTYPES, TET, number, random_cells, random_metadata, random_shape, tet, tet_json, write

FLOATS = ["float16", "float32", "float64"]


def cells_of(path, name, dtype, shape):
    return np.frombuffer(tet("cat", path, name, "--raw"), dtype).reshape(shape)


def arrays_of(path):
    return {array["name"]: array for array in tet_json("info", path, "--all", "-n", 0)["arrays"]}


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def special(dtype):
    """NaN with payloads of both signs, infinities, zeros of both signs, the smallest number."""
    dtype = np.dtype(dtype)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    info = np.finfo(dtype)
    plain = np.array([0.0, -0.0, np.inf, -np.inf, info.smallest_subnormal, info.max], dtype).view(bits)
    quiet = np.array([np.nan], dtype).view(bits)[0]
    sign = bits(1) << bits(8 * dtype.itemsize - 1)
    nans = np.array([quiet, quiet | bits(1), quiet | sign, quiet | sign | bits(5)], bits)
    return np.concatenate([plain, nans]).view(dtype)


def tgm_objects(path):
    """Metadata and objects of the only message, as the reference reads them."""
    message = path.read_bytes()
    decoded = tensogram.decode(message)
    return decoded.metadata, decoded.objects


def descriptor(dtype, shape, **more):
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    plain = {"byte_order": "little", "encoding": "none", "filter": "none", "compression": "none"}
    shape = {"ndim": len(shape), "shape": list(shape), "strides": strides}
    return {"type": "ntensor", "dtype": dtype, **shape, **plain, **more}


@pytest.mark.parametrize("seed", range(24))
def test_round_trip_tet_tgm_tet(tmp_path, seed):
    rng = random.Random(seed)
    arrays = []
    for i in range(rng.randint(1, 3)):
        dtype = DTYPES[(seed + i) % len(DTYPES)]
        shape, chunk = random_shape(rng)
        cells = random_cells(rng, dtype, shape, rng.choice(["bits", "tame", "few"]))
        codec = rng.choice(["raw", "zstd"])
        arrays.append({"name": f"a{i}", "cells": cells, "chunk_shape": chunk, "codec": codec, **random_metadata(rng, shape)})
    one = write(tmp_path, tmp_path / "one.tet", arrays)
    two, three = tmp_path / "two.tgm", tmp_path / "three.tet"
    tet("convert", one, two, "--check")
    tet("convert", two, three, "--check", *(["--codec", "zstd"] if rng.random() < 0.5 else []))
    before, after = arrays_of(one), arrays_of(three)
    assert list(before) == list(after)
    for array in arrays:
        name, cells = array["name"], array["cells"]
        assert same_bits(cells_of(three, name, cells.dtype, cells.shape), cells)
        for key in ("dtype", "shape", "dims", "attributes", "coords"):
            assert before[name].get(key) == after[name].get(key), key
    assert tet_json("diff", one, three)["same"] and tet_json("diff", one, two)["same"]
    # The references agree.
    _, objects = tgm_objects(two)
    for array, (_, cells) in zip(arrays, objects):
        assert same_bits(np.asarray(cells).reshape(array["cells"].shape), array["cells"])
    assert tet_json("verify", two)["ok"] and tet_json("verify", three)["ok"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("masked", [True, False])
def test_what_is_not_finite_keeps_its_bits(tmp_path, dtype, masked):
    cells = special(dtype)
    if masked:
        # Only the patterns that a mask restores: masks are used, and nothing is lost.
        cells = np.array([1.5, np.nan, np.inf, -np.inf, -0.0], dtype)
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells, "chunk_shape": (4,)}])
    tgm, back = tmp_path / "a.tgm", tmp_path / "b.tet"
    tet("convert", source, tgm, "--check")
    tet("convert", tgm, back, "--check")
    assert same_bits(cells_of(tgm, "0/0", dtype, cells.shape), cells)
    assert same_bits(cells_of(back, "a", dtype, cells.shape), cells)
    _, objects = tgm_objects(tgm)
    assert same_bits(np.asarray(objects[0][1]).reshape(cells.shape), cells)


def test_words_and_provenance_arrive(tmp_path):
    rng = np.random.default_rng(1)
    cells = rng.normal(size=(4, 6)).astype("f4")
    source = write(
        tmp_path,
        tmp_path / "a.tet",
        [
            {
                "name": "sst",
                "cells": cells,
                "chunk_shape": (2, 4),
                "dims": ["time", "lat"],
                "labels": {"time": ["2015-01", "2015-02", "2015-03", "2015-04"]},
                "attrs": {"units": "degC", "_FillValue": "-999", "long_name": "sea β"},
            }
        ],
    )
    tgm, back = tmp_path / "a.tgm", tmp_path / "b.tet"
    report = tet_json("convert", source, tgm)
    tet("convert", tgm, back)
    array = arrays_of(back)["sst"]
    assert array["attributes"] == {"units": "degC", "_FillValue": "-999", "long_name": "sea β"}
    assert array["dims"] == ["time", "lat"]
    assert array["coords"]["time"]["labels"] == ["2015-01", "2015-02", "2015-03", "2015-04"]
    history = tet_json("info", back, "--history")["history"]
    assert [row["op"] for row in history][-2:] == ["convert", "convert"]
    assert history[-2]["source"] == str(source)
    assert report["source_digest"] in json.dumps(history)


@pytest.mark.parametrize("attrs", [{"name": "sea temperature"}, {"dim_names": "1"}, {"dim_labels": "x"}, {"missing_value": "2"},
                                   {"fill_value": "2.0"}, {"missing_value": "3", "_FillValue": "2"}])
@pytest.mark.parametrize("ending", ["tet", "tgm", "tdb"])
def test_attributes_that_formats_use_themselves_survive(tmp_path, attrs, ending):
    path, out, back = tmp_path / "in.tet", tmp_path / f"out.{ending}", tmp_path / "back.tet"
    reference.write_dataset(str(path), "sst", np.arange(4, dtype="f4"), attrs=attrs, dim_names=["x"])
    tet("convert", path, out)
    tet("convert", out, back)
    assert tet("diff", path, out) == tet("diff", path, back) == b"equal\n"
    assert arrays_of(back)["sst"]["attributes"] == attrs
    assert tet_json("stat", out)["nulls"] == tet_json("stat", path)["nulls"]


def test_many_arrays_become_objects_of_one_message(tmp_path):
    arrays = [{"name": f"v{i}", "cells": np.arange(6, dtype="i4").reshape(2, 3) + i} for i in range(4)]
    source = write(tmp_path, tmp_path / "a.tet", arrays)
    tgm = tmp_path / "a.tgm"
    tet("convert", source, tgm)
    meta, objects = tgm_objects(tgm)
    assert len(objects) == 4
    assert [entry["name"] for entry in meta.base] == ["v0", "v1", "v2", "v3"]
    for array, (_, cells) in zip(arrays, objects):
        assert same_bits(np.asarray(cells), array["cells"])


def test_references_open_what_was_converted(tmp_path):
    cells = np.arange(60, dtype="f8").reshape(3, 4, 5)
    tgm = tmp_path / "in.tgm"
    meta = {"base": [{"name": "t", "units": "K", "step": 6, "mars": {"param": "2t"}}]}
    tgm.write_bytes(tensogram.encode(meta, [(descriptor("float64", cells.shape, compression="zstd"), cells)]))
    out = tmp_path / "out.tet"
    tet("convert", tgm, out, "--chunk", "2,2,5", "--codec", "zstd:5", "--zone-maps", "--check")
    assert arrays_of(out)["t"]["chunk_shape"] == [2, 2, 5]
    assert arrays_of(out)["t"]["attributes"]["units"] == "K"
    with reference.open(out) as file:
        assert same_bits(np.ascontiguousarray(file.read_numpy("t")), cells)


@pytest.mark.parametrize("seed", range(12))
def test_parts_chunks_and_casts(tmp_path, seed):
    rng = random.Random(100 + seed)
    shape = (rng.randint(3, 9), rng.randint(3, 11), rng.randint(2, 7))
    cells = random_cells(rng, "int32", shape, "tame")
    source = write(tmp_path, tmp_path / "a.tet", [
        {"name": "a", "cells": cells, "chunk_shape": tuple(rng.randint(1, n) for n in shape), "dims": ["t", "y", "x"]}])
    slices, arguments = [], []
    for n, name in zip(shape, "tyx"):
        start = rng.randint(0, n - 1)
        stop, step = rng.randint(start + 1, n), rng.randint(1, 3)
        slices.append(slice(start, stop, step))
        arguments += ["--select", f"{name}={start}:{stop}:{step}"]
    want = cells[tuple(slices)].astype("f8")
    out = tmp_path / "b.tet"
    chunk = ",".join(str(rng.randint(1, n)) for n in want.shape)
    tet("convert", source, out, *arguments, "--chunk", chunk, "--cast", "float64", "--check")
    assert same_bits(cells_of(out, "a", "f8", want.shape), np.ascontiguousarray(want))


def test_casts_refuse_what_does_not_fit(tmp_path):
    cells = np.array([1, 2, 300], "i4")
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells}])
    out = tmp_path / "b.tet"
    done = subprocess.run([TET, "convert", source, out, "--cast", "uint8"], capture_output=True, text=True)
    assert done.returncode == 7 and "300" in done.stderr and "[2]" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(".bin")) == ["a.tet"]


def test_what_a_target_cannot_hold_is_refused_with_those_that_can(tmp_path):
    cells = np.array([1, 3], "f4")
    tgm = tmp_path / "in.tgm"
    tgm.write_bytes(tensogram.encode({"base": [{"name": "z"}]}, [(descriptor("float32", [2] + 8 * [1]), cells.tobytes())]))
    done = subprocess.run([TET, "convert", tgm, tmp_path / "out.tet"], capture_output=True, text=True)
    assert done.returncode == 7 and "tiledb" in done.stderr.lower()
    assert [p.name for p in tmp_path.iterdir()] == ["in.tgm"]


def test_outputs_are_not_replaced_unasked(tmp_path):
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": np.zeros(4, "f4")}])
    out = tmp_path / "out.tet"
    out.write_text("mine")
    tet("convert", source, out, code=2)
    tet("convert", source, out, "-f", code=2)
    assert out.read_text() == "mine", "a dataset replaces datasets alone"
    out.write_bytes(b"")
    tet("convert", source, out, code=2)
    for _ in range(2):
        tet("convert", source, out, "-f")
        assert tet_json("verify", out)["ok"]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    tet("convert", source, folder, "--to", "tet", "-f", code=2)
    assert (folder / "thesis.txt").read_text() == "mine"


def test_packing_keeps_its_bound(tmp_path):
    rng = np.random.default_rng(5)
    cells = 280 + 10 * rng.normal(size=(50, 40))
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "t", "cells": cells, "chunk_shape": (10, 40)}])
    sizes = []
    for bound in (1.0, 0.01, 1e-6):
        out = tmp_path / f"{bound}.tgm"
        report = tet_json("convert", source, out, "--max-abs-error", bound, "--codec", "zstd")
        packed = report["arrays"][0]["packed"]
        got = cells_of(out, "0/0", "f8", cells.shape)
        worst = np.abs(got - cells).max()
        assert worst <= bound and packed["max_abs_error"] == pytest.approx(worst)
        assert tet_json("info", out)["arrays"][0]["attributes"]["max_abs_error"] == bound
        assert tet("diff", source, out, "--array", "t", "--max-abs-error", bound, "-q", code=(0, 1)) is not None
        sizes.append(out.stat().st_size)
    assert sizes == sorted(sizes) and sizes[0] < cells.nbytes / 4
    tet("convert", source, tmp_path / "r.tgm", "--max-rel-error", 1e-3)
    got = cells_of(tmp_path / "r.tgm", "0/0", "f8", cells.shape)
    assert (np.abs(got - cells) <= 1e-3 * np.abs(cells)).all()
    tet("convert", source, tmp_path / "n.tet", "--max-abs-error", 1, code=7)


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_conversion_leaves_nothing(tmp_path, name):
    cells = np.random.default_rng(2).normal(size=(400, 512, 64)).astype("f4")
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells, "chunk_shape": (1, 512, 64)}])
    for path in tmp_path.glob("*.bin"):
        path.unlink()
    out = tmp_path / "out.tet"
    tet("convert", source, out, "--select", "0=0")
    old = out.read_bytes()
    child = subprocess.Popen([TET, "convert", source, out, "-f", "--codec", "zstd:12"], stderr=subprocess.PIPE)
    begun = time.time()
    while not list(tmp_path.glob(".tesseral-*")) and time.time() - begun < 60:
        time.sleep(0.005)
    time.sleep(0.05)
    child.send_signal(name)
    child.wait(60)
    assert child.returncode in (130, -signal.SIGKILL)
    assert out.read_bytes() == old
    if name != signal.SIGKILL:
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tet", "out.tet"]


def settled(path):
    """The content of a file or folder, except for names and times that differ in every write."""
    reported = tet_json("info", path)
    arrays = [{k: v for k, v in array.items() if k not in ("name", "variable")} for array in reported["arrays"]]
    return arrays, tet("cat", path, "a", "--raw") if path.exists() else None


@pytest.mark.parametrize("name, options", [
    ("out.tet", ["--codec", "zstd:9", "--chunk", "3,40,64"]),
    ("out.tet", ["--codec", "zstd:9", "--chunk", "64,16,16", "--memory", "2MiB"]),
    ("out", ["--codec", "bzip2", "--chunk", "8,64,64"]),
])
def test_a_killed_conversion_goes_on(tmp_path, name, options):
    rng = random.Random(name + str(options))
    cells = np.random.default_rng(2).normal(size=(64, 128, 64)).astype("f4")
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells, "chunk_shape": (4, 64, 64)}])
    (tmp_path / "a.0.bin").unlink()
    whole, out = tmp_path / f"whole-{name}", tmp_path / name
    begun = time.time()
    tet("convert", source, whole, *options, "--no-resume")
    taken = time.time() - begun
    kills = resumed = 0
    while kills < 8:
        child = subprocess.Popen([TET, "convert", source, out, *options, "--resume"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(rng.uniform(0.2, 0.9) * taken)
        child.kill()
        shown, reported = child.communicate()
        resumed += b"earlier attempt" in shown
        assert child.returncode in (0, -signal.SIGKILL), reported
        kills += child.returncode != 0
        # It is absent or complete: a process may be killed just after publishing it.
        if out.exists():
            assert settled(out) == settled(whole)
            shutil.rmtree(out) if out.is_dir() else out.unlink()
    done = tet_json("convert", source, out, *options, "--resume", "--check")
    assert done["resumed_chunks"] + resumed > 0
    assert settled(out) == settled(whole)
    assert same_bits(cells_of(out, "a", "f4", cells.shape), cells)
    assert not list(tmp_path.glob(".tesseral-*.resume"))
    # Another source is another conversion.
    child = subprocess.Popen([TET, "convert", source, out, *options, "--resume", "-f"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.5 * taken)
    child.kill()
    child.communicate()
    source.unlink()
    source = write(tmp_path, source, [{"name": "a", "cells": cells + 1, "chunk_shape": (4, 64, 64)}])
    done = tet_json("convert", source, out, *options, "--resume", "-f")
    assert done["resumed_chunks"] == 0
    assert same_bits(cells_of(out, "a", "f4", cells.shape), cells + 1)


WATCH = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
print(json.dumps([done.returncode, used, done.stderr.decode()]))
"""


def peak(arguments):
    """Run the binary; return exit code, peak resident memory in bytes, and its output. A small process starts it, because the memory of
    the parent at the time of the fork counts for the child."""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", WATCH, TET, *map(str, arguments)], capture_output=True, check=True)
    return json.loads(done.stdout)


LIMIT = 32 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file of eight times the limit, in chunks of one map each."""
    folder = tmp_path_factory.mktemp("large")
    cells = np.random.default_rng(3).integers(0, 1000, size=(1024, 256, 256)).astype("f4")
    path = write(folder, folder / "large.tet", [{"name": "a", "cells": cells, "chunk_shape": (4, 256, 256), "dims": ["time", "lat", "lon"]}])
    for data in folder.glob("*.bin"):
        data.unlink()
    return path, cells


@pytest.mark.parametrize("command, name, options", [
    ("convert", "out.tet", ["--codec", "raw"]),
    ("convert", "out.tet", ["--codec", "zstd:1", "--chunk", "16,64,64"]),
    ("convert", "out.tgm", ["--codec", "raw"]),
    ("convert", "out.tgm", ["--codec", "zstd:1"]),
    ("convert", "out", ["--codec", "zstd:1"]),
    ("rechunk", "out.tet", ["--chunks", "time=1024,lat=8,lon=8"]),
])
def test_memory_stays_within_the_limit(tmp_path, large, command, name, options):
    path, cells = large
    assert cells.nbytes >= 8 * LIMIT
    out = tmp_path / name
    code, used, reported = peak([command, path, out, *options, "--memory", "32MiB"])
    assert code == 0, reported
    assert used <= LIMIT + (64 << 20), f"{used >> 20} MiB: {reported}"
    array = "0/0" if name.endswith(".tgm") else "a"
    part = np.frombuffer(tet("cat", out, array, "--raw", "lat=100:108", "lon=3"), "f4").reshape(1024, 8, 1)
    assert same_bits(part, np.ascontiguousarray(cells[:, 100:108, 3:4]))
    assert not list(tmp_path.glob(".*"))
    shutil.rmtree(out) if out.is_dir() else out.unlink()


@pytest.mark.parametrize("arguments", [
    ["stat", "a"],
    ["stat", "a", "--mean", "time"],
    ["stat", "a", "--where", "a > 500", "--max", "--by", "time"],
    ["stat", "a", "--median", "--sketch", "0.01"],
    ["query", '{"dataset": "a", "filter": {"gt": 500}, "std": ["time", "lat"]}', "-x", "-q"],
    ["diff"],
])
def test_folds_stay_within_the_limit(large, arguments):
    path, _ = large
    command, rest = arguments[0], arguments[1:]
    source = {"stat": [path, *rest], "query": [rest[0] if rest else "", "-t", path, *rest[1:]], "diff": [path, path]}[command]
    code, used, reported = peak([command, *source, "--memory", "32MiB"])
    assert code == 0, reported
    assert used <= LIMIT + (64 << 20), f"{used >> 20} MiB: {reported}"


def test_what_must_be_gathered_says_so(large, tmp_path):
    path, _ = large
    code, _, reported = peak(["convert", path, tmp_path / "out.tgm", "--codec", "lz4", "--memory", "32MiB"])
    assert code == 6 and "--codec" in reported and not list(tmp_path.iterdir())
    code, _, reported = peak(["stat", path, "a", "--median", "--memory", "32MiB"])
    assert code == 6 and "--sketch" in reported


def test_rechunk_prints_its_plan(large, tmp_path):
    path, _ = large
    plan = tet_json("rechunk", path, tmp_path / "x.tet", "--chunks", "1024,8,8", "--memory", "32MiB", "--dry-run")
    [array] = plan["arrays"]
    assert array["passes"] == 2 and array["work_bytes"] <= LIMIT and array["bytes_read"] == 2 * array["raw_bytes"]
    direct = tet_json("rechunk", path, tmp_path / "x.tet", "--chunks", "8,256,256", "--memory", "32MiB", "--dry-run")
    assert direct["arrays"][0]["passes"] == 1 and direct["arrays"][0]["read_amplification"] == 1
    tet("rechunk", path, tmp_path / "x.tet", "--chunks", "1024,256,256", "--memory", "32MiB", code=6)
    assert not (tmp_path / "x.tet").exists()


@pytest.mark.parametrize("seed", range(10))
def test_rechunk_keeps_every_cell(tmp_path, seed):
    rng = random.Random(seed)
    shape = tuple(rng.randint(20, 60) for _ in range(rng.randint(1, 3)))
    cells = random_cells(rng, rng.choice(DTYPES), shape, "bits")
    chunk = tuple(rng.randint(1, n) for n in shape)
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells, "chunk_shape": chunk, "codec": rng.choice(["raw", "zstd"])}])
    new = tuple(rng.randint(1, n) for n in shape)
    need = (2 * math.prod(chunk) + 3 * math.prod(new)) * cells.dtype.itemsize
    memory = need + rng.randint(0, 4 * max(math.prod(chunk), math.prod(new)) * cells.dtype.itemsize)
    out = tmp_path / "b.tet"
    report = tet_json("rechunk", source, out, "--chunks", ",".join(map(str, new)), "--memory", memory, "--threads", rng.randint(1, 3))
    assert arrays_of(out)["a"]["chunk_shape"] == list(new)
    assert same_bits(cells_of(out, "a", cells.dtype, shape), cells), report


def test_diff_tells_what_differs(tmp_path):
    cells = np.arange(24, dtype="f8").reshape(4, 6)
    other = cells.copy()
    other[2, 3] += 0.5
    other[3, 5] = np.nan
    base = {"name": "a", "chunk_shape": (3, 3), "dims": ["y", "x"]}
    one = write(tmp_path, tmp_path / "one.tet", [{**base, "cells": cells, "attrs": {"units": "K"}}])
    two = write(tmp_path, tmp_path / "two.tet", [{**base, "cells": other, "attrs": {"units": "degC"}}])
    found = tet_json("diff", one, two, code=1)
    assert not found["same"]
    assert found["metadata"] == [{"array": "a", "what": "attribute units", "left": "K", "right": "degC"}]
    [values] = found["values"]
    assert values["differing"] == 2 and values["first"]["position"] == [2, 3] and values["max_abs_error"] == 0.5
    near = tet_json("diff", one, two, "--max-abs-error", 0.5, code=1)["values"][0]
    assert near["differing"] == 1 and near["first"]["position"] == [3, 5]
    assert tet_json("diff", one, one)["same"]
    zeros = [write(tmp_path, tmp_path / f"z{i}.tet", [{"name": "z", "cells": np.array([z], "f4")}]) for i, z in enumerate([0.0, -0.0])]
    assert not tet_json("diff", *zeros, code=1)["same"]
    assert tet_json("diff", *zeros, "--max-abs-error", 0)["same"]
    tet("diff", *zeros, "--max-abs-error", "nan", code=2)


def test_advice_follows_the_reads(large):
    path, _ = large
    series = tet_json("advise", path, "a", "--read", "lat=3 lon=5")
    assert series["shapes"][0]["chunk_shape"][0] >= 256 and series["command"].startswith("tet rechunk ")
    maps = tet_json("advise", path, "a", "--read", "time=7")
    assert maps["shapes"][0]["chunk_shape"][0] <= 4
    costs = [shape["cost"] for shape in series["shapes"] if not shape["current"]]
    assert costs == sorted(costs)


def test_pictures(tmp_path):
    y, x = np.mgrid[0:40, 0:60]
    cells = np.sin(x / 9) + y / 20
    cells[0, 0] = np.nan
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": cells, "dims": ["y", "x"], "attrs": {"units": "m"}}])
    found = tet_json("plot", source, "a")
    assert found["kind"] == "field" and found["units"] == "m" and found["not_finite"] == 1
    assert found["low"] == pytest.approx(np.nanmin(cells)) and found["high"] == pytest.approx(np.nanmax(cells))
    text = tet("plot", source, "a", "--width", 40).decode()
    assert "m" in text and max(map(len, text.splitlines())) <= 60 and "\x1b" not in text
    colored = tet("plot", source, "a", "--width", 40, "--color", "always").decode()
    assert "\x1b[38;2;" in colored and "▀" in colored
    line = tet("plot", source, "a", "y=3", "--width", 50).decode()
    assert any("\u2800" <= c <= "\u28ff" for c in line)
    tet("plot", source, "a", "-o", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    tet("plot", source, "a", "-o", tmp_path / "a.png", code=2)
    assert Path(tmp_path / "a.png").stat().st_size > 100
    tet("plot", source, "a", "-o", tmp_path / "a.jpg", code=7)


def test_maps_have_north_up_and_axes_in_coordinates(tmp_path):
    lat, lon = np.linspace(-60, 60, 13), np.arange(0, 360, 30.0)
    cells = lat[:, None] + lon[None, :] / 1000
    cells[2, 3] = -999
    drawn = {}
    for way, order in (("up", slice(None)), ("down", slice(None, None, -1))):
        labels = {"lat": [str(v) for v in lat[order]], "lon": [str(v) for v in lon]}
        attrs = {"units": "K", "long_name": "Warmth", "_FillValue": "-999"}
        array = {"name": "t", "cells": cells[order].copy(), "dims": ["lat", "lon"], "labels": labels, "attrs": attrs}
        source = write(tmp_path, tmp_path / f"{way}.tet", [array])
        drawn[way] = tet("plot", source, "t", "--width", 60).decode()
        picture = tmp_path / f"{way}.svg"
        tet("plot", source, "t", "-o", picture)
        texts = [e.text for e in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
        assert texts[0] == "Warmth" and {"lat", "lon", "t [K]"} <= set(texts)
        assert any(text.startswith("missing: 1 of") for text in texts)
        tet("plot", source, "t", "-o", tmp_path / f"{way}.png")
    # The same picture, whichever way latitudes are stored.
    assert drawn["up"] == drawn["down"]
    assert (tmp_path / "up.png").read_bytes() == (tmp_path / "down.png").read_bytes()
    lines = drawn["up"].splitlines()
    assert lines[0].startswith("Warmth [K]") and "@" in lines[2] and "." in lines[13]
    assert tet_json("plot", tmp_path / "up.tet", "t")["axes"][0] == {
        "name": "lat", "units": "", "first": "-60.0", "last": "60.0"}


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", ">u4", "|u1", "<c16", "<M8[s]"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files_in_and_out(tmp_path, dtype, order):
    cells = np.random.default_rng(5).integers(0, 200, size=(7, 5, 3)).astype(dtype)
    np.save(tmp_path / "a.npy", np.asarray(cells, order=order))
    held = ["tdb"] if cells.dtype.kind == "M" else ["tgm", "tdb"] if cells.dtype.kind == "c" else ["tet", "tgm", "tdb"]
    for ending in held:
        out, back = tmp_path / f"o.{ending}", tmp_path / f"{ending}.npy"
        tet("import", tmp_path / "a.npy", out, *([] if ending == "tgm" else ["--chunk", "4,2,3"]))
        tet("export", out, back)
        assert same_bits(np.load(back), cells.astype(cells.dtype.newbyteorder("<")))
        tet("convert", out, tmp_path / f"{ending}.csv")
        rows = (tmp_path / f"{ending}.csv").read_text().splitlines()
        assert len(rows) == cells.size + 1
        reported = tet_json("convert", out, tmp_path / f"{ending}.part.npy", "--select", "0=2:4")
        assert reported["format"] == "npy" and np.load(tmp_path / f"{ending}.part.npy").shape[0] == 2
        tet("export", out, back, code=2)
        tet("diff", tmp_path / "a.npy", out, code=(0, 1))
    # The file itself is readable as an array.
    little = cells.astype(cells.dtype.newbyteorder("<"))
    assert tet("cat", tmp_path / "a.npy", "--raw") == little.tobytes()
    assert tet("cat", tmp_path / "a.npy", "0=1:7:2", "2=1", "--raw") == little[1:7:2, :, 1].tobytes()
    shown = tet_json("info", tmp_path / "a.npy")
    assert (shown["format"], shown["arrays"][0]["shape"], shown["npy"]["fortran_order"]) == ("npy", [7, 5, 3], order == "F")
    if cells.dtype.kind in "iuf":
        assert number(tet_json("stat", tmp_path / "a.npy")["sum"]) == cells.sum()
        tet("convert", tmp_path / "a.npy", tmp_path / "cast.tet", "--cast", "int32", "--select", "1=0:2", "--check")
        assert tet("cat", tmp_path / "cast.tet", "--raw") == cells[:, :2].astype("<i4").tobytes()
    tet("verify", tmp_path / "a.npy", "--deep")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    tet("import", tmp_path / "cut.npy", tmp_path / "cut.tdb", code=(4, 5))
    assert not (tmp_path / "cut.tdb").exists()


def test_numpy_files_of_records_are_not_supported(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(2, [("a", "i4"), ("b", "f8")]))
    tet("import", tmp_path / "a.npy", tmp_path / "a.tgm", code=7)


@pytest.mark.parametrize("seed", range(6))
def test_random_numpy_files(tmp_path, seed):
    """Any dtype, rank, order, header version and window."""
    rng = np.random.default_rng(seed)
    for _ in range(8):
        dtype = rng.choice(["|b1", "<i1", ">i2", "<u4", ">i8", "<f2", ">f4", "<f8", ">c8", "|S5", "<m8[h]"])
        shape = rng.integers(1, 9, size=rng.integers(0, 5))
        cells = np.asarray(rng.integers(0, 120, size=shape)).astype(dtype)
        with open(tmp_path / "a.npy", "wb") as file:
            version = [(1, 0), (2, 0), (3, 0)][rng.integers(3)]
            np.lib.format.write_array(file, np.asarray(cells, order=rng.choice(["C", "F"])), version=version)
        starts = [int(rng.integers(0, n)) for n in shape]
        stops = [int(rng.integers(a + 1, n + 1)) for a, n in zip(starts, shape)]
        steps = [int(rng.integers(1, 4)) for _ in shape]
        words = [f"{d}={a}:{b}:{c}" for d, (a, b, c) in enumerate(zip(starts, stops, steps))]
        wanted = cells[*(slice(a, b, c) for a, b, c in zip(starts, stops, steps)), ...]
        wanted = wanted.astype(wanted.dtype.newbyteorder("<"))
        assert tet("cat", tmp_path / "a.npy", "--raw", *words) == wanted.tobytes(), (dtype, shape, words)


def test_pipes_are_refused_at_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in (["info", pipe], ["convert", pipe, tmp_path / "o.tgm"], ["verify", pipe]):
        done = subprocess.run([TET, *arguments], capture_output=True, timeout=10)
        assert done.returncode == 7 and b"pipe" in done.stderr, arguments


def test_lost_digests_are_reported(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0))
    for ending in ["tet", "tgm", "tdb"]:
        out = tmp_path / f"o.{ending}"
        assert tet_json("convert", tmp_path / "a.npy", out)["digests_lost"] is False
        assert tet_json("convert", out, tmp_path / f"{ending}.npy")["digests_lost"] is True
        done = subprocess.run([TET, "convert", out, tmp_path / f"{ending}.csv"], capture_output=True, check=True)
        assert b"digests" in done.stderr and b"lost" in done.stderr
    done = subprocess.run([TET, "convert", tmp_path / "a.npy", tmp_path / "b.csv"], capture_output=True, check=True)
    assert done.stderr == b"", "the source carries none"
    assert tet_json("convert", tmp_path / "a.npy", tmp_path / "c.csv", "--dry-run")["digests_lost"] is False


def test_a_file_of_many_small_messages_needs_no_larger_limit(tmp_path):
    """Its metadata is part of what justifies the work: a thousand arrays of 64 bytes are not an expansion of a file of 700 kB."""
    one = tensogram.encode({"base": [{"name": "z"}]}, [(descriptor("float32", [16]), np.arange(16, dtype="<f4").tobytes())])
    (tmp_path / "many.tgm").write_bytes(one * 6000)
    assert len(tet_json("convert", tmp_path / "many.tgm", tmp_path / "out.tgm")["arrays"]) == 6000
