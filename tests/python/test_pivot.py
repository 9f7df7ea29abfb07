"""Tables as arrays over some of their columns: values, coordinates and gaps equal those of pandas and xarray; errors name rows."""

import random
import subprocess

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import xarray as xr
from support import TET, tet, tet_json


def cells(path, name, *options, dtype):
    return np.frombuffer(tet("cat", path, name, "--raw", *options), dtype)


def valid(path, name, *options):
    return np.frombuffer(tet("cat", path, name, "--validity", *options), "u1").astype(bool)


def table(seed):
    """A frame whose rows are some of the positions of a grid, in any order, and its dimensions."""
    rng = random.Random(seed)
    axes = {
        "time": pd.to_datetime("2020-01-01") + pd.to_timedelta(np.sort(rng.sample(range(400), rng.randint(1, 20))), "D"),
        "lat": np.sort(np.array(rng.sample(range(-90, 90), rng.randint(1, 9))) / 4),
        "station": np.array(sorted(rng.sample(["Ä", "b", "Berlin", "c,d", "z"], rng.randint(1, 5))), object),
    }
    dims = rng.sample(list(axes), rng.randint(1, 3))
    rows = pd.MultiIndex.from_product([axes[dim] for dim in dims], names=dims).to_frame(index=False)
    rows = rows.sample(frac=rng.choice([1.0, 0.6]), random_state=seed) if len(rows) > 2 else rows
    count = len(rows)
    numbers = np.random.default_rng(seed)
    rows["n"] = numbers.integers(-(2**60), 2**60, count)
    rows["x"] = np.where(numbers.random(count) < 0.1, np.nan, numbers.normal(size=count))
    rows["word"] = [rng.choice(["rain", "sun", 'say "no"', "é"]) for _ in range(count)]
    return rows, dims


def written(path, rows):
    if path.suffix == ".csv":
        rows.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pandas(rows, preserve_index=False), path, row_group_size=7)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(rows, preserve_index=False), path, chunksize=7)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("seed", range(6))
def test_arrays_equal_those_of_xarray(tmp_path, seed, kind):
    rows, dims = table(seed)
    path = written(tmp_path / f"t.{kind}", rows)
    option = ("--dims", ",".join(dims))
    expected = rows.set_index(dims).sort_index().to_xarray()
    written_at = np.zeros(expected["x"].shape, bool)
    written_at[tuple([list(expected[dim].values).index(value) for value in rows[dim].to_numpy()] for dim in dims)] = True
    info = {array["name"]: array for array in tet_json("info", path, *option)["arrays"]}
    assert list(info)[: len(dims)] == dims and set(info) == {*rows.columns}
    for name in ("n", "x", "word"):
        assert info[name]["dims"] == dims and info[name]["shape"] == list(expected[name].shape)
    for dim in dims:
        if dim == "station":
            found = tet_json("cat", path, dim, *option)
            assert expected[dim].values.tolist() == found["data"]
        elif dim == "lat":
            assert cells(path, dim, *option, dtype="f8").tolist() == expected[dim].values.tolist()
    integers = rows.assign(at=range(len(rows))).set_index(dims)["at"].sort_index().to_xarray().values.ravel()
    places = np.where(written_at.ravel(), np.nan_to_num(integers), 0).astype(int)
    found = cells(path, "n", *option, dtype="i8")
    assert np.array_equal(found[written_at.ravel()], rows["n"].to_numpy()[places][written_at.ravel()])
    assert np.array_equal(valid(path, "n", *option), written_at.ravel())
    x = cells(path, "x", *option, dtype="f8")
    if kind == "csv":
        # An empty value is missing.
        assert np.array_equal(valid(path, "x", *option), ~np.isnan(expected["x"].values.ravel()))
    np.testing.assert_array_equal(x[valid(path, "x", *option)], expected["x"].values.ravel()[valid(path, "x", *option)])


@pytest.mark.parametrize("target", ["tdb", "zarr", "nc", "tet", "tgm"])
def test_conversions_are_checked(tmp_path, target):
    (tmp_path / "t.csv").write_text("time,lat,t2m,word\n2020-01-01,20,3.5,b\n2020-01-02,10,-0.0,a\n2020-01-01,10,1e-300,é\n2020-01-02,20,7,\"d,\"\n")
    out = tmp_path / f"out.{target}"
    tet("convert", tmp_path / "t.csv", out, "--dims", "time,lat", "--check")
    assert cells(out, "t2m", dtype="f8").tolist() == [1e-300, 3.5, -0.0, 7.0]
    assert cells(out, "lat", dtype="i8").tolist() == [10, 20]
    tet("diff", tmp_path / "t.csv", out, "--dims", "time,lat")
    assert tet_json("stat", tmp_path / "t.csv", "t2m", "time=@2020-01-02", "--dims", "time,lat")["max"] == 7


def test_gaps_are_missing_in_xarray(tmp_path):
    (tmp_path / "t.csv").write_text("time,lat,t2m\n2020-01-01,20,3.5\n2020-01-02,10,4\n")
    tet("convert", tmp_path / "t.csv", tmp_path / "t.nc", "--dims", "time,lat")
    with xr.open_dataset(tmp_path / "t.nc") as dataset:
        assert dataset.t2m.dims == ("time", "lat") and int(dataset.t2m.isnull().sum()) == 2
        assert dataset.t2m.sel(time="2020-01-01", lat=20).item() == 3.5
    # Integers have no value for it.
    (tmp_path / "n.csv").write_text("x,y,n\n0,0,1\n1,1,2\n")
    tet("convert", tmp_path / "n.csv", tmp_path / "n.nc", "--dims", "x,y", code=(2, 7))
    tet("convert", tmp_path / "n.csv", tmp_path / "n.nc", "--dims", "x,y", "--fill", "-9", "--check")
    assert tet_json("stat", tmp_path / "n.nc", "n")["nulls"] == 2


@pytest.mark.parametrize(
    ("text", "dims", "code", "words"),
    [
        ("x,y,n\n0,1,1\n2,1,5\n0,1,2\n", "x,y", 2, ["x=0", "y=1", "0 and 2"]),
        ("x,n\n0,1\n,2\n", "x", 2, ["missing", "row 1"]),
        ("x,n\n0,1\nnan,2\n", "x", 2, ["missing", "row 1"]),
        ("x,n\n0,1\n", "z", 3, ["z", "x", "n"]),
        ("x,n\n0,1\n", "x,x", 2, ["different"]),
    ],
)
def test_errors_name_the_rows(tmp_path, text, dims, code, words):
    (tmp_path / "t.csv").write_text(text)
    done = subprocess.run([TET, "info", str(tmp_path / "t.csv"), "--dims", dims], capture_output=True, text=True)
    assert done.returncode == code and all(word in done.stderr for word in words), done.stderr


def test_a_sparse_grid_is_rejected_before_it_takes_memory(tmp_path):
    rows = 20_000
    (tmp_path / "t.csv").write_text("x,y,z,n\n" + "".join(f"{i},{i},{i},1\n" for i in range(rows)))
    tet("info", tmp_path / "t.csv", "--dims", "x,y,z", code=6)
    assert tet_json("info", tmp_path / "t.csv", "--dims", "x")["arrays"][1]["shape"] == [rows]


def test_arrays_that_have_the_dimensions_are_left_alone(tmp_path):
    (tmp_path / "t.csv").write_text("x,y,n\n0,0,1\n0,1,2\n")
    tet("convert", tmp_path / "t.csv", tmp_path / "a.tet", "--dims", "x,y")
    tet("convert", tmp_path / "a.tet", tmp_path / "b.tet", "--dims", "x,y")
    assert cells(tmp_path / "b.tet", "n", dtype="i8").tolist() == [1, 2]
