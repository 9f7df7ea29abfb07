"""Storage conventions: the model comes back, and the references open, read and verify every file."""

import json

import numpy as np
import pytest
import tensogram
import tesseral
import tet as tetration
import tiledb

ATTRS = {
    "units": "K",
    "Short": np.int16(-999),
    "single": np.float32(0.1),
    "double": 0.1,
    # The Python package of Tensogram reads no message with such an integer in its metadata.
    "large": 2**64 - 1,
    "beyond": np.array([1, 2**63], "u8"),
    "yes": True,
    "range": np.array([1, 2.5], "f4"),
    "empty": "",
    "words": ["b", "a"],
    "long": "x" * 3000,
    "bytes": b"\0\xff",
    "name": "not the name of the variable",
}
VALUES = {
    "temp": (np.arange(6, dtype="f4").reshape(3, 2), ["time", "x"], "data"),
    "time": (np.array(["2020-01-01", "NaT", "2021-05-06"], "M8[ns]"), ["time"], "index"),
    "x": (np.array([0.1, 0.2], "f4"), ["x"], "index"),
    "flag": (np.array([True, False, True]), ["time"], "data"),
    "small": (np.array([-1, 3], "i1"), ["x"], "data"),
    "lead": (np.array([-1, 0, 1], "m8[s]"), ["time"], "data"),
    "grid": (np.ones((3, 2)), ["time", "x"], "auxiliary"),
    "crs": (np.array(0, "i4"), [], "grid_mapping"),
    "reference": (np.array("2020-01-01", "M8[s]"), [], "auxiliary"),
    "code": (np.array([b"ab", b"", b"wxyz"]), ["time"], "data"),
    "station": (np.array(["03772", "", "Ü"], object), ["station"], "index"),
    "zeros": (np.array(["a\0", "b", ""], object), ["time"], "data"),
    "title": (np.array("hello", object), [], "data"),
    "nothing": (np.zeros((0, 2), "i2"), ["none", "x"], "data"),
    "waves": (np.array([1 + 2j, 3], "c8"), ["x"], "data"),
    "sub/group/time": (np.arange(2, dtype="i4"), ["time"], "index"),
    "sub/group/v": (np.arange(2), ["time"], "data"),
}
ENDINGS = ["tet", "tgm", "tiledb"]


def write(path):
    with tesseral.create(path) as session:
        for name, (values, dims, role) in VALUES.items():
            given = "coordinate" if role in ("index", "auxiliary") else role
            session.add(name, values=values, dims=dims, role=given, attrs=ATTRS if name in ("temp", "crs") else {})
        session.set_attrs({**ATTRS, "history": "2020: created"})
        session.set_attrs({"level": np.int16(4)}, "sub/group")
        session.set_attrs({}, "hollow")
    return path


def equal(left, right):
    if type(left) is not type(right):
        return False
    return np.array_equal(left, right) and (not hasattr(left, "dtype") or left.dtype == right.dtype)


def check(path):
    container = tesseral.open(path)
    variables = container.variables
    assert set(variables) == set(VALUES)
    for name, (values, dims, role) in VALUES.items():
        array = variables[name]
        assert (array.role, list(array.dims), array.shape, array.dtype) == (role, dims, values.shape, values.dtype), name
        got = array[...]
        assert got.tobytes() == values.tobytes() if values.dtype != object else np.array_equal(got, values), name
        wanted = ATTRS if name in ("temp", "crs") else {}
        assert list(array.attrs) == list(wanted), name
        assert all(equal(array.attrs[key], wanted[key]) for key in wanted), name
    assert list(container.attrs) == [*ATTRS, "history"]
    assert container.groups == {"sub": {}, "sub/group": {"level": np.int16(4)}, "hollow": {}}
    assert type(container.groups["sub/group"]["level"]) is np.int16
    assert variables["temp"].labels("x").dtype == np.float32
    assert variables["station"].labels("station") == ["03772", "", "Ü"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_model_comes_back(tmp_path, ending):
    path = write(tmp_path / f"a.{ending}")
    check(path)
    assert tesseral.verify(path).ok


@pytest.mark.parametrize("source", ENDINGS)
@pytest.mark.parametrize("target", ENDINGS)
def test_conversions_are_identities(tmp_path, source, target):
    path = write(tmp_path / f"a.{source}")
    tesseral.convert(path, tmp_path / f"b.{target}")
    check(tmp_path / f"b.{target}")


def stored(values):
    """What a format of plain numbers holds."""
    if values.dtype.kind in "Mm":
        return values.view("i8")
    if values.dtype.kind in "b":
        return values.view("u1")
    return values


def test_the_reference_reads_tet(tmp_path):
    file = tetration.open(str(write(tmp_path / "a.tet")))
    for name, (values, _, _) in VALUES.items():
        if values.dtype.kind in "biufMm" and values.size:
            got = np.asarray(file.read_numpy(name)).reshape(values.shape)
            assert got.tobytes() == stored(values).tobytes(), name
    assert file.read_numpy("code").tobytes() == VALUES["code"][0].tobytes()
    assert bytes(file.read_numpy("station")[0]) == b"03772"


def test_the_reference_reads_tgm(tmp_path):
    path = write(tmp_path / "a.tgm")
    with tensogram.TensogramFile.open(str(path)) as file:
        message = file.decode_message(0, verify_hash=True)
    by_name = {base["name"]: cells for base, (_, cells) in zip(message.metadata.base, message.objects)}
    for name, (values, _, _) in VALUES.items():
        if values.dtype.kind in "biufcMm" and values.size:
            got = np.asarray(by_name[name])
            assert got.shape == values.shape and got.tobytes() == stored(values).tobytes(), name


def test_the_reference_reads_tiledb(tmp_path):
    path = write(tmp_path / "a.tiledb")
    with tiledb.Group(str(path)) as group:
        uris = {member.name: member.uri for member in group}
        assert group.meta["Short"] == -999
    assert set(uris) == set(VALUES)
    for name, (values, dims, _) in VALUES.items():
        with tiledb.open(uris[name]) as array:
            field = array.attr(0).name
            assert field == (f"{name}.data" if name in dims else name)
            if dims:
                assert [array.domain.dim(i).name for i in range(array.ndim)] == dims
            if values.size and values.dtype != object:
                got = array[:]
                got = got[field] if isinstance(got, dict) else got
                assert got.tobytes() == values.tobytes(), name


def test_attributes_that_another_program_changes_count(tmp_path):
    path = write(tmp_path / "a.tiledb")
    with tiledb.Group(str(path)) as group:
        uri = next(member.uri for member in group if member.name == "temp")
    with tiledb.open(uri, "w") as array:
        array.meta["units"] = "degC"
        array.meta["added"] = "later"
        del array.meta["words"]
    attrs = tesseral.open(path)["temp"].attrs
    assert attrs["units"] == "degC" and attrs["added"] == "later"


@pytest.mark.parametrize("ending", ["tet", "tgm"])
def test_numbers_are_not_stored_as_text(tmp_path, ending):
    hours = np.arange(100_000, dtype="i8")
    path = tmp_path / f"a.{ending}"
    with tesseral.create(path) as session:
        session.add("v", values=np.zeros(100_000, "f4"), dims=["time"], coords={"time": hours})
    assert path.stat().st_size < 100_000 * 14
    array = tesseral.open(path)["v"]
    assert array.labels("time").dtype == np.int64
    assert array.sel(time=slice(5, 7)).shape == (3,)


@pytest.mark.parametrize("marker", ["", "{", "[]", "null", '{"version":2}', '{"version":1,"dtype":"complex128"}', "x" * 5000])
def test_a_marker_that_is_none_is_an_attribute(tmp_path, marker):
    path = tmp_path / "a.tgm"
    descriptor = {"type": "ntensor", "ndim": 1, "shape": [3], "dtype": "uint8"}
    metadata = {"base": [{"name": "a", "_tesseral": marker}]}
    path.write_bytes(tensogram.encode(metadata, [(descriptor, np.arange(3, dtype="u1"))]))
    array = tesseral.open(path)["a"]
    assert array.dtype == np.uint8 and array[...].tolist() == [0, 1, 2]
    assert array.attrs["_tesseral"] == marker


def test_deep_markers_are_not_followed(tmp_path):
    path = tmp_path / "a.tgm"
    descriptor = {"type": "ntensor", "ndim": 1, "shape": [3], "dtype": "uint8"}
    marker = '{"version":1,"attributes":[["a",' + "[" * 5000 + "]" * 5000 + "]]}"
    metadata = {"base": [{"name": "a", "_tesseral": marker}]}
    path.write_bytes(tensogram.encode(metadata, [(descriptor, np.arange(3, dtype="u1"))]))
    assert tesseral.open(path)["a"].shape == (3,)


def test_packed_offsets_that_lead_nowhere_are_damage(tmp_path):
    path = tmp_path / "a.tgm"
    cells = np.frombuffer(np.array([0, 5, 3], "<u8").tobytes() + b"abcde", "u1")
    descriptor = {"type": "ntensor", "ndim": 1, "shape": [cells.size], "dtype": "uint8"}
    marker = {"version": 1, "dtype": "string_utf8", "cell": "var", "text": "packed", "dims": [["s", 2]]}
    metadata = {"base": [{"name": "a", "_tesseral": json.dumps(marker)}]}
    path.write_bytes(tensogram.encode(metadata, [(descriptor, cells)]))
    array = tesseral.open(path)["a"]
    assert array.shape == (2,)
    with pytest.raises(tesseral.CorruptError):
        array[...]
