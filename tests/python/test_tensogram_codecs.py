"""Every codec of Tensogram in both directions with the reference package `tensogram` 0.24.0, on random objects with a fixed seed.

TET_BIN names the `tet` binary, TET_EXAMPLES the folder of the example `tgm_write` of tesseral-tensogram, TGM_CODEC_CASES the number of random
objects each way.
"""

import os
import random
import subprocess

import numpy as np
import pytest

tensogram = pytest.importorskip("tensogram")

TET = os.environ.get("TET_BIN", "tet")
WRITE = os.path.join(os.environ.get("TET_EXAMPLES", ""), "tgm_write")
CASES = int(os.environ.get("TGM_CODEC_CASES", "150"))
NUMPY = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
MASKS = ["none", "rle", "roaring", "lz4", "zstd", "blosc2"]


def descriptor(dtype, shape, params):
    strides = [1] * len(shape)
    for d in reversed(range(len(shape) - 1)):
        strides[d] = strides[d + 1] * shape[d + 1]
    base = dict(type="ntensor", ndim=len(shape), shape=list(shape), strides=strides, dtype=dtype, byte_order="little",
                encoding="none", filter="none", compression="none")
    return base | params


def smooth(rng, n):
    gen = np.random.default_rng(rng.randrange(2**32))
    kind = rng.choice(["walk", "sine", "noise", "constant", "sparse", "spikes", "line"])
    x = np.arange(n)
    return {
        "walk": lambda: np.cumsum(gen.normal(0, 1, n)) + 280,
        "sine": lambda: np.sin(x / 37) * 50 + gen.normal(0, 0.01, n),
        "noise": lambda: gen.normal(0, 1e3, n),
        "constant": lambda: np.full(n, 4.25),
        "sparse": lambda: np.where(gen.random(n) < 0.05, gen.normal(0, 9, n), 0.0),
        "spikes": lambda: np.where(gen.random(n) < 0.01, 1e30, np.sin(x / 5)),
        "line": lambda: x * 0.125 - 7,
    }[kind]()


def integers(rng, n, dtype):
    gen = np.random.default_rng(rng.randrange(2**32))
    info = np.iinfo(dtype)
    return {
        "noise": lambda: gen.integers(info.min, info.max, n, dtype=dtype, endpoint=True),
        "walk": lambda: np.cumsum(gen.integers(-2, 3, n)) + 50,
        "sparse": lambda: np.where(gen.random(n) < 0.05, gen.integers(0, 100, n), 0),
        "constant": lambda: np.full(n, 7),
    }[rng.choice(["noise", "walk", "sparse", "constant"])]().astype(dtype)


class Case:
    """A random object: cells, descriptor, and its codecs in the form of `tgm_write`."""

    def __init__(self, rng, compression):
        self.shape = rng.choice([[1], [2], [5], [33], [100], [4096], [4097], [5000], [70, 90], [3, 7, 11], [20000], [40000]])
        self.count = int(np.prod(self.shape))
        self.lossy = compression in ("zfp", "sz3")
        self.dtype = "float64" if self.lossy else rng.choice(NUMPY + ["float64", "float64"])
        self.params, codecs, self.bound = {}, [], None
        if self.dtype == "float64" and not self.lossy and rng.random() < 0.4:
            bits = rng.choice([8, 12, 16, 24, 31, 32])
            self.params |= dict(encoding="simple_packing", sp_bits_per_value=bits, sp_decimal_scale_factor=0)
            codecs.append(f"simple_packing:bits={bits}")
        bits = self.params.get("sp_bits_per_value")
        size = np.dtype(self.dtype).itemsize if bits is None else (bits + 7) // 8
        coded = self.count * size if bits is None else (self.count * bits + 7) // 8
        if not self.lossy and rng.random() < 0.3 and coded % size == 0:
            self.params |= dict(filter="shuffle", shuffle_element_size=size)
            codecs.append(f"shuffle:element_size={size}")
        self.params["compression"] = compression
        if compression == "blosc2":
            codec, level = rng.choice(["blosclz", "lz4", "lz4hc", "zlib", "zstd"]), rng.choice([0, 1, 5, 5, 8, 9])
            self.params |= dict(blosc2_codec=codec, blosc2_clevel=level)
            codecs.append(f'blosc2:codec="{codec}",level={level}')
        elif compression == "zfp":
            kind = rng.choice(["rate", "precision", "tolerance"])
            value = {"rate": lambda: rng.choice([4.0, 8.0, 13.3, 32.0, 64.0]), "precision": lambda: rng.choice([8, 20, 40, 64]),
                     "tolerance": lambda: rng.choice([1e-6, 1e-3, 0.5])}[kind]()
            mode = {"rate": "fixed_rate", "precision": "fixed_precision", "tolerance": "fixed_accuracy"}[kind]
            self.params |= {"zfp_mode": mode, f"zfp_{kind}": value}
            self.bound = value if kind == "tolerance" else None
            codecs.append(f"zfp:{kind}={value}")
        elif compression == "sz3":
            mode = rng.choice(["abs", "rel", "psnr"])
            value = {"abs": lambda: rng.choice([0.0, 1e-6, 1e-3, 0.5]), "rel": lambda: rng.choice([1e-6, 1e-3, 0.1]),
                     "psnr": lambda: rng.choice([40.0, 80.0])}[mode]()
            self.params |= dict(sz3_error_bound_mode=mode, sz3_error_bound=value)
            codecs.append(f"sz3:{mode}={value!r}")
        elif compression != "none":
            codecs.append(compression)
        self.codecs = "+".join(codecs)
        flat = smooth(rng, self.count).astype(self.dtype) if self.dtype.startswith("float") else integers(rng, self.count, self.dtype)
        self.data = np.ascontiguousarray(flat.reshape(self.shape))
        self.masked = False
        if self.dtype.startswith("float") and bits is None and rng.random() < 0.4:
            self.masked = True
            flat = self.data.reshape(-1)
            for value in (np.nan, np.inf, -np.inf):
                flat[[rng.randrange(self.count) for _ in range(rng.choice([1, 3, max(1, self.count // 5)]))]] = value
        if self.params.get("sz3_error_bound_mode") == "abs":
            self.bound = self.params["sz3_error_bound"]
        elif self.params.get("sz3_error_bound_mode") == "rel":
            # Of the stored values: masked cells are zeros.
            stored = np.where(np.isfinite(self.data), self.data, 0)
            self.bound = self.params["sz3_error_bound"] * float(stored.max() - stored.min())

    def descriptor(self):
        return descriptor(self.dtype, self.shape, self.params)

    def __repr__(self):
        return f"{self.dtype} {self.shape} {self.params} {'masked' if self.masked else ''}"


def tet(*words):
    return subprocess.run([TET, *words], capture_output=True, check=False)


def ours(path, *selection):
    run = tet("cat", str(path), "0/0", *selection, "--raw")
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("compression", ["blosc2", "zfp", "sz3", "none", "zstd", "lz4"])
def test_reads_what_the_reference_writes(compression, tmp_path):
    rng = random.Random(f"read {compression}")
    path = tmp_path / "file.tgm"
    for _ in range(CASES // 3):
        case = Case(rng, compression)
        options = dict(hash=rng.choice(["xxh3", None]))
        if case.masked:
            method = rng.choice(MASKS)
            # The package reads blosc2 masks only after it has encoded with blosc2 in the same process.
            options |= dict(allow_nan=True, allow_inf=True, nan_mask_method=method, pos_inf_mask_method=method,
                            neg_inf_mask_method=method, small_mask_threshold_bytes=rng.choice([0, 128]))
        message = tensogram.encode({}, [(case.descriptor(), case.data)], **options)
        path.write_bytes(message)
        theirs = tensogram.decode(message).objects[0][1]
        assert ours(path) == theirs.tobytes(), repr(case)
        if not case.lossy and case.params.get("encoding") is None:
            assert theirs.tobytes() == case.data.tobytes(), repr(case)
        if len(case.shape) == 1 and case.count > 4:
            start = rng.randrange(case.count - 1)
            end = rng.randrange(start + 1, case.count + 1)
            assert ours(path, f"0={start}:{end}") == theirs[start:end].tobytes(), (start, end, repr(case))


def write(path, case, message_options):
    cells = path.with_suffix(".cells")
    cells.write_bytes(case.data.tobytes())
    shape = "x".join(map(str, case.shape))
    words = [WRITE, str(path), *message_options, "--object", case.dtype, shape, case.codecs, str(cells)]
    run = subprocess.run(words, capture_output=True, check=False)
    assert run.returncode == 0, (run.stderr, case)
    return path.read_bytes()


@pytest.mark.parametrize("compression", ["blosc2", "zfp", "sz3"])
def test_the_reference_reads_what_we_write(compression, tmp_path):
    rng = random.Random(f"write {compression}")
    path = tmp_path / "file.tgm"
    equal = 0
    for _ in range(CASES // 2):
        case = Case(rng, compression)
        message = write(path, case, [] if rng.random() < 0.8 else ["--no-hash"])
        # It reads blosc2 masks and frames only after it has encoded one.
        tensogram.encode({}, [(descriptor("uint8", [64], {"compression": "blosc2"}), np.zeros(64, "u1"))])
        theirs = tensogram.decode(message).objects[0][1]
        assert ours(path) == theirs.tobytes(), repr(case)
        finite = np.isfinite(case.data) if case.dtype.startswith("float") else np.ones(case.shape, bool)
        assert (finite | (theirs == case.data) | (np.isnan(case.data) & np.isnan(theirs))).all(), repr(case)
        # Four numbers share an exponent in zfp: next to a huge number, small ones lose all bits.
        if case.bound is not None and not (compression == "zfp" and np.abs(case.data[finite]).max(initial=0) > 1e9):
            error = np.abs(theirs[finite] - case.data[finite]).max(initial=0)
            assert error <= case.bound, (error, repr(case))
        if not case.lossy and case.params.get("encoding") is None:
            assert theirs.tobytes() == case.data.tobytes(), repr(case)
        report = tensogram.validate(message, level="full")
        assert [i for i in report["issues"] if i["code"] != "no_hash_available"] == [], repr(case)
        if compression == "zfp":
            # Streams are deterministic: with our provenance, the package produces the same message.
            made = tensogram.encode({}, [(case.descriptor(), case.data)], allow_nan=True, allow_inf=True)
            frame = message[message.index(b"FR\x00\x09") :]
            stored = int.from_bytes(frame[8:16], "big")
            other = made[made.index(b"FR\x00\x09") :]
            equal += frame[16 : stored - 20] == other[16 : stored - 20]
    if compression == "zfp":
        assert equal == CASES // 2, f"{equal} of {CASES // 2} are the reference's bytes"


@pytest.mark.parametrize("codecs", ["zfp:rate=8.0", "sz3:abs=0.001", "simple_packing:bits=12+szip", "simple_packing:bits=16+zfp:rate=8.0"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64"])
def test_what_the_reference_would_lose_is_refused(codecs, dtype, tmp_path):
    if dtype == "float64" and codecs in ("zfp:rate=8.0", "sz3:abs=0.001"):
        pytest.skip("that is what they are for")
    cells = tmp_path / "cells"
    cells.write_bytes(np.arange(64).astype(dtype).tobytes())
    run = subprocess.run([WRITE, str(tmp_path / "out.tgm"), "--object", dtype, "64", codecs, str(cells)], capture_output=True, check=False)
    assert run.returncode != 0
    assert not (tmp_path / "out.tgm").exists()


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8", "int64"])
def test_sz3_of_other_cells_is_read_where_nothing_was_lost(dtype, tmp_path):
    path = tmp_path / "file.tgm"
    data = np.arange(1, 401).astype(dtype)
    params = dict(compression="sz3", sz3_error_bound_mode="abs", sz3_error_bound=0.0)
    path.write_bytes(tensogram.encode({}, [(descriptor(dtype, [400], params), data)]))
    assert ours(path) == data.tobytes()
