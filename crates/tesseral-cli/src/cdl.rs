//! `tet cdl`: a dataset in CDL, the text form of NetCDF that `ncdump` prints and `ncgen` reads.

mod notation;
mod tree;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tesseral::{Attributes, DType, Error};
use tesseral_core::Value;
use tesseral_core::dtype::Class;

use self::notation::{CdlType, name, string};
use self::tree::{CdlGroup, CdlVariable};
use crate::cat;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{self, OutputArguments, OutputStream};
use crate::progress::Meter;

/// Width of lines of data in characters.
const WIDTH: usize = 80;

/// Arguments of `tet cdl`.
#[derive(Debug, Args)]
pub(crate) struct CdlArguments {
    /// Path or URL of a file or folder of any supported format
    source: PathBuf,
    /// Print dimensions, types and attributes, but no data
    #[arg(long)]
    header: bool,
    /// Print the data of these variables only
    #[arg(long = "data", value_name = "NAME", value_delimiter = ',', conflicts_with = "header")]
    data: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) fn run(context: &Context, arguments: &CdlArguments) -> CliResult {
    if context.json() && !arguments.header {
        return Err(Error::invalid("--json requires --header: `tet cat --json` prints values").into());
    }
    let container = context.open(&arguments.source, &Meter::new(false))?;
    let root = CdlGroup::of_container(&container)?;
    let known = variables(&root);
    if let Some(unknown) = arguments.data.iter().find(|name| !known.contains(name)) {
        let names = known.into_iter().cloned().collect();
        return Err(Error::not_found("variable", unknown, names).into());
    }
    let wanted = |variable: &CdlVariable| {
        !arguments.header && (arguments.data.is_empty() || arguments.data.contains(&variable.variable.name))
    };
    let name = stem(&arguments.source);
    if context.json() {
        let mut text = String::new();
        let put = &mut |part: &str| {
            text.push_str(part);
            Ok(())
        };
        Printer { context, wanted: &wanted, put }.dataset(&name, &root)?;
        output::print_json(&json!({"schema": "tesseral.cdl/1", "cdl": text}))?;
        return Ok(exit::OK);
    }
    let mut out = OutputStream::open(&arguments.output, &arguments.source, context.cancel())?;
    let put = &mut |part: &str| out.put(part.as_bytes());
    Printer { context, wanted: &wanted, put }.dataset(&name, &root)?;
    out.finish()?;
    Ok(exit::OK)
}

/// Names of all variables, with their groups.
fn variables(group: &CdlGroup) -> Vec<&String> {
    let own = group.variables.iter().map(|variable| &variable.variable.name);
    own.chain(group.groups.values().flat_map(variables)).collect()
}

/// Name of a dataset: that of its file without the extension.
fn stem(source: &Path) -> String {
    let stem = source.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| !stem.is_empty()).unwrap_or_else(|| "dataset".to_owned())
}

/// Dimensions, variables and attributes of a group.
fn write_header(out: &mut String, group: &CdlGroup, depth: usize) {
    let indent = "  ".repeat(depth);
    if !group.dims.is_empty() {
        out.push_str(&format!("{indent}dimensions:\n"));
        for (dim, extent) in &group.dims {
            out.push_str(&format!("{indent}\t{} = {extent} ;\n", name(dim)));
        }
    }
    if !group.variables.is_empty() {
        out.push_str(&format!("{indent}variables:\n"));
    }
    for variable in &group.variables {
        let dims: Vec<String> = variable.dims.iter().map(|dim| name(dim)).collect();
        let dims = if dims.is_empty() { String::new() } else { format!("({})", dims.join(", ")) };
        let own = name(&variable.name);
        let note = match variable.kind.exact {
            true => String::new(),
            false => format!(" // {}", variable.variable.array.selected_field().type_name()),
        };
        out.push_str(&format!("{indent}\t{} {own}{dims} ;{note}\n", variable.kind.name()));
        write_attributes(out, &variable.variable.attributes, &own, &format!("{indent}\t\t"));
    }
    if !group.attributes.is_empty() {
        let title = if depth == 0 { "// global attributes:" } else { "// group attributes:" };
        out.push_str(&format!("\n{indent}{title}\n"));
        write_attributes(out, &group.attributes, "", &format!("{indent}\t\t"));
    }
}

/// Attributes of a variable or, without a name, of a group.
fn write_attributes(out: &mut String, attributes: &Attributes, owner: &str, indent: &str) {
    for (key, value) in attributes {
        let line = match constant(value) {
            Some((kind, text)) if kind.string => format!("string {owner}:{} = {text} ;", name(key)),
            Some((_, text)) => format!("{owner}:{} = {text} ;", name(key)),
            None => format!(
                "// {owner}:{} = {} (no type in CDL)",
                name(key),
                string(value.to_string().as_bytes())
            ),
        };
        out.push_str(&format!("{indent}{line}\n"));
    }
}

/// An attribute as constants; `None` if CDL has no type for it.
fn constant(value: &Value) -> Option<(CdlType, String)> {
    let text = CdlType::of_dtype(DType::Char, false)?;
    match value {
        Value::Text(value) => Some((text, string(value.as_bytes()))),
        Value::Bytes(value) => Some((text, string(value))),
        Value::List(values) => list(values),
        Value::Numbers { dtype, bytes } => {
            let kind = CdlType::of_dtype(*dtype, false)?;
            let size = dtype.size().filter(|size| *size > 0 && !bytes.is_empty())?;
            let numbers = bytes.chunks(size).map(|cell| number(kind, *dtype, cell));
            Some((kind, numbers.collect::<Vec<_>>().join(", ")))
        }
        other => {
            let scalar = other.to_scalar()?;
            if scalar.dtype().class() == Class::Text {
                return Some((text, string(scalar.bytes())));
            }
            let kind = CdlType::of_dtype(scalar.dtype(), false)?;
            Some((kind, number(kind, scalar.dtype(), scalar.bytes())))
        }
    }
}

/// A list of texts, or of numbers of one type.
fn list(values: &[Value]) -> Option<(CdlType, String)> {
    let texts: Option<Vec<String>> = values
        .iter()
        .map(|value| match value {
            Value::Text(text) => Some(string(text.as_bytes())),
            _ => None,
        })
        .collect();
    if let Some(texts) = texts.filter(|texts| !texts.is_empty()) {
        return Some((CdlType::of_dtype(DType::Utf8, true)?, texts.join(", ")));
    }
    let constants: Vec<(CdlType, String)> = values.iter().map(constant).collect::<Option<_>>()?;
    let kind = constants.first()?.0;
    let same = constants.iter().all(|(other, _)| *other == kind);
    same.then(|| (kind, constants.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ")))
}

/// A number with the ending of its type.
fn number(kind: CdlType, dtype: DType, bytes: &[u8]) -> String {
    let mut out = String::new();
    kind.write_number(&mut out, dtype, bytes);
    // Words such as `NaNf` have their ending.
    if out.ends_with(|c: char| c.is_ascii_digit()) {
        out.push_str(kind.suffix());
    }
    out
}

/// Output of a dataset, and the data to print.
struct Printer<'a> {
    context: &'a Context,
    wanted: &'a dyn Fn(&CdlVariable) -> bool,
    put: &'a mut dyn FnMut(&str) -> CliResult<()>,
}

impl Printer<'_> {
    fn dataset(&mut self, own: &str, root: &CdlGroup) -> CliResult<()> {
        (self.put)(&format!("netcdf {} {{\n", name(own)))?;
        self.group(root, 0)?;
        (self.put)("}\n")
    }

    /// Header, data and inner groups of a group.
    fn group(&mut self, group: &CdlGroup, depth: usize) -> CliResult<()> {
        let indent = "  ".repeat(depth);
        let mut head = String::new();
        write_header(&mut head, group, depth);
        (self.put)(&head)?;
        let data: Vec<&CdlVariable> = group.variables.iter().filter(|v| (self.wanted)(v)).collect();
        if !data.is_empty() {
            (self.put)(&format!("{indent}data:\n"))?;
        }
        for variable in data {
            self.data(variable, &indent)?;
        }
        for (own, inner) in &group.groups {
            (self.put)(&format!("\n{indent}group: {} {{\n", name(own)))?;
            self.group(inner, depth + 1)?;
            (self.put)(&format!("{indent}}} // group {}\n", name(own)))?;
        }
        Ok(())
    }

    /// The stored cells of a variable.
    fn data(&mut self, variable: &CdlVariable, indent: &str) -> CliResult<()> {
        let array = &variable.variable.array;
        let total = array.all()?.cells().unwrap_or(u64::MAX);
        if total == 0 {
            return Ok(());
        }
        let mut tokens = Tokens::new(variable);
        let mut line = format!("\n{indent} {} = ", name(&variable.name));
        let (mut count, mut begun) = (0, false);
        cat::each_stored_cell(self.context, array, |cell| {
            count += 1;
            let Some(token) = tokens.next(cell) else { return Ok(()) };
            let ending = if count == total { " ;\n" } else { ", " };
            if begun && line.len() + token.len() + ending.len() > WIDTH {
                (self.put)(line.trim_end_matches(' '))?;
                line = format!("\n{indent}    ");
            }
            begun = true;
            line.push_str(&token);
            line.push_str(ending);
            Ok(())
        })?;
        (self.put)(&line)
    }
}

/// Cells of a variable as constants.
struct Tokens<'a> {
    variable: &'a CdlVariable,
    dtype: DType,
    fill: Option<Vec<u8>>,
    /// Characters are strings along the last dimension, of this length.
    length: Option<u64>,
    characters: Vec<u8>,
}

impl<'a> Tokens<'a> {
    fn new(variable: &'a CdlVariable) -> Self {
        let array = &variable.variable.array;
        let dtype = array.selected_field().dtype;
        let fill = variable.variable.attributes.get("_FillValue").and_then(Value::to_scalar);
        let fill = fill.filter(|fill| fill.dtype() == dtype).map(|fill| fill.bytes().to_vec());
        let last = array.schema().dims.last().and_then(|dim| dim.extent);
        let length = (variable.kind.name() == "char").then(|| last.unwrap_or(1));
        Self { variable, dtype, fill, length, characters: Vec::new() }
    }

    /// The constant that a cell completes: all but the last character of a string complete none.
    fn next(&mut self, cell: Option<&[u8]>) -> Option<String> {
        if let Some(length) = self.length {
            self.characters.extend(cell.unwrap_or(&[0]));
            if (self.characters.len() as u64) < length {
                return None;
            }
            let end = self.characters.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let token = string(&self.characters[..end]);
            self.characters.clear();
            return Some(token);
        }
        let kind = self.variable.kind;
        Some(match cell {
            None => "_".to_owned(),
            Some(cell) if self.fill.as_deref() == Some(cell) => "_".to_owned(),
            Some(cell) if kind.string => string(cell),
            Some(cell) => {
                let mut token = String::new();
                kind.write_number(&mut token, self.dtype, cell);
                token
            }
        })
    }
}
