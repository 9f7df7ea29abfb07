"""Tensogram messages from Python: both directions with the reference package, streams, damage."""

import io

import numpy as np
import pytest
import tensogram as reference
import tesseral
from tesseral import tensogram

DTYPES = ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
PIPELINES = [
    {},
    {"compression": "zstd", "zstd_level": 3},
    {"compression": "lz4"},
    {"filter": "shuffle", "shuffle_element_size": 4, "compression": "zstd"},
]
PACKED = {"encoding": "simple_packing", "sp_bits_per_value": 16}
SZIP = {**PACKED, "compression": "szip", "szip_rsi": 128, "szip_block_size": 16, "szip_flags": 8}


def field(dtype, shape=(5, 7), seed=1):
    random = np.random.default_rng(seed)
    return (random.normal(280, 20, shape) if np.dtype(dtype).kind == "f" else random.integers(0, 100, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_both_directions(dtype, pipeline):
    cells = field(dtype)
    if pipeline.get("filter") == "shuffle":
        pipeline = {**pipeline, "shuffle_element_size": cells.itemsize}
    ours = tensogram.encode({"base": [{"name": "t"}], "run": 7}, [(pipeline, cells)])
    theirs = reference.decode(ours, verify_hash=True)
    assert theirs.metadata.base[0]["name"] == "t" and theirs.metadata.extra == {"run": 7}
    np.testing.assert_array_equal(theirs.objects[0][1], cells)
    described = {"type": "ntensor", "shape": list(cells.shape), "dtype": str(cells.dtype), **pipeline}
    metadata, [(descriptor, found)] = tensogram.decode(reference.encode({"base": [{"name": "t"}], "run": 7}, [(described, cells)]))
    assert metadata["name"] == "t" and metadata.extra == {"run": 7} and descriptor["shape"] == [5, 7]
    assert found.dtype == cells.dtype
    np.testing.assert_array_equal(found, cells)


@pytest.mark.parametrize("pipeline", [PACKED, SZIP])
def test_lossy_cells_are_those_of_the_reference(pipeline):
    cells = field("f8", (40, 50))
    message = tensogram.encode({}, [(pipeline, cells)])
    (_, found), (_, theirs) = tensogram.decode(message).objects[0], reference.decode(message).objects[0]
    np.testing.assert_array_equal(found, theirs)
    assert np.abs(found - cells).max() < 0.01
    part, joined = tensogram.decode_range(message, 0, [(7, 900)]), tensogram.decode_range(message, 0, [(7, 3), (1000, 2)], join=True)
    np.testing.assert_array_equal(part[0], found.ravel()[7:907])
    np.testing.assert_array_equal(joined, found.ravel()[[7, 8, 9, 1000, 1001]])


def test_cells_stored_as_they_are_become_views():
    cells = field("f4")
    message = tensogram.encode(None, [(None, cells)])
    found = tensogram.decode(message).objects[0][1]
    assert not found.flags.writeable and np.shares_memory(found, np.frombuffer(message, "u1"))
    packed = tensogram.decode(tensogram.encode(None, [({"compression": "zstd"}, cells)])).objects[0][1]
    packed[0, 0] = 1


def test_other_byte_orders_and_odd_types():
    cells = field("f8").astype(">f8")
    message = tensogram.encode(None, [({"byte_order": "big"}, cells)])
    np.testing.assert_array_equal(tensogram.decode(message).objects[0][1], cells)
    stored = tensogram.decode(message, native_byte_order=False).objects[0][1]
    assert stored.dtype == ">f8"
    np.testing.assert_array_equal(stored, cells)
    bits = tensogram.encode(None, [({"dtype": "bitmask", "shape": [11]}, np.array([0b10100000, 0b01100000], "u1"))])
    assert tensogram.decode(bits).objects[0][1].tolist() == reference.decode(bits).objects[0][1].tolist() == [160, 96]
    halves = tensogram.encode(None, [({"dtype": "bfloat16"}, np.array([0x3F80, 0x4000], "u2"))])
    assert tensogram.decode(halves).objects[0][1].tolist() == [0x3F80, 0x4000]


def test_cells_that_are_not_finite():
    cells = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    pipeline = {"compression": "zstd"}
    with pytest.raises(tesseral.TesseralError):
        tensogram.encode(None, [(pipeline, cells)])
    message = tensogram.encode(None, [(pipeline, cells)], allow_nan=True, allow_inf=True, nan_mask_method="rle")
    found = tensogram.decode(message).objects[0][1]
    np.testing.assert_array_equal(found, cells)
    np.testing.assert_array_equal(reference.decode(message).objects[0][1], found)
    assert (tensogram.decode(message, restore_non_finite=False).objects[0][1][1:4] == 0).all()


def test_scan_and_validate():
    message = tensogram.encode({}, [({}, field("f4"))])
    spans, skipped = tensogram.scan_with_report(b"junk" + message + b"more" + message[:-1])
    assert spans == [(4, len(message))] == tensogram.scan(b"junk" + message)
    assert [(s.offset, s.length) for s in skipped] == [(0, 4), (4 + len(message), 4), (8 + len(message), len(message) - 1)]
    report = tensogram.validate(message + message, "full", canonical=True)
    assert report and len(report.messages) == 2 and not report.issues
    damaged = bytearray(message)
    damaged[message.index(field("f4").tobytes()) + 5] ^= 1
    report = tensogram.validate(damaged)
    assert not report and report.issues[0].code == "hash_mismatch" and report.issues[0].object_index == 0
    with pytest.raises(tesseral.CorruptError):
        tensogram.decode(damaged)
    tensogram.decode(damaged, verify_hash=False)


def test_ranges_compare_hashes_where_requested_and_files_once(tmp_path):
    cells = field("f4")
    message = tensogram.encode({}, [({}, cells)])
    damaged = bytearray(message)
    damaged[message.index(cells.tobytes()) + 5] ^= 1
    expected = cells.ravel()[4:7].tolist()
    assert tensogram.decode_range(damaged, 0, [(4, 3)])[0].tolist() == expected
    assert tensogram.decode_range(message, 0, [(4, 3)], verify=True, join=True).tolist() == expected
    for options in ({"verify": True}, {"require_hash": True}):
        with pytest.raises(tesseral.CorruptError):
            tensogram.decode_range(damaged, 0, [(4, 3)], **options)
    (tmp_path / "one.tgm").write_bytes(message)
    (tmp_path / "damaged.tgm").write_bytes(damaged)
    with_hash = tensogram.TensogramFile(tmp_path / "one.tgm")
    for _ in range(2):
        assert with_hash.decode_range(0, 0, [(4, 3)], join=True).tolist() == expected
        with pytest.raises(tesseral.CorruptError):
            tensogram.TensogramFile(tmp_path / "damaged.tgm").decode_range(0, 0, [(4, 3)])
    assert tensogram.TensogramFile(tmp_path / "damaged.tgm").decode_range(-1, 0, [(4, 3)], verify_hash=False)[0].tolist() == expected


def test_the_same_input_gives_the_same_bytes():
    objects = [({}, field("i4"))]
    assert tensogram.encode({}, objects, reproducible=True) == tensogram.encode({}, objects, reproducible=True)
    assert tensogram.encode({}, objects) != tensogram.encode({}, objects)


def test_streams():
    encoder = tensogram.StreamingEncoder({"run": 1})
    encoder.write_preceder({"name": "a"})
    encoder.write_object({}, field("f4"))
    assert len(encoder) == 1
    first = encoder.finish_and_reset()
    encoder.write_object({"compression": "zstd"}, field("i8"))
    second = encoder.finish_backfilled()
    for message, dtype in ((first, "f4"), (second, "i8")):
        np.testing.assert_array_equal(reference.decode(message).objects[0][1], field(dtype))
    assert tensogram.decode(first).metadata["name"] == "a"
    with pytest.raises(tesseral.InvalidRequestError):
        encoder.finish()

    file = io.BytesIO(b"before")
    file.seek(6)
    encoder = tensogram.StreamingEncoder({}, file)
    encoder.write_object({}, field("f4"))
    assert encoder.finish_backfilled() is None and tensogram.scan(file.getvalue())[0][0] == 6

    decoder, events, bytes_ = tensogram.Decoder(), [], first + b"??" + second[:-9]
    for start in range(0, len(bytes_), 61):
        events += decoder.feed(bytes_[start : start + 61])
    events += decoder.finish()
    kinds = [type(event) for event in events]
    assert kinds[:2] == [tensogram.MessageObject, tensogram.MessageEnd]
    assert tensogram.Skipped in kinds and tensogram.Damaged in kinds
    assert events[0].keys == {"name": "a"}
    np.testing.assert_array_equal(events[0].cells, field("f4"))


def test_streams_to_files_that_fail():
    class Full:
        def write(self, data):
            raise OSError(28, "no room")

    with pytest.raises(OSError):
        encoder = tensogram.StreamingEncoder({}, Full())
        encoder.write_object({}, field("f4"))


def test_files(tmp_path):
    file = tensogram.TensogramFile(tmp_path / "a.tgm")
    for seed in range(3):
        file.append({"base": [{"seed": seed}]}, [({}, field("f4", seed=seed))])
    assert len(file) == 3 and [m.metadata["seed"] for m in file] == [0, 1, 2] and file[-1].metadata["seed"] == 2
    assert len(file[1:]) == 2 and reference.decode(file.read_message(1)).metadata.base[0]["seed"] == 1
    with pytest.raises(IndexError):
        file[3]
    tesseral.append(tmp_path / "a.tgm", {"b": field("f8")}, codec="zstd")
    again = tensogram.TensogramFile(tmp_path / "a.tgm")
    assert len(again) == 4 and not again.skipped()
    np.testing.assert_array_equal(tesseral.open(tmp_path / "a.tgm")["3/0"][...], field("f8"))


@pytest.mark.parametrize("length", [0, 1, 24, 100, -1])
def test_pieces_of_messages_are_refused(length):
    message = tensogram.encode({}, [({}, field("f4"))])
    with pytest.raises(tesseral.TesseralError):
        tensogram.decode(message[:length])


def test_large_compressed_objects_are_frames_that_the_reference_reads(tmp_path):
    magic = bytes.fromhex("28b52ffd")
    noise = np.random.default_rng(4).standard_normal(1_500_000)
    repeated = np.tile(noise[:50_000], 30)
    for pipeline in ({"compression": "zstd"}, {"filter": "shuffle", "shuffle_element_size": 8, "compression": "zstd", "zstd_level": 1}):
        message = tensogram.encode({}, [(pipeline, noise)])
        assert message.count(magic) == 12, "frames of 1 MiB"
        theirs = reference.decode(message, verify_hash=True).objects[0][1]
        ours = tensogram.decode(message).objects[0][1]
        assert theirs.tobytes() == ours.tobytes() == noise.tobytes()
    message = tensogram.encode({}, [({"compression": "zstd"}, noise)])
    path = tmp_path / "large.tgm"
    path.write_bytes(message)
    file = tensogram.TensogramFile(path)
    for first, count in ((0, 1), (131_071, 2), (131_072, 131_072), (700_000, 300_001), (1_499_999, 1), (5, 0)):
        expected = noise[first : first + count].tobytes()
        assert tensogram.decode_range(message, 0, [(first, count)], join=True).tobytes() == expected
        assert file.decode_range(0, 0, [(first, count)], join=True).tobytes() == expected
    with tesseral.open(path) as container:
        cells = next(iter(container.values()))
        np.testing.assert_array_equal(cells[131_000:264_000:7], noise[131_000:264_000:7])
        np.testing.assert_array_equal(cells[...], noise)
    # What repeats beyond a frame stays one frame, which is shorter.
    message = tensogram.encode({}, [({"compression": "zstd"}, repeated)])
    assert message.count(magic) == 1 and len(message) < 1 << 20
    assert reference.decode(message, verify_hash=True).objects[0][1].tobytes() == repeated.tobytes()
