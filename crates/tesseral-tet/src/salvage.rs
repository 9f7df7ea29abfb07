//! Opening of the intact part of a truncated or damaged file.
//!
//! Superblock, directory and index are required. Everything else can be missing. A chunk is intact if its row is valid and its
//! bytes are inside the file; digests and codecs verify the bytes when they are read.

use std::sync::Arc;

use tesseral_core::{Error, Finding, Result, TouchedChunk};
use tesseral_format::{Column, OpenOptions, Salvage};
use tesseral_store::Store;

use crate::array::TetArray;
use crate::layout::{Digests, FileLayout, RowScan, find_digests, read_footer, read_head};
use crate::open::{TetCatalog, TetContainer};
use crate::package;
use crate::plan::{plan_chunk, row_offset};
use crate::source::FileBytes;

/// Opens the intact part.
pub(crate) fn salvage(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
    let name = package::locate(&store)?;
    let source = FileBytes::open(&store, &name)?;
    let limits = options.limits;
    let head = read_head(&source, &limits).map_err(|f| f.error)?;
    let mut findings = Vec::new();
    let footer = if head.superblock.has_footer() {
        // A footer with a digest mismatch is used, but reported.
        let read = read_footer(&source, head.end, &limits, options.digests).or_else(|error| {
            findings.push(Finding::from_error("footer", &error));
            read_footer(&source, head.end, &limits, false)
        });
        read.ok()
    } else {
        None
    };
    let (footer, payload_len) = footer.map_or((None, source.len), |(footer, len)| (Some(footer), len));
    let mut digests = Digests::Absent;
    if options.digests {
        match find_digests(&source, &head, footer.as_ref(), payload_len) {
            Ok(Digests::Unusable { error, .. }) | Err(error) => {
                findings.push(Finding::from_error("digest_region", &error));
            }
            Ok(found) => digests = found,
        }
    }
    let RowScan { first_row, codecs, stored, .. } = RowScan::new(&head, payload_len);
    let (object, file_len) = (source.object.clone(), source.len);
    let layout =
        FileLayout { object, file_len, head, footer, payload_len, digests, first_row, codecs, stored };
    let catalog = Arc::new(TetCatalog::new(store, name, layout, limits, true));
    let whole = count_whole(&catalog, &mut findings);
    if whole == 0 && !catalog.layout.rows().is_empty() {
        let detail = format!("none of {} chunks is intact", catalog.layout.rows().len());
        return Err(Error::corrupt("the file", &catalog.layout.object, catalog.layout.head.end, detail));
    }
    Ok(Salvage { container: Arc::new(TetContainer::shared(catalog)), gaps_are_losses: true, findings })
}

/// Counts the intact chunks and lists the others.
fn count_whole(catalog: &Arc<TetCatalog>, findings: &mut Vec<Finding>) -> u64 {
    const LOST: &str = "chunk_lost";
    let layout = &catalog.layout;
    let index = layout.head.superblock.chunk_index_offset;
    let arrays: Vec<Option<TetArray>> = (0..layout.head.datasets.len())
        .map(|number| match TetArray::new(catalog, number) {
            Ok(array) => Some(array),
            Err(error) => {
                findings.push(Finding::from_error("dataset_tensor_bytes", &error));
                None
            }
        })
        .collect();
    let (mut whole, mut rows) = (vec![0_u64; arrays.len()], vec![0_u64; arrays.len()]);
    for (number, row) in layout.rows().iter().enumerate() {
        let dataset = usize::try_from(row.dataset_id.get()).unwrap_or(usize::MAX);
        let at = row_offset(index, number as u64);
        let Some(array) = arrays.get(dataset) else {
            let detail = format!("row {number}: unknown dataset {dataset}");
            findings
                .push(Finding::failed("chunk_dataset_ids", detail).at(at, crate::wire::chunk_index::ROW_LEN));
            continue;
        };
        // All chunks of an invalid array are lost.
        let Some(array) = array else { continue };
        rows[dataset] += 1;
        let coords = row.coords(array.grid.rank());
        let lost = if array.grid.contains(&coords) {
            let (linear, region) = (array.grid.linear(&coords), &array.grid.region(&coords));
            let chunk = TouchedChunk { coords: &coords, linear, region };
            plan_chunk(array, &chunk, &[Column::Field(0)]).err()
        } else {
            let detail = format!("row {number}: chunk coordinates outside the grid");
            Some(Error::corrupt("chunk index row", &layout.object, at, detail))
        };
        match lost {
            None => whole[dataset] += 1,
            Some(error) => findings.push(Finding::from_error(LOST, &array.name_chunk(error, &coords))),
        }
    }
    for (array, rows) in arrays.iter().zip(&rows).filter_map(|(array, rows)| Some((array.as_ref()?, rows))) {
        let total = array.grid.total();
        if *rows < total {
            let detail = format!("{} of {total} chunks have no row in the index", total - rows);
            findings.push(Finding::failed(LOST, detail).in_array(&array.schema.name));
        }
    }
    whole.iter().sum()
}
