"""Columns of cells as Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ._errors import InvalidRequestError

# Units of dates and durations that Arrow has; others are converted to the next smaller one.
_UNITS = {"s": "s", "ms": "ms", "us": "us", "ns": "ns"}
_SECONDS = ("Y", "M", "W", "D", "h", "m")
_TEXT = ("string_utf8", "string_ascii")


def arrow_type(dtype: np.dtype[Any], stored: str) -> pa.DataType | None:
    """The type of a column whose cells have a dtype and a stored dtype; None for cells that a column cannot hold."""
    if dtype.kind in "biuf":
        return pa.from_numpy_dtype(dtype)
    if dtype.kind in "Mm":
        unit = np.datetime_data(dtype)[0]
        unit = "s" if unit in _SECONDS else _UNITS.get(unit, "")
        if not unit or np.datetime_data(dtype)[1] != 1:
            return None
        return pa.timestamp(unit) if dtype.kind == "M" else pa.duration(unit)
    if dtype.kind == "U":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    if dtype.kind == "O":
        name = stored.partition("[")[0]
        return pa.string() if name in _TEXT else pa.binary() if name in ("bytes", "char") else None
    return None


def arrow_array(cells: np.ndarray[Any, Any], type: pa.DataType) -> pa.Array:
    """Converts cells to an Arrow array; masked cells and NaT become nulls."""
    hidden = np.ma.getmaskarray(cells) if isinstance(cells, np.ma.MaskedArray) else None
    values = np.ma.getdata(cells)
    if hidden is not None and not hidden.any():
        hidden = None
    if values.dtype.kind in "Mm":
        times = values.astype(f"{values.dtype.kind}8[{type.unit}]", copy=False)
        if times is not values and not np.array_equal(times.astype(values.dtype), values, equal_nan=True):
            raise InvalidRequestError(f"some times are beyond the range of {type}")
        values = times
    elif values.dtype.kind in "SU":
        values = values.astype(object)
    if values.dtype.kind == "O":
        texts = values.tolist()
        if pa.types.is_string(type):
            # Text that is not UTF-8 is bytes.
            texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
        return pa.array(texts, type, mask=hidden)
    return pa.array(values, type, mask=hidden)


def labeled_type(labels: Any) -> pa.DataType:
    """The type of a column of enumeration codes."""
    return pa.dictionary(pa.int32(), pa.array(list(labels)).type)


def labeled_array(codes: np.ndarray[Any, Any], labels: Any, ordered: bool) -> pa.Array:
    """Converts codes of an enumeration to labels; codes without a label are null."""
    numbers = np.ma.getdata(codes).astype(np.int64)
    hidden = np.ma.getmaskarray(codes) | (numbers < 0) | (numbers >= len(labels))
    positions = pa.array(numbers.astype(np.int32), mask=hidden)
    return pa.DictionaryArray.from_arrays(positions, pa.array(list(labels)), ordered=ordered)
