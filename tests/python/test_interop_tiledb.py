"""Random arrays of the reference package, read by both at several times: equal bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import check_stat, number, tet, tet_json

WRITER = Path(__file__).with_name("tiledb_arrays.py")


def write(seed, folder):
    done = subprocess.run([sys.executable, WRITER, str(seed), str(folder)], capture_output=True, timeout=300)
    # Some combinations of filters and types end the package's own process.
    return json.loads((folder / "expected.json").read_text()) if done.returncode == 0 else None


def check_folds(array, fields, answer, where, context):
    """Holds `stat` of every field of numbers to the cells, with and without stored statistics."""
    for field in fields:
        try:
            dtype = np.dtype(field["dtype"])
        except TypeError:
            continue
        column = answer["columns"][field["name"]]
        if dtype.kind not in "iuf" or not answer["count"] or len(column["raw"]) != 2 * dtype.itemsize * answer["count"]:
            continue
        cells = np.frombuffer(bytes.fromhex(column["raw"]), dtype)
        fill = dtype.type(number(field["fill"]))
        gone = np.frombuffer(bytes.fromhex(column["validity"]), "u1") == 0
        gone = gone | (np.isnan(cells) if np.isnan(fill) else cells == fill)
        arguments = ["stat", array, field["name"], *answer["ranges"], *where]
        full, quick = tet_json(*arguments), tet_json(*arguments, "--quick")
        assert not full["from_statistics"] or quick["from_statistics"], context
        check_stat(full, cells, gone)
        same = ["count", "nulls", "nan", "min", "max"] + ([] if dtype.kind == "f" else ["sum"])
        assert [quick[k] for k in same] == [full[k] for k in same], context


@pytest.mark.parametrize("batch", range(8))
def test_random_arrays(batch, tmp_path):
    compared = asked = 0
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
            for answer in state.get("answers", []):
                where = ["--where", answer["where"]] if answer["where"] else []
                context = (seed, answer["ranges"], answer["where"])
                for name, column in answer["columns"].items():
                    raw = tet("cat", array, name, "--raw", *answer["ranges"], *where)
                    assert raw.hex() == column["raw"], (name, *context)
                check_folds(array, info["arrays"][0]["fields"], answer, where, context)
                rows = tet_json("cat", array, *answer["ranges"], *where)
                assert rows["count"] == answer["count"], context
                asked += 1
    assert compared > 0 and asked > 0
