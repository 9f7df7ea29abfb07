"""Statistics of arrays, computed by the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._errors import InvalidRequestError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._array import Array
    from ._types import Axis, Cells, How, Quantiles, Unpack


#: Default of `out`: not even None was given.
_ABSENT: Any = type("Absent", (), {"__repr__": lambda _: "..."})()


#: Arguments of statistics that users give, and all of them.
SHOWN = frozenset(("axis", "dim", "keepdims", "skipna", "where", "weights", "stored", "sketch"))
OPTIONS = SHOWN | {"q", "ddof", "other", "by", "rolling", "center", "min_periods", "bins", "range"}


class Histogram(NamedTuple):
    """Counts of values in equal bins, along the last axis of `counts`, and the edges of the bins."""

    counts: np.ndarray[Any, Any]
    edges: np.ndarray[Any, Any]


def axes_of(array: Array, axis: Any) -> list[int] | None:
    """The axes of an argument; None for all."""
    if axis is None or axis is Ellipsis:
        return None
    given = [axis] if isinstance(axis, (int, str, np.integer)) else list(axis)
    axes = [array._axis(one) for one in given]
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return axes


def question(
    array: Array,
    what: str | Sequence[str],
    axis: Any = None,
    *,
    q: Any = None,
    ddof: float = 0.0,
    skipna: bool = True,
    where: str | None = None,
    weights: str | None = None,
    other: str | None = None,
    by: str | None = None,
    rolling: Mapping[str, int] | None = None,
    center: bool = False,
    min_periods: int | None = None,
    bins: int | None = None,
    range: tuple[float, float] | None = None,
    sketch: float | None = None,
) -> dict[str, Any]:
    """A statistics query; the same arguments for every entry point."""
    names = [what] if isinstance(what, str) else list(what)
    numbers = [None] if q is None else [float(one) for one in np.ravel(q)]
    if where is not None and not isinstance(where, str):
        raise TypeError("where must be a condition as text, such as 'temperature > 5'")
    if not array._view.countable:
        raise InvalidRequestError("the dimensions have no countable positions: use cells", array=array.name)
    grouped = window = None
    axes = axes_of(array, axis)
    if by is not None:
        grouped = _grouped(array, by)
    if rolling is not None:
        if len(rolling) != 1:
            raise ValueError("a window has one dimension")
        [(dim, size)] = rolling.items()
        window = (array._axis(dim), int(size), bool(center), min_periods)
        axes = [] if axes is None else axes
    return {
        "statistics": [(name, number) for name in names for number in (numbers if name == "quantile" else [None])],
        "axes": axes,
        "ddof": float(ddof),
        "skipna": bool(skipna),
        "condition": where,
        "by": grouped,
        "rolling": window,
        "weights": weights,
        "other": other,
        "bins": None if bins is None else (int(bins), range),
        "sketch": sketch,
    }


#: Parts of times that groups have.
_PARTS = ("year", "month", "season", "day", "dayofyear", "hour", "date")


def _grouped(array: Array, by: str) -> tuple[int, str]:
    """The axis and the part of its times of `dim.part`."""
    dim, dot, part = by.rpartition(".")
    if dot and dim in array.dims:
        return array._axis(dim), part
    timed = next((own for own in array.dims if array._container._counts_time(own)), None)
    wanted = next((own for own in (part, by) if own in _PARTS), "date")
    if dot:
        hint = "" if timed is None else f"; did you mean '{timed}.{wanted}'?"
        raise KeyError(f"unknown dimension {dim!r}; available: {', '.join(map(repr, array.dims)) or 'none'}{hint}")
    raise ValueError(f"expected a part of a time such as '{timed or 'time'}.{wanted}', not {by!r}")


def answer(asked: Mapping[str, Any], answered: tuple[list[Any], list[list[float]], list[Any] | None]) -> list[Any]:
    """The results of a query, in the order of its statistics."""
    columns, edges, _ = answered
    limits = iter(edges)
    return [
        Histogram(column, np.asarray(next(limits))) if name == "histogram" else column
        for (name, _), column in zip(asked["statistics"], columns)
    ]


def one_axis(axis: Any, how: dict[str, Any]) -> Any:
    """The axes of `axis=` or of `dim=`, as xarray has it, which is removed from the options."""
    dim = how.pop("dim", None)
    if dim is not None and axis is not None:
        raise TypeError("axis and dim are two names of one argument")
    return axis if dim is None else dim


class Reducible:
    """Statistics under the names of NumPy and xarray.

    They are computed from physical values, as in `tet stat`; `stored=True` uses the stored numbers of packed arrays."""

    __slots__ = ()

    def _ask(self, what: str | Sequence[str], axis: Any, **how: Any) -> list[Any]:
        raise NotImplementedError

    def _one(self, what: str, axis: Axis, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, keepdims: bool = False, **how: Any) -> Cells:
        if out is not _ABSENT:
            how.setdefault("skipna", False)
        result: Cells
        [result] = self._ask(what, axis, keepdims=keepdims, **how)
        if dtype is not None:
            result = result.astype(dtype)
        if out is not _ABSENT and out is not None:
            np.copyto(out, result)
            return out
        return result

    # NumPy's functions pass `out`, also without one: np.mean(array) follows NumPy, where NaN makes the result NaN.

    def sum(self, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Exact sum: an integer, or rounded once to float64. `weights` as for `mean`."""
        return self._one("sum", axis, dtype, out, **how)

    def mean(self, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Mean as float64, rounded once; NaN without valid cells.

        `weights` names a variable along some of the dimensions, or is `"cos(lat)"`: the cosine of coordinates in degrees."""
        return self._one("mean", axis, dtype, out, **how)

    def min(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Minimum; NaN or masked without valid cells."""
        return self._one("min", axis, None, out, **how)

    def max(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Maximum; NaN or masked without valid cells."""
        return self._one("max", axis, None, out, **how)

    def std(self, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, *, ddof: float = 0, **how: Unpack[How]) -> Cells:
        """Standard deviation as float64, rounded once; NaN without valid cells. `weights` as for `mean`, with `ddof=0`."""
        return self._one("std", axis, dtype, out, ddof=ddof, **how)

    def var(self, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, *, ddof: float = 0, **how: Unpack[How]) -> Cells:
        """Variance as float64, rounded once; NaN without valid cells. `weights` as for `mean`, with `ddof=0`."""
        return self._one("var", axis, dtype, out, ddof=ddof, **how)

    def cov(self, other: str, axis: Axis = None, *, ddof: float = 0, **how: Unpack[How]) -> Cells:
        """Covariance with another variable of the container over the same dimensions, rounded once, over the cells at which both have a
        value. `ddof` is 0 as for `var`; `xarray.cov` and `numpy.cov` have 1."""
        return self._one("cov", axis, other=other, ddof=ddof, **how)

    def corr(self, other: str, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """Correlation with another variable, as for `cov`, within one unit in the last place; NaN if one of them is constant."""
        return self._one("corr", axis, other=other, **how)

    def prod(self, axis: Axis = None, dtype: npt.DTypeLike | None = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Product: an integer while it has at most 128 bits, otherwise float64, rounded once."""
        return self._one("product", axis, dtype, out, **how)

    def count(self, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """Number of cells that are neither null, nor the declared missing value, nor NaN."""
        return self._one("count", axis, **how)

    def any(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Whether any value differs from 0."""
        return self._one("any", axis, None, out, **how)

    def all(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Whether all values differ from 0."""
        return self._one("all", axis, None, out, **how)

    def argmin(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Position of the first minimum along the axes, row-major; masked without valid cells."""
        return self._one("argmin", axis, None, out, **how)

    def argmax(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Position of the first maximum along the axes, row-major; masked without valid cells."""
        return self._one("argmax", axis, None, out, **how)

    def first(self, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """First value."""
        return self._one("first", axis, **how)

    def last(self, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """Last value."""
        return self._one("last", axis, **how)

    def mode(self, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """Most frequent value; the smallest if there are several."""
        return self._one("mode", axis, **how)

    def median(self, axis: Axis = None, out: Cells | None = _ABSENT, **how: Unpack[How]) -> Cells:
        """Median as float64. `sketch=0.01` approximates it in little memory, with at most this relative error. `weights` as for
        `mean`: with the effective sample size, as in xarray."""
        return self._one("median", axis, None, out, **how)

    def quantile(self, q: Quantiles, axis: Axis = None, **how: Unpack[How]) -> Cells:
        """Quantiles from 0 to 1 by linear interpolation, along a new first axis if `q` is a list. `sketch` as for `median`."""
        found = self._ask("quantile", axis, q=q, **how)
        return np.stack(found) if np.ndim(q) else found[0]

    def histogram(self, bins: int = 10, range: tuple[float, float] | None = None, axis: Axis = None, **how: Unpack[How]) -> Histogram:
        """Counts in equal bins and their edges. Values outside of `range` are not counted; the default is the range of all values."""
        [found] = self._ask("histogram", axis, bins=bins, range=range, **how)
        assert isinstance(found, Histogram)
        return found

    def statistics(self, *names: str, axis: Axis = None, **how: Unpack[How]) -> dict[str, Cells]:
        """Several statistics of one pass over the cells, by name: `statistics("mean", "std", axis="time")`."""
        return dict(zip(names, self._ask(names, axis, **how)))


class GroupBy(Reducible):
    """`array.groupby("time.month")`: statistics of each group, along the axis that is grouped. Other axes are kept unless they are named;
    `...` reduces all."""

    __slots__ = ("_array", "_by")

    def __init__(self, array: Array, by: str) -> None:
        self._array = array
        self._by = by
        question(array, "count", by=by)

    @property
    def labels(self) -> list[int] | list[str]:
        """The groups, in the order of the answers: numbers, or the names of seasons and dates."""
        return self._array._view.groups(question(self._array, "count", by=self._by))

    def _ask(self, what: str | Sequence[str], axis: Any, *, keepdims: bool = False, **how: Any) -> list[Any]:
        if keepdims:
            raise ValueError("groups are an axis of the result: keepdims has no meaning")
        dim, axis = self._by.rpartition(".")[0], one_axis(axis, how)
        return self._array._ask(what, dim if axis is None else axis, by=self._by, **how)


class Rolling(Reducible):
    """`array.rolling(time=7)`: statistics of the window that ends at each position, or is centered at it."""

    __slots__ = ("_array", "_window")

    def __init__(self, array: Array, window: Mapping[str, int], center: bool, min_periods: int | None) -> None:
        self._array = array
        self._window: dict[str, Any] = {"rolling": dict(window), "center": center, "min_periods": min_periods}
        question(array, "count", **self._window)

    def _ask(self, what: str | Sequence[str], axis: Any, *, keepdims: bool = False, **how: Any) -> list[Any]:
        if one_axis(axis, how) is not None or keepdims:
            raise ValueError("a window is the only axis that is reduced")
        return self._array._ask(what, None, **self._window, **how)
