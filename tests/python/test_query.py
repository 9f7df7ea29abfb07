"""Query documents compared with NumPy, and with the reference where it is correct."""

import itertools
import json
import math
import random

import numpy as np
import pytest
import tet as reference
from support import DTYPES, number, tet, tet_json, write

SHAPE, CHUNK = (5, 4, 6), (2, 4, 3)
AXES = [(), (0,), (1,), (2,), (0, 2), (1, 2)]
PATTERNS = ["tame", "nan", "all_nan", "inf", "wide"]


def cells_of(dtype, pattern, seed=0):
    """Cells of a pattern; `None` if the dtype does not have it."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        if pattern not in ("tame", "wide"):
            return None
        info = np.iinfo(dtype)
        low, high = (max(info.min, -9), 9) if pattern == "tame" else (info.min, info.max)
        return rng.integers(low, high, SHAPE, dtype=dtype, endpoint=True)
    cells = (rng.integers(-40, 40, SHAPE) * 0.25).astype(dtype)
    if pattern == "nan":
        cells[rng.random(SHAPE) < 0.2] = np.nan
    elif pattern == "all_nan":
        cells[1] = np.nan
        cells[:, 2] = np.nan
    elif pattern == "inf":
        cells[0, 0, 0], cells[3, 1, 2], cells[2, 2, 2] = np.inf, -np.inf, np.nan
    elif pattern == "wide":
        cells = (rng.standard_normal(SHAPE) * 10.0 ** rng.integers(-3, 3, SHAPE)).astype(dtype)
    return cells


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """One file with an array for each dtype and pattern."""
    folder = tmp_path_factory.mktemp("query")
    arrays = {}
    for dtype, pattern in itertools.product(DTYPES, PATTERNS):
        cells = cells_of(dtype, pattern)
        if cells is not None:
            arrays[f"{dtype}/{pattern}"] = cells
    path = write(folder, folder / "all.tet",
                 [{"name": name, "cells": cells, "chunk_shape": CHUNK, "dims": ["time", "lat", "lon"]}
                  for name, cells in arrays.items()])
    return path, arrays


def ask(path, document, *options):
    return tet_json("query", json.dumps(document), "-t", path, "-x", *options)["execution"]


def results(execution, key, reduced):
    names = {"count": ("element_count", "count"), "arg_min": ("argmin_index", "argmin"),
             "arg_max": ("argmax_index", "argmax"), "histogram": ("histogram_counts", "histogram_counts")}
    scalar, along = names.get(key, (key, key))
    if not reduced:
        return [execution[f"operation_{scalar}"]]
    return execution[f"operation_reduced_{along}"]


def fibers(cells, axes):
    """The cells of each result, in order."""
    if not axes:
        return [cells.ravel()], None
    kept = [d for d in range(cells.ndim) if d not in axes]
    moved = cells.transpose(kept + list(axes))
    shape = moved.shape[: len(kept)]
    return list(moved.reshape(math.prod(shape), -1)), list(shape)


def expected(key, fiber):
    """The expected result by NumPy; integers as Python integers, which do not overflow."""
    is_float = fiber.dtype.kind == "f"
    exact = [int(v) for v in fiber] if not is_float else None
    wide = fiber.astype("f8") if is_float else None
    left = wide[~np.isnan(wide)] if is_float else None
    with np.errstate(all="ignore"):
        match key:
            case "count": return len(fiber)
            case "nan_count": return int(np.isnan(wide).sum()) if is_float else 0
            case "inf_count": return int(np.isinf(wide).sum()) if is_float else 0
            case "any_nan": return bool(np.isnan(wide).any()) if is_float else False
            case "any_inf": return bool(np.isinf(wide).any()) if is_float else False
            case "all_finite": return bool(np.isfinite(wide).all()) if is_float else True
            case "sum": return math.fsum(wide) if is_float and np.isfinite(wide).all() else wide.sum() if is_float else sum(exact)
            case "mean": return wide.mean() if is_float else sum(exact) / len(exact)
            case "nan_mean": return (left.mean() if len(left) else None) if is_float else sum(exact) / len(exact)
            case "min": return (left.min() if len(left) else None) if is_float else min(exact)
            case "max": return (left.max() if len(left) else None) if is_float else max(exact)
            case "var" | "std" | "nan_std":
                values = (left if key == "nan_std" else wide) if is_float else np.array(exact, object)
                if not len(values):
                    return None
                if is_float:
                    var = values.var()
                else:
                    n, total = len(exact), sum(exact)
                    var = (n * sum(v * v for v in exact) - total * total) / (n * n)
                return var if key == "var" else math.sqrt(var) if var == var else var
            case "product":
                if is_float:
                    return wide.prod()
                product = math.prod(exact)
                if abs(product) < 2**127:
                    return product
                try:
                    return float(product)
                except OverflowError:
                    return math.copysign(math.inf, product)
            case "norm_l1": return np.abs(wide).sum() if is_float else sum(map(abs, exact))
            case "norm_l2": return np.sqrt((wide**2).sum()) if is_float else math.sqrt(sum(v * v for v in exact))
            case "arg_min": return (int(np.nanargmin(wide)) if len(left) else None) if is_float else exact.index(min(exact))
            case "arg_max": return (int(np.nanargmax(wide)) if len(left) else None) if is_float else exact.index(max(exact))
            case "median" | "quantile":
                q = 0.5 if key == "median" else 0.3
                if is_float:
                    return np.quantile(wide, q) if not np.isinf(wide).any() else ...
                place = q * (len(exact) - 1)
                low, part = int(place), place - int(place)
                ordered = sorted(exact)
                return ordered[low] + (ordered[low + 1] - ordered[low]) * part if part else ordered[low]
    raise AssertionError(key)


def agrees(got, want, scale=1.0):
    got = number(got)
    if want is ...:
        return True
    if want is None or isinstance(want, bool):
        return got is want
    if isinstance(want, int):
        return got == want and not isinstance(got, bool)
    if got is None:
        return False
    if math.isnan(want) or math.isinf(want):
        return math.isnan(got) if math.isnan(want) else got == want
    return abs(got - want) <= 1e-9 * max(abs(want), scale * 1e-3)


REDUCTIONS = ["count", "sum", "mean", "min", "max", "var", "std", "product", "norm_l1", "norm_l2", "all_finite", "any_nan",
              "any_inf", "arg_min", "arg_max", "median", "nan_count", "inf_count", "nan_mean", "nan_std", "quantile"]


def value_of(key, axes):
    return {"q": 0.3, "axes": list(axes)} if key == "quantile" else list(axes)


@pytest.mark.parametrize("key", REDUCTIONS)
def test_reductions(sources, key):
    path, arrays = sources
    # Every array with every reduction, each over another set of axes.
    for i, (name, cells) in enumerate(arrays.items()):
        for j, axes in enumerate(AXES):
            if (i + j + REDUCTIONS.index(key)) % len(AXES):
                continue
            if key == "product" and name.endswith("inf"):
                continue
            execution = ask(path, {"dataset": name, key: value_of(key, axes)})
            parts, shape = fibers(cells, axes)
            got = results(execution, key, bool(axes))
            assert execution.get("operation_reduced_shape") == shape, (name, axes)
            wide = cells.astype("f8")
            scale = float(np.abs(wide[np.isfinite(wide)]).max())
            for at, (have, fiber) in enumerate(zip(got, parts, strict=True)):
                want = expected(key, fiber)
                assert agrees(have, want, scale), f"{key} of {name} over {axes} at {at}: {have} for {want}"


def test_selection_filter_and_labels(tmp_path):
    cells = np.arange(60, dtype="i8").reshape(5, 12) * 2**52 + 1
    labels = ["mon", "tue", "mon", "wed", "tue"]
    path = write(tmp_path, tmp_path / "l.tet", [{"name": "t", "cells": cells, "chunk_shape": (2, 5), "dims": ["day", "x"],
                                                 "labels": {"day": labels}}])
    doc = {"dataset": "t", "selection": [{"start_label": "tue", "stop": 5, "step": 2}, {"start": 1, "stop": 11, "step": 3}]}
    sub = cells[1:5:2, 1:11:3]
    assert number(ask(path, {**doc, "sum": []})["operation_sum"]) == sum(map(int, sub.ravel()))
    # Beyond 2^53: a comparison as floats could not distinguish these.
    edge = int(cells[2, 3])
    for op, want in {"gt": cells > edge, "ge": cells >= edge, "lt": cells < edge, "le": cells <= edge, "eq": cells == edge,
                     "ne": cells != edge}.items():
        execution = ask(path, {"dataset": "t", "filter": {op: edge}, "count": []})
        assert execution["operation_element_count"] == int(want.sum()), op
        along = ask(path, {"dataset": "t", "filter": {op: edge}, "count": ["x"]})["operation_reduced_count"]
        assert along == want.sum(axis=1).tolist(), op
    kept = ask(path, {"dataset": "t", "label_filter": {"axis": "day", "eq": "mon"}, "max": ["x"]})["operation_reduced_max"]
    assert [number(v) for v in kept] == [int(r.max()) if l == "mon" else None for r, l in zip(cells, labels)]
    groups = ask(path, {"dataset": "t", "group_by": {"by": "labels", "axes": ["day"]}, "sum": []})
    want = [sum(int(v) for r, l in zip(cells, labels) if l == name for v in r) for name in ("mon", "tue", "wed")]
    assert [number(v) for v in groups["operation_reduced_sum"]] == want and groups["group_count"] == 3


def windows(n, size, step, pad, align, mode):
    """Start of each window, its positions, and whether it is padded."""
    if mode == "bins":
        before = (size - n % size) % size if align == "end" else 0
        starts = [w * size - before for w in range(-(-n // size))]
    elif pad == "none":
        starts = list(range(0, n - size + 1, step))
    else:
        starts = [w * step - (0 if align == "end" else size - 1) for w in range(-(-n // step))]
    return [(s, [p for p in range(s, s + size) if 0 <= p < n]) for s in starts]


def test_windows(tmp_path):
    rng = random.Random(5)
    cells = np.array([[rng.randint(-50, 50) / 4 for _ in range(11)] for _ in range(3)], "f8")
    path = write(tmp_path, tmp_path / "w.tet", [{"name": "t", "cells": cells, "chunk_shape": (2, 4)}])
    for mode, size, pad, align in itertools.product(["bins", "rolling"], [1, 3, 4, 11], ["none", "0", "nan"], ["start", "end"]):
        if mode == "rolling" and align == "end" and pad == "none":
            continue
        for step in [1] if mode == "bins" else [1, 2, 5]:
            window = {"axis": 1, "size": size, "mode": mode, "pad": pad, "align": align}
            if mode == "rolling":
                window["step"] = step
            execution = ask(path, {"dataset": "t", "window": window, "sum": []})
            found = windows(11, size, step, pad, align, mode)
            assert execution["window_count"] == len(found) and execution["operation_reduced_shape"] == [3, len(found)]
            padded = pad == "nan" and not (mode == "bins" and align == "end")
            want = [math.nan if padded and len(taken) < size else sum(row[taken]) for row in cells for _, taken in found]
            got = [number(v) for v in execution["operation_reduced_sum"]]
            assert np.allclose(got, want, equal_nan=True), window


def test_histograms_matrices_and_transforms(tmp_path):
    rng = np.random.default_rng(3)
    cells = rng.standard_normal((9, 7))
    path = write(tmp_path, tmp_path / "h.tet", [{"name": "t", "cells": cells, "chunk_shape": (4, 3)}])
    execution = ask(path, {"dataset": "t", "histogram": {"bins": 8}})
    counts, edges = np.histogram(cells, 8)
    assert execution["operation_histogram_counts"] == counts.tolist()
    assert np.allclose(execution["operation_histogram_edges"], edges)
    flat = ask(path, {"dataset": "t", "histogram": {"bins": 4, "min": -9, "max": 9, "axis": 0}})
    want = [np.histogram(cells[:, i], 4, (-9, 9))[0].tolist() for i in range(7)]
    assert flat["operation_reduced_histogram_counts"] == sum(want, [])
    for axis, table in [(0, cells.T), (1, cells)]:
        got = ask(path, {"dataset": "t", "covariance": [axis]})
        assert np.allclose(got["operation_covariance"], np.cov(table, ddof=0).ravel(), atol=1e-14)
        got = ask(path, {"dataset": "t", "correlation": [axis]})
        assert np.allclose(got["operation_correlation"], np.corrcoef(table).ravel())
        assert got["operation_correlation_order"] == len(table)
    for method, want in {
        "center": cells - cells.mean(), "scale": cells / cells.std(), "zscore": (cells - cells.mean()) / cells.std(),
        "minmax": (cells - cells.min()) / np.ptp(cells), "l1": cells / np.abs(cells).sum(),
        "l2": cells / np.linalg.norm(cells), "log1p": np.log1p(cells - cells.min()), "sqrt": np.sqrt(cells - cells.min()),
        "softmax": np.exp(cells - cells.max()) / np.exp(cells - cells.max()).sum(),
    }.items():
        got = ask(path, {"dataset": "t", "transform": {"method": method}}, "--preview", "100")
        assert np.allclose(got["f64_preview"], want.ravel()), method
    along = (cells - cells.mean(axis=0)) / cells.std(axis=0)
    ask(path, {"dataset": "t", "transform": {"method": "zscore", "axis": 0}, "write": {"target": "spill", "path": "z.bin"}})
    assert np.allclose(np.fromfile(tmp_path / "z.bin").reshape(9, 7), along)
    ask(path, {"dataset": "t", "transform": {"method": "zscore", "axis": 0}, "write": {"target": "sidecar", "timestamp": False}})
    with reference.open(tmp_path / "h.zscore.tet") as file:
        assert np.allclose(file.read_numpy("t-zscore"), along)
    ask(path, {"dataset": "t", "selection": [{"start": 1, "step": 3}, {"stop": 2}], "spill": "s.bin"})
    assert np.array_equal(np.fromfile(tmp_path / "s.bin").reshape(3, 2), cells[1::3, :2])
    for bad in ("/etc/s.bin", "../s.bin"):
        tet("query", json.dumps({"dataset": "t", "spill": bad}), "-t", path, "-x", code=(2, 3))


def test_like_the_reference(tmp_path):
    """Documents of every kind for which the reference is correct: same fields, same shapes, same numbers."""
    rng = np.random.default_rng(11)
    path = tmp_path / "r.tet"
    cells = (rng.integers(-50, 50, (6, 8)) * 0.25).astype("f4")
    reference.write_dataset(path, "t", cells, chunk_shape=(4, 3), dim_names=["day", "x"],
                            coords={"day": ["a", "b", "a", "c", "b", "a"], "x": [f"p{i}" for i in range(8)]})
    plain = [{key: axes} for key in ["sum", "mean", "min", "max", "count", "var", "std", "product", "norm_l1", "norm_l2",
                                     "all_finite", "any_nan", "any_inf", "arg_min", "arg_max", "median"]
             for axes in ([], ["day"], [1])]
    others = [
        {"nan_count": []}, {"inf_count": []}, {"nan_mean": []}, {"nan_std": []}, {"quantile": {"q": 0.3, "axis": 0}},
        {"histogram": {"bins": 5}}, {"histogram": {"bins": 3, "min": -5, "max": 5, "axis": "x"}}, {"covariance": [0]},
        {"correlation": ["x"]}, {"filter": {"gt": 1, "le": 8}, "sum": []}, {"filter": {"ne": 0}, "count": ["x"]},
        {"filter": {"lt": 0}, "mean": []}, {"label_filter": {"axis": "day", "eq": "a"}, "sum": []},
        {"label_filter": {"axis": "day", "eq": "a"}, "sum": [1], "selection": [{"start": 1}, {"stop": 5, "step": 2}]},
        {"group_by": ["day"], "mean": []}, {"group_by": {"by": "labels", "axes": ["day"]}, "median": ["x"]},
        {"group_by": {"by": "labels", "axes": ["day"]}, "arg_max": []},
        {"window": {"axis": "x", "size": 3, "mode": "bins"}, "mean": ["x"]},
        {"window": {"axis": "x", "size": 3, "mode": "bins", "align": "end", "pad": "0"}, "mean": ["x"]},
        {"window": {"axis": "x", "size": 3, "mode": "rolling", "pad": "0", "min_count": 2}, "count": []},
        {"window": {"axis": "day", "size": 2, "mode": "rolling", "step": 2}, "std": ["day", "x"]},
        {"window": {"axis": "x", "size": 3, "mode": "rolling", "step": 2}, "arg_max": []},
        {"pipeline": [{"select": [{"start": 1}, {}]}, {"filter": {"gt": 2}}, {"sum": ["x"]}]},
        {"selection": [{"start_label": "b"}, {"stop_label": "p5"}], "norm_l2": ["day"]},
        {"transform": {"method": "zscore", "axis": "x"}}, {"transform": {"method": "log1p"}}, {},
    ]
    compared = 0
    with reference.open(path) as file:
        for document in plain + others:
            document = {"dataset": "t", **document}
            theirs = file.query(document, preview=64)["execution"]
            ours = ask(path, document)
            for key, want in theirs.items():
                wanted = key.startswith("operation_") or key in ("group_count", "window_count", "f32_preview", "transform_method")
                if not wanted or want in ([], None) or key == "operation_element_count":
                    continue
                if key == "f32_preview" and document.keys() - {"dataset", "transform"}:
                    # Cells are included only where they are the result.
                    continue
                assert key in ours, (document, key)
                flat = lambda v: np.array([number(x) if x is not None else np.nan for x in (v if isinstance(v, list) else [v])]
                                          if not isinstance(v, str) else [hash(v)], "f8")
                assert np.allclose(flat(ours[key]), flat(want), rtol=1e-6, equal_nan=True), (document, key, ours[key], want)
                compared += 1
    assert compared > 100


def test_other_formats(tmp_path):
    tiledb = pytest.importorskip("tiledb")
    tensogram = pytest.importorskip("tensogram")
    cells = np.arange(24, dtype="f8").reshape(4, 6)
    cells[2, 3] = np.nan
    folder = str(tmp_path / "a.tdb")
    dims = [tiledb.Dim("y", (0, 3), 2, dtype="i4"), tiledb.Dim("x", (0, 5), 3, dtype="i4")]
    attrs = [tiledb.Attr("v", "f8"), tiledb.Attr("n", "i4", nullable=True)]
    tiledb.Array.create(folder, tiledb.ArraySchema(tiledb.Domain(*dims), attrs))
    with tiledb.open(folder, "w") as array:
        whole = np.arange(24, dtype="i4").reshape(4, 6)
        array[:] = {"v": cells, "n": whole}
    for key in ["nan_mean", "max", "arg_max", "nan_count"]:
        got = results(ask(folder, {"dataset": "v", key: ["x"]}), key, True)
        assert all(agrees(have, expected(key, row)) for have, row in zip(got, cells, strict=True)), key
    assert ask(folder, {"dataset": "n", "sum": []})["operation_sum"] == 276
    assert ask(folder, {"dataset": "n", "null_count": []})["operation_null_count"] == 0
    message = tmp_path / "m.tgm"
    descriptor = {"type": "ntensor", "ndim": 2, "shape": [4, 6], "strides": [6, 1], "dtype": "float64", "byte_order": "little",
                  "encoding": "none", "filter": "none", "compression": "none"}
    message.write_bytes(tensogram.encode({}, [(descriptor, np.arange(24.0).reshape(4, 6))]))
    got = ask(message, {"dataset": "0/0", "group_by": [0], "mean": []})["operation_reduced_mean"]
    assert got == [2.5, 8.5, 14.5, 20.5]


def test_command_line(tmp_path):
    cells = np.arange(6, dtype="f8").reshape(2, 3) + 1
    path = write(tmp_path, tmp_path / "c.tet", [{"name": "temperature", "cells": cells}])
    doc = '{"dataset": "temperature", "mean": []}'
    line = tet("query", doc, "-t", path, "-x", "-q").decode()
    assert line == "dataset=temperature status=ok op=mean mean=3.5 elements=6 memory_strategy=streaming_fold\n"
    file = tmp_path / "q.toml"
    file.write_text('dataset = "temperature"\nmean = []\n')
    assert tet("query", file, "-t", path, "-x", "-q").decode() == line
    assert tet("query", "-", "-t", path, "-x", "-q", input=doc.encode()).decode() == line
    missing = tet("query", '{"dataset": "nope"}', "-t", path, "-x", "-q", code=3).decode()
    assert missing == "dataset=nope status=not_found available=[temperature]\n"
    for form in ("full", "json", "stats", "plan"):
        document = json.loads(tet("query", doc, "-t", path, "-x", "--format", form))
        assert document["schema"] == "tesseral.query/1" and document["catalog"]["matched"]
        assert ("execution" in document) == (form != "plan")
        assert ("chunks" in document["read_plan"]) == (form != "stats")
    assert b"mean" in tet("query", doc, "-t", path, "-x", "--format", "table")
    assert json.loads(tet("query", doc))["accepted"]
    tet("query", doc, "-x", code=2)
    tet("query", '{"dataset": "temperature", "average": []}', "-t", path, code=2)
    tet("query", '{"dataset": "temperature", "execution": {"device": "cuda"}}', "-t", path, code=7)
    tet("query", tmp_path / "none.json", "-t", path, code=3)


def test_history(tmp_path):
    import os
    path = write(tmp_path, tmp_path / "c.tet", [{"name": "t", "cells": np.arange(4.0)}])
    env = {**os.environ, "TET_QUERY_HISTORY_FILE": str(tmp_path / "h" / "q.jsonl"), "TET_QUERY_HISTORY_MAX": "3"}
    env.pop("TET_NO_QUERY_HISTORY", None)
    for key in ("sum", "mean", "mean", "max", "min"):
        tet("query", json.dumps({"dataset": "t", key: []}), "-t", path, "-x", "-q", env=env)
    rows = json.loads(tet("qhist", "--json", env=env))["queries"]
    assert [json.loads(row["query"]).keys() - {"dataset"} for row in rows] == [{"min"}, {"max"}, {"mean"}]
    assert all(row["execute"] and row["tet"] == str(path) for row in rows)
    assert b"max=3.0" in tet("qhist", "run", "2", "-q", env=env)
    assert json.loads(tet("qhist", "list", "--grep", "min", "--json", env=env))["queries"]
    tet("qhist", "--clear", env=env)
    assert json.loads(tet("qhist", "--json", env=env))["queries"] == []


def test_threads_change_nothing(tmp_path):
    cells = np.random.default_rng(9).standard_normal((64, 40, 50)).astype("f4")
    path = write(tmp_path, tmp_path / "t.tet", [{"name": "t", "cells": cells, "chunk_shape": (7, 13, 50)}])
    for rest in ({"sum": []}, {"var": [0]}, {"filter": {"gt": 0}, "sum": [1, 2]}, {"norm_l2": []}, {"product": [2]}):
        answers = {json.dumps({k: v for k, v in ask(path, {"dataset": "t", **rest}, "--threads", n).items() if "operation" in k})
                   for n in ("1", "2", "5")}
        assert len(answers) == 1, rest
