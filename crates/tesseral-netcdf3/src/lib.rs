//! NetCDF classic files, read and written: CDF-1 (classic), CDF-2 (64-bit offset) and CDF-5 (64-bit data).
//!
//! ```text
//! file:    "CDF" │ version │ number of records │ dimensions │ attributes │ variables │ [history] │ data
//! data:    fixed-size variables, each contiguous │ record 0 │ record 1 │ …
//! record:  one slab of every record variable, each padded to 4 bytes
//! ```
//!
//! [`NetCdf3Format`] implements the format interface. Every variable is an array; cells are big-endian. Fixed-size variables are
//! divided into chunks along their first dimension, record variables into chunks of one or more records. There are no
//! checksums: damage in the cells is not detected.
//!
//! ```
//! use std::sync::Arc;
//! use tesseral_format::{Format, OpenOptions};
//! use tesseral_netcdf3::NetCdf3Format;
//! use tesseral_store::{MemoryStore, Store};
//!
//! // One variable `n` of type short, without dimensions.
//! let mut file = b"CDF\x01".to_vec();
//! for word in [0_u32, 0, 0, 0, 0, 11, 1, 1, u32::from_be_bytes(*b"n\0\0\0"), 0, 0, 0, 3, 4, 64] {
//!     file.extend(word.to_be_bytes());
//! }
//! file.extend([0, 7, 0, 0]);
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("one.nc", file));
//! let container = NetCdf3Format.open(store, &OpenOptions::default())?;
//! assert_eq!(container.name(0), "n");
//! assert_eq!(container.array(0)?.schema().fields[0].type_name().to_string(), "int16");
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Limitations
//! - A record dimension of a file that is being written ("streaming") has the length that the size of the file implies.
//! - Cells that were never written are read as stored, as by the reference; only attributes declare missing values.
#![forbid(unsafe_code)]

mod array;
mod format;
pub mod header;
mod write;

/// The ID of the format.
pub const ID: &str = "netcdf3";

pub use format::NetCdf3Format;
pub use write::NetCdf3Options;
