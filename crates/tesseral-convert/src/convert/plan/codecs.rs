//! The codecs of every array: the requested ones, else those of the source, if the target has them.

use std::sync::Arc;

use tesseral_core::{ArraySchema, Field};
use tesseral_format::convention::{self, TextExtent};
use tesseral_format::{ArraySpec, CodecSpec, CreateOptions, Format};
use tesseral_store::MemoryStore;

use super::ConvertPlan;
use crate::convert::options::ConvertOptions;

/// Codecs that stand in for one that the target lacks, in the order of preference; without any of them cells are stored raw.
const SUBSTITUTES: [&str; 2] = ["zstd", "gzip"];

impl ConvertPlan {
    /// Sets the codecs of all arrays; `lossy` are those of the source that change values.
    pub(super) fn choose_codecs(&mut self, options: &ConvertOptions, lossy: &[&str]) {
        let choice = CodecChoice { format: self.format, create: &self.create, options, lossy };
        for planned in &mut self.arrays {
            planned.spec.codecs = match &planned.bound {
                Some(bound) => vec![bound.codecs(options.codecs.clone().unwrap_or_default())],
                None => {
                    let columns = planned.feed.columns.iter();
                    let sources: Vec<&Field> = columns.map(|column| column.array.selected_field()).collect();
                    choice.for_fields(&planned.spec.schema, planned.spec.text, &sources)
                }
            };
        }
        for planned in &mut self.cells {
            let sources: Vec<&Field> = planned.sources().collect();
            planned.spec.codecs = choice.for_fields(&planned.spec.schema, None, &sources);
        }
        for table in &mut self.tables {
            for (spec, source) in table.specs.iter_mut().zip(&table.sources) {
                spec.codecs = choice.for_fields(&spec.schema, None, &[source]);
            }
        }
    }
}

/// What the codecs of an array depend on, apart from the array.
struct CodecChoice<'a> {
    format: &'static dyn Format,
    create: &'a CreateOptions,
    options: &'a ConvertOptions,
    lossy: &'a [&'a str],
}

impl CodecChoice<'_> {
    /// The codecs of each field; `sources` are the fields that they are copied from.
    fn for_fields(
        &self,
        schema: &ArraySchema,
        text: Option<TextExtent>,
        sources: &[&Field],
    ) -> Vec<Vec<CodecSpec>> {
        if let Some(codecs) = &self.options.codecs {
            return vec![codecs.clone(); schema.fields.len()];
        }
        let own: Vec<Vec<CodecSpec>> = sources.iter().map(|field| lossless(field, self.lossy)).collect();
        let substituted = |name: &str| -> Vec<Vec<CodecSpec>> {
            let substitute = |codecs: &Vec<CodecSpec>| match codecs.is_empty() {
                true => Vec::new(),
                false => vec![CodecSpec::new(name)],
            };
            own.iter().map(substitute).collect()
        };
        let accepted = |codecs: &Vec<Vec<CodecSpec>>| {
            let spec = ArraySpec { schema: schema.clone(), codecs: codecs.clone(), text };
            let store = Arc::new(MemoryStore::new("a dry run"));
            let writer = convention::create(self.format, store, self.create);
            writer.and_then(|mut writer| writer.begin(&spec)).is_ok()
        };
        if accepted(&own) {
            return own;
        }
        let found = SUBSTITUTES.into_iter().map(substituted).find(accepted);
        found.unwrap_or_else(|| vec![Vec::new(); schema.fields.len()])
    }
}

/// Codecs of a field that lose nothing.
fn lossless(field: &Field, lossy: &[&str]) -> Vec<CodecSpec> {
    if field.codecs.iter().any(|name| lossy.contains(&name.as_str())) {
        // A codec that follows packing does not suit unpacked values.
        return vec![CodecSpec::new("zstd")];
    }
    field.codecs.iter().filter(|name| *name != "raw").map(CodecSpec::new).collect()
}
