"""Dimension labels of TileDB arrays through the package and xarray."""

import numpy as np
import tesseral
import tiledb
import xarray as xr


def test_labels_are_declared_filled_and_read(tmp_path):
    path = str(tmp_path / "array")
    tesseral.create(path, {
        "dims": [
            {"name": "x", "dtype": "int32", "domain": [0, 3], "tile": 2, "labels": [{"name": "lon", "dtype": "float32"}]},
            {"name": "y", "dtype": "int32", "domain": [1, 3], "labels": [{"name": "lat", "dtype": "float64", "order": "decreasing"}]},
        ],
        "fields": [{"name": "a", "dtype": "int16"}, {"name": "b", "dtype": "float64"}],
    })
    cells = np.arange(12).reshape(4, 3)
    tesseral.append(path, {"a": cells.astype("i2"), "b": cells / 8})
    lon, lat = np.array([-1.5, 0, 1.5, 3], "f4"), np.array([60.0, 50.0, 40.0])
    tesseral.append(path, lon, array="lon")
    tesseral.append(path, lat, array="lat")
    with tiledb.open(path) as array:
        found = array.label_index(["lon"])[0:3]
    assert np.array_equal(found["a"], cells[1:]) and np.array_equal(found["lon"], lon[1:])
    source = tesseral.open(path)
    assert set(source) == {"a", "b", "x", "y"}
    with xr.open_dataset(path, engine="tesseral") as data:
        assert set(data.data_vars) == {"a", "b"}
        assert np.array_equal(data.indexes["x"], lon) and np.array_equal(data.indexes["y"], lat)
        assert data["x"].dtype == np.float32 and data["x"].attrs["label_name"] == "lon"
        assert np.array_equal(data["a"].sel(x=slice(0, 3), y=50.0), cells[1:, 1])
