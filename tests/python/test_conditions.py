"""Conditions on labeled dimensions compare labels, as selections do, and rows show them."""

import csv
import io

import numpy as np
import pyarrow as pa
import pytest
import tet as reference
from support import tet, tet_json

LABELS = {
    "lat": ["-10", "0", "10", "2.5"],
    "time": ["2015-06-01", "2015-06-16", "2015-07-01"],
    "site": ["b", "a", "b"],
}
CELLS = np.arange(36, dtype="i4").reshape(4, 3, 3)


@pytest.fixture(params=["tet", "tgm"])
def path(request, tmp_path):
    made, out = tmp_path / "made.tet", tmp_path / f"in.{request.param}"
    reference.write_dataset(str(made), "v", CELLS, dim_names=list(LABELS), coords=LABELS)
    tet("convert", made, out)
    return out


def rows(path, condition):
    return list(csv.reader(io.StringIO(tet("cat", path, "v", "--where", condition, "--format", "csv").decode())))[1:]


def expected(meets):
    found = [(i, j, k) for i, j, k in np.ndindex(*CELLS.shape)
             if meets(float(LABELS["lat"][i]), LABELS["time"][j], LABELS["site"][k], int(CELLS[i, j, k]))]
    return [[LABELS["lat"][i], LABELS["time"][j], LABELS["site"][k], str(CELLS[i, j, k])] for i, j, k in found]


@pytest.mark.parametrize("condition, meets", [
    ("lat > 1", lambda lat, time, site, v: lat > 1),
    ("lat <= 0", lambda lat, time, site, v: lat <= 0),
    ("not lat > 1", lambda lat, time, site, v: lat <= 1),
    ("lat == 0.0", lambda lat, time, site, v: lat == 0),
    ("lat in (10, 2.5, 7)", lambda lat, time, site, v: lat in (10, 2.5)),
    ("lat not in (10, 2.5)", lambda lat, time, site, v: lat not in (10, 2.5)),
    ("lat > 100", lambda lat, time, site, v: False),
    ('time == "2015-06"', lambda lat, time, site, v: time < "2015-07"),
    ('time > "2015-06"', lambda lat, time, site, v: time >= "2015-07"),
    ('site == "b" and v > 20', lambda lat, time, site, v: site == "b" and v > 20),
    ('site != "b" or lat < 0', lambda lat, time, site, v: site != "b" or lat < 0),
])
def test_labels_are_compared(path, condition, meets):
    want = expected(meets)
    assert rows(path, condition) == want
    stat = tet_json("stat", path, "v", "--where", condition)
    assert (stat["count"], stat["sum"]) == (len(want), sum(int(row[-1]) for row in want))


def test_every_form_shows_labels(path):
    document = tet_json("cat", path, "v", "--where", "v == 7")
    column = document["columns"][-1]["name"]
    assert document["rows"] == [{"lat": "-10", "time": "2015-07-01", "site": "a", column: 7}]
    assert tet("cat", path, "v", "--where", "v == 7").decode().split()[-4:] == ["-10", "2015-07-01", "a", "7"]
    table = pa.ipc.open_stream(tet("cat", path, "v", "--where", "v == 7", "--format", "arrow")).read_all()
    assert [str(column[0].as_py()) for column in table.columns] == ["-10", "2015-07-01", "a", "7"]


def test_what_cannot_be_compared_is_refused(path):
    tet("cat", path, "v", "--where", 'site > "a"', code=2)
    tet("cat", path, "v", "--where", 'lat > "north"', code=2)
    tet("cat", path, "v", "--where", "height > 1", code=3)
