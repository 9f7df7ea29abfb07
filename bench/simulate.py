#!/usr/bin/env python3
"""Replays plans of large arrays, datasets and catalogs against a model of an object store: the tables of docs/scale.md.

    bench/simulate.py            print the tables
    bench/simulate.py --write    replace them in docs/scale.md
    bench/simulate.py --measure  compare the sizes below with files of growing size, which `tet` reads from a server (--tet, --latency)

What is measured: bytes of metadata for each chunk, fragment, source and message (`FACTS`), and requests and rounds of operations. What is
modeled: a store's latency, bandwidth and limit of requests (`Store`), and how many of the measured sizes a large array has. A plan is a list
of rounds, each a number of requests of one size. Requests of a round are replayed one by one on the connections of a client, in order; those
beyond the first 20,000 follow at the rate that these reached. The simulation has no random numbers: it prints the same tables everywhere.
"""

import argparse
import heapq
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/scale.md"

#: Bytes of metadata, as `--measure` finds them.
FACTS = {
    # Row of the chunk index and digest of the chunk, which opening a `.tet` file reads.
    "tet, chunk": 112,
    # Footer and list of tile offsets of a fragment, which opening an array reads, one request each.
    "tiledb, fragment": 2784,
    # Footer in consolidated metadata of fragments, and name in consolidated commits.
    "tiledb, consolidated fragment": 123,
    # Offset and other lists of a tile, which a plan reads from the fragments that it touches.
    "tiledb, tile": 12,
    # Entry of the chunk table of an index.
    "index, chunk": 24,
    # Path, state and piece of a source with a short name.
    "index, source": 69,
}

#: Limits of the library: metadata that one object may need, chunks of one plan.
METADATA, PLAN = 1 << 30, 64 << 20
#: Metadata requests and payload requests of a client under way at the same time.
CONNECTIONS, AHEAD = 64, 32
#: Keys in one answer of a listing, whose pages follow one another.
PAGE_OF_KEYS = 1000
#: Requests that are replayed one by one.
REPLAYED = 20_000


@dataclass(frozen=True)
class Store:
    """An object store as one client sees it. Prices are in US dollars, as of Amazon S3 in one of its regions."""

    latency: float = 0.05
    connection: float = 80e6
    client: float = 1.25e9
    requests: float = 5500
    price: float = 0.4e-6


STORE = Store()


@dataclass(frozen=True)
class Round:
    """Requests that do not depend on one another."""

    count: int
    size: float
    connections: int = CONNECTIONS


def listing(keys):
    """Pages of a listing, one after the other."""
    return [Round(1, 100 * PAGE_OF_KEYS, 1)] * max(1, -(-keys // PAGE_OF_KEYS))


def replay(rounds, store=STORE):
    """Seconds, requests and bytes of a plan."""
    seconds = requests = size = 0
    known = {}
    for each in rounds:
        if each not in known:
            known[each] = replay_round(each, store)
        seconds += known[each]
        requests += each.count
        size += each.count * each.size
    return seconds, requests, size


def replay_round(each, store):
    if each.count == 0:
        return 0.0
    busy = min(each.connections, each.count)
    rate = min(store.connection, store.client / busy)
    takes = store.latency + each.size / rate
    free = [0.0] * busy
    at, end = -1 / store.requests, 0.0
    count = min(each.count, REPLAYED)
    for _ in range(count):
        # A connection is free, and the limit of requests permits one.
        at = max(heapq.heappop(free), at + 1 / store.requests)
        end = at + takes
        heapq.heappush(free, end)
    # The rest at the rate of those, without the first wait.
    return end + (each.count - count) * (end - takes) / max(1, count - 1)


# ---- designs ----

MIB = 1 << 20
FIRST = [Round(3, 64 << 10)]


def tet(chunks):
    """Rounds of opening a `.tet` file, and those of finding chunks in it."""
    size = chunks * FACTS["tet, chunk"]
    # Index and digests are two requests of one round, of which the index, 104 bytes for each chunk, takes longer.
    return FIRST + ([Round(1, chunks * 104)] if size > 128 << 10 else []), [], size


def tiledb(chunks, fragments=1, together=False):
    """The same of a TileDB array. The window touches one fragment."""
    if together:
        opened = [Round(2, fragments * FACTS["tiledb, consolidated fragment"] / 2)]
    else:
        opened = [Round(fragments, FACTS["tiledb, fragment"])]
    # The first page is requested with the first contact.
    listed = listing(1 if together else fragments)[1:]
    size = fragments * FACTS["tiledb, consolidated fragment" if together else "tiledb, fragment"]
    tiles = chunks // fragments * FACTS["tiledb, tile"]
    return [*FIRST, *listed, *opened], [Round(1, tiles)], size + tiles


def index(chunks, sources):
    size = chunks * FACTS["index, chunk"] + sources * FACTS["index, source"]
    return FIRST + ([Round(1, size)] if size > 128 << 10 else []), [Round(3, 64 << 10)], size


def zarr(chunks):
    """One object for each chunk: no index, a request for the length of each chunk before its cells."""
    return [*FIRST, Round(2, 2000)], None, 0


def window(design, touched=8, size=MIB):
    opened, located, _ = design
    if located is None:
        located = [Round(touched, 0)]
    return [*opened, *located, Round(touched, size, AHEAD)]


# ---- output ----


def number(n):
    """A power of ten if it is one."""
    text = f"{n:.0e}"
    return f"10^{int(text[2:])}" if n >= 10_000 and n == int(text[0]) * 10 ** int(text[2:]) and text[0] == "1" else f"{n:,}"


def seconds(t):
    for limit, unit, size in ((0.9995, "ms", 1e-3), (120, "s", 1), (7200, "min", 60), (48 * 3600, "h", 3600)):
        if t < limit:
            return f"{t / size:.3g} {unit}"
    return f"{t / 86400:,.0f} days"


def amount(size):
    for unit, step in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= step:
            return f"{size / step:.3g} {unit}"
    return f"{size:.0f} B"


def dollars(price):
    return f"{price:,.0f} $" if price >= 10 else f"{price:.2f} $" if price >= 0.01 else f"{price:.1e} $".replace("e-0", "e-")


def table(header, rows):
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def one_array():
    """Opening, and a window of eight chunks of 1 MiB, of arrays of growing size in different designs."""
    rows = []
    for chunks in (10**5, 10**6, 10**7, 10**9):
        parts = max(1, chunks // 10**5)
        designs = {
            "one `.tet` file": (tet(chunks), 1),
            "TileDB, one fragment": (tiledb(chunks), 5),
            "TileDB, fragments of 10^5 tiles": (tiledb(chunks, parts), 2 + 3 * parts),
            "the same, consolidated metadata": (tiledb(chunks, parts, True), 4 + 2 * parts),
            "index over files of 10^5 chunks": (index(chunks, parts), 1 + parts),
            "Zarr, an object for each chunk": (zarr(chunks), 2 + chunks),
        }
        for name, (design, objects) in designs.items():
            took, requests, _ = replay(window(design))
            held = design[2]
            # Of a `.tet` file, the limit concerns the index without the digests.
            counted = chunks * 104 if "`.tet`" in name else held
            fits = "no: limit" if counted > METADATA else "slow" if took > 5 else "yes"
            rows.append([number(chunks), name, f"{objects:,}", amount(held), seconds(took), f"{requests:,}", fits])
    return table(["chunks", "design", "objects", "metadata read", "open + window", "requests", "interactive"], rows)


def fragments():
    """Opening arrays of many fragments."""
    rows = []
    for count in (10, 100, 1000, 10**4, 10**5):
        plain, together = tiledb(count * 100, count), tiledb(count * 100, count, True)
        (a, n, size), (b, m, _) = replay(plain[0]), replay(together[0])
        rows.append([number(count), seconds(a), f"{n:,}", amount(size), dollars(n * STORE.price), seconds(b), f"{m:,}"])
    return table(["fragments", "open", "requests", "bytes", "price", "open, consolidated metadata", "requests"], rows)


def compact(policy, appends):
    """Fragments at most and at the end, and how often each cell was written, of a policy of consolidation."""
    sizes, written, most = [], 0, 0
    for _ in range(appends):
        sizes.append(1)
        written += 1
        most = max(most, len(sizes))
        while merged := policy(sizes):
            written += merged
    return most, len(sizes), written / appends


def never(sizes):
    return 0


def everything(at):
    """Merges all fragments when there are so many."""

    def policy(sizes):
        if len(sizes) < at:
            return 0
        sizes[:] = [sum(sizes)]
        return sizes[0]

    return policy


def levels(fan):
    """Merges the last fragments when so many have the same size: `--at-most` and `--max-bytes` of `tet consolidate`."""

    def policy(sizes):
        last = sizes[-fan:]
        if len(last) < fan or len(set(last)) > 1:
            return 0
        sizes[-fan:] = [sum(last)]
        return sizes[-1]

    return policy


def compaction():
    """An append each five minutes for a year."""
    rows = []
    policies = {"never": never, "all, at 1,000": everything(1000), "all, at 100": everything(100), "levels of 32": levels(32), "levels of 8": levels(8)}
    for name, policy in policies.items():
        most, left, factor = compact(policy, 105_120)
        took, requests, _ = replay(tiledb(most * 100, most)[0])
        rows.append([name, f"{most:,}", f"{left:,}", f"{factor:.1f}", seconds(took), f"{requests:,}"])
    return table(["merge", "fragments at most", "after a year", "writes of each cell", "slowest open", "requests"], rows)


def catalog():
    """Files of 100 chunks that an index joins."""
    rows = []
    for files in (10**3, 10**4, 10**5, 10**6, 10**7):
        whole = index(files * 100, files)
        shard = index(10**4 * 100, min(files, 10**4))
        # The list of indexes is a table of one row for each; a query opens two of them.
        sharded = [*FIRST, *([Round(2, shard[2])] if files > 10**4 else [Round(1, whole[2])])]
        (a, _, size), (b, _, part) = replay(whole[0]), replay(sharded)
        state = "no: limit" if whole[2] > METADATA else "slow" if a > 5 else "yes"
        listed, pages, _ = replay(listing(files))
        rows.append([number(files), amount(whole[2]), seconds(a), state, seconds(b), amount(part), seconds(listed), f"{pages:,}"])
    header = ["files", "one index", "open", "interactive", "open, indexes of 10^4 files", "bytes", "list the files instead", "requests"]
    return table(header, rows)


def scans():
    """Reading 1 PB with many workers."""
    rows = []
    for chunk in (64 << 10, MIB, 8 * MIB, 64 * MIB):
        for workers in (1, 100, 1000):
            count = int(1e15 / chunk)
            # Neighboring chunks are one request of up to 4 MiB; larger ones are one request each.
            size = max(chunk, 4 * MIB)
            requests = int(1e15 / size)
            store = Store(requests=STORE.requests / workers)
            took = replay_round(Round(requests // workers, size, AHEAD), store)
            alone = replay_round(Round(count // workers, chunk, AHEAD), store)
            rows.append([amount(chunk), workers, f"{requests:.1e}", seconds(took), dollars(requests * STORE.price), seconds(alone), dollars(count * STORE.price)])
    header = ["chunk", "workers", "requests", "time", "price", "time, a request for each chunk", "price"]
    return table(header, rows)


def queries():
    """Requests, bytes, time and price of queries over an array of 10^6 chunks of 1 MiB, in 10 fragments, opened before."""
    chunks, _ = 10**6, None
    tiles = Round(10, 10**5 * FACTS["tiledb, tile"])
    plans = {
        "a window of 8 chunks": [tiles, Round(8, MIB, AHEAD)],
        "a series through 1,000 chunks": [tiles, Round(1000, MIB, AHEAD)],
        "a map of 1,000 neighboring chunks": [tiles, Round(250, 4 * MIB, AHEAD)],
        "minimum, mean of all cells, from statistics": [tiles, Round(30, 10**5 * 8)],
        "a condition that prunes 99 % of the chunks": [tiles, Round(20, 10**5 * 8), Round(10**4, MIB, AHEAD)],
        "mean of all cells, without statistics": [tiles, Round(chunks // 4, 4 * MIB, AHEAD)],
    }
    rows = []
    for name, plan in plans.items():
        took, requests, size = replay(plan)
        rows.append([name, f"{requests:,}", amount(size), seconds(took), dollars(requests * STORE.price)])
    return table(["query", "requests", "bytes", "time, one machine", "price"], rows)


TABLES = {"array": one_array, "fragments": fragments, "compaction": compaction, "catalog": catalog, "scans": scans, "queries": queries}


def marked(name):
    return re.compile(rf"(<!-- simulated: {name} -->\n)(.*?)(<!-- end -->)", re.S)


# ---- measurements ----


def explained(tet, endpoint, *arguments):
    """What `tet` counted for a command on the server."""
    environment = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    done = subprocess.run([tet, *arguments, "--explain", "--json"], capture_output=True, env={**os.environ, **environment}, check=True)
    return json.loads(done.stdout)["explain"]["counted"]


def generate(tet, folder, chunks, sources):
    """Arrays of one byte for each cell in chunks of 16, files of 100 such chunks with an index, fragments that were appended one by one."""
    header = b"\x93NUMPY\x01\x00"

    def npy(path, cells):
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(cells)},), }}".encode()
        text += b" " * (-(len(text) + 11) % 64) + b"\n"
        path.write_bytes(header + len(text).to_bytes(2, "little") + text + cells)

    for n in chunks:
        npy(folder / "cells.npy", bytes(i % 251 for i in range(16 * n)))
        for format in ("tet", "tdb"):
            run(tet, "convert", folder / "cells.npy", folder / f"{n}.{format}", "--chunk", "16", "--codec", "raw")
    npy(folder / "cells.npy", bytes(1600))
    run(tet, "convert", folder / "cells.npy", folder / "part.tet", "--chunk", "16", "--codec", "raw")
    for n in sources:
        (folder / f"i{n}").mkdir()
        names = [folder / f"i{n}" / f"{at:06}.tet" for at in range(n)]
        for name in names:
            os.link(folder / "part.tet", name)
        run(tet, "mosaic", folder / f"i{n}" / "all.tix", *names, "--new", "day")
    npy(folder / "row.npy", bytes(16))
    for n in (10, 60):
        array = folder / f"f{n}.tdb"
        run(tet, "create", array, "--dim", "x=0..1599/16:int64", "--field", "v:uint8")
        for at in range(n):
            run(tet, "append", array, folder / "row.npy", f"0={16 * at}:{16 * at + 16}")


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")


def measure(tet, latency):
    """Compares the facts with what `tet` reads from a server; returns the differences."""
    folder = Path(tempfile.mkdtemp(prefix="tesseral-scale-"))
    server = None
    try:
        small, large = 20_000, 60_000
        few, many = 100, 500
        generate(tet, folder, (small, large), (few, many))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = ROOT / "bench/stores.py"
        server = subprocess.Popen([sys.executable, script, "--latency", str(latency), "--rate", "10000", "--serve", folder, str(port)])
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        endpoint = f"http://127.0.0.1:{port}"

        def counted(*arguments):
            return explained(tet, endpoint, *arguments)

        def slope(name, first, second, steps, *arguments):
            a, b = (counted(arguments[0], f"s3://b/{at}", *arguments[1:]) for at in (first, second))
            return name, (b["bytes"] - a["bytes"]) / steps, a, b

        steps = large - small
        found = [
            slope("tet, chunk", f"{small}.tet", f"{large}.tet", steps, "info"),
            slope("tiledb, tile", f"{small}.tdb", f"{large}.tdb", steps, "stat", "0=50:90"),
            slope("tiledb, fragment", "f10.tdb", "f60.tdb", 50, "info"),
        ]
        name, each, a, b = slope("index, chunk", f"i{few}/all.tix", f"i{many}/all.tix", (many - few) * 100, "info")
        # A source of 100 chunks: those, and its own entry.
        found += [(name, each - FACTS["index, source"] / 100, a, b), ("index, source", each * 100 - 2400, a, b)]
        wrong = []
        for name, each, a, b in found:
            # TileDB's lists are compressed; names have a few digits more or less.
            near = abs(each - FACTS[name]) <= max(0.06 * FACTS[name], 1)
            print(f"| {name} | {FACTS[name]} | {each:.2f} | {a['rounds']} and {b['rounds']} | {a['requests']} and {b['requests']} |")
            if not near:
                wrong.append(name)
        return wrong
    finally:
        if server is not None:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--tet", default=os.environ.get("TET_BIN", "target/release/tet"))
    parser.add_argument("--latency", type=float, default=20, help="milliseconds before each answer of the server")
    given = parser.parse_args()
    if given.measure:
        print("| | bytes | measured | rounds | requests |\n|---|---|---|---|---|")
        if wrong := measure(os.path.abspath(given.tet), given.latency):
            sys.exit(f"other than stated: {', '.join(wrong)}")
        return
    page = PAGE.read_text(encoding="utf-8") if given.write else ""
    for name, make in TABLES.items():
        text = make()
        if given.write:
            page, count = marked(name).subn(lambda found, text=text: found[1] + text + "\n" + found[3], page)
            assert count == 1, f"docs/scale.md has {count} places for the table {name}"
        else:
            print(f"{name}: {make.__doc__}\n\n{text}\n")
    if given.write:
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
