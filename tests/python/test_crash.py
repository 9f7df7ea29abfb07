"""Killed writers, truncated files, flipped bits: the old file or the new one, nothing in between, never a wrong number.

`TESSERAL_KILLS=2000 pytest test_crash.py` kills for longer.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import time

import numpy as np
from support import EXAMPLES, TET, example, random_cells, tet, tet_json, write
from tetwalk import walk

KILLS = int(os.environ.get("TESSERAL_KILLS", "60"))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def leftovers(folder, *known):
    return sorted(p for p in folder.iterdir() if p.name not in known)


def check_leftovers(folder, *known):
    """Files of a killed process have a temporary name, and are not valid data unless they are complete."""
    found = leftovers(folder, *known)
    for path in found:
        assert path.name.startswith(".tesseral-") and path.name.endswith((".tmp", ".staged")), path
        if path.name.startswith(".tesseral-out.tet"):
            opened = subprocess.run([TET, "info", path], capture_output=True).returncode
            # Killed between the last write and the rename, it is a complete file under a temporary name.
            assert opened == 4 or (opened == 0 and tet_json("verify", path)["ok"]), path
        path.unlink()
    return len(found)


def kill_at_random(rng, command, typical, **options):
    """Start a process and kill it at some moment; return whether it was still running."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    time.sleep(rng.uniform(0, 1.1) * typical)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def typical_time(run):
    times = []
    for _ in range(3):
        begun = time.monotonic()
        run()
        times.append(time.monotonic() - begun)
    return sorted(times)[1]


class Writers:
    """Commands that replace `out.tet`, each with the digest of its output."""

    def __init__(self, folder):
        self.out = folder / "data" / "out.tet"
        self.out.parent.mkdir()
        self.commands = [[EXAMPLES / "write_large", self.out, "6", str(seed)] for seed in (1, 2)]
        rng = np.random.default_rng(9)
        for i, codec in enumerate(["raw", "zstd:3"]):
            data = folder / f"{i}.bin"
            rng.integers(0, 1000, 1_500_000, dtype="i4").tofile(data)
            array = {"name": "a", "dtype": "int32", "shape": [1500, 1000], "chunk_shape": [100, 130], "codec": codec}
            array.update(data=str(data), order=["parallel", "canonical"][i])
            recipe = {"out": str(self.out), "overwrite": True, "zone_maps": True, "arrays": [array]}
            path = folder / f"{i}.json"
            path.write_text(json.dumps(recipe))
            self.commands.append([EXAMPLES / "npy_to_tet", path])
        self.digests, self.times = [], []
        for command in self.commands:
            self.times.append(typical_time(lambda: subprocess.run(command, check=True, capture_output=True)))
            self.digests.append(sha256(self.out))


def test_kill_while_replacing(tmp_path):
    rng = random.Random(1)
    writers = Writers(tmp_path)
    out, folder = writers.out, writers.out.parent
    state, kills, torn, replaced = writers.digests[-1], 0, 0, 0
    for attempt in range(20 * KILLS):
        which = attempt % len(writers.commands)
        killed = kill_at_random(rng, writers.commands[which], writers.times[which])
        kills += killed
        now = sha256(out)
        if killed:
            assert now in (state, writers.digests[which]), "neither the old file nor the new one"
            replaced += now != state
        else:
            assert now == writers.digests[which]
        state = now
        assert tet_json("verify", out)["ok"]
        torn += check_leftovers(folder, "out.tet")
        if kills >= KILLS:
            break
    assert kills >= KILLS, f"only {kills} of {attempt + 1} writers were killed in time"
    assert torn > 0, "no kill met a writer at work"
    for command, digest in zip(writers.commands, writers.digests):
        subprocess.run(command, check=True, capture_output=True)
        assert sha256(out) == digest and leftovers(folder) == [out], "a following write is as good as ever"


def test_leftovers_do_not_stand_in_the_way(tmp_path):
    """Leftovers of a killed process do not affect the next one."""
    out = tmp_path / "out.tet"
    cells = np.arange(6, dtype="i4")
    write(tmp_path, out, [{"name": "a", "cells": cells}])
    (tmp_path / ".tesseral-out.tet.1.0.tmp").write_bytes(b"junk")
    write(tmp_path, out, [{"name": "a", "cells": cells + 1}], overwrite=True)
    assert tet("cat", out, "--raw") == (cells + 1).tobytes()
    assert (tmp_path / ".tesseral-out.tet.1.0.tmp").read_bytes() == b"junk"


def test_killed_cat_leaves_no_output(tmp_path):
    rng = random.Random(2)
    source, folder = tmp_path / "big.tet", tmp_path / "data"
    folder.mkdir()
    assert example("write_large", source, "4").returncode == 0
    out = folder / "out.csv"
    command = [TET, "cat", source, "--format", "csv", "-f", "-o", out]
    typical = typical_time(lambda: subprocess.run(command, check=True))
    whole = sha256(out)
    out.unlink()
    kills = 0
    for _ in range(200):
        killed = kill_at_random(rng, command, typical)
        kills += killed
        if out.exists():
            assert sha256(out) == whole
            out.unlink()
        else:
            assert killed
        check_leftovers(folder)
        if kills >= 10:
            break
    assert kills >= 10


# Truncated files ----------------------------------------------------------------------------------------------------------


def three_arrays(folder):
    rng = random.Random(3)
    arrays = [
        {"name": "floats", "cells": random_cells(rng, "float32", (40, 30), "wild"), "chunk_shape": (7, 9), "codec": "raw"},
        {"name": "packed", "cells": random_cells(rng, "int16", (50, 21), "few"), "chunk_shape": (8, 8), "codec": "zstd"},
        {"name": "bytes", "cells": random_cells(rng, "uint8", (900,), "bits"), "chunk_shape": (64,), "codec": "raw"},
    ]
    path = write(folder, folder / "whole.tet", arrays, zone_maps=True, history=[{"op": "write", "source": "t", "at": "0"}])
    return path, {a["name"]: a["cells"] for a in arrays}


def test_recover_saves_every_whole_chunk(tmp_path):
    rng = random.Random(4)
    path, cells = three_arrays(tmp_path)
    walked = walk(path)
    first = min(row.offset for row in walked.rows)
    last = max(row.offset + row.stored for row in walked.rows)
    cuts = [rng.randrange(first, last) for _ in range(16)]
    cuts += [rng.randrange(last, len(walked.data)) for _ in range(4)]
    cuts += [first, last, walked.rows[5].offset, walked.rows[5].offset + 1]
    for cut in cuts:
        torn, saved = tmp_path / "torn.tet", tmp_path / "saved.tet"
        torn.write_bytes(walked.data[:cut])
        assert tet_json("verify", torn, code=1)["ok"] is False
        tet("cat", torn, "floats", "--raw", code=(4, 5))
        lost = {
            (walked.datasets[row.dataset].name, row.coords) for row in walked.rows if row.offset + row.stored > cut
        }
        if len(lost) == len(walked.rows):
            tet("recover", "-f", torn, saved, code=4)
            continue
        report = tet_json("recover", "-f", torn, saved)
        reported = {(f["array"], tuple(f["chunk"])) for f in report["findings"] if f["check"] == "chunk_lost"}
        assert reported == lost, cut
        assert (report["chunks_saved"], report["chunks_lost"]) == (len(walked.rows) - len(lost), len(lost))
        for dataset in walked.datasets:
            whole = cells[dataset.name]
            got = np.frombuffer(tet("cat", saved, dataset.name, "--raw"), dataset.dtype).reshape(whole.shape)
            valid = np.frombuffer(tet("cat", saved, dataset.name, "--validity"), "u1").reshape(whole.shape)
            kept = np.ones(whole.shape, bool)
            for name, coords in lost:
                if name == dataset.name:
                    kept[dataset.tile(coords)] = False
            assert got[kept].tobytes() == whole[kept].tobytes(), (cut, dataset.name)
            assert np.array_equal(valid != 0, kept), (cut, dataset.name)
        assert tet_json("verify", saved)["ok"]


def test_recover_says_when_nothing_is_left(tmp_path):
    path, _ = three_arrays(tmp_path)
    data = path.read_bytes()
    for cut in (0, 3, 31, 40, 200):
        torn, saved = tmp_path / "torn.tet", tmp_path / "saved.tet"
        torn.write_bytes(data[:cut])
        tet("recover", torn, saved, code=4)
        assert not saved.exists() and not leftovers(tmp_path, *(p.name for p in tmp_path.glob("*.*") if p.name[0] != "."))


# Flipped bits --------------------------------------------------------------------------------------------------------


def flip(data, rng, low, high):
    at, bit = rng.randrange(low, high), rng.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return at, bytes(changed)


def test_flips_in_payloads_are_always_caught(tmp_path):
    rng = random.Random(6)
    path, cells = three_arrays(tmp_path)
    walked = walk(path)
    first = min(row.offset for row in walked.rows)
    last = max(row.offset + row.stored for row in walked.rows)
    flipped = tmp_path / "flipped.tet"
    for _ in range(200):
        at, data = flip(walked.data, rng, first, last)
        flipped.write_bytes(data)
        row = next(row for row in walked.rows if row.offset <= at < row.offset + row.stored)
        dataset = walked.datasets[row.dataset]
        report = tet_json("verify", flipped, code=1)
        failed = [f for f in report["findings"] if f["severity"] == "error" and not f["ok"]]
        assert [(f["array"], f["chunk"]) for f in failed] == [(dataset.name, list(row.coords))], at
        assert (failed[0]["offset"], failed[0]["length"]) == (row.offset, row.stored)
        tile = [f"{d}={s.start}:{s.stop}" for d, s in enumerate(dataset.tile(row.coords))]
        tet("cat", flipped, dataset.name, *tile, "--raw", code=5)
        other = next(name for name in cells if name != dataset.name)
        assert tet("cat", flipped, other, "--raw") == cells[other].tobytes(), "sound chunks can still be read"


def test_no_flip_anywhere_gives_a_wrong_number(tmp_path):
    """Superblock, directory, index, digests, footer: values are correct or rejected."""
    rng = random.Random(7)
    path, cells = three_arrays(tmp_path)
    walked = walk(path)
    first = min(row.offset for row in walked.rows)
    last = max(row.offset + row.stored for row in walked.rows)
    flipped = tmp_path / "flipped.tet"
    spans = [(0, first)] * 2 + [(last, len(walked.data))]
    for i in range(150):
        at, data = flip(walked.data, rng, *spans[i % 3])
        flipped.write_bytes(data)
        for name, whole in cells.items():
            done = subprocess.run([TET, "cat", flipped, name, "--raw"], capture_output=True, timeout=60)
            assert b"panicked" not in done.stderr
            if done.returncode == 0:
                assert done.stdout == whole.tobytes(), f"byte {at} changed {name} in silence"
            else:
                assert done.returncode in (3, 4, 5, 6, 7), (at, done.returncode)
