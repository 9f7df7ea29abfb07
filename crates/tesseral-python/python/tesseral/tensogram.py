"""Tensogram messages, without files: encode, decode, scan, stream and validate.

>>> import numpy as np
>>> from tesseral import tensogram
>>> message = tensogram.encode({"base": [{"name": "t2m"}]}, [({"compression": "zstd"}, np.arange(6.0).reshape(2, 3))])
>>> metadata, objects = tensogram.decode(message)
>>> metadata.base[0]["name"], objects[0][1].shape
('t2m', (2, 3))
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import _native

__all__ = [
    "Damaged",
    "Decoder",
    "Issue",
    "Message",
    "MessageEnd",
    "MessageObject",
    "Metadata",
    "Skipped",
    "StreamingEncoder",
    "TensogramFile",
    "Validation",
    "decode",
    "decode_descriptors",
    "decode_metadata",
    "decode_object",
    "decode_range",
    "encode",
    "encode_pre_encoded",
    "scan",
    "scan_with_report",
    "validate",
]

Descriptor = dict[str, Any]
Cells = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Metadata:
    """Metadata of a message: `base` has a mapping per object, `extra` the keys of the message, `reserved` those of the library."""

    base: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    reserved: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        """Returns a key of the first object with that key, otherwise of the message."""
        for keys in (*self.base, self.extra):
            if key in keys:
                return keys[key]
        raise KeyError(key)


class Message(NamedTuple):
    """A decoded message: metadata, and descriptor and cells of each object."""

    metadata: Metadata
    objects: list[tuple[Descriptor, Cells]]


class Skipped(NamedTuple):
    """Bytes outside messages, and the reason."""

    offset: int
    length: int
    check: str
    detail: str


@dataclass(frozen=True)
class MessageObject:
    """An object of a stream, emitted when its last byte has been fed."""

    index: int
    descriptor: Descriptor
    keys: dict[str, Any]
    cells: Cells


class MessageEnd(NamedTuple):
    """The end of a valid message of a stream."""

    offset: int
    length: int
    metadata: Metadata


class Damaged(NamedTuple):
    """A damaged message of a stream; objects emitted before remain valid."""

    offset: int
    error: Exception


Event = MessageObject | MessageEnd | Damaged | Skipped


class Issue(NamedTuple):
    """One finding of a validation."""

    code: str
    level: str
    severity: str
    object_index: int | None
    byte_offset: int | None
    description: str


@dataclass(frozen=True)
class Validation:
    """Report of `validate`. True if no error was found. `messages` has issues, number of objects and whether all hashes were
    verified, for each message."""

    ok: bool
    skipped: list[Skipped]
    messages: list[tuple[list[Issue], int, bool]]

    def __bool__(self) -> bool:
        return self.ok

    @property
    def issues(self) -> list[Issue]:
        """Issues of all messages."""
        return [issue for issues, _, _ in self.messages for issue in issues]


def _bytes(buffer: Any) -> Cells:
    """Wraps any buffer as a read-only array: cells can be views of it."""
    plain = isinstance(buffer, np.ndarray)
    out = np.ascontiguousarray(buffer).reshape(-1).view(np.uint8) if plain else np.frombuffer(buffer, np.uint8)
    out.flags.writeable = False
    return out


_KINDS = {"bfloat16": "uint16", "bitmask": "uint8"}


def _shaped(descriptor: Descriptor, cells: Cells, native: bool = True) -> Cells:
    """Bytes as cells. bfloat16 is returned as its bits, bitmasks as packed bytes, because NumPy has no dtype for them."""
    dtype: np.dtype[Any] = np.dtype(_KINDS.get(descriptor["dtype"], descriptor["dtype"]))
    if not native and descriptor.get("byte_order") == "big":
        dtype = dtype.newbyteorder(">")
    out = cells.view(dtype)
    return out if descriptor["dtype"] == "bitmask" else out.reshape(descriptor["shape"])


def _metadata(found: dict[str, Any]) -> Metadata:
    return Metadata(found.get("base", []), found.get("_extra_", {}), found.get("_reserved_", {}))


def _given(metadata: Mapping[str, Any] | Metadata | None) -> Mapping[str, Any]:
    """Drops reserved keys, so that metadata of one message can be used for another."""
    if isinstance(metadata, Metadata):
        base = [{key: value for key, value in keys.items() if key != "_reserved_"} for keys in metadata.base]
        return {**metadata.extra, "base": base}
    return metadata or {}


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return strides


def _described(descriptor: Mapping[str, Any] | None, cells: Any) -> tuple[Descriptor, Cells]:
    """Returns a complete descriptor, with dtype and shape of the cells, and the bytes of the cells."""
    given = dict(descriptor or {})
    order = given.get("byte_order")
    if isinstance(cells, (bytes, bytearray, memoryview)):
        array = np.frombuffer(cells, np.uint8)
        order = order or ("little" if np.little_endian else "big")
    else:
        array = np.ascontiguousarray(cells)
        named = str(given.get("dtype", array.dtype.newbyteorder("=")))
        given["dtype"] = named
        given.setdefault("shape", [int(n) for n in np.shape(cells)])
        order = order or ("little" if np.little_endian else "big")
        wanted = array.dtype.newbyteorder("<" if order == "little" else ">")
        array = array.astype(wanted, copy=False)
    shape = [int(n) for n in given.get("shape", [array.size])]
    given |= {"shape": shape, "ndim": len(shape), "byte_order": order, "dtype": given.get("dtype", "uint8")}
    given.setdefault("type", "ntensor")
    given.setdefault("strides", _strides(shape))
    for stage in ("encoding", "filter", "compression"):
        given.setdefault(stage, "none")
    return given, array.reshape(-1).view(np.uint8)


def encode_options(
    hash: str | bool | None = "xxh3",
    aggregate_hash: str | None = None,
    allow_nan: bool = False,
    allow_inf: bool = False,
    nan_mask_method: str | None = None,
    pos_inf_mask_method: str | None = None,
    neg_inf_mask_method: str | None = None,
    small_mask_threshold_bytes: int | None = None,
    reproducible: bool = False,
    block_hashes: bool = False,
) -> dict[str, Any]:
    if hash not in ("xxh3", True, None, False):
        raise ValueError(f"hash must be 'xxh3' or None, not {hash!r}")
    methods = [nan_mask_method, pos_inf_mask_method, neg_inf_mask_method]
    return {
        "hash": bool(hash),
        "aggregate_hash": aggregate_hash,
        "block_hashes": block_hashes,
        "allow_nan": allow_nan,
        "allow_inf": allow_inf,
        "mask_methods": [method or "roaring" for method in methods],
        "small_mask": 128 if small_mask_threshold_bytes is None else small_mask_threshold_bytes,
        "reproducible": reproducible,
    }


def decode_options(
    native_byte_order: bool = True,
    restore_non_finite: bool = True,
    verify_hash: bool = True,
    require_hash: bool = False,
    verify_ranges: bool = False,
) -> dict[str, Any]:
    return {
        "native_byte_order": native_byte_order,
        "restore_non_finite": restore_non_finite,
        "verify_hash": verify_hash,
        "verify_ranges": verify_ranges,
        "require_hash": require_hash,
    }


Objects = Iterable[tuple[Mapping[str, Any] | None, Any]]


def encode(metadata: Mapping[str, Any] | Metadata | None, objects: Objects, **options: Any) -> bytes:
    """Encodes objects, each a descriptor and its cells, into a message. `dtype` and `shape` can be omitted from a descriptor if the
    cells have them; `encoding`, `filter` and `compression` default to `"none"`.

    Options: `hash` (`"xxh3"` or None), `aggregate_hash`, `allow_nan`, `allow_inf`, `nan_mask_method` and others,
    `small_mask_threshold_bytes`; `reproducible=True` omits time and UUID, so that equal input produces equal bytes. `block_hashes=True`
    adds hashes of the blocks of objects above 128 KiB, which `decode_range` verifies and the reference ignores.
    """
    pairs = [_described(descriptor, cells) for descriptor, cells in objects]
    return _native.encode(_given(metadata), pairs, encode_options(**options), False)


def encode_pre_encoded(metadata: Mapping[str, Any] | Metadata | None, objects: Objects, **options: Any) -> bytes:
    """Encodes a message from payloads that are already encoded as their descriptors declare."""
    pairs = [_described(descriptor, bytes(payload)) for descriptor, payload in objects]
    return _native.encode(_given(metadata), pairs, encode_options(**options), True)


def decode(buffer: Any, **options: Any) -> Message:
    """Decodes the message at the start of a buffer. Uncompressed cells in the requested byte order are read-only views of the
    buffer.

    Options: `native_byte_order`, `restore_non_finite`, `verify_hash` (default True), `require_hash` (default False).
    """
    how = decode_options(**options)
    metadata, objects = _native.decode(_bytes(buffer), how)
    return Message(_metadata(metadata), [(d, _shaped(d, cells, how["native_byte_order"])) for d, cells in objects])


def decode_object(buffer: Any, index: int, **options: Any) -> tuple[Metadata, Descriptor, Cells]:
    """Decodes one object of the message at the start of a buffer."""
    how = decode_options(**options)
    metadata, [(descriptor, cells)] = _native.decode(_bytes(buffer), how, index)
    return _metadata(metadata), descriptor, _shaped(descriptor, cells, how["native_byte_order"])


def decode_metadata(buffer: Any, **options: Any) -> Metadata:
    """Returns the metadata of the message at the start of a buffer."""
    return _metadata(_native.decode_descriptors(_bytes(buffer), decode_options(**options))[0])


def decode_descriptors(buffer: Any, **options: Any) -> tuple[Metadata, list[Descriptor]]:
    """Returns metadata and descriptors of the message at the start of a buffer. Does not read payloads."""
    metadata, descriptors = _native.decode_descriptors(_bytes(buffer), decode_options(**options))
    return _metadata(metadata), descriptors


def decode_range(
    buffer: Any, index: int, ranges: Sequence[tuple[int, int]], *, join: bool = False, verify: bool = False, **options: Any
) -> Any:
    """Decodes ranges of cells, each `(first, count)`, of one object: a list of one-dimensional arrays, or with `join` one array.

    The hashes of the blocks that the ranges touch are verified. An object without such hashes has one over all of it, which costs as
    much as reading the object: it is verified with `verify=True` (or `require_hash=True`), and not by default, as in the reference.
    `TensogramFile.decode_range` verifies each object, or block, once.
    """
    how = decode_options(**options, verify_ranges=verify)
    return _ranges(*_native.decode_range(_bytes(buffer), index, list(ranges), how), how, join)


def _ranges(descriptor: Descriptor, parts: list[Any], how: dict[str, Any], join: bool) -> Any:
    """Ranges of cells as arrays of the descriptor's dtype."""
    found = [_shaped({**descriptor, "shape": [-1]}, part, how["native_byte_order"]) for part in parts]
    return np.concatenate(found) if join else found


def scan(buffer: Any) -> list[tuple[int, int]]:
    """Returns offset and length of each message of a buffer."""
    return _native.scan(_bytes(buffer))[0]


def scan_with_report(buffer: Any) -> tuple[list[tuple[int, int]], list[Skipped]]:
    """As `scan`, and returns bytes outside messages."""
    messages, skipped = _native.scan(_bytes(buffer))
    return messages, [Skipped(*one) for one in skipped]


def validate(buffer: Any, level: str = "default", canonical: bool = False) -> Validation:
    """Validates all messages of a buffer: `quick` (structure), `default` (plus metadata and hashes), `checksum` or `full`
    (decodes)."""
    ok, skipped, messages = _native.validate(_bytes(buffer), level, canonical)
    reports = [([Issue(*issue) for issue in issues], count, verified) for issues, count, verified in messages]
    return Validation(ok, [Skipped(*one) for one in skipped], reports)


class StreamingEncoder:
    """Encodes a message object by object, in memory or to a file, pipe or socket with `write`. Options are those of `encode`."""

    def __init__(self, metadata: Mapping[str, Any] | Metadata | None = None, file: Any = None, **options: Any) -> None:
        self._begin = (_given(metadata), encode_options(**options), file)
        self._stream = _native.MessageStream(*self._begin)

    def write_preceder(self, keys: Mapping[str, Any]) -> None:
        """Writes preceder metadata of the next object."""
        self._stream.preceder(dict(keys))

    def write_object(self, descriptor: Mapping[str, Any] | None, cells: Any) -> None:
        """Encodes an object and writes it."""
        self._stream.object(*_described(descriptor, cells), False)

    def write_object_pre_encoded(self, descriptor: Mapping[str, Any], payload: Any) -> None:
        """Writes an object whose payload is already encoded as its descriptor declares."""
        self._stream.object(*_described(descriptor, bytes(payload)), True)

    def __len__(self) -> int:
        return len(self._stream)

    def finish(self) -> bytes | None:
        """Ends the message without a length in its preamble. Returns its bytes unless they were written to a file."""
        return self._stream.finish(False)

    def finish_backfilled(self) -> bytes | None:
        """Ends the message and writes its length into the preamble. A file must have `seek`."""
        return self._stream.finish(True)

    def finish_and_reset(self) -> bytes | None:
        """As `finish`, and starts the next message with the same metadata."""
        return self._again(False)

    def finish_and_reset_backfilled(self) -> bytes | None:
        """As `finish_backfilled`, and starts the next message with the same metadata."""
        return self._again(True)

    def _again(self, backfill: bool) -> bytes | None:
        message = self._stream.finish(backfill)
        self._stream = _native.MessageStream(*self._begin)
        return message


class Decoder:
    """Decodes messages from pieces of arbitrary size. Options are those of `decode`."""

    def __init__(self, **options: Any) -> None:
        self._how = decode_options(**options)
        self._decoder = _native.MessageDecoder(self._how)

    def feed(self, piece: Any) -> list[Event]:
        """Feeds the next bytes and returns the resulting events in order."""
        return [self._event(*event) for event in self._decoder.feed(_bytes(piece))]

    def finish(self) -> list[Event]:
        """Ends the stream and returns unfinished messages as damaged."""
        return [self._event(*event) for event in self._decoder.feed(None)]

    def _event(self, kind: str, *known: Any) -> Event:
        if kind == "object":
            index, descriptor, keys, cells = known
            return MessageObject(index, descriptor, keys, _shaped(descriptor, cells, self._how["native_byte_order"]))
        if kind == "message":
            offset, length, metadata = known
            return MessageEnd(offset, length, _metadata(metadata))
        return Damaged(*known) if kind == "damaged" else Skipped(*known[0])


class TensogramFile(Sequence[Message]):
    """A file of messages, read on demand; an item is a decoded message."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = _native.MessageFile(self.path)

    def __repr__(self) -> str:
        return _native.escape(f"<tesseral.tensogram.TensogramFile {self.path!r}>")

    def __len__(self) -> int:
        return len(self._file)

    def _number(self, index: int) -> int:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"message {index} of {count}")
        return index % count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self.decode_message(index)

    def __iter__(self) -> Iterator[Message]:
        return (self.decode_message(i) for i in range(len(self)))

    def read_message(self, index: int) -> bytes:
        """Returns the bytes of a message."""
        return self._file.read(self._number(index)).tobytes()

    def decode_message(self, index: int, **options: Any) -> Message:
        """Decodes a message. Options are those of `decode`."""
        return decode(self._file.read(self._number(index)), **options)

    def decode_range(
        self, index: int, object: int, ranges: Sequence[tuple[int, int]], *, join: bool = False, **options: Any
    ) -> Any:
        """Decodes ranges of cells, each `(first, count)`, of one object of a message. Reads only the required bytes. The
        hash of the object is verified the first time, and never with `verify_hash=False`."""
        how = decode_options(**options)
        return _ranges(*self._file.range(self._number(index), object, list(ranges), how), how, join)

    def skipped(self) -> list[Skipped]:
        """Returns bytes outside messages."""
        return [Skipped(*one) for one in self._file.skipped()]

    def append(self, metadata: Mapping[str, Any] | Metadata | None, objects: Objects, **options: Any) -> None:
        """Encodes a message and appends it durably. Creates the file if it does not exist."""
        self._file.append(encode(metadata, objects, **options))

    def append_message(self, message: bytes) -> None:
        """Appends the bytes of a complete message durably."""
        self._file.append(bytes(message))
