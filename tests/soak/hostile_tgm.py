"""Hand-written `.tgm` files, one per rule of the format: name, bytes, and expected outcome.

`ok` is read as it stands, `bad` is refused as damage, `limit` by a limit, `odd` as unsupported, `skipped` leaves no array (the bytes
are no message)."""

import struct


class Raw(bytes):
    """CBOR that is written verbatim."""


def head(major, n):
    if n < 24:
        return bytes([major << 5 | n])
    for width, code in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if n < 1 << 8 * width:
            return bytes([major << 5 | code]) + n.to_bytes(width, "big")
    raise ValueError(n)


def cbor(value):
    if isinstance(value, Raw):
        return bytes(value)
    if value is None or isinstance(value, bool):
        return bytes([{None: 0xF6, False: 0xF4, True: 0xF5}[value]])
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    pairs = sorted((cbor(k), cbor(v)) for k, v in value.items())
    return head(5, len(pairs)) + b"".join(k + v for k, v in pairs)


def frame(kind, body, *, magic=b"FR", flags=0, length=None, digest=0, end=b"ENDF", pad=b"\0", version=1):
    total = 28 + len(body)
    out = magic + struct.pack(">HHHQ", kind, version, flags, total if length is None else length)
    out += body + struct.pack(">Q", digest) + end
    return out + pad * (-len(out) % 8)


def described(**changes):
    out = {"type": "ntensor", "ndim": 1, "shape": [4], "strides": [1], "dtype": "float32", "byte_order": "little",
           "encoding": "none", "filter": "none", "compression": "none"}
    out.update(changes)
    return {k: v for k, v in out.items() if v is not ...}


PLAIN = struct.pack("<4f", 1, 2, 3, 4)


def tensor(descriptor=None, payload=PLAIN, *, flags=1, at=None, length=None, end=b"ENDF", digest=0):
    body = cbor(described() if descriptor is None else descriptor)
    offset = 16 + len(payload) if at is None else at
    total = 36 + len(payload) + len(body)
    out = b"FR" + struct.pack(">HHHQ", 9, 1, flags, total if length is None else length)
    out += payload + body + struct.pack(">QQ", offset, digest) + end
    return out + bytes(-len(out) % 8)


META = frame(1, cbor({"base": [{}]}))
NONE = frame(1, cbor({}))


def message(*frames, magic=b"TENSOGRM", version=3, flags=1, reserved=0, total=None, footer=None, again=None, end=b"39277777"):
    body = b"".join(frames)
    size = 48 + len(body)
    total = size if total is None else total
    out = magic + struct.pack(">HHIQ", version, flags, reserved, total) + body
    return out + struct.pack(">QQ", 24 + len(body) if footer is None else footer, total if again is None else again) + end


def one(**changes):
    """A message of one object with a changed descriptor."""
    payload = changes.pop("payload", PLAIN)
    return message(META, tensor(described(**changes), payload))


def masked(**mask):
    spec = {"method": "none", "offset": 16, "length": 1}
    spec.update(mask)
    return one(masks={"nan": {k: v for k, v in spec.items() if v is not ...}}, payload=PLAIN + b"\x80")


def cases():
    good = message(META, tensor())
    yield "plain", good, "ok"
    # Preamble.
    yield "preamble_magic", message(META, tensor(), magic=b"TENSOGRN"), "skipped"
    yield "preamble_version_2", message(META, tensor(), version=2), "odd"
    yield "preamble_version_4", message(META, tensor(), version=4), "odd"
    yield "preamble_unknown_flags", message(META, tensor(), flags=0xFF01), "ok"
    yield "preamble_reserved_set", message(META, tensor(), reserved=7), "ok"
    yield "preamble_total_short", message(META, tensor(), total=len(good) - 8), "skipped"
    yield "preamble_total_long", message(META, tensor(), total=len(good) + 8), "skipped"
    yield "preamble_total_47", message(META, tensor(), total=47), "skipped"
    yield "preamble_total_huge", message(META, tensor(), total=2**64 - 1), "skipped"
    yield "preamble_cut", good[:23], "skipped"
    yield "streaming_total_0", message(META, tensor(), total=0), "ok"
    # Postamble.
    yield "postamble_magic", message(META, tensor(), end=b"39277778"), "skipped"
    yield "postamble_total_differs", message(META, tensor(), again=len(good) - 8), "bad"
    yield "postamble_total_0", message(META, tensor(), again=0), "ok"
    yield "postamble_footer_huge", message(META, tensor(), footer=2**63), "bad"
    # Frames.
    yield "frame_type_0", message(META, frame(0, b""), tensor()), "bad"
    yield "frame_type_4", message(META, frame(4, b""), tensor()), "bad"
    yield "frame_type_10", message(META, frame(10, b""), tensor()), "bad"
    yield "frame_version_9", message(frame(1, cbor({"base": [{}]}), version=9), tensor()), "ok"
    yield "frame_length_0", message(frame(1, cbor({}), length=0), tensor()), "bad"
    yield "frame_length_27", message(frame(1, cbor({}), length=27), tensor()), "bad"
    yield "frame_length_huge", message(frame(1, cbor({}), length=2**64 - 8), tensor()), "bad"
    yield "frame_length_past_end", message(frame(1, cbor({}), length=4096), tensor()), "bad"
    yield "frame_end_magic", message(frame(1, cbor({}), end=b"ENDG"), tensor()), "bad"
    yield "frame_padding_set", message(frame(1, cbor({"base": [{}]}), pad=b"\1"), tensor()), "ok"
    yield "frame_hash_wrong", message(frame(1, cbor({"base": [{}]}), flags=2, digest=1), tensor(), flags=0x81), "bad"
    yield "object_hash_wrong", message(META, tensor(flags=3, digest=1), flags=0x81), "bad"
    yield "object_length_35", message(META, tensor(length=35)), "bad"
    yield "object_end_magic", message(META, tensor(end=b"ENDX")), "bad"
    yield "object_cbor_before_header", message(META, tensor(at=8)), "bad"
    yield "object_cbor_past_end", message(META, tensor(at=4096)), "bad"
    yield "object_cbor_huge", message(META, tensor(at=2**64 - 1)), "bad"
    yield "object_before_metadata_layout", message(META, tensor(flags=0)), "bad"
    yield "header_after_body", message(tensor(), META), "bad"
    yield "footer_before_body", message(META, frame(7, cbor({})), tensor()), "bad"
    yield "metadata_missing", message(tensor()), "bad"
    yield "no_objects", message(NONE), "skipped"
    yield "preceder_twice", message(META, frame(8, cbor({"base": [{}]})), frame(8, cbor({"base": [{}]})), tensor()), "bad"
    yield "preceder_last", message(META, tensor(), frame(8, cbor({"base": [{}]}))), "bad"
    yield "preceder_two_entries", message(META, frame(8, cbor({"base": [{}, {}]})), tensor()), "bad"
    # Lists.
    yield "index_lengths_differ", message(META, frame(2, cbor({"offsets": [1], "lengths": []})), tensor(), flags=5), "ok"
    yield "index_not_a_map", message(META, frame(2, cbor([1])), tensor(), flags=5), "ok"
    yield "index_elsewhere", message(META, frame(2, cbor({"offsets": [2**63], "lengths": [9]})), tensor(), flags=5), "ok"
    # CBOR.
    yield "cbor_empty", message(frame(1, b""), tensor()), "bad"
    yield "cbor_cut", message(frame(1, cbor({"base": [{}]})[:-1]), tensor()), "bad"
    yield "cbor_reserved_head", message(frame(1, b"\x1c"), tensor()), "bad"
    yield "cbor_array_huge", message(frame(1, b"\xa1\x64base\x9b" + b"\xff" * 8), tensor()), "bad"
    yield "cbor_text_huge", message(frame(1, b"\xa1\x7b" + b"\xff" * 8), tensor()), "bad"
    yield "cbor_deep", message(frame(1, b"\x81" * 5000 + b"\x80"), tensor()), "bad"
    yield "cbor_not_a_map", message(frame(1, cbor([1])), tensor()), "bad"
    yield "cbor_number_keys", message(frame(1, cbor({1: 2})), tensor()), "bad"
    yield "cbor_text_not_utf8", message(frame(1, b"\xa1\x62\xff\xfe\x01"), tensor()), "bad"
    # Descriptors.
    for key in ("type", "ndim", "shape", "strides", "dtype", "encoding", "filter", "compression"):
        yield f"descriptor_without_{key}", one(**{key: ...}), "bad"
    yield "descriptor_without_byte_order", one(byte_order=...), "ok"
    yield "descriptor_byte_order", one(byte_order="middle"), "bad"
    yield "descriptor_dtype", one(dtype="float128"), "bad"
    yield "descriptor_ndim_differs", one(ndim=2), "bad"
    yield "descriptor_strides_differ", one(strides=[1, 1]), "bad"
    yield "descriptor_shape_negative", one(shape=[-4]), "bad"
    yield "descriptor_shape_text", one(shape="4"), "bad"
    yield "descriptor_shape_overflows", one(ndim=3, shape=[2**32] * 3, strides=[1] * 3), "bad"
    yield "descriptor_shape_huge", one(shape=[2**40]), "bad"
    yield "descriptor_shape_zero", one(shape=[0], payload=b""), "ok"
    yield "descriptor_scalar", one(ndim=0, shape=[], strides=[], payload=PLAIN[:4]), "ok"
    yield "descriptor_strides_odd", one(strides=[99]), "ok"
    yield "descriptor_unknown_key", one(color="red"), "ok"
    yield "payload_short", one(payload=PLAIN[:-1]), "bad"
    yield "payload_long", one(payload=PLAIN + b"\0"), "bad"
    # Codecs.
    yield "encoding_unknown", one(encoding="delta"), "odd"
    yield "filter_unknown", one(filter="xor"), "odd"
    yield "compression_unknown", one(compression="brotli"), "odd"
    yield "packing_of_float32", one(encoding="simple_packing", sp_reference_value=0.0, sp_binary_scale_factor=0,
                                    sp_decimal_scale_factor=0, sp_bits_per_value=8, payload=b"\1\2\3\4"), "bad"
    packed = dict(dtype="float64", encoding="simple_packing", sp_reference_value=0.0, sp_binary_scale_factor=0,
                  sp_decimal_scale_factor=0, sp_bits_per_value=8, payload=b"\1\2\3\4")
    yield "packing", one(**packed), "ok"
    yield "packing_65_bits", one(**{**packed, "sp_bits_per_value": 65}), "bad"
    yield "packing_bits_negative", one(**{**packed, "sp_bits_per_value": -1}), "bad"
    yield "packing_reference_missing", one(**{**packed, "sp_reference_value": ...}), "bad"
    yield "packing_payload_short", one(**{**packed, "payload": b"\1\2\3"}), "bad"
    yield "shuffle_without_size", one(filter="shuffle"), "bad"
    yield "shuffle_size_0", one(filter="shuffle", shuffle_element_size=0), "bad"
    yield "shuffle_size_3", one(filter="shuffle", shuffle_element_size=3), "bad"
    yield "zstd_noise", one(compression="zstd", payload=b"noise"), "bad"
    yield "zstd_empty", one(compression="zstd", payload=b""), "bad"
    yield "lz4_claims_huge", one(compression="lz4", payload=b"\xff\xff\xff\x7f\0"), "bad"
    yield "lz4_cut", one(compression="lz4", payload=b"\x10"), "bad"
    yield "szip_without_parameters", one(compression="szip"), "bad"
    szip = dict(compression="szip", szip_rsi=128, szip_block_size=16, szip_flags=8)
    yield "szip_cut", one(**szip, payload=b"\0"), "bad"
    yield "szip_rsi_0", one(**{**szip, "szip_rsi": 0}), "bad"
    yield "szip_rsi_huge", one(**{**szip, "szip_rsi": 2**40}), "bad"
    yield "szip_block_size_7", one(**{**szip, "szip_block_size": 7}), "bad"
    yield "blosc2_noise", one(compression="blosc2", payload=b"\x9e\xa8b2frame\0" + bytes(80)), "bad"
    yield "zfp_without_mode", one(compression="zfp", dtype="float64", payload=bytes(32)), "bad"
    yield "zfp_rate_text", one(compression="zfp", dtype="float64", zfp_mode="fixed_rate", zfp_rate="8", payload=bytes(32)), "bad"
    yield "sz3_noise", one(compression="sz3", dtype="float64", sz3_error_bound_mode="abs", sz3_error_bound=1.0, payload=bytes(32)), "bad"
    yield "rle_of_floats", one(compression="rle", payload=b"\0\0\0\x80\0"), "bad"
    yield "roaring_of_floats", one(compression="roaring", payload=b"\0\0\0\x80\0"), "bad"
    bits = dict(dtype="bitmask", shape=[9])
    yield "bitmask_short", one(**bits, payload=b"\xff"), "bad"
    yield "bitmask_rle_count_huge", one(**bits, compression="rle", payload=b"\xff\xff\xff\xff\0"), "bad"
    yield "bitmask_roaring_noise", one(**bits, compression="roaring", payload=b"\0\0\0\x10noise"), "bad"
    # Masks.
    yield "mask", masked(), "ok"
    yield "mask_past_region", masked(length=2), "bad"
    yield "mask_offset_huge", masked(offset=2**64 - 1), "bad"
    yield "mask_without_method", masked(method=...), "bad"
    yield "mask_method_unknown", masked(method="gif"), "odd"
    yield "mask_too_short", masked(offset=17, length=0), "bad"
    yield "mask_rle_noise", masked(method="rle"), "bad"
    yield "mask_of_integers", one(dtype="int32", masks={"nan": {"method": "none", "offset": 16, "length": 1}}, payload=PLAIN + b"\x80"), "bad"
    yield "mask_kind_unknown", one(masks={"zero": {"method": "none", "offset": 16, "length": 1}}, payload=PLAIN + b"\x80"), "bad"
    # Files.
    yield "two_messages_junk_between", good + b"junk" + good, "ok"
    yield "truncated_tail", good + good[:-9], "ok"
    yield "magic_inside_payload", one(dtype="uint8", shape=[8], payload=b"TENSOGRM"), "ok"
