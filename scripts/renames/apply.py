"""Applies the `renames` blocks of plan.md to a checkout: python3 apply.py [--dry-run] REPO"""
import argparse
import pathlib
import re

p = argparse.ArgumentParser()
p.add_argument("repo", type=pathlib.Path)
p.add_argument("--dry-run", action="store_true")
p.add_argument("--plan", type=pathlib.Path, default=pathlib.Path(__file__).with_name("plan.md"))
a = p.parse_args()

TOKEN = re.compile(r'''(//[^\n]*|/\*.*?\*/|r\#+".*?"\#+|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])')''', re.S)
INLINE = re.compile(r"(`[^`\n]*`|\[[^\]\n]*\])")


def files(scope):
    out = []
    for word in scope.split():
        globs = ["crates/**", "fuzz/**", "bench/**"] if word == "*" else [re.sub(r"^@(?=[a-z])", "crates/tesseral-", re.sub(r"^@/", "crates/tesseral/", word))]
        for g in globs:
            if g.endswith("/**"):
                g += "/*.rs"
            out += [f for f in a.repo.glob(g) if f.suffix == ".rs" and "target" not in f.parts]
    return sorted(set(out))


def substitute(text, pattern, new):
    count = 0

    def sub(s):
        nonlocal count
        s, n = pattern.subn(new, s)
        count += n
        return s

    parts = TOKEN.split(text)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = sub(part)
        elif part.startswith("//"):
            parts[i] = INLINE.sub(lambda m: sub(m.group(0)), part)
    return "".join(parts), count


memory = {}
blocks = re.findall(r"```renames\n(.*?)```", a.plan.read_text(), re.S)
for line in "\n".join(blocks).splitlines():
    if not line.strip():
        continue
    scope, _, rule = line.partition(": ")
    old, _, new = rule.partition(" -> ")
    pattern = re.compile(rf"(?<![\w]){re.escape(old)}(?![\w])")
    head = new.split("::")[-1].split()[-1]
    exists = re.compile(rf"\b(?:struct|enum|trait|type|fn) {re.escape(head)}\b")
    used = re.compile(rf"(?<![\w]){re.escape(new)}(?![\w])")
    total, clash, shared = 0, [], []
    for f in files(scope):
        text = memory.get(f) or f.read_text()
        if exists.search(text):
            clash.append(str(f.relative_to(a.repo)))
        already = substitute(text, used, new)[1]
        text, n = substitute(text, pattern, new)
        if n and already and " " not in new and "::" not in new:
            shared.append(f"{f.relative_to(a.repo)} ({already})")
        total += n
        memory[f] = text
    if not total:
        print(f"no match: {line}")
    if shared:
        print(f"check by hand, {new} is in use in {', '.join(shared[:4])}: {line}")
    if clash and not old.split("::")[-1].split()[-1] == head:
        print(f"{head} exists already in {', '.join(clash[:3])}: {line}")
if not a.dry_run:
    for f, text in memory.items():
        if f.read_text() != text:
            f.write_text(text)
