"""Writers killed with SIGKILL at random moments, a thousand times each. A log that is synced before a writer starts and after it
ends defines the expected state: every write that succeeded, and all or nothing of the last one."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

from common import EXAMPLES, TET, need, run, sha256, tet, tet_json


class Log:
    """A log of started and finished writes, synced before anything else happens."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def __call__(self, **what):
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


class Writer:
    """A command that changes a target; `state` returns its state, `wanted` the state after the command."""

    #: Writes to one target before it is recreated.
    rounds = 50

    def __init__(self, folder, rng):
        self.folder, self.rng, self.target = folder, rng, folder / "target"
        folder.mkdir()

    def begin(self):
        """Recreate the target."""

    def cells(self, *names):
        return [tet("cat", self.target, name, "--raw") for name in names]

    def check(self):
        need(tet_json("verify", self.target)["ok"], self.target, "is not sound")

    def after_fault(self, ended_well):
        """Checks what a command left that met an error."""


class TetWrite(Writer):
    """Replaces a .tet file by another."""

    def __init__(self, folder, rng):
        super().__init__(folder, rng)
        self.target = folder / "out.tet"
        self.digests = []
        for seed in (1, 2):
            run(EXAMPLES / "write_large", self.target, "1", seed)
            self.digests.append(sha256(self.target))

    def state(self):
        return sha256(self.target)

    def step(self, n):
        return [EXAMPLES / "write_large", self.target, "1", str(n % 2 + 1)], self.digests[n % 2]


class TgmAppend(Writer):
    """Appends messages to a .tgm file."""

    rounds = 40

    def __init__(self, folder, rng):
        super().__init__(folder, rng)
        self.target, self.message = folder / "out.tgm", folder / "one.tgm"
        run(EXAMPLES / "make_weather", self.message, "tensogram")

    def begin(self):
        shutil.copy(self.message, self.target)

    def state(self):
        # A killed append leaves a truncated message at most; the next one removes it.
        data, whole = self.target.read_bytes(), self.message.read_bytes()
        size, left = divmod(len(data), len(whole))
        need(data == whole * size + whole[:left], "the file holds something else than whole messages and a part of one")
        seen = len(tet_json("info", self.target)["tensogram"]["messages"])
        need(seen == size, f"{size} whole messages, {seen} are found")
        return size

    def step(self, n):
        return [TET, "append", self.target, self.message], self.state() + 1

    def check(self):
        """The file is sound, or the next append makes it so."""
        size = self.state()
        sound = len(self.target.read_bytes()) == size * len(self.message.read_bytes())
        tet("verify", self.target, "-q", code=0 if sound else 1)
        tet("append", self.target, self.message)
        tet("verify", self.target, "-q")
        need(self.state() == size + 1, "appending gave", self.state(), "messages after", size)


    def after_fault(self, ended_well):
        """An error is undone: nothing is left of the append."""
        size, whole = self.target.stat().st_size, self.message.stat().st_size
        need(size % whole == 0, f"{size % whole} bytes of a message are left")
        self.check()


class TgmWrite(Writer):
    """Replaces a .tgm file by another."""

    def __init__(self, folder, rng):
        super().__init__(folder, rng)
        self.target, self.sources, self.digests = folder / "out.tgm", [], []
        for seed in (1, 2):
            source = folder / f"{seed}.tet"
            run(EXAMPLES / "write_large", source, "1", seed)
            self.sources.append(source)
            tet("convert", "-f", source, self.target)
            self.digests.append(tet("cat", self.target, "--raw"))

    def state(self):
        return tet("cat", self.target, "--raw")

    def step(self, n):
        return [TET, "convert", "-f", self.sources[n % 2], self.target], self.digests[n % 2]


class DenseAppend(Writer):
    """Appends whole versions to a dense TileDB array."""

    def begin(self):
        shutil.rmtree(self.target, ignore_errors=True)
        tet("create", self.target, "--dim", "x=0..9999/500:int32", "--field", "v:int32:zstd")

    def state(self):
        return tet("cat", self.target, "--raw")

    def step(self, n):
        cells = self.folder / "cells.npy"
        save_int32(cells, n, 10_000)
        return [TET, "append", self.target, cells], n.to_bytes(4, "little") * 10_000


class SparseAppend(Writer):
    """Appends rows to a sparse TileDB array."""

    def begin(self):
        shutil.rmtree(self.target, ignore_errors=True)
        tet("create", self.target, "--sparse", "--capacity", "20", "--dim", "x=0..99999/100:int32", "--field", "v:int32")

    def state(self):
        return frozenset(struct_rows(*self.cells("x", "v")))

    def step(self, n):
        rows = [(1000 * (n % self.rounds) + i, n) for i in range(50)]
        self.write(rows)
        return [TET, "append", self.target, self.folder / "rows.csv"], self.state() | set(rows)

    def write(self, rows):
        text = "x,v\n" + "".join(f"{x},{v}\n" for x, v in rows)
        (self.folder / "rows.csv").write_text(text)


class Consolidate(SparseAppend):
    """Consolidate a sparse TileDB array of several versions: the cells do not change."""

    rounds = 12
    command = ("consolidate",)

    def begin(self):
        super().begin()
        for version in range(3):
            self.write([(self.rng.randrange(1000) * 100 + i, version) for i in range(60)])
            tet("append", self.target, self.folder / "rows.csv")

    def step(self, n):
        return [TET, *self.command, self.target], self.state()


class Vacuum(Consolidate):
    """Vacuum a consolidated array: the cells do not change."""

    rounds = 6
    command = ("vacuum", "--apply")

    def begin(self):
        super().begin()
        tet("consolidate", self.target)


class Convert(Writer):
    """Converts a .tet file to a TileDB array that replaces another."""

    def __init__(self, folder, rng):
        super().__init__(folder, rng)
        self.sources, self.contents = [], []
        for seed in (1, 2):
            source = folder / f"{seed}.tet"
            run(EXAMPLES / "write_large", source, "1", seed)
            self.sources.append(source)
            self.contents.append(tet("cat", source, "--raw"))

    def begin(self):
        shutil.rmtree(self.target, ignore_errors=True)
        tet("convert", self.sources[1], self.target, "--to", "tiledb")

    def state(self):
        return tet("cat", self.target, "--raw")

    def step(self, n):
        return [TET, "convert", "-f", self.sources[n % 2], self.target, "--to", "tiledb"], self.contents[n % 2]


WRITERS = {w.__name__: w for w in (TetWrite, TgmWrite, TgmAppend, DenseAppend, SparseAppend, Consolidate, Vacuum, Convert)}


def step_of(name, folder, seed):
    """A writer before one step: its random generator, itself, its state, the command, the state after it, and a
    copy of its folder."""
    rng = random.Random(f"{seed} {name}")
    writer = WRITERS[name](folder / name, rng)
    writer.begin()
    old = writer.state()
    command, wanted = writer.step(2)
    before = folder / f"{name}.before"
    shutil.copytree(writer.folder, before)
    return rng, writer, old, command, wanted, before


def struct_rows(x, v):
    number = lambda b: [int.from_bytes(b[i : i + 4], "little", signed=True) for i in range(0, len(b), 4)]
    return zip(number(x), number(v))


def save_int32(path, value, count):
    """A .npy file of one number, without NumPy."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + value.to_bytes(4, "little") * count)


def typical(writer):
    """The approximate duration of a command."""
    times = []
    for n in range(3):
        command, _ = writer.step(n)
        begun = time.monotonic()
        subprocess.run(command, capture_output=True)
        times.append(time.monotonic() - begun)
    return sorted(times)[1]


def kill(command, after):
    """Whether a command succeeded before it was killed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    need(code in (0, -signal.SIGKILL), command, "ended with", code)
    return code == 0


def soak(name, folder, count, seed=1):
    """Kill one writer that many times; return how many kills hit it while running and how often the new state was visible."""
    rng = random.Random(f"{seed} {name}")
    writer = WRITERS[name](folder / name, rng)
    log = Log(folder / f"{name}.log")
    writer.begin()
    span, kills, new, n = typical(writer), 0, 0, 0
    while kills < count:
        if n % writer.rounds == 0:
            writer.begin()
            state = writer.state()
        command, wanted = writer.step(n)
        log(begun=n)
        ended = kill(command, rng.uniform(0, 1.1) * span)
        log(ended=n, well=ended)
        kills += not ended
        now = writer.state()
        need(now == wanted if ended else now in (state, wanted), name, n, "is neither the old state nor the new one")
        new += now == wanted != state and not ended
        state = now
        if n % 10 == 0:
            writer.check()
            state = writer.state()
        n += 1
    return {"writes": n, "kills": kills, "new": new}
