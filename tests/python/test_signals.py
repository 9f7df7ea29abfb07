"""SIGINT and SIGTERM stop every command soon, with exit code 130, and leave nothing behind."""

import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from support import ROOT, TET

sys.path.insert(0, str(ROOT / "tests/soak"))
import claims  # noqa: E402


def long_source(folder):
    """A file of one large Zstandard chunk: decoding it takes longer than a command may take to stop."""
    path, size = folder / "long.tet", 3 << 30
    base = claims.tet_file()
    index, frame = base.index(b"TIDX"), claims.zeros_frame(size)
    struct.pack_into("<I", base, 44, 5)
    struct.pack_into("<4Q", base, 64, size, 1, size, 1)
    struct.pack_into("<QQ", base, 16 + 8, 32 + 104, 56)
    struct.pack_into("<Q", base, index + 8, 1)
    head = base[: index + 32 + 104]
    struct.pack_into("<3QI", head, index + 32 + 72, len(head), size, len(frame), 1)
    path.write_bytes(head + frame)
    return path


def wide_source(folder):
    """Many chunks, so that a command is between two of them."""
    path = folder / "wide.npy"
    np.save(path, np.arange(60_000_000, dtype="f4"))
    return path


def stopped(arguments, number, folder):
    """How long a command lives on after a signal; it must have been at work when the signal came."""
    child = subprocess.Popen([str(TET), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder)
    time.sleep(0.35)
    assert child.poll() is None, child.communicate()
    child.send_signal(number)
    begun = time.monotonic()
    # Its output is not read: a command that waits for a full pipe must end, too.
    code = child.wait(timeout=20)
    took = time.monotonic() - begun
    child.communicate()
    return code, took


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_decode_is_stopped(tmp_path, number):
    source = long_source(tmp_path)
    raised = ["--max-expansion", "16GiB"]
    for arguments in (["stat", source], ["verify", "--deep", source], ["cat", source, "--raw"], ["convert", source, "out.tet", "--no-resume"]):
        code, took = stopped([*arguments, *raised], number, tmp_path)
        assert code == 130, arguments
        # A generous multiple of the 120 ms after which the process is ended: the machine may be busy.
        assert took < 2, (arguments, took)
        assert [p.name for p in tmp_path.iterdir()] == [source.name], arguments


def test_outputs_of_many_chunks_leave_nothing(tmp_path):
    source = wide_source(tmp_path)
    for arguments in (
        ["convert", source, "out.tet", "--codec", "zstd:15", "--no-resume"],
        ["convert", source, "out.tdb", "--to", "tiledb", "--codec", "zstd:15", "--no-resume"],
        ["cat", source, "--format", "csv", "-o", "out.csv"],
    ):
        code, took = stopped(arguments, signal.SIGINT, tmp_path)
        assert code == 130, arguments
        assert took < 2, (arguments, took)
        assert [p.name for p in tmp_path.iterdir()] == [source.name], arguments
