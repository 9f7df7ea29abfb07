//! Schema evolution: adds a new schema, which later writes use.

use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{CountedValues, Error, Result, Scalar};
use tesseral_format::Change;
use tesseral_store::StoreExt;

use super::edit::ArraySnapshot;
use super::spec;
use super::timestamped_name;
use crate::metadata_loader::join;
use crate::wire::datatype::compare;
use crate::wire::enumeration;
use crate::wire::schema::Schema;

const ENUMERATIONS: &str = "__schema/__enumerations";

pub(crate) fn evolve(opened: &ArraySnapshot, changes: &[Change], at: u64) -> Result<()> {
    let mut wire = opened.opening.current.wire.clone();
    let mut files = Vec::new();
    for change in changes {
        match change {
            Change::AddField { field, codecs } => {
                let taken =
                    wire.attribute(&field.name).is_some() || wire.dims.iter().any(|d| d.name == field.name);
                if taken {
                    return Err(Error::invalid(format!("{:?} already exists in the array", field.name)));
                }
                if let Some(enumerated) = &field.enumeration
                    && !wire.enumerations.iter().any(|(name, _)| *name == enumerated.name)
                {
                    add_enumeration(&mut wire, enumerated, opened.digests, &mut files)?;
                }
                wire.attributes.push(spec::attribute(field, codecs)?);
            }
            Change::DropField { name } => {
                opened.schema.field(name)?;
                wire.attributes.retain(|a| a.name != *name);
                if wire.attributes.is_empty() {
                    return Err(Error::invalid(format!(
                        "cannot remove {name:?}, the only field of the array"
                    )));
                }
            }
            Change::ExtendEnumeration(wider) => {
                extend(opened, &mut wire, wider, &mut files)?;
            }
            Change::ExpandDomain(ranges) => expand(&mut wire, ranges)?,
            other => return Err(Error::unsupported(format!("{other:?} of a TileDB array"))),
        }
    }
    for (name, payload) in files {
        opened.put(&join(ENUMERATIONS, &name), &payload)?;
    }
    let mut payload = Vec::new();
    wire.write(&mut payload)?;
    opened.put(&join("__schema", &opened.timed(at, at)), &payload)
}

type Files = Vec<(String, Vec<u8>)>;

fn add_enumeration(
    wire: &mut Schema,
    enumerated: &Enumeration,
    digests: bool,
    files: &mut Files,
) -> Result<()> {
    let file = format!("__{}_0", timestamped_name::unique(digests));
    let mut payload = Vec::new();
    enumeration::write(enumerated, &file, &mut payload)?;
    wire.enumerations.retain(|(name, _)| *name != enumerated.name);
    wire.enumerations.push((enumerated.name.clone(), file.clone()));
    files.push((file, payload));
    Ok(())
}

/// Labels can be appended to an enumeration; stored codes keep their meaning.
fn extend(opened: &ArraySnapshot, wire: &mut Schema, wider: &Enumeration, files: &mut Files) -> Result<()> {
    let known = wire.enumerations.iter().find(|(name, _)| *name == wider.name);
    let names = || wire.enumerations.iter().map(|(name, _)| name.clone()).collect();
    let (_, file) = known.ok_or_else(|| Error::not_found("enumeration", &wider.name, names()))?;
    let object = join(ENUMERATIONS, file);
    let (bytes, stored) = opened.reader.sized(&object)?;
    let mut counted = CountedValues::new(opened.reader.limits, stored);
    let old = enumeration::parse(&opened.store.describe(&object), &bytes, &mut counted)?;
    let kept = match (&old.labels, &wider.labels) {
        (Labels::Text(old), Labels::Text(new)) => new.starts_with(old),
        (Labels::Numbers { dtype: a, bytes: old }, Labels::Numbers { dtype: b, bytes: new }) => {
            a == b && new.starts_with(old)
        }
        _ => false,
    };
    if !kept || old.ordered != wider.ordered {
        let detail = format!("the new labels of {:?} do not begin with the existing ones", wider.name);
        return Err(Error::invalid(detail));
    }
    add_enumeration(wire, wider, opened.digests, files)
}

fn expand(wire: &mut Schema, ranges: &[(Scalar, Scalar)]) -> Result<()> {
    let Some(current) = &wire.current_domain else {
        return Err(Error::invalid("the array has no current domain"));
    };
    if ranges.len() != wire.dims.len() {
        return Err(Error::invalid(format!("{} ranges for {} dimensions", ranges.len(), wire.dims.len())));
    }
    let mut wider = Vec::new();
    for ((dim, (low, high)), old) in wire.dims.iter().zip(ranges).zip(current) {
        let range = spec::range(low, high, dim.datatype, dim.var)?;
        let within = |outer: &(Vec<u8>, Vec<u8>), inner: &(Vec<u8>, Vec<u8>)| {
            compare(dim.datatype, &outer.0, &inner.0).is_le()
                && compare(dim.datatype, &inner.1, &outer.1).is_le()
        };
        if !within(&range, old) || dim.domain.as_ref().is_some_and(|domain| !within(domain, &range)) {
            let detail = format!("the current domain of {:?} can only grow, up to its domain", dim.name);
            return Err(Error::invalid(detail));
        }
        wider.push(range);
    }
    wire.current_domain = Some(wider);
    Ok(())
}
