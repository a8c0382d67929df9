//! Tables for a terminal.

use unicode_width::UnicodeWidthStr;

/// Separator between columns.
const BETWEEN: &str = "  ";

/// Rows in columns as wide as their widest cell, one line each. `is_left` tells by a column's index whether its
/// cells are left-aligned.
pub fn aligned<Row: AsRef<[String]>>(rows: &[Row], is_left: impl Fn(usize) -> bool) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        let row = row.as_ref();
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let from = text.len();
        for (column, (cell, width)) in row.as_ref().iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width - cell.width());
            let (before, after) = if is_left(column) { ("", blanks.as_str()) } else { (blanks.as_str(), "") };
            let between = if column == 0 { "" } else { BETWEEN };
            text.extend([between, before, cell, after]);
        }
        text.truncate(from + text[from..].trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["NAME", "MS"], vec!["a", "1,204"], vec!["日本", "3"], vec!["b"]];
        let rows = rows.map(|row| row.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(aligned(&rows, |column| column == 0), "NAME     MS\na     1,204\n日本      3\nb\n");
        assert_eq!(aligned(&rows, |_| true), "NAME  MS\na     1,204\n日本  3\nb\n");
        assert_eq!(aligned::<Vec<String>>(&[], |_| true), "");
    }
}
