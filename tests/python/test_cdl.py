"""CDL that we print: `ncgen` makes the same dataset of it, from whatever format it was printed."""

import os
import subprocess
from pathlib import Path

import pytest
from support import tet, tet_json

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
netCDF4 = pytest.importorskip("netCDF4")

REAL = sorted(Path(os.environ.get("TET_REAL_FILES", "/nonexistent")).glob("*.nc"))


def ncgen(folder, text):
    """The file that `ncgen` makes of CDL."""
    cdl, made = folder / "made.cdl", folder / "made.nc"
    cdl.write_bytes(text)
    done = subprocess.run(["ncgen", "-4", "-o", made, cdl], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


def groups(path):
    return xr.open_groups(path, engine="netcdf4", decode_cf=False)


def same(one, other):
    one, other = groups(one), groups(other)
    assert set(one) == set(other)
    for name in one:
        xr.testing.assert_identical(one[name], other[name])
        for variable in one[name].variables:
            assert one[name][variable].dtype == other[name][variable].dtype


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.title = 'a "quoted" \\ title\nof two lines'
        file.createDimension("x", 3)
        file.createDimension("y", 40)
        file.createDimension("length", 5)
        for code in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]:
            fill = 7 if code[0] != "f" else -1.5
            cells = file.createVariable(f"v_{code}", code, ("y", "x"), fill_value=fill)
            values = np.arange(120).reshape(40, 3) % 100
            cells[...] = values.astype(code) if code[0] != "f" else (values / 7).astype(code)
            cells.setncattr("limits", np.array([1, 9], code))
            cells.setncattr("one", np.array(3, code)[()])
            if code[0] != "f":
                cells[-1, :] = np.iinfo(code).max
                cells[-2, :] = np.iinfo(code).min
            else:
                cells[-1, :] = [np.nan, np.inf, -np.inf]
                cells[-2, :] = [np.finfo(code).tiny, np.finfo(code).max, -0.0]
        file["v_f8"].note = "°C → K"
        text = file.createVariable("text", str, ("x",))
        text[...] = np.array(["a", 'b"\\', "ü\t\n"], object)
        chars = file.createVariable("chars", "S1", ("x", "length"))
        chars[...] = np.array([list("abcde"), ["f", "", "", "", ""], [""] * 5], "S1")
        file.createVariable("scalar", "i4", ())[...] = 42
        file.createVariable("2 odd(name)", "i4", ("x",))[...] = [1, 2, 3]
        inner = file.createGroup("outer").createGroup("inner")
        inner.createDimension("x", 2)
        inner.createVariable("v", "f4", ("y", "x"))[...] = np.arange(80).reshape(40, 2)
        inner.setncattr("level", np.int16(2))
    return path


def test_ncgen_makes_the_same_dataset(sample, tmp_path):
    same(sample, ncgen(tmp_path, tet("cdl", sample)))


@pytest.mark.parametrize("out", ["a.tet", "a.tgm", "a.tdb", "a.zarr"])
def test_every_format_prints_the_same(sample, tmp_path, out):
    tet("convert", sample, tmp_path / out)
    assert sorted(tet("cdl", tmp_path / out).split(b"\n", 1)[1].split()) == sorted(tet("cdl", sample).split(b"\n", 1)[1].split())


def test_headers_and_single_variables(sample):
    header = tet("cdl", sample, "--header").decode()
    assert "data:" not in header and header.startswith("netcdf sample {") and header.endswith("}\n")
    assert tet_json("cdl", sample, "--header") == {"schema": "tesseral.cdl/1", "cdl": header}
    one = tet("cdl", sample, "--data", "scalar").decode()
    assert one.count(" = 42 ;") == 1 and " text = " not in one
    tet("cdl", sample, "--data", "no such", code=3)
    tet("cdl", sample, "--json", code=2)


def test_control_characters_are_escaped(tmp_path):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.note = "\x1b[31mred\u202e"
    assert b"\x1b" not in tet("cdl", path) and "\u202e".encode() not in tet("cdl", path)


def test_cells_without_a_type_are_rejected(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1j]))
    assert tet("cdl", tmp_path / "a.npy", code=7) == b""


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files(path, tmp_path):
    same(path, ncgen(tmp_path, tet("cdl", path)))
