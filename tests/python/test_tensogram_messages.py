"""Interoperability of messages with the reference package `tensogram` 0.24.0: byte equality, streams, message commands.

TET_BIN names the `tet` binary, TET_EXAMPLES the folder of the example `tgm_message`.
"""

import io
import json
import random
import resource
import subprocess
import time

import numpy as np
import pytest
import tensogram
from support import EXAMPLES, TET, tet, tet_json

ENCODER = ["tensogram", "0.24.0"]
DTYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def descriptor(array, **more):
    strides = [1] * array.ndim
    for d in reversed(range(array.ndim - 1)):
        strides[d] = strides[d + 1] * array.shape[d + 1]
    base = dict(type="ntensor", ndim=array.ndim, shape=list(array.shape), strides=strides, dtype=array.dtype.name,
                byte_order="little", encoding="none", filter="none", compression="none")
    return base | more


def random_object(rng):
    dtype = rng.choice(DTYPES)
    shape = [rng.choice([0, 1, 3, 17, 64]) for _ in range(rng.choice([0, 1, 1, 2]))]
    count = int(np.prod(shape, dtype=int))
    array = np.array([rng.randrange(0, 100) for _ in range(count)]).astype(dtype).reshape(shape)
    more = rng.choice([{}, {}, {"compression": "zstd"}, {"compression": "lz4"},
                       {"filter": "shuffle", "shuffle_element_size": array.dtype.itemsize, "compression": "zstd", "zstd_level": 1}])
    if dtype == "float64" and count and rng.random() < 0.4:
        more = {"encoding": "simple_packing", "sp_bits_per_value": rng.choice([8, 12, 16, 24])}
    return array, descriptor(array, **more)


def random_meta(rng, count):
    extra = {"centre": "ecmf", "n": rng.randrange(1 << 40), "nested": {"a": [1, 2.5, None, True], "bb": "ü"}} if rng.random() < 0.7 else {}
    base = [{"name": f"v{i}", "mars": {"param": "2t", "step": i}} for i in range(count)] if rng.random() < 0.7 else []
    return base, extra


def ours(folder, mode, base, extra, objects, provenance, **more):
    """Encode a message with our encoder."""
    entries = []
    for i, (array, desc, preceder) in enumerate(objects):
        path = folder / f"cells{i}"
        path.write_bytes(array.tobytes())
        entries.append({"descriptor": desc, "file": str(path), "preceder": preceder})
    out = folder / "ours.tgm"
    recipe = {"out": str(out), "mode": mode, "base": base, "extra": extra, "objects": entries, "encoder": ENCODER, **provenance, **more}
    done = subprocess.run([EXAMPLES / "tgm_message", "encode"], input=json.dumps(recipe).encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return out.read_bytes()


def stamps(message):
    reserved = tensogram.decode(message).metadata.reserved
    return {"time": reserved["time"], "uuid": reserved["uuid"]}


def clean(report, allow=()):
    return [issue for issue in report["issues"] if issue["code"] not in allow]


@pytest.mark.parametrize("seed", range(40))
def test_buffered_messages_are_byte_equal(seed, tmp_path):
    rng = random.Random(seed)
    objects = [random_object(rng) for _ in range(rng.choice([0, 1, 2, 5]))]
    base, extra = random_meta(rng, len(objects))
    hashed = rng.random() < 0.8
    aggregate = rng.choice(["auto", "none", "header", "footer", "both"]) if hashed else "auto"
    meta = extra | ({"base": base} if base else {})
    theirs = tensogram.encode(meta, [(d, a) for a, d in objects], hash="xxh3" if hashed else None, aggregate_hash=aggregate)
    made = ours(tmp_path, "buffered", base, extra, [(a, d, None) for a, d in objects], stamps(theirs), hash=hashed, aggregate=aggregate)
    assert made == theirs
    allow = () if hashed else ("no_hash_available",)
    assert not clean(tensogram.validate(made, level="full", check_canonical=True), allow)


@pytest.mark.parametrize("seed", range(30))
def test_streams_are_byte_equal(seed, tmp_path):
    rng = random.Random(1000 + seed)
    objects = [random_object(rng) for _ in range(rng.choice([0, 1, 3]))]
    base, extra = random_meta(rng, len(objects))
    meta = extra | ({"base": base} if base else {})
    hashed = rng.random() < 0.8
    encoder = tensogram.StreamingEncoder(meta, hash="xxh3" if hashed else None)
    for array, desc in objects:
        encoder.write_object(desc, array)
    mode = rng.choice(["streamed", "backfilled"])
    theirs = bytes(encoder.finish() if mode == "streamed" else encoder.finish_backfilled())
    made = ours(tmp_path, mode, base, extra, [(a, d, None) for a, d in objects], stamps(theirs), hash=hashed)
    assert made == theirs
    allow = ("flag_mismatch", *(() if hashed else ("no_hash_available",)))
    assert not clean(tensogram.validate(made, level="full", check_canonical=True), allow)


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("mode", ["finish", "finish_backfilled"])
def test_streams_without_objects_are_intact(tmp_path, hashed, mode):
    encoder = tensogram.StreamingEncoder({"a": 1}, hash="xxh3" if hashed else None)
    message = bytes(getattr(encoder, mode)())
    path = tmp_path / "stream.tgm"
    path.write_bytes(message)
    assert not [i for i in tensogram.validate(message, level="full")["issues"] if i["severity"] == "error"]
    assert tet_json("verify", path, "--deep")["ok"] and tet_json("validate", path, "--full")["ok"]


def test_another_wire_version_is_unsupported_and_not_damaged(tmp_path):
    array = np.arange(3.0)
    message = bytearray(tensogram.encode({}, [(descriptor(array), array)]))
    assert message[8:10] == b"\0\3"
    message[9] = 9
    path = tmp_path / "later.tgm"
    path.write_bytes(message)
    assert [f["unsupported"] for f in tet_json("verify", path, code=7)["findings"] if not f["ok"]] == [True]


def test_preceders_and_masks_reach_the_reference(tmp_path):
    array = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    objects = [(array, descriptor(array), {"units": "K"}), (array, descriptor(array, compression="zstd"), None)]
    made = ours(tmp_path, "streamed", [], {"a": 1}, objects, {}, allow=True)
    assert not clean(tensogram.validate(made, level="full", check_canonical=True))
    decoded = tensogram.decode(made)
    assert decoded.metadata.base[0]["units"] == "K" and "units" not in decoded.metadata.base[1]
    for _, cells in decoded.objects:
        np.testing.assert_array_equal(cells, array)
    path = tmp_path / "ours.tgm"
    assert tet_json("info", path)["arrays"][0]["attributes"] == {"units": "K"}
    assert tet("cat", path, "0/1", "--raw") == array.tobytes()
    assert tet_json("validate", path, "--full", "--canonical")["ok"]


def test_an_index_that_the_reference_cannot_place(tmp_path):
    arrays = [np.full(n, 7, "u1") for n in (64776, 1, 1, 1)]
    with pytest.raises(ValueError, match="third pass"):
        tensogram.encode({}, [(descriptor(a), a) for a in arrays])
    made = ours(tmp_path, "buffered", [], {}, [(a, descriptor(a), None) for a in arrays], {})
    assert not clean(tensogram.validate(made, level="full", check_canonical=True))
    assert [d.size for _, d in tensogram.decode(made).objects] == [64776, 1, 1, 1]


def older(message):
    """The message as written before 0.21: hashes, but no flag in the frames."""
    out = bytearray(message)
    at = 24
    while out[at : at + 2] == b"FR":
        out[at + 7] &= ~2
        at += (int.from_bytes(out[at + 8 : at + 16], "big") + 7) & ~7
    return bytes(out)


def test_files_of_older_writers_read_and_verify(tmp_path):
    array = np.arange(50, dtype="i4")
    message = older(tensogram.encode({"a": 1}, [(descriptor(array), array)]))
    path = tmp_path / "older.tgm"
    path.write_bytes(message)
    assert tet("cat", path, "0/0", "--raw") == array.tobytes()
    report = tet_json("verify", path, "--full")
    assert report["ok"] and "older_writer" in [f["check"] for f in report["findings"]]
    bent = bytearray(message)
    bent[bent.index(array.tobytes()) + 5] ^= 1
    path.write_bytes(bent)
    report = tet_json("verify", path, code=1)
    assert "hash_mismatch" in [f["check"] for f in report["findings"]]
    tet("cat", path, "0/0", "--raw", code=5)


def make_file(path, count=4, streamed=()):
    out = io.BytesIO()
    arrays = []
    for m in range(count):
        objects = [np.arange(10 + m, dtype="f8") * (o + 1) for o in range(1 + m % 3)]
        meta = {"run": m // 2, "base": [{"name": f"v{o}", "mars": {"param": "2t" if m % 2 else "msl", "step": m}} for o in range(len(objects))]}
        packing = {"encoding": "simple_packing", "sp_bits_per_value": 10}
        pairs = [(descriptor(a, **(packing if o else {})), a) for o, a in enumerate(objects)]
        if m in streamed:
            encoder = tensogram.StreamingEncoder(meta)
            for desc, array in pairs:
                encoder.write_object(desc, array)
            out.write(encoder.finish())
        else:
            out.write(tensogram.encode(meta, pairs))
        arrays.append(objects)
    path.write_bytes(out.getvalue())
    return arrays


def messages(path):
    data = path.read_bytes()
    return [data[at : at + length] for at, length in tensogram.scan(data)]


def payloads(message):
    """Object frames, byte for byte."""
    at, out = 24, []
    while message[at : at + 2] == b"FR":
        length = int.from_bytes(message[at + 8 : at + 16], "big")
        if message[at + 2 : at + 4] == b"\0\x09":
            out.append(message[at : at + length])
        at += (length + 7) & ~7
    return out


def sound(path):
    for message in messages(path):
        report = tensogram.validate(message, level="full", check_canonical=True)
        assert not clean(report, ("flag_mismatch",)), report
    assert tet_json("verify", path, "--full", "--canonical")["ok"]


def test_listing_and_picking(tmp_path):
    path = tmp_path / "in.tgm"
    make_file(path, 5, streamed=(2,))
    lines = tet("ls", "-p", "mars.param,mars.step", path).decode().split("\n")
    assert lines[0].split() == ["mars.param", "mars.step"]
    assert [line.split() for line in lines[1:-1]] == [["msl", "0"], ["2t", "1"], ["msl", "2"], ["2t", "3"], ["msl", "4"]]
    assert tet("get", "-p", "mars.step,run", "-w", "mars.param=2t", path).decode() == "1 0\n3 1\n"
    assert tet("get", "-p", "version", "-w", "mars.step!=0/1/2/3", path).decode() == "3\n"
    tet("get", "-p", "nothing", path, code=3)
    tet("get", "-p", "x", "-w", "nonsense", path, code=2)
    document = tet_json("ls", path, "-w", "mars.step=3", "-p", "run")
    assert document["rows"] == [{"message": 3, "values": {"run": 1}}]
    assert [a["name"] for a in document["arrays"]] == ["3/0"]
    dump = json.loads(tet("dump", "-j", "-w", "run=1", path))
    assert [m["message"] for m in dump["messages"]] == [2, 3]
    assert dump["messages"][0]["objects"][0]["dtype"] == "float64"
    assert b"mars.step: 3" in tet("dump", "-w", "run=1", path)
    tet("get", "-p", "x", "-w", "run=1", tmp_path / "none.tgm", code=3)


def test_setting_keys_keeps_every_object(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(source, 4, streamed=(1,))
    tet("set", "-s", "mars.class=rd,extra.note=hello", "-s", "mars.step:=77", "-w", "mars.param=2t", source, out)
    before, after = messages(source), messages(out)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        assert payloads(old) == payloads(new)
        if number % 2 == 0:
            assert old == new
            continue
        metadata = tensogram.decode(new).metadata
        assert metadata.extra["note"] == "hello" and metadata.extra["run"] == number // 2
        assert all(entry["mars"] == {"class": "rd", "param": "2t", "step": 77} for entry in metadata.base)
        assert metadata.reserved == tensogram.decode(old).metadata.reserved
    sound(out)
    tet("set", "-s", "a=1", source, out, code=2)
    tet("set", "-f", "-s", "objects.0.only=here", source, out)
    assert tensogram.decode(messages(out)[1]).metadata.base[0]["only"] == "here"
    assert "only" not in tensogram.decode(messages(out)[1]).metadata.base[1]
    for key in ("shape", "x.dtype", "_reserved_.x", "objects.9.x", "extra", "a..b"):
        tet("set", "-f", "-s", f"{key}=1", source, tmp_path / "refused.tgm", code=2)
    assert not (tmp_path / "refused.tgm").exists()


def test_copying_by_keys(tmp_path):
    source = tmp_path / "in.tgm"
    make_file(source, 5)
    tet("copy", source, tmp_path / "[mars.param].tgm")
    before = messages(source)
    assert messages(tmp_path / "2t.tgm") == before[1::2]
    assert messages(tmp_path / "msl.tgm") == before[0::2]
    tet("copy", "-w", "mars.step=3", source, tmp_path / "[nothing].tgm")
    assert messages(tmp_path / "unknown.tgm") == before[3:4]
    tet("copy", source, tmp_path / "[mars.param].tgm", code=2)


def test_merging_splitting_reshuffling(tmp_path):
    source = tmp_path / "in.tgm"
    arrays = make_file(source, 4, streamed=(1, 2))
    frames = [payload for message in messages(source) for payload in payloads(message)]
    one = tmp_path / "one.tgm"
    tet("merge", "-o", one, source, code=0)
    (merged,) = messages(one)
    assert payloads(merged) == frames
    decoded = tensogram.decode(merged)
    assert len(decoded.metadata.base) == len(frames) and decoded.metadata.extra["run"] == 0
    sound(one)
    tet("merge", "-s", "last", "-f", "-o", one, source)
    assert tensogram.decode(messages(one)[0]).metadata.extra["run"] == 1
    tet("merge", "-s", "error", "-f", "-o", one, source, code=2)

    tet("split", "-o", tmp_path / "part_[index].tgm", source)
    parts = sorted(tmp_path.glob("part_*.tgm"))
    assert len(parts) == len(frames)
    assert [payloads(part.read_bytes())[0] for part in parts] == frames
    for part in parts:
        sound(part)

    header = tmp_path / "header.tgm"
    tet("reshuffle", "-o", header, source)
    for message, objects in zip(messages(header), arrays, strict=True):
        assert int.from_bytes(message[16:24], "big") == len(message) and message[10:12] == b"\0\x95"
        np.testing.assert_array_equal(tensogram.decode(message).objects[0][1], objects[0])
    sound(header)


def test_merging_hashed_and_unhashed_messages(tmp_path):
    array = np.arange(6, dtype="u2")
    paths = []
    for name, hash in (("a", "xxh3"), ("b", None)):
        paths.append(tmp_path / f"{name}.tgm")
        paths[-1].write_bytes(tensogram.encode({name: 1}, [(descriptor(array), array)], hash=hash))
    tet("merge", "-o", tmp_path / "c.tgm", *paths)
    sound(tmp_path / "c.tgm")
    assert tensogram.validate((tmp_path / "c.tgm").read_bytes())["hash_verified"]


def test_append_removes_a_truncated_message(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(source, 3)
    tet("append", out, source)
    assert out.read_bytes() == source.read_bytes()
    data, tail = out.read_bytes(), messages(source)[2][:-40]
    out.write_bytes(data + tail)
    report = tet_json("verify", out, code=1)
    (torn,) = [f for f in report["findings"] if not f["ok"]]
    assert (torn["offset"], torn["length"]) == (len(data), len(tail))
    info = tet_json("info", out)
    assert len(info["tensogram"]["messages"]) == 3 and len(info["tensogram"]["skipped"]) == 1
    done = subprocess.run([TET, "append", out, source, "--json"], capture_output=True, check=True)
    assert f"removed {len(tail)} bytes of a truncated message at {len(data)}" in done.stderr.decode()
    assert json.loads(done.stdout)["outputs"] == [{"path": str(out), "appended": 3}]
    assert out.read_bytes() == data * 2
    assert len(tensogram.scan(out.read_bytes())) == 6
    sound(out)


def test_append_keeps_bytes_that_are_no_truncated_message(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(source, 2)
    data = source.read_bytes()
    for tail in (b"notes of somebody", b"TENSOGRM\0\4" + bytes(40)):
        out.write_bytes(data + tail)
        tet("append", out, source)
        assert out.read_bytes() == data + tail + data
        assert len(tensogram.scan(out.read_bytes())) == 4


def test_recover_saves_whole_objects_of_a_truncated_message(tmp_path):
    source, out, saved = tmp_path / "in.tgm", tmp_path / "out.tgm", tmp_path / "saved.tgm"
    make_file(source, 3)
    whole = messages(source)
    out.write_bytes(source.read_bytes() + whole[2][:-40])
    tet("recover", out, saved)
    assert messages(saved)[:3] == whole and len(messages(saved)) == 4
    sound(saved)


def test_repair_removes_a_truncated_message(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(source, 3)
    data = source.read_bytes()
    for cut in (8, 100, len(messages(source)[0]) - 1):
        out.write_bytes(data + messages(source)[0][:cut])
        plan = tet_json("repair", out)
        assert [(r["code"], r["outcome"]) for r in plan["repairs"]] == [("truncated_tail", "available")]
        assert out.read_bytes() == data + messages(source)[0][:cut]
        tet_json("verify", out, code=1)
        done = tet_json("repair", out, "--apply", "truncated_tail")
        assert done["verify_after"]["ok"]
        assert out.read_bytes() == data
        assert tensogram.validate_file(str(out))["file_issues"] == []
        sound(out)


def append_limited(limit, out, source):
    """Appends where a file may have so many bytes and no more."""
    limits = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    # Ignored signals are inherited: writing past the limit is an error, not the end of the process.
    return subprocess.run([TET, "append", out, source], capture_output=True, preexec_fn=limits, restore_signals=False)


def test_append_on_a_full_disk_leaves_the_old_file(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(source, 3)
    data = source.read_bytes()
    first = len(messages(source)[0])
    for room in (0, 1, 24, first - 1, first, first + 100, len(data) - 1):
        out.write_bytes(data)
        done = append_limited(len(data) + room, out, source)
        assert done.returncode == 8, (room, done.stderr)
        assert out.read_bytes() == data, room
        tet("verify", out)
    assert append_limited(2 * len(data), out, source).returncode == 0
    assert out.read_bytes() == data * 2
    new = tmp_path / "new.tgm"
    assert append_limited(first + 10, new, source).returncode == 8
    assert not new.exists()


def test_appends_at_once_take_turns(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    big = np.arange(1 << 18, dtype="f8")
    source.write_bytes(tensogram.encode({}, [(descriptor(big), big)]) * 3)
    out.write_bytes(tensogram.encode({"first": 1}, []))
    running = [subprocess.Popen([TET, "append", out, source], stdout=subprocess.DEVNULL) for _ in range(4)]
    while any(process.poll() is None for process in running):
        # One message after the other may come, and none that is not whole.
        assert 1 <= len(tet_json("info", out)["tensogram"]["messages"]) <= 13
    assert [process.returncode for process in running] == [0] * 4
    assert len(tensogram.scan(out.read_bytes())) == 13
    tet("verify", out)


def test_being_killed_leaves_at_most_a_truncated_message(tmp_path):
    source, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    big = np.arange(1 << 20, dtype="f8")
    source.write_bytes(tensogram.encode({}, [(descriptor(big), big)]) * 6)
    whole = messages(source)[0]
    small = tensogram.encode({"first": 1}, [])
    for delay in (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08):
        out.write_bytes(small)
        running = subprocess.Popen([TET, "append", out, source], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        running.kill()
        running.wait()
        data = out.read_bytes()
        found = messages(out)
        assert found[0] == small and all(message == whole for message in found[1:])
        left = len(data) - len(small) - len(whole) * (len(found) - 1)
        assert data[len(data) - left :] == whole[:left]
        report = tet_json("verify", out, code=(0, 1))
        gaps = [(f["offset"], f["length"]) for f in report["findings"] if not f["ok"]]
        assert gaps == ([(len(data) - left, left)] if left else [])
        tet("append", out, source)
        assert len(messages(out)) == len(found) + 6
        tet("verify", out)


def test_recovering_what_a_flipped_bit_leaves(tmp_path):
    source, saved = tmp_path / "in.tgm", tmp_path / "saved.tgm"
    make_file(source, 3)
    before = messages(source)
    data = bytearray(source.read_bytes())
    frame = payloads(before[2])[1]
    data[data.index(frame) + 20] ^= 1
    source.write_bytes(data)
    report = tet_json("recover", source, saved)
    assert (report["chunks_saved"], report["chunks_lost"]) == (5, 1)
    after = messages(saved)
    assert after[:2] == before[:2]
    assert payloads(after[2]) == [payloads(before[2])[i] for i in (0, 2)]
    sound(saved)


def test_validate_has_the_levels_of_the_reference(tmp_path):
    array = np.array([1.0, np.nan])
    message = tensogram.encode_pre_encoded({}, [(descriptor(array), array.tobytes())])
    path = tmp_path / "nan.tgm"
    path.write_bytes(message)
    assert tet_json("validate", path)["ok"] and tet_json("validate", path, "--quick")["ok"]
    report = tet_json("validate", path, "--full", code=1)
    assert [f["check"] for f in report["findings"] if not f["ok"]] == ["nan_detected"]
    assert [i["code"] for i in tensogram.validate(message, level="full")["issues"]] == ["nan_detected"]
    # A changed descriptor: detected by hashes, not by the structure alone.
    bent = bytearray(message)
    bent[bent.index(b"ntensor")] ^= 1
    path.write_bytes(bent)
    assert tet_json("validate", path, "--quick")["ok"]
    for level in ("--checksum", "--deep", "--full"):
        report = tet_json("validate", path, level, code=1)
        assert "hash_mismatch" in [f["check"] for f in report["findings"] if not f["ok"]], level
    tet("validate", path, "--quick", "--full", code=2)


def masked(**more):
    """A message without hashes whose one object has a mask of one run, and where that mask is."""
    array = np.array([np.nan] * 4, "f4")
    message = tensogram.encode({}, [(descriptor(array), array)], hash=None, allow_nan=True, nan_mask_method="rle",
                               small_mask_threshold_bytes=0)
    at = message.index(b"FR\x00\x09") + 16 + array.nbytes
    assert message[at : at + 2] == b"\x01\x04"
    return bytearray(message), at


def test_every_level_that_decodes_sees_a_broken_mask(tmp_path):
    path = tmp_path / "mask.tgm"
    message, at = masked()
    path.write_bytes(message)
    assert tet_json("verify", path, "--full")["ok"]
    message[at] = 7
    path.write_bytes(message)
    for level in ([], ["--deep"], ["--full"]):
        assert not tet_json("verify", path, *level, code=1)["ok"], level
    report = tet_json("verify", path, "--full", code=1)
    assert "decode_object_failed" in [f["check"] for f in report["findings"] if not f["ok"]]
    assert [i["code"] for i in tensogram.validate(bytes(message), level="full")["issues"] if i["severity"] == "error"] == [
        "decode_object_failed"]


def test_what_a_mask_names_may_hold_anything(tmp_path):
    path = tmp_path / "mask.tgm"
    message, at = masked()
    message[at - 16 : at - 12] = np.array([np.nan], "f4").tobytes()
    path.write_bytes(message)
    assert tensogram.validate(bytes(message), level="full")["issues"][0]["code"] == "no_hash_available"
    assert tet_json("verify", path, "--full")["ok"]


@pytest.mark.parametrize("piece", [1, 7, 64, 100_000])
def test_pushing_pieces(piece, tmp_path):
    path = tmp_path / "in.tgm"
    arrays = make_file(path, 3, streamed=(0, 2))
    data = path.read_bytes()
    path.write_bytes(b"junk" + data + b"tail")
    done = subprocess.run([EXAMPLES / "tgm_message", "push", path, str(piece)], capture_output=True, check=True, timeout=60)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["skipped"] for e in events if "skipped" in e] == [0, 4 + len(data)]
    assert len([e for e in events if "message" in e]) == 3
    cells = [bytes.fromhex(e["cells"]) for e in events if "object" in e]
    wanted = [d.tobytes() for m in messages(path) for _, d in tensogram.decode(m).objects]
    assert cells == wanted and len(cells) == sum(map(len, arrays))


def test_payloads_with_magics_cut_no_message(tmp_path):
    nasty = np.frombuffer(b"39277777TENSOGRM\0\3FR\0\x09ENDF39277777" * 20, "u1")
    encoder = tensogram.StreamingEncoder({})
    encoder.write_object(descriptor(nasty), nasty)
    message = bytes(encoder.finish())
    path = tmp_path / "nasty.tgm"
    path.write_bytes(message * 2)
    assert [a["name"] for a in tet_json("info", path)["arrays"]] == ["0/0", "1/0"]
    assert tet("cat", path, "1/0", "--raw") == nasty.tobytes()
    assert tet_json("verify", path)["ok"]


def test_bitmasks_come_packed(tmp_path):
    bits = np.packbits(np.arange(21) % 3 == 0)
    desc = dict(type="ntensor", ndim=2, shape=[3, 7], strides=[7, 1], dtype="bitmask", byte_order="little", encoding="none",
                filter="none", compression="none")
    path = tmp_path / "bits.tgm"
    path.write_bytes(tensogram.encode_pre_encoded({}, [(desc, bits.tobytes())]))
    assert tet("cat", path, "0/0", "--raw") == bits.tobytes()
    flat = np.unpackbits(bits)[:21].reshape(3, 7)
    assert tet("cat", path, "0/0", "0=1:3", "1=2:5", "--raw") == np.packbits(flat[1:3, 2:5]).tobytes()
    assert tet_json("cat", path, "0/0", "0=1")["data"] == [[bool(b) for b in flat[1]]]
    assert tet_json("verify", path, "--deep")["ok"]
    assert tet("diff", path, path) == b"equal\n"
    other = tmp_path / "other.tgm"
    other.write_bytes(tensogram.encode_pre_encoded({}, [(desc, (bits ^ np.uint8([0, 4, 0])).tobytes())]))
    values = tet_json("diff", path, other, code=1)["values"][0]
    assert values["differing"] == 1 and values["first"]["position"] == [1, 6]


@pytest.mark.parametrize("arguments", [["merge", "-o", "-", "IN"], ["reshuffle", "-o", "-", "IN"], ["copy", "IN", "-"],
                                       ["set", "-s", "k=v", "IN", "-"], ["merge", "--json", "-o", "-", "IN"]])
def test_standard_output_holds_nothing_but_messages(tmp_path, arguments):
    path, out = tmp_path / "in.tgm", tmp_path / "out.tgm"
    make_file(path)
    out.write_bytes(tet(*[path if word == "IN" else word for word in arguments]))
    assert tet_json("verify", out)["ok"]


def test_many_messages_are_listed_soon(tmp_path):
    array = np.arange(4, dtype="i2")
    message = tensogram.encode({"base": [{"name": "x"}]}, [(descriptor(array), array)])
    path = tmp_path / "many.tgm"
    path.write_bytes(message * 20_000)
    text = tet("info", path).decode()
    assert "20000 arrays" in text and "100 of 20000 arrays" in text
    assert len(tet_json("info", path)["arrays"]) == 20_000


def test_a_stream_without_objects_is_sound_as_for_the_reference(tmp_path):
    path = tmp_path / "empty.tgm"
    path.write_bytes(bytes(tensogram.StreamingEncoder({"a": 1}).finish()))
    theirs = tensogram.validate(path.read_bytes())
    assert {(i["code"], i["severity"]) for i in theirs["issues"]} == {("flag_mismatch", "warning")}
    for depth in ("--quick", "--checksum", "--deep", "--full"):
        report = tet_json("verify", path, depth)
        assert report["ok"], depth
        assert all(f["ok"] or f["severity"] == "warning" for f in report["findings"]), depth
    assert tet_json("info", path)["arrays"] == []
    assert tet_json("stat", path)["arrays"] == []


@pytest.mark.parametrize("compression", ["none", "rle", "roaring"])
@pytest.mark.parametrize("count", [20, 24, 1])
def test_bitmasks_are_counted_and_converted(tmp_path, compression, count):
    path, bits = tmp_path / "bits.tgm", np.array([0xA5, 0xFF, 0x30], dtype="u1")[:(count + 7) // 8]
    bits[-1] &= 0xFF << (-count % 8) & 0xFF
    desc = descriptor(bits, compression=compression) | {"dtype": "bitmask", "shape": [count]}
    numbers = np.arange(4, dtype="f4")
    path.write_bytes(tensogram.encode({"base": [{"name": "mask"}, {}]}, [(desc, bits), (descriptor(numbers), numbers)]))
    expected = np.unpackbits(bits)[:count]
    rows = tet_json("stat", path)["arrays"]
    assert (rows[0]["count"], rows[0]["sum"], rows[1]["sum"]) == (count, int(expected.sum()), 6)
    assert rows[0]["min"] == bool(expected.min()) and rows[0]["max"] == bool(expected.max())
    assert tet_json("stat", path, "mask", "0=0:1")["sum"] == int(expected[0])
    for form in ("tet", "tiledb", "tensogram"):
        out = tmp_path / f"out.{form}"
        tet("convert", path, out, "--to", form, "--array", "mask", "--check")
        array = tet_json("info", out)["arrays"][0]
        assert array["dtype"] == "bool"
        assert tet("cat", out, "--raw") == expected.tobytes()
    assert tet("cat", path, "0/0", "--raw") == bits.tobytes()


def test_many_messages_in_little_memory(tmp_path):
    """`get`, `dump` and `stat` held what they printed: kilobytes for each message."""
    array, path = np.arange(25, dtype="f4"), tmp_path / "many.tgm"
    message = tensogram.encode({"base": [{"mars": {"param": "2t"}}]}, [(descriptor(array), array)])
    count = 20_000
    path.write_bytes(message * count)
    for command in (["get", "-p", "mars.param"], ["get", "-p", "mars.param", "--json"], ["dump"], ["stat"], ["info", "--json"]):
        report = tmp_path / "peak"
        done = subprocess.run(["/usr/bin/env", "python3", "-c", PEAK, report, TET, *command, path], stdout=subprocess.PIPE, check=True)
        peak = int(report.read_text()) << 10
        # Below a third of what the rows alone would take at a kilobyte each, in addition to the file and the program.
        assert peak < len(message) * count + (64 << 20), (command, peak)
        if command[-1] == "--json":
            found = json.loads(done.stdout)
            assert len(found.get("rows", found.get("arrays"))) == count
            assert found.get("tensogram", {"message_count": count})["message_count"] == count


#: Runs a command and writes down its peak memory in KiB.
PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


def test_metadata_of_many_entries_is_parsed_once(tmp_path):
    """Forty thousand entries for seven hundred objects took 18 s of processor time, parsed again for each object."""
    entries, path = 40_000, tmp_path / "crowded.tgm"
    array = np.zeros(1, dtype="u1")
    message = tensogram.encode({}, [(descriptor(array), array)], hash=None)
    frames = {kind: message[at : at + length] for kind, at, length in frames_of(message)}
    objects = (frames[9] + bytes(-len(frames[9]) % 8)) * 700
    body = b"\xa1\x64base\x9a" + entries.to_bytes(4, "big") + b"\xa1\x61a\x66bcdefg" * entries
    length = 16 + len(body) + 12
    head = frames[1][:8] + length.to_bytes(8, "big") + body + bytes(8) + b"ENDF" + bytes(-length % 8)
    total = 48 + len(head) + len(objects)
    preamble = message[:10] + (1).to_bytes(2, "big") + bytes(4) + total.to_bytes(8, "big")
    path.write_bytes(preamble + head + objects + (total - 24).to_bytes(8, "big") + total.to_bytes(8, "big") + b"39277777")
    for command in (["info"], ["info", "--json"], ["verify"], ["stat"], ["get", "-p", "version"], ["dump"]):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([TET, *command, path], capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "panicked" not in done.stderr
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 4, command


def frames_of(message):
    """The type, place and length of each frame."""
    at = 24
    while message[at : at + 2] == b"FR":
        length = int.from_bytes(message[at + 8 : at + 16], "big")
        yield int.from_bytes(message[at + 2 : at + 4], "big"), at, length
        at += length + -length % 8
