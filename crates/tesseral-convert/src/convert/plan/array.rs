//! One array of the target: variables of the same layout, and how their cells are rechunked.

use std::collections::HashSet;

use tesseral_core::schema::VariableRole;
use tesseral_core::{Error, Field, Result};
use tesseral_dataset::variable::merge;
use tesseral_engine::{Grids, RechunkPlan, check_pair, work_space};
use tesseral_format::ArraySpec;

use super::variable::{PlannedVariable, cell_bytes};
use crate::convert::feed::{CellFeed, FeedColumn, MissingPolicy};
use crate::convert::lossy;
use crate::convert::options::ConvertOptions;

/// One array to be written.
#[derive(Debug)]
pub(crate) struct PlannedArray {
    pub spec: ArraySpec,
    pub feed: CellFeed,
    pub rechunk: RechunkPlan,
    /// Error bounds of packed cells.
    pub bound: Option<lossy::ErrorBound>,
}

impl PlannedArray {
    /// Plans one array of one or several variables of the same layout. `memory` limits the cells that are held while they are rechunked;
    /// without it, a share of the `free` memory does.
    pub(super) fn new(
        variables: Vec<PlannedVariable>,
        prefix: &str,
        memory: Option<u64>,
        free: u64,
        threads: usize,
    ) -> Result<Self> {
        let named = variables.iter().map(|v| (v.name.as_str(), &v.schema.attributes));
        let attributes = merge(prefix, named.collect::<Vec<_>>());
        let mut variables = variables.into_iter();
        let Some(first) = variables.next() else {
            return Err(Error::internal("an array without variables"));
        };
        let PlannedVariable { mut schema, column, selection, mut source_chunk, bound, text, .. } = first;
        let mut columns = vec![column];
        for other in variables {
            schema.fields.extend(other.schema.fields);
            columns.push(other.column);
            for (extent, own) in source_chunk.iter_mut().zip(&other.source_chunk) {
                *extent = (*extent).max(*own);
            }
        }
        schema.attributes = attributes;
        let feed = CellFeed { columns, selection, pass_through: false };
        let grids = Grids {
            shape: feed.selection.shape(),
            from: source_chunk,
            to: schema.chunk_shape.clone().unwrap_or_default(),
            cell: schema.fields.iter().zip(&feed.columns).map(|(field, c)| held_bytes(field, c)).sum(),
        };
        let memory = memory.map_or_else(|| default_limit(&feed, &grids, free), Ok)?;
        let scratch = schema.fields.iter().all(|field| field.cell_size().is_some());
        let rechunk =
            RechunkPlan::new(grids, memory, threads, scratch).map_err(|e| e.in_array(&schema.name))?;
        let codecs = vec![Vec::new(); schema.fields.len()];
        Ok(Self { spec: ArraySpec { schema, codecs, text }, feed, rechunk, bound })
    }

    /// Returns whether stored chunks can be copied: cells are unchanged, and no other level is requested.
    pub(super) fn keeps_chunks(&self, options: &ConvertOptions) -> bool {
        let schema = &self.spec.schema;
        let [column] = self.feed.columns.as_slice() else { return false };
        let field = column.array.selected_field();
        let levels = options.codecs.iter().flatten().any(|codec| !codec.options.is_empty());
        let names: Vec<&str> = self.spec.codecs.iter().flatten().map(|codec| codec.name.as_str()).collect();
        let slices = self.feed.selection.slices().iter();
        !levels
            && !column.changes()
            && self.bound.is_none()
            && schema.fields[0].nullable == field.nullable
            && field.codecs.iter().map(String::as_str).eq(names.iter().copied())
            && column.array.schema().chunk_shape == schema.chunk_shape
            && slices
                .zip(&self.rechunk.grids.to)
                .all(|(slice, chunk)| slice.step == 1 && slice.start.is_multiple_of(*chunk))
    }
}

/// Bytes in memory for a cell of a field of the target.
fn held_bytes(field: &Field, column: &FeedColumn) -> u64 {
    // Converted cells are read into a separate buffer, with missing ones marked.
    let marks = u64::from(field.nullable || column.absent != MissingPolicy::Preserve);
    let own = if column.changes() { cell_bytes(column.array.selected_field()) } else { 0 };
    cell_bytes(field) + marks + own
}

/// Memory limit of rechunking if none is set: a chunk of either grid is accepted at any size.
fn default_limit(feed: &CellFeed, grids: &Grids, free: u64) -> Result<u64> {
    let Some(column) = feed.columns.first() else { return Ok(free) };
    let size = |chunk: &[u64]| {
        chunk.iter().zip(&grids.shape).fold(grids.cell, |n, (c, s)| n.saturating_mul((*c).min(*s)))
    };
    let least = size(&grids.from).saturating_add(size(&grids.to));
    let (handle, request) = (column.array.handle(), column.array.request(&feed.selection));
    check_pair(handle, &request, least)?;
    Ok(work_space(handle, &request, free)?.max(least.saturating_mul(4)))
}

/// Drops labels of dimensions whose coordinate variable is converted.
pub(super) fn drop_converted_labels(planned: &mut [PlannedVariable]) {
    let names: HashSet<String> =
        planned.iter().filter(|d| d.schema.role == VariableRole::Index).map(|d| d.name.clone()).collect();
    for PlannedVariable { schema, .. } in planned {
        let name = schema.name.clone();
        for dim in &mut schema.dims {
            let mut group = name.as_str();
            let converted = schema.role == VariableRole::Index
                || names.contains(&dim.name)
                || std::iter::from_fn(|| {
                    group = group.rsplit_once('/')?.0;
                    Some(group)
                })
                .any(|group| names.contains(&format!("{group}/{}", dim.name)));
            if converted {
                dim.labels = None;
            }
        }
    }
}

/// Returns whether all variables have the same dimensions and chunks, so that they can be fields of one array. Coordinates
/// next to data are separate variables.
pub(super) fn same_layout(planned: &[PlannedVariable]) -> bool {
    let Some((first, rest)) = planned.split_first() else { return false };
    let all_data = || planned.iter().all(|variable| variable.schema.role == VariableRole::Data);
    (rest.is_empty() || all_data())
        && rest.iter().all(|other| {
            other.schema.dims == first.schema.dims
                && other.schema.chunk_shape == first.schema.chunk_shape
                && other.selection == first.selection
        })
}
