"""Containers seen as Zarr stores."""

import pickle

import numpy as np
import pytest
import tesseral
import xarray as xr
import zarr
from conftest import SHAPE, cells
from tesseral.zarr import ZarrStore


@pytest.mark.parametrize("name", ["raw.tet", "zstd.tet", "theirs.tgm", "dense"])
def test_reads_what_the_array_holds(arrays, name):
    store = ZarrStore(arrays[name]._container)
    group = zarr.open_group(store, mode="r")
    array = group[next(iter(arrays[name]._container))]
    assert array.shape == SHAPE and array.chunks == arrays[name].chunks and array.dtype == "f4"
    np.testing.assert_array_equal(array[...], cells())
    np.testing.assert_array_equal(array[1:6:2, ::2, 3], cells()[1:6:2, ::2, 3])
    assert store == ZarrStore(arrays[name]._container) and pickle.loads(pickle.dumps(store)) == store
    with pytest.raises(ValueError):
        array[...] = 0


def test_metadata_and_groups(tmp_path):
    values = {"t": np.arange(6, dtype="i2").reshape(2, 3), "deep/er/u": np.array([np.nan, 1.5])}
    tesseral.write(tmp_path / "a.tet", values, dims={"t": ("y", "x")}, attrs={"t": {"units": "K"}}, fill={"t": -1})
    group = zarr.open_group(ZarrStore(tesseral.open(tmp_path / "a.tet")), mode="r")
    assert group["t"].attrs["units"] == "K" and group["t"].fill_value == -1 and group["t"].metadata.dimension_names == ("y", "x")
    np.testing.assert_array_equal(group["deep/er/u"][...], values["deep/er/u"])
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["deep", "deep/er", "deep/er/u", "t"]
    ds = xr.open_zarr(ZarrStore(tesseral.open(tmp_path / "a.tet")), consolidated=False, mask_and_scale=False)
    np.testing.assert_array_equal(ds.t.values, values["t"])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64", "datetime64[ns]"])
def test_dtypes(tmp_path, dtype):
    import tiledb

    values = np.arange(5).astype(dtype)
    domain = tiledb.Domain(tiledb.Dim("i", domain=(0, 4), tile=2, dtype="int32"))
    if dtype == "float16":
        tesseral.write(tmp_path / "a.tet", {"v": values}, chunks=2)
        path = tmp_path / "a.tet"
    else:
        path = str(tmp_path / "a")
        tiledb.Array.create(path, tiledb.ArraySchema(domain=domain, attrs=[tiledb.Attr("v", dtype=dtype)], sparse=False))
        with tiledb.open(path, "w") as array:
            array[:] = values
    array = zarr.open_group(ZarrStore(tesseral.open(path)), mode="r")["v"]
    assert array.dtype == values.dtype and array.chunks == (2,)
    np.testing.assert_array_equal(array[...], values)
