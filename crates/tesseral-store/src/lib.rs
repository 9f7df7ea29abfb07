//! Where array bytes live.
//!
//! A [`Store`] holds *objects*: byte strings under relative names. A single file is a store with one object, the empty
//! name; a folder is a store of the files below it. Readers ask for many spans at once ([`Store::read_many`]) or, when
//! the bytes are already in reach, borrow the whole object ([`Store::resident`]). Writers stage an object under a
//! temporary name and publish it whole ([`Store::stage`]).
//!
//! ```
//! use tesseral_store::{MemoryStore, Store, StoreExt};
//!
//! let store = MemoryStore::new("demo");
//! store.insert("", b"0123456789".to_vec());
//! assert_eq!(&store.read("", 2..5)?[..], b"234");
//! # Ok::<(), tesseral_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod append;
mod folder;
mod growing;
mod guard;
mod handles;
mod identity;
mod leftover;
mod local;
mod map;
mod memory;
mod publish;
mod staged_path;
mod store;
mod unpublished;
pub mod wrap;

pub use append::AppendFile;
pub use bytes::Bytes;
pub use growing::Growing;
pub use guard::Watch;
pub use leftover::staging_name;
pub use local::{Access, LocalStore};
pub use memory::MemoryStore;
pub use publish::exists as output_exists;
pub use staged_path::StagedPath;
pub use store::{ObjectInfo, ObjectKind, Overwrite, Staged, Store, StoreExt};
pub use unpublished::{Unpublished, abandon};
