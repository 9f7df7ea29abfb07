"""Arrays of TileDB format versions 1 to 9, written by the libraries of their time (`scripts/make_fixtures_tiledb_versions.py`), read as the reference reads them."""

import shutil
import tarfile

import numpy as np
import pytest
import tiledb
from support import ROOT, tet, tet_json

FIXTURES = ROOT / "fixtures" / "tiledb_versions"
VERSIONS = [1, 2, 3, 4, 5, 6, 7, 8, 9]
SPARSE = ["sparse", "words", "plain", "shuffled", "floats"]


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
    # Attributes came with version 4.
    assert version < 4 or info["arrays"][0]["attributes"]["answer"] == [42, 7]
    assert {fragment["version"] for fragment in info["tiledb"]["fragments"]} == {version}


def kinds(folder):
    """The arrays of a version: it has text dimensions or zipped coordinates."""
    found = [kind for kind in SPARSE if (folder / kind).exists()]
    assert found[0] == "sparse" and len(found) in (2, 4)
    return found


@pytest.mark.parametrize("number", range(4))
def test_sparse_arrays(arrays, number):
    _, folder = arrays
    if number >= len(kinds(folder)):
        return
    source = folder / kinds(folder)[number]
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
    for kind in ["dense", *kinds(folder)]:
        assert tet_json("verify", folder / kind, "--deep")["ok"]
        tet("convert", folder / kind, tmp_path / f"{kind}.tdb", "--check")
        # Unwritten cells became nulls: both are missing.
        tet("diff", folder / kind, tmp_path / f"{kind}.tdb")
    tet("diff", folder / "dense", tmp_path / "dense.tdb", "--stored", code=1)


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


@pytest.mark.parametrize("kind", ["sparse", "plain", "dense"])
def test_fragments_of_today_in_arrays_of_before_5(arrays, kind):
    """The reference appends fragments of its own version, whose coordinates are in a file per dimension."""
    version, folder = arrays
    if version >= 5:
        return
    source = folder / kind
    with tiledb.open(str(source)) as array:
        before = array[:]
    with tiledb.open(str(source), "w") as array:
        if kind == "dense":
            array[1:2, 1:4] = {name: before[name][:1, :3] for name in before}
        else:
            array[[1, before["r"][0]], [2, before["c"][0]]] = {"v": np.array([-1, -2], "f4"), "w": np.array([b"new", b""], object)}
    with tiledb.open(str(source)) as array:
        want = array[:]
    if kind == "dense":
        assert tet("cat", source, "a", "--raw") == plain(want["a"])
        return
    order = sorted(range(len(want["v"])), key=lambda row: (want["r"][row], want["c"][row]))
    for name in ("r", "c", "v"):
        assert tet("cat", source, name, "--raw") == plain(want[name][order]), name
    assert tet("cat", source, "w", "--raw") == prefixed(bytes(cell) for cell in want["w"][order])


def test_sparse_fragments_of_dense_arrays(arrays, tmp_path):
    """Before version 5, cells of a dense array could be written one by one, above and below other fragments."""
    version, folder = arrays
    if version >= 5:
        return
    source = shutil.copytree(folder / "mixed", tmp_path / "mixed")
    for above in (False, True):
        if above:
            # The reference shows cells of sparse fragments above all dense ones, whatever was written last.
            with tiledb.open(str(source), "w") as array:
                array[2:4, 2:4] = np.array([[-1, -2], [-3, -4]], "i4")
            want[1:3, 1:3] = [[-1, -2], [-3, -4]]
        else:
            with tiledb.open(str(source)) as array:
                assert array.schema.version == version
                want = array[:]["a"]
            assert want[1, 2] == 100 and want[3, 0] == 200
        assert tet("cat", source, "--raw") == plain(want)
        for y, x in [(slice(1, 3), slice(0, 4)), (slice(1, 2), slice(2, 3)), (slice(0, 1), slice(0, 2)), (slice(0, 4, 3), slice(0, 4, 2))]:
            words = [f"{dim}={s.start}:{s.stop}:{s.step or 1}" for dim, s in (("y", y), ("x", x))]
            assert tet("cat", source, *words, "--raw") == plain(want[y, x]), words
        found = tet_json("stat", source)
        assert (found["count"], found["min"], found["max"], found["sum"]) == (16, want.min(), want.max(), want.sum())
        assert tet_json("verify", source, "--deep")["ok"]
        out = tmp_path / f"{above}.tdb"
        tet("convert", source, out, "--check")
        tet("diff", source, out)


def test_cuts_of_coordinates_in_dense_arrays_are_errors(arrays, tmp_path):
    version, folder = arrays
    if version >= 5:
        return
    source = shutil.copytree(folder / "mixed", tmp_path / "mixed")
    whole = tet("cat", source, "--raw")
    [file] = source.glob("*/__coords.tdb")
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        assert tet("cat", source, "--raw", code=(0, 4, 5, 6)) in (b"", whole), length
        tet("verify", source, code=1)
    file.write_bytes(content)
    assert tet("cat", source, "--raw") == whole


def test_arrays_without_a_version_are_unsupported(tmp_path):
    """TileDB 1.3 and before stored none; the reference does not read them either."""
    with tarfile.open(FIXTURES / "v4.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    schema = tmp_path / "v4" / "dense" / "__array_schema.tdb"
    schema.write_bytes(schema.read_bytes()[4:])
    tet("info", tmp_path / "v4" / "dense", code=7)
    found = tet_json("verify", tmp_path / "v4" / "dense", code=7)["findings"]
    assert any("no format version" in finding["detail"] for finding in found)
