"""`.npz` archives: arrays equal those of NumPy bit for bit, stored and compressed; NumPy reads what is written."""

import io
import random
import zipfile

import numpy as np
import pytest
from support import tet, tet_json

DTYPES = ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[D]", ">M8[ns]", "<m8[s]", "S5"]


def arrays_of(seed):
    rng, random_bytes = random.Random(seed), np.random.default_rng(seed)
    out = {}
    for n, dtype in enumerate(DTYPES):
        shape = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 4))]
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        low, high = (97, 120) if dtype[0] == "S" else (0, 2 if dtype == "?" else 120)
        raw = random_bytes.integers(low, high, size, "u1").tobytes()
        values = np.frombuffer(raw, dtype).reshape(shape)
        out[f"a{n}" if n % 3 else f"group/a{n}"] = np.asfortranarray(values) if rng.random() < 0.3 else values
    out["scalar"] = np.float64(0.1)
    out["nothing"] = np.zeros((0, 3), "f4")
    return out


def little(values):
    values = np.ascontiguousarray(values)
    return values.astype(values.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_members_equal_numpy(tmp_path, seed, save):
    arrays = arrays_of(seed)
    save(tmp_path / "a.npz", **arrays)
    info = {array["name"]: array for array in tet_json("info", tmp_path / "a.npz")["arrays"]}
    assert set(info) == set(arrays)
    for name, values in arrays.items():
        assert tuple(info[name]["shape"]) == values.shape, name
        if values.size:
            assert tet("cat", tmp_path / "a.npz", name, "--raw") == little(values), name
    assert tet_json("verify", tmp_path / "a.npz", "--deep")["ok"]
    out = tmp_path / "out.npz"
    tet("convert", tmp_path / "a.npz", out, "--check")
    with np.load(out) as read:
        assert set(read.files) == set(arrays)
        for name, values in arrays.items():
            assert read[name].shape == values.shape and little(read[name]) == little(values), name
            assert read[name].dtype == values.dtype.newbyteorder("<"), name
    assert zipfile.ZipFile(out).testzip() is None


def test_dimensions_attributes_and_history_survive(tmp_path):
    xr = pytest.importorskip("xarray")
    dataset = xr.Dataset({"t": (("time", "x"), np.arange(600_000.0).reshape(3, -1), {"units": "K"})}, {"time": [1, 2, 3]}, {"title": "é"})
    dataset.to_netcdf(tmp_path / "a.nc")
    tet("convert", tmp_path / "a.nc", tmp_path / "a.npz", "--check")
    tet("convert", tmp_path / "a.npz", tmp_path / "b.nc", "--check")
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "b.nc"), xr.load_dataset(tmp_path / "a.nc"))
    with np.load(tmp_path / "a.npz") as read:
        assert np.array_equal(read["t"], dataset["t"])
    assert len(tet_json("log", tmp_path / "a.npz")["history"]) == 1
    assert tet("stat", tmp_path / "a.npz", "t", "--json") is not None


def test_what_numpy_pickles_is_listed_as_unread(tmp_path):
    np.savez(tmp_path / "a.npz", good=np.arange(3), objects=np.array([{}, None], object), text=np.array(["a", "bc"]))
    info = tet_json("info", tmp_path / "a.npz")
    assert [array["name"] for array in info["arrays"]] == ["good"]
    assert tet("info", tmp_path / "a.npz").decode().count("dtype") >= 2


def test_large_archives_have_64_bit_sizes(tmp_path):
    """Members that declare ZIP64 sizes, as NumPy writes them to unseekable files."""
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def seek(self, *_):
            raise OSError

        def tell(self):
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        member = io.BytesIO()
        np.save(member, np.arange(1000))
        with archive.open("a.npy", "w", force_zip64=True) as out:
            out.write(member.getvalue())
    (tmp_path / "a.npz").write_bytes(pipe.getvalue())
    assert tet("cat", tmp_path / "a.npz", "a", "--raw") == np.arange(1000).tobytes()


def test_damage_is_found(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.arange(100_000) % 977)
    whole = (tmp_path / "a.npz").read_bytes()
    for at in range(400, len(whole) - 200, len(whole) // 9):
        damaged = bytearray(whole)
        damaged[at] ^= 0x20
        (tmp_path / "cut.npz").write_bytes(damaged)
        tet("cat", tmp_path / "cut.npz", "a", "--raw", code=(4, 5))
    for end in range(0, len(whole), len(whole) // 19):
        (tmp_path / "cut.npz").write_bytes(whole[:end])
        tet("info", tmp_path / "cut.npz", code=(4, 5))
