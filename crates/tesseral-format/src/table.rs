//! Common code of formats that store one table: columns of the same rows, and a document for elements that tables do not support.

use std::ops::Range;

use serde_json::{Map, Value as Json, json};
use tesseral_core::{ArraySchema, Attributes, Error, HistoryRow, Limits, Result, Slice};

use crate::convention::{history, value};

/// Key of the document in the metadata of a file.
pub const TABLE_KEY: &str = "tesseral";

/// Name of the dimension of a table, unless the document has another.
pub const ROW: &str = "row";

/// Elements that tables do not support, as JSON: attributes of the container and of columns, names of dimensions, history.
#[derive(Clone, Debug, Default)]
pub struct TableDocument(Json);

impl TableDocument {
    /// Parses a document; an empty one from text that is none.
    ///
    /// # Errors
    /// `Limit` if its values would take too much memory.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self> {
        Ok(Self(value::parse(text.as_bytes(), limits)?.unwrap_or_default()))
    }

    /// The text of a document. `columns` are names with properties of [`column_document`].
    pub fn text(attributes: &Attributes, rows: &[HistoryRow], columns: Map<String, Json>) -> String {
        let history = history::to_json(rows);
        json!({"attributes": attributes_to_json(attributes), "history": history, "columns": columns})
            .to_string()
    }

    /// Attributes of the container.
    pub fn attributes(&self) -> Attributes {
        attributes_from_json(&self.0["attributes"])
    }

    /// History of the container.
    pub fn history(&self) -> Vec<HistoryRow> {
        history::from_value(Some(value::from_json(&self.0["history"])))
    }

    /// A property of a column; null if there is none.
    pub fn property(&self, column: &str, name: &str) -> &Json {
        &self.0["columns"][column][name]
    }

    /// Whether the document describes a column.
    pub fn describes(&self, column: &str) -> bool {
        self.0["columns"][column].is_object()
    }

    /// The name of a column's dimension.
    pub fn dimension(&self, column: &str) -> &str {
        self.property(column, "dim").as_str().unwrap_or(ROW)
    }

    /// Attributes of a column.
    pub fn column_attributes(&self, column: &str) -> Attributes {
        attributes_from_json(self.property(column, "attributes"))
    }
}

/// Properties of a column: the name of its dimension, and attributes.
pub fn column_document(dim: &str, attributes: &Attributes) -> Map<String, Json> {
    let mut own = Map::new();
    own.insert("dim".to_owned(), dim.into());
    own.insert("attributes".to_owned(), Json::Object(attributes_to_json(attributes)));
    own
}

fn attributes_to_json(own: &Attributes) -> Map<String, Json> {
    own.iter().map(|(name, own)| (name.clone(), value::to_json(own))).collect()
}

fn attributes_from_json(json: &Json) -> Attributes {
    let pairs = json.as_object().into_iter().flatten();
    pairs.map(|(name, own)| (name.clone(), value::from_json(own))).collect()
}

/// Rows and rows of a chunk, of a column of a table.
pub type TableShape = (u64, u64);

/// Rows and rows of a chunk of an array, if it is a column: dense, of one dimension and one field.
///
/// # Errors
/// `Unsupported` for other arrays.
pub fn table_shape(schema: &ArraySchema) -> Result<TableShape> {
    match (&schema.dims[..], &schema.fields[..], schema.sparse) {
        ([dim], [_], false) => {
            let chunk = schema.chunk_shape.as_ref().and_then(|chunk| chunk.first().copied());
            let rows = dim.extent.unwrap_or(0);
            Ok((rows, chunk.unwrap_or(rows)))
        }
        _ => Err(Error::unsupported(format!("an array of {} dimensions in a table", schema.dims.len()))),
    }
}

/// Rejects a column whose rows or chunks are not those of the first one.
///
/// # Errors
/// `Unsupported`.
pub fn check_same_rows(first: (&str, TableShape), column: (&str, TableShape)) -> Result<()> {
    let ((first, (rows, chunk)), (name, (own, own_chunk))) = (first, column);
    let detail = if rows != own {
        format!("columns of different lengths: {first:?} has {rows} rows, {name:?} {own}")
    } else if chunk != own_chunk {
        format!("columns of different chunks: {first:?} has {chunk} rows, {name:?} {own_chunk}")
    } else {
        return Ok(());
    };
    Err(Error::unsupported(format!("{detail}, in one table")).in_array(name))
}

/// Positions of the groups of consecutive rows that a slice touches.
pub fn touched_rows<'a>(groups: &'a [Range<u64>], slice: &'a Slice) -> impl Iterator<Item = usize> + 'a {
    let first = groups.partition_point(|group| group.end <= slice.start);
    let last = groups.partition_point(|group| group.start < slice.end);
    (first..last).filter(move |number| {
        let Some(group) = groups.get(*number) else { return false };
        // A step can pass over a group.
        let behind = group.start.saturating_sub(slice.start);
        let steps = behind.div_ceil(slice.step.max(1));
        slice.start.saturating_add(steps.saturating_mul(slice.step)) < group.end.min(slice.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_pass_over_groups() {
        let groups = [0..10, 10..12, 12..30, 30..31];
        let touched =
            |start, end, step| touched_rows(&groups, &Slice { start, end, step }).collect::<Vec<_>>();
        assert_eq!(touched(0, 31, 1), [0, 1, 2, 3]);
        assert_eq!(touched(0, 31, 15), [0, 2, 3]);
        assert_eq!(touched(9, 12, 2), [0, 1]);
        assert!(touched(11, 11, 1).is_empty());
    }

    #[test]
    fn documents_are_read_back() {
        let attributes = Attributes::from_iter([("units".to_owned(), "K".into())]);
        let columns = Map::from_iter([("t".to_owned(), Json::Object(column_document("time", &attributes)))]);
        let document =
            TableDocument::parse(&TableDocument::text(&attributes, &[], columns), &Limits::DEFAULT).unwrap();
        assert_eq!(
            (document.attributes(), document.column_attributes("t")),
            (attributes.clone(), attributes)
        );
        assert_eq!((document.dimension("t"), document.dimension("u")), ("time", ROW));
        assert!(TableDocument::parse("?", &Limits::DEFAULT).unwrap().attributes().is_empty());
    }
}
