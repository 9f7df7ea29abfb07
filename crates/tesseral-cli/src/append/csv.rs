//! Rows of comma-separated values: quotes hold commas, line ends and, doubled, quotes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use tesseral::Error;

use crate::failure::Outcome;
use crate::text::count;

/// A file of rows; the first one names the columns.
pub(super) struct Reader {
    input: BufReader<File>,
    shown: String,
    header: Vec<String>,
    line: u64,
}

/// Values of a row, and whether each stood in quotes.
pub(super) type Row = Vec<(String, bool)>;

impl Reader {
    pub(super) fn open(path: &Path) -> Outcome<Self> {
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

    /// The line that was read last.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The names of the columns.
    pub(super) fn header(&self) -> &[String] {
        &self.header
    }

    /// Refuses columns of other names, which would be lost, and two of one name.
    pub(super) fn only(&self, names: &[String]) -> Outcome<()> {
        for (i, column) in self.header.iter().enumerate() {
            if !names.contains(column) {
                let detail = format!("{}: the array has no dimension or field {column:?}", self.shown);
                return Err(Error::invalid(detail).hint(format!("it has {}", names.join(", "))).into());
            }
            if self.header[..i].contains(column) {
                return Err(Error::invalid(format!("{}: two columns {column:?}", self.shown)).into());
            }
        }
        Ok(())
    }

    /// Where the named columns are in a row.
    pub(super) fn places(&self, names: &[&str]) -> Outcome<Vec<usize>> {
        let find = |name: &&str| {
            let place = self.header.iter().position(|h| h == name);
            place.ok_or_else(|| Error::not_found("column", *name, self.header.clone()).into())
        };
        names.iter().map(find).collect()
    }

    /// The next row; `None` at the end.
    pub(super) fn row(&mut self) -> Outcome<Option<Row>> {
        let mut text = String::new();
        loop {
            let read = self.input.read_line(&mut text).map_err(|e| Error::io("read", &self.shown, e))?;
            self.line += 1;
            let open = text.bytes().filter(|b| *b == b'"').count() % 2 == 1;
            if read == 0 && open {
                return Err(Error::invalid(format!("{}: a quote is never closed", self.shown)).into());
            }
            if read == 0 && text.is_empty() {
                return Ok(None);
            }
            if open {
                continue;
            }
            let line = text.strip_suffix('\n').unwrap_or(&text);
            let line = line.strip_suffix('\r').unwrap_or(line);
            // A line of nothing is a row of one empty value only where there is one column.
            if line.is_empty() && self.header.len() != 1 && read > 0 {
                text.clear();
                continue;
            }
            let row = split(line);
            if !self.header.is_empty() && row.len() != self.header.len() {
                let (found, wanted) =
                    (count(row.len() as u64, "value"), count(self.header.len() as u64, "column"));
                let detail = format!("{}: line {} has {found} for {wanted}", self.shown, self.line);
                return Err(Error::invalid(detail).into());
            }
            return Ok(Some(row));
        }
    }
}

fn split(line: &str) -> Row {
    let mut row = Row::new();
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
    fn quotes_hold_everything() {
        let row = split("a,\"b,\"\"c\"\"\",,\"\"");
        let expected = [("a", false), ("b,\"c\"", true), ("", false), ("", true)];
        assert_eq!(row, expected.map(|(text, quoted)| (text.to_owned(), quoted)));
    }
}
