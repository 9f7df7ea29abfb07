"""Exceptions carry cause, location and hint, and derive from builtins."""

import os
import pickle

import numpy as np
import pytest
import tesseral


def test_kinds_are_builtins(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        tesseral.open(tmp_path / "nope.tet")
    assert missing.value.code == "missing" and missing.value.path.endswith("nope.tet")
    (tmp_path / "text").write_text("nothing of the kind")
    with pytest.raises(ValueError) as unknown:
        tesseral.open(tmp_path / "text")
    assert isinstance(unknown.value, OSError) and unknown.value.code == "unrecognised"
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros((4, 4))}, chunks=(2, 2))
    container = tesseral.open(tmp_path / "a.tet")
    with pytest.raises(KeyError) as nothing:
        container["b"]
    assert nothing.value.code == "not_found" and "'a'" in str(nothing.value)
    assert "b" not in container and container.get("b") is None
    with pytest.raises(MemoryError) as large:
        tesseral.open(tmp_path / "a.tet", memory_limit=50)["a"][...]
    assert large.value.code == "limit" and large.value.array == "a" and large.value.hint
    assert tesseral.open(tmp_path / "a.tet", memory_limit=50)["a"][0].sum() == 0
    assert tesseral.open(tmp_path / "a.tet", memory_limit=50)["a"].sum() == 0
    with pytest.raises(ValueError) as senseless:
        container["a"].sel(dim_0=3)
    assert senseless.value.code == "invalid"
    with pytest.raises(NotImplementedError) as unsupported:
        tesseral.open("ftp://host/key")
    assert unsupported.value.code == "unsupported"
    for error in (missing, unknown, nothing, large, senseless, unsupported):
        assert isinstance(error.value, tesseral.TesseralError)
        again = pickle.loads(pickle.dumps(error.value))
        assert type(again) is type(error.value) and str(again) == str(error.value) and again.code == error.value.code


def test_damage_names_its_place(tmp_path):
    path = tmp_path / "a.tet"
    values = np.arange(64, dtype="f8").reshape(8, 8)
    tesseral.write(path, {"a": values}, chunks=(4, 4))
    whole = bytearray(path.read_bytes())
    at = whole.index(values[4, 4:8].tobytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    array = tesseral.open(path)["a"]
    assert np.array_equal(array[:4], values[:4])
    with pytest.raises(tesseral.CorruptError) as damage:
        array[...]
    error = damage.value
    assert isinstance(error, ValueError) and isinstance(error, OSError)
    assert error.array == "a" and error.chunk == (1, 1) and error.offset == at and error.path == str(path)
    assert tesseral.open(path, digests=False)["a"][4, 5] == values[4, 5]
    path.write_bytes(bytes(whole[:40]))
    with pytest.raises(tesseral.CorruptError):
        tesseral.open(path)["a"][...]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros(3)})
    (tmp_path / "a.tet").chmod(0)
    with pytest.raises(PermissionError):
        tesseral.open(tmp_path / "a.tet")


def test_hints_are_in_words_of_python(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros((2, 3))})
    with pytest.raises(ValueError) as refused:
        tesseral.write(tmp_path / "a.tet", {"a": np.zeros(3)})
    assert "overwrite=True" in refused.value.hint and "overwrite=True" in str(refused.value)
    with pytest.raises(ValueError, match="chunk shape has 2 extents"):
        tesseral.write(tmp_path / "b.tet", {"a": np.zeros(3)}, chunks=(1, 2))
    with pytest.raises(ValueError) as refused:
        tesseral.tensogram.encode({}, [({}, np.array([1.0, np.nan]))])
    assert "allow_nan=True" in refused.value.hint
    with pytest.raises(ValueError) as refused:
        tesseral.open(tmp_path / "a.tet")["a"].sel(dim_0=9)
    assert "isel" in refused.value.hint
    tesseral.write(tmp_path / "b.tet", {"a": np.zeros(2)}, dims=["x"], coords={"x": [10.0, 20.0]})
    with pytest.raises(KeyError) as refused:
        tesseral.open(tmp_path / "b.tet")["a"].sel(x=15)
    assert refused.value.hint is None
    with pytest.raises(tesseral.UnsupportedError) as refused:
        tesseral.convert(tmp_path / "a.tet", tmp_path / "c.tgm", chunks=(1, 2))
    assert "chunks=" in refused.value.hint and "--" not in refused.value.hint
    tesseral.write(tmp_path / "d.tet", {"a": np.zeros(2, "f4")})
    with pytest.raises(tesseral.UnsupportedError) as refused:
        tesseral.convert(tmp_path / "d.tet", tmp_path / "d.tgm", max_abs_error=0.1)
    assert 'cast="float64"' in refused.value.hint and "arrays=" in refused.value.hint


def test_reports_are_short(tmp_path):
    tesseral.write(tmp_path / "a.tet", {"a": np.zeros((2, 3))})
    assert "intact" in repr(tesseral.verify(tmp_path / "a.tet")) and "\n" not in repr(tesseral.verify(tmp_path / "a.tet"))
    whole = bytearray((tmp_path / "a.tet").read_bytes())
    whole[-1] ^= 0xFF
    (tmp_path / "a.tet").write_bytes(whole)
    report = tesseral.verify(tmp_path / "a.tet")
    assert not report and "damaged" in repr(report) and all(finding.check in repr(report) for finding in report.failures)
