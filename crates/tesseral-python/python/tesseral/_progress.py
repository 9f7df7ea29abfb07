"""Progress of long operations: a bar in notebooks and terminals."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import IO, Protocol, TypeAlias

from . import _native

Report: TypeAlias = "Callable[[int | None, int | None], object]"
#: Seconds before a bar appears.
_PATIENCE = 0.5
_WIDTH = 30


class _Handle(Protocol):
    def update(self, data: dict[str, str], *, raw: bool) -> object: ...


class progress:
    """Shows the progress of long operations: reading, statistics, `convert`, `verify`, `copy`, `recover` and `diff`.

    In a `with` statement, or until `stop()` after `start()`. Notebooks show a bar below the cell, terminals one on standard error. With
    `report`, nothing is shown, and the function is called with the completed and the total amount of work, and with None for both at the end of each
    operation; an exception that it raises stops the operation.

    >>> import tesseral
    >>> tesseral.write("steps.tet", {"a": [[1.0, 2.0], [3.0, 4.0]]})
    >>> with tesseral.progress():
    ...     tesseral.convert("steps.tet", "steps.tgm").arrays
    ['a']
    """

    def __init__(self, report: Report | None = None, *, file: IO[str] | None = None, after: float = _PATIENCE) -> None:
        self._report = report
        self._file = file
        self._after = after
        self._since: float | None = None
        self._shown = False
        self._handle: _Handle | None = None
        self._before: Report | None = None

    def start(self) -> progress:
        """Starts to show progress."""
        self._before = _native.set_progress(self._report or self._show)
        return self

    def stop(self) -> None:
        """Stops showing progress."""
        _native.set_progress(self._before)
        self._end()

    def __enter__(self) -> progress:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _show(self, done: int | None, total: int | None) -> None:
        if done is None or not total:
            self._end()
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since < self._after:
            return
        left = (now - self._since) * (total - done) / done if done else None
        text = f"{100 * done // total:3d} %" + ("" if left is None else f", {left:.0f} s left")
        if _in_notebook() and self._file is None:
            bar = f'<progress value="{done}" max="{total}"></progress> {text}'
            self._display({"text/html": bar, "text/plain": text})
        else:
            filled = _WIDTH * done // total
            print(f"\r{'█' * filled}{'░' * (_WIDTH - filled)} {text}    ", end="", file=self._file or sys.stderr, flush=True)
        self._shown = True

    def _display(self, data: dict[str, str]) -> None:
        if self._handle is None:
            from IPython.display import display

            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def _end(self) -> None:
        if self._shown and self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        elif self._shown:
            print("\r" + " " * (_WIDTH + 24) + "\r", end="", file=self._file or sys.stderr, flush=True)
        self._since, self._shown, self._handle = None, False, None


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
