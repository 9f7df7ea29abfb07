//! Implementation of [`Format`].

use std::sync::Arc;

use tesseral_core::{ArraySchema, CellLen, DType, Finding, Result};
use tesseral_format::convention::Holds;
use tesseral_format::{
    AppendOptions, AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Edit, Format,
    OpenOptions, OptionSet, Probe, Repair, Salvage, Sniff, Versioned, Writer,
};
use tesseral_store::Store;

use crate::array_store::ArrayStore;
use crate::metadata_loader::Key;
use crate::open::TileDbContainer;
use crate::wire::datatype::Datatype;
use crate::write::{TileDbAppender, TileDbEditor, TileDbWriter};

/// Maximum number of labels of a dimension in the metadata of an array; more are a separate array.
const LABELS: usize = 64;

/// TileDB arrays and groups.
#[derive(Clone, Copy, Debug, Default)]
pub struct TileDbFormat;

impl Format for TileDbFormat {
    fn id(&self) -> &'static str {
        crate::ID
    }

    fn title(&self) -> &'static str {
        "TileDB array"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["tdb", "tiledb"]
    }

    fn first_folders(&self) -> &[&'static str] {
        &crate::directory::FIRST
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            create: true,
            many_arrays: true,
            attributes: true,
            folder: true,
            folder_extensions: &[],
            chunk_objects: false,
            lossy_codecs: &["float_scale", "scale_float", "webp"],
        }
    }

    fn key_len(&self) -> Option<usize> {
        Some(Key::LEN)
    }

    fn holds(&self) -> Holds {
        Holds {
            cells: |dtype, cell| match dtype {
                DType::Complex64 | DType::Complex128 => cell != CellLen::Var,
                _ => Datatype::from_dtype(dtype).is_some(),
            },
            scalars: false,
            empty: false,
            // As in TileDB-CF: `__tiledb_attr.sst.units`.
            field_attributes: Some(crate::model::FIELD_ATTRIBUTES),
            field_named_as_dimension: false,
            repeated_dimensions: false,
            labels: LABELS,
            unlimited: false,
            ..Holds::ALL
        }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        let Some(entries) = probe.entries else { return Sniff::No };
        let has = |name: &str| entries.iter().any(|e| e.name == name);
        if has("__schema")
            || has("__array_schema.tdb")
            || has(crate::group::MARKER)
            || has(crate::group::MEMBERS)
        {
            return Sniff::Content;
        }
        if probe.has_extension(self.extensions()) || has("__fragments") || has("__commits") {
            Sniff::Name
        } else {
            Sniff::No
        }
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        Ok(Arc::new(TileDbContainer::open(Arc::new(ArrayStore(store)), options)?))
    }

    fn versioned(&self) -> Option<&dyn Versioned> {
        Some(self)
    }

    fn create_options(&self) -> &'static dyn OptionSet {
        &crate::write::CREATE_OPTIONS
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(TileDbWriter::create(&store, options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        crate::audit::audit(Arc::new(ArrayStore(store)), options, report)
    }

    fn foreign(&self, store: Arc<dyn Store>) -> Result<Option<String>> {
        crate::contents::foreign(store)
    }

    fn repairs(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Vec<Repair>> {
        crate::repair::repairs(store, options)
    }

    fn apply_repair(&self, store: Arc<dyn Store>, options: &OpenOptions, code: &str) -> Result<()> {
        crate::repair::apply(store, options, code)
    }

    fn salvage(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Salvage> {
        crate::salvage::salvage(store, options)
    }
}

impl Versioned for TileDbFormat {
    fn append(
        &self,
        store: Arc<dyn Store>,
        options: &AppendOptions,
    ) -> Result<(Box<dyn Writer>, ArraySchema)> {
        let (appender, schema) = TileDbAppender::open(&store, options)?;
        Ok((Box::new(appender), schema))
    }

    fn edit(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Box<dyn Edit>> {
        Ok(Box::new(TileDbEditor::open(&store, options)?))
    }
}
