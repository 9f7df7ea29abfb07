//! Zone maps: minimum and maximum of each chunk, as JSON before the footer (`docs/formats/tet.md` §7).

use std::borrow::Cow;

use serde::Deserialize;
use tesseral_core::{Error, Result};

use super::chunk_index::IndexRow;
use super::directory::DatasetRecord;
use super::json::{JsonObject, depth, hex_into, write_hex};

/// The supported version.
pub const VERSION: u64 = 1;

const WHAT: &str = "zone maps";

/// Zone map of one chunk. A cell is null if it equals the declared fill, bit for bit, or is NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Number of cells of the chunk.
    pub element_count: u64,
    /// Number of null cells.
    pub null_count: u64,
    /// Minimum and maximum of the other cells as little-endian bytes, floats in IEEE total order; `None` if all are null.
    pub range: Option<ZoneRange>,
}

/// Two elements of at most eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRange {
    size: u8,
    min: [u8; 8],
    max: [u8; 8],
}

impl ZoneRange {
    /// Creates a pair from two elements of one size; `None` for unsupported sizes.
    pub fn new(min: &[u8], max: &[u8]) -> Option<Self> {
        let size = u8::try_from(min.len()).ok().filter(|n| (1..=8).contains(n) && min.len() == max.len())?;
        let mut range = Self { size, min: [0; 8], max: [0; 8] };
        range.min[..min.len()].copy_from_slice(min);
        range.max[..max.len()].copy_from_slice(max);
        Some(range)
    }

    /// The minimum.
    pub fn min(&self) -> &[u8] {
        &self.min[..usize::from(self.size)]
    }

    /// The maximum.
    pub fn max(&self) -> &[u8] {
        &self.max[..usize::from(self.size)]
    }
}

/// The file of a package's generation before its zone maps were added, which their text names. All zeros outside packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedImage {
    /// Number of the generation.
    pub generation: u64,
    /// SHA-256 of the file as it would be without zone maps and secondary index.
    pub sha256: [u8; 32],
}

#[derive(Deserialize)]
struct ZoneMapText<'a> {
    version: u64,
    #[serde(borrow)]
    chunks: Vec<JsonObject<ZoneEntryText<'a>>>,
}

#[derive(Deserialize)]
struct ZoneEntryText<'a> {
    dataset_id: u64,
    chunk_index: Vec<u64>,
    element_count: u64,
    null_count: u64,
    #[serde(borrow, default)]
    min_le: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    max_le: Option<Cow<'a, str>>,
}

impl ZoneEntryText<'_> {
    fn zone(&self) -> Option<Zone> {
        let range = match (&self.min_le, &self.max_le) {
            (None, None) => None,
            (Some(min), Some(max)) => {
                let (mut low, mut high) = ([0; 8], [0; 8]);
                let (m, n) = (hex_into(min, &mut low)?, hex_into(max, &mut high)?);
                Some(ZoneRange::new(&low[..m], &high[..n])?)
            }
            _ => return None,
        };
        Some(Zone { element_count: self.element_count, null_count: self.null_count, range })
    }
}

/// Parses zone maps: one per row of the index; `None` for rows without a valid one.
///
/// # Errors
/// `Corrupt`, `Unsupported`. Zone maps are only used for speed: callers continue without them.
pub fn parse(
    text: &[u8],
    object: &str,
    at: u64,
    max_depth: usize,
    datasets: &[DatasetRecord],
    rows: &[IndexRow],
) -> Result<Vec<Option<Zone>>> {
    let corrupt = |detail: String| Error::corrupt(WHAT, object, at, detail);
    if depth(text) > max_depth {
        return Err(corrupt(format!("nested more than {max_depth} levels deep")));
    }
    let JsonObject(text) =
        serde_json::from_slice::<JsonObject<ZoneMapText<'_>>>(text).map_err(|e| corrupt(e.to_string()))?;
    if text.version != VERSION {
        return Err(Error::unsupported(format!(".tet zone maps version {}", text.version)));
    }
    if text.chunks.len() != rows.len() {
        return Err(corrupt(format!("{} entries for {} chunks", text.chunks.len(), rows.len())));
    }
    let zones = text.chunks.iter().zip(rows).map(|(JsonObject(entry), row)| {
        let rank = datasets.get(usize::try_from(row.dataset_id.get()).ok()?)?.shape.len();
        let same = entry.dataset_id == row.dataset_id.get()
            && entry.chunk_index.len() == rank
            && entry.chunk_index.iter().zip(&row.chunk_index).all(|(a, b)| *a == b.get());
        if same { entry.zone() } else { None }
    });
    Ok(zones.collect())
}

/// Appends the text before the first entry.
pub fn write_start(image: &PackedImage, out: &mut Vec<u8>) {
    let generation = image.generation;
    let start =
        format!("{{\n  \"version\": {VERSION},\n  \"generation\": {generation},\n  \"packed_sha256\": \"");
    out.extend(start.as_bytes());
    write_hex(&image.sha256, out);
    out.extend(b"\",\n  \"chunks\": [");
}

/// Appends one entry; `first` is true for the first one.
pub fn write_entry(first: bool, dataset: u64, coords: &[u64], zone: &Zone, out: &mut Vec<u8>) {
    out.extend(if first { &b"\n    {"[..] } else { &b",\n    {"[..] });
    out.extend(format!("\n      \"dataset_id\": {dataset},\n      \"chunk_index\": [").as_bytes());
    for (i, c) in coords.iter().enumerate() {
        out.extend(format!("{}\n        {c}", if i == 0 { "" } else { "," }).as_bytes());
    }
    let Zone { element_count, null_count, range } = zone;
    let counts =
        format!("\n      ],\n      \"element_count\": {element_count},\n      \"null_count\": {null_count}");
    out.extend(counts.as_bytes());
    if let Some(range) = range {
        for (name, bytes) in [("min_le", range.min()), ("max_le", range.max())] {
            out.extend(format!(",\n      \"{name}\": \"").as_bytes());
            write_hex(bytes, out);
            out.push(b'"');
        }
    }
    out.extend(b"\n    }");
}

/// Appends the text after the last entry; `empty` is true if there was none.
pub fn write_end(empty: bool, out: &mut Vec<u8>) {
    out.extend(if empty { &b"]\n}\n"[..] } else { &b"\n  ]\n}\n"[..] });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::Coords;

    #[test]
    fn round_trips() {
        let image = PackedImage { generation: 3, sha256: [0xab; 32] };
        let coords = |n: &[u64]| Coords::from_slice(n);
        let datasets = [DatasetRecord {
            name: "a".into(),
            dtype: 1,
            reserved: 0,
            shape: coords(&[4, 1]),
            chunk_shape: coords(&[2, 1]),
        }];
        let rows = [IndexRow::new(0, &[0, 0], 0, 8, 8, 0), IndexRow::new(0, &[1, 0], 0, 8, 8, 0)];
        let zones = [
            Zone { element_count: 2, null_count: 1, range: ZoneRange::new(&[0, 0, 128, 63], &[0, 0, 0, 64]) },
            Zone { element_count: 2, null_count: 2, range: None },
        ];
        let mut text = Vec::new();
        write_start(&image, &mut text);
        for (i, zone) in zones.iter().enumerate() {
            write_entry(i == 0, 0, &rows[i].coords(2), zone, &mut text);
        }
        write_end(false, &mut text);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let mut pretty = serde_json::to_vec_pretty(&value).unwrap();
        pretty.push(b'\n');
        assert_eq!(String::from_utf8(text.clone()), String::from_utf8(pretty));
        let read = parse(&text, "f", 0, 64, &datasets, &rows).unwrap();
        assert_eq!(read, zones.map(Some));
        // An entry for another chunk is ignored.
        let swapped = [rows[1], rows[0]];
        assert_eq!(parse(&text, "f", 0, 64, &datasets, &swapped).unwrap(), [None, None]);
        assert!(parse(&text, "f", 0, 64, &datasets, &rows[..1]).is_err());

        let mut empty = Vec::new();
        write_start(&PackedImage::default(), &mut empty);
        write_end(true, &mut empty);
        assert_eq!(parse(&empty, "f", 0, 64, &[], &[]).unwrap(), []);
    }
}
