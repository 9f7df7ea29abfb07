//! NumPy `.npy` files, versions 1 to 3, as read-only arrays, and `.npz` archives of them, read and written.
//!
//! ```text
//! file:   "\x93NUMPY" │ version │ length │ header │ cells
//! header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//! ```
//!
//! [`NpyFormat`] implements the format interface. The cells are one contiguous byte range, divided into chunks along the
//! slowest dimension to bound the size of a read. There are no checksums: damage in the cells is not detected.
//!
//! ```
//! use std::sync::Arc;
//! use tesseral_format::{Format, OpenOptions};
//! use tesseral_npy::NpyFormat;
//! use tesseral_store::{MemoryStore, Store};
//!
//! let mut file = b"\x93NUMPY\x01\x00\x3a\x00{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n".to_vec();
//! file.extend([1, 0, 2, 0]);
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("ranks.npy", file));
//! let container = NpyFormat.open(store, &OpenOptions::default())?;
//! assert_eq!(container.name(0), "ranks");
//! assert_eq!(container.array(0)?.schema().fields[0].type_name().to_string(), "int16");
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Limitations
//! - The CRC-32 of a member is compared where it is compressed, and its cells are decoded as a whole.
//! - Records, objects, unicode text, floats of more than 64 bits and dates in multiples of a unit are `Unsupported`.
//! - Fixed bytes (`S5`) are fixed-length text, padded with NUL.
#![forbid(unsafe_code)]

mod array;
mod format;
pub mod header;
mod npz;
mod write;
pub mod zip;

/// The ID of the format.
pub const ID: &str = "npy";

pub use format::NpyFormat;
pub use npz::NpzFormat;
