"""Exceptions. Each is a `TesseralError` and also the builtin that fits, so that code which knows nothing of Tesseral catches it."""

from __future__ import annotations

import errno as _errno
import re
from typing import Any


class TesseralError(Exception):
    """Anything that went wrong, with the place.

    `code` says what in one word, `path` the file, `offset` the byte in it, `array` and `chunk` the place in the data, `hint` what to
    try. Whatever is not known is None.
    """

    code: str = "error"
    path: str | None
    offset: int | None
    array: str | None
    chunk: tuple[int, ...] | None
    hint: str | None

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = facts.get("code") or type(self).code
        self.path = facts.get("path")
        self.offset = facts.get("offset")
        self.array = facts.get("array")
        self.chunk = facts.get("chunk")
        self.hint = facts.get("hint")
        if isinstance(self, OSError):
            # Known to OSError alone, which is why they are set like this.
            setattr(self, "errno", facts.get("errno"))
            setattr(self, "filename", self.path)

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in ("path", "offset", "array", "chunk", "hint")}
        return make, (self.code, self.message, {**facts, "errno": getattr(self, "errno", None)})


class CorruptError(TesseralError, OSError, ValueError):
    """Bytes that contradict the format, or that a codec refuses."""

    code = "corrupt"


class FormatError(TesseralError, OSError, ValueError):
    """Not a file of a known format."""

    code = "unrecognised"


class FileMissingError(TesseralError, FileNotFoundError):
    """No such file or folder."""

    code = "missing"


class NotFoundError(TesseralError, KeyError):
    """No array, field, dimension or coordinate of that name."""

    code = "not_found"


class UnsupportedError(TesseralError, NotImplementedError):
    """Something a format has, or cannot hold, that Tesseral does not do."""

    code = "unsupported"


class LimitError(TesseralError, MemoryError):
    """More than a limit allows."""

    code = "limit"


class InvalidRequestError(TesseralError, ValueError):
    """A request that makes no sense, whatever the bytes."""

    code = "invalid"


class IoError(TesseralError, OSError):
    """The operating system or a network refused."""

    code = "io"


class PermissionDeniedError(IoError, PermissionError):
    """The operating system refused for lack of permission."""


class ChangedError(TesseralError, OSError):
    """A file is not what it was when a handle to it was pickled."""

    code = "changed"


_CLASSES: dict[str, type[TesseralError]] = {
    c.code: c
    for c in (
        CorruptError,
        FormatError,
        FileMissingError,
        NotFoundError,
        UnsupportedError,
        LimitError,
        InvalidRequestError,
        IoError,
        ChangedError,
    )
}


# What hints name on the command line, and here.
_WORDS = {
    "give -f to replace it": "give overwrite=True to replace it",
    "allow NaN to store it in a mask": "give allow_nan=True to store it in a mask",
    "allow infinities to store them in masks": "give allow_inf=True to store them in masks",
    "select by position instead, as in `dim=0:5`": "select by position instead, with isel",
    "name the format": "name it, as in format=\"tet\"",
}
_OPTION = re.compile(r"--([a-z-]+)(?: (\w+))?")
_OPTIONS = {"array": "arrays", "chunk": "chunks", "to": "format"}


def _hint(text: str | None) -> str | None:
    """What to try, in Python's words."""
    if text is None or text.startswith("in the selection"):
        return None
    text = _WORDS.get(text, text)
    return _OPTION.sub(lambda option: _keyword(option[1], option[2]), text)


def _keyword(name: str, value: str | None) -> str:
    keyword = _OPTIONS.get(name, name.replace("-", "_"))
    # What follows an option is a value of it, or the next word of the sentence.
    return f'{keyword}="{value}"' if value not in (None, "or", "and", "out") else f"{keyword} {value}" if value else keyword


def make(code: str, message: str, facts: dict[str, Any]) -> BaseException:
    """The exception of an error of the engine."""
    if code == "cancelled":
        return KeyboardInterrupt()
    wanted = _CLASSES.get("corrupt" if code == "codec" else code, TesseralError)
    if wanted is IoError and facts.get("errno") in (_errno.EACCES, _errno.EPERM):
        wanted = PermissionDeniedError
    return wanted(message, code=code, **{**facts, "hint": _hint(facts.get("hint"))})
