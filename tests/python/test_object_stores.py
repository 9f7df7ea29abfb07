"""Object stores under stress: faults of servers and connections, killed writers, large objects, caches, numbers of requests."""

import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy as np
import pytest

from s3_server import BUCKET, cube, local, s3  # noqa: F401  (fixtures)
from support import TET, example, tet


def keeps_the_contract(url, env=None):
    """Runs the suite of stores on a server."""
    done = example("check_store", url, env=env)
    assert done.returncode == 0, done.stderr


def test_s3_keeps_the_contract_of_stores(s3):
    keeps_the_contract(f"s3://{BUCKET}/contract/of/stores")


def keys(client, prefix):
    return sorted(entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", []))


# A server of which every fault can be requested, for web servers and for S3 (path style, without checks of signatures).


class Content:
    """Bytes that are made when they are read: parts of other bytes, repeated."""

    def __init__(self, part, times):
        self.part, self.times = part, times

    def __len__(self):
        return len(self.part) * self.times

    def __getitem__(self, wanted):
        start, stop, _ = wanted.indices(len(self))
        first, last = start // len(self.part), -(-stop // len(self.part))
        return (self.part * (last - first))[start - first * len(self.part) : stop - first * len(self.part)]


class Server(http.server.BaseHTTPRequestHandler):
    """Serves objects by ranges, after a latency, and with a fault in some of the answers."""

    protocol_version = "HTTP/1.1"
    objects = {}
    fault = None
    latency = 0.0

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        kind = type(self)
        with kind.lock:
            kind.served += 1
            number = kind.served
        time.sleep(kind.latency)
        path, _, query = self.path.partition("?")
        if "list-type=2" in query:
            return self.answer(200, kind.listing, Content_Type="application/xml")
        content = kind.objects.get(path)
        if content is None:
            return self.answer(404)
        etag = '"one"'
        if kind.fault == "storm" and number <= 24 and number % 4:
            return self.answer(503)
        if kind.fault == "expired" and number > 1:
            return self.answer(403, b"<Error><Code>ExpiredToken</Code></Error>")
        if kind.fault == "replaced":
            # With every answer: however few requests an operation needs.
            etag = f'"{number}"'
        if self.headers.get("If-Match", etag) != etag:
            return self.answer(412)
        start, end, status, headers = 0, len(content), 200, {}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked:
            first, last = asked.groups()
            start = int(first) if first else max(0, len(content) - int(last))
            end = min(len(content), int(last) + 1) if first and last else len(content)
            status, headers = 206, {"Content_Range": f"bytes {start}-{end - 1}/{len(content)}"}
        headers |= {"ETag": etag, "Last_Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if self.command == "HEAD":
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            return self.end_headers()
        body = content[start:end]
        slow = kind.fault == "trickle" and number % 3 == 2 or kind.fault == "loris"
        if kind.fault in ("cut", "reset") and number % 2 or slow:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if slow:
                # A byte now and then, for longer than the client waits.
                for byte in body[len(body) // 2 :][: 40 if kind.fault == "trickle" else 600]:
                    time.sleep(0.1)
                    self.wfile.write(bytes([byte]))
            self.close_connection = True
            if kind.fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            return None
        return self.answer(status, body, **headers)


@pytest.fixture
def serve():
    """A function that serves objects by path and returns the class of the server's handler, with its address."""
    servers = []

    def start(objects, **settings):
        empty = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
        attributes = {"objects": objects, "served": 0, "lock": threading.Lock(), "listing": empty, **settings}
        handler = type("Handler", (Server,), attributes)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        handler.address = f"http://127.0.0.1:{server.server_port}"
        return handler

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def environment(address, **more):
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "hidden-password",
        "AWS_REGION": "us-east-1",
        **more,
    }


def run(*arguments, env=None):
    return subprocess.run([TET, *map(str, arguments)], capture_output=True, env=env, timeout=120)


def both(server, name):
    """The same object by both protocols: URL and environment."""
    web = {**os.environ, "TESSERAL_HTTP_TIMEOUT": "1s"}
    return [
        (f"{server.address}/bucket/{name}", web),
        (f"s3://bucket/{name}", environment(server.address, AWS_TIMEOUT="1s")),
    ]


@pytest.mark.parametrize("fault", ["cut", "reset", "storm", "trickle"])
def test_reads_survive_faults_of_both_protocols(serve, local, cube, fault):
    for index in range(2):
        server = serve({"/bucket/cube.tet": (local / "cube.tet").read_bytes()}, fault=fault)
        url, env = both(server, "cube.tet")[index]
        done = run("cat", url, "--raw", env=env)
        assert (done.returncode, done.stdout == cube.tobytes()) == (0, True), (url, done.stderr)


@pytest.mark.parametrize(("fault", "code"), [("replaced", 8), ("expired", 3)])
def test_changes_and_expired_credentials_are_errors(serve, local, tmp_path, fault, code):
    for index in range(2):
        server = serve({"/bucket/cube.tet": (local / "cube.tet").read_bytes()}, fault=fault)
        url, env = both(server, "cube.tet")[index]
        done = run("convert", url, tmp_path / "out.npy", env=env)
        assert done.returncode == code, (url, done.stderr)
        assert not (tmp_path / "out.npy").exists()


def explained(*arguments, env=None):
    done = run(*arguments, "--explain", "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert b"explain: counted" in done.stderr
    return json.loads(done.stdout)["explain"]


def test_rounds_are_explained_before_and_after(serve, local):
    content = {"/bucket/cube.tet": (local / "cube.tet").read_bytes()}
    server = serve(content, latency=0.05)
    url, env = both(server, "cube.tet")[1]
    opened = explained("info", url, env=env)
    assert opened["planned"]["requests"] == 0
    # The beginning, the end, and a listing, because it could be a folder.
    assert (opened["counted"]["rounds"], opened["counted"]["requests"]) == (1, 3)
    served = server.served
    window = explained("cat", url, "0=3:9", env=env)
    assert window["planned"]["rounds"] == 1
    assert window["counted"]["rounds"] <= 2
    assert window["counted"]["requests"] == server.served - served
    assert window["counted"]["requests"] == 3 + window["planned"]["requests"]
    assert window["counted"]["bytes"] >= window["planned"]["bytes"] > 0
    # Files of this machine need no requests.
    here = explained("stat", local / "cube.tet")
    assert here["counted"]["requests"] == here["planned"]["requests"] == 0


def test_metadata_of_a_gigabyte_takes_three_rounds(serve, tmp_path):
    np.save(tmp_path / "field.npy", np.zeros((512, 1024), "float64"))
    tet("convert", tmp_path / "field.npy", tmp_path / "one.tgm", "--codec", "raw")
    message = (tmp_path / "one.tgm").read_bytes()
    content = Content(message, -(-(1 << 30) // len(message)))
    server = serve({"/bucket/large.tgm": content}, latency=0.05)
    url, env = both(server, "large.tgm")[1]
    counted = explained("info", url, env=env)["counted"]
    assert counted["rounds"] <= 3, counted
    assert counted["bytes"] < 64 << 20


def test_a_cache_is_shared_and_never_serves_a_changed_object(s3, local, tmp_path, cube):
    cache = tmp_path / "cache"
    url = f"s3://{BUCKET}/cached/cube.tet"
    s3.upload_file(str(local / "cube.tet"), BUCKET, "cached/cube.tet")
    command = ["cat", url, "--raw", "--cache", cache]
    # Several processes fill it at the same time.
    running = [subprocess.Popen([TET, *map(str, command)], stdout=subprocess.PIPE) for _ in range(4)]
    assert all(process.communicate(timeout=60)[0] == cube.tobytes() for process in running)
    done = run(*command, "--explain")
    assert done.stdout == cube.tobytes() and b"from the cache" in done.stderr
    by_environment = run("cat", url, "--raw", "--explain", env={**os.environ, "TESSERAL_CACHE": str(cache)})
    assert by_environment.stdout == cube.tobytes() and b"from the cache" in by_environment.stderr
    # Damaged entries are not used.
    for path in cache.rglob("*"):
        if path.is_file():
            held = bytearray(path.read_bytes())
            held[-1] ^= 1
            path.write_bytes(held)
    assert run(*command).stdout == cube.tobytes()
    np.save(tmp_path / "other.npy", cube + 1)
    tet("convert", tmp_path / "other.npy", tmp_path / "other.tet", "--chunk", "8,10,60")
    s3.upload_file(str(tmp_path / "other.tet"), BUCKET, "cached/cube.tet")
    assert run(*command).stdout == (cube + 1).tobytes()
    # The size is limited.
    small = tmp_path / "small"
    run("cat", url, "--raw", "--cache", small, "--cache-size", "200kB")
    assert sum(path.stat().st_size for path in small.rglob("*") if path.is_file()) <= 200_000
    assert run("cat", url, "--cache-size", "200kB").returncode == 2


def test_an_index_notices_objects_that_changed_but_for_their_length(s3, tmp_path):
    for name, first in [("one", 0), ("two", 6)]:
        np.save(tmp_path / f"{name}.npy", np.arange(first, first + 6, dtype="i4"))
        s3.upload_file(str(tmp_path / f"{name}.npy"), BUCKET, f"indexed/{name}.npy")
    sources = [f"s3://{BUCKET}/indexed/{name}.npy" for name in ("one", "two")]
    done = run("index", tmp_path / "all.tix", *sources)
    assert done.returncode == 0, done.stderr
    assert run("cat", tmp_path / "all.tix", "two", "--raw").stdout == np.arange(6, 12, dtype="i4").tobytes()
    np.save(tmp_path / "two.npy", np.arange(6, 12, dtype="i4")[::-1])
    s3.upload_file(str(tmp_path / "two.npy"), BUCKET, "indexed/two.npy")
    changed = run("cat", tmp_path / "all.tix", "two", "--raw")
    assert changed.returncode != 0 and b"modified" in changed.stderr and b"two.npy" in changed.stderr, changed
    assert run("cat", tmp_path / "all.tix", "one", "--raw").returncode == 0


def test_large_objects_are_uploaded_in_parts(s3, tmp_path):
    cells = np.random.default_rng(3).integers(0, 2**63, (80, 1 << 17), "int64")
    np.save(tmp_path / "large.npy", cells)
    tet("convert", tmp_path / "large.npy", tmp_path / "large.tet", "--chunk", "10,131072", "--codec", "raw")
    url = f"s3://{BUCKET}/large/large.tet"
    tet("cp", tmp_path / "large.tet", url)
    assert keys(s3, "large/") == ["large/large.tet"]
    assert s3.head_object(Bucket=BUCKET, Key="large/large.tet")["ContentLength"] > 64 << 20
    tet("cp", url, tmp_path / "back.tet")
    assert (tmp_path / "back.tet").read_bytes() == (tmp_path / "large.tet").read_bytes()
    tet("cp", tmp_path / "large.tet", url, code=2)
    tet("cp", tmp_path / "large.tet", url, "-f")


@pytest.mark.parametrize("name", ["killed.tet", "killed.tdb"])
def test_a_killed_writer_leaves_nothing_visible_and_repair_lists_the_rest(s3, local, tmp_path, name):
    """The writer is killed at several moments of its upload, which a proxy in front of the server stops."""
    listener = socket.create_server(("127.0.0.1", 0))
    target = ("127.0.0.1", int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    state = {"puts": 0, "stop": 0, "process": None}

    def pump(source, sink, counted):
        try:
            while data := source.recv(1 << 16):
                if counted:
                    state["puts"] += data.count(b"PUT /")
                    if state["puts"] >= state["stop"]:
                        state["process"].send_signal(signal.SIGKILL)
                        break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(target)
            threading.Thread(target=pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=pump, args=(server, client, False), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    proxied = environment(f"http://127.0.0.1:{listener.getsockname()[1]}")
    killed = 0
    for stop in range(2, 7):
        key = f"kill/{stop}/{name}/{name}"
        url = f"s3://{BUCKET}/{key}"
        state.update(puts=0, stop=stop)
        state["process"] = subprocess.Popen(
            [TET, "convert", str(local / "cube.tet"), url], env=proxied, stderr=subprocess.PIPE, cwd=tmp_path
        )
        state["process"].communicate(timeout=60)
        if state["process"].returncode == 0:
            break
        killed += 1
        assert state["process"].returncode == -signal.SIGKILL
        seen = run("info", url).returncode
        assert seen in (0, 3, 4), seen
        if seen == 0:
            # The last object was sent.
            tet("diff", local / "cube.tet", url)
            continue
        listed = json.loads(tet("repair", url, "--json"))
        assert [step["code"] for step in listed["repairs"]] == ["unfinished_upload"], listed
        tet("convert", local / "cube.tet", url, code=2)
        tet("repair", url, "--apply", "unfinished_upload")
        assert keys(s3, key) == []
        tet("convert", local / "cube.tet", url)
        tet("diff", local / "cube.tet", url)
    listener.close()
    assert killed >= 1


def test_python_writes_by_url_with_given_settings(s3, local, cube, tmp_path, monkeypatch):
    tesseral = pytest.importorskip("tesseral")
    xarray = pytest.importorskip("xarray")
    dask = pytest.importorskip("dask.array")
    import tesseral.dask
    import tesseral.xarray
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    options = {"key": "someone", "secret": "hidden-password", "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    base = f"s3://{BUCKET}/python"

    def opened(path, **more):
        return tesseral.open(path, storage_options=options, **more)

    tesseral.write(f"{base}/a.tet", {"a": cube}, storage_options=options)
    np.testing.assert_array_equal(opened(f"{base}/a.tet")["a"][:], cube)
    with tesseral.create(f"{base}/b.tdb", storage_options=options) as session:
        session.add("a", values=cube, chunks=(8, 10, 60))
    tesseral.append(f"{base}/b.tdb", np.zeros((8, 50, 60), "float32"), region=np.s_[0:8], timestamp=None, storage_options=options)
    tesseral.set_attrs(f"{base}/b.tdb", {"title": "x"}, storage_options=options)
    assert len(tesseral.log(f"{base}/b.tdb", storage_options=options)) >= 2
    tesseral.consolidate(f"{base}/b.tdb", storage_options=options)
    tesseral.vacuum(f"{base}/b.tdb", apply=True, storage_options=options)
    expected = cube.copy()
    expected[0:8] = 0
    with opened(f"{base}/b.tdb") as container:
        np.testing.assert_array_equal(container[next(iter(container))][:], expected)
    tesseral.convert(f"{base}/a.tet", f"{base}/c.tgm", storage_options=options)
    assert not tesseral.diff(f"{base}/a.tet", f"{base}/c.tgm", storage_options=options)
    tesseral.copy(f"{base}/a.tet", f"{base}/d.tet", storage_options=options)
    assert tesseral.verify(f"{base}/d.tet", storage_options=options).ok
    tesseral.recover(f"{base}/a.tet", f"{base}/e.tet", storage_options=options)
    assert not tesseral.diff(f"{base}/a.tet", f"{base}/e.tet", storage_options=options)
    dataset = xarray.Dataset({"a": (("t", "y", "x"), cube)}, {"t": np.arange(40)})
    for write, end in (("to_tet", "tet"), ("to_tiledb", "tdb")):
        getattr(dataset.tesseral, write)(f"{base}/x.{end}", storage_options=options)
        again = xarray.open_dataset(f"{base}/x.{end}", engine="tesseral", chunks={}, storage_options=options)
        xarray.testing.assert_identical(again.compute(), dataset)
    later = dataset.assign_coords(t=np.arange(40, 80))
    later.tesseral.to_tet(f"{base}/x.tet", append_dim="t", storage_options=options)
    again = xarray.open_dataset(f"{base}/x.tet", engine="tesseral", storage_options=options)
    xarray.testing.assert_identical(again.compute(), xarray.concat([dataset, later], "t"))
    blocks = dask.from_array(cube, chunks=(8, 50, 60))
    for end in ("tet", "tdb"):
        tesseral.dask.store({"a": blocks}, f"{base}/dask.{end}", storage_options=options)
        with opened(f"{base}/dask.{end}") as container:
            np.testing.assert_array_equal(container[next(iter(container))][:], cube)
    frame = {"x": np.arange(10, dtype="int64"), "v": np.arange(10.0)}
    tesseral.write_cells(f"{base}/table.tdb", frame, "x", storage_options=options)
    tesseral.delete(f"{base}/table.tdb", "v > 5", storage_options=options)
    with opened(f"{base}/table.tdb") as container:
        assert len(container[next(iter(container))].to_arrow()) == 6
    with opened(f"{base}/a.tet", cache=tmp_path / "cache") as container:
        np.testing.assert_array_equal(container["a"][:], cube)
    assert any((tmp_path / "cache").rglob("*-*"))


def test_file_systems_and_stores_of_other_libraries_are_sources(s3, local, cube, monkeypatch):
    import pickle

    tesseral = pytest.importorskip("tesseral")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    s3.upload_file(str(local / "cube.tet"), BUCKET, "others/cube.tet")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    import fsspec
    import obstore.store

    class FileSystem(fsspec.AbstractFileSystem):
        """Has the names and settings of s3fs, whose requirements exclude those of the server."""

        protocol = ("s3", "s3a")

    given = {"key": "someone", "secret": "hidden-password", "endpoint_url": endpoint, "use_listings_cache": False}
    fs = FileSystem(**given, client_kwargs={"region_name": "us-east-1", "verify": True})
    settings = {"access_key_id": "someone", "secret_access_key": "hidden-password", "endpoint": endpoint, "region": "us-east-1"}
    store = obstore.store.S3Store(BUCKET, prefix="others", config=settings, client_options={"allow_http": True})
    path = f"{BUCKET}/others/cube.tet"
    sources = [(fs, path), fs.get_mapper(path), fsspec.core.OpenFile(fs, path), (store, "cube.tet")]
    sources.append(obstore.store.S3Store(BUCKET, prefix="others/cube.tet", config=settings, client_options={"allow_http": True}))
    sources.append((obstore.store.LocalStore(local), "cube.tet"))
    sources += [fsspec.open(f"file://{local / 'cube.tet'}"), (fsspec.filesystem("file"), str(local / "cube.tet"))]
    for source in sources:
        with tesseral.open(source) as container:
            np.testing.assert_array_equal(container[next(iter(container))][:], cube)
            assert b"hidden-password" not in pickle.dumps(container)
    with pytest.raises(tesseral.UnsupportedError):
        tesseral.open((fsspec.filesystem("memory"), "x"))
    with pytest.raises(TypeError):
        tesseral.open(7)


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    """An Azure server, as `scripts/test` installs it, and the environment that reaches it."""
    script = os.environ.get("TESSERAL_AZURITE")
    if not script or not shutil.which("node"):
        pytest.skip("needs Azurite, which scripts/test installs where npm is available")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("azure")
    server = subprocess.Popen(
        ["node", script, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder, "--skipApiVersionCheck", "--silent"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert server.poll() is None, "the Azure server ended"
            time.sleep(0.05)
    # The public account of every such server.
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    endpoint = f"http://127.0.0.1:{port}/{account}"
    yield {"AZURE_STORAGE_ACCOUNT_NAME": account, "AZURE_STORAGE_ACCOUNT_KEY": key, "AZURE_STORAGE_ENDPOINT": endpoint}, port
    server.kill()
    server.wait()


def create_container(settings, port, name):
    """Creates a container by a signed request."""
    import base64
    import hashlib
    import hmac
    import http.client

    account, now = settings["AZURE_STORAGE_ACCOUNT_NAME"], time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    lines = ["PUT", *[""] * 11, f"x-ms-date:{now}", "x-ms-version:2021-08-06", f"/{account}/{account}/{name}", "restype:container"]
    key = base64.b64decode(settings["AZURE_STORAGE_ACCOUNT_KEY"])
    signature = base64.b64encode(hmac.new(key, "\n".join(lines).encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06", "Authorization": f"SharedKey {account}:{signature}"}
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/{account}/{name}?restype=container", headers={**headers, "Content-Length": "0"})
    assert connection.getresponse().status == 201


def test_azure_reads_writes_and_appends(azure, local, tmp_path):
    settings, port = azure
    create_container(settings, port, "data")
    env = {**os.environ, **settings}
    keeps_the_contract("az://data/contract", env)
    for name in ["cube.tet", "cube.tgm", "cube.tdb"]:
        url = f"az://data/{name}"
        for command in (["convert", local / name, url], ["verify", url], ["diff", local / name, url]):
            done = run(*command, env=env)
            assert done.returncode == 0, (command, done.stderr)
        assert run("convert", local / name, url, env=env).returncode == 2
    racers = [subprocess.Popen([TET, "convert", str(local / "cube.tet"), "az://data/race.tet"], env=env, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert sorted(process.wait(timeout=60) == 0 for process in racers) == [False, False, True]
    done = run("consolidate", "az://data/cube.tdb", env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def webdav(local):
    """A WebDAV server of the datasets, and its URL."""
    pytest.importorskip("wsgidav")
    from cheroot.wsgi import Server as WsgiServer
    from wsgidav.wsgidav_app import WsgiDAVApp

    shares = {"/": {"root": str(local), "readonly": True}}
    application = WsgiDAVApp({"provider_mapping": shares, "simple_dc": {"user_mapping": {"*": True}}, "logging": {"enable": False}, "verbose": 0})
    server = WsgiServer(("127.0.0.1", 0), application, numthreads=16)
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    yield f"http://127.0.0.1:{server.bind_addr[1]}"
    server.stop()


def test_web_servers_with_listings_have_folders(webdav, local, cube):
    for name in ("cube.tet", "cube.tgm", "cube.tdb", "cube.npy"):
        url = f"{webdav}/{name}"
        assert tet("cat", url, "--raw") == cube.tobytes()
        assert tet("cat", url, "0=3:9", "2=7", "--raw") == cube[3:9, :, 7].tobytes()
        tet("diff", local / name, url)
        tet("verify", url)
    tet("info", f"{webdav}/none.tet", code=3)
    # They are only read.
    tet("convert", local / "cube.tet", f"{webdav}/out.tet", code=7)
    tet("append", f"{webdav}/cube.tgm", local / "cube.tgm", code=7)


def test_a_proxy_and_certificates_are_taken_from_the_settings(serve, local):
    content = (local / "cube.tet").read_bytes()
    # A proxy gets the whole URL: here it is the server itself.
    server = serve({"http://nowhere.invalid/bucket/cube.tet": content})
    env = {**os.environ, "http_proxy": server.address, "HTTP_PROXY": server.address, "NO_PROXY": "", "no_proxy": ""}
    done = run("info", "http://nowhere.invalid/bucket/cube.tet", env=env)
    assert done.returncode == 0, done.stderr
    assert server.served > 0


@pytest.fixture
def tls(tmp_path, local):
    """A web server whose certificate is signed by an authority that no system knows."""
    import ssl

    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    authority, key, request, certificate = (tmp_path / name for name in ("ca.pem", "ca.key", "server.csr", "server.pem"))
    constraints = ["-addext", "basicConstraints=critical,CA:TRUE"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-keyout", key, "-out", authority, "-subj", "/CN=authority", *constraints)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "server.key", "-out", request, "-subj", "/CN=localhost")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-days", 2, "-out", certificate, "-extfile", tmp_path / "names")
    handler = type("Handler", (Server,), {"objects": {"/cube.tet": (local / "cube.tet").read_bytes()}, "served": 0, "lock": threading.Lock()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}/cube.tet", authority
    server.shutdown()


def test_certificates_of_an_own_authority_are_accepted(tls, cube):
    url, authority = tls
    done = run("cat", url, "--raw", env={**os.environ, "SSL_CERT_FILE": str(authority), "NO_PROXY": "localhost"})
    assert (done.returncode, done.stdout == cube.tobytes()) == (0, True), done.stderr


class Google(http.server.BaseHTTPRequestHandler):
    """Answers as Google Cloud Storage does to its XML interface: generations, conditions, listings, uploads in parts."""

    protocol_version = "HTTP/1.1"
    objects: dict = {}
    uploads: dict = {}
    asked: list = []

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>".encode())

    def described(self, generation, content):
        return {
            "ETag": f'"{hashlib.md5(content).hexdigest()}"',
            "x-goog-generation": str(generation),
            "x-goog-metageneration": "1",
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
        }

    def handle_any(self):
        kind = type(self)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, text = self.path.partition("?")
        name = urllib.parse.unquote(path).removeprefix("/bucket").removeprefix("/")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        with kind.lock:
            kind.asked.append((self.command, name, self.headers.get("x-goog-if-generation-match")))
            if self.headers.get("Authorization") != "Bearer a-token":
                return self.refuse(401, "AuthenticationRequired")
            if self.command == "GET" and not name:
                return self.listing(query)
            if self.command == "POST" and "uploads" in query:
                number = f"upload-{len(kind.uploads)}"
                kind.uploads[number] = {}
                return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode())
            if self.command == "POST":
                parts = kind.uploads.pop(query["uploadId"])
                return self.put(name, b"".join(parts[number] for number in sorted(parts)), xml=True)
            if self.command == "PUT" and "uploadId" in query:
                kind.uploads[query["uploadId"]][int(query["partNumber"])] = body
                return self.answer(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
            if self.command == "DELETE" and "uploadId" in query:
                kind.uploads.pop(query["uploadId"], None)
                return self.answer(204)
            if self.command == "PUT":
                source = self.headers.get("x-goog-copy-source")
                if source:
                    body = kind.objects[urllib.parse.unquote(source).removeprefix("bucket/")][1]
                return self.put(name, body)
            if name not in kind.objects:
                return self.refuse(404, "NoSuchKey")
            if self.command == "DELETE":
                del kind.objects[name]
                return self.answer(204)
            return self.get(*kind.objects[name])

    def put(self, name, body, xml=False):
        kind = type(self)
        wanted = self.headers.get("x-goog-if-generation-match")
        now = kind.objects.get(name, (0, b""))[0]
        if wanted is not None and int(wanted) != now:
            return self.refuse(412, "PreconditionFailed")
        kind.generation += 1
        kind.objects[name] = (kind.generation, body)
        headers = self.described(kind.generation, body)
        text = f"<CompleteMultipartUploadResult><ETag>{headers['ETag']}</ETag></CompleteMultipartUploadResult>" if xml else ""
        return self.answer(200, text.encode(), headers)

    def get(self, generation, content):
        headers = self.described(generation, content)
        if self.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
            return self.refuse(412, "PreconditionFailed")
        if self.command == "HEAD":
            return self.answer(200, headers={**headers, "Content-Length": str(len(content))})
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, content, headers)
        first, last = asked.groups()
        start = int(first) if first else max(0, len(content) - int(last))
        end = min(len(content), int(last) + 1) if first and last else len(content)
        if start >= len(content):
            return self.refuse(416, "InvalidRange")
        return self.answer(206, content[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(content)}"})

    def listing(self, query):
        kind = type(self)
        prefix, delimiter, after = query.get("prefix", ""), query.get("delimiter"), query.get("start-after", "")
        found, folders = [], set()
        for name in sorted(name for name in kind.objects if name.startswith(prefix) and name > after):
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                found.append(name)
        out = ["<?xml version='1.0' encoding='UTF-8'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"]
        for name in found:
            generation, content = kind.objects[name]
            out.append(f"<Contents><Key>{name}</Key><Generation>{generation}</Generation><LastModified>2026-01-01T00:00:00.000Z</LastModified>")
            out.append(f"<ETag>{self.described(generation, content)['ETag']}</ETag><Size>{len(content)}</Size></Contents>")
        out += [f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
        self.answer(200, "".join([*out, "</ListBucketResult>"]).encode(), {"Content-Type": "application/xml"})

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any


@pytest.fixture
def google():
    handler = type("Handler", (Google,), {"objects": {}, "uploads": {}, "asked": [], "generation": 1000, "lock": threading.RLock()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.env = {**os.environ, "GOOGLE_BASE_URL": f"http://127.0.0.1:{server.server_port}", "GOOGLE_BEARER_TOKEN": "a-token"}
    yield handler
    server.shutdown()
    server.server_close()


def test_google_reads_writes_and_appends(google, local, cube):
    def check(*arguments, code=0):
        done = run(*arguments, env=google.env)
        assert done.returncode == code, (arguments, done.stderr)
        return done.stdout

    for name in ["cube.tet", "cube.tgm", "cube.tdb"]:
        url = f"gs://bucket/folder/{name}"
        check("convert", local / name, url)
        check("verify", url)
        check("diff", local / name, url)
        assert check("cat", url, "--raw") == cube.tobytes()
        check("convert", local / name, url, code=2)
    # An object is replaced in the generation that was read.
    check("convert", local / "cube.npy", "gs://bucket/folder/cube.tet", "-f")
    replaced = [wanted for command, name, wanted in google.asked if (command, name) == ("PUT", "folder/cube.tet")]
    assert replaced[-1] not in (None, "0"), replaced
    before = google.objects["folder/cube.tgm"][1]
    check("append", "gs://bucket/folder/cube.tgm", local / "cube.tgm")
    assert google.objects["folder/cube.tgm"][1] == before + (local / "cube.tgm").read_bytes()
    np.save(local / "google-row.npy", np.zeros((8, 50, 60), "float32"))
    check("append", "gs://bucket/folder/cube.tdb", local / "google-row.npy", "0=0:8")
    check("consolidate", "gs://bucket/folder/cube.tdb")
    check("vacuum", "gs://bucket/folder/cube.tdb", "--apply")
    assert check("cat", "gs://bucket/folder/cube.tdb", "--raw") == np.concatenate([np.zeros((8, 50, 60), "float32"), cube[8:]]).tobytes()
    assert not [name for name in google.objects if "tesseral-" in name]
    racers = [
        subprocess.Popen([TET, "convert", str(local / "cube.tet"), "gs://bucket/race.tet"], env=google.env, stderr=subprocess.DEVNULL) for _ in range(3)
    ]
    assert sorted(process.wait(timeout=60) == 0 for process in racers) == [False, False, True]
    check("info", "gs://bucket/none.tet", code=3)
    done = run("info", "gs://bucket/folder/cube.tet", env={**google.env, "GOOGLE_BEARER_TOKEN": "another"})
    assert done.returncode == 3 and b"GOOGLE_APPLICATION_CREDENTIALS" in done.stderr, done.stderr


def test_google_keeps_the_contract_of_stores(google):
    keeps_the_contract("gs://bucket/contract", google.env)


def test_google_joins_large_objects_of_parts(google, tmp_path):
    cells = np.random.default_rng(3).integers(0, 256, size=(70, 1 << 20), dtype="uint8")
    np.save(tmp_path / "large.npy", cells)
    for code in (0, 2):
        done = run("convert", tmp_path / "large.npy", "gs://bucket/large.tet", "--chunk", "7,1048576", env=google.env)
        assert done.returncode == code, done.stderr
    assert list(google.objects) == ["large.tet"] and not google.uploads
    done = run("cat", "gs://bucket/large.tet", "0=69", "--raw", env=google.env)
    assert done.stdout == cells[69].tobytes()


def test_messages_are_appended_to_objects(s3, local, tmp_path):
    key, url = "append/x.tgm", f"s3://{BUCKET}/append/x.tgm"
    message = (local / "cube.tgm").read_bytes()
    for count in (1, 2, 3):
        # The first append creates the object.
        tet("append", url, local / "cube.tgm")
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == message * count
    assert keys(s3, "append/") == [key]
    # Several at the same time follow one another.
    running = [subprocess.Popen([TET, "append", url, str(local / "cube.tgm")], stderr=subprocess.PIPE) for _ in range(4)]
    reports = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, reports
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == message * 7
    # What an interrupted writer left at the end is removed.
    s3.put_object(Bucket=BUCKET, Key=key, Body=message + message[:1000])
    done = run("append", url, local / "cube.tgm")
    assert done.returncode == 0 and b"truncated message" in done.stderr
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == message * 2
    # Larger than one block of a copy.
    np.save(tmp_path / "large.npy", np.random.default_rng(5).integers(0, 256, 40 << 20, dtype="uint8"))
    tet("convert", tmp_path / "large.npy", tmp_path / "large.tgm", "--codec", "raw")
    large = (tmp_path / "large.tgm").read_bytes()
    s3.put_object(Bucket=BUCKET, Key=key, Body=large + large)
    tet("append", url, local / "cube.tgm")
    assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == large + large + message
    assert keys(s3, "append/") == [key]


def test_appends_to_servers_without_conditions_are_refused(serve, local):
    """The server creates and replaces whatever it is asked to."""

    class Careless(Server):
        def do_PUT(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            type(self).objects[self.path.partition("?")[0]] = body
            self.answer(200, ETag='"one"')

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            for key in re.findall(rb"<Key>(.*?)</Key>", body):
                type(self).objects.pop(f"/bucket/{key.decode()}", None)
            self.answer(200, b"<DeleteResult/>")

        def do_DELETE(self):
            type(self).objects.pop(self.path.partition("?")[0], None)
            self.answer(204)

    message = (local / "cube.tgm").read_bytes()
    empty = b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>'
    attributes = {"objects": {"/bucket/x.tgm": message}, "served": 0, "lock": threading.Lock(), "listing": empty}
    handler = type("Handler", (Careless,), attributes)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    done = run("append", "s3://bucket/x.tgm", local / "cube.tgm", env=environment(f"http://127.0.0.1:{server.server_port}"))
    server.shutdown()
    assert done.returncode == 7 and b"ignores conditional puts" in done.stderr, done.stderr
    assert handler.objects == {"/bucket/x.tgm": message}


def test_uploads_in_parts_that_did_not_end_are_listed_and_removed(s3, local):
    url = f"s3://{BUCKET}/parts/large.tet"
    # As a writer leaves it that is killed between two parts, and one of another object.
    for key in ("parts/large.tet.tesseral-1.staged", "parts/large.tets"):
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)
        s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload["UploadId"], PartNumber=1, Body=b"x" * (5 << 20))

    def open_uploads():
        return [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]

    listed = json.loads(tet("repair", url, "--json"))["repairs"]
    assert [step["code"] for step in listed] == ["unfinished_upload"] and "large.tet.tesseral-1.staged" in listed[0]["message"]
    tet("repair", url, "--apply", "unfinished_upload")
    assert open_uploads() == ["parts/large.tets"]
    tet("cp", local / "cube.tet", url)
    assert json.loads(tet("repair", url, "--json"))["repairs"] == []
    s3.create_multipart_upload(Bucket=BUCKET, Key="parts/large.tet")
    listed = json.loads(tet("repair", url, "--json"))["repairs"]
    assert [step["code"] for step in listed] == ["staged_leftovers"]
    tet("repair", url, "--apply", "staged_leftovers")
    assert open_uploads() == ["parts/large.tets"]
    tet("diff", local / "cube.tet", url)


def test_fragments_without_a_commit_are_listed_and_removed(s3, local):
    url, prefix = f"s3://{BUCKET}/uncommitted/x.tdb", "uncommitted/x.tdb/"
    tet("cp", local / "cube.tdb", url)
    data = next(key for key in keys(s3, prefix + "__fragments/") if key.endswith("a0.tdb"))
    fragment = "__fragments/__1700000000000_1700000000000_0123456789abcdef0123456789abcdef_22"
    s3.copy_object(Bucket=BUCKET, Key=f"{prefix}{fragment}/a0.tdb", CopySource={"Bucket": BUCKET, "Key": data})
    tet("diff", local / "cube.tdb", url)
    listed = json.loads(tet("repair", url, "--json"))["repairs"]
    assert [step["code"] for step in listed] == ["uncommitted_fragments"] and fragment in listed[0]["message"]
    tet("repair", url, "--apply", "uncommitted_fragments")
    assert keys(s3, f"{prefix}{fragment}") == []
    tet("diff", local / "cube.tdb", url)


@pytest.mark.parametrize("when", ["answer", "body"])
def test_a_signal_ends_requests_under_way(serve, local, when):
    settings = {"latency": 60.0} if when == "answer" else {"fault": "loris"}
    server = serve({"/bucket/cube.tet": (local / "cube.tet").read_bytes()}, **settings)
    child = subprocess.Popen([TET, "cat", "s3://bucket/cube.tet", "--raw"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(server.address))
    while server.served == 0:
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    time.sleep(0.3)
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=20) == 130
    # A generous multiple of the 200 ms in which it ends on an idle machine.
    assert time.monotonic() - begun < 2


def test_a_deadline_ends_requests_under_way(serve, local):
    server = serve({"/bucket/cube.tet": (local / "cube.tet").read_bytes()}, fault="loris")
    done = run("stat", "s3://bucket/cube.tet", "--deadline", "400ms", env=environment(server.address))
    assert done.returncode == 8 and b"deadline" in done.stderr, done.stderr
    # A command that is done before is not concerned.
    assert run("stat", local / "cube.tet", "--deadline", "1h").returncode == 0
    for wrong in ("0s", "5", "-1s", "5 parsecs"):
        assert run("stat", local / "cube.tet", f"--deadline={wrong}").returncode == 2, wrong


@pytest.mark.parametrize("when", ["opening", "reading"])
def test_an_interrupt_of_python_ends_requests_under_way(serve, local, when):
    pytest.importorskip("tesseral")
    server = serve({"/bucket/cube.tet": (local / "cube.tet").read_bytes()}, latency=60.0 if when == "opening" else 0.0)
    lines = ["import sys, tesseral", "container = tesseral.open('s3://bucket/cube.tet')", "array = container[next(iter(container))]"]
    lines += ["print('open', flush=True)", "sys.stdin.readline()", "array[:]"]
    child = subprocess.Popen([sys.executable, "-c", "\n".join(lines)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(server.address))
    if when == "reading":
        assert child.stdout.readline() == b"open\n"
        server.latency = 60.0
        server.served = 0
        child.stdin.write(b"\n")
        child.stdin.flush()
    while server.served == 0:
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, error = child.communicate(timeout=20)
    assert b"KeyboardInterrupt" in error and time.monotonic() - begun < 3, error


def test_servers_that_cannot_be_reached_are_named(tmp_path):
    """Not by the number of attempts, and with what to do."""
    with socket.socket() as closed:
        # Bound, so that nothing else listens there.
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        wanted = f"cannot connect to {address}: connection refused".encode()
        for url, env in ((f"http://{address}/x.tet", None), ("s3://bucket/x.tet", environment(f"http://{address}"))):
            done = run("info", url, env=env)
            assert done.returncode == 8 and wanted in done.stderr and b"AWS_ENDPOINT_URL" in done.stderr, done.stderr
            assert b"retries" not in done.stderr
        np.save(tmp_path / "x.npy", np.zeros(3))
        done = run("convert", tmp_path / "x.npy", "s3://bucket/x.tet", env=environment(f"http://{address}"))
        assert done.returncode == 8 and wanted in done.stderr, done.stderr
    done = run("info", "http://no-such-host.invalid/x.tet")
    assert done.returncode == 8, done.stderr


def test_large_conversions_to_urls_need_no_folder_beside_the_output(s3, tmp_path):
    """Above 64 MiB of encoded chunks, a conversion on disks keeps a journal; rechunking keeps a scratch file."""
    cells = np.tile(np.arange(1 << 14, dtype="int64"), (600, 1))
    np.save(tmp_path / "large.npy", cells)
    url = f"s3://{BUCKET}/journal/large.tet"
    tet("convert", tmp_path / "large.npy", url, "--chunk", "10,16384", "--codec", "zstd:1")
    tet("rechunk", url, f"s3://{BUCKET}/journal/other.tdb", "--chunks", "600,256", "--memory", "64MiB")
    tet("diff", url, f"s3://{BUCKET}/journal/other.tdb")
    done = run("convert", tmp_path / "large.npy", f"s3://{BUCKET}/journal/again.tet", "--codec", "zstd:1", "--resume")
    assert done.returncode == 7 and b"resuming" in done.stderr, done.stderr
    # Of URLs of this machine, the path counts.
    tet("convert", tmp_path / "large.npy", f"file://{tmp_path}/large.tet", "--chunk", "10,16384", "--codec", "zstd:1")
    tet("diff", tmp_path / "large.tet", url)
    assert {key.partition("/")[2].partition("/")[0] for key in keys(s3, "journal/")} == {"large.tet", "other.tdb"}


def test_every_command_takes_urls(s3, local, cube, tmp_path):
    base = f"s3://{BUCKET}/every"
    array = f"{base}/cube.tdb"
    # Tables and pictures are objects, too.
    for name in ("cube.csv", "cube.npy", "cube.json"):
        tet("convert", local / "cube.tet", f"{base}/{name}", "--select", "0=0:2")
        tet("convert", local / "cube.tet", tmp_path / name, "--select", "0=0:2")
        assert s3.get_object(Bucket=BUCKET, Key=f"every/{name}")["Body"].read() == (tmp_path / name).read_bytes()
    tet("convert", local / "cube.tet", array, "--to", "tiledb")
    first = json.loads(tet("log", array, "--json"))
    time.sleep(0.01)
    moment = int(time.time() * 1000)
    time.sleep(0.01)
    np.save(tmp_path / "part.npy", np.zeros((8, 50, 60), "float32"))
    tet("append", array, tmp_path / "part.npy", "0=0:8")
    assert len(json.loads(tet("log", array, "--json"))["versions"]) == len(first["versions"]) + 1
    # A state of an array is named as that of a folder.
    tet("diff", f"{array}@{moment}", local / "cube.tet")
    tet("diff", array, local / "cube.tet", code=1)
    assert run("diff", f"{base}/none.tdb@{moment}", local / "cube.tet").returncode == 3
    assert tet("cat", array, "--as-of", str(moment), "--raw") == cube.tobytes()
    tet("consolidate", array)
    tet("vacuum", array, "--apply")
    tet("verify", array, "--deep")
    tet("recover", array, f"{base}/recovered.tdb")
    tet("diff", array, f"{base}/recovered.tdb")
    tet("plot", array, "0=0", "-o", f"{base}/cube.png")
    assert s3.get_object(Bucket=BUCKET, Key="every/cube.png")["Body"].read(8) == b"\x89PNG\r\n\x1a\n"
    frame = "x,v\n" + "".join(f"{n},{n * 2}\n" for n in range(10))
    (tmp_path / "table.csv").write_text(frame)
    tet("convert", tmp_path / "table.csv", f"{base}/table.tdb", "--to", "tiledb")
    (tmp_path / "query.json").write_text(json.dumps({"dataset": "recovered.tdb", "mean": []}))
    tet("query", tmp_path / "query.json", "-t", f"{base}/recovered.tdb")
