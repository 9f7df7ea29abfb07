"""Arrays that we write carry digests: the reference package reads and changes them as any other array, and damage shows."""

import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import tiledb

from support import ROOT, tet, tet_json

MARK = "d16e5701"


def create(path, kind):
    """An array of the reference package, with everything that metadata is made of."""
    labels = tiledb.Enumeration("labels", False, ["red", "green", "blue"])
    attrs = [
        tiledb.Attr("f", dtype=np.float64),
        tiledb.Attr("i", dtype=np.int16, nullable=True),
        tiledb.Attr("t", dtype="U0", var=True),
        tiledb.Attr("e", dtype=np.int32, enum_label="labels"),
    ]
    dims = [tiledb.Dim(name, domain=(0, 39), tile=8, dtype=np.int64) for name in "xy"]
    sparse = kind != "dense"
    extra = {"capacity": 50, "allows_duplicates": kind == "duplicates"} if sparse else {}
    tiledb.Array.create(str(path), tiledb.ArraySchema(
        domain=tiledb.Domain(*dims), attrs=attrs, sparse=sparse, enums=[labels], **extra))


def cells(seed, count):
    rng = np.random.default_rng(seed)
    words = np.array([f"w{n}" * (n % 5) for n in rng.integers(0, 1000, count)], dtype="U")
    return {"f": rng.random(count), "i": np.ma.array(rng.integers(0, 99, count).astype("i2")),
            "t": words, "e": rng.integers(0, 3, count).astype("i4")}


def put(path, kind, seed, timestamp=None):
    with tiledb.open(str(path), "w", timestamp=timestamp) as array:
        if kind == "dense":
            box = (slice(0, 40), slice(0, 40)) if seed == 0 else (slice(4, 20), slice(8 * (seed % 4), 8 * (seed % 4) + 8))
            shape = tuple(s.stop - s.start for s in box)
            array[box] = {name: np.asarray(values).reshape(shape) for name, values in cells(seed, shape[0] * shape[1]).items()}
        else:
            at = np.random.default_rng(seed).choice(1600, 120, replace=False)
            array[at // 40, at % 40] = {name: np.asarray(values) for name, values in cells(seed, 120).items()}


def contents(path):
    with tiledb.open(str(path)) as array:
        found = array[:] if array.schema.sparse else array[:, :]
        found = {name: list(map(str, np.asarray(values).ravel())) for name, values in found.items()}
        if array.schema.sparse:
            rows = sorted(zip(*(found[name] for name in sorted(found))))
            found = {"rows": rows}
        return found, {key: str(value) for key, value in array.meta.items() if not key.startswith("__tesseral")}


def ours(tmp_path, kind):
    """The same array by the reference package and by us."""
    theirs, written = tmp_path / "theirs", tmp_path / "ours"
    create(theirs, kind)
    put(theirs, kind, 0, 10)
    with tiledb.open(str(theirs), "w", timestamp=11) as array:
        array.meta["units"] = "K"
    tet("convert", theirs, written, "--to", "tiledb")
    assert contents(theirs) == contents(written)
    return theirs, written


def files(path):
    return sorted(p for p in Path(path).rglob("*") if p.is_file())


def digest_findings(path, code=0):
    report = tet_json("verify", path, code=code)
    return report, [f for f in report["findings"] if f["check"] == "digests"]


def consolidate(path, mode):
    tiledb.consolidate(str(path), config=tiledb.Config({"sm.consolidation.mode": mode}))


def vacuum(path, mode):
    tiledb.vacuum(str(path), config=tiledb.Config({"sm.vacuum.mode": mode}))


def remove(path):
    with tiledb.open(str(path), "d") as array:
        array.query(cond="f > 0.8").submit()


def note(path):
    with tiledb.open(str(path), "w") as array:
        array.meta["note"] = "later"


def evolve(path):
    evolution = tiledb.ArraySchemaEvolution(tiledb.default_ctx())
    evolution.add_attribute(tiledb.Attr("more", dtype=np.int8))
    evolution.drop_attribute("t")
    evolution.array_evolve(str(path))


def steps(kind):
    table = {
        "append": lambda p: put(p, kind, 1),
        "append again": lambda p: put(p, kind, 2),
        "meta": lambda p: note(p),
        "consolidate footers": lambda p: consolidate(p, "fragment_meta"),
        "consolidate commits": lambda p: consolidate(p, "commits"),
        "vacuum commits": lambda p: vacuum(p, "commits"),
        "consolidate": lambda p: consolidate(p, "fragments"),
        "vacuum": lambda p: vacuum(p, "fragments"),
        "consolidate meta": lambda p: consolidate(p, "array_meta"),
        "vacuum meta": lambda p: vacuum(p, "array_meta"),
        "evolve": lambda p: evolve(p),
    }
    if kind != "dense":
        table["delete"] = lambda p: remove(p)
    return table


@pytest.mark.parametrize("kind", ["dense", "sparse", "duplicates"])
@pytest.mark.parametrize("seed", range(3))
def test_the_reference_changes_ours_as_its_own(tmp_path, kind, seed):
    theirs, written = ours(tmp_path, kind)
    table = steps(kind)
    rng = random.Random(seed)
    order = ["append", "append again", *rng.sample(sorted(set(table) - {"append", "append again", "evolve"}), len(table) - 3), "evolve"]
    for step in order:
        failures = []
        for path in (theirs, written):
            try:
                table[step](path)
            except tiledb.TileDBError as error:
                failures.append(str(error))
        assert len(failures) in (0, 2), (step, failures)
        with tiledb.open(str(written)) as array:
            assert array.schema is not None
        assert contents(theirs) == contents(written), (step, order)
        report, _ = digest_findings(written)
        assert report["ok"], (step, report)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_everything_we_write_is_covered_and_what_others_add_is_named(tmp_path, kind):
    theirs, written = ours(tmp_path, kind)
    report, found = digest_findings(written)
    assert report["ok"] and report["uncovered_bytes"] == 0 and found[0]["ok"], report
    stored = sum(p.stat().st_size for p in files(written) if p.suffix != ".wrt")
    assert 0 < report["covered_bytes"] <= stored
    put(written, kind, 1)
    report, found = digest_findings(written)
    (added,) = [p.name for p in (written / "__fragments").iterdir() if MARK not in p.name]
    assert report["ok"] and report["uncovered_bytes"] > 0
    assert added in found[0]["detail"] and "__schema" not in found[0]["detail"]
    # Ours stay covered: a flipped bit in them is an error, in the other fragment it is not seen.
    (fragment,) = [p for p in (written / "__fragments").iterdir() if MARK in p.name]
    flip(fragment / "a0.tdb", 40)
    digest_findings(written, code=1)
    report, found = digest_findings(theirs)
    assert report["ok"] and report["covered_bytes"] == 0 and "__schema" in found[0]["detail"]


def flip(path, at, bit=0):
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_flip_anywhere_is_found_by_verify(tmp_path, kind):
    _, written = ours(tmp_path, kind)
    rng = random.Random(kind)
    for path in [p for p in files(written) if p.stat().st_size]:
        for _ in range(4):
            whole = path.read_bytes()
            flip(path, rng.randrange(len(whole)), rng.randrange(8))
            report = tet_json("verify", written, code=1)
            assert not report["ok"], path
            path.write_bytes(whole)
    assert tet_json("verify", written)["ok"]


def test_digests_cannot_be_dropped_unnoticed(tmp_path):
    """A file without the digest that its name promises is damaged, not unprotected."""
    _, written = ours(tmp_path, "sparse")
    (schema,) = [p for p in (written / "__schema").iterdir() if p.is_file()]
    whole = schema.read_bytes()
    schema.write_bytes(whole[:-24])
    tet("info", written, code=(4, 5))
    tet_json("verify", written, code=1)
    schema.write_bytes(whole)
    (metadata,) = written.glob("__fragments/*/__fragment_metadata.tdb")
    whole = metadata.read_bytes()
    footer = struct.unpack("<Q", whole[-8:])[0]
    at = len(whole) - 8 - footer
    metadata.write_bytes(whole[: at - 24] + whole[at:])
    tet("cat", written, code=(4, 5))
    tet_json("verify", written, code=1)


@pytest.mark.parametrize("kind", ["dense", "sparse", "duplicates"])
def test_ours_change_ours_and_everything_stays_covered(tmp_path, kind):
    _, written = ours(tmp_path, kind)
    before = contents(written)[0]
    for command in (["set", written, "-s", "title=x"], ["set", written, "-s", "title=y"]):
        tet(*command)
    if kind != "dense":
        tet("delete", written, "--where", "f > 0.9")
    for part in ("fragment-meta", "commits", "array-meta", "fragments"):
        tet("consolidate", written, "--part", part)
        report, found = digest_findings(written)
        assert report["ok"] and report["uncovered_bytes"] == 0, (part, report)
    assert contents(written)[1].get("title") == "y"
    if kind == "dense":
        assert contents(written)[0] == before
    for path in [p for p in files(written) if p.stat().st_size]:
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            flip(path, at)
            if MARK in str(path.relative_to(written)):
                report = tet_json("verify", written, code=(0, 1))
                hidden = "__fragments" in str(path) and report["ok"]
                # Fragments that a consolidated one replaces are not read.
                assert not report["ok"] or hidden, path
            path.write_bytes(whole)
    for part in ("fragment-meta", "commits", "array-meta", "fragments"):
        tet("vacuum", written, "--part", part)
    report, _ = digest_findings(written)
    assert report["ok"] and report["uncovered_bytes"] == 0
    contents(written)


def test_appends_to_encrypted_arrays_hash_what_is_stored(tmp_path):
    """Digests are over stored bytes: they are checked without the key's help, and a flip shows before anything is decrypted."""
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    shutil.copytree(ROOT / "fixtures/tiledb/encrypted", tmp_path / "array")
    tet("set", tmp_path / "array", "-s", "title=x", "--key-file", key)
    (written,) = [p for p in (tmp_path / "array/__meta").iterdir() if MARK in p.name]
    assert tet_json("verify", tmp_path / "array", "--key-file", key)["ok"]
    flip(written, 60)
    report = tet_json("verify", tmp_path / "array", "--key-file", key, code=1)
    assert any(f["check"] == "digests" and not f["ok"] for f in report["findings"])


def test_a_window_hashes_the_blocks_that_it_reads(tmp_path):
    """Damage far from a window of an unfiltered tile does not keep it from being read; damage in it does."""
    np.save(tmp_path / "a.npy", np.arange(1 << 17, dtype="f8"))
    tet("convert", tmp_path / "a.npy", tmp_path / "array", "--to", "tiledb", "--codec", "raw", "--chunk", str(1 << 17))
    (data,) = (tmp_path / "array").glob("__fragments/*/a0.tdb")
    assert data.stat().st_size > 1 << 20
    flip(data, 1 << 19)
    window = tet("cat", tmp_path / "array", "0=100:4196", "--raw")
    assert np.array_equal(np.frombuffer(window, "f8"), np.arange(100.0, 4196.0))
    tet("cat", tmp_path / "array", "0=65000:66000", "--raw", code=5)
    tet("cat", tmp_path / "array", "--raw", code=5)


def test_headers_of_unfiltered_tiles_are_verified(tmp_path):
    """Nothing covers an array of the reference: the header before unfiltered cells can hold one value only."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 7), tile=8, dtype=np.int32))
    tiledb.Array.create(str(tmp_path / "a"), tiledb.ArraySchema(domain=domain, attrs=[
        tiledb.Attr("v", dtype=np.int64, filters=tiledb.FilterList())]))
    with tiledb.open(str(tmp_path / "a"), "w") as array:
        array[:] = np.arange(8)
    (data,) = (tmp_path / "a").glob("__fragments/*/a0.tdb")
    whole = data.read_bytes()
    assert tet_json("verify", tmp_path / "a")["ok"]
    for at in range(20):
        flip(data, at, 3)
        tet_json("verify", tmp_path / "a", code=1)
        data.write_bytes(whole)
