"""A short run of every kind of scripts/soak: damage is rejected or harmless, writes are atomic, limits hold."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "scripts" / "soak"


def soak(*arguments):
    done = subprocess.run([sys.executable, SOAK, "--smoke", "--seed", "5", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split(maxsplit=4) for line in done.stdout.splitlines()]


def test_damage_is_never_silent():
    rows = soak("flips", "mutations", "truncations", "swaps", "missing")
    # Eight samples, six of them folders; a single file has no parts that could be missing.
    assert len(rows) == 8 * 4 + 6, rows
    assert sum(int(row[3]) for row in rows) > 700


@pytest.mark.parametrize("kind", ["kills", "crashes", "faults"])
def test_writes_are_whole_or_nothing(kind):
    if kind != "kills" and not shutil.which("strace"):
        pytest.skip("there is no strace")
    assert len(soak(kind)) == 8


@pytest.mark.parametrize("kind, parts", [("crowds", 2), ("overwrite", 3), ("cut", 2), ("memory", 1), ("handles", 8)])
def test_limits_and_neighbors(kind, parts):
    assert len(soak(kind)) == parts


def test_nothing_outside_changes_behind_links():
    rows = soak("links")
    assert len(rows) == 5 and all("rounds" in row[-1] for row in rows), rows


def test_hostile_files_end_as_their_rules_say():
    (row,) = soak("hostile")
    assert json.loads(row[4])["files"] > 80, row


def test_claimed_sizes_take_little_time_and_memory():
    rows = soak("claims")
    kinds = ["crafted", "interchange", "tet", "tgm", "tiledb", "npy", "netcdf3", "hdf5", "fields", "grib", "csv", "index", "values", "tables", "parquet", "arrow", "npz",
             "compound", "versions", "statistics", "zarr"]
    assert [row[1] for row in rows] == kinds, rows
    figures = [json.loads(row[4]) for row in rows]
    assert all(f["runs"] >= 40 and f["most_mib"] <= 64 for f in figures), figures


def test_requests_to_the_page_take_little_time_and_memory():
    (row,) = soak("pages")
    figures = json.loads(row[4])
    assert figures["requests"] == 60 and figures["statuses"].get("200", 0) > 5 and figures["most_mib"] <= 64, figures


def test_deep_verification_detects_flips_by_statistics():
    rows = soak("deep")
    assert [row[1] for row in rows] == ["dense", "sparse"], rows
    for row in rows:
        figures = json.loads(row[4])
        assert "skipped" in figures or figures["int32"]["hidden"] == figures["float32"]["hidden"] == 0, row
