"""The cases of bench/compare, implemented with Python libraries: peers.py PEER CASE FILE [options].

Options, timing, answers and the printed line are those of src/common.rs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WINDOWS = 50
DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
# Sides of the small arrays.
SIDE = 16
# Memory limit of a rechunk.
MEMORY = 64 << 20


#: Short cases continue beyond the requested runs until this share of the time is used, up to this number of runs.
ENOUGH, MOST = 0.06, 301


def timed(args, work, setup=lambda: None):
    """Seconds of the repetitions, sorted, and the first result. The seconds of the first run go to `args.first`, its peak memory,
    relative to the start, to `args.extra`. `setup` runs before each run and is not timed."""
    setup()
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS:")
    begin = time.perf_counter()
    result = work()
    first = args.first = time.perf_counter() - begin
    args.extra = max(0, status("VmHWM:") - before)
    seconds = []
    short = lambda: 0 < args.runs and len(seconds) < MOST and sum(seconds) < ENOUGH * args.seconds
    while (len(seconds) < args.runs or short()) and time.perf_counter() - begin <= args.seconds:
        if not seconds and first > args.seconds / 2:
            break
        setup()
        start = time.perf_counter()
        again = work()
        seconds.append(time.perf_counter() - start)
        del again
    return sorted(seconds or [first]), result


def digest(pieces):
    """Σ bits(i) · (2i + 1) modulo 2⁶⁴ over all cells in turn."""
    total, place = 0, 0
    for piece in pieces:
        bits = np.ascontiguousarray(piece).reshape(-1).view(np.uint32)
        for start in range(0, bits.size, 1 << 22):
            part = bits[start : start + (1 << 22)].astype(np.uint64)
            weights = np.arange(place, place + part.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
            total = (total + int((part * weights).sum(dtype=np.uint64))) % 2**64
            place += part.size
    return f"{total:016x}"


def sample(cells):
    cells = np.asarray(cells, dtype=np.float64).reshape(-1)
    return [cells[0], cells[cells.size // 3], cells[-1], cells.mean()]


def windows(shape, size):
    state, boxes = 1, []
    for _ in range(WINDOWS):
        box = []
        for extent, want in zip(shape, size):
            want = min(want, extent)
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            start = (state >> 33) % (extent - want + 1)
            box.append(slice(start, start + want))
        boxes.append(tuple(box))
    return boxes


def status(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def places(random, count, side=100_000):
    """Coordinates and values of cells: smooth in space with noise on top, so that tiles differ in their ranges."""
    x, y = np.divmod(random.choice(side * side, size=count, replace=False), side)
    return x, y, np.round(x / 1000 + y / 5000 + random.standard_normal(count), 2)


def synchronize(path):
    """Makes a file, or all files and folders below a folder, durable, for libraries that do not."""
    for each in [*Path(path).rglob("*"), path]:
        handle = os.open(each, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def stored(path):
    """Bytes of all files below a folder."""
    return sum(f.stat().st_size for f in Path(path).rglob("*") if f.is_file())


class Peer:
    """Reads and writes; folds use reads unless the library has its own."""

    def __init__(self, args):
        self.args = args

    shape: tuple

    def read(self, box):
        raise NotImplementedError

    def write(self, cells):
        """Write, and return a function that reads the file back."""
        raise NotImplementedError("it writes no arrays")

    def blocks(self):
        """The array in slabs one chunk deep, so that folds stay in the cache."""
        depth = self.args.chunk[0]
        return (self.read(np.s_[i : i + depth]) for i in range(0, self.shape[0], depth))

    def fold(self, op):
        if op == "mean":
            return sum(b.sum(dtype=np.float64) for b in self.blocks()) / np.prod(self.shape)
        if op == "sum":
            return sum(b.sum(dtype=np.float64) for b in self.blocks())
        if op == "min":
            return min(b.min() for b in self.blocks())
        if op == "max":
            return max(b.max() for b in self.blocks())
        if op == "std":
            # Around the mean of the first slab, so that squares stay small.
            n, total, squares, around = np.prod(self.shape), 0.0, 0.0, None
            for block in self.blocks():
                around = block.mean() if around is None else around
                off = (block - around).reshape(-1)
                total += off.sum(dtype=np.float64)
                squares += float(np.einsum("i,i->", off, off, dtype=np.float64))
            return np.sqrt(squares / n - (total / n) ** 2)
        raise NotImplementedError(op)

    def mean_axis0(self):
        return sum(b.sum(axis=0, dtype=np.float64) for b in self.blocks()) / self.shape[0]

    def summary(self):
        raise NotImplementedError("not asked of it")


class Numpy(Peer):
    """A raw mapped file without a format."""

    def __init__(self, args):
        super().__init__(args)
        self.cells = np.memmap(args.file, dtype=np.float32, mode="r", shape=tuple(args.shape))
        self.shape = self.cells.shape

    def read(self, box):
        return np.array(self.cells[box])

    def view(self):
        return self.cells[...]

    def fold(self, op):
        return getattr(self.cells, op)()

    def mean_axis0(self):
        return self.cells.mean(axis=0)


class TetPy(Peer):
    def __init__(self, args):
        super().__init__(args)
        import tet

        self.tet = tet
        if args.case not in ("write", "open"):
            self.open(args.file)

    def open(self, path):
        self.file = self.tet.open(path)
        self.shape = tuple(self.file.summary()["datasets"][0]["shape"])

    def read(self, box):
        if box is Ellipsis:
            return self.file.read_numpy("cube")
        return self.file.read_numpy("cube", selection=[{"start": s.start, "stop": s.stop, "step": 1} for s in box])

    def view(self):
        return self.read(...)

    def write(self, cells):
        if self.args.codec == "zstd":
            raise NotImplementedError("tet-py cannot write zstd")
        self.tet.write_dataset(self.args.out, "cube", cells, chunk_shape=tuple(self.args.chunk))
        return lambda: self.open(self.args.out)

    def fold(self, op):
        return getattr(self.file, op)("cube")

    def mean_axis0(self):
        return self.file.mean("cube", axes=[0]).value

    def summary(self):
        with self.tet.open(self.args.file) as file:
            summary = file.summary()
        chunks = summary["chunks"]
        sizes = [summary["datasets"][0]["shape"], len(chunks), sum(c["stored_byte_len"] for c in chunks)]
        return json.dumps(sizes, separators=(",", ":"))


class H5py(Peer):
    def __init__(self, args):
        super().__init__(args)
        import h5py
        import hdf5plugin

        self.h5py, self.zstd = h5py, hdf5plugin.Zstd(clevel=3)
        if args.case not in ("write", "make_small", "small"):
            self.open(args.file)

    def open(self, path):
        self.data = self.h5py.File(path, "r")["cube"]
        self.shape = self.data.shape

    def read(self, box):
        return self.data[box]

    def write(self, cells):
        filters = self.zstd if self.args.codec == "zstd" else {}
        with self.h5py.File(self.args.out, "w") as file:
            file.create_dataset("cube", data=cells, chunks=tuple(self.args.chunk), **filters)
        return lambda: self.open(self.args.out)

    def make_small(self):
        with self.h5py.File(self.args.file, "w") as file:
            for number in range(self.args.count):
                file[f"a{number}"] = np.full((SIDE, SIDE), number, np.float32)

    def small(self):
        with self.h5py.File(self.args.file) as file:
            return [file[f"a{number}"][...] for number in range(self.args.count)]


class Zarr(Peer):
    def __init__(self, args):
        super().__init__(args)
        import zarr

        # The Rust pipeline, the fastest available; rechunker copies through zarr's own.
        if args.case != "rechunk":
            zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
        self.zarr = zarr
        if args.case != "write":
            self.open(args.file)

    def open(self, path):
        self.data = self.zarr.open_array(path, mode="r")
        self.shape = self.data.shape

    def read(self, box):
        return self.data[box]

    def write(self, cells):
        codecs = [self.zarr.codecs.ZstdCodec(level=3)] if self.args.codec == "zstd" else None
        args = self.args
        shutil.rmtree(args.out, ignore_errors=True)
        self.zarr.create_array(args.out, data=cells, chunks=tuple(args.chunk), compressors=codecs, overwrite=True)
        return lambda: self.open(args.out)


    def rechunk(self):
        """Copy slab by slab, each of as many whole new chunks as fit in a third of the memory."""
        args = self.args
        shutil.rmtree(args.out, ignore_errors=True)
        out = self.zarr.create_array(args.out, shape=self.shape, chunks=tuple(args.chunk), dtype="f4", compressors=None)
        depth = args.chunk[1]
        rows = max(depth, (MEMORY // 3) // (self.shape[0] * self.shape[2] * 4) // depth * depth)
        for start in range(0, self.shape[1], rows):
            out[:, start : start + rows] = self.data[:, start : start + rows]
        synchronize(args.out)
        return out


class Dask(Zarr):
    """Zarr arrays, folded chunk by chunk on all cores."""

    def fold(self, op):
        import dask.array

        cells = dask.array.from_array(self.data, chunks=self.data.chunks)
        exact = {"dtype": np.float64} if op in ("mean", "std") else {}
        return getattr(cells, op)(**exact).compute()


class Parquet(Peer):
    """Rows in a table, in the tile order of a sparse array."""

    def make_rows(self):
        import pyarrow
        from pyarrow import parquet

        x, y, a = places(np.random.default_rng(1), self.args.count)
        order = np.lexsort((y // 1000, x // 1000))
        table = pyarrow.table({"x": x[order], "y": y[order], "a": a[order]})
        parquet.write_table(table, self.args.out, compression="zstd", compression_level=3)

    def rows(self):
        from pyarrow import parquet

        field, test, value = self.args.where.split()
        table = parquet.read_table(self.args.file, filters=[(field, test, float(value))])
        return {name: table[name].to_numpy() for name in table.column_names}


    def parquet_rows(self):
        import pyarrow
        from pyarrow import parquet

        columns = np.fromfile(self.args.file, np.int64).reshape(3, -1)
        table = pyarrow.table({"x": columns[0], "y": columns[1], "a": columns[2].view(np.float64)})

        def work():
            parquet.write_table(table, self.args.out, compression="zstd", compression_level=3)
            synchronize(self.args.out)

        seconds = timed(self.args, work)[0]
        found = parquet.read_table(self.args.out)
        sums = [len(found), *(float(found[name].to_numpy().sum(dtype=np.float64)) for name in ("x", "y", "a"))]
        return seconds, sums, columns.nbytes, 1


class NetCDF4(Peer):
    """A NetCDF-4 file of the cube, also through xarray."""

    def __init__(self, args):
        super().__init__(args)
        import netCDF4

        self.netcdf = netCDF4
        if args.case not in ("write", "xarray_mean"):
            self.open(args.file)

    def open(self, path):
        self.data = self.netcdf.Dataset(path)["cube"]
        self.data.set_auto_maskandscale(False)
        self.shape = self.data.shape

    def read(self, box):
        return self.data[box]

    def write(self, cells):
        args = self.args
        Path(args.out).unlink(missing_ok=True)
        with self.netcdf.Dataset(args.out, "w") as file:
            for name, size in zip("tyx", args.shape):
                file.createDimension(name, size)
            filters = {"compression": "zstd", "complevel": 3} if args.codec == "zstd" else {}
            file.createVariable("cube", "f4", tuple("tyx"), chunksizes=tuple(args.chunk), **filters)[:] = cells
        return lambda: self.open(args.out)

    engine = "netcdf4"


class Tesseral(Peer):
    """Our own package, for cases that are about calls from Python."""

    engine = "tesseral"

    def __init__(self, args):
        super().__init__(args)
        if args.case in ("import", "xarray_mean"):
            return
        import tesseral
        import tesseral.tensogram

        self.messages = tesseral.tensogram
        if not args.case.startswith("tgm_"):
            self.data = next(iter(tesseral.open(args.file).values()))
            self.shape = self.data.shape

    def read(self, box):
        return self.data[box]

    def encode(self, described, cells):
        return self.messages.encode({}, [(described, cells)])

    def decode(self, message):
        return self.messages.decode(message).objects[0][1]


class Tensogram(Peer):
    """The reference package, configured to check hashes as ours does."""

    def __init__(self, args):
        super().__init__(args)
        import tensogram

        self.messages = tensogram

    def encode(self, described, cells):
        scales = {}
        if described["encoding"] == "simple_packing":
            scales = self.messages.compute_packing_params(cells.ravel(), described["sp_bits_per_value"], 0)
        return self.messages.encode({}, [({**described, **scales}, cells)])

    def decode(self, message):
        return self.messages.decode(message, verify_hash=True).objects[0][1]


class TileDB(Peer):
    def __init__(self, args):
        super().__init__(args)
        import tiledb

        self.tiledb = tiledb
        if args.case not in ("write", "open_array") and not args.case.startswith(("make_", "tdb_")):
            self.open(args.file)

    def open(self, path):
        self.data = self.tiledb.open(path)
        self.shape = self.data.shape

    def read(self, box):
        return self.data[box]

    def write(self, cells):
        tiledb, args = self.tiledb, self.args
        shutil.rmtree(args.out, ignore_errors=True)
        dims = [
            tiledb.Dim(f"d{i}", domain=(0, n - 1), tile=min(c, n), dtype=np.int32)
            for i, (n, c) in enumerate(zip(args.shape, args.chunk))
        ]
        filters = [tiledb.ZstdFilter(level=3)] if args.codec == "zstd" else []
        attr = tiledb.Attr(name="", dtype=cells.dtype, filters=tiledb.FilterList(filters))
        tiledb.Array.create(args.out, tiledb.ArraySchema(domain=tiledb.Domain(*dims), attrs=[attr]))
        with tiledb.open(args.out, "w") as array:
            array[:] = cells
        return lambda: self.open(args.out)

    def open_array(self):
        with self.tiledb.open(self.args.file) as array:
            array.nonempty_domain()
            return array.schema.domain.ndim

    def rows(self):
        query = self.data.query(attrs=["a"], dims=["x", "y"], cond=self.args.where or None, order="U")
        if not self.args.query:
            return query[:]
        ranges = [word.split("=")[1].split("..") for word in self.args.query.split()]
        return query.multi_index[tuple(slice(int(low), int(high)) for low, high in ranges)]

    def total(self):
        box = tuple(slice(*(int(n) for n in word.split("=")[1].split(":"))) for word in self.args.query.split())
        return self.data.query().agg("sum")[box]

    def create_rows(self, side=100_000):
        """A sparse array of two dimensions and a field."""
        tiledb = self.tiledb
        shutil.rmtree(self.args.out, ignore_errors=True)
        dims = [tiledb.Dim(name, domain=(0, side - 1), tile=1000, dtype=np.int64) for name in ("x", "y")]
        zstd = tiledb.FilterList([tiledb.ZstdFilter(level=3)])
        schema = tiledb.ArraySchema(
            domain=tiledb.Domain(*dims), sparse=True, capacity=10_000, coords_filters=zstd,
            attrs=[tiledb.Attr(name="a", dtype=np.float64, filters=zstd)],
        )
        tiledb.Array.create(self.args.out, schema)

    def write_rows(self, x, y, a):
        with self.tiledb.open(self.args.out, "w") as array:
            array[x, y] = {"a": a}

    def make_rows(self):
        """Five million cells at random positions, in one fragment."""
        self.create_rows()
        self.write_rows(*places(np.random.default_rng(1), self.args.count))

    def make_columns(self):
        """The same cells in a raw file, column after column."""
        np.concatenate([c.view(np.int64) for c in places(np.random.default_rng(1), self.args.count)]).tofile(self.args.out)

    def make_fragments(self):
        """A hundred fragments of cells at random positions."""
        self.create_rows()
        random = np.random.default_rng(2)
        for _ in range(100):
            self.write_rows(*places(random, self.args.count // 100))

    def make_boxes(self):
        """A dense array written in a hundred boxes, many of them over earlier ones."""
        tiledb, side = self.tiledb, self.args.count
        shutil.rmtree(self.args.out, ignore_errors=True)
        dims = [tiledb.Dim(name, domain=(0, side - 1), tile=side // 20, dtype=np.int32) for name in ("x", "y")]
        zstd = tiledb.FilterList([tiledb.ZstdFilter(level=3)])
        tiledb.Array.create(self.args.out, tiledb.ArraySchema(
            domain=tiledb.Domain(*dims), attrs=[tiledb.Attr(name="", dtype=np.float32, filters=zstd)]))
        random = np.random.default_rng(3)
        whole = [(0, 0, side, side)]
        for x, y, h, w in whole + [(*random.integers(0, side - side // 5, 2), *random.integers(1, side // 5, 2)) for _ in range(99)]:
            with tiledb.open(self.args.out, "w") as array:
                array[x : x + h, y : y + w] = np.round(random.standard_normal((h, w)), 2).astype(np.float32)

    def create_versions(self):
        tiledb, count = self.tiledb, self.args.count
        shutil.rmtree(self.args.out, ignore_errors=True)
        dims = [
            tiledb.Dim("t", domain=(0, count - 1), tile=1, dtype=np.int32),
            tiledb.Dim("x", domain=(0, 99), tile=100, dtype=np.int32),
        ]
        tiledb.Array.create(self.args.out, tiledb.ArraySchema(
            domain=tiledb.Domain(*dims), attrs=[tiledb.Attr(name="", dtype=np.float32)]))

    def tdb_small(self):
        """Many small arrays, each in a separate folder."""
        tiledb, out = self.tiledb, Path(self.args.out)
        dimension = tiledb.Dim("x", domain=(0, 99), tile=100, dtype=np.int32)
        schema = tiledb.ArraySchema(domain=tiledb.Domain(dimension), attrs=[tiledb.Attr(name="", dtype=np.float32)])

        def setup():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()

        def work():
            for number in range(self.args.count):
                path = str(out / str(number))
                tiledb.Array.create(path, schema)
                with tiledb.open(path, "w") as array:
                    array[:] = np.full(100, number, dtype=np.float32)

        seconds, _ = timed(self.args, work, setup)
        with tiledb.open(str(out / str(self.args.count - 1))) as array:
            return seconds, digest([array[:]]), 400, self.args.count

    def write_versions(self):
        for t in range(self.args.count):
            with self.tiledb.open(self.args.out, "w") as array:
                array[t : t + 1, :] = np.full((1, 100), t, dtype=np.float32)

    def make_versions(self):
        """An array written in many fragments of one row each."""
        self.create_versions()
        self.write_versions()

    def sums(self):
        """A checksum of the array: the sum of all cells; for a sparse array their number and the sum of each column."""
        with self.tiledb.open(self.args.out) as array:
            if not array.schema.sparse:
                return [float(array[:].sum(dtype=np.float64))]
            found = array.query(attrs=["a"], dims=["x", "y"], order="U")[:]
            return [len(found["a"]), *(float(found[name].sum(dtype=np.float64)) for name in ("x", "y", "a"))]

    def tdb_rows(self):
        columns = np.fromfile(self.args.file, np.int64).reshape(3, -1)
        x, y, a = columns[0], columns[1], columns[2].view(np.float64)

        def work():
            self.create_rows()
            self.write_rows(x, y, a)

        return timed(self.args, work)[0], self.sums(), columns.nbytes, 1

    def tdb_append(self):
        seconds, _ = timed(self.args, self.write_versions, self.create_versions)
        with self.tiledb.open(self.args.out) as array:
            return seconds, digest([array[:]]), 400, self.args.count

    def tdb_consolidate(self):
        args = self.args

        def setup():
            shutil.rmtree(args.out, ignore_errors=True)
            shutil.copytree(args.file, args.out)

        config = self.tiledb.Config({"sm.consolidation.total_buffer_size": 256 << 20})
        work = lambda: self.tiledb.consolidate(args.out, config=config)  # noqa: E731
        return timed(args, work, setup)[0], self.sums(), 0, 1

    def fold(self, op):
        # The library's own folds use stored statistics: separate cases.
        if op.endswith("_stats"):
            return self.data.query().agg(op.removesuffix("_stats"))[...]
        return super().fold(op)


PEERS = {
    "numpy": Numpy, "tet-py": TetPy, "h5py": H5py, "zarr-python": Zarr, "tiledb": TileDB, "tensogram-py": Tensogram,
    "tesseral-py": Tesseral, "dask": Dask, "parquet": Parquet, "netcdf4": NetCDF4,
}
# The table column of each runner.
COLUMNS = {"tesseral-py": "tesseral"}


def messages(args, peer):
    """Encodes a field, or decodes it again."""
    cells = np.fromfile(args.file, dtype=np.float64).reshape(args.shape)
    described = {"type": "ntensor", "shape": list(args.shape), "dtype": "float64", "encoding": "none"}
    if args.pipeline.startswith("sp"):
        described |= {"encoding": "simple_packing", "sp_bits_per_value": int(args.pipeline[2:])}
    message = peer.encode(described, cells)
    if args.case == "tgm_encode":
        seconds, message = timed(args, lambda: peer.encode(described, cells))
    found = np.array(peer.decode(message))
    if args.case == "tgm_decode":
        seconds, again = timed(args, lambda: peer.decode(message))
        assert np.array_equal(again, found)
    return seconds, digest([found.astype(np.float32)]), cells.nbytes


def started(args, code):
    """A new process of this interpreter that runs code on the file."""
    return timed(args, lambda: subprocess.run([sys.executable, "-c", code, args.file], check=True, capture_output=True))[0]


def xarray_mean(args, engine):
    """The mean over time through xarray and Dask, in the chunks of the file."""
    import xarray

    def work():
        with xarray.open_dataset(args.file, engine=engine, chunks={}) as dataset:
            cube = dataset["cube"]
            return cube.mean(cube.dims[0], dtype=np.float64).values

    return timed(args, work)


def run(args):
    """Fields of the printed line."""
    if args.case == "import":
        # Importing and looking at a file, and NumPy alone.
        code = "import tesseral, sys; repr(tesseral.open(sys.argv[1]))" if args.peer == "tesseral-py" else "import numpy"
        seconds = started(args, code)
        return line(args, seconds, None, 0, 1)
    peer = PEERS[args.peer](args)
    case, per = args.case, 1
    if case in ("write", "tdb_write"):
        cells = np.memmap(args.file, dtype=DTYPES[args.dtype], mode="r", shape=tuple(args.shape))
        # Touch every page of the source before measuring memory.
        expected = digest([cells])

        def write():
            reopen = peer.write(cells)
            # TileDB synchronizes what it writes.
            if args.durable == "yes" and args.peer != "tiledb":
                synchronize(args.out)
            return reopen

        seconds, reopen = timed(args, write)
        reopen()
        answer, size = digest([peer.read(...)]), cells.nbytes
        assert answer == expected, "other cells came back"
    elif case in ("read", "read_view"):
        seconds, cells = timed(args, peer.view if case == "read_view" else lambda: peer.read(...))
        answer, size = digest([cells]), cells.nbytes
    elif case == "xarray_mean":
        seconds, means = xarray_mean(args, peer.engine)
        answer, size = sample(means), int(np.prod(args.shape)) * 4
    elif case == "parquet_rows":
        seconds, answer, size, per = peer.parquet_rows()
    elif case.startswith("tgm_"):
        seconds, answer, size = messages(args, peer)
    elif case == "rechunk":
        seconds, out = timed(args, peer.rechunk)
        answer, size = digest([out[...]]), out.nbytes
    elif case.startswith("tdb_"):
        seconds, answer, size, per = getattr(peer, case)()
    elif case.startswith("make_"):
        seconds, _ = timed(args, getattr(peer, case))
        answer, size = None, 0
    elif case == "open_array":
        seconds, value = timed(args, peer.open_array)
        answer, size = [value], 0
    elif case == "rows":
        seconds, found = timed(args, peer.rows)
        answer, size = [len(found["a"]), float(found["a"].sum())], sum(c.nbytes for c in found.values())
    elif case == "total":
        seconds, value = timed(args, peer.total)
        answer, size = [float(value)], 0
    elif case in ("window", "series", "cell"):
        size = {"window": [8, 32, 32], "series": [peer.shape[0], 1, 1], "cell": [1, 1, 1]}[case]
        boxes = windows(peer.shape, size)
        seconds, cells = timed(args, lambda: [peer.read(box) for box in boxes])
        answer, size, per = digest(cells), cells[0].nbytes, len(boxes)
    elif case == "make_small":
        seconds, _ = timed(args, peer.make_small)
        answer, size = None, 0
    elif case == "small":
        seconds, cells = timed(args, peer.small)
        answer, size = digest(cells), args.count * SIDE * SIDE * 4
    elif case == "mean_axis0":
        seconds, means = timed(args, peer.mean_axis0)
        answer, size = sample(means), int(np.prod(peer.shape)) * 4
    elif case == "open":
        seconds, answer = timed(args, peer.summary)
        size = Path(args.file).stat().st_size
    else:
        seconds, value = timed(args, lambda: peer.fold(case))
        answer, size = [float(value)], int(np.prod(peer.shape)) * 4
    return line(args, seconds, answer, size, per)


def line(args, seconds, answer, size, per):
    """The fields that every case has."""
    return {
        "seconds_first": args.first / per,
        "seconds_median": seconds[len(seconds) // 2] / per,
        "runs": len(seconds),
        "bytes": size,
        "answer": answer,
        "extra_bytes": args.extra,
        "stored_bytes": stored(args.out) if args.case.startswith("tdb_") and args.case != "tdb_small" else None,
    }


def main():
    extents = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("case")
    parser.add_argument("file")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--label")
    parser.add_argument("--shape", type=extents, default=[])
    parser.add_argument("--chunk", type=extents, default=[1])
    parser.add_argument("--codec", default="raw")
    parser.add_argument("--durable", default="yes")
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--out", default="")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--pipeline", default="none")
    parser.add_argument("--query", default="")
    parser.add_argument("--where", default="")
    args = parser.parse_args()
    printed = {"who": COLUMNS.get(args.peer, args.peer), "case": args.label or args.case}
    try:
        printed |= run(args)
    except Exception as error:  # noqa: BLE001: the table shows any exception of a peer
        printed["failed"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    print(json.dumps(printed))
    return 1 if "failed" in printed else 0


if __name__ == "__main__":
    sys.exit(main())
