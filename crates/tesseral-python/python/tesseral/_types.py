"""Types of the public interface, for type checkers. Not imported at run time."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, Literal, TypeAlias, TypedDict, Union

import numpy as np
import numpy.typing as npt

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

#: Results: a masked array where cells can be missing, and a NumPy scalar, which has the same operations, where no axis is left.
Cells: TypeAlias = npt.NDArray[Any]

_Along: TypeAlias = Union[int, np.integer[Any], slice, EllipsisType, None, Sequence[int], Sequence[bool], npt.NDArray[Any]]
#: The index in `array[…]`.
Index: TypeAlias = Union[_Along, tuple[_Along, ...]]

#: Axes by number or name; None or `...` for all.
Axis: TypeAlias = Union[int, str, np.integer[Any], Sequence[int], Sequence[str], EllipsisType, None]

#: A coordinate, as numbers, dates and text compare.
Coordinate: TypeAlias = Union[bool, int, float, str, datetime.date, datetime.datetime, np.generic]
#: One position or coordinate, or a range.
One: TypeAlias = Union[Coordinate, slice]
#: Several positions or coordinates.
Many: TypeAlias = Union[Sequence[int], Sequence[float], Sequence[str], Sequence[bool], npt.NDArray[Any]]

#: A point in time: milliseconds since 1970, or a date.
Moment: TypeAlias = Union[int, str, datetime.datetime, np.datetime64]
AsOf: TypeAlias = Union[Moment, tuple[Union[Moment, None], Union[Moment, None]], None]

#: A box to write: slices of positions, or of coordinates by dimension.
Region: TypeAlias = Union[int, slice, tuple[Union[int, slice], ...], Mapping[str, One], None]

#: A value of a cell.
Value: TypeAlias = Union[bool, int, float, complex, str, bytes, np.generic, npt.NDArray[Any]]

#: `"zstd:3"`, `["shuffle", "zstd"]`, `[("zstd", {"level": 3})]`; None for raw.
Codec: TypeAlias = Union[str, Sequence[Union[str, tuple[str, Mapping[str, Any]]]], None]
#: Extents along the axes, by dimension, or the same along all.
Chunks: TypeAlias = Union[int, Sequence[Union[int, None]], Mapping[str, int], None]

Quantiles: TypeAlias = Union[float, Sequence[float], npt.NDArray[Any]]
Part: TypeAlias = Literal["year", "month", "season", "day", "dayofyear", "hour", "date"]


class How(TypedDict, total=False):
    """Options of all statistics. `dim` is another name of the axes."""

    dim: Axis
    keepdims: bool
    skipna: bool
    where: str
    weights: str
    stored: bool
    sketch: float
