//! A query and its result as one JSON document, in the form of the reference.

use serde_json::{Map, Value as Json, json};
use tesseral_core::{ChunkGrid, DType, Result, Scalar, dtype::Class};
use tesseral_engine::available_memory;

use super::document::{Document, Operation, Reduction};
use super::outcome::{self, Answer, QueryOutcome};
use super::plan::Plan;
use tesseral_dataset::Container;

/// Level of detail of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// With a list of chunks.
    Full,
    /// Totals only, without cells.
    Totals,
}

/// Integers beyond this are written as text, because readers that use `f64` would round them.
const EXACT: u128 = 1 << 53;

fn integer(value: i128) -> Json {
    match i64::try_from(value) {
        Ok(small) if value.unsigned_abs() <= EXACT => Json::from(small),
        _ => Json::from(value.to_string()),
    }
}

fn float(value: f64) -> Json {
    match value {
        v if v.is_nan() => json!("NaN"),
        v if v.is_infinite() => json!(if v > 0.0 { "Infinity" } else { "-Infinity" }),
        v => json!(v),
    }
}

/// Converts to JSON: NaN, infinities and integers beyond 2^53 as text.
pub fn to_json(answer: &Answer) -> Json {
    match outcome::plain(answer.clone()) {
        Answer::Int(value) => integer(value),
        Answer::Quotient(sum, count) => float(sum as f64 / count as f64),
        Answer::Float(value) => float(value),
        Answer::Bool(value) => json!(value),
        Answer::Counts(counts) => counts.iter().map(|&n| integer(n.into())).collect(),
        Answer::Value(value) => json!(value.to_string()),
        Answer::None => Json::Null,
    }
}

/// Reports a query without an array, with its plan, or with its result.
///
/// # Errors
/// Errors of planning.
pub fn report(
    document: &Document,
    source: Option<&Container>,
    plan: Option<&Plan>,
    outcome: Option<&QueryOutcome>,
    detail: Detail,
) -> Result<Json> {
    let mut out = Map::new();
    out.insert("schema".into(), json!("tesseral.query/1"));
    out.insert("status".into(), json!("planned"));
    out.insert("accepted".into(), json!(true));
    out.insert("layout_version".into(), json!(document.layout_version));
    out.insert("dataset".into(), json!(document.dataset));
    out.insert("selection_axes".into(), json!(document.selection.as_ref().map(Vec::len)));
    out.insert("operation".into(), document.operation.as_ref().map_or(Json::Null, operation));
    let message = match (source, plan, outcome) {
        (None, ..) => "query accepted",
        (_, None, _) => "query accepted; there is no such dataset",
        (_, _, None) => "query accepted; dataset matched; read_plan lists the chunks it touches",
        _ => "query accepted; dataset matched; executed",
    };
    out.insert("message".into(), json!(message));
    if let Some(container) = source {
        out.insert("tet_file".into(), json!(container.location()));
        out.insert("format".into(), json!(container.format().id()));
        out.insert("catalog".into(), catalog(container, plan));
    }
    if let Some(plan) = plan {
        out.insert("read_plan".into(), read_plan(plan, outcome, detail)?);
        if let Some(outcome) = outcome {
            out.insert("execution".into(), execution(plan, outcome, detail)?);
        }
    }
    Ok(Json::Object(out))
}

fn operation(operation: &Operation) -> Json {
    let mut inner = Map::new();
    let axes: Vec<String> = operation.axes.iter().map(ToString::to_string).collect();
    inner.insert("axes".into(), json!(axes));
    if let Some(with) = &operation.with {
        inner.insert("with".into(), json!(with));
    }
    match operation.reduction {
        Reduction::Quantile => {
            inner.insert("q".into(), json!(operation.q));
        }
        Reduction::Histogram => {
            inner.insert("bins".into(), json!(operation.bins));
        }
        Reduction::Transform => {
            inner.insert("method".into(), json!(operation.method.map(super::Method::name)));
        }
        _ => {}
    }
    json!({ operation.reduction.key(): inner })
}

fn catalog(container: &Container, plan: Option<&Plan>) -> Json {
    let Some(plan) = plan else {
        let names: Vec<&str> = container.names().take(1000).collect();
        return json!({"matched": false, "available_datasets": names});
    };
    let schema = plan.array.schema();
    let field = plan.array.selected_field();
    let index = container.names().position(|name| name == schema.name);
    let chunks = schema.grid().and_then(ChunkGrid::counted).ok().map(|grid| grid.total());
    json!({
        "matched": true,
        "dataset_index": index,
        "field": field.name,
        "dtype": field.type_name().to_string(),
        "shape": schema.shape().map(|s| s.to_vec()),
        "chunk_shape": schema.chunk_shape.as_ref().map(|s| s.to_vec()),
        "chunk_index_rows": chunks,
    })
}

fn read_plan(plan: &Plan, outcome: Option<&QueryOutcome>, detail: Detail) -> Result<Json> {
    let chunks = plan.array.chunks(&plan.selection)?;
    let mut out = Map::new();
    out.insert("chunk_count".into(), json!(chunks.len()));
    out.insert("zone_filter_skipped_chunks".into(), json!(outcome.map_or(0, |outcome| outcome.skipped)));
    out.insert(
        "total_stored_bytes".into(),
        json!(chunks.iter().map(|c| c.stored_len).fold(0, u64::saturating_add)),
    );
    if detail == Detail::Full {
        let rows = chunks.iter().map(|chunk| {
            json!({
                "chunk_index": chunk.coords.to_vec(),
                "payload_offset": chunk.offset,
                "stored_byte_len": chunk.stored_len,
                "raw_byte_len": chunk.raw_len,
                "codec": chunk.codec,
            })
        });
        out.insert("chunks".into(), rows.collect());
    }
    let slices = plan.selection.slices();
    let each = |value: &dyn Fn(&tesseral_core::Slice) -> u64| -> Json { slices.iter().map(value).collect() };
    out.insert("dataset_shape".into(), json!(plan.array.schema().shape().map(|s| s.to_vec())));
    out.insert("chunk_shape".into(), json!(plan.array.schema().chunk_shape.as_ref().map(|s| s.to_vec())));
    out.insert("selection_box_start".into(), each(&|s| s.start));
    out.insert("selection_box_stop_exclusive".into(), each(&|s| s.end));
    out.insert("selection_step".into(), each(&|s| s.step));
    out.insert("logical_selection_shape".into(), json!(plan.selection.shape().to_vec()));
    out.insert("logical_element_count".into(), json!(plan.selection.cells()));
    Ok(Json::Object(out))
}

/// Name of a reduction in result keys.
fn suffix(reduction: Reduction, reduced: bool) -> &'static str {
    match (reduction, reduced) {
        (Reduction::Count, false) => "element_count",
        (Reduction::ArgMin, false) => "argmin_index",
        (Reduction::ArgMax, false) => "argmax_index",
        (Reduction::ArgMin, true) => "argmin",
        (Reduction::ArgMax, true) => "argmax",
        (Reduction::Histogram, _) => "histogram_counts",
        (other, _) => other.key(),
    }
}

fn execution(plan: &Plan, outcome: &QueryOutcome, detail: Detail) -> Result<Json> {
    let mut out = Map::new();
    let mut put = |key: String, value: Json| out.insert(key, value);
    let read = match plan.array.schema().sparse {
        true => plan.array.chunks(&plan.selection)?.iter().map(|chunk| chunk.stored_len).sum(),
        false => plan.array.explain(&plan.selection)?.bytes,
    };
    put("total_bytes_read_from_disk".into(), json!(read));
    if let (Some((bytes, more)), Detail::Full) = (&outcome.preview, detail) {
        let field = plan.array.selected_field();
        let name = short(field.dtype);
        let size = field.cell_size().unwrap_or(1).max(1);
        let cells = bytes.chunks(size).map(|cell| shown(field.dtype, cell));
        put(format!("{name}_preview"), cells.collect());
        put(format!("{name}_preview_truncated"), json!(more));
    }
    if let Some(elements) = outcome.elements {
        put("operation_element_count".into(), integer(elements.into()));
    }
    for (key, count) in [("group_count", outcome.groups), ("window_count", outcome.windows)] {
        if let Some(count) = count {
            put(key.into(), json!(count));
        }
    }
    if let Some(labels) = &outcome.group_labels {
        put("group_labels".into(), json!(labels));
    }
    if let Some(operation) = &plan.document.operation {
        answers(operation, outcome, &mut put);
    }
    if let Some(alignment) = &outcome.alignment {
        put("alignment".into(), alignment.clone());
    }
    put("memory_strategy".into(), json!(outcome.strategy));
    put("memory_budget_bytes".into(), json!(plan.budget));
    put("host_available_ram_bytes".into(), json!(available_memory()));
    put("logical_selection_bytes".into(), json!(plan.logical_bytes()));
    if let Some(written) = &outcome.written {
        put("spill_path".into(), json!(written.path));
        put("spill_bytes".into(), json!(written.bytes));
        // Legacy names of these keys.
        put("spill_f32_path".into(), json!(written.path));
        put("spill_f32_bytes".into(), json!(written.bytes));
    }
    if let Some((count, indices)) = &outcome.undivided {
        put("transform_div_by_zero_indices".into(), json!(indices));
        put("transform_div_by_zero_count".into(), json!(count));
    }
    put("device_used".into(), json!("cpu"));
    Ok(Json::Object(out))
}

fn answers(operation: &Operation, outcome: &QueryOutcome, put: &mut dyn FnMut(String, Json) -> Option<Json>) {
    let matrix = operation.is_matrix();
    if matrix {
        let key = operation.reduction.key();
        put(format!("operation_{key}"), outcome.answers.iter().map(to_json).collect());
        let order = outcome.shape.as_ref().and_then(|shape| shape.first()).copied();
        put(format!("operation_{key}_order"), json!(order));
        return;
    }
    if let Some(accuracy) = outcome.accuracy {
        put("operation_quantile_relative_error".into(), json!(accuracy));
    }
    if let Some(method) = operation.method {
        put("transform_method".into(), json!(method.name()));
    }
    let prefix = if outcome.shape.is_some() { "operation_reduced" } else { "operation" };
    if let Some(shape) = &outcome.shape {
        put("operation_reduced_shape".into(), json!(shape));
    }
    for (key, values) in &outcome.statistics {
        let value = match (&outcome.shape, values.as_slice()) {
            (None, [one]) => to_json(one),
            _ => values.iter().map(to_json).collect(),
        };
        put(format!("{prefix}_{key}"), value);
    }
    if operation.reduction == Reduction::Transform {
        return;
    }
    let key = format!("{prefix}_{}", suffix(operation.reduction, outcome.shape.is_some()));
    match (&outcome.shape, outcome.answers.as_slice()) {
        (None, [answer]) => {
            put(key, to_json(answer));
        }
        _ => {
            let flat = outcome.answers.iter().flat_map(|answer| match answer {
                Answer::Counts(counts) => counts.iter().map(|&n| integer(n.into())).collect(),
                other => vec![to_json(other)],
            });
            put(key, flat.collect());
        }
    }
    if let Some(edges) = &outcome.edges {
        put("operation_histogram_edges".into(), edges.iter().map(|&edge| float(edge)).collect());
    }
}

/// Key of cells of a dtype.
fn short(dtype: DType) -> String {
    let name = dtype.to_string();
    for (long, short) in [("float", "f"), ("uint", "u"), ("int", "i")] {
        if let Some(bits) = name.strip_prefix(long).filter(|bits| bits.parse::<u8>().is_ok()) {
            return format!("{short}{bits}");
        }
    }
    name.split('[').next().unwrap_or_default().to_owned()
}

/// Converts a cell; floats with the shortest digits that round-trip.
fn shown(dtype: DType, cell: &[u8]) -> Json {
    let Ok(value) = Scalar::from_le_bytes(dtype, cell) else { return Json::Null };
    match dtype.class() {
        Class::Float => match value.as_f64() {
            Some(v) if v.is_finite() => value.to_string().parse::<f64>().map_or(Json::Null, Json::from),
            Some(v) => float(v),
            None => Json::Null,
        },
        _ => value.as_i128().map_or_else(|| json!(value.to_string()), integer),
    }
}
