"""Every `--json` document against the schema published for it."""

import json
import shutil

import jsonschema
import pytest
from referencing import Registry, Resource
from support import ROOT, tet

FIXTURES = ROOT / "fixtures" / "tet"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs" / "schemas").glob("*.json")}
REGISTRY = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in SCHEMAS.values())
SOUND = sorted(path for path in FIXTURES.iterdir() if path.suffix in (".tet", ".d"))
BROKEN = sorted((FIXTURES / "corrupt").glob("*.tet"))


def check(command, *arguments, code=0):
    """Run a command and validate its document against its schema."""
    out = tet(command, *arguments, "--json", code=code)
    if not out:
        return None
    document = json.loads(out)
    assert document["schema"] == f"tesseral.{command}/1"
    jsonschema.Draft202012Validator(SCHEMAS[command], registry=REGISTRY).validate(document)
    return document


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["$id"] == f"urn:tesseral:{name}:1"


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.name)
def test_sound_files(path):
    arrays = check("info", path)["arrays"]
    check("info", path, "--all", "-n", 3)
    check("stat", path)
    check("verify", path, "--deep")
    check("repair", path)
    for array in arrays:
        check("cat", path, array["name"])
        check("cat", path, array["name"], "0=0:0")
        check("stat", path, array["name"], "--by", 0)


TILEDB = sorted(path for path in (ROOT / "fixtures" / "tiledb").iterdir() if path.is_dir())


@pytest.mark.parametrize("path", TILEDB, ids=lambda path: path.name)
def test_arrays_of_fragments(path, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    options = ["--key-file", key] if path.name == "encrypted" else []
    info = check("info", path, "--all", "-n", 3, *options)
    assert check("log", path, *options)["versions"]
    check("verify", path, "--deep", *options)
    check("stat", path, *options)
    for array in info["arrays"]:
        for field in array["fields"]:
            name = field["name"] if len(info["arrays"]) == 1 else f"{array['name']}/{field['name']}"
            check("cat", path, name, *options)
        if array["sparse"]:
            alone = len(info["arrays"]) == 1
            rows = check("cat", path, *([] if alone else [array["name"]]), *options)
            assert rows["count"] == len(rows["rows"])
            dim = array["dims"][0]
            named = dim if alone else f"{array['name']}/{dim}"
            assert check("cat", path, named, *options)["columns"][0]["name"] == dim
            assert array["non_empty_domain"] and array["chunk_list"][0]["bounds"]


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.name)
def test_broken_files(path):
    check("verify", path, code=(0, 1, 7))
    check("repair", path)
    info = check("info", path, code=(0, 4, 6, 7))
    for array in info["arrays"] if info else []:
        if array["name"]:
            check("cat", path, array["name"], code=(0, 4, 5, 6, 7))
            check("stat", path, array["name"], code=(0, 4, 5, 6, 7))


def test_mending(tmp_path):
    path = tmp_path / "footer.tet"
    shutil.copy(FIXTURES / "corrupt" / "footer_json_broken.tet", path)
    check("repair", path, "--apply", "footer_invalid", "--dry-run")
    done = check("repair", path, "--apply", "footer_invalid")
    assert done["verify_after"]["ok"]
    saved = tmp_path / "saved.tet"
    copied = check("cp", path, tmp_path / "copy.tet")
    assert copied["objects"] == 1 and (tmp_path / "copy.tet").read_bytes() == path.read_bytes()
    assert check("cp", "-f", "--no-digests", path, tmp_path / "copy.tet")["covered_bytes"] is None
    report = check("recover", FIXTURES / "corrupt" / "payload_truncated.tet", saved)
    assert report["chunks_saved"] > 0 and saved.exists()


def test_messages(tmp_path):
    source = ROOT / "fixtures" / "tensogram" / "metadata.tgm"
    check("info", source, "-p", "dtype", "-w", "version=3")
    check("get", source, "-p", "version,dtype")
    check("dump", source)
    check("dump", source, "-p", "dtype")
    for command, arguments in {
        "set": ["-s", "a=1", source, tmp_path / "set.tgm"],
        "copy": [source, tmp_path / "copy.tgm"],
        "merge": ["-o", tmp_path / "merge.tgm", source, source],
        "split": ["-o", tmp_path / "split.tgm", source],
        "reshuffle": ["-o", tmp_path / "reshuffle.tgm", source],
        "append": [tmp_path / "append.tgm", source, source],
    }.items():
        assert check(command, *arguments)["outputs"]
    for depth in ("--quick", "--checksum", "--deep", "--full", "--canonical"):
        check("verify", source, depth)
    check("recover", tmp_path / "append.tgm", tmp_path / "saved.tgm")


def test_versions(tmp_path):
    array = tmp_path / "array"
    check("create", array, "--sparse", "--dim", "x=0..99/10:int32", "--field", "v:int32")
    (tmp_path / "cells.csv").write_text("x,v\n1,2\n3,4\n")
    for _ in range(2):
        check("append", array, tmp_path / "cells.csv")
    check("delete", array, "--where", "v == 2")
    check("evolve", array, "--add", "w:int8")
    assert check("set", "-s", "a=1", array)["set"] == ["a"]
    assert check("consolidate", array)["made"]
    check("vacuum", array)
    check("log", array)


def test_moving(tmp_path):
    source = FIXTURES / "labels_v1.tet"
    name = check("info", source)["arrays"][0]["name"]
    out = tmp_path / "out.tgm"
    assert check("convert", source, out, "--dry-run")["stored_bytes"] is None and not out.exists()
    assert check("convert", source, out, "--check")["checked"]
    assert check("rechunk", source, tmp_path / "out.tet", "--chunks", "0=1")["arrays"]
    assert check("diff", source, out)["same"]
    packed = tmp_path / "other.tet"
    check("convert", source, packed, "--array", name)
    check("diff", source, packed, code=(0, 1))
    check("advise", source, name, "--read", "0=0")
    check("plot", source, name)
    check("cdl", source, "--header")
    assert check("plot", source, name, "-o", tmp_path / "p.png")["output"]
QUERIES = ["{}", '{"mean": []}', '{"sum": [0]}', '{"quantile": {"q": 0.5}}', '{"histogram": {"bins": 3}}', '{"arg_max": []}',
           '{"filter": {"gt": 1}, "count": []}', '{"quantile": {"q": 0.5, "sketch": true}}', '{"covariance": [0]}',
           '{"window": {"axis": 0, "size": 1, "mode": "bins"}, "max": []}', '{"transform": {"method": "minmax"}}']


@pytest.mark.parametrize("query", QUERIES)
def test_queries(query):
    check("query", '{"dataset": "t", ' + query[1:] if query != "{}" else '{"dataset": "t"}')
    for path in SOUND[::4]:
        for array in check("info", path)["arrays"][:2]:
            document = json.dumps({"dataset": array["name"], **json.loads(query)})
            check("query", document, "-t", path, code=(0, 2, 7))
            check("query", document, "-t", path, "-x", code=(0, 2, 7))
    check("query", '{"dataset": "no such"}', "-t", SOUND[0], "-x", code=3)


def test_no_queries_were_asked():
    assert check("qhist")["queries"] == []


def test_the_build(tmp_path):
    check("doctor")
    check("completions", "bash")
    check("man")
    assert check("man", "--dir", tmp_path / "man")["files"]


def test_covariances():
    path = FIXTURES / "labels_v1.tet"
    name = check("info", path, "--all")["arrays"][0]["name"]
    rows = check("stat", path, name, "--var", "--cov", name, "--corr", name)["rows"]
    assert rows[0]["var"] == rows[0]["cov"] and rows[0]["corr"] == 1


def test_a_schema_refuses_what_is_not_said():
    document = check("stat", FIXTURES / "labels_v1.tet")
    for change in ({"count": -1}, {"from_statistics": "no"}, {"extra": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMAS["stat"], registry=REGISTRY).validate({**document, **change})
