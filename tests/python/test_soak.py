"""A short run of scripts/soak: damaged files of every format are refused or harmless, and nothing crashes."""

import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).resolve().parents[2] / "scripts" / "soak"


def test_damage_is_never_silent():
    done = subprocess.run([sys.executable, SOAK, "--count", "60", "--seed", "5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    # Four samples; a single file has no pieces that could be missing.
    assert len(rows) == 4 * 3 + 2, done.stdout
    assert sum(int(row[2]) for row in rows) > 700, done.stdout
