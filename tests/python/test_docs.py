"""Documentation pages: every page is in the book, every relative link resolves, excerpts match the code, decisions are indexed."""

import re

import pytest
from support import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ROOT_PAGES = sorted(ROOT.glob("*.md"))
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|^\[[^\]\n]+\]: +(\S+)", re.M)
# Markdown outside the book: results of benchmarks, templates.
OTHER_PAGES = sorted([*ROOT.glob("bench/**/*.md"), *ROOT.glob(".github/**/*.md")])


def links(page):
    """Targets of the links of a page, outside code."""
    text = re.sub(r"`[^`\n]*`", "code", FENCE.sub("", page.read_text()))
    targets = [inline or reference for inline, reference in LINK.findall(text)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """Anchors of the headings of a page, as GitHub and mdBook derive them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text()), re.M)
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading)).strip().lower() for heading in headings)
    found = {}
    for heading in plain:
        anchor = heading.replace(" ", "-")
        found[anchor] = found.get(anchor, 0) + 1
    # Repeated headings are numbered.
    return {anchor if number == 0 else f"{anchor}-{number}" for anchor, count in found.items() for number in range(count)}


def test_every_page_is_in_the_summary():
    listed = [(DOCS / target).resolve() for target in links(DOCS / "SUMMARY.md")]
    assert len(listed) == len(set(listed)), "a page is listed more than once"
    assert set(listed) == {page for page in PAGES if page.name != "SUMMARY.md"}


@pytest.mark.parametrize("page", PAGES + ROOT_PAGES + OTHER_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} does not exist"
        assert found.is_relative_to(ROOT), f"{target} leaves the repository"
        # The book has no other files, so that such a link is dead where it is published.
        assert page not in PAGES or found.is_relative_to(DOCS), f"{target} leaves the book"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{target} has no such heading"


def test_anchors_are_those_of_the_book(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `code` *word*: b\n\n## Again\n\n## Again\n\n```\n# no heading\n```\n[a](#again-1) [b]\n\n[b]: other.md#x\n")
    assert anchors(page) == {"a-code-word-b", "again", "again-1"}
    assert links(page) == ["#again-1", "other.md#x"]


def test_mentioned_files_exist():
    """Paths in backticks that start with a folder of the repository."""
    pattern = re.compile(r"`((?:crates|docs|scripts|tests|bench|fuzz|examples|fixtures)/[\w./-]+)`")
    missing = []
    # The changelog also names files that were renamed or removed.
    for page in (page for page in PAGES + ROOT_PAGES if page.name != "CHANGELOG.md"):
        for path in pattern.findall(page.read_text()):
            if not (ROOT / path).exists() and not list(ROOT.glob(f"{path}*")):
                missing.append(f"{page.relative_to(ROOT)}: {path}")
    assert not missing


def test_excerpts_match_the_code():
    """Each Rust block of the guide follows the name of its file; its lines occur there in order, `…` matches any lines."""
    text = (DOCS / "add-a-format.md").read_text()
    excerpts = re.findall(r"^`(crates/[\w./-]+)`:\n\n```rust\n(.*?)^```$", text, re.M | re.S)
    assert len(excerpts) == text.count("```rust") > 5
    for path, block in excerpts:
        code = [line.strip() for line in (ROOT / path).read_text().splitlines()]
        at, adjacent = 0, False
        for line in filter(None, map(str.strip, block.splitlines())):
            if line == "…":
                adjacent = False
                continue
            assert line in code[at:], f"{path} has no line {line!r} here"
            found = code.index(line, at)
            assert found == at or not adjacent, f"{path}: lines are missing before {line!r}"
            at, adjacent = found + 1, True


def test_decisions_are_indexed_without_gaps():
    index = (DOCS / "adr/README.md").read_text()
    rows = re.findall(r"^\| (\d{4}) \| (.*?) \| (\w+) \|$", index, re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    states = {number: (title, state) for number, title, state in rows}
    for page in sorted((DOCS / "adr").glob("[0-9]*.md")):
        title, state = states[page.name[:4]]
        assert f"({page.name})" in title and state not in ("unused", "reserved"), f"{page.name} is not in the index"
        assert page.read_text().startswith(f"# {page.name[:4]} — "), f"{page.name}: unexpected heading"


def test_names_in_the_glossary_exist():
    """The third column of the tables of the glossary: types, functions, modules and files."""
    sources = list((ROOT / "crates").glob("*/src/**/*.rs"))
    code = "\n".join(path.read_text() for path in sources)
    missing = []
    for row in re.findall(r"^\| (.*) \|$", (DOCS / "glossary.md").read_text(), re.M):
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[-1]):
            if name.endswith(".rs"):
                known = any(path.as_posix().endswith(f"/{name}") for path in sources)
            else:
                plain = re.sub(r"[{(<].*", "", name)
                known = all(re.search(rf"\b{re.escape(part)}\b", code) for part in re.split(r"::| = ", plain) if part)
            if not known and not (ROOT / "crates" / name.partition("::")[0]).is_dir():
                missing.append(name)
    assert not missing


def test_regression_tests_exist():
    """The tests that the table of faults in reliability.md names."""
    table = (DOCS / "reliability.md").read_text().split("## Faults found")[1]
    named = {name for row in re.findall(r"^\| .* \|$", table, re.M) for name in re.findall(r"`([a-z]\w{8,})`", row.split(" | ")[-1])}
    files = [*(ROOT / "crates").rglob("*.rs"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "fuzz").rglob("*.rs")]
    tests = set(re.findall(r"^\s*(?:async )?(?:fn|def) (\w+)\(", "\n".join(path.read_text() for path in files), re.M))
    assert len(named) > 40 and not named - tests
