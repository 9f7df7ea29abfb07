"""One hundred broken files with the expected outcome of each command."""

import hashlib
import json
import subprocess

import pytest
from support import ROOT, TET, tet, tet_json

CORPUS = ROOT / "fixtures" / "tet" / "corrupt"
EXPECTED = json.loads((CORPUS / "expected.json").read_text())
#: Exit codes of `tet cat` by expected outcome. Reading block by block may find the damage before the limit.
CODES = {"ok": {0}, "damaged": {5}, "limit": {5, 6}, "unsupported": {7}}
#: Files whose only fault is a limit of the reference: worth a warning.
WARNED = {"footer_65_labels.tet", "footer_65_labels_spilled.tet"}


def test_every_file_is_expected():
    assert {p.name for p in CORPUS.glob("*.tet")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_corrupt(name):
    expected, path = EXPECTED[name], CORPUS / name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == expected["sha256"]
    if expected["open"] != "ok":
        code = {"corrupt": 4, "unsupported": 7, "limit": 6}[expected["open"]]
        tet("info", path, code=code)
        tet("stat", path, code=code)
        assert findings(tet_json("verify", path, code=(1, 7)), "error") == ["parse"]
        return
    check = expected["verify_check"]
    sound = check is None or name in WARNED
    report = tet_json("verify", path, "--deep", code=0 if sound else (1, 7))
    failed = findings(report, "error")
    if sound:
        assert not failed and (check is None or check in findings(report, "warning"))
    else:
        # A chunk that cannot be planned cannot be decoded either, and is reported in addition to its cause.
        assert failed[0] == check or (check, set(failed)) == ("chunk_decode", {"chunk_plan"})
        assert set(failed) <= {check, "chunk_plan"}
    codes = {cat(path, array) for array in ("a", "b")}
    assert codes & CODES[expected["read"]] and codes <= {0, 3} | CODES[expected["read"]]


def findings(report, severity):
    return [f["check"] for f in report["findings"] if f["severity"] == severity]


def cat(path, array):
    done = subprocess.run([TET, "cat", path, array, "--raw"], capture_output=True, timeout=10)
    assert b"panicked" not in done.stderr
    return done.returncode
