//! Colors and tables, depending on the capabilities of the output.

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::text;

/// Capabilities of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TerminalStyle {
    color: bool,
    /// Whether to print non-ASCII symbols such as `×`. Names from files are printed unchanged.
    unicode: bool,
    width: Option<u16>,
}

impl TerminalStyle {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self::for_stream(&std::io::stdout())
    }

    /// For standard error.
    pub(crate) fn stderr() -> Self {
        Self::for_stream(&std::io::stderr())
    }

    fn for_stream<S: anstream::stream::RawStream>(stream: &S) -> Self {
        let terminal = stream.is_terminal();
        let color = anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never;
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        let utf8 = locale.is_some_and(|l| l.to_ascii_lowercase().replace('-', "").contains("utf8"));
        let width = if terminal { terminal_size::terminal_size().map(|(width, _)| width.0) } else { None };
        Self { color, unicode: terminal && utf8, width }
    }

    /// Returns whether colors are used.
    pub(crate) fn color(self) -> bool {
        self.color
    }

    /// Width of the terminal in columns, if it is one.
    pub(crate) fn width(self) -> Option<u16> {
        self.width
    }

    /// Separator of extents.
    pub(crate) fn times(self) -> char {
        if self.unicode { '×' } else { 'x' }
    }

    /// Separator between the ends of a range.
    pub(crate) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { ".." }
    }

    /// Separator of the parts of a line.
    pub(crate) fn dot(self) -> &'static str {
        if self.unicode { " · " } else { ", " }
    }

    fn style(self, style: Style, text: &str) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.style(Style::new().bold(), text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.style(Style::new().dimmed(), text)
    }

    pub(crate) fn success(self, text: &str) -> String {
        self.style(AnsiColor::Green.on_default().bold(), text)
    }

    pub(crate) fn failure(self, text: &str) -> String {
        self.style(AnsiColor::Red.on_default().bold(), text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.style(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// A table with one line per row; columns whose name begins with `>` are aligned right.
    pub(crate) fn table(self, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = self.width {
            table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        }
        table.set_header(columns.iter().map(|name| name.trim_start_matches('>').to_owned()));
        for row in rows {
            table.add_row(row.iter().map(|cell| text::escape(cell).into_owned()));
        }
        for (i, name) in columns.iter().enumerate() {
            let Some(column) = table.column_mut(i) else { continue };
            column.set_padding((if i == 0 { 0 } else { 1 }, 1));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut out = String::new();
        for (i, line) in table.lines().enumerate() {
            let line = line.trim_end();
            out.push_str(&if i == 0 { self.strong(line) } else { line.to_owned() });
            out.push('\n');
        }
        out
    }
}
