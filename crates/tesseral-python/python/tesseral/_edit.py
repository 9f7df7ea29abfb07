"""Appending to existing containers, and maintenance of versions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native
from ._array import Array
from ._container import Container, open as open_container, time_range
from ._cast import exact
from ._coords import as_text
from ._errors import InvalidRequestError
from ._gather import expand
from ._storage import Source, located, resolve
from ._write import write

if TYPE_CHECKING:
    from ._types import AsOf, Region

Path = Source
_Column = tuple[np.ndarray[Any, Any], "np.ndarray[Any, Any] | None", "np.ndarray[Any, Any] | None"]


@dataclass(frozen=True)
class Version:
    """A stored version: first and last timestamp in milliseconds since 1970, and its state."""

    name: str
    op: str
    state: str
    start: int
    end: int
    array: str | None
    cells: int | None
    bytes: int | None


@dataclass(frozen=True)
class Consolidated:
    """Names of new versions, of the versions they replace, which `vacuum` removes, and of versions that were not merged because there are
    unwritten cells between them."""

    made: list[str]
    replaced: list[str]
    apart: list[str]


@dataclass(frozen=True)
class Vacuumed:
    """Names of removed or removable versions, their size in bytes, and the retained ones with the reason."""

    removed: list[str]
    bytes: int
    kept: list[tuple[str, str]]


def append(
    path: Path,
    data: object,
    *,
    region: Region = None,
    array: str | None = None,
    timestamp: int | None = None,
    dedup: bool = False,
    sorted: bool = False,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Appends cells atomically to an existing container.

    TileDB, dense: an array for the only field, or one per field by name; `region` is the region to write, as slices of positions or
    a mapping of dimensions to slices of coordinates, by default the whole array. TileDB, sparse: one column per dimension and field
    by name, or a data frame or Arrow table; duplicate positions are an error, unless `dedup` keeps the last; `sorted` declares that
    cells are in the array's order. `timestamp` is the write time in milliseconds since 1970. `array` names a member of a group, or a
    label of a dimension, which is an array of one dimension.

    Tensogram: arrays by name as in `tesseral.write`, with its options; they are appended as one message.
    """
    target, settings = resolve(path, storage_options)
    place = located(target, settings)
    format = _native.recognize(place)
    if format is not None and _native.has_messages(format):
        _append_message(target, format, data, options)
        return
    if options:
        raise TypeError(f"unexpected option {next(iter(options))!r} of append")
    # Formats without versions are rejected, regardless of the cells.
    container = open_container(target, key=key, storage_options=settings)
    target_array = container[next(iter(container)) if array is None else array]
    asked = {"region": None, "array": array, "timestamp": timestamp, "dedup": dedup, "sorted": sorted, "key": key}
    if target_array.sparse:
        if region is not None:
            raise InvalidRequestError("region cannot be given for a sparse array: its cells have coordinates", array=target_array.name)
        _native.append(place, _columns(target_array, columns_of(data), None), asked)
        return
    bounds = _bounds(target_array, region)
    given = data if isinstance(data, Mapping) else {target_array._view.columns()[0][0]: data}
    shape = tuple(stop - start for start, stop in bounds)
    _native.append(place, _columns(target_array, given, shape), {**asked, "region": bounds})


def _append_message(path: str, format: str, data: Any, options: Mapping[str, Any]) -> None:
    file = _native.MessageFile(path)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "message")
        write(made, data, format=format, **options)
        new = _native.MessageFile(made)
        for i in range(len(new)):
            file.append(new.read(i).tobytes())


def _bounds(array: Array, region: Any) -> list[tuple[int, int]]:
    """Half-open position ranges along each axis."""
    if isinstance(region, Mapping):
        unknown = [dim for dim in region if dim not in array.dims]
        if unknown:
            raise KeyError(f"unknown dimension {unknown[0]!r}; available: {', '.join(map(repr, array.dims))}")
        return [_between(array, axis, region.get(dim, slice(None))) for axis, dim in enumerate(array.dims)]
    bounds = []
    for axis, (item, extent) in enumerate(zip(expand(() if region is None else region, array.ndim), array.shape)):
        if not isinstance(item, slice):
            item = slice(item, item + 1)
        start, stop, step = item.indices(extent)
        if step != 1:
            raise IndexError("the region of a write cannot have steps")
        bounds.append((start, max(start, stop)))
    return bounds


def _between(array: Array, axis: int, item: Any) -> tuple[int, int]:
    if not isinstance(item, slice):
        return array._view.at(axis, as_text(item))
    low, high = (None if end is None else as_text(end) for end in (item.start, item.stop))
    return array._view.between(axis, low, high)


def _columns(array: Array, data: Any, shape: tuple[int, ...] | None) -> list[_Column]:
    """One column per dimension and field, in the array's order: bytes, ends of variable-length cells, validity."""
    declared = array._view.columns()
    names = [name for name, _, _ in declared]
    missing = [name for name in names if name not in data]
    unknown = [name for name in data if name not in names]
    if missing or unknown:
        what = f"missing column {missing[0]!r}" if missing else f"unknown column {unknown[0]!r}"
        raise InvalidRequestError(f"{what}; available: {', '.join(map(repr, names))}", array=array.name)
    labels = array._view.enumerations()
    columns = []
    for name, dtype, nullable in declared:
        known = labels.get(name)
        columns.append(_column(data[name], np.dtype(dtype), nullable, None if known is None else list(known[1]), shape, name))
    return columns


def _column(given: Any, dtype: np.dtype[Any], nullable: bool, labels: Any, shape: tuple[int, ...] | None, name: str) -> _Column:
    cells, valid = split(given, labels)
    if valid is not None and not nullable:
        if not valid.all():
            raise InvalidRequestError(f"{name!r} is not nullable")
        valid = None
    if nullable and valid is None:
        valid = np.ones(cells.shape, np.uint8)
    if shape is not None:
        cells = np.broadcast_to(cells, shape)
        valid = None if valid is None else np.broadcast_to(valid, shape)
    flags = None if valid is None else np.ascontiguousarray(valid, np.uint8).reshape(-1)
    if dtype == object:
        texts = [_encoded(cell) for cell in cells.reshape(-1)]
        ends = np.cumsum([len(text) for text in texts], dtype=np.uint64)
        return np.frombuffer(b"".join(texts), np.uint8), ends, flags
    if dtype.kind in "biufc" and cells.dtype.kind in "biufcO":
        stored = np.ascontiguousarray(_numbers(cells, valid, dtype, name))
    else:
        # Replace values of null cells.
        wide = np.where(valid, cells, np.zeros(1, dtype)) if valid is not None and cells.dtype == object else cells
        stored = np.ascontiguousarray(wide).astype(dtype, casting="same_kind" if wide.dtype != object else "unsafe", copy=False)
    return stored.reshape(-1).view(np.uint8), None, flags


def _numbers(cells: np.ndarray[Any, Any], valid: Any, dtype: np.dtype[Any], name: str) -> np.ndarray[Any, Any]:
    """Numbers in the dtype of the array; the values of null cells do not matter."""
    wide = cells if valid is None else np.where(valid, cells, np.zeros(1, cells.dtype))
    if wide.dtype == object:
        # NumPy finds the dtype that holds all of them.
        wide = np.array(wide.tolist()).reshape(wide.shape)
    return exact(wide, dtype, name)


def columns_of(data: Any) -> dict[str, Any]:
    """Columns by name of a mapping, a data frame, or any object with Arrow's C interface."""
    if isinstance(data, Mapping) or hasattr(data, "iloc"):
        return {str(name): column for name, column in data.items()}
    if not hasattr(data, "__arrow_c_stream__"):
        raise InvalidRequestError(f"{type(data).__name__} is not a table: expected columns by name, a data frame or an Arrow table")
    import pyarrow as pa

    table = pa.table(data)
    return {name: _of_arrow(table.column(name)) for name in table.column_names}


def _of_arrow(column: Any) -> np.ndarray[Any, Any]:
    """Converts a pyarrow column: masked for null numbers, None for null texts."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    fixed = pa.types.is_primitive(column.type)
    if not fixed or column.null_count == 0:
        return np.asarray(column.to_numpy())
    # Keep integers: without a fill for nulls they would become floats.
    zero = pa.scalar(0, pa.int8()).cast(column.type) if not pa.types.is_temporal(column.type) else pa.scalar(0, column.type)
    return np.ma.array(column.fill_null(zero).to_numpy(), mask=column.is_null().to_numpy())


def split(given: Any, labels: Sequence[Any] | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Cells and their validity, if nullable."""
    if isinstance(given, np.ma.MaskedArray):
        cells, valid = given.data, ~np.ma.getmaskarray(given)
    elif hasattr(given, "isna") and not isinstance(given.dtype, np.dtype):
        # A pandas column with a nullable dtype.
        valid = ~np.asarray(given.isna())
        cells = np.asarray(given.to_numpy(dtype=object))
    else:
        cells, valid = np.asarray(given), None
    if cells.dtype == object and valid is None and any(_is_missing(cell) for cell in cells.reshape(-1)):
        valid = np.array([not _is_missing(cell) for cell in cells.reshape(-1)]).reshape(cells.shape)
        cells = cells.copy()
        cells[~valid] = None
    if labels is not None and cells.dtype.kind in "OSU":
        codes = {label: code for code, label in enumerate(labels)}
        plain = [0 if _is_missing(cell) else codes[_text(cell)] for cell in cells.reshape(-1)]
        cells = np.array(plain, np.int64).reshape(cells.shape)
    return cells, valid


def _is_missing(cell: Any) -> bool:
    """None, or NaN among texts."""
    return cell is None or isinstance(cell, float) and cell != cell


def _text(cell: Any) -> Any:
    return cell.decode() if isinstance(cell, bytes) else cell


def _encoded(cell: Any) -> bytes:
    if cell is None:
        return b""
    if isinstance(cell, str):
        return cell.encode()
    return bytes(cell) if isinstance(cell, (bytes, bytearray)) else np.ascontiguousarray(cell).tobytes()


def delete(
    path: Path,
    where: str,
    *,
    timestamp: int | None = None,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Deletes the cells that match a condition, as of now or of a timestamp. Earlier states keep them."""
    _native.delete(located(path, storage_options), where, timestamp, key)


def set_attrs(
    path: Path,
    attrs: Mapping[str, Any],
    *,
    timestamp: int | None = None,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Sets attributes of an array with versions; None removes one."""
    _native.set_attributes(located(path, storage_options), dict(attrs), timestamp, key)


def consolidate(
    path: Path,
    part: str = "fragments",
    *,
    times: AsOf = None,
    at_least: int = 2,
    at_most: int | None = None,
    max_bytes: int | None = None,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Consolidated:
    """Merges versions into one without changing the content. `part` is `fragments`, `commits`, `fragment_meta` or `array_meta`.

    Merges only versions of `times` (a pair, as for `as_of`), at least `at_least`, at most `at_most`, and none larger than
    `max_bytes`.
    """
    asked = {
        "part": part,
        "times": time_range(times),
        "at_least": at_least,
        "at_most": at_most,
        "max_bytes": max_bytes,
        "key": key,
    }
    return Consolidated(*_native.consolidate(located(path, storage_options), asked))


def vacuum(
    path: Path,
    part: str = "fragments",
    *,
    apply: bool = False,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Vacuumed:
    """Lists the versions that consolidation replaced; `apply` removes them."""
    return Vacuumed(*_native.vacuum(located(path, storage_options), part, not apply, key))


def log(path: Path, *, key: bytes | None = None, storage_options: Mapping[str, Any] | None = None) -> list[Version]:
    """Lists the stored versions of a source by time."""
    return [Version(**version) for version in _native.versions(located(path, storage_options), key)]
