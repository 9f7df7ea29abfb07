"""Locations of sources and outputs: paths, URLs with settings of their object store, and objects of fsspec and obstore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

# Parts of the names of storage options whose values are secret. Pickled handles leave them out: a worker has its own credentials.
_SECRETS = ("key", "secret", "token", "password", "credential", "sas", "account_json", "service_account", "connection_string")

# Options of fsspec's file systems that decide what is reached. The others tune that library.
_OF_FILE_SYSTEMS = (
    "account_host",
    "account_key",
    "account_name",
    "anon",
    "client_kwargs",
    "endpoint_url",
    "key",
    "sas_token",
    "secret",
    "token",
)

# Schemes of fsspec's file systems that are read without that library.
_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az", "adl": "az"}

# Classes of obstore's stores, their scheme, and the setting with the name of the bucket.
_STORES = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket"), "AzureStore": ("az", "container_name")}


class OfFileSystem(Protocol):
    """A file or mapping of fsspec."""

    @property
    def fs(self) -> Any: ...


class OfStore(Protocol):
    """A store of obstore."""

    @property
    def client_options(self) -> Any: ...


class OfFolder(Protocol):
    """A store of obstore for local files."""

    @property
    def prefix(self) -> Any: ...


# Where something is: a path or URL, a file or mapping of fsspec, a store of obstore, or a file system or store and a path in it.
Source = str | os.PathLike[str] | OfFileSystem | OfStore | OfFolder | tuple[Any, str]
# The same, as the compiled module takes it.
Located = str | tuple[str, dict[str, str], str | None]


def storage_settings(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Storage options as text, with those of nested `client_kwargs`, as in fsspec."""
    flat: dict[str, str] = {}
    for name, value in (options or {}).items():
        if isinstance(value, Mapping):
            flat.update(storage_settings(value))
        elif value is not None:
            flat[name] = str(value)
    return flat


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings that handles can contain when they are pickled."""
    return {name: value for name, value in settings.items() if not any(part in name.lower() for part in _SECRETS)}


def is_url(path: str) -> bool:
    """Whether a location is in an object store or on a web server."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and len(scheme) > 1 and scheme.isalnum() and scheme != "file"


def absolute(path: str) -> str:
    """The URL, or the absolute path."""
    return path if is_url(path) else os.path.abspath(path[7:] if path.startswith("file://") else path)


def resolve(source: Any, storage_options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, str]]:
    """The path or URL of a source or an output, and the settings of its object store.

    Accepts a path or URL; a file (`fsspec.open(...)`) or mapping (`fsspec.get_mapper(...)`) of fsspec; a store of obstore; or a pair of a
    file system or store and the path in it. Given options have precedence over those of the object.
    """
    given = storage_settings(storage_options)
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source), given
    inner, path = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
    if type(inner).__module__.partition(".")[0] == "obstore":
        url, settings = _of_store(inner, path)
    elif path is not None and hasattr(inner, "protocol"):
        url, settings = _of_file_system(inner, path)
    elif hasattr(inner, "fs") and (hasattr(inner, "root") or hasattr(inner, "path")):
        url, settings = _of_file_system(inner.fs, inner.root if hasattr(inner, "root") else inner.path)
    else:
        raise TypeError(f"expected a path, a URL, bytes, a binary file, or a source of fsspec or obstore, not {type(source).__name__}")
    return url, settings | given


def located(source: Any, storage_options: Mapping[str, Any] | None = None, cache: Any = None) -> Located:
    """A source or an output for the compiled module."""
    path, settings = resolve(source, storage_options)
    if not settings and cache is None:
        return path
    return path, settings, None if cache is None else os.fspath(cache)


def _of_file_system(fs: Any, path: Any) -> tuple[str, dict[str, str]]:
    from ._errors import UnsupportedError

    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
    path = os.fspath(path)
    if "file" in protocols or "local" in protocols:
        return fs._strip_protocol(path), {}
    if "http" in protocols or "https" in protocols:
        return path, {}
    scheme = next((_SCHEMES[name] for name in protocols if name in _SCHEMES), None)
    if scheme is None:
        raise UnsupportedError(f"file systems of fsspec for {protocols[0]}: those for files, s3, gs, az and http are supported")
    options = {name: value for name, value in fs.storage_options.items() if name in _OF_FILE_SYSTEMS}
    if isinstance(nested := options.get("client_kwargs"), Mapping):
        options["client_kwargs"] = {name: nested[name] for name in ("endpoint_url", "region_name") if name in nested}
    if scheme == "gs" and not isinstance(options.get("token"), str):
        # Objects of Google's own library; the environment has the same credentials.
        options.pop("token", None)
    return f"{scheme}://{fs._strip_protocol(path)}", storage_settings(options)


def _of_store(store: Any, path: str | None) -> tuple[str, dict[str, str]]:
    from ._errors import UnsupportedError

    name = type(store).__name__
    inside = "/".join(part.strip("/") for part in (str(getattr(store, "prefix", None) or ""), path or "") if part.strip("/"))
    if name == "LocalStore":
        return os.path.join(os.fspath(store.prefix or "/"), path or ""), {}
    if name == "HTTPStore":
        return "/".join(part for part in (str(store.url).rstrip("/"), path) if part), {}
    if name not in _STORES:
        raise UnsupportedError(f"stores of obstore of the class {name}: {', '.join(_STORES)}, HTTPStore and LocalStore are supported")
    scheme, bucket = _STORES[name]
    settings = storage_settings(dict(store.config)) | storage_settings(store.client_options or {})
    names = {key.lower().removeprefix("aws_").removeprefix("google_").removeprefix("azure_"): key for key in settings}
    held = next((settings.pop(names[key]) for key in (bucket, "bucket", "bucket_name", "container_name", "container") if key in names), None)
    if held is None:
        raise UnsupportedError(f"a {name} without the name of its bucket")
    return f"{scheme}://{held}/{inside}".rstrip("/"), settings
