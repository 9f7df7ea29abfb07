"""Writes fixtures/tensogram with tensogram 0.24.0: small files and `manifest.json` with their expected cells.

Times and identifiers change with every run, values do not.
"""

import json
import os

import numpy as np
import tensogram

MANIFEST = {}


def descriptor(dtype, shape, **more):
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    base = dict(type="ntensor", ndim=len(shape), shape=list(shape), strides=strides, dtype=dtype, byte_order="little",
                encoding="none", filter="none", compression="none")
    return base | more


def note(name, arrays, **more):
    rows = [dict(name=n, dtype=d, shape=list(s), cells=bytes(c).hex()) for n, d, s, c in arrays]
    MANIFEST[name] = dict(arrays=rows, **more)


def save(name, message, arrays, **more):
    with open(name, "wb") as file:
        file.write(message)
    note(name, arrays, **more)


def field(n=60):
    return (280 + 15 * np.sin(np.arange(n) / 5) + np.arange(n) % 7 / 8).astype("f8")


def main():
    # Every dtype unencoded, in both byte orders.
    rng = np.random.default_rng(1)
    sizes = dict(float16=2, bfloat16=2, float32=4, float64=8, complex64=8, complex128=16, int8=1, int16=2, int32=4, int64=8,
                 uint8=1, uint16=2, uint32=4, uint64=8)
    words = dict(complex64=4, complex128=8)
    objects, arrays = [], []
    for dtype, size in sizes.items():
        # Small integers as bit patterns: finite in every float type.
        cells = (rng.integers(0, 100, 6 * size, dtype="u1") & 0x3F).tobytes()
        for order in ("little", "big"):
            word = words.get(dtype, size)
            stored = cells if order == "little" else np.frombuffer(cells, f"V{word}").tobytes()
            if order == "big":
                stored = b"".join(cells[i : i + word][::-1] for i in range(0, len(cells), word))
            objects.append((descriptor(dtype, [2, 3], byte_order=order), stored))
            arrays.append((f"0/{len(arrays)}", dtype, [2, 3], cells))
    bits = np.packbits(rng.integers(0, 2, 21)).tobytes()
    objects.append((descriptor("bitmask", [3, 7]), bits))
    arrays.append((f"0/{len(arrays)}", "bitmask", [3, 7], bits))
    save("dtypes.tgm", tensogram.encode_pre_encoded({}, objects), arrays)

    # Every codec.
    values = field()
    ints = (values * 3).astype("i4")
    codecs = {
        "zstd": (ints, dict(compression="zstd")),
        "zstd_level": (ints, dict(compression="zstd", zstd_level=9)),
        "lz4": (ints, dict(compression="lz4")),
        "szip": (ints, dict(compression="szip", szip_rsi=4, szip_block_size=8, szip_flags=9)),
        "shuffle": (values, dict(filter="shuffle", shuffle_element_size=8)),
        "shuffle_szip": (values, dict(filter="shuffle", shuffle_element_size=8, compression="szip", szip_rsi=2,
                                      szip_block_size=16, szip_flags=8)),
        "packed_16": (values, dict(encoding="simple_packing", sp_bits_per_value=16)),
        "packed_7": (values, dict(encoding="simple_packing", sp_bits_per_value=7, sp_decimal_scale_factor=2)),
        "packed_0": (np.full(9, 4.5), dict(encoding="simple_packing", sp_bits_per_value=0)),
        "packed_24_szip": (values, dict(encoding="simple_packing", sp_bits_per_value=24, compression="szip", szip_rsi=128,
                                        szip_block_size=16, szip_flags=8)),
        "packed_16_shuffle_zstd": (values, dict(encoding="simple_packing", sp_bits_per_value=16, filter="shuffle",
                                                shuffle_element_size=2, compression="zstd")),
        "packed_33_lz4": (values, dict(encoding="simple_packing", sp_bits_per_value=33, compression="lz4")),
    }
    for name, (data, more) in codecs.items():
        message = tensogram.encode({}, [(descriptor(str(data.dtype), list(data.shape), **more), data)])
        decoded = tensogram.decode(message).objects[0][1]
        save(f"codec_{name}.tgm", message, [("0/0", str(data.dtype), list(data.shape), decoded.tobytes())])
    mask = np.packbits(np.arange(3000) % 90 < 31)
    for name in ("rle", "roaring"):
        message = tensogram.encode({}, [(descriptor("bitmask", [3000], compression=name), mask)])
        save(f"codec_{name}.tgm", message, [("0/0", "bitmask", [3000], mask.tobytes())])

    # Masks by every method except blosc2, above and below the threshold.
    for dtype, methods in (("f4", ("none", "rle", "roaring", "lz4", "zstd")), ("f8", ("roaring",))):
        data = field(1100).astype(dtype)
        data[::17], data[100:140], data[::301] = np.nan, np.inf, -np.inf
        canonical = np.where(np.isnan(data), np.array(np.nan, dtype), data).astype(dtype)
        for method in methods:
            message = tensogram.encode({}, [(descriptor(str(data.dtype), [44, 25], compression="zstd"), data.reshape(44, 25))],
                                       allow_nan=True, allow_inf=True, nan_mask_method=method, pos_inf_mask_method=method,
                                       neg_inf_mask_method=method)
            save(f"mask_{method}_{dtype}.tgm", message, [("0/0", str(data.dtype), [44, 25], canonical.tobytes())])
    small = np.array([1, np.nan, -np.inf, 2, np.inf], "f4")
    message = tensogram.encode({}, [(descriptor("float32", [5]), small)], allow_nan=True, allow_inf=True)
    save("mask_small.tgm", message, [("0/0", "float32", [5], small.tobytes())])

    # Shapes: one cell, none.
    one, none = np.array(7, "u2"), np.zeros((0, 3), "f8")
    message = tensogram.encode({}, [(descriptor("uint16", []), one), (descriptor("float64", [0, 3]), none)])
    save("shapes.tgm", message, [("0/0", "uint16", [], one.tobytes()), ("0/1", "float64", [0, 3], b"")])

    # Messages: metadata, several, streamed, without hashes, with lists of hashes elsewhere, none at all.
    a, b = np.arange(6, dtype="i2").reshape(2, 3), np.arange(4, dtype="f4")
    pair = [(descriptor("int16", [2, 3]), a), (descriptor("float32", [4]), b)]
    cells = lambda m: [(f"{m}/0", "int16", [2, 3], a.tobytes()), (f"{m}/1", "float32", [4], b.tobytes())]
    meta = {"base": [{"name": "a", "mars": {"param": "2t", "step": 6}, "dim_names": ["y", "x"], "scale": 0.1}, {"name": "b"}],
            "centre": "ecmf", "flags": [True, None, -5, 2**63]}
    first = tensogram.encode(meta, pair)
    save("metadata.tgm", first, cells(0))
    plain = tensogram.encode({}, pair, hash=None)
    save("no_hash.tgm", plain, cells(0))
    for policy in ("none", "footer", "both"):
        save(f"hashes_{policy}.tgm", tensogram.encode({}, pair, aggregate_hash=policy), cells(0))
    streams = []
    for back in (False, True):
        encoder = tensogram.StreamingEncoder({"foo": 2})
        for one_descriptor, data in pair:
            encoder.write_object(one_descriptor, data)
        streams.append(encoder.finish_backfilled() if back else encoder.finish())
    save("streamed.tgm", streams[0], cells(0))
    save("streamed_backfilled.tgm", streams[1], cells(0))
    # The end magic inside a payload: frames skip it.
    tricky = np.frombuffer(b"39277777" * 3, "u1")
    encoder = tensogram.StreamingEncoder({})
    encoder.write_object(descriptor("uint8", [24]), tricky)
    hidden = encoder.finish()
    save("end_magic_in_payload.tgm", hidden + first, [("0/0", "uint8", [24], tricky.tobytes())] + cells(1))
    several = first + streams[0] + plain
    save("messages.tgm", several, cells(0) + cells(1) + cells(2))
    save("no_objects.tgm", tensogram.encode({"only": "metadata"}, []), [])
    save("garbage.tgm", b"junk TENSOGR" + first + bytes(5) + streams[0], cells(0) + cells(1), skipped=[[0, 12], [12 + len(first), 5]])
    save("torn_tail.tgm", first + plain[:-30], cells(0), skipped=[[len(first), len(plain) - 30]])

    # Before 0.21 frames had no flag for hashes.
    older = bytearray(first)
    at = 24
    while older[at : at + 2] == b"FR":
        older[at + 7] &= ~2
        at += (int.from_bytes(older[at + 8 : at + 16], "big") + 7) & ~7
    save("older_writer.tgm", bytes(older), cells(0))

    with open("manifest.json", "w") as file:
        json.dump(MANIFEST, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "tensogram"))
    main()
