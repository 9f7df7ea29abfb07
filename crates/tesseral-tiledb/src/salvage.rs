//! Opening of the intact part of a damaged array.
//!
//! A schema is required. A fragment is used if its tile offsets are readable; its tiles are verified when the engine decodes
//! them. Where cells of a newer fragment are lost, cells of older ones are not returned instead, if the box of the lost
//! fragment is known; without its metadata it is not.

use std::sync::Arc;

use tesseral_codec::filter::Filter;
use tesseral_core::{Attributes, Error, ErrorKind, Finding, Result};
use tesseral_format::{OpenOptions, Salvage};
use tesseral_store::{Store, StoreExt};

use crate::array::TileDbArray;
use crate::array_store::ArrayStore;
use crate::directory::{ArrayDirectory, DeleteBytes};
use crate::group;
use crate::metadata_loader::MetadataLoader;
use crate::open::{ArrayListing, TileDbContainer, folder_name, read_attributes, read_schema, times};
use crate::wire::pipeline::FilterPipeline;

/// Opens the intact part.
pub(crate) fn salvage(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
    let reader = Arc::new(MetadataLoader::new(Arc::new(ArrayStore(store)), options)?);
    let mut findings = Vec::new();
    let container = if group::is_group(&reader)? {
        group::open_with(&reader, &reader, options, |folder, name| {
            match salvage_array(&reader, folder, name, options, &mut findings) {
                Err(error) if error.is_damage() => {
                    findings.push(Finding::from_error("array_lost", &error).in_array(name));
                    Ok(None)
                }
                array => array.map(Some),
            }
        })?
    } else {
        let name = folder_name(reader.store.location()).to_owned();
        let array = salvage_array(&reader, "", &name, options, &mut findings)?;
        TileDbContainer::from_array(Arc::clone(&reader), name, array)
    };
    let container = container.with_labels_or(&reader, options, |name, error| {
        whole("label_lost", name, Err::<(), _>(error), &mut findings).map(drop)
    })?;
    Ok(Salvage { container: Arc::new(container), gaps_are_losses: false, findings })
}

/// Returns the result of `read`, or adds a finding if it is damaged. A damaged version or filter number looks unsupported.
fn whole<T>(
    check: &'static str,
    name: &str,
    read: Result<T>,
    findings: &mut Vec<Finding>,
) -> Result<Option<T>> {
    let lost = |e: &Error| e.is_damage() || matches!(e.kind(), ErrorKind::Unsupported { .. });
    match read {
        Err(error) if lost(&error) => {
            findings.push(Finding::from_error(check, &error).in_array(name));
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn salvage_array(
    reader: &Arc<MetadataLoader>,
    prefix: &str,
    name: &str,
    options: &OpenOptions,
    findings: &mut Vec<Finding>,
) -> Result<TileDbArray> {
    let mut directory = ArrayDirectory::scan(reader, prefix)?;
    let range = times(options);
    let mut schemas = Vec::new();
    for (object, time) in std::mem::take(&mut directory.schemas) {
        if let Some(schema) = whole("schema_lost", name, read_schema(reader, &object), findings)? {
            schemas.push((object.clone(), schema));
            directory.schemas.push((object, time));
        }
    }
    if schemas.is_empty() {
        let detail = "none of its schemas is intact";
        return Err(Error::corrupt("the array", reader.store.describe(prefix), None, detail));
    }
    for file in std::mem::take(&mut directory.metadata) {
        let read = read_attributes(reader, std::slice::from_ref(&file), range).map(drop::<Attributes>);
        if whole("attributes_lost", name, read, findings)?.is_some() {
            directory.metadata.push(file);
        }
    }
    for entry in std::mem::take(&mut directory.deletes) {
        let read = match &entry.bytes {
            DeleteBytes::Object(object) => reader.object(object),
            DeleteBytes::Inline(bytes) => reader.unfilter(&entry.name, bytes),
        };
        if whole("delete_lost", name, read, findings)?.is_some() {
            directory.deletes.push(entry);
        }
    }
    let mut opening = ArrayListing::with_schemas(reader, prefix, directory, range, schemas)?;
    let visible = std::mem::take(&mut opening.visible);
    let all = visible.len();
    let mut fragments = Vec::new();
    for entry in visible {
        let read = opening.fragment(reader, entry).and_then(|f| f.check_tiles(reader).map(|()| f));
        fragments.extend(whole("fragment_lost", name, read, findings)?);
    }
    if fragments.is_empty() && all > 0 {
        let detail = format!("none of its {all} fragments is intact");
        return Err(Error::corrupt("the array", reader.store.describe(prefix), None, detail));
    }
    let mut array = opening.finish(Arc::clone(reader), name, fragments)?;
    for (field, attribute) in array.schema.fields.iter_mut().zip(&array.current.wire.attributes) {
        field.codecs = codecs(&attribute.pipeline);
    }
    Ok(array)
}

/// Returns the filters of a field as codec specs; empty if they cannot be expressed completely.
fn codecs(pipeline: &FilterPipeline) -> Vec<String> {
    let named = |filter: &Filter| match *filter {
        Filter::Gzip { level } | Filter::Zstd { level } | Filter::Lz4 { level } | Filter::Bzip2 { level } => {
            Some(format!("{}:{level}", filter.name()))
        }
        Filter::Noop
        | Filter::Rle
        | Filter::Dictionary
        | Filter::BitShuffle
        | Filter::ByteShuffle
        | Filter::Xor
        | Filter::Md5
        | Filter::Sha256
        | Filter::Delta { reinterpret: None }
        | Filter::DoubleDelta { reinterpret: None } => Some(filter.name().to_owned()),
        _ => None,
    };
    pipeline.filters.iter().map(named).collect::<Option<_>>().unwrap_or_default()
}
