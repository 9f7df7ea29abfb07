"""Operations that must not change answers: missing cells stay missing, values that a dtype does not hold are rejected."""

import json
import subprocess

import numpy as np
import pyarrow as pa
import pytest
import tensogram
import tiledb
from support import TET, tet, tet_json

FORMATS = ["tet", "tgm", "tdb"]


def stat(path, *more):
    row = tet_json("stat", path, *more)
    return {key: row[key] for key in ("count", "nulls", "min", "max", "sum")}


def npy(path, cells):
    np.save(path, cells)
    return path


def declared(folder, cells, form, **metadata):
    """An array in one of the formats, with declared missing values."""
    path = folder / "made"
    dims = [tiledb.Dim(f"d{i}", domain=(0, n - 1), tile=n, dtype="u8") for i, n in enumerate(cells.shape)]
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("v", dtype=cells.dtype)])
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[:] = cells
        array.meta.update(metadata)
    out = folder / f"declared.{form}"
    tet("convert", path, out)
    return out


def values(path):
    return tet_json("cat", path)["data"]


# Consolidation


def fragments(path, boxes, **attribute):
    dims = [tiledb.Dim("x", domain=(0, 9), tile=5, dtype="u8")]
    attribute = tiledb.Attr("v", dtype="i4", **attribute)
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[attribute]))
    for moment, (start, end) in enumerate(boxes, 1):
        with tiledb.open(str(path), "w", timestamp=moment) as array:
            array[start:end] = np.arange(start, end, dtype="i4")
    return path


def test_consolidation_leaves_unwritten_cells_unwritten(tmp_path):
    path = fragments(tmp_path / "gaps", [(0, 2), (7, 9)])
    before = stat(path)
    assert before["nulls"] == 6
    report = tet_json("consolidate", path)
    assert report["made"] == [] and len(report["apart"]) == 2
    tet("vacuum", path, "--apply")
    assert stat(path) == before
    # What fills the gap makes them one.
    with tiledb.open(str(path), "w", timestamp=9) as array:
        array[2:7] = np.arange(2, 7, dtype="i4")
    before = stat(path)
    report = tet_json("consolidate", path)
    assert len(report["made"]) == 1 and report["apart"] == []
    assert stat(path) == before and before["nulls"] == 1
    with tiledb.open(str(path)) as array:
        assert array[0:9]["v"].tolist() == list(range(9))


def test_consolidation_of_neighbors_leaves_others_apart(tmp_path):
    path = fragments(tmp_path / "some", [(0, 2), (2, 4), (8, 9)])
    before = stat(path)
    report = tet_json("consolidate", path)
    assert (len(report["made"]), len(report["replaced"]), len(report["apart"])) == (1, 2, 1)
    tet("vacuum", path, "--apply")
    assert stat(path) == before


def test_consolidation_may_turn_unwritten_cells_into_nulls(tmp_path):
    path = tmp_path / "nulls"
    tet("create", path, "--dim", "x=0..9/5:uint64", "--field", "v:int32?")
    for moment, (start, end) in enumerate([(0, 2), (7, 9)], 1):
        cells = tmp_path / "cells.csv"
        cells.write_text("v\n" + "\n".join(map(str, range(start, end))) + "\n")
        tet("append", path, cells, f"x={start}:{end}", "--timestamp", moment)
    before = stat(path)
    report = tet_json("consolidate", path)
    assert len(report["made"]) == 1 and report["apart"] == []
    assert stat(path) == before and before["nulls"] == 6


# Packing within an error bound


@pytest.mark.parametrize("form", ["tet", "tdb"])
@pytest.mark.parametrize("value", [-9999.0, 1e300, 280.5])
def test_packing_leaves_missing_cells_apart(tmp_path, form, value):
    """Missing values far outside and inside the range of the others."""
    cells = np.linspace(250.0, 300.0, 60).reshape(6, 10)
    cells[1, :3] = cells[4, 7] = value
    source = declared(tmp_path, cells, form, _FillValue=value)
    packed = tmp_path / "packed.tgm"
    report = tet_json("convert", source, packed, "--max-abs-error", 0.01)
    assert report["arrays"][0]["packed"]["bits"] <= 12, "the range is that of the valid cells"
    found, hidden = stat(packed), cells == value
    assert (found["count"], found["nulls"]) == (60, 4)
    assert abs(found["min"] - cells[~hidden].min()) <= 0.01 and abs(found["max"] - cells[~hidden].max()) <= 0.01
    # The reference restores them as NaN, and the others within the bound.
    with tensogram.TensogramFile.open(str(packed)) as file:
        _, [(_, theirs)] = file.decode_message(0)
    assert (np.isnan(theirs) == hidden).all()
    assert np.abs(theirs - cells)[~hidden].max() <= 0.01
    missing = tet_json("info", packed)["arrays"][0]["fields"][0]["missing"]
    assert value in missing and "NaN" in missing, "older declarations stay"


def test_packing_takes_nulls_and_unwritten_cells_apart(tmp_path):
    path = tmp_path / "partly"
    dims = [tiledb.Dim("x", domain=(0, 9), tile=5, dtype="u8")]
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("v", dtype="f8")]))
    with tiledb.open(str(path), "w") as array:
        array[0:5] = np.linspace(1, 2, 5)
    packed = tmp_path / "packed.tgm"
    tet("convert", path, packed, "--max-abs-error", 0.001)
    found = stat(packed)
    assert (found["count"], found["nulls"]) == (10, 5)
    assert abs(found["max"] - 2) <= 0.001


def test_cells_that_packing_would_make_missing_are_rejected(tmp_path):
    """A valid cell next to a declared value stays valid, or the conversion stops."""
    source = declared(tmp_path, np.array([0.0, 0.5001, 1.0]), "tet", _FillValue=0.5)
    tet("convert", source, tmp_path / "coarse.tgm", "--max-abs-error", 0.25, code=7)
    out = tmp_path / "fine.tgm"
    tet("convert", source, out, "--max-abs-error", 1e-5)
    assert stat(out)["nulls"] == 0


# Declarations


@pytest.mark.parametrize("form", FORMATS)
def test_a_fill_keeps_older_declarations(tmp_path, form):
    path = tmp_path / "partly"
    dims = [tiledb.Dim("x", domain=(0, 9), tile=5, dtype="u8")]
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("v", dtype="i4")]))
    with tiledb.open(str(path), "w") as array:
        array[0:5] = np.array([1, -99, 3, -98, 5], "i4")
        array.meta.update(_FillValue=-99, missing_value=-98)
    out = tmp_path / f"filled.{form}"
    tet("convert", path, out, "--fill", "-5")
    info = tet_json("info", out)["arrays"][0]
    assert {-99, -98, -5} <= set(info["fields"][0]["missing"])
    found = stat(out)
    assert (found["count"], found["nulls"], found["sum"]) == (10, 7, 9)


# Casts


@pytest.mark.parametrize("form", FORMATS)
def test_integers_that_a_float_does_not_hold_are_rejected(tmp_path, form):
    source = npy(tmp_path / "a.npy", np.array([[1, 2], [2**24 + 1, 3]], "i4"))
    out = tmp_path / f"out.{form}"
    done = subprocess.run([TET, "convert", source, out, "--cast", "float32"], capture_output=True)
    assert done.returncode == 7 and b"16777217" in done.stderr and b"[1, 0]" in done.stderr
    assert not out.exists()
    tet("convert", source, out, "--cast", "float64")
    assert values(out) == [[1, 2], [2**24 + 1, 3]]


@pytest.mark.parametrize("form", FORMATS)
def test_missing_cells_stay_missing_in_a_cast(tmp_path, form):
    """The usual missing value of int32 is none that float32 holds."""
    low = -(2**31) + 1
    source = declared(tmp_path, np.array([low, 1, 2, low], "i4"), "tet", _FillValue=low)
    out = tmp_path / f"out.{form}"
    tet("convert", source, out, "--cast", "float32")
    assert values(out) == [None, 1, 2, None]
    found = stat(out)
    assert (found["nulls"], found["sum"]) == (2, 3)
    # A cell that would become one of them is rejected.
    folder = tmp_path / "other"
    folder.mkdir()
    source = declared(folder, np.array([low, 1, -(2**31)], "i4"), "tet", _FillValue=low)
    tet("convert", source, tmp_path / f"other.{form}", "--cast", "float32", code=7)


# Appends


@pytest.mark.parametrize("dtype, beyond", [("int8", "300"), ("uint16", "-1"), ("float32", "1e39"), ("float64", "1e400"), ("int32", "1.5")])
def test_appends_reject_values_beyond_the_dtype(tmp_path, dtype, beyond):
    path, cells = tmp_path / "array", tmp_path / "cells.csv"
    tet("create", path, "--dim", "x=0..2/3:uint64", "--field", f"v:{dtype}")
    cells.write_text(f"v\n1\n{beyond}\n3\n")
    tet("append", path, cells, code=2)
    assert stat(path)["nulls"] == 3, "nothing was written"


# Recovery


def damage(path, at):
    held = bytearray(path.read_bytes())
    for i in range(at, at + 8):
        held[i] ^= 0x5A
    path.write_bytes(held)


@pytest.mark.parametrize("dtype, taken", [("i4", -(2**31)), ("u1", 255), ("f4", float("nan")), ("f8", 9.969209968386869e36)])
def test_lost_cells_are_declared_missing_in_tet(tmp_path, dtype, taken):
    cells = (np.arange(40) * 11 % 97 + 1).astype(dtype).reshape(4, 10)
    cells[3, 3] = taken
    source = tmp_path / "a.tet"
    tet("convert", npy(tmp_path / "a.npy", cells), source, "--chunk", "1,10", "--codec", "raw")
    damage(source, source.read_bytes().find(cells[1].tobytes()))
    saved = tmp_path / "saved.tet"
    report = tet_json("recover", source, saved)
    assert report["chunks_lost"] == 1
    kept = np.delete(cells, 1, axis=0)
    found = tet_json("stat", saved)
    assert (found["count"], found["nulls"]) == (40, 10)
    assert found["nan"] == int(np.isnan(kept.astype("f8")).sum())
    assert len(tet_json("info", saved)["arrays"][0]["fields"][0]["missing"]) == 1


def test_lost_cells_are_declared_missing_in_tiledb(tmp_path):
    cells = np.arange(1, 41, dtype="i4").reshape(4, 10)
    cells[0, 0] = -(2**31)
    path = tmp_path / "array"
    tet("convert", npy(tmp_path / "a.npy", cells), path, "--to", "tiledb", "--chunk", "2,10", "--codec", "raw")
    [data] = path.glob("__fragments/*/a0.tdb")
    damage(data, data.stat().st_size - 64)
    saved = tmp_path / "saved"
    assert tet_json("recover", path, saved)["chunks_lost"] == 1
    found = tet_json("stat", saved)
    assert (found["count"], found["nulls"], found["min"]) == (40, 20, -(2**31))


def test_a_declared_value_is_what_lost_cells_get(tmp_path):
    cells = np.arange(1, 31, dtype="f4").reshape(3, 10)
    made = declared(tmp_path, cells, "tet", _FillValue=-1.0)
    source = tmp_path / "a.tet"
    tet("rechunk", made, source, "--chunks", "1,10", "--codec", "raw")
    damage(source, source.read_bytes().find(cells[1].tobytes()))
    saved = tmp_path / "saved.tet"
    tet("recover", source, saved)
    assert values(saved)[1] == [None] * 10
    assert np.frombuffer(tet("cat", saved, "--raw"), "f4").reshape(3, 10)[1].tolist() == [-1.0] * 10
    assert tet_json("info", saved)["arrays"][0]["fields"][0]["missing"] == [-1]


# Comparison


@pytest.mark.parametrize("form", FORMATS)
def test_diff_compares_declarations_and_types_of_attributes(tmp_path, form):
    cells = np.arange(6, dtype="i4")
    folders = [tmp_path / name for name in "abcd"]
    for folder in folders:
        folder.mkdir()
    plain = declared(folders[0], cells, form, scale=1)
    other = declared(folders[1], cells, form, scale=1.0)
    missing = declared(folders[2], cells, form, scale=1, _FillValue=3)
    same = declared(folders[3], cells, form, scale=1)
    tet("diff", plain, same)
    notes = tet_json("diff", plain, other, code=1)["metadata"]
    assert [(n["what"], n["left"], n["right"]) for n in notes] == [("attribute scale", "1", "1.0")]
    what = {n["what"] for n in tet_json("diff", plain, missing, code=1)["metadata"]}
    assert what == {"attribute _FillValue", "missing values"}
    assert json.loads(tet("diff", plain, same, "--json"))["same"] is True


def test_missing_cells_are_equal_in_whatever_way_they_are_missing(tmp_path):
    """Unwritten, null, and declared; a value is never equal to a missing cell, also where the stored bits are."""
    gaps = fragments(tmp_path / "gaps", [(0, 2), (7, 9)], nullable=True)
    whole = fragments(tmp_path / "whole", [(0, 10)], nullable=True)
    with tiledb.open(str(whole), "w", timestamp=20) as array:
        array[:] = pa.array(np.arange(10, dtype="i4"), mask=np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 1], bool))
    tet("diff", gaps, whole)
    filled = fragments(tmp_path / "filled", [(0, 10)], nullable=True)
    found = tet_json("diff", gaps, filled, code=1)["values"]
    assert [(v["differing"], v["first"]["left"], v["first"]["right"]) for v in found] == [(6, None, "2")]


@pytest.mark.parametrize("form", FORMATS)
def test_diff_of_declared_missing_values(tmp_path, form):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    left = declared(folders[0], np.array([1, -9, -8, 4], "i4"), form, missing_value=(-9, -8))
    right = declared(folders[1], np.array([1, -8, -9, 5], "i4"), form, missing_value=(-9, -8))
    [found] = tet_json("diff", left, right, code=1)["values"]
    assert (found["differing"], found["first"]["position"], found["max_abs_error"]) == (1, [3], 1.0)
    [found] = tet_json("diff", left, right, "--stored", code=1)["values"]
    assert (found["differing"], found["first"]["position"]) == (3, [1])
