"""Exceptions. Each is a `TesseralError` and the matching built-in exception, so that generic code can catch it."""

from __future__ import annotations

import errno as _errno
from typing import Any


class TesseralError(Exception):
    """Base class of all errors.

    `code` is the kind of the error, `path` the file, `offset` the byte in it, `array` and `chunk` the location in the data, `hint`
    a suggestion. Unknown values are None.
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
            # OSError defines these attributes only for its own constructor, so they are set here.
            setattr(self, "errno", facts.get("errno"))
            setattr(self, "filename", self.path)

    def __str__(self) -> str:
        text = self.message
        if self.array:
            from . import _native

            name = f'"{_native.escape(self.array)}"'
            text += "" if name in text or repr(self.array) in text else f" (array {name})"
        return f"{text}\n  try: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {name: getattr(self, name) for name in ("path", "offset", "array", "chunk", "hint")}
        return make, (self.code, self.message, {**facts, "errno": getattr(self, "errno", None)})


class CorruptError(TesseralError, OSError, ValueError):
    """Bytes that violate the format, or that a codec rejects."""

    code = "corrupt"


class FormatError(TesseralError, OSError, ValueError):
    """The file has no known format."""

    code = "unrecognised"


class FileMissingError(TesseralError, FileNotFoundError):
    """The file or folder does not exist."""

    code = "missing"


class NotFoundError(TesseralError, KeyError):
    """Unknown array, field, dimension or coordinate."""

    code = "not_found"


class UnsupportedError(TesseralError, NotImplementedError):
    """A feature that is not supported."""

    code = "unsupported"


class LimitError(TesseralError, MemoryError):
    """A limit was exceeded."""

    code = "limit"


class InvalidRequestError(TesseralError, ValueError):
    """An invalid request, independent of the content of the source."""

    code = "invalid"


class InternalError(TesseralError, RuntimeError):
    """A broken invariant: a defect of Tesseral, independent of the request and the input."""

    code = "internal"


class IoError(TesseralError, OSError):
    """An operation of the operating system or network failed."""

    code = "io"


class PermissionDeniedError(IoError, PermissionError):
    """The operating system denied permission."""


class ChangedError(TesseralError, OSError):
    """A source changed while it was read, or since a handle to it was pickled."""

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
        InternalError,
        IoError,
        ChangedError,
    )
}


def make(code: str, message: str, facts: dict[str, Any]) -> BaseException:
    """Converts an error of the engine to an exception."""
    if code == "cancelled":
        return KeyboardInterrupt()
    wanted = _CLASSES.get("corrupt" if code == "codec" else code, TesseralError)
    if wanted is IoError and facts.get("errno") in (_errno.EACCES, _errno.EPERM):
        wanted = PermissionDeniedError
    return wanted(message, code=code, **facts)
