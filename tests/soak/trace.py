"""File operations of a command, recorded with strace and replayed up to any moment of a crash."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

from common import SECONDS, need

CALLS = ("openat,creat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
         "mkdir,mkdirat,rmdir,pread64,read,getdents64")
LINE = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)\) += (-?\d+)")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
HANDLE = re.compile(r"^(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>")
#: A name in a folder that is given by a handle, or a name alone.
NAMED = re.compile(r'(?:(?:\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>, )?"((?:\\x[0-9a-f]{2})*)"')


def plain(hexed):
    return bytes.fromhex(hexed.replace("\\x", ""))


def names(arguments):
    """Paths that a call is given, those relative to a handle joined to its folder."""
    return [os.path.join(plain(folder), plain(name)).decode(errors="replace") for folder, name in NAMED.findall(arguments)]


def strace(command, *options, cwd, output):
    full = ["strace", "-f", "-qq", "-y", "-xx", "-s", "100000000", "-o", output, *options, *map(str, command)]
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    return subprocess.run(full, cwd=cwd, env=environment, capture_output=True, timeout=SECONDS)


def lines(output):
    """Complete calls in the order they returned."""
    begun = {}
    for line in Path(output).read_text(errors="replace").splitlines():
        pid = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            begun[pid] = line[: -len("<unfinished ...>")].rstrip()
            continue
        if "resumed>" in line:
            line = begun.pop(pid, "") + line.split("resumed>", 1)[1]
        if found := LINE.match(line):
            yield pid, found[1], found[2], int(found[3])


class Trace:
    """The calls of a command on files below a folder."""

    def __init__(self, command, folder):
        self.folder = folder
        output = folder.parent / "trace.txt"
        done = strace(command, "-e", f"trace={CALLS}", cwd=folder, output=output)
        need(done.returncode == 0, command, "failed under strace:", done.stderr[-300:])
        self.ops = []
        counts, inside, outside = Counter(), set(), set()
        for thread, name, arguments, result in lines(output):
            counts[thread, name] += 1
            if op := self.parse(name, arguments, result):
                self.ops.append(op)
            (inside if self.inside(name, arguments) else outside).add((name, counts[thread, name]))
        output.unlink()
        #: Calls on files of the folder: a name, and which of its uses in any one thread, counted from 1.
        self.uses = sorted(inside - outside)

    def inside(self, name, arguments):
        handle = HANDLE.match(arguments)
        given = names(arguments)[: 2 if name.startswith(("rename", "link")) else 1]
        if name in ("write", "pwrite64", "read", "pread64", "ftruncate", "fsync", "fdatasync", "getdents64"):
            given = [plain(handle[2]).decode(errors="replace")] if handle else []
        return any(self.relative(n) is not None for n in given)

    def relative(self, path):
        path = os.path.normpath(os.path.join(self.folder, path))
        root = str(self.folder)
        return path[len(root) + 1 :] if path.startswith(root + "/") else ("" if path == root else None)

    def parse(self, name, arguments, result):
        """An operation on names or bytes below the folder; none for calls that failed or only read."""
        if result < 0:
            return None
        texts = TEXT.findall(arguments)
        handle = HANDLE.match(arguments)
        of_handle = self.relative(plain(handle[2]).decode(errors="replace")) if handle else None
        path = lambda i: self.relative(names(arguments)[i])
        if name in ("pwrite64", "write") and handle and handle[1] != "AT_FDCWD" and of_handle:
            at = int(arguments.rsplit(",", 1)[1]) if name == "pwrite64" else None
            return ("write", of_handle, at, plain(texts[0])[:result])
        if name == "ftruncate" and of_handle:
            return ("cut", of_handle, int(arguments.rsplit(",", 1)[1]))
        if name in ("fsync", "fdatasync") and of_handle is not None:
            return ("sync", of_handle)
        if name == "openat" and "O_CREAT" in arguments and path(0):
            return ("create", path(0))
        if name.startswith("rename") and path(0):
            return ("exchange" if "RENAME_EXCHANGE" in arguments else "rename", path(0), path(1))
        if name.startswith("link") and path(0):
            return ("link", path(0), path(1))
        if name.startswith(("unlink", "rmdir")) and path(0):
            return ("remove", path(0))
        if name.startswith("mkdir") and path(0):
            return ("mkdir", path(0))
        return None


class Disk:
    """Files after a crash: journaled names and synced bytes."""

    def __init__(self, before):
        self.names, self.nodes = {}, []
        for path in sorted(before.rglob("*")):
            name = str(path.relative_to(before))
            self.names[name] = None if path.is_dir() else self.node(path.read_bytes())

    def node(self, content=b""):
        self.nodes.append({"durable": content, "pending": []})
        return len(self.nodes) - 1

    def apply(self, op):
        kind, name = op[0], op[1]
        if kind == "create":
            if name not in self.names:
                self.names[name] = self.node()
        elif kind == "mkdir":
            self.names[name] = None
        elif kind in ("write", "cut", "sync"):
            node = self.names.get(name)
            if node is not None:
                self.change(self.nodes[node], op)
        elif kind == "link":
            self.names[op[2]] = self.names[name]
        elif kind == "remove":
            self.names.pop(name, None)
        elif kind in ("rename", "exchange"):
            moved = self.taken(name)
            if kind == "exchange":
                self.names |= {name + below: node for below, node in self.taken(op[2]).items()}
            self.names |= {op[2] + below: node for below, node in moved.items()}

    def taken(self, name):
        """Remove a name and those below it; return the rest of the path and the node."""
        below = [n for n in self.names if n == name or n.startswith(name + "/")]
        return {n[len(name) :]: self.names.pop(n) for n in below}

    @staticmethod
    def change(node, op):
        if op[0] == "sync":
            node["durable"] = Disk.content(node, "kept")
            node["pending"] = []
        else:
            node["pending"].append(op)

    @staticmethod
    def content(node, variant):
        """`kept`: unsynced writes are applied; `dropped`: none is; `partial`: half of them, the last one cut in half."""
        pending = node["pending"]
        if variant == "dropped":
            pending = []
        elif variant == "partial":
            pending = pending[: len(pending) // 2 + 1]
        data = bytearray(node["durable"])
        for i, op in enumerate(pending):
            if op[0] == "cut":
                data = data[: op[2]].ljust(op[2], b"\0")
                continue
            at = len(data) if op[2] is None else op[2]
            bytes_ = op[3][: len(op[3]) // 2] if variant == "partial" and i == len(pending) - 1 else op[3]
            if len(data) < at:
                data.extend(bytes(at - len(data)))
            data[at : at + len(bytes_)] = bytes_
        return bytes(data)

    def write(self, folder, variant):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, node in sorted(self.names.items()):
            path = folder / name
            if node is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content(self.nodes[node], variant))
