"""Conversion of cells to the dtype of an array, without wrong values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._errors import InvalidRequestError

_NUMBERS = "biufc"


def exact(values: np.ndarray[Any, Any], dtype: np.dtype[Any], name: str) -> np.ndarray[Any, Any]:
    """Values in a numeric dtype. Floats can be rounded to shorter floats, but stay finite; other values must be the same."""
    values = np.asarray(values)
    if values.dtype.newbyteorder("=") == dtype:
        return values.astype(dtype, copy=False)
    if values.dtype.kind not in _NUMBERS or (values.dtype.kind == "c" and dtype.kind != "c"):
        raise InvalidRequestError(f"cannot cast {values.dtype} to {dtype}", array=name)
    with np.errstate(invalid="ignore", over="ignore"):
        cells = values.astype(dtype)
        wrong = _differs(values, cells)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InvalidRequestError(f"value {values[first]} at {list(first)} is not representable as {dtype}", array=name)
    return cells


def _differs(values: np.ndarray[Any, Any], cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns which cells differ from the values, because these were out of range or have more digits than the dtype."""
    given, taken = values.dtype.kind, cells.dtype.kind
    if taken in "fc" and given in "fc":
        return np.asarray(np.isfinite(values) & ~np.isfinite(cells))
    if taken == "b":
        return np.asarray((values != 0) & (values != 1))
    if given in "iu" and taken in "iu":
        return _outside(values, int(np.iinfo(cells.dtype).min), int(np.iinfo(cells.dtype).max))
    if given in "iu":
        # Integers are compared as integers: as floats, two different ones can be equal.
        digits = np.finfo(cells.real.dtype).nmant + 1
        wrong = _outside(values, -(2**digits), 2**digits)
        real = cells.real
        for place in map(tuple, np.argwhere(wrong)):
            wrong[place] = not np.isfinite(real[place]) or int(real[place]) != int(values[place])
        return wrong
    if given == "f" and taken in "iu":
        info = np.iinfo(cells.dtype)
        inside = (values >= float(info.min)) & (values < float(int(info.max) + 1))
        return np.asarray(~inside | (np.trunc(values) != values))
    return np.asarray(cells != values)


def _outside(values: np.ndarray[Any, Any], low: int, high: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(values.dtype)
    out = np.zeros(values.shape, bool)
    if low > info.min:
        out |= values < values.dtype.type(low)
    if high < info.max:
        out |= values > values.dtype.type(high)
    return out
