"""The mean of an array too large for one process, on a Dask cluster of this machine: cells stay on the workers.

    python examples/cluster_mean.py SOURCE [ARRAY]
"""

import sys

from dask.distributed import Client, LocalCluster

import tesseral
import tesseral.dask


def main(source: str, name: str | None = None) -> None:
    container = tesseral.open(source)
    array = container[name or next(iter(container))]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        mean = client.compute(tesseral.dask.reduce(array, "mean"))
        lowest = client.compute(tesseral.dask.reduce(array, "min", axis=0))
        print(f"mean {mean.result():.6g}, minima of shape {lowest.result().shape}")


if __name__ == "__main__":
    main(*sys.argv[1:])
