//! Words in lines that a terminal shows whole.

use std::fmt::Write;

/// Words that belong to the figure before them.
const UNITS: [&str; 8] = ["%", "ns", "us", "ms", "s", "KB", "KiB", "MHz"];
/// Columns of running text where nothing else sets them.
pub(super) const COLUMNS: usize = 110;

/// Words in lines of at most `width` columns, the first behind `head`, the others below it.
pub(super) fn wrap(text: &mut String, head: &str, words: &str, width: usize) {
    let indent = head.chars().count();
    let mut column = indent;
    text.push_str(head);
    let mut first = true;
    let mut rest = words.split(' ').peekable();
    while let Some(word) = rest.next() {
        let mut word = word.to_owned();
        // A figure and its unit stay together.
        while let Some(unit) =
            rest.next_if(|unit| UNITS.contains(&unit.trim_end_matches([',', ';', '.', ':', ')'])))
        {
            word = format!("{word} {unit}");
        }
        let length = word.chars().count();
        if !first && column + 1 + length > width {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        } else if !first {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += length;
        first = false;
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_below_each_other() {
        let mut text = String::new();
        wrap(&mut text, "HIGH  ", "one two three fourteen", 14);
        assert_eq!(text, "HIGH  one two\n      three\n      fourteen\n");
        let mut text = String::new();
        wrap(&mut text, "", "above 70 %, or", 8);
        assert_eq!(text, "above\n70 %, or\n");
    }
}
