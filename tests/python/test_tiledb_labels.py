"""Dimension labels of TileDB arrays: read as coordinates as the reference wrote them, and written so that the reference reads them."""

import json
import random
import shutil

import numpy as np
import pytest
import tiledb
from support import tet, tet_json

DTYPES = ["float64", "float32", "int64", "uint8", "datetime64[D]", "ascii"]


def values(rng, dtype, count, decreasing):
    """Distinct labels in order."""
    if dtype == "ascii":
        found = np.array(sorted({f"{n:04}" for n in rng.sample(range(10000), count)}), dtype="S4")
    elif dtype.startswith("datetime64"):
        found = np.array(sorted(rng.sample(range(20000), count)), "int64").view(dtype)
    elif dtype.startswith("float"):
        found = np.array(sorted(rng.sample(range(-999, 999), count)), dtype) / np.dtype(dtype).type(4)
    else:
        found = np.array(sorted(rng.sample(range(200), count)), dtype)
    return found[::-1].copy() if decreasing else found


def of_reference(path, rng, dtype, decreasing):
    """An array with one labeled dimension, and one that is not labeled."""
    low, count, tile = rng.randrange(-5, 5), rng.randrange(2, 30), rng.randrange(1, 12)
    x = tiledb.Dim("x", domain=(low, low + count - 1), tile=min(tile, count), dtype=np.int32)
    y = tiledb.Dim("y", domain=(0, 2), tile=3, dtype=np.int32)
    order = "decreasing" if decreasing else "increasing"
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(x, y),
        attrs=[tiledb.Attr("a", dtype=np.float64)],
        dim_labels={0: {"place": x.create_label_schema(order, dtype)}},
    )
    tiledb.Array.create(str(path), schema)
    names = values(rng, dtype, count, decreasing)
    cells = np.arange(count * 3, dtype="f8").reshape(count, 3)
    with tiledb.open(str(path), "w") as array:
        array[:] = {"a": cells, "place": names}
    return names, cells, low


def shown(label):
    return label.decode() if isinstance(label, bytes) else str(label)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decreasing", [False, True])
def test_labels_of_the_reference_select(tmp_path, dtype, decreasing):
    rng = random.Random(f"{dtype}{decreasing}")
    path = tmp_path / "array"
    names, cells, _ = of_reference(path, rng, dtype, decreasing)
    first, last = sorted(rng.sample(range(len(names)), 2))
    # The reference selects by its own index of the labels.
    ends = sorted([names[first], names[last]])
    with tiledb.open(str(path)) as array:
        expected = array.label_index(["place"])[ends[0] : ends[1]]["a"]
    assert np.array_equal(expected, cells[first : last + 1])
    range_ = f"x={shown(names[first])}..{shown(names[last])}"
    assert tet("cat", path, range_, "--format", "raw") == expected.tobytes()
    assert tet("cat", path, f"x=@{shown(names[last])}", "--format", "raw") == cells[last].tobytes()
    described = {array["name"]: array for array in tet_json("info", path)["arrays"]}
    assert set(described) == {"a", "x"}
    assert described["x"]["attributes"]["label_name"] == "place"
    tet("verify", path, "--deep")


def test_labels_are_converted_as_coordinates(tmp_path):
    names, cells, _ = of_reference(tmp_path / "array", random.Random(5), "float64", False)
    for target in ["a.tet", "a.tgm", "a.tdb", "a.nc"]:
        path = tmp_path / target
        tet("convert", tmp_path / "array", path)
        tet("diff", tmp_path / "array", path)
        stored = tet("cat", path, "a", f"x={names[0]}..{names[1]}", "--format", "raw")
        assert stored == cells[:2].tobytes()


def test_labels_of_some_positions_are_no_index(tmp_path):
    path = tmp_path / "array"
    low, names, cells = 1, np.array([0.5, 1.5]), np.arange(2.0)
    x = tiledb.Dim("x", domain=(low, low + 4), tile=2, dtype=np.int32)
    schema = tiledb.ArraySchema(
        domain=tiledb.Domain(x),
        attrs=[tiledb.Attr("a", dtype=np.float64)],
        dim_labels={0: {"place": x.create_label_schema("increasing", "float64")}},
    )
    tiledb.Array.create(str(path), schema)
    with tiledb.open(str(path), "w") as array:
        array[low : low + 2] = {"a": cells, "place": names}
    assert {array["name"] for array in tet_json("info", path)["arrays"]} == {"a", "place"}
    # Selections are by the domain, as without labels.
    assert tet("cat", path, f"x={low}..{low + 1}", "--format", "raw") == cells.tobytes()
    assert tet("cat", path, "place", "x=0:3", "--validity") == b"\1\1\0"


def test_a_missing_or_damaged_label_is_reported(tmp_path):
    path = tmp_path / "array"
    _, cells, low = of_reference(path, random.Random(4), "int64", False)
    label = path / "__labels" / "l0"
    footer = next((label / "__fragments").glob("*/__fragment_metadata.tdb"))
    whole = footer.read_bytes()
    footer.write_bytes(whole[:-9] + b"\xff" * 9)
    tet("verify", path, code=1)
    footer.write_bytes(whole)
    shutil.rmtree(label)
    assert tet("cat", path, f"x={low}..{low}", "--format", "raw") == cells[0].tobytes()
    assert "place (__labels/l0): does not exist" in tet("info", path).decode()


@pytest.mark.parametrize("dtype", ["float64", "int32", "datetime64[s]", "string_ascii"])
@pytest.mark.parametrize("order", ["increasing", "decreasing"])
def test_the_reference_reads_our_labels(tmp_path, dtype, order):
    rng = random.Random(dtype + order)
    path = tmp_path / "array"
    count, tile = rng.randrange(2, 40), rng.randrange(1, 9)
    names = values(rng, {"string_ascii": "ascii"}.get(dtype, dtype), count, order == "decreasing")
    document = {
        "dims": [{"name": "x", "dtype": "int32", "domain": [3, 2 + count], "tile": min(tile, count),
                  "labels": [{"name": "place", "dtype": dtype, "order": order}]}],
        "fields": [{"name": "a", "dtype": "float64", "codecs": ["zstd"]}],
    }
    (tmp_path / "schema.json").write_text(json.dumps(document))
    tet("create", path, "--to", "tiledb", "--schema", tmp_path / "schema.json")
    np.save(tmp_path / "a.npy", np.arange(count, dtype="f8"))
    tet("append", path, tmp_path / "a.npy")
    (tmp_path / "place.csv").write_text("place\n" + "".join(f"{shown(name)}\n" for name in names))
    tet("append", path, tmp_path / "place.csv", "--array", "place")
    first, last = sorted(rng.sample(range(count), 2))
    ends = sorted([names[first], names[last]])
    with tiledb.open(str(path)) as array:
        label = array.schema.dim_label("place")
        assert (label.order, label.dim_index) == (order, 0)
        found = array.label_index(["place"])[ends[0] : ends[1]]
    assert np.array_equal(found["a"], np.arange(first, last + 1, dtype="f8"))
    assert found["place"].tolist() == names[first : last + 1].tolist()
    assert tet("cat", path, f"x={shown(names[first])}..{shown(names[last])}", "--format", "raw") == found["a"].tobytes()


@pytest.mark.parametrize("labels", [[1.0, 1.0, 2.0, 3.0], [1.0, 3.0, 2.0, 4.0], [4.0, 3.0, 2.0, 1.0], [1.0, 2.0, "nan", 4.0]])
def test_labels_out_of_order_are_rejected(tmp_path, labels):
    path = tmp_path / "array"
    tet("create", path, "--to", "tiledb", "--dim", "x=0..3/2:int32", "--field", "a:float64",
        "--label", "x=place:float64")
    (tmp_path / "place.csv").write_text("place\n" + "".join(f"{label}\n" for label in labels))
    tet("append", path, tmp_path / "place.csv", "--array", "place", code=2)
    assert not list((path / "__labels/l0").glob("__commits/*"))


@pytest.mark.parametrize("label", ["x=x:float64", "x=a:float64", "y=place:float64", "x=place:bool", "x=place:float64:sideways"])
def test_labels_that_the_format_lacks_are_rejected(tmp_path, label):
    tet("create", tmp_path / "array", "--to", "tiledb", "--dim", "x=0..3/2:int32", "--field", "a:float64", "--label", label,
        code=(2, 3, 7))
    assert not (tmp_path / "array").exists()
