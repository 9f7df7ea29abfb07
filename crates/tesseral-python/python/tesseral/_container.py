"""Opened containers."""

from __future__ import annotations

import builtins
import datetime
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from . import _native
from ._array import Array
from ._errors import ChangedError, InvalidRequestError, NotFoundError, TesseralError, UnsupportedError
from ._storage import Source as Place, absolute, located, resolve, without_secrets

if TYPE_CHECKING:
    import xarray as xr

    from ._types import AsOf, Moment

#: Environment variable with the path of the key file of encrypted arrays.
KEY_FILE = "TESSERAL_KEY_FILE"
Source: TypeAlias = "Place | bytes | bytearray | memoryview | IO[bytes]"


def time_range(as_of: AsOf) -> tuple[int, int] | None:
    """First and last millisecond of an `as_of` argument."""
    if as_of is None:
        return None
    if isinstance(as_of, tuple):
        start, stop = as_of
        low = 0 if start is None else _native.as_of(f"{_text(start)}..")[0]
        return low, 2**64 - 1 if stop is None else _native.as_of(_text(stop))[1]
    return _native.as_of(_text(as_of))


def _text(moment: Moment) -> str:
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


class Pinned(NamedTuple):
    """Arguments to reopen the same state, in this process or on another machine with access to the path."""

    url: str
    as_of: tuple[int, int] | None
    stamp: tuple[int, int] | None
    memory_limit: int | None
    key: KeySource
    digests: bool
    max_expansion: int | None = None
    storage_options: tuple[tuple[str, str], ...] = ()
    content: bytes | None = None
    mapped: bool = True
    cache: str | None = None
    dims: tuple[str, ...] = ()

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
            self.content,
            self.mapped,
            self.cache,
            self.dims,
        )

    def token(self) -> tuple[Any, ...]:
        return (self.url, self.as_of, self.stamp, self.content, self.dims)


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
        source: Place,
        as_of: tuple[int, int] | None,
        memory_limit: int | None,
        key: KeySource,
        digests: bool = True,
        max_expansion: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        mapped: bool = True,
        cache: str | os.PathLike[str] | None = None,
        dims: tuple[str, ...] = (),
    ) -> None:
        now = int(time.time() * 1000)
        url, storage = (source, {}) if content is not None and isinstance(source, str) else resolve(source, storage_options)
        self._opened: _native.Source | None = _native.Source(
            located(url, storage, cache), as_of, memory_limit, key.read(), digests, mapped, max_expansion, content, list(dims)
        )
        self._dims = dims
        self._url = url if content is not None else absolute(url)
        self._content = content
        self._mapped = mapped
        self._storage = tuple(without_secrets(storage).items())
        self._cache = None if cache is None else os.fspath(cache)
        self._as_of = as_of if as_of is not None or not self._source.versions else (0, now)
        self._is_present = as_of is None
        self._stamp = None if self._source.versions or content is not None else _stamp(self._url)
        self._memory_limit = memory_limit
        self._key = key
        self._digests = digests
        self._max_expansion = max_expansion
        self._keys: dict[str, tuple[int, int]] | None = None

    @property
    def _source(self) -> _native.Source:
        if self._opened is None:
            raise InvalidRequestError(f"{self._url} was closed", path=self._url)
        return self._opened

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
            self._content,
            self._mapped,
            self._cache,
            self._dims,
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
        if found is None and name.strip("/") in self._variables:
            return Array(self, self._variables[name.strip("/")])
        if found is None:
            if (path := name.strip("/")) in self.groups:
                members = ", ".join(repr(own) for own in self._variables if own.startswith(f"{path}/"))
                raise NotFoundError(f"{name!r} is a group; its variables: {members or 'none'}; container.group({path!r}) has them by name")
            try:
                found = (self._source.find(name), 0)
            except NotFoundError as error:
                error.message = f"unknown array {name!r}; available: {', '.join(map(repr, list(self)[:8])) or 'none'}"
                raise
        return Array(self, self._source.view(*found))

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        if name in self._entries() or name.strip("/") in self._variables:
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

    def _replace(self, array: Array, key: Any, values: Any) -> None:
        """Writes cells of an array as a new version, and opens it."""
        from ._cast import exact
        from ._edit import append

        if not self._source.versions or self._content is not None:
            error: TesseralError = UnsupportedError(f"replacing cells of a source of the format {self.format}", array=array.name, path=self._url)
            error.hint = "write a new file with tesseral.write or tesseral.convert"
            raise error
        if array.sparse:
            error = InvalidRequestError("cells of a sparse array have coordinates, not positions", array=array.name)
            error.hint = "add them with tesseral.append"
            raise error
        if not self._is_present:
            raise InvalidRequestError("the state at a time cannot be changed: open the container without as_of", array=array.name)
        window = array._view.narrow(key)
        if window is None or any(step != 1 and count > 1 for _, step, count, _ in window.window):
            raise InvalidRequestError("cells are replaced in a box: integers and slices without steps", array=array.name)
        region = tuple(slice(start, start + count) for start, _, count, _ in window.window)
        shape = tuple(s.stop - s.start for s in region)

        def boxed(cells: Any) -> Any:
            return np.broadcast_to(cells, window.shape).reshape(shape)

        given = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        plain = np.ma.getdata(given)
        cells = boxed(exact(plain, array.dtype, array.name) if array.dtype.kind in "biufc" else plain.astype(array.dtype))
        if isinstance(given, np.ma.MaskedArray):
            cells = np.ma.MaskedArray(cells, mask=boxed(np.ma.getmaskarray(given)))
        fields = list(array.fields)
        whole = {name: self._source.view(array._view.index, number) for number, name in enumerate(fields)}
        # A version holds all fields of its cells.
        data = {name: cells if name == array.field else view.get(region) for name, view in whole.items()}
        names = self._source.names()
        append(self._url, data, region=region, array=names[array._view.index] if len(names) > 1 else None, key=self._key.read())
        index, held = array._view.index, array._view.window
        self._reopen()
        array._view = self._source.view(index, fields.index(array.field)).restore(held)

    @property
    def url(self) -> str:
        """Path of the container."""
        return self._url

    @property
    def format(self) -> str:
        """Identifier of the format, such as `tet`, `tiledb` or `zarr`."""
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
            attrs |= self._source.view(0).container_attributes()
        return attrs

    @property
    def groups(self) -> dict[str, dict[str, Any]]:
        """Groups by their path, with their attributes."""
        found: dict[str, dict[str, Any]] = {path: {} for name in self._variables for path in _paths(name)}
        return {**found, **self._source.groups()}

    def group(self, path: str) -> Group:
        """A group by its path: its variables and those of the groups inside, by names that are relative to it."""
        path = path.strip("/")
        if path and path not in self.groups:
            raise NotFoundError(f"unknown group {path!r}; available: {', '.join(map(repr, self.groups)) or 'none'}", path=self._url)
        return Group(self, path)

    @property
    def variables(self) -> dict[str, Array]:
        """Every field of every array, including coordinates, by the name of the variable: `group/name` in groups."""
        return {name: Array(self, view) for name, view in self._variables.items()}

    @cached_property
    def _variables(self) -> dict[str, _native.View]:
        return {name: self._source.view(index, field) for name, index, field in self._source.variables()}

    def _counts_time(self, name: str) -> bool:
        """Whether a variable holds times."""
        found = self._variables.get(name)
        return found is not None and (found.counts_time or found.dtype.kind == "M")

    @property
    def history(self) -> list[dict[str, Any]]:
        """Provenance rows."""
        return self._source.history()

    @property
    def details(self) -> dict[str, Any]:
        """Format-specific details, as in the output of `tet info --json` under the format's id."""
        import json

        found: dict[str, Any] = json.loads(self._source.details())
        return found

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

    def info(self, file: IO[str] | None = None) -> None:
        """Prints variables with their dimensions, units and chunks, then coordinates, attributes and groups, to `file` or standard output.
        Reads no cells but those at the ends of coordinates."""
        from ._show import container_info

        print(container_info(self), file=file)

    def close(self) -> None:
        """Releases the file. Arrays obtained from the container keep it open until they are released."""
        self._opened = None
        self._keys = None
        self.__dict__.pop("_variables", None)

    @property
    def closed(self) -> bool:
        """Whether the container was closed."""
        return self._opened is None

    def _reopen(self) -> None:
        """Opens the current state after a write."""
        now = self._pinned()._replace(as_of=None, stamp=None).open()
        self.close()
        self._opened, self._as_of = now._opened, now._as_of

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
        if self._opened is None:
            return _native.escape(f"<tesseral.Container {self._url!r}, closed>")
        from ._show import container_text

        return container_text(self)

    def _repr_html_(self) -> str:
        from ._show import container_html

        return container_html(self)


class Group(Mapping[str, Array]):
    """A group of a container: its variables by name, `inner/name` in groups inside."""

    def __init__(self, container: Container, path: str) -> None:
        self._container = container
        self._path = path

    @property
    def path(self) -> str:
        """Path of the group; empty for the root."""
        return self._path

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the group. A copy: changes do not affect the file."""
        return self._container.groups[self._path] if self._path else self._container.attrs

    @property
    def groups(self) -> list[str]:
        """Names of the groups directly inside."""
        inside = (path.removeprefix(self._prefix) for path in self._container.groups if path.startswith(self._prefix))
        return sorted({name for name in inside if name and "/" not in name})

    @property
    def _prefix(self) -> str:
        return f"{self._path}/" if self._path else ""

    def to_xarray(self, **decoding: Any) -> xr.Dataset:
        """As `Container.to_xarray`, of this group."""
        return self._container.to_xarray(self._path or None, **decoding)

    def __getitem__(self, name: str) -> Array:
        return self._container[f"{self._prefix}{name}"]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._container._variables if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return _native.escape(f"<tesseral.Group {self._path!r} of {self._container.url!r}: {', '.join(self) or 'no variables'}>")


def _paths(name: str) -> list[str]:
    """The groups that contain a variable, the outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _restore(pinned: Pinned) -> Container:
    return pinned.open()


#: Name of a source that was opened from bytes.
_IN_MEMORY = "<memory>"


def _named(source: Source) -> tuple[Place, bytes | None]:
    """The location of a source, and its bytes if it is not read from the location."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _IN_MEMORY, bytes(source)
    read = getattr(source, "read", None)
    if isinstance(source, (str, os.PathLike)) or read is None:
        return cast("Place", source), None
    content = read()
    if not isinstance(content, bytes):
        raise TypeError("expected a file that was opened in binary mode")
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else _IN_MEMORY, content


def open(
    url: Source,
    as_of: AsOf = None,
    memory_limit: int | None = None,
    key: bytes | str | Callable[[], bytes] | None = None,
    *,
    key_file: str | os.PathLike[str] | None = None,
    digests: bool = True,
    max_expansion: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    mapped: bool = True,
    cache: str | os.PathLike[str] | None = None,
    dims: str | Sequence[str] = (),
) -> Container:
    """Opens a file or folder of any supported format, detected by its content: a path, or a URL (`s3://`, `gs://`, `az://`,
    `http://`, `https://`), the bytes of a file, or an open binary file, which is read whole.

    `as_of` reads the state at a time, for formats with versions: milliseconds since 1970, a date or datetime, or a pair of them.
    `memory_limit` bounds the bytes of every result. `digests=False` disables the verification of digests. `max_expansion` accepts
    chunks and operations that expand to this many bytes regardless of their stored size; the default is 32 MiB per chunk and 64 MiB
    per operation, or a multiple of the stored size.

    `key` is the key of encrypted arrays, or a function that returns it; `key_file` is a file with the key, which can also be named
    by the environment variable `TESSERAL_KEY_FILE`. Pickled handles contain the name of the file or the function, never the key.

    `storage_options` has credentials, endpoints and other settings of object stores, with the names of fsspec or obstore; the rest
    is taken from the environment (`AWS_*`, `GOOGLE_*`, `AZURE_*`). Pickled handles do not contain credentials: other processes read
    them from their environment. Instead of a URL, an fsspec file or mapping, an obstore store, or a pair of a file system or
    store and a path in it is accepted; it is read without these libraries, with the same settings.

    `cache` is a folder for bytes of objects, by URL and entity tag, so that later handles and processes need not request them
    again; the default is the environment variable `TESSERAL_CACHE`, if it is set.

    `mapped=False` reads local files instead of memory-mapping them. Pages of a map count as memory of the process until the system needs
    the memory.

    `dims` are columns of a table (CSV, Parquet, Arrow, or any variables of one dimension): their values become the coordinates of the other
    columns. Positions without a row are masked; two rows at one position are an error.

    >>> import tesseral
    >>> table = tesseral.open(b"time,lat,t2m\\n2020-01-01,20,3.5\\n2020-01-02,10,4.0\\n", dims=["time", "lat"])
    >>> table["t2m"].shape, table["lat"][:].tolist()
    ((2, 2), [10, 20])
    """
    path, content = _named(url)
    return Container(
        path,
        time_range(as_of),
        memory_limit,
        KeySource(key, key_file),
        digests,
        max_expansion,
        storage_options,
        content,
        mapped,
        cache,
        (dims,) if isinstance(dims, str) else tuple(dims),
    )
