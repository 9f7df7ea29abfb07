"""Writing xarray datasets: CF encoding, new containers, and appending along a dimension."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from . import _native
from ._array import Array
from ._container import open as open_container
from ._edit import log
from ._errors import FileMissingError, InvalidRequestError, NotFoundError
from ._storage import Source, is_url, located, resolve
from ._write import Session, WritableArray, create

# Keys of `encoding`: how CF stores the values of a variable, the extents of its chunks, and its codec.
_CF = {"_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "units", "calendar", "dtype", "coordinates"}
_KNOWN = _CF | set(xr.conventions.CF_RELATED_DATA) | {"chunksizes", "codec"}
# Keys of an encoding that select numbers instead of datetime64 and timedelta64 values.
_TIME = {"units", "calendar", "dtype", "scale_factor", "add_offset", "_FillValue", "missing_value"}
# Attributes of numbers that were not decoded.
_STORED = {"_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned"}
# The attribute that holds the dtype of fixed-width text, which is stored as text of variable length.
TEXT_DTYPE = "_NumpyDtype"
Groups = dict[str, xr.Dataset]


class Encoded(NamedTuple):
    """A stored variable."""

    name: str
    group: str
    variable: xr.Variable
    is_coordinate: bool

    @property
    def path(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def dims(self) -> list[str]:
        return [str(dim) for dim in self.variable.dims]


def groups_of(data: Any) -> Groups:
    """Datasets by the path of their group. The root has an empty path and comes first."""
    if isinstance(data, xr.DataTree):
        return {node.path.strip("/"): node.to_dataset(inherit=False) for node in data.subtree}
    if isinstance(data, xr.DataArray):
        # The name that xarray gives to the variable of an unnamed array, and removes in `open_dataarray`.
        name = "__xarray_dataarray_variable__" if data.name is None else data.name
        return {"": data.to_dataset(name=name)}
    if isinstance(data, xr.Dataset):
        return {"": data}
    raise TypeError(f"expected a Dataset, DataArray or DataTree, not {type(data).__name__}")


def _with_encoding(groups: Groups, encoding: Mapping[str, Any] | None) -> Groups:
    """The datasets with the requested encoding. In that of a tree, keys are paths of groups."""
    if not encoding:
        return groups
    # The path of a group begins with a slash; names of variables contain none.
    of_groups = {key.strip("/"): value for key, value in encoding.items() if key.startswith("/")}
    of_root = {key: value for key, value in encoding.items() if not key.startswith("/")}
    if of_root:
        of_groups[""] = {**of_groups.get("", {}), **of_root}
    unknown = [path for path in of_groups if path not in groups]
    if unknown:
        raise InvalidRequestError(f"encoding for a group {unknown[0]!r}, which does not exist")
    return {path: _encode_as(dataset, of_groups.get(path, {})) for path, dataset in groups.items()}


def _encode_as(dataset: xr.Dataset, encoding: Mapping[str, Any]) -> xr.Dataset:
    out = dataset.copy(deep=False)
    for name, wanted in encoding.items():
        if name not in out.variables:
            raise InvalidRequestError(f"encoding for a variable {name!r}, which does not exist")
        unknown = [key for key in wanted if key not in _KNOWN]
        if unknown:
            raise InvalidRequestError(f"unknown encoding key {unknown[0]!r}; valid keys are {', '.join(sorted(_KNOWN))}", array=name)
        out[name].encoding = {**out[name].encoding, **wanted}
    return out


def encode(groups: Groups) -> tuple[list[Encoded], dict[str, dict[str, Any]]]:
    """Encodes every variable for storage; returns them with the attributes of each group."""
    variables: list[Encoded] = []
    attrs = {}
    for group, dataset in groups.items():
        with warnings.catch_warnings():
            # About names that a `coordinates` attribute cannot list. The role of the variable marks these too.
            warnings.simplefilter("ignore", xr.SerializationWarning)
            found, attrs[group] = xr.conventions.encode_dataset_coordinates(dataset)
        _share_units_with_bounds(found)
        for name, variable in found.items():
            if not isinstance(name, str) or not all(isinstance(dim, str) for dim in variable.dims):
                raise InvalidRequestError(f"the name of variable {name!r} or of one of its dimensions is not a string")
            if not name:
                raise InvalidRequestError("a variable without a name")
            if "/" in name:
                raise InvalidRequestError(f"the name {name!r} contains a slash, which separates groups: write a DataTree")
            variables.append(Encoded(name, group, _encoded(name, variable), name in dataset.coords))
    return variables, attrs


def _share_units_with_bounds(variables: Mapping[Any, xr.Variable]) -> None:
    """Sets units and calendar of the bounds of a time coordinate, as required by CF."""
    for variable in variables.values():
        bounds = variables.get(variable.attrs.get("bounds") or variable.encoding.get("bounds"))
        if bounds is not None and bounds.dtype.kind in "MO" and "since" in str(variable.encoding.get("units")):
            for key in ("units", "calendar"):
                if key in variable.encoding:
                    bounds.encoding.setdefault(key, variable.encoding[key])


def _encoded(name: str, variable: xr.Variable) -> xr.Variable:
    """Encodes a variable for storage: values packed, missing cells filled, dates as numbers where the encoding has units. Other dates and booleans
    are stored in their own dtype."""
    variable = variable.copy(deep=False)
    if not isinstance(variable.dtype, np.dtype):
        raise InvalidRequestError(f"the variable has the dtype {variable.dtype} of pandas: convert it with astype to one of NumPy", array=name)
    if hasattr(variable.data, "todense"):
        raise InvalidRequestError("the variable is backed by a sparse array: convert it to a dense one, or write its cells as a table with tesseral.write_cells", array=name)
    kind, encoding = variable.dtype.kind, variable.encoding
    if kind == "b" or kind in "Mm" and not _TIME & {key for key, value in encoding.items() if value is not None}:
        for key in xr.conventions.CF_RELATED_DATA:
            if key in encoding:
                variable.attrs[key] = encoding[key]
        return variable
    if kind == "f":
        # xarray would declare NaN as the fill value of every float variable.
        encoding.setdefault("_FillValue", None)
    elif kind in "OT" and not {"_FillValue", "missing_value"} & {*encoding, *variable.attrs}:
        variable = _with_missing_text(variable)
    try:
        variable = xr.conventions.encode_cf_variable(variable, name=name)
    except Exception as error:
        if hasattr(error, "add_note"):
            error.add_note(f"while the variable {name!r} was encoded")
        raise
    units = encoding.get("units")
    if kind in "MmO" and units is not None and _mean_the_same(variable.attrs, {**variable.attrs, "units": units}):
        variable.attrs["units"] = units
    if variable.dtype.kind == "U":
        variable.attrs[TEXT_DTYPE] = variable.dtype.newbyteorder("<").str
        return variable.copy(deep=False, data=variable.data.astype(object))
    if variable.dtype == "S1" and variable.ndim:
        # Readers take the last dimension of single bytes for that of the bytes of a text, as in netCDF.
        encoding = {key: value for key, value in variable.encoding.items() if key not in ("chunksizes", "original_shape")}
        return xr.Variable((*variable.dims, "string1"), variable.data[..., np.newaxis], variable.attrs, encoding)
    return _typed(name, variable) if variable.dtype.kind in "OT" else variable


def _with_missing_text(variable: xr.Variable) -> xr.Variable:
    """Declares a text as missing that no cell holds, if some cells of a text variable are missing. xarray would make them empty text."""
    cells = np.array(variable.data, object)
    missing = pd.isnull(cells)
    held = set(cells[~missing].ravel().tolist()) if missing.any() else set()
    if not held or not all(isinstance(cell, str) for cell in held):
        return variable
    unused = next(text for text in ("", "missing", *(f"missing {i}" for i in range(len(held)))) if text not in held)
    cells[missing] = None
    out = xr.Variable(variable.dims, cells, variable.attrs, variable.encoding)
    out.encoding["_FillValue"] = unused
    return out


def _mean_the_same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Returns whether units of time differ only in notation: xarray formats reference dates differently."""
    decoded = []
    for attrs in (a, b):
        meaning = {key: attrs[key] for key in ("units", "calendar") if key in attrs}
        decoded.append(xr.conventions.decode_cf_variable("", xr.Variable("x", [0.0, 1.0], meaning), decode_timedelta=True))
    return decoded[0].dtype.kind in "MmO" and bool((decoded[0].values == decoded[1].values).all())


def _typed(name: str, variable: xr.Variable) -> xr.Variable:
    """An object array as text, bytes or, where all objects are numbers, as a numeric array."""
    cells = np.asarray(variable.values, object)
    kinds = {str if isinstance(cell, str) else bytes if isinstance(cell, bytes) else type(cell) for cell in cells.ravel()}
    if kinds - {str, bytes} and all(issubclass(kind, (bool, int, float, complex, np.generic)) for kind in kinds):
        numbers = np.array(cells.tolist())
        if numbers.dtype.kind in "biufc" and all(a == b for a, b in zip(numbers.ravel().tolist(), cells.ravel())):
            return variable.copy(deep=False, data=numbers)
    if len(kinds) > 1 or kinds - {str, bytes}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidRequestError(
            f"an object array must hold only text, only bytes or only numbers, not {found}; replace missing numbers by NaN", array=name
        )
    return variable.copy(deep=False, data=cells)


def write(
    data: Any,
    path: Source,
    format: str,
    *,
    append_dim: str | None = None,
    encoding: Mapping[str, Any] | None = None,
    chunks: Any = None,
    codec: Any = None,
    fill: Any = None,
    unlimited_dims: Iterable[str] | str | None = None,
    **options: Any,
) -> None:
    """Writes a Dataset, DataArray or DataTree to a new container, or appends it to an existing one."""
    groups = _with_encoding(groups_of(data), encoding)
    unlimited = _unlimited(groups, unlimited_dims)
    place, settings = resolve(path, options.pop("storage_options", None))
    if append_dim is not None and _exists(place, settings):
        _append(groups, place, settings, format, append_dim, options)
        return
    variables, attrs = encode(groups)
    with create(place, format, storage_options=settings, **options) as session:
        for group, own in attrs.items():
            session.set_attrs(own, group=group)
        targets = [
            session.add(
                one.path,
                one.variable.shape,
                one.variable.dtype,
                values=_text_of(one.variable.data),
                dims=one.dims,
                attrs=one.variable.attrs,
                role="coordinate" if one.is_coordinate else None,
                chunks=_chunks_of(one, chunks),
                codec=one.variable.encoding.get("codec", codec.get(one.name) if isinstance(codec, Mapping) else codec),
                fill=fill,
                unlimited=unlimited[one.group],
            )
            for one in variables
        ]
        for target, one in zip(targets, variables):
            if one.variable.dtype.kind != "O":
                _store(target, one.variable.data)


def _unlimited(groups: Groups, wanted: Iterable[str] | str | None) -> dict[str, list[str]]:
    """Unlimited dimensions by group: the requested ones, or those in the encoding of the group and of the groups around it."""
    out: dict[str, list[str]] = {}
    for path, dataset in groups.items():
        own = dataset.encoding.get("unlimited_dims") or () if wanted is None else wanted
        around = out.get(path.rpartition("/")[0], []) if path else []
        out[path] = [*around, *([own] if isinstance(own, str) else map(str, own))]
    return out


def _text_of(cells: Any) -> Any:
    """Variable-length cells, which a format must know before the first cell is written."""
    return np.asarray(cells) if cells.dtype.kind == "O" else None


def _chunks_of(one: Encoded, chunks: Any) -> Any:
    """The requested chunks: a mapping by dimension applies to all variables, other values to data variables only. Without a request, the chunks of
    the file that the variable was read from, if the shape is still the same."""
    variable = one.variable
    if isinstance(chunks, Mapping):
        return [chunks.get(dim, n) for dim, n in zip(variable.dims, variable.shape)]
    if chunks is not None and not one.is_coordinate:
        return chunks
    stored, before = variable.encoding.get("chunksizes"), variable.encoding.get("original_shape")
    return stored if stored is not None and (before is None or before == variable.shape) else None


def _store(target: WritableArray, cells: Any, start: list[int] | None = None) -> None:
    """Stores cells from a position on, those of Dask arrays block by block."""
    if not hasattr(cells, "dask"):
        target[tuple(slice(n, None) for n in start or ()) or ...] = np.asarray(cells)
        return
    from .dask import store_blocks

    store_blocks(cells, target, start)


# Appending


def _exists(path: str, settings: Mapping[str, str]) -> bool:
    if not is_url(path):
        return os.path.exists(path)
    try:
        _native.recognize(located(path, settings))
    except (FileMissingError, NotFoundError):
        return False
    return True


def _append(groups: Groups, path: str, settings: Mapping[str, str], format: str, dim: str, options: dict[str, Any]) -> None:
    """Rewrites the container with the new cells after the old ones, and replaces it in one step."""
    old = open_container(path, storage_options=settings)
    if format and old.format != format:
        raise InvalidRequestError(f"the format of {path} is {old.format!r}, not {format!r}")
    stored = old.variables
    unfit = [name for name, array in stored.items() if array.sparse or array.nullable]
    if unfit:
        raise InvalidRequestError("sparse and nullable arrays cannot be appended to along a dimension: use tesseral.append", array=unfit[0])
    if not options.get("overwrite") and max(Counter(version.array for version in log(path, storage_options=settings)).values(), default=0) > 1:
        raise InvalidRequestError(f"{path} keeps earlier versions, which appending along a dimension drops: allow it with overwrite=True")
    variables, _ = encode({group: _encoded_like(dataset, group, stored) for group, dataset in groups.items()})
    new = {one.path: one for one in variables}
    _check(new, stored, groups, dim)
    with create(path, old.format, storage_options=settings, **{**options, "overwrite": True}) as session:
        for group, attrs in {"": old.attrs, **old.groups}.items():
            session.set_attrs(attrs, group=group)
        for row in old.history:
            session.add_history(**{**row, "params": {}}, **row.get("params", {}))
        grown = [(_declare_grown(session, name, array, new.get(name), dim), array, new.get(name)) for name, array in stored.items()]
        for target, array, one in grown:
            if array.dtype.kind == "O":
                continue
            for box, cells in array.blocks():
                target[box] = cells
            if one is not None and dim in array.dims:
                _store(target, one.variable.data, [n if d == dim else 0 for d, n in zip(array._axes, array.shape)])
        old.check_unchanged()


def _declare_grown(session: Session, name: str, array: Array, new: Encoded | None, dim: str) -> WritableArray:
    along = array.dims.index(dim) if new is not None and dim in array.dims else None
    dtype, attrs, shape, values = array.dtype, array.attrs, list(array.shape), None
    if new is not None and along is not None:
        shape[along] += new.variable.shape[along]
        # Fixed-width bytes and text take the larger width.
        if dtype.kind == new.variable.dtype.kind == "S":
            dtype = np.promote_types(dtype, new.variable.dtype)
        if TEXT_DTYPE in attrs and TEXT_DTYPE in new.variable.attrs:
            attrs[TEXT_DTYPE] = np.promote_types(attrs[TEXT_DTYPE], new.variable.attrs[TEXT_DTYPE]).newbyteorder("<").str
    if dtype.kind == "O":
        values = np.asarray(array[...])
        if new is not None and along is not None:
            values = np.concatenate([values, np.asarray(new.variable.data)], axis=along)
    return session.add(
        name,
        shape,
        dtype,
        values=values,
        dims=array._axes,
        attrs=attrs,
        role=array._view.own_role,
        chunks=array.chunks,
        codec=list(array.codecs),
        unlimited=array._view.unlimited,
    )


def _encoded_like(dataset: xr.Dataset, group: str, stored: Mapping[str, Array]) -> xr.Dataset:
    """The dataset with the encoding of the stored variables, independent of how it was read."""
    out = dataset.copy(deep=False)
    for name, variable in dataset.variables.items():
        array = stored.get(f"{group}/{name}" if group else str(name))
        if array is None:
            continue
        # Numbers beside attributes that say how they are stored are stored ones.
        stored_form = variable.dtype.kind in "iuf" and bool(_STORED & variable.attrs.keys())
        keys = [key for key in _CF if key in array.attrs and (variable.dtype.kind in "MmO" or key not in ("units", "calendar"))]
        keys = [] if stored_form else keys
        encoding = {key: array.attrs[key] for key in keys}
        if encoding.keys() - {"coordinates"} and array.dtype.kind in "iuf":
            encoding["dtype"] = array.dtype
        elif variable.dtype != array.dtype and variable.dtype.kind in "iufcMm" and array.dtype.kind in "iufcMm":
            cells = np.asarray(variable.values)
            with np.errstate(invalid="ignore", over="ignore"):
                variable = variable.copy(data=cells.astype(array.dtype))
            _expect(_same(variable.values.astype(cells.dtype), cells), name, array)
        out[name] = (variable.dims, variable.data, {key: value for key, value in variable.attrs.items() if key not in encoding}, encoding)
    return out


def _expect(exact: bool, name: Any, array: Array) -> None:
    if not exact:
        raise InvalidRequestError(f"some values cannot be stored exactly as {array.dtype} {array.attrs.get('units', '')}".strip(), array=str(name))


def _check_exact(one: Encoded, given: xr.Variable, array: Array) -> None:
    """Raises where encoding changed values, or made them missing. Packing rounds: only missing cells of packed variables are compared."""
    declared = _STORED & one.variable.attrs.keys()
    if _STORED & given.attrs.keys() or one.variable.dtype == given.dtype and not declared:
        return
    decoded = np.asarray(xr.conventions.decode_cf_variable(one.name, one.variable.copy()).values)
    cells = np.asarray(given.values)
    if {"scale_factor", "add_offset"} & declared:
        decoded, cells = pd.isnull(decoded), pd.isnull(cells)
    _expect(_same(decoded, cells), one.path, array)


def _same(a: Any, b: Any) -> bool:
    """Whether cells are equal, missing ones to each other."""
    missing = pd.isnull(a)
    return a.shape == b.shape and bool(np.all(missing == pd.isnull(b))) and bool(np.all(a[~missing] == b[~missing]))


def _check(new: Mapping[str, Encoded], stored: Mapping[str, Array], groups: Groups, dim: str) -> None:
    """Raises unless the new variables match the stored ones in everything but the cells along the dimension, and the labels continue."""
    grown = [name for name, array in stored.items() if dim in array.dims]
    if not grown:
        raise InvalidRequestError(f"no variable has a dimension {dim!r}")
    missing = [name for name in grown if name not in new]
    extra = [name for name in new if name not in stored]
    if missing or extra:
        what = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r}, which the container lacks"
        raise InvalidRequestError(f"the appended dataset {what}")
    for name, one in new.items():
        array = stored[name]
        if tuple(one.dims) != array._axes:
            raise InvalidRequestError(f"the dimensions are {array._axes}, not {tuple(one.dims)}", array=name)
        if one.variable.dtype != array.dtype and not {one.variable.dtype.kind, array.dtype.kind} <= set("OUS"):
            raise InvalidRequestError(f"the dtype is {array.dtype}, not {one.variable.dtype}", array=name)
        units = [key for key in ("units", "calendar") if key in one.variable.attrs and one.variable.attrs[key] != array.attrs.get(key)]
        if units:
            key = units[0]
            raise InvalidRequestError(f"{key!r} is {array.attrs.get(key)!r}, not {one.variable.attrs[key]!r}", array=name)
        if array._axes.count(dim) > 1:
            raise InvalidRequestError(f"several of its dimensions are named {dim!r}", array=name)
        if name in grown:
            differ = [d for d, n in zip(array._axes, array.shape) if d != dim and one.variable.sizes[d] != n]
            if differ:
                raise InvalidRequestError(
                    f"dimension {differ[0]!r} has {array.sizes[differ[0]]} positions, not {one.variable.sizes[differ[0]]}", array=name
                )
            _check_exact(one, groups[one.group].variables[one.name], array)
        elif not _same(np.asarray(array[...]), np.asarray(one.variable.values)):
            raise InvalidRequestError(f"the values differ from the stored ones, and the variable has no dimension {dim!r}", array=name)
    for group, dataset in groups.items():
        name = f"{group}/{dim}" if group else dim
        if name in stored and name in new:
            _check_labels(name, np.asarray(stored[name][...]), np.asarray(new[name].variable.values), dataset[dim].values)


def _check_labels(name: str, old: Any, new: Any, shown: Any) -> None:
    """Raises for labels that exist already, and for labels out of order where the stored ones are ordered."""
    there = np.isin(new, old)
    if there.any():
        raise InvalidRequestError(f"the label {shown[there][0]} already exists; appending does not overwrite", array=name)
    whole = np.concatenate([old, new])
    for holds, word in ((np.less, "increase"), (np.greater, "decrease")):
        # One label has no order of its own; the new ones define it.
        known = old if len(old) > 1 else new
        if len(known) > 1 and holds(known[:-1], known[1:]).all() and not holds(whole[:-1], whole[1:]).all():
            at = int(np.argmin(holds(whole[:-1], whole[1:]))) + 1 - len(old)
            raise InvalidRequestError(f"labels {word}, but {shown[max(at, 0)]} does not continue them", array=name)
