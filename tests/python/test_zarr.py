"""Zarr v2 and v3: what zarr-python writes is read bit for bit, and what is written is read by zarr-python."""

import json
import lzma
import random
import struct
import subprocess
import warnings

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs
from support import TET, tet, tet_json
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

warnings.filterwarnings("ignore")

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "S3", "U4", "M8[ns]", "m8[s]"]


def cells_of(rng, dtype, shape):
    """Random bits, so that NaN payloads and every character of a range occur."""
    kind = np.dtype(dtype).kind
    count = int(np.prod(shape, dtype=int))
    draw = np.random.default_rng(rng.getrandbits(32))
    if kind == "b":
        out = draw.integers(0, 2, count).astype(bool)
    elif kind == "S":
        out = np.array([bytes(rng.choices(b"abc", k=rng.randrange(4))) for _ in range(count)], dtype)
    elif kind == "U":
        out = np.array(["".join(rng.choices("aé漢𝄞", k=rng.randrange(5))) for _ in range(count)], dtype)
    elif rng.random() < 0.5:
        out = (np.arange(count) % 50).astype("i8").astype(dtype)
    else:
        out = np.frombuffer(draw.bytes(count * np.dtype(dtype).itemsize), dtype).copy()
    return out.reshape(shape)


def raw_of(cells):
    """What `tet cat --raw` prints for these cells."""
    if cells.dtype.kind in "UOT":
        texts = [str(text).encode() for text in cells.reshape(-1)]
        return b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    return np.ascontiguousarray(cells.astype(cells.dtype.newbyteorder("<"))).tobytes()


def raw(path, array, *selection):
    return tet("cat", path, array, *selection, "--raw")


def shapes(rng, rank):
    shape = tuple(rng.randrange(1, 9) for _ in range(rank))
    chunks = tuple(rng.randrange(1, n + 3) for n in shape)
    return shape, tuple(min(c, n) for c, n in zip(chunks, shape))


def v2_codec(rng, dtype):
    kind = np.dtype(dtype).kind
    options = [
        None,
        numcodecs.Zstd(level=1),
        numcodecs.GZip(level=2),
        numcodecs.Zlib(level=1),
        numcodecs.BZ2(level=1),
        numcodecs.LZ4(),
        numcodecs.LZMA(preset=1),
        numcodecs.LZMA(format=2, preset=0),
        numcodecs.LZMA(format=3, filters=[{"id": lzma.FILTER_LZMA2, "preset": 1}]),
        numcodecs.LZMA(format=3, filters=[{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "dict_size": 65536}]),
        *(
            numcodecs.Blosc(cname=name, clevel=5, shuffle=shuffle)
            for name in ("lz4", "zstd", "blosclz", "zlib", "lz4hc")
            for shuffle in (0, 1, 2)
        ),
    ]
    filters = None
    if kind in "iu" and rng.random() < 0.4:
        filters = [numcodecs.Delta(dtype=dtype)]
    elif kind in "iu" and np.dtype(dtype).itemsize < 8 and rng.random() < 0.4:
        filters = [numcodecs.AsType(encode_dtype=f"{kind}8", decode_dtype=dtype)]
    elif kind == "b" and rng.random() < 0.7:
        filters = [numcodecs.PackBits()]
    elif kind in "iuf" and rng.random() < 0.3:
        filters = [numcodecs.Shuffle(elementsize=np.dtype(dtype).itemsize)]
    elif rng.random() < 0.2:
        filters = [rng.choice([numcodecs.CRC32(), numcodecs.Adler32(), numcodecs.Fletcher32()])]
    return {"compressors": rng.choice(options), "filters": filters}


def v3_codec(rng, rank):
    compressors = rng.choice(
        [
            None,
            [ZstdCodec(level=1)],
            [GzipCodec(level=2)],
            [ZstdCodec(level=1, checksum=True), Crc32cCodec()],
            [GzipCodec(level=1), ZstdCodec(level=1)],
            *([BloscCodec(cname=name, shuffle=shuffle)] for name in ("lz4", "zstd", "blosclz") for shuffle in ("noshuffle", "shuffle", "bitshuffle")),
        ]
    )
    filters = None
    if rank and rng.random() < 0.4:
        order = list(range(rank))
        rng.shuffle(order)
        filters = [TransposeCodec(order=tuple(order))]
    return {"compressors": compressors, "filters": filters}


@pytest.mark.parametrize("seed", range(60))
def test_arrays_of_the_reference_are_read_bit_for_bit(tmp_path, seed):
    rng = random.Random(seed)
    version = 2 + seed % 2
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version)
    written = {}
    for number in range(4):
        dtype = DTYPES[(seed // 2 * 4 + number) % len(DTYPES)]
        shape, chunks = shapes(rng, rng.randrange(4))
        cells = cells_of(rng, dtype, shape)
        options = {"shape": shape, "chunks": chunks, "dtype": cells.dtype}
        if version == 2:
            options |= v2_codec(rng, dtype) | {"order": rng.choice("CF")}
            if rng.random() < 0.3 and cells.dtype.kind in "iuf":
                options["dtype"] = cells.dtype.newbyteorder(">")
                options["filters"] = None
            options["chunk_key_encoding"] = {"name": "v2", "separator": rng.choice("./")}
        else:
            options |= v3_codec(rng, len(shape))
            if rng.random() < 0.3 and cells.dtype.kind in "iufc" and cells.dtype.itemsize > 1:
                options["serializer"] = zarr.codecs.BytesCodec(endian="big")
            if rng.random() < 0.4 and shape and options["filters"] is None:
                options["shards"] = tuple(c * rng.randrange(1, 3) for c in chunks)
            options["chunk_key_encoding"] = {"name": "default", "separator": rng.choice("./")}
        if cells.dtype.kind in "iuf" and rng.random() < 0.5:
            options["fill_value"] = 3
        name = f"g{number % 2}/a{number}"
        array = root.create_array(name, **options)
        if rng.random() < 0.3 and shape:
            # Only part of the array is written: the rest is the fill value.
            part = tuple(slice(0, (n + 1) // 2) for n in shape)
            array[part] = cells[part]
        else:
            array[...] = cells
        written[name] = np.asarray(array[...])
    if rng.random() < 0.5:
        zarr.consolidate_metadata(tmp_path / "x.zarr", zarr_format=version)
    shown = {a["name"]: a for a in tet_json("info", tmp_path / "x.zarr")["arrays"]}
    assert set(shown) == set(written)
    for name, cells in written.items():
        assert shown[name]["shape"] == list(cells.shape)
        assert raw(tmp_path / "x.zarr", name) == raw_of(cells), (name, shown[name])
        if cells.ndim and cells.shape[0] > 2:
            assert raw(tmp_path / "x.zarr", name, "0=1:-1") == raw_of(cells[1:-1])
    tet("verify", tmp_path / "x.zarr", "--deep")


@pytest.mark.parametrize("version", [2, 3])
def test_text_groups_and_attributes_are_read(tmp_path, version):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=version, attributes={"title": "t", "n": float("nan"), "list": [1, 2.5]})
    group = root.create_group("g", attributes={"level": 3})
    texts = np.array([["a", "", "漢字"], ["x" * 300, "é", "\u0000b"]], dtype=object)
    array = group.create_array("texts", shape=texts.shape, chunks=(1, 2), dtype=str)
    array[...] = texts
    assert raw(tmp_path / "x.zarr", "g/texts") == raw_of(texts)
    document = tet_json("info", tmp_path / "x.zarr")
    assert document["format"] == "zarr"
    assert document["attributes"] == {"title": "t", "n": "NaN", "list": [1, 2.5]}


def test_fill_values_declare_missing_cells_as_in_xarray(tmp_path):
    """In v2 the fill value of an array with `_ARRAY_DIMENSIONS` declares; in v3 an attribute does."""
    for version, attributes in [(2, {"_ARRAY_DIMENSIONS": ["x"]}), (2, {}), (3, {}), (3, {"_FillValue": 7})]:
        path = tmp_path / f"{version}-{len(attributes)}.zarr"
        root = zarr.open_group(path, mode="w", zarr_format=version)
        array = root.create_array("a", shape=(6,), chunks=(2,), dtype="i4", fill_value=7, attributes=attributes)
        array[:3] = [1, 2, 7]
        document = tet_json("stat", path, "a")
        nulls = 4 if attributes else 0
        assert (document["nulls"], document["max"]) == (nulls, 2 if attributes else 7), (version, attributes)
        assert raw(path, "a") == np.array([1, 2, 7, 7, 7, 7], "<i4").tobytes()


@pytest.mark.parametrize("codec", [
    numcodecs.Fletcher32(),
    numcodecs.LZMA(format=3, filters=[{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]),
    numcodecs.LZMA(format=3, filters=[{"id": lzma.FILTER_DELTA, "dist": 8}, {"id": lzma.FILTER_LZMA2, "preset": 0}]),
])
def test_checksums_of_hdf5_and_raw_lzma(tmp_path, codec):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    cells = np.arange(5000, dtype="<i8").reshape(50, 100)
    for name, options in {"filter": {"filters": [codec]}, "compressor": {"filters": None, "compressors": codec}}.items():
        array = root.create_array(name, shape=cells.shape, chunks=(7, 100), dtype="<i8", **{"compressors": None} | options)
        array[...] = cells
        assert raw(tmp_path / "x.zarr", name) == cells.tobytes()
    chunk = tmp_path / "x.zarr" / "filter" / "0.0"
    damaged = bytearray(chunk.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    chunk.write_bytes(damaged)
    if isinstance(codec, numcodecs.Fletcher32):
        tet("cat", tmp_path / "x.zarr", "filter", code=5)


def test_what_is_not_supported_is_refused_by_name(tmp_path):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    root.create_array("good", data=np.arange(3))
    root.create_array("pairs", shape=(2,), chunks=(2,), dtype=[("a", "<i4"), ("b", "<f4")])
    path = tmp_path / "x.zarr"
    plain = json.loads((path / "good/.zarray").read_text())
    named = {"texts": {"id": "json2"}, "objects": {"id": "msgpack2"}, "pickled": {"id": "pickle"}, "small": {"id": "zfpy"}, "coded": {"id": "pcodec"}}
    for name, codec in named.items():
        (path / name).mkdir()
        kind = "|O" if name in ("texts", "objects", "pickled") else "<f8"
        (path / name / ".zarray").write_text(json.dumps(plain | {"dtype": kind, "filters": [codec], "fill_value": 0 if kind == "<f8" else None}))
    assert raw(tmp_path / "x.zarr", "good") == np.arange(3).tobytes()
    for name, word in [("pairs", "structured"), *((name, codec["id"]) for name, codec in named.items())]:
        done = subprocess.run([TET, "cat", tmp_path / "x.zarr", name], capture_output=True, text=True)
        assert done.returncode == 7 and word in done.stderr, done.stderr
    tet("cat", tmp_path / "x.zarr", "other", code=3)


def model(tmp_path):
    """A source with the parts of the model that Zarr holds or has conventions for."""
    root = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=3, attributes={"title": "demo", "numbers": [1, 2]})
    arrays = {
        "t": np.arange(20, dtype="f4").reshape(4, 5),
        "time": np.arange(4, dtype="i8"),
        "flags": np.array([True, False, True]),
        "g/small": np.arange(6, dtype="i1"),
        "level": np.array(3.5),
    }
    arrays["t"][1, 2] = np.nan
    for name, cells in arrays.items():
        dims = {"t": ("time", "x"), "time": ("time",)}.get(name, tuple(f"d{i}_{name[-1]}" for i in range(cells.ndim)))
        chunks = tuple(max(1, n // 2) for n in cells.shape)
        array = root.create_array(name, shape=cells.shape, chunks=chunks, dtype=cells.dtype, dimension_names=dims)
        array[...] = cells
        array.attrs["units"] = "K"
    return arrays


@pytest.mark.parametrize("through", ["tet", "tgm", "tdb", "zarr"])
def test_conversions_through_every_format_are_identities(tmp_path, through):
    arrays = model(tmp_path)
    tet("convert", tmp_path / "in.zarr", tmp_path / f"mid.{through}", "--check")
    tet("convert", tmp_path / f"mid.{through}", tmp_path / "out.zarr", "--check")
    tet("diff", tmp_path / "in.zarr", tmp_path / "out.zarr")
    root = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert root.metadata.consolidated_metadata is not None
    assert root.attrs["title"] == "demo"
    for name, cells in arrays.items():
        array = root[name]
        assert array.dtype == cells.dtype and array.attrs["units"] == "K"
        assert np.asarray(array[...]).tobytes() == cells.tobytes(), name
    assert root["t"].metadata.dimension_names == ("time", "x")


@pytest.mark.parametrize("codec", ["raw", "zstd:5", "gzip"])
def test_written_chunks_are_checked(tmp_path, codec):
    model(tmp_path)
    tet("convert", tmp_path / "in.zarr", tmp_path / "out.zarr", "--codec", codec)
    codecs = [c["name"] for c in json.loads((tmp_path / "out.zarr/t/zarr.json").read_text())["codecs"]]
    assert codecs[-1] == "crc32c"
    assert zarr.open_array(tmp_path / "out.zarr/t", mode="r")[0, 0] == 0
    chunk = tmp_path / "out.zarr/t/c/0/0"
    damaged = bytearray(chunk.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    chunk.write_bytes(damaged)
    tet("verify", tmp_path / "out.zarr", code=1)
    tet("cat", tmp_path / "out.zarr", "t", code=5)


CODECS = ["raw", "zstd:1", "gzip:9", "zlib", "bz2:3", "lz4", "shuffle+lz4", "transpose+zstd", "delta+zlib"] + [
    f"blosc:{level}:cname={name}:shuffle={shuffle}"
    for name, level in (("lz4", 5), ("zstd", 3), ("blosclz", 9), ("zlib", 1), ("lz4hc", 0))
    for shuffle in ("noshuffle", "shuffle", "bitshuffle")
]


@pytest.mark.parametrize("seed", range(12))
def test_written_codecs_and_shards_are_read_by_the_reference(tmp_path, seed):
    rng = random.Random(seed)
    draw = np.random.default_rng(seed)
    root = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=3)
    kinds = ["bool", "i2", "u1", "i8", "f4", "f8", "c8", "S5", str]
    written = {}
    for number, dtype in enumerate(kinds):
        rank = rng.randrange(4)
        shape = tuple(rng.randrange(1, 12) for _ in range(rank))
        if dtype is str:
            cells = np.array([f"t{i % 5}é" for i in range(int(np.prod(shape, dtype=int)))], dtype=object).reshape(shape)
        else:
            cells = cells_of(rng, dtype, shape)
        chunks = tuple(rng.randrange(1, n + 1) for n in shape)
        array = root.create_array(f"a{number}", shape=shape, chunks=chunks, dtype=str if dtype is str else cells.dtype)
        array[...] = cells
        written[f"a{number}"] = cells
    # Large enough for several blocks.
    big = (draw.integers(0, 1000, (300, 400)).cumsum(axis=0)).astype("i4")
    root.create_array("big", shape=big.shape, chunks=(128, 400), dtype="i4")[...] = big
    written["big"] = big
    for codec in rng.sample(CODECS, 4):
        for version in (2, 3):
            out = tmp_path / f"{version}{codec.replace(':', '_')}.zarr"
            options = ["--option", f"zarr_format={version}"]
            if version == 3 and rng.random() < 0.7:
                options += ["--option", f"shards={rng.choice(['20,30', '7,9,5', '16'])}"]
            names = [n for n in written if not ("transpose" in codec and written[n].dtype == object)]
            names = [n for n in names if not ("delta" in codec and written[n].dtype.kind not in "iu")]
            arrays = [word for name in names for word in ("--array", name)]
            tet("convert", tmp_path / "in.zarr", out, "--codec", codec, *options, *arrays, "--check")
            back = zarr.open_group(out, mode="r")
            assert back.metadata.consolidated_metadata is not None or version == 2
            for name in names:
                cells = written[name]
                found = np.asarray(back[name][...])
                if cells.dtype == object:
                    assert found.tolist() == cells.tolist(), (codec, version, name)
                else:
                    # A scalar of bytes comes back without its padding.
                    found = found.astype(cells.dtype) if cells.dtype.kind == "S" else found
                    assert back[name].dtype == cells.dtype == found.dtype, (codec, version, name)
                    assert found.tobytes() == cells.tobytes(), (codec, version, name)
                assert raw(out, name) == raw_of(cells), (codec, version, name)
            if "blosc" in codec and not codec.startswith("blosc:0"):
                stored = sum(f.stat().st_size for f in (out / "big").rglob("*") if f.is_file())
                assert stored < big.nbytes + 4000


def test_a_conversion_keeps_shards(tmp_path):
    root = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=3)
    cells = np.arange(35 * 12, dtype="i4").reshape(35, 12)
    root.create_array("a", shape=cells.shape, chunks=(2, 3), shards=(10, 12), dtype="i4")[...] = cells
    root.create_array("b", shape=(9,), chunks=(1,), dtype="i4")[...] = np.arange(9)
    cases = [([], (10, 12), (2, 3)), (["--chunk", "0=3"], (12, 12), (3, 3)), (["--option", "shards=none"], None, (2, 3)),
             (["--option", "shards=4,4"], (4, 6), (2, 3)), (["--select", "0=0:5"], (6, 12), (2, 3))]
    for number, (options, shards, chunks) in enumerate(cases):
        out = tmp_path / f"{number}.zarr"
        tet("convert", tmp_path / "in.zarr", out, *options, "--check", "--array", "a", "--array", "b")
        found = zarr.open_group(out, mode="r")
        assert (found["a"].shards, found["a"].chunks, found["b"].shards) == (shards, chunks, None), options
        assert (found["a"][...] == cells[: found["a"].shape[0]]).all()
    # Version 2 has none.
    tet("convert", tmp_path / "in.zarr", tmp_path / "v2.zarr", "--option", "zarr_format=2")
    assert (zarr.open_group(tmp_path / "v2.zarr", mode="r")["a"][...] == cells).all()


def test_rounded_mantissas_are_those_of_numcodecs(tmp_path):
    root = zarr.open_group(tmp_path / "in.zarr", mode="w", zarr_format=3)
    rng = np.random.default_rng(3)
    arrays = {
        "a": rng.normal(size=(40, 30)).astype("f4") * 1e20,
        "b": rng.normal(size=50),
        "h": rng.normal(size=50).astype("f2"),
        "n": np.arange(9),
        "x": rng.normal(size=50),
    }
    arrays["a"][0, :3] = [np.nan, np.inf, -0.0]
    for name, cells in arrays.items():
        dims = ["x"] if name in "bx" else [f"{name}{i}" for i in range(cells.ndim)]
        root.create_array(name, data=cells, dimension_names=dims)
    for version in (2, 3):
        out = tmp_path / f"{version}.zarr"
        tet("convert", tmp_path / "in.zarr", out, "--codec", "bitround:7+zstd", "--option", f"zarr_format={version}")
        back = zarr.open_group(out, mode="r")
        for name, cells in arrays.items():
            expected = cells if name in "nx" else numcodecs.BitRound(keepbits=7).encode(cells.copy()).view(cells.dtype)
            assert back[name][...].tobytes() == expected.reshape(cells.shape).tobytes(), name
            assert raw(out, name) == expected.tobytes()


def test_strict_makes_absent_chunks_an_error(tmp_path):
    for shards in (None, (4,)):
        path = tmp_path / f"{shards}.zarr"
        array = zarr.create_array(path, shape=(8,), chunks=(2,), shards=shards, dtype="i4", fill_value=3)
        array[:2] = [1, 2]
        assert raw(path, path.stem) == np.array([1, 2, 3, 3, 3, 3, 3, 3], "<i4").tobytes()
        assert tet("--strict", "cat", path, path.stem, "0=0:2", "--raw") == np.array([1, 2], "<i4").tobytes()
        tet("--strict", "cat", path, path.stem, "--raw", code=5)


def test_claimed_sizes_are_limits(tmp_path):
    """A document of a few bytes can declare 2^60 cells: nothing is allocated for them."""
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    document = {"zarr_format": 2, "shape": [1 << 60], "chunks": [1 << 40], "dtype": "<f8", "compressor": None, "fill_value": 1.5, "order": "C", "filters": None}
    (folder / ".zarray").write_text(json.dumps(document))
    assert raw(folder, "x", "0=5:7") == np.array([1.5, 1.5]).tobytes()
    tet("cat", folder, "x", "--raw", code=6)
    (folder / "0").write_bytes(b"x" * 64)
    tet("cat", folder, "x", "0=5:7", "--raw", code=(5, 6))


@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@pytest.mark.parametrize("checked", [False, True])
def test_windows_of_blocks_equal_the_cells(tmp_path, shuffle, checked):
    cells = np.cumsum(np.random.default_rng(3).normal(size=(40, 60, 70)), axis=0).astype("f4")
    codecs = [BloscCodec(cname="lz4", shuffle=shuffle, blocksize=1 << 14), *([Crc32cCodec()] if checked else [])]
    root = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=3)
    root.create_array("a", data=cells, chunks=(33, 50, 40), compressors=codecs, dimension_names=["t", "y", "x"])
    rng = random.Random(shuffle)
    for _ in range(12):
        start = [rng.randrange(n) for n in cells.shape]
        end = [rng.randrange(s + 1, n + 1) for s, n in zip(start, cells.shape)]
        step = [rng.choice([1, 1, 3]) for _ in start]
        selection = [f"{dim}={s}:{e}:{k}" for dim, s, e, k in zip("tyx", start, end, step)]
        expected = cells[tuple(slice(s, e, k) for s, e, k in zip(start, end, step))]
        assert tet("cat", tmp_path / "x.zarr", "a", *selection, "--raw") == expected.tobytes(), selection
    assert tet("cat", tmp_path / "x.zarr", "a", "--raw", "--memory", "1MiB") == cells.tobytes()
    tet("index", tmp_path / "x.tix", tmp_path / "x.zarr")
    assert tet("cat", tmp_path / "x.tix", "a", "t=30:40", "y=7:55:2", "--raw") == np.ascontiguousarray(cells[30:40, 7:55:2]).tobytes()
    tet("verify", tmp_path / "x.zarr", "--deep")
