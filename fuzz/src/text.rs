//! Any text as user input: query documents, selections, conditions, times, codecs.

use std::sync::{Arc, OnceLock};

use tesseral::query::{Document, Plan, QueryOptions};
use tesseral::{Array, Container, Open, as_of, condition, parse_codecs};
use tesseral_store::{MemoryStore, Store};

/// Arrays to select from: labels and dates, integer domains, strings and sparse cells, enumerated fields.
fn sources() -> &'static [Container] {
    static SOURCES: OnceLock<Vec<Container>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let names =
            ["tet/labels_v1.tet", "tiledb/dense_columns", "tiledb/sparse_history", "tiledb/enumerated"];
        names.map(|name| Open::new().open_store(memory(name)).expect("fixtures are valid")).into()
    })
}

fn memory(name: &str) -> Arc<dyn Store> {
    let path = crate::fixtures::fixtures().join(name);
    let store = MemoryStore::new(name);
    if path.is_file() {
        store.insert("", std::fs::read(&path).expect("fixtures exist"));
    }
    for (name, bytes) in crate::fixtures::files(&path) {
        store.insert(&name, bytes);
    }
    Arc::new(store)
}

pub(crate) fn arrays() -> impl Iterator<Item = Array> {
    sources().iter().map(|source| source.array_at(0).expect("fixtures hold an array"))
}

/// A query document, and its plan on arrays.
pub fn query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut document) = Document::parse(text) else { return };
    for source in sources() {
        document.dataset = source.inner().name(0).to_owned();
        if let Ok(Some(plan)) = Plan::new(source, &document, &QueryOptions::default()) {
            let _ = (plan.logical_bytes(), plan.budget(), plan.split(3));
        }
    }
}

/// Selections, one per line. Accepted selections lie inside the array.
pub fn selection(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for array in arrays() {
        if let Ok(selection) = array.select(text.lines()) {
            let shape = array.schema().shape().expect("a selection of positions");
            assert!(selection.slices().iter().zip(&shape).all(|(s, n)| s.end <= *n && s.step > 0));
        }
        let _ = array.target(text.lines());
    }
    let _ = (as_of(text), parse_codecs(text));
}

/// A condition on cells.
pub fn conditions(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for array in arrays() {
        let _ = condition(array.schema(), text);
    }
}
