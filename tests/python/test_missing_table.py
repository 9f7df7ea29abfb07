"""One definition of missing values: every way of being missing, in every format, gives every question the same answer.

The right answers come from NumPy masked arrays."""

import csv
import io
import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
import tesseral
import tesseral.xarray
import tesseral.zarr
import tiledb
import xarray as xr
from support import tet, tet_json

SHAPE, CHUNK = (5, 6), (2, 3)
FORMATS = ["tiledb", "tet", "tgm"]
HIDDEN = np.zeros(SHAPE, bool)
HIDDEN[0, 1] = HIDDEN[2, 4] = HIDDEN[3, :] = True
# Cells of the way that is about regions: the last row of tiles was never written.
UNWRITTEN = np.zeros(SHAPE, bool)
UNWRITTEN[4:, :] = True


def numbers(dtype, seed=3):
    cells = np.random.default_rng(seed).integers(-40, 40, SHAPE)
    cells[1, 1], cells[1, 2] = 0, 0
    return cells.astype(dtype)


def masked(cells, hidden):
    return np.ma.array(cells, mask=hidden)


def stored(cells, hidden, *values):
    """The cells with one of some values in the place of each hidden cell, in turn."""
    out = cells.copy()
    out[hidden] = [values[i % len(values)] for i in range(hidden.sum())]
    return out


def case(cells, hidden, values, **metadata):
    return {"cells": stored(cells, hidden, *values), "want": masked(cells, hidden), "metadata": metadata}


# Each way gives what is stored, what is declared, and which cells exist afterwards.
WAYS = {
    "nothing": lambda: case(numbers("i4"), np.zeros(SHAPE, bool), [0]),
    "null": lambda: {**case(numbers("i4"), HIDDEN, [-7]), "nullable": True},
    "null and declared": lambda: {**case(numbers("i4"), HIDDEN, [-999, -999]), "nullable": HIDDEN & (np.arange(6) % 2 == 0),
                                  "metadata": {"_FillValue": -999}},
    "unwritten": lambda: {**case(numbers("i4"), UNWRITTEN, [0]), "written": 4},
    "unwritten floats": lambda: {**case(numbers("f4"), UNWRITTEN, [0]), "written": 4},
    "unwritten and declared": lambda: {**case(numbers("i2"), HIDDEN | UNWRITTEN, [-99]), "written": 4,
                                       "metadata": {"missing_value": -99}},
    "_FillValue": lambda: case(numbers("i4"), HIDDEN, [-999], _FillValue=-999),
    "_FillValue inside the range": lambda: case(numbers("i4") // 2 * 2 + 1, HIDDEN, [0], _FillValue=0),
    "_FillValue of another dtype": lambda: case(numbers("i2"), HIDDEN, [-999], _FillValue=-999.0),
    "_FillValue of floats": lambda: case(numbers("f4"), HIDDEN, [np.float32(1e20)], _FillValue=1e20),
    "missing_value": lambda: case(numbers("f8"), HIDDEN, [-9999.0], missing_value=-9999.0),
    "missing_value list": lambda: case(numbers("i2"), HIDDEN, [-99, -98, -97], _FillValue=-99, missing_value=(-98, -97)),
    "fill_value": lambda: case(numbers("u1") % 100, HIDDEN, [255], fill_value=255),
    "NaN declared": lambda: case(numbers("f4"), HIDDEN, [np.nan], _FillValue=float("nan")),
    "NaN and a number declared": lambda: case(numbers("f8"), HIDDEN, [np.nan, 1e20], _FillValue=float("nan"), missing_value=1e20),
    "a value that does not fit": lambda: case(numbers("i2"), np.zeros(SHAPE, bool), [0], _FillValue=1e20),
    "NaT": lambda: case(numbers("i8").astype("m8[s]"), HIDDEN, [np.timedelta64("NaT")]),
}


def create(path, way):
    """The array in TileDB, by its reference."""
    cells = way["cells"]
    dims = [tiledb.Dim(name, domain=(0, n - 1), tile=c, dtype="u8") for name, n, c in zip(("y", "x"), SHAPE, CHUNK)]
    nullable = way.get("nullable", False)
    attribute = tiledb.Attr("v", dtype=cells.dtype, nullable=nullable is not False, fill=None)
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[attribute]))
    with tiledb.open(str(path), "w") as array:
        if nullable is False:
            rows = way.get("written", SHAPE[0])
            array[:rows] = cells[:rows]
        else:
            # By way of a table of pyarrow, which is how the reference takes nulls.
            hidden = way["want"].mask if nullable is True else nullable
            array[:] = {"v": pa.array(cells.ravel(), mask=np.ascontiguousarray(hidden).ravel())}
        for name, value in way["metadata"].items():
            array.meta[name] = value
    return path


def fill_for(way, form):
    """Formats without nulls use a value for them, unless one is declared."""
    if form == "tiledb" or not (way.get("nullable") is not None or way.get("written")):
        return []
    if "nullable" not in way and way["metadata"]:
        return []
    return ["--fill", "-777"]


# Only TileDB holds dates.
SOURCES = [(way, form) for way in WAYS for form in FORMATS if way != "NaT" or form == "tiledb"]


@pytest.fixture(scope="module", params=SOURCES, ids=lambda p: f"{p[0]}-{p[1]}")
def source(request, tmp_path_factory):
    name, form = request.param
    way = WAYS[name]()
    folder = tmp_path_factory.mktemp("missing")
    made = create(folder / "made", way)
    if form == "tiledb":
        return made, way["want"]
    out = folder / f"out.{form}"
    tet("convert", made, out, *fill_for(way, form))
    return out, way["want"]


def as_integers(want):
    """Dates as their counts, which is what sums and comparisons of the command line use."""
    return np.ma.array(want.data.astype("i8"), mask=want.mask) if want.dtype.kind in "mM" else want


def close(found, want):
    if np.ma.is_masked(want) or want is None:
        assert found is None
    elif found is None:
        pytest.fail(f"no answer, expected {want}")
    else:
        assert float(found) == pytest.approx(float(want), rel=1e-12, abs=1e-12)


def agrees(row, want):
    want = as_integers(want)
    assert (row["count"], row["nulls"]) == (want.size, int(np.ma.getmaskarray(want).sum()))
    assert row["nan"] == 0
    if want.count() == 0:
        assert row["min"] is row["max"] is row["mean"] is None
        return
    close(row["min"], want.min())
    close(row["max"], want.max())
    close(row["sum"], want.sum(dtype="f8"))
    close(row["mean"], want.mean(dtype="f8"))
    close(row["std"], want.std(dtype="f8"))


def test_whole(source):
    path, want = source
    agrees(tet_json("stat", path), want)


def test_parts(source):
    path, want = source
    agrees(tet_json("stat", path, "y=1:4", "x=1:5:2"), want[1:4, 1:5:2])
    # Whole chunks, which statistics may answer.
    for y in range(0, 5, 2):
        for x in range(0, 6, 3):
            agrees(tet_json("stat", path, f"y={y}:{min(y + 2, 5)}", f"x={x}:{x + 3}"), want[y:y + 2, x:x + 3])


@pytest.mark.parametrize("axis, dim", [(0, "y"), (1, "x")])
def test_by(source, axis, dim):
    path, want = source
    rows = tet_json("stat", path, "--by", dim)["rows"]
    assert len(rows) == want.shape[axis]
    for i, row in enumerate(rows):
        agrees(row, want.take(i, axis=axis))


@pytest.mark.parametrize("axis, dim", [(0, "y"), (1, "x")])
def test_along_axes(source, axis, dim):
    path, want = source
    want = as_integers(want)
    options = [word for name in ("sum", "count", "min", "max", "mean", "std") for word in (f"--{name}", dim)]
    rows = tet_json("stat", path, *options)["rows"]
    assert len(rows) == want.shape[1 - axis]
    for i, row in enumerate(rows):
        cells = want.take(i, axis=1 - axis)
        assert row["count"] == cells.count()
        close(row["sum"], 0 if cells.count() == 0 else cells.sum(dtype="f8"))
        for name in ("min", "max", "mean", "std"):
            close(row[name], None if cells.count() == 0 else getattr(cells.astype("f8"), name)())


CONDITIONS = [
    ("v > 3", lambda v: v > 3),
    ("v != 3", lambda v: v != 3),
    ("not v > 3", lambda v: v <= 3),
    ("not (v > 3 or v < -20)", lambda v: (v <= 3) & (v >= -20)),
    ("v in (0, 1, -999, 255)", lambda v: np.isin(v, (0, 1, -999, 255))),
    ("not v in (0, 1)", lambda v: ~np.isin(v, (0, 1))),
    ("v is null", None),
    ("not v is null", lambda v: v == v),
    ("v > 3 or v is null", "or"),
    ("v > 3 and y >= 2", "and"),
]


def meets(want, test):
    hidden, data = np.ma.getmaskarray(want), want.data
    if test is None:
        return hidden
    if test == "or":
        return hidden | (data > 3)
    if test == "and":
        return ~hidden & (data > 3) & (np.arange(SHAPE[0])[:, None] >= 2)
    return ~hidden & test(data)


@pytest.mark.parametrize("condition, test", CONDITIONS, ids=[c for c, _ in CONDITIONS])
def test_where(source, condition, test):
    path, want = source
    want = as_integers(want)
    chosen = meets(want, test)
    agrees(tet_json("stat", path, "--where", condition), np.ma.array(want[chosen]))
    table = list(csv.reader(io.StringIO(tet("cat", path, "--where", condition, "--format", "csv").decode())))[1:]
    assert len(table) == chosen.sum()
    blank = [row[-1] == "" for row in table]
    assert blank == list(np.ma.getmaskarray(want)[chosen])
    # A row whose answer is 0 is a row.
    rows = tet_json("stat", path, "--where", condition, "--sum", "x")["rows"]
    present = [y for y in range(SHAPE[0]) if chosen[y].any()]
    assert [row["positions"] for row in rows] == [[y] for y in present]
    for y, row in zip(present, rows):
        cells = want[y][chosen[y]]
        close(row["sum"], cells.sum() if cells.count() else 0)


def test_query_documents(source):
    path, want = source
    want = as_integers(want)
    name = tet_json("info", path)["arrays"][0]["name"]
    ask = lambda **document: tet_json("query", json.dumps({"dataset": name, **document}), "-t", path, "-x")["execution"]
    close(ask(sum=[])["operation_sum"], want.sum(dtype="f8"))
    close(ask(mean=[])["operation_mean"], want.mean(dtype="f8"))
    close(ask(max=[])["operation_max"], want.max())
    if np.ma.is_masked(want):
        assert ask(null_count=[])["operation_null_count"] == int(want.mask.sum())


def test_cells_shown(source):
    path, want = source
    hidden = np.ma.getmaskarray(want)
    validity = np.frombuffer(tet("cat", path, "--validity"), "u1").reshape(SHAPE)
    assert (validity == ~hidden).all()
    table = list(csv.reader(io.StringIO(tet("cat", path, "--format", "csv").decode())))[1:]
    assert [row[-1] == "" for row in table] == list(hidden.ravel())
    document = tet_json("cat", path)
    shown = np.array(document["data"], object)
    assert [value is None for value in shown.ravel()] == list(hidden.ravel())
    column = pa.ipc.open_stream(tet("cat", path, "--format", "arrow")).read_all().column(-1)
    assert column.is_null().to_numpy().tolist() == list(hidden.ravel())
    known = [v.value if hasattr(v, "value") else v for v in column.drop_null()]
    assert len(known) == (~hidden).sum()


def test_plot_range(source):
    path, want = source
    want = as_integers(want)
    document = tet_json("plot", path)
    close(document["low"], want.min())
    close(document["high"], want.max())


# The same questions from Python


def array_of(path):
    return tesseral.open(path).variables["v"]


def same(found, want):
    """A masked array is the expected one: the same cells are masked, and the others are equal."""
    found = np.ma.asarray(found)
    assert found.shape == want.shape
    np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(want))
    np.testing.assert_array_equal(found.compressed(), want.compressed())


def test_python_arrays(source):
    path, want = source
    array = array_of(path)
    same(array.masked(), want)
    same(array.decoded(), want)
    same(array.isel(y=slice(1, 4), x=slice(0, 6, 2)).masked(), want[1:4, ::2])
    assert int(array.count()) == want.count()
    if want.dtype.kind not in "mM":
        close(array.mean(), want.mean(dtype="f8"))
        close(array.sum(), want.sum(dtype="f8"))
        rows = array.count(axis=1)
        np.testing.assert_array_equal(rows, want.count(axis=1))


def test_python_rows(source):
    path, want = source
    array = array_of(path)
    hidden = np.ma.getmaskarray(want)
    frame = array.to_pandas()
    values = frame[array.field]
    assert values.isna().tolist() == hidden.ravel().tolist()
    assert values.dropna().to_numpy().astype(want.dtype).tolist() == want.compressed().tolist()
    table = array.to_arrow()
    assert table.column(array.field).is_null().to_numpy().tolist() == hidden.ravel().tolist()
    # After narrowing, and with conditions.
    frame = array.isel(y=slice(1, 4)).to_pandas()
    assert frame[array.field].isna().tolist() == hidden[1:4].ravel().tolist()
    assert len(array.to_pandas("v is null")) == hidden.sum()


def test_xarray_and_dask(source):
    path, want = source
    if "fill_value" in array_of(path).attrs:
        pytest.skip("xarray knows _FillValue and missing_value")
    with warnings.catch_warnings():
        # About several missing values, which xarray holds unusual.
        warnings.simplefilter("ignore")
        [values] = xr.open_dataset(path, engine="tesseral").data_vars.values()
        [blocks] = xr.open_dataset(path, engine="tesseral", chunks={}).count().compute().data_vars.values()
        values = values.load()
    hidden = np.ma.getmaskarray(want)
    np.testing.assert_array_equal(values.isnull(), hidden)
    np.testing.assert_array_equal(values.values[~hidden], want.compressed())
    assert int(blocks) == want.count()


def test_zarr_view(source):
    path, want = source
    array = array_of(path)
    hidden = np.ma.getmaskarray(want)
    if array.nullable:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [values] = xr.open_zarr(tesseral.zarr.ZarrStore(tesseral.open(path)), consolidated=False).data_vars.values()
    declared = bool(array.missing) or want.dtype.kind == "m"
    if declared or not hidden.any():
        np.testing.assert_array_equal(values.isnull(), hidden)
    np.testing.assert_array_equal(values.values[~hidden], want.compressed())


@pytest.mark.parametrize("way", [way for way in WAYS if way != "NaT"])
def test_conversions_change_no_answer(way, tmp_path):
    """From each format into each, and what that becomes into each again."""
    way = WAYS[way]()
    made, want = create(tmp_path / "made", way), way["want"]
    paths = {"tiledb": made}
    for form in ("tet", "tgm"):
        paths[form] = tmp_path / f"first.{form}"
        tet("convert", made, paths[form], *fill_for(way, form))
    for form in FORMATS:
        for target in FORMATS:
            out = tmp_path / f"{form}.{target}"
            fill = fill_for(way, target) if form == "tiledb" else []
            tet("convert", paths[form], out, *fill, "--to", {"tgm": "tensogram"}.get(target, target))
            agrees(tet_json("stat", out), want)
            hidden = np.ma.getmaskarray(want)
            agrees(tet_json("stat", out, "--where", "v is null"), np.ma.array(want[hidden]))
            same(array_of(out).masked(), want)
            assert array_of(out).to_arrow().column(-1).null_count == hidden.sum()


def test_declarations_without_effect_are_reported(tmp_path):
    path = create(tmp_path / "made", WAYS["a value that does not fit"]())
    warning = tet_json("info", path)["arrays"][0]["warnings"][0]
    assert "_FillValue" in warning and "int16" in warning
    findings = tet_json("verify", path)["findings"]
    assert [f["severity"] for f in findings if f["check"] == "missing_values"] == ["warning"]
    assert b"has no effect" in tet("info", path)
