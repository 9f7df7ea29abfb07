"""A corpus of hand-written files, one per rule of each format, with the expected outcome of `tet`: never a signal, a panic or a timeout."""

import json
import shutil
import subprocess
import time

import hostile_tgm
import hostile_tiledb
from common import ROOT, TET, need

#: Exit codes of reading, and whether `verify` must find something (None: either way).
ENDS = {"ok": ({0}, None), "bad": ({4, 5, 6, 7}, True), "odd": ({4, 5, 7}, True), "limit": ({5, 6}, True), "skipped": ({3, 4}, None),
        "any": ({0, 3, 4, 5, 6, 7}, None)}
SECONDS = 10


def end(*arguments):
    """The exit code and the messages of `tet`."""
    begun = time.monotonic()
    done = subprocess.run([TET, *map(str, arguments)], capture_output=True, timeout=SECONDS)
    need(0 <= done.returncode <= 8 and b"panicked" not in done.stderr, arguments, "ended with", done.returncode, done.stderr[-300:])
    need(time.monotonic() - begun < SECONDS, arguments, "took too long")
    return done.returncode


def read(path):
    """Read every field and return the worst exit code."""
    shown = subprocess.run([TET, "info", path, "--json"], capture_output=True, timeout=SECONDS)
    if shown.returncode:
        return end("info", path)
    arrays = json.loads(shown.stdout)["arrays"]
    names = [f["name"] for a in arrays for f in a["fields"]] if path.is_dir() else [a["name"] for a in arrays]
    return max((end("cat", path, name, "--raw") for name in names), default=4)


def judge(name, path, expected):
    codes, found = ENDS[expected]
    code = read(path)
    need(code in codes, name, f"should be {expected}, reading it ended with", code)
    verified = end("verify", path, "-q")
    need(found is None or (verified != 0) == found, name, f"should be {expected}, verify ended with", verified)
    if path.is_file():
        end("repair", path, "--dry-run")


def corpus(folder):
    """Every file: name, path, expected outcome."""
    expected = json.loads((ROOT / "fixtures/tet/corrupt/expected.json").read_text())
    ends = {"ok": "ok", "damaged": "bad", "limit": "limit", "unsupported": "odd", None: "bad"}
    for name, want in expected.items():
        # Reading may succeed if only statistics or labels are wrong; test_corrupt_tet.py checks the findings.
        yield name, ROOT / "fixtures/tet/corrupt" / name, "any" if want["open"] == "ok" else ends[want["read"]]
    for name, content, want in hostile_tgm.cases():
        path = folder / f"{name}.tgm"
        path.write_bytes(content)
        yield path.name, path, want
    for name, fixture, change, want in hostile_tiledb.cases():
        path = folder / name
        change(hostile_tiledb.Array(path, fixture))
        yield name, path, want
        shutil.rmtree(path)


def soak(name, folder, count, seed=1):
    folder = folder / name
    folder.mkdir()
    files, wrong = {}, []
    for number, (label, path, want) in enumerate(corpus(folder)):
        if count < 300 and number % 3:
            continue
        try:
            judge(label, path, want)
        except Exception as e:  # noqa: BLE001: all failures are reported together
            wrong.append(f"{label}: {e}")
        kind = "tet" if path.suffix == ".tet" else "tgm" if path.suffix == ".tgm" else "tiledb"
        files[kind] = files.get(kind, 0) + 1
    need(not wrong, "\n".join(wrong))
    return {"files": sum(files.values()), **files}
