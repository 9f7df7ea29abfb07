"""Every call on files fails once, as on a broken or full device: the command reports it, and the result is the old state or
the new one. Needs strace, which injects the failures."""

import shutil

from common import need
from kills import step_of
from trace import Trace, strace

ERRORS = ("EIO", "ENOSPC")


def soak(name, folder, count, seed=1):
    rng, writer, old, command, wanted, before = step_of(name, folder, seed)
    uses = Trace(command, writer.folder).uses
    cases = [(call, nth, error) for call, nth in uses for error in ERRORS]
    reported = survived = 0
    for call, nth, error in sorted(rng.sample(cases, min(count, len(cases)))):
        shutil.rmtree(writer.folder)
        shutil.copytree(before, writer.folder)
        inject = f"inject={call}:error={error}:when={nth}"
        done = strace(command, "-e", f"trace={call}", "-e", inject, cwd=writer.folder, output="/dev/null")
        need(0 <= done.returncode <= 8 and b"panicked" not in done.stderr, name, inject, done.returncode, done.stderr[-300:])
        now = writer.state()
        need(now in (old, wanted), name, inject, "left neither the old state nor the new one")
        writer.after_fault(done.returncode == 0)
        if done.returncode == 0:
            # A leftover that could not be removed, or a read with a fallback.
            need(now == wanted, name, inject, "said all was well")
            survived += 1
        else:
            reported += 1
    return {"calls": len(uses), "failures": reported + survived, "reported": reported, "survived": survived}
