"""Indexing matches NumPy."""

import numpy as np
import pytest
import tesseral
from conftest import CHUNKS, SHAPE, cells
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import basic_indices

NAMES = ["raw.tet", "one.tet", "zstd.tet", "ours.tgm", "theirs.tgm", "dense"]
VALUES = cells()


def same(got, want):
    assert type(got) is type(want)
    assert got.dtype == want.dtype and np.shape(got) == np.shape(want)
    assert np.array_equal(got, want)


@settings(max_examples=400, deadline=None)
@given(key=basic_indices(SHAPE, allow_newaxis=True, allow_ellipsis=True), name=st.sampled_from(NAMES))
def test_basic(arrays, key, name):
    same(arrays[name][key], VALUES[key])


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_windows_of_windows(arrays, data, name):
    first = data.draw(basic_indices(SHAPE, allow_ellipsis=False))
    first = first if isinstance(first, tuple) else (first,)
    items = dict(zip(arrays[name].dims, first))
    window, want = arrays[name].isel(items), VALUES[first]
    assert window.shape == want.shape
    if want.ndim == 0:
        same(window[()], VALUES[first])
        return
    key = data.draw(basic_indices(want.shape, allow_ellipsis=True))
    same(window[key], want[key])


axis_items = [
    st.one_of(
        st.integers(-n, n - 1),
        st.slices(n),
        st.lists(st.integers(-n, n - 1), max_size=6),
        st.lists(st.booleans(), min_size=n, max_size=n).map(np.array),
    )
    for n in SHAPE
]


@settings(max_examples=150, deadline=None)
@given(key=st.tuples(*axis_items), name=st.sampled_from(NAMES))
def test_outer(arrays, key, name):
    want = VALUES
    # From the last axis, so that integers that drop axes do not shift the others.
    for axis in reversed(range(3)):
        item = np.array(key[axis], np.intp) if isinstance(key[axis], list) else key[axis]
        want = want[(slice(None),) * axis + (item,)]
    got = arrays[name].oindex[key]
    assert np.array_equal(got, want) and np.shape(got) == want.shape


@settings(max_examples=100, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_points(arrays, data, name):
    count = data.draw(st.integers(0, 12))
    key = tuple(np.array(data.draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count)), np.intp) for n in SHAPE)
    same(arrays[name].vindex[key], VALUES[key])


@pytest.mark.parametrize("name", NAMES)
def test_one_list_or_mask_inside_a_basic_index(arrays, name):
    array = arrays[name]
    for key in ([1, 5, 1], (slice(None), [0, 4]), (2, [0, 4]), (Ellipsis, np.array([5, 0])), VALUES > 50, VALUES[:, 0, 0] > 50):
        same(array[key], VALUES[key])
    for key in ((0, slice(None), [1]), ([0], [1]), ("a", 0)[1:] + ([0], [0])):
        with pytest.raises(IndexError):
            array[key]
    same(array[np.array(2)], VALUES[np.array(2)])
    same(array.vindex[[[0], [1]], [0, 1], 2], VALUES[[[0], [1]], [0, 1], 2])


@pytest.mark.parametrize("name", NAMES)
def test_mistakes(arrays, name):
    array = arrays[name]
    for key in (7, 2**70, (0, -6), (0, 0, 0, 0), (Ellipsis, Ellipsis), 1.5, True):
        with pytest.raises(IndexError):
            array[key]
    with pytest.raises(KeyError):
        array.isel(nope=0)
    with pytest.raises(KeyError):
        array["nope"]


@settings(max_examples=60, deadline=None)
@given(key=basic_indices(SHAPE, allow_newaxis=True), name=st.sampled_from(NAMES), order=st.sampled_from("CF"))
def test_into_memory_the_caller_has(arrays, key, name, order):
    want = VALUES[key]
    out = np.full(want.shape, -1, VALUES.dtype, order=order)
    assert arrays[name].read(key, out=out) is out
    assert np.array_equal(out, want)
    with pytest.raises(ValueError):
        arrays[name].read(key, out=np.empty((*want.shape, 2), VALUES.dtype))


def test_views_of_the_file(arrays, folder):
    for name in ("one.tet", "theirs.tgm"):
        view = arrays[name].view()
        assert np.array_equal(view, VALUES) and not view.flags.writeable and not view.flags.owndata
        assert np.shares_memory(np.asarray(arrays[name]), view)
        assert np.array_equal(arrays[name].isel(dim_0=3).view(), VALUES[3])
    for name in ("zstd.tet", "ours.tgm", "dense"):
        with pytest.raises(ValueError):
            arrays[name].view()
        with pytest.raises(ValueError):
            np.array(arrays[name], copy=False)
        assert np.array_equal(np.asarray(arrays[name], dtype="f8"), VALUES)
    # The map lives as long as the array over it.
    view = tesseral.open(folder / "one.tet")["a"].view()
    assert view.sum() == VALUES.sum()
    own = arrays["one.tet"][...]
    own[0] = 0
    assert arrays["one.tet"][0].any() and own.flags.owndata


def test_sequence_and_exchange(arrays):
    for name in NAMES:
        array = arrays[name]
        assert len(array) == 7 and array.ndim == 3 and array.size == VALUES.size and array.nbytes == VALUES.nbytes
        assert all(np.array_equal(a, b) for a, b in zip(array, VALUES, strict=True))
        assert np.array_equal(np.from_dlpack(array), VALUES)
        assert np.array_equal(array.__buffer__(0), VALUES) and array.__buffer__(0).readonly
        assert np.array_equal(np.concatenate([array, array]), np.concatenate([VALUES, VALUES]))
        whole = np.empty_like(VALUES)
        for box, values in array.blocks(100):
            whole[box] = values
        assert np.array_equal(whole, VALUES)
    assert arrays["dense"].chunks == CHUNKS and arrays["ours.tgm"].chunks == SHAPE


def test_scalars_and_empty_arrays(folder):
    tesseral.write(folder / "scalar.tgm", {"s": np.float64(2.5)})
    scalar = tesseral.open(folder / "scalar.tgm")["s"]
    assert scalar[()] == 2.5 and scalar.shape == () and scalar[...].shape == () and scalar.sum() == 2.5
    with pytest.raises(TypeError):
        len(scalar)
    array = tesseral.open(folder / "raw.tet")["a"]
    assert array[0:0].shape == (0, 5, 6) and array[5:2, ::-1].shape == (0, 5, 6)
    assert array.oindex[[], [0]].shape == (0, 1, 6)
