"""Write a random TileDB array with the reference package, and what the package itself reads back. Runs in its own process:
`python tiledb_arrays.py SEED FOLDER` creates FOLDER/array and FOLDER/expected.json."""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import tiledb
from tiledb.sparse_array import _setitem_impl_sparse

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FIXED = INTS + ["float32", "float64", "bool", "datetime64[ns]", "datetime64[D]", "timedelta64[s]", "S3", "f4x3", "f8x2"]
VAR = ["ascii", "U0", "var-i4"]
# Fields that conditions compare.
CONDITIONS = INTS + ["float32", "float64", "ascii", "colors", "codes", "steps"]
LABELS = {
    "colors": (["red", "green", "blue", "é"], "U0"),
    "codes": ([5, -3, 99], "int64"),
    "steps": ([0.5, 2.5, -1.0], "float64"),
}


def filters(rng, kind):
    tail = [
        lambda: tiledb.GzipFilter(level=rng.choice([-1, 1, 9])),
        lambda: tiledb.ZstdFilter(level=rng.choice([-1, 3, 12])),
        lambda: tiledb.LZ4Filter(),
        lambda: tiledb.Bzip2Filter(level=1),
        lambda: tiledb.ChecksumMD5Filter(),
        lambda: tiledb.ChecksumSHA256Filter(),
        lambda: tiledb.NoOpFilter(),
        lambda: tiledb.ByteShuffleFilter(),
        lambda: tiledb.BitShuffleFilter(),
    ]
    head = list(tail)
    if kind in INTS or kind.startswith(("datetime", "timedelta")):
        head += [
            lambda: tiledb.DoubleDeltaFilter(),
            lambda: tiledb.DeltaFilter(),
            lambda: tiledb.BitWidthReductionFilter(window=rng.choice([0, 16, 256])),
            lambda: tiledb.PositiveDeltaFilter(window=rng.choice([0, 64, 1024])),
            lambda: tiledb.RleFilter(),
            lambda: tiledb.XORFilter(),
        ] * 2
    if kind in ("float32", "float64"):
        head += [lambda: tiledb.FloatScaleFilter(factor=0.5, offset=1.0, bytewidth=rng.choice([1, 2, 4, 8])),
                 lambda: tiledb.XORFilter(), lambda: tiledb.RleFilter()] * 2
    if kind in ("ascii", "U0"):
        head += [lambda: tiledb.RleFilter(), lambda: tiledb.DictionaryFilter()] * 3
    if kind in ("S3", "bool", "f4x3"):
        head += [lambda: tiledb.RleFilter()]
    count = rng.choice([0, 0, 1, 1, 1, 2, 2, 3])
    found = [rng.choice(head if i == 0 else tail + head[len(tail):][:0 if kind in VAR else None])() for i in range(count)]
    # Double delta drops bytes that do not form a whole value, as compressors leave them: the package then writes damaged tiles.
    return [f for i, f in enumerate(found) if i == 0 or not isinstance(f, tiledb.DoubleDeltaFilter)]


def enumerated(rng, name, options):
    """A field of codes. Its kind is the name of the enumeration, which the caller must create."""
    kind = rng.choice(sorted(LABELS))
    return tiledb.Attr(name, dtype=rng.choice(["uint8", "int8", "int32"]), enum_label=kind, **options), kind


def enumerations(rng, attrs):
    """The enumerations that these fields use."""
    for kind in sorted({kind for _, kind, _ in attrs} & set(LABELS)):
        labels, dtype = LABELS[kind]
        yield tiledb.Enumeration(kind, rng.random() < 0.5, **({} if dtype == "U0" else {"dtype": dtype}), values=labels)


def attribute(rng, i, enums=True):
    kind = rng.choice(FIXED + FIXED + VAR if i or rng.random() < 0.4 else INTS + ["float32", "float64"])
    nullable = rng.random() < 0.3 and kind not in ("f4x3", "f8x2", "var-i4")
    options = {"filters": tiledb.FilterList(filters(rng, kind)), "nullable": nullable}
    name = f"a{i}"
    if enums and rng.random() < 0.2:
        options["filters"] = tiledb.FilterList(filters(rng, "uint8"))
        return *enumerated(rng, name, options), nullable
    if kind == "f4x3":
        return tiledb.Attr(name, dtype=[("", "<f4")] * 3, **options), kind, nullable
    if kind == "f8x2":
        return tiledb.Attr(name, dtype=[("", "<f8")] * 2, **options), kind, nullable
    if kind == "var-i4":
        return tiledb.Attr(name, dtype="int32", var=True, **options), kind, nullable
    if kind == "ascii":
        return tiledb.Attr(name, dtype="ascii", var=True, **options), kind, nullable
    return tiledb.Attr(name, dtype=kind, **options), kind, nullable


def cells(rng, kind, count):
    """Random cells: few distinct values, increasing, or arbitrary."""
    mode = rng.choice(["few", "rising", "wild"])
    if kind in LABELS:
        return np.array([rng.randrange(len(LABELS[kind][0])) for _ in range(count)])
    if kind in ("ascii", "U0"):
        letters = "abc" if kind == "ascii" else "aé\u4e2d"
        words = ["".join(rng.choice(letters) for _ in range(rng.randint(1, 5))) for _ in range(4 if mode == "few" else 50)]
        return np.array([rng.choice(words) for _ in range(count)], dtype="O")
    if kind == "var-i4":
        out = np.empty(count, dtype="O")
        for i in range(count):
            out[i] = np.array([rng.randint(-9, 9) for _ in range(rng.randint(1, 4))], dtype="int32")
        return out
    if kind == "S3":
        return np.array([bytes(rng.choice(b"xyz") for _ in range(3)) for _ in range(count)], dtype="S3")
    if kind in ("f4x3", "f8x2"):
        base, width = ("<f4", 3) if kind == "f4x3" else ("<f8", 2)
        return np.array([rng.uniform(-5, 5) for _ in range(count * width)], base).view([("", base)] * width)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return np.array([rng.random() < 0.5 for _ in range(count)])
    if dtype.kind == "f":
        pool = [0.5, -1.5, 2.0, 100.0] if mode == "few" else None
        values = [rng.choice(pool) if pool else rng.uniform(-50, 50) for _ in range(count)]
        if mode == "wild" and rng.random() < 0.5:
            values[rng.randrange(count)] = rng.choice([float("nan"), float("inf"), -0.0])
        return np.array(values, dtype)
    if mode == "rising":
        return np.sort(np.array([rng.randint(0, 100) for _ in range(count)])).astype(dtype)
    if mode == "few":
        return np.array([rng.choice([0, 1, 7, 100]) for _ in range(count)]).astype(dtype)
    return np.frombuffer(rng.randbytes(count * dtype.itemsize), dtype).copy()


def with_nulls(rng, values, nullable):
    if not nullable:
        return values
    return np.ma.MaskedArray(values, mask=random_mask(rng, values.size).reshape(values.shape))


def random_mask(rng, count):
    return np.array([rng.random() < 0.3 for _ in range(count)], dtype=bool)


def attributes(rng, uri):
    """Random array metadata, and how `info` shows it: numbers and text unchanged, several numbers as a list."""
    shown, stored = {}, {}
    for i in range(rng.choice([0, 1, 6])):
        kind = rng.choice(INTS + ["float32", "float64", "list", "str", "int", "float"])
        if kind in ("str", "int", "float"):
            value = {"str": rng.choice(["", "meters", "é\u4e2d", "two\nlines"]), "int": rng.randint(-9, 2**40), "float": rng.uniform(-1, 1)}[kind]
            shown[f"m{i}"], stored[f"m{i}"] = value, value
            continue
        dtype = np.dtype(rng.choice(INTS + ["float32", "float64"]) if kind == "list" else kind)
        numbers = np.array([rng.randint(0, 100) for _ in range(rng.randint(2, 5) if kind == "list" else 1)]).astype(dtype)
        stored[f"m{i}"] = numbers if kind == "list" else numbers[0]
        # The package marks arrays by their key.
        shown[f"__np_flat_m{i}" if kind == "list" else f"m{i}"] = numbers.tolist() if kind == "list" else numbers[0].item()
    if stored:
        with tiledb.open(uri, "w", timestamp=rng.randint(1, 99)) as array:
            array.meta.update(stored)
    return shown


def options(rng):
    return {"cell_order": rng.choice(["row-major", "col-major"]), "tile_order": rng.choice(["row-major", "col-major"])}


def dense(rng, uri):
    rank = rng.choice([1, 1, 2, 2, 3])
    dtype = rng.choice(["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "int32", "datetime64[D]"])
    dims, extents = [], []
    for d in range(rank):
        extent = rng.randint(1, [0, 60, 14, 7][rank])
        low = rng.randint(0, 9) if dtype.startswith("u") or dtype.startswith("d") else rng.randint(-9, 9)
        tile = rng.randint(1, extent)
        domain = (low, low + extent - 1)
        if dtype.startswith("datetime"):
            domain = tuple(np.datetime64(int(v), "D") for v in domain)
            tile = np.timedelta64(tile, "D")
        dims.append(tiledb.Dim(f"d{d}", domain=domain, tile=tile, dtype=dtype))
        extents.append((low, extent))
    attrs = [attribute(rng, i) for i in range(rng.randint(1, 3))]
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[a for a, _, _ in attrs], sparse=False,
                                enums=list(enumerations(rng, attrs)), **options(rng))
    tiledb.Array.create(uri, schema)
    live = list(attrs)
    times = sorted(rng.sample(range(10, 90), rng.randint(0, 4)))
    for n, time in enumerate(times):
        if n == 1 and rng.random() < 0.3:
            extra = attribute(rng, len(attrs), enums=False)
            evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
            evolution.add_attribute(extra[0])
            evolution.timestamp(time)
            evolution.array_evolve(uri)
            live.append(extra)
        box = []
        for low, extent in extents:
            a, b = sorted((rng.randrange(extent), rng.randrange(extent)))
            if rng.random() < 0.4:
                a, b = 0, extent - 1
            box.append((low + a, low + b))
        shape = tuple(b - a + 1 for a, b in box)
        with tiledb.open(uri, "w", timestamp=time) as array:
            values = {}
            for attr, kind, nullable in live:
                values[attr.name] = with_nulls(rng, cells(rng, kind, int(np.prod(shape))), nullable).reshape(shape)
            subarray = tiledb.Subarray(array)
            as_coord = (lambda v: np.datetime64(v, "D")) if dtype.startswith("datetime") else np.dtype(dtype).type
            subarray.add_ranges([[(as_coord(a), as_coord(b))] for a, b in box])
            array.write_subarray(subarray, values)
    every = {attr.name: kind for attr, kind, _ in attrs if kind in CONDITIONS}
    return times, every, {attr.name: nullable for attr, _, nullable in attrs}


def coordinates(rng, kind, count, low, high):
    if kind == "ascii":
        return np.array(["".join(rng.choice("abcd") for _ in range(rng.randint(1, 4))) for _ in range(count)], dtype="O")
    if kind == "float64":
        return np.array([rng.choice([rng.uniform(low, high), float(rng.randint(low, high))]) for _ in range(count)])
    values = np.array([rng.randint(low, high) for _ in range(count)])
    return values.astype(kind) if not kind.startswith("datetime") else values.astype("datetime64[ns]")


def sparse(rng, uri):
    rank = rng.choice([1, 1, 2, 2, 3])
    dims, kinds = [], []
    for d in range(rank):
        kind = rng.choice(["int32", "int64", "uint8", "uint64", "float64", "ascii", "datetime64[ns]", "int32"])
        low, high = (0, 20) if kind.startswith(("u", "d")) else (-10, 10)
        if kind == "ascii":
            dims.append(tiledb.Dim(f"d{d}", domain=(None, None), tile=None, dtype="ascii",
                                   filters=tiledb.FilterList(filters(rng, "ascii") if rng.random() < 0.5 else [])))
        else:
            domain = (low, high)
            tile = rng.randint(1, 7)
            if kind.startswith("datetime"):
                domain = tuple(np.datetime64(v, "ns") for v in domain)
                tile = np.timedelta64(tile, "ns")
            dims.append(tiledb.Dim(f"d{d}", domain=domain, tile=tile, dtype=kind))
        kinds.append((kind, low, high))
    attrs = [attribute(rng, i) for i in range(rng.randint(1, 3))]
    duplicates = rng.random() < 0.3
    extra = options(rng)
    if rng.random() < 0.2:
        extra["cell_order"] = "hilbert"
        extra.pop("tile_order")
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[a for a, _, _ in attrs], sparse=True,
                                capacity=rng.choice([2, 7, 100, 10000]), allows_duplicates=duplicates,
                                enums=list(enumerations(rng, attrs)), **extra)
    tiledb.Array.create(uri, schema)
    times = sorted(rng.sample(range(10, 90), rng.randint(0, 4)))
    for time in times:
        count = rng.randint(1, 60)
        coords = [coordinates(rng, kind, count, low, high) for kind, low, high in kinds]
        if not duplicates:
            seen, keep = set(), []
            for i, key in enumerate(zip(*[c.tolist() for c in coords])):
                if key not in seen:
                    seen.add(key)
                    keep.append(i)
            coords = [c[keep] for c in coords]
            count = len(keep)
        values = {attr.name: cells(rng, kind, count) for attr, kind, _ in attrs}
        # The package ignores masks of arrays here.
        nullmaps = {attr.name: (~random_mask(rng, count)).astype("u1") for attr, _, nullable in attrs if nullable}
        with tiledb.open(uri, "w", timestamp=time) as array:
            _setitem_impl_sparse(array, tuple(coords), values, nullmaps)
    for attr, kind, _ in attrs:
        if times and kind in ("int16", "int32", "float64") and rng.random() < 0.5:
            with tiledb.open(uri, "d", timestamp=rng.randint(times[0], 95)) as array:
                array.query(cond=f"{attr.name} {rng.choice(['>', '<', '==', '!='])} {rng.choice([0, 1, 7])}").submit()
            break
    every = {attr.name: kind for attr, kind, _ in attrs if kind in CONDITIONS}
    every.update({f"d{d}": kind for d, (kind, _, _) in enumerate(kinds)})
    return times, every, {attr.name: nullable for attr, _, nullable in attrs}


def read(uri, times, is_sparse, ranges=None, cond=None):
    """The package's own raw buffers: per name (bytes, offsets, validity)."""
    context = tiledb.Ctx({"sm.var_offsets.bitsize": 64})
    with tiledb.open(uri, timestamp=times, ctx=context) as array:
        attrs = [array.attr(i).name for i in range(array.nattr)]
        dims = [array.dim(i).name for i in range(array.ndim)] if is_sparse else []
        query = tiledb.main.PyQuery(context, array, attrs, dims, is_sparse, 3 if is_sparse else 0)
        subarray = tiledb.Subarray(array, context)
        if cond:
            query.set_cond(tiledb.QueryCondition(cond))
        if is_sparse:
            for i, name in enumerate(dims):
                if ranges and name in ranges:
                    subarray.add_dim_range(i, ranges[name])
            query.set_subarray(subarray)
        else:
            box = [array.dim(i).domain for i in range(array.ndim)]
            current = array.schema.current_domain
            if not current.is_empty:
                box = [current.ndrectangle.range(i) for i in range(array.ndim)]
            subarray.add_ranges([[ends] for ends in box])
            query.set_subarray(subarray)
        query.submit()
        results = query.results()
        out = {}
        for name in attrs + dims:
            data, offsets, validity = (np.asarray(b) for b in results[name])
            holder = array.attr(name) if name in attrs else array.dim(name)
            var = bool(getattr(holder, "isvar", False)) or (name in dims and holder.dtype.kind in "SU")
            if var:
                starts = offsets.tolist()
                ends = starts[1:] + [data.size]
                rows = [data[a:b].tobytes() for a, b in zip(starts, ends)]
            else:
                dtype = holder.dtype
                size = dtype.itemsize
                rows = [data[i:i + size].tobytes() for i in range(0, data.size, size)]
            nullable = name in attrs and holder.isnullable
            valid = [bool(v) for v in validity] if nullable else [True] * len(rows)
            out[name] = (rows, valid, var, holder.dtype)
        # Offsets of strings of a sparse array may end with one more, the end of the last.
        count = min((len(rows) for rows, _, _, _ in out.values()), default=0)
        for name, (rows, valid, var, dtype) in out.items():
            if var and len(rows) == count + 1 and rows[-1] == b"":
                out[name] = (rows[:-1], valid[:count], var, dtype)
        return attrs, dims, out


def literal(rng, kind, rows):
    """A value equal or close to a cell, in the condition syntax of the package and in ours; None if there is none."""
    cell = rng.choice(rows) if rows else None
    if kind in LABELS:
        label = rng.choice(LABELS[kind][0])
        return repr(label), json.dumps(label, ensure_ascii=False)
    if kind in ("ascii", "U0"):
        text = cell.decode() if cell and rng.random() < 0.8 else rng.choice(["a", "bb", "c"])
        return repr(text), '"' + text + '"'
    dtype = np.dtype(kind)
    if dtype.kind not in "iuf" or (cell is not None and len(cell) != dtype.itemsize):
        return None
    value = np.frombuffer(cell, dtype)[0] if cell and rng.random() < 0.8 else dtype.type(rng.choice([0, 1, 7]))
    if dtype.kind == "f":
        if not np.isfinite(value) or float(np.float32(value)) != float(value):
            value = dtype.type(0.5)
        return repr(float(value)), repr(float(value))
    # The package reads larger integers as floats.
    if abs(int(value)) >= 2**53:
        value = dtype.type(7)
    return str(int(value)), str(int(value))


def condition(rng, kinds, columns, nullable, depth=2):
    """A random condition in both syntaxes."""
    if depth and rng.random() < 0.4:
        a, b = condition(rng, kinds, columns, nullable, depth - 1), condition(rng, kinds, columns, nullable, depth - 1)
        word = rng.choice(["and", "or"])
        return f"({a[0]}) {word} ({b[0]})", f"({a[1]}) {word} ({b[1]})"
    for _ in range(20):
        name = rng.choice(sorted(kinds))
        rows, valid = columns[name]
        value = literal(rng, kinds[name], [r for r, v in zip(rows, valid) if v])
        if value is None:
            continue
        if rng.random() < 0.15:
            other = literal(rng, kinds[name], rows) or value
            word = rng.choice(["in", "not in"])
            return f"{name} {word} [{value[0]}, {other[0]}]", f"{name} {word} ({value[1]}, {other[1]})"
        # Ordered labels compare by index; the package does so for unordered ones, too.
        op = rng.choice(["==", "!="] if kinds[name] in LABELS else ["<", "<=", ">", ">=", "==", "!="])
        return f"{name} {op} {value[0]}", f"{name} {op} {value[1]}"
    raise ValueError("no column to compare")


def random_ranges(rng, dims, kinds, out):
    """Random ranges of existing coordinates, in the syntax of the package and in ours."""
    theirs, ours = {}, []
    for d in dims:
        rows, _, var, dtype = out[d]
        if not rows or rng.random() < 0.4:
            continue
        a, b = sorted(key_of(dtype, rng.choice(rows), var) for _ in range(2))
        if kinds[d] == "ascii":
            theirs[d] = (a, b)
            ours.append(f"{d}={a.decode()}..{b.decode()}")
        elif kinds[d].startswith("datetime"):
            theirs[d] = (np.datetime64(a, "ns"), np.datetime64(b, "ns"))
            ours.append(f"{d}={theirs[d][0]}..{theirs[d][1]}")
        else:
            theirs[d] = (a, b)
            ours.append(f"{d}={a!r}..{b!r}")
    return theirs, ours


def random_box(rng, uri):
    """A box of a dense array, in the syntax of the package and in ours."""
    theirs, ours = {}, []
    with tiledb.open(uri) as array:
        for d in range(array.ndim):
            dim = array.dim(d)
            low, high = (int(np.asarray(v).astype("int64")) for v in dim.domain)
            ends = sorted((rng.randint(low, high), rng.randint(low, high)))
            theirs[dim.name] = tuple(np.datetime64(v, "D") if dim.dtype.kind == "M" else v for v in ends)
            ours.append("{}={}..{}".format(dim.name, *theirs[dim.name]))
    return theirs, ours


def aggregates(uri, kinds, nullable, ranges, cond):
    """Aggregates by the package; none where it rejects them."""
    words = ["count", "sum", "min", "max", "mean"]
    wanted = {name: words + ["null_count"] * nullable[name]
              for name, kind in kinds.items() if name in nullable and kind in INTS + ["float32", "float64"]}
    if not wanted:
        return {}
    with tiledb.open(uri, timestamp=(0, 2000)) as array:
        names = [array.dim(i).name for i in range(array.ndim)]
        box = tuple(slice(*ranges[name]) if name in ranges else slice(None) for name in names)
        found = array.query(cond=cond, attrs=list(wanted)).agg(wanted).multi_index[box]
    # Aggregates of a single attribute come without its name.
    found = found if set(found) == set(wanted) else dict.fromkeys(wanted, found)
    plain = {name: {word: np.asarray(v).item() for word, v in folds.items()} for name, folds in found.items()}
    return {name: folds for name, folds in plain.items() if None not in folds.values()}


def answers(rng, uri, is_sparse, kinds, nullable):
    """Results of the package for random ranges and conditions: rows of a sparse array, and aggregates."""
    _, dims, out = read(uri, (0, 2000), is_sparse)
    columns = {name: (rows, valid) for name, (rows, valid, _, _) in out.items()}
    found = []
    for _ in range(3):
        ranges, ours = random_ranges(rng, dims, kinds, out) if is_sparse else random_box(rng, uri)
        try:
            cond = condition(rng, kinds, columns, nullable) if rng.random() < 0.7 else None
        except ValueError:
            cond = None
        answer = {"ranges": ours, "where": cond and cond[1]}
        try:
            # For a dense array the package also counts and aggregates cells that fail a condition.
            folds = is_sparse or not cond
            answer["aggregates"] = aggregates(uri, kinds, nullable, ranges, cond and cond[0]) if folds else {}
            if is_sparse:
                attrs, _, got = read(uri, (0, 2000), True, ranges, cond and cond[0])
                answer["count"] = len(next(iter(got.values()))[0])
                order = sort_rows(got, attrs, dims, answer["count"])
                answer["columns"] = {name: raw_column(got[name], order) for name in attrs + dims}
        except tiledb.TileDBError:
            # A condition or an aggregate that the package rejects.
            continue
        found.append(answer)
    return found


def key_of(dtype, cell, var):
    if var:
        return cell
    value = np.frombuffer(cell, dtype)[0]
    return int(value.view("int64")) if dtype.kind in "mM" else value.item()


def expectation(uri, times, is_sparse):
    attrs, dims, out = read(uri, times, is_sparse)
    count = len(next(iter(out.values()))[0])
    if any(len(rows) != count or len(valid) != count for rows, valid, _, _ in out.values()):
        raise ValueError("the package gave columns of several lengths")
    order = sort_rows(out, attrs, dims, count) if is_sparse else list(range(count))
    columns = {name: raw_column(out[name], order) for name in attrs + dims}
    return {"as_of": list(times), "sparse": is_sparse, "columns": columns}


def sort_rows(out, attrs, dims, count):
    """Rows by their coordinates, ties by the bytes of the attributes."""
    order = list(range(count))
    if dims:
        def key(i):
            coords = [key_of(out[d][3], out[d][0][i], out[d][2]) for d in dims]
            # Nulls are zeros, as in the raw bytes; validity is the last sort key.
            null = {a: b"" if out[a][2] else bytes(len(out[a][0][i])) for a in attrs}
            fields = [out[a][0][i] if out[a][1][i] else null[a] for a in attrs]
            return coords, fields, [out[a][1][i] for a in attrs]
        order.sort(key=key)
    return order


def raw_column(column, order):
    """One column in the form of our raw output."""
    rows, valid, var, _ = column
    blob = bytearray()
    for i in order:
        cell = rows[i] if valid[i] else (b"" if var else bytes(len(rows[i])))
        if var:
            blob += len(cell).to_bytes(8, "little")
        blob += cell
    return {"raw": bytes(blob).hex(), "validity": bytes(valid[i] for i in order).hex()}


def attempt(rng, uri):
    shutil.rmtree(uri, ignore_errors=True)
    is_sparse = rng.random() < 0.5
    times, kinds, nullable = (sparse if is_sparse else dense)(rng, uri)
    shown = attributes(rng, uri)
    if times and rng.random() < 0.4:
        config = tiledb.Config({"sm.consolidation.timestamp_start": times[0],
                                "sm.consolidation.timestamp_end": rng.choice(times)})
        tiledb.consolidate(uri, config=config)
        if rng.random() < 0.4:
            tiledb.vacuum(uri)
        if rng.random() < 0.3:
            tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.mode": "commits"}))
    ranges = [(0, 2000)] + [tuple(sorted((rng.randint(0, 99), rng.randint(0, 99)))) for _ in range(2)]
    ranges.append((0, rng.randint(10, 99)))
    if times and rng.random() < 0.3:
        tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.mode": "fragment_meta"}))
    states = [expectation(uri, times, is_sparse) for times in ranges]
    states[0]["answers"] = answers(rng, uri, is_sparse, kinds, nullable)
    states[0]["attributes"] = shown
    states[0]["labels"] = {name: LABELS[kind][0] for name, kind in kinds.items() if kind in LABELS}
    return states


def main(seed, folder):
    rng = random.Random(int(seed))
    for _ in range(50):
        try:
            expected = attempt(rng, str(Path(folder) / "array"))
            (Path(folder) / "expected.json").write_text(json.dumps(expected))
            return
        except (tiledb.TileDBError, ValueError, TypeError, OverflowError, IndexError, RuntimeError) as error:
            # A combination that the package rejects, or cannot read back itself.
            if "--why" in sys.argv:
                print(type(error), error, file=sys.stderr)
    sys.exit("no array could be written")


if __name__ == "__main__":
    main(*sys.argv[1:3])
