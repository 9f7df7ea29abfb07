"""Many processes on one array: concurrent writers and readers, and cleanup during reads and writes. Readers see complete
versions; no written data is lost."""

import random
import threading
import time

from common import TET, need, run, tet
from kills import struct_rows

WIDTH = 10


class Crowd:
    """Threads that each run commands; the first failure is kept."""

    def __init__(self):
        self.threads, self.failure, self.over = [], None, threading.Event()

    def start(self, work):
        def guarded():
            try:
                work()
            except Exception as e:  # noqa: BLE001: any failure in a thread is the outcome
                self.failure = self.failure or e
                self.over.set()

        thread = threading.Thread(target=guarded)
        self.threads.append(thread)
        thread.start()
        return thread

    def wait(self, threads):
        for thread in threads:
            thread.join()

    def end(self):
        self.over.set()
        self.wait(self.threads)
        if self.failure:
            raise self.failure


def create(array):
    tet("create", array, "--sparse", "--capacity", "20", "--dim", "x=0..999999/1000:int32", "--field", "v:int32")


def appender(array, folder, first, count):
    """Append rows of one value, ten at a time, so that a partial version is visible."""

    def work():
        for n in range(first, first + count):
            rows = folder / f"rows-{n}.csv"
            rows.write_text("x,v\n" + "".join(f"{n * WIDTH + i},{n}\n" for i in range(WIDTH)))
            tet("append", array, rows)
            rows.unlink()

    return work


def reader(array, crowd, reads):
    """Read until the end: versions are complete, and never fewer than before."""

    def work():
        last = 0
        while not crowd.over.is_set():
            # Columns are read one by one and may be of different versions; each is complete.
            cells = tet("cat", array, "v", "--raw")
            values = [int.from_bytes(cells[i : i + 4], "little") for i in range(0, len(cells), 4)]
            need(all(values.count(v) == WIDTH for v in set(values)), "a version was seen in part")
            need(len(values) >= last, "rows that were there are gone")
            last = len(values)
            reads.append(last)

    return work


def reporter(array, folder, crowd, reports):
    """Runs commands that look at all of an array until it is over: none may call it damaged, or find a file of it missing."""

    def work():
        out = folder / "converted"
        commands = (["stat", array, "v"], ["verify", array, "--deep"], ["info", array, "--json"], ["log", array], ["convert", array, out, "-f"])
        while not crowd.over.is_set():
            for command in commands:
                run(TET, *command)
                reports.append(command[0])

    return work


def soak(name, folder, count, seed=1):
    folder = folder / name
    folder.mkdir()
    array = folder / "array"
    create(array)
    crowd, reads, reports, random_ = Crowd(), [], [], random.Random(seed)
    writers, each = 4, max(1, count // 4)
    writing = [crowd.start(appender(array, folder, w * each, each)) for w in range(writers)]
    for _ in range(2):
        crowd.start(reader(array, crowd, reads))
    crowd.start(reporter(array, folder, crowd, reports))
    cleanings = 0
    if name == "Cleanup":
        while any(t.is_alive() for t in writing) and not crowd.over.is_set():
            parts = [[], ["--part", "fragment-meta"], ["--part", "commits"]]
            cleaning = [[verb, array, *part] for part in parts for verb in ("consolidate", "vacuum")]
            for command in cleaning:
                command += ["--apply"] if command[0] == "vacuum" else []
                # Two concurrent cleanups may conflict with each other, never with a reader.
                run(TET, *command, code=(0, 3, 5, 8))
                cleanings += 1
            time.sleep(random_.uniform(0, 0.05))
    crowd.wait(writing)
    crowd.end()
    x, v = (tet("cat", array, column, "--raw") for column in ("x", "v"))
    wanted = {(n * WIDTH + i, n) for n in range(writers * each) for i in range(WIDTH)}
    need(set(struct_rows(x, v)) == wanted, "what was written is not what is there")
    return {"writes": writers * each, "reads": len(reads), "reports": len(reports), "cleanings": cleanings}


CROWDS = ("Writers", "Cleanup")
