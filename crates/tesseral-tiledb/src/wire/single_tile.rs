//! Fragment metadata of versions 1 and 2: one generic tile with everything, without a footer.
//!
//! ```text
//! u32 version │ u64 bytes, non-empty domain │ u64 count, boxes of tiles │ u64 count, first and last coordinates of tiles (unused)
//! per attribute, then coordinates: u64 count, tile offsets │ per attribute: u64 count, offsets of variable-length data
//! per attribute: u64 count, sizes of variable-length data │ u64 cells of the last tile
//! file sizes per attribute, then coordinates │ sizes of variable-length files per attribute
//! ```

use tesseral_core::{Cursor, Result};

use super::footer::Footer;
use super::schema::{Schema, StoredRange, ranges};

/// Data that later versions store in separate sections.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSections {
    /// Tile offsets, offsets of variable-length data and their sizes, each by slot.
    pub lists: [Vec<Vec<u64>>; 3],
    /// One box per tile of a sparse fragment.
    pub boxes: Vec<Vec<StoredRange>>,
}

/// Parses what follows the version.
pub(super) fn parse(cursor: &mut Cursor<'_>, version: u32, schema: &Schema) -> Result<Footer> {
    let attributes = schema.attributes.len();
    let domain = match cursor.u64("the non-empty domain")? {
        0 => None,
        _ => Some(ranges(cursor, &schema.dims, "the non-empty domain")?),
    };
    let size = schema.dims.iter().map(|dim| 2 * dim.datatype.size()).sum();
    let count = cursor.u64("the boxes of tiles")?;
    let count = cursor.count(count, size, "the boxes of tiles")?;
    let boxes =
        (0..count).map(|_| ranges(cursor, &schema.dims, "the box of a tile")).collect::<Result<Vec<_>>>()?;
    let count = cursor.u64("the ends of tiles")?;
    let bytes = cursor.count(count, size, "the ends of tiles")?.saturating_mul(size);
    cursor.take(bytes, "the ends of tiles")?;
    let mut lists = |slots: usize, what: &str| -> Result<Vec<Vec<u64>>> {
        let mut lists = Vec::new();
        for _ in 0..slots {
            let count = cursor.u64(what)?;
            lists.push(cursor.u64s(count, what)?);
        }
        // Coordinates are not variable-length.
        lists.resize(attributes + 1, Vec::new());
        Ok(lists)
    };
    let lists = [
        lists(attributes + 1, "the tile offsets")?,
        lists(attributes, "the offsets of variable-length tiles")?,
        lists(attributes, "the sizes of variable-length tiles")?,
    ];
    let last_tile_cells = cursor.u64("the cells of the last tile")?;
    let values = cursor.u64s(attributes as u64 + 1, "the file sizes")?;
    let mut var = cursor.u64s(attributes as u64, "the var file sizes")?;
    var.push(0);
    cursor.finish("the fragment's metadata")?;
    // A dense fragment has no file of coordinates.
    let dense = values.last() == Some(&0);
    let tiles = if dense { 0 } else { boxes.len() as u64 };
    Ok(Footer {
        version,
        schema: super::ONLY_SCHEMA.to_owned(),
        dense,
        domain,
        tiles,
        last_tile_cells,
        timestamps: false,
        deletes: false,
        files: [values, var, vec![0; attributes + 1]],
        rtree: 0,
        lists: Vec::new(),
        statistics: None,
        conditions: None,
        loaded: Some(Box::new(LoadedSections { lists, boxes })),
    })
}

#[cfg(test)]
mod tests {
    use super::super::datatype::Datatype;
    use super::super::pipeline::FilterPipeline;
    use super::super::schema::{Attribute, CellLayout, StoredDimension};
    use super::*;

    fn schema() -> Schema {
        let pipeline = FilterPipeline::default;
        let ends = |low: i32, high: i32| (low.to_le_bytes().to_vec(), high.to_le_bytes().to_vec());
        Schema {
            version: 2,
            duplicates: false,
            sparse: true,
            tile_order: CellLayout::RowMajor,
            cell_order: CellLayout::RowMajor,
            capacity: 2,
            coords: pipeline(),
            offsets: pipeline(),
            validity: pipeline(),
            dims: vec![StoredDimension {
                name: "x".into(),
                datatype: Datatype::new(0).unwrap(),
                var: false,
                pipeline: pipeline(),
                domain: Some(ends(0, 99)),
                extent: Some(10_i32.to_le_bytes().to_vec()),
            }],
            attributes: vec![Attribute {
                name: "a".into(),
                datatype: Datatype::new(0).unwrap(),
                values: 1,
                pipeline: pipeline(),
                fill: vec![0; 4],
                nullable: false,
                fill_valid: false,
                order: 0,
                enumeration: None,
            }],
            labels: Vec::new(),
            enumerations: Vec::new(),
            current_domain: None,
        }
    }

    /// Metadata of a fragment of one tile with the cells 3 and 7.
    fn metadata() -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        let ends: Vec<u8> = [3_i32, 7].iter().flat_map(|n| n.to_le_bytes()).collect();
        // The domain, the boxes, the ends of tiles.
        for count in [8_u64, 1, 1] {
            bytes.extend(count.to_le_bytes());
            bytes.extend(&ends);
        }
        // Tile offsets of attribute and coordinates, no variable-length data, cells of the last tile, file sizes.
        for number in [1_u64, 0, 1, 0, 0, 0, 2, 28, 28, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn parses_metadata() {
        let footer = Footer::parse("whole", &metadata(), &schema()).unwrap();
        assert_eq!((footer.tiles, footer.last_tile_cells, footer.dense), (1, 2, false));
        assert_eq!(footer.files, [vec![28, 28], vec![0, 0], vec![0, 0]]);
        assert_eq!(footer.loaded.unwrap().lists[0], [vec![0], vec![0]]);
    }

    #[test]
    fn truncated_and_changed_metadata_is_rejected_or_parsed() {
        let (whole, schema) = (metadata(), schema());
        for len in 0..whole.len() {
            Footer::parse("truncated", &whole[..len], &schema).unwrap_err();
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = Footer::parse("changed", &changed, &schema);
            }
        }
    }
}
