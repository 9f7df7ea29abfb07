"""Writing containers: one transaction, nothing visible before it is committed."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, overload

import numpy as np

from . import _native
from ._coords import as_text
from ._errors import InvalidRequestError, UnsupportedError
from ._gather import expand

Codec = "str | Sequence[str | tuple[str, Mapping[str, Any]]] | None"
_CHUNK = 4 << 20
# What stands before the name of an attribute of the container that its arrays keep for it.
OF_CONTAINER = "container:"


def _codecs(codec: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """`"zstd:3"`, `["shuffle", "zstd"]`, `[("zstd", {"level": 3})]`."""
    if codec is None:
        return []
    items = [codec] if isinstance(codec, str) else list(codec)
    return [(item, {}) if isinstance(item, str) else (item[0], dict(item[1])) for item in items]


def default_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most 4 MiB: the last axes whole, earlier ones cut."""
    chunks = [max(1, n) for n in shape]
    for axis in range(len(chunks)):
        excess = math.prod(chunks) * itemsize / _CHUNK
        if excess <= 1:
            break
        chunks[axis] = max(1, int(chunks[axis] / excess))
    return tuple(chunks)


def _chunks(chunks: Any, shape: Sequence[int], dims: Sequence[str], itemsize: int) -> tuple[int, ...]:
    if chunks is None:
        return default_chunks(shape, itemsize)
    if isinstance(chunks, Mapping):
        chunks = [chunks.get(dim, extent) for dim, extent in zip(dims, shape)]
    elif isinstance(chunks, (int, np.integer)):
        chunks = [chunks] * len(shape)
    given = [chunks] if np.ndim(chunks) == 0 else list(chunks)
    if len(given) != len(shape):
        raise ValueError(f"{len(given)} extents of a chunk for {len(shape)} axes")
    chunks = [extent if n in (-1, None) else int(n) for n, extent in zip(given, shape)]
    return tuple(max(1, n) for n in chunks)


def _native_order(dtype: Any) -> np.dtype[Any]:
    given: np.dtype[Any] = np.dtype(dtype)
    return given if given.isnative else given.newbyteorder("=")


def format_of(path: str, format: str) -> tuple[str, bool]:
    """The id of a format, named or told by the path's ending, and whether its containers are folders."""
    for id, _, endings, _, folder in _native.formats():
        if id == format or not format and any(path.endswith(f".{ending}") for ending in endings):
            return id, folder
    return format, False


class WritableArray:
    """An array being written. `array[region] = values` stores cells; every cell must be written once."""

    def __init__(
        self,
        session: Session,
        number: int,
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: Any,
        codec: Any = None,
    ) -> None:
        self._session = session
        self._number = number
        self.name = name
        self.shape = shape
        self.chunks = chunks
        self.dtype = np.dtype(dtype)
        self.codec = codec
        # Cells of chunks that are not whole yet, and which of them came.
        self._partial: dict[tuple[int, ...], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        self._lock = threading.Lock()
        # Which chunks are stored, by their place in the grid.
        self._stored = np.zeros([-(-n // c) for n, c in zip(shape, chunks)], bool)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        stored = f"{np.count_nonzero(self._stored)} of {self._stored.size} chunks stored"
        return _native.escape(f"<tesseral.WritableArray {self.name!r} {self.shape} {self.dtype}, {stored}>")

    def _region(self, key: Any) -> list[tuple[int, int]]:
        region = []
        for axis, (item, extent) in enumerate(zip(expand(key, self.ndim), self.shape)):
            if isinstance(item, slice):
                start, stop, step = item.indices(extent)
                if step != 1:
                    raise IndexError("a region is written without steps")
                region.append((start, max(start, stop)))
            else:
                at = int(item)
                if not -extent <= at < extent:
                    raise IndexError(f"index {at} is out of bounds for axis {axis} with size {extent}")
                region.append((at % extent, at % extent + 1))
        return region

    def __setitem__(self, key: Any, values: Any) -> None:
        if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
            raise InvalidRequestError("cells are missing: give `fill` and values filled with it", array=self.name)
        region = self._region(key)
        extents = tuple(stop - start for start, stop in region)
        given = self._cast(np.asarray(values))
        # A number along an axis chooses it without keeping it, in the values too.
        kept = [n for n, item in zip(extents, expand(key, self.ndim)) if isinstance(item, slice)]
        cells = np.broadcast_to(given, kept).reshape(extents)
        if 0 in extents:
            return
        inner = [
            (-(-start // chunk) * chunk, stop if stop == extent else stop // chunk * chunk)
            for (start, stop), chunk, extent in zip(region, self.chunks, self.shape)
        ]
        if all(a < b for a, b in inner):
            box = tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(inner, region))
            self._store([a for a, _ in inner], cells[box])
        else:
            inner = [(start, start) for start, _ in region]
        if inner != region:
            self._store_edges(region, inner, cells)

    def _cast(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Values in the array's dtype. Floats may be rounded to shorter floats; anything else stays what it is or is refused."""
        if values.dtype.newbyteorder("=") == self.dtype:
            return values.astype(self.dtype, copy=False)
        if values.dtype.kind not in "biufc" or (values.dtype.kind == "c" and self.dtype.kind != "c"):
            raise InvalidRequestError(f"{values.dtype} does not fit {self.dtype}", array=self.name)
        rounded = values.dtype.kind in "fc" and self.dtype.kind in "fc"
        with np.errstate(invalid="ignore", over="ignore"):
            cells = values.astype(self.dtype)
            if not rounded:
                wrong = np.asarray(cells != values)
                if wrong.any():
                    raise InvalidRequestError(f"{values[wrong].ravel()[0]} does not fit {self.dtype}", array=self.name)
        return cells

    def _store(self, start: list[int], cells: np.ndarray[Any, Any]) -> None:
        self._session._writer.write(self._number, start, np.ascontiguousarray(cells).reshape(cells.shape))
        box = tuple(slice(a // c, -(-(a + n) // c)) for a, n, c in zip(start, cells.shape, self.chunks))
        self._stored[box] = True

    def _store_edges(self, region: list[tuple[int, int]], inner: list[tuple[int, int]], cells: np.ndarray[Any, Any]) -> None:
        """Keeps cells of chunks that a region cuts until the rest of the chunk comes."""
        numbers = [range(a // chunk, -(-b // chunk)) for (a, b), chunk in zip(region, self.chunks)]
        for coords in product(*numbers):
            with self._lock:
                whole = self._keep(coords, region, inner, cells)
            if whole is not None:
                self._store(*whole)

    def _keep(
        self,
        coords: tuple[int, ...],
        region: list[tuple[int, int]],
        inner: list[tuple[int, int]],
        cells: np.ndarray[Any, Any],
    ) -> tuple[list[int], np.ndarray[Any, Any]] | None:
        """Keeps what a region has of one chunk. Gives the chunk once it is whole."""
        bounds = [(c * chunk, min((c + 1) * chunk, extent)) for c, chunk, extent in zip(coords, self.chunks, self.shape)]
        if all(a >= low and b <= high for (a, b), (low, high) in zip(bounds, inner)):
            return None
        if self._stored[coords]:
            raise InvalidRequestError("cells were written already", array=self.name, chunk=coords)
        held = self._partial.get(coords)
        if held is None:
            extents = [b - a for a, b in bounds]
            held = self._partial[coords] = (np.empty(extents, self.dtype), np.zeros(extents, bool))
        here = [(max(a, low), min(b, high)) for (a, b), (low, high) in zip(bounds, region)]
        inside = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(here, bounds))
        given = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(here, region))
        buffer, done = held
        if done[inside].any():
            raise InvalidRequestError("cells were written already", array=self.name, chunk=coords)
        buffer[inside] = cells[given]
        done[inside] = True
        if not done.all():
            return None
        del self._partial[coords]
        return [a for a, _ in bounds], buffer

    def _take(self, region: tuple[slice, ...], part: str) -> None:
        """Cells of a region from a container that holds them, stored bytes and all where whole chunks are taken."""
        bounds = list(zip(self._region(region), self.chunks, self.shape))
        if not all(start % chunk == 0 and (stop % chunk == 0 or stop == extent) for (start, stop), chunk, extent in bounds):
            self[region] = _native.Source(part).view(0).get(())
            return
        grid = tuple(slice(start // chunk, -(-stop // chunk)) for (start, stop), chunk, _ in bounds)
        with self._lock:
            if self._stored[grid].any():
                raise InvalidRequestError("cells were written already", array=self.name)
            self._stored[grid] = True
        self._session._writer.copy(self._number, [start for (start, _), _, _ in bounds], part)


class Session:
    """A container being written. Use it in `with`: it is committed at the end, and leaves no trace when an exception passes."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: str = "",
        *,
        overwrite: bool = False,
        digests: bool = True,
        statistics: bool = False,
        **options: Any,
    ) -> None:
        self.path = os.path.abspath(path)
        self.format, _ = format_of(self.path, format)
        self._writer = _native.Writer(os.fspath(path), format, overwrite, digests, statistics, options)
        self._arrays: list[WritableArray] = []

    def add(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        *,
        dims: Sequence[str] | None = None,
        coords: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        chunks: Any = None,
        codec: Any = None,
        fill: Any = None,
    ) -> WritableArray:
        """Declares an array. Declare all of them before writing the first cells."""
        dtype = _native_order(dtype)
        extents = tuple(int(n) for n in shape)
        names = [""] * len(extents) if dims is None else list(dims)
        if len(names) != len(extents):
            raise ValueError(f"{len(names)} dimension names for {len(extents)} axes of {name!r}")
        unknown = [dim for dim in coords or () if dim not in names]
        if unknown:
            raise ValueError(f"coordinates of {unknown[0]!r}, which is no dimension of {name!r}")
        labels = [None if dim == "" else _labels(dim, (coords or {}).get(dim), n) for dim, n in zip(names, extents)]
        sizes = _chunks(chunks, extents, names, dtype.itemsize)
        number = self._writer.add(
            {
                "name": name,
                "shape": list(extents),
                "chunks": list(sizes),
                "dtype": dtype,
                "dims": names,
                "labels": labels,
                "attrs": dict(attrs or {}),
                "fill": None if fill is None else np.asarray(fill, dtype=dtype),
                "codecs": _codecs(codec),
            }
        )
        array = WritableArray(self, number, name, extents, sizes, dtype, codec)
        self._arrays.append(array)
        return array

    def set_attrs(self, attrs: Mapping[str, Any]) -> None:
        """Sets attributes of the container as a whole."""
        self._writer.set_attributes(dict(attrs))

    def spread_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Sets those attributes of the container as a whole that its format has a place for. Gives the others under the names by which
        each array keeps them for it."""
        kept, spread = {}, {}
        for name, value in attrs.items():
            try:
                self._writer.set_attributes({name: value})
                kept[name] = value
            except UnsupportedError:
                spread[OF_CONTAINER + name] = value
        if kept:
            self._writer.set_attributes(kept)
        return spread

    def add_history(self, op: str, source: str = "", at: str = "", *, parents: Sequence[str] = (), **params: str) -> None:
        """Adds a row to the container's history."""
        self._writer.add_history({"op": op, "source": source, "at": at, "parents": list(parents), "params": params})

    def commit(self) -> None:
        """Publishes the container: all of it or nothing. ValueError while cells are missing."""
        for array in self._arrays:
            for coords, (_, done) in array._partial.items():
                self.abandon()
                message = f"{np.count_nonzero(~done)} cells of a chunk were not written"
                raise InvalidRequestError(message, array=array.name, chunk=coords)
        self._writer.commit()

    def abandon(self) -> None:
        """Leaves no trace."""
        self._writer.abandon()

    def __repr__(self) -> str:
        names = ", ".join(array.name for array in self._arrays) or "no arrays yet"
        return _native.escape(f"<tesseral.Session {self.path!r} {self.format}: {names}>")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.commit()
        else:
            self.abandon()


def _labels(dim: str, given: Any, extent: int) -> list[str] | None:
    if given is None:
        return None
    values = np.asarray(getattr(given, "values", given))
    if values.shape != (extent,):
        raise ValueError(f"coordinates of {dim!r} have shape {values.shape}, the dimension has {extent} positions")
    return [as_text(value) for value in values]


@overload
def create(
    path: str | os.PathLike[str],
    format: str = "",
    *,
    overwrite: bool = False,
    digests: bool = True,
    statistics: bool = False,
    **options: Any,
) -> Session: ...
@overload
def create(path: str | os.PathLike[str], format: Mapping[str, Any], *, overwrite: bool = False, **options: Any) -> None: ...
def create(path: str | os.PathLike[str], format: Any = "", *, overwrite: bool = False, **options: Any) -> Session | None:
    """Begins a container, to be written in `with`. The format goes by the path's ending unless it is named: `tet`, `tensogram`, `tiledb`.

    `statistics` stores those of every chunk where the format leaves the choice; `digests=False` stores no digests. Other options are
    those of the format, such as `timestamp` of TileDB arrays.

    With a schema in place of the format, makes a TileDB array without a cell at once, for `append` to fill:
    `{"dims": [{"name", "dtype", "domain", "tile", "current"}], "fields": [{"name", "dtype", "cell", "nullable", "fill", "codecs",
    "enumeration"}], "sparse", "duplicates", "capacity", "cell_order", "tile_order", "coordinates", "offsets", "validity"}`, of which
    `dims` and `fields` must be there.
    """
    if isinstance(format, Mapping):
        declared(path, format, overwrite, options).commit()
        return None
    return Session(path, format, overwrite=overwrite, **options)


def declared(path: str | os.PathLike[str], schema: Mapping[str, Any], overwrite: bool, options: Mapping[str, Any]) -> _native.Writer:
    """Begins an array without a cell."""
    target = os.fspath(path)
    # Names with other endings are those of folders too.
    format = format_of(target, "")[0] or next(id for id, _, _, _, folder in _native.formats() if folder)
    return _native.declare(target, json.dumps(schema, default=_plain), format, overwrite, dict(options))


def _plain(value: Any) -> Any:
    """What JSON has no word for: dtypes by name, numbers and dates of NumPy, arrays as lists."""
    if isinstance(value, (np.dtype, type)):
        name = np.dtype(value).newbyteorder("=").name
        return {"str": "string_utf8", "object": "string_utf8"}.get(name, name)
    if isinstance(value, (np.ndarray, set, range)):
        return list(value)
    if isinstance(value, np.generic) and value.dtype.kind != "M":
        return int(value.astype(np.int64)) if value.dtype.kind == "m" else value.item()
    return as_text(value)


def _per_array(option: Any, name: str, names: Sequence[str]) -> Any:
    """An option given for all arrays, or by name in a mapping whose keys are all names of arrays."""
    if isinstance(option, Mapping) and option and all(key in names for key in option):
        return option.get(name)
    return option


def write(
    path: str | os.PathLike[str],
    data: Any,
    *,
    dims: Any = None,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    chunks: Any = None,
    codec: Any = None,
    fill: Any = None,
    format: str = "",
    overwrite: bool = False,
    digests: bool = True,
    statistics: bool = False,
    **options: Any,
) -> None:
    """Writes arrays, given by name, to a new container.

    An array is anything NumPy takes, or has `dims`, `coords` and `attrs` of its own (xarray's do); a whole Dataset is taken as it is. `dims`, `chunks`, `codec` and
    `fill` hold for all arrays, or are mappings by the array's name. `coords` go by dimension. In `attrs`, a mapping under the name of an
    array belongs to that array, everything else to the container.
    """
    if hasattr(data, "data_vars"):
        from . import xarray

        options |= {"chunks": chunks, "codec": codec, "fill": fill, "overwrite": overwrite, "digests": digests, "statistics": statistics}
        xarray.write(data.assign_attrs(attrs or {}), path, format, **options)
        return
    if not isinstance(data, Mapping):
        stem = os.path.basename(os.fspath(path)).split(".")[0]
        data, attrs = {stem: data}, {stem: dict(attrs or {})}
    names = list(data)
    whole = {key: value for key, value in (attrs or {}).items() if not (key in names and isinstance(value, Mapping))}
    with create(path, format, overwrite=overwrite, digests=digests, statistics=statistics, **options) as session:
        declared = []
        spread = session.spread_attrs(whole)
        for name in names:
            given = data[name]
            cells = given if isinstance(given, np.ma.MaskedArray) else np.asarray(getattr(given, "values", given))
            own_dims = _per_array(dims, name, names)
            own_dims = getattr(given, "dims", None) if own_dims is None else own_dims
            if own_dims is not None and len(own_dims) != cells.ndim:
                raise ValueError(f"{len(own_dims)} dimension names for {cells.ndim} axes of {name!r}")
            own_fill = _per_array(fill, name, names)
            if isinstance(cells, np.ma.MaskedArray) and own_fill is not None:
                cells = cells.filled(own_fill)
            array = session.add(
                name,
                cells.shape,
                cells.dtype,
                dims=own_dims,
                coords=_own_coords(given, own_dims, coords),
                attrs={**spread, **dict(getattr(given, "attrs", {})), **_own_attrs(attrs, name)},
                chunks=_per_array(chunks, name, names),
                codec=_per_array(codec, name, names),
                fill=own_fill,
            )
            declared.append((array, cells))
        for array, cells in declared:
            array[...] = cells


def _own_attrs(attrs: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    found = (attrs or {}).get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def _own_coords(given: Any, dims: Any, coords: Mapping[str, Any] | None) -> dict[str, Any]:
    """Coordinates of the array's dimensions: those given, then those it has."""
    own = getattr(given, "coords", {})
    found = {}
    for dim in dims or ():
        if coords is not None and dim in coords:
            found[dim] = coords[dim]
        elif dim in own:
            found[dim] = own[dim]
    return found
