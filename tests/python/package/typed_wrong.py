"""A program with mistakes, each of which a type checker reports."""

import tesseral

tesseral.open(3)
tesseral.verify("a").nope
array = tesseral.open("a.tet")["a"]
array.mean(axis=1.5)
array["a"].upper()
array.read(out="x")
