//! Plain tables: columns two spaces apart, numbers to the right, a heading.

use std::io;

use crate::terminal::{Style, Terminal};

/// Which side a column's cells keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table.
pub(crate) struct Table {
    heads: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) const fn new(heads: Vec<(&'static str, Side)>) -> Self {
        Self { heads, rows: Vec::new() }
    }

    /// Adds a row, a cell a column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether there is no row.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes it, indented by `indent` spaces.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub(crate) fn write(&self, indent: usize, terminal: &mut Terminal<'_>) -> io::Result<()> {
        let width = |text: &str| text.chars().count();
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(i, (head, _))| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(i))
                    .map(|cell| width(cell))
                    .fold(width(head), usize::max)
            })
            .collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = " ".repeat(indent);
            for (i, cell) in cells.enumerate() {
                let (Some(wide), Some((_, side))) = (widths.get(i), self.heads.get(i)) else { break };
                let pad = " ".repeat(wide.saturating_sub(width(cell)));
                if i > 0 {
                    out.push_str("  ");
                }
                match side {
                    Side::Left => {
                        out.push_str(cell);
                        out.push_str(&pad);
                    }
                    Side::Right => {
                        out.push_str(&pad);
                        out.push_str(cell);
                    }
                }
            }
            out.trim_end().to_owned()
        };
        let head = line(&mut self.heads.iter().map(|(head, _)| *head));
        writeln!(terminal.out, "{}", terminal.paint(Style::Bold, &head))?;
        for row in &self.rows {
            writeln!(terminal.out, "{}", line(&mut row.iter().map(String::as_str)))?;
        }
        Ok(())
    }
}
