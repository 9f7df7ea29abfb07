"""Only the output is ever changed: what is replaced, what is removed, and what files are named after."""

import json
import os
import shutil
import signal
import stat
import subprocess
import time

import numpy as np
import pytest
import tensogram
import tiledb
from support import ROOT, TET, tet, tet_json

SAMPLE = ROOT / "fixtures/tet/ranks_zstd_v1.tet"
#: One of each kind of characters that no text output may contain.
DECEPTIVE = ["\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u200e", "\u200f", "\u061c", "\u200b", "\u200d", "\u2060", "\ufeff"]


def state(folder):
    """Everything below a folder: kinds, modes, contents, targets of links."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.filemode(status.st_mode), content)
    return found


@pytest.fixture
def tet_file(tmp_path):
    path = tmp_path / "a.tet"
    shutil.copy(SAMPLE, path)
    return path


@pytest.fixture
def outside(tmp_path):
    """A folder that no command names."""
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/keep.txt").write_text("kept")
    (folder / "keep.tdb").write_text("kept")
    return folder


def array(path, fragments=3):
    """A TileDB array with several fragments."""
    dim = tiledb.Dim("x", domain=(0, 99), tile=10, dtype=np.int32)
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(dim), [tiledb.Attr("v", dtype=np.int32)]))
    for t in range(1, fragments + 1):
        with tiledb.open(str(path), "w", timestamp=t) as opened:
            opened[:] = np.arange(100, dtype=np.int32) + t
    return path


def group(path):
    """A group of two arrays."""
    tiledb.Group.create(str(path))
    for name in "pq":
        array(path / name, 1)
    with tiledb.Group(str(path), "w") as opened:
        for name in "pq":
            opened.add(name, name=name, relative=True)
    return path


# Removing


def test_repair_removes_links_to_fragments_and_not_what_they_point_to(tmp_path, outside):
    path = array(tmp_path / "array")
    before, cells = state(outside), tet("cat", path, "v", "--raw")
    links = [path / "__fragments" / f"__30_30_{'a' * 32}_22", path / f"__31_31_{'b' * 32}_22"]
    for link in links:
        link.symlink_to(outside)
    listed = tet_json("repair", path)["repairs"]
    assert [r["code"] for r in listed] == ["uncommitted_fragments"]
    tet("repair", path, "--apply", "uncommitted_fragments")
    assert state(outside) == before
    assert not any(link.is_symlink() for link in links)
    assert tet("cat", path, "v", "--raw") == cells


def test_repair_removes_links_inside_uncommitted_fragments(tmp_path, outside):
    path = array(tmp_path / "array")
    before = state(outside)
    fragment = path / "__fragments" / f"__30_30_{'a' * 32}_22"
    fragment.mkdir()
    (fragment / "folder").symlink_to(outside)
    (fragment / "a0.tdb").symlink_to(outside / "keep.tdb")
    tet("repair", path, "--apply", "uncommitted_fragments")
    assert state(outside) == before and not fragment.exists()


def test_vacuum_removes_links_and_not_what_they_point_to(tmp_path, outside):
    path = array(tmp_path / "array")
    tet("consolidate", path)
    cells = tet("cat", path, "v", "--raw")
    # A fragment that is to go lies elsewhere, behind a link.
    fragment = sorted((path / "__fragments").iterdir())[0]
    shutil.move(fragment, outside / "fragment")
    fragment.symlink_to(outside / "fragment")
    before = state(outside)
    tet("vacuum", path, "--apply")
    assert state(outside) == before
    assert not fragment.is_symlink() and len(list((path / "__fragments").iterdir())) == 1
    assert tet("cat", path, "v", "--raw") == cells


@pytest.mark.parametrize("folder", ["__fragments", "__commits"])
def test_nothing_is_written_or_removed_below_a_link(tmp_path, folder):
    path = array(tmp_path / "array")
    shutil.copytree(path, tmp_path / "vacuumed")
    tet("consolidate", tmp_path / "vacuumed")
    for path, command in [(path, ["consolidate", path]), (tmp_path / "vacuumed", ["vacuum", tmp_path / "vacuumed", "--apply"])]:
        elsewhere = tmp_path / f"{path.name}_elsewhere"
        shutil.move(path / folder, elsewhere)
        (path / folder).symlink_to(elsewhere)
        before, cells = state(elsewhere), tet("cat", path, "v", "--raw")
        tet(*command, code=2)
        assert state(elsewhere) == before
        assert tet("cat", path, "v", "--raw") == cells


# Replacing

DATASETS = {
    "create": lambda source, out: ["create", out, "--dim", "x=0..9/5:int32", "--field", "v:int32", "-f"],
    "recover": lambda source, out: ["recover", "-f", source, out],
    "convert": lambda source, out: ["convert", "-f", source, out, "--to", "tiledb"],
    "rechunk": lambda source, out: ["rechunk", "-f", source, out, "--chunk", "2"],
}


def dataset_command(name, tmp_path, out):
    """A command that writes a folder, or refuses to. Its source is a TileDB array where it must be."""
    source = tmp_path / "from"
    if not source.exists():
        array(source, 1)
    return DATASETS[name](source, out)


@pytest.mark.parametrize("name", DATASETS)
def test_foreign_folders_are_never_replaced(name, tmp_path):
    foreign = tmp_path / "photos"
    (foreign / "2024").mkdir(parents=True)
    (foreign / "2024/a.jpg").write_text("a")
    extended = array(tmp_path / "array", 1)
    (extended / "notes.txt").write_text("mine")
    nested = array(tmp_path / "nested", 1)
    (nested / "__fragments/mine").mkdir()
    for out in (foreign, extended, nested):
        before = state(out)
        command = dataset_command(name, tmp_path, out)
        done = subprocess.run([TET, *map(str, command)], capture_output=True, text=True)
        assert done.returncode == 2 and str(out) in done.stderr, done.stderr
        assert state(out) == before
    assert "__fragments/mine" in done.stderr, "what is foreign is named"
    assert not list(tmp_path.glob(".tesseral-*"))


@pytest.mark.parametrize("name", DATASETS)
def test_datasets_replace_datasets_and_empty_folders(name, tmp_path):
    (tmp_path / "empty").mkdir()
    for out in (array(tmp_path / "array"), group(tmp_path / "group"), tmp_path / "empty"):
        tet(*dataset_command(name, tmp_path, out))
        assert tet_json("info", out)["format"] == "tiledb" and not (out / "p").exists()


def test_folders_around_a_source_are_not_replaced(tmp_path, tet_file):
    grp = group(tmp_path / "grp")
    before = state(grp)
    tet("convert", "-f", grp / "p", grp, code=2)
    tet("recover", "-f", grp / "p", grp, code=2)
    (tmp_path / "link").symlink_to(grp)
    tet("convert", "-f", tmp_path / "link/p", grp, code=2)
    tet("convert", "-f", grp, grp / "p", code=2)
    assert state(grp) == before
    tet("convert", "-f", grp / "p", grp / "q")


def test_recovering_never_replaces_its_source(tmp_path, tet_file):
    path = array(tmp_path / "array", 1)
    for source in (path, tet_file):
        before = state(path), tet_file.read_bytes()
        tet("recover", "-f", source, source, code=2)
        assert (state(path), tet_file.read_bytes()) == before


@pytest.mark.parametrize("name", ["grp/sub", "grp/x/sub", "grp/a/sub", "grp/sub.tet", "grp/sub.nc"])
def test_nothing_is_converted_into_its_source(tmp_path, name):
    source = tmp_path / "grp"
    group(source)
    before = state(tmp_path)
    for command in (["convert", source], ["convert", "-f", source], ["rechunk", "--chunks", "5", source], ["cp", source]):
        done = subprocess.run([TET, *command, tmp_path / name], capture_output=True, text=True)
        assert done.returncode == 2 and "inside the source" in done.stderr
    assert state(tmp_path) == before


def test_the_ending_of_an_output_names_its_format(tmp_path, tet_file):
    """Other chunks in the format that the name says; what keeps the format does not take a name of another one."""
    folder = array(tmp_path / "a.tdb")
    tet("rechunk", folder, tmp_path / "b.tet", "--chunks", "7")
    tet("rechunk", folder, tmp_path / "c", "--chunks", "7")
    tet("rechunk", tet_file, tmp_path / "d.zarr", "--chunks", "0=1", "--array", "rank1")
    assert [tet_json("info", tmp_path / name)["format"] for name in ("b.tet", "c", "d.zarr")] == ["tet", "tiledb", "zarr"]
    assert tet_json("info", tmp_path / "b.tet")["arrays"][0]["chunk_shape"] == [7]
    done = subprocess.run([TET, "recover", tet_file, tmp_path / "e.tgm"], capture_output=True, text=True)
    assert done.returncode == 2 and "is a name of" in done.stderr and not (tmp_path / "e.tgm").exists()
    messages = tmp_path / "m.tgm"
    tet("convert", tet_file, messages)
    done = subprocess.run([TET, "recover", messages, tmp_path / "e.tet"], capture_output=True, text=True)
    assert done.returncode == 2 and "is a name of" in done.stderr and not (tmp_path / "e.tet").exists()
    tet("recover", messages, tmp_path / "e")


def test_a_conversion_may_take_its_sources_place(tet_file):
    before = tet("cat", tet_file, "d2", "--raw") if b"d2" in tet("info", tet_file) else None
    names = [a["name"] for a in tet_json("info", tet_file)["arrays"]]
    cells = [tet("cat", tet_file, name, "--raw") for name in names]
    tet("convert", "-f", tet_file, tet_file, "--codec", "raw")
    assert [tet("cat", tet_file, name, "--raw") for name in names] == cells and before in (None, *cells)


def test_files_of_another_kind_are_not_replaced_by_datasets(tmp_path, tet_file):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    looks = tmp_path / "notes.tet"
    looks.write_text("named like a dataset")
    for out in (notes, looks):
        done = subprocess.run([TET, "convert", "-f", tet_file, out, "--to", "tet"], capture_output=True, text=True)
        assert done.returncode == 2 and "remove it" in done.stderr, done.stderr
    assert (notes.read_text(), looks.read_text()) == ("mine", "named like a dataset")
    (tmp_path / "empty").touch()
    tet("convert", "-f", tet_file, tmp_path / "empty", "--to", "tet")
    # A table may replace any file but its source.
    array_name = tet_json("info", tet_file)["arrays"][0]["name"]
    tet("cat", tet_file, array_name, "--format", "csv", "-o", notes, code=2)
    tet("cat", tet_file, array_name, "--format", "csv", "-f", "-o", notes)
    assert notes.read_text() != "mine"
    before = tet_file.read_bytes()
    tet("cat", tet_file, array_name, "--format", "csv", "-f", "-o", tet_file, code=2)
    os.link(tet_file, tmp_path / "other_name.csv")
    tet("cat", tet_file, array_name, "--format", "csv", "-f", "-o", tmp_path / "other_name.csv", code=2)
    tet("cat", tet_file, array_name, "--format", "csv", "-f", "-o", tmp_path, code=2)
    assert tet_file.read_bytes() == before


def test_links_are_not_replaced(tmp_path, tet_file, outside):
    shutil.copy(SAMPLE, outside / "b.tet")
    array(outside / "array", 1)
    before = state(outside)
    name = tet_json("info", tet_file)["arrays"][0]["name"]
    for target in ("b.tet", "array", "nothing"):
        link = tmp_path / f"link_{target}"
        link.symlink_to(outside / target)
        for force in ([], ["-f"]):
            tet("convert", *force, tet_file, link, "--to", "tet", code=2)
            tet("convert", *force, tet_file, link, "--to", "tiledb", code=2)
            tet("cat", tet_file, name, "--format", "csv", *force, "-o", link, code=2)
        assert os.readlink(link) == str(outside / target)
    assert state(outside) == before
    # Links on the way to an output are the caller's own.
    (tmp_path / "way").symlink_to(outside)
    tet("convert", tet_file, tmp_path / "way/new.tet")
    assert {**before, "new.tet": None}.keys() == state(outside).keys()


# Documents


def test_documents_do_not_overwrite(tmp_path, tet_file):
    name = tet_json("info", tet_file)["arrays"][0]["name"]
    before = tet_file.read_bytes()
    other = tmp_path / "other.bin"
    other.write_text("mine")
    (tmp_path / "link.bin").symlink_to(other)
    ask = lambda document, *more, code=0: tet("query", json.dumps({"dataset": name, **document}), "-t", tet_file, "-x", *more, code=code)
    for more in ([], ["-f"]):
        ask({"spill": "a.tet"}, *more, code=2)
        ask({"spill": "link.bin"}, *more, code=2)
    ask({"spill": "other.bin"}, code=2)
    assert (tet_file.read_bytes(), other.read_text()) == (before, "mine")
    ask({"spill": "other.bin"}, "-f")
    assert other.read_bytes() == tet("cat", tet_file, name, "--raw")


def test_documents_write_nothing_into_their_source(tmp_path):
    path = array(tmp_path / "array", 1)
    before = state(path)
    tet("query", json.dumps({"dataset": "v", "spill": "array/x.bin"}), "-t", path, "-x", code=2)
    assert state(path) == before


# Permissions


def modes(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_replacing_keeps_permissions_and_owner(tmp_path, tet_file):
    name = tet_json("info", tet_file)["arrays"][0]["name"]
    old_umask = os.umask(0o077)
    try:
        for mode in (0o644, 0o600, 0o664):
            for out, command in [("o.tet", ["convert", "-f", tet_file]), ("o.csv", None)]:
                out = tmp_path / out
                command = [*command, out] if command else ["cat", tet_file, name, "--format", "csv", "-f", "-o", out]
                if not out.exists():
                    tet(*command)
                out.chmod(mode)
                if os.getuid() == 0:
                    os.chown(out, 12345, 54321)
                    out.chmod(mode)
                owner = out.stat().st_uid, out.stat().st_gid
                tet(*command)
                assert modes(out) == mode and (out.stat().st_uid, out.stat().st_gid) == owner
        folder = array(tmp_path / "array", 1)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o750 if path.is_dir() else 0o640)
        tet("convert", "-f", tet_file, folder, "--array", name, "--to", "tiledb")
        assert modes(folder) == 0o750
        assert {modes(p) for p in folder.rglob("*") if p.is_dir()} == {0o750}
        assert {modes(p) for p in folder.rglob("*") if p.is_file()} == {0o640}
    finally:
        os.umask(old_umask)


# Leftovers


def killed(command, until):
    """Runs a command and kills it once something holds."""
    child = subprocess.Popen([TET, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(2000):
        if until() or child.poll() is not None:
            break
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()


@pytest.mark.parametrize("ending, format", [("tet", "tet"), ("tgm", "tensogram"), ("dir", "tiledb")])
def test_what_a_killed_writer_left_goes_with_the_next_one(ending, format, tmp_path):
    source, out = tmp_path / "big.npy", tmp_path / f"out.{ending}"
    np.save(source, np.random.default_rng(1).random((2000, 2000)))
    command = ["convert", "-f", source, out, "--to", format, "--codec", "raw"]
    left = lambda: sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".tesseral-"))
    for _ in range(10):
        killed(command, left)
        if left():
            break
    assert left(), "the writer was killed too late"
    other = tmp_path / ".tesseral-another.1-2-0.0.tmp"
    other.write_text("of another target")
    small = tmp_path / "small.npy"
    np.save(small, np.zeros(3))
    tet("convert", "-f", small, out, "--to", format)
    assert left() == [other.name]


def test_repair_offers_leftovers_beside_files(tmp_path, tet_file):
    left = tmp_path / f".tesseral-{tet_file.name}.1-2-3.0.tmp"
    left.write_text("half")
    assert tet_json("repair", tet_file)["repairs"] == [], "its writer may be alive elsewhere"
    os.utime(left, (0, 0))
    assert [r["code"] for r in tet_json("repair", tet_file)["repairs"]] == ["staged_leftovers"]
    tet("repair", tet_file, "--apply", "staged_leftovers")
    assert not left.exists() and tet_json("repair", tet_file)["repairs"] == []


# Names and texts from data


def test_names_of_files_made_from_data_hold_no_tricks(tmp_path):
    values = ["../../up", "-f", ".hidden", "a\u202eb", "z\u200bw", "n\nl", "back\\slash"]
    source = tmp_path / "m.tgm"
    with open(source, "wb") as out:
        for value in values:
            descriptor = {"type": "ntensor", "shape": [1], "dtype": "float32"}
            out.write(bytes(tensogram.encode({"version": 2, "base": [{"tag": value}]}, [(descriptor, np.zeros(1, "f4"))])))
    folder = tmp_path / "parts"
    folder.mkdir()
    tet("copy", source, folder / "[tag].tgm")
    names = sorted(p.name for p in folder.iterdir())
    assert len(names) == len(values)
    for name in names:
        assert name.isprintable() and not name.startswith((".", "-")) and "\\" not in name, name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.tgm", "parts"]


def test_texts_hold_no_deceptive_characters(tmp_path):
    """Every command that shows text of names, attributes, labels and values."""
    odd = "".join(f"a{c}" for c in DECEPTIVE)
    path = tmp_path / "odd"
    dims = [tiledb.Dim("x", domain=(0, 3), tile=2, dtype=np.int32), tiledb.Dim(f"d{odd}", domain=(0, 0), tile=1, dtype=np.int32)]
    attrs = [tiledb.Attr(f"v{odd}", dtype=np.int32), tiledb.Attr("s", dtype="U0")]
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(*dims), attrs, sparse=True))
    with tiledb.open(str(path), "w") as opened:
        opened[[0, 1], [0, 0]] = {f"v{odd}": np.array([1, 2], np.int32), "s": np.array([odd, "b"], dtype=object)}
        opened.meta[f"k{odd}"] = odd
    message = tmp_path / "odd.tgm"
    descriptor = {"type": "ntensor", "shape": [2], "dtype": "float32"}
    message.write_bytes(bytes(tensogram.encode({"version": 2, "base": [{"name": odd, "units": odd}]}, [(descriptor, np.ones(2, "f4"))])))
    copy = tmp_path / f"{odd}.tgm"
    shutil.copy(message, copy)
    commands = [
        *([name, path] for name in ("info", "info -a", "verify", "log", "repair", "advise", "stat", "cat")),
        *([name, source] for name in ("info", "info -a", "verify", "dump", "repair", "stat", "cat") for source in (message, copy)),
        ["get", message, "-p", "name,units"], ["diff", path, path], ["diff", message, copy], ["cat", path, "s"],
        ["cat", path, f"nothing{odd}"], ["info", tmp_path / f"none{odd}"], ["convert", message, copy],
        ["convert", path, tmp_path / "odd2.tet"], ["copy", message, tmp_path / "[name]2.tgm"],
    ]
    shown = 0
    for name, *arguments in commands:
        done = subprocess.run([TET, *name.split(), *map(str, arguments)], capture_output=True, timeout=60)
        text = (done.stdout + done.stderr).decode()
        found = [f"U+{ord(c):04X}" for c in DECEPTIVE if c in text]
        assert not found, (name, arguments, found, text)
        shown += "\\u{202e}" in text
    assert shown >= 12, "the names were shown"
