"""NetCDF and HDF5 on the command line: every command, conversions that are checked, damage, unsupported members, the way in for other files."""

import ctypes
import itertools
import pathlib
import subprocess

import pytest
from support import TET, tet, tet_json

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
import netcdf_files as files  # noqa: E402
import numpy as np  # noqa: E402


@pytest.fixture(scope="module")
def air(tmp_path_factory):
    """A packed variable with missing cells, in each container of NetCDF."""
    folder = tmp_path_factory.mktemp("air")
    for format in [*files.CLASSIC, "NETCDF4", "NETCDF4_CLASSIC"]:
        with netCDF4.Dataset(folder / f"{format}.nc", "w", format=format) as file:
            file.createDimension("time", None)
            file.createDimension("x", 6)
            time = file.createVariable("time", "f8", ["time"])
            time.units = "days since 2000-01-01"
            variable = file.createVariable("air", "i2", ["time", "x"], fill_value=-999)
            variable.setncatts({"scale_factor": np.float32(0.5), "add_offset": np.float32(10), "units": "K"})
            variable.set_auto_maskandscale(False)
            variable[:] = np.arange(24, dtype="i2").reshape(4, 6)
            variable[3, 2:] = -999
            time[:] = np.arange(4)
    return folder


FORMATS = [*files.CLASSIC, "NETCDF4", "NETCDF4_CLASSIC"]


@pytest.mark.parametrize("format", FORMATS)
def test_every_command_reads(air, format):
    path = air / f"{format}.nc"
    info = tet_json("info", path)
    assert info["format"] == ("hdf5" if "NETCDF4" in format else "netcdf3")
    arrays = {array["name"]: array for array in info["arrays"]}
    assert arrays["air"]["shape"] == [4, 6] and arrays["air"]["dims"] == ["time", "x"]
    assert arrays["time"]["role"] == "index"
    dims = {dim["name"]: dim for dim in info[info["format"]]["dimensions"]}
    assert dims["time"] == {"name": "time", "length": 4, "unlimited": True}
    stat = tet_json("stat", path, "air")
    assert (stat["count"], stat["nulls"], stat["min"], stat["max"]) == (24, 4, 10.0, 19.5)
    cells = np.frombuffer(tet("cat", path, "air", "--raw"), "<i2").reshape(4, 6)
    np.testing.assert_array_equal(cells[:3], np.arange(18).reshape(3, 6))
    assert np.frombuffer(tet("cat", path, "air", "time=1", "x=2:4", "--raw"), "<i2").tolist() == [8, 9]
    assert tet("cat", path, "air", "time=@1", "--raw") == tet("cat", path, "air", "time=1:2", "--raw")
    assert tet("plot", path, "air", "time=0")
    assert tet_json("verify", path)["ok"]
    assert tet("diff", path, air / "NETCDF3_CLASSIC.nc", code=(0, 1)) is not None


@pytest.mark.parametrize("target", ["tet", "tgm", "tdb"])
@pytest.mark.parametrize("format", FORMATS)
def test_conversions_are_checked_and_equal(air, tmp_path, format, target):
    path, out = air / f"{format}.nc", tmp_path / f"a.{target}"
    tet("convert", path, out, "--check")
    assert tet("cat", out, "air", "--raw") == tet("cat", path, "air", "--raw")
    tet("diff", path, out)


def test_memory_limits_and_pread_give_the_same_cells(tmp_path):
    path = tmp_path / "a.h5"
    values = np.random.default_rng(1).normal(size=(200, 300)).astype("f4")
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=values, chunks=(32, 64), compression="gzip", shuffle=True)
    assert tet("cat", path, "a", "--raw") == tet("cat", path, "a", "--raw", "--memory", "1MiB") == values.tobytes()


def keep_edges_unfiltered(plist):
    """Set "do not filter partial edge chunks", for which h5py has no function; skips where its library cannot be called."""
    folder = pathlib.Path(h5py.__file__).parent.parent / "h5py.libs"
    libraries = [ctypes.CDLL(str(p)) for pattern in ("libsz*", "libaec*", "libhdf5-*") for p in folder.glob(pattern)] if folder.exists() else []
    if not libraries or not hasattr(libraries[-1], "H5Pset_chunk_opts"):
        pytest.skip("the library of h5py cannot be called")
    assert libraries[-1].H5Pset_chunk_opts(ctypes.c_int64(plist.id), ctypes.c_uint(2)) >= 0


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_edge_chunks_without_filters(tmp_path, libver):
    path, rng, want = tmp_path / "a.h5", np.random.default_rng(5), {}
    shapes = {"fixed": ((7, 10), None), "extensible": ((7, 10), (None, 10)), "tree": ((7, 10), (None, None)), "single": ((3, 4), (4, 4))}
    filters = {"shuffle": lambda p: p.set_shuffle(), "gzip": lambda p: p.set_deflate(4), "sums": lambda p: p.set_fletcher32(),
               "both": lambda p: (p.set_shuffle(), p.set_deflate(4))}
    with h5py.File(path, "w", libver=libver) as file:
        for (kind, (shape, most)), (name, put) in itertools.product(shapes.items(), filters.items()):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4, 4))
            put(plist)
            keep_edges_unfiltered(plist)
            most = most and tuple(h5py.h5s.UNLIMITED if n is None else n for n in most)
            space = h5py.h5s.create_simple(shape, most)
            made = h5py.Dataset(h5py.h5d.create(file.id, f"{kind}_{name}".encode(), h5py.h5t.NATIVE_INT32, space, plist))
            # Attributes move the layout message to another block of the header.
            made.attrs.update({f"a{i}": np.arange(20) for i in range(6 if name == "gzip" else 0)})
            made[...] = rng.integers(-(2**31), 2**31, shape, dtype="i4")
            if kind == "tree":
                made.resize((9, 6))
                made[6:] = 7
    with h5py.File(path) as file:
        want = {name: file[name][...] for name in file}
    for name, cells in want.items():
        assert tet("cat", path, name, "--raw") == cells.astype("<i4").tobytes(), name
    assert tet_json("verify", path, "--deep")["ok"]


def test_damage_is_reported(tmp_path):
    path = files.netcdf4(tmp_path / "a.nc", 3)
    whole = path.read_bytes()
    short = tmp_path / "short.nc"
    short.write_bytes(whole[:-100])
    tet("info", short, code=(4, 5))
    assert not tet_json("verify", short, code=1)["ok"]
    with h5py.File(tmp_path / "sums.h5", "w") as file:
        made = file.create_dataset("a", data=np.arange(1000.0), chunks=(1000,), fletcher32=True)
        offset = made.id.get_chunk_info(0).byte_offset
    damaged = bytearray((tmp_path / "sums.h5").read_bytes())
    damaged[offset + 77] ^= 1
    (tmp_path / "sums.h5").write_bytes(damaged)
    tet("stat", tmp_path / "sums.h5", "a", code=5)
    tet("verify", tmp_path / "sums.h5", "--deep", code=1)


def test_unsupported_members_are_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["fine"] = np.arange(3)
        file["pointers"] = np.array([file["fine"].ref] * 2, h5py.ref_dtype)
    assert b"pointers" in tet("info", path)
    tet("cat", path, "pointers", code=7)
    tet("convert", path, tmp_path / "a.tet")
    assert [array["name"] for array in tet_json("info", tmp_path / "a.tet")["arrays"]] == ["fine"]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [("a.bin", b"FEA1" + bytes(60), b"pyarrow"), ("a.gpkg", b"SQLite format 3\0" + bytes(60), b"ogr2ogr"), ("a.xz", b"\xfd7zXZ\0" + bytes(60), b"unxz"), ("a.xlsx", b"PK\x03\x04" + bytes(60), b"spreadsheet"), ("a.zip", b"PK\x03\x04" + bytes(60), b".npy")],
)
def test_other_files_have_a_way_in(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    done = subprocess.run([TET, "info", tmp_path / name], capture_output=True)
    assert done.returncode == 4 and word in done.stderr, done.stderr


def test_links_to_other_files_are_refused_with_a_way_in(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink("other.h5", "/d")
        file["plain"] = np.arange(3)
    done = subprocess.run([TET, "cat", tmp_path / "x.h5", "link"], capture_output=True, text=True)
    assert done.returncode == 7 and "another file" in done.stderr and "open other.h5" in done.stderr, done.stderr
    assert done.stderr.count("not supported") == 1, done.stderr
    assert "open other.h5" in tet("info", tmp_path / "x.h5").decode()
    assert tet_json("stat", tmp_path / "x.h5", "plain")["sum"] == 3
