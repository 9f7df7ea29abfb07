//! Packed fields as physical values, bitmasks as Booleans: an array source that unpacks what another decodes.
//!
//! Missing cells become nulls, so that callers need to know neither the packing nor the declarations.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::calendar::TimeUnits;
use tesseral_core::packing::{Packing, packing};
use tesseral_core::{ArraySchema, ChunkStats, DType, Error, Field, Result, Scalar, Stat, alloc, missing};
use tesseral_format::{
    Access, ArraySource, Column, ColumnMut, Planned, PlannedChunk, Request, Scratch, SourceLayer, StoredForm,
};
use tesseral_store::Rounds;

use crate::missing as cells;

/// Attributes that describe stored values of a packed field.
const STORED_ATTRIBUTES: [&str; 9] = [
    "_FillValue",
    "missing_value",
    "fill_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "valid_min",
    "valid_max",
    "valid_range",
];

/// An array whose packed fields hold physical values.
#[derive(Debug)]
pub(crate) struct PhysicalSource {
    inner: Arc<dyn ArraySource>,
    schema: ArraySchema,
    /// By field.
    unpackings: Vec<Option<Unpacking>>,
}

/// How the cells of a field are unpacked.
#[derive(Clone, Debug)]
enum Unpacking {
    /// Stored numbers represent other numbers.
    Numbers(Packing),
    /// One bit for each cell, most significant bit first.
    Bits,
}

impl Unpacking {
    fn new(schema: &ArraySchema, field: &Field) -> Option<Self> {
        if field.dtype == DType::Bitmask {
            return Some(Self::Bits);
        }
        packing(schema, field).map(Self::Numbers)
    }

    fn physical(&self) -> DType {
        match self {
            Self::Numbers(packing) => packing.physical,
            Self::Bits => DType::Bool,
        }
    }

    fn value(&self, stored: &Scalar) -> Option<Scalar> {
        match self {
            Self::Numbers(packing) => packing.value(stored),
            Self::Bits => None,
        }
    }

    /// Bytes of a number of stored cells.
    fn stored_bytes(&self, cells: usize) -> Option<usize> {
        match self {
            Self::Numbers(packing) => cells.checked_mul(packing.stored.size()?),
            Self::Bits => Some(cells.div_ceil(8)),
        }
    }

    fn unpack(&self, stored: &[u8], physical: &mut [u8]) {
        match self {
            Self::Numbers(packing) => packing.unpack(stored, physical),
            Self::Bits => {
                for (cells, byte) in physical.chunks_mut(8).zip(stored) {
                    cells.iter_mut().enumerate().for_each(|(i, cell)| *cell = byte >> (7 - i) & 1);
                }
            }
        }
    }
}

impl PhysicalSource {
    /// The array with physical values; `None` when no field is packed or a bitmask.
    pub(crate) fn new(inner: &Arc<dyn ArraySource>) -> Option<Self> {
        let mut schema = inner.schema().clone();
        let unpackings: Vec<Option<Unpacking>> =
            schema.fields.iter().map(|field| Unpacking::new(&schema, field)).collect();
        if unpackings.iter().all(Option::is_none) {
            return None;
        }
        let mut stored = Vec::new();
        for (field, unpacking) in schema.fields.iter_mut().zip(&unpackings) {
            if let Some(unpacking) = unpacking {
                field.fill = field.fill.as_ref().and_then(|fill| unpacking.value(fill));
                field.dtype = unpacking.physical();
                field.nullable |= !field.missing.is_empty();
                field.missing.clear();
                stored.push(field.name.clone());
            }
        }
        // Attributes that describe stored values do not apply to physical ones.
        for (name, key) in stored.iter().flat_map(|name| STORED_ATTRIBUTES.iter().map(move |key| (name, key)))
        {
            if let Some((attribute, _)) = missing::attribute(&schema, name, key) {
                schema.attributes.shift_remove(&attribute);
            }
        }
        for i in 0..schema.fields.len() {
            schema.fields[i].time = TimeUnits::of_field(&schema, &schema.fields[i]);
        }
        Some(Self { inner: Arc::clone(inner), schema, unpackings })
    }

    /// The packings of packed fields, by name.
    pub(crate) fn packings(&self) -> Vec<(String, Packing)> {
        let fields = self.schema.fields.iter().zip(&self.unpackings);
        let packed = fields.filter_map(|(field, unpacking)| match unpacking {
            Some(Unpacking::Numbers(packing)) => Some((field.name.clone(), packing.clone())),
            _ => None,
        });
        packed.collect()
    }

    fn unpacking(&self, column: Column) -> Option<(usize, &Unpacking)> {
        let Column::Field(field) = column else { return None };
        let field = usize::from(field);
        self.unpackings.get(field)?.as_ref().map(|unpacking| (field, unpacking))
    }
}

impl SourceLayer for PhysicalSource {
    fn inner(&self) -> &dyn ArraySource {
        &*self.inner
    }

    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        let unpacked = request.columns.iter().any(|column| self.unpacking(*column).is_some());
        self.inner.plan(request, rounds)?.and_then(|mut plan| {
            for chunk in plan.chunks.iter_mut().filter(|_| unpacked) {
                // Stored bytes are no longer cells, but each can still be unpacked separately.
                if let Access::Direct { .. } = chunk.access {
                    chunk.access = Access::Coded { granule: Some(1) };
                }
            }
            Ok(plan)
        })
    }

    fn portion(&self, request: &Request) -> Result<Option<Arc<dyn ArraySource>>> {
        let portion = self.inner.portion(request)?;
        Ok(portion.map(|inner| {
            let (schema, unpackings) = (self.schema.clone(), self.unpackings.clone());
            Arc::new(Self { inner, schema, unpackings }) as Arc<dyn ArraySource>
        }))
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let stats = self.inner.stats(chunk, column);
        let Some((field, unpacking)) = self.unpacking(column) else { return stats };
        let stats = cells::statistics(&self.inner.schema().fields[field], stats);
        let Unpacking::Numbers(packing) = unpacking else {
            let (min, max) = (Stat::Absent, Stat::Absent);
            return ChunkStats {
                min,
                max,
                sum: Stat::Absent,
                partial_sum: None,
                missing: Vec::new(),
                ..stats
            };
        };
        // Unpacking keeps the order of values, also where it rounds.
        let value = |stat: Stat<Scalar>| match stat {
            Stat::Exact(value) => packing.value(&value).map_or(Stat::Absent, Stat::Exact),
            Stat::Bound(value) => packing.value(&value).map_or(Stat::Absent, Stat::Bound),
            Stat::Absent => Stat::Absent,
        };
        let (min, max) = match packing.reverses() {
            None => (Stat::Absent, Stat::Absent),
            Some(false) => (value(stats.min), value(stats.max)),
            Some(true) => (value(stats.max), value(stats.min)),
        };
        ChunkStats { min, max, sum: Stat::Absent, partial_sum: None, missing: Vec::new(), ..stats }
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        self.unpacking(column).is_none().then(|| self.inner.constant(chunk, column))?
    }

    /// Stored bytes are those of stored values.
    fn stored_form(&self, _chunk: &PlannedChunk) -> Option<StoredForm> {
        None
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some((field, unpacking)) = self.unpacking(column) else {
            return self.inner.decode(chunk, column, parts, cells, out, scratch);
        };
        let ColumnMut::Fixed { values, validity } = out else {
            return Err(Error::invalid("packed cells have one size"));
        };
        let stored_field = &self.inner.schema().fields[field];
        let count = usize::try_from(cells.end.saturating_sub(cells.start)).unwrap_or(usize::MAX);
        let bytes = unpacking.stored_bytes(count);
        let bytes = bytes.ok_or_else(|| Error::limit("a chunk's cells", u64::MAX, u64::MAX))?;
        let mut stored = alloc::zeroed("packed cells", bytes)?;
        let mut valid = stored_field.nullable.then(|| alloc::zeroed("packed cells", count)).transpose()?;
        let to = ColumnMut::Fixed { values: &mut stored, validity: valid.as_deref_mut() };
        self.inner.decode(chunk, column, parts, cells, to, scratch)?;
        if values.len() != count.saturating_mul(unpacking.physical().size().unwrap_or(1)) {
            return Err(Error::invalid("a decoder was given space of another size"));
        }
        unpacking.unpack(&stored, values);
        if let Some(validity) = validity {
            match cells::validity(stored_field, &stored, valid.as_deref(), None) {
                Some(found) => validity.copy_from_slice(&found),
                None => validity.fill(1),
            }
        }
        Ok(())
    }
}
