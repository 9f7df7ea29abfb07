//! One executor for every format: plan, fetch, decode in parallel, overlay, fill, reduce, write.
//!
//! Operations start from a [`Handle`], an array of an open container, and a [`Request`](tesseral_format::Request). [`read`]
//! returns cells of a dense array, as a view of the file if its layout allows it, [`cells`](fn@cells) returns rows of a sparse
//! one in batches; results never depend on the number of threads.
#![deny(unsafe_code)]

mod continued;
mod decode;
mod fetch;
mod handle;
pub mod kernel;
mod merge;
mod missing;
mod options;
mod paint;
mod physical;
mod plan;
mod recover;
mod reduce;
mod verify;
mod write;

pub use decode::bits::read_bits;
pub use decode::columns::Cells;
pub use decode::variable_length::{read_valid_var, read_var};
pub use fetch::reopen::{Reopen, missing_or_stale, open_listed, watched};
pub use handle::Handle;
pub use merge::join::{JoinedRows, merge_join};
pub use merge::sparse::{CellBatch, CellOrder, CellStream, cells, read_cells, read_valid_cells, valid_cells};
pub use missing::{column_validity, statistics, validity};
pub use options::{Options, PlannedReads, Progress};
pub use paint::dense::{
    Dense, Explained, explain, read, read_buffer, read_into, read_owned, read_with, view,
};
pub use paint::scatter::{ranges, scatter_cells, scatterable};
pub use plan::blocks::{Blocks, available_memory, blocks, budget_bytes};
pub use plan::condition::{matches, may_hold};
pub use plan::expansion::{
    Work, allowed_bytes, check_held, check_pair, check_results, check_text, check_total,
    check_written_chunks, work_space,
};
pub use plan::rechunk::{Grids, RechunkPlan, TransferMethod};
pub use plan::subdivide::{divisible, narrowable, oversized};
pub use recover::{Recovered, recover};
pub use reduce::axes::{Reduced, reduce};
pub use reduce::kernel::axis;
pub use reduce::kernel::summary::{StatSet, Summary};
pub use reduce::summary::Summarized;
pub use reduce::visit::{gaps, has_gaps};
pub use reduce::{exact, fold};
pub use tesseral_core::Cancel;
pub use tesseral_store::Buffer;
pub use verify::{Verified, verify, verify_to};
pub use write::transfer::{CellSource, read_column, read_stored, transfer, transfer_box};
pub use write::{InputOrder, Journal, WriteSession};
