"""Representations for the prompt and notebooks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _native

if TYPE_CHECKING:
    from ._array import Array
    from ._container import Container

_SHOWN = 20
# The name of an object of a message.
_NUMBERS = re.compile(r"\d+/\d+")
_CELLS = 24


def size(count: float) -> str:
    """Formats a number of bytes."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _dims(array: Array) -> str:
    if array.sparse or not array._view.countable:
        return ", ".join(array.dims)
    return ", ".join(f"{dim}: {extent}" for dim, extent in array.sizes.items())


def _facts(array: Array) -> list[tuple[str, str]]:
    facts = [("dtype", array.dtype_name), ("shape", _dims(array) or "one cell")]
    if array.sparse:
        facts.append(("sparse", "yes"))
    elif array.chunks is not None:
        facts.append(("chunks", " × ".join(map(str, array.chunks)) or "one"))
    facts.append(("codecs", ", ".join(array.codecs) or "raw"))
    packing = {name: array.attrs.get(name) for name in ("scale_factor", "add_offset") if name in array.attrs}
    if packing:
        unpacked = "cells" + "".join(f" {sign} {packing[name]}" for name, sign in (("scale_factor", "×"), ("add_offset", "+")) if name in packing)
        facts.append(("packed", f"{unpacked}: decoded() and statistics have physical values, [...] stored ones"))
    if array.fill is not None:
        facts.append(("fill", str(array.fill)))
    if array.coords:
        facts.append(("coords", ", ".join(array.coords)))
    if len(array.fields) > 1:
        facts.append(("fields", ", ".join(array.fields)))
    if not array.sparse:
        facts.append(("size", size(array.nbytes)))
    return facts


def safe(text: Any) -> str:
    """Escapes characters of untrusted text that control a terminal or are invisible."""
    return _native.escape(str(text))


def array_text(array: Array) -> str:
    given = array.variable_name
    title = repr(given if array.field in ("", array.name, given) else f"{array.name}[{array.field!r}]")
    if given != array.name and _NUMBERS.fullmatch(array.name):
        title += f", object {array.name}"
    lines = [f"<tesseral.Array {title} ({_dims(array)}) {array.dtype_name}>"]
    lines += [f"  {name:8}{value}" for name, value in _facts(array)[2:]]
    lines += [f"  {name}: {value}"[:110] for name, value in list(array.attrs.items())[:_SHOWN]]
    return "\n".join(map(safe, lines))


def container_text(container: Container) -> str:
    count = f"{len(container)} array{'' if len(container) == 1 else 's'}"
    lines = [f"<tesseral.Container {container.url!r} {container.format}, {count}>"]
    for name in list(container)[:_SHOWN]:
        lines.append("  " + _line(container, name))
    if len(container) > _SHOWN:
        lines.append(f"  … and {len(container) - _SHOWN} more")
    lines += [f"  @{name}: {value}"[:110] for name, value in list(container.attrs.items())[:_SHOWN]]
    return "\n".join(map(safe, lines))


def _line(container: Container, name: str) -> str:
    try:
        array = container[name]
    except Exception as error:
        return f"{name:16} {error}".splitlines()[0]
    given = array.variable_name if _NUMBERS.fullmatch(name) else name
    shown = name if given == name else f"{name:6} {given}"
    return f"{shown:16} {array.dtype_name:10} ({_dims(array)})"


def _column(rows: list[list[str]]) -> list[str]:
    """Rows with aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _ends(array: Array) -> str:
    """The first and the last coordinate of an index coordinate, or the value of a scalar one: times as dates."""
    if array.sparse or 0 in array.shape or len(array.dims) > 1:
        return ""
    try:
        ends = [_end(array.isel({array.dims[0]: at})) if array.dims else _end(array) for at in (0, -1)]
    except Exception:
        # Times of a calendar that needs a package, or damaged cells.
        return ""
    return ends[0] if not array.dims else " … ".join(ends)


def _end(cell: Array) -> str:
    if cell.dtype.kind != "M" and not cell._view.counts_time:
        return str(cell[...])
    [text] = [str(time) for time in np.ma.getdata(cell.decoded()).ravel()]
    # Midnight and whole seconds need no time of the day.
    return re.sub(r"([T ]00:00:00)?(\.0+)?$", "", text)


def container_info(container: Container) -> str:
    """Variables with their dimensions, units and chunks; coordinates; attributes."""
    data, coordinates, failed = [], [], []
    for name, view in container._variables.items():
        from ._array import Array

        array = Array(container, view)
        try:
            attrs = array.attrs
            described = str(attrs.get("long_name") or attrs.get("standard_name") or "")
            row = [safe(name), array.dtype_name, f"({_dims(array)})", safe(attrs.get("units", ""))]
            if array.role == "index" or (array.role == "auxiliary" and not array.dims):
                coordinates.append([*row, safe(_ends(array)), safe(described)])
            else:
                chunks = "×".join(map(str, array.chunks)) if array.chunks else "sparse" if array.sparse else "one chunk"
                data.append([*row, f"{chunks} {'+'.join(array.codecs) or 'raw'}", safe(described)])
        except Exception as error:
            failed.append(f"  {safe(name)}: {safe(error)}".splitlines()[0])
    lines = [safe(f"{container.url}: {container.format}, {len(container._variables)} variables")]
    for title, rows in (("variables:", data), ("coordinates:", coordinates)):
        lines += [title, *_column(rows)] if rows else []
    lines += ["not readable:", *failed] if failed else []
    groups = [path for path in container.groups if path]
    lines += ["groups:", *(f"  {safe(path)}" for path in groups)] if groups else []
    own = list(container.attrs.items())
    lines += ["attributes:", *(safe(f"  {name}: {value}")[:160] for name, value in own)] if own else []
    return "\n".join(lines)


def _picture(array: Array) -> str:
    """The chunk grid over the last two axes, as an SVG."""
    if not array.shape or not array.chunks or 0 in array.shape:
        return ""
    shape = ([1, *array.shape])[-2:]
    chunks = ([1, *array.chunks])[-2:]
    longest = max(shape)
    height, width = (max(12.0, 120.0 * extent / longest) for extent in shape)
    lines = []
    for extent, chunk, vertical in ((shape[1], chunks[1], True), (shape[0], chunks[0], False)):
        count = -(-extent // chunk)
        # More than a few dozen lines would fill the picture.
        for i in range(1, count, max(1, count // _CELLS)):
            at = min(1.0, i * chunk / extent)
            x, y = (at * width, at * height)
            ends = (x, 0.0, x, height) if vertical else (0.0, y, width, y)
            lines.append('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*ends))
    return (
        f'<svg width="{width + 2:.0f}" height="{height + 2:.0f}" viewBox="-1 -1 {width + 2:.0f} {height + 2:.0f}" '
        'style="stroke:currentColor;fill:none;stroke-opacity:.6">'
        f'<rect width="{width:.1f}" height="{height:.1f}" style="fill:#8ac;fill-opacity:.25"/>{"".join(lines)}</svg>'
    )


def _table(rows: list[tuple[str, Any]]) -> str:
    from html import escape

    cells = "".join(
        f'<tr><th style="text-align:left">{escape(safe(a))}</th><td style="text-align:left">{escape(safe(b))}</td></tr>' for a, b in rows
    )
    return f"<table>{cells}</table>"


def array_html(array: Array) -> str:
    from html import escape

    attrs = [(name, str(value)[:200]) for name, value in list(array.attrs.items())[:_SHOWN]]
    more = f"<details><summary>attributes</summary>{_table(attrs)}</details>" if attrs else ""
    return (
        f"<div><b>tesseral.Array</b> {escape(safe(array.name))}"
        f'<div style="display:flex;gap:1.5em;align-items:center">{_table(_facts(array))}{_picture(array)}</div>{more}</div>'
    )


def container_html(container: Container) -> str:
    from html import escape

    if container.closed:
        return f"<pre>{escape(repr(container))}</pre>"
    rows = []
    for name in list(container)[:_SHOWN]:
        rows.append((name, _line(container, name)[len(name) :].strip()))
    if len(container) > _SHOWN:
        rows.append(("…", f"and {len(container) - _SHOWN} more"))
    rows += [(f"@{name}", str(value)[:200]) for name, value in container.attrs.items()]
    return f"<div><b>tesseral.Container</b> {escape(safe(container.url))} ({escape(container.format)}){_table(rows)}</div>"
