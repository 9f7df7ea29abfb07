"""Tables: values equal those of pyarrow, nulls are nulls, conversions are checked, errors name line and column."""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from support import tet, tet_json

WEATHER = Path(os.environ.get("TET_REAL_FILES", "/nonexistent")) / "seattle-weather.csv"


def quoted(rng, text, separator):
    if any(c in text for c in (separator, '"', "\n", "\r")) or rng.random() < 0.1:
        return '"' + text.replace('"', '""') + '"'
    return text


def value(rng, kind):
    if rng.random() < 0.1:
        return ""
    if kind == "int":
        return str(rng.randrange(-(2**63), 2**63))
    if kind == "float":
        return rng.choice([repr(rng.uniform(-1e9, 1e9)), "1e-300", "-0.0", "nan", "0.1"])
    if kind == "date":
        return f"{rng.randrange(1900, 2100)}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
    return rng.choice(["rain", "a,b", 'say "no"', "two\nlines", "é漢", "03772", "x;y"])


def table(path, seed, rows=700):
    """A random table, and its columns as pyarrow reads them."""
    rng = random.Random(seed)
    separator = rng.choice([",", ";", "\t", "|"])
    kinds = {f"c{i} {kind}": kind for i, kind in enumerate(rng.choices(["int", "float", "date", "text"], k=rng.randint(2, 7)))}
    lines = [separator.join(kinds)]
    for _ in range(rng.choice([1, 20, rows])):
        values = [value(rng, kind) for kind in kinds.values()]
        # A value of its own type, so that a column of one row has it.
        lines.append(separator.join(quoted(rng, one, separator) for one in values))
    lines.append(separator.join({"int": "7", "float": "0.5", "date": "2020-02-29", "text": "word"}[kind] for kind in kinds.values()))
    path.write_text(rng.choice(["\n", "\r\n"]).join(lines) + "\n", newline="")
    types = {"int": pa.int64(), "float": pa.float64(), "date": pa.date32(), "text": pa.string()}
    options = pa.csv.ConvertOptions(
        column_types={name: types[kind] for name, kind in kinds.items()}, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=True
    )
    parse = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    return pa.csv.read_csv(path, convert_options=options, parse_options=parse), kinds


@pytest.mark.parametrize("seed", range(8))
def test_random_tables_equal_pyarrow(tmp_path, seed):
    expected, kinds = table(tmp_path / "t.csv", seed)
    info = tet_json("info", tmp_path / "t.csv")["arrays"][0]
    assert info["shape"] == [expected.num_rows] and info["dims"] == ["row"]
    dtypes = {"int": "int64", "float": "float64", "date": "datetime64[D]", "text": "string_utf8"}
    assert {field["name"]: field["dtype"] for field in info["fields"]} == {name: dtypes[kind] for name, kind in kinds.items()}
    for name, kind in kinds.items():
        column = expected[name].combine_chunks()
        raw = tet("cat", tmp_path / "t.csv", name, "--raw")
        valid = np.frombuffer(tet("cat", tmp_path / "t.csv", name, "--validity"), "u1").astype(bool)
        assert valid.tolist() == column.is_valid().to_pylist()
        if kind == "text":
            lengths = [0 if text is None else len(text.encode()) for text in column.to_pylist()]
            assert raw == b"".join(n.to_bytes(8, "little") + (text or "").encode() for n, text in zip(lengths, column.to_pylist()))
        elif kind == "date":
            days = [0 if day is None else int(np.datetime64(day, "D").astype("i8")) for day in column.to_pylist()]
            assert np.frombuffer(raw, "<i8").tolist() == days
        else:
            cells = column.fill_null(0).to_numpy(zero_copy_only=False)
            assert raw == cells.astype("<i8" if kind == "int" else "<f8").tobytes()


@pytest.mark.parametrize("target", ["tdb", "zarr", "nc", "tet", "tgm"])
def test_conversions_are_checked(tmp_path, target):
    (tmp_path / "t.csv").write_text("when,n,x,word\n2012/01/01,1,0.5,a\n2012/01/02,2,-0.0,\"b,c\"\n")
    out = tmp_path / f"t.{target}"
    tet("convert", tmp_path / "t.csv", out, "--check")
    for name in ("when", "n", "x", "word"):
        assert tet("cat", out, name, "--raw") == tet("cat", tmp_path / "t.csv", name, "--raw"), name


def test_nulls_are_kept_or_need_a_value(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n,y\n3,z\n")
    assert tet_json("stat", tmp_path / "t.csv", "a")["nulls"] == 1
    tet("convert", tmp_path / "t.csv", tmp_path / "t.tdb", "--check")
    assert tet_json("stat", tmp_path / "t.tdb", "a")["nulls"] == 1
    tet("convert", tmp_path / "t.csv", tmp_path / "t.tet", code=(2, 7))
    assert not (tmp_path / "t.tet").exists()


def test_chunks_of_long_tables_are_found(tmp_path):
    rows = 150_000
    (tmp_path / "t.csv").write_text("n,text\n" + "".join(f'{n},"row\n{n}"\n' for n in range(rows)))
    info = tet_json("info", tmp_path / "t.csv")["arrays"][0]
    assert info["shape"] == [rows] and info["chunks"] > 2
    assert np.array_equal(np.frombuffer(tet("cat", tmp_path / "t.csv", "n", "--raw"), "<i8"), np.arange(rows))
    assert np.frombuffer(tet("cat", tmp_path / "t.csv", "n", "row=131000:131003", "--raw"), "<i8").tolist() == [131000, 131001, 131002]


@pytest.mark.parametrize("text, word", [("a,b\n1,2\n3\n", "line 3"), ("a,b\n1,2,3\n", "line 2"), ("", "")])
def test_damaged_tables_name_the_line(tmp_path, text, word):
    (tmp_path / "t.csv").write_text(text)
    import subprocess

    from support import TET

    done = subprocess.run([TET, "info", str(tmp_path / "t.csv")], capture_output=True, text=True)
    assert done.returncode in (4, 5) and word in done.stderr and "panicked" not in done.stderr


@pytest.mark.skipif(not WEATHER.exists(), reason="the sample is not available")
def test_the_weather_of_seattle(tmp_path):
    expected = pa.csv.read_csv(WEATHER)
    stat = tet_json("stat", WEATHER, "temp_max")
    assert (stat["count"], stat["max"]) == (expected.num_rows, max(expected["temp_max"].to_pylist()))
    info = {field["name"]: field["dtype"] for field in tet_json("info", WEATHER)["arrays"][0]["fields"]}
    assert info["date"] == "datetime64[D]" and info["weather"] == "string_utf8"
    tet("convert", WEATHER, tmp_path / "weather.tdb", "--check")
