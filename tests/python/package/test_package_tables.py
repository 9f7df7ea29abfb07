"""Sources of every format as tables: DuckDB, Polars, DataFusion and pyarrow give the rows of the engine, and read what they need."""

import datetime
import http.server
import pathlib
import pickle
import re
import threading

import duckdb
import netCDF4
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
import tesseral
import tiledb
from datafusion import SessionContext

TIMES, LATS, LONS = 40, 12, 18
DAYS = np.datetime64("2001-01-01") + np.arange(TIMES)
LAT = np.linspace(-55, 55, LATS)
LON = np.arange(LONS) * 20.0


def field():
    """Packed sea surface temperatures: one missing cell, warmer later."""
    rng = np.random.default_rng(7)
    cells = rng.integers(-300, 300, (TIMES, LATS, LONS)).astype("i2") + (np.arange(TIMES, dtype="i2") * 50)[:, None, None]
    cells[3, 2, 1] = -32768
    return cells


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same grid as NetCDF, `.tet`, `.tgm` and TileDB."""
    folder = tmp_path_factory.mktemp("tables")
    with netCDF4.Dataset(folder / "sst.nc", "w") as file:
        for name, extent in (("time", TIMES), ("lat", LATS), ("lon", LONS)):
            file.createDimension(name, extent)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.calendar = "hours since 2000-01-01", "standard"
        time[:] = (DAYS - np.datetime64("2000-01-01")).astype(int) * 24.0
        file.createVariable("lat", "f8", ("lat",))[:] = LAT
        file.createVariable("lon", "f4", ("lon",))[:] = LON
        sst = file.createVariable("sst", "i2", ("time", "lat", "lon"), chunksizes=(4, 6, 9), zlib=True, fill_value=-32768)
        sst.scale_factor, sst.add_offset, sst.units = np.float32(0.01), np.float32(15), "degC"
        sst.set_auto_maskandscale(False)
        sst[:] = field()
        ice = file.createVariable("ice", "f4", ("time", "lat", "lon"), chunksizes=(4, 6, 9))
        ice[:] = np.where(field() % 7 == 0, np.nan, field() / 100)
        area = file.createVariable("area", "f8", ("lat",))
        area[:] = np.cos(np.radians(LAT))
    found = {"nc": folder / "sst.nc"}
    for kind, name in (("tet", "sst.tet"), ("tgm", "sst.tgm"), ("tiledb", "sst.tdb")):
        options = {"statistics": True} if kind == "tet" else {}
        tesseral.convert(folder / "sst.nc", folder / name, format="tiledb" if kind == "tiledb" else None, **options)
        found[kind] = folder / name
    return found


def expected():
    """The rows, computed by NumPy alone."""
    stored = field()
    sst = np.ma.MaskedArray(stored * np.float32(0.01) + np.float32(15), mask=stored == -32768)
    time, lat, lon = (a.reshape(-1) for a in np.meshgrid(DAYS, LAT, LON, indexing="ij"))
    ice = np.where(stored % 7 == 0, np.nan, stored / 100).astype("f4").reshape(-1)
    return {"time": time, "lat": lat, "lon": lon, "sst": sst.reshape(-1), "ice": ice}


def rows_of(table):
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize("kind", ["nc", "tet", "tgm", "tiledb"])
def test_columns_are_what_they_mean(sources, kind):
    ds = tesseral.dataset(sources[kind])
    assert isinstance(ds, pads.Dataset) and ds.schema.names[:3] == ["time", "lat", "lon"]
    assert pa.types.is_timestamp(ds.schema.field("time").type) and ds.schema.field("sst").type == pa.float32()
    table, want = ds.to_table(), expected()
    assert len(table) == ds.count_rows() == TIMES * LATS * LONS
    assert np.array_equal(table["time"].to_numpy().astype("M8[D]"), want["time"])
    for name in ("lat", "lon", "ice"):
        np.testing.assert_array_equal(table[name].to_numpy(), want[name], err_msg=name)
    assert table["sst"].null_count == 1
    np.testing.assert_allclose(table["sst"].to_numpy(), want["sst"].filled(np.nan), rtol=1e-6)
    np.testing.assert_array_equal(table["area"].to_numpy(), np.cos(np.radians(want["lat"])))
    # The same physical values as those of the engine, to the last bit.
    decoded = tesseral.open(sources[kind]).variables["sst"].decoded().reshape(-1)
    assert np.ma.allequal(np.ma.MaskedArray(table["sst"].to_numpy(), mask=np.ma.getmaskarray(decoded)), decoded)


FILTERS = [
    (pc.field("lat") > 20, lambda r: r["lat"] > 20),
    ((pc.field("lat") == LAT[3]) & (pc.field("lon") < 100), lambda r: (r["lat"] == LAT[3]) & (r["lon"] < 100)),
    (pc.field("lon").isin([20.0, 340.0]), lambda r: np.isin(r["lon"], [20, 340])),
    (~pc.field("lon").isin([20.0, 340.0]), lambda r: ~np.isin(r["lon"], [20, 340])),
    (pc.field("time") >= pa.scalar(datetime.datetime(2001, 2, 1)), lambda r: r["time"] >= np.datetime64("2001-02-01")),
    (pc.month(pc.field("time")) == 2, lambda r: r["time"].astype("M8[M]").astype(int) % 12 == 1),
    (pc.field("sst") > 33.0, lambda r: (r["sst"] > 33).filled(False)),
    ((pc.field("sst") < 13) | (pc.field("lat") > 50), lambda r: (r["sst"] < 13).filled(False) | (r["lat"] > 50)),
    (pc.field("sst").is_null(), lambda r: np.ma.getmaskarray(r["sst"])),
    (pc.field("sst").is_valid() & (pc.field("lon") == 20), lambda r: ~np.ma.getmaskarray(r["sst"]) & (r["lon"] == 20)),
    (~(pc.field("ice") <= 3.0), lambda r: ~(r["ice"] <= 3)),
    (pc.field("ice") > 19.0, lambda r: r["ice"] > 19),
    (pc.field("ice") == np.float32(-2.5), lambda r: r["ice"] == np.float32(-2.5)),
    (pc.field("lat") > pc.field("lon"), lambda r: r["lat"] > r["lon"]),
    (pc.field("area") < 0.6, lambda r: np.cos(np.radians(r["lat"])) < 0.6),
    (pc.field("lat") > 1000, lambda r: r["lat"] > 1000),
    (pc.field("lat").cast("int64") == 55, lambda r: r["lat"].astype(int) == 55),
]


@pytest.mark.parametrize("kind", ["nc", "tet", "tgm", "tiledb"])
def test_every_filter_gives_the_rows_of_numpy(sources, kind):
    ds, want = tesseral.dataset(sources[kind], nbytes=20_000), expected()
    # A message has one chunk, and so one fragment.
    assert (len(list(ds.get_fragments())) > 1) == (kind != "tgm")
    for expression, holds in FILTERS:
        rows = np.asarray(holds(want))
        table = ds.to_table(columns=["time", "lat", "lon"], filter=expression)
        got = {(t, y, x) for t, y, x in zip(table["time"].to_numpy().astype("M8[D]").tolist(), table["lat"].to_pylist(), table["lon"].to_pylist())}
        assert len(got) == len(table) == rows.sum(), str(expression)
        named = zip(want["time"][rows].tolist(), want["lat"][rows].tolist(), want["lon"][rows].tolist())
        assert got == set(named), str(expression)
        assert sum(f.count_rows(filter=expression) for f in ds.get_fragments(expression)) == len(table)
        for fragment in ds.get_fragments():
            # What a fragment promises of its rows holds.
            assert fragment.count_rows(filter=~fragment.partition_expression) == 0


QUERIES = [
    "select lat, avg(sst) as a, count(*) as n from ds where time < timestamp '2001-01-20' group by lat",
    "select count(*) as n, max(sst) as m from ds where lon = 40 and lat < 0",
    "select time, sst from ds where sst >= 33 and lat in (45, 55)",
    "select count(*) as n from ds where sst is null or ice > 3",
    "select min(ice) as m, count(ice) as n from ds where ice <> 2 and ice < 100",
]


@pytest.mark.parametrize("kind", ["tet", "tiledb", "nc"])
def test_the_query_of_the_readme(sources, kind):
    readme = (pathlib.Path(__file__).parents[3] / "README.md").read_text()
    code = next(block for block in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S) if "duckdb.sql" in block)
    code = code.replace('"ocean.nc"', f"{str(sources[kind])!r}, ['sst']").replace("2024-07-15", "2001-01-11").replace("duckdb.sql(", "rows = duckdb.sql(")
    names = {}
    exec(code, names)
    cells = np.ma.masked_equal(field()[10:], -32768) * 0.01 + 15
    found = np.array(names["rows"].fetchall())
    np.testing.assert_allclose(found, np.stack([LAT, cells.mean((0, 2))], 1), rtol=1e-6)


@pytest.mark.parametrize("kind", ["nc", "tet", "tgm", "tiledb"])
def test_sql_gives_the_rows_of_a_table_in_memory(sources, kind):
    ds = tesseral.dataset(sources[kind], nbytes=20_000)
    plain = ds.to_table()
    context = SessionContext()
    context.register_dataset("ds", ds)
    memory = SessionContext()
    # As Arrow compares: DataFusion leaves the filters of datasets to it.
    memory.register_dataset("ds", pads.dataset(plain))
    for query in QUERIES:
        got = duckdb.sql(query).to_arrow_table()
        assert rows_of(got) == rows_of(duckdb.sql(query.replace("from ds", "from plain")).to_arrow_table()), query
        other = context.sql(query).to_arrow_table()
        assert rows_of(other) == rows_of(memory.sql(query).to_arrow_table()), query


@pytest.mark.parametrize("kind", ["nc", "tet", "tgm", "tiledb"])
def test_polars_gives_the_rows_of_a_frame_in_memory(sources, kind):
    lazy = tesseral.scan(sources[kind], nbytes=20_000)
    plain = pl.from_arrow(tesseral.dataset(sources[kind]).to_table())
    date = datetime.datetime(2001, 2, 1)
    queries = [
        lambda f: f.filter((pl.col("lat") > 20) & (pl.col("sst") < 20)).select("time", "lat", "sst"),
        # NaN is greater than every number, for Polars alone.
        lambda f: f.filter(pl.col("ice") > 18).select("time", "ice"),
        lambda f: f.filter(pl.col("time") >= date).group_by("lon").agg(pl.col("sst").mean()).sort("lon"),
        lambda f: f.filter(pl.col("time").dt.month() == 2, pl.col("lat").is_in([-55.0, 55.0])).select(pl.len()),
        lambda f: f.filter(pl.col("sst").is_between(14, 15) | pl.col("sst").is_null()),
        lambda f: f.filter(~(pl.col("ice") < 3)).select(pl.col("ice").count(), pl.len().alias("n")),
        lambda f: f.head(1000).select("lat"),
    ]
    for number, query in enumerate(queries):
        got, want = query(lazy).collect(), query(plain.lazy()).collect()
        assert got.sort(got.columns).equals(want.sort(want.columns)), number


class Ranges(http.server.BaseHTTPRequestHandler):
    """A server of one file, which counts the bytes it sends."""

    protocol_version = "HTTP/1.1"
    content = b""
    sent = [0]

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()

    def do_GET(self):
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-")).groups()
        start = int(first) if first else len(self.content) - int(last)
        body = self.content[start : int(last) + 1 if first and last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(self.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.sent[0] += len(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(tmp_path):
    """A large cube whose values grow along the first axis, by URL, and the number of bytes that were sent."""
    path = tmp_path / "cube.tet"
    rng = np.random.default_rng(3)
    cells = (np.arange(64.0)[:, None, None] * 10 + rng.random((64, 128, 128))).astype("f4")
    coords = {"time": np.datetime64("2001-01-01") + np.arange(64), "lat": np.linspace(-60, 60, 128), "lon": np.arange(128.0)}
    tesseral.write(
        path, {"t": cells, "u": -cells}, dims=("time", "lat", "lon"), coords=coords, chunks=(4, 64, 64), codec="zstd", statistics=True
    )
    handler = type("Handler", (Ranges,), {"content": path.read_bytes(), "sent": [0]})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/cube.tet", handler.sent, path.stat().st_size
    server.shutdown()
    server.server_close()


def test_scans_read_only_what_they_need(served):
    url, sent, size = served

    def cost(query):
        """The share of the file that a query reads from a source that was just opened."""
        ds = tesseral.dataset(url)
        before = sent[0]
        result = query(ds)
        return (sent[0] - before) / size, result

    whole, _ = cost(lambda ds: ds.to_table())
    assert 0.8 < whole < 1.3
    column, _ = cost(lambda ds: ds.to_table(columns=["t"]))
    assert column < 0.65
    nothing, count = cost(lambda ds: ds.count_rows())
    assert nothing == 0 and count == 64 * 128 * 128
    # Coordinates: one of sixteen chunks along time, a half along each other axis.
    query = "select avg(t) from ds where time < timestamp '2001-01-05' and lat < 0 and lon < 64"
    window, _ = cost(lambda ds: duckdb.sql(query).fetchall())
    assert window < 0.05
    # Statistics: cells above 620 are in the last of sixteen.
    table, found = cost(lambda ds: ds.to_table(columns=["u"], filter=pc.field("t") > 620))
    assert table < 0.2 and len(found) == (np.float32(620) < np.asarray(tesseral.open(url)["t"])).sum()
    head, rows = cost(lambda ds: ds.head(10, columns=["t", "lat"]))
    assert head < 0.05 and len(rows) == 10

    def lazy(ds):
        return tesseral.scan(ds._arguments[0])

    polars, found = cost(lambda ds: lazy(ds).filter(pl.col("t") < 5, pl.col("lat") < 0).select("u").collect())
    assert polars < 0.05 and len(found) == 64 * 128
    first, _ = cost(lambda ds: lazy(ds).select("t").head(5).collect())
    assert first < 0.05

    def fusion(ds):
        context = SessionContext()
        context.register_dataset("ds", ds)
        return context.sql(query).to_arrow_table()

    fused, _ = cost(fusion)
    assert fused < 0.05


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "trips"
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(
            tiledb.Dim("x", domain=(0.0, 1000.0), tile=100.0, dtype="float64"), tiledb.Dim("station", domain=(None, None), dtype="ascii")
        ),
        attrs=[
            tiledb.Attr("fare", dtype="float64"),
            tiledb.Attr("n", dtype="int32", nullable=True),
            tiledb.Attr("word", dtype="U"),
            tiledb.Attr("when", dtype="datetime64[s]"),
        ],
        sparse=True,
        capacity=16,
    )
    tiledb.Array.create(str(path), schema)
    x = np.arange(500.0)
    station = np.array([f"s{i % 5}" for i in range(500)], dtype="S")
    cells = {"fare": np.where(x % 50 == 0, np.nan, x / 3), "word": np.array([f"w{i % 3}" for i in range(500)], dtype=object)}
    cells |= {"n": pa.array([None if i % 9 == 0 else i for i in range(500)], pa.int32())}
    cells |= {"when": np.datetime64("2020-01-01T00:00:00") + np.arange(500).astype("m8[s]") * 3600}
    with tiledb.open(str(path), "w") as array:
        array[x, station] = cells
    return path


def test_sparse_arrays_are_tables(sparse):
    ds = tesseral.dataset(sparse)
    plain = ds.to_table()
    assert ds.schema.names == ["x", "station", "fare", "n", "word", "when"] and len(plain) == ds.count_rows() == 500
    whole = tesseral.open(sparse)
    array = whole[next(iter(whole))]
    assert rows_of(plain.drop_columns(["fare"])) == rows_of(array.to_arrow().select(plain.column_names).drop_columns(["fare"]))
    queries = [
        "select sum(fare) as s, count(*) as n from ds where fare < 100 and station = 's1'",
        "select x, n, word from ds where n >= 490 and word in ('w0', 'w1')",
        "select count(*) as n from ds where n is null",
        "select station, count(*) as n from ds where x between 100 and 250 group by station",
        'select count(*) as n from ds where "when" >= timestamp \'2020-01-11\'',
        "select count(*) as n from ds where not (fare < 100)",
    ]
    context, memory = SessionContext(), SessionContext()
    context.register_dataset("ds", ds)
    # As Arrow compares: DataFusion leaves the filters of datasets to it.
    memory.register_dataset("ds", pads.dataset(plain))
    for query in queries:
        assert rows_of(duckdb.sql(query).to_arrow_table()) == rows_of(duckdb.sql(query.replace("from ds", "from plain")).to_arrow_table()), query
        assert rows_of(context.sql(query).to_arrow_table()) == rows_of(memory.sql(query).to_arrow_table()), query
    lazy, frame = tesseral.scan(sparse), pl.from_arrow(plain)
    for wanted in (pl.col("fare") > 150, pl.col("n") == 7, pl.col("word") == "w2", (pl.col("x") < 9) | (pl.col("fare") > 160)):
        got, want = lazy.filter(wanted).collect(), frame.filter(wanted)
        assert got.sort("x").equals(want.sort("x")), str(wanted)
    assert len(lazy.head(7).collect()) == 7 and ds.head(3, columns=["word"]).column_names == ["word"]


def test_conditions_reach_the_engine(sparse, sources, monkeypatch):
    """A filter on fields becomes a condition, and never a stronger one."""
    from tesseral import _filter

    fields = {"f": np.dtype("f4"), "i": np.dtype("i8"), "s": np.dtype("O"), "t": np.dtype("M8[D]")}

    def text(expression):
        return [_filter.condition(part, fields) for part in _filter.of_arrow(expression).parts]

    f, i, s, t = (pc.field(name) for name in "fist")
    [low] = text(f > 0.1)
    assert float(low.split(">= ")[1]) < np.float32(0.1)
    assert text((i >= 5) & (i < 7.5)) == ["`i` >= 5", "`i` <= 8"]
    assert text(s == "a") == ['`s` = "a"'] and text(s == 'a"b') == [None] and text(s > "a") == [None]
    assert text(t == pa.scalar(datetime.date(2020, 1, 2)).cast("timestamp[s]")) == ['`t` = "2020-01-02"']
    assert text(t < pa.scalar(datetime.datetime(2020, 1, 2, 12))) == [None]
    assert text(~(i > 5)) == [None] and text(i.is_null()) == [None] and text((i > 5) | (pc.sqrt(f) > 2)) == [None]
    assert text(pc.scalar(5) < i) == ["`i` >= 5"]
    assert _filter.of_arrow(pc.field("a'\ncall: 'b") == 1).names is None
    polars = _filter.of_polars((pl.col("f") > 1) & (pl.col("i") == 2) & (pl.col("s") == "q"))
    texts = [_filter.condition(part, fields) for part in polars.parts]
    assert texts[0].endswith("or `f` is nan)") and texts[1:] == ["(`i` >= 2 and `i` <= 2)", '`s` = "q"']


def test_datasets_behave_as_those_of_pyarrow(sources):
    ds = tesseral.dataset(sources["tet"], ["sst"], nbytes=20_000)
    assert ds.schema.names == ["time", "lat", "lon", "sst"]
    warm = ds.filter(pc.field("sst") > 30)
    assert warm.count_rows() == ds.count_rows(filter=pc.field("sst") > 30) == warm.to_table().num_rows > 0
    assert warm.filter(pc.field("lat") > 0).to_table().equals(ds.to_table(filter=(pc.field("sst") > 30) & (pc.field("lat") > 0)))
    assert ds.take([0, 5]).num_rows == 2 and ds.sort_by("sst").head(1).num_rows == 1
    assert pickle.loads(pickle.dumps(warm)).count_rows() == warm.count_rows()
    derived = ds.to_table(columns={"double": pc.field("sst") * 2}, filter=pc.field("lon") == 20)
    assert derived.column_names == ["double"] and len(derived) == TIMES * LATS
    joined = ds.join(pa.table({"lat": LAT, "row": np.arange(LATS)}), "lat").to_table()
    assert len(joined) == ds.count_rows() and "row" in joined.column_names
    assert "sst" in repr(ds) and pads.Scanner.from_batches(ds.to_batches(), schema=ds.schema).count_rows() == ds.count_rows()
    with pytest.raises(KeyError, match="available"):
        ds.to_table(columns=["nope"])
    with pytest.raises(tesseral.NotFoundError, match="available"):
        tesseral.dataset(sources["tet"], ["nope"])
    with pytest.raises(NotImplementedError):
        ds.replace_schema(ds.schema)


def test_variables_of_several_grids_are_several_tables(tmp_path):
    tesseral.write(tmp_path / "two.tet", {"a": np.zeros((3, 4)), "b": np.ones(5)}, dims={"a": ("y", "x"), "b": ("z",)})
    with pytest.raises(tesseral.InvalidRequestError, match="variables=") as raised:
        tesseral.dataset(tmp_path / "two.tet")
    assert "(y, x)" in str(raised.value) and "(z)" in str(raised.value)
    assert tesseral.dataset(tmp_path / "two.tet", "b").to_table().to_pydict() == {"z": [0, 1, 2, 3, 4], "b": [1.0] * 5}
    tesseral.write(tmp_path / "none.tet", {"a": np.zeros((0, 4))}, dims=("y", "x"))
    assert tesseral.dataset(tmp_path / "none.tet").to_table().num_rows == 0
    tesseral.write(tmp_path / "one.tet", {"a": np.array(5.0)})
    assert tesseral.dataset(tmp_path / "one.tet").to_table().to_pydict() == {"a": [5.0]}


def test_variables_with_other_coordinates_are_other_tables(tmp_path):
    tiledb.group_create(str(tmp_path / "group"))
    for name, first in (("a", 0), ("b", 10)):
        domain = tiledb.Domain(tiledb.Dim("x", domain=(first, first + 3), tile=2, dtype="int32"))
        tiledb.Array.create(str(tmp_path / "group" / name), tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype="f8")]))
        with tiledb.open(str(tmp_path / "group" / name), "w") as array:
            array[:] = np.arange(4.0) + first
    with tiledb.Group(str(tmp_path / "group"), "w") as group:
        group.add("a", "a", relative=True)
        group.add("b", "b", relative=True)
    with pytest.raises(tesseral.InvalidRequestError, match="variables="):
        tesseral.dataset(tmp_path / "group")
    assert tesseral.dataset(tmp_path / "group", "b").to_table().to_pydict() == {"x": [10, 11, 12, 13], "b": [10.0, 11.0, 12.0, 13.0]}


def test_damage_is_an_error_of_the_query(sources, tmp_path):
    content = bytearray(sources["tet"].read_bytes())
    where = [array.chunks and array._view.chunk_table() for array in [tesseral.open(sources["tet"]).variables["sst"]]][0][5]
    content[where[4] + where[2] // 2] ^= 0xFF
    ds = tesseral.dataset(bytes(content), "sst")
    with pytest.raises(tesseral.CorruptError):
        ds.to_table()
    with pytest.raises(Exception, match="sst"):
        duckdb.sql("select sum(sst) from ds").fetchall()
    with pytest.raises(Exception, match="sst"):
        tesseral.scan(bytes(content), "sst").select(pl.col("sst").sum()).collect()


def test_filters_of_several_rows_are_not_divided(sources):
    lazy = tesseral.scan(sources["tet"], nbytes=20_000)
    plain = pl.from_arrow(tesseral.dataset(sources["tet"]).to_table())
    key = ["time", "lat", "lon"]
    for wanted in (
        pl.col("lat") == pl.col("lat").max(),
        pl.col("sst").rank() < 10,
        pl.col("time") > pl.col("time").mean(),
        pl.col("lon").is_first_distinct(),
        pl.lit(True),
        pl.lit(False),
    ):
        got, want = lazy.filter(wanted).collect(), plain.filter(wanted)
        assert got.sort(key).equals(want.sort(key)), str(wanted)
    ds = tesseral.dataset(sources["tet"], nbytes=20_000)
    assert ds.count_rows(filter=pc.scalar(False)) == 0 and ds.count_rows(filter=pc.scalar(True)) == ds.count_rows()


def test_tables_become_arrays_again(sources, tmp_path):
    ds = tesseral.dataset(sources["tet"], ["sst"])
    table = ds.to_table()
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    grid = tesseral.from_table(shuffled, ["time", "lat", "lon"])
    decoded = tesseral.open(sources["tet"]).variables["sst"].decoded()
    assert grid.dims == ("time", "lat", "lon") and np.ma.allequal(grid.arrays["sst"], decoded)
    assert np.array_equal(np.ma.getmaskarray(grid.arrays["sst"]), np.ma.getmaskarray(decoded))
    assert np.array_equal(grid.coords["lat"], LAT) and np.array_equal(grid.coords["time"].astype("M8[D]"), DAYS)
    assert grid.to_xarray().sst.isnull().sum() == 1
    tesseral.write(tmp_path / "again.tet", {"sst": grid.arrays["sst"].filled(0)}, dims=grid.dims, coords=grid.coords)
    assert tesseral.open(tmp_path / "again.tet")["sst"].shape == (TIMES, LATS, LONS)
    part = tesseral.from_table({"x": [2, 0], "word": ["b", "a"], "n": [5, 6]}, "x")
    assert part.coords["x"].tolist() == [0, 2] and part.arrays["word"].tolist() == ["a", "b"] and part.arrays["n"].tolist() == [6, 5]
    holes = tesseral.from_table(pl.DataFrame({"y": [0, 1], "x": [0, 1], "n": [1, 2]}), ["y", "x"])
    assert holes.arrays["n"].tolist() == [[1, None], [None, 2]]
    with pytest.raises(tesseral.InvalidRequestError, match="several rows at x=1"):
        tesseral.from_table({"x": [1, 1], "n": [5, 6]}, "x")
    with pytest.raises(tesseral.InvalidRequestError, match="missing"):
        tesseral.from_table({"x": np.array([1, np.nan]), "n": [5, 6]}, "x")
    with pytest.raises(KeyError, match="available"):
        tesseral.from_table({"x": [1]}, "y")
