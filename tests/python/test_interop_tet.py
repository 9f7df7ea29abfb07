"""Interoperability with the reference: files written by either are read by the other, bit for bit."""

import csv
import hashlib
import io
import json
import random

import numpy as np
import pytest
import tet as reference
from support import (
    DTYPES,
    ROOT,
    check_stat,
    example,
    random_cells,
    random_metadata,
    random_shape,
    tet,
    tet_json,
    write,
)
from tetwalk import fill_of, walk

FIXTURES = ROOT / "fixtures" / "tet"
MANIFEST = json.loads((FIXTURES / "manifest.json").read_text())["fixtures"]
NAMES = ["a", "sst", "grp/temp", "Übung", "two words", "x" * 200]


def same(left, right):
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def has_nan(cells):
    return cells.dtype.kind == "f" and bool(np.isnan(cells).any())


def random_arrays(rng, seed, kinds):
    """One to three arrays; over all seeds every dtype and every rank occurs."""
    arrays = []
    for i, name in enumerate(rng.sample(NAMES, 3)):
        shape, chunk = random_shape(rng, rank=(seed + 3 * i) % 8 + 1 if i < 2 else None)
        cells = random_cells(rng, DTYPES[(seed * 3 + i) % 10], shape, rng.choice(kinds))
        arrays.append({"name": name, "cells": cells, "chunk_shape": chunk, **random_metadata(rng, shape)})
    return arrays


# Ours to theirs ------------------------------------------------------------------------------------------------------


def reference_reads(file, walked, path, array):
    """The cells as the reference reads them; from the payloads where it cannot (docs/formats/tet.md, 12: NaN)."""
    try:
        return file.read_numpy(array["name"])
    except reference.TetError:
        assert has_nan(array["cells"]), "only a NaN keeps the reference from reading"
    found = walked.array(array["name"])
    if found is None:
        raw = tet("cat", path, array["name"], "--raw")
        found = np.frombuffer(raw, array["cells"].dtype).reshape(array["cells"].shape)
    return found


def reduces(walked, name):
    """Whether the reference can reduce an array: misaligned float32 payloads make it panic (docs/formats/tet.md, 12)."""
    rows = [row for row in walked.rows if walked.datasets[row.dataset].name == name]
    aligned = all(row.codec or row.offset % 4 == 0 for row in rows)
    return aligned or walked.datasets[rows[0].dataset].dtype != "<f4"


@pytest.mark.parametrize("seed", range(60))
def test_ours_to_theirs(seed, tmp_path):
    rng = random.Random(1000 + seed)
    arrays = random_arrays(rng, seed, ["bits", "few", "tame", "wild"])
    for array in arrays:
        array["codec"] = rng.choice(["raw", "raw", "zstd", "zstd:1", "zstd:19"])
        array["order"] = rng.choice(["canonical", "canonical", "shuffled", "parallel"])
    history = [{"op": "write", "source": "test", "at": str(rng.randint(0, 2**31))} for _ in range(rng.randint(0, 2))]
    path = write(
        tmp_path,
        tmp_path / "ours.tet",
        arrays,
        digests=rng.random() < 0.5,
        zone_maps=rng.random() < 0.5,
        history=history,
        file={"tool": "tesseral"} if rng.random() < 0.5 else {},
    )
    walked = walk(path)
    with reference.open(path) as file:
        assert list(file.dataset_names) == [a["name"] for a in arrays]
        summary = file.summary()
        assert [row["op"] for row in summary.get("history", [])] == [row["op"] for row in history]
        for array in arrays:
            name, cells = array["name"], array["cells"]
            dataset = file.dataset(name)
            assert dataset.shape == cells.shape and dataset.chunk_shape == array["chunk_shape"]
            entry = summary.get("metadata", {}).get("datasets", {}).get(name, {})
            assert entry.get("attrs", {}) == array.get("attrs", {})
            assert entry.get("dim_names") == array.get("dims")
            labels = {axis: c["labels"] for axis, c in (entry.get("coords") or {}).items()}
            assert labels == array.get("labels", {})
            assert same(reference_reads(file, walked, path, array), cells)
            if not has_nan(cells):
                steps = [(rng.randrange(n), rng.randint(1, 3)) for n in cells.shape]
                selection = [{"start": at, "stop": n, "step": step} for (at, step), n in zip(steps, cells.shape)]
                want = cells[tuple(slice(at, None, step) for at, step in steps)]
                assert same(file.read_numpy(name, selection=selection), np.ascontiguousarray(want))
                if np.abs(cells.astype("f8")).max() <= 1000 and reduces(walked, name):
                    # These numbers have exact sums in any order.
                    assert file.sum(name) == float(cells.astype("f8").sum())
    assert tet_json("verify", path)["ok"]


def test_files_survive_the_references_own_rewriting(tmp_path):
    """Appending rewrites everything; our arrays are unchanged, and so is an open container."""
    rng = random.Random(5)
    arrays = [
        {"name": "a", "cells": random_cells(rng, "float32", (6, 7), "tame"), "chunk_shape": (4, 4), "codec": "zstd"},
        {"name": "b", "cells": random_cells(rng, "uint64", (9,), "bits"), "chunk_shape": (4,)},
    ]
    path = write(tmp_path, tmp_path / "ours.tet", arrays, zone_maps=True)
    writer = reference.TetWriter.open_append(path)
    more = random_cells(rng, "int16", (3, 3), "bits")
    writer.write_dataset("c", more, chunk_shape=(2, 2))
    writer.commit()
    for array in [*arrays, {"name": "c", "cells": more}]:
        assert tet("cat", path, array["name"], "--raw") == array["cells"].tobytes()
    assert tet_json("verify", path, "--deep")["ok"]


# Theirs to ours ------------------------------------------------------------------------------------------------------


def write_theirs(path, arrays, history=()):
    writer = reference.TetWriter.create(path)
    for array in arrays:
        writer.write_dataset(
            array["name"],
            array["cells"],
            chunk_shape=array["chunk_shape"],
            attrs=array.get("attrs"),
            dim_names=array.get("dims"),
            coords=array.get("labels"),
        )
    for op, source in history:
        writer.push_history_event(op, source)
    writer.commit()


def missing(cells, attrs):
    """Which cells equal the declared fill value numerically: zeros of both signs are equal; NaN is missing if the fill value is NaN."""
    fill = fill_of(attrs, cells.dtype)
    if fill is None:
        return np.zeros(cells.shape, bool)
    value = np.frombuffer(fill, cells.dtype)[0]
    return np.isnan(cells) if value != value else cells == value


def check_info(entry, array):
    cells = array["cells"]
    dims = array.get("dims") or [str(d) for d in range(cells.ndim)]
    assert (entry["name"], entry["dtype"], entry["sparse"]) == (array["name"], cells.dtype.name, False)
    assert (entry["shape"], entry["dims"]) == (list(cells.shape), dims)
    assert entry["chunk_shape"] == list(array["chunk_shape"])
    assert entry["chunks"] == np.prod([-(-n // c) for n, c in zip(cells.shape, array["chunk_shape"])])
    assert entry["raw_bytes"] == cells.nbytes
    assert entry["attributes"] == array.get("attrs", {})
    labels = {axis: coords["labels"] for axis, coords in entry["coords"].items()}
    assert labels == array.get("labels", {})


@pytest.mark.parametrize("seed", range(55))
def test_theirs_to_ours(seed, tmp_path):
    rng = random.Random(2000 + seed)
    arrays = random_arrays(rng, seed, ["bits", "bits", "few", "tame", "wild"])
    for array in arrays:
        if rng.random() < 0.3:
            attrs = array.setdefault("attrs", {})
            attrs[rng.choice(["_FillValue", "missing_value", "fill_value"])] = rng.choice(["0", "7", "1e20", "NaN", "x"])
    path = tmp_path / "theirs.tet"
    history = [("import", "lab")] if rng.random() < 0.5 else []
    write_theirs(path, arrays, history)

    info = tet_json("info", path)
    assert (info["format"], len(info["arrays"])) == ("tet", len(arrays))
    assert [(row["op"], row["source"]) for row in info["history"]] == (history or [("write", str(path))])
    assert info["attributes"]["tool"] == "tet-py"
    for entry, array in zip(info["arrays"], arrays):
        check_info(entry, array)
        name, cells = array["name"], array["cells"]
        assert tet("cat", path, name, "--raw") == cells.tobytes()
        assert np.frombuffer(tet("cat", path, name, "--validity", "--stored"), "u1").all()
        check_stat(tet_json("stat", path, name), cells, missing(cells, array.get("attrs", {})))
    assert tet_json("verify", path, "--deep")["ok"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_text_forms_hold_the_same_values(dtype, tmp_path):
    rng = random.Random(dtype)
    cells = random_cells(rng, dtype, (4, 5), "bits")
    path = tmp_path / "theirs.tet"
    labels = {"y": ["p", "q,r", 's"t', "u"], "x": [str(i / 2) for i in range(5)]}
    array = {"name": "a", "cells": cells, "chunk_shape": (2, 2), "dims": ["y", "x"], "labels": labels}
    write_theirs(path, [array])

    def value(text):
        if cells.dtype.kind != "f":
            return int(text)
        return float({"Infinity": "inf", "-Infinity": "-inf"}.get(text, text))

    def agree(values):
        got = np.array(values, dtype if cells.dtype.kind == "f" else object).reshape(cells.shape)
        if cells.dtype.kind == "f":
            assert np.array_equal(got, cells, equal_nan=True)
            numbers = ~np.isnan(cells)
            assert np.array_equal(np.signbit(got[numbers]), np.signbit(cells[numbers])), "zeros keep their sign"
        else:
            assert (got == cells.astype(object)).all()

    rows = list(csv.reader(io.StringIO(tet("cat", path, "--format", "csv").decode())))
    assert rows[0] == ["y", "x", "a"]
    assert [tuple(row[:2]) for row in rows[1:]] == [(y, x) for y in labels["y"] for x in labels["x"]]
    agree([value(row[2]) for row in rows[1:]])

    document = json.loads(tet("cat", path, "--json"))
    assert (document["dtype"], document["shape"], document["dims"]) == (dtype, [4, 5], ["y", "x"])
    agree([value(v) if isinstance(v, str) else v for row in document["data"] for v in row])

    assert same(np.load(io.BytesIO(tet("cat", path, "--format", "npy"))), cells)


# Byte identity -------------------------------------------------------------------------------------------------------


def rebuild(tmp_path, walked, out):
    """Write with our writer what the walk over a raw file of the reference found."""
    arrays = []
    for dataset in walked.datasets:
        entry = walked.of(dataset.name)
        array = {"name": dataset.name, "cells": walked.array(dataset.name), "chunk_shape": dataset.chunk_shape}
        array.update({ours: entry[key] for ours, key in (("attrs", "attrs"), ("dims", "dim_names")) if key in entry})
        if "coords" in entry:
            array["labels"] = {axis: coords["labels"] for axis, coords in entry["coords"].items()}
        arrays.append(array)
    footer = walked.footer or {}
    budget = {}
    if any(walked.budget):
        points, fixed = walked.budget
        budget = {"memory_budget": {"bytes": fixed} if fixed else {"basis_points": points}}
    return write(
        tmp_path,
        out,
        arrays,
        digests=False,
        zone_maps=walked.footer_version == 2,
        history=footer.get("history", []),
        file=walked.metadata().get("file", {}),
        **budget,
    )


def check_identity(theirs, ours):
    """The same bytes, except for the optional secondary index, which we do not write."""
    if "secondary_index_ref" not in (theirs.footer or {}):
        assert ours.data == theirs.data
        return "whole"
    end = dict(theirs.regions)["zone_maps_ref"]
    assert ours.data[:end] == theirs.data[:end]
    index = theirs.footer.pop("secondary_index_ref")
    if "metadata_ref" in theirs.footer:
        theirs.footer["metadata_ref"]["offset"] -= index["len"]
    assert ours.footer == theirs.footer and list(ours.footer) == list(theirs.footer)
    return "up to the index"


@pytest.mark.parametrize("seed", range(40))
def test_raw_files_are_byte_identical(seed, tmp_path):
    rng = random.Random(3000 + seed)
    arrays = random_arrays(rng, seed, ["bits", "few", "tame", "wild"])
    if seed % 2:
        # More than 64 distinct values and no labels: the reference finds nothing to index.
        cells = random_cells(rng, DTYPES[3:][seed % 7], (31, 17), "bits")
        arrays = [{"name": "wide", "cells": cells, "chunk_shape": (rng.randint(1, 31), rng.randint(1, 17))}]
        arrays[0].update({k: v for k, v in random_metadata(rng, cells.shape).items() if k != "labels"})
    if rng.random() < 0.3:
        arrays[0].setdefault("attrs", {})["_FillValue"] = rng.choice(["0", "7", " 100 ", "1e20", "NaN", "x"])
    theirs = tmp_path / "theirs.tet"
    write_theirs(theirs, arrays, [("import", "lab")] * rng.randint(0, 2))
    walked = walk(theirs)
    outcome = check_identity(walked, walk(rebuild(tmp_path, walked, tmp_path / "ours.tet")))
    assert outcome == "whole" or seed % 2 == 0


def identical(fixture):
    """Whether a fixture is raw, written by the reference, and within the features of our writer."""
    # We do not write both budget fields at once, checksums of packages, or labels without names.
    odd = fixture["file"].startswith(("budget_header", "package", "labels_by_axis_number"))
    raw = fixture["datasets"] and all(d["codec"] == "raw" for d in fixture["datasets"])
    return raw and not odd and "hand" not in fixture["writer"]


IDENTICAL = [fixture["file"] for fixture in MANIFEST if identical(fixture)]


@pytest.mark.parametrize("file", IDENTICAL)
def test_fixtures_are_byte_identical(file, tmp_path):
    walked = walk(FIXTURES / file)
    check_identity(walked, walk(rebuild(tmp_path, walked, tmp_path / "ours.tet")))


def test_enough_fixtures_are_identical():
    assert len(IDENTICAL) >= 15


# Selections ----------------------------------------------------------------------------------------------------------


def random_slice(rng, extent):
    """One selection of an axis as text and as a NumPy index."""
    form = rng.randrange(6)
    if form == 0:
        at = rng.randrange(-extent, extent)
        return str(at), slice(at % extent, at % extent + 1)
    start, stop = sorted(rng.randint(0, extent) for _ in range(2))
    step = rng.randint(1, extent + 1)
    shown_start = start - extent if rng.random() < 0.4 and start < extent else start
    shown_stop = stop - extent if rng.random() < 0.4 and stop < extent else stop
    if form == 1:
        return f"{shown_start}:", slice(start, None)
    if form == 2:
        return f":{shown_stop}", slice(0, stop)
    if form == 3:
        return f"::{step}", slice(None, None, step)
    text = f"{shown_start}:{shown_stop}"
    return (text, slice(start, stop)) if form == 4 else (f"{text}:{step}", slice(start, stop, step))


@pytest.mark.parametrize("seed", range(12))
def test_selections(seed, tmp_path):
    rng = random.Random(4000 + seed)
    shape, chunk = random_shape(rng, rank=seed % 8 + 1)
    cells = random_cells(rng, DTYPES[seed % 10], shape, "bits")
    dims = [f"d{d}" for d in range(len(shape))] if seed % 2 else None
    path = tmp_path / "theirs.tet"
    write_theirs(path, [{"name": "a", "cells": cells, "chunk_shape": chunk, "dims": dims}])
    for _ in range(15):
        words, slices = [], [slice(None)] * len(shape)
        for d in rng.sample(range(len(shape)), rng.randint(0, len(shape))):
            text, slices[d] = random_slice(rng, shape[d])
            words.append(f"{dims[d] if dims and rng.random() < 0.7 else d}={text}")
        want = np.ascontiguousarray(cells[tuple(slices)])
        assert tet("cat", path, "a", "--raw", "--", *words) == want.tobytes(), words
        if want.size:
            check_stat(tet_json("stat", path, *words), want)
    for wrong in ["0=1:0", f"0={shape[0]}", f"0=0:{shape[0] + 1}", f"0=-{shape[0] + 1}:", "0=::0", "0=::-1"]:
        if wrong != "0=1:0" or shape[0] > 1:
            tet("cat", path, "a", "--raw", wrong, code=2)


# Fixtures ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", MANIFEST, ids=lambda f: f["file"])
def test_fixture(fixture):
    path = FIXTURES / fixture["file"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == fixture["sha256"]
    info = tet_json("info", path)
    assert [entry["name"] for entry in info["arrays"]] == [d["name"] for d in fixture["datasets"]]
    for entry, dataset in zip(info["arrays"], fixture["datasets"]):
        for key in ("dtype", "shape", "chunk_shape", "chunks"):
            assert entry[key] == dataset[key], key
        if dataset["dim_names"] is not None:
            assert entry["dims"] == dataset["dim_names"]
        if "attrs" in dataset:
            assert entry["attributes"] == dataset["attrs"]
        else:
            assert len(entry["attributes"]) == dataset["attrs_count"]
        codecs = {"raw+zstd": {"raw", "zstd"}}.get(dataset["codec"], {dataset["codec"]})
        assert set(entry["fields"][0]["codecs"] or ["raw"]) <= codecs
        cells = tet("cat", path, dataset["name"], "--raw")
        assert hashlib.sha256(cells).hexdigest() == dataset["sha256"]
        check_stat_of_raw(path, dataset, cells)
    assert tet_json("verify", path, "--deep")["ok"]


def check_stat_of_raw(path, dataset, raw):
    if dataset.get("attrs") is not None:
        cells = np.frombuffer(raw, dataset["dtype"])
        check_stat(tet_json("stat", path, dataset["name"]), cells, missing(cells, dataset["attrs"]))


def test_package():
    """A package is read at its current generation."""
    info = tet_json("info", FIXTURES / "package.tet.d")
    assert [entry["name"] for entry in info["arrays"]] == ["left", "right"]
    current = FIXTURES / "package.tet.d" / "generations" / "00000002" / "packed.tet"
    for name in ("left", "right"):
        assert tet("cat", FIXTURES / "package.tet.d", name, "--raw") == tet("cat", current, name, "--raw")


def test_the_example_for_recipes_refuses_what_it_cannot_write(tmp_path):
    done = example("npy_to_tet", input=json.dumps({"out": str(tmp_path / "x.tet"), "arrays": [{"name": "a"}]}).encode())
    assert done.returncode != 0 and not (tmp_path / "x.tet").exists()
