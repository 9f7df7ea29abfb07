//! Rows of comma-separated values: quoted values can contain commas, line breaks and doubled quotes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use tesseral::Error;

use crate::error::CliResult;
use crate::text::count;

/// A file of rows with a header line.
pub(super) struct CsvFile {
    input: BufReader<File>,
    shown: String,
    header: Vec<String>,
    line: u64,
}

/// Values of a row, and whether each was quoted.
pub(super) type CsvRow = Vec<(String, bool)>;

impl CsvFile {
    pub(super) fn open(path: &Path) -> CliResult<Self> {
        let shown = path.display().to_string();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::not_found("file", shown, Vec::new()).into());
            }
            Err(e) => return Err(Error::io("open", shown, e).into()),
        };
        let mut reader = Self { input: BufReader::new(file), shown, header: Vec::new(), line: 0 };
        let header = reader.row()?.unwrap_or_default();
        reader.header = header.into_iter().map(|(name, _)| name.trim().to_owned()).collect();
        Ok(reader)
    }

    /// Number of the last line read.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    /// Rejects unknown and duplicate columns.
    pub(super) fn only(&self, names: &[String]) -> CliResult<()> {
        for (i, column) in self.header.iter().enumerate() {
            if !names.contains(column) {
                let detail = format!("{}: unknown column {column:?}", self.shown);
                return Err(Error::invalid(detail).hint(format!("available: {}", names.join(", "))).into());
            }
            if self.header[..i].contains(column) {
                return Err(Error::invalid(format!("{}: duplicate column {column:?}", self.shown)).into());
            }
        }
        Ok(())
    }

    /// Returns the indexes of named columns in a row.
    pub(super) fn places(&self, names: &[&str]) -> CliResult<Vec<usize>> {
        let find = |name: &&str| {
            let place = self.header.iter().position(|h| h == name);
            place.ok_or_else(|| Error::not_found("column", *name, self.header.clone()).into())
        };
        names.iter().map(find).collect()
    }

    /// Returns the next row; `None` at the end.
    pub(super) fn row(&mut self) -> CliResult<Option<CsvRow>> {
        let mut text = String::new();
        loop {
            let read = self.input.read_line(&mut text).map_err(|e| Error::io("read", &self.shown, e))?;
            self.line += 1;
            let open = text.bytes().filter(|b| *b == b'"').count() % 2 == 1;
            if read == 0 && open {
                return Err(Error::invalid(format!("{}: unterminated quote", self.shown)).into());
            }
            if read == 0 && text.is_empty() {
                return Ok(None);
            }
            if open {
                continue;
            }
            let line = text.strip_suffix('\n').unwrap_or(&text);
            let line = line.strip_suffix('\r').unwrap_or(line);
            // An empty line is a row only if there is one column.
            if line.is_empty() && self.header.len() != 1 && read > 0 {
                text.clear();
                continue;
            }
            let row = split(line);
            if !self.header.is_empty() && row.len() != self.header.len() {
                let (found, wanted) =
                    (count(row.len() as u64, "value"), count(self.header.len() as u64, "column"));
                let detail = format!("{}: line {} has {found}, expected {wanted}", self.shown, self.line);
                return Err(Error::invalid(detail).into());
            }
            return Ok(Some(row));
        }
    }
}

fn split(line: &str) -> CsvRow {
    let mut row = CsvRow::new();
    let mut value = String::new();
    let (mut quoted, mut inside) = (false, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if inside && chars.peek() == Some(&'"') => {
                chars.next();
                value.push('"');
            }
            '"' if inside => inside = false,
            '"' if value.is_empty() => (quoted, inside) = (true, true),
            ',' if !inside => {
                row.push((std::mem::take(&mut value), quoted));
                quoted = false;
            }
            c => value.push(c),
        }
    }
    row.push((value, quoted));
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_values_contain_any_character() {
        let row = split("a,\"b,\"\"c\"\"\",,\"\"");
        let expected = [("a", false), ("b,\"c\"", true), ("", false), ("", true)];
        assert_eq!(row, expected.map(|(text, quoted)| (text.to_owned(), quoted)));
    }
}
