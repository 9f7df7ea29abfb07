"""Requests to the page: every parameter of every query at boundary values, against ordinary sources and against files that claim
much. Each is answered within a second of CPU time, and the server takes at most 64 MiB above what it takes idle."""

import http.client
import json
import os
import random
import re
import subprocess
from urllib.parse import quote, quote_from_bytes

import claims
import claims_interchange as interchange
import hostile_tgm as tgm
from common import ROOT, TET, need, tet

MIB = 1 << 20
#: Allowed above an idle server, in MiB, and CPU time of a request in seconds; a debug build may be given more.
ABOVE_IDLE = 64
CPU = claims.CPU

NUMBERS = (0, 1, 2, 3, 7, 255, 2**16 - 1, 2**16, 2**31 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 10**30)
TEXTS = ("", "a", "true", "1.5", "NaN", "-0", "1e400", "%", "%00", "%ff%fe", "+", "\u202e", "'", '"', "../..", "x" * 1000, ",", ":", "&&&=")
POSITIONS = ("", ":", "0", "1:3", "::2", "0:1,0:1", "0,0", ",", ",,,", "::,::", "1:0", "::0", "0:18446744073709551615", "18446744073709551615",
             "::18446744073709551615", "0:18446744073709551615:1,:", "-1", "0x1", " 1", "1:2:3:4", "," * 1000, ":" * 1000, "1," * 500)
TIMES = ("", "0", "1", "now", "9223372036854775807", "18446744073709551615", "-1", "2020-01-01", "2020-01-01T00:00:00Z", "0..1", "1..0", "9999-99-99", "x")
CONDITIONS = ("", "a > 0", "`a` == 7", "a", "not a > 1", "(" * 2000, "not " * 1500, "a > 1 and " * 300 + "a > 1", "a in (1,2,3)", "a == 1e400",
              "a > 99999999999999999999999", "nothing > 1", "a >", "a == 'x'", "\0", "a > 1) or (a < 2")
KINDS = ("csv", "npy", "json", "png", "tet", "nc", "tgm", "zarr", "tiledb", "arrow", "parquet", "npz", "", "exe", "raw")
FLOATS = ("0", "-1.5", "1e308", "-1e308", "NaN", "inf", "-inf", "1e-320", "x", "")

CELLS = {"source": NUMBERS, "array": NUMBERS, "field": NUMBERS, "as_of": TIMES, "stored": ("true", "false", "1", ""), "at": POSITIONS}
ROUTES = {
    "sources": {}, "formats": CELLS, "colors": {"map": ("viridis", *TEXTS)},
    "arrays": {"source": NUMBERS, "as_of": TIMES, "from": NUMBERS}, "array": CELLS, "versions": {"source": NUMBERS, "as_of": TIMES, "from": NUMBERS},
    "coordinates": {"source": NUMBERS, "array": NUMBERS, "as_of": TIMES, "dim": NUMBERS, "from": NUMBERS, "count": NUMBERS},
    "plane": {**CELLS, "x": NUMBERS, "width": NUMBERS, "height": NUMBERS}, "series": {**CELLS, "x": NUMBERS, "width": NUMBERS, "height": NUMBERS},
    "value": CELLS, "rows": {**CELLS, "where": CONDITIONS, "from": NUMBERS, "x": NUMBERS, "y": NUMBERS},
    "points": {**CELLS, "where": CONDITIONS, "from": NUMBERS, "x": NUMBERS, "y": NUMBERS}, "statistics": CELLS,
    "histogram": {**CELLS, "bins": NUMBERS}, "chunks": {"source": NUMBERS, "array": NUMBERS, "field": NUMBERS, "as_of": TIMES, "from": NUMBERS},
    "download": {**CELLS, "kind": KINDS, "colors": ("viridis", *TEXTS), "low": FLOATS, "high": FLOATS, "width": NUMBERS, "height": NUMBERS},
}


def sources(folder):
    """Ordinary sources, and files that declare much for their size."""
    tet("convert", ROOT / "fixtures/tet/ranks_zstd_v1.tet", folder / "ranks.tet")
    yield folder / "ranks.tet"
    for name in ("dense_overlay", "sparse_duplicates", "enumerated"):
        yield ROOT / "fixtures/tiledb" / name
    made = {
        "claim.tet": claims.tet_chunks(claims.UINT8, 1, [2**64 - 1], [1], [(b"\7", 1)], codec=0),
        "absent.tet": claims.tet_chunks(claims.FLOAT32, 4, [2**40, 2**20], [2**40, 2**20], []),
        "zeros.tet": claims.tet_chunks(claims.FLOAT32, 4, [16384, 1024], [512, 1024], [(claims.zeros_frame(2 * MIB), 512 * 1024)] * 32),
        "constant.tgm": claims.of_tgm(**claims.constant(1 << 57)),
        "messages.tgm": tgm.message(tgm.META, tgm.tensor()) * 2000,
        "header.nc": interchange.netcdf3_file(5, 2**40, (0, 2**20)),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
        yield folder / name


class Page:
    """A running server."""

    def __init__(self, paths):
        self.errors = open(paths[0].parent / "errors", "w+b")
        # Pictures that are kept for later requests are not part of what one takes.
        command = [TET, "serve", "--keep", "1", *paths]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors)
        url = re.match("http://(.*)/[?]token=(.*)", self.process.stdout.readline().decode())
        need(url, "the server did not start:", paths)
        self.address, self.token = url.groups()
        self.connection = None
        self.floor = self.memory("VmRSS")

    def memory(self, name):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(rf"{name}:\s*(\d+)", status)[1]) / 1024

    def cpu(self):
        words = open(f"/proc/{self.process.pid}/stat").read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def get(self, target):
        """Status, body, CPU seconds and peak MiB above idle of a request."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as peak:
            peak.write("5")
        before = self.cpu()
        for attempt in (1, 2):
            try:
                self.connection = self.connection or http.client.HTTPConnection(self.address, timeout=60)
                self.connection.request("GET", target, headers={"Authorization": f"Bearer {self.token}"})
                answer = self.connection.getresponse()
                body = answer.read()
                break
            except (http.client.HTTPException, OSError):
                self.connection = None
                if attempt == 2:
                    return 0, b"", 0, 0
        return answer.status, body, self.cpu() - before, self.memory("VmHWM") - self.floor

    def close(self):
        self.process.terminate()
        need(self.process.wait(10) in (0, 130), "the server ended with", self.process.returncode)
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


def encoded(value):
    return quote_from_bytes(value) if isinstance(value, bytes) else quote(str(value), safe="%")


def request(chance, count):
    """A route with some parameters: most of them plausible, so that requests get far."""
    route = chance.choice(list(ROUTES))
    words = []
    for name, values in ROUTES[route].items():
        if chance.random() < 0.35:
            continue
        if name == "source":
            value = chance.randrange(count) if chance.random() < 0.9 else chance.choice(values)
        elif chance.random() < 0.6 and name in ("array", "field"):
            value = chance.randrange(3)
        elif name == "as_of" and chance.random() < 0.7:
            continue
        elif chance.random() < 0.05:
            value = chance.choice(TEXTS)
        elif chance.random() < 0.05:
            value = chance.randbytes(chance.randrange(40))
        else:
            value = chance.choice(values)
        words.append(f"{name}={encoded(value)}")
    return f"/api/{route}?" + "&".join(words)


def soak(part, folder, count, seed=1):
    """Sends that many requests."""
    chance = random.Random(seed)
    paths = list(sources(folder))
    page = Page(paths)
    most_cpu, most_mib, statuses, wrong = 0.0, 0.0, {}, []
    for _ in range(count):
        target = request(chance, len(paths))
        status, body, cpu, mib = page.get(target)
        most_cpu, most_mib = max(most_cpu, cpu), max(most_mib, mib)
        statuses[status] = statuses.get(status, 0) + 1
        # Only damaged sources are an error of the server's side.
        if status == 0 or status >= 500 and json.loads(body)["kind"] not in ("damage", "busy"):
            wrong.append(f"{target}: {status} {body[:300]!r}")
        if cpu > CPU:
            wrong.append(f"{target}: {cpu:.1f} s of CPU time")
        if mib > ABOVE_IDLE:
            wrong.append(f"{target}: {mib:.0f} MiB above idle")
    reported = page.close()
    if "panicked" in reported:
        wrong.append(reported[:2000])
    need(not wrong, f"{len(wrong)} of {count} requests:\n" + "\n".join(wrong[:40]))
    return {"requests": count, "statuses": statuses, "most_cpu_s": round(most_cpu, 2), "most_mib": round(most_mib, 1)}
