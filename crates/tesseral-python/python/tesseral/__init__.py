"""Tiled N-dimensional arrays in Tetration, Tensogram, TileDB, Zarr, NetCDF, GRIB and other formats, through one array model.

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
from typing import TYPE_CHECKING

from ._array import Array, Field
from ._container import Container, Group, open
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

if TYPE_CHECKING:
    from ._edit import Consolidated, Vacuumed, Version, append, consolidate, delete, log, set_attrs, vacuum
    from ._frames import Dataset, Grid, dataset, from_table, scan
    from ._progress import progress
    from ._table import write_cells
    from ._tools import Converted, Copied, Difference, Finding, Recovered, Report, convert, copy, diff, recover, verify
    from ._write import Session, WritableArray, create, write

recognise = recognize  # The former spelling.

# Loaded on first use: reading a file needs none of them, and some need other packages.
_LAZY = {
    "_edit": ("Consolidated", "Vacuumed", "Version", "append", "consolidate", "delete", "log", "set_attrs", "vacuum"),
    "_frames": ("Dataset", "Grid", "dataset", "from_table", "scan"),
    "_progress": ("progress",),
    "_table": ("write_cells",),
    "_tools": ("Converted", "Copied", "Difference", "Finding", "Recovered", "Report", "convert", "copy", "diff", "recover", "verify"),
    "_write": ("Session", "WritableArray", "create", "write"),
}
_MODULE_OF = {name: module for module, names in _LAZY.items() for name in names}
_SUBMODULES = ("dask", "xarray", "zarr", "tensogram")

__all__ = [
    "Array",
    "ChangedError",
    "Consolidated",
    "Container",
    "Converted",
    "Copied",
    "CorruptError",
    "Dataset",
    "Difference",
    "Field",
    "FileMissingError",
    "Finding",
    "FormatError",
    "Grid",
    "Group",
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
    "dataset",
    "delete",
    "diff",
    "from_table",
    "log",
    "open",
    "progress",
    "recognise",
    "recognize",
    "recover",
    "scan",
    "set_attrs",
    "vacuum",
    "verify",
    "write",
    "write_cells",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    if name in _MODULE_OF:
        found = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})


if "xarray" in sys.modules:
    # Registers the accessor `tesseral` of datasets. If xarray is imported later, importing `tesseral.xarray` registers it.
    __getattr__("xarray")
