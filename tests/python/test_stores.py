"""Datasets in object stores and on web servers: an S3 server on loopback, a web server with and without faults, the references."""

import http.server
import os
import pickle
import re
import socket
import subprocess
import threading

import numpy as np
import pytest

from s3_server import BUCKET, SHAPE, chunks, cube, local, s3  # noqa: F401  (fixtures)
from support import TET, tet


def upload(client, path, key):
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    for file in files:
        name = key if path.is_file() else f"{key}/{file.relative_to(path)}"
        client.upload_file(str(file), BUCKET, name)


@pytest.mark.parametrize("name", ["cube.npy", "cube.tet", "cube.tgm", "cube.tdb"])
def test_commands_give_the_same_results_by_url(s3, local, name):
    upload(s3, local / name, f"read/{name}")
    url = f"s3://{BUCKET}/read/{name}"
    for command in (["info", "--json"], ["stat", "--json"], ["verify", "--json"], ["cat", "--raw"], ["cat", "0=3:9", "1=7:31", "2=5", "--raw"]):
        here, there = (tet(command[0], source, *command[1:]) for source in (local / name, url))
        assert here.replace(str(local / name).encode(), b"@") == there.replace(url.encode(), b"@"), command
    tet("diff", local / name, url)


def test_missing_objects_and_other_schemes_have_their_exit_codes(s3):
    tet("info", f"s3://{BUCKET}/none.tet", code=3)
    tet("info", "s3://no-such-bucket/none.tet", code=(3, 8))
    tet("info", "ftp://host/x.tet", code=7)


@pytest.mark.parametrize("name", ["out.tet", "out.tgm", "out.tdb"])
def test_outputs_are_uploaded_and_never_replaced_unasked(s3, local, name):
    url = f"s3://{BUCKET}/write/{name}"
    tet("convert", local / "cube.npy", url, *chunks(name))
    tet("diff", local / "cube.tet", url)
    tet("verify", url)
    tet("convert", local / "cube.tet", url, code=2)
    # Neither claims nor parts of uploads are left.
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix="write/")["Contents"]]
    assert not [key for key in keys if "tesseral" in key]
    if name != "out.tdb":
        tet("convert", local / "cube.npy", url, "-f", *chunks(name, "4,10,60"))
        tet("diff", local / "cube.tet", url)
    else:
        tet("convert", local / "cube.tet", url, "-f", code=2)


@pytest.mark.parametrize("name", ["race.tet", "race.tdb"])
def test_one_of_several_creators_wins(s3, local, name):
    url = f"s3://{BUCKET}/race/{name}"
    running = [
        subprocess.Popen([TET, "convert", str(local / "cube.tet"), url], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(5)
    ]
    reports = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running].count(0) == 1, reports
    tet("diff", local / "cube.tet", url)


def tiledb_context(tiledb):
    address = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    return tiledb.Ctx(
        {
            "vfs.s3.endpoint_override": address,
            "vfs.s3.scheme": "http",
            "vfs.s3.use_virtual_addressing": "false",
            "vfs.s3.region": "us-east-1",
            "vfs.s3.aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
            "vfs.s3.aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        }
    )


def test_tiledb_arrays_go_both_ways(s3, local, cube):
    tiledb = pytest.importorskip("tiledb")
    context = tiledb_context(tiledb)
    theirs = f"s3://{BUCKET}/tiledb/theirs"
    rows = np.arange(24, dtype="int32").reshape(4, 6)
    dims = [tiledb.Dim(name, domain=(0, n - 1), tile=2, dtype="int64") for name, n in (("y", 4), ("x", 6))]
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(*dims, ctx=context), attrs=[tiledb.Attr(name="v", dtype="int32", ctx=context)], ctx=context
    )
    tiledb.Array.create(theirs, schema, ctx=context)
    with tiledb.open(theirs, "w", ctx=context) as array:
        array[:] = rows
    with tiledb.open(theirs, "w", ctx=context) as array:
        array[0:2, 0:2] = np.full((2, 2), 100, "int32")
    rows[0:2, 0:2] = 100
    assert tet("cat", theirs, "--raw") == rows.tobytes()
    # Consolidated and vacuumed by us, read by them.
    tet("consolidate", theirs)
    tet("vacuum", theirs, "--apply")
    with tiledb.open(theirs, ctx=context) as array:
        np.testing.assert_array_equal(array[:]["v"] if isinstance(array[:], dict) else array[:], rows)
    ours = f"s3://{BUCKET}/tiledb/ours"
    tet("convert", local / "cube.tet", ours, "--to", "tiledb")
    with tiledb.open(ours, ctx=context) as array:
        found = array[:]
        found = next(iter(found.values())) if isinstance(found, dict) else found
        np.testing.assert_array_equal(found, cube)


def test_tensogram_reads_what_we_upload(s3, local, cube):
    tensogram = pytest.importorskip("tensogram")
    url = f"s3://{BUCKET}/peer/cube.tgm"
    tet("convert", local / "cube.npy", url)
    options = {
        "aws_endpoint": os.environ["AWS_ENDPOINT_URL"],
        "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    file = tensogram.TensogramFile.open_remote(url, options)
    _, objects = file.decode_message(0)
    np.testing.assert_array_equal(np.asarray(objects[0][1]).reshape(SHAPE), cube)


def test_python_reads_by_url_and_pickles_no_credentials(s3, local, cube):
    tesseral = pytest.importorskip("tesseral")
    upload(s3, local / "cube.tet", "python/cube.tet")
    url = f"s3://{BUCKET}/python/cube.tet"
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    options = {"key": "someone", "secret": "hidden-password", "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"}}
    with tesseral.open(url, storage_options=options) as container:
        name = next(iter(container))
        np.testing.assert_array_equal(container[name][3:9, :, 5], cube[3:9, :, 5])
        pickled = pickle.dumps(container)
    assert b"hidden-password" not in pickled and endpoint.encode() in pickled
    with pickle.loads(pickled) as container:
        np.testing.assert_array_equal(container[name][:], cube)
    with pytest.raises(tesseral.TesseralError):
        tesseral.open(url, storage_options={"unknown": "red"})


def test_python_reports_missing_objects_as_missing_files(s3):
    tesseral = pytest.importorskip("tesseral")
    for name in ("none.tet", "none/folder.tdb"):
        with pytest.raises(FileNotFoundError) as found:
            tesseral.open(f"s3://{BUCKET}/{name}")
        assert isinstance(found.value, tesseral.FileMissingError)
    tesseral.write(f"s3://{BUCKET}/python/some.tet", {"a": np.zeros(3)})
    with pytest.raises(KeyError):
        tesseral.open(f"s3://{BUCKET}/python/some.tet")["none"]


class Faults(http.server.BaseHTTPRequestHandler):
    """Serves one file by ranges, with a fault in some of the answers."""

    protocol_version = "HTTP/1.1"
    content = b""
    other = b""
    fault = "none"
    served = 0

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        kind = type(self)
        kind.served += 1
        number, content, etag = kind.served, kind.content, '"one"'
        if kind.fault == "replaced" and number > 3:
            content, etag = kind.other, '"two"'
        if kind.fault == "unavailable" and number % 3:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if kind.fault == "too many" and number % 2:
            self.send_response(429)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if kind.fault == "expired" and number > 3:
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = self.headers.get("If-Match")
        if wanted and wanted != etag and kind.fault != "replaced":
            self.send_error(412)
            return
        start, end, status = 0, len(content), 200
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked and kind.fault != "without ranges":
            first, last = asked.groups()
            start = int(first) if first else max(0, len(content) - int(last))
            end = min(len(content), int(last) + 1) if first and last else len(content)
            status = 206
        body = content[start:end]
        self.send_response(status)
        self.send_header("ETag", etag)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        cut = kind.fault in ("cut", "always cut") and (number % 2 == 0 or kind.fault == "always cut")
        if kind.fault == "short":
            # Says less than it announces in the range, without a sign on the connection.
            body = body[: len(body) // 2]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def web(local):
    """A function that serves a file with a fault and returns its URL."""
    servers = []

    def serve(fault, content, other=b""):
        handler = type("Handler", (Faults,), {"fault": fault, "content": content, "other": other, "served": 0})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/folder/cube.tet"

    yield serve
    for server in servers:
        server.shutdown()


def test_files_of_web_servers_are_read(web, local, cube):
    url = web("none", (local / "cube.tet").read_bytes())
    assert tet("cat", url, "--raw") == cube.tobytes()


def test_a_server_without_ranges_is_refused(web, local):
    tet("info", web("without ranges", (local / "cube.tet").read_bytes()), code=7)


@pytest.mark.parametrize("fault", ["cut", "unavailable", "too many"])
def test_interrupted_answers_are_requested_again(web, local, cube, fault):
    assert tet("cat", web(fault, (local / "cube.tet").read_bytes()), "--raw") == cube.tobytes()


def test_answers_that_stay_short_are_an_error(web, local):
    tet("cat", web("short", (local / "cube.tet").read_bytes()), "--raw", code=8)


def test_a_file_replaced_while_it_is_read_is_an_error(web, local, tmp_path, cube):
    np.save(tmp_path / "other.npy", cube + 1)
    tet("convert", tmp_path / "other.npy", tmp_path / "other.tet", "--chunk", "8,10,60")
    old, new = (local / "cube.tet").read_bytes(), (tmp_path / "other.tet").read_bytes()
    tet("convert", web("replaced", old, new), tmp_path / "out.npy", code=8)
    assert not (tmp_path / "out.npy").exists()


def test_credentials_that_expire_while_reading_are_an_error_with_a_hint(web, local, tmp_path):
    url = web("expired", (local / "cube.tet").read_bytes())
    done = subprocess.run([TET, "convert", url, tmp_path / "out.tet"], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "AWS_ACCESS_KEY_ID" in done.stderr and not (tmp_path / "out.tet").exists()


def content(path):
    """Bytes of a file, or of every file below a folder."""
    if path.is_file():
        return path.read_bytes()
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["cube.tet", "cube.tgm", "cube.tdb"])
def test_copies_have_the_same_bytes(s3, local, tmp_path, name):
    url, again = f"s3://{BUCKET}/copies/{name}", tmp_path / name
    tet("cp", local / name, url)
    tet("cp", url, again)
    assert content(again) == content(local / name)
    tet("cp", url, f"s3://{BUCKET}/copies/second-{name}")
    tet("diff", local / name, f"s3://{BUCKET}/copies/second-{name}")
    # An existing output stays as it is unless it is to be replaced.
    tet("cp", local / name, url, code=2)
    tet("cp", local / name, again, code=2)
    tet("cp", "-f", local / name, again)
    assert content(again) == content(local / name)


def test_damaged_sources_are_not_copied(s3, local, tmp_path):
    damaged = bytearray((local / "cube.tet").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    s3.put_object(Bucket=BUCKET, Key="damaged.tet", Body=bytes(damaged))
    tet("cp", f"s3://{BUCKET}/damaged.tet", tmp_path / "copy.tet", code=5)
    assert list(tmp_path.iterdir()) == []
    tet("cp", "--no-digests", f"s3://{BUCKET}/damaged.tet", tmp_path / "copy.tet")
    assert (tmp_path / "copy.tet").read_bytes() == damaged


def test_a_file_replaced_while_it_is_copied_is_an_error(web, local, tmp_path, cube):
    np.save(tmp_path / "other.npy", cube + 1)
    tet("convert", tmp_path / "other.npy", tmp_path / "other.tet", "--chunk", "8,10,60")
    old, new = (local / "cube.tet").read_bytes(), (tmp_path / "other.tet").read_bytes()
    tet("cp", web("replaced", old, new), tmp_path / "out.tet", code=8)
    assert not (tmp_path / "out.tet").exists()


def test_large_objects_are_uploaded_in_parts(s3, tmp_path):
    cells = np.random.default_rng(3).integers(0, 256, size=(70, 1 << 20), dtype="uint8")
    np.save(tmp_path / "large.npy", cells)
    url = f"s3://{BUCKET}/large/cells.tet"
    tet("convert", tmp_path / "large.npy", url, "--chunk", "7,1048576")
    assert s3.head_object(Bucket=BUCKET, Key="large/cells.tet")["ContentLength"] > 64 << 20
    assert tet("cat", url, "0=69", "--raw") == cells[69].tobytes()
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix="large/")["Contents"]
    assert [entry["Key"] for entry in listed] == ["large/cells.tet"]
    tet("cp", url, tmp_path / "copy.tet")
    assert tet("cat", tmp_path / "copy.tet", "--raw") == cells.tobytes()


def test_python_copies_with_storage_options(s3, local, tmp_path):
    tesseral = pytest.importorskip("tesseral")
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    options = {"key": "someone", "secret": "hidden-password", "endpoint_url": endpoint, "region_name": "us-east-1"}
    copied = tesseral.copy(local / "cube.tet", f"s3://{BUCKET}/python/copy.tet", target_options=options)
    assert (copied.format, copied.objects) == ("tet", 1) and copied.covered_bytes > 0
    assert copied.stored_bytes == (local / "cube.tet").stat().st_size
    again = tesseral.copy(copied.path, tmp_path / "again.tet", storage_options=options, digests=False)
    assert again.covered_bytes is None
    assert (tmp_path / "again.tet").read_bytes() == (local / "cube.tet").read_bytes()
