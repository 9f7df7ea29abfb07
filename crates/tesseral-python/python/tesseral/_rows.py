"""Cells row by row: what is asked for, and columns as other libraries want them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._coords import as_text, of_texts

if TYPE_CHECKING:
    from ._array import Array

Columns = dict[str, np.ndarray[Any, Any]]


def asked(array: Array, where: str | None, columns: Sequence[str] | None, sort: bool, dims: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine takes: coordinates as text, one argument per dimension."""
    known = [name or str(i) for i, name in enumerate(array._view.all_dims)]
    selection = []
    for dim, item in dims.items():
        if dim not in known:
            raise KeyError(f"no dimension {dim!r}; there is {', '.join(map(repr, known)) or 'none'}")
        if isinstance(item, slice):
            if item.step is not None:
                raise ValueError("coordinates are selected without a step")
            ends = ["" if end is None else as_text(end) for end in (item.start, item.stop)]
            selection.append(f"{dim}={'..'.join(ends)}")
        else:
            selection.append(f"{dim}=@{as_text(item)}")
    wanted = None if columns is None else list(columns)
    return {"selection": selection, "condition": where, "columns": wanted, "sort": sort}


def labelled(array: Array, columns: Columns) -> Columns:
    """Coordinates of labelled dimensions as conditions compare them: labels, not positions."""
    if array.sparse:
        return columns
    for axis, dim in enumerate(array.dims):
        labels = array.labels(axis) if dim in columns else None
        if labels is not None:
            columns[dim] = (of_texts(labels) if isinstance(labels, list) else labels)[columns[dim]]
    return columns


def to_pandas(array: Array, columns: Columns) -> Any:
    """A data frame. Nulls are missing values of pandas' own dtypes, enumerated fields are categories."""
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
    """A table of pyarrow, which hands it on through Arrow's C interface."""
    import pyarrow as pa

    enumerations = array._view.enumerations()
    out = {}
    for name, cells in columns.items():
        hidden = np.ma.getmaskarray(cells) if isinstance(cells, np.ma.MaskedArray) else None
        values = cells.data if isinstance(cells, np.ma.MaskedArray) else cells
        if name in enumerations:
            _, labels, ordered = enumerations[name]
            codes = pa.array(values.astype(np.int32), mask=hidden)
            out[name] = pa.DictionaryArray.from_arrays(codes, pa.array(list(labels)), ordered=ordered)
        elif values.dtype.kind in "SV":
            out[name] = pa.array(values.astype(object).tolist(), mask=hidden)
        else:
            out[name] = pa.array(values, mask=hidden)
    return pa.table(out)
