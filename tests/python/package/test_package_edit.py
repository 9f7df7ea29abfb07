"""Arrays that grow: appends, deletes, versions and their maintenance, also checked by the reference."""

import numpy as np
import pandas as pd
import pytest
import tesseral
import tiledb


@pytest.fixture
def dense(tmp_path):
    path = tmp_path / "dense"
    tesseral.write(path, {"a": np.zeros((6, 8))}, format="tiledb", dims=("y", "x"), chunks=(3, 4), timestamp=1)
    return str(path)


def test_dense_boxes(dense):
    want = np.zeros((6, 8))
    tesseral.append(dense, np.ones((2, 3)), region=np.s_[1:3, 2:5], timestamp=2)
    want[1:3, 2:5] = 1
    tesseral.append(dense, {"a": np.arange(8.0)}, region=np.s_[5], timestamp=3)
    want[5] = np.arange(8)
    tesseral.append(dense, np.full((6, 2), 9), region={"x": slice(0, 1)}, timestamp=4)
    want[:, :2] = 9
    np.testing.assert_array_equal(tesseral.open(dense)["a"][...], want)
    with tiledb.open(dense) as reference:
        np.testing.assert_array_equal(reference[:]["a"], want)
    assert [version.end for version in tesseral.log(dense)] == [1, 2, 3, 4]
    assert tesseral.open(dense, as_of=2)["a"][5].sum() == 0
    with pytest.raises(IndexError):
        tesseral.append(dense, 1.0, region=np.s_[::2])
    with pytest.raises(KeyError):
        tesseral.append(dense, 1.0, region={"q": 1})
    with pytest.raises(ValueError):
        tesseral.append(dense, np.ones((2, 3)), region=np.s_[0:3, 0:3])
    with pytest.raises(tesseral.InvalidRequestError):
        tesseral.append(dense, np.full((6, 8), 1j))


def test_values_beyond_the_dtype_are_rejected(tmp_path):
    for dtype, beyond in [("i1", 300), ("i1", np.int64(-200)), ("u2", -1), ("f4", 1e39), ("f4", 2**24 + 1), ("f8", 2**53 + 1), ("i4", 1.5)]:
        path = str(tmp_path / f"{dtype}{beyond}")
        domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 2), tile=3, dtype="u8"))
        tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("a", dtype=dtype)]))
        with pytest.raises(tesseral.InvalidRequestError, match="representable"):
            tesseral.append(path, {"a": np.array([1, beyond, 3])})
        tesseral.append(path, {"a": np.array([1, 2, 3], "i8")})
        assert tesseral.open(path)["a"][...].tolist() == [1, 2, 3]
    with tesseral.create(tmp_path / "a.tet") as session:
        array = session.add("a", (3,), "f4")
        with pytest.raises(tesseral.InvalidRequestError):
            array[...] = np.array([1, 2**24 + 1, 3])
        array[...] = 7


def test_maintenance(dense):
    for t in range(2, 7):
        tesseral.append(dense, np.full((1, 8), t), region=np.s_[t - 2 : t - 1], timestamp=t)
    before = tesseral.open(dense)["a"][...]
    # Fragments above an older one are merged where they cover a box: no unwritten cell hides an older one.
    done = tesseral.consolidate(dense, times=(2, 6))
    assert len(done.made) == 1 and len(done.replaced) == 5
    listed = tesseral.vacuum(dense)
    assert sorted(listed.removed) == sorted(done.replaced) and len(tesseral.log(dense)) == 7
    assert tesseral.vacuum(dense, apply=True) == listed and len(tesseral.log(dense)) == 2
    np.testing.assert_array_equal(tesseral.open(dense)["a"][...], before)
    with tiledb.open(dense) as reference:
        np.testing.assert_array_equal(reference[:]["a"], before)
    for part in ("commits", "fragment_meta"):
        assert tesseral.consolidate(dense, part).made
    tesseral.set_attrs(dense, {"units": "K", "n": np.array([1, 2])})
    with tiledb.open(dense) as reference:
        assert reference.meta["units"] == "K" and tuple(reference.meta["n"]) == (1, 2)
    tesseral.set_attrs(dense, {"units": None})
    assert "units" not in tesseral.open(dense)["a"].attrs
    with pytest.raises(ValueError):
        tesseral.consolidate(dense, "everything")


@pytest.fixture
def sparse(tmp_path):
    path = str(tmp_path / "sparse")
    domain = tiledb.Domain(
        tiledb.Dim("x", domain=(0, 99), tile=10, dtype="int32"), tiledb.Dim("k", domain=(None, None), tile=None, dtype="ascii")
    )
    colors = tiledb.Enumeration("color", True, dtype="U5", values=["red", "green", "blue"])
    attrs = [
        tiledb.Attr("v", dtype="float64"),
        tiledb.Attr("n", dtype="int64", nullable=True),
        tiledb.Attr("word", dtype="U0", var=True),
        tiledb.Attr("c", dtype="int8", enum_label="color"),
    ]
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, enums=[colors]))
    return path


CELLS = {
    "x": [5, 1, 3],
    "k": ["b", "a", "c"],
    "v": [1.5, np.nan, -0.0],
    "n": [2**60, None, 3],
    "word": ["one", "", "drei é"],
    "c": ["blue", "red", "red"],
}


@pytest.mark.parametrize("given", [CELLS, pd.DataFrame(CELLS), {**CELLS, "n": np.ma.array([2**60, 0, 3], mask=[0, 1, 0]), "c": [2, 0, 0]}])
def test_sparse_cells(sparse, given):
    if isinstance(given, pd.DataFrame):
        given = given.astype({"n": "Int64", "c": "category"}).assign(n=pd.array(CELLS["n"], "Int64"))
    tesseral.append(sparse, given)
    rows = tesseral.open(sparse)["v"].cells()
    assert rows["x"].tolist() == [1, 3, 5] and rows["k"].tolist() == ["a", "c", "b"]
    assert rows["n"].tolist() == [None, 3, 2**60] and rows["word"].tolist() == ["", "drei é", "one"] and rows["c"].tolist() == [0, 0, 2]
    assert np.isnan(rows["v"][0]) and np.signbit(rows["v"][1])
    with tiledb.open(sparse) as reference:
        theirs = reference[:]
    assert theirs["x"].tolist() == [1, 3, 5] and theirs["word"].tolist() == ["", "drei é", "one"]


def test_sparse_deletes_and_duplicates(sparse):
    cells = {**CELLS, "v": [1.5, 0.5, -0.0]}
    tesseral.append(sparse, cells, timestamp=10)
    twice = {name: [column[0]] * 2 for name, column in CELLS.items()}
    with pytest.raises(ValueError):
        tesseral.append(sparse, twice)
    tesseral.append(sparse, twice, dedup=True, timestamp=11)
    tesseral.delete(sparse, "v > 1", timestamp=12)
    assert tesseral.open(sparse)["v"].cells(columns=["x"])["x"].tolist() == [1, 3]
    assert tesseral.open(sparse, as_of=11)["v"].cells()["x"].tolist() == [1, 3, 5]
    with tiledb.open(sparse) as reference:
        assert reference[:]["x"].tolist() == [1, 3]
    for wrong in ({**CELLS, "q": [1]}, {"x": [1]}):
        with pytest.raises(ValueError):
            tesseral.append(sparse, wrong)
    with pytest.raises(ValueError):
        tesseral.append(sparse, {**CELLS, "v": [1.0, None, 2.0]})
    with pytest.raises(ValueError):
        tesseral.append(sparse, CELLS, region=np.s_[1:2])


def test_formats_that_keep_no_versions_refuse(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros(3)})
    for change in (
        lambda path: tesseral.append(path, np.zeros(3)),
        lambda path: tesseral.delete(path, "a > 1"),
        lambda path: tesseral.consolidate(path),
        lambda path: tesseral.vacuum(path),
        lambda path: tesseral.set_attrs(path, {"a": 1}),
    ):
        with pytest.raises(tesseral.UnsupportedError):
            change(tmp_path / "a.tet")
    with pytest.raises(FileNotFoundError):
        tesseral.append(tmp_path / "none", np.zeros(3))
