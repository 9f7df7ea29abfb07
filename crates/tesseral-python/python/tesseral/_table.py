"""Tables as sparse arrays: some columns are coordinates, the others are fields."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._edit import append, columns_of, split
from ._errors import InvalidRequestError, TesseralError
from ._storage import Source, resolve
from ._write import declared

if TYPE_CHECKING:
    from ._types import Codec


def write_cells(
    path: Source,
    data: object,
    dims: str | Sequence[str],
    *,
    domain: Mapping[str, tuple[Any, Any]] | None = None,
    tile: Mapping[str, Any] | None = None,
    codec: Codec | Mapping[str, Codec] = None,
    duplicates: bool = False,
    capacity: int | None = None,
    timestamp: int | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Creates a sparse TileDB array from a table: a data frame, an Arrow table, or columns by name. The columns named in `dims` are
    coordinates, the others are fields.

    `domain` has the first and last coordinate of a dimension, by name; by default the whole range of its dtype. `tile` has tile
    extents, `codec` the codecs of all fields or by name, `capacity` the number of cells of a tile. Fields that have nulls, or a
    nullable dtype, are nullable; categories become an enumeration. `duplicates` allows several cells at one position. Use `append`
    to add cells.
    """
    columns = columns_of(data)
    axes = [dims] if isinstance(dims, str) else list(dims)
    for name in axes:
        if name not in columns:
            raise KeyError(f"unknown column {name!r}; available: {', '.join(map(repr, columns)) or 'none'}")
    schema = {
        "sparse": True,
        "duplicates": duplicates,
        "capacity": capacity,
        "dims": [_dimension(name, columns[name], (domain or {}).get(name), (tile or {}).get(name)) for name in axes],
        "fields": [
            _field(name, column, codec.get(name) if isinstance(codec, Mapping) else codec)
            for name, column in columns.items()
            if name not in axes
        ],
    }
    # The array has the timestamp of its first cells.
    made = {} if timestamp is None else {"timestamp": timestamp}
    staged = declared(path, schema, overwrite, made, storage_options).stage()
    staged_at = str(staged.path)
    try:
        append(staged_at, columns, timestamp=timestamp)
    except BaseException as error:
        staged.abandon()
        if isinstance(error, TesseralError):
            # Use the name of the final path.
            here, name = os.path.basename(staged_at), os.path.basename(resolve(path)[0].rstrip("/"))
            error.message = error.message.replace(here, name)
            error.array = name if error.array == here else error.array
        raise
    staged.publish()


def _dimension(name: str, column: Any, domain: Any, tile: Any) -> dict[str, Any]:
    cells, valid = split(column, None)
    if valid is not None and not valid.all():
        raise InvalidRequestError(f"dimension {name!r} has missing values")
    cells = _typed(column, cells)
    dtype, _ = _dtype(name, cells)
    if dtype in ("string_utf8", "bytes"):
        return {"name": name, "dtype": "string_ascii"}
    return {"name": name, "dtype": dtype, "domain": _all_of(cells.dtype) if domain is None else list(domain), "tile": tile}


def _all_of(dtype: np.dtype[Any]) -> list[Any]:
    """The default domain of a dimension of a dtype. Excludes the extremes of integers, so that the number of coordinates fits 64
    bits, and dates with years of more than four digits."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        return [limits.min, limits.max]
    if dtype.kind == "M" and np.datetime_data(dtype)[0] not in _SHORT:
        return ["0001-01-01", "9999-12-31"]
    whole = np.iinfo(np.int64 if dtype.kind in "Mm" else dtype)
    low, high = whole.min + (whole.min < 0), whole.max - 1
    return list(np.array([low, high]).astype(dtype)) if dtype.kind == "M" else [low, high]


# Date units whose 64 bits do not cover all four-digit years.
_SHORT = ("ns", "ps", "fs", "as")


def _field(name: str, column: Any, codec: Any) -> dict[str, Any]:
    cells, valid = split(column, None)
    field = {"name": name, "nullable": valid is not None, "codecs": _codecs(codec)}
    categories = getattr(column, "cat", None)
    if categories is not None:
        labels = list(categories.categories)
        code = next(code for code in ("int8", "int16", "int32", "int64") if len(labels) <= np.iinfo(code).max)
        return {**field, "dtype": code, "enumeration": {"name": name, "labels": labels, "ordered": bool(categories.ordered)}}
    dtype, cell = _dtype(name, _typed(column, cells if valid is None else cells[valid]))
    return {**field, "dtype": dtype, "cell": cell}


def _typed(column: Any, cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Cells in the dtype of a pandas column, which has Python objects if some are missing."""
    meant = getattr(getattr(column, "dtype", None), "numpy_dtype", None)
    return cells if meant is None or meant.kind not in "biufMm" else cells.astype(meant)


def _codecs(codec: Any) -> list[Any]:
    items = [] if codec is None else [codec] if isinstance(codec, str) else list(codec)
    return [item if isinstance(item, str) else {"name": item[0], **item[1]} for item in items]


def _dtype(name: str, cells: np.ndarray[Any, Any]) -> tuple[str, Any]:
    """Dtype name of a column in a schema, and the number of values per cell."""
    if cells.dtype.kind in "biufMm":
        return cells.dtype.newbyteorder("=").name, 1
    kinds = {type(cell) for cell in cells.reshape(-1)} if cells.dtype == object else {cells.dtype.type}
    if all(issubclass(kind, str) for kind in kinds):
        return "string_utf8", "var"
    if all(issubclass(kind, bytes) for kind in kinds):
        return "bytes", "var"
    raise InvalidRequestError(f"unsupported types in {name!r}: {', '.join(sorted(kind.__name__ for kind in kinds))}")
