"""Library crates name no command-line flag or command, and no format outside its crate and the registry, in any string."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERFACES = {"tesseral-cli", "tesseral-python"}
#: The optional dependencies of the registry.
FORMATS = {
    name for name, options in tomllib.loads((ROOT / "crates/tesseral-registry/Cargo.toml").read_text())["dependencies"].items() if options.get("optional")
}
#: Crates that may name formats: the registry, and the suite that runs all of them.
NAMING = {"tesseral-registry", "tesseral-conformance"}
TOKEN = re.compile(
    r"""
    //[^\n]*                                    # line comment
  | /\*.*?\*/                                   # block comment
  | (?P<raw>r(?P<hashes>\#*)"(?P<body>.*?)"(?P=hashes))
  | "(?P<text>(?:[^"\\]|\\.)*)"
  | '(?:[^'\\\n]|\\.[^'\n]*)'                   # character
    """,
    re.S | re.X,
)
FLAG = re.compile(r"(?<![\w.-])--[a-z][a-z-]*|(?<=[\s`(])-[a-zA-Z](?![\w-])")
COMMAND = re.compile(r"(?<![.\w/-])tet [a-z]+")
FORMAT_NAME = re.compile(r"tiledb|tensogram|\.tgm\b|\.tet\b|^tet$|^npy$|\.npy\b|^zarr$|\.zarr\b|tetration|hdf5|netcdf|\.nc\b|\.h5\b", re.I)


def without_tests(text: str) -> str:
    """The text before its test modules."""
    found = re.search(r"^#\[cfg\((?:all\()?test\b[^\n]*\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([^)]*\))? )?mod \w+ \{", text, re.M)
    return text[: found.start()] if found else text


def literals(path: Path) -> list[tuple[int, str]]:
    text = without_tests(path.read_text())
    found = []
    for token in TOKEN.finditer(text):
        body = token["body"] if token["raw"] is not None else token["text"]
        if body is not None:
            found.append((text.count("\n", 0, token.start()) + 1, body))
    return found


def sources(*, formats: bool) -> list[Path]:
    """Sources of library crates, with or without those that may name formats."""
    found = []
    for crate in sorted((ROOT / "crates").iterdir()):
        if crate.name in INTERFACES or crate.name in FORMATS | NAMING and not formats:
            continue
        for path in sorted((crate / "src").rglob("*.rs")):
            parts = set(path.relative_to(crate).parts)
            if not parts & {"tests.rs", "tests", "testing", "testing.rs", "conformance", "test_wrappers.rs"}:
                found.append(path)
    assert len(found) > 100
    return found


def violations(paths: list[Path], *patterns: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in paths
        for line, text in literals(path)
        if any(pattern.search(text) for pattern in patterns)
    ]


def test_formats_are_known():
    assert len(FORMATS) >= 7 and all((ROOT / "crates" / name).is_dir() for name in FORMATS)


def test_libraries_name_no_flag_or_command():
    assert not violations(sources(formats=True), FLAG, COMMAND)


def test_formats_are_named_by_their_crates_and_the_registry_alone():
    paths = sources(formats=False)
    assert not violations(paths, FORMAT_NAME)
    crates = re.compile(rf"\b(?:{'|'.join(sorted(FORMATS)).replace('-', '_')})\b")
    named = [str(path.relative_to(ROOT)) for path in paths if crates.search(without_tests(path.read_text()))]
    assert not named


def test_interfaces_compare_no_format_ids():
    ids = "|".join(sorted(name.removeprefix("tesseral-") for name in FORMATS))
    named = re.compile(rf"""[=!]= "(?:{ids})"|\bformat\s*=\s*"(?:{ids})"|(?<!import )"(?:tensogram|tiledb)",? """)
    rust = [path for crate in sorted(INTERFACES) for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))]
    # Functions of these two are named after formats.
    own = {"xarray.py", "tensogram.py"}
    python = [path for path in sorted((ROOT / "crates/tesseral-python/python").rglob("*.py")) if path.name not in own]
    texts = {path: re.sub(r'""".*?"""', "", without_tests(path.read_text()), flags=re.S) for path in rust + python}
    assert not [f"{path.relative_to(ROOT)}: {match[0]}" for path, text in texts.items() for match in named.finditer(text)]


#: The one folder of arithmetic.
REDUCE = ROOT / "crates/tesseral-engine/src/reduce"
#: Sums of cells, and the accumulators of exact sums.
SUMS = re.compile(
    r"\+= [^;]*(?:to_f64\(\)|f64::from\()|\b(?:sums?|squares|total|mean)(?:\[\w+\])? \+= (?:value|number|cell|x)\b"
    r"|\b(?:Moments|Products|SlotSums|AxisFold)::|\bexact::fixed\b"
)
#: Where else cells are added, and why.
ADDED_ELSEWHERE = {
    "crates/tesseral-tiledb/src/write/stats.rs": "sums that the format stores: rounded in the order of the cells",
    "crates/tesseral-query/src/transform.rs": "exponentials of cells, which are not cells, in an exact sum of the engine",
}
COMMENT = re.compile(r"//[^\n]*")


def test_cells_are_added_in_one_folder():
    paths = [path for path in sources(formats=True) if REDUCE not in path.parents and "tesseral-conformance" not in path.parts]
    paths += sorted((ROOT / "crates/tesseral-cli/src").rglob("*.rs")) + sorted((ROOT / "crates/tesseral-python/src").rglob("*.rs"))
    texts = {str(path.relative_to(ROOT)): COMMENT.sub("", without_tests(path.read_text())) for path in paths}
    found = {name: SUMS.findall(text) for name, text in texts.items() if SUMS.search(text)}
    assert found.keys() == ADDED_ELSEWHERE.keys(), found
    # The pattern finds what is allowed in the folder.
    assert sum(bool(SUMS.search(path.read_text())) for path in REDUCE.rglob("*.rs")) >= 10
    python = re.compile(r"np\.(?:nan)?(?:mean|std|var|median|average|percentile|quantile|dot|einsum|add\.reduce)\b|fsum|\bimport statistics")
    package = sorted((ROOT / "crates/tesseral-python/python").rglob("*.py"))
    code = {path.name: re.sub(r"#[^\n]*", "", re.sub(r'""".*?"""', "", path.read_text(), flags=re.S)) for path in package}
    assert len(code) > 15 and not {name: python.findall(text) for name, text in code.items() if python.search(text)}


#: Types that share a name, and why they are one concept.
SHARED_TYPES = {"Guard": "the guard of a memory map, and its counterpart without signals on other systems"}


def type_names() -> dict[str, list[str]]:
    """Types that all crates declare outside tests, public and private: the places by name."""
    declared: dict[str, list[str]] = {}
    pattern = re.compile(r"^\s*(?:pub )?(?:pub\([^)]*\) )?(?:unsafe )?(?:struct|enum|union|trait) ([A-Z]\w*)", re.M)
    interfaces = [path for crate in sorted(INTERFACES) for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))]
    for path in sources(formats=True) + interfaces:
        # The suite repeats concepts of the libraries on purpose: naive oracles and test formats.
        if "tesseral-conformance" not in path.parts:
            text = without_tests(path.read_text())
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start(1)) + 1
                declared.setdefault(match[1], []).append(f"{path.relative_to(ROOT)}:{line}")
    return declared


def test_types_have_one_name_each():
    """A search for the name of a type leads to one declaration."""
    names = type_names()
    shared = {name: places for name, places in names.items() if len(places) > 1}
    assert len(names) > 1000 and shared.keys() == SHARED_TYPES.keys(), shared


#: Names of functions that do not state what they do.
EMPTY_NAMES = re.compile(r"\bfn (?:of|one|told|made|it|look|cut|own|around)\b")


def test_functions_are_named_by_what_they_do():
    interfaces = [path for crate in sorted(INTERFACES) for path in sorted((ROOT / "crates" / crate / "src").rglob("*.rs"))]
    texts = {str(path.relative_to(ROOT)): without_tests(path.read_text()) for path in sources(formats=True) + interfaces}
    assert not {name: EMPTY_NAMES.findall(text) for name, text in texts.items() if EMPTY_NAMES.search(text)}
    assert EMPTY_NAMES.search("pub(crate) fn of(x: u8)") and not EMPTY_NAMES.search("fn offset(x: u8)")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [("give --cast", FLAG), ("give -f to replace it", FLAG), ("`tet verify` lists", COMMAND), ("a TileDB array", FORMAT_NAME), ("tet", FORMAT_NAME)],
)
def test_the_patterns_find_what_they_look_for(text, pattern, tmp_path):
    path = tmp_path / "a.rs"
    path.write_text(f'// "comment --x"\nlet a = \'"\';\nlet b = r#"{text}"#;\nlet c = "{text}";\n#[cfg(test)]\nmod tests {{ let d = "{text}"; }}\n')
    assert [line for line, body in literals(path) if pattern.search(body)] == [3, 4]
