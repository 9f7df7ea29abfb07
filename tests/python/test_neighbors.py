"""Sources beside other things: groups whose members lie elsewhere, few file handles, and arrays that are cleaned up while they are read."""

import json
import resource
import shutil
import subprocess
import threading

import numpy as np
import pytest
import tiledb
from support import TET, tet, tet_json


def array(path, value=0):
    dim = tiledb.Dim("x", domain=(0, 9), tile=5, dtype=np.int32)
    tiledb.Array.create(str(path), tiledb.ArraySchema(domain=tiledb.Domain(dim), attrs=[tiledb.Attr("v", dtype=np.int32)]))
    with tiledb.open(str(path), "w") as out:
        out[:] = np.arange(10, dtype="i4") + value


@pytest.fixture
def group(tmp_path):
    """A group with members of all kinds: named, without a name, by an absolute address inside, outside, and gone."""
    path = tmp_path / "group"
    tiledb.Group.create(str(path))
    for name in ("in", "plain", "absolute", "gone"):
        array(path / name)
    array(tmp_path / "outside", 100)
    with tiledb.Group(str(path), "w") as out:
        out.add("in", name="first", relative=True)
        out.add("plain", relative=True)
        out.add(f"file://{path}/absolute", relative=False)
        out.add(f"file://{tmp_path}/outside", name="far", relative=False)
        out.add("gone", name="lost", relative=True)
    shutil.rmtree(path / "gone")
    return path


def test_members_of_groups_are_read_or_named_with_the_reason(group, tmp_path):
    info = tet_json("info", group)
    assert sorted(a["name"] for a in info["arrays"]) == ["absolute", "first", "plain"]
    states = {m["path"]: (m["state"], m["uri"]) for m in info["tiledb"]["members"]}
    assert states["far"] == ("outside", f"file://{tmp_path}/outside")
    assert states["lost"] == ("missing", "gone")
    assert {states[name][0] for name in ("first", "plain", "absolute")} == {"read"}
    text = tet("info", group).decode()
    assert f"far (file://{tmp_path}/outside): outside the group" in text
    assert "lost (gone): does not exist" in text
    for name in ("first", "plain", "absolute"):
        assert np.frombuffer(tet("cat", group, name, "--raw"), "<i4").tolist() == list(range(10))


def test_verify_names_members_that_it_does_not_check(group, tmp_path):
    report = tet_json("verify", group, code=1)
    found = {c["detail"]: c["ok"] for c in report["findings"] if c["check"] == "group_member"}
    assert found == {
        f"member far (file://{tmp_path}/outside): outside the group, not checked": True,
        "member lost (gone): does not exist, not checked": False,
    }


def limited(*arguments, handles=64, code=0):
    """Runs a command that may hold so many files open."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (handles, handles))
    done = subprocess.run([TET, *map(str, arguments)], capture_output=True, preexec_fn=limit)
    assert done.returncode == code, (arguments, done.stderr.decode())
    return done.stdout


def test_many_fragments_and_fields_need_few_handles(tmp_path):
    path = tmp_path / "many"
    fields = [f"f{n}" for n in range(80)]
    tet("create", path, "--sparse", "--capacity", "10", "--dim", "x=0..9999/100:int32", *(a for f in fields for a in ("--field", f + ":int32")))
    rows = tmp_path / "rows.csv"
    for n in range(30):
        lines = [",".join(["x", *fields])] + [",".join(str(v) for v in [n * 10 + i, *range(n, n + 80)]) for i in range(10)]
        rows.write_text("\n".join(lines) + "\n")
        limited("append", path, rows)
    expected = tet("cat", path, "f7", "--raw")
    assert len(expected) == 4 * 300
    for handles in (64, 16):
        assert limited("cat", path, "f7", "--raw", handles=handles) == expected
        assert json.loads(limited("stat", path, "f7", "--json", handles=handles)) == tet_json("stat", path, "f7")
        assert json.loads(limited("info", path, "--json", handles=handles)) == tet_json("info", path)
    limited("verify", path)
    limited("convert", path, tmp_path / "copy")
    limited("consolidate", path)
    limited("vacuum", path, "--apply")
    assert limited("cat", path, "f7", "--raw") == tet("cat", tmp_path / "copy", "f7", "--raw") == expected


@pytest.mark.parametrize("command", ["info", "stat", "verify"])
def test_the_array_is_not_blamed_when_no_handle_is_left(tmp_path, command):
    array(tmp_path / "a")
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
    done = subprocess.run([TET, command, str(tmp_path / "a")], capture_output=True, preexec_fn=limit)
    told = done.stderr.decode()
    assert done.returncode == 0 or (done.returncode == 8 and "Too many open files" in told), told
    assert "damaged" not in told and "schema" not in told


def test_readers_during_a_vacuum_see_no_damage(tmp_path):
    path = tmp_path / "a"
    tet("create", path, "--sparse", "--capacity", "20", "--dim", "x=0..9999/100:int32", "--field", "v:int32")
    over, failures, reads = threading.Event(), [], []

    def read(*command):
        while not over.is_set():
            done = subprocess.run([TET, *map(str, command)], capture_output=True)
            reads.append(command[0])
            if done.returncode:
                failures.append((command, done.returncode, done.stderr.decode(), done.stdout.decode(errors="replace")))

    commands = (["cat", path, "v", "--raw"], ["stat", path, "v"], ["verify", path, "--deep"], ["info", path], ["log", path])
    threads = [threading.Thread(target=read, args=command) for command in commands]
    rows = tmp_path / "rows.csv"
    try:
        [thread.start() for thread in threads]
        for n in range(12):
            for m in range(3):
                rows.write_text("x,v\n" + "".join(f"{n * 100 + m * 10 + i},{n}\n" for i in range(10)))
                tet("append", path, rows)
            for part in ("fragments", "fragment-meta", "commits"):
                tet("consolidate", path, "--part", part)
                tet("vacuum", path, "--part", part, "--apply")
    finally:
        over.set()
        [thread.join() for thread in threads]
    assert not failures, failures[0]
    assert len(reads) > 20
