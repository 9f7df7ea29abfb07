"""SECURITY.md lists the files with `unsafe` code and the limits: both match the code. Allocations sized by files are fallible."""

import re

import allocations
from support import ROOT


def unsafe_files():
    """Files with `unsafe` code."""
    found = set()
    for path in sorted((ROOT / "crates").rglob("src/**/*.rs")):
        code = re.sub(r"//.*|\"(?:\\.|[^\"])*\"", "", path.read_text())
        if re.search(r"\bunsafe\s*(\{|impl|fn|extern)", code):
            found.add(str(path.relative_to(ROOT / "crates")))
    return found


def hand_overs():
    """Files that give the address of memory to code outside Rust, without `unsafe`."""
    paths = (ROOT / "crates").glob("*/src/**/*.rs")
    return {str(path.relative_to(ROOT / "crates")) for path in paths if "fn __array_interface__" in path.read_text()}


def listed():
    return set(re.findall(r"`(tesseral-[\w-]+/src/[\w/]+\.rs)`", (ROOT / "SECURITY.md").read_text()))


def test_every_file_with_unsafe_is_listed():
    assert hand_overs()
    assert listed() == unsafe_files() | hand_overs()


def test_every_other_crate_forbids_it():
    for crate in sorted((ROOT / "crates").iterdir()):
        root = next(p for name in ("lib.rs", "main.rs") if (p := crate / "src" / name).exists())
        wanted = "deny" if any(f.startswith(f"{crate.name}/") for f in unsafe_files()) else "forbid"
        assert f"#![{wanted}(unsafe_code)]" in root.read_text(), crate.name


def test_every_block_says_why():
    for name in unsafe_files():
        lines = (ROOT / "crates" / name).read_text().splitlines()
        for number, line in enumerate(lines):
            if re.search(r"\bunsafe\s*(\{|impl|fn)", re.sub(r"//.*", "", line)):
                above = "\n".join(lines[max(0, number - 8) : number])
                assert "SAFETY" in above or "# Safety" in above, f"{name}:{number + 1}"


def test_limits_are_the_code_s():
    code = (ROOT / "crates/tesseral-core/src/limits.rs").read_text()
    default = re.search(r"Self \{\s+(chunk_bytes: \d.*?) \}", code, re.S)[1]
    values = {name: eval(value, {}) for name, value in re.findall(r"(\w+): ([\d< ]+)", default)}
    text = (ROOT / "SECURITY.md").read_text() + (ROOT / "docs/adr/0014-limits-on-declared-sizes.md").read_text()
    units = {"GiB": 1 << 30, "MiB": 1 << 20, "levels": 1, "Mi": 1 << 20}
    assert {"chunk_bytes", "chunk_expansion", "total_expansion", "metadata_bytes", "depth", "plan_chunks"} == set(values)
    for name, value in values.items():
        number, unit = re.search(rf"\| (\d+) (\w+) \| `Limits::{name}` \|", text).groups()
        assert int(number) * units[unit] == value, name


def test_allocations_are_bounded_or_fallible():
    """A size that a file determines is allocated by `tesseral_core::alloc`; every other one has a bound that is written down."""
    found, allowed = set(allocations.found()), allocations.allowed()
    unknown = sorted(found - allowed.keys())
    assert not unknown, "use tesseral_core::alloc, or say in allocations.txt what bounds:\n" + "\n".join(map("\t".join, unknown))
    gone = sorted(allowed.keys() - found)
    assert not gone, "in allocations.txt, but no longer in the code:\n" + "\n".join(map("\t".join, gone))
    assert all(allowed.values())
