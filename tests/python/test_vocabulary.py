"""Text uses the terms of docs/glossary.md: no phrase of its do-not-use list occurs in the checked files."""

import re

import pytest
from support import ROOT

GLOSSARY = ROOT / "docs/glossary.md"

#: What is checked: globs below the root.
CHECKED = [
    "*.md", "*.toml", "docs/**/*.md", "docs/schemas/*.json", "scripts/*", "examples/*.py", ".github/**/*.md", ".github/**/*.yml",
    "tests/**/*.py", "bench/*.py", "bench/compare", "bench/src/*.rs", "bench/peers/src/*.rs", "fuzz/src/*.rs", "fuzz/fuzz_targets/*.rs",
    "crates/**/*.rs", "crates/**/*.py", "crates/**/*.pyi",
]
#: Files that must contain the phrases: the list itself, its test, and data with names of other projects.
EXEMPT = {"docs/glossary.md", "tests/python/test_vocabulary.py", "typos.toml"}


#: Keys of metadata standards, names of institutions and names in fixtures that keep their spelling.
KEYS = re.compile(r'\b(?:centre|colours)\b(?=[."\\])|\bEuropean Centre\b')


def phrases():
    """The do-not-use list: pattern and replacement by phrase."""
    block = re.search(r"^```do-not-use\n(.*?)^```$", GLOSSARY.read_text(), re.M | re.S)[1]
    found = {}
    for line in block.splitlines():
        phrase, _, instead = line.partition(" => ")
        assert phrase and instead and phrase not in found, f"not `phrase => replacement`, or a duplicate: {line!r}"
        words = re.escape(phrase.removesuffix("*")).replace(r"\ ", r"\s+")
        found[phrase] = (re.compile(rf"\b{words}{r'' if phrase.endswith('*') else chr(92) + 'b'}", re.I), instead)
    return found


def prose(path):
    """The text that people read, with line numbers: all of Markdown but code; comments, docstrings, help and (Rust) string literals of programs."""
    text = path.read_text()
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```$", blank, text, flags=re.M | re.S)
        return re.sub(r"`[^`\n]*`", blank, text)
    if path.suffix == ".json":
        kept = re.compile(r'"(?:description|title)": "(?:\\.|[^"\\])*"')
    elif path.suffix == ".rs":
        kept = re.compile(r'//.*|"(?:\\.|[^"\\])*"')
    elif path.suffix in (".toml", ".yml"):
        kept = re.compile(r"#.*")
    else:
        kept = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""|(?<![\w"\'&$])#.*|\bhelp="[^"]*"|\bsay "[^"]*"')
    out = [" " if c != "\n" else c for c in text]
    for match in kept.finditer(text):
        out[match.start() : match.end()] = match[0]
    return KEYS.sub(blank, re.sub(r"`[^`\n]*`", blank, "".join(out)))


def checked():
    files = {path for pattern in CHECKED for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(path for path in files if str(path.relative_to(ROOT)) not in EXEMPT and "__pycache__" not in path.parts)


def test_the_list_is_not_empty():
    assert len(phrases()) > 30 and len(checked()) > 60


@pytest.mark.parametrize("sample", ["cells that nobody\n  wrote", "It is TOLD here.", "licences", "what was mended"])
def test_phrases_are_found(sample):
    assert any(pattern.search(sample) for pattern, _ in phrases().values())


@pytest.mark.parametrize("sample", ["amend", "stolen", "told_you", "granny", "recognize"])
def test_other_words_are_not_found(sample):
    assert not any(pattern.search(sample) for pattern, _ in phrases().values())


def test_no_phrase_occurs():
    found = []
    # One pass over texts without any phrase, which is all of them.
    any_phrase = re.compile("|".join(pattern.pattern for pattern, _ in phrases().values()), re.I)
    for path in checked():
        text = prose(path)
        if not any_phrase.search(text):
            continue
        for phrase, (pattern, instead) in phrases().items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {phrase!r}, write {instead!r}")
    assert not found, "\n" + "\n".join(found)
