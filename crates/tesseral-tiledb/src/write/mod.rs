//! Writing: new arrays, and further fragments of arrays that exist.
//!
//! ```text
//! spec       from the array model to a schema          stats      minima, maxima, sums and null counts of a tile
//! tile       cells of one chunk to filtered tiles       fragment   tiles in order to the files of a fragment
//! array      the write of a box of a dense array        order      the global order of cells
//! sparse     the write of cells of a sparse array       create     a container of new arrays
//! append     a further fragment of an array that exists
//! switch     one fragment in place of several
//! edit       what else is done to an array: delete, evolve, consolidate, vacuum, commits
//! ```
//!
//! A fragment counts once its `.wrt` file is there, an array once its schema is: both are written last.

mod append;
mod array;
mod commits;
mod consolidate;
mod create;
mod delete;
mod edit;
mod evolve;
mod fragment;
pub(crate) mod names;
mod order;
mod sparse;
mod spec;
mod stats;
mod switch;
mod tile;
mod vacuum;

pub(crate) use append::TileDbAppender;
pub(crate) use create::TileDbWriter;
pub(crate) use edit::TileDbEditor;
pub(crate) use tile::cell_of;
