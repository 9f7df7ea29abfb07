#!/usr/bin/env python3
"""Times reads of a cube from an object store with latency and limited connections, compared with other libraries.

    target/bench-venv/bin/python bench/stores.py [--latency 50] [--rate 200] [--repeat 5] [--quick] [--out FILE]

A server on loopback waits before each answer and sends each connection's bytes at a limited rate. It shares the processor with the clients,
so it does little: the kernel copies files to sockets and paces them (Linux). The cube has 250 MB in 320 chunks.
Every row is the median of the repetitions; the libraries take turns, each repetition with new handles. `object_store` is the crate
that makes the requests, through obstore: the same bytes in requests of one chunk, with the best of several numbers of threads.
Other libraries may make as many requests at the same time as Tesseral does. All cells are compared with the expected ones in the first
repetition, outside of the measured time. Libraries that are not installed are left out, and named in the output. `--quick` is a small cube, once:
it checks that everything works.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import socket
import socketserver
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse
from xml.sax.saxutils import escape

SHAPE, CHUNK = (1000, 250, 250), (25, 125, 63)
QUICK = (100, 250, 250)
WINDOW = (slice(60, 68), slice(32, 64), slice(32, 64))
# Requests under way at the same time, of every library that has a setting for it.
PARALLEL = 32
# Bytes per second of a connection, on Linux; Python has no name for it.
SO_MAX_PACING_RATE = 47


class Handler(socketserver.StreamRequestHandler):
    """Path-style S3, read only: ranges, lengths and listings, without checks of signatures."""

    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("Q", int(self.server.rate)))

    def handle(self):
        while True:
            line = self.rfile.readline(65536).decode()
            if not line.strip():
                return
            method, target, _ = line.split(" ", 2)
            headers = {}
            while (line := self.rfile.readline(65536).decode().strip()) != "":
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            time.sleep(self.server.latency)
            path, _, query = target.partition("?")
            parts = urllib.parse.unquote(path).strip("/").split("/", 1)
            arguments = urllib.parse.parse_qs(query, keep_blank_values=True)
            if len(parts) == 1 or "list-type" in arguments:
                self.reply(200, self.listing(arguments), method)
            else:
                self.object(method, parts[1], headers)

    def reply(self, status, body, method, **headers):
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode() + (body if method != "HEAD" else b""))

    def listing(self, arguments):
        prefix = arguments.get("prefix", [""])[0]
        delimiter = arguments.get("delimiter", [""])[0]
        most = int(arguments.get("max-keys", ["1000"])[0])
        after = arguments.get("continuation-token", arguments.get("start-after", [""]))[0]
        found, folders = [], []
        for name, size in self.server.names:
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folder = prefix + rest.split(delimiter, 1)[0] + delimiter
                if folder not in folders:
                    folders.append(folder)
            else:
                found.append((name, size))
        # Entries in the order of their names, of which a page is answered.
        entries = sorted([(name, size) for name, size in found] + [(folder, None) for folder in folders])
        entries = [entry for entry in entries if entry[0] > after]
        page, more = entries[:most], len(entries) > most
        out = ["<?xml version='1.0'?><ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"]
        out.append(f"<Name>b</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{most}</MaxKeys>")
        out.append(f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>")
        if more:
            out.append(f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>")
        for name, size in page:
            if size is None:
                out.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                out.append(f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>")
                out.append(f'<ETag>"x{size}"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>')
        return "".join([*out, "</ListBucketResult>"]).encode()

    def object(self, method, name, headers):
        path = os.path.join(self.server.folder, name)
        if not os.path.isfile(path):
            return self.reply(404, b"<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>", method)
        size = os.path.getsize(path)
        start, end, status, more = 0, size, 200, []
        if asked := re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", "")):
            first, last = asked.groups()
            start = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
            if start >= size:
                return self.reply(416, b"", method)
            status, more = 206, [f"Content-Range: bytes {start}-{end - 1}/{size}"]
        lines = [f"HTTP/1.1 {status} x", f"Content-Length: {end - start}", f'ETag: "x{size}"', "Accept-Ranges: bytes"]
        lines += ["Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT", *more]
        self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if method == "HEAD":
            return None
        with open(path, "rb") as file:
            while start < end:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)
        return None


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


def serve(folder, port, latency, rate):
    with Server(("127.0.0.1", port), Handler) as server:
        server.folder, server.latency, server.rate = folder, latency, rate
        names = [os.path.join(at, name) for at, _, files in os.walk(folder) for name in files]
        server.names = sorted((os.path.relpath(name, folder), os.path.getsize(name)) for name in names)
        server.serve_forever()


def timed(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def object_store(endpoint, path, size, parts, threads):
    """Seconds for all bytes of an object in requests of one chunk."""
    import obstore
    from obstore.store import S3Store

    config = {"access_key_id": "x", "secret_access_key": "x", "endpoint": endpoint, "region": "us-east-1"}
    store = S3Store("b", config=config, client_options={"allow_http": True})
    part = -(-size // parts)
    ranges = [(start, min(size, start + part)) for start in range(0, size, part)]

    def work():
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda r: obstore.get_range(store, path, start=r[0], end=r[1]), ranges))

    return timed(work)


def cases(endpoint):
    """Named functions that open, read the window and read everything, with the seconds of each, and the libraries that are missing."""
    import numpy as np
    import tesseral

    options = {"access_key_id": "x", "secret_access_key": "x", "endpoint": endpoint, "region": "us-east-1"}
    cells = np.load("cube.npy", mmap_mode="r")
    missing, checked = [], set()

    def measured(name, open_array):
        began = time.perf_counter()
        array = open_array()
        opened = time.perf_counter()
        window = np.asarray(array[WINDOW])
        read = time.perf_counter()
        np.testing.assert_array_equal(window, cells[WINDOW])
        before = time.perf_counter()
        everything = array[:]
        took = time.perf_counter() - before
        if name not in checked:
            np.testing.assert_array_equal(everything, cells)
            checked.add(name)
        return opened - began, read - opened, took

    def ours(name):
        def run():
            def open_array():
                container = tesseral.open(f"s3://b/{name}", storage_options=options)
                return container[next(iter(container))]

            return measured(name, open_array)

        return run

    found = {f"tesseral {name}": ours(name) for name in ("cube.tet", "cube.tdb", "cube.zarr")}
    try:
        import tiledb

        settings = {
            "vfs.s3.endpoint_override": endpoint.removeprefix("http://"),
            "vfs.s3.scheme": "http",
            "vfs.s3.use_virtual_addressing": "false",
            "vfs.s3.region": "us-east-1",
            "vfs.s3.aws_access_key_id": "x",
            "vfs.s3.aws_secret_access_key": "x",
            "vfs.s3.max_parallel_ops": str(PARALLEL),
            "sm.io_concurrency_level": str(PARALLEL),
        }

        class Opened:
            def __init__(self):
                self.array = tiledb.open("s3://b/cube.tdb", ctx=tiledb.Ctx(settings))

            def __getitem__(self, key):
                cells = self.array[key]
                return next(iter(cells.values())) if isinstance(cells, dict) else cells

        found["tiledb cube.tdb"] = lambda: measured("tiledb", Opened)
    except ImportError as error:
        missing.append(str(error))
    try:
        import zarr
        from obstore.store import S3Store
        from zarr.storage import ObjectStore

        zarr.config.set({"async.concurrency": PARALLEL})

        def opened_zarr():
            config = {"access_key_id": "x", "secret_access_key": "x", "endpoint": endpoint, "region": "us-east-1"}
            store = S3Store("b", prefix="cube.zarr", config=config, client_options={"allow_http": True})
            group = zarr.open(ObjectStore(store, read_only=True), mode="r")
            return group if isinstance(group, zarr.Array) else group[next(iter(group.array_keys()))]

        found["zarr with obstore"] = lambda: measured("zarr", opened_zarr)
    except ImportError as error:
        missing.append(str(error))
    try:
        import icechunk
        import zarr

        def opened_icechunk():
            settings = {"access_key_id": "x", "secret_access_key": "x", "endpoint_url": endpoint, "region": "us-east-1"}
            storage = icechunk.s3_storage(bucket="b", prefix="cube.ice", allow_http=True, force_path_style=True, **settings)
            session = icechunk.Repository.open(storage).readonly_session("main")
            return zarr.open_group(session.store, mode="r")["cube"]

        found["icechunk"] = lambda: measured("icechunk", opened_icechunk)
    except ImportError as error:
        missing.append(str(error))
    return found, missing


def write_icechunk(cube):
    """Writes the cube with the same chunks, without a codec."""
    try:
        import icechunk
        import zarr
    except ImportError:
        return
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage("cube.ice"))
    session = repository.writable_session("main")
    group = zarr.group(session.store)
    array = group.create_array("cube", shape=cube.shape, chunks=CHUNK, dtype=cube.dtype, compressors=None)
    array[:] = cube
    session.commit("cube")


def report(given, shape, parts, repeat, raw, rows, missing):
    """The figures as a table, and the goals."""
    medians = {name: [statistics.median(column) for column in zip(*times)] for name, times in rows.items()}
    best = min(statistics.median(times) for times in raw.values())
    at = min(raw, key=lambda threads: statistics.median(raw[threads]))
    latency = given.latency / 1000
    lines = ["# Reads from an object store beside other libraries\n"]
    lines.append(f"- float32 {list(shape)} in {parts} chunks of {list(CHUNK)}, {4 * shape[0] * shape[1] * shape[2] / 1e6:.0f} MB, raw; median of {repeat}")
    lines.append(f"- {given.latency:g} ms before each answer, {given.rate:g} MB/s for a connection; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    lines.append(f"- `object_store`, the same bytes in {parts} ranges with {at} threads: {best:.3f} s")
    lines += [f"- left out: {name}" for name in missing]
    if given.quick:
        lines.append("- **quick run**: the figures mean nothing")
    lines += ["", "| library | open, ms | window, ms | open + window, ms | all, s | window, latencies | of object_store |", "|---|---|---|---|---|---|---|"]
    for name, (opened, window, whole) in medians.items():
        columns = [f"{opened * 1e3:.0f}", f"{window * 1e3:.0f}", f"{(opened + window) * 1e3:.0f}", f"{whole:.2f}"]
        lines.append(f"| {name} | {' | '.join(columns)} | {window / latency:.2f} | {best / whole:.0%} |")
    lines += ["", "| goal | measured | |", "|---|---|---|"]

    def goal(text, value, unit, least=None, most=None):
        reached = value >= least if least is not None else value <= most
        lines.append(f"| {text} | {value:.2f}{unit} | {'reached' if reached else '**missed**'} |")

    for name, (opened, window, whole) in medians.items():
        if not name.startswith("tesseral"):
            continue
        goal(f"{name}: full read ≥ 90 % of object_store", best / whole, "", least=0.9)
        goal(f"{name}: window ≤ 1.2 latencies", window / latency, "", most=1.2)
        for other, least, own in (("tiledb cube.tdb", 3, "cube.tdb"), ("zarr with obstore", 1.5, "cube.zarr"), ("icechunk", 1.5, "cube.zarr")):
            if other in medians and name.endswith(own):
                goal(f"{name}: open + window ≥ {least}× {other}", sum(medians[other][:2]) / (opened + window), "×", least=least)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=50, help="milliseconds before each answer")
    parser.add_argument("--rate", type=float, default=200, help="megabytes per second of a connection")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tet", default=os.environ.get("TET_BIN", "target/release/tet"))
    parser.add_argument("--quick", action="store_true", help="a small cube, once")
    parser.add_argument("--out", help="write the tables to this file, too")
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "PORT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        return serve(given.serve[0], int(given.serve[1]), given.latency / 1000, given.rate * 1e6)
    import numpy as np

    tet = os.path.abspath(given.tet)
    out = given.out and os.path.abspath(given.out)
    shape, repeat = (QUICK, 1) if given.quick else (SHAPE, given.repeat)
    parts = 1
    for extent, chunk in zip(shape, CHUNK):
        parts *= -(-extent // chunk)
    folder = tempfile.mkdtemp(prefix="tesseral-bench-")
    script = os.path.abspath(__file__)
    os.chdir(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = None
    try:
        np.save("cube.npy", np.random.default_rng(1).normal(size=shape).astype("float32"))
        chunks = ",".join(map(str, CHUNK))
        for name in ("cube.tet", "cube.tdb", "cube.zarr"):
            subprocess.run([tet, "convert", "cube.npy", name, "--chunk", chunks, "--codec", "raw"], check=True)
        write_icechunk(np.load("cube.npy"))
        limits = ["--latency", str(given.latency), "--rate", str(given.rate)]
        server = subprocess.Popen([sys.executable, script, "--serve", folder, str(port), *limits])
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        endpoint = f"http://127.0.0.1:{port}"
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        size = os.path.getsize("cube.tet")
        rows, raw = {}, {}
        named, missing = cases(endpoint)
        for number in range(repeat):
            for threads in (8, 16, 32, 64):
                raw.setdefault(threads, []).append(object_store(endpoint, "cube.tet", size, parts, threads))
            # In the other direction every second time.
            for name in list(named)[:: -1 if number % 2 else 1]:
                rows.setdefault(name, []).append(named[name]())
        text = report(given, shape, parts, repeat, raw, {name: rows[name] for name in named}, missing)
        print(text)
        if out:
            with open(out, "w", encoding="utf-8") as file:
                file.write(text)
    finally:
        if server is not None:
            server.kill()
            server.wait()
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
