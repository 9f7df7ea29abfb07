"""What overwriting replaces, keys that stay where they are, and texts that hide nothing."""

import copy
import os
import pickle
import subprocess

import numpy as np
import pytest
import tesseral
import tiledb
from tesseral import InvalidRequestError

KEY = b"0123456789abcdef0123456789abcdef"
SCHEMA = {"dims": [{"name": "x", "domain": [0, 9], "tile": 5, "dtype": "int32"}], "fields": [{"name": "v", "dtype": "int32"}]}


def entries(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


WRITERS = {
    "write": lambda path: tesseral.write(path, {"v": np.zeros(3)}, format="tiledb", overwrite=True),
    "create": lambda path: tesseral.create(path, SCHEMA, overwrite=True),
    "convert": lambda path: tesseral.convert(_source(path), path, format="tiledb", overwrite=True),
    "recover": lambda path: tesseral.recover(_source(path), path, overwrite=True),
    "dask": lambda path: _store(path),
}


def _source(path):
    source = path.parent / "source.tdb"
    if not source.exists():
        tesseral.write(source, {"v": np.zeros(3)}, format="tiledb")
    return source


def _store(path):
    da = pytest.importorskip("dask.array")
    from tesseral import dask

    dask.store({"v": da.zeros(4, chunks=2)}, path, format="tiledb", chunks=(2,), overwrite=True)


@pytest.mark.parametrize("name", WRITERS)
def test_overwriting_spares_foreign_folders_and_links(name, tmp_path):
    photos, mixed = tmp_path / "photos", tmp_path / "mixed"
    photos.mkdir()
    (photos / "a.jpg").write_text("a")
    tesseral.write(mixed, {"v": np.ones(3)}, format="tiledb")
    (mixed / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(mixed)
    before = entries(photos), entries(mixed)
    for path in (photos, mixed, tmp_path / "link"):
        with pytest.raises(InvalidRequestError):
            WRITERS[name](path)
    assert (entries(photos), entries(mixed)) == before and (tmp_path / "link").is_symlink()
    (mixed / "notes.txt").unlink()
    WRITERS[name](mixed)
    assert tesseral.open(mixed).format == "tiledb"


def test_overwriting_spares_files_of_another_kind(tmp_path):
    path = tmp_path / "notes.tet"
    path.write_text("mine")
    with pytest.raises(InvalidRequestError) as refused:
        tesseral.write(path, {"v": np.zeros(3)}, overwrite=True)
    assert path.read_text() == "mine" and refused.value.hint


def test_overwriting_keeps_permissions(tmp_path):
    path = tmp_path / "a.tet"
    tesseral.write(path, {"v": np.zeros(3)})
    path.chmod(0o604)
    tesseral.write(path, {"v": np.ones(3)}, overwrite=True)
    assert path.stat().st_mode & 0o7777 == 0o604


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    context = tiledb.Ctx({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": KEY.decode()})
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 9), tile=5, dtype="int32", ctx=context), ctx=context)
    schema = tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype="i4", ctx=context)], ctx=context)
    tiledb.Array.create(str(path), schema, ctx=context)
    with tiledb.open(str(path), "w", ctx=context) as array:
        array[:] = np.arange(10, dtype="i4")
    return path


def give_key():
    return KEY


def shows_key(text):
    return KEY in text if isinstance(text, bytes) else KEY.decode() in text or str(list(KEY[:8]))[1:-1] in text


def test_keys_are_never_pickled_or_shown(secret, tmp_path, monkeypatch):
    monkeypatch.delenv("TESSERAL_KEY_FILE", raising=False)
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY)
    by_bytes = tesseral.open(secret, key=KEY)
    for handle in (by_bytes, by_bytes["v"]):
        with pytest.raises(InvalidRequestError) as refused:
            pickle.dumps(handle)
        assert "key_file" in refused.value.hint and not shows_key(str(refused.value))
        assert copy.deepcopy(handle) is handle
    for opened in (tesseral.open(secret, key_file=key_file), tesseral.open(secret, key=give_key)):
        for handle in (opened, opened["v"]):
            pickled = pickle.dumps(handle)
            assert not shows_key(pickled)
            again = pickle.loads(pickled)
            assert np.asarray((again["v"] if handle is opened else again)[...]).tolist() == list(range(10))
    monkeypatch.setenv("TESSERAL_KEY_FILE", str(key_file))
    assert tesseral.open(secret)["v"].sum() == 45
    pickled = pickle.dumps(by_bytes["v"])
    assert not shows_key(pickled) and pickle.loads(pickled).sum() == 45
    for handle in (by_bytes, by_bytes["v"]):
        for text in (repr(handle), handle._repr_html_(), repr(handle.__dask_tokenize__()), repr(handle.__reduce__())):
            assert not shows_key(text)


def test_the_file_of_the_key_is_needed_where_a_handle_arrives(secret, tmp_path, monkeypatch):
    monkeypatch.delenv("TESSERAL_KEY_FILE", raising=False)
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY)
    pickled = pickle.dumps(tesseral.open(secret, key_file=key_file))
    key_file.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)


def test_tasks_of_dask_carry_no_key(secret, monkeypatch):
    pytest.importorskip("dask.array")
    from tesseral import dask

    monkeypatch.delenv("TESSERAL_KEY_FILE", raising=False)
    lazy = dask.from_array(tesseral.open(secret, key=KEY)["v"])
    assert not shows_key(lazy.name) and lazy.sum().compute(scheduler="threads") == 45
    assert not shows_key(repr(dict(lazy.dask)))


def test_representations_hold_no_deceptive_characters(tmp_path):
    odd = "".join(f"a{c}" for c in "\x1b\u202e\u2066\u200b\u2060\ufeff\u061c")
    path = tmp_path / "a.tgm"
    tesseral.write(path, {"v": np.zeros(3)}, attrs={"v": {"units": odd, f"k{odd}": 1}}, dims=(f"d{odd}",))
    opened = tesseral.open(path)
    array = opened[next(iter(opened))]
    session = tesseral.create(tmp_path / f"{odd}.tet")
    added = session.add(f"n{odd}", (3,), "float32")
    texts = [repr(opened), repr(array), opened._repr_html_(), array._repr_html_(), repr(array.coords), repr(session), repr(added)]
    session.abandon()
    with pytest.raises(tesseral.TesseralError) as refused:
        tesseral.open(tmp_path / f"none{odd}")
    for text in [*texts, str(refused.value)]:
        assert not [hex(ord(c)) for c in odd if c != "a" and c in text], text
    assert any("\\u{202e}" in text for text in texts)


def test_parts_of_dask_that_a_killed_process_left_are_removed(tmp_path):
    pytest.importorskip("dask.array")
    program = (
        "import os, sys, numpy as np, dask, dask.array as da\n"
        "from tesseral import dask as td\n"
        "def die(block):\n    os.kill(os.getpid(), 9)\n"
        "with dask.config.set(scheduler='sync'):\n"
        "    td.store({'a': da.ones((4,), chunks=2).map_blocks(die, dtype=float, meta=np.empty(0))}, sys.argv[1], chunks=(2,))\n"
    )
    path = tmp_path / "a.tet"
    done = subprocess.run([os.sys.executable, "-c", program, str(path)], capture_output=True)
    assert done.returncode == -9, done.stderr
    assert list(tmp_path.iterdir()), "the process was killed while parts were written"
    tesseral.write(path, {"a": np.zeros(2)})
    assert [p.name for p in tmp_path.iterdir()] == ["a.tet"]
