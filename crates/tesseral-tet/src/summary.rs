//! What a file holds, from its bytes alone.

use tesseral_core::{Coords, HistoryRow, Limits, Result};

use crate::layout::Layout;
use crate::source::Source;
use crate::wire::chunk_index::IndexHeader;
use crate::wire::directory::DatasetRecord;
use crate::wire::metadata::Metadata;
use crate::wire::superblock::Superblock;

/// One row of the chunk index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkSummary {
    /// Position of the dataset in the directory.
    pub dataset_id: u64,
    /// Grid coordinates, as many as the dataset has dimensions.
    pub coords: Coords,
    /// Where the payload begins.
    pub payload_offset: u64,
    /// Bytes once decoded.
    pub raw_byte_len: u64,
    /// Bytes as stored.
    pub stored_byte_len: u64,
    /// 0 raw, 1 zstd.
    pub codec: u32,
}

/// What a file holds: its catalog, history and metadata, without any payload.
///
/// ```
/// use tesseral_tet::Summary;
///
/// // The smallest file there is: a superblock that counts no dataset.
/// let mut file = b"TETR\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
/// file.extend(32_u64.to_le_bytes());
/// file.extend(0_u64.to_le_bytes());
/// let summary = Summary::parse(&file)?;
/// assert!(summary.datasets.is_empty());
/// assert!(Summary::parse(&file[..31]).is_err());
/// # Ok::<(), tesseral_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The first 32 bytes.
    pub superblock: Superblock,
    /// The header of the chunk index; all zeros in a file without datasets.
    pub index: IndexHeader,
    /// The directory.
    pub datasets: Vec<DatasetRecord>,
    /// The rows of the chunk index, in the order they are stored.
    pub chunks: Vec<ChunkSummary>,
    /// How the file came to be.
    pub history: Vec<HistoryRow>,
    /// What the footer says of the file and its datasets, inline or from the spill.
    pub metadata: Option<Metadata>,
    /// Length of the file.
    pub file_len: u64,
    /// One past the bytes that payloads may use.
    pub payload_len: u64,
}

impl Summary {
    /// Reads the catalog and footer out of a whole file, for example a mapped one. Payloads are not touched.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Limit`: what opening the file would give.
    pub fn parse(file: &[u8]) -> Result<Self> {
        let source = Source::slice(file);
        let layout = Layout::read(&source, &Limits::default(), true).map_err(|f| f.error)?;
        let rank = |dataset: u64| {
            let dataset = usize::try_from(dataset).ok().and_then(|d| layout.head.datasets.get(d));
            dataset.map_or(0, |dataset| dataset.shape.len())
        };
        let chunks = layout.rows().iter().map(|row| ChunkSummary {
            dataset_id: row.dataset_id.get(),
            coords: row.coords(rank(row.dataset_id.get())),
            payload_offset: row.payload_offset.get(),
            raw_byte_len: row.raw_byte_len.get(),
            stored_byte_len: row.stored_byte_len.get(),
            codec: row.codec.get(),
        });
        let chunks = chunks.collect();
        let history = layout.json().map_or(&[][..], |json| &json.history);
        Ok(Self {
            superblock: layout.head.superblock,
            index: layout.head.header,
            chunks,
            history: history.iter().map(|event| event.to_row()).collect(),
            metadata: layout.metadata().cloned(),
            file_len: layout.file_len,
            payload_len: layout.payload_len,
            datasets: layout.head.datasets,
        })
    }
}

/// What a `.tet` v1 file holds, by the name users of the format know. The same as [`Summary::parse`].
///
/// ```
/// let error = tesseral_tet::read_tet_summary_v1(b"not a .tet file, yet longer than 32 bytes").unwrap_err();
/// assert!(error.is_damage());
/// ```
///
/// # Errors
/// As [`Summary::parse`].
pub fn read_tet_summary_v1(file: &[u8]) -> Result<Summary> {
    Summary::parse(file)
}
