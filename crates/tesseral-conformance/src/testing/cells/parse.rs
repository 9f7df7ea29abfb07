//! Parsing and validating the directory.

use std::cmp::Ordering;
use std::sync::Arc;

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Limits, Result};
use tesseral_store::{Store, StoreExt};

use super::{CellsArray, CellsFormat, Chunk, StoredLayer, columns};
use crate::testing::coding::{Coding, ColumnCoding};
use crate::testing::container::TestContainer;
use crate::testing::wire::{DirectoryParser, HEADER, TestDirectory};
use tesseral_format::{Column, Delete, Format};

/// Comparison operators by code.
pub(super) const OPS: [Op; 6] = [Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Eq, Op::Ne];

pub(super) fn container(
    store: Arc<dyn Store>,
    directory: &TestDirectory,
    limits: &Limits,
) -> Result<TestContainer<CellsArray>> {
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
    let format = CellsFormat.id();
    Ok(TestContainer { format, store, arrays, attributes, details })
}

fn array(reader: &mut DirectoryParser<'_>, file: u64, limits: &Limits) -> Result<CellsArray> {
    let schema = reader.schema()?;
    if !schema.sparse || schema.dims.is_empty() {
        return Err(reader
            .corrupt("schema", "array is not sparse or has no dimensions")
            .in_array(&schema.name));
    }
    if schema.dims.iter().any(|dim| dim.dtype.size().is_none()) {
        return Err(reader.corrupt("schema", "dimension of bitmask dtype").in_array(&schema.name));
    }
    let mut deletes = Vec::new();
    for _ in 0..reader.count(22, "deletes")? {
        let (timestamp, layer) = (reader.u64("delete")?, reader.u32("delete")?);
        let name = reader.text("delete")?.to_owned();
        let known =
            schema.fields.iter().any(|f| f.name == name) || schema.dims.iter().any(|d| d.name == name);
        let op = OPS.get(usize::from(reader.u8("delete")?)).copied().filter(|_| known);
        let op = op.ok_or_else(|| reader.corrupt("delete", "unknown name or comparison"))?;
        let condition = Condition::Compare { name, op, value: reader.scalar("delete")? };
        deletes.push(Delete { timestamp, condition, layer });
    }
    let mut layers = Vec::new();
    for _ in 0..reader.count(10, "layers")? {
        let layer = layer(reader, &schema, file, limits);
        layers.push(layer.map_err(|e| e.in_array(&schema.name))?);
    }
    Ok(CellsArray { schema, deletes, layers, limits: *limits })
}

fn layer(
    reader: &mut DirectoryParser<'_>,
    schema: &ArraySchema,
    file: u64,
    limits: &Limits,
) -> Result<StoredLayer> {
    let times = reader.flag("timestamps")?;
    let (bits, granule) = (reader.u8("coding")?, reader.u32("granule")?);
    let coding = Coding::from_bits(bits, granule)
        .ok_or_else(|| reader.corrupt("coding", format!("unknown coding {bits}")))?;
    let columns = columns(schema, times);
    let count = reader.count(30, "chunks")?;
    let chunks = (0..count)
        .map(|i| chunk(reader, schema, &columns, file, limits).map_err(|e| e.in_chunk(&[i as u64])))
        .collect::<Result<_>>()?;
    Ok(StoredLayer { times, coding, chunks })
}

fn chunk(
    reader: &mut DirectoryParser<'_>,
    schema: &ArraySchema,
    columns: &[(Column, ColumnCoding)],
    file: u64,
    limits: &Limits,
) -> Result<Chunk> {
    let cells = reader.u64("cells")?;
    let mut bounds = Vec::with_capacity(schema.dims.len());
    for dim in &schema.dims {
        let (low, high) = (reader.scalar("bounds")?, reader.scalar("bounds")?);
        let ordered = low.compare(&high).is_some_and(Ordering::is_le);
        if cells == 0 || low.dtype() != dim.dtype || high.dtype() != dim.dtype || !ordered {
            return Err(reader.corrupt("bounds", "empty chunk, wrong dtype or wrong order"));
        }
        bounds.push((low, high));
    }
    let digest = reader.optional("digest", |r| Ok((r.u64("digest")?, r.u64("digest")?, r.u64("digest")?)))?;
    let mut spanned = (u64::MAX, 0);
    let mut stored = Vec::with_capacity(columns.len());
    for (column, layout) in columns {
        let mut parts = Vec::new();
        for role in layout.roles() {
            let (offset, len) = (reader.u64("part")?, reader.u64("part")?);
            let end = offset.checked_add(len).filter(|end| offset >= HEADER && *end <= file);
            let Some(end) = end.filter(|_| layout.fits(role, cells, len)) else {
                let detail = format!("{len} bytes at {offset} do not match {cells} cells of {column:?}");
                return Err(reader.corrupt("part", detail));
            };
            limits.check_chunk(len)?;
            spanned = (spanned.0.min(offset), spanned.1.max(end));
            parts.push((offset, len));
        }
        stored.push(parts);
    }
    if digest.is_some_and(|(start, end, _)| start > spanned.0 || end < spanned.1 || end > file) {
        return Err(reader.corrupt("digest", "does not span the chunk's parts"));
    }
    let stats = schema.fields.iter().map(|_| reader.stats(cells)).collect::<Result<_>>()?;
    Ok(Chunk { cells, bounds, digest, columns: stored, stats })
}
