"""Arrays that read what is asked of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _gather, _rows, _show
from ._coords import Coords, along, as_text
from ._write import OF_CONTAINER

if TYPE_CHECKING:
    from ._container import Container
    from ._native import View

Axes = "int | str | tuple[int | str, ...] | list[int | str] | None"
BLOCK = 128 << 20


class Field(NamedTuple):
    """Values over the cells of an array."""

    name: str
    dtype: str
    nullable: bool
    codecs: tuple[str, ...]


class _Indexer:
    """`array.oindex[…]`, `array.vindex[…]`."""

    def __init__(self, view: View, read: Any) -> None:
        self._view = view
        self._read = read

    def __getitem__(self, key: Any) -> Any:
        return self._read(self._view, key)


class Array:
    """Cells of one field of one array. Nothing is read before cells are asked for; slicing with `isel` and `sel` reads nothing.

    Indexing reads, as NumPy's basic indexing chooses: a fresh array, a masked one where cells can be null, an object array where cells
    have any length.
    """

    __slots__ = ("_container", "_view", "__weakref__")

    def __init__(self, container: Container, view: View) -> None:
        self._container = container
        self._view = view

    # What it is

    @property
    def name(self) -> str:
        """The array's name in its container."""
        return self._view.name

    @property
    def field(self) -> str:
        """The field that is read."""
        return self._view.field_name

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of positions along each axis."""
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
        """What reading gives. bfloat16 is read as float32, bit masks as bool, cells of any length as objects."""
        return self._view.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all cells in memory."""
        return self.size * self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        """The dtype of the file: `bfloat16`, `string_utf8`, `float32[3]`."""
        return self._view.type_name

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes; `dim_0`, `dim_1`, … where the file gives none."""
        given = self._view.dims if self._view.countable else self._view.all_dims
        return tuple(name if name and given.index(name) == i else f"dim_{i}" for i, name in enumerate(given))

    @property
    def sizes(self) -> dict[str, int]:
        """Positions by dimension."""
        return dict(zip(self.dims, self.shape))

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Extents of a chunk, None for arrays without a grid."""
        return self._view.chunks

    @property
    def coords(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Coordinates of the axes that have any: labels, or the numbers and dates of their domain."""
        return Coords(self._view, self.dims)

    def labels(self, dim: int | str) -> list[str] | np.ndarray[Any, Any] | None:
        """Labels of the whole axis as the file holds them."""
        return self._view.labels(self._axis(dim))

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the array. A copy: the file does not change with it."""
        return {name: value for name, value in self._view.attributes().items() if not name.startswith(OF_CONTAINER)}

    @property
    def fields(self) -> dict[str, Field]:
        """Every field of the array, by name."""
        return {name: Field(name, dtype, nullable, tuple(codecs)) for name, dtype, nullable, codecs in self._view.fields()}

    @property
    def fill(self) -> Any:
        """What cells that were never written hold, or the value declared to mean "missing"; None without one."""
        return self._view.fill

    @property
    def codecs(self) -> tuple[str, ...]:
        """Codecs of the chunks, in the order they encode."""
        return tuple(self._view.codecs)

    @property
    def nullable(self) -> bool:
        """Whether cells can be null: reading gives masked arrays then."""
        return self._view.nullable

    @property
    def sparse(self) -> bool:
        """Whether cells are listed one by one instead of filling the grid."""
        return self._view.sparse

    def _axis(self, dim: int | str | np.integer[Any]) -> int:
        if isinstance(dim, str):
            if dim in self.dims:
                return self.dims.index(dim)
            raise KeyError(f"no dimension {dim!r}; there is {', '.join(map(repr, self.dims)) or 'none'}")
        axis = int(dim)
        if not -self.ndim <= axis < self.ndim:
            raise IndexError(f"axis {axis} is out of bounds for array of dimension {self.ndim}")
        return axis % self.ndim

    # Reading

    def __getitem__(self, key: Any) -> Any:
        if type(key) is str:
            return self.select_field(key)
        return self._view.get(key)

    def read(self, key: Any = Ellipsis, *, out: np.ndarray[Any, Any] | None = None) -> Any:
        """Reads cells as indexing does, into `out` where it is given: an array of the shape and dtype of the result."""
        return self._view.get(key, out)

    @property
    def oindex(self) -> Any:
        """Indexing with lists and masks along each axis: every combination."""
        return _Indexer(self._view, _gather.outer)

    @property
    def vindex(self) -> Any:
        """Indexing of single cells: lists of positions, one per axis."""
        return _Indexer(self._view, _gather.vector)

    def view(self) -> np.ndarray[Any, Any]:
        """The cells as a read-only array over the mapped file, without a copy. ValueError where they do not lie there like that."""
        cells = self._view.borrow()
        if cells is None:
            raise ValueError(f"the cells of {self.name!r} do not lie in the file as an array; read them with [...]")
        return cells

    def select_field(self, name: str) -> Array:
        """The same cells of another field."""
        return self._container._field(self, name)

    def isel(self, indexers: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """A narrower array by positions along named dimensions: numbers and slices. Nothing is read, except where a list is given:
        then the cells."""
        wanted = {**(indexers or {}), **kwargs}
        items: list[Any] = [slice(None)] * self.ndim
        for dim, item in wanted.items():
            items[self._axis(dim)] = item
        narrowed = self._view.narrow(tuple(items))
        if narrowed is None:
            return _gather.outer(self._view, tuple(items))
        return Array(self._container, narrowed)

    def sel(self, indexers: Mapping[str, Any] | None = None, *, method: str | None = None, **kwargs: Any) -> Any:
        """A narrower array by coordinates along named dimensions: one value, a slice with both ends included, or a list.

        A date that names less than the coordinates do (`"2015-07"` of days) takes all it names. `method="nearest"` takes the nearest
        coordinate to each value.
        """
        wanted = {**(indexers or {}), **kwargs}
        return self.isel({dim: self._positions(self._axis(dim), item, method) for dim, item in wanted.items()})

    def _positions(self, axis: int, item: Any, method: str | None) -> Any:
        if isinstance(item, slice):
            if item.step is not None and not isinstance(item.step, (int, np.integer)):
                raise TypeError("the step of a slice of coordinates is a whole number")
            ends = [None if end is None else as_text(end) for end in (item.start, item.stop)]
            start, stop = self._view.between(axis, *ends)
            return slice(start, stop, item.step)
        if method == "nearest":
            return self._nearest(axis, item)
        if method is not None:
            raise ValueError(f"method is None or 'nearest', not {method!r}")
        if isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim):
            found = [self._view.at(axis, as_text(value)) for value in item]
            return [position for start, stop in found for position in range(start, stop)]
        start, stop = self._view.at(axis, as_text(item))
        return start if stop - start == 1 else slice(start, stop)

    def _nearest(self, axis: int, item: Any) -> Any:
        coordinates = along(self._view, axis)
        if coordinates is None:
            coordinates = np.arange(self.shape[axis])
        if coordinates.dtype.kind not in "iufMm" or not len(coordinates):
            raise ValueError("only numbers and dates have a nearest one")
        values = np.asarray(item, dtype=coordinates.dtype if coordinates.dtype.kind in "Mm" else None)
        # In floats, which unsigned numbers do not wrap around in.
        numbers = coordinates.astype(np.int64 if coordinates.dtype.kind in "Mm" else np.float64)
        places = [int(np.abs(numbers - v).argmin()) for v in values.astype(numbers.dtype).ravel()]
        return places[0] if values.ndim == 0 else places

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        cells = self._view.borrow() if copy is not True and self._view.chunks is not None else None
        if cells is None:
            if copy is False:
                raise ValueError("the cells do not lie in the file as an array: a copy is needed")
            cells = self._view.get(Ellipsis)
            if isinstance(cells, np.ma.MaskedArray):
                if cells.mask.any():
                    raise ValueError("some cells are null: read them with [...], which gives a masked array, or with filled(value)")
                cells = cells.data
        if dtype is None or cells.dtype == dtype:
            return cells
        if copy is False:
            raise ValueError(f"cells of {cells.dtype} are not cells of {np.dtype(dtype)}: a copy is needed")
        return cells.astype(dtype)

    def filled(self, value: Any) -> np.ndarray[Any, Any]:
        """All cells, with `value` in place of null ones."""
        cells = self._view.get(Ellipsis)
        return cells.filled(value) if isinstance(cells, np.ma.MaskedArray) else cells

    def __buffer__(self, flags: int, /) -> memoryview:
        # Python asks for it from 3.12 on; before that, buffers are those of `view()` and `[...]`.
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

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        # Whole chunks at a time, so that none is decoded twice.
        step = max(1, (self.chunks or (1,))[0])
        for start in range(0, self.shape[0], step):
            yield from self._view.get(slice(start, start + step))

    def blocks(self, nbytes: int = BLOCK) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """The cells in boxes of whole chunks of about `nbytes`: where each lies, and its cells."""
        for box in boxes(self.shape, block_shape(self, nbytes)):
            yield box, self._view.get(box)

    # Rows

    def cells(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: Any) -> _rows.Columns:
        """Cells row by row, as columns of coordinates and fields: all there is to a sparse array, and a dense one has them too.

        `where` is a condition, `"temperature > 5 and name in ('a', 'b')"`; dimensions are given by a coordinate or a slice of them, both
        ends included. Rows are sorted by the dimensions in their order unless `sort=False`.
        """
        return _rows.labelled(self, self._view.rows(_rows.asked(self, where, columns, sort, dims)))

    def cell_batches(
        self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: Any
    ) -> Iterator[_rows.Columns]:
        """The same batch by batch, within the memory limit."""
        batches = self._view.row_batches(_rows.asked(self, where, columns, sort, dims))
        return (_rows.labelled(self, batch) for batch in batches)

    def to_pandas(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: Any) -> Any:
        """The same as a data frame of pandas."""
        return _rows.to_pandas(self, self.cells(where, columns, sort=sort, **dims))

    def to_arrow(self, where: str | None = None, columns: Sequence[str] | None = None, *, sort: bool = True, **dims: Any) -> Any:
        """The same as a table of pyarrow."""
        return _rows.to_arrow(self, self.cells(where, columns, sort=sort, **dims))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """All rows through Arrow's C interface, for whoever takes tables that way."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    @property
    def enumerations(self) -> dict[str, list[str]]:
        """Labels that the codes of enumerated fields stand for, by field."""
        return {name: list(labels) for name, (_, labels, _) in self._view.enumerations().items()}

    # Reducing

    def _reduce(self, what: str, axis: Any, dtype: Any, out: Any, keepdims: bool, skipna: bool, ddof: float = 0.0) -> Any:
        if axis is None:
            axes = None
        else:
            given = [axis] if isinstance(axis, (int, str, np.integer)) else list(axis)
            axes = [self._axis(one) for one in given]
            if len(set(axes)) != len(axes):
                raise ValueError("duplicate value in 'axis'")
        result = self._view.reduce(what, axes, float(ddof), skipna)
        if keepdims:
            folded = range(self.ndim) if axes is None else axes
            result = np.reshape(result, [1 if i in folded else n for i, n in enumerate(self.shape)])
        if dtype is not None:
            result = result.astype(dtype)
        if out is not None:
            np.copyto(out, result)
            return out
        return result

    # `dtype` and `out` are where NumPy's functions look for them, so that np.mean(array) works.

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False, skipna: bool = True) -> Any:
        """The sum. Integers are added exactly, whatever their size; floats with compensation, as float64."""
        return self._reduce("sum", axis, dtype, out, keepdims, skipna)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, *, keepdims: bool = False, skipna: bool = True) -> Any:
        """The mean as float64; NaN where no cell counts."""
        return self._reduce("mean", axis, dtype, out, keepdims, skipna)

    def min(self, axis: Any = None, out: Any = None, *, keepdims: bool = False, skipna: bool = True) -> Any:
        """The smallest cell; NaN, or masked, where no cell counts."""
        return self._reduce("min", axis, None, out, keepdims, skipna)

    def max(self, axis: Any = None, out: Any = None, *, keepdims: bool = False, skipna: bool = True) -> Any:
        """The largest cell; NaN, or masked, where no cell counts."""
        return self._reduce("max", axis, None, out, keepdims, skipna)

    def std(
        self, axis: Any = None, dtype: Any = None, out: Any = None, *, ddof: float = 0, keepdims: bool = False, skipna: bool = True
    ) -> Any:
        """The standard deviation as float64; NaN where no cell counts."""
        return self._reduce("std", axis, dtype, out, keepdims, skipna, ddof)

    def var(
        self, axis: Any = None, dtype: Any = None, out: Any = None, *, ddof: float = 0, keepdims: bool = False, skipna: bool = True
    ) -> Any:
        """The variance as float64; NaN where no cell counts."""
        return self._reduce("var", axis, dtype, out, keepdims, skipna, ddof)

    def count(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """How many cells are neither null, nor the declared fill, nor NaN."""
        return self._reduce("count", axis, None, None, keepdims, True)

    # Travelling

    def __reduce__(self) -> tuple[Any, ...]:
        view = self._view
        number = [name for name, *_ in view.fields()].index(view.field_name)
        return _restore, (self._container._pinned(), view.index, number, view.window)

    def __copy__(self) -> Array:
        return self

    def __deepcopy__(self, memo: Any) -> Array:
        return self

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        _, (pinned, index, number, window) = self.__reduce__()
        return ("tesseral.Array", pinned.token(), index, number, tuple(window))

    # Showing

    def __repr__(self) -> str:
        return _show.array_text(self)

    def _repr_html_(self) -> str:
        return _show.array_html(self)


def _restore(pinned: Any, index: int, number: int, window: list[tuple[int, int, int, bool]]) -> Array:
    container = pinned.open()
    return Array(container, container._source.view(index, number).restore(window))


def block_shape(array: Array, nbytes: int = BLOCK, itemsize: int | None = None) -> tuple[int, ...]:
    """Extents of boxes of whole chunks that take up to `nbytes`, the last axes whole first. Boxes along an axis are of about the same size."""
    cell = array.dtype.itemsize if itemsize is None else itemsize
    block = [min(chunk, extent) for chunk, extent in zip(array.chunks or array.shape, array.shape)]
    for axis in reversed(range(len(block))):
        size = max(1, math.prod(block) * cell)
        times = nbytes // size
        if times < 2:
            break
        count = -(-array.shape[axis] // block[axis])
        boxes_along = -(-count // times)
        block[axis] = min(array.shape[axis], block[axis] * -(-count // boxes_along))
        if block[axis] < array.shape[axis]:
            break
    return tuple(max(1, n) for n in block)


def boxes(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The boxes of that shape that tile an array."""
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], block[0]):
        for rest in boxes(shape[1:], block[1:]):
            yield (slice(start, min(start + block[0], shape[0])), *rest)
