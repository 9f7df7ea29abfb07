"""Arrays of TileDB format versions 5 to 9, written by the libraries of their time (`scripts/make_fixtures_tiledb_versions.py`), read as the reference reads them."""

import json
import tarfile

import numpy as np
import pytest
import tiledb
from support import ROOT, tet, tet_json

FIXTURES = ROOT / "fixtures" / "tiledb_versions"
VERSIONS = [5, 6, 7, 8, 9]


@pytest.fixture(scope="module", params=VERSIONS)
def arrays(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    with tarfile.open(FIXTURES / f"v{request.param}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return request.param, folder / f"v{request.param}"


def plain(cells):
    """Bytes of cells as `--raw` has them: nulls are zeros."""
    if isinstance(cells, np.ma.MaskedArray):
        cells = cells.filled(0)
    return np.ascontiguousarray(cells).tobytes()


def prefixed(cells):
    return b"".join(len(cell).to_bytes(8, "little") + cell for cell in cells)


def is_text(array, name):
    return array.attr(name).isvar


def test_dense_arrays(arrays):
    version, folder = arrays
    source = folder / "dense"
    with tiledb.open(str(source)) as array:
        assert array.schema.version == version
        want, names = array[:], [array.attr(i).name for i in range(array.nattr)]
        for name in names:
            text = is_text(array, name)
            raw = prefixed(bytes(cell) for cell in want[name].ravel()) if text else plain(want[name])
            assert tet("cat", source, name, "--raw") == raw, name
            part = want[name][2:7, 1:6]
            raw = prefixed(bytes(cell) for cell in part.ravel()) if text else plain(part)
            assert tet("cat", source, name, "y=2:7", "x=1:6", "--raw") == raw, name
        if "null" in names:
            valid = np.frombuffer(tet("cat", source, "null", "--validity"), "u1").reshape(10, 8)
            np.testing.assert_array_equal(valid == 0, np.ma.getmaskarray(want["null"]))
    info = tet_json("info", source)
    assert info["arrays"][0]["attributes"]["answer"] == [42, 7]
    assert {fragment["name"].rsplit("_", 1)[1] for fragment in info["tiledb"]["fragments"]} == {str(version)}


@pytest.mark.parametrize("kind", ["sparse", "words"])
def test_sparse_arrays(arrays, kind):
    _, folder = arrays
    source = folder / kind
    with tiledb.open(str(source)) as array:
        want = array[:]
        dims = [array.dim(i).name for i in range(array.ndim)]
        order = sorted(range(len(want["v"])), key=lambda row: tuple(want[dim][row] for dim in dims))
        for name in [*dims, *(array.attr(i).name for i in range(array.nattr))]:
            cells = want[name][order]
            texts = cells.dtype.kind in "OS"
            raw = prefixed(bytes(cell) for cell in cells) if texts else plain(cells)
            assert tet("cat", source, name, "--raw") == raw, name
    found = tet_json("stat", source, "v")
    assert (found["count"], found["sum"]) == (len(order), float(want["v"].astype("f8").sum()))


def test_arrays_are_verified_and_converted(arrays, tmp_path):
    _, folder = arrays
    for kind in ("dense", "sparse", "words"):
        assert tet_json("verify", folder / kind, "--deep")["ok"]
        tet("convert", folder / kind, tmp_path / f"{kind}.tdb", "--check")


def test_arrays_of_these_versions_are_not_written(arrays):
    _, folder = arrays
    before = tet("cat", folder / "dense", "a", "--raw")
    tet("append", folder / "dense", "a", "y=0:1", "x=0:1", "-", input=bytes(4), code=(2, 7))
    assert tet("cat", folder / "dense", "a", "--raw") == before


def test_every_cut_is_an_error_or_harmless(arrays):
    """Truncated metadata never gives other cells."""
    version, folder = arrays
    source = folder / "sparse"
    whole = tet("cat", source, "v", "--raw")
    for file in [source / "__array_schema.tdb", *sorted(source.glob("*/__fragment_metadata.tdb"))[:1]]:
        content = file.read_bytes()
        for length in range(0, len(content), max(1, len(content) // 12)):
            file.write_bytes(content[:length])
            assert tet("cat", source, "v", "--raw", code=(0, 4, 5, 6, 7)) in (b"", whole)
        file.write_bytes(content)
    assert tet("cat", source, "v", "--raw") == whole


def test_versions_before_5_are_unsupported(tmp_path):
    """Arrays of TileDB 1.x are recognized, and rejected with their version."""
    with tarfile.open(FIXTURES / "v5.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    schema = tmp_path / "v5" / "dense" / "__array_schema.tdb"
    content = schema.read_bytes()
    assert content[:4] == (5).to_bytes(4, "little")
    schema.write_bytes((4).to_bytes(4, "little") + content[4:])
    for command in ("info", "verify"):
        reported = json.loads(tet(command, tmp_path / "v5" / "dense", "--json", code=7) or b"{}")
        assert command == "info" or not reported["ok"]
