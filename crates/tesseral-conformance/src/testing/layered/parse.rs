//! Parsing the directory. Parsed values are validated: parts lie inside the file and match the size of their cells, and every
//! chunk that the region of a layer intersects is present once.

use std::sync::Arc;

use tesseral_core::{ChunkGrid, Coords, Error, Limits, Result, Selection};
use tesseral_format::Format;
use tesseral_store::{Store, StoreExt};

use super::{Chunk, Extent, LayeredArray, LayeredFormat, StoredLayer};
use crate::testing::coding::{Coding, ColumnCoding};
use crate::testing::container::TestContainer;
use crate::testing::wire::{DirectoryParser, HEADER, TestDirectory};

pub(super) fn container(
    store: Arc<dyn Store>,
    directory: &TestDirectory,
    limits: &Limits,
) -> Result<TestContainer<LayeredArray>> {
    let object = store.describe("");
    let mut reader = DirectoryParser::new(directory, &object);
    let attributes = reader.attributes()?;
    let count = reader.count(20, "arrays")?;
    let arrays = (0..count)
        .map(|_| array(&mut reader, directory.file, limits).map(Arc::new))
        .collect::<Result<Vec<_>>>()?;
    reader.finish()?;
    let layers: Vec<usize> = arrays.iter().map(|array| array.layers.len()).collect();
    let details = serde_json::json!({ "layers": layers });
    let format = LayeredFormat.id();
    Ok(TestContainer { format, store, arrays, attributes, details })
}

fn array(reader: &mut DirectoryParser<'_>, file: u64, limits: &Limits) -> Result<LayeredArray> {
    let schema = reader.schema()?;
    if schema.sparse {
        return Err(reader.corrupt("schema", "sparse").in_array(&schema.name));
    }
    let grid = schema.grid().map_err(|e| reader.corrupt("schema", e.to_string()).in_array(&schema.name))?;
    let layouts: Vec<ColumnCoding> = schema.fields.iter().map(ColumnCoding::from_field).collect();
    let mut layers = Vec::new();
    for _ in 0..reader.count(5, "layers")? {
        let layer = layer(reader, &grid, &layouts, file, limits);
        layers.push(layer.map_err(|e| e.in_array(&schema.name))?);
    }
    Ok(LayeredArray { schema, grid, layers, limits: *limits })
}

fn layer(
    reader: &mut DirectoryParser<'_>,
    grid: &ChunkGrid,
    layouts: &[ColumnCoding],
    file: u64,
    limits: &Limits,
) -> Result<StoredLayer> {
    let cover = reader.region(grid.rank(), "layer region")?;
    if !tesseral_core::Region::from_shape(grid.shape()).contains(&cover) {
        return Err(reader.corrupt("layer region", format!("{cover:?} exceeds the array")));
    }
    let extent = match reader.u8("extent")? {
        0 => Extent::Full,
        1 => Extent::Clipped,
        2 => Extent::Tight,
        other => return Err(reader.corrupt("extent", format!("unknown extent {other}"))),
    };
    let mut codings = Vec::with_capacity(layouts.len());
    for _ in layouts {
        let (bits, granule) = (reader.u8("coding")?, reader.u32("granule")?);
        codings.push(
            Coding::from_bits(bits, granule)
                .ok_or_else(|| reader.corrupt("coding", format!("unknown coding {bits}")))?,
        );
    }
    let count = reader.count(grid.rank() * 8 + 1, "chunks")?;
    let mut layer = StoredLayer { cover, extent, codings, chunks: Vec::with_capacity(count) };
    let mut touched = grid.touched(&Selection::from_region(&layer.cover));
    let expected = if layer.cover.is_empty() { 0 } else { touched.remaining() };
    if expected != count as u64 {
        return Err(reader.corrupt("chunks", format!("expected {expected}, found {count}")));
    }
    for _ in 0..count {
        let coords = (0..grid.rank()).map(|_| reader.u64("chunk coordinates")).collect::<Result<Coords>>()?;
        if touched.next().as_ref() != Some(&coords) {
            return Err(reader.corrupt("chunk coordinates", "out of order").in_chunk(&coords));
        }
        let stored = layer.boxes(grid, &coords).and_then(|(_, stored)| stored.cells());
        let Some(cells) = stored else { return Err(Error::limit("cells of a tile", u64::MAX, u64::MAX - 1)) };
        let chunk = chunk(reader, coords, cells, layouts, file, limits)?;
        layer.chunks.push(chunk);
    }
    Ok(layer)
}

fn chunk(
    reader: &mut DirectoryParser<'_>,
    coords: Coords,
    cells: u64,
    layouts: &[ColumnCoding],
    file: u64,
    limits: &Limits,
) -> Result<Chunk> {
    let digest = reader.optional("digest", |r| Ok((r.u64("digest")?, r.u64("digest")?, r.u64("digest")?)))?;
    let mut bounds = (u64::MAX, 0);
    let mut fields = Vec::with_capacity(layouts.len());
    for layout in layouts {
        let mut parts = Vec::new();
        for role in layout.roles() {
            let (offset, len) = (reader.u64("part")?, reader.u64("part")?);
            let end = offset.checked_add(len).filter(|end| offset >= HEADER && *end <= file);
            let Some(end) = end else {
                let detail = format!("{len} bytes at {offset} exceed the file length {file}");
                return Err(reader.corrupt("part", detail).in_chunk(&coords));
            };
            if !layout.fits(role, cells, len) {
                let detail = format!("{len} bytes do not match {cells} cells");
                return Err(reader.corrupt("part", detail).in_chunk(&coords));
            }
            limits.check_chunk(len)?;
            bounds = (bounds.0.min(offset), bounds.1.max(end));
            parts.push((offset, len));
        }
        fields.push((parts, reader.stats(cells)?));
    }
    if digest.is_some_and(|(start, end, _)| start > bounds.0 || end < bounds.1 || end > file) {
        return Err(reader.corrupt("digest", "does not span the chunk's parts").in_chunk(&coords));
    }
    Ok(Chunk { coords, digest, fields })
}
