"""Containers for table engines: pyarrow datasets, scans of Polars, and conversion of tables to arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from . import _filter, _scan
from ._array import BLOCK
from ._container import Container, Source, open as open_container
from ._edit import columns_of, split

if TYPE_CHECKING:
    import polars as pl
    import xarray as xr


class Fragment(pads.Fragment):
    """A block of a dataset."""

    def __init__(self, dataset: Dataset, block: _scan.Box) -> None:
        self._dataset = dataset
        self._block = block

    @property
    def physical_schema(self) -> pa.Schema:
        """The columns."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """The range of each coordinate."""
        return self._dataset._table.guarantee(self._block)

    def scanner(self, schema: pa.Schema | None = None, columns: Any = None, filter: Any = None, **options: Any) -> pads.Scanner:
        """A scan of the block; see `Dataset.scanner`."""
        return self._dataset._scanner([self._block], columns, filter, options, schema)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """The rows of the block in batches."""
        return self.scanner(schema, **options).to_batches()

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """The rows of the block."""
        return self.scanner(schema, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows of the block."""
        return self._dataset._head([self._block], num_rows, **options)

    def count_rows(self, **options: Any) -> int:
        """The number of rows of the block, or of those that match `filter=`."""
        return self._dataset._count([self._block], **options)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """The rows of the block at these positions."""
        return self.to_table(**options).take(indices)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fragment, (self._dataset, self._block)

    def __repr__(self) -> str:
        return f"<tesseral.Fragment {self._block}>"


class Dataset(pads.Dataset):
    """A container as a `pyarrow.dataset.Dataset`: a table for DuckDB, DataFusion, Polars and pyarrow.

    A scan reads only the required columns, and skips positions and chunks that cannot match its filter, by coordinates and by
    statistics. Arrow then evaluates the whole filter on every row.
    """

    def __init__(self, container: Container, variables: Sequence[str] | None, group: str | None, nbytes: int, filter: Any = None) -> None:
        self._arguments = (container, variables, group, nbytes)
        self._table = _scan.table_of(container, variables, group, nbytes)
        self._filter = filter

    @property
    def schema(self) -> pa.Schema:
        """The columns: dimensions, other coordinates, variables."""
        return self._table.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """No expression: nothing is known about all rows."""
        return pc.scalar(True)

    def get_fragments(self, filter: Any = None) -> Iterator[Fragment]:
        """The blocks that can have rows that match a filter."""
        wanted = self._wanted(filter)
        for block in self._table.blocks:
            if wanted is None or self._table.can_match(block, wanted[1]):
                yield Fragment(self, block)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> pads.Scanner:
        """A scan of some columns, by name or as expressions by name, of the rows that match a filter. Other options are those of
        `pyarrow.dataset.Dataset.scanner`."""
        return self._scanner(self._table.blocks, columns, filter, options)

    def to_batches(self, **options: Any) -> Iterator[pa.RecordBatch]:
        """The rows in batches, with the options of `scanner`."""
        return self.scanner(**options).to_batches()

    def to_table(self, **options: Any) -> pa.Table:
        """The rows, with the options of `scanner`."""
        return self.scanner(**options).to_table()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows, with the options of `scanner`. Reads only these rows."""
        return self._head(self._table.blocks, num_rows, **options)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """The number of rows, or of those that match a filter."""
        return self._count(self._table.blocks, filter, **options)

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """The rows at these positions."""
        return self.to_table(**options).take(indices)

    def filter(self, expression: pc.Expression) -> Dataset:
        """The rows for which an expression is true."""
        return Dataset(*self._arguments, expression if self._filter is None else self._filter & expression)

    def replace_schema(self, schema: pa.Schema) -> pads.Dataset:
        """Rejected: the columns have the types of the variables."""
        raise NotImplementedError("the schema of a container cannot be replaced: cast the columns of a table")

    def sort_by(self, sorting: Any, **options: Any) -> pads.Dataset:
        """The rows in another order, in memory."""
        return pads.dataset(self.to_table()).sort_by(sorting, **options)

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> pads.Dataset:
        """The rows joined with those of another dataset, in memory."""
        return pads.dataset(self.to_table()).join(_in_memory(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> pads.Dataset:
        """The rows joined with the nearest ones of another dataset, in memory."""
        return pads.dataset(self.to_table()).join_asof(_in_memory(right_dataset), *arguments, **options)

    # Scans

    def _wanted(self, filter: Any) -> tuple[Any, _filter.Filter] | None:
        """The filter of a scan and that of the dataset: the whole expression, and its analyzed form."""
        given = [one for one in (self._filter, filter) if one is not None]
        if not given:
            return None
        expression = given[0] if len(given) == 1 else given[0] & given[1]
        return expression, _filter.of_arrow(expression)

    def _scanner(self, blocks: Sequence[_scan.Box], columns: Any, filter: Any, options: Mapping[str, Any], schema: pa.Schema | None = None) -> pads.Scanner:
        if schema is not None and schema != self.schema:
            raise NotImplementedError("the schema of a container cannot be replaced: cast the columns of a table")
        wanted = self._wanted(filter)
        known = None if wanted is None else wanted[1]
        names = self._names(columns, known)
        batches = (batch for block in blocks for batch in self._table.batches(block, names, known))
        read = pa.schema([self.schema.field(name) for name in names])
        kept = {name: option for name, option in options.items() if name in ("batch_size", "use_threads", "memory_pool")}
        # Batches are read one ahead: the engine itself reads the chunks of one in parallel.
        return pads.Scanner.from_batches(
            batches, schema=read, columns=columns, filter=None if wanted is None else wanted[0], batch_readahead=1, **kept
        )

    def _names(self, columns: Any, wanted: _filter.Filter | None) -> list[str]:
        """The columns that a scan reads, in the order of the schema."""
        if columns is None or (wanted is not None and wanted.names is None):
            return list(self.schema.names)
        needed = set() if wanted is None or wanted.names is None else set(wanted.names)
        if isinstance(columns, Mapping):
            for expression in columns.values():
                found = _filter.of_arrow(expression).names
                if found is None:
                    return list(self.schema.names)
                needed |= found
        else:
            needed |= set(columns)
        unknown = sorted(needed - set(self.schema.names))
        if unknown:
            raise KeyError(f"unknown column {unknown[0]!r}; available: {', '.join(map(repr, self.schema.names))}")
        return [name for name in self.schema.names if name in needed]

    def _head(self, blocks: Sequence[_scan.Box], num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        wanted = self._wanted(filter)
        if wanted is not None or isinstance(columns, Mapping):
            return self._scanner(blocks, columns, filter, options).head(num_rows)
        names = self._names(columns, None) if columns is None else list(columns)
        found: list[pa.RecordBatch] = []
        left = num_rows
        for block in blocks:
            for batch in self._table.batches(block, names, None, left) if left else ():
                found.append(batch)
                left -= len(batch)
        return pa.Table.from_batches(found, pa.schema([self.schema.field(name) for name in names]))

    def _count(self, blocks: Sequence[_scan.Box], filter: Any = None, **options: Any) -> int:
        if self._wanted(filter) is None and isinstance(self._table, _scan.GridTable):
            return sum(int(np.prod([s.stop - s.start for s in block])) for block in blocks)
        return self._scanner(blocks, [], filter, options).count_rows()

    def __reduce__(self) -> tuple[Any, ...]:
        return Dataset, (*self._arguments, self._filter)

    def __repr__(self) -> str:
        return f"<tesseral.Dataset {self._arguments[0].url!r}: {', '.join(self.schema.names)}>"


def _in_memory(other: Any) -> Any:
    return pads.dataset(other.to_table()) if isinstance(other, Dataset) else other


def dataset(
    source: Source | Container,
    variables: str | Sequence[str] | None = None,
    *,
    group: str | None = None,
    nbytes: int = BLOCK,
    **options: Any,
) -> Dataset:
    """A source of any format as a `pyarrow.dataset.Dataset`, which DuckDB, DataFusion, Polars and pyarrow can query without reading all of it.

    Columns are the coordinates of the dimensions, other coordinates, and the data variables of the root or a `group`, or the named
    `variables`. Values are physical, times are timestamps, missing cells are nulls. Variables of a dense table have the dimensions of one of
    them; the cells of a sparse array are a separate table. Cells of several values and complex numbers are not supported as columns.

    A fragment has `nbytes` of cells of whole chunks. Other options are those of `open`.

    >>> import tesseral
    >>> tesseral.write("table.tet", {"sst": [[1.0, 2.0], [3.0, 4.0]]}, dims=("lat", "lon"), coords={"lat": [10.0, 20.0]})
    >>> ds = tesseral.dataset("table.tet")
    >>> ds.schema.names
    ['lat', 'lon', 'sst']
    >>> import pyarrow.compute as pc
    >>> ds.to_table(columns=["sst"], filter=pc.field("lat") == 20).to_pydict()
    {'sst': [3.0, 4.0]}
    """
    container = source if isinstance(source, Container) else open_container(source, **options)
    return Dataset(container, [variables] if isinstance(variables, str) else variables, group, nbytes)


def scan(
    source: Source | Container,
    variables: str | Sequence[str] | None = None,
    *,
    group: str | None = None,
    **options: Any,
) -> pl.LazyFrame:
    """A source of any format as a lazy frame of Polars, with the columns of `dataset`. Columns, predicates and row limits of the query decide
    what is read."""
    import polars as pl
    from polars.io.plugins import register_io_source

    found = dataset(source, variables, group=group, **options)
    empty = pl.from_arrow(found.schema.empty_table())
    assert isinstance(empty, pl.DataFrame)

    def read(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, size: int | None) -> Iterator[pl.DataFrame]:
        table = found._table
        wanted = None if predicate is None else _filter.of_polars(predicate)
        asked = list(found.schema.names) if columns is None else columns
        needed = set(asked) if wanted is None else set(asked) | (wanted.names or frozenset())
        names = [name for name in found.schema.names if name in needed] or found.schema.names[:1]
        left = rows
        for block in table.blocks:
            if left == 0:
                return
            for batch in table.batches(block, names, wanted, left if predicate is None else None):
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                frame = (frame if predicate is None else frame.filter(predicate)).select(asked)
                if left is not None:
                    frame = frame.head(left)
                    left -= len(frame)
                yield frame
                if left == 0:
                    return

    return register_io_source(read, schema=empty.schema, is_pure=True)


@dataclass(frozen=True)
class Grid:
    """Columns of a table as arrays over the same dimensions. Cells that no row has are masked."""

    dims: tuple[str, ...]
    coords: dict[str, np.ndarray[Any, Any]]
    arrays: dict[str, np.ndarray[Any, Any]]

    def to_xarray(self) -> xr.Dataset:
        """The arrays as an xarray Dataset, with missing cells as NaN, NaT or None."""
        import xarray as xr

        from .xarray import _without_nulls

        plain = {name: _without_nulls(cells, _with_missing(cells)) for name, cells in self.arrays.items()}
        return xr.Dataset({name: (self.dims, cells) for name, cells in plain.items()}, self.coords)


def _with_missing(cells: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The dtype of cells of which some can be missing."""
    if not isinstance(cells, np.ma.MaskedArray):
        return cells.dtype
    return np.dtype(float) if cells.dtype.kind in "iub" else np.dtype(object) if cells.dtype.kind in "SU" else cells.dtype


def from_table(table: object, dims: str | Sequence[str]) -> Grid:
    """Columns of a table as arrays: the sorted values of the columns `dims` are the coordinates, the other columns arrays over them.

    A table is a data frame, an Arrow table, a lazy frame that was collected, or a mapping of columns. Two rows at the same position are an
    error. A file is read in the same way by `tesseral.open(path, dims=dims)`. `tesseral.write(path, grid.arrays, dims=grid.dims, coords=grid.coords)` writes the result.

    >>> import tesseral
    >>> grid = tesseral.from_table({"x": [2, 0, 1], "height": [5.0, 3.0, 4.0]}, "x")
    >>> grid.coords["x"].tolist(), grid.arrays["height"].tolist()
    ([0, 1, 2], [3.0, 4.0, 5.0])
    """
    columns = columns_of(table)
    axes = [dims] if isinstance(dims, str) else list(dims)
    if not axes or len(set(axes)) != len(axes):
        raise ValueError("dims must name different columns")
    for name in axes:
        if name not in columns:
            raise KeyError(f"unknown column {name!r}; available: {', '.join(map(repr, columns)) or 'none'}")
    plain = {name: split(column, None) for name, column in columns.items()}
    arrow = pa.table({name: pa.array(cells, mask=None if valid is None else ~valid) for name, (cells, valid) in plain.items()})
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, arrow.schema) as writer:
        writer.write_table(arrow)
    found = open_container(file.getvalue().to_pybytes(), dims=axes)
    arrays = {name: _as_text(found[name][...]) for name in columns}
    return Grid(tuple(axes), {name: arrays[name] for name in axes}, {name: cells for name, cells in arrays.items() if name not in axes})


def _as_text(cells: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Texts as an array of texts if none is missing."""
    texts = cells.dtype.kind == "O" and not isinstance(cells, np.ma.MaskedArray) and all(isinstance(cell, str) for cell in cells.flat)
    return cells.astype(str) if texts else cells
