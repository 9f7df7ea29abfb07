"""A reference package that reads sources: a path per line in, a digest of all cells or `error` per line out. A source that takes too
long ends the process, as one that crashes the package does."""

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
    # Before the first file: on a busy machine this alone may take longer than a file is given.
    package = importlib.import_module(sys.argv[1])
    for line in sys.stdin:
        # Work, not time: on a busy machine a clock says little.
        signal.setitimer(signal.ITIMER_VIRTUAL, int(sys.argv[2]))
        digest = hashlib.sha256()
        try:
            read(package, line.strip(), digest)
            print(digest.hexdigest(), flush=True)
        except Exception:  # noqa: BLE001: any exception is a refusal
            print("error", flush=True)
        except BaseException:  # noqa: BLE001: what Rust panics come as, which no caller catches
            print("crash", flush=True)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


if __name__ == "__main__":
    main()
