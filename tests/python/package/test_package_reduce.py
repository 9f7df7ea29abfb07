"""Reductions: as NumPy's, exact for integers, without NaN and nulls."""

import math
import random
import warnings
from fractions import Fraction

import numpy as np
import pytest
import tesseral
from conftest import cells
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays
from tesseral import _native
from tesseral._reduce import question

PLAIN = {"sum": np.nansum, "mean": np.nanmean, "min": np.nanmin, "max": np.nanmax, "std": np.nanstd, "var": np.nanvar}
AXES = [None, 0, 1, 2, (0, 1), (0, 2), (2, 1), (0, 1, 2), -1]


@pytest.mark.parametrize("name", ["raw.tet", "zstd.tet", "ours.tgm", "dense"])
def test_agree_with_numpy(arrays, name):
    values = cells().astype("f8")
    array = arrays[name]
    for window in [{}, {0: slice(1, None, 2)}, {0: slice(None, None, -1), 1: 3}, {2: slice(4, 1, -2)}]:
        items = {array.dims[axis]: item for axis, item in window.items()}
        narrowed = array.isel(items)
        want_cells = values[tuple(window.get(i, slice(None)) for i in range(3))]
        for what, numpy_does in PLAIN.items():
            for axis in AXES:
                if axis is not None and max(np.atleast_1d(axis)) >= want_cells.ndim:
                    continue
                for keepdims in (False, True):
                    got = getattr(narrowed, what)(axis, keepdims=keepdims)
                    want = numpy_does(want_cells, axis=axis, keepdims=keepdims)
                    assert np.shape(got) == np.shape(want)
                    np.testing.assert_allclose(got, want, rtol=1e-13, err_msg=f"{what} {axis} {window}")
        assert narrowed.count() == want_cells.size
    assert array.mean(array.dims[1]).shape == (7, 6)
    assert array.mean((array.dims[2], 0)).shape == (5,)
    with pytest.raises(ValueError):
        array.mean((0, 0))
    np.testing.assert_allclose(array.var(0, ddof=1), values.var(0, ddof=1), rtol=1e-12)
    assert np.isnan(array.isel({array.dims[0]: slice(0, 1)}).std(0, ddof=1)).all()


@settings(max_examples=40, deadline=None)
@given(values=numpy_arrays("f8", (4, 5), elements=st.floats(-1e6, 1e6) | st.just(math.nan)))
def test_nan_counts_when_asked_to(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("nan") / "a.tet"
    tesseral.write(path, {"a": values}, chunks=(3, 2))
    array = tesseral.open(path)["a"]
    assert array.count() == np.count_nonzero(~np.isnan(values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for axis in (None, 0, 1):
            for what, numpy_does in PLAIN.items():
                np.testing.assert_allclose(getattr(array, what)(axis), numpy_does(values, axis=axis), rtol=1e-9, atol=1e-6)
            np.testing.assert_allclose(array.sum(axis, skipna=False), values.sum(axis=axis), rtol=1e-12, atol=1e-6)
            np.testing.assert_array_equal(array.max(axis, skipna=False), values.max(axis=axis))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint8"])
def test_integers_are_exact(tmp_path, dtype):
    largest = np.iinfo(dtype).max
    values = np.array([[largest, largest, 1], [largest - 1, 2, 3]], dtype)
    tesseral.write(tmp_path / "a.tet", {"a": values}, chunks=(1, 2))
    array = tesseral.open(tmp_path / "a.tet")["a"]
    exact = values.astype(object)
    assert array.sum() == exact.sum()
    assert [int(v) for v in array.sum(1)] == exact.sum(1).tolist()
    assert array.sum(0).tolist() == exact.sum(0).tolist()
    assert array.max() == largest and array.max().dtype == values.dtype
    assert array.min(0).tolist() == values.min(0).tolist() and array.min(0).dtype == values.dtype


def test_dtypes_of_results(arrays):
    array = arrays["raw.tet"]
    for function in (np.sum, np.mean, np.min, np.max, np.std, np.var):
        np.testing.assert_allclose(function(array), function(cells().astype("f8")), rtol=1e-13)
        np.testing.assert_allclose(function(array, axis=1), function(cells().astype("f8"), axis=1), rtol=1e-13)
    out = np.empty((5, 6), "f4")
    assert array.mean(0, out=out) is out and array.mean(0, dtype="f4").dtype == "f4"
    assert array.sum().dtype == "f8" and array.min().dtype == "f4" and array.count(0).dtype == "i8"


def test_cells_that_are_missing(tmp_path):
    values = np.array([[-9, 1, 2], [-9, 4, -9]], "int32")
    tesseral.write(tmp_path / "a.tet", {"a": values}, fill=-9)
    array = tesseral.open(tmp_path / "a.tet")["a"]
    assert array.fill == -9 and array.count() == 3 and array.sum() == 7
    lowest = array.min(0)
    assert lowest.mask.tolist() == [True, False, False] and lowest[1:].tolist() == [1, 2]
    assert np.isnan(array.mean(0)[0]) and array.isel(dim_1=0).min() is np.ma.masked


def test_text_and_complex_have_no_sums(tmp_path):
    tesseral.write(tmp_path / "a.tgm", {"a": np.ones(3, "complex64")})
    with pytest.raises(TypeError):
        tesseral.open(tmp_path / "a.tgm")["a"].sum()


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_statistics_of_dates_are_dates(tmp_path, unit):
    """Means, medians and quantiles are dates, deviations are lengths of time; sums and variances are not defined."""
    import tiledb

    path = tmp_path / "dates"
    dates = (np.datetime64("2020-01-01", unit) + np.array([[0, 1, 5], [7, 8, 30]], f"m8[{unit}]")).astype(f"M8[{unit}]")
    tiledb.from_numpy(str(path), dates).close()
    (array,) = tesseral.open(path).values()
    fine = "us" if unit != "ns" else "ns"
    counts, zero = dates.astype(f"M8[{fine}]").astype("i8"), np.datetime64(0, fine)
    assert (array.min(), array.max()) == (dates.min(), dates.max())
    mean = array.mean()
    assert mean.dtype == np.dtype(f"M8[{fine}]")
    exact = Fraction(sum(map(int, counts.ravel())), 6)
    assert mean == zero + np.timedelta64(round(exact), fine)
    along = array.mean(0)
    assert along.dtype == np.dtype(f"M8[{fine}]") and along.shape == (3,)
    halves = [round(Fraction(int(a) + int(b), 2)) for a, b in zip(*counts)]
    np.testing.assert_array_equal(along, zero + np.array(halves, f"m8[{fine}]"))
    std = array.std()
    assert std.dtype == np.dtype(f"m8[{fine}]")
    assert std.astype("i8") == pytest.approx((counts - counts.min()).std(), abs=1)
    assert array.median(0).dtype == np.dtype(f"M8[{fine}]")
    for undefined in ("sum", "var"):
        with pytest.raises(TypeError):
            getattr(array, undefined)()


def test_changed_jobs_and_results_are_errors(tmp_path):
    """Bytes from other processes: an error or an answer, never a panic."""
    rng = random.Random(5)
    cells = np.random.default_rng(1).random((40, 50))
    tesseral.write(tmp_path / "a.tet", {"a": cells}, chunks=(10, 50))
    array = tesseral.open(tmp_path / "a.tet")["a"]
    asked = [question(array, what, axis) for what, axis in [("mean", None), ("std", 0), ("median", None), ("argmax", 0), ("mode", 1)]]
    asked.append(question(array, "histogram", None, bins=5, range=(0, 1)))
    for _ in range(600):
        one = rng.choice(asked)
        job, units = rng.choice(array._view.split_reduction(one, 1 << 13))
        results = rng.random() < 0.5
        data = bytearray(array._view.run_job(one, job) if results else job)
        at, width = rng.randrange(8, len(data)), rng.choice([1, 1, 2, 5, 10])
        new = rng.choice([bytes([rng.choice([0, 1, 127, 128, 255])]) * width, b"\xff" * (width - 1) + b"\1", rng.randbytes(width)])
        data[at : at + rng.choice([0, len(new)])] = new
        try:
            if results:
                array._view.merge_results(one, _native.join_results([bytes(data)] * rng.choice([1, 2])), rng.choice([units, 1, 2**60]))
            else:
                array._view.run_job(one, bytes(data))
        except tesseral.TesseralError:
            pass
