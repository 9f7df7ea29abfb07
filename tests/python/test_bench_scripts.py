"""Scripts of `bench`: ratios of result files are compared with recorded ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "bench/results").glob("*.md"))

RECORDED = """
### Arrays

| case | | tesseral | numpy | zarrs |
|---|---|---|---|---|
| `read` | full read | 10 ms; 5 ms | 20 ms; 20 ms (2×; 4×) | – [1] |
| `a|b` | a condition | 1 µs; 500 ns | 2 µs; 2 µs (2×; 4×) | 900 ns; 1 µs (0.9×; 2×) |

[1] not asked

### Messages

| case | tesseral | peer | time | factor |
|---|---|---|---|---|
| decode | 1.5 s | eccodes | 3 s | 2× |

| library | open, ms | all, s | of object_store |
|---|---|---|---|
| tesseral cube.tet | 50 | 1.5 | 90% |
| zarr with obstore | 100 | 3.0 | 45% |
"""


def regressions(folder, new, *options, recorded=RECORDED):
    (folder / "recorded.md").write_text(recorded)
    (folder / "new.md").write_text(new)
    command = [sys.executable, ROOT / "bench/regressions.py", folder / "recorded.md", folder / "new.md", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_equal_files_have_no_regression(tmp_path):
    code, text = regressions(tmp_path, RECORDED)
    assert code == 0 and text.startswith("9 ratios in both files, 0 fell"), text


@pytest.mark.parametrize(
    ("old", "new", "row"),
    [
        # Only repetitions became slower.
        ("10 ms; 5 ms |", "10 ms; 7 ms |", r"Arrays \| `read` \| numpy \| repeated \| 4× \| 2.86× \| 71% \|"),
        # The other library became faster, and is ahead now.
        ("2 µs; 2 µs", "500 ns; 2 µs", r"`a¦b` \| numpy \| first \| 2× \| 0.5× \| 25% \| now behind"),
        ("| 1.5 s |", "| 2.5 s |", r"Messages \| decode \| eccodes \| first \| 2× \| 1.2× \| 60%"),
        ("cube.tet | 50 |", "cube.tet | 80 |", r"tesseral cube.tet: open \| zarr with obstore \| first \| 2× \| 1.25×"),
    ],
)
def test_ratios_that_fell_are_listed(tmp_path, old, new, row):
    assert old in RECORDED
    code, text = regressions(tmp_path, RECORDED.replace(old, new))
    assert code == 1 and re.search(row, text), text


def test_the_machine_and_small_differences_do_not_count(tmp_path):
    # Everything takes four times as long: another machine.
    slower = re.sub(r"\d+(\.\d+)?(?= (ms|µs|ns|s)\b)", lambda number: str(float(number[0]) * 4), RECORDED)
    assert slower != RECORDED and regressions(tmp_path, slower)[0] == 0
    little = RECORDED.replace("10 ms; 5 ms |", "11 ms; 5 ms |")
    assert regressions(tmp_path, little)[0] == 0
    assert regressions(tmp_path, little, "--tolerance", "0.05")[0] == 1


def test_missing_rows_are_listed_unless_the_run_is_partial(tmp_path):
    partial = "\n".join(line for line in RECORDED.splitlines() if "decode" not in line)
    code, text = regressions(tmp_path, partial)
    assert code == 1 and "1 recorded ratios are missing:\n- Messages, decode, eccodes, first" in text
    assert regressions(tmp_path, partial, "--partial")[0] == 0
    # A file without tables is a mistake, not a success.
    assert regressions(tmp_path, RECORDED, recorded="# nothing\n")[0] == 2


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_recorded_results_can_be_compared(tmp_path, path):
    text = path.read_text(encoding="utf-8")
    code, output = regressions(tmp_path, text, recorded=text)
    assert code == 0 and int(output.split(" ", 1)[0]) >= 10, output
