"""Damaged copies of a source of each format, read by Tesseral in one process and by the references in separate processes,
because they may crash."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from common import PYTHON, SOAK, TARGET, need, run, samples

KINDS = ("flips", "mutations", "truncations", "swaps", "missing")
PEERS = {"ranks.tet": "tet", "ranks.tgm": "tensogram", "dense": "tiledb", "sparse": "tiledb",
         "ours-dense": "tiledb", "ours-sparse": "tiledb"}
#: Time limit of a reference for one file.
PATIENCE = 10


def ours(sample, kind, count, seed):
    keep = TARGET / "soak" / f"{sample.name}-{kind}"
    shutil.rmtree(keep, ignore_errors=True)
    done = subprocess.run([SOAK, "damage", sample, kind, str(count), str(seed), keep], capture_output=True, text=True)
    need(done.returncode == 0, sample.name, kind, "ended with", done.returncode, done.stderr[-300:])
    found = json.loads(done.stdout)
    for bad in found["bad"]:
        print(f"{bad['outcome']}: {sample.name} {kind} {bad['number']} in {bad['file'] or 'the file'}, kept in {keep}", file=sys.stderr)
    return found["outcomes"]


class Peer:
    """A reference package that reads one file after another, restarted when it dies."""

    def __init__(self, package):
        self.package, self.process = package, None

    def read(self, path):
        """A digest of the cells it reads; `error`; or `crash`."""
        if self.process is None:
            reader = Path(__file__).with_name("peer.py")
            self.process = subprocess.Popen([PYTHON, reader, self.package, str(PATIENCE)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.process.stdin.write(f"{path}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            # It died after its last response, because of that file and not of this one.
            self.process = None
            return self.read(path)
        if answer := self.process.stdout.readline().strip():
            return answer
        self.process.wait()
        self.process = None
        return "crash"

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(timeout=60)


def theirs(sample, kind, count, seed, folder):
    copies = folder / f"{sample.name}-{kind}"
    run(SOAK, "damage", sample, kind, count, seed, copies, env={**os.environ, "SOAK_COPIES": "1"})
    peer = Peer(PEERS[sample.name])
    truth, outcomes = peer.read(sample), {}
    need(truth not in ("error", "crash"), "the reference does not read", sample)
    for copy in sorted(copies.iterdir()) if copies.exists() else []:
        found = peer.read(copy)
        outcome = {"error": "refused", "crash": "crash", truth: "harmless"}.get(found, "silent")
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    peer.close()
    shutil.rmtree(copies, ignore_errors=True)
    return outcomes


def soak(kinds, folder, count, peers, seed=1):
    """Rows of the table: reader, sample, kind, outcomes."""
    for sample in samples(folder):
        for kind in kinds:
            if kind == "missing" and not sample.is_dir():
                continue
            yield "tesseral", sample.name, kind, ours(sample, kind, count(kind), seed)
            if peers and PYTHON.exists() and sample.name in PEERS:
                yield PEERS[sample.name], sample.name, kind, theirs(sample, kind, peers, seed, folder)
