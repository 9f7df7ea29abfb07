"""Daily means of hourly fields, chunk by chunk: neither input nor output is ever completely in memory.

    python examples/daily_means.py IN OUT [ARRAY]

IN is a file of any format with hours along its first axis; OUT is written as its ending says.
"""

import sys

import numpy as np

import tesseral

HOURS = 24


def main(source: str, target: str, name: str | None = None) -> None:
    container = tesseral.open(source)
    hourly = container[name or next(iter(container))]
    days = hourly.shape[0] // HOURS
    with tesseral.create(target) as session:
        daily = session.add(
            hourly.name,
            (days, *hourly.shape[1:]),
            np.float64,
            dims=hourly.dims,
            coords={dim: values for dim, values in hourly.coords.items() if dim != hourly.dims[0]},
            attrs=hourly.attrs,
            chunks=(1, *hourly.shape[1:]),
            codec="zstd",
        )
        for day in range(days):
            hours = hourly.isel({hourly.dims[0]: slice(day * HOURS, (day + 1) * HOURS)})
            daily[day] = hours.mean(axis=0)
    print(f"{target}: {days} days of {hourly.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
