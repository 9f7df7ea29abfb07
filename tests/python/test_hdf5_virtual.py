"""Virtual datasets and raw files of HDF5: cells in other files, equal to what h5py reads."""

import itertools
import os
import random
import shutil
import subprocess

import numpy as np
import pytest
from support import TET, tet, tet_json

h5py = pytest.importorskip("h5py")


def source(path, values, name="data", **options):
    with h5py.File(path, "a", libver=options.pop("libver", "earliest")) as file:
        file.create_dataset(name, data=values, **options)


def numbers(shape, dtype="i4", seed=0):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def raw(path, name, *selection):
    return tet("cat", path, name, *selection, "--raw")


def same(path, name="v", windows=10):
    """Every cell, and windows, equal what h5py reads."""
    with h5py.File(path) as file:
        expected = file[name][...]
    little = expected.dtype.newbyteorder("<")
    array = next(a for a in tet_json("info", path)["arrays"] if a["name"] == name)
    assert array["shape"] == list(expected.shape)
    assert raw(path, name) == expected.astype(little).tobytes()
    rng = random.Random(f"{path.name} {name}")
    for _ in range(windows if expected.size else 0):
        box = []
        for n in expected.shape:
            start = rng.randrange(n)
            box.append(slice(start, rng.randrange(start + 1, n + 1), rng.choice([1, 1, 2, 3])))
        selection = [f"{d}={s.start}:{s.stop}:{s.step}" for d, s in enumerate(box)]
        assert raw(path, name, *selection) == np.ascontiguousarray(expected[tuple(box)]).astype(little).tobytes()
    return expected


@pytest.mark.parametrize("libver", ["v110", "latest"])
@pytest.mark.parametrize("options", [{}, {"chunks": (4, 3)}, {"chunks": (3, 5), "compression": "gzip", "shuffle": True}, {"dtype": ">i2"}], ids=["contiguous", "chunks", "gzip", "big"])
def test_rows_of_files_beside_it(tmp_path, libver, options):
    dtype = options.pop("dtype", "<f4")
    layout = h5py.VirtualLayout((5, 10, 7), dtype)
    for n in range(4):
        source(tmp_path / f"{n}.h5", numbers((10, 7), dtype, n), **options)
        layout[n] = h5py.VirtualSource(f"{n}.h5", "data", (10, 7))
    with h5py.File(tmp_path / "v.h5", "w", libver=libver) as file:
        file.create_virtual_dataset("v", layout, fillvalue=-7)
        file["v"].attrs["units"] = "K"
        file["w"] = np.arange(3)
        file["link"] = h5py.SoftLink("/v")
        file["same"] = file["v"]
    expected = same(tmp_path / "v.h5")
    assert (expected[4] == -7).all()
    same(tmp_path / "v.h5", "link", 2)
    same(tmp_path / "v.h5", "same", 2)
    info = tet_json("info", tmp_path / "v.h5")
    assert next(a for a in info["arrays"] if a["name"] == "v")["attributes"]["units"] == "K"
    tet("verify", tmp_path / "v.h5", "--deep")
    tet("convert", tmp_path / "v.h5", tmp_path / "copy.nc", "--check")
    tet("index", tmp_path / "v.tix", tmp_path / "v.h5")
    assert raw(tmp_path / "v.tix", "v", "0=1:4", "1=2:9") == np.ascontiguousarray(expected[1:4, 2:9]).astype(expected.dtype.newbyteorder("<")).tobytes()
    # The folder can be moved.
    shutil.move(tmp_path / "v.h5", tmp_path / "moved.h5")
    same(tmp_path / "moved.h5", windows=1)


def test_boxes_of_sources_in_boxes_of_the_target(tmp_path):
    source(tmp_path / "a.h5", numbers((12, 20), "u2", 1), chunks=(5, 6))
    source(tmp_path / "b.h5", numbers((6, 4, 9), "u2", 2), chunks=(2, 3, 4), compression="gzip")
    a, b = h5py.VirtualSource("a.h5", "data", (12, 20)), h5py.VirtualSource("b.h5", "data", (6, 4, 9))
    layout = h5py.VirtualLayout((20, 30), "u2")
    layout[0:6, 0:10] = a[3:9, 7:17]
    layout[6:18:4, 1:30:3] = a[0:9:3, 0:20:2]
    layout[1:5, 20:29] = b[2, :, :]
    layout[19, 0:6] = b[:, 1, 3]
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=9)
    same(tmp_path / "v.h5", windows=30)


def test_interleaved_frames(tmp_path):
    layout = h5py.VirtualLayout((22, 4, 5), "f8")
    for n in range(4):
        count = len(range(n, 22, 4))
        source(tmp_path / f"{n}.h5", numbers((count, 4, 5), "f8", n), chunks=(2, 4, 5))
        layout[n::4] = h5py.VirtualSource(f"{n}.h5", "data", (count, 4, 5))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
    same(tmp_path / "v.h5", windows=20)


def test_datasets_of_the_same_file_and_virtual_sources(tmp_path):
    path = tmp_path / "v.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["g/x"], file["g/y"] = numbers((3, 4), seed=1), numbers((3, 4), seed=2)
        layout = h5py.VirtualLayout((2, 3, 4), "i4")
        layout[0], layout[1] = h5py.VirtualSource(file["g/x"]), h5py.VirtualSource(file["g/y"])
        file.create_virtual_dataset("v", layout)
        outer = h5py.VirtualLayout((4, 3), "i4")
        outer[...] = h5py.VirtualSource(".", "w", (4, 3))
        file["w"] = numbers((4, 3), seed=3)
        file.create_virtual_dataset("outer", outer)
    same(path)
    same(path, "outer")
    with h5py.File(tmp_path / "above.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((3, 4), "i4")
        layout[...] = h5py.VirtualSource("v.h5", "v", (2, 3, 4))[1]
        file.create_virtual_dataset("v", layout)
    same(tmp_path / "above.h5")


def test_datasets_that_contain_themselves_end(tmp_path):
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((3,), "i4")
        layout[...] = h5py.VirtualSource(".", "v", (3,))
        file.create_virtual_dataset("v", layout)
        file["w"] = np.arange(3)
    assert raw(tmp_path / "v.h5", "w") == np.arange(3).tobytes()
    tet("cat", tmp_path / "v.h5", "v", code=7)


def test_sources_that_multiply_are_bounded(tmp_path):
    """Each dataset maps its only cell a hundred times to the one before: a million boxes for the last."""
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file["v0"] = np.arange(1, dtype="i4")
        for level in range(1, 4):
            layout = h5py.VirtualLayout((1,), "i4")
            for _ in range(100):
                layout[0:1] = h5py.VirtualSource(".", f"v{level - 1}", (1,))
            file.create_virtual_dataset(f"v{level}", layout)
    assert raw(tmp_path / "v.h5", "v2") == np.arange(1, dtype="i4").tobytes()
    tet("cat", tmp_path / "v.h5", "v3", code=6)


def unlimited(path, shape, maximum, dtype, mappings, name="v", fill=None):
    """A virtual dataset of mappings (file, dataset, extents there, selection there, selection here)."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.VIRTUAL)
    if fill is not None:
        plist.set_fill_value(np.asarray(fill, dtype))
    for file, dataset, extents, there, here in mappings:
        inner = h5py.h5s.create_simple(extents, tuple(h5py.h5s.UNLIMITED for _ in extents))
        inner.select_hyperslab(*there)
        outer = h5py.h5s.create_simple(shape, maximum)
        outer.select_hyperslab(*here)
        plist.set_virtual(outer, os.fsencode(file), dataset.encode(), inner)
    with h5py.File(path, "a", libver="latest") as file:
        space = h5py.h5s.create_simple(shape, maximum)
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), space, plist).close()


def test_one_file_for_each_block(tmp_path):
    for n in range(3):
        source(tmp_path / f"run%{n}.h5", numbers((2, 5), "i4", n))
    u = h5py.h5s.UNLIMITED
    # Start, count, stride and block of each selection.
    unlimited(tmp_path / "v.h5", (2, 5), (u, 5), "i4", [("run%%%b.h5", "data", (2, 5), ((0, 0), (1, 1), (1, 1), (2, 5)), ((0, 0), (u, 1), (2, 1), (2, 5)))])
    assert same(tmp_path / "v.h5").shape == (6, 5)
    # With gaps between the blocks.
    unlimited(tmp_path / "gaps.h5", (3, 5), (u, 5), "i4", [("run%%%b.h5", "data", (2, 5), ((0, 0), (1, 1), (1, 1), (2, 5)), ((1, 0), (u, 1), (3, 1), (2, 5)))], fill=-1)
    assert same(tmp_path / "gaps.h5").shape == (9, 5)
    source(tmp_path / "run%3.h5", numbers((2, 5), "i4", 9))
    assert same(tmp_path / "v.h5").shape == (8, 5)


def test_sources_that_grew(tmp_path):
    for name, rows in (("a", 5), ("b", 8)):
        source(tmp_path / f"{name}.h5", numbers((rows, 3), "f4", rows), maxshape=(None, 3), chunks=(2, 3))
    u = h5py.h5s.UNLIMITED
    mappings = [(f"{name}.h5", "data", (4, 3), ((0, 0), (u, 1), (1, 1), (1, 3)), ((at, 0), (u, 1), (2, 1), (1, 3))) for at, name in enumerate("ab")]
    unlimited(tmp_path / "v.h5", (4, 3), (u, 3), "f4", mappings, fill=4)
    assert same(tmp_path / "v.h5").shape == (16, 3)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["data"].resize((11, 3))
    assert same(tmp_path / "v.h5").shape == (21, 3)


@pytest.mark.parametrize("kind", ["text", "compound", "array", "float16", "bool"])
def test_cells_of_every_kind(tmp_path, kind):
    dtype = {
        "text": h5py.string_dtype(),
        "compound": np.dtype([("a", "<i4"), ("b", ">f8", (2,))]),
        "array": np.dtype(("<i2", (3,))),
        "float16": np.dtype("f2"),
        "bool": np.dtype("?"),
    }[kind]
    base = dtype.subdtype[0] if dtype.subdtype else dtype
    layout = h5py.VirtualLayout((2, 6), dtype)
    for n in range(2):
        with h5py.File(tmp_path / f"{n}.h5", "w") as file:
            if kind == "text":
                data = np.array([f"{'x' * (i % 4)}{n}" for i in range(9)], object)
            elif kind == "compound":
                data = np.zeros(9, dtype)
                data["a"], data["b"] = np.arange(9) + n, np.arange(18).reshape(9, 2) - n
            else:
                data = (np.arange(9 * (3 if kind == "array" else 1)).reshape((9, 3) if kind == "array" else (9,)) + n).astype(base)
            file.create_dataset("data", (9,), dtype, chunks=(4,))[...] = data
        layout[n] = h5py.VirtualSource(f"{n}.h5", "data", (9,))[2:8]
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
        expected = file["v"][...]
    if kind == "text":
        assert tet_json("cat", tmp_path / "v.h5", "v")["data"] == [[cell.decode() for cell in row] for row in expected]
    elif kind == "compound":
        for name in "ab":
            assert raw(tmp_path / "v.h5", f"v/{name}") == np.ascontiguousarray(expected[name]).astype(expected[name].dtype.newbyteorder("<")).tobytes()
    else:
        assert raw(tmp_path / "v.h5", "v") == expected.tobytes()


def test_sources_that_do_not_exist_are_fill_values_and_named(tmp_path):
    layout = h5py.VirtualLayout((3, 4), "i4")
    for n in range(3):
        layout[n] = h5py.VirtualSource(f"{n}.h5", "data", (4,))
    source(tmp_path / "1.h5", numbers(4))
    source(tmp_path / "2.h5", numbers(4), name="other")
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout, fillvalue=-3)
    expected = same(tmp_path / "v.h5")
    assert (expected[[0, 2]] == -3).all()
    assert "0.h5" in tet("info", tmp_path / "v.h5").decode()
    tet("cat", tmp_path / "v.h5", "v", "--strict", code=(3, 4, 5))


def test_only_files_in_the_folder_are_read(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir(), (inside / "deep").mkdir(parents=True)
    source(outside / "a.h5", numbers(4))
    source(inside / "deep/b.h5", numbers(4, seed=1))
    source(inside / "c.h5", numbers(4, seed=2))
    (outside / "secret").write_bytes(b"secret..")
    names = {"absolute": str(outside / "a.h5"), "above": "../outside/a.h5", "hidden": "deep/../../outside/a.h5"}
    allowed = {"below": "deep/b.h5", "here": "./c.h5", "full": str(inside / "c.h5"), "copied": "/elsewhere/c.h5"}
    with h5py.File(inside / "v.h5", "w", libver="latest") as file:
        for name, path in (names | allowed).items():
            layout = h5py.VirtualLayout((4,), "i4")
            layout[...] = h5py.VirtualSource(path, "data", (4,))
            file.create_virtual_dataset(name, layout)
        file.create_dataset("raw", (8,), "S1", external=[(str(outside / "secret"), 0, 8)])
        file.create_dataset("climbing", (8,), "S1", external=[("../outside/secret", 0, 8)])
    for name in [*names, "raw", "climbing"]:
        tet("cat", inside / "v.h5", name, code=7)
    for name, path in allowed.items():
        with h5py.File(inside / path.replace("/elsewhere/", ""), "r") as file:
            assert raw(inside / "v.h5", name) == file["data"][...].tobytes(), name
    assert b"secret" not in tet("cat", inside / "v.h5", "below")


@pytest.mark.parametrize("dtype", ["<i4", ">f8", "S3"])
def test_cells_in_raw_files(tmp_path, dtype, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = numbers((9, 7), "i4").astype(dtype)
    pieces = [(0, 40), (40, 41), (41, values.nbytes)]
    files = []
    for n, (start, end) in enumerate(pieces):
        (tmp_path / f"{n}.raw").write_bytes(bytes(n * 3) + values.tobytes()[start:end])
        files.append((f"{n}.raw", n * 3, end - start))
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("one", values.shape, dtype, external=[("whole.raw", 5, h5py.h5f.UNLIMITED)])
        file.create_dataset("several", values.shape, dtype, external=files)
    (tmp_path / "whole.raw").write_bytes(bytes(5) + values.tobytes())
    with h5py.File("a.h5") as file:
        assert (file["one"][...] == values).all() and (file["several"][...] == values).all()
    for name in ("one", "several"):
        same(tmp_path / "a.h5", name)
    tet("convert", "a.h5", tmp_path / "a.tet", "--check")
    # A file that is too short is an error, never zeros.
    (tmp_path / "2.raw").write_bytes(b"")
    tet("cat", tmp_path / "a.h5", "several", code=5)


def test_damage_of_the_mappings_is_an_error_or_harmless(tmp_path):
    layout = h5py.VirtualLayout((4, 6), "i4")
    for n in range(4):
        source(tmp_path / f"{n}.h5", numbers(6, seed=n))
        layout[n] = h5py.VirtualSource(f"{n}.h5", "data", (6,))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("v", layout)
    expected, whole = raw(tmp_path / "v.h5", "v"), (tmp_path / "v.h5").read_bytes()
    rng = random.Random(7)
    start = whole.index(b"GCOL")
    end = whole.index(b"data\0", start) + 200
    for at in itertools.chain(rng.sample(range(start, end), 30), rng.sample(range(len(whole)), 10)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << rng.randrange(8)
        (tmp_path / "flipped.h5").write_bytes(flipped)
        done = subprocess.run([TET, "cat", tmp_path / "flipped.h5", "v", "--raw"], capture_output=True, timeout=60)
        assert done.returncode in (0, 3, 4, 5, 6, 7), (at, done.stderr)
        assert done.returncode != 0 or done.stdout == expected, at
