"""Containers as read-only Zarr stores: version 3 metadata, and chunks encoded on demand."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest

from . import _native
from ._array import Array
from ._container import Container

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype

__all__ = ["ZarrStore"]


class ZarrStore(Store):
    """Dense arrays of a container as a Zarr group. `zarr.open_group(ZarrStore(tesseral.open(path)), mode="r")`.

    Chunks are those of the array, uncompressed, little-endian. Arrays without a Zarr core dtype are omitted.
    """

    def __init__(self, container: Container) -> None:
        super().__init__(read_only=True)
        self._container = container
        self._arrays: dict[str, Array] = {}
        for name in container:
            array = container[name]
            if not array.sparse and not array.nullable and _data_type(array.dtype) is not None and _is_path(name):
                self._arrays[name] = array
        self._groups = {""}
        for name in self._arrays:
            parts = name.split("/")[:-1]
            self._groups.update("/".join(parts[:i]) for i in range(1, len(parts) + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and other._container._pinned().token() == self._container._pinned().token()

    def __repr__(self) -> str:
        return _native.escape(f"ZarrStore({self._container.url!r})")

    def __reduce__(self) -> tuple[Any, ...]:
        return ZarrStore, (self._container,)

    # Reading

    def _bytes(self, key: str) -> bytes | None:
        owner, _, last = key.rpartition("/")
        if last == "zarr.json":
            return self._metadata(owner)
        name, inside, coords = key.partition("/c/")
        if not inside and key.endswith("/c"):
            name, coords = key[:-2], ""
        array = self._arrays.get(name)
        return None if array is None else _chunk(array, coords)

    def _metadata(self, owner: str) -> bytes | None:
        if owner in self._arrays:
            return json.dumps(_array_metadata(self._arrays[owner])).encode()
        if owner in self._groups:
            attrs = _jsonable(self._container.attrs) if owner == "" else {}
            return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attrs}).encode()
        return None

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        found = self._bytes(key)
        if found is None:
            return None
        if isinstance(byte_range, RangeByteRequest):
            found = found[byte_range.start : byte_range.end]
        elif isinstance(byte_range, OffsetByteRequest):
            found = found[byte_range.offset :]
        elif isinstance(byte_range, SuffixByteRequest):
            found = found[-byte_range.suffix :]
        return prototype.buffer.from_bytes(found)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        owner, _, last = key.rpartition("/")
        if last == "zarr.json":
            return owner in self._arrays or owner in self._groups
        return self._bytes(key) is not None

    # Listing

    def _keys(self) -> Iterable[str]:
        for group in sorted(self._groups):
            yield f"{group}/zarr.json" if group else "zarr.json"
        for name, array in self._arrays.items():
            yield f"{name}/zarr.json"
            counts = [-(-n // c) for n, c in zip(array.shape, array.chunks or array.shape)]
            for coords in np.ndindex(*counts):
                yield "/".join([name, "c", *map(str, coords)])

    async def list(self) -> AsyncIterator[str]:
        for key in self._keys():
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self._keys():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        seen = set()
        for key in self._keys():
            if key.startswith(start):
                child = key[len(start) :].split("/")[0]
                if child not in seen:
                    seen.add(child)
                    yield child

    # Writing is not supported

    @property
    def supports_writes(self) -> bool:
        return False

    @property
    def supports_deletes(self) -> bool:
        return False

    @property
    def supports_partial_writes(self) -> Literal[False]:
        return False

    @property
    def supports_listing(self) -> bool:
        return True

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        self._check_writable()

    async def delete(self, key: str) -> None:
        self._check_writable()


def _is_path(name: str) -> bool:
    """Returns whether a name is a valid Zarr path and not a reserved key."""
    parts = name.split("/")
    return all(part not in ("", ".", "..", "zarr.json", "c") and not part.startswith("__") for part in parts)


def _data_type(dtype: np.dtype[Any]) -> Any:
    """Zarr's name of a dtype; None if its core has no equivalent."""
    if dtype.kind in "biufc":
        return dtype.name
    if dtype.kind in "Mm":
        unit, scale = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": scale}}
    return None


def _fill_value(array: Array) -> Any:
    """The fill value for Zarr: bits in hexadecimal where JSON has no number."""
    kind = array.dtype.kind
    if kind in "Mm":
        return int(np.asarray(array.fill).astype(np.int64)) if array.fill is not None else 0
    value = array.dtype.type(0) if array.fill is None else array.dtype.type(array.fill)
    if kind == "b":
        return bool(value)
    if kind in "iu":
        return int(value)
    if kind == "c":
        return [_float(value.real), _float(value.imag)]
    return _float(value)


def _float(value: Any) -> Any:
    if np.isfinite(value):
        return float(value)
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _array_metadata(array: Array) -> dict[str, Any]:
    chunks = list(array.chunks or array.shape)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": _data_type(array.dtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [max(1, n) for n in chunks]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": _fill_value(array),
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": _jsonable(_attributes(array)),
        "dimension_names": list(array.dims),
        "storage_transformers": [],
    }


def _attributes(array: Array) -> dict[str, Any]:
    """Attributes with missing values declared as xarray reads them from Zarr: `_FillValue` in its encoding, others in `missing_value`."""
    if not array.missing:
        return dict(array.attrs)
    attrs = {name: value for name, value in array.attrs.items() if name not in ("_FillValue", "missing_value", "fill_value")}
    first, *others = array.missing
    attrs["_FillValue"] = _declared(array.dtype, first)
    if others:
        attrs["missing_value"] = [_number(array.dtype, value) for value in others]
    return attrs


def _declared(dtype: np.dtype[Any], value: Any) -> Any:
    """A number in an attribute: floats as the bits of a double in base 64."""
    if dtype.kind == "f":
        return base64.standard_b64encode(struct.pack("<d", float(value))).decode()
    return _number(dtype, value)


def _number(dtype: np.dtype[Any], value: Any) -> Any:
    if dtype.kind in "Mm":
        return int(np.asarray(value).astype(np.int64))
    return value.item() if isinstance(value, np.generic) else value


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _jsonable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        return _jsonable(value.tolist())
    if isinstance(value, float):
        return _float(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _declared_cells(array: Array, box: tuple[slice, ...]) -> np.ndarray[Any, Any]:
    """Cells of a box, with a declared missing value in place of unwritten ones where the array declares any."""
    if not array.missing or not array._view.has_gaps():
        return np.asarray(array[box])
    cells = array.isel(dict(zip(array.dims, box))).masked()
    unwritten = np.ma.getmaskarray(cells) & (cells.data == array.fill)
    return np.asarray(np.where(unwritten, array.missing[0], cells.data), array.dtype)


def _chunk(array: Array, coords: str) -> bytes | None:
    """Encodes one chunk, padded at the edges."""
    try:
        numbers = [int(part) for part in coords.split("/")] if coords else []
    except ValueError:
        return None
    chunks = array.chunks or array.shape
    if len(numbers) != len(chunks):
        return None
    box = tuple(slice(n * c, min((n + 1) * c, extent)) for n, c, extent in zip(numbers, chunks, array.shape))
    if any(s.start >= s.stop or n < 0 for s, n in zip(box, numbers)):
        return None
    cells = _declared_cells(array, box)
    if cells.shape != tuple(chunks):
        whole = np.zeros(chunks, array.dtype) if array.fill is None else np.full(chunks, array.fill, array.dtype)
        whole[tuple(slice(0, n) for n in cells.shape)] = cells
        cells = whole
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
