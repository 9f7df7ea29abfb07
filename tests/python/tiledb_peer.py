"""The reference package in its own process: one JSON request per line, one JSON response per line. A crash ends only this
process."""

import json
import random
import sys

import numpy as np
import tiledb

from tiledb_arrays import answers, expectation


def is_sparse(uri):
    return tiledb.ArraySchema.load(uri).sparse


def read(uri, times=(0, 2**63)):
    return expectation(uri, tuple(times), is_sparse(uri))


def plain(value):
    if isinstance(value, np.datetime64):
        value = value.view("int64")
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.item()
    if isinstance(value, float) and value != value:
        return "NaN"
    return value.decode() if isinstance(value, bytes) else value


def aggregates(uri, fields):
    """Aggregates over everything, per field."""
    out = {}
    with tiledb.open(uri) as array:
        for name, kinds in fields.items():
            box = tuple(slice(None) for _ in range(array.ndim))
            query = array.query(attrs=[name])
            found = query.agg({name: kinds} if len(kinds) > 1 else {name: kinds[0]})[box]
            # A single aggregate is returned directly, several by name.
            found = found if isinstance(found, dict) else {kinds[0]: found}
            found = found[name] if isinstance(found.get(name), dict) else found
            out[name] = {kind: plain(value) for kind, value in found.items()}
    return out


def asked(uri, seed, kinds, nullable):
    """Results of random ranges and conditions on a sparse array."""
    return answers(random.Random(seed), uri, True, kinds, nullable)


def evolve(uri, timestamp, add=(), drop=()):
    evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
    evolution.timestamp(timestamp)
    for name, dtype in add:
        evolution.add_attribute(tiledb.Attr(name, dtype=np.dtype(dtype)))
    for name in drop:
        evolution.drop_attribute(name)
    evolution.array_evolve(uri)


def current_domain(uri):
    current = tiledb.ArraySchema.load(uri).current_domain
    return None if current.is_empty else [list(map(plain, current.ndrectangle.range(0)))]


def enumeration(uri, name):
    with tiledb.open(uri) as array:
        return list(array.enum(name).values())


def fragments(uri):
    info = tiledb.array_fragments(uri)
    return {
        "count": len(info),
        "cells": [int(n) for n in info.cell_num],
        "timestamps": [list(map(int, t)) for t in info.timestamp_range],
        "to_vacuum": len(info.to_vacuum),
        "names": [name.rstrip("/").rsplit("/", 1)[-1] for name in info.uri],
        "versions": [int(v) for v in info.version],
        "sparse": [bool(s) for s in info.sparse],
        "domains": [[[plain(low), plain(high)] for low, high in box] for box in info.nonempty_domain],
        "mbrs": [len(getattr(f, "mbrs", ()) or ()) for f in info] if is_sparse(uri) else [],
    }


def metadata(uri):
    with tiledb.open(uri) as array:
        return {key: plain(array.meta[key]) for key in array.meta.keys()}


def put_metadata(uri, key, value, timestamp):
    with tiledb.open(uri, "w", timestamp=timestamp) as array:
        if value is None:
            del array.meta[key]
        else:
            array.meta[key] = value


def write_cells(uri, coords, values, timestamp):
    schema = tiledb.ArraySchema.load(uri)
    coords = [np.array(c, schema.domain.dim(i).dtype) for i, c in enumerate(coords)]
    columns = {name: np.array(v, schema.attr(name).dtype) for name, v in values.items()}
    with tiledb.open(uri, "w", timestamp=timestamp) as array:
        array[tuple(coords)] = columns


def write_box(uri, box, values, timestamp):
    schema = tiledb.ArraySchema.load(uri)
    with tiledb.open(uri, "w", timestamp=timestamp) as array:
        subarray = tiledb.Subarray(array)
        subarray.add_ranges([[tuple(schema.domain.dim(i).dtype.type(v) for v in ends)] for i, ends in enumerate(box)])
        shape = [b - a + 1 for a, b in box]
        columns = {n: np.array(v, schema.attr(n).dtype).reshape(shape) for n, v in values.items()}
        array.write_subarray(subarray, columns)


def delete(uri, condition, timestamp):
    with tiledb.open(uri, "d", timestamp=timestamp) as array:
        array.query(cond=condition).submit()


def consolidate(uri, mode="fragments"):
    tiledb.consolidate(uri, config=tiledb.Config({"sm.consolidation.mode": mode}))


def vacuum(uri, mode="fragments"):
    tiledb.vacuum(uri, config=tiledb.Config({"sm.vacuum.mode": mode}))


def encrypted(uri, key, name):
    context = tiledb.Ctx({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key})
    with tiledb.open(uri, ctx=context) as array:
        return array[:][name].tolist() if array.nattr > 1 or isinstance(array[:], dict) else array[:].tolist()


def members(uri):
    with tiledb.Group(uri) as group:
        return sorted([member.name, member.type.__name__] for member in group)


def main():
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": globals()[request.pop("op")](**request)}
        except Exception as error:  # whatever it is, the test decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
