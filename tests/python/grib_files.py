"""GRIB messages written by ecCodes: grids, packings and products, random and seeded."""

import eccodes
import numpy as np

#: Samples of each grid, by edition.
GRIDS = {
    "regular_ll": {1: "regular_ll_pl_grib1", 2: "regular_ll_pl_grib2"},
    "regular_gg": {1: "regular_gg_pl_grib1", 2: "regular_gg_pl_grib2"},
    "reduced_gg": {1: "reduced_gg_pl_32_grib1", 2: "reduced_gg_pl_32_grib2"},
    "rotated_ll": {1: "rotated_ll_pl_grib1", 2: "rotated_ll_pl_grib2"},
    "polar_stereographic": {1: "polar_stereographic_pl_grib1", 2: "polar_stereographic_pl_grib2"},
}
#: Packings that ecCodes writes, by edition.
PACKINGS = {
    1: ["grid_simple", "grid_second_order", "grid_second_order_SPD1", "grid_second_order_SPD3", "grid_second_order_no_SPD"],
    2: ["grid_simple", "grid_complex", "grid_complex_spatial_differencing", "grid_ccsds", "grid_png", "grid_jpeg", "grid_ieee"],
}
MISSING = 1e34


def message(edition=2, grid="regular_ll", packing="grid_simple", values=None, bits=16, keys=(), small=True, missing=None):
    """One message. `values` are random unless they are given; `missing` marks points without a value."""
    handle = eccodes.codes_grib_new_from_samples(GRIDS[grid][edition])
    if grid == "regular_ll" and small:
        for key, value in {
            "Ni": 9, "Nj": 7, "latitudeOfFirstGridPointInDegrees": 30, "longitudeOfFirstGridPointInDegrees": 10,
            "latitudeOfLastGridPointInDegrees": 24, "longitudeOfLastGridPointInDegrees": 18,
            "iDirectionIncrementInDegrees": 1, "jDirectionIncrementInDegrees": 1,
        }.items():
            eccodes.codes_set(handle, key, value)
    for key, value in {"shortName": "t", **dict(keys)}.items():
        eccodes.codes_set(handle, key, value)
    count = eccodes.codes_get(handle, "numberOfDataPoints" if edition == 2 else "numberOfPoints")
    if grid == "regular_ll":
        count = eccodes.codes_get(handle, "Ni") * eccodes.codes_get(handle, "Nj")
    if values is None:
        rng = np.random.default_rng(count + bits)
        values = 280 + np.cumsum(rng.normal(size=count)) * 0.1
        if packing == "grid_png":
            # ecCodes fails to write images that do not become smaller.
            values = values[np.arange(count) // 31]
    values = np.array(values, "f8")
    if missing is not None:
        eccodes.codes_set(handle, "missingValue", MISSING)
        eccodes.codes_set(handle, "bitmapPresent", 1)
        values = np.where(missing, MISSING, values)
    eccodes.codes_set_values(handle, values)
    if packing != "grid_simple":
        eccodes.codes_set(handle, "packingType", packing)
    if packing == "grid_ieee":
        eccodes.codes_set(handle, "precision", 2 if bits > 32 else 1)
    else:
        eccodes.codes_set(handle, "bitsPerValue", bits)
    eccodes.codes_set_values(handle, values)
    data = eccodes.codes_get_message(handle)
    eccodes.codes_release(handle)
    return data


def fields(path):
    """Every field of a file: its values, missing ones as NaN, and its latitudes and longitudes."""
    out = []
    with open(path, "rb") as file:
        eccodes.codes_grib_multi_support_on()
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            eccodes.codes_set(handle, "missingValue", MISSING)
            values = eccodes.codes_get_values(handle)
            values[values == MISSING] = np.nan
            out.append(values)
            eccodes.codes_release(handle)
        eccodes.codes_grib_multi_support_off()
    return out


def points(path):
    """Latitudes and longitudes of the points of the first message."""
    with open(path, "rb") as file:
        handle = eccodes.codes_grib_new_from_file(file)
        found = [eccodes.codes_get_array(handle, key) for key in ("latitudes", "longitudes")]
        eccodes.codes_release(handle)
    return found


def cube(path, edition=2, members=2, times=2, levels=(1000, 850, 500), short_names=("t", "u"), **options):
    """Fields of several parameters over members, times and levels."""
    with open(path, "wb") as file:
        for name in short_names:
            for member in range(members):
                for day in range(times):
                    for level in levels:
                        keys = {"dataDate": 20200101 + day, "level": level, "shortName": name}
                        if members > 1 and edition == 2:
                            keys = {"productDefinitionTemplateNumber": 1, "number": member, **keys}
                        seed = hash((name, member, day, level)) % 2**32
                        values = np.random.default_rng(seed).normal(size=63) * 10 + 250
                        file.write(message(edition, values=values, keys=keys, **options))
    return path
