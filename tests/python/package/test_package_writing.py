"""Writing is a transaction."""

import os

import numpy as np
import pytest
import tesseral
import tiledb
from hypothesis import given, settings, strategies as st


def test_regions_in_any_order_and_cut(tmp_path):
    values = np.arange(70, dtype="i4").reshape(7, 10)
    with tesseral.create(tmp_path / "a.tet") as session:
        array = session.add("a", (7, 10), "i4", chunks=(3, 4), codec="zstd")
        other = session.add("b", (2,), "f8")
        array[5:, :] = values[5:]
        array[:5, 3:] = values[:5, 3:]
        array[0:5, 0:3] = values[:5, :3]
        other[...] = 1.5
        assert not (tmp_path / "a.tet").exists()
    container = tesseral.open(tmp_path / "a.tet")
    assert np.array_equal(container["a"][...], values) and container["b"][...].tolist() == [1.5, 1.5]
    assert tesseral.verify(tmp_path / "a.tet", deep=True)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_cut_makes_the_same_array(tmp_path_factory, data):
    shape = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    chunks = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)))
    cuts = [sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))}) for n in shape]
    values = np.arange(shape[0] * shape[1], dtype="u2").reshape(shape)
    path = tmp_path_factory.mktemp("cut") / "a.tet"
    boxes = [(slice(a, b), slice(c, d)) for a, b in zip(cuts[0], cuts[0][1:]) for c, d in zip(cuts[1], cuts[1][1:])]
    with tesseral.create(path) as session:
        array = session.add("a", shape, "u2", chunks=chunks)
        for box in data.draw(st.permutations(boxes)):
            array[box] = values[box]
    assert np.array_equal(tesseral.open(path)["a"][...], values)


def test_mistakes_leave_no_trace(tmp_path):
    path = tmp_path / "a.tet"
    with pytest.raises(ZeroDivisionError):
        with tesseral.create(path) as session:
            session.add("a", (4,), "i4")[...] = 0
            1 / 0
    with pytest.raises(ValueError):
        with tesseral.create(path) as session:
            session.add("a", (4,), "i4", chunks=2)[:3] = 0
    with pytest.raises(ValueError):
        with tesseral.create(path) as session:
            session.add("a", (4,), "i4", chunks=2)[:2] = 0
    with pytest.raises(ValueError):
        with tesseral.create(path) as session:
            array = session.add("a", (4,), "i4", chunks=2)
            array[...] = 0
            array[1:3] = 1
    with pytest.raises(NotImplementedError):
        tesseral.write(path, {"a": np.zeros(3, "float128")})
    with pytest.raises(ValueError):
        tesseral.write(path, {"a": np.array(["text", None])})
    with pytest.raises(ValueError):
        tesseral.write(path, {"a": np.ma.array([1, 2], mask=[0, 1])})
    with pytest.raises(ValueError):
        tesseral.write(path, {"a": np.zeros((2, 2))}, dims=("x",))
    with pytest.raises(NotImplementedError):
        tesseral.write(tmp_path / "a.xyz", {"a": np.zeros(3)})
    assert os.listdir(tmp_path) == []
    tesseral.write(path, {"a": np.zeros(3)})
    with pytest.raises(ValueError):
        tesseral.write(path, {"a": np.ones(3)})
    assert tesseral.open(path)["a"].sum() == 0
    tesseral.write(path, {"a": np.ones(3)}, overwrite=True)
    assert tesseral.open(path)["a"].sum() == 3


def test_values_are_not_bent_to_fit(tmp_path):
    with tesseral.create(tmp_path / "a.tet") as session:
        array = session.add("a", (2, 3), "i2", chunks=(1, 3))
        for values in ([1.5, 2, 3], [1, 2, 70000], np.array(["1", "2", "3"]), [1, 2, np.nan], [1j, 0, 0]):
            with pytest.raises((ValueError, TypeError)):
                array[0] = values
        array[0] = [1.0, 2.0, 3.0]
        array[1] = np.array([4, 5, 6], ">i8")
        with pytest.raises(ValueError) as twice:
            array[1, 0:1] = 0
        assert isinstance(twice.value, tesseral.TesseralError)
    assert tesseral.open(tmp_path / "a.tet")["a"][...].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_options_for_all_or_by_name(tmp_path):
    values = {"a": np.zeros((4, 6), ">f4"), "b": np.arange(6)[::2]}
    tesseral.write(
        tmp_path / "a.tet", values, dims={"a": ("y", "x"), "b": ("k",)}, chunks={"a": {"x": 2}}, codec={"a": "zstd"}, statistics=True
    )
    container = tesseral.open(tmp_path / "a.tet")
    assert container["a"].chunks == (4, 2) and container["a"].codecs == ("zstd",) and container["a"].dims == ("y", "x")
    assert container["b"].codecs in ((), ("raw",)) and container["b"][...].tolist() == [0, 2, 4]
    tesseral.write(tmp_path / "c.tet", np.arange(3))
    assert tesseral.open(tmp_path / "c.tet")["c"].sum() == 3


def test_large_arrays_are_cut_into_chunks(tmp_path):
    from tesseral._write import default_chunks

    assert default_chunks((10, 20), 8) == (10, 20)
    chunks = default_chunks((1000, 1000, 1000), 4)
    assert np.prod(chunks) * 4 <= 4 << 20 and chunks[2] == 1000
    assert default_chunks((0, 5), 8) == (1, 5)


def test_history(tmp_path):
    with tesseral.create(tmp_path / "a.tet") as session:
        session.add("a", (2,), "f4")[...] = 1
        session.add_history("write", "lab", "5", step="one")
    row = tesseral.open(tmp_path / "a.tet").history[-1]
    assert (row["op"], row["source"], row["at"], row["params"]) == ("write", "lab", "5", {"step": "one"})


def test_cells_that_nobody_wrote_become_what_is_asked_for(tmp_path):
    dim = tiledb.Dim("x", domain=(0, 9), tile=5, dtype="i4")
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("a", dtype="i4")], sparse=False)
    tiledb.Array.create(str(tmp_path / "a"), schema)
    with tiledb.open(str(tmp_path / "a"), "w") as array:
        array[2:6] = np.arange(4, dtype="i4")
    for target, fill, value in [("a.tet", None, -(2**31)), ("b.tet", -1, -1), ("c.tgm", {"a": "-1"}, -1)]:
        tesseral.convert(tmp_path / "a", tmp_path / target, fill=fill, check=True)
        (array,) = tesseral.open(tmp_path / target).values()
        assert np.asarray(array[...]).tolist() == [value] * 2 + [0, 1, 2, 3] + [value] * 4
        assert array.mean() == 1.5
    with pytest.raises(tesseral.UnsupportedError, match="fill="):
        tesseral.convert(tmp_path / "a", tmp_path / "d.tet", fill=3)


def test_convert_and_diff(tmp_path):
    values = np.arange(24, dtype="f4").reshape(4, 6)
    tesseral.write(tmp_path / "a.tet", {"a": values}, dims=("y", "x"), chunks=(2, 3))
    done = tesseral.convert(tmp_path / "a.tet", tmp_path / "b.tgm", codec="zstd", check=True)
    assert done.format == "tensogram" and done.stored_bytes > 0
    again = tesseral.convert(tmp_path / "b.tgm", tmp_path / "c.tet", chunks={"x": 2}, statistics=True)
    assert again.format == "tet" and tesseral.open(tmp_path / "c.tet")[again.arrays[0]].chunks[1] == 2
    assert np.array_equal(tesseral.open(tmp_path / "c.tet")[again.arrays[0]][...], values)
    assert not tesseral.diff(tmp_path / "a.tet", tmp_path / "a.tet")
    values[2, 3] += 1
    tesseral.write(tmp_path / "d.tet", {"a": values}, dims=("y", "x"), chunks=(2, 3))
    found = tesseral.diff(tmp_path / "a.tet", tmp_path / "d.tet")
    assert found and found.values[0].differing == 1 and found.values[0].first == (2, 3)
    with pytest.raises(ValueError):
        tesseral.convert(tmp_path / "a.tet", tmp_path / "b.tgm")


def test_recover_and_verify(tmp_path):
    path = tmp_path / "a.tet"
    values = np.arange(100, dtype="f4")
    tesseral.write(path, {"a": values}, chunks=(25,))
    whole = path.read_bytes()
    at = whole.index(values[30:40].tobytes())
    path.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
    report = tesseral.verify(path)
    assert not report and report.format == "tet" and report.covered_bytes > 0
    (failure,) = report.failures
    assert failure.array == "a" and failure.chunk == (1,) and failure.severity == "error"
    saved = tesseral.recover(path, tmp_path / "b.tet")
    assert (saved.chunks_saved, saved.chunks_lost) == (3, 1) and saved.findings
    got = tesseral.open(tmp_path / "b.tet")["a"][...]
    assert np.array_equal(got[50:], values[50:]) and np.isnan(got[25:50]).all()


@pytest.mark.parametrize("ending", ["tet", "tgm", "tiledb"])
def test_text(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    tesseral.write(path, {"a": np.array(["03772", "", "é"]), "one": np.array("word")}, dims={"a": ["x"], "one": []})
    found = tesseral.open(path).variables
    assert found["a"][...].tolist() == ["03772", "", "é"] and found["one"][()] == "word"
