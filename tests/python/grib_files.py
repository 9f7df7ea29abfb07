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


def _bits(values, width):
    """Integers of equal width, filled up to a byte."""
    text = "".join(format(int(value), f"0{width}b") for value in values) if width else ""
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def second_order(form, shape=(7, 9), missing=None, seed=0):
    """A message of edition 1 in a form of second-order packing that ecCodes only reads: `rows`, `constant` or `general`."""
    rng = np.random.default_rng(seed)
    simple = message(1, values=np.arange(63.0) + 250, missing=missing)
    # Sections 1 and 2, and the bitmap if there is one, are those of simple packing.
    first = 8
    lengths, at = [], first
    for _ in range(3 if missing is not None else 2):
        lengths.append(int.from_bytes(simple[at : at + 3], "big"))
        at += lengths[-1]
    old = simple[at:]
    present = np.ones(63, bool) if missing is None else ~missing
    numbers = rng.integers(0, 1 << 9, 63)[present]
    if form == "rows":
        counts = present.reshape(shape).sum(axis=1)
        # Rows of equal values have no bits.
        numbers[counts[0] : counts[:2].sum()] = 77
    else:
        counts = []
        while sum(counts) < numbers.size:
            counts.append(int(min(rng.integers(1, 12), numbers.size - sum(counts))))
    groups = np.split(numbers, np.cumsum(counts)[:-1])
    references = [int(group.min()) if group.size else 3 for group in groups]
    widths = [int(int((group - low).max()).bit_length()) if group.size else 0 for group, low in zip(groups, references)]
    if form == "constant":
        widths = [max(widths)] * len(groups)
    packed = "".join(format(int(n - low), f"0{width}b") if width else "" for group, low, width in zip(groups, references, widths) for n in group)
    packed += "0" * (-len(packed) % 8)
    data = bytes(widths[:1] if form == "constant" else widths)
    if form != "rows":
        data += _bits([int(i == 0) for group in groups for i in range(group.size)], 1)
    n1 = 21 + len(data) + 1
    data += _bits(references, 9)
    n2 = 21 + len(data) + 1
    data += bytes(int(packed[i : i + 8], 2) for i in range(0, len(packed), 8))
    flags = {"rows": 0x10, "constant": 0x20, "general": 0x30}[form]
    short = lambda n: int(n).to_bytes(2, "big")
    body = old[4:10] + bytes([9]) + short(n1) + bytes([flags]) + short(n2) + short(len(groups)) + short(numbers.size) + b"\0" + data
    body += b"\0" * (len(body) % 2)
    section = (4 + len(body)).to_bytes(3, "big") + bytes([0x50]) + body
    whole = simple[:at] + section + b"7777"
    return b"GRIB" + len(whole).to_bytes(3, "big") + whole[7:]


def run_length(values, levels, bits, decimal=1):
    """A message of edition 2 in run-length packing. Values are among `levels`, of which the first is missing."""
    simple = message(2, values=np.asarray(values) + 1)
    at, sections = 16, []
    while simple[at : at + 4] != b"7777":
        length = int.from_bytes(simple[at : at + 4], "big")
        sections.append(simple[at : at + length])
        at += length
    codes = [int(np.flatnonzero(levels == value)[0]) for value in values]
    most, numbers, i = len(levels) - 1, [], 0
    base = (1 << bits) - 1 - most
    while i < len(codes):
        end = i
        while end < len(codes) and codes[end] == codes[i]:
            end += 1
        numbers.append(codes[i])
        left = end - i - 1
        while left:
            numbers.append(most + 1 + left % base)
            left //= base
        i = end
    parameters = bytes([bits]) + most.to_bytes(2, "big") * 2 + bytes([decimal])
    parameters += b"".join(round(level * 10**decimal).to_bytes(2, "big") for level in levels[1:])
    body = {5: len(codes).to_bytes(4, "big") + (200).to_bytes(2, "big") + parameters, 6: b"\xff", 7: _bits(numbers, bits)}
    out = b""
    for section in sections:
        content = body.get(section[4], section[5:])
        out += (len(content) + 5).to_bytes(4, "big") + section[4:5] + content
    return simple[:8] + (16 + len(out) + 4).to_bytes(8, "big") + out + b"7777"


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
