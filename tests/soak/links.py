"""Symbolic links where commands write and remove: in place of fragments and commits, as outputs, on the way to them, and swapped in
while a command runs. Whatever the command prints, nothing that it does not name may change."""

import contextlib
import os
import random
import shutil
import stat
import subprocess
import threading

from common import ROOT, SECONDS, TET, need, tet

ATTACKS = ("fragments", "commits", "outputs", "ways", "swaps")
SAMPLE = ROOT / "fixtures/tet/ranks_zstd_v1.tet"
ARRAYS = ROOT / "fixtures/tiledb"


def state(folder):
    """Names, kinds, modes, contents and targets below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.filemode(status.st_mode), content)
    return found


class Scene:
    """An array that commands work on, and a folder outside that none of them names."""

    def __init__(self, folder, ended):
        self.folder, self.ended = folder, ended
        self.array, self.outside, self.file = folder / "array", folder / "outside", folder / "a.tet"
        folder.mkdir()
        shutil.copytree(ARRAYS / "dense_overlay", self.array)
        shutil.copy(SAMPLE, self.file)
        shutil.copytree(self.array, self.outside / "array")
        shutil.copy(SAMPLE, self.outside / "b.tet")
        (self.outside / "deep/er").mkdir(parents=True)
        (self.outside / "deep/er/keep.txt").write_text("kept")
        self.before = state(self.outside)

    def fragments(self):
        return sorted((self.array / "__fragments").iterdir())

    def run(self, *command):
        done = subprocess.run([TET, *map(str, command)], capture_output=True, timeout=SECONDS, cwd=self.folder)
        need(0 <= done.returncode <= 8 and b"panicked" not in done.stderr, command, done.returncode, done.stderr[-300:])
        self.ended["refused" if done.returncode else "done"] += 1

    def judge(self, *what):
        need(state(self.outside) == self.before, *what, "changed something outside")


def uncommitted(letter):
    return f"__90_90_{letter * 32}_22"


def removing(scene):
    """Every command that removes or adds files of an array."""
    yield "repair", scene.array, "--apply", "uncommitted_fragments"
    for part in ("fragments", "commits", "fragment-meta", "array-meta"):
        yield "vacuum", scene.array, "--apply", "--part", part
    yield "consolidate", scene.array
    yield "repair", scene.array, "--apply", "stale_vacuum_files"


def writing(scene, out):
    """Every command that makes an output, with and without being asked to overwrite."""
    for force in ([], ["-f"]):
        for target in ("tet", "tensogram", "tiledb"):
            yield "convert", *force, scene.file, out, "--to", target
        yield "recover", *force, scene.file, out
        yield "recover", *force, scene.array, out
        yield "rechunk", *force, scene.file, out, "--array", "rank2", "--chunk", "2"
        yield "create", *force, out, "--dim", "x=0..9/5:int32", "--field", "v:int32"
        yield "cat", scene.file, "rank2", "--format", "csv", *force, "-o", out
        yield "plot", scene.file, "rank2", *force, "-o", out
        document = '{"dataset": "rank2", "spill": "%s"}' % out.name
        yield "query", document, "-t", scene.file, "-x", *force


def in_fragments(scene, rng):
    """A link in place of a fragment, of the folder of fragments, or inside one."""
    tet("consolidate", scene.array, code=(0, 2))
    kind = rng.choice(["new", "old", "folder", "inside"])
    if kind == "new":
        (scene.array / "__fragments" / uncommitted("a")).symlink_to(scene.outside / rng.choice(["deep", "array"]))
    elif kind == "inside":
        made = scene.array / "__fragments" / uncommitted("b")
        made.mkdir()
        (made / "a0.tdb").symlink_to(scene.outside / "b.tet")
        (made / "folder").symlink_to(scene.outside / "deep")
    else:
        moved = scene.array / "__fragments" if kind == "folder" else rng.choice(scene.fragments())
        shutil.move(moved, scene.outside / "moved")
        moved.symlink_to(scene.outside / "moved")
    scene.before = state(scene.outside)
    yield from removing(scene)


def in_commits(scene, rng):
    """A link in place of a commit, of the folder of commits, of a list of replaced fragments."""
    tet("consolidate", scene.array, code=(0, 2))
    commits = sorted((scene.array / "__commits").iterdir())
    moved = rng.choice([*commits, scene.array / "__commits", scene.array / "__meta", scene.array / "__schema"])
    if moved.exists():
        shutil.move(moved, scene.outside / "moved")
        moved.symlink_to(scene.outside / "moved")
    scene.before = state(scene.outside)
    yield from removing(scene)


def as_outputs(scene, rng):
    """The output is a link."""
    out = scene.folder / "out.tet"
    out.symlink_to(scene.outside / rng.choice(["b.tet", "array", "deep", "nothing"]))
    yield from writing(scene, out)


def on_ways(scene, rng):
    """The output lies in a folder that holds links: those next to it stay, and what they point to."""
    real = scene.folder / "real"
    real.mkdir()
    out = real / "out.tet"
    (real / ".tesseral-out.tet.1-2-3.0.staged").symlink_to(scene.outside / "deep")
    (real / "other").symlink_to(scene.outside / "array")
    (scene.folder / "way").symlink_to(real)
    if rng.random() < 0.5:
        shutil.copytree(scene.array, out)
        (out / "mine").symlink_to(scene.outside / "deep")
    yield from writing(scene, scene.folder / "way/out.tet")


@contextlib.contextmanager
def swapping(path, target, aside):
    """Exchanges a folder or file with a link to another, over and over."""
    done = threading.Event()

    def swap():
        while not done.is_set():
            with contextlib.suppress(OSError):
                os.rename(path, aside)
                os.symlink(target, path)
                os.unlink(path)
                os.rename(aside, path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def swapped(scene, rng):
    """A fragment or an output becomes a link while a command runs."""
    tet("consolidate", scene.array, code=(0, 2))
    if rng.random() < 0.5:
        victim, target = rng.choice(scene.fragments()), scene.outside / "deep"
        commands = list(removing(scene))
    else:
        victim = scene.folder / "out.tet"
        shutil.copy(SAMPLE, victim)
        target = scene.outside / rng.choice(["b.tet", "array", "deep"])
        commands = [c for c in writing(scene, victim) if "-f" in c]
    for command in commands:
        with swapping(victim, target, scene.folder / "aside"):
            scene.run(*command)
        scene.judge(*command)
    yield from ()


KINDS = {"fragments": in_fragments, "commits": in_commits, "outputs": as_outputs, "ways": on_ways, "swaps": swapped}


def soak(attack, folder, count, seed=1):
    rng = random.Random(f"{attack} {seed}")
    ended = {"done": 0, "refused": 0}
    for number in range(count):
        scene = Scene(folder / f"{attack}{number}", ended)
        for command in KINDS[attack](scene, rng):
            scene.run(*command)
            scene.judge(*command)
        scene.judge(attack, number)
        shutil.rmtree(scene.folder)
    return {"rounds": count, **ended}
