"""Checking and saving sources."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from . import _native
from ._container import time_range


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

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
    """What `verify` found. True when the source is sound."""

    path: str
    format: str
    ok: bool
    findings: list[Finding]
    covered_bytes: int
    uncovered_bytes: int

    @property
    def failures(self) -> list[Finding]:
        """The checks that failed."""
        return [finding for finding in self.findings if not finding.ok]

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class Recovered:
    """What `recover` saved."""

    path: str
    chunks_saved: int
    chunks_lost: int
    findings: list[Finding]


def verify(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    as_of: Any = None,
    key: bytes | None = None,
    memory_limit: int | None = None,
) -> Report:
    """Checks a source: metadata, every digest, chunks without one. `deep` decodes all chunks and compares stored statistics.

    Damage is in the report, not an exception; that a file cannot be read at all is one.
    """
    source = os.fspath(path)
    found = _native.verify(source, deep, time_range(as_of), key, memory_limit)
    format, ok, findings, covered, uncovered = found
    return Report(source, format, ok, [Finding(**finding) for finding in findings], covered, uncovered)


def recover(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    key: bytes | None = None,
) -> Recovered:
    """Saves every whole chunk of a torn or damaged source to a new one of the same format. Cells that are lost hold the declared
    fill, else NaN, else 0; each lost chunk is a finding."""
    saved, lost, findings = _native.recover(os.fspath(path), os.fspath(output), overwrite, key)
    return Recovered(os.fspath(output), saved, lost, [Finding(**finding) for finding in findings])
