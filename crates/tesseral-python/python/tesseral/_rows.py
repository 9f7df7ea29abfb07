"""Cells as rows: requests, and conversion of columns for other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._coords import as_text, of_texts
from ._errors import InvalidRequestError

if TYPE_CHECKING:
    from ._array import Array

Columns = dict[str, np.ndarray[Any, Any]]


def asked(array: Array, where: str | None, columns: Sequence[str] | None, sort: bool, dims: Mapping[str, Any]) -> dict[str, Any]:
    """Converts arguments for the engine: one text per dimension, with coordinates, or positions of a window."""
    known = [name or str(i) for i, name in enumerate(array._view.all_dims)]
    chosen = dict(dims)
    for dim, item in array._between.items():
        if dim in chosen:
            raise InvalidRequestError(f"duplicate selection of coordinates of {dim!r}", array=array.name)
        chosen[dim] = item
    selection = _positions(array, known, chosen)
    for dim, item in chosen.items():
        if dim not in known:
            raise KeyError(f"unknown dimension {dim!r}; available: {', '.join(map(repr, known)) or 'none'}")
        selection.append(f"{dim}={'..'.join(_ends(item))}" if isinstance(item, slice) else f"{dim}=@{as_text(item)}")
    wanted = None if columns is None else list(columns)
    return {"selection": selection, "condition": where, "columns": wanted, "sort": sort}


def _ends(item: slice) -> list[str]:
    if item.step is not None:
        raise ValueError("a slice of coordinates cannot have a step")
    return ["" if end is None else as_text(end) for end in (item.start, item.stop)]


def _positions(array: Array, known: list[str], chosen: dict[str, Any]) -> list[str]:
    """Selections of the axes that `isel` and `sel` narrowed, combined with those in `chosen`, which are removed from it."""
    view = array._view
    if not view.countable:
        return []
    selection, axis = [], 0
    for dim, extent, (start, step, count, dropped) in zip(known, view.full_shape, view.window):
        if dropped and dim in chosen:
            raise InvalidRequestError(f"{dim!r} was already reduced to one position", array=array.name)
        if dropped:
            selection.append(f"{dim}={start}")
            continue
        if (start, step, count) != (0, 1, extent):
            if dim in chosen:
                item = chosen.pop(dim)
                low, high = view.between(axis, *(end or None for end in _ends(item))) if isinstance(item, slice) else view.at(axis, as_text(item))
                start, count = start + step * low, high - low
            # Rows are in ascending order of the dimensions, also for negative steps.
            if step < 0:
                start, step = start + step * (count - 1), -step
            selection.append(f"{dim}={start}:{start + step * (count - 1) + 1 if count else start}:{step}")
        axis += 1
    return selection


def labeled(array: Array, columns: Columns) -> Columns:
    """Replaces positions of labeled dimensions by their labels."""
    if array.sparse:
        return columns
    view = array._view
    whole = view.restore([(0, 1, extent, False) for extent in view.full_shape])
    for axis, dim in enumerate(view.all_dims):
        # A coordinate is a field with the name of its dimension, and holds the labels itself.
        labels = whole.labels(axis) if dim in columns and dim not in array.fields else None
        if labels is not None:
            columns[dim] = (of_texts(labels) if isinstance(labels, list) else labels)[columns[dim]]
    return columns


def to_pandas(array: Array, columns: Columns) -> Any:
    """Converts columns to a data frame. Nulls become missing values of pandas' nullable dtypes, enumerations become categories."""
    import pandas as pd

    enumerations = array._view.enumerations()
    out = {}
    for name, cells in columns.items():
        if name in enumerations:
            _, labels, ordered = enumerations[name]
            codes = cells.filled(-1) if isinstance(cells, np.ma.MaskedArray) else cells
            out[name] = pd.Categorical.from_codes(codes.astype(np.int64), categories=list(labels), ordered=ordered)
        elif isinstance(cells, np.ma.MaskedArray) and cells.dtype.kind in "iub":
            kind = pd.arrays.BooleanArray if cells.dtype.kind == "b" else pd.arrays.IntegerArray
            out[name] = kind(cells.data, np.ma.getmaskarray(cells))
        elif isinstance(cells, np.ma.MaskedArray):
            hidden = np.ma.getmaskarray(cells)
            plain = cells.data if cells.dtype.kind in "fcOMm" else cells.data.astype(object)
            missing = "NaT" if plain.dtype.kind in "Mm" else np.nan if plain.dtype.kind in "fc" else None
            out[name] = np.where(hidden, np.array(missing, plain.dtype), plain)
        else:
            out[name] = cells if cells.dtype.kind != "V" else cells.astype(object)
    return pd.DataFrame(out)


def to_arrow(array: Array, columns: Columns) -> Any:
    """Converts columns to a pyarrow table."""
    import pyarrow as pa

    from . import _arrow

    enumerations = array._view.enumerations()
    out = {}
    for name, cells in columns.items():
        type = _arrow.arrow_type(cells.dtype, "")
        if name in enumerations:
            _, labels, ordered = enumerations[name]
            out[name] = _arrow.labeled_array(cells, labels, ordered)
        elif type is not None:
            out[name] = _arrow.arrow_array(cells, type)
        else:
            values = np.ma.getdata(cells)
            mask = np.ma.getmaskarray(cells) if isinstance(cells, np.ma.MaskedArray) else None
            out[name] = pa.array(values.tolist() if values.dtype.kind in "OV" else values, mask=mask)
    return pa.table(out)
