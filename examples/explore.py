"""Inspect a file of any format: its arrays, a window of each, and statistics.

    python examples/explore.py SOURCE
"""

import sys

import tesseral


def main(source: str) -> None:
    container = tesseral.open(source)
    print(container)
    for name, array in container.items():
        if array.sparse or array.dtype.kind not in "biuf":
            continue
        print(f"\n{name}")
        # The first cells along every axis; nothing else is read.
        print(array[tuple(slice(0, 3) for _ in array.shape)])
        print(f"min {array.min()}  mean {array.mean():.6g}  max {array.max()}  cells {array.count()}")


if __name__ == "__main__":
    main(sys.argv[1])
