"""xarray: `xarray.open_dataset(path, engine="tesseral")`, and writing of datasets as `.tet`, `.tgm`, TileDB or NetCDF-4."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from . import _dataset, _native
from ._array import BLOCK, Array, block_shape
from ._container import Container, open as open_container
from ._coords import along
from ._errors import NotFoundError, UnsupportedError
from ._storage import Source

__all__ = ["TesseralAccessor", "TesseralBackendEntrypoint", "to_netcdf", "to_tet", "to_tgm", "to_tiledb", "write"]

# The name of an object of a message: its numbers.
_OBJECT = re.compile(r"\d+/\d+")
_NUMBERS = {"_FillValue", "missing_value", "scale_factor", "add_offset", "valid_min", "valid_max", "valid_range"}


class _Cells(BackendArray):
    """Cells that xarray reads on demand."""

    def __init__(self, array: Array, text: np.dtype[Any] | None = None) -> None:
        self.array = array
        self.shape = array.shape
        # Unwritten cells whose value is not declared as missing: xarray could not know that they are.
        self.gaps = not array.nullable and array.dtype.kind in "biufMm" and not _is_declared(array) and array._view.has_gaps()
        self.dtype = _dtype_of(array, self.gaps) if text is None else text

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        if self.gaps:
            return _without_nulls(_written(self.array, key), self.dtype)
        plain = all(isinstance(item, (int, slice, np.integer)) for item in key)
        cells = self.array[key] if plain else self.array.oindex[key]
        if self.array.nullable:
            return _without_nulls(cells, self.dtype)
        if self.dtype.kind == "U":
            # As wide as the longest text, should another program have stored longer ones.
            texts = np.asarray(cells).astype(str)
            return texts.astype(np.promote_types(texts.dtype, self.dtype))
        # A NumPy scalar of bytes has the width of its own text, not that of the array.
        return np.asarray(cells, self.dtype)


def _is_declared(array: Array) -> bool:
    """Returns whether the value of unwritten cells means "missing"."""
    fill = array.fill
    return fill is not None and any(value == fill or (value != value and fill != fill) for value in array.missing)


def _written(array: Array, key: tuple[Any, ...]) -> Any:
    """Cells of an outer index, of which unwritten ones are masked. They hold the fill value."""
    boxes: list[Any] = []
    places: list[Any] = []
    for item in key:
        if isinstance(item, (int, slice, np.integer)):
            boxes.append(item)
            places.extend([slice(None)] if isinstance(item, slice) else [])
        else:
            positions = np.asarray(item)
            low = int(positions.min()) if positions.size else 0
            boxes.append(slice(low, int(positions.max()) + 1 if positions.size else low))
            places.append(positions - low)
    cells = array.isel(dict(zip(array.dims, boxes))).masked()
    for axis, place in enumerate(places):
        if not isinstance(place, slice):
            cells = cells.take(place, axis=axis)
    fill = array.fill
    unwritten = np.ma.getmaskarray(cells) & ((cells.data == fill) | ((cells.data != cells.data) & (fill != fill)))
    return np.ma.MaskedArray(cells.data, mask=unwritten)


def _dtype_of(array: Array, gaps: bool = False) -> np.dtype[Any]:
    """The dtype for xarray, which can represent nulls and, if there are any, unwritten cells."""
    if (array.nullable or gaps) and array.dtype.kind in "iub":
        return np.dtype(np.float64)
    return np.dtype(object) if array.nullable and array.dtype.kind in "SV" else array.dtype


def _attributes(array: Array) -> dict[str, Any]:
    """Attributes of an array. Numbers of CF that are stored as text, as in `.tet` files of other programs, are numbers. Missing values
    are in the dtype of the cells: xarray would compare a float32 with a float64."""
    attrs = array.attrs
    for name in {"_FillValue", "missing_value"} & attrs.keys():
        if array.dtype.kind in "iuf" and "_Unsigned" not in attrs:
            attrs[name] = _in_dtype(attrs[name], array.dtype)
    for name in _NUMBERS & attrs.keys():
        if isinstance(attrs[name], str) and array.dtype.kind in "iuf":
            attrs[name] = _number(attrs[name], array.dtype if name in ("_FillValue", "missing_value") else None)
    return attrs


def _in_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """Converts numbers to another dtype; returns them unchanged if the dtype cannot represent them."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf" or numbers.dtype == dtype:
        return value
    with np.errstate(invalid="ignore", over="ignore"):
        cells = numbers.astype(dtype)
    same = np.isfinite(cells) | ~np.isfinite(numbers) if dtype.kind == "f" else cells == numbers
    return cells[()] if np.all(same) else value


def _number(text: str, dtype: np.dtype[Any] | None) -> Any:
    """The number or numbers that a text represents; the text itself if it is not a number, or one that the dtype cannot hold."""
    try:
        numbers = [int(item) if item.strip().lstrip("+-").isdigit() else float(item) for item in text.strip("[]").split(",")]
        cells = np.array(numbers[0] if len(numbers) == 1 else numbers, dtype)
    except (ValueError, OverflowError):
        return text
    return cells[()]


def _text_dtype(array: Array, stored: Any) -> np.dtype[Any] | None:
    """The dtype of text that had a fixed width when it was written."""
    if not isinstance(stored, str) or not re.fullmatch(r"<U\d{1,6}", stored) or array.dtype.kind != "O" or array.nullable:
        return None
    return np.dtype(stored)


def _without_nulls(cells: Any, dtype: np.dtype[Any]) -> Any:
    """Converts nulls to NaN, NaT or None. Rejects integers that a float cannot represent."""
    if not isinstance(cells, np.ma.MaskedArray):
        if cells is np.ma.masked:
            return np.array(_missing(dtype), dtype)[()]
        return np.asarray(cells).astype(dtype)[()]
    wide = cells.data.astype(dtype)
    if cells.dtype.kind in "iu" and cells.dtype.itemsize == 8:
        exact = wide.astype(cells.dtype) == cells.data
        if not exact[~np.ma.getmaskarray(cells)].all():
            raise ValueError("integers beyond 2^53 with nulls cannot be converted to float; use tesseral.open to read a masked array")
    wide[np.ma.getmaskarray(cells)] = _missing(dtype)
    return wide


def _missing(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "Mm":
        return np.array("NaT", dtype)
    return None if dtype.kind == "O" else np.nan


class _Builder:
    """Builds a dataset from arrays of a container: dimensions by name, coordinates from variables or else from labels."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = set(names)
        self.sizes: dict[str, int] = {}
        self.labels: dict[str, xr.Variable] = {}
        self.variables: dict[str, xr.Variable] = {}
        self.coordinates: set[str] = set()
        self.unlimited: set[str] = set()
        self.tiled: dict[str, Array] = {}

    def add(self, name: str, array: Array) -> None:
        dims = []
        for axis, (dim, extent) in enumerate(zip(array._axes, array.shape)):
            values = None if dim in self.names else along(array._view, axis)
            if not self._agrees(dim, extent, values):
                dim = f"{name}_{dim}"
            dims.append(dim)
            self.sizes[dim] = extent
            if array._view.dims[axis] in array._view.unlimited:
                self.unlimited.add(dim)
            if values is not None and dim not in self.labels:
                self.labels[dim] = xr.Variable((dim,), values)
        attrs = _attributes(array)
        text = _text_dtype(array, attrs.get(_dataset.TEXT_DTYPE))
        if text is not None:
            del attrs[_dataset.TEXT_DTYPE]
        data = indexing.LazilyIndexedArray(_Cells(array, text))
        self.variables[name] = xr.Variable(tuple(dims), data, attrs, _encoding(array))
        # xarray itself decodes the attribute `coordinates`.
        if array._view.own_role in ("index", "auxiliary"):
            self.coordinates.add(name)
        if array.chunks is not None:
            self.tiled[name] = array

    def _agrees(self, dim: str, extent: int, values: np.ndarray[Any, Any] | None) -> bool:
        """Returns whether a dimension of that name has the same extent and coordinates in previous arrays."""
        if self.sizes.get(dim, extent) != extent:
            return False
        known = self.labels.get(dim)
        return known is None or values is None or np.array_equal(known.values, values)

    def _prefer(self) -> None:
        """Sets preferred block shapes: equal for variables with equal chunks, regardless of the cell size."""
        widest: dict[Any, int] = {}
        alike = {name: (self.variables[name].dims, array.chunks) for name, array in self.tiled.items()}
        for name, array in self.tiled.items():
            widest[alike[name]] = max(widest.get(alike[name], 1), array.dtype.itemsize)
        for name, array in self.tiled.items():
            itemsize = widest[alike[name]]
            blocks = block_shape(array, _block_size(array.size * itemsize), itemsize)
            variable = self.variables[name]
            variable.encoding["preferred_chunks"] = _Preferred(
                zip(variable.dims, array.chunks or ()), dict(zip(variable.dims, blocks))
            )

    def dataset(self, attrs: Mapping[str, Any]) -> xr.Dataset:
        self._prefer()
        named = {**self.variables, **{dim: variable for dim, variable in self.labels.items() if dim not in self.variables}}
        coords = {name: variable for name, variable in named.items() if name in self.coordinates or variable.dims == (name,)}
        data = {name: variable for name, variable in named.items() if name not in coords}
        # Indexes are built after decoding.
        out = xr.Dataset(data, coords=xr.Coordinates(coords, indexes={}), attrs=attrs)
        if self.unlimited:
            out.encoding["unlimited_dims"] = self.unlimited
        return out


class _Preferred(dict[Any, int]):
    """Chunk extents by dimension, and preferred extents of blocks of whole chunks.

    xarray reads it twice: for block extents, with the dimension's extent as default, and for chunk boundaries, without a default.
    `chunks={}` creates few large blocks, while explicit blocks are compared with the stored chunks.
    """

    def __init__(self, stored: Any, blocks: dict[Any, int]) -> None:
        super().__init__(stored)
        self._blocks = blocks

    def get(self, dim: Any, *default: Any) -> Any:
        return self._blocks.get(dim, *default) if default else super().get(dim)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Preferred, (dict(self), self._blocks)


# Tasks that an array is divided into before blocks grow, and the smallest block, in bytes. A task takes about a millisecond.
_TASKS = 120
_SMALL_BLOCK = 8 << 20


def _block_size(nbytes: int) -> int:
    """Size of the blocks of an array in bytes: small, because the working memory of tasks is a multiple of it, unless there would be too many
    blocks; at most the size configured in Dask, so that `chunks={}` and `chunks="auto"` agree for large arrays."""
    dask = sys.modules.get("dask")
    largest = BLOCK if dask is None else int(dask.utils.parse_bytes(dask.config.get("array.chunk-size", BLOCK)))
    return min(largest, max(_SMALL_BLOCK, nbytes // _TASKS))


def _encoding(array: Array) -> dict[str, Any]:
    encoding: dict[str, Any] = {"source": array._container.url, "original_shape": array.shape}
    if array.chunks is not None:
        encoding["chunksizes"] = array.chunks
    return encoding


def _has_engine(name: str) -> bool:
    return bool(entry_points(group="xarray.backends", name=name))


class TesseralBackendEntrypoint(BackendEntrypoint):
    """Opens sources of every format, detected by content."""

    description = "Tetration, Tensogram and TileDB arrays with Tesseral"
    url = ""
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Detects the format by content. Leaves Tensogram files to the `tensogram` engine if it is installed."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        try:
            format = _native.recognize(os.fspath(filename_or_obj))
        except Exception:
            return False
        return format is not None and not _has_engine(format)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        as_of: Any = None,
        memory_limit: int | None = None,
        key: Any = None,
        key_file: Any = None,
        storage_options: Any = None,
        cache: Any = None,
        group: str | None = None,
    ) -> xr.Dataset:
        """Opens the variables of a group, by default the root."""
        container = open_container(
            filename_or_obj,
            as_of=as_of,
            memory_limit=memory_limit,
            key=key,
            key_file=key_file,
            storage_options=storage_options,
            mapped=False,
            cache=cache,
        )
        return dataset_of(
            container,
            group,
            drop_variables=drop_variables,
            concat_characters=concat_characters,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            decode_coords=decode_coords,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        as_of: Any = None,
        memory_limit: int | None = None,
        key: Any = None,
        key_file: Any = None,
        storage_options: Any = None,
        cache: Any = None,
        **decoding: Any,
    ) -> dict[str, xr.Dataset]:
        """Opens the variables of each group by its path, or those below a named group."""
        container = open_container(
            filename_or_obj,
            as_of=as_of,
            memory_limit=memory_limit,
            key=key,
            key_file=key_file,
            storage_options=storage_options,
            mapped=False,
            cache=cache,
        )
        return _datasets_of(container, group, **decoding)

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Opens groups as a tree."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _groups(container: Container) -> dict[str, dict[str, Any]]:
    """Attributes of groups by their path; the path of the root is empty."""
    return {"": container.attrs, **container.groups}


def _datasets_of(container: Container, group: str | None = None, **decoding: Any) -> dict[str, xr.Dataset]:
    """Datasets of a group and its subgroups, by relative path."""
    top = (group or "").strip("/")
    groups = _groups(container)
    paths = [path for path in groups if not top or path == top or path.startswith(f"{top}/")]
    if not paths:
        raise NotFoundError(f"unknown group {group!r}; available: {', '.join(map(repr, groups))}")
    return {"/" + path[len(top) :].strip("/"): dataset_of(container, path, **decoding) for path in paths}


def tree_of(container: Container, **decoding: Any) -> xr.DataTree:
    """All groups as a tree."""
    return xr.DataTree.from_dict(_datasets_of(container, **decoding))


def dataset_of(container: Container, group: str | None = None, *, drop_variables: Any = None, decode_coords: Any = True, **decoding: Any) -> xr.Dataset:
    """Variables of a group as a dataset, decoded by the CF conventions."""
    path = (group or "").strip("/")
    groups = _groups(container)
    if path not in groups:
        raise NotFoundError(f"unknown group {group!r}; available: {', '.join(map(repr, groups))}")
    dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
    inside = {name.rpartition("/")[2]: array for name, array in container.variables.items() if name.rpartition("/")[0] == path}
    if group is None and all(_OBJECT.fullmatch(name) for name in container.variables):
        # Messages are not groups: by default all objects are included.
        inside = container.variables
    arrays = {name: array for name, array in _by_given_names(inside).items() if name not in dropped}
    for name, array in arrays.items():
        if array.sparse:
            raise UnsupportedError(
                f"xarray has no sparse arrays: read the cells as a table with tesseral.open(path)[{name!r}].to_pandas()", array=name
            )
    # Coordinates of groups around this one are theirs: a tree inherits them.
    around = {name.rpartition("/")[2] for name in container.variables if path and _is_around(name.rpartition("/")[0], path)}
    builder = _Builder({*arrays, *around})
    for name, array in arrays.items():
        builder.add(name, array)
    if decode_coords is False:
        builder.coordinates.clear()
    decoded = xr.decode_cf(builder.dataset(groups[path]), decode_coords=decode_coords, **decoding)
    # Coordinates in the order of the container, those that only decoding finds included.
    coords = {name: decoded.variables[name] for name in [*arrays, *decoded.coords] if name in decoded.coords}
    data = {name: decoded.variables[name] for name in decoded.data_vars}
    ordered = xr.Dataset(data, coords=xr.Coordinates(coords, indexes=decoded.xindexes), attrs=decoded.attrs)
    ordered.encoding = decoded.encoding
    return ordered


def array_of(array: Array, **decoding: Any) -> xr.DataArray:
    """An array, or the part that was selected of it, with its coordinates."""
    container, view = array._container, array._view
    field = list(array.fields).index(array.field)
    own = next(name for name, index, number in container._source.variables() if (index, number) == (view.index, field))
    group, _, name = own.rpartition("/")
    dataset = dataset_of(container, group if group in _groups(container) else None, **decoding)
    found = dataset[next(key for key in (own, name, array.variable_name) if key in dataset.variables)]
    chosen: dict[Any, Any] = {}
    for dim, extent, (start, step, count, dropped) in zip(found.dims, found.shape, view.window):
        if dropped:
            chosen[dim] = start
        elif (start, step, count) != (0, 1, extent):
            # A range across the end of a cyclic axis continues at its start.
            positions = start + step * np.arange(count)
            inside = count == 0 or (positions.min() >= 0 and positions.max() < extent)
            stop = start + step * count
            chosen[dim] = slice(start, None if stop < 0 else stop, step) if inside else positions % extent
    return found.isel(chosen)


def _is_around(outer: str, group: str) -> bool:
    return not outer or group.startswith(f"{outer}/")


def _by_given_names(arrays: dict[str, Array]) -> dict[str, Array]:
    """Renames numbered arrays, such as objects of messages, to their variable names if these are unique in the group."""
    given = [array.variable_name for array in arrays.values()]
    unique = {name for name in given if given.count(name) == 1 and name and "/" not in name and name not in arrays}
    numbered = {key for key, array in arrays.items() if _OBJECT.fullmatch(array.name) and array.variable_name in unique}
    return {array.variable_name if key in numbered else key: array for key, array in arrays.items()}


# Writing


def write(data: xr.Dataset | xr.DataArray | xr.DataTree, path: Source, format: str = "", **options: Any) -> None:
    """Writes a dataset, array or tree in any format. Options are those of the accessor."""
    _dataset.write(data, path, format, **options)


def to_tet(data: xr.Dataset | xr.DataArray | xr.DataTree, path: Source, **options: Any) -> None:
    """Writes `.tet`: `data.tesseral.to_tet(path)`."""
    write(data, path, "tet", **options)


def to_tgm(data: xr.Dataset | xr.DataArray | xr.DataTree, path: Source, **options: Any) -> None:
    """Writes Tensogram: `data.tesseral.to_tgm(path)`."""
    write(data, path, "tensogram", **options)


def to_tiledb(data: xr.Dataset | xr.DataArray | xr.DataTree, path: Source, **options: Any) -> None:
    """Writes TileDB: `data.tesseral.to_tiledb(path)`."""
    write(data, path, "tiledb", **options)


def to_netcdf(data: xr.Dataset | xr.DataArray | xr.DataTree, path: Source, **options: Any) -> None:
    """Writes NetCDF-4: `data.tesseral.to_netcdf(path)`."""
    write(data, path, "hdf5", **options)


class TesseralAccessor:
    """`data.tesseral` of a Dataset, DataArray or DataTree: writes it so that opening the result gives an identical object.

    Coordinates are stored as variables. Dtypes, typed attributes and encoding are kept: values that were packed on disk are packed again,
    and dates that were numbers with CF units are stored as such numbers. Dates without units, booleans and text keep their own dtype.

    Options of all methods: `encoding` sets by variable how CF stores values (`dtype`, `scale_factor`, `add_offset`, `_FillValue`,
    `units`, `calendar`), `chunksizes` and `codec`; for a tree, keys are paths of groups, with a mapping for each. `chunks` and `codec`
    apply to all variables. `unlimited_dims` names dimensions that NetCDF files declare as unlimited, by default those in the encoding of
    the dataset. `append_dim` appends to an existing container along a dimension: variables, dtypes and all other coordinates
    must match, and labels must be new and continue the order; the container is rewritten, without its earlier versions. `overwrite`
    replaces an existing container. A path can be a URL, with `storage_options` as in `tesseral.open`. Other options are those of
    `tesseral.create`.
    """

    def __init__(self, data: xr.Dataset | xr.DataArray | xr.DataTree) -> None:
        self._data = data

    def to_tet(self, path: Source, **options: Any) -> None:
        """Writes `.tet`."""
        to_tet(self._data, path, **options)

    def to_tgm(self, path: Source, **options: Any) -> None:
        """Writes Tensogram: one message, an object per variable."""
        to_tgm(self._data, path, **options)

    def to_tiledb(self, path: Source, **options: Any) -> None:
        """Writes TileDB."""
        to_tiledb(self._data, path, **options)

    def to_netcdf(self, path: Source, **options: Any) -> None:
        """Writes NetCDF-4."""
        to_netcdf(self._data, path, **options)


for register in (xr.register_dataset_accessor, xr.register_dataarray_accessor, xr.register_datatree_accessor):
    register("tesseral")(TesseralAccessor)  # type: ignore[no-untyped-call]
