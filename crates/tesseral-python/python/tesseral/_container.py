"""Opened containers."""

from __future__ import annotations

import builtins
import datetime
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native, _show
from ._array import Array
from ._errors import ChangedError, InvalidRequestError, NotFoundError
from ._write import OF_CONTAINER

if TYPE_CHECKING:
    import xarray as xr

#: Environment variable with the path of the key file of encrypted arrays.
KEY_FILE = "TESSERAL_KEY_FILE"
AsOf = "int | str | datetime.datetime | np.datetime64 | tuple[Any, Any] | None"


def time_range(as_of: Any) -> tuple[int, int] | None:
    """First and last millisecond of an `as_of` argument."""
    if as_of is None:
        return None
    if isinstance(as_of, tuple):
        start, stop = as_of
        low = 0 if start is None else _native.as_of(f"{_text(start)}..")[0]
        return low, 2**64 - 1 if stop is None else _native.as_of(_text(stop))[1]
    return _native.as_of(_text(as_of))


def _text(moment: Any) -> str:
    if isinstance(moment, datetime.datetime):
        return str(int(moment.timestamp() * 1000))
    return str(moment)


class KeySource:
    """Source of the key of encrypted arrays. The key itself is neither printed nor pickled.

    A pickled handle reads its key from a file, a function, or the file named by the environment; a key given as bytes cannot be
    pickled.
    """

    def __init__(self, key: bytes | str | Callable[[], bytes] | None = None, file: str | os.PathLike[str] | None = None) -> None:
        if key is not None and file is not None:
            raise ValueError("key and key_file are mutually exclusive")
        self._file = None if file is None else os.path.abspath(file)
        self._call = key if callable(key) else None
        self._bytes = key.encode() if isinstance(key, str) else None if callable(key) else key

    def read(self) -> bytes | None:
        """Reads the key; None if there is none."""
        if self._bytes is not None:
            return self._bytes
        if self._call is not None:
            return self._call()
        file = self._file or os.environ.get(KEY_FILE)
        if not file:
            return None
        with builtins.open(file, "rb") as opened:
            return opened.read()

    def __repr__(self) -> str:
        if self._bytes is not None:
            return "KeySource(hidden)"
        return f"KeySource({self._call or self._file or os.environ.get(KEY_FILE)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._bytes is not None and not os.environ.get(KEY_FILE):
            error = InvalidRequestError("cannot pickle a handle of an encrypted array: its key was given as bytes")
            error.hint = f"open it with key_file=, with a function as key=, or set {KEY_FILE}"
            raise error
        return KeySource, (self._call, self._file)


@dataclass(frozen=True)
class Pinned:
    """Arguments to reopen the same state, in this process or on another machine with access to the path."""

    url: str
    as_of: tuple[int, int] | None
    stamp: tuple[int, int] | None
    memory_limit: int | None
    key: KeySource
    digests: bool
    max_expansion: int | None = None
    storage_options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Container:
        if self.stamp is not None and _stamp(self.url) != self.stamp:
            raise ChangedError(f"{self.url} changed since a handle to it was pickled", path=self.url)
        return Container(
            self.url,
            self.as_of,
            self.memory_limit,
            self.key,
            self.digests,
            self.max_expansion,
            dict(self.storage_options),
        )

    def token(self) -> tuple[Any, ...]:
        return (self.url, self.as_of, self.stamp)


def _is_url(url: str) -> bool:
    """Whether the source is in an object store or on a web server."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and len(scheme) > 1 and scheme.isalnum() and scheme != "file"


# Parts of the names of storage options whose values are secret. Pickled handles leave them out: a worker has its own credentials.
_SECRETS = ("key", "secret", "token", "password", "credential", "sas", "account_json", "service_account")


def storage_settings(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Storage options as text, with those of nested `client_kwargs`, as fsspec has them."""
    flat: dict[str, str] = {}
    for name, value in (options or {}).items():
        if isinstance(value, Mapping):
            flat.update(storage_settings(value))
        elif value is not None:
            flat[name] = str(value)
    return flat


def _stamp(url: str) -> tuple[int, int] | None:
    path = url[7:] if url.startswith("file://") else url
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size)


class Container(Mapping[str, Array]):
    """An opened file or folder: arrays by name. An immutable snapshot."""

    def __init__(
        self,
        url: str,
        as_of: tuple[int, int] | None,
        memory_limit: int | None,
        key: KeySource,
        digests: bool = True,
        max_expansion: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        now = int(time.time() * 1000)
        storage = storage_settings(storage_options)
        self._source = _native.Source(
            url, as_of, memory_limit, key.read(), digests, max_expansion=max_expansion, storage=storage
        )
        path = url[7:] if url.startswith("file://") else url
        self._url = url if _is_url(url) else os.path.abspath(path)
        self._storage = tuple((k, v) for k, v in storage.items() if not any(s in k.lower() for s in _SECRETS))
        self._as_of = as_of if as_of is not None or not self._source.versions else (0, now)
        self._stamp = None if self._source.versions else _stamp(self._url)
        self._memory_limit = memory_limit
        self._key = key
        self._digests = digests
        self._max_expansion = max_expansion
        self._keys: dict[str, tuple[int, int]] | None = None

    def _pinned(self) -> Pinned:
        return Pinned(
            self._url,
            self._as_of,
            self._stamp,
            self._memory_limit,
            self._key,
            self._digests,
            self._max_expansion,
            self._storage,
        )

    def _entries(self) -> dict[str, tuple[int, int]]:
        """Maps names to array and field indexes. The fields of an only array are available by their own names."""
        if self._keys is None:
            names = self._source.names()
            if len(names) == 1:
                fields = [name for name, *_ in self._source.view(0).fields()]
                self._keys = {(name or names[0]): (0, i) for i, name in enumerate(fields)}
            else:
                self._keys = {name: (i, 0) for i, name in enumerate(names)}
                only = self._source.only_array() if names else None
                fields = [] if only is None else [name for name, *_ in self._source.view(only).fields()]
                if only is not None and len(fields) > 1:
                    del self._keys[names[only]]
                    self._keys = {name: (only, i) for i, name in enumerate(fields)} | self._keys
        return self._keys

    def __getitem__(self, name: str) -> Array:
        if not isinstance(name, str):
            raise TypeError(f"array names must be str, not {type(name).__name__}")
        found = self._entries().get(name)
        if found is None:
            try:
                found = (self._source.find(name), 0)
            except NotFoundError as error:
                error.message = f"unknown array {name!r}; available: {', '.join(map(repr, list(self)[:8])) or 'none'}"
                raise
        return Array(self, self._source.view(*found))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name in self._entries():
            return True
        try:
            self._source.find(name)
        except NotFoundError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def _field(self, array: Array, name: str) -> Array:
        fields = list(array.fields)
        if name not in fields:
            message = f"unknown field {name!r}; available: {', '.join(map(repr, fields))}"
            raise NotFoundError(message, array=array.name)
        view = array._view
        return Array(self, self._source.view(view.index, fields.index(name)).restore(view.window), array._between)

    @property
    def url(self) -> str:
        """Path of the container."""
        return self._url

    @property
    def format(self) -> str:
        """Identifier of the format: `tet`, `tensogram`, `tiledb`."""
        return self._source.format

    @property
    def as_of(self) -> tuple[int, int] | None:
        """First and last millisecond of the visible versions, for formats with versions."""
        return self._as_of

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the container. A copy: changes do not affect the file."""
        attrs = self._source.attributes()
        if len(self._source):
            # Some formats store them with the arrays.
            kept = self._source.view(0).attributes()
            attrs |= {name.removeprefix(OF_CONTAINER): kept[name] for name in kept if name.startswith(OF_CONTAINER)}
        return attrs

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        """Groups by their path, with their attributes."""
        found: dict[str, dict[str, Any]] = {path: {} for name in self._variables for path in _paths(name)}
        return {**found, **self._source.groups()}

    @property
    def variables(self) -> dict[str, Array]:
        """Every field of every array, coordinates too, by the name of the variable: `group/name` in groups."""
        return {name: Array(self, view) for name, view in self._variables.items()}

    @cached_property
    def _variables(self) -> dict[str, _native.View]:
        return {name: self._source.view(index, field) for name, index, field in self._source.variables()}

    @property
    def history(self) -> list[dict[str, Any]]:
        """Provenance rows."""
        return self._source.history()

    @property
    def details(self) -> Any:
        """Format-specific details, as in the output of `tet info --json` under the format's id."""
        return json.loads(self._source.details())

    def to_xarray(self, group: str | None = None, **decoding: Any) -> xr.Dataset:
        """The variables of a group, of the root unless one is named, as an xarray Dataset that reads cells when they are needed. Options are
        those of `xarray.decode_cf`."""
        from .xarray import dataset_of

        return dataset_of(self, group, **decoding)

    def to_datatree(self, **decoding: Any) -> xr.DataTree:
        """All groups as an xarray DataTree."""
        from .xarray import tree_of

        return tree_of(self, **decoding)

    def check_unchanged(self) -> None:
        """Raises ChangedError if the file was written since it was opened."""
        if self._stamp is not None and _stamp(self._url) != self._stamp:
            raise ChangedError(f"{self._url} changed since it was opened", path=self._url)

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._pinned(),)

    def __copy__(self) -> Container:
        return self

    def __deepcopy__(self, memo: Any) -> Container:
        return self

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("tesseral.Container", *self._pinned().token())

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return _show.container_text(self)

    def _repr_html_(self) -> str:
        return _show.container_html(self)


def _paths(name: str) -> list[str]:
    """The groups that a variable lies in, the outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _restore(pinned: Pinned) -> Container:
    return pinned.open()


def open(
    url: str | os.PathLike[str],
    as_of: Any = None,
    memory_limit: int | None = None,
    key: bytes | str | Callable[[], bytes] | None = None,
    *,
    key_file: str | os.PathLike[str] | None = None,
    digests: bool = True,
    max_expansion: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Container:
    """Opens a file or folder of any supported format, detected by its content: a path, or a URL (`s3://`, `gs://`, `az://`,
    `http://`, `https://`).

    `as_of` reads the state at a time, for formats with versions: milliseconds since 1970, a date or datetime, or a pair of them.
    `memory_limit` bounds the bytes of every result. `digests=False` disables the verification of digests. `max_expansion` accepts
    chunks and operations that expand to this many bytes regardless of their stored size; the default is 32 MiB per chunk and 64 MiB
    per operation, or a multiple of the stored size.

    `key` is the key of encrypted arrays, or a function that returns it; `key_file` is a file with the key, which can also be named
    by the environment variable `TESSERAL_KEY_FILE`. Pickled handles contain the name of the file or the function, never the key.

    `storage_options` has credentials, endpoints and other settings of object stores, with the names of fsspec or obstore; the rest
    is taken from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`). Pickled handles leave credentials out: other processes take
    their own from the environment.
    """
    return Container(
        os.fspath(url),
        time_range(as_of),
        memory_limit,
        KeySource(key, key_file),
        digests,
        max_expansion,
        storage_options,
    )
