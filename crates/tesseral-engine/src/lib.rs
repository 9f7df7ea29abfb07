//! One executor for every format: plan, fetch, decode in parallel, overlay, fill, reduce, write.
//!
//! Operations start from a [`Handle`], an array of an open container, and a
//! [`Request`](tesseral_format::Request). [`read`] gives cells of a dense array, as a view of the file where its layout
//! allows, [`cells`](fn@cells) rows of a sparse one in batches; results never depend on the number of threads.
#![deny(unsafe_code)]

mod aggregate;
mod bits;
mod budget;
mod buffer;
mod by;
mod cells;
mod chunk;
mod claims;
mod condition;
mod dense;
mod dense_cells;
mod divide;
mod fetch;
pub mod fold;
mod handle;
pub mod kernel;
mod options;
mod overlay;
mod pair;
mod rechunk;
mod recover;
mod reduce;
mod reopen;
mod sink;
mod sparse;
mod spread;
mod strip;
mod transfer;
mod var;
mod verify;
mod visit;
mod write;

pub use aggregate::{Summarized, summarize};
pub use bits::read_bits;
pub use budget::{Blocks, available_memory, blocks, budget_bytes};
pub use buffer::Buffer;
pub use by::summarize_by;
pub use cells::Cells;
pub use claims::{
    Work, check_held, check_pair, check_results, check_text, check_total, check_written_chunks, work_space,
};
pub use dense::{Dense, Explained, explain, read, read_buffer, read_into, read_owned, read_with, view};
pub use divide::{divisible, narrowable, oversized};
pub use handle::Handle;
pub use options::{Options, Progress};
pub use pair::{Pair, pair_cells};
pub use rechunk::{Grids, RechunkPlan, Way};
pub use recover::{Recovered, recover};
pub use reduce::{Reduced, reduce};
pub use reopen::{Reopen, judge, open_listed, watched};
pub use sparse::{CellBatch, CellOrder, CellStream, cells, read_cells};
pub use spread::{ranges, spread, spreadable};
pub use tesseral_core::Cancel;
pub use transfer::{CellSource, read_column, read_stored, transfer, transfer_box};
pub use var::read_var;
pub use verify::{Verified, verify, verify_to};
pub use visit::{gaps, has_gaps};
pub use write::{Arrival, Journal, WriteSession};
