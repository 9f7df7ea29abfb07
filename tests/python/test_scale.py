"""The page about scale: its tables are those of the simulation, whose sizes are those of files that are read from a server."""

import re
import subprocess
import sys

import pytest
from support import ROOT, TET

sys.path.insert(0, str(ROOT / "bench"))
import simulate  # noqa: E402

PAGE = (ROOT / "docs/scale.md").read_text()


@pytest.mark.parametrize("name", simulate.TABLES)
def test_tables_are_those_of_the_simulation(name):
    [found] = simulate.marked(name).finditer(PAGE)
    assert found[2] == simulate.TABLES[name]() + "\n", "run bench/simulate.py --write"


def test_every_measured_size_is_stated():
    for name, size in simulate.FACTS.items():
        format, what = name.split(", ")
        assert re.search(rf"^\| .*{format}.*{what.split()[-1]}.* \| {size:,} \|", PAGE, re.M | re.I), name


def test_sizes_are_those_of_the_binary():
    done = subprocess.run([sys.executable, ROOT / "bench/simulate.py", "--measure", "--tet", TET, "--latency", "2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n") == 2 + len(simulate.FACTS) - 1, done.stdout


def test_requests_are_replayed_within_the_limits():
    store = simulate.Store(latency=0.1, connection=1e6, client=1e7, requests=100)
    seconds = lambda *of: simulate.replay([simulate.Round(*of)], store)[0]  # noqa: E731
    assert seconds(0, 1e6) == 0
    assert seconds(1, 1e6) == pytest.approx(1.1)
    # Two connections, three requests: the third waits.
    assert seconds(3, 1e6, 2) == pytest.approx(2.2, rel=0.01)
    # Many connections share what the machine has.
    assert seconds(20, 1e6, 20) == pytest.approx(0.1 + 2, rel=0.1)
    # The limit of requests; also beyond those that are replayed one by one.
    assert seconds(1000, 0, 64) == pytest.approx(10.1, rel=0.01)
    assert seconds(10 * simulate.REPLAYED, 0, 64) == pytest.approx(10 * simulate.REPLAYED / 100, rel=0.01)
    assert simulate.replay([simulate.Round(2, 10)] * 3, store)[1:] == (6, 60)


def test_policies_keep_every_cell():
    for policy in (simulate.never, simulate.everything(10), simulate.levels(4)):
        sizes = []
        for _ in range(1000):
            sizes.append(1)
            while policy(sizes):
                pass
        assert sum(sizes) == 1000
    assert simulate.compact(simulate.never, 50) == (50, 50, 1.0)
    assert simulate.compact(simulate.everything(10), 10) == (10, 1, 2.0)
    # Each cell is written once when it is appended, and once in each level.
    assert simulate.compact(simulate.levels(10), 1000) == (28, 1, 4.0)
