//! The shown cells as a file.

use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tesseral::{
    Array, Cancel, Column, ConvertOptions, Error, Field, Format, Result, Target, overview_within,
};
use tesseral_display::picture::{self, ColorMap, ImageFormat, Picture};
use tesseral_display::{coordinate, csv_head, csv_row, dim_name, field_of};
use tokio::sync::OwnedSemaphorePermit;

use crate::server::ServerState;
use crate::tree::Nothing;
use crate::view::{CellParameters, OpenedField};
use crate::zip;

/// Bytes of a file that are sent at a time.
const PIECE: usize = 256 << 10;

/// Cells, and the file to make of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DownloadParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    stored: bool,
    at: String,
    /// `csv`, `png`, `svg`, or the id of a format.
    kind: String,
    colors: String,
    low: Option<f64>,
    high: Option<f64>,
}

/// A file to send. It is removed with its folder.
#[derive(Debug)]
pub(crate) struct PreparedFile {
    _folder: TempDir,
    path: PathBuf,
    name: String,
    kind: &'static str,
    /// The place of the file among those that are being sent.
    _place: Option<OwnedSemaphorePermit>,
}

impl PreparedFile {
    /// Holds a place until the file was sent.
    pub(crate) fn kept_with(self, place: OwnedSemaphorePermit) -> Self {
        Self { _place: Some(place), ..self }
    }
}

/// Formats that datasets can be written in.
fn writable() -> impl Iterator<Item = &'static dyn Format> {
    tesseral::formats().filter(|format| format.capabilities().create)
}

/// The kinds of files.
pub(crate) fn formats(_: &ServerState, _: &Nothing, _: Cancel) -> Result<Json> {
    let named = writable().map(|format| {
        json!({"kind": format.id(), "title": format.title(), "zipped": format.capabilities().folder})
    });
    Ok(json!({"formats": named.collect::<Vec<_>>()}))
}

/// Writes the file.
pub(crate) fn write(
    shared: &ServerState,
    query: &DownloadParameters,
    cancel: Cancel,
) -> Result<PreparedFile> {
    let cells = CellParameters {
        source: query.source,
        array: query.array,
        field: query.field,
        as_of: query.as_of.clone(),
        stored: query.stored,
        at: query.at.clone(),
    };
    let opened = cells.open(shared, cancel.clone())?;
    let target = cells.target(&opened.array)?;
    let count = opened.array.cells_at_most(&target)?;
    let picture = matches!(query.kind.as_str(), "png" | "svg");
    if !picture && count > shared.settings.download {
        let error = Error::limit("the cells of a download", count, shared.settings.download);
        return Err(error.in_array(opened.array.name()).hint("select a smaller range"));
    }
    let folder = tempfile::tempdir().map_err(|e| Error::io("create", "a temporary folder", e))?;
    let stem = file_stem(opened.array.variable_name());
    let (file, kind) = match query.kind.as_str() {
        "csv" => (format!("{stem}.csv"), "text/csv; charset=utf-8"),
        "png" => (format!("{stem}.png"), "image/png"),
        "svg" => (format!("{stem}.svg"), "image/svg+xml"),
        _ => (stem.clone(), "application/octet-stream"),
    };
    let path = folder.path().join(&file);
    let failed = |e| Error::io("write", "a temporary file", e);
    match query.kind.as_str() {
        "csv" => {
            let mut out = BufWriter::new(std::fs::File::create(&path).map_err(failed)?);
            write_csv(&opened, target, &cancel, &mut |text| out.write_all(text.as_bytes()).map_err(failed))?;
            out.flush().map_err(failed)?;
        }
        "png" | "svg" => std::fs::write(&path, draw(shared, query, &cells, &opened)?).map_err(failed)?,
        id => {
            let format = writable().find(|format| format.id() == id).ok_or_else(|| {
                Error::not_found("format", id, writable().map(|format| format.id().to_owned()).collect())
            })?;
            return convert(shared, &cells, &opened, format, (folder, stem), cancel);
        }
    }
    Ok(PreparedFile { _folder: folder, path, name: file, kind, _place: None })
}

/// A file name without characters that have a meaning to a file system or a header.
fn file_stem(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let stem: String = name.chars().take(80).map(plain).collect();
    if stem.trim_matches('_').is_empty() { "array".to_owned() } else { stem }
}

/// Rows of coordinates and the field.
fn write_csv(
    opened: &OpenedField,
    target: Target,
    cancel: &Cancel,
    put: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let array = opened.labeled()?;
    let schema = array.schema();
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let columns: Vec<Column> = dims.chain([opened.column()]).collect();
    let fields: Vec<Field> = columns.iter().map(|column| field_of(schema, *column)).collect();
    put(&csv_head(&fields))?;
    let cells = array.cells()?.target(target).only(&columns).options(array.options().clone());
    let mut text = String::new();
    for batch in cells.batches()? {
        let batch = batch?;
        for row in 0..batch.rows {
            csv_row(&mut text, &fields, &batch, row);
            if text.len() > PIECE {
                cancel.check()?;
                put(&text)?;
                text.clear();
            }
        }
    }
    put(&text)
}

fn draw(
    shared: &ServerState,
    query: &DownloadParameters,
    cells: &CellParameters,
    opened: &OpenedField,
) -> Result<Vec<u8>> {
    let array = opened.labeled()?;
    let overview = overview_within(&array, &cells.selection(&array)?, picture::MOST, shared.settings.work)?;
    let Some((low, high)) = overview.range(0.0) else {
        return Err(Error::invalid("nothing to draw: every cell is null, NaN or infinite"));
    };
    let range = (query.low.unwrap_or(low), query.high.unwrap_or(high));
    let picture = Picture::new(&opened.container, &array, array.selected_field(), overview, range);
    let format = if query.kind == "svg" { ImageFormat::Svg } else { ImageFormat::Png };
    picture::encoded(&picture, ColorMap::by_name(&query.colors).unwrap_or(ColorMap::Viridis), format)
}

/// Converts the selected part of the variable.
fn convert(
    shared: &ServerState,
    cells: &CellParameters,
    opened: &OpenedField,
    format: &'static dyn Format,
    (folder, stem): (TempDir, String),
    cancel: Cancel,
) -> Result<PreparedFile> {
    // Stored numbers, which keep their packing.
    let source = shared.sources.container(cells.source, cells.as_of.as_deref())?;
    let array = &opened.array;
    let mut options = ConvertOptions::new().format(format.id()).array(variable(array)).overwrite();
    options = options.execution(array.options().clone().with_cancel(cancel.clone()));
    if !cells.at.is_empty() {
        let selection = cells.selection(array)?;
        let stored = source.lazy_array(cells.array)?;
        let dims = array.schema().dims.iter().enumerate().zip(selection.slices());
        for ((i, dim), slice) in dims.filter(|((_, dim), slice)| Some(slice.count()) != dim.extent) {
            // A selection ends the name of its dimension at the first `=`.
            let name = if dim.name.contains('=') { i.to_string() } else { dim_name(dim, i) };
            let last = slice.tight_end().saturating_sub(1);
            options = options.select(match stored.schema().dims[i].extent {
                // Positions end with the axis, coordinates can continue at its start.
                Some(extent) if last >= extent => {
                    format!("{name}={}..{}", coordinate(dim, slice.start), coordinate(dim, last))
                }
                _ => format!("{name}={}:{}:{}", slice.start, slice.end, slice.step),
            });
        }
    }
    let extension = format.extensions().first().map_or_else(String::new, |e| format!(".{e}"));
    let file = format!("{stem}{extension}");
    let path = folder.path().join(&file);
    tesseral::convert(&source, &path, &options)?;
    let octets = "application/octet-stream";
    if !path.is_dir() {
        return Ok(PreparedFile { _folder: folder, path, name: file, kind: octets, _place: None });
    }
    let archive = folder.path().join("archive");
    let failed = |e| Error::io("write", "a temporary file", e);
    let mut out = BufWriter::new(std::fs::File::create(&archive).map_err(failed)?);
    zip::write(&path, &file, &cancel, &mut out)?;
    out.flush().map_err(failed)?;
    let name = format!("{file}.zip");
    Ok(PreparedFile { _folder: folder, path: archive, name, kind: "application/zip", _place: None })
}

/// The name by which a conversion knows the selected field.
fn variable(array: &Array) -> String {
    match array.schema().fields.len() {
        1 => array.name().to_owned(),
        _ => format!("{}/{}", array.name(), array.selected_field().name),
    }
}

impl IntoResponse for PreparedFile {
    fn into_response(self) -> Response {
        let Ok(file) = std::fs::File::open(&self.path) else {
            return axum::http::StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let attachment = format!("attachment; filename=\"{}\"", self.name);
        let kind = self.kind;
        // The folder lives as long as the file is sent.
        let state = (file, self);
        let pieces = futures_util::stream::try_unfold(state, |(mut file, written)| async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; PIECE];
                let n = file.read(&mut piece)?;
                piece.truncate(n);
                Ok::<_, std::io::Error>((piece, file))
            });
            let (piece, file) = read.await.map_err(std::io::Error::other)??;
            Ok::<_, std::io::Error>((!piece.is_empty()).then(|| (Bytes::from(piece), (file, written))))
        });
        let mut response = Body::from_stream(pieces).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        if let Ok(value) = HeaderValue::from_str(&attachment) {
            headers.insert(header::CONTENT_DISPOSITION, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_plain() {
        assert_eq!(file_stem("ocean/sst"), "ocean_sst");
        assert_eq!(file_stem("\"\r\n<b>"), "____b_");
        assert_eq!(file_stem("../.."), "array");
        assert_eq!(file_stem(""), "array");
    }
}
