"""Filters of table scans: the required columns, and evaluation on a subset of the columns.

A filter is a conjunction. Its parts are evaluated by the library that wrote it, on the columns that are known so far, so that the meaning of a
comparison is always that library's. Parts on fields alone become conditions of the engine, which prune chunks by statistics: a condition
is true for every row for which the part is true, and possibly for more rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import polars as pl

_ROW = "\0row"
_FLIPPED = {"equal": "equal", "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
_METADATA = re.compile(r"([a-z_]+): '(.*)'\Z")
# Beyond that many values, a list is not worth a condition.
_VALUES = 100


class Node(NamedTuple):
    """A call of a function, by Arrow's name; `field` and `literal` have a value instead of arguments."""

    kind: str
    value: Any
    arguments: tuple[Node, ...] = ()


class Part(NamedTuple):
    """One of the parts of a conjunction."""

    names: frozenset[str]
    #: The rows of which the part holds.
    rows: Callable[[pa.Table], np.ndarray[Any, Any]]
    #: Its structure, if it is understood.
    tree: Node | None
    #: Whether NaN is greater than every number, and not unordered as in IEEE 754.
    nan_is_greatest: bool


class Filter(NamedTuple):
    """A conjunction, and the columns it needs; None if they are not known."""

    parts: Sequence[Part]
    names: frozenset[str] | None


def of_arrow(expression: Any) -> Filter:
    """A filter in Arrow's expressions."""
    tree = _arrow_tree(expression)
    if tree is None:
        return Filter([], None)

    def part(node: Node) -> Part:
        wanted = _expression(node)
        return Part(_names(node), lambda table: _numbered(table).filter(wanted)[_ROW].to_numpy(), node, False)

    # Another draw of random numbers would have other rows.
    parts = [] if _draws(tree) else [part(node) for node in _conjuncts(tree)]
    return Filter(parts, _names(tree))


def _draws(node: Node) -> bool:
    return node.kind == "random" or any(_draws(child) for child in node.arguments)


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column(_ROW, pa.array(np.arange(len(table))))


def _names(node: Node) -> frozenset[str]:
    if node.kind == "field":
        return frozenset([node.value])
    return frozenset().union(*(_names(child) for child in node.arguments))


def _conjuncts(node: Node) -> list[Node]:
    if node.kind in ("and_kleene", "and"):
        return [part for child in node.arguments for part in _conjuncts(child)]
    return [node]


# Arrow


def _arrow_tree(expression: Any) -> Node | None:
    """The structure of an expression, parsed from its serialized form; None unless it describes the same expression."""
    try:
        _, (buffer,) = expression.__reduce__()
        batch = pa.ipc.open_file(buffer).get_batch(0)
        text = batch.schema.to_string(truncate_metadata=False, show_field_metadata=False)
        lines = text.partition("-- schema metadata --\n")[2].splitlines()
        entries = [found.groups() for line in lines if (found := _METADATA.match(line))]
        tree, rest = _parsed(entries, batch)
        same = not rest and len(entries) == len(lines) and _expression(tree).equals(expression)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, pa.ArrowException):
        return None
    return tree if same else None


def _parsed(entries: list[Any], batch: pa.RecordBatch) -> tuple[Node, list[Any]]:
    (kind, text), rest = entries[0], entries[1:]
    if kind == "field_ref":
        return Node("field", text), rest
    if kind == "literal":
        return Node("literal", batch.column(int(text))[0]), rest
    if kind != "call":
        raise ValueError(kind)
    arguments, options = [], None
    while rest[0] != ("end", text):
        if rest[0][0] == "options":
            options, rest = batch.column(int(rest[0][1]))[0], rest[1:]
        else:
            argument, rest = _parsed(rest, batch)
            arguments.append(argument)
    return Node(text, options, tuple(arguments)), rest[1:]


def _expression(node: Node) -> Any:
    """The expression of a structure."""
    if node.kind == "field":
        return pc.field(node.value)
    if node.kind == "literal":
        return pc.scalar(node.value)
    first, *others = (_expression(child) for child in node.arguments)
    if node.kind == "is_in":
        return first.isin(node.value["value_set"].values)
    if node.kind == "is_null":
        return first.is_null(nan_is_null=node.value["nan_is_null"].as_py())
    if node.value is not None:
        raise ValueError(node.kind)
    return pc.Expression._call(node.kind, [first, *others])


# Polars

_POLARS = {
    "Gt": "greater",
    "GtEq": "greater_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Eq": "equal",
    "And": "and_kleene",
    "LogicalAnd": "and_kleene",
    "Or": "or_kleene",
    "LogicalOr": "or_kleene",
}
_POLARS_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_POLARS_SCALAR = re.compile(r"String|U?Int\d+|Float\d+")


def of_polars(expression: pl.Expr) -> Filter:
    """A filter in expressions of Polars."""
    import polars as pl

    def part(found: pl.Expr, tree: Node | None) -> Part:
        def rows(table: pa.Table) -> np.ndarray[Any, Any]:
            frame = pl.from_arrow(_numbered(table))
            assert isinstance(frame, pl.DataFrame)
            return frame.filter(found)[_ROW].to_numpy()

        return Part(frozenset(found.meta.root_names()), rows, tree, True)

    names = frozenset(expression.meta.root_names())
    try:
        serialized = json.loads(expression.meta.serialize(format="json"))
        parts = [
            part(pl.Expr.deserialize(json.dumps(one).encode(), format="json"), _polars_tree(one)) for one in _polars_conjuncts(serialized)
        ]
    except Exception:
        # The form is Polars' own and can change: without its parts, the filter is one.
        parts = [part(expression, None)]
    return Filter(parts, names)


def _polars_conjuncts(node: Any) -> list[Any]:
    call = node.get("BinaryExpr") if isinstance(node, dict) else None
    if call is not None and call["op"] in ("And", "LogicalAnd"):
        return _polars_conjuncts(call["left"]) + _polars_conjuncts(call["right"])
    return [node]


def _polars_tree(node: Any) -> Node | None:
    match node:
        case {"Column": str(name)}:
            return Node("field", name)
        case {"Literal": {"Dyn": {"Int": int(value)}}} | {"Literal": {"Dyn": {"Float": float(value)}}}:
            return Node("literal", pa.scalar(value))
        case {"Literal": {"Scalar": {"Datetime": [int(value), str(unit), None]}}} if unit in _POLARS_UNITS:
            return Node("literal", pa.scalar(value, pa.timestamp(_POLARS_UNITS[unit])))
        case {"Literal": {"Scalar": {**scalar}}} if len(scalar) == 1 and _POLARS_SCALAR.match(kind := str(next(iter(scalar)))):
            value = scalar[kind]
            return Node("literal", pa.scalar(value)) if type(value) in (int, float, str) else None
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}} if op in _POLARS:
            arguments = [_polars_tree(left), _polars_tree(right)]
            return Node(_POLARS[op], None, tuple(a for a in arguments if a)) if all(arguments) else None
        case {"Function": {"input": [value, low, high], "function": {"Boolean": {"IsBetween": {"closed": "Both"}}}}}:
            arguments = [_polars_tree(value), _polars_tree(low), _polars_tree(high)]
            if None in arguments:
                return None
            field, first, last = (a for a in arguments if a)
            return Node("and_kleene", None, (Node("greater_equal", None, (field, first)), Node("less_equal", None, (field, last))))
    return None


# Conditions of the engine


def condition(part: Part, fields: Mapping[str, np.dtype[Any]], names: Mapping[str, str] | None = None) -> str | None:
    """A condition on fields, by the names of their columns with their dtypes, that is true where the part is; None if there is none.
    `names` are those of fields that differ from their column's."""
    if part.tree is None:
        return None
    tree = part.tree if names is None else _renamed(part.tree, names)
    return _weaker(tree, {(names or {}).get(name, name): dtype for name, dtype in fields.items()}, part.nan_is_greatest)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    value = names.get(node.value, node.value) if node.kind == "field" else node.value
    return Node(node.kind, value, tuple(_renamed(child, names) for child in node.arguments))


def _weaker(node: Node, fields: Mapping[str, np.dtype[Any]], nan_is_greatest: bool) -> str | None:
    if node.kind in ("and_kleene", "or_kleene"):
        texts = [_weaker(child, fields, nan_is_greatest) for child in node.arguments]
        known = [text for text in texts if text is not None]
        if not known or (node.kind == "or_kleene" and len(known) < len(texts)):
            return None
        return "(" + (" and " if node.kind == "and_kleene" else " or ").join(known) + ")"
    if node.kind == "if_else" and node.arguments[2] == Node("literal", pa.scalar(None, pa.bool_())):
        return _weaker(node.arguments[1], fields, nan_is_greatest)
    if node.kind == "is_in" and node.arguments[0].kind == "field":
        values = node.value["value_set"].values
        if not 0 < len(values) <= _VALUES or values.null_count:
            return None
        texts = [_compared("equal", node.arguments[0].value, value, fields, nan_is_greatest) for value in values]
        return None if None in texts else "(" + " or ".join(text for text in texts if text) + ")"
    if node.kind not in _FLIPPED:
        return None
    left, right = node.arguments
    if left.kind == "field" and right.kind == "literal":
        return _compared(node.kind, left.value, right.value, fields, nan_is_greatest)
    if left.kind == "literal" and right.kind == "field":
        return _compared(_FLIPPED[node.kind], right.value, left.value, fields, nan_is_greatest)
    return None


def _compared(op: str, name: str, scalar: pa.Scalar, fields: Mapping[str, np.dtype[Any]], nan_is_greatest: bool) -> str | None:
    dtype = fields.get(name)
    if dtype is None or "`" in name or not scalar.is_valid:
        return None
    quoted = f"`{name}`"
    if dtype.kind == "O":
        value = scalar.as_py()
        # Text without anything that a condition would have to escape.
        plain = op == "equal" and isinstance(value, str) and value.isprintable() and not set(value) & {'"', "\\"}
        return f'{quoted} = "{value}"' if plain else None
    if dtype.kind == "M":
        return _compared_time(op, quoted, scalar, dtype)
    if dtype.kind not in "iuf" or not (pa.types.is_integer(scalar.type) or pa.types.is_floating(scalar.type)):
        return None
    bounds = _around(scalar.as_py(), dtype)
    if bounds is None:
        return None
    low, high = bounds
    if op == "equal":
        return f"({quoted} >= {low} and {quoted} <= {high})"
    if op in ("less", "less_equal"):
        return f"{quoted} <= {high}"
    text = f"{quoted} >= {low}"
    return f"({text} or {quoted} is nan)" if nan_is_greatest and dtype.kind == "f" else text


def _around(value: Any, dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """Numbers at most and at least as large as a value, however it is rounded to be compared with cells of the dtype."""
    if isinstance(value, int):
        if dtype.kind in "iu":
            return str(value), str(value)
        value = float(value) if abs(value) <= 2**53 else math.nan
    if not math.isfinite(value):
        return None
    if dtype.kind in "iu":
        return (str(math.floor(value)), str(math.ceil(value))) if abs(value) < 2**53 else None
    with np.errstate(over="ignore"):
        cell = dtype.type(value)
        low, high = (float(np.nextafter(cell, dtype.type(end))) for end in (-np.inf, np.inf))
    return (repr(low), repr(high)) if math.isfinite(low) and math.isfinite(high) else None


def _compared_time(op: str, quoted: str, scalar: pa.Scalar, dtype: np.dtype[Any]) -> str | None:
    if not pa.types.is_timestamp(scalar.type) or scalar.type.tz is not None:
        return None
    moment = np.datetime64(scalar.value, scalar.type.unit)
    cell = moment.astype(dtype)
    # Days are compared with days: a part of a day has no place among them.
    if np.isnat(cell) or cell.astype(moment.dtype) != moment or np.datetime_data(dtype)[0] not in ("D", "h", "m", "s", "ms", "us", "ns"):
        return None
    sign = {"equal": "=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}[op]
    return f'{quoted} {sign} "{np.datetime_as_string(cell)}"'
