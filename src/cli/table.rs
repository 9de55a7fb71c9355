//! Tables of text: columns as wide as what stands in them.

use std::fmt::Write as _;

use super::console::{Paint, Style, harmless};

/// A table whose first row are the names of its columns.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    right: bool,
}

/// What stands in one place of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(super) fn new(style: Style, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            text: harmless(&text).into_owned(),
            style,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Style::Plain, text)
    }
}

impl Table {
    /// A table with these columns. Those whose names end in `>` stand to the right.
    pub(super) fn new(columns: &[&'static str]) -> Self {
        let column = |name: &&'static str| match name.strip_suffix('>') {
            Some(name) => Column { name, right: true },
            None => Column { name, right: false },
        };
        Self {
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Its lines, each cut to `width` characters, with a mark where a cell was cut. Columns in which nothing stands are left out.
    pub(super) fn lines(&self, paint: Paint, width: usize) -> Vec<String> {
        let empty = Cell::from("");
        let cell = |row: usize, column: usize| match row {
            0 => Cell::new(Style::Strong, self.columns[column].name),
            row => self.rows[row - 1].get(column).unwrap_or(&empty).clone(),
        };
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|column| {
                let mut cells = self.rows.iter().map(|row| row.get(*column));
                cells.any(|cell| cell.is_some_and(|cell| !cell.text.is_empty()))
                    || self.rows.is_empty()
            })
            .collect();
        let widths: Vec<usize> = shown
            .iter()
            .map(|column| {
                let of = |row| cell(row, *column).text.chars().count();
                (0..=self.rows.len()).map(of).max().unwrap_or_default()
            })
            .collect();
        let line = |row| {
            let (mut line, mut left) = (String::new(), width);
            for (place, column) in shown.iter().enumerate() {
                let Cell { text, style } = cell(row, *column);
                let last = place + 1 == shown.len();
                let padding = widths[place] - text.chars().count();
                let (before, after) = match (self.columns[*column].right, last) {
                    (true, last) => (padding, if last { 0 } else { 2 }),
                    (false, true) => (0, 0),
                    (false, false) => (0, padding + 2),
                };
                let _ = write!(line, "{:1$}", "", before.min(left));
                left = left.saturating_sub(before);
                let cut = text.chars().count() > left;
                let mut text: String = text.chars().take(left).collect();
                if cut && text.pop().is_some() {
                    text.push('…');
                }
                left -= text.chars().count();
                line.push_str(&paint.apply(style, &text));
                let _ = write!(line, "{:1$}", "", after.min(left));
                left = left.saturating_sub(after);
            }
            line.truncate(line.trim_end().len());
            line
        };
        (0..=self.rows.len()).map(line).collect()
    }

    /// All of it as one text.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut text = self.lines(paint, usize::MAX).join("\n");
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::Console;

    fn table() -> Table {
        let mut table = Table::new(&["HOST", "NOTE", "TIME>", "WHY"]);
        table.row(vec!["a".into(), "".into(), "1ms".into(), "".into()]);
        let bad = Cell::new(Style::Bad, "no\tanswer");
        table.row(vec!["bcdéf".into(), "".into(), "100ms".into(), bad]);
        table
    }

    fn plain() -> Paint {
        Console::new(&mut Vec::new(), &mut Vec::new()).out.paint()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_and_empty_ones_are_left_out() {
        assert_eq!(
            table().lines(plain(), usize::MAX),
            [
                "HOST    TIME  WHY",
                "a        1ms",
                "bcdéf  100ms  no\\tanswer"
            ]
        );
    }

    #[test]
    fn lines_are_cut_to_the_terminal() {
        let lines = table().lines(plain(), 10);
        assert_eq!(lines, ["HOST    T…", "a        …", "bcdéf  10…"]);
        assert_eq!(table().lines(plain(), 0), ["", "", ""]);
    }
}
