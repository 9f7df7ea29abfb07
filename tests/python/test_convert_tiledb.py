"""Conversions to and from TileDB arrays, also checked by the reference package."""

import random
import subprocess

import numpy as np
import pytest
import tiledb
from support import DTYPES, TET, random_cells, random_metadata, random_shape, tet, tet_json, write

from test_convert import arrays_of, cells_of, same_bits


def values_of(path, attribute):
    with tiledb.open(str(path)) as array:
        got = array[:]
        return np.ascontiguousarray(got[attribute] if isinstance(got, dict) else got)


@pytest.mark.parametrize("seed", range(16))
def test_all_the_way_around(tmp_path, seed):
    """`.tet` to `.tgm` to TileDB to `.tet`: values, names, labels, attributes and history are preserved."""
    rng = random.Random(seed)
    dtype = [name for name in DTYPES if name != "float16"][seed % (len(DTYPES) - 1)]
    shape, chunk = random_shape(rng, rng.randint(1, 4))
    cells = random_cells(rng, dtype, shape, rng.choice(["bits", "tame"]))
    array = {"name": "sst", "cells": cells, "chunk_shape": chunk, "codec": rng.choice(["raw", "zstd"])}
    one = write(tmp_path, tmp_path / "one.tet", [{**array, **random_metadata(rng, shape)}])
    two, three, four = tmp_path / "two.tgm", tmp_path / "three.tdb", tmp_path / "four.tet"
    tet("convert", one, two, "--check")
    tet("convert", two, three, "--check", "--chunk", ",".join(map(str, chunk)))
    tet("convert", three, four, "--check")
    before, after = arrays_of(one)["sst"], arrays_of(four)["sst"]
    for key in ("dtype", "shape", "dims", "attributes", "coords", "chunk_shape"):
        if key != "chunk_shape" or all(c <= n for c, n in zip(chunk, shape)):
            assert before.get(key) == after.get(key), key
    assert same_bits(cells_of(four, "sst", dtype, shape), cells)
    assert same_bits(values_of(three, "sst").reshape(shape), cells)
    for path in (two, three, four):
        assert tet_json("diff", one, path)["same"], path
    ops = [row["op"] for row in tet_json("info", four, "--history")["history"]]
    assert ops[-3:] == ["convert"] * 3


def test_arrays_that_share_their_grid_become_attributes_of_one_array(tmp_path):
    a = np.arange(12, dtype="f4").reshape(3, 4)
    b = np.arange(12, dtype="i2").reshape(3, 4)
    plain = {"chunk_shape": (2, 2), "dims": ["y", "x"]}
    source = write(tmp_path, tmp_path / "a.tet", [
        {"name": "t", "cells": a, "attrs": {"units": "K", "source": "s"}, **plain},
        {"name": "h", "cells": b, "attrs": {"units": "m", "source": "s"}, **plain},
    ])
    out, back = tmp_path / "out.tdb", tmp_path / "back.tet"
    tet("convert", source, out, "--check")
    with tiledb.open(str(out)) as array:
        assert [array.schema.attr(i).name for i in range(array.schema.nattr)] == ["t", "h"]
        assert same_bits(array[:]["t"], a) and same_bits(array[:]["h"], b)
        assert array.meta["source"] == "s"
        assert [array.schema.domain.dim(i).name for i in range(2)] == ["y", "x"]
        assert [array.schema.domain.dim(i).tile for i in range(2)] == [2, 2]
    tet("convert", out, back)
    assert tet_json("diff", source, back)["same"]
    assert arrays_of(back)["t"]["attributes"] == {"units": "K", "source": "s"}


def test_arrays_that_do_not_become_a_group(tmp_path):
    source = write(tmp_path, tmp_path / "a.tet", [
        {"name": "t", "cells": np.arange(12, dtype="f4").reshape(3, 4)},
        {"name": "d", "cells": np.arange(5, dtype="i8")},
    ])
    out, back = tmp_path / "group", tmp_path / "back.tet"
    tet("convert", source, out)
    with tiledb.Group(str(out)) as group:
        assert sorted(member.name for member in group) == ["d", "t"]
    assert same_bits(values_of(out / "d", "d"), np.arange(5, dtype="i8"))
    tet("convert", out, back)
    assert tet_json("diff", source, back)["same"]


def made(path, cells, nullable=None, low=0, tile=3):
    """A dense array written by the reference."""
    dims = [tiledb.Dim(f"d{i}", domain=(low, low + n - 1), tile=min(tile, n), dtype=np.int32) for i, n in enumerate(cells.shape)]
    attr = tiledb.Attr("v", dtype=cells.dtype, nullable=nullable is not None)
    schema = tiledb.ArraySchema(tiledb.Domain(*dims), [attr], sparse=False)
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        if nullable is None:
            array[:] = cells
        else:
            import pyarrow as pa

            array[:] = pa.array(cells, mask=~nullable) if cells.ndim == 1 else cells
        array.meta["units"] = "K"
        array.meta["level"] = 7
    return path


def test_nulls_are_kept_or_refused(tmp_path):
    cells = np.arange(10, dtype="i4")
    for i, valid in enumerate([np.ones(10, bool), np.array([True] * 6 + [False] + [True] * 3)]):
        source = tmp_path / f"n{i}"
        try:
            made(source, cells, valid)
        except Exception as error:
            pytest.skip(f"the reference cannot write nulls here: {error}")
        again = tmp_path / f"again{i}.tdb"
        tet("convert", source, again, "--check")
        assert tet("cat", again, "--validity") == valid.astype("u1").tobytes()
        out = tmp_path / f"out{i}.tet"
        done = subprocess.run([TET, "convert", source, out], capture_output=True, text=True)
        if valid.all():
            assert done.returncode == 0, done.stderr
            assert same_bits(cells_of(out, "v", "i4", (10,)), cells)
        else:
            assert done.returncode == 7 and "[6]" in done.stderr and "--fill" in done.stderr
            assert not out.exists()
            tet("convert", source, out, "--fill", "3", code=7)
            tet("convert", source, out, "--fill", "-1", "--check")
            assert same_bits(cells_of(out, "v", "i4", (10,)), np.where(valid, cells, -1).astype("i4"))
            found = tet_json("stat", out)
            assert (found["count"], found["nulls"], found["sum"]) == (10, 1, cells[valid].sum())


def partly(path, dtype, written):
    """A dense array of 12 by 10 cells, of which one box was written in two parts."""
    dims = [tiledb.Dim(f"d{i}", domain=(0, n - 1), tile=4, dtype=np.int32) for i, n in enumerate((12, 10))]
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(*dims), [tiledb.Attr("v", dtype=dtype)], sparse=False))
    with tiledb.open(str(path), "w") as array:
        array[2:7, 3:8] = written[:, :]
    with tiledb.open(str(path), "w") as array:
        array[5:7, 3:8] = written[3:, :]
    return path


@pytest.mark.parametrize("dtype", ["i4", "u1", "f8", "u8"])
def test_cells_that_nobody_wrote_stay_apart(tmp_path, dtype):
    written = np.arange(25).reshape(5, 5).astype(dtype)
    source = partly(tmp_path / "a", dtype, written)
    want = {"count": 120, "nulls": 95, "sum": 300, "min": 0, "max": 24}
    reported = lambda path, *more: {key: tet_json("stat", path, *more)[key] for key in want}
    assert reported(source) == want
    assert reported(source, "--where", "v >= 0") == {**want, "count": 25, "nulls": 0}
    # The condition holds at every position, where the cells are missing too.
    assert reported(source, "--where", "d0 >= 0") == want
    assert reported(source, "--where", "v >= 20")["count"] == 5
    assert tet_json("plot", source)["nulls"] == 95
    outputs = [tmp_path / "o.tet", tmp_path / "o.tgm", tmp_path / "o.tdb"]
    for out in outputs:
        for options in [[], ["--fill", "77"], ["--fill", "v=99", "--fill", "3"], ["--fill", "111", "--cast", "int16"]]:
            (array,) = tet_json("convert", source, out, "--check", "-f", *options)["arrays"]
            absent = array["fields"][0]["absent"]
            if options:
                assert float(absent) == float(options[1].removeprefix("v="))
            else:
                assert absent == "null" if out.suffix == ".tdb" else isinstance(float(absent), float)
            assert reported(out) == want, (out, options)
            assert tet_json("plot", out)["nulls"] == 95
            if options:
                number = int(options[1].rpartition("=")[2])
                cells = np.frombuffer(tet("cat", out, "--raw"), "i2" if "--cast" in options else dtype).reshape(12, 10)
                assert (cells[2:7, 3:8] == written).all() and (cells == number).sum() == 95
        # Exactly the written cells: nothing is missing, and nothing is declared as missing.
        tet("convert", source, out, "--select", "d0=2:7", "--select", "d1=3:8", "-f", "--fill", "3")
        assert reported(out, "0/0" if out.suffix == ".tgm" else "v") == {**want, "count": 25, "nulls": 0}
    # A written cell holds the value of unwritten ones.
    unset = np.nan if dtype == "f8" else np.iinfo(dtype).min if dtype[0] == "i" else np.iinfo(dtype).max
    written[1, 2] = unset
    clash = partly(tmp_path / "clash", dtype, written)
    for out in outputs[:2]:
        done = subprocess.run([TET, "convert", clash, out, "-f"], capture_output=True, text=True)
        assert done.returncode == 7 and "[3, 5]" in done.stderr and "--fill" in done.stderr, done.stderr
        tet("convert", clash, out, "-f", "--fill", "200", "--check")
        assert tet_json("stat", out)["nulls"] == 95
    tet("convert", clash, outputs[2], "-f", "--check")
    assert tet_json("stat", outputs[2])["nulls"] == 95


def test_a_domain_of_its_own_becomes_labels(tmp_path):
    cells = np.arange(12, dtype="f8").reshape(3, 4)
    source = made(tmp_path / "a", cells, low=-2)
    tgm, out, again = tmp_path / "a.tgm", tmp_path / "a.tet", tmp_path / "b.tdb"
    for path in (tgm, out, again):
        tet("convert", source, path, "--check")
    array = arrays_of(out)["v"]
    assert array["coords"]["d0"]["labels"] == [-2, -1, 0]
    assert array["attributes"]["units"] == "K" and array["attributes"]["level"] == 7
    assert arrays_of(tgm)["0/0"]["attributes"]["level"] == 7
    with tiledb.open(str(again)) as reopened:
        assert reopened.schema.domain.dim(0).domain == (-2, 0)
        assert same_bits(np.ascontiguousarray(reopened[:]["v"] if isinstance(reopened[:], dict) else reopened[:]), cells)
        assert reopened.meta["level"] == 7


def test_an_output_folder_appears_whole(tmp_path):
    source = write(tmp_path, tmp_path / "a.tet", [{"name": "a", "cells": np.zeros((4, 4), "f4")}])
    out = tmp_path / "out.tdb"
    tet("convert", source, out)
    tet("convert", source, out, code=2)
    tet("convert", source, out, "-f")
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".bin") == ["a.tet", "out.tdb"]
    assert tet_json("verify", out)["ok"]


@pytest.mark.parametrize("dtype", ["U0", "S0"])
def test_unwritten_texts_become_the_fill_value(tmp_path, dtype):
    """Missing cells of variable length are replaced cell by cell, not byte by byte."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 11), tile=4, dtype=np.int32))
    schema = tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("t", dtype=dtype, var=True)])
    tiledb.Array.create(str(tmp_path / "a"), schema)
    words = ["alpha", "b", "gamma delta", "xy"]
    with tiledb.open(str(tmp_path / "a"), "w") as array:
        array[2:6] = np.array(words, dtype=dtype[0])
    texts = [b""] * 2 + [word.encode() for word in words] + [b""] * 6
    for ending in ["tet", "zarr"]:
        out = tmp_path / f"o.{ending}"
        tet("convert", tmp_path / "a", out, "--fill", "none")
        raw = b"".join(len(text).to_bytes(8, "little") + text for text in (text or b"none" for text in texts))
        assert tet("cat", out, "--raw") == raw
    done = subprocess.run([TET, "convert", tmp_path / "a", tmp_path / "p.tet", "--fill", "b"], capture_output=True)
    assert done.returncode == 7 and b"value for missing cells" in done.stderr and not (tmp_path / "p.tet").exists()
