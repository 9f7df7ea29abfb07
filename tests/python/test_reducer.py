"""The same question has the same answer, whoever asks it and however the cells are stored."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import tet as reference
from support import tet, tet_json

FORMATS = ["tet", "tgm", "tiledb"]


def made(folder, cells, format, chunk=None, **options):
    """A file of one array `v` with dimensions named by letters."""
    folder.mkdir(parents=True, exist_ok=True)
    plain, path = folder / "plain.tet", folder / f"v.{format}"
    names = ["a", "b", "c"][: cells.ndim]
    reference.write_dataset(str(plain), "v", np.ascontiguousarray(cells), dim_names=names, **options)
    if plain != path:
        chunks = ["--chunk", ",".join(map(str, chunk))] if chunk else []
        tet("convert", plain, path, "--to", format, *chunks)
    return path


def query(path, document):
    name = tet_json("info", path)["arrays"][0]["name"]
    text = json.dumps({"dataset": name, **document})
    return json.loads(tet("query", text, "-t", path, "-x", "--format", "json"))["execution"]


def number(value):
    return float("nan") if value == "NaN" else float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


CELLS = np.array([[0.1, 0.2, np.nan], [0.3, np.float32(0.2), 4.0]], "f4")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("condition, document, count", [
    ("v == 0.2", {"eq": 0.2}, 0),
    ("v > 0.2", {"gt": 0.2}, 4),
    ("v >= 0.2", {"ge": 0.2}, 4),
    ("v < 0.2", {"lt": 0.2}, 1),
    ("v != 0.2", {"ne": 0.2}, 6),
    ("v < 1e39", {"lt": 1e39}, 5),
    ("v > 16777217", {"gt": 16777217}, 0),
])
def test_decimals_compare_in_the_dtype_of_the_cells(tmp_path, format, condition, document, count):
    path = made(tmp_path, CELLS, format)
    field = tet_json("info", path)["arrays"][0]["fields"][0]["name"]
    condition = condition.replace("v ", f"`{field}` ")
    assert tet_json("stat", path, "--where", condition)["count"] == count
    assert query(path, {"filter": document, "count": []})["operation_element_count"] == count
    rows = tet("cat", path, "--where", condition, "--format", "csv").decode().splitlines()[1:]
    assert len(rows) == count


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("condition, count", [
    ("not v > 0.2", 2), ("v > 0.2 or not v > 0.2", 6), ("v is nan", 1), ("v is not nan", 5), ("v is finite", 5),
    ("v not in (4, 0.3)", 5), ("not (v > 0.2 and v < 1)", 3),
])
def test_negations_hold_of_nan(tmp_path, format, condition, count):
    path = made(tmp_path, CELLS, format)
    field = tet_json("info", path)["arrays"][0]["fields"][0]["name"]
    assert tet_json("stat", path, "--where", condition.replace("v ", f"`{field}` "))["count"] == count


@pytest.mark.parametrize("format", FORMATS)
def test_rows_whose_answer_is_zero_are_listed(tmp_path, format):
    cells = np.array([[3, -3, 7], [0, 0, 9], [1, 1, 1]], "i4")
    path = made(tmp_path, cells, format)
    field = tet_json("info", path)["arrays"][0]["fields"][0]["name"]
    dim = tet_json("info", path)["arrays"][0]["dims"][1]
    rows = tet_json("stat", path, "--where", f"`{field}` < 5", "--sum", dim)["rows"]
    assert [row["sum"] for row in rows] == [0, 0, 3]
    assert [row["positions"] for row in rows] == [[0], [1], [2]]


def exact_std(values, ddof=0):
    """The standard deviation from exact fractions, rounded at most twice."""
    terms = [Fraction(float(v)) for v in values]
    mean = sum(terms) / len(terms)
    spread = sum((t - mean) ** 2 for t in terms) / (len(terms) - ddof)
    scale = 1 << 2200
    root = Fraction(math.isqrt(spread.numerator * scale * scale // spread.denominator), scale)
    return root.numerator / root.denominator


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e150, 1e300])
@pytest.mark.parametrize("chunk", [None, (1,), (2,)])
def test_deviations_over_all_exponents(tmp_path, scale, chunk):
    cells = np.array([1, 2, 3, 7, 2.5], "f8") * scale
    want = exact_std(cells)
    assert want > 0
    path = made(tmp_path, cells, "tet" if chunk is None else "tiledb", chunk)
    for limit in [[], ["--memory", "64KiB"]]:
        assert tet_json(*limit, "stat", path)["std"] == want
        assert tet_json(*limit, "stat", path, "--std")["rows"][0]["std"] == want
    assert number(query(path, {"std": []})["operation_std"]) == want
