"""Stored deletes that agree with the reference package, and edge cases: infinite cells, dates before 1970, numeric labels."""

import numpy as np
import pyarrow as pa
import pytest
import tiledb
from support import tet, tet_json


def numbered(path, name, dtype="int32"):
    return np.frombuffer(tet("cat", path, name, "--raw"), dtype).tolist()


def seen(path, name="x"):
    """One column as the package reads it."""
    with tiledb.open(str(path)) as array:
        return sorted(array.query(order="U")[:][name].tolist())


def sparse(path, attrs, enums=(), **options):
    dim = tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32)
    schema = tiledb.ArraySchema(tiledb.Domain(dim), attrs, sparse=True, enums=list(enums), **options)
    tiledb.Array.create(str(path), schema)


LABELS = {"text": ["red", "green", "blue"], "numbers": [0, 2, 1]}
CONDITIONS = ["c == {1}", "c != {1}", "c in ({0}, {2})", "c not in ({0}, {2})", "c < {1}", "c >= {1}"]


@pytest.mark.parametrize("kind", sorted(LABELS))
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("ours", [False, True])
def test_deletes_by_labels(kind, condition, ours, tmp_path):
    """Labels are stored as codes: both implementations honor deletes of either."""
    path, labels = tmp_path / "array", LABELS[kind]
    codes = np.array([0, 1, 2, 0, 1, 2], "i1")
    attrs = [tiledb.Attr("c", dtype="i1", enum_label="e"), tiledb.Attr("v", dtype="i4")]
    sparse(path, attrs, [tiledb.Enumeration("e", True, values=labels)])
    with tiledb.open(str(path), "w") as array:
        array[np.arange(6)] = {"c": codes, "v": np.arange(6, dtype="i4")}
    where = condition.format(*(repr(label) for label in labels))
    if ours:
        tet("delete", path, "--where", where)
    else:
        with tiledb.open(str(path), "d") as array:
            array.query(cond=where.replace("(", "[").replace(")", "]")).submit()
    meets = {"c ==": codes == 1, "c !=": codes != 1, "c in": codes != 1, "c no": codes == 1, "c < ": codes < 1, "c >=": codes >= 1}
    left = np.arange(6)[~meets[condition[:4]]].tolist()
    assert numbered(path, "x") == left
    assert seen(path) == left
    tet("verify", path, "--deep")


def test_deletes_by_a_label_that_is_not_there(tmp_path):
    path = tmp_path / "array"
    sparse(path, [tiledb.Attr("c", dtype="u1", enum_label="e")], [tiledb.Enumeration("e", False, values=["a", "b"])])
    with tiledb.open(str(path), "w") as array:
        array[np.arange(4)] = np.array([0, 1, 0, 1], "u1")
    tet("delete", path, "--where", 'c == "z"')
    tet("delete", path, "--where", 'c in ("y", "z")')
    assert numbered(path, "x") == seen(path) == [0, 1, 2, 3]
    tet("delete", path, "--where", 'c in ("b", "z")')
    assert numbered(path, "x") == seen(path) == [0, 2]
    tet("delete", path, "--where", 'c != "z"')
    assert numbered(path, "x") == seen(path) == []


@pytest.mark.parametrize("dtype", ["int32", "float64", "string_ascii", "datetime64[s]"])
def test_deletes_of_nulls(dtype, tmp_path):
    """Stored conditions have no null test; the package rejects arrays that use one."""
    path = tmp_path / "array"
    tet("create", path, "--sparse", "--dim", "x=0..99/10:int32", "--field", f"v:{dtype}?", "--field", "w:int32", "--timestamp", 1)
    values = {"string_ascii": ["", "a", "b", '""']}.get(dtype, ["", "0", "7", "3"])
    (tmp_path / "cells.csv").write_text("x,v,w\n" + "".join(f"{x},{v},{x}\n" for x, v in enumerate(values)))
    tet("append", path, tmp_path / "cells.csv", "--timestamp", 2)
    tet("delete", path, "--where", "v is not null", "--timestamp", 3, code=7)
    tet("delete", path, "--where", "v is null and w > 5", "--timestamp", 3)
    tet("delete", path, "--where", "v is null or w == 3", "--timestamp", 4)
    assert numbered(path, "x") == seen(path) == [1, 2]


NESTED = ["a < 5 and (b < 5 and (a > 1 and b > 1))", "(a < 2 or (b < 2 or (a == 5 or b == 5))) and a != 3", "a < 5 or (b > 3 and not (a < 7 or b in (4, 5)))"]


@pytest.mark.parametrize("condition", NESTED)
def test_nested_deletes(condition, tmp_path):
    """The package ignores the other terms of an `or` nested in an `or`: none is stored."""
    path = tmp_path / "array"
    sparse(path, [tiledb.Attr("a", dtype="i4"), tiledb.Attr("b", dtype="i4")])
    a, b = np.divmod(np.arange(64, dtype="i4"), 8)
    with tiledb.open(str(path), "w") as array:
        array[np.arange(64)] = {"a": a, "b": b}
    tet("delete", path, "--where", condition)
    gone = [eval(condition, {"a": p, "b": q}) for p, q in zip(a, b)]
    left = np.arange(64)[~np.array(gone)].tolist()
    assert 0 < len(left) < 64
    assert numbered(path, "x") == seen(path) == left


def test_deletes_by_fields_that_came_later(tmp_path):
    """No comparison is true for a field that cells lack, so they are removed, as by the package; consolidation does not restore them."""
    path = tmp_path / "array"
    tet("create", path, "--sparse", "--dim", "x=0..99/10:int32", "--field", "v:int32", "--timestamp", 10)

    def add(moment, text):
        (tmp_path / "cells.csv").write_text(text)
        tet("append", path, tmp_path / "cells.csv", "--timestamp", moment)

    add(11, "x,v\n1,1\n2,2\n")
    add(12, "x,v\n3,3\n")
    tet("evolve", path, "--add", "w:int32", "--timestamp", 15)
    add(20, "x,v,w\n11,1,5\n12,2,6\n13,3,7\n")
    add(21, "x,v,w\n14,3,4\n")
    tet("delete", path, "--where", "w > 5 and v < 3", "--timestamp", 30)
    left = [3, 11, 13, 14]
    assert numbered(path, "x") == seen(path) == left
    assert seen(path, "x") == left
    add(40, "x,v,w\n15,1,1\n")
    left.append(15)
    # A query condition compares the fill value.
    assert tet_json("cat", path, "x", "--where", "w < -1000")["count"] == 1
    tet("consolidate", path)
    assert numbered(path, "x") == seen(path) == left
    tet("vacuum", path, "--apply")
    assert numbered(path, "x") == seen(path) == left


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_cells(dtype, is_sparse, tmp_path):
    """A saturated stored sum hides a NaN, and extremes of infinite cells are stored as finite numbers."""
    inf, nan = np.inf, np.nan
    tiles = [[inf] * 4, [-inf] * 4, [-inf, nan, -19.0, 3.0], [inf, nan, 19.0, -3.0], [1.0, 2.0, 3.0, 4.0], [inf, -inf, 1.0, 2.0]]
    cells = np.array(tiles, dtype).ravel()
    path = tmp_path / "array"
    dim = tiledb.Dim("x", domain=(0, 23), tile=4, dtype=np.int32)
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("v", dtype=dtype)], sparse=is_sparse, capacity=4)
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[np.arange(24) if is_sparse else slice(0, 24)] = cells
    tet("verify", path, "--deep")
    for first in range(0, 24, 4):
        part = cells[first : first + 4]
        values = part[~np.isnan(part)]
        reported = tet_json("stat", path, "v", f"x={first}:{first + 4}", "--quick")
        assert reported["nan"] == np.isnan(part).sum()
        assert (float(reported["min"]), float(reported["max"])) == (values.min(), values.max())
    for condition, meets in [("v < -20", cells < -20), ("v > 20", cells > 20), ("v != 1", cells != 1)]:
        assert tet_json("stat", path, "v", "--where", condition)["count"] == meets.sum(), condition


def test_coordinates_that_a_filter_rounds(tmp_path):
    filters = tiledb.FilterList([tiledb.FloatScaleFilter(factor=3.0, offset=-7.5, bytewidth=8)])
    dim = tiledb.Dim("x", domain=(-10.0, 10.0), tile=7.0, dtype=np.float64, filters=filters)
    path = tmp_path / "array"
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("v", dtype="i4")], sparse=True, capacity=2)
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[np.array([-10.0, -9.9, 0.0, 4.0, 7.25])] = np.arange(5, dtype="i4")
    tet("verify", path, "--deep")
    cells = np.frombuffer(tet("cat", path, "x", "--raw"), "f8")
    reported = tet_json("stat", path, "x", "--quick")
    assert (reported["min"], reported["max"]) == (cells.min(), cells.max())


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_dates_around_1970(unit, tmp_path):
    """Dates in a sparse array, by selections and by conditions."""
    path = tmp_path / "array"
    one = np.timedelta64(1, unit)
    low, high = np.datetime64(-50, unit), np.datetime64(50, unit)
    dim = tiledb.Dim("t", domain=(low, high), tile=np.timedelta64(10, unit), dtype=f"datetime64[{unit}]")
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("v", dtype="i4")], sparse=True, capacity=3)
    tiledb.Array.create(str(path), schema)
    dates = np.arange(low, high + one, one)
    with tiledb.open(str(path), "w") as array:
        array[dates] = np.arange(dates.size, dtype="i4")
    moments = [np.datetime64(n, unit) for n in (-50, -7, -1, 0, 1, 30)]
    for a in moments:
        for b in moments:
            if a <= b:
                inside = np.nonzero((dates >= a) & (dates <= b))[0].tolist()
                # A week is identified by its first day.
                if unit != "W":
                    assert numbered(path, "v") and numbered_where(path, f"t={a}..{b}") == inside
                assert numbered_where(path, "--where", f't >= "{a}" and t <= "{b}"') == inside
    assert numbered_where(path, "t=1970..1970") == np.nonzero(dates.astype("M8[Y]") == np.datetime64("1970"))[0].tolist()


def numbered_where(path, *asked):
    return np.frombuffer(tet("cat", path, "v", "--raw", *asked), "int32").tolist()


def test_csv_goes_out_and_in(tmp_path):
    """Numeric labels and years are parsed as they are printed."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        attrs = [tiledb.Attr("c", dtype="u1", enum_label="e"), tiledb.Attr("y", dtype="datetime64[Y]")]
        sparse(path, attrs, [tiledb.Enumeration("e", False, values=np.array([5, 1, 0], "i8"))])
    years = np.array(["1970", "2015", "1066"], "M8[Y]")
    with tiledb.open(str(first), "w") as array:
        array[np.arange(3)] = {"c": np.array([0, 1, 2], "u1"), "y": years}
    (tmp_path / "cells.csv").write_bytes(tet("cat", first, "--format", "csv"))
    tet("append", second, tmp_path / "cells.csv")
    with tiledb.open(str(second)) as array:
        got = array[:]
    assert got["y"].tolist() == years.tolist()
    for name in ("c", "y"):
        assert tet("cat", second, name, "--raw") == tet("cat", first, name, "--raw")
    (tmp_path / "cells.csv").write_text("x,c,y\n9,2,2000\n")
    tet("append", second, tmp_path / "cells.csv", code=2)


def test_not_a_time_inside_cells(tmp_path):
    path = tmp_path / "array"
    dim = tiledb.Dim("x", domain=(0, 1), tile=2, dtype=np.int32)
    attr = tiledb.Attr("t", dtype="datetime64[ms]", var=True)
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(dim), [attr]))
    cells = np.empty(2, "O")
    cells[:] = [np.array([1, "NaT"], "M8[ms]"), np.array([3], "M8[ms]")]
    with tiledb.open(str(path), "w") as array:
        array[:] = cells
    table = pa.ipc.open_stream(tet("cat", path, "t", "--format", "arrow")).read_all()
    found = [[None if v is None else v.timestamp() for v in cell] for cell in table["t"].to_pylist()]
    assert found == [[0.001, None], [0.003]]
