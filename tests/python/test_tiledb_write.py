"""Arrays that we write, evolve, consolidate and vacuum, read by the reference package and by us: equal."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiledb

import tiledb_schema
from support import EXAMPLES, TET, tet, tet_json


class Peer:
    """The reference package in its own process, which may crash without ending the tests."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("tiledb_peer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=Path(__file__).parent)

    def __call__(self, op, uri, **arguments):
        request = {"op": op, "uri": str(uri), **arguments}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the package's process ended on {request}"
        answer = json.loads(line)
        if "several lengths" in answer.get("error", ""):
            pytest.skip("the package cannot read its own buffers of these strings")
        assert "ok" in answer, (answer["error"], request)
        return answer["ok"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def peer():
    peer = Peer()
    yield peer
    peer.close()


# How often each command is killed; for a longer run, set TESSERAL_KILLS=500.
KILLS = int(os.environ.get("TESSERAL_KILLS", "50"))

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = INTS + ["float32", "float64"]


def codecs(rng, dtype, cell):
    tail = ["gzip", "zstd:5", "lz4", "bzip2", "checksum_md5", "checksum_sha256", "byteshuffle", "bitshuffle", "noop"]
    head = list(tail)
    if dtype in INTS and cell == 1:
        head += ["rle", "delta", "double_delta", {"name": "bit_width_reduction", "window": rng.choice([16, 256])}, "xor"] * 2
    if dtype.startswith("float") and cell == 1:
        head += ["xor", "rle", {"name": "double_delta", "reinterpret": "int32"}]
    if dtype.startswith("string"):
        head += ["rle", "dictionary"] * 4
    count = rng.choice([0, 1, 1, 2, 3])
    # Chains with a checksum after other filters are sometimes rejected by the reference itself.
    chain = [rng.choice(head if i == 0 else tail) for i in range(count)]
    return [c for i, c in enumerate(chain) if i == 0 or not str(c).startswith("checksum")]


def random_field(rng, i):
    dtype = rng.choice(NUMBERS * 2 + ["datetime64[s]", "bool", "string_ascii", "string_ascii", "string_utf8"])
    field = {"name": f"a{i}", "dtype": dtype, "nullable": rng.random() < 0.3}
    cell = 1
    if dtype in NUMBERS and rng.random() < 0.15:
        cell = rng.choice([3, "var"])
        field["cell"] = cell
        field["nullable"] = False
    field["codecs"] = codecs(rng, dtype, cell)
    return field


def random_value(rng, field):
    """A value as CSV text and in the model."""
    dtype = field["dtype"]
    if field["nullable"] and rng.random() < 0.25:
        return "", None
    if dtype.startswith("string"):
        letters = "abc" if dtype.endswith("ascii") else "aé中"
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0 if dtype.endswith("ascii") else 1, 4)))
        return f'"{text}"', text
    cell = field.get("cell", 1)
    count = rng.randint(1, 3) if cell == "var" else cell
    words = []
    for _ in range(count):
        if dtype == "bool":
            words.append(rng.choice(["0", "1"]))
        elif dtype.startswith("datetime"):
            words.append(str(rng.randint(-1000, 1000)))
        elif dtype.startswith("float"):
            value = rng.choice([rng.uniform(-50, 50), 0.5, -0.0, math.nan, 1e30])
            words.append("NaN" if value != value else repr(float(np.dtype(dtype).type(value))))
        else:
            info = np.iinfo(dtype)
            words.append(str(rng.choice([0, 1, 7, rng.randint(info.min, info.max)])))
    return " ".join(words), " ".join(words)


def check_fragments(peer, array):
    """The fragments listed by the package and by us."""
    theirs = peer("fragments", array)
    ours = tet_json("info", array, "--as-of", 2**53)["tiledb"]["fragments"]
    assert sorted(f["name"] for f in ours) == sorted(theirs["names"])
    place = {name: i for i, name in enumerate(theirs["names"])}
    for fragment in ours:
        i = place[fragment["name"]]
        assert fragment["timestamps"] == theirs["timestamps"][i]
        assert fragment["version"] == theirs["versions"][i]
        if theirs["sparse"][i]:
            assert fragment["cells"] == theirs["cells"][i]
    return theirs


def check_conditions(peer, array, seed, pairs, fields):
    """Random ranges and conditions, evaluated by both."""
    kinds = {dim["name"]: dim["dtype"] for dim, _ in pairs}
    kinds |= {f["name"]: f["dtype"] for f in fields if f.get("cell", 1) == 1 and f["dtype"] not in ("bool", "string_utf8")}
    kinds = {name: "ascii" if kind == "string_ascii" else kind for name, kind in kinds.items()}
    nullable = {f["name"]: f["nullable"] for f in fields}
    answers = peer("asked", array, seed=seed, kinds=kinds, nullable=nullable)
    for answer in answers:
        where = ["--where", answer["where"]] if answer["where"] else []
        for name, column in answer["columns"].items():
            raw = tet("cat", array, name, "--raw", *answer["ranges"], *where)
            assert raw.hex() == column["raw"], (name, answer["ranges"], answer["where"])
    return len(answers)


def rows_to_csv(path, names, rows):
    path.write_text("\n".join([",".join(names)] + [",".join(row) for row in rows]) + "\n", encoding="utf-8")


def compare(peer, array, times=None):
    """Every column, as both read it."""
    span = list(times) if times else [0, 2**53]
    expected = peer("read", array, times=span)
    for name, column in expected["columns"].items():
        raw = tet("cat", array, name, "--raw", "--as-of", f"{span[0]}..{span[1]}")
        assert raw.hex() == column["raw"], (name, times)
        validity = tet("cat", array, name, "--validity", "--stored", "--as-of", f"{span[0]}..{span[1]}")
        assert validity.hex() == column["validity"], (name, times)
    return expected


def check_aggregates(peer, array, fields):
    wanted = {}
    for field in fields:
        plain = field["dtype"] in NUMBERS and field.get("cell", 1) == 1
        wanted[field["name"]] = ["count"] + (["sum", "min", "max", "mean"] if plain else []) + (
            ["null_count"] if field["nullable"] else [])
    found = peer("aggregates", array, fields=wanted)
    for field in fields:
        answer = found[field["name"]]
        # 64-bit sums saturate, tile by tile.
        small = field["dtype"] in INTS and not field["dtype"].endswith("64") and field.get("cell", 1) == 1
        stat = tet_json("stat", array, field["name"]) if small else None
        if stat and answer.get("sum") is not None and abs(answer["sum"]) < 2**53 and stat["nulls"] == 0:
            assert int(stat["sum"]) == answer["sum"], field
            assert (int(stat["min"]), int(stat["max"])) == (answer["min"], answer["max"]), field
    return found


@pytest.mark.parametrize("seed", range(12))
def test_random_dense(seed, tmp_path, peer):
    rng = random.Random(seed)
    rank = rng.choice([1, 1, 2, 2, 3])
    dtype = rng.choice(["int8", "int32", "int64", "uint16", "uint64"])
    dims, extents = [], []
    for d in range(rank):
        extent = rng.randint(1, [0, 60, 14, 7][rank])
        low = rng.randint(0, 9) if dtype.startswith("u") else rng.randint(-9, 9)
        dims.append({"name": f"d{d}", "dtype": dtype, "domain": [low, low + extent - 1], "tile": rng.randint(1, extent)})
        extents.append((low, extent))
    fields = [random_field(rng, i) for i in range(rng.randint(1, 3))]
    schema = {"dims": dims, "fields": fields, "cell_order": rng.choice(["row-major", "col-major"]),
              "tile_order": rng.choice(["row-major", "col-major"])}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    array = tmp_path / "array"
    tet("create", array, "--schema", tmp_path / "schema.json", "--timestamp", 1)
    times = sorted(rng.sample(range(10, 90), rng.randint(1, 3)))
    for moment in times:
        box = []
        for low, extent in extents:
            a, b = sorted((rng.randrange(extent), rng.randrange(extent)))
            box.append((0, extent - 1) if rng.random() < 0.4 else (a, b))
        count = math.prod(b - a + 1 for a, b in box)
        rows = [[random_value(rng, f)[0] for f in fields] for _ in range(count)]
        rows_to_csv(tmp_path / "cells.csv", [f["name"] for f in fields], rows)
        selection = [f"d{d}={a}:{b + 1}" for d, (a, b) in enumerate(box)]
        tet("append", array, tmp_path / "cells.csv", *selection, "--timestamp", moment)
    compare(peer, array)
    tet("verify", array, "--deep")
    check_aggregates(peer, array, fields)
    assert check_fragments(peer, array)["timestamps"] == [[t, t] for t in times]
    for moment in times:
        compare(peer, array, (0, moment))
    before = peer("read", array)["columns"]
    report = tet_json("consolidate", array)
    assert compare(peer, array)["columns"] == before
    tet("vacuum", array, "--apply")
    assert compare(peer, array)["columns"] == before
    # Fragments with unwritten cells between them stay apart; there is nothing to do for a single one.
    left = len(report["apart"]) + len(report["made"]) if len(times) > 1 else 1
    assert peer("fragments", array)["count"] == left


def random_dim(rng, d):
    dtype = rng.choice(["int32", "int64", "uint8", "float64", "string_ascii", "datetime64[ns]"])
    dim = {"name": f"d{d}", "dtype": dtype}
    if dtype == "string_ascii":
        return dim, lambda: '"' + "".join(rng.choice("abcd") for _ in range(rng.randint(1, 4))) + '"'
    low, high = (0, 20) if dtype.startswith(("u", "d")) else (-10, 10)
    dim["domain"] = [low, high]
    if rng.random() < 0.8:
        dim["tile"] = float(rng.randint(1, 7)) if dtype == "float64" else rng.randint(1, 7)
    if dtype == "float64":
        dim["domain"] = [float(low), float(high)]
        return dim, lambda: repr(rng.choice([rng.uniform(low, high), float(rng.randint(low, high))]))
    return dim, lambda: str(rng.randint(low, high))


@pytest.mark.parametrize("seed", range(12))
def test_random_sparse(seed, tmp_path, peer):
    rng = random.Random(1000 + seed)
    pairs = [random_dim(rng, d) for d in range(rng.choice([1, 2, 2, 3]))]
    fields = [random_field(rng, i) for i in range(rng.randint(1, 3))]
    duplicates = rng.random() < 0.3
    schema = {"dims": [dim for dim, _ in pairs], "fields": fields, "sparse": True, "duplicates": duplicates,
              "capacity": rng.choice([2, 7, 100, 10000]), "cell_order": rng.choice(["row-major", "col-major", "hilbert"]),
              "tile_order": rng.choice(["row-major", "col-major"])}
    if schema["cell_order"] == "hilbert":
        schema["tile_order"] = "row-major"
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    array = tmp_path / "array"
    tet("create", array, "--schema", tmp_path / "schema.json", "--timestamp", 1)
    times = sorted(rng.sample(range(10, 90), rng.randint(1, 4)))
    names = [dim["name"] for dim, _ in pairs] + [f["name"] for f in fields]
    for moment in times:
        rows = [[make() for _, make in pairs] + [random_value(rng, f)[0] for f in fields] for _ in range(rng.randint(1, 60))]
        rows_to_csv(tmp_path / "cells.csv", names, rows)
        unique = len({tuple(row[:len(pairs)]) for row in rows}) == len(rows)
        if not duplicates and not unique:
            tet("append", array, tmp_path / "cells.csv", "--timestamp", moment, code=2)
        extra = [] if duplicates else ["--dedup"]
        tet("append", array, tmp_path / "cells.csv", "--timestamp", moment, *extra)
    for field in fields:
        if field["dtype"] in ("int16", "int32", "float64") and field.get("cell", 1) == 1 and rng.random() < 0.6:
            condition = f"{field['name']} {rng.choice(['>', '<', '==', '!='])} {rng.choice([0, 1, 7])}"
            tet("delete", array, "--where", condition, "--timestamp", rng.randint(times[0], 95))
            break
    states = [(0, 2**53), *((0, moment) for moment in times), tuple(sorted((rng.randint(0, 99), rng.randint(0, 99))))]
    before = [compare(peer, array, state)["columns"] for state in states]
    tet("verify", array, "--deep")
    check_aggregates(peer, array, fields)
    check_fragments(peer, array)
    check_conditions(peer, array, seed, pairs, fields)
    tet("consolidate", array)
    check_fragments(peer, array)
    check_conditions(peer, array, seed, pairs, fields)
    for state, columns in zip(states, before):
        assert compare(peer, array, state)["columns"] == columns, state
    check_aggregates(peer, array, fields)
    tet("consolidate", array, "--part", "commits")
    tet("consolidate", array, "--part", "fragment-meta")
    tet("vacuum", array, "--apply")
    tet("vacuum", array, "--part", "commits", "--apply")
    for state, columns in zip(states, before):
        assert compare(peer, array, state)["columns"] == columns, state


@pytest.mark.parametrize("seed", range(4))
def test_mixed_history(seed, tmp_path, peer):
    """Both append, delete, consolidate and vacuum in turns; after every step both read the same."""
    rng = random.Random(2000 + seed)
    array = tmp_path / "array"
    duplicates = ["--duplicates"] if seed % 3 == 2 else []
    tet("create", array, "--sparse", *duplicates, "--capacity", rng.choice([3, 50]), "--dim", "x=0..99/10:int32",
        "--dim", "y=0..99/25:int32", "--field", "v:int32", "--field", "w:float64:zstd", "--timestamp", 1)
    moment = 10
    for _ in range(10):
        moment += rng.randint(1, 5)
        ours = rng.random() < 0.5
        action = rng.choice(["write"] * 4 + ["delete", "consolidate", "vacuum", "commits", "meta"])
        if action == "write":
            cells = list({(rng.randrange(100), rng.randrange(100)) for _ in range(rng.randint(1, 40))})
            v = [rng.randrange(10) for _ in cells]
            w = [rng.uniform(-1, 1) for _ in cells]
            if ours:
                rows = [[str(x), str(y), str(a), repr(b)] for (x, y), a, b in zip(cells, v, w)]
                rows_to_csv(tmp_path / "cells.csv", ["x", "y", "v", "w"], rows)
                tet("append", array, tmp_path / "cells.csv", "--timestamp", moment)
            else:
                peer("write_cells", array, coords=[[x for x, _ in cells], [y for _, y in cells]],
                     values={"v": v, "w": w}, timestamp=moment)
        elif action == "delete":
            condition = f"v == {rng.randrange(10)}"
            if ours:
                tet("delete", array, "--where", condition, "--timestamp", moment)
            else:
                peer("delete", array, condition=condition, timestamp=moment)
        elif action == "consolidate":
            tet("consolidate", array) if ours else peer("consolidate", array)
        elif action == "vacuum":
            tet("vacuum", array, "--apply") if ours else peer("vacuum", array)
        elif action == "commits":
            if ours:
                tet("consolidate", array, "--part", "commits")
                tet("vacuum", array, "--part", "commits", "--apply")
            else:
                peer("consolidate", array, mode="commits")
                peer("vacuum", array, mode="commits")
        elif action == "meta":
            peer("put_metadata", array, key=rng.choice("ab"), value=rng.randrange(9), timestamp=moment)
            if ours:
                tet("consolidate", array, "--part", "array-meta")
                tet("vacuum", array, "--part", "array-meta", "--apply")
            ours = tet_json("info", array)["arrays"][0]["attributes"]
            assert ours == peer("metadata", array)
        compare(peer, array)
        compare(peer, array, (0, rng.randint(0, moment)))


def killed(command, rng, most=0.12):
    """Run a command and kill it at a random moment; return whether it finished."""
    process = subprocess.Popen([TET, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(rng.uniform(0, most))
    process.send_signal(signal.SIGKILL)
    return process.wait(timeout=60) == 0


def test_killed_writes_leave_the_old_or_the_new_state(tmp_path, peer):
    rng = random.Random(7)
    array = tmp_path / "array"
    tet("create", array, "--dim", "x=0..9999/500:int32", "--field", "v:int32:zstd")
    cells = tmp_path / "cells.npy"
    last = -1
    for n in range(KILLS):
        np.save(cells, np.full(10000, n, "int32"))
        ended = killed(["append", array, cells], rng)
        seen = set(np.frombuffer(tet("cat", array, "--raw"), "int32").tolist())
        assert len(seen) == 1, n
        seen = seen.pop()
        assert seen in ({n} if ended else {n, last if last >= 0 else np.iinfo("int32").min}), (n, seen, last)
        last = seen if seen >= 0 else -1
        if n % 10 == 9:
            compare(peer, array)


@pytest.mark.parametrize("duplicates", [False, True])
def test_killed_consolidations_and_vacuums_change_nothing(tmp_path, peer, duplicates):
    rng = random.Random(8)
    array = tmp_path / "array"
    tet("create", array, "--sparse", *(["--duplicates"] if duplicates else []), "--capacity", 20,
        "--dim", "x=0..999/100:int32", "--field", "v:int32", "--timestamp", 1)
    def add(moment):
        rows = [[str(rng.randrange(1000)), str(rng.randrange(9))] for _ in range(60)]
        rows_to_csv(tmp_path / "cells.csv", ["x", "v"], rows)
        tet("append", array, tmp_path / "cells.csv", "--timestamp", moment, *([] if duplicates else ["--dedup"]))
    moment = 10
    for _ in range(3):
        moment += 1
        add(moment)
    state = tet("cat", array, "v", "--raw"), tet("cat", array, "x", "--raw")
    for n in range(KILLS // 2):
        for command in (["consolidate", array], ["vacuum", array, "--apply"]):
            killed(command, rng, 0.06)
            assert (tet("cat", array, "v", "--raw"), tet("cat", array, "x", "--raw")) == state, (n, command)
            # The package differs: it honors a list of replaced fragments even if no fragment replaces them.
            compare(peer, array)
        if n % 5 == 4:
            moment += 1
            add(moment)
            state = tet("cat", array, "v", "--raw"), tet("cat", array, "x", "--raw")
    tet("consolidate", array)
    tet("vacuum", array, "--apply")
    assert (tet("cat", array, "v", "--raw"), tet("cat", array, "x", "--raw")) == state
    compare(peer, array)


def test_eight_processes_append_at_once(tmp_path, peer):
    array = tmp_path / "array"
    tet("create", array, "--sparse", "--dim", "x=0..9999/100:int32", "--field", "v:int32")
    for n in range(400):
        rows_to_csv(tmp_path / f"{n}.csv", ["x", "v"], [[str(n * 10), str(n)]])
    done = threading.Event()
    seen = [[] for _ in range(4)]

    def appender(first):
        for n in range(first, first + 50):
            tet("append", array, tmp_path / f"{n}.csv")

    def reader(counts):
        while not done.is_set():
            counts.append(len(tet("cat", array, "v", "--raw")) // 4)

    threads = [threading.Thread(target=appender, args=(first,)) for first in range(0, 400, 50)]
    watching = [threading.Thread(target=reader, args=(counts,)) for counts in seen]
    for thread in watching + threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    for thread in watching:
        thread.join()
    assert all(counts == sorted(counts) for counts in seen), "what was committed stays"
    found = np.frombuffer(tet("cat", array, "v", "--raw"), "int32")
    assert found.tolist() == list(range(400))
    compare(peer, array)
    tet("consolidate", array)
    tet("vacuum", array, "--apply")
    assert np.frombuffer(tet("cat", array, "v", "--raw"), "int32").tolist() == list(range(400))


def test_size_on_disk_is_near_the_references(tmp_path, peer):
    rng = np.random.default_rng(3)
    values = np.cumsum(rng.integers(-3, 4, 200_000)).astype("int32")
    array, other = tmp_path / "ours", tmp_path / "theirs"
    np.save(tmp_path / "v.npy", values)
    for path in (array, other):
        tet("create", path, "--dim", "x=0..199999/20000:int32", "--field", "v:int32:byteshuffle+zstd")
    tet("append", array, tmp_path / "v.npy")
    peer("write_box", other, box=[[0, 199_999]], values={"v": values.tolist()}, timestamp=10)
    def size(path):
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert size(array) < size(other) * 1.02, (size(array), size(other))


@pytest.mark.parametrize("version", [12, 15, 18, 20, 21])
@pytest.mark.parametrize("sparse", [False, True])
def test_appends_to_older_versions(tmp_path, peer, version, sparse):
    """Arrays with a schema of an older version are written in that version."""
    rng = random.Random(version)
    array = tmp_path / "array"
    attributes = [("v", "int32", False, tiledb_schema.ZSTD), ("w", "float64", True), ("s", "ascii", False, tiledb_schema.RLE)]
    tiledb_schema.create(array, version, sparse, False, [("x", "int32", 0, 99, 10)], attributes)
    for moment in (10, 20, 30):
        low, high = sorted((rng.randrange(100), rng.randrange(100)))
        places = sorted(rng.sample(range(100), 40)) if sparse else range(low, high + 1)
        rows = [[*([str(x)] if sparse else []), str(rng.randrange(9)), rng.choice(["", repr(rng.uniform(-5, 5))]),
                 f'"{"ab" * rng.randrange(3)}"'] for x in places]
        rows_to_csv(tmp_path / "cells.csv", [*(["x"] if sparse else []), "v", "w", "s"], rows)
        where = [] if sparse else [f"x={low}:{high + 1}"]
        tet("append", array, tmp_path / "cells.csv", *where, "--timestamp", moment)
    assert set(check_fragments(peer, array)["versions"]) == {version}
    tet("verify", array, "--deep")
    states = [(0, 2**53), (0, 10), (0, 20), (0, 30)]
    if sparse and version >= 16:
        tet("delete", array, "--where", "v == 3", "--timestamp", 25)
    elif sparse:
        tet("delete", array, "--where", "v == 3", "--timestamp", 25, code=7)
    before = [compare(peer, array, state)["columns"] for state in states]
    check_aggregates(peer, array, [{"name": "v", "dtype": "int32", "nullable": False}])
    if sparse and version < 15:
        tet("consolidate", array, code=7)
        return
    tet("consolidate", array)
    tet("vacuum", array, "--apply")
    assert set(peer("fragments", array)["versions"]) == {version}
    assert compare(peer, array)["columns"] == before[0]
    if sparse:
        assert [compare(peer, array, state)["columns"] for state in states] == before


def test_evolution(tmp_path, peer):
    """Either implementation changes fields, labels and domains, and both continue."""
    array = tmp_path / "array"
    schema = {"dims": [{"name": "x", "dtype": "int32", "domain": [0, 999], "tile": 10, "current": [0, 19]}],
              "fields": [{"name": "v", "dtype": "int32"},
                         {"name": "c", "dtype": "uint8", "enumeration": {"name": "colors", "labels": ["red", "blue"]}}]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    tet("create", array, "--schema", tmp_path / "schema.json", "--timestamp", 1)
    assert peer("current_domain", array) == [[0, 19]]
    rows_to_csv(tmp_path / "cells.csv", ["v", "c"], [[str(x), str(x % 2)] for x in range(20)])
    tet("append", array, tmp_path / "cells.csv", "--timestamp", 10)
    compare(peer, array)
    tet("evolve", array, "--add", "w:float64:zstd", "--extend-enum", "colors=green,gray", "--expand", "x=0..29", "--timestamp", 20)
    assert peer("current_domain", array) == [[0, 29]]
    assert peer("enumeration", array, name="colors") == ["red", "blue", "green", "gray"]
    compare(peer, array)
    tet("append", array, tmp_path / "cells.csv", "x=10:30", "--timestamp", 25, code=3)
    rows_to_csv(tmp_path / "more.csv", ["v", "c", "w"], [[str(x), str(x % 4), repr(x / 4)] for x in range(20)])
    tet("append", array, tmp_path / "more.csv", "x=10:30", "--timestamp", 30)
    before = compare(peer, array)["columns"]
    peer("evolve", array, timestamp=40, add=[["z", "int16"]], drop=["v"])
    assert "v" not in compare(peer, array)["columns"]
    tet("evolve", array, "--drop", "z", "--timestamp", 50)
    tet("consolidate", array)
    tet("vacuum", array, "--apply")
    after = compare(peer, array)["columns"]
    assert after == {name: column for name, column in before.items() if name != "v"}
    for wrong in (["--add", "w:int8"], ["--drop", "no"], ["--expand", "x=0..9"], ["--expand", "x=0..2000"],
                  ["--extend-enum", "no=a"], []):
        tet("evolve", array, *wrong, code=(2, 3))


def test_attributes_are_set_and_deleted(tmp_path, peer):
    array = tmp_path / "array"
    tet("create", array, "--dim", "x=0..9/5:int32", "--field", "v:int32")
    done = tet_json("set", "-s", "unit=K,level:=2,share:=0.5", array, "--timestamp", 10)
    assert done["set"] == ["level", "share", "unit"] and done["deleted"] == []
    assert peer("metadata", array) == {"unit": "K", "level": 2, "share": 0.5}
    peer("put_metadata", array, key="unit", value="degC", timestamp=20)
    tet("set", "--delete", "level", "-s", "a.b=1", array, "--timestamp", 30)
    assert peer("metadata", array) == {"unit": "degC", "share": 0.5, "a.b": "1"}
    assert tet_json("info", array)["arrays"][0]["attributes"] == {"unit": "degC", "share": 0.5, "a.b": "1"}
    tet("set", "-s", "a=1", array, tmp_path / "out", code=(2, 7))
    tet("set", array, code=2)


FILTERS = {
    "int32": ["noop", "gzip:9", "zstd:1", "lz4", "bzip2:9", "rle", "delta", "double_delta", "bitshuffle", "byteshuffle", "xor",
              "checksum_md5", "checksum_sha256", "positive_delta", "bit_width_reduction"],
    "float64": [{"name": "float_scale", "scale": 0.5, "offset": 1.0, "width": 4}, {"name": "delta", "reinterpret": "int64"}],
    "string_ascii": ["rle", "dictionary", "gzip"],
    "string_utf8": ["rle", "dictionary", "bzip2"],
}


def test_every_filter(tmp_path, peer):
    """Alone or before a compressor; a tile of whole cells, so that increasing values stay increasing, in chunks of 64 KiB and a remainder."""
    fields, columns = [], []
    for dtype, names in FILTERS.items():
        for i, name in enumerate(names):
            fields.append({"name": f"{dtype}_{i}", "dtype": dtype, "codecs": [name, *(["zstd"] if i % 2 else [])]})
            if dtype == "int32":
                columns.append([str(n // 3) for n in range(18_000)])
            elif dtype == "float64":
                columns.append([repr(n * 0.5) for n in range(18_000)])
            else:
                columns.append([f'"w{n // 7 % 50}"' for n in range(18_000)])
    schema = {"dims": [{"name": "x", "dtype": "int32", "domain": [0, 17_999], "tile": 18_000}], "fields": fields}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    rows_to_csv(tmp_path / "cells.csv", [f["name"] for f in fields], zip(*columns))
    array = tmp_path / "array"
    tet("create", array, "--schema", tmp_path / "schema.json")
    tet("append", array, tmp_path / "cells.csv")
    compare(peer, array)


def test_encrypted_arrays(tmp_path, peer):
    key = "0123456789abcdef0123456789abcdef"
    (tmp_path / "key").write_text(key)
    array = tmp_path / "array"
    options = ["--key-file", tmp_path / "key"]
    tet("create", array, "--dim", "x=0..99/30:int32", "--field", "v:int32:zstd", *options)
    np.save(tmp_path / "v.npy", np.arange(100, dtype="int32"))
    tet("append", array, tmp_path / "v.npy", *options)
    assert peer("encrypted", array, key=key, name="v") == list(range(100))
    assert np.frombuffer(tet("cat", array, "--raw", *options), "int32").tolist() == list(range(100))
    tet("cat", array, "--raw", code=(2, 4, 5))


def test_rows_that_would_lose_something_are_refused(tmp_path):
    """Unknown columns, surplus values, and coordinates that do not match the position of a dense cell."""
    sparse, dense, cells = tmp_path / "sparse", tmp_path / "dense", tmp_path / "cells.csv"
    tet("create", sparse, "--sparse", "--dim", "x=0..9/5:int32", "--field", "v:int32?")
    tet("create", dense, "--dim", "y=2010-01-01..2010-01-02/2:datetime64[D]", "--dim", "x=2011-01-01..2011-01-03/2:datetime64[D]", "--field", "v:int32")
    refused = {"x,v,w\n1,2,3\n": "w", "x,v,v\n1,2,3\n": "duplicate column", "x,v\n1\n": "line 2", "x,v\n1,2\n2,3,4\n": "line 3"}

    def refusal(array):
        done = subprocess.run([TET, "append", array, cells], capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    for text, why in refused.items():
        cells.write_text(text)
        assert why in refusal(sparse)
    assert tet("cat", sparse, "--format", "csv").split() == [b"x,v"]
    places = [(day, x) for day in ("2010-01-01", "2010-01-02") for x in ("2011-01-01", "2011-01-02", "2011-01-03")]
    rows = [f"{day},{x},{v}" for v, (day, x) in enumerate(places)]
    for wrong in ([*rows[:4], rows[5], rows[4]], rows[3:] + rows[:3]):
        cells.write_text("\n".join(["y,x,v", *wrong]))
        assert "row-major order" in refusal(dense)
    cells.write_text("\n".join(["y,x,v", *rows]))
    tet("append", dense, cells)
    assert tet("cat", dense, "--format", "csv").decode().split() == ["y,x,v", *rows]
    # Printed output can be appended again, also for a part of the array.
    cells.write_bytes(tet("cat", dense, "y=1", "x=1:3", "--format", "csv"))
    tet("append", dense, cells, "y=1", "x=1:3")
    assert tet("cat", dense, "--format", "csv").decode().split() == ["y,x,v", *rows]


@pytest.mark.parametrize("rows, columns", [("3:203", "0:50"), ("0:200", "5:50")])
def test_a_large_npy_file_is_appended_in_slabs(tmp_path, rows, columns):
    """The file is larger than the memory limit: whole chunks of it are read and written one after another."""
    start, end = map(int, rows.split(":"))
    left, right = map(int, columns.split(":"))
    cells = np.random.default_rng(2).random((end - start, right - left, 40))
    np.save(tmp_path / "cells.npy", cells)
    array = tmp_path / "array"
    tet("create", array, "--dim", "t=0..299/8:int32", "--dim", "x=0..49/16:int32", "--dim", "y=0..39/40:int32", "--field", "v:float64:zstd")
    tet("append", array, tmp_path / "cells.npy", f"t={rows}", f"x={columns}", "--memory", "2MiB")
    assert cells.nbytes > 2 << 20
    assert tet("cat", array, f"t={rows}", f"x={columns}", "--raw") == cells.tobytes()
    assert tet_json("verify", array, "--deep")["ok"]
    with tiledb.open(str(array)) as theirs:
        assert (theirs[start:end, left:right, :]["v"] == cells).all()


def test_details_list_a_thousand_fragments(tmp_path):
    """The report of an array of very many fragments is bounded; it has their number."""
    subprocess.run([EXAMPLES / "soak", "fragments", tmp_path / "a", "1010", "dense"], check=True, capture_output=True)
    info = tet_json("info", tmp_path / "a")["tiledb"]
    assert (info["fragment_count"], len(info["fragments"])) == (1010, 1000)
    assert len(tet_json("log", tmp_path / "a")["versions"]) == 1010
