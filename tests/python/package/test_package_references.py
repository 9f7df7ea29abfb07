"""The references open and read every file that is written of a dataset, whatever it holds."""

import numpy as np
import pytest
import tensogram
import tesseral
import tet as tetration
import tiledb
import xarray as xr
from test_package_roundtrip import ENDINGS, KINDS, quiet, tree


def of_tet(path):
    file, found = tetration.open(str(path)), {}
    for name in file.dataset_names:
        try:
            found[name] = np.asarray(file.read_numpy(name))
        except tetration.TetError as error:
            # A NaN in an array of several chunks keeps it from reading (docs/formats/tet.md, 12).
            assert "unset elements" in str(error), name
    return found


def of_tgm(path):
    with tensogram.TensogramFile.open(str(path)) as file:
        message = file.decode_message(0, verify_hash=True)
    return {base["name"]: np.asarray(cells) for base, (_, cells) in zip(message.metadata.base, message.objects)}


def of_tiledb(path):
    found = {}

    def walk(uri):
        if tiledb.object_type(uri) == "array":
            with tiledb.open(uri) as array:
                for i in range(array.nattr):
                    cells = array[:]
                    name = array.attr(i).name
                    found[uri, name] = cells[name] if isinstance(cells, dict) else cells
            return
        with tiledb.Group(uri) as group:
            for member in group:
                walk(member.uri)

    walk(str(path))
    return found


READERS = {"tet": of_tet, "tgm": of_tgm, "tiledb": of_tiledb}


@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize("kind", [*KINDS, tree], ids=lambda kind: kind.__name__)
def test_the_reference_reads_every_kind(tmp_path, kind, format):
    path, given = tmp_path / f"a{ENDINGS[format]}", kind()
    quiet(getattr(given.tesseral, f"to_{format}"), path)
    found = quiet(READERS[format], path)
    container = tesseral.open(path)
    assert len(found) == len(container.variables) or format == "tet"
    if format == "tiledb":
        return
    for name, array in container.variables.items():
        cells = found.get(name, found.get(f"{name}.data"))
        if cells is not None and array.dtype.kind in "iuf" and array.size:
            assert cells.tobytes() == np.ascontiguousarray(array[...]).tobytes(), name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_xarray_opens_messages_by_the_reference(tmp_path, kind):
    pytest.importorskip("tensogram_xarray")
    ds, path = kind(), tmp_path / "a.tgm"
    quiet(ds.tesseral.to_tgm, path)
    theirs = quiet(xr.open_dataset, path, engine="tensogram")
    # Under the names that the reference has for them.
    named = {"lat": "latitude", "lon": "longitude"} | {name: name for name in ("latitude", "longitude", "time", "level", "step")}
    assert {named[name] for name in ds.xindexes if name in named and ds[name].dtype.kind in "iufMm"} <= set(theirs.coords)
