"""Arrays that are read on demand."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from . import _reduce, _rows
from ._coords import Coords, as_text
from ._errors import InvalidRequestError

if TYPE_CHECKING:
    import dask.array
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa
    import xarray as xr

    from ._container import Container
    from ._native import View
    from ._types import Axis, Cells, How, Index, Many, One, Unpack, Value

BLOCK = 128 << 20
#: Attributes of packed fields.
_PACKING = frozenset(("scale_factor", "add_offset", "_Unsigned"))


class Field(NamedTuple):
    """A field of an array."""

    name: str
    dtype: str
    nullable: bool
    codecs: tuple[str, ...]


class _Indexer:
    """`array.oindex[…]`, `array.vindex[…]`."""

    def __init__(self, view: View, read: Callable[[View, Index], Cells]) -> None:
        self._view = view
        self._read = read

    def __getitem__(self, key: Index) -> Cells:
        return self._read(self._view, key)


class Array(_reduce.Reducible):
    """Cells of one field of one array, read on demand; `isel` and `sel` do not read.

    Indexing follows NumPy's basic indexing and returns a new array: a masked array if the field is nullable, an object array if
    cells are variable-length.

    >>> import tesseral
    >>> tesseral.write("heights.tet", {"height": [[1.0, 2.0], [3.0, 4.0]]}, dims=("y", "x"), coords={"y": [10, 20]})
    >>> array = tesseral.open("heights.tet")["height"]
    >>> array.dims, array.shape, array.sel(y=20)[...].tolist()
    (('y', 'x'), (2, 2), [3.0, 4.0])
    >>> array.mean("x").tolist(), array.count()
    ([1.5, 3.5], 4)
    """

    __slots__ = ("_container", "_view", "_between", "__weakref__")

    def __init__(self, container: Container, view: View, between: Mapping[str, Any] | None = None) -> None:
        self._container = container
        self._view = view
        # Coordinates selected along dimensions without countable positions, by name: a window has no axes for them.
        self._between = dict(between or {})

    # What it is

    @property
    def name(self) -> str:
        """Name of the array in its container."""
        return self._view.name

    @property
    def field(self) -> str:
        """Name of the selected field."""
        return self._view.field_name

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return self._view.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._view.shape)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self._view.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of results. bfloat16 is read as float32, bitmasks as bool, variable-length cells as objects."""
        return self._view.dtype

    @property
    def nbytes(self) -> int:
        """Size of all cells in memory, in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        """Stored dtype: `bfloat16`, `string_utf8`, `float32[3]`."""
        return self._view.type_name

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes; `dim_0`, `dim_1`, … if unnamed."""
        given = self._view.dims if self._view.countable else self._view.all_dims
        return tuple(name if name and given.index(name) == i else f"dim_{i}" for i, name in enumerate(given))

    @property
    def _axes(self) -> tuple[str, ...]:
        """Names of the axes, of which several of one extent can have the same name, as in the covariance of one dimension."""
        given = self._view.dims if self._view.countable else self._view.all_dims
        return tuple(name if self.sizes.get(name) == n else own for name, own, n in zip(given, self.dims, self.shape))

    @property
    def sizes(self) -> dict[str, int]:
        """Extents by dimension."""
        return dict(zip(self.dims, self.shape))

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Chunk shape; None for arrays without a chunk grid."""
        return self._view.chunks

    @property
    def coords(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Coordinates of the axes that have any: labels, or domain values."""
        return Coords(self._view, self.dims)

    @property
    def role(self) -> str:
        """Role of the array in its dataset: `data`, `index`, `auxiliary`, `bounds`, `grid_mapping`, `ancillary`."""
        return self._view.role

    @property
    def variable_name(self) -> str:
        """User-defined name of the array if its name in the file is a number; otherwise its name."""
        return self._view.variable_name

    def labels(self, dim: int | str) -> list[str] | np.ndarray[Any, Any] | None:
        """Stored labels of the whole axis."""
        return self._view.labels(self._axis(dim))

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the array. A copy: changes do not affect the file."""
        return self._view.attributes()

    @property
    def fields(self) -> dict[str, Field]:
        """All fields of the array, by name."""
        return {name: Field(name, dtype, nullable, tuple(codecs)) for name, dtype, nullable, codecs in self._view.fields()}

    @property
    def fill(self) -> Value | None:
        """Fill value of unwritten cells; None if the format has none."""
        return self._view.fill

    @property
    def fill_value(self) -> Value | None:
        """The same as `fill`, under the name used by zarr and h5py."""
        return self._view.fill

    @property
    def nbytes_stored(self) -> int:
        """Size of the stored chunks that hold the cells, in bytes."""
        return sum(stored for _, _, stored, _, _ in self._view.chunk_table())

    @property
    def missing(self) -> tuple[Value, ...]:
        """The declared missing values (`_FillValue`, `missing_value`, `fill_value`), in the array's dtype."""
        return tuple(self._view.missing)

    @property
    def codecs(self) -> tuple[str, ...]:
        """Codecs of the chunks, in encoding order."""
        return tuple(self._view.codecs)

    @property
    def nullable(self) -> bool:
        """Whether the field is nullable: results are masked arrays."""
        return self._view.nullable

    @property
    def sparse(self) -> bool:
        """Whether the array is sparse."""
        return self._view.sparse

    def _axis(self, dim: int | str | np.integer[Any]) -> int:
        if isinstance(dim, str):
            if dim in self.dims:
                return self.dims.index(dim)
            raise KeyError(f"unknown dimension {dim!r}; available: {', '.join(map(repr, self.dims)) or 'none'}")
        axis = int(dim)
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for array of dimension {self.ndim}")
        return axis % self.ndim

    # Reading

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: Index) -> Cells: ...
    def __getitem__(self, key: str | Index) -> Array | Cells:
        if isinstance(key, str):
            return self.select_field(key)
        return self._view.get(key)

    def read(self, key: Index = Ellipsis, *, out: Cells | None = None) -> Cells:
        """Reads cells as by indexing, into `out` if it is given: an array with the shape and dtype of the result."""
        return self._view.get(key, out)

    async def read_async(self, key: Index = Ellipsis, *, out: Cells | None = None) -> Cells:
        """Like `read`, in a thread, without blocking the event loop: `await array.read_async(0)`."""
        import asyncio

        return await asyncio.to_thread(self.read, key, out=out)

    def to_xarray(self, **decoding: bool) -> xr.DataArray:
        """The cells as an xarray DataArray with its coordinates, which reads cells when they are needed: physical values and times.
        Options are those of `xarray.decode_cf`."""
        from .xarray import array_of

        return array_of(self, **decoding)

    def to_dask(self, chunks: str | int | Sequence[int] | Mapping[str, int] | None = None, nbytes: int = BLOCK) -> dask.array.Array:
        """The cells as a lazy Dask array, in blocks of whole chunks of about `nbytes` unless `chunks` are given."""
        from .dask import from_array

        return from_array(self, nbytes, chunks)

    def __setitem__(self, key: Index, values: npt.ArrayLike) -> None:
        """Replaces cells of an array whose format has versions (TileDB), as a new version. The container shows the new version; arrays
        obtained from it before do not."""
        if isinstance(key, str):
            raise TypeError("fields are replaced one by one: array[name][...] = values")
        self._container._replace(self, key, values)

    @property
    def oindex(self) -> _Indexer:
        """Orthogonal indexing with lists and masks along each axis."""
        from ._gather import outer

        return _Indexer(self._view, outer)

    @property
    def vindex(self) -> _Indexer:
        """Point indexing with lists of positions, one per axis."""
        from ._gather import vector

        return _Indexer(self._view, vector)

    def view(self) -> np.ndarray[Any, Any]:
        """Returns the cells as a read-only view of the memory-mapped file. Raises ValueError if their layout does not allow it."""
        cells = self._view.borrow()
        if cells is None:
            raise ValueError(f"the stored layout of {self.name!r} does not allow a view; read the cells with [...]")
        return cells

    def select_field(self, name: str) -> Array:
        """Returns the same selection of another field."""
        return self._container._field(self, name)

    @overload
    def isel(self, indexers: Mapping[str, int | slice] | None = None, **kwargs: int | slice) -> Array: ...
    @overload
    def isel(self, indexers: Mapping[str, int | slice | Many] | None = None, **kwargs: int | slice | Many) -> Array | Cells: ...
    def isel(self, indexers: Mapping[str, int | slice | Many] | None = None, **kwargs: int | slice | Many) -> Array | Cells:
        """Returns a smaller array by positions along named dimensions: integers and slices. Does not read, except for lists, which
        return the cells."""
        wanted = {**(indexers or {}), **kwargs}
        if wanted and not self._view.countable:
            raise InvalidRequestError("the dimensions have no countable positions: use sel", array=self.name)
        items: list[Any] = [slice(None)] * self.ndim
        for dim, item in wanted.items():
            items[self._axis(dim)] = item
        narrowed = self._view.narrow(tuple(items))
        if narrowed is None and self.sparse:
            raise InvalidRequestError("a sparse array is narrowed by numbers and slices, not by lists", array=self.name)
        if narrowed is None:
            from ._gather import outer

            found: Cells = outer(self._view, tuple(items))
            return found
        return Array(self._container, narrowed)

    @overload
    def sel(self, indexers: Mapping[str, One] | None = None, *, method: str | None = None, **kwargs: One) -> Array: ...
    @overload
    def sel(self, indexers: Mapping[str, One | Many] | None = None, *, method: str | None = None, **kwargs: One | Many) -> Array | Cells: ...
    def sel(self, indexers: Mapping[str, One | Many] | None = None, *, method: str | None = None, **kwargs: One | Many) -> Array | Cells:
        """Returns a smaller array by coordinates along named dimensions: one value, a slice with both ends included, or a list.

        A partial date (`"2015-07"` for daily coordinates) selects all coordinates within it. `method="nearest"` selects the nearest
        coordinate of each value, and the larger of two at the same distance; longitudes are cyclic. A slice across the end of a cyclic
        axis (longitudes from 0 to 359, `slice(-10, 10)`) selects the end followed by the start, with the stored coordinates.
        """
        wanted = {**(indexers or {}), **kwargs}
        if not self._view.countable:
            return self._sel_coordinates(wanted, method)
        positions: dict[str, int | slice | Many] = {}
        view = self._view
        for dim, item in wanted.items():
            axis = self._axis(dim)
            positions[dim] = found = self._positions(axis, item, method)
            if isinstance(found, slice) and found.stop > view.shape[axis]:
                view = view.cycle(axis)
        narrowed: Array | Cells = Array(self._container, view, self._between).isel(positions)
        return narrowed

    def _sel_coordinates(self, wanted: Mapping[str, Any], method: str | None) -> Array:
        """Returns a smaller sparse array along dimensions of floats or text, which have no countable positions."""
        for dim, item in wanted.items():
            self._axis(dim)
            if method is not None or np.ndim(item):
                raise InvalidRequestError(f"{dim!r} has no countable positions: select one coordinate or a slice of coordinates", array=self.name)
            if dim in self._between:
                raise InvalidRequestError(f"duplicate selection of coordinates of {dim!r}", array=self.name)
        return Array(self._container, self._view, {**self._between, **wanted})

    def _positions(self, axis: int, item: Any, method: str | None) -> Any:
        if isinstance(item, slice):
            if item.step is not None and not isinstance(item.step, (int, np.integer)):
                raise TypeError("the step of a slice of coordinates must be an integer")
            ends = [None if end is None else as_text(end) for end in (item.start, item.stop)]
            start, stop = self._view.between(axis, *ends)
            return slice(start, stop, item.step)
        if method == "nearest":
            return self._nearest(axis, item)
        if method is not None:
            raise ValueError(f"method must be None or 'nearest', not {method!r}")
        if isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim):
            found = [self._view.at(axis, as_text(value)) for value in item]
            return [position for start, stop in found for position in range(start, stop)]
        start, stop = self._view.at(axis, as_text(item))
        return start if stop - start == 1 else slice(start, stop)

    def _nearest(self, axis: int, item: Any) -> Any:
        several = isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim > 0)
        found = self._view.nearest(axis, [as_text(value) for value in (np.ravel(item) if several else [item])])
        return found if several else found[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if not _PACKING.isdisjoint(self._view.attributes()):
            # Functions of NumPy that are no methods here, such as np.median, come this way.
            warnings.warn(
                f"NumPy reads the stored numbers of {self.name!r}: use decoded() for physical values, or [...] for stored numbers", UserWarning, stacklevel=2
            )
        cells = self._view.borrow() if copy is not True and self._view.chunks is not None else None
        if cells is None:
            if copy is False:
                raise ValueError("the stored layout does not allow a view: a copy is required")
            cells = self._view.get(Ellipsis)
            if isinstance(cells, np.ma.MaskedArray):
                if cells.mask.any():
                    raise ValueError("some cells are null: use [...] for a masked array, or filled(value)")
                cells = cells.data
        if dtype is None or cells.dtype == dtype:
            return cells
        if copy is False:
            raise ValueError(f"converting {cells.dtype} to {np.dtype(dtype)} requires a copy")
        return cells.astype(dtype)

    def masked(self) -> np.ma.MaskedArray[Any, Any]:
        """Returns all cells as a masked array: null, unwritten and declared missing cells and NaT are masked.

        `[...]` returns stored cells, of which only null cells are masked."""
        return np.ma.asarray(self._view.masked())

    def decoded(self) -> np.ma.MaskedArray[Any, Any]:
        """Returns the decoded values of all cells as a masked array: physical values of packed cells, and CF times.

        Times are datetime64, or cftime objects in calendars that NumPy does not support. Missing cells are masked. `[...]` and `masked()`
        return stored cells."""
        view = self._view.physical()
        cells = np.ma.asarray(view.masked())
        return cells if view.time is None else _times(view, cells, self.attrs)

    def filled(self, value: complex | str | bytes | np.generic) -> Cells:
        """Reads all cells, with `value` in place of nulls."""
        cells = self._view.get(Ellipsis)
        return cells.filled(value) if isinstance(cells, np.ma.MaskedArray) else cells

    def __buffer__(self, flags: int, /) -> memoryview:
        # Used by Python 3.12 and later; earlier versions use the buffers of `view()` and `[...]`.
        cells: Any = self.__array__()
        return memoryview(cells).toreadonly()

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.__array__(copy=True).__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Cells]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        # Whole chunks at a time, so that each is decoded once.
        step = max(1, (self.chunks or (1,))[0])
        for start in range(0, self.shape[0], step):
            yield from self._view.get(slice(start, start + step))

    def blocks(self, nbytes: int = BLOCK) -> Iterator[tuple[tuple[slice, ...], Cells]]:
        """Iterates over boxes of whole chunks of about `nbytes`: their regions and cells."""
        for box in boxes(self.shape, block_shape(self, nbytes)):
            yield box, self._view.get(box)

    # Rows

    def cells(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: One) -> _rows.Columns:
        """Reads cells as rows, with columns of coordinates and fields. Supports sparse and dense arrays. After `isel` or `sel`,
        reads only the cells of the selection.

        `where` is a condition, `"temperature > 5 and name in ('a', 'b')"`; dimensions are selected by a coordinate or a slice with
        both ends included. Rows are sorted by the dimensions unless `sort=False`.
        """
        return _rows.labeled(self, self._view.rows(_rows.asked(self, where, columns, sort, dims)))

    def cell_batches(
        self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: One
    ) -> Iterator[_rows.Columns]:
        """As `cells`, in batches within the memory limit."""
        batches = self._view.row_batches(_rows.asked(self, where, columns, sort, dims))
        return (_rows.labeled(self, batch) for batch in batches)

    def to_pandas(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: One) -> pd.DataFrame:
        """As `cells`, as a pandas data frame."""
        return _rows.to_pandas(self, self.cells(where, columns, sort=sort, **dims))

    def to_arrow(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: One) -> pa.Table:
        """As `cells`, as a pyarrow table."""
        return _rows.to_arrow(self, self.cells(where, columns, sort=sort, **dims))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows through Arrow's C interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @property
    def enumerations(self) -> dict[str, list[str]]:
        """Labels of enumerations by field."""
        return {name: list(labels) for name, (_, labels, _) in self._view.enumerations().items()}

    # Reducing

    def _ask(self, what: str | Sequence[str], axis: Any, *, keepdims: bool = False, stored: bool = False, **how: Any) -> list[Any]:
        axis = _reduce.one_axis(axis, how)
        if unknown := how.keys() - _reduce.OPTIONS:
            raise TypeError(f"unknown argument {min(unknown)!r} of a statistic; available: {', '.join(sorted(_reduce.SHOWN))}")
        asked = _reduce.question(self, what, axis, **how)
        packed = not stored and not _PACKING.isdisjoint(self._view.attributes())
        view = self._view.physical() if packed else self._view
        results = _reduce.answer(asked, view.reduce(asked))
        if keepdims:
            folded = range(self.ndim) if asked["axes"] is None else asked["axes"]
            shape = [1 if i in folded else n for i, n in enumerate(self.shape)]
            results = [np.reshape(result, shape) for result in results]
        return results

    def argmin(self, axis: Axis = None, out: Cells | None = _reduce._ABSENT, **how: Unpack[How]) -> Cells:
        """Position of the first minimum along the axes, row-major; masked without valid cells. `np.argmin` finds the first NaN instead."""
        return self._first("argmin", axis, out, **how)

    def argmax(self, axis: Axis = None, out: Cells | None = _reduce._ABSENT, **how: Unpack[How]) -> Cells:
        """Position of the first maximum along the axes, row-major; masked without valid cells. `np.argmax` finds the first NaN instead."""
        return self._first("argmax", axis, out, **how)

    def _first(self, what: str, axis: Axis, out: Cells | None, **how: Any) -> Cells:
        if out is not _reduce._ABSENT and self.dtype.kind in "fc":
            # Called by NumPy, for which NaN is both the least and the greatest number.
            found: Cells = getattr(np, what)(np.asarray(self), axis=axis, out=out, **how)
            return found
        return self._one(what, axis, None, out, **how)

    def groupby(self, by: str) -> _reduce.GroupBy:
        """Groups cells by a part of their time, in the calendar of the coordinates: `groupby("time.month").mean()`.

        Parts are `year`, `month`, `season`, `day`, `dayofyear`, `hour` and `date` (calendar day)."""
        return _reduce.GroupBy(self, by)

    def rolling(self, window: Mapping[str, int] | None = None, *, center: bool = False, min_periods: int | None = None, **dims: int) -> _reduce.Rolling:
        """Rolling windows along a dimension: `rolling(time=7).mean()`.

        A window with fewer than `min_periods` values, by default its size, has no result."""
        return _reduce.Rolling(self, {**(window or {}), **dims}, center, min_periods)

    # Pickling

    def __reduce__(self) -> tuple[Any, ...]:
        view = self._view
        number = [name for name, *_ in view.fields()].index(view.field_name)
        return _restore, (self._container._pinned(), view.index, number, view.window, self._between)

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        return self

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        _, (pinned, index, number, window, between) = self.__reduce__()
        return ("tesseral.Array", pinned.token(), index, number, tuple(window), between)

    # Representation

    def info(self, file: IO[str] | None = None) -> None:
        """Prints a description of the array to `file` or standard output. Reads no cells."""
        from ._show import array_text

        print(array_text(self), file=file)

    def __repr__(self) -> str:
        from ._show import array_text

        return array_text(self)

    def _repr_html_(self) -> str:
        from ._show import array_html

        return array_html(self)


def _times(view: View, numbers: np.ma.MaskedArray[Any, Any], attrs: Mapping[str, Any]) -> np.ma.MaskedArray[Any, Any]:
    """Converts CF numbers to times. Bounds without units have those of their coordinate."""
    units, calendar = view.time or ("", "")
    units = attrs.get("units") or units
    mask = np.ma.getmaskarray(numbers)
    plain = np.ascontiguousarray(numbers.data)
    stored = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
    micros = view.unix_micros(stored.tobytes(), mask.astype(np.uint8).tobytes())
    if micros is not None:
        times = np.frombuffer(micros, "M8[us]").reshape(plain.shape)
        return np.ma.MaskedArray(times, mask=mask | np.isnat(times))
    try:
        import cftime  # type: ignore[import-untyped]
    except ImportError as missing:
        raise InvalidRequestError(f"times of the calendar {calendar} require the package cftime", array=view.name) from missing
    hidden = mask | ~np.isfinite(plain)
    out = np.full(plain.shape, None, object)
    out[~hidden] = cftime.num2date(plain[~hidden], units, calendar)
    return np.ma.MaskedArray(out, mask=hidden)


def _restore(pinned: Any, index: int, number: int, window: list[tuple[int, int, int, bool]], between: dict[str, Any]) -> Array:
    container = pinned.open()
    return Array(container, container._source.view(index, number).restore(window), between)


def block_shape(array: Array, nbytes: int = BLOCK, itemsize: int | None = None) -> tuple[int, ...]:
    """Extents of boxes of whole chunks of up to `nbytes`, filling the last axes first. Boxes along an axis have similar sizes."""
    cell = array.dtype.itemsize if itemsize is None else itemsize
    block = [max(1, min(chunk, extent)) for chunk, extent in zip(array.chunks or array.shape, array.shape)]
    for axis in reversed(range(len(block))):
        size = max(1, math.prod(block) * cell)
        times = nbytes // size
        if times < 2:
            break
        count = -(-max(1, array.shape[axis]) // block[axis])
        boxes_along = -(-count // times)
        block[axis] = max(1, min(array.shape[axis], block[axis] * -(-count // boxes_along)))
        if block[axis] < array.shape[axis]:
            break
    return tuple(block)


def boxes(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of that shape that tile an array."""
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], block[0]):
        for rest in boxes(shape[1:], block[1:]):
            yield (slice(start, min(start + block[0], shape[0])), *rest)
