"""Packages: written by us and read, verified, copied and continued by the reference, and the reverse."""

import hashlib
import json
import shutil
import subprocess

import numpy as np
import pytest
import tet as reference
from support import ROOT, TET, tet, tet_json

FIXTURE = ROOT / "fixtures" / "tet" / "package.tet.d"


def sources(folder, spill=False):
    """Arrays of several dtypes and chunks, with history and attributes."""
    attrs = {f"k{i}": "v" * 1000 for i in range(40)} if spill else {"units": "K"}
    session = reference.TetWriter.create(folder / "a.tet")
    rng = np.random.default_rng(3)
    session.write_dataset("t", rng.random((7, 5)).astype("f4"), chunk_shape=(3, 5), attrs=attrs)
    session.write_dataset("n", np.arange(30, dtype="i8").reshape(6, 5), chunk_shape=(4, 2), attrs=attrs)
    session.commit()
    return folder / "a.tet"


def generation(package):
    return package / "generations" / f"{int((package / 'CURRENT').read_text()):08d}"


def damaged(*command):
    done = subprocess.run([TET, *map(str, command), "--json"], capture_output=True)
    return done.returncode, [finding for finding in json.loads(done.stdout)["findings"] if not finding["ok"]]


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("options", [[], ["--codec", "zstd"], ["--no-statistics"]], ids=" ".join)
def test_packages_are_read_and_continued_by_the_reference(tmp_path, options, spill):
    source, package = sources(tmp_path, spill), tmp_path / "b.tet.d"
    tet("convert", source, package, *options)
    assert reference.is_package(package) and (package / "CURRENT").read_text() == "1\n"
    theirs, original = reference.open(package), reference.open(source)
    assert theirs.generation == 1 and theirs.dataset_names == original.dataset_names
    for name in original.dataset_names:
        np.testing.assert_array_equal(theirs.read_numpy(name), original.read_numpy(name))
        assert theirs.max(name) == original.max(name)
    folder = generation(package)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    zones = (folder / "ZONE.json").read_bytes()
    packed = (folder / "packed.tet").read_bytes()
    assert manifest["packed_byte_len"] == len(packed) and zones in packed
    assert manifest["zone_maps_sha256"] == hashlib.sha256(zones).hexdigest()
    assert json.loads(zones)["packed_sha256"] == manifest["packed_sha256"] and json.loads(zones)["generation"] == 1
    assert tet_json("verify", package, "--deep")["ok"]
    # Copied and continued.
    reference.pack(package, tmp_path / "packed.tet")
    assert (tmp_path / "packed.tet").read_bytes() == packed
    for name in ("staging", "publishing"):
        (package / name).mkdir()
    reference.ingest(package, source)
    assert reference.publish(package, ["a"]) == 2
    assert tet_json("verify", package, "--deep")["ok"]
    assert tet("cat", package, "n", "--raw") == tet("cat", source, "n", "--raw")
    tet("diff", source, package)


def test_packages_of_the_reference_are_verified(tmp_path):
    for spill in (False, True):
        folder = tmp_path / str(spill)
        folder.mkdir()
        package = folder / "a.tet.d"
        reference.ingest(package, sources(folder, spill), create=True)
        reference.publish(package, ["a"])
        assert tet_json("verify", package)["ok"]
    for number in ("1", "2"):
        package = tmp_path / f"{number}.tet.d"
        shutil.copytree(FIXTURE, package)
        (package / "CURRENT").write_text(number)
        assert tet_json("verify", package)["ok"]


@pytest.mark.parametrize("ours", [False, True])
def test_damage_of_packages_is_found(tmp_path, ours):
    source, package = sources(tmp_path), tmp_path / "a.tet.d"
    if ours:
        tet("convert", source, package)
    else:
        reference.ingest(package, source, create=True)
        reference.publish(package, ["a"])
    folder = generation(package)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    rng = np.random.default_rng(8)
    for name in ("packed.tet", "ZONE.json"):
        for at in rng.integers(0, len(whole[name]), 60):
            changed = bytearray(whole[name])
            changed[at] ^= 1 << int(rng.integers(8))
            (folder / name).write_bytes(changed)
            code, findings = damaged("verify", package)
            assert code != 0 and findings, (name, at)
        (folder / name).write_bytes(whole[name])
    manifest = json.loads(whole["MANIFEST.json"])
    for key, value in {"packed_byte_len": 1, "packed_sha256": "0" * 64, "zone_maps_sha256": "0" * 64}.items():
        (folder / "MANIFEST.json").write_text(json.dumps({**manifest, key: value}))
        code, findings = damaged("verify", package)
        assert (code, [finding["check"] for finding in findings]) == (1, ["package"])
    (folder / "MANIFEST.json").write_bytes(whole["MANIFEST.json"])
    assert tet_json("verify", package)["ok"]
    (folder / "ZONE.json").unlink()
    assert damaged("verify", package)[0] == 1


def test_packages_are_replaced_as_a_whole(tmp_path):
    source, package = sources(tmp_path), tmp_path / "a.tet.d"
    tet("convert", source, package)
    done = subprocess.run([TET, "convert", source, package], capture_output=True)
    assert done.returncode == 2
    before = (generation(package) / "packed.tet").read_bytes()
    (package / "staging" / "s0").mkdir(parents=True)
    (package / "staging" / "s0" / "part-a.tet").write_bytes(b"a part")
    done = subprocess.run([TET, "convert", source, package, "-f"], capture_output=True)
    assert done.returncode == 2 and (generation(package) / "packed.tet").read_bytes() == before
    shutil.rmtree(package / "staging")
    tet("rechunk", source, package, "-f", "--chunks", "2,2")
    assert tet_json("info", package)["arrays"][0]["chunk_shape"] == [2, 2]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    # Copies, conversions and recovery take packages as every other source.
    tet("cp", package, tmp_path / "b.tet.d")
    tet("convert", package, tmp_path / "c.tgm", "--check")
    tet("recover", package, tmp_path / "d.tet.d")
    for other in ("b.tet.d", "c.tgm", "d.tet.d"):
        tet("diff", source, tmp_path / other)
    assert reference.open(tmp_path / "d.tet.d").generation == 1
