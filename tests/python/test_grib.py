"""GRIB on the command line: every command, conversions that are checked, damage, unsupported fields, memory limits, URLs."""

import http.server
import re
import threading

import pytest
from support import tet, tet_json

pytest.importorskip("eccodes")
import grib_files as grib  # noqa: E402
import numpy as np  # noqa: E402


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    return grib.cube(tmp_path_factory.mktemp("grib") / "cube.grib", members=1)


def test_every_command_reads(cube):
    info = tet_json("info", cube)
    arrays = {array["name"]: array for array in info["arrays"]}
    assert info["format"] == "grib" and info["grib"]["messages"] == 12
    assert arrays["t"]["dims"] == ["time", "isobaricInhPa", "latitude", "longitude"] and arrays["t"]["shape"] == [2, 3, 7, 9]
    assert arrays["isobaricInhPa"]["role"] == "index" and arrays["valid_time"]["role"] == "auxiliary"
    expected = np.concatenate(grib.fields(cube)[:6])
    assert tet("cat", cube, "t", "--raw") == expected.tobytes()
    stat = tet_json("stat", cube, "t")
    assert (stat["count"], stat["nulls"], stat["min"], stat["max"]) == (378, 0, expected.min(), expected.max())
    window = np.frombuffer(tet("cat", cube, "t", "time=1", "isobaricInhPa=@500", "latitude=2:4", "--raw"), "f8")
    np.testing.assert_array_equal(window, expected.reshape(2, 3, 7, 9)[1, 2, 2:4].ravel())
    assert tet("plot", cube, "t", "time=0", "isobaricInhPa=0")
    assert tet_json("verify", cube, "--deep")["ok"]
    tet("diff", cube, cube)


@pytest.mark.parametrize("target", ["tet", "tgm", "tdb", "zarr"])
@pytest.mark.parametrize("missing", [False, True])
def test_conversions_are_checked_and_equal(tmp_path, target, missing):
    points = np.arange(63) % 4 == 1 if missing else None
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(grib.message(2, missing=points, keys={"level": level}) for level in (500, 850)))
    out = tmp_path / f"a.{target}"
    tet("convert", path, out, "--check")
    assert tet_json("stat", out, "t")["nulls"] == (32 if missing else 0)
    if not missing:
        assert tet("cat", out, "t", "--raw") == tet("cat", path, "t", "--raw")


def test_memory_limits_and_pieces_give_the_same_cells(cube):
    assert tet("cat", cube, "t", "--raw", "--memory", "1MiB") == tet("cat", cube, "t", "--raw")


def test_damage_is_reported(cube, tmp_path):
    whole = cube.read_bytes()
    short = tmp_path / "short.grib"
    short.write_bytes(whole[:-100])
    tet("info", short, code=4)
    assert not tet_json("verify", short, code=1)["ok"]
    marked = bytearray(whole)
    marked[-1] = 0
    (tmp_path / "mark.grib").write_bytes(marked)
    tet("verify", tmp_path / "mark.grib", code=1)


def test_bytes_between_messages_and_unsupported_fields(tmp_path):
    path = tmp_path / "a.grib"
    message = grib.message(2)
    other = bytearray(grib.message(2, keys={"level": 850}))
    at = 16
    while other[at + 4] != 5:
        at += int.from_bytes(other[at : at + 4], "big")
    other[at + 9 : at + 11] = (199).to_bytes(2, "big")
    path.write_bytes(message + b"junk GRI" + bytes(other) + b"\n")
    info = tet_json("info", path)
    assert info["grib"] == {"messages": 2, "fields": 1, "bytes_between_messages": 9, "unread_fields": 1}
    assert b"template 199" in tet("info", path)


def test_repeated_fields_are_listed(tmp_path):
    path = tmp_path / "a.grib"
    path.write_bytes(grib.message(2) + grib.message(2, bits=12))
    assert b"repeat" in tet("info", path)
    assert tet("cat", path, "t", "--raw") == grib.fields(path)[0].tobytes()


class Ranges(http.server.BaseHTTPRequestHandler):
    """Serves one file by ranges and counts the bytes."""

    protocol_version = "HTTP/1.1"
    content = b""
    served = 0

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-")).groups()
        start = int(first) if first else max(0, len(self.content) - int(last))
        body = self.content[start : int(last) + 1 if first and last else None]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("ETag", '"one"')
        self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(self.content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            type(self).served += len(body)
            self.wfile.write(body)


def test_headers_are_read_by_url_without_packed_values(tmp_path):
    # Stores read gaps below 256 KiB rather than skip them.
    size = {"Ni": 1000, "Nj": 400, "latitudeOfLastGridPointInDegrees": -20, "longitudeOfLastGridPointInDegrees": 309}
    path = tmp_path / "a.grib"
    path.write_bytes(b"".join(grib.message(2, keys={**size, "level": level}) for level in (1000, 850, 500, 300)))
    handler = type("Handler", (Ranges,), {"content": path.read_bytes()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a.grib"
        arrays = {array["name"]: array["shape"] for array in tet_json("info", url)["arrays"]}
        assert arrays["t"] == [4, 400, 1000]
        assert handler.served < len(handler.content) / 2
        assert tet("cat", url, "t", "isobaricInhPa=2", "--raw") == tet("cat", path, "t", "isobaricInhPa=2", "--raw")
        server.shutdown()
