//! What the fuzz targets do with bytes. Each function takes any input at all and must come back: no panic, no endless loop, no
//! allocation that the input does not justify. `tests/` of the crates include some of these files, so each stands alone.

pub mod codec;
pub mod messages;
pub mod npy;
pub mod tensogram;
pub mod tet;
pub mod text;
pub mod tiledb;
pub mod windows;

mod fixtures;
mod guard;

#[global_allocator]
static GUARD: guard::Guard = guard::Guard;
