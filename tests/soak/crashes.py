"""Replayed crashes: the calls of each commit path are recorded, then every moment between two of them becomes a disk state in which
unsynced writes are kept, dropped or partially applied. Each must read as the old state or the new one."""


from common import need
from kills import step_of
from trace import Disk, Trace

VARIANTS = ("kept", "dropped", "partial")


def soak(name, folder, count, seed=1):
    """Every crash state of one commit path, or `count` of them."""
    rng, writer, old, command, wanted, before = step_of(name, folder, seed)
    trace = Trace(command, writer.folder)
    need(writer.state() == wanted, name, "did not write what it should")
    moments = [(k, variant) for k in range(len(trace.ops) + 1) for variant in VARIANTS]
    seen = {"old": 0, "new": 0}
    for k, variant in sorted(rng.sample(moments, min(count, len(moments)))):
        disk = Disk(before)
        for op in trace.ops[:k]:
            disk.apply(op)
        disk.write(writer.folder, variant)
        now = writer.state()
        need(now in (old, wanted), name, f"crashed after call {k} of {len(trace.ops)}, unsynced writes {variant}")
        if k == len(trace.ops):
            need(now == wanted, name, f"was lost after its last call, unsynced writes {variant}")
        seen["new" if now == wanted else "old"] += 1
    return {"calls": len(trace.ops), "states": sum(seen.values()), **seen}
