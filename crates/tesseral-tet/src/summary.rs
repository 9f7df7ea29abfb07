//! Summary of a file, parsed from its bytes.

use tesseral_core::{Coords, HistoryRow, Limits, Result};

use crate::layout::FileLayout;
use crate::source::FileBytes;
use crate::wire::chunk_index::IndexHeader;
use crate::wire::directory::DatasetRecord;
use crate::wire::metadata::FooterMetadata;
use crate::wire::superblock::Superblock;

/// One row of the chunk index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkSummary {
    /// Index of the dataset in the directory.
    pub dataset_id: u64,
    /// Grid coordinates, one per dimension of the dataset.
    pub coords: Coords,
    /// Offset of the payload.
    pub payload_offset: u64,
    /// Decoded size in bytes.
    pub raw_byte_len: u64,
    /// Stored size in bytes.
    pub stored_byte_len: u64,
    /// Codec number: 0 raw, 1 zstd.
    pub codec: u32,
}

/// Content of a file: catalog, history and metadata, without payloads.
///
/// ```
/// use tesseral_tet::TetSummary;
///
/// // The smallest valid file: a superblock with zero datasets.
/// let mut file = b"TETR\x01\0\0\0\0\0\0\0\0\0\0\0".to_vec();
/// file.extend(32_u64.to_le_bytes());
/// file.extend(0_u64.to_le_bytes());
/// let summary = TetSummary::parse(&file)?;
/// assert!(summary.datasets.is_empty());
/// assert!(TetSummary::parse(&file[..31]).is_err());
/// # Ok::<(), tesseral_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TetSummary {
    /// The superblock.
    pub superblock: Superblock,
    /// The header of the chunk index; all zeros in a file without datasets.
    pub index: IndexHeader,
    /// Records of the directory.
    pub datasets: Vec<DatasetRecord>,
    /// The rows of the chunk index in stored order.
    pub chunks: Vec<ChunkSummary>,
    /// Provenance rows.
    pub history: Vec<HistoryRow>,
    /// Metadata of the footer, inline or from the spill.
    pub metadata: Option<FooterMetadata>,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// End of the bytes available for payloads.
    pub payload_len: u64,
}

impl TetSummary {
    /// Parses catalog and footer of a complete file, for example a memory-mapped one. Does not access payloads.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`, `Limit`, as for opening the file.
    pub fn parse(file: &[u8]) -> Result<Self> {
        let source = FileBytes::slice(file);
        let layout = FileLayout::read(&source, &Limits::default(), true).map_err(|f| f.error)?;
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

/// Parses the content of a `.tet` v1 file. The same as [`TetSummary::parse`], under the reference's name.
///
/// ```
/// let error = tesseral_tet::read_tet_summary_v1(b"not a .tet file, yet longer than 32 bytes").unwrap_err();
/// assert!(error.is_damage());
/// ```
///
/// # Errors
/// As [`TetSummary::parse`].
pub fn read_tet_summary_v1(file: &[u8]) -> Result<TetSummary> {
    TetSummary::parse(file)
}
