//! Writes a `.tet` file from a recipe in JSON, read from a file or from standard input.
//!
//! `npy_to_tet [RECIPE]`
//!
//! ```json
//! {"out": "a.tet", "overwrite": true, "digests": true, "zone_maps": false, "memory_budget": {"bytes": 1048576},
//!  "history": [{"op": "write", "source": "lab", "at": "0"}], "file": {"tool": "mine"},
//!  "arrays": [{"name": "a", "dtype": "float32", "shape": [2, 3], "chunk_shape": [1, 2], "codec": "zstd:3",
//!              "data": "a.bin", "dims": ["y", "x"], "attrs": {"units": "K"}, "labels": {"x": ["1", "2", "3"]},
//!              "order": "canonical"}]}
//! ```
//! `data` names a file of little-endian cells, row-major, as `ndarray.tofile` writes them. `order` is the order in which chunks
//! are stored: `canonical`, `shuffled`, or `parallel` from several threads.

use serde_json::Value as Json;
use tesseral::{
    ArrayId, ArraySchema, ArraySpec, Attributes, ChunkGrid, Create, Error, HistoryRow, Labels, MemoryBudget,
    Region, Session, Value,
};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    let text = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(path)?,
        None => std::io::read_to_string(std::io::stdin())?,
    };
    let recipe: Json = serde_json::from_str(&text)?;
    let mut create = Create::new();
    if recipe["overwrite"] == true {
        create = create.overwrite();
    }
    if recipe["digests"] == false {
        create = create.without_digests();
    }
    if recipe["zone_maps"] == true {
        create = create.statistics();
    }
    if let Some(bytes) = recipe["memory_budget"]["bytes"].as_u64() {
        create = create.memory_budget(MemoryBudget::Bytes(bytes));
    } else if let Some(points) = recipe["memory_budget"]["basis_points"].as_u64() {
        create = create.memory_budget(MemoryBudget::BasisPoints(u16::try_from(points)?));
    }
    let mut session = create.begin(recipe["out"].as_str().ok_or("the recipe names no \"out\"")?, "tet")?;
    let arrays = recipe["arrays"].as_array().map_or(&[][..], Vec::as_slice);
    // A .tet file begins with its directory: all arrays are declared before the first chunk.
    let specs = arrays.iter().map(spec).collect::<Anything<Vec<_>>>()?;
    let ids = specs.iter().map(|spec| session.add(spec)).collect::<Result<Vec<_>, _>>()?;
    for row in recipe["history"].as_array().into_iter().flatten() {
        session.add_history(history(row))?;
    }
    session.set_attributes(attributes(&recipe["file"]))?;
    for ((id, spec), array) in ids.into_iter().zip(&specs).zip(arrays) {
        let cells = std::fs::read(array["data"].as_str().ok_or("an array names no \"data\"")?)?;
        match array["order"].as_str() {
            None | Some("canonical") => session.write(id, &cells)?,
            Some(order) => by_chunk(&session, id, &spec.schema, &cells, order)?,
        }
    }
    session.commit()?;
    Ok(())
}

fn spec(array: &Json) -> Anything<ArraySpec> {
    let extents =
        |key: &str| array[key].as_array().into_iter().flatten().filter_map(Json::as_u64).collect::<Vec<_>>();
    let dtype = array["dtype"].as_str().unwrap_or_default().parse()?;
    let mut schema =
        ArraySchema::dense(text(&array["name"]), dtype, &extents("shape"), &extents("chunk_shape"));
    schema.attributes = attributes(&array["attrs"]);
    for (dim, name) in schema.dims.iter_mut().zip(texts(&array["dims"])) {
        dim.name = name;
    }
    for (axis, labels) in array["labels"].as_object().into_iter().flatten() {
        let d = schema.dim(axis)?;
        schema.dims[d].labels = Some(Labels::Text(texts(labels)));
    }
    let codec = array["codec"].as_str().unwrap_or("raw").parse()?;
    Ok(ArraySpec { schema, codecs: vec![vec![codec]], text: None })
}

fn text(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

fn texts(json: &Json) -> Vec<String> {
    json.as_array().into_iter().flatten().map(text).collect()
}

fn attributes(json: &Json) -> Attributes {
    json.as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), Value::Text(text(value))))
        .collect()
}

fn history(row: &Json) -> HistoryRow {
    let pairs =
        |json: &Json| json.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), text(v))).collect();
    let mut extra = row.clone();
    if let Some(extra) = extra.as_object_mut() {
        extra.retain(|key, _| !["op", "source", "at", "parents", "params"].contains(&key.as_str()));
    }
    HistoryRow {
        op: text(&row["op"]),
        source: text(&row["source"]),
        at: text(&row["at"]),
        parents: texts(&row["parents"]),
        params: pairs(&row["params"]),
        extra: pairs(&extra),
    }
}

/// Stores chunks one by one in a given order.
fn by_chunk(session: &Session, id: ArrayId, schema: &ArraySchema, cells: &[u8], order: &str) -> Anything<()> {
    let grid = schema.grid()?;
    let size = schema.fields[0].cell_size().ok_or("cells have no one size")?;
    let mut numbers: Vec<u64> = (0..grid.total()).collect();
    // Sorting by a hash is a deterministic shuffle.
    numbers.sort_by_key(|n| n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let store =
        |numbers: &[u64]| numbers.iter().try_for_each(|&n| store_chunk(session, id, &grid, cells, size, n));
    let threads = if order == "parallel" { 4 } else { 1 };
    let share = numbers.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = numbers.chunks(share).map(|part| scope.spawn(|| store(part))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a writer thread panicked")?.map_err(Into::into))
    })
}

fn store_chunk(
    session: &Session,
    id: ArrayId,
    grid: &ChunkGrid,
    cells: &[u8],
    size: usize,
    number: u64,
) -> Result<(), Error> {
    let coords = grid.coords(number);
    let mut chunk = Vec::new();
    gather(cells, size, grid.shape(), &grid.region(&coords), 0, 0, &mut chunk);
    session.write_chunk(id, &coords, &chunk)
}

/// Appends the cells of a box of a row-major array, dimension by dimension.
fn gather(cells: &[u8], size: usize, shape: &[u64], region: &Region, d: usize, at: u64, out: &mut Vec<u8>) {
    if d == shape.len() {
        let start = at as usize * size;
        out.extend_from_slice(&cells[start..start + size]);
        return;
    }
    for i in region.start(d)..region.end(d) {
        gather(cells, size, shape, region, d + 1, at * shape[d] + i, out);
    }
}
