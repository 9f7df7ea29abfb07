//! Writing of new arrays, and editing of existing ones.
//!
//! ```text
//! spec       array model to stored schema             stats      minima, maxima, sums and null counts of a tile
//! tile       cells of one chunk to filtered tiles       fragment   writing tiles in order to the files of a fragment
//! array      writing a region of a dense array        order      the global order of cells
//! sparse     writing cells of a sparse array          create     creation of a container
//! append     appending a fragment to an existing array
//! replace_fragments  atomic replacement of fragments
//! edit       edits of an array: delete, evolve, consolidate, vacuum, commits
//! ```
//!
//! A fragment is visible once its `.wrt` file exists, an array once its schema exists: both are written last.

mod append;
mod array;
mod commits;
mod consolidate;
mod create;
mod create_options;
mod delete;
mod edit;
mod evolve;
mod fragment;
mod label;
mod order;
mod replace_fragments;
mod sparse;
mod spec;
mod stats;
mod tile;
pub(crate) mod timestamped_name;
mod vacuum;

pub(crate) use append::TileDbAppender;
pub(crate) use create::TileDbWriter;
pub(crate) use create_options::OPTIONS as CREATE_OPTIONS;
pub use create_options::TileDbCreateOptions;
pub(crate) use edit::TileDbEditor;
pub(crate) use tile::cell_of;
