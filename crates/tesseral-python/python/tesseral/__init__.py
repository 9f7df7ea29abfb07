"""Tiled N-dimensional arrays of Tetration, Tensogram and TileDB files through one model.

>>> import tesseral
>>> tesseral.write("ocean.tet", {"sst": [[1.0, 2.0], [3.0, 4.0]]}, dims=("lat", "lon"))
>>> ocean = tesseral.open("ocean.tet")
>>> ocean["sst"][0, ::-1]
array([2., 1.])
>>> ocean["sst"].mean("lat")
array([2., 3.])
"""

from __future__ import annotations

import sys
from typing import Any

from ._array import Array, Field
from ._container import Container, open
from ._edit import Consolidated, Vacuumed, Version, append, consolidate, delete, log, set_attrs, vacuum
from ._errors import (
    ChangedError,
    CorruptError,
    FileMissingError,
    FormatError,
    InternalError,
    InvalidRequestError,
    IoError,
    LimitError,
    NotFoundError,
    PermissionDeniedError,
    TesseralError,
    UnsupportedError,
)
from ._native import __version__, recognize
from ._table import write_cells
from ._tools import Converted, Copied, Difference, Finding, Recovered, Report, convert, copy, diff, recover, verify
from ._write import Session, WritableArray, create, write

recognise = recognize  # The former spelling.

__all__ = [
    "Array",
    "ChangedError",
    "Consolidated",
    "Container",
    "Converted",
    "Copied",
    "CorruptError",
    "Difference",
    "Field",
    "FileMissingError",
    "Finding",
    "FormatError",
    "InternalError",
    "InvalidRequestError",
    "IoError",
    "LimitError",
    "NotFoundError",
    "PermissionDeniedError",
    "Recovered",
    "Report",
    "Session",
    "TesseralError",
    "UnsupportedError",
    "Vacuumed",
    "Version",
    "WritableArray",
    "__version__",
    "append",
    "consolidate",
    "convert",
    "copy",
    "create",
    "delete",
    "diff",
    "log",
    "open",
    "recognise",
    "recognize",
    "recover",
    "set_attrs",
    "vacuum",
    "verify",
    "write",
    "write_cells",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: these modules need optional packages or are slow to import.
    if name in ("xarray", "dask", "zarr", "tensogram"):
        from importlib import import_module

        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "xarray" in sys.modules:
    # Registers the accessor `tesseral` of datasets. If xarray is imported later, importing `tesseral.xarray` registers it.
    __getattr__("xarray")
