"""xarray: `xarray.open_dataset(path, engine="tesseral")`, and datasets written as `.tet`, `.tgm` or TileDB."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from . import _native
from ._array import BLOCK, Array, block_shape
from ._coords import along
from ._container import Container, open as open_container
from ._write import WritableArray, create

__all__ = ["TesseralBackendEntrypoint", "to_tet", "to_tgm", "to_tiledb", "write"]

# Attributes that CF wants as numbers; `.tet` keeps them as text.
_NUMBERS = ("_FillValue", "missing_value", "scale_factor", "add_offset", "valid_min", "valid_max", "valid_range")


class _Cells(BackendArray):
    """Cells that xarray reads when it needs them."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = _dtype_of(array)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> Any:
        plain = all(isinstance(item, (int, slice, np.integer)) for item in key)
        cells = self.array[key] if plain else self.array.oindex[key]
        return _without_nulls(cells, self.dtype) if self.array.nullable else cells


def _dtype_of(array: Array) -> np.dtype[Any]:
    """What xarray sees: nulls need a dtype that can say so."""
    if array.nullable and array.dtype.kind in "iub":
        return np.dtype(np.float64)
    return np.dtype(object) if array.nullable and array.dtype.kind in "SV" else array.dtype


def _without_nulls(cells: Any, dtype: np.dtype[Any]) -> Any:
    """Nulls as NaN, NaT or None. Refuses integers that a float cannot hold."""
    if not isinstance(cells, np.ma.MaskedArray):
        if cells is np.ma.masked:
            return np.array(_missing(dtype), dtype)[()]
        return np.asarray(cells).astype(dtype)[()]
    wide = cells.data.astype(dtype)
    if cells.dtype.kind in "iu" and cells.dtype.itemsize == 8:
        exact = wide.astype(cells.dtype) == cells.data
        if not exact[~np.ma.getmaskarray(cells)].all():
            raise ValueError("integers beyond 2^53 with nulls among them: read them with tesseral.open, as a masked array")
    wide[np.ma.getmaskarray(cells)] = _missing(dtype)
    return wide


def _missing(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "Mm":
        return np.array("NaT", dtype)
    return None if dtype.kind == "O" else np.nan


def _numeric(value: Any, dtype: np.dtype[Any]) -> Any:
    """A CF number that was kept as text."""
    if not isinstance(value, str):
        return value
    items = value.strip("[]").split(",")
    try:
        numbers = [int(item) if item.strip().lstrip("+-").isdigit() else float(item) for item in items]
    except ValueError:
        return value
    return numbers[0] if len(numbers) == 1 else np.array(numbers)


def _attributes(array: Array) -> dict[str, Any]:
    attrs = array.attrs
    for name in _NUMBERS:
        if name in attrs:
            attrs[name] = _numeric(attrs[name], array.dtype)
    for name in ("_FillValue", "missing_value"):
        # In the dtype of the cells, where it fits.
        if name in attrs and array.dtype.kind in "iuf" and np.ndim(attrs[name]) == 0 and not isinstance(attrs[name], str):
            attrs[name] = array.dtype.type(attrs[name])
    return attrs


class _Builder:
    """Puts arrays of a container together: dimensions by name, coordinates from labels."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.coords: dict[str, xr.Variable] = {}
        self.variables: dict[str, xr.Variable] = {}
        self.tiled: dict[str, Array] = {}

    def add(self, name: str, array: Array) -> None:
        dims = []
        for axis, (dim, extent) in enumerate(array.sizes.items()):
            values = along(array._view, axis)
            if not self._agrees(dim, extent, values):
                dim = f"{name}_{dim}"
            dims.append(dim)
            self.sizes[dim] = extent
            if values is not None and dim not in self.coords:
                self.coords[dim] = xr.Variable((dim,), values)
        data = indexing.LazilyIndexedArray(_Cells(array))
        self.variables[name] = xr.Variable(tuple(dims), data, _attributes(array), _encoding(array))
        if array.chunks is not None:
            self.tiled[name] = array

    def _agrees(self, dim: str, extent: int, values: np.ndarray[Any, Any] | None) -> bool:
        """Whether a dimension of that name means the same in arrays seen before."""
        if self.sizes.get(dim, extent) != extent:
            return False
        known = self.coords.get(dim)
        return known is None or values is None or np.array_equal(known.values, values)

    def _prefer(self) -> None:
        """Says what blocks suit: the same for variables in the same chunks, whatever the size of a cell."""
        widest: dict[Any, int] = {}
        alike = {name: (self.variables[name].dims, array.chunks) for name, array in self.tiled.items()}
        for name, array in self.tiled.items():
            widest[alike[name]] = max(widest.get(alike[name], 1), array.dtype.itemsize)
        for name, array in self.tiled.items():
            blocks = block_shape(array, _block_size(), widest[alike[name]])
            variable = self.variables[name]
            variable.encoding["preferred_chunks"] = _Preferred(
                zip(variable.dims, array.chunks or ()), dict(zip(variable.dims, blocks))
            )

    def dataset(self, attrs: Mapping[str, Any]) -> xr.Dataset:
        self._prefer()
        coords = {dim: variable for dim, variable in self.coords.items() if dim not in self.variables}
        return xr.Dataset(self.variables, coords=coords, attrs=attrs)


class _Preferred(dict[Any, int]):
    """Extents of stored chunks by dimension, beside those of blocks of whole chunks that suit tasks.

    xarray looks twice: for the extent of blocks, with that of the dimension in case there is none, and for where stored chunks end,
    with nothing. `chunks={}` thus gives few large blocks, while blocks that are asked for are held against the chunks in the file.
    """

    def __init__(self, stored: Any, blocks: dict[Any, int]) -> None:
        super().__init__(stored)
        self._blocks = blocks

    def get(self, dim: Any, *default: Any) -> Any:
        return self._blocks.get(dim, *default) if default else super().get(dim)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Preferred, (dict(self), self._blocks)


def _block_size() -> int:
    """Bytes of a block: those that Dask goes by, where it is in use, so that `chunks={}` and `chunks="auto"` are of one mind."""
    dask = sys.modules.get("dask")
    return BLOCK if dask is None else int(dask.utils.parse_bytes(dask.config.get("array.chunk-size", BLOCK)))


def _encoding(array: Array) -> dict[str, Any]:
    encoding: dict[str, Any] = {"source": array._container.url, "original_shape": array.shape}
    if array.chunks is not None:
        encoding["chunksizes"] = array.chunks
    return encoding


def _has_engine(name: str) -> bool:
    return bool(entry_points(group="xarray.backends", name=name))


class TesseralBackendEntrypoint(BackendEntrypoint):
    """Opens `.tet`, `.tgm` and TileDB arrays, recognised by content."""

    description = "Tetration, Tensogram and TileDB arrays with Tesseral"
    url = ""
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """By content. Leaves Tensogram files to the `tensogram` engine where that is installed."""
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        try:
            format = _native.recognise(os.fspath(filename_or_obj))
        except Exception:
            return False
        return format is not None and not _has_engine(format)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: bool = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        as_of: Any = None,
        memory_limit: int | None = None,
        key: Any = None,
        key_file: Any = None,
        group: str | None = None,
    ) -> xr.Dataset:
        """All dense arrays as variables; `group` takes those whose names begin with it and a slash."""
        container = open_container(filename_or_obj, as_of=as_of, memory_limit=memory_limit, key=key, key_file=key_file)
        dataset = _dataset(container, group, drop_variables)
        return xr.decode_cf(
            dataset,
            concat_characters=concat_characters,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            decode_coords=decode_coords,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(self, filename_or_obj: Any, *, drop_variables: Any = None, **kwargs: Any) -> dict[str, xr.Dataset]:
        """Arrays by what stands before the last slash of their names."""
        how: dict[str, Any] = {name: kwargs.get(name) for name in ("as_of", "memory_limit", "key", "key_file")}
        container = open_container(filename_or_obj, **how)
        groups = sorted({name.rpartition("/")[0] for name in container})
        found = {f"/{group}": xr.decode_cf(_dataset(container, group, drop_variables, exact=True)) for group in groups}
        return found if "/" in found else {"/": xr.Dataset(attrs=container.attrs), **found}

    def open_datatree(self, filename_or_obj: Any, *, drop_variables: Any = None, **kwargs: Any) -> xr.DataTree:
        """Groups of arrays as a tree."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, drop_variables=drop_variables, **kwargs))


def _dataset(container: Container, group: str | None, drop: str | Iterable[str] | None, exact: bool = False) -> xr.Dataset:
    """Arrays below a group, or exactly in it, under what is left of their names."""
    dropped = {drop} if isinstance(drop, str) else set(drop or ())
    arrays: dict[str, Array] = {}
    for name in container:
        inside, _, last = name.rpartition("/")
        if exact and inside != (group or ""):
            continue
        if not exact and group and not name.startswith(f"{group}/"):
            continue
        short = last if exact else name[len(group) + 1 :] if group else name
        array = container[name]
        if short not in dropped and name not in dropped and not array.sparse:
            arrays[short] = array
    builder = _Builder()
    for name, array in _by_their_names(arrays).items():
        if name not in dropped:
            builder.add(name, array)
    return builder.dataset(container.attrs)


def _by_their_names(arrays: dict[str, Array]) -> dict[str, Array]:
    """Arrays that go by number, as objects of messages do, under the name among their attributes where only one has it."""
    names = {key: array.attrs.get("name") for key, array in arrays.items()}
    given = [name for name in names.values() if isinstance(name, str)]
    out = {}
    for key, array in arrays.items():
        name = names[key]
        numbered = all(part.isdigit() for part in key.split("/"))
        if numbered and isinstance(name, str) and name and "/" not in name and given.count(name) == 1 and name not in arrays:
            key = name
        out[key] = array
    return out


# Writing


def _encoded(variable: xr.Variable, name: Any) -> tuple[Any, dict[str, Any], Any]:
    """Cells, attributes and fill as CF has them: dates as numbers, packed values packed again."""
    variable = xr.conventions.encode_cf_variable(variable, name=name)
    cells = variable.data
    if variable.attrs.get("dtype") == "bool":
        # What truth values are in CF is int8, which not every format has.
        cells = cells.astype(np.uint8)
    attrs = dict(variable.attrs)
    fill = attrs.pop("_FillValue", None)
    # NaN is missing without being said to be.
    return cells, attrs, None if fill is None or fill != fill else fill


def _is_index(dataset: xr.Dataset, name: Any) -> bool:
    return name in dataset.dims and name in dataset.variables


def write(dataset: xr.Dataset | xr.DataArray, path: str | os.PathLike[str], format: str = "", **options: Any) -> None:
    """Writes a dataset in any format: variables as arrays, coordinates of dimensions as labels. Options are those of `tesseral.write`."""
    if isinstance(dataset, xr.DataArray):
        dataset = dataset.to_dataset(name=dataset.name or "data")
    chunks, codec, fill = (options.pop(name, None) for name in ("chunks", "codec", "fill"))
    indexes = {dim: dataset.variables[dim] for dim in dataset.dims if _is_index(dataset, dim)}
    names = [name for name in dataset.variables if name not in indexes]
    with create(path, format, **options) as session:
        targets: list[tuple[WritableArray, Any]] = []
        spread = session.spread_attrs(dataset.attrs)
        for name in names:
            cells, attrs, own_fill = _encoded(dataset.variables[name], name)
            dims = dataset.variables[name].dims
            targets.append(
                (
                    session.add(
                        str(name),
                        cells.shape,
                        cells.dtype,
                        dims=[str(dim) for dim in dims],
                        coords={str(dim): indexes[dim].values for dim in dims if dim in indexes},
                        attrs={**spread, **attrs},
                        chunks=_chunks_of(dataset.variables[name], chunks),
                        codec=codec.get(name) if isinstance(codec, Mapping) else codec,
                        fill=own_fill if fill is None else fill,
                    ),
                    cells,
                )
            )
        for target, cells in targets:
            _store(target, cells)


def _chunks_of(variable: xr.Variable, chunks: Any) -> Any:
    """Those asked for, else those of the file it came from where the shape is still the same."""
    if chunks is not None:
        return [chunks.get(dim, n) for dim, n in variable.sizes.items()] if isinstance(chunks, Mapping) else chunks
    same = variable.encoding.get("original_shape") == variable.shape
    return variable.encoding.get("chunksizes") if same else None


def _store(target: WritableArray, cells: Any) -> None:
    """Block by block, where the cells are not in memory yet."""
    if not hasattr(cells, "dask"):
        target[...] = np.asarray(cells)
        return
    from .dask import store_blocks

    store_blocks(cells, target)


def to_tet(dataset: xr.Dataset | xr.DataArray, path: str | os.PathLike[str], **options: Any) -> None:
    """Writes a dataset as `.tet`: variables as arrays, coordinates of dimensions as labels. Options are those of `tesseral.write`."""
    write(dataset, path, "tet", **options)


def to_tgm(dataset: xr.Dataset | xr.DataArray, path: str | os.PathLike[str], **options: Any) -> None:
    """Writes a dataset as Tensogram: one message, an object per variable."""
    write(dataset, path, "tensogram", **options)


def to_tiledb(dataset: xr.Dataset | xr.DataArray, path: str | os.PathLike[str], **options: Any) -> None:
    """Writes a dataset as TileDB."""
    write(dataset, path, "tiledb", **options)
