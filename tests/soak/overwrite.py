"""Files that are overwritten in place while each command reads them: what comes out is one state of the file, or an error. Files without
digests are among them, so that only the identity of the file shows the change."""

import array
import os
import random
import struct
import subprocess
import time

from common import TET, need, run

SHAPE = (600, 500)


def write_npy(path, value):
    """A NumPy file of int64 that all have one value."""
    header = repr({"descr": "<i8", "fortran_order": False, "shape": SHAPE}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    cells = struct.pack("<q", value) * (SHAPE[0] * SHAPE[1])
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + cells)


def samples(folder):
    """Two files of each kind that differ in every cell and are equally long."""
    for value in (1, 2):
        npy = folder / f"{value}.npy"
        write_npy(npy, value)
        run(TET, "convert", npy, folder / f"{value}.tet", "--chunk", "50,50")
        run(TET, "convert", npy, folder / f"{value}.tgm")
    found = {}
    for kind in ("npy", "tet", "tgm"):
        first, second = ((folder / f"{value}.{kind}").read_bytes() for value in (1, 2))
        # What else differs, such as times and digests, goes along; lengths must not give the change away.
        if len(first) == len(second):
            found[kind] = (first, second)
    need({"npy", "tet"} <= set(found), "samples differ in length")
    return found


def commands(source, folder):
    out = folder / "out"
    return {
        "cat": ["cat", source, "--raw"],
        "stat": ["stat", source, "--json"],
        "info": ["info", source, "--json"],
        "verify": ["verify", source, "--deep"],
        "diff": ["diff", source, folder / "1.npy"],
        "convert": ["convert", source, out, "-f"],
        "rechunk": ["rechunk", source, folder / "out.tet", "--chunk", "600,7", "-f"],
        "recover": ["recover", source, folder / "saved.tet", "-f"],
    }


def holds(process, path):
    """Whether a process has a file open."""
    folder = f"/proc/{process.pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{fd}") == str(path) for fd in os.listdir(folder))
    except OSError:
        return False


def values(raw):
    return set(array.array("q", raw))


def soak(kind, folder, count, seed=1):
    folder = folder / kind
    folder.mkdir()
    first, second = samples(folder)[kind]
    random_ = random.Random(seed)
    outcome = {"runs": 0, "changed": 0, "unchanged": 0, "refused": 0}
    source = folder / f"source.{kind}"
    for number in range(count):
        for name, command in commands(source, folder).items():
            if name in ("rechunk", "recover") and kind != "tet":
                continue
            source.write_bytes(first)
            process = subprocess.Popen([TET, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            # Standard output of `cat` fills the pipe, which holds it up while the file is overwritten.
            while process.poll() is None and not holds(process, source):
                time.sleep(0.0001)
            time.sleep(random_.uniform(0, 0.01) if number % 2 else 0)
            with source.open("r+b") as file:
                step = len(second) // random_.randint(2, 9) + 1
                for at in range(0, len(second), step):
                    file.seek(at)
                    file.write(second[at : at + step])
                    file.flush()
            out, err = process.communicate(timeout=120)
            code = process.returncode
            need(code >= 0, f"{name} of {kind} ended by signal {-code}")
            outcome["runs"] += 1
            if b"changed while it was read" in err:
                need(code == 8, f"{name} of {kind} ended with {code}: {err.decode()}")
                outcome["changed"] += 1
            elif code in (0, 1) and not err.startswith(b"error"):
                outcome["unchanged"] += 1
                check(name, folder, out, kind)
            else:
                # The file was half overwritten when it was opened, and a digest or a parser found that.
                need(code in (4, 5, 8), f"{name} of {kind} ended with {code}: {err.decode()}")
                outcome["refused"] += 1
    return outcome


def check(name, folder, out, kind):
    """One state of the file came out."""
    if name == "cat":
        need(len(values(out)) == 1, f"cat of {kind} mixed two states")
    elif name in ("convert", "rechunk", "recover"):
        made = {"convert": "out", "rechunk": "out.tet", "recover": "saved.tet"}[name]
        found = values(run(TET, "cat", folder / made, "--raw"))
        need(len(found) == 1, f"{name} of {kind} mixed two states: {found}")


KINDS = ("npy", "tet", "tgm")
