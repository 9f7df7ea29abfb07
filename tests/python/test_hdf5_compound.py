"""Compound datatypes of HDF5: every member is a variable that equals what h5py reads, in every layout."""

import random

import numpy as np
import pytest
from support import tet, tet_json

h5py = pytest.importorskip("h5py")

MEMBERS = ["i1", "<i2", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", "S3", "?", ("<f4", (2, 3)), (">i2", (4,))]
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": True},
    "gzip": {"chunks": (3, 2), "compression": "gzip", "shuffle": True},
    "checked": {"chunks": (4, 4), "fletcher32": True},
}


def random_dtype(rng, depth=0):
    fields = []
    for n in range(rng.randrange(2, 6)):
        if depth < 2 and rng.random() < 0.2:
            fields.append((f"inner{n}", random_dtype(rng, depth + 1)))
        else:
            kind = rng.choice(MEMBERS)
            fields.append((f"m{n}", *kind) if isinstance(kind, tuple) else (f"m{n}", kind))
    return np.dtype(fields, align=rng.random() < 0.3)


def random_values(rng, dtype, shape):
    values = np.zeros(shape, dtype)
    for name, inner in leaves(dtype):
        part = member(values, name)
        count = part.size * part.dtype.itemsize
        if part.dtype == bool:
            part[...] = np.frombuffer(bytes(rng.randrange(2) for _ in range(part.size)), bool).reshape(part.shape)
        elif part.dtype.kind == "S":
            part[...] = np.frombuffer(bytes(rng.randrange(97, 123) for _ in range(count)), part.dtype).reshape(part.shape)
        else:
            part[...] = np.frombuffer(rng.randbytes(count), part.dtype).reshape(part.shape)
        assert inner is not None
    return values


def leaves(dtype, prefix=""):
    for name in dtype.names:
        own = dtype.fields[name][0]
        if own.names:
            yield from leaves(own, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", own


def member(values, path):
    for name in path.split("/"):
        values = values[name]
    return values


def little(values):
    values = np.ascontiguousarray(values)
    return values.astype(values.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(6))
def test_members_equal_h5py(tmp_path, layout, seed):
    rng = random.Random(f"{layout} {seed}")
    dtype, shape = random_dtype(rng), (rng.randrange(4, 9), rng.randrange(4, 9))
    values = random_values(rng, dtype, shape)
    with h5py.File(tmp_path / "a.h5", "w", libver=rng.choice(["earliest", "latest"])) as out:
        out.create_dataset("g/d", data=values, **LAYOUTS[layout])
        out["g/d"].attrs["note"] = "of all members"
    info = {array["name"]: array for array in tet_json("info", tmp_path / "a.h5")["arrays"]}
    with h5py.File(tmp_path / "a.h5") as read:
        stored = read["g/d"][...]
    names = [name for name, _ in leaves(stored.dtype)]
    assert list(info) == [f"g/d/{name}" for name in names]
    for name in names:
        expected = member(stored, name)
        assert tuple(info[f"g/d/{name}"]["shape"]) == expected.shape, name
        assert tet("cat", tmp_path / "a.h5", f"g/d/{name}", "--raw") == little(expected), name
    assert tet_json("verify", tmp_path / "a.h5", "--deep")["ok"]
    first = f"g/d/{names[0]}"
    if member(stored, names[0]).ndim == 2:
        got = tet("cat", tmp_path / "a.h5", first, "0=1:3", "1=2:4", "--raw")
        assert got == little(member(stored, names[0])[1:3, 2:4])
    tet("convert", tmp_path / "a.h5", tmp_path / "a.tet", "--check")
    for name in names:
        assert tet("cat", tmp_path / "a.tet", f"g/d/{name}", "--raw") == little(member(stored, name)), name


def test_text_fill_values_and_unwritten_chunks(tmp_path):
    dtype = np.dtype([("word", h5py.string_dtype()), ("x", "f8"), ("n", ">i4")])
    filled = np.dtype([("x", "f8"), ("n", ">i4"), ("same", "<i2", (2,)), ("differs", "<i2", (2,))])
    with h5py.File(tmp_path / "a.h5", "w") as out:
        numbers = out.create_dataset("numbers", (10,), filled, chunks=(4,), fillvalue=np.array((1.5, -7, [3, 3], [3, 4]), filled)[()])
        numbers[:3] = np.array([(1, 2, 3, 4), (3, 4, 5, 6), (5, 6, 7, 8)], numbers.dtype)
        words = out.create_dataset("words", (3,), dtype)
        words[...] = np.array([("a", 1.0, 2), ("é漢", 3.0, 4), ("", 5.0, 6)], dtype)
    with h5py.File(tmp_path / "a.h5") as read:
        stored = read["numbers"][...]
    assert [array["name"] for array in tet_json("info", tmp_path / "a.h5")["arrays"]] == ["numbers/x", "numbers/n", "numbers/same", "words/word", "words/x", "words/n"]
    for name in ("x", "n", "same"):
        assert tet("cat", tmp_path / "a.h5", f"numbers/{name}", "--raw") == little(stored[name])
    words = tet("cat", tmp_path / "a.h5", "words/word", "--raw")
    assert words == b"".join(len(word).to_bytes(8, "little") + word for word in (b"a", "é漢".encode(), b""))
    assert tet("cat", tmp_path / "a.h5", "words/n", "--raw") == np.array([2, 4, 6], "<i4").tobytes()


def test_members_without_a_representation_are_listed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as out:
        out["d"] = np.zeros(2)
        dtype = np.dtype([("ref", h5py.ref_dtype), ("x", "<f4"), ("list", h5py.vlen_dtype("i4")), ("bits", "V3")])
        values = np.zeros(2, dtype)
        values["x"] = [1, 2]
        values["ref"] = [out["d"].ref] * 2
        values["list"] = [np.array([1, 2], "i4"), np.array([], "i4")]
        out["c"] = values
    info = tet_json("info", tmp_path / "a.h5")
    assert [array["name"] for array in info["arrays"]] == ["c/x", "c/list", "c/bits", "d"]
    assert "references" in tet("info", tmp_path / "a.h5").decode()
    assert tet("cat", tmp_path / "a.h5", "c/x", "--raw") == np.array([1, 2], "<f4").tobytes()


def test_every_truncation_is_an_error(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as out:
        out["c"] = np.zeros(50, [("a", "f8"), ("b", [("c", "i4"), ("d", "S2")])])
    whole = (tmp_path / "a.h5").read_bytes()
    for end in range(0, len(whole), 67):
        (tmp_path / "cut.h5").write_bytes(whole[:end])
        tet("cat", tmp_path / "cut.h5", "c/a", code=(4, 5))
