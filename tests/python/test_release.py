"""Release scripts: the bill of materials lists what is linked, and the steps name what exists."""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from support import ROOT


@pytest.fixture(scope="module")
def bill():
    if not shutil.which("cargo"):
        pytest.skip("cargo is not on the path")
    done = subprocess.run([sys.executable, ROOT / "scripts/sbom", "tesseral-cli"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_components_are_the_linked_crates(bill):
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["name"] == "tesseral-cli"
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    names = {component["name"] for component in bill["components"]}
    assert {"tesseral-engine", "tesseral-tiledb", "object_store", "zstd-sys"} <= names
    # Tests, build scripts and procedural macros are not in the binary.
    assert not names & {"tesseral-conformance", "tesseral-bench", "proptest", "cc", "serde_derive"}


def test_components_have_checksums_and_licenses(bill):
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    for component in bill["components"]:
        expected = checksums[component["name"], component["version"]]
        assert [entry["content"] for entry in component.get("hashes", [])] == [expected] * bool(expected)
        [license] = component["licenses"]
        assert license["expression"] and "/" not in license["expression"], component["name"]


def test_dependencies_are_components_and_reach_all_of_them(bill):
    main = bill["metadata"]["component"]["bom-ref"]
    known = [main, *(component["bom-ref"] for component in bill["components"])]
    assert len(set(known)) == len(known)
    inner = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set(inner) == set(known)
    reached, waiting = set(), [main]
    while waiting:
        at = waiting.pop()
        if at not in reached:
            reached.add(at)
            waiting += inner[at]
    assert reached == set(known)


def test_steps_name_parts_that_exist():
    steps = (ROOT / "RELEASE.md").read_text()
    script = (ROOT / "scripts/release").read_text()
    parts = re.findall(r"^build_(\w+)\(\)", script, re.M)
    assert f"[{'|'.join(parts)}]" in script and f"set -- {' '.join(parts)}" in script
    for path in re.findall(r"`((?:bash )?(?:scripts|bench)/\w+)", steps):
        assert (ROOT / path.removeprefix("bash ")).exists(), path
    # Each kind of file of the table is written by the script.
    for name in re.findall(r"^\| (`.*?) \|", steps[steps.index("## Build") :], re.M):
        for ending in re.findall(r"[.\w*]*?(\.tar\.gz|\.deb|\.whl|\.crate|\.cdx\.json|SHA256SUMS)`", name):
            assert ending in script, ending


def test_published_crates_have_their_metadata():
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        package = tomllib.loads(manifest.read_text())["package"]
        if package.get("publish") is not False:
            assert package["description"] and package["license"] == {"workspace": True}, manifest
