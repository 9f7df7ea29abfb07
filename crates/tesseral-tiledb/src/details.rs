//! Format-specific details of an array, as JSON.

use serde_json::{Value, json};
use tesseral_core::Scalar;
use tesseral_core::dtype::Class;
use tesseral_store::together;

use crate::array::TileDbArray;
use crate::fragment::Fragment;
use crate::open::TileDbContainer;
use crate::wire::schema::StoredRange;

pub(crate) fn details(container: &TileDbContainer) -> Value {
    match (&container.group, container.arrays.as_slice()) {
        (None, [array]) => array_details(array),
        (group, arrays) => {
            let members = group.iter().flat_map(|g| &g.members).map(|listed| {
                let kind = if listed.member.group { "group" } else { "array" };
                json!({
                    "name": listed.member.name,
                    "path": listed.name,
                    "uri": listed.member.uri,
                    "type": kind,
                    "state": listed.state.name(),
                })
            });
            let arrays =
                container.names.iter().zip(arrays).map(|(name, array)| (name.clone(), array_details(array)));
            json!({
                "type": "group",
                "members": members.collect::<Vec<_>>(),
                "arrays": arrays.collect::<serde_json::Map<_, _>>(),
            })
        }
    }
}

fn pair(array: &TileDbArray, dim: usize, range: &StoredRange) -> Value {
    let dtype = array.schema.dims[dim].dtype;
    let end = |bytes: &[u8]| Scalar::from_le_bytes(dtype, bytes).map_or(Value::Null, |s| number(&s));
    json!([end(&range.0), end(&range.1)])
}

/// Converts to a JSON number if that is exact, otherwise to text.
fn number(scalar: &Scalar) -> Value {
    match scalar.as_i128() {
        Some(n) if scalar.dtype().class() != Class::Time => i64::try_from(n)
            .map(Value::from)
            .or_else(|_| u64::try_from(n).map(Value::from))
            .unwrap_or(Value::Null),
        _ => match scalar
            .as_f64()
            .filter(|_| scalar.as_i128().is_none())
            .and_then(serde_json::Number::from_f64)
        {
            Some(number) => Value::Number(number),
            None => Value::String(scalar.to_string()),
        },
    }
}

fn fragment(array: &TileDbArray, fragment: &Fragment) -> Value {
    let cells = crate::versions::cells(fragment);
    let bytes = fragment.stored_bytes(&array.reader).ok();
    let domain = fragment.footer.domain.as_ref();
    let domain =
        domain.map(|ranges| ranges.iter().enumerate().map(|(d, r)| pair(array, d, r)).collect::<Vec<_>>());
    json!({
        "name": fragment.entry.name,
        "timestamps": [fragment.entry.start, fragment.entry.end],
        "version": fragment.footer.version,
        "schema": fragment.footer.schema,
        "cells": cells,
        "tiles": fragment.tiles,
        "bytes": bytes,
        "non_empty_domain": domain,
        "has_timestamps": fragment.footer.timestamps,
        "has_delete_metadata": fragment.footer.deletes,
        "digests": fragment.carries_digests().then_some("xxh3-64"),
        "statistics": statistics(array, fragment),
    })
}

/// Stored statistics of the fragment's attributes; null if they are absent or cannot be read.
fn statistics(array: &TileDbArray, fragment: &Fragment) -> Value {
    let Ok(slots) = fragment.statistics(&array.reader) else { return Value::Null };
    if slots.is_empty() {
        return Value::Null;
    }
    let attributes = fragment.schema.wire.attributes.iter().zip(&slots).map(|(attribute, slot)| {
        let dtype = attribute.datatype.dtype();
        // If a cell is NaN, minimum and maximum are unreliable, and the sum is NaN.
        let poisoned = dtype.class() == Class::Float && f64::from_bits(slot.sum).is_nan();
        let value = |bytes: &[u8]| match Scalar::from_le_bytes(dtype, bytes) {
            Ok(scalar) if !bytes.is_empty() && !poisoned => number(&scalar),
            _ => Value::Null,
        };
        let sum = match dtype.class() {
            _ if attribute.values != 1 => Value::Null,
            Class::Float => {
                serde_json::Number::from_f64(f64::from_bits(slot.sum)).map_or(Value::Null, Value::from)
            }
            Class::UInt | Class::Bool => Value::from(slot.sum),
            Class::Int | Class::Time => Value::from(slot.sum.cast_signed()),
            _ => Value::Null,
        };
        let nulls = if attribute.nullable { Value::from(slot.nulls) } else { Value::Null };
        let stats = json!({"min": value(&slot.min), "max": value(&slot.max), "sum": sum, "nulls": nulls});
        (attribute.name.clone(), stats)
    });
    Value::Object(attributes.collect())
}

/// Maximum number of fragments that details list; arrays of more report their number.
const LISTED: usize = 1000;

/// Returns the fragments and the box around them, or the error.
fn fragments(array: &TileDbArray, into: &mut Value) {
    let (mut rows, mut count) = (Vec::new(), 0_u64);
    let visited = array.fragments.visit_batches(&array.reader, |some| {
        count += some.len() as u64;
        let listed = &some[..some.len().min(LISTED - rows.len())];
        // Sizes and statistics are in a file of each fragment, if footers are consolidated.
        rows.extend(together(&*array.reader.store, listed, |f| fragment(array, f)));
        Ok(())
    });
    match visited.and_then(|()| array.outline()) {
        Ok(outline) => {
            into["fragment_count"] = count.into();
            into["fragments"] = rows.into();
            let pair = |(low, high): &(Scalar, Scalar)| json!([number(low), number(high)]);
            let domain = outline.domain.as_ref();
            into["non_empty_domain"] = json!(domain.map(|dims| dims.iter().map(pair).collect::<Vec<_>>()));
        }
        Err(error) => into["error"] = error.to_string().into(),
    }
}

fn array_details(array: &TileDbArray) -> Value {
    let wire = &array.current.wire;
    let names = |chain: &tesseral_codec::filter::Chain| chain.filters().map(|f| f.name()).collect::<Vec<_>>();
    let dims = wire.dims.iter().enumerate().map(|(d, dim)| {
        json!({
            "name": dim.name,
            "type": dim.datatype.name(),
            "domain": dim.domain.as_ref().map(|range| pair(array, d, range)),
            "tile": array.schema.dims[d].tile.as_ref().map(number),
            "filters": names(&array.current.dims[d].values),
        })
    });
    let attributes = wire.attributes.iter().map(|a| {
        json!({
            "name": a.name,
            "type": a.datatype.name(),
            "values_per_cell": if a.var() { Value::from("var") } else { Value::from(a.values) },
            "nullable": a.nullable,
            "order": (["unordered", "increasing", "decreasing"]).get(usize::from(a.order)),
            "enumeration": a.enumeration,
        })
    });
    let labels = wire.labels.iter().map(|l| {
        json!({"dimension": l.dim, "name": l.name, "uri": l.uri, "type": l.datatype.name(), "attribute": l.attribute})
    });
    let domain = |ranges: &Vec<StoredRange>| {
        ranges.iter().enumerate().map(|(d, r)| pair(array, d, r)).collect::<Vec<_>>()
    };
    let domains =
        array.schema.dims.iter().map(|d| d.domain.as_ref().map(|(a, b)| json!([number(a), number(b)])));
    let mut out = json!({
        "type": "array",
        "version": wire.version,
        "array_type": if wire.sparse { "sparse" } else { "dense" },
        "allows_duplicates": wire.duplicates,
        "tile_order": wire.tile_order.name(),
        "cell_order": wire.cell_order.name(),
        "capacity": wire.capacity,
        "dimensions": dims.collect::<Vec<_>>(),
        "attributes": attributes.collect::<Vec<_>>(),
        "labels": labels.collect::<Vec<_>>(),
        "enumerations": wire.enumerations.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "domain": domains.collect::<Vec<_>>(),
        "current_domain": wire.current_domain.as_ref().map(domain),
        "offsets_filters": names(&array.current.attributes.first().map_or_else(
            || array.current.times.clone(), |a| a.offsets.clone())),
        "hidden_fragments": array.hidden.iter().map(|f| {
            json!({"name": f.name, "timestamps": [f.start, f.end], "version": f.version})
        }).collect::<Vec<_>>(),
        "uncommitted": array.uncommitted().unwrap_or_default(),
        "deletes": array.deletes.iter().map(|d| json!({"name": d.name, "at": d.timestamp})).collect::<Vec<_>>(),
    });
    fragments(array, &mut out);
    out
}
