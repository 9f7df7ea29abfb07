//! Zarr v2 and v3: folders of JSON metadata and of one object per chunk or shard.
//!
//! ```text
//! v3  zarr.json            group or array; the root can hold the metadata of all nodes (`consolidated_metadata`)
//!     a/b/zarr.json
//!     a/b/c/0/1            chunk, or shard: chunks │ index: u64 offset, u64 length each │ CRC-32C
//! v2  .zgroup .zattrs .zmetadata
//!     a/b/.zarray          a/b/.zattrs          a/b/0.1
//! ```
//!
//! [`ZarrFormat`] implements the format interface. A chunk that does not exist holds the fill value: writers leave out chunks
//! of nothing else, so these cells are values, not missing cells.
//!
//! ```
//! use std::sync::Arc;
//! use tesseral_format::{Format, OpenOptions};
//! use tesseral_store::{MemoryStore, Store};
//! use tesseral_zarr::ZarrFormat;
//!
//! let store = MemoryStore::new("ranks.zarr");
//! let array = br#"{"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<i2", "compressor": null,
//!                  "fill_value": 0, "order": "C", "filters": null}"#;
//! store.insert(".zarray", array.to_vec());
//! store.insert("0", vec![1, 0, 2, 0]);
//! let store: Arc<dyn Store> = Arc::new(store);
//! let container = ZarrFormat.open(store, &OpenOptions::default())?;
//! assert_eq!(container.name(0), "ranks");
//! assert_eq!(container.array(0)?.schema().fields[0].type_name().to_string(), "int16");
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Limitations
//! - Structured dtypes, storage transformers, irregular chunk grids, nested shards and codecs around shards are `Unsupported`.
//! - Codecs that [`wire::codecs`] does not list are `Unsupported`; a group shows its other arrays.
#![forbid(unsafe_code)]

mod array;
mod chain;
mod contents;
mod format;
mod open;
mod transpose;
mod vlen;
pub mod wire;
mod write;

/// The ID of the format.
pub const ID: &str = "zarr";

pub use format::ZarrFormat;
pub use write::{ShardShape, ZarrOptions};
