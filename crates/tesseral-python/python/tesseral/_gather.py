"""Indexing by lists, masks and points, read box by box."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._native import View

_HINT = "use .oindex for lists along axes, .vindex for single points"


def widen(halves: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Converts bfloat16 bits to float32."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _is_number(item: Any) -> bool:
    if isinstance(item, (bool, np.bool_)):
        return False
    return isinstance(item, (int, np.integer)) or (isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu")


def expand(key: Any, rank: int) -> list[Any]:
    """Returns one item per axis: ellipsis and omitted axes become full slices."""
    items = list(key) if isinstance(key, tuple) else [key]
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    missing = rank - len(items) + len(ellipses)
    if missing < 0:
        raise IndexError(f"too many indices for array: array is {rank}-dimensional, but {len(items)} were indexed")
    at = ellipses[0] if ellipses else len(items)
    return items[:at] + [slice(None)] * missing + items[at + len(ellipses) :]


def _positions(item: Any, extent: int, axis: int) -> np.ndarray[Any, Any]:
    """Converts a list, array or mask along one axis to positions."""
    found = np.asarray(item)
    if found.size == 0 and found.dtype.kind == "f":
        found = found.astype(np.intp)
    if found.ndim != 1 or found.dtype.kind not in "iub":
        raise IndexError(f"the index of axis {axis} must be a list of integers or a mask; {_HINT}")
    if found.dtype.kind == "b":
        if len(found) != extent:
            raise IndexError(f"mask of length {len(found)} does not match axis {axis} with size {extent}")
        return np.flatnonzero(found)
    return _bounded(found, extent, axis)


def _bounded(found: np.ndarray[Any, Any], extent: int, axis: int) -> np.ndarray[Any, Any]:
    found = found.astype(np.int64)
    outside = (found < -extent) | (found >= extent)
    if outside.any():
        raise IndexError(f"index {found[outside][0]} is out of bounds for axis {axis} with size {extent}")
    return np.where(found < 0, found + extent, found)


def mixed(view: View, key: Any) -> Any:
    """NumPy indexing with one list or mask, or a mask of the whole array."""
    if isinstance(key, np.ndarray) and key.dtype.kind == "b" and key.ndim > 1:
        if key.shape != view.shape:
            raise IndexError(f"mask of shape {key.shape} does not match an array of shape {view.shape}")
        return points(view, np.nonzero(key))
    items = expand(key, len(view.shape))
    lists = [i for i, item in enumerate(items) if not isinstance(item, slice) and not _is_number(item)]
    numbers = [i for i, item in enumerate(items) if _is_number(item)]
    chosen = sorted(lists + numbers)
    apart = bool(numbers) and chosen[-1] - chosen[0] + 1 != len(chosen)
    if len(lists) != 1 or items[lists[0]] is None or apart:
        raise IndexError(f"only integers, slices, `...`, None and one list or mask are valid indices; {_HINT}")
    return outer(view, tuple(items))


def outer(view: View, key: Any) -> Any:
    """Orthogonal indexing: every combination of the selections along each axis."""
    items = expand(key, len(view.shape))
    plain = [item if isinstance(item, slice) or _is_number(item) else slice(None) for item in items]
    narrowed = view.narrow(tuple(plain))
    assert narrowed is not None
    wanted: dict[int, np.ndarray[Any, Any]] = {}
    axis = 0
    for i, item in enumerate(items):
        if _is_number(item):
            continue
        if not isinstance(item, slice):
            wanted[axis] = _positions(item, view.shape[i], i)
        axis += 1
    return take(narrowed, wanted)


def _strides(view: View) -> list[int]:
    """Extent of a chunk in positions of the window, along each axis."""
    kept = [window for window in view.window if not window[3]]
    chunks = view.chunks or tuple(1 for _ in kept)
    return [max(1, chunk // abs(step)) for chunk, (_, step, _, _) in zip(chunks, kept)]


def take(view: View, wanted: dict[int, np.ndarray[Any, Any]]) -> Any:
    """Selects positions along some axes, all of the others. Reads each run of nearby positions as one box."""
    if not wanted:
        return view.get(Ellipsis)
    shape = list(view.shape)
    strides = _strides(view)
    unique: dict[int, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
    stretches: list[list[tuple[int, int]]] = []
    for axis, extent in enumerate(shape):
        if axis not in wanted:
            stretches.append([(0, extent)])
            continue
        found, back = np.unique(wanted[axis], return_inverse=True)
        unique[axis] = (found, back)
        shape[axis] = len(found)
        cuts = np.flatnonzero(np.diff(found) > strides[axis]) + 1
        ends = [0, *cuts.tolist(), len(found)]
        stretches.append([(a, b) for a, b in zip(ends, ends[1:]) if a < b])
    out = _room(view, shape)
    for stretch in product(*stretches):
        box, local, place = [], [], []
        for axis, (a, b) in enumerate(stretch):
            place.append(slice(a, b))
            if axis in unique:
                found = unique[axis][0][a:b]
                box.append(slice(int(found[0]), int(found[-1]) + 1))
                local.append(found - found[0])
            else:
                box.append(slice(None))
                local.append(None)
        cells = view.get(tuple(box))
        for axis, positions in enumerate(local):
            if positions is not None and len(positions) != cells.shape[axis]:
                cells = cells[(slice(None),) * axis + (positions,)]
        out[tuple(place)] = cells
    for axis, (found, back) in unique.items():
        if len(back) != len(found) or not np.array_equal(back, np.arange(len(found))):
            out = out[(slice(None),) * axis + (back,)]
    return out


def _room(view: View, shape: list[int]) -> Any:
    if view.nullable:
        return np.ma.empty(shape, dtype=view.dtype)
    return np.empty(shape, dtype=view.dtype)


def vector(view: View, key: Any) -> Any:
    """Selects single cells by broadcast indices of all axes."""
    items = list(key) if isinstance(key, tuple) else [key]
    if len(items) == 1 and getattr(items[0], "dtype", np.dtype(int)).kind == "b":
        return mixed(view, items[0])
    if len(items) != len(view.shape):
        raise IndexError(f"point indexing of an array of {len(view.shape)} axes requires as many indices, found {len(items)}")
    arrays = [np.asarray(item) for item in items]
    if any(a.size and a.dtype.kind not in "iu" for a in arrays):
        raise IndexError("point indexing requires integers")
    bounded = [_bounded(a, extent, i) for i, (a, extent) in enumerate(zip(arrays, view.shape))]
    return points(view, tuple(np.broadcast_arrays(*bounded)))


def points(view: View, places: tuple[np.ndarray[Any, Any], ...]) -> Any:
    """Selects cells at points given axis by axis. Reads one box per touched chunk."""
    shape = places[0].shape if places else ()
    flat = np.stack([p.ravel() for p in places]) if places else np.zeros((0, 1), np.int64)
    out = _room(view, [flat.shape[1]])
    for group in _by_chunk(flat, _strides(view)):
        inside = flat[:, group]
        low, high = inside.min(axis=1), inside.max(axis=1)
        box = tuple(slice(int(a), int(b) + 1) for a, b in zip(low, high))
        out[group] = view.get(box)[tuple(inside - low[:, None])]
    return out.reshape(shape)


def _by_chunk(flat: np.ndarray[Any, Any], strides: list[int]) -> Iterator[np.ndarray[Any, Any]]:
    if not flat.shape[1]:
        return
    chunk = flat // np.array(strides, np.int64)[:, None]
    order = np.lexsort(chunk)
    moved = (np.diff(chunk[:, order]) != 0).any(axis=0)
    ends = [0, *(np.flatnonzero(moved) + 1).tolist(), flat.shape[1]]
    for a, b in zip(ends, ends[1:]):
        yield order[a:b]
