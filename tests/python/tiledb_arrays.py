"""Writes a random TileDB array with the reference package and what the package itself reads back. A process of its own:
`python tiledb_arrays.py SEED FOLDER` makes FOLDER/array and FOLDER/expected.json."""

import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import tiledb

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FIXED = INTS + ["float32", "float64", "bool", "datetime64[ns]", "datetime64[D]", "timedelta64[s]", "S3", "f4x3", "f8x2"]
VAR = ["ascii", "U0", "var-i4"]


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
    return [rng.choice(head if i == 0 else tail + head[len(tail):][:0 if kind in VAR else None])() for i in range(count)]


def attribute(rng, i):
    kind = rng.choice(FIXED + FIXED + VAR)
    nullable = rng.random() < 0.3 and kind not in ("f4x3", "f8x2", "var-i4")
    options = {"filters": tiledb.FilterList(filters(rng, kind)), "nullable": nullable}
    name = f"a{i}"
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
    """Random cells: sometimes few values, sometimes rising, sometimes anything."""
    mode = rng.choice(["few", "rising", "wild"])
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
    mask = np.array([rng.random() < 0.3 for _ in range(values.size)]).reshape(values.shape)
    return np.ma.MaskedArray(values, mask=mask)


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
    schema = tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[a for a, _, _ in attrs], sparse=False, **options(rng))
    tiledb.Array.create(uri, schema)
    live = list(attrs)
    times = sorted(rng.sample(range(10, 90), rng.randint(0, 4)))
    for n, time in enumerate(times):
        if n == 1 and rng.random() < 0.3:
            extra = attribute(rng, len(attrs))
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
    return times, {}, {}


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
                                capacity=rng.choice([2, 7, 100, 10000]), allows_duplicates=duplicates, **extra)
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
        values = {attr.name: with_nulls(rng, cells(rng, kind, count), nullable) for attr, kind, nullable in attrs}
        with tiledb.open(uri, "w", timestamp=time) as array:
            array[tuple(coords)] = values
    for attr, kind, _ in attrs:
        if times and kind in ("int16", "int32", "float64") and rng.random() < 0.5:
            with tiledb.open(uri, "d", timestamp=rng.randint(times[0], 95)) as array:
                array.query(cond=f"{attr.name} {rng.choice(['>', '<', '==', '!='])} {rng.choice([0, 1, 7])}").submit()
            break
    every = {attr.name: kind for attr, kind, _ in attrs if kind in INTS + ["float32", "float64", "ascii"]}
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
    """A value that cells have, or nearly, as a condition of the package takes it and as ours does; None where there is none."""
    cell = rng.choice(rows) if rows else None
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
    """A random condition in both languages."""
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
        op = rng.choice(["<", "<=", ">", ">=", "==", "!="])
        return f"{name} {op} {value[0]}", f"{name} {op} {value[1]}"
    raise ValueError("no column to compare")


def answers(rng, uri, dims, kinds, nullable, out):
    """What the package gives for random ranges and conditions of a sparse array, and aggregates of its numbers."""
    names = list(out)
    columns = {name: (out[name][0], out[name][1]) for name in names}
    found = []
    for _ in range(3):
        ranges, ours = {}, []
        for d in dims:
            rows = columns[d][0]
            if not rows or rng.random() < 0.4:
                continue
            kind = kinds[d]
            a, b = sorted((key_of(out[d][3], rng.choice(rows), out[d][2]), key_of(out[d][3], rng.choice(rows), out[d][2])))
            if kind == "ascii":
                ranges[d] = (a, b)
                ours.append(f"{d}={a.decode()}..{b.decode()}")
            elif kind.startswith("datetime"):
                ranges[d] = (np.datetime64(a, "ns"), np.datetime64(b, "ns"))
                ours.append(f"{d}={np.datetime64(a, 'ns')}..{np.datetime64(b, 'ns')}")
            else:
                ranges[d] = (a, b)
                ours.append(f"{d}={a!r}..{b!r}")
        try:
            cond = condition(rng, kinds, columns, nullable) if rng.random() < 0.7 else None
        except ValueError:
            cond = None
        try:
            attrs, dims_, got = read(uri, (0, 2000), True, ranges, cond and cond[0])
        except tiledb.TileDBError:
            # A condition that the package refuses.
            continue
        count = len(next(iter(got.values()))[0])
        order = sort_rows(got, attrs, dims_, count)
        columns_out = {name: raw_column(got[name], order) for name in attrs + dims_}
        found.append({"ranges": ours, "where": cond and cond[1], "columns": columns_out, "count": count})
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
            # Nulls are zeros here as in the raw bytes; what is null decides last.
            null = {a: b"" if out[a][2] else bytes(len(out[a][0][i])) for a in attrs}
            fields = [out[a][0][i] if out[a][1][i] else null[a] for a in attrs]
            return coords, fields, [out[a][1][i] for a in attrs]
        order.sort(key=key)
    return order


def raw_column(column, order):
    """One column as our raw output has it."""
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
    if is_sparse:
        attrs, dims, out = read(uri, (0, 2000), True)
        states[0]["answers"] = answers(rng, uri, dims, kinds, nullable, out)
    return states


def main(seed, folder):
    rng = random.Random(int(seed))
    for _ in range(50):
        try:
            expected = attempt(rng, str(Path(folder) / "array"))
            (Path(folder) / "expected.json").write_text(json.dumps(expected))
            return
        except (tiledb.TileDBError, ValueError, TypeError, OverflowError, IndexError, RuntimeError) as error:
            # A combination that the package refuses, or cannot read back itself.
            if "--why" in sys.argv:
                print(type(error), error, file=sys.stderr)
    sys.exit("no array could be written")


if __name__ == "__main__":
    main(*sys.argv[1:3])
