"""Unusual arrays compared with the reference package; damaged arrays and their recovery; two timestamps of one array."""

import json
import random
import os
import shutil
import struct

import numpy as np
import pytest
import tiledb
import tiledb_schema
from support import tet, tet_json


def reference(path, box, name):
    """Cells and validity of a box as the package reads them, in bytes."""
    with tiledb.open(str(path)) as array:
        cells = array[box][name]
    if isinstance(cells, np.ma.MaskedArray):
        return cells.data.tobytes(), (~np.ma.getmaskarray(cells)).astype("u1").tobytes()
    if cells.dtype == object:
        return "".join(cells.ravel().tolist()).encode(), b"\1" * cells.size
    return cells.tobytes(), b"\1" * cells.size


def inside_a_tile(rng, path):
    """A dense array of two dimensions whose current domain begins inside a tile, written in overlapping boxes. Returns its box."""
    order = rng.choice(["row-major", "col-major"])
    dims, ranges = [], []
    for name in "xy":
        low, extent = rng.randrange(5), rng.randrange(2, 9)
        dims.append(tiledb.Dim(name, domain=(low, low + 99), tile=extent, dtype=np.int64))
        # Along at least one dimension.
        first = low + rng.randrange(3) * extent + rng.randrange(name == "x", extent)
        ranges.append((first, first + rng.randrange(1, 30)))
    domain = tiledb.Domain(*dims)
    filters = tiledb.FilterList(rng.choice([[], [tiledb.ZstdFilter(1)], [tiledb.ByteShuffleFilter(), tiledb.LZ4Filter()]]))
    schema = tiledb.ArraySchema(domain=domain, cell_order=order, tile_order=rng.choice(["row-major", "col-major"]), attrs=[
        tiledb.Attr("a", dtype=np.int32, filters=filters),
        tiledb.Attr("n", dtype=np.float64, filters=filters, nullable=True),
        tiledb.Attr("s", dtype="U0", var=True, filters=filters)])
    box = tiledb.NDRectangle(tiledb.default_ctx(), domain)
    for name, (first, last) in zip("xy", ranges):
        box.set_range(name, first, last)
    current = tiledb.CurrentDomain(tiledb.default_ctx())
    current.set_ndrectangle(box)
    schema.set_current_domain(current)
    tiledb.Array.create(str(path), schema)
    for moment in range(rng.randrange(1, 4)):
        ends = [sorted((rng.randint(*r), rng.randint(*r))) for r in ranges]
        if moment == 0 and rng.random() < 0.5:
            ends = ranges
        shape = tuple(b - a + 1 for a, b in ends)
        count = shape[0] * shape[1]
        numbers = np.arange(count, dtype=np.int32).reshape(shape) + 1000 * moment
        texts = np.array([f"{moment}.{i}" * (i % 3) for i in range(count)], dtype=object).reshape(shape)
        with tiledb.open(str(path), "w", timestamp=moment + 1) as array:
            array[tuple(slice(a, b + 1) for a, b in ends)] = {"a": numbers, "n": numbers / 8, "s": texts}
    return tuple(slice(a, b + 1) for a, b in ranges)


@pytest.mark.parametrize("seed", range(24))
def test_a_current_domain_that_begins_inside_a_tile(seed, tmp_path):
    rng = random.Random(seed)
    path = tmp_path / "array"
    box = inside_a_tile(rng, path)
    shape = [s.stop - s.start for s in box]
    assert tet_json("info", path)["arrays"][0]["shape"] == shape
    tet("verify", path, "--deep")
    for name in ("a", "n", "s"):
        values, validity = reference(path, box, name)
        if name == "n":
            # The value of a null cell is undefined.
            ours = np.frombuffer(tet("cat", path, name, "--raw"), "f8")
            valid = np.frombuffer(validity, "u1") == 1
            assert (ours[valid] == np.frombuffer(values, "f8")[valid]).all()
        elif name == "a":
            assert tet("cat", path, name, "--raw") == values
        assert tet("cat", path, name, "--validity", "--stored") == validity
    with tiledb.open(str(path)) as array:
        cells, texts = array[box]["a"], array[box]["s"]
    for _ in range(6):
        parts = [sorted(rng.sample(range(n + 1), 2)) for n in shape]
        step = rng.randrange(1, 4)
        part = (slice(*parts[0]), slice(*parts[1], step))
        words = [f"x={parts[0][0]}:{parts[0][1]}", f"y={parts[1][0]}:{parts[1][1]}:{step}"]
        assert tet("cat", path, "a", "--raw", *words) == np.ascontiguousarray(cells[part]).tobytes(), words
        rows = tet_json("cat", path, "s", *words, "--stored")["data"]
        # Unwritten cells hold a zero byte in one and nothing in the other.
        assert [[t.strip("\0") for t in row] for row in rows] == [[t.strip("\0") for t in row] for row in texts[part].tolist()]
    stat = tet_json("stat", path, "a")
    written = cells[cells != np.iinfo("i4").min]
    assert (stat["nulls"], stat["sum"]) == (cells.size - written.size, int(written.sum()) if written.size else stat["sum"])
    # Such an array can be read but not written.
    np.save(tmp_path / "cells.npy", cells)
    tet("append", path, tmp_path / "cells.npy", code=7)


@pytest.mark.parametrize("valid", [0, 1])
def test_a_fill_that_is_not_null(valid, tmp_path, monkeypatch):
    plain = tiledb_schema.attribute

    def attribute(version, name, dtype, nullable, *compressors):
        out = plain(version, name, dtype, nullable, *compressors)
        at = len(out) - 7  # order and enumeration follow
        assert out[at] == nullable
        return out[: at + 1] + bytes([valid if nullable else 0]) + out[at + 2 :]

    monkeypatch.setattr(tiledb_schema, "attribute", attribute)
    path = tmp_path / "array"
    tiledb_schema.create(path, 21, dims=[("x", "int64", 0, 9, 4)], attributes=[("v", "int32", 1)])
    with tiledb.open(str(path), "w", timestamp=5) as array:
        array[3:5] = np.array([7, 8], dtype=np.int32)
    values, validity = reference(path, slice(0, 10), "v")
    assert validity == (b"\1" * 10 if valid else bytes([0, 0, 0, 1, 1, 0, 0, 0, 0, 0]))
    kept = np.frombuffer(validity, "u1") == 1
    ours = np.frombuffer(tet("cat", path, "v", "--raw"), "i4")
    assert ours[kept].tolist() == np.frombuffer(values, "i4")[kept].tolist()
    assert tet("cat", path, "v", "--validity", "--stored") == validity
    # A copy preserves the value of unwritten cells.
    tet("consolidate", path)
    assert tet("cat", path, "v", "--validity", "--stored") == validity
    assert reference(path, slice(0, 10), "v") == (values, validity)


def dense_versions(path):
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(tiledb.Dim("x", domain=(0, 39), tile=10, dtype=np.int32)),
        attrs=[tiledb.Attr("a", dtype=np.int32, filters=tiledb.FilterList([tiledb.ZstdFilter(3)])),
               tiledb.Attr("n", dtype=np.int16, nullable=True), tiledb.Attr("s", dtype="ascii", var=True)])
    tiledb.Array.create(str(path), schema)
    for moment, (first, last) in ((10, (0, 40)), (20, (15, 25))):
        numbers = np.arange(first, last, dtype=np.int32) + moment * 100
        texts = np.array([f"{n}" for n in numbers], dtype="S")
        with tiledb.open(str(path), "w", timestamp=moment) as array:
            array[first:last] = {"a": numbers, "n": (numbers % 99).astype(np.int16), "s": texts}
        with tiledb.open(str(path), "w", timestamp=moment) as array:
            array.meta["moment"] = moment


def sparse_versions(path):
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=100, dtype=np.int64)), sparse=True, capacity=10,
        attrs=[tiledb.Attr("a", dtype=np.int32), tiledb.Attr("s", dtype="ascii", var=True)])
    tiledb.Array.create(str(path), schema)
    for moment, cells in ((10, np.arange(0, 100)), (20, np.arange(200, 230))):
        texts = np.array([f"{n}" for n in cells], dtype="S")
        with tiledb.open(str(path), "w", timestamp=moment) as array:
            array[cells] = {"a": cells.astype(np.int32) + moment, "s": texts}


def files(path, moment):
    """The files of the fragment of a timestamp."""
    folder, = (path / "__fragments").glob(f"__{moment}_{moment}_*")
    return {file.name: file for file in folder.iterdir()}


def spoil(file, at, length=8):
    bytes_ = bytearray(file.read_bytes())
    bytes_[at : at + length] = bytes(b ^ 0xFF for b in bytes_[at : at + length])
    file.write_bytes(bytes_)


def test_whole_tiles_of_a_dense_array_are_saved(tmp_path):
    path, saved = tmp_path / "array", tmp_path / "saved"
    dense_versions(path)
    whole = np.frombuffer(tet("cat", path, "a", "--raw"), "i4")
    report = tet_json("recover", path, tmp_path / "copy")
    assert (report["chunks_saved"], report["chunks_lost"], report["findings"]) == (4, 0, [])
    for name in ("a", "n", "s"):
        assert tet("cat", tmp_path / "copy", name, "--raw") == tet("cat", path, name, "--raw"), name
        assert tet("cat", tmp_path / "copy", name, "--validity") == tet("cat", path, name, "--validity"), name
    with tiledb.open(str(tmp_path / "copy")) as copy:
        assert (copy[:]["a"] == whole).all() and copy.meta["moment"] == 20
    # The newer of two tiles at one position: the older one must not become visible.
    file = files(path, 20)["a0.tdb"]
    spoil(file, file.stat().st_size - 12)
    tet("cat", path, "a", code=5)
    report = tet_json("recover", path, saved)
    assert (report["chunks_saved"], report["chunks_lost"]) == (3, 1)
    assert [f["check"] for f in report["findings"]] == ["chunk_lost"]
    lost = np.zeros(40, bool)
    lost[20:25] = True
    ours = np.frombuffer(tet("cat", saved, "a", "--raw"), "i4")
    assert (ours[~lost] == whole[~lost]).all() and (ours[lost] == np.iinfo("i4").min).all()
    for name in ("n", "s"):
        assert tet("cat", saved, name, "--raw") == tet("cat", path, name, "--raw")
    tet("verify", saved, "--deep")
    tet("recover", path, saved, code=2)
    assert b"3 chunks saved, 1 lost" in tet("recover", path, saved, "-f")


def test_whole_fragments_are_saved(tmp_path):
    path = tmp_path / "array"
    dense_versions(path)
    before = tet("cat", path, "a", "--raw", "--as-of", 15)
    spoil(files(path, 20)["__fragment_metadata.tdb"], 60, 400)
    # A damaged file may declare a future version.
    tet("cat", path, "a", code=(5, 7))
    report = tet_json("recover", path, tmp_path / "saved")
    assert [f["check"] for f in report["findings"]] == ["fragment_lost"]
    assert tet("cat", tmp_path / "saved", "a", "--raw") == before
    assert tet_json("repair", path)["repairs"][-1]["automatic"] is False
    spoil(files(path, 10)["__fragment_metadata.tdb"], 60, 400)
    tet("recover", path, tmp_path / "none", code=4)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["a0.tdb", "a1_var.tdb", "d0.tdb"])
def test_whole_tiles_of_a_sparse_array_are_saved(name, tmp_path):
    path, saved = tmp_path / "array", tmp_path / "saved"
    sparse_versions(path)
    x = np.frombuffer(tet("cat", path, "x", "--raw"), "i8")
    file = files(path, 10)[name]
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 7 // 10])
    tet("cat", path, code=5)
    report = tet_json("recover", path, saved)
    lost = report["chunks_lost"]
    assert report["chunks_saved"] == 13 - lost and 3 <= lost <= 4
    assert [f["check"] for f in report["findings"]] == ["chunk_lost"] * lost
    kept = np.concatenate([x[: 100 - 10 * lost], x[100:]])
    assert np.frombuffer(tet("cat", saved, "x", "--raw"), "i8").tolist() == kept.tolist()
    with tiledb.open(str(saved)) as array:
        cells = array[:]
    assert cells["x"].tolist() == kept.tolist()
    assert cells["a"].tolist() == [n + (10 if n < 200 else 20) for n in kept]
    assert [s.decode() for s in cells["s"]] == [str(n) for n in kept]


def test_what_writers_left_is_listed_and_removed(tmp_path):
    path = tmp_path / "array"
    sparse_versions(path)
    state = tet("cat", path, "x", "--raw")
    assert tet_json("repair", path)["repairs"] == []
    uncommitted = path / "__fragments" / f"__30_30_{'a' * 32}_22"
    shutil.copytree(files(path, 20)["a0.tdb"].parent, uncommitted)
    (path / "__commits" / f"__1_2_{'b' * 32}_22.vac").write_text(f"/__fragments/__1_1_{'c' * 32}_22\n")
    left = path / f".tesseral-x.{2**22 + 1}.0.tmp"
    left.write_bytes(b"half")
    assert [r["code"] for r in tet_json("repair", path)["repairs"]][2:] == [], "its writer may be alive on another machine"
    os.utime(left, (0, 0))
    listed = tet_json("repair", path)["repairs"]
    codes = ["uncommitted_fragments", "stale_vacuum_files", "staged_leftovers"]
    assert [(r["code"], r["outcome"]) for r in listed] == [(code, "available") for code in codes]
    assert uncommitted.exists()
    done = tet_json("repair", path, "--apply", ",".join(codes))
    assert [r["outcome"] for r in done["repairs"]] == ["applied"] * 3 and done["verify_after"]["ok"]
    assert not uncommitted.exists() and not list(path.glob(".tesseral*")) and not list(path.glob("__commits/*.vac"))
    assert tet_json("repair", path)["repairs"] == []
    assert tet("cat", path, "x", "--raw") == state


def test_files_that_vacuum_still_needs_are_no_leftovers(tmp_path):
    path = tmp_path / "array"
    sparse_versions(path)
    tet("consolidate", path)
    assert list(path.glob("__commits/*.vac"))
    assert tet_json("repair", path)["repairs"] == []


@pytest.mark.parametrize("write", [dense_versions, sparse_versions])
def test_two_times_of_one_array_are_compared(write, tmp_path):
    path = tmp_path / "array"
    write(path)
    tet("diff", f"{path}@10", f"{path}@19")
    tet("diff", f"{path}@20", path)
    tet("diff", f"{path}@10", f"{path}@20", code=1)
    found = json.loads(tet("diff", f"{path}@10", f"{path}@20", "--json", code=1))
    assert not found["same"]
    if write is dense_versions:
        with tiledb.open(str(path), timestamp=10) as old, tiledb.open(str(path), timestamp=20) as new:
            differ = int((old[:]["a"] != new[:]["a"]).sum())
        assert [v["differing"] for v in found["values"] if v["array"].endswith("a")] == [differ]


def test_a_fragment_without_its_folder_is_damage(tmp_path):
    path = tmp_path / "array"
    sparse_versions(path)
    shutil.rmtree(files(path, 20)["a0.tdb"].parent)
    tet("cat", path, "x", code=5)
    with pytest.raises(tiledb.TileDBError), tiledb.open(str(path)) as array:
        array[:]


def test_one_field_is_shown(tmp_path):
    path = tmp_path / "array"
    dense_versions(path)
    every = tet_json("info", path)["arrays"][0]
    stored = {}
    for name, dtype in (("a", "int32"), ("n", "int16"), ("s", "string_ascii")):
        shown, = tet_json("info", path, "--dataset", name)["arrays"]
        assert [field["name"] for field in shown["fields"]] == [name] and shown["dtype"] == dtype
        assert shown["shape"] == every["shape"]
        stored[name] = shown["stored_bytes"]
        assert tet_json("info", path, "--dataset", f"array/{name}")["arrays"] == [shown]
    assert all(stored.values()) and sum(stored.values()) == every["stored_bytes"]
    tet("info", path, "--dataset", "none", code=3)


def test_offsets_of_another_fragment_are_found(tmp_path):
    """They are valid in themselves, but split the strings of a dimension at other positions: its bounds reveal it."""
    dim = tiledb.Dim("s", dtype="ascii", domain=(None, None), tile=None)
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("v", dtype="i4")], sparse=True)
    tiledb.Array.create(str(tmp_path / "a"), schema)
    for time, names in [(1, ["a", "bbb"]), (2, ["ccc", "d"])]:
        with tiledb.open(str(tmp_path / "a"), "w", timestamp=time) as array:
            array[np.array(names, "S")] = np.array([1, 2], "i4")
    assert tet_json("verify", tmp_path / "a", "--deep")["ok"]
    first, second = (p / "d0.tdb" for p in sorted((tmp_path / "a/__fragments").iterdir()))
    second.write_bytes(first.read_bytes())
    assert not tet_json("verify", tmp_path / "a", "--deep", code=1)["ok"]


@pytest.mark.parametrize("count", [30, 60])
def test_ranges_of_text_that_is_not_sorted(tmp_path, count):
    """A tiled dimension after a text dimension determines the cell order; the package selects text ranges as if the text did."""
    path = tmp_path / "array"
    dims = [tiledb.Dim("s", domain=(None, None), tile=None, dtype="ascii"), tiledb.Dim("x", domain=(0, 99), tile=1, dtype=np.int32)]
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("v", dtype=np.int32)], sparse=True)
    tiledb.Array.create(str(path), schema)
    texts, numbers = ["b", "a"] * (count // 2), np.arange(count, dtype=np.int32)
    with tiledb.open(str(path), "w") as array:
        array[texts, numbers] = numbers
    for first, wanted in (("a", numbers[1::2]), ("b", numbers[::2])):
        assert tet("cat", path, "v", f"s={first}..{first}", "--raw") == wanted.tobytes()
    with tiledb.open(str(path)) as array:
        assert set(array.query().multi_index["a":"a"]["s"]) == {b"a", b"b"}


def test_verify_reports_unsupported_versions_apart_from_damage(tmp_path):
    """Exit code 7 where the only failures are features that are not supported, 1 where anything is damaged."""
    array = tmp_path / "a"
    tiledb.from_numpy(str(array), np.arange(6.0)).close()
    (schema,) = [path for path in (array / "__schema").iterdir() if path.is_file()]
    content = schema.read_bytes()
    schema.write_bytes((9999).to_bytes(4, "little") + content[4:])
    (failure,) = [finding for finding in tet_json("verify", array, code=7)["findings"] if not finding["ok"]]
    assert failure["unsupported"] is True
    schema.write_bytes(content[: len(content) // 2])
    tet("verify", array, code=1)


def test_texts_outside_their_bounds_are_found(tmp_path):
    """The bounds of a tile of another writer bound its texts: a cell that passes them was changed."""
    path = tmp_path / "a"
    dim = tiledb.Dim("x", domain=(0, 999), tile=10, dtype=np.int32)
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("s", dtype="ascii", var=True)], sparse=True)
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[np.arange(4)] = np.array(["delta", "echo", "golf", "hotel"], "S")
    assert tet_json("verify", path, "--deep")["ok"]
    (data,) = path.glob("__fragments/*/a0_var.tdb")
    whole = data.read_bytes()
    for before, after in [(b"golf", b"zolf"), (b"echo", b"acho")]:
        data.write_bytes(whole.replace(before, after))
        assert not tet_json("verify", path, "--deep", code=1)["ok"]
    # A NUL ends a text where the writer compared them.
    data.write_bytes(whole.replace(b"golf", b"z\0lf"))
    assert tet_json("verify", path, "--deep")["ok"]


def full_range(path, low, high, tile, dtype=np.int64):
    """A dense array of two dimensions over nearly all values of a dtype, with one box of cells."""
    dims = [tiledb.Dim(name, domain=(low, high), tile=tile, dtype=dtype) for name in "xy"]
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[tiledb.Attr("v", dtype=np.float64)])
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[1:4, 5:9] = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("low, high, dtype", [
    (-(2**63), 2**63 - 1000, np.int64), (0, 2**64 - 1000, np.uint64), (-(2**63) + 1, 2**63 - 17, np.int64)])
@pytest.mark.parametrize("tile", [1, 7, 100])
def test_dense_domains_of_the_whole_integer_range(low, high, dtype, tile, tmp_path):
    path = tmp_path / "array"
    full_range(path, low, high, tile, dtype)
    with tiledb.open(str(path)) as array:
        expected = array[0:6, 3:11]["v"]
    found = np.frombuffer(tet("cat", path, "x=0..5", "y=3..10", "--raw"), "<f8").reshape(6, 8)
    assert found.tobytes() == expected.tobytes()
    stat = tet_json("stat", path, "x=0..5", "y=3..10")
    assert (stat["count"], stat["nulls"], stat["sum"]) == (48, 36, 66.0)
    assert tet_json("verify", path)["ok"]
    # A box of it becomes an array of another format.
    tet("convert", path, tmp_path / "box.tet", "--select", "x=1..3", "--select", "y=5..8")
    box = np.frombuffer(tet("cat", tmp_path / "box.tet", "v", "--raw"), "<f8")
    assert box.tolist() == list(range(12))


def test_an_array_without_attributes_and_an_empty_dimension_name(tmp_path):
    path = tmp_path / "array"
    domain = tiledb.Domain(tiledb.Dim("", domain=(0, 99), tile=10, dtype=np.int32))
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=domain, attrs=[], sparse=True))
    with tiledb.open(str(path), "w") as array:
        array[[3, 5, 77]] = None
    assert tet("cat", path, "0=4..80", "--format", "csv").decode().split() == ["0", "5", "77"]
    assert tet("cat", path, "0=@5", "--format", "csv").decode().split() == ["0", "5"]
    assert tet_json("verify", path)["ok"]
    assert "3 .. 77" in tet("info", path).decode()
    # Nothing of it can be a variable elsewhere, and two of them are not called equal.
    tet("convert", path, tmp_path / "out.tet", code=7)
    tet("diff", path, path, code=7)
    assert not (tmp_path / "out.tet").exists()


def test_members_without_an_array_are_listed(tmp_path):
    path = tmp_path / "group"
    tiledb.Group.create(str(path))
    for name in "ab":
        tiledb.from_numpy(str(path / name), np.arange(4)).close()
    with tiledb.Group(str(path), "w") as group:
        group.add("a", relative=True)
        group.add("b", name="bee", relative=True)
    for inside in (path / "a").iterdir():
        shutil.rmtree(inside)
    assert np.frombuffer(tet("cat", path, "bee", "--raw"), "<i8").tolist() == [0, 1, 2, 3]
    assert "a (a): contains no array" in tet("info", path).decode()
    members = {m["path"]: m["state"] for m in tet_json("info", path)["tiledb"]["members"]}
    assert members == {"a": "empty", "bee": "read"}
    findings = tet_json("verify", path, code=1)["findings"]
    assert [f["check"] for f in findings if not f["ok"]] == ["group_member"]


def test_groups_that_list_a_folder_many_times_are_opened_once(tmp_path):
    """Three levels of a hundred names for one folder would be a million arrays."""
    def listed(folder, uris, kind):
        (folder / "__group").mkdir(parents=True)
        (folder / "__tiledb_group.tdb").touch()
        text = lambda word: struct.pack("<Q", len(word)) + word  # noqa: E731
        members = [struct.pack("<IBB", 2, kind, 1) + text(uri) + b"\0\0" for uri in uris]
        plain = struct.pack("<IQ", 2, len(members)) + b"".join(members)
        body = struct.pack("<QIII", 1, len(plain), len(plain), 0) + plain
        head = struct.pack("<IQQBQBI", 22, len(body), len(plain), 4, 1, 0, 8) + struct.pack("<II", 65536, 0)
        (folder / "__group" / ("__5_5_" + "0" * 32 + "_2")).write_bytes(head + body)

    path = tmp_path / "group"
    names = lambda name: [name + b"/" * n for n in range(100)]  # noqa: E731
    listed(path, names(b"g"), 1)
    listed(path / "g", names(b"h"), 1)
    listed(path / "g/h", names(b"a"), 2)
    tiledb.from_numpy(str(path / "g/h/a"), np.arange(4)).close()
    assert np.frombuffer(tet("cat", path, "g/h/a", "--raw"), "<i8").tolist() == [0, 1, 2, 3]
    states = [m["state"] for m in tet_json("info", path)["tiledb"]["members"]]
    assert states.count("read") == 3 and states.count("repeated") == 297


@pytest.mark.parametrize("channels", ["RGB", "BGR", "RGBA", "BGRA"])
@pytest.mark.parametrize("lossless", [True, False])
def test_images_of_the_webp_filter_have_the_same_cells(tmp_path, channels, lossless):
    """Lossy images too: libwebp interpolates their colors."""
    depth, source = len(channels), str(tmp_path / "image")
    height, width = 37, 41
    order = getattr(tiledb.WebpFilter.WebpInputFormat, f"WEBP_{channels}")
    webp = tiledb.WebpFilter(input_format=order, quality=40.0, lossless=lossless)
    dims = [tiledb.Dim("y", domain=(1, height), tile=20, dtype="u4"), tiledb.Dim("x", domain=(1, width * depth), tile=21 * depth, dtype="u4")]
    attribute = tiledb.Attr("a", dtype="u1", filters=tiledb.FilterList([webp]))
    tiledb.Array.create(source, tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[attribute]))
    rng = np.random.default_rng(5)
    y, x, c = np.mgrid[:height, :width, :depth]
    smooth = np.sin(y / 5 + c) * 60 + np.cos(x / 7) * 60 + 128
    cells = (smooth + rng.integers(0, 30, smooth.shape)).clip(0, 255).astype("u1").reshape(height, -1)
    with tiledb.open(source, "w") as array:
        array[:] = cells
    with tiledb.open(source) as array:
        want = array[:]
        want = want["a"] if isinstance(want, dict) else want
    assert lossless == np.array_equal(want, cells)
    assert tet("cat", source, "a", "--raw") == want.tobytes()
    assert tet("cat", source, "a", "y=5:30", "x=10:100", "--raw") == want[5:30, 10:100].tobytes()
    assert tet_json("verify", source, "--deep")["ok"]
    tet("convert", source, tmp_path / "copy.tet", "--check")
    # Tiles are not encoded: an append is rejected as a whole.
    np.save(tmp_path / "one.npy", np.ones((1, 1), "u1"))
    tet("append", source, tmp_path / "one.npy", "y=0:1", "x=0:1", code=7)
    assert tet("cat", source, "a", "--raw") == want.tobytes()
