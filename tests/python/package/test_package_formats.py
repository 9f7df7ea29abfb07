"""Interoperability with the three reference packages in one process, in both directions."""

import numpy as np
import pytest
import tensogram
import tesseral
import tet as tetration
import tiledb
from conftest import tiledb_array

RNG = np.random.default_rng(7)
TET = ["float16", "float32", "float64", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TGM = [*TET, "int8", "complex64", "complex128"]


def bits(dtype, shape):
    """Random bits, including NaN payloads and negative zeros."""
    dtype = np.dtype(dtype)
    return RNG.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("codec", [None, "zstd:5"])
def test_tet_both_ways(tmp_path, codec):
    values = {name: bits(name, (5, 4, 3)) for name in TET}
    tame = {name: np.arange(60).astype(name).reshape(5, 4, 3) for name in TET}
    tesseral.write(tmp_path / "bits.tet", values, chunks=(2, 3, 3), codec=codec)
    tesseral.write(tmp_path / "tame.tet", tame, chunks=(2, 3, 3), codec=codec, dims=("t", "y", "x"))
    ours, theirs = tesseral.open(tmp_path / "bits.tet"), tetration.open(str(tmp_path / "tame.tet"))
    assert list(ours) == TET and ours.format == "tet"
    for name in TET:
        same(ours[name][...], values[name])
        same(theirs.read_numpy(name), tame[name])


def test_tensogram_both_ways(tmp_path):
    values = {name: bits(name, (4, 6)) for name in TGM}
    for name in TGM:
        if np.dtype(name).kind in "fc":
            values[name] = np.arange(24).astype(name).reshape(4, 6)
    tesseral.write(tmp_path / "a.tgm", values, codec="zstd", attrs={"title": "all", "int8": {"units": "K"}})
    container = tesseral.open(tmp_path / "a.tgm")
    assert container.format == "tensogram" and container.attrs == {"title": "all"}
    decoded = tensogram.decode((tmp_path / "a.tgm").read_bytes()).objects
    for i, name in enumerate(TGM):
        same(container[f"0/{i}"][...], values[name])
        same(container[name][...], values[name])
        same(np.asarray(decoded[i][1]), values[name])
    assert container["int8"].attrs["units"] == "K"


def test_bfloat16_is_read_as_float32(tmp_path):
    halves = np.array([0x3F80, 0xC020, 0x7FC1, 0x8000, 0x0001], np.uint16)
    described = {"type": "ntensor", "ndim": 1, "shape": [5], "strides": [1], "dtype": "bfloat16", "byte_order": "little"}
    described |= {"encoding": "none", "filter": "none", "compression": "none"}
    (tmp_path / "b.tgm").write_bytes(tensogram.encode_pre_encoded({}, [(described, halves.tobytes())]))
    array = tesseral.open(tmp_path / "b.tgm")["0/0"]
    assert array.dtype_name == "bfloat16" and array.dtype == "f4"
    same(array[...], (halves.astype("u4") << 16).view("f4"))
    assert array[1] == -2.5 and array.max() == 1.0 and array.max().dtype == "f4"


def test_bitmasks_are_read_as_truth_values(tmp_path):
    want = RNG.random((3, 7)) < 0.5
    described = {"type": "ntensor", "ndim": 2, "shape": [3, 7], "strides": [7, 1], "dtype": "bitmask", "byte_order": "little"}
    described |= {"encoding": "none", "filter": "none", "compression": "none"}
    packed = np.packbits(want.ravel()).tobytes()
    (tmp_path / "b.tgm").write_bytes(tensogram.encode_pre_encoded({}, [(described, packed)]))
    array = tesseral.open(tmp_path / "b.tgm")["0/0"]
    assert array.dtype == bool and array.dtype_name == "bitmask"
    same(array[...], want)
    same(array[::-1, 2:5], np.ascontiguousarray(want[::-1, 2:5]))
    assert array[1, 3] == want[1, 3]


def test_tiledb_versions_and_domains(tmp_path):
    path = str(tmp_path / "dense")
    whole = np.arange(12, dtype="i4").reshape(3, 4)
    tiledb_array(path, whole, (2, 2), origin=10, dims="yx", timestamp=10)
    with tiledb.open(path, "w", timestamp=20) as array:
        array[10:12, 10:12] = np.full((2, 2), -1, "i4")
    container = tesseral.open(path)
    array = container["v"]
    assert container.format == "tiledb" and list(container) == ["v"] and array.dims == ("y", "x")
    assert array.coords["x"].tolist() == [10, 11, 12, 13]
    assert (array.sel(y=slice(11, None), x=13)[...] == [7, 11]).all()
    assert array.sel(x=[10, 13])[0].tolist() == [-1, 3]
    assert np.array_equal(tesseral.open(path, as_of=15)["v"][...], whole)
    assert tesseral.open(path, as_of=(15, 25))["v"][0].tolist()[:2] == [-1, -1]
    assert tesseral.open(path, as_of="1970-01-01")["v"][0, 0] == -1
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros(3)})
    with pytest.raises(NotImplementedError):
        tesseral.open(tmp_path / "a.tet", as_of=5)


def test_tiledb_cells_of_every_kind(tmp_path):
    path = str(tmp_path / "kinds")
    domain = tiledb.Domain(tiledb.Dim("day", domain=(np.datetime64("2020-01-01"), np.datetime64("2020-01-04")), tile=np.timedelta64(2, "D"), dtype="datetime64[D]"))
    attrs = [
        tiledb.Attr("maybe", dtype="int64", nullable=True),
        tiledb.Attr("when", dtype="datetime64[ns]"),
        tiledb.Attr("words", dtype="ascii", var=True),
        tiledb.Attr("name", dtype="U0", var=True, nullable=True),
        tiledb.Attr("triple", dtype=[("", "f4")] * 3),
        tiledb.Attr("pair", dtype=[("", "f8")] * 2),
        tiledb.Attr("fixed", dtype="S3"),
        tiledb.Attr("flag", dtype="bool"),
    ]
    tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=False))
    days = np.array(["2020-01-01", "2021-06-01", "NaT", "1999-12-31"], "M8[ns]")
    triple = np.array([(1, 2, 3), (4, 5, 6), (7, 8, 9), (0, 0, 1)], dtype=[("", "f4")] * 3)
    given = {
        "maybe": np.ma.array([1, 2**60, 3, 4], mask=[0, 0, 1, 0]),
        "when": days,
        "words": np.array(["a", "bcd", "ef", "g"], "O"),
        "name": np.array([None, "ü", "x", "yy"], "O"),
        "triple": triple,
        "pair": np.array([1 + 2j, 3 + 4j, 5 + 6j, 7 + 8j]),
        "fixed": np.array([b"abc", b"de", b"f", b"ghi"], "S3"),
        "flag": np.array([True, False, True, True]),
    }
    with tiledb.open(path, "w") as array:
        array[:] = given
    container = tesseral.open(path)
    assert list(container) == [attr.name for attr in attrs]
    maybe = container["maybe"][...]
    assert isinstance(maybe, np.ma.MaskedArray) and maybe.tolist() == [1, 2**60, None, 4]
    assert container["maybe"].sum() == 2**60 + 5 and container["maybe"].count() == 3
    assert container["maybe"][2] is np.ma.masked and container["maybe"][1] == 2**60
    assert container["maybe"].oindex[[3, 2]].tolist() == [4, None] and container["maybe"].filled(-1).tolist()[2] == -1
    with pytest.raises(ValueError):
        np.asarray(container["maybe"])
    same(container["when"][...], days)
    assert container["when"][::-1].tolist() == days[::-1].tolist()
    assert container["words"][...].tolist() == ["a", "bcd", "ef", "g"] and container["words"].dtype == object
    assert container["name"][...].tolist() == [None, "ü", "x", "yy"] and container["name"][3] == "yy"
    assert container["triple"][...].tolist() == triple.tolist() and container["triple"].dtype == triple.dtype
    assert container["pair"][...].tolist() == [1 + 2j, 3 + 4j, 5 + 6j, 7 + 8j]
    assert container["fixed"][...].tolist() == [b"abc", b"de", b"f", b"ghi"]
    assert container["flag"][...].tolist() == [True, False, True, True]
    day = container["flag"].coords["day"]
    assert day.dtype == "M8[D]" and day[-1] == np.datetime64("2020-01-04")
    assert container["flag"].sel(day="2020-01-02")[()] == False  # noqa: E712
    assert container["flag"].sel(day=np.datetime64("2020-01-03"))[()] == True  # noqa: E712
    assert container["flag"].sel(day=slice("2020-01-02", "2020-01-03")).shape == (2,)
    assert container["flag"].sel(day="2020-01").shape == (4,)
    assert container["flag"]["fixed"][1] == b"de" and set(container["flag"].fields) == set(given)


def test_tiledb_is_written(tmp_path):
    path = str(tmp_path / "t")
    values = bits("int32", (5, 7))
    tesseral.write(path, {"v": values}, format="tiledb", dims=("y", "x"), chunks=(2, 3), codec="zstd", attrs={"title": "t"}, timestamp=10)
    with tiledb.open(path) as array:
        same(array[:] if not isinstance(array[:], dict) else array[:]["v"], values)
        assert array.schema.domain.dim(0).name == "y"
    same(tesseral.open(path)["v"][...], values)
    assert tesseral.open(path).attrs["title"] == "t"
    tesseral.write(str(tmp_path / "g"), {"a": values, "b": np.arange(3.0)}, format="tiledb", coords={}, dims=None)
    group = tesseral.open(tmp_path / "g")
    assert sorted(group) == ["a", "b"] and group["b"].sum() == 3
    with pytest.raises(tesseral.TesseralError):
        tesseral.write(str(tmp_path / "x"), {"v": values}, format="tiledb", no_such_option=1)
    assert not (tmp_path / "x").exists()


def test_encrypted(tmp_path):
    key = b"0123456789abcdef0123456789abcdef"
    context = tiledb.Ctx({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": key.decode()})
    path = str(tmp_path / "secret")
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 9), tile=5, dtype="int32", ctx=context), ctx=context)
    schema = tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype="i4", ctx=context)], ctx=context)
    tiledb.Array.create(path, schema, ctx=context)
    with tiledb.open(path, "w", ctx=context) as array:
        array[:] = np.arange(10, dtype="i4")
    assert tesseral.open(path, key=key)["v"][...].tolist() == list(range(10))
    with pytest.raises(tesseral.TesseralError):
        tesseral.open(path)["v"][...]


def test_labels_dims_and_attributes(tmp_path):
    days = np.array(["2020-01-01", "2020-01-02", "2020-02-01"], "M8[D]")
    for name in ("a.tet", "a.tgm"):
        tesseral.write(
            tmp_path / name,
            {"t": np.arange(12.0).reshape(3, 4)},
            dims=("time", "lat"),
            coords={"time": days, "lat": np.array([0.1, 0.2, 0.3, 0.4], "f4")},
            attrs={"t": {"units": "K", "level": 2}},
        )
        array = tesseral.open(tmp_path / name)["t"]
        assert array.dims == ("time", "lat") and array.sizes == {"time": 3, "lat": 4}
        assert (array.coords["time"] == days).all() and array.labels("lat").dtype == "f4"
        assert array.attrs["units"] == "K" and str(array.attrs["level"]) == "2"
        assert array.sel(time="2020-01").shape == (2, 4)
        assert array.sel(lat=0.3, time="2020-02-01")[()] == 10
        assert array.sel(lat=np.float32(0.3)).shape == (3,)
        assert array.sel(lat=slice(0.4, 0.2)).shape == (3, 3)
        assert array.sel(lat=0.26, method="nearest")[0] == 2
        assert array.sel(time=[days[2], days[0]], method="nearest")[:, 0].tolist() == [8, 0]
        assert array.isel(lat=slice(None, None, -1)).sel(lat=slice(0.1, 0.2))[0].tolist() == [1, 0]
        with pytest.raises(KeyError):
            array.sel(lat=0.25)
        assert array.mean("time").tolist() == [4, 5, 6, 7]


def test_groups_list_their_members(tmp_path):
    path = str(tmp_path / "group")
    tiledb.Group.create(path)
    for name in ("one", "two"):
        tiledb_array(f"{path}/{name}", np.arange(4, dtype="i4"), (2,), dims="i")
        with tiledb.Group(path, "w") as group:
            group.add(name, name=name, relative=True)
    container = tesseral.open(path)
    assert sorted(container) == ["one", "two"] and container["two"][...].tolist() == [0, 1, 2, 3]
