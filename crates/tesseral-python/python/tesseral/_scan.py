"""Containers as tables: the cells of a grid, or of a sparse array, as rows in blocks.

A grid is the box of cells that dense variables share. Its columns are the coordinates along its dimensions, other coordinates, and the variables;
those with fewer dimensions are repeated. Rows are in row-major order within a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import _arrow, _coords, _rows
from ._array import Array, _times, block_shape, boxes
from ._errors import InvalidRequestError, NotFoundError, UnsupportedError
from ._filter import Filter, condition

if TYPE_CHECKING:
    from ._container import Container

Box = tuple[slice, ...]

#: Size of a batch of rows, in bytes.
_BATCH = 8 << 20
#: Size of the pieces for which statistics are checked, in bytes.
_PIECE = 256 << 10
# Maximum numbers of coordinates that a filter is evaluated on, and of coordinates that are kept.
_KNOWN = 4 << 20
# Boxes that remain of one, at most.
_BOXES = 256
#: Calendars of times that Arrow has.
_CALENDARS = ("standard", "gregorian", "proleptic_gregorian")


class Column(NamedTuple):
    """A column: a variable, or the labels or positions of a dimension."""

    name: str
    type: pa.DataType
    dims: tuple[str, ...]
    array: Array | None
    is_time: bool = False
    axis: int = 0


def table_of(container: Container, variables: Sequence[str] | None, group: str | None, nbytes: int) -> GridTable | SparseTable:
    """The variables of a group as a table; without names, its data variables."""
    prefix = f"{group.strip('/')}/" if group else ""
    own = {name[len(prefix) :]: array for name, array in container.variables.items() if name.startswith(prefix)}
    here = {name: array for name, array in own.items() if "/" not in name}
    if variables is None:
        found = {name: array for name, array in here.items() if array.role == "data"} or {
            name: array for name, array in own.items() if array.role == "data"
        }
        if not found:
            raise NotFoundError(f"no data variables in {container.url!r}" + (f", group {group!r}" if group else ""))
    else:
        missing = [name for name in variables if name not in own]
        if missing or not variables:
            raise NotFoundError(f"unknown variable {', '.join(map(repr, missing))}; available: {', '.join(map(repr, own)) or 'none'}")
        found = {name: own[name] for name in variables}
    if any(array.sparse for array in found.values()):
        if len({array._view.index for array in found.values()}) > 1:
            raise _several(found)
        return SparseTable(next(iter(found.values())), None if variables is None else list(found))
    columns = {name: column for name, array in found.items() if (column := _column(name, array)) is not None}
    if variables is not None and len(columns) < len(found):
        unable = [f"{name!r} ({found[name].dtype_name})" for name in found if name not in columns]
        raise UnsupportedError(f"columns of the cells of {', '.join(unable)}")
    if not columns:
        raise UnsupportedError(f"columns of the cells of {', '.join(found)}")
    return GridTable(columns, own, nbytes)


def _several(found: Mapping[str, Array]) -> InvalidRequestError:
    kinds: dict[str, list[str]] = {}
    for name, array in found.items():
        kinds.setdefault(f"({', '.join(array.dims)})", []).append(name)
    listed = "; ".join(f"{', '.join(names[:4])}{', …' if len(names) > 4 else ''} {dims}" for dims, names in kinds.items())
    error = InvalidRequestError(f"the variables are not columns of one table: {listed}")
    error.hint = f"name those of one table: variables={next(iter(kinds.values()))[:4]!r}"
    return error


def _column(name: str, array: Array) -> Column | None:
    """The column of a variable; None if its cells have no type in Arrow."""
    enumeration = array._view.enumerations().get(array.field)
    if enumeration is not None:
        return Column(name, _arrow.labeled_type(enumeration[1]), array.dims, array)
    view = array._view.physical()
    if view.time is not None and view.time[1] in _CALENDARS:
        return Column(name, pa.timestamp("us"), array.dims, array, True)
    type = _column_type(view.dtype, view.type_name)
    return None if type is None else Column(name, type, array.dims, array)


def _column_type(dtype: np.dtype[Any], stored: str) -> pa.DataType | None:
    """The type of a column. Times have microseconds unless they have nanoseconds: DuckDB passes filters on those alone."""
    type = _arrow.arrow_type(dtype, stored)
    return pa.timestamp("us") if type is not None and pa.types.is_timestamp(type) and type.unit != "ns" else type


class GridTable:
    """Dense variables over the same dimensions as a table."""

    def __init__(self, variables: Mapping[str, Column], known: Mapping[str, Array], nbytes: int) -> None:
        main = max(variables.values(), key=lambda column: len(column.dims))
        assert main.array is not None
        self._main = main.array
        self.dims, self.shape = main.dims, main.array.shape
        arrays = [column.array for column in variables.values() if column.array is not None]
        if not all(self._is_part(array, known) for array in arrays):
            raise _several({name: column.array for name, column in variables.items() if column.array is not None})
        self.columns: dict[str, Column] = {}
        for axis, dim in enumerate(self.dims):
            if dim not in variables:
                self.columns[dim] = self._coordinate(dim, axis, known.get(dim))
        for name, array in known.items():
            auxiliary = name not in variables and name not in self.columns and not array.sparse and array.role == "auxiliary"
            if auxiliary and self._is_part(array, known):
                column = _column(name, array)
                if column is not None:
                    self.columns[name] = column
        self.columns.update(variables)
        self.schema = pa.schema([(name, column.type) for name, column in self.columns.items()])
        cells = [column.array.dtype.itemsize for column in variables.values() if column.array is not None]
        self._row = max(1, sum(cells))
        self._nbytes = nbytes
        self._kept: dict[str, pa.Array] = {}

    def _is_part(self, array: Array, known: Mapping[str, Array]) -> bool:
        """Whether an array has dimensions of the grid, with the same extents and labels."""
        sizes = dict(zip(self.dims, self.shape))
        if not all(sizes.get(dim) == extent for dim, extent in array.sizes.items()):
            return False
        for axis, dim in enumerate(array.dims):
            if dim in known or array._view.index == self._main._view.index:
                continue
            labels = _coords.along(array._view, axis), _coords.along(self._main._view, self.dims.index(dim))
            if all(found is None for found in labels):
                continue
            # Without labels, positions are the coordinates.
            own, main = (np.arange(sizes[dim]) if found is None else found for found in labels)
            if not np.array_equal(own, main):
                return False
        return True

    def _coordinate(self, dim: str, axis: int, array: Array | None) -> Column:
        if array is not None and not array.sparse and array.dims == (dim,) and array.shape == (self.shape[axis],):
            column = _column(dim, array)
            if column is not None:
                return column
        labels = _coords.along(self._main.isel({dim: slice(0, 1)})._view, axis) if self.shape[axis] else None
        type = None if labels is None else _column_type(labels.dtype, "")
        return Column(dim, pa.int64() if type is None else type, (dim,), None, axis=axis)

    def count(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)

    @cached_property
    def blocks(self) -> list[Box]:
        """Boxes of whole chunks of about the size of a block, which tile the grid."""
        return list(boxes(self.shape, block_shape(self._main, self._nbytes, self._row)))

    def guarantee(self, block: Box) -> pc.Expression:
        """The range of every coordinate of a block, as an expression."""
        parts = []
        for axis, dim in enumerate(self.dims):
            column = self.columns[dim]
            if column.dims != (dim,) or pa.types.is_dictionary(column.type) or block[axis].stop - block[axis].start > _KNOWN:
                continue
            values = self._values(column, block)
            if len(values) and not values.null_count and not pc.any(pc.is_null(values, nan_is_null=True)).as_py():
                ends = pc.min_max(values)
                parts.append((pc.field(dim) >= ends["min"]) & (pc.field(dim) <= ends["max"]))
        expression = pc.scalar(True)
        for number, part in enumerate(parts):
            expression = part if number == 0 else expression & part
        return expression

    # Reading

    def _values(self, column: Column, box: Box) -> pa.Array:
        """The cells of a column in a box, along its own dimensions in the order of the grid."""
        places = [axis for axis, dim in enumerate(self.dims) if dim in column.dims]
        small = math.prod(self.shape[axis] for axis in places) <= _KNOWN // 4 and len(places) == 1
        if small:
            if column.name not in self._kept:
                self._kept[column.name] = self._read(column, tuple(slice(0, n) for n in self.shape))
            [axis] = places
            return self._kept[column.name].slice(box[axis].start, box[axis].stop - box[axis].start)
        return self._read(column, box)

    def _read(self, column: Column, box: Box) -> pa.Array:
        if column.array is None:
            start, stop = box[column.axis].start, box[column.axis].stop
            labels = _coords.along(self._main.isel({column.name: slice(start, stop)})._view, column.axis)
            return _arrow.arrow_array(np.arange(start, stop) if labels is None else labels, column.type)
        array = column.array
        window = array.isel({dim: box[self.dims.index(dim)] for dim in array.dims})
        enumeration = array._view.enumerations().get(array.field)
        view = window._view if enumeration is not None else window._view.physical()
        cells = np.ma.asarray(view.masked())
        order = [array.dims.index(dim) for dim in self.dims if dim in array.dims]
        if enumeration is not None:
            return _arrow.labeled_array(np.transpose(cells, order).reshape(-1), enumeration[1], enumeration[2])
        if column.is_time:
            cells = _times(view, cells, array.attrs)
            if cells.dtype.kind == "O":
                raise InvalidRequestError("some times are before those that Arrow represents", array=array.name)
        return _arrow.arrow_array(np.transpose(cells, order).reshape(-1), column.type)

    def _spread(self, column: Column, box: Box) -> pa.Array:
        """The cells of a column, one for each row of a box."""
        values = self._values(column, box)
        extents = [s.stop - s.start for s in box]
        if len(column.dims) == len(self.dims):
            return values
        own = [extent if dim in column.dims else 1 for dim, extent in zip(self.dims, extents)]
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type) or values.null_count or pa.types.is_boolean(column.type):
            places = np.broadcast_to(np.arange(len(values)).reshape(own), extents).reshape(-1)
            return values.take(pa.array(places))
        if pa.types.is_dictionary(column.type):
            codes = np.broadcast_to(values.indices.to_numpy(zero_copy_only=False).reshape(own), extents).reshape(-1)
            return pa.DictionaryArray.from_arrays(pa.array(codes), values.dictionary, ordered=column.type.ordered)
        cells = np.broadcast_to(values.to_numpy(zero_copy_only=False).reshape(own), extents).reshape(-1)
        return pa.array(cells, column.type)

    def batch(self, box: Box, names: Sequence[str]) -> pa.RecordBatch:
        """The rows of a box."""
        rows = math.prod(s.stop - s.start for s in box)
        if not names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        columns = [self._spread(self.columns[name], box) for name in names]
        return pa.record_batch(columns, schema=pa.schema([(name, self.columns[name].type) for name in names]))

    def batches(self, block: Box, names: Sequence[str], wanted: Filter | None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a block in batches, without those that cannot match a filter; the first of them if there is a limit."""
        pieces = block_shape(self._main, _BATCH, self._row)
        tests = [] if wanted is None else self._conditions(wanted)
        if tests:
            pieces = block_shape(self._main, _PIECE, self._row)
        left = limit
        for part in self.narrow(block, wanted):
            if not _may_match(tests, self.dims, part):
                continue
            for box in _cut(part, pieces):
                if left is not None:
                    box = _first(box, left)
                if not _may_match(tests, self.dims, box):
                    continue
                found = self.batch(box, names)
                if left is not None:
                    found = found.slice(0, left)
                    left -= len(found)
                yield found
                if left == 0:
                    return

    # Filters

    def narrow(self, block: Box, wanted: Filter | None) -> list[Box]:
        """The parts of a block that can match a filter, judging by coordinates."""
        if wanted is None:
            return [block]
        possible = [np.ones(s.stop - s.start, bool) for s in block]
        for part in wanted.parts:
            if not part.names or not all(name in self.columns for name in part.names):
                continue
            columns = [self.columns[name] for name in sorted(part.names)]
            axes = sorted({self.dims.index(dim) for column in columns for dim in column.dims})
            extents = [len(possible[axis]) for axis in axes]
            if (len(axes) == len(self.dims) and len(axes) > 1) or math.prod(extents) > _KNOWN:
                continue
            if all(len(column.dims) == len(self.dims) and column.array is not None and column.array.role == "data" for column in columns):
                # A column of the table itself is read once, with the others.
                continue
            box = tuple(s if axis in axes else slice(s.start, s.start + min(1, s.stop - s.start)) for axis, s in enumerate(block))
            table = pa.Table.from_batches([self.batch(box, sorted(part.names))])
            holds = np.zeros(math.prod(extents), bool)
            holds[part.rows(table)] = True
            for number, axis in enumerate(axes):
                others = tuple(other for other in range(len(axes)) if other != number)
                possible[axis] &= holds.reshape(extents).any(axis=others)
            if not holds.any():
                return []
        chunks = self._main.chunks or self.shape
        runs = [_runs(held, s.start, chunk) for held, s, chunk in zip(possible, block, chunks)]
        if math.prod(map(len, runs)) > _BOXES:
            runs = [[slice(found[0].start, found[-1].stop)] for found in runs if found] if all(runs) else [[]]
        return [tuple(box) for box in product(*runs)]

    def can_match(self, block: Box, wanted: Filter) -> bool:
        """Whether rows of a block can match a filter, judging by coordinates and statistics."""
        tests = self._conditions(wanted)
        return any(_may_match(tests, self.dims, part) for part in self.narrow(block, wanted))

    def _conditions(self, wanted: Filter) -> list[tuple[Array, str]]:
        """Conditions on single arrays that are true where the filter is."""
        found = []
        for part in wanted.parts:
            columns = [self.columns.get(name) for name in part.names]
            arrays = [column.array for column in columns if column is not None and not column.is_time and column.array is not None]
            if not arrays or len(arrays) < len(part.names) or len({(a._view.index, a.field) for a in arrays}) > 1:
                continue
            [array] = arrays
            [name] = part.names
            coded = array.field in array._view.enumerations()
            text = None if coded else condition(part, {name: array._view.physical().dtype}, {name: array.field})
            if text is not None:
                found.append((array, text))
        return found


def _may_match(tests: Sequence[tuple[Array, str]], dims: Sequence[str], box: Box) -> bool:
    for array, text in tests:
        window = array.isel({dim: box[dims.index(dim)] for dim in array.dims})
        if not window._view.physical().may_match(text):
            return False
    return True


def _runs(held: np.ndarray[Any, Any], start: int, gap: int) -> list[slice]:
    """Ranges of matching positions; ranges that are closer than a chunk are joined."""
    places = np.flatnonzero(held)
    if not len(places):
        return []
    cuts = np.flatnonzero(np.diff(places) > max(1, gap)) + 1
    return [slice(start + int(run[0]), start + int(run[-1]) + 1) for run in np.split(places, cuts)]


def _cut(box: Box, extents: Sequence[int]) -> Iterator[Box]:
    """The pieces of a box, at multiples of the extents."""
    axes = []
    for s, extent in zip(box, extents):
        first = s.start // extent * extent
        axes.append([slice(max(s.start, at), min(s.stop, at + extent)) for at in range(first, s.stop, extent)])
    return product(*axes)


def _first(box: Box, rows: int) -> Box:
    """The start of a box with at least some rows, if it has them."""
    out: list[slice] = []
    for axis in reversed(range(len(box))):
        s = box[axis]
        count = min(s.stop - s.start, max(1, rows))
        out.append(slice(s.start, s.start + count))
        rows = -(-rows // max(1, s.stop - s.start))
    return tuple(reversed(out))


class SparseTable:
    """A sparse array as a table: one block of all cells."""

    def __init__(self, array: Array, fields: Sequence[str] | None) -> None:
        view = array._view.physical()
        self._array = Array(array._container, view, array._between)
        enumerations = view.enumerations()
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self.columns: dict[str, pa.DataType] = {}
        types = {name: stored for name, stored, *_ in view.fields()}
        chosen = list(types) if fields is None else [name.rpartition("/")[2] for name in fields]
        for name, dtype, _ in view.columns():
            if name in types and name not in chosen:
                continue
            type = _column_type(dtype, types.get(name, "string_ascii"))
            if name in enumerations:
                type = _arrow.labeled_type(enumerations[name][1])
            if type is not None:
                self.columns[name] = type
                self._dtypes[name] = np.dtype(object) if name in enumerations else dtype
            elif fields is not None:
                raise UnsupportedError(f"columns of the cells of {name!r}")
        self.schema = pa.schema(list(self.columns.items()))
        self.blocks: list[Box] = [()]

    def count(self) -> int | None:
        """Number of rows; requires reading them."""
        return None

    def guarantee(self, block: Box) -> pc.Expression:
        """No expression: nothing is known about all cells."""
        return pc.scalar(True)

    def can_match(self, block: Box, wanted: Filter) -> bool:
        """The only block is always read."""
        return True

    def batches(self, block: Box, names: Sequence[str], wanted: Filter | None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows that match the conditions that a filter implies, in batches."""
        texts = [] if wanted is None else [text for part in wanted.parts if (text := condition(part, self._dtypes)) is not None]
        # Rows without columns are counted by those of a dimension.
        read = list(names) or [next(iter(self.columns))]
        left = limit
        for columns in self._array.cell_batches(" and ".join(texts) or None, read, sort=False):
            table = _rows.to_arrow(self._array, columns)
            for batch in table.combine_chunks().to_batches():
                if left is not None:
                    batch = batch.slice(0, left)
                    left -= len(batch)
                if names:
                    yield pa.record_batch([batch.column(name).cast(self.columns[name]) for name in names], names=list(names))
                else:
                    yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(batch), pa.struct([])))
                if left == 0:
                    return
