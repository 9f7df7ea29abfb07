"""Random arrays of the reference package, read by both at several times: equal bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import tet, tet_json

WRITER = Path(__file__).with_name("tiledb_arrays.py")


def write(seed, folder):
    done = subprocess.run([sys.executable, WRITER, str(seed), str(folder)], capture_output=True, timeout=300)
    # Some combinations of filters and types end the package's own process.
    return json.loads((folder / "expected.json").read_text()) if done.returncode == 0 else None


@pytest.mark.parametrize("batch", range(8))
def test_random_arrays(batch, tmp_path):
    compared = 0
    for seed in range(batch * 6, batch * 6 + 6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        expected = write(seed, folder)
        if expected is None:
            continue
        array = folder / "array"
        info = tet_json("info", array)
        assert info["format"] == "tiledb"
        assert info["arrays"][0]["sparse"] == expected[0]["sparse"]
        tet("verify", array, "--deep")
        for state in expected:
            as_of = "{}..{}".format(*state["as_of"])
            listed = tet_json("info", array, "--as-of", as_of)["arrays"][0]["fields"]
            names = [field["name"] for field in listed]
            assert [name for name in state["columns"] if name in names] == names
            compared += 1
            for name, column in state["columns"].items():
                raw = tet("cat", array, name, "--raw", "--as-of", as_of)
                assert raw.hex() == column["raw"], (seed, name, as_of)
                validity = tet("cat", array, name, "--validity", "--as-of", as_of)
                assert validity.hex() == column["validity"], (seed, name, as_of)
    assert compared > 0
