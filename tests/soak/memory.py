"""Twelve operations under three memory limits: the process stays within the limit plus 64 MiB, or reports that it cannot."""

import resource
import subprocess

from common import EXAMPLES, PYTHON, SECONDS, TET, need, run, tet

MIB = 1 << 20
LIMITS = (16, 64, 256)
SLACK = 64
#: Size of the data in MiB: more than any limit.
SIZE = 320

ROWS = """
import sys
n = int(sys.argv[1])
print("x,v")
for i in range(n):
    print(f"{i},{i % 97}")
"""


def operations(folder):
    """Name, command, accepted exit codes: 0, and 6 if the result itself exceeds the limit."""
    big, out = folder / "big.tet", folder / "out"
    array = folder / "sparse"
    return {
        "info": (["info", big], (0,)),
        "cat raw": (["cat", big, "--raw"], (0,)),
        "cat csv": (["cat", big, "0=0:20", "--format", "csv"], (0,)),
        "cat npy": (["cat", big, "--format", "npy", "-f", "-o", f"{out}.npy"], (0, 6)),
        "cat window": (["cat", big, "0=0:1", "--raw"], (0, 6)),
        "stat": (["stat", big], (0,)),
        "stat by dimension": (["stat", big, "--by", "0"], (0, 6)),
        "verify deep": (["verify", big, "--deep"], (0,)),
        "convert to tgm": (["convert", "-f", big, f"{out}.tgm"], (0, 6)),
        "convert to TileDB": (["convert", "-f", big, f"{out}.tdb", "--to", "tiledb"], (0, 6)),
        "rechunk": (["rechunk", "-f", big, f"{out}.tet", "--chunk", "512,512"], (0, 6)),
        "sparse rows": (["cat", array, "v", "--raw"], (0, 6)),
    }


def prepare(folder):
    run(EXAMPLES / "write_large", folder / "big.tet", SIZE)
    rows = folder / "rows.csv"
    with rows.open("w") as out:
        subprocess.run([PYTHON if PYTHON.exists() else "python3", "-c", ROWS, "400000"], stdout=out, check=True)
    tet("create", folder / "sparse", "--sparse", "--dim", "x=0..999999/10000:int32", "--field", "v:int32")
    tet("append", folder / "sparse", rows)


def peak(command):
    """Exit code and peak resident memory in MiB. Pages of a map belong to the file and can be reclaimed."""
    script = ("import resource, subprocess, sys\n"
              "code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode\n"
              "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run(["python3", "-c", script, *map(str, command)], capture_output=True, text=True, timeout=4 * SECONDS)
    code, kib = done.stdout.split()
    return int(code), int(kib) / 1024


def soak(name, folder, count, seed=1):
    """All operations under all limits, or `count` of them."""
    folder = folder / name
    folder.mkdir()
    prepare(folder)
    cases = [(operation, limit) for limit in LIMITS for operation in operations(folder)]
    most, answered, refused = 0.0, 0, 0
    for operation, limit in cases[:: max(1, len(cases) // count)]:
        command, codes = operations(folder)[operation]
        code, mib = peak([TET, "--memory", f"{limit}MiB", *command])
        need(code in codes, operation, f"within {limit} MiB ended with", code)
        most = max(most, mib - limit)
        need(mib <= limit + SLACK, operation, f"took {mib:.0f} MiB within a limit of {limit}")
        answered, refused = answered + (code == 0), refused + (code != 0)
    return {"operations": answered + refused, "answered": answered, "refused": refused, "most_above_limit_mib": round(most, 1)}
