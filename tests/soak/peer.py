"""A reference package that reads sources: a path per line in, a digest of all cells or `error` per line out. A source that takes too
long ends the process, like a crash."""

import hashlib
import importlib
import signal
import sys


def tet(package, path, digest):
    file = package.open(path)
    for name in sorted(file.dataset_names):
        digest.update(file.read_numpy(name).tobytes())


def tensogram(package, path, digest):
    with package.TensogramFile.open(path) as file:
        for message in range(file.message_count()):
            for _, cells in file.decode_message(message).objects:
                digest.update(cells.tobytes())


def tiledb(package, path, digest):
    with package.open(path) as array:
        found = array.query(order="C")[tuple(slice(None) for _ in range(array.ndim))]
        for name in sorted(found):
            digest.update(repr(found[name].tolist()).encode())


def main():
    read = {"tet": tet, "tensogram": tensogram, "tiledb": tiledb}[sys.argv[1]]
    # Before the first file: on a busy machine this alone may exceed the time limit of a file.
    package = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        # CPU time, not wall-clock time, which is meaningless on a busy machine.
        signal.setitimer(signal.ITIMER_VIRTUAL, int(sys.argv[2]))
        digest = hashlib.sha256()
        try:
            read(package, line.strip(), digest)
            print(digest.hexdigest(), flush=True)
        except Exception:  # noqa: BLE001: any exception is a rejection
            print("error", flush=True)
        except BaseException:  # noqa: BLE001: the type of Rust panics, which callers do not catch
            print("crash", flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


if __name__ == "__main__":
    main()
