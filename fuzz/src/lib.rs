//! The bodies of the fuzz targets. Each function accepts any input and must return: no panic, no infinite loop, no
//! allocation that the input does not justify. `tests/` of the crates include some of these files, so each is self-contained.

pub mod arrow;
pub mod codec;
pub mod csv;
pub mod digests;
pub mod grib;
pub mod index;
pub mod index_read;
pub mod messages;
pub mod netcdf;
pub mod npy;
pub mod page;
pub mod parquet;
pub mod reductions;
pub mod tensogram;
pub mod tet;
pub mod tet_structures;
pub mod text;
pub mod tiledb;
pub mod windows;
pub mod zarr;

mod fixtures;
mod guard;

#[global_allocator]
static GUARD: guard::Guard = guard::Guard;
