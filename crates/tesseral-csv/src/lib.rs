//! Tables of comma-separated values as read-only arrays.
//!
//! ```text
//! file:   header │ row │ row …        opening reads everything once: types, number of rows, where each chunk begins
//! array:  one dimension `row`, a field per column
//! ```
//!
//! [`CsvFormat`] implements the format interface. Columns are `int64`, `float64`, `datetime64` or text, whichever holds every value
//! of the column exactly; empty values are null. Chunks are byte ranges of about the same size, each parsed again when it is read.
//!
//! | file | content |
//! |---|---|
//! | `rows` | rows and their values |
//! | `dialect` | separator and header |
//! | `column` | types of columns and their values |
//! | `table` | the first pass over a file |
//! | `array` | plan and decode |
#![forbid(unsafe_code)]

mod array;
mod column;
mod dialect;
mod format;
mod rows;
mod table;

/// The ID of the format.
pub const ID: &str = "csv";

pub use format::CsvFormat;
