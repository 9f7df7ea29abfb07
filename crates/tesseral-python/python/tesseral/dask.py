"""Dask: arrays in large blocks, reductions inside the tasks, parallel writes by workers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute, tokenize
from dask.delayed import Delayed, delayed

from . import _native
from ._array import BLOCK, Array, block_shape
from ._edit import append
from ._reduce import answer, question
from ._storage import Source, is_url, resolve
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


def reduce(array: Array, what: str, axis: Any = None, *, nbytes: int = BLOCK, **how: Any) -> Delayed:
    """A statistic of `Array` by name, such as `mean` or `median`, folded inside tasks of about `nbytes` of cells. Call `compute` for the
    result: the bits of `array.mean(axis)`.

    Other arguments are those of the method: `ddof`, `skipna`, `where`, `weights`, `q` of quantiles, `bins` and `range` of histograms;
    `by="time.month"` groups and `rolling={"time": 7}` rolls. Workers exchange partial results instead of cells.
    """
    if how.get("by") is not None and axis is None:
        axis = how["by"].rpartition(".")[0]
    asked = question(array, _NUMPY.get(what, what), axis, **how)
    q: Any = how.get("q")
    listed = q is not None and np.ndim(q) > 0
    jobs = array._view.split_reduction(asked, nbytes)
    if not jobs:
        return _lazy(_answer, array, asked, listed)
    parts = [_lazy(_run_job, array, asked, job) for job, _ in jobs]
    return _lazy(_finish, array, asked, listed, _tree(parts), sum(units for _, units in jobs))


# Names of NumPy that differ from those of statistics.
_NUMPY = {"prod": "product"}


def _lazy(function: Callable[..., Any], *arguments: Any) -> Delayed:
    return delayed(function, pure=True)(*arguments)


def _tree(parts: list[Any]) -> Any:
    """Joins adjacent results, a few at a time, in order."""
    while len(parts) > 1:
        parts = [_lazy(_native.join_results, parts[i : i + _FAN]) for i in range(0, len(parts), _FAN)]
    return parts[0]


def _run_job(array: Array, asked: dict[str, Any], job: bytes) -> bytes:
    return array._view.run_job(asked, job)


def _answer(array: Array, asked: dict[str, Any], listed: bool) -> Any:
    """The result for no cells, which requires no job."""
    found = answer(asked, array._view.reduce(asked))
    return np.stack(found) if listed else found[0]


def _finish(array: Array, asked: dict[str, Any], listed: bool, results: bytes, units: int) -> Any:
    found = answer(asked, array._view.merge_results(asked, results, units))
    return np.stack(found) if listed else found[0]


_EACH = ("dims", "coords", "chunks", "codec", "fill", "attrs")


def store(arrays: Mapping[str, da.Array], path: Source, **options: Any) -> None:
    """Writes Dask arrays by name to a new container. Options are those of `tesseral.write`.

    Each worker writes its blocks next to the output path, on a file system that all of them share: fragments of a TileDB array,
    parts of other formats. Once all are written, this process publishes the container. Nothing is visible before; blocks that are
    written again, after a worker failed, change nothing.

    For a URL, with `storage_options` as in `tesseral.open`, blocks are written in the temporary folder (`TMPDIR`), which all workers
    must share, and uploaded by this process.
    """
    target, options["storage_options"] = resolve(path, options.get("storage_options"))
    format = options.pop("format", "")
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
    if is_url(parent):
        parent = tempfile.gettempdir()
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
