"""Writing of containers as one transaction."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from . import _native
from ._cast import exact
from ._coords import OF_CONTAINER, as_text
from ._errors import InvalidRequestError, UnsupportedError
from ._gather import expand
from ._storage import Source, absolute, located, resolve

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._types import Chunks, Codec, Index, Value

_CHUNK = 4 << 20


def _codecs(codec: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """`"zstd:3"`, `["shuffle", "zstd"]`, `[("zstd", {"level": 3})]`."""
    if codec is None:
        return []
    items = [codec] if isinstance(codec, str) else list(codec)
    return [(item, {}) if isinstance(item, str) else (item[0], dict(item[1])) for item in items]


def default_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Default chunk shape of at most 4 MiB: whole last axes, earlier ones divided."""
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
        raise ValueError(f"chunk shape has {len(given)} extents, the array has {len(shape)} axes")
    chunks = [extent if n in (-1, None) else int(n) for n, extent in zip(given, shape)]
    return tuple(max(1, n) for n in chunks)


def _native_order(dtype: Any) -> np.dtype[Any]:
    given: np.dtype[Any] = np.dtype(dtype)
    return given if given.isnative else given.newbyteorder("=")


def format_of(path: str, format: str) -> tuple[str, bool]:
    """Returns the id of a format, by name or file extension, and whether its arrays can be appended to."""
    for id, _, endings, _, appendable in _native.formats():
        if id == format or not format and any(path.endswith(f".{ending}") for ending in endings):
            return id, appendable
    return format, False


class WritableArray:
    """An array being written. `array[region] = values` stores cells; every cell must be written exactly once."""

    def __init__(
        self,
        session: Session,
        number: int,
        name: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: npt.DTypeLike,
        codec: Codec = None,
    ) -> None:
        self._session = session
        self._number = number
        self.name = name
        self.shape = shape
        self.chunks = chunks
        self.dtype = np.dtype(dtype)
        self.codec = codec
        # Cells of incomplete chunks, and which of them are written.
        self._partial: dict[tuple[int, ...], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
        # Cells that came with the declaration.
        self._values: Any = None
        self._lock = threading.Lock()
        # Written chunks, by grid index.
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
                    raise IndexError("the region of a write cannot have steps")
                region.append((start, max(start, stop)))
            else:
                at = int(item)
                if not -extent <= at < extent:
                    raise IndexError(f"index {at} is out of bounds for axis {axis} with size {extent}")
                region.append((at % extent, at % extent + 1))
        return region

    def __setitem__(self, key: Index, values: npt.ArrayLike) -> None:
        if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
            raise InvalidRequestError("masked values require a `fill` value", array=self.name)
        region = self._region(key)
        extents = tuple(stop - start for start, stop in region)
        given = self._cast(np.asarray(values))
        # An integer index removes its axis from the values too.
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
            self._store([a for a, _ in inner], np.asarray(cells[box], self.dtype))
        else:
            inner = [(start, start) for start, _ in region]
        if inner != region:
            self._store_edges(region, inner, cells)

    def _cast(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Casts values to the dtype of the array. Floats can be rounded to shorter floats; other conversions must be exact."""
        if self.dtype.kind == "O" and values.dtype.kind in "UTO":
            return values.astype(object)
        if values.dtype.kind == self.dtype.kind == "S" and values.dtype.itemsize <= self.dtype.itemsize:
            return values.astype(self.dtype)
        return exact(values, self.dtype, self.name)

    def _store(self, start: list[int], cells: np.ndarray[Any, Any]) -> None:
        if self.dtype.kind == "O":
            encoded = _text_cells(self.name, cells)
            ends = np.cumsum([len(cell) for cell in encoded], dtype=np.uint64).tolist()
            self._session._writer.write_text(self._number, start, list(cells.shape), ends, b"".join(encoded))
        else:
            self._session._writer.write(self._number, start, np.ascontiguousarray(cells).reshape(cells.shape))
        box = tuple(slice(a // c, -(-(a + n) // c)) for a, n, c in zip(start, cells.shape, self.chunks))
        self._stored[box] = True

    def _store_edges(self, region: list[tuple[int, int]], inner: list[tuple[int, int]], cells: np.ndarray[Any, Any]) -> None:
        """Retains cells of partially covered chunks until the chunks are complete."""
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
        """Retains the cells of one chunk. Returns the chunk once it is complete."""
        bounds = [(c * chunk, min((c + 1) * chunk, extent)) for c, chunk, extent in zip(coords, self.chunks, self.shape)]
        if all(a >= low and b <= high for (a, b), (low, high) in zip(bounds, inner)):
            return None
        if self._stored[coords]:
            raise InvalidRequestError("duplicate write of cells", array=self.name, chunk=coords)
        held = self._partial.get(coords)
        if held is None:
            extents = [b - a for a, b in bounds]
            held = self._partial[coords] = (np.empty(extents, self.dtype), np.zeros(extents, bool))
        here = [(max(a, low), min(b, high)) for (a, b), (low, high) in zip(bounds, region)]
        inside = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(here, bounds))
        given = tuple(slice(low - a, high - a) for (low, high), (a, _) in zip(here, region))
        buffer, done = held
        if done[inside].any():
            raise InvalidRequestError("duplicate write of cells", array=self.name, chunk=coords)
        buffer[inside] = cells[given]
        done[inside] = True
        if not done.all():
            return None
        del self._partial[coords]
        return [a for a, _ in bounds], buffer

    def _take(self, region: tuple[slice, ...], part: str) -> None:
        """Copies the cells of a region from a container; whole chunks are copied as stored if possible."""
        bounds = list(zip(self._region(region), self.chunks, self.shape))
        if not all(start % chunk == 0 and (stop % chunk == 0 or stop == extent) for (start, stop), chunk, extent in bounds):
            self[region] = _native.Source(part).view(0).get(())
            return
        grid = tuple(slice(start // chunk, -(-stop // chunk)) for (start, stop), chunk, _ in bounds)
        with self._lock:
            if self._stored[grid].any():
                raise InvalidRequestError("duplicate write of cells", array=self.name)
            self._stored[grid] = True
        self._session._writer.copy(self._number, [start for (start, _), _, _ in bounds], part)


class Session:
    """A container being written. Use it in `with`: it is committed at the end, and removed if an exception is raised."""

    def __init__(
        self,
        path: Source,
        format: str = "",
        *,
        overwrite: bool = False,
        digests: bool = True,
        statistics: bool | None = None,
        durability: str = "full",
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        target, settings = resolve(path, storage_options)
        self.path = absolute(target)
        self.format, _ = format_of(self.path, format)
        self._writer = _native.Writer(located(target, settings), format, overwrite, digests, statistics, options, durability)
        self._arrays: list[WritableArray] = []

    def add(
        self,
        name: str,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike | None = None,
        *,
        values: npt.ArrayLike | None = None,
        role: str | None = None,
        dims: Sequence[str] | None = None,
        coords: Mapping[str, Any] | None = None,
        attrs: Mapping[str, Any] | None = None,
        chunks: Chunks = None,
        codec: Codec = None,
        fill: Value | None = None,
        unlimited: Sequence[str] = (),
    ) -> WritableArray:
        """Creates an array. Create all arrays before writing the first cells.

        With `values`, shape and dtype need not be given, and the cells are written at the latest when the container is committed.
        Text of variable length (NumPy's `U`, `T` and `O`) needs them in formats whose cells all have one size. `role` is `data`,
        `coordinate`, `bounds`, `grid_mapping` or `ancillary`; a variable named as its only dimension is its index coordinate. `unlimited` are
        names of dimensions that NetCDF files declare as such.
        """
        if values is not None:
            values = np.asarray(values)
            shape = values.shape if shape is None else shape
            dtype = values.dtype if dtype is None else dtype
        if shape is None or dtype is None:
            raise TypeError(f"shape and dtype of {name!r}, or its values, must be given")
        dtype = _native_order(dtype)
        extents = tuple(int(n) for n in shape)
        cells = None
        if dtype.kind in "UTO":
            dtype = np.dtype(object)
            if values is not None:
                cells = _text_cells(name, values)
            chunks = [max(1, n) for n in extents]
        names = [""] * len(extents) if dims is None else list(dims)
        if len(names) != len(extents):
            raise ValueError(f"{len(names)} dimension names for {len(extents)} axes of {name!r}")
        unknown = [dim for dim in coords or () if dim not in names]
        if unknown:
            raise ValueError(f"coordinates of unknown dimension {unknown[0]!r} of {name!r}")
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
                "role": role,
                "text": None
                if cells is None
                else (max(map(len, cells), default=0), sum(map(len, cells)), any(c.endswith(b"\0") for c in cells)),
                "binary": cells is not None and _is_binary(values),
                "unlimited": [dim for dim in names if dim and dim in unlimited],
            }
        )
        array = WritableArray(self, number, name, extents, sizes, dtype, codec)
        array._values = values
        self._arrays.append(array)
        return array

    def set_attrs(self, attrs: Mapping[str, Any], group: str = "") -> None:
        """Sets attributes of the container, or of one of its groups by its path. Arrays of a group are named `a/b/name`."""
        if group:
            self._writer.set_group(group, dict(attrs))
        else:
            self._writer.set_attributes(dict(attrs))

    def spread_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Sets the container attributes that the format supports. Returns the others under the names by which each array stores
        them."""
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
        """Publishes the container atomically. Raises ValueError if cells are missing."""
        for array in self._arrays:
            if array._values is not None and not array._stored.any() and not array._partial:
                array[...] = array._values
        for array in self._arrays:
            for coords, (_, done) in array._partial.items():
                self.abandon()
                message = f"{np.count_nonzero(~done)} cells of a chunk are missing"
                raise InvalidRequestError(message, array=array.name, chunk=coords)
        self._writer.commit()

    def abandon(self) -> None:
        """Discards the container."""
        self._writer.abandon()

    def __repr__(self) -> str:
        names = ", ".join(array.name for array in self._arrays) or "no arrays yet"
        return _native.escape(f"<tesseral.Session {self.path!r} {self.format}: {names}>")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abandon()


def _labels(dim: str, given: Any, extent: int) -> list[str] | np.ndarray[Any, Any] | None:
    if given is None:
        return None
    values = np.asarray(getattr(given, "values", given))
    if values.shape != (extent,):
        raise ValueError(f"coordinates of {dim!r} have shape {values.shape}, the dimension has {extent} positions")
    if values.dtype.kind in "biufMm":
        return values.astype(_native_order(values.dtype))
    return [as_text(value) for value in values]


def _is_binary(values: Any) -> bool:
    """Whether all cells are bytes, and there are any."""
    return values.dtype.kind == "O" and values.size > 0 and all(isinstance(value, bytes) for value in values.flat)


def _text_cells(name: str, values: Any) -> list[bytes]:
    """The UTF-8 bytes of each cell."""
    cells = []
    for value in np.asarray(values).astype(object).ravel():
        if not isinstance(value, (str, bytes)):
            raise InvalidRequestError(f"a cell of {type(value).__name__} among text", array=name)
        cells.append(value.encode() if isinstance(value, str) else value)
    return cells


@overload
def create(
    path: Source,
    format: str = "",
    *,
    overwrite: bool = False,
    digests: bool = True,
    statistics: bool | None = None,
    durability: str = "full",
    storage_options: Mapping[str, Any] | None = None,
    **options: object,
) -> Session: ...
@overload
def create(path: Source, format: Mapping[str, Any], *, overwrite: bool = False, **options: object) -> None: ...
def create(path: Source, format: str | Mapping[str, Any] = "", *, overwrite: bool = False, **options: object) -> Session | None:
    """Creates a container, to be used in `with`. The format is given by the file extension unless it is named: `tet`, `tensogram`,
    `tiledb`.

    `.tet` files have exact statistics of every chunk, which other readers ignore: `statistics=True` stores zone maps for them as well,
    `statistics=False` none at all. `digests=False` stores no digests, and statistics only on request. `durability="none"` does not
    synchronize the output with the device, for scratch data. Other options are those of the format, such as `timestamp` of TileDB arrays.

    With a schema instead of the format, creates an empty TileDB array, for use with `append`:
    `{"dims": [{"name", "dtype", "domain", "tile", "current", "labels"}], "fields": [{"name", "dtype", "cell", "nullable", "fill",
    "codecs", "enumeration"}], "sparse", "duplicates", "capacity", "cell_order", "tile_order", "coordinates", "offsets", "validity"}`; `dims` and
    `fields` are required. `labels` of a dimension are `[{"name", "dtype", "order"}]`; `append(path, values, array=name)` fills them.
    """
    given: dict[str, Any] = dict(options)
    if isinstance(format, Mapping):
        storage = given.pop("storage_options", None)
        declared(path, format, overwrite, given, storage).commit()
        return None
    return Session(path, format, overwrite=overwrite, **given)


def declared(
    path: Source,
    schema: Mapping[str, Any],
    overwrite: bool,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None = None,
) -> _native.Writer:
    """Starts an empty array."""
    import json

    return _native.declare(located(path, storage_options), json.dumps(schema, default=_plain), "", overwrite, dict(options))


def _plain(value: Any) -> Any:
    """Converts types without a JSON equivalent: dtypes to names, NumPy numbers and dates to Python, arrays to lists."""
    if isinstance(value, (np.dtype, type)):
        name = np.dtype(value).newbyteorder("=").name
        return {"str": "string_utf8", "object": "string_utf8"}.get(name, name)
    if isinstance(value, (np.ndarray, set, range)):
        return list(value)
    if isinstance(value, np.generic) and value.dtype.kind != "M":
        return int(value.astype(np.int64)) if value.dtype.kind == "m" else value.item()
    return as_text(value)


def _per_array(option: Any, name: str, names: Sequence[str]) -> Any:
    """Returns an option given for all arrays, or by name in a mapping whose keys are all array names."""
    if isinstance(option, Mapping) and option and all(key in names for key in option):
        return option.get(name)
    return option


def write(
    path: Source,
    data: object,
    *,
    dims: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
    chunks: Chunks | Mapping[str, Chunks] = None,
    codec: Codec | Mapping[str, Codec] = None,
    fill: Value | Mapping[str, Value | None] | None = None,
    format: str = "",
    overwrite: bool = False,
    digests: bool = True,
    statistics: bool | None = None,
    durability: str = "full",
    **options: object,
) -> None:
    """Writes arrays, given by name, to a new container.

    An array is anything that NumPy accepts, or has its own `dims`, `coords` and `attrs`, as in xarray; a Dataset is accepted as
    well. `dims`, `chunks`, `codec` and `fill` apply to all arrays, or are mappings by array name. `coords` is a mapping by
    dimension. In `attrs`, a mapping under the name of an array belongs to that array, everything else to the container. `path` can
    be a URL; `storage_options` has settings of its object store, as in `open`.
    """
    if hasattr(data, "data_vars"):
        from . import xarray

        dataset: Any = data
        passed: dict[str, Any] = {**options, "chunks": chunks, "codec": codec, "fill": fill, "overwrite": overwrite}
        passed |= {"digests": digests, "statistics": statistics, "durability": durability}
        xarray.write(dataset.assign_attrs(attrs or {}), path, format, **passed)
        return
    if not isinstance(data, Mapping):
        stem = os.path.basename(resolve(path)[0].rstrip("/")).split(".")[0]
        data, attrs = {stem: data}, {stem: dict(attrs or {})}
    names = list(data)
    whole = {key: value for key, value in (attrs or {}).items() if not (key in names and isinstance(value, Mapping))}
    own: dict[str, Any] = {**options, "digests": digests, "statistics": statistics, "durability": durability}
    with create(path, format, overwrite=overwrite, **own) as session:
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
                values=cells if cells.dtype.kind in "UTO" else None,
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
    """Coordinates of the array's dimensions: those given, then its own."""
    own = getattr(given, "coords", {})
    found = {}
    for dim in dims or ():
        if coords is not None and dim in coords:
            found[dim] = coords[dim]
        elif dim in own:
            found[dim] = own[dim]
    return found
