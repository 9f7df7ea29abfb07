"""Coordinates of axes: labels and domains as NumPy arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native

if TYPE_CHECKING:
    from ._native import View

#: Prefix of container attributes that arrays store.
OF_CONTAINER = "container:"

_INTEGER = re.compile(r"[+-]?\d+\Z")
_DATE = re.compile(r"-?\d{4,}-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?)?)?Z?\Z")


def of_texts(texts: list[str]) -> np.ndarray[Any, Any]:
    """Converts texts to numbers or dates if all of them are, as selections compare them."""
    if texts and all(_INTEGER.match(text.strip()) for text in texts):
        numbers = [int(text) for text in texts]
        if all(-(2**63) <= n < 2**63 for n in numbers):
            return np.array(numbers, np.int64)
    try:
        floats = np.array([float(text) for text in texts], np.float64)
        if texts and np.isfinite(floats).all():
            return floats
    except ValueError:
        pass
    if texts and all(_DATE.match(text) for text in texts):
        try:
            return np.array([text.rstrip("Z") for text in texts], "datetime64")
        except ValueError:
            pass
    return np.array(texts, dtype=np.str_)


def along(view: View, axis: int) -> np.ndarray[Any, Any] | None:
    """Coordinates of the positions of one axis of a window; None if they are the positions themselves."""
    start, step, count, _ = [window for window in view.window if not window[3]][axis]
    positions = start + step * np.arange(count)
    labels = view.labels(axis)
    if labels is not None:
        whole = of_texts(labels) if isinstance(labels, list) else labels
        return whole[positions] if len(whole) >= start + (count > 0) else None
    domain = view.domain(axis)
    if domain is None:
        return None
    first = domain[0]
    if isinstance(first, np.datetime64):
        unit = np.datetime_data(first.dtype)[0]
        return np.asarray(first + positions.astype(f"m8[{unit}]"))
    if not isinstance(first, np.integer) or first == 0:
        return None
    return (positions + np.int64(first)).astype(first.dtype) if first.dtype != np.uint64 else positions.astype(np.uint64) + first


class Coords(Mapping[str, np.ndarray[Any, Any]]):
    """Coordinates by dimension, computed on first use."""

    def __init__(self, view: View, dims: tuple[str, ...]) -> None:
        self._view = view
        self._dims = dims
        has = [view.has_labels(i) or view.domain(i) is not None for i in range(len(view.shape))]
        self._names = [dim for dim, found in zip(dims, has) if found]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._names:
            raise KeyError(name)
        found = along(self._view, self._dims.index(name))
        return np.arange(self._view.shape[self._dims.index(name)]) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return _native.escape("Coordinates: " + (", ".join(self._names) or "none"))


def as_text(value: Any) -> str:
    """Formats a coordinate as selections parse it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (float, np.floating)):
        return repr(float(value)) if isinstance(value, float) else str(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return str(value)
