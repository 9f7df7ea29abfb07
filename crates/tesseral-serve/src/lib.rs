//! A local web page for datasets of any format: maps, series, histograms, tables, chunks and downloads.
//!
//! The server only reads. It answers requests that carry its token and name its host, and sends no data to other sites. Each request
//! reads a bounded number of bytes, and stops when its client disconnects.
//!
//! | module | task |
//! |---|---|
//! | [`guard`] | access control: token, host, response headers |
//! | `admission` | limits on running and waiting requests; cancellation |
//! | `sources` | opened containers, also at earlier times |
//! | `view` | the cells of a request |
//! | `tree`, `plane`, `series`, `cells`, `statistics`, `chunks`, `download` | the responses |
#![forbid(unsafe_code)]

pub mod guard;

mod admission;
mod cells;
mod chunks;
mod download;
mod failure;
mod listen;
mod page;
mod plane;
mod series;
mod server;
mod sources;
mod statistics;
mod tree;
mod view;
mod zip;

pub use server::{Server, ServerSettings};
pub use sources::Opener;
