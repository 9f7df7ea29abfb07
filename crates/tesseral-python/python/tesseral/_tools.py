"""Verification, recovery, conversion and comparison of sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _native
from ._container import time_range
from ._storage import Source, located, resolve

if TYPE_CHECKING:
    from ._types import AsOf


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    check: str
    severity: str
    ok: bool
    detail: str
    array: str | None = None
    chunk: tuple[int, ...] | None = None
    offset: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Report:
    """Report of `verify`. True if the source is intact."""

    path: str
    format: str
    ok: bool
    findings: list[Finding]
    covered_bytes: int
    uncovered_bytes: int

    @property
    def failures(self) -> list[Finding]:
        """The failed checks."""
        return [finding for finding in self.findings if not finding.ok]

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        word = "intact" if self.ok else "damaged"
        lines = [f"<tesseral.Report {self.path!r} {self.format}: {word}, {len(self.findings)} checks>"]
        lines += [f"  {finding.check}: {finding.detail}" for finding in self.failures]
        return "\n".join(map(_native.escape, lines))


@dataclass(frozen=True)
class Recovered:
    """Report of `recover`."""

    path: str
    chunks_saved: int
    chunks_lost: int
    findings: list[Finding]


def verify(
    path: Source,
    *,
    deep: bool = False,
    as_of: AsOf = None,
    key: bytes | None = None,
    memory_limit: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Verifies a source: metadata, all digests, and chunks without one. `deep` decodes all chunks and compares stored statistics.

    Damage is reported, not raised; an unreadable file raises an exception.
    """
    source, settings = resolve(path, storage_options)
    found = _native.verify(located(source, settings), deep, time_range(as_of), key, memory_limit)
    format, ok, findings, covered, uncovered = found
    return Report(source, format, ok, [Finding(**finding) for finding in findings], covered, uncovered)


def recover(
    path: Source,
    output: Source,
    *,
    overwrite: bool = False,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Recovered:
    """Copies the intact chunks of a damaged source to a new one of the same format. Lost cells become
    missing: null, or a declared missing value. Each lost chunk is a finding."""
    target, settings = resolve(output, storage_options if target_options is None else target_options)
    saved, lost, findings = _native.recover(located(path, storage_options), located(target, settings), overwrite, key)
    return Recovered(target, saved, lost, [Finding(**finding) for finding in findings])


@dataclass(frozen=True)
class Copied:
    """Report of `copy`. The numbers of bytes with and without digests are None if digests were not verified."""

    path: str
    format: str
    objects: int
    stored_bytes: int
    covered_bytes: int | None
    uncovered_bytes: int | None


def copy(
    source: Source,
    target: Source,
    *,
    overwrite: bool = False,
    digests: bool = True,
    key: bytes | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Copied:
    """Copies a dataset of any format to another path or URL, byte for byte.

    The digests of the copy are verified before it is published; a damaged source, or one that changes meanwhile, is an error.
    `storage_options` has settings of the object store of the source, `target_options` those of the target, by default the same.
    """
    output, settings = resolve(target, storage_options if target_options is None else target_options)
    return Copied(output, *_native.copy(located(source, storage_options), located(output, settings), overwrite, digests, key))


@dataclass(frozen=True)
class Converted:
    """Report of `convert`."""

    path: str
    format: str
    arrays: list[str]
    stored_bytes: int


@dataclass(frozen=True)
class Note:
    """A difference of metadata; None if a side has no such entry."""

    array: str | None
    what: str
    left: str | None
    right: str | None


@dataclass(frozen=True)
class ValueDifference:
    """Difference of the cells of one array."""

    name: str
    cells: int
    differing: int
    first: tuple[int, ...] | None
    max_abs: float | None


@dataclass(frozen=True)
class Difference:
    """Report of `diff`. True if the sources differ."""

    same: bool
    notes: list[Note]
    values: list[ValueDifference]

    def __bool__(self) -> bool:
        return not self.same


def convert(
    source: Source,
    target: Source,
    *,
    format: str | None = None,
    arrays: Sequence[str] = (),
    select: Sequence[str] = (),
    chunks: Sequence[int] | Mapping[str, int] | None = None,
    codec: str | Sequence[str] | None = None,
    cast: str | Mapping[str, str] | None = None,
    fill: float | str | Mapping[str, float | str] | None = None,
    statistics: bool | None = None,
    check: bool = False,
    max_abs_error: float | None = None,
    overwrite: bool = False,
    durability: str = "full",
    as_of: AsOf = None,
    key: bytes | None = None,
    memory_limit: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_options: Mapping[str, Any] | None = None,
) -> Converted:
    """Converts a source to another format, chunking or codec within bounded memory.

    The format is given by the file extension of the target unless it is named. `select` has selections in the syntax of `tet`
    (`"time=0:10"`), `cast` a dtype for all arrays or one by name, `fill` the value of unwritten cells, and of nulls if the target
    does not support them. `statistics=True` stores statistics of chunks also for other readers (`.tet`: zone maps), `statistics=False`
    none. `check` reads the output again and compares every cell before publishing it. `storage_options` has settings
    of the object store of the source, `target_options` those of the target, by default the same.
    `durability="none"` does not synchronize the output with the device, for scratch data.
    """
    chunk: str | None = None
    if isinstance(chunks, Mapping):
        chunk = ",".join(f"{dim}={extent}" for dim, extent in chunks.items())
    elif chunks is not None:
        chunk = ",".join(map(str, chunks))
    casts = [cast] if isinstance(cast, str) else [f"{name}={dtype}" for name, dtype in (cast or {}).items()]
    fills = [f"{name}={value}" for name, value in fill.items()] if isinstance(fill, Mapping) else [] if fill is None else [str(fill)]
    asked = {
        "format": format,
        "arrays": list(arrays),
        "select": list(select),
        "chunk": chunk,
        "codec": codec if codec is None or isinstance(codec, str) else "+".join(codec),
        "casts": casts,
        "fills": fills,
        "statistics": statistics,
        "check": check,
        "max_abs_error": max_abs_error,
        "overwrite": overwrite,
        "durability": durability,
        "memory": memory_limit,
    }
    output, settings = resolve(target, storage_options if target_options is None else target_options)
    places = located(source, storage_options), located(output, settings)
    return Converted(output, *_native.convert(*places, asked, time_range(as_of), key))


def diff(
    left: Source,
    right: Source,
    *,
    arrays: Sequence[str] = (),
    max_abs_error: float | None = None,
    max_rel_error: float | None = None,
    stored: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Difference:
    """Compares two sources of any format: metadata, and cells bit by bit unless a tolerance is given. Missing cells are equal,
    whether unwritten, null or declared; with `stored`, nulls, unwritten cells and declared missing values differ. `storage_options` has
    settings of the object stores of both."""
    sides = located(left, storage_options), located(right, storage_options)
    same, notes, values = _native.diff(*sides, list(arrays), max_abs_error, max_rel_error, stored)
    found = [ValueDifference(name, cells, n, None if first is None else tuple(first), most) for name, cells, n, first, most in values]
    return Difference(same, [Note(*note) for note in notes], found)
