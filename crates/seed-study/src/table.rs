//! Columns under each other, for terminals.

use std::fmt::Write as _;

/// Rows as lines: the first `names` columns begin at the left, as names do; the others end at the right, as numbers do.
pub(crate) fn aligned(rows: &[Vec<String>], names: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((column, cell), width) in row.iter().enumerate().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = if column < names {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_together_and_numbers_end_together() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["arm", "n", "share"]),
            row(["SEED", "12", "±7"]),
            row(["G", "3", ""]),
        ];
        assert_eq!(aligned(&rows, 1), "arm    n  share\nSEED  12     ±7\nG      3\n");
        assert_eq!(aligned(&[], 1), "");
    }
}
