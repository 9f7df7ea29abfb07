"""Dask: arrays in large blocks, reductions inside the tasks, parallel writes by workers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute, tokenize
from dask.delayed import Delayed, delayed

from . import _native
from ._array import BLOCK, Array, block_shape, boxes
from ._edit import append
from ._write import WritableArray, create, format_of, write

__all__ = ["from_array", "reduce", "store", "store_blocks"]

_FAN = 16
# Format of parts that workers write.
_PART = "tet"


def from_array(array: Array, nbytes: int = BLOCK, chunks: Any = None) -> da.Array:
    """Returns a Dask array whose blocks are whole chunks of about `nbytes`. Equal arrays have equal names."""
    name = f"tesseral-{tokenize(array, nbytes, chunks)}"
    wanted = block_shape(array, nbytes) if chunks is None else chunks
    meta = np.ma.empty((0,) * array.ndim, array.dtype) if array.nullable else np.empty((0,) * array.ndim, array.dtype)
    # Concurrent reads are supported: no lock is needed.
    return da.from_array(array, chunks=wanted, name=name, lock=False, asarray=False, meta=meta, inline_array=True)


def reduce(
    array: Array,
    what: str,
    axis: Any = None,
    *,
    nbytes: int = BLOCK,
    ddof: float = 0,
    skipna: bool = True,
) -> Delayed:
    """`sum`, `mean`, `min`, `max`, `std`, `var` or `count`, folded inside the tasks and merged as a tree. Call `compute` for the
    result.

    Workers exchange small states instead of cells; integers stay exact.
    """
    blocks = list(boxes(array.shape, block_shape(array, nbytes)))
    if axis is None:
        parts = [_lazy(_fold, array, what, block) for block in blocks]
        return _lazy(_finish, _tree(parts, _native.merge), what, ddof, skipna)
    given = [axis] if isinstance(axis, (int, str, np.integer)) else list(axis)
    axes = tuple(sorted(array._axis(one) for one in given))
    if len(axes) == array.ndim:
        return reduce(array, what, None, nbytes=nbytes, ddof=ddof, skipna=skipna)
    return _along(array, what, axes, blocks, ddof, skipna)


def _lazy(function: Callable[..., Any], *arguments: Any) -> Delayed:
    return delayed(function, pure=True)(*arguments)


def _tree(parts: list[Any], merge: Callable[[list[Any]], Any]) -> Any:
    """Merges adjacent states, a few at a time, in order."""
    while len(parts) > 1:
        parts = [_lazy(merge, parts[i : i + _FAN]) for i in range(0, len(parts), _FAN)]
    return parts[0]


def _fold(array: Array, what: str, block: tuple[slice, ...]) -> Any:
    narrowed = array._view.narrow(block)
    assert narrowed is not None
    return narrowed.partial(what)


def _finish(part: Any, what: str, ddof: float, skipna: bool) -> Any:
    return part.result(what, float(ddof), skipna)


# Partial results of each reduction, by position.
_NEEDS = {
    "count": ("count",),
    "sum": ("sum",),
    "min": ("min",),
    "max": ("max",),
    "mean": ("count", "sum"),
    "var": ("count", "mean", "var"),
    "std": ("count", "mean", "var"),
}


def _along(array: Array, what: str, axes: tuple[int, ...], blocks: list[Any], ddof: float, skipna: bool) -> Delayed:
    """Merges blocks with the same kept positions, then concatenates."""
    if what not in _NEEDS:
        raise ValueError(f"unknown reduction {what!r}")
    stacks: dict[tuple[tuple[int, int], ...], list[Any]] = {}
    for block in blocks:
        kept = tuple((s.start, s.stop) for i, s in enumerate(block) if i not in axes)
        stacks.setdefault(kept, []).append(_lazy(_fold_along, array, what, axes, block, skipna))
    merged = [_tree(parts, _merge_states) for parts in stacks.values()]
    shape = tuple(n for i, n in enumerate(array.shape) if i not in axes)
    return _lazy(_assemble, merged, list(stacks), shape, what, ddof)


def _fold_along(array: Array, what: str, axes: tuple[int, ...], block: tuple[slice, ...], skipna: bool) -> dict[str, Any]:
    narrowed = array._view.narrow(block)
    assert narrowed is not None
    return {need: narrowed.reduce(need, list(axes), 0.0, skipna) for need in _NEEDS[what]}


def _merge_states(parts: list[dict[str, Any]]) -> dict[str, Any]:
    state = parts[0]
    for part in parts[1:]:
        state = _merge_two(state, part)
    return state


def _merge_two(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "count" in a:
        out["count"] = a["count"] + b["count"]
    if "sum" in a:
        out["sum"] = _add(a["sum"], b["sum"])
    if "min" in a:
        out["min"] = _pick(a["min"], b["min"], np.fmin, np.ma.minimum)
    if "max" in a:
        out["max"] = _pick(a["max"], b["max"], np.fmax, np.ma.maximum)
    if "var" in a:
        # Merges counts, means and squared deviations of two sets.
        n, m = a["count"].astype(float), b["count"].astype(float)
        mean_a, mean_b = np.where(n > 0, a["mean"], 0.0), np.where(m > 0, b["mean"], 0.0)
        squares = np.where(n > 0, a["var"], 0.0) * n + np.where(m > 0, b["var"], 0.0) * m
        total = n + m
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = mean_b - mean_a
            out["mean"] = np.where(total > 0, mean_a + apart * m / total, np.nan)
            out["var"] = np.where(total > 0, (squares + apart * apart * n * m / total) / total, np.nan)
    return out


def _add(a: Any, b: Any) -> Any:
    """Adds without overflow: integers that can exceed 64 bits use Python integers."""
    if a.dtype.kind not in "iu":
        return a + b
    wide = a.astype(object) + b.astype(object)
    limits = np.iinfo(a.dtype)
    fits = all(limits.min <= v <= limits.max for v in wide.flat)
    return wide.astype(a.dtype) if fits else wide


def _pick(a: Any, b: Any, plain: Any, masked: Any) -> Any:
    if isinstance(a, np.ma.MaskedArray) or isinstance(b, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(a) & np.ma.getmaskarray(b)
        low = np.ma.where(np.ma.getmaskarray(a), b, np.ma.where(np.ma.getmaskarray(b), a, masked(a, b)))
        return np.ma.array(low.data, mask=hidden)
    return plain(a, b)


def _assemble(states: list[dict[str, Any]], places: list[Any], shape: tuple[int, ...], what: str, ddof: float) -> Any:
    out: Any = None
    for state, place in zip(states, places):
        cells = _result(state, what, ddof)
        if out is None:
            out = np.ma.empty(shape, cells.dtype) if isinstance(cells, np.ma.MaskedArray) else np.empty(shape, cells.dtype)
        elif isinstance(cells, np.ma.MaskedArray) and not isinstance(out, np.ma.MaskedArray):
            out = np.ma.array(out)
        if cells.dtype == object and out.dtype != object:
            out = out.astype(object)
        out[tuple(slice(a, b) for a, b in place)] = cells
    return out


def _result(state: dict[str, Any], what: str, ddof: float) -> Any:
    if what == "mean":
        count = state["count"]
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, state["sum"].astype(float) / count, np.nan)
    if what in ("var", "std"):
        count = state["count"].astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            var = np.where(count > ddof, state["var"] * count / (count - ddof), np.nan)
        return np.sqrt(var) if what == "std" else var
    return state[what]


_EACH = ("dims", "coords", "chunks", "codec", "fill", "attrs")


def store(arrays: Mapping[str, da.Array], path: str | os.PathLike[str], **options: Any) -> None:
    """Writes Dask arrays by name to a new container. Options are those of `tesseral.write`.

    Each worker writes its blocks next to the output path, on a file system that all of them share: fragments of a TileDB array,
    parts of other formats. Once all are written, this process publishes the container. Nothing is visible before; blocks that are
    written again, after a worker failed, change nothing.
    """
    target, format = os.fspath(path), options.pop("format", "")
    each = {name: options.pop(name) for name in _EACH if options.get(name) is not None}
    if format_of(target, format)[1]:
        _store_fragments(arrays, target, format, each, options)
    else:
        _store_parts(arrays, target, format, each, options)


def _store_fragments(arrays: Mapping[str, da.Array], path: str, format: str, each: dict[str, Any], options: dict[str, Any]) -> None:
    """Creates the array under a temporary name; workers append their blocks, then it is published."""
    session = create(path, format, empty=True, **options)
    for name, array in arrays.items():
        session.add(name, array.shape, array.dtype, **each)
    staged = session._writer.stage()
    try:
        folder = str(staged.path)
        places = {name: folder if len(arrays) == 1 else os.path.join(folder, name) for name in arrays}
        compute(*(task for name, array in arrays.items() for task in _each_block(array, _add_block, places[name])))
    except BaseException:
        staged.abandon()
        raise
    staged.publish()


def _add_block(cells: Any, region: tuple[slice, ...], place: str) -> None:
    append(place, np.asarray(cells), region=region)


def _each_block(array: da.Array, function: Callable[..., Any], *arguments: Any) -> list[Delayed]:
    """One task per block: its cells, its region, and the arguments."""
    regions = da.core.slices_from_chunks(array.chunks)
    lazy = delayed(function, pure=False)
    return [lazy(block, region, *arguments) for block, region in zip(np.ravel(array.to_delayed()), regions)]


def _store_parts(arrays: Mapping[str, da.Array], path: str, format: str, each: dict[str, Any], options: dict[str, Any]) -> None:
    """Workers write parts as small files, encoded as in the container; this process assembles them."""
    with create(path, format, **options) as session:
        targets = [session.add(name, array.shape, array.dtype, **each) for name, array in arrays.items()]
        for target, array in zip(targets, arrays.values()):
            store_blocks(array, target)


def store_blocks(array: da.Array, target: WritableArray, start: Sequence[int] | None = None) -> None:
    """Lets workers write the blocks of a Dask array as parts next to the output path, and copies them into the array, from
    the position `start` on."""
    how: dict[str, Any] = {"chunks": target.chunks}
    if target._session.format == _PART and start is None:
        # Parts of whole chunks with the same encoding are copied as stored.
        array = array.rechunk(tuple(_whole(blocks, chunk) for blocks, chunk in zip(array.chunks, target.chunks)))
        how["codec"] = target.codec
    parent, name = os.path.split(target._session.path)
    # A temporary name that later writers can clean up if this process is killed.
    folder = os.path.join(parent, _native.staging_name(name))
    os.mkdir(folder)
    try:
        for region, part in compute(*_each_block(array, _write_part, folder, how)):
            place = tuple(slice(s.start + n, s.stop + n) for s, n in zip(region, start or [0] * array.ndim))
            target._take(place, part)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _whole(blocks: tuple[int, ...], chunk: int) -> tuple[int, ...]:
    """Block extents of similar size that are whole chunks."""
    total = sum(blocks)
    size = max(1, round(max(blocks, default=1) / chunk)) * chunk
    return tuple(min(size, total - start) for start in range(0, total, size)) or blocks


def _write_part(cells: Any, region: tuple[slice, ...], folder: str, how: dict[str, Any]) -> tuple[tuple[slice, ...], str]:
    """Writes a part under a name derived from its region: writing it again gives the same part."""
    path = os.path.join(folder, "-".join(["part", *(str(s.start) for s in region)]))
    write(path, {"part": np.asarray(cells)}, format=_PART, overwrite=True, **how)
    return region, path
