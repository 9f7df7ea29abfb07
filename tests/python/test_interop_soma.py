"""SOMA experiments: groups of TileDB arrays, as `tiledbsoma` writes and reads them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, tet, tet_json

WRITER = Path(__file__).with_name("soma_experiment.py")


def same(ours, theirs):
    """Equal; 32-bit floats are printed with the fewest digits that identify them."""
    if isinstance(theirs, float) and not isinstance(ours, bool):
        return ours == theirs or np.float32(ours) == np.float32(theirs)
    return ours == theirs


def check(folder):
    """Every array of the experiment, row for row."""
    expected = json.loads((folder / "soma.json").read_text())
    source = folder / "soma"
    info = tet_json("info", source)
    assert info["attributes"]["soma_object_type"] == "SOMAExperiment"
    assert {m["path"]: m["type"] for m in info["tiledb"]["members"] if "/" not in m["path"]} == {"ms": "group", "obs": "array"}
    assert {array["name"] for array in info["arrays"]} == set(expected)
    tet("verify", source, "--deep")
    for name, rows in expected.items():
        ours = tet_json("cat", source, name)["rows"]
        assert len(ours) == len(rows), name
        for got, want in zip(ours, rows):
            assert set(got) == set(want) and all(same(got[k], want[k]) for k in want), (name, got, want)
    kinds = tet_json("cat", source, "obs", "--where", 'cell_type == "NK"')["rows"]
    assert [row["soma_joinid"] for row in kinds] == [r["soma_joinid"] for r in expected["obs"] if r["cell_type"] == "NK"]


def test_a_stored_experiment():
    check(ROOT / "fixtures" / "tiledb")


def test_a_fresh_experiment(tmp_path):
    pytest.importorskip("tiledbsoma")
    subprocess.run([sys.executable, WRITER, tmp_path], check=True, timeout=300)
    check(tmp_path)
