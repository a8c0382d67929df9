//! Paragraphs wrapped to the columns of a terminal. A figure and its unit are never separated.

use std::borrow::Cow;
use textwrap::core::Word;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};
use unicode_width::UnicodeWidthStr;

/// Default width of running text.
pub const COLUMNS: usize = 110;
/// Minimum supported terminal width.
pub const NARROWEST: usize = 80;

/// Units, which stay with the figure before them.
const UNITS: [&str; 12] = ["%", "ns", "us", "ms", "s", "min", "B", "kB", "KB", "KiB", "MiB", "MHz"];
/// No-break space: textwrap breaks only at blanks.
const UNBROKEN: &str = "\u{a0}";

/// The units of wrapping: text between blanks, with a unit attached to its figure.
fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let mut from = 0;
    let starts = line.match_indices(' ').map(|(at, _)| at + 1);
    let mut starts = starts.filter(|at| !line[*at..].starts_with(' ')).peekable();
    Box::new(std::iter::from_fn(move || {
        if from == line.len() {
            return None;
        }
        let is_unit = |at: usize| {
            let after = line[at..].split(' ').next().unwrap_or_default();
            let unit = UNITS.contains(&after.trim_end_matches([',', ';', '.', ':', ')']));
            unit && line[..at].trim_end().ends_with(|last: char| last.is_ascii_digit())
        };
        while starts.next_if(|at| is_unit(*at)).is_some() {}
        let to = starts.next().unwrap_or(line.len());
        let word = Word::from(&line[from..to]);
        from = to;
        Some(word)
    }))
}

/// The same where no line may exceed the width: a long list such as `0-3,8,12-15` may be broken after its
/// commas.
fn words_and_parts(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    Box::new(words(line).flat_map(|word| {
        let whole = word.width() <= NARROWEST / 4;
        let mut parts: Vec<Word<'_>> =
            if whole { vec![word] } else { word.word.split_inclusive(',').map(Word::from).collect() };
        if let Some(last) = parts.last_mut() {
            last.whitespace = word.whitespace;
        }
        parts
    }))
}

fn strict<'a>(width: usize) -> Options<'a> {
    options(width).break_words(true).word_separator(WordSeparator::Custom(words_and_parts))
}

fn options<'a>(width: usize) -> Options<'a> {
    Options::new(width)
        .break_words(false)
        .word_separator(WordSeparator::Custom(words))
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
}

/// Wraps text at `width` columns; all lines but the first are indented by `indent` blanks, and the last one has
/// no newline. A longer word gets a line of its own: paths and commands stay in one piece. Leading blanks are
/// kept.
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    hanging("", text, indent, options(width))
}

fn hanging(head: &str, text: &str, indent: usize, options: Options<'_>) -> String {
    if text.is_empty() {
        return head.trim_end().to_owned();
    }
    let below = " ".repeat(indent);
    let options = options.initial_indent(head).subsequent_indent(&below);
    let lines = textwrap::wrap(text, options);
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// Adds a paragraph wrapped at `width` columns, the first line behind `head`, the others aligned below it.
pub fn wrap(text: &mut String, head: &str, words: &str, width: usize) {
    text.push_str(&hanging(head, words, head.width(), options(width)));
    text.push('\n');
}

/// Adds a paragraph in which no line exceeds `width`: lists are broken after their commas, and any other longer
/// word is split.
pub fn wrap_strictly(text: &mut String, head: &str, words: &str, width: usize) {
    text.push_str(&hanging(head, words, head.width(), strict(width)));
    text.push('\n');
}

/// Adds a comma-separated list, broken only between its parts.
pub fn wrap_list(text: &mut String, head: &str, parts: &[String], width: usize) {
    let parts: Vec<String> = parts.iter().map(|part| part.replace(' ', UNBROKEN)).collect();
    text.push_str(&hanging(head, &parts.join(", "), head.width(), options(width)).replace(UNBROKEN, " "));
    text.push('\n');
}

/// Wraps text for a cell of at most `width` columns (8 at least), splitting longer words.
pub fn cell_lines(words: &str, width: usize) -> Vec<String> {
    let lines = textwrap::wrap(words, strict(width.max(8)));
    lines.into_iter().map(Cow::into_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_keep_to_the_width() {
        assert_eq!(wrapped("one two three four five", 10, 2), "one two\n  three\n  four\n  five");
        assert_eq!(wrapped("  one two three", 9, 4), "  one two\n    three");
        assert_eq!(wrapped("a-word-that-is-long x", 5, 0), "a-word-that-is-long\nx");
        assert_eq!(wrapped("name   what it is", 12, 7), "name   what\n       it is");
        assert_eq!(wrapped("", 13, 4), "");
        assert_eq!(wrapped("日本 日本 日本", 9, 0), "日本 日本\n日本", "columns count, not characters");
    }

    #[test]
    fn words_are_wrapped_below_each_other() {
        let wrapped = |head, words, width| {
            let mut text = String::new();
            wrap(&mut text, head, words, width);
            text
        };
        assert_eq!(
            wrapped("HIGH  ", "one two three fourteen", 14),
            "HIGH  one two\n      three\n      fourteen\n"
        );
        assert_eq!(wrapped("  * ", "", 14), "  *\n");
    }

    #[test]
    fn a_figure_keeps_its_unit() {
        assert_eq!(wrapped("above 70 %, or", 8, 0), "above\n70 %, or");
        assert_eq!(wrapped("it took (12 ms) or so", 10, 0), "it took\n(12 ms) or\nso");
        assert_eq!(wrapped("the letter s is", 12, 0), "the letter s\nis");
    }

    #[test]
    fn a_long_list_is_broken_behind_its_commas() {
        let mut text = String::new();
        wrap_strictly(&mut text, "CPUs ", "0-3,10-14,20-24,30-34,40 and 1,234 more", 20);
        assert_eq!(text, "CPUs 0-3,10-14,\n     20-24,30-34,40\n     and 1,234 more\n");
        assert_eq!(cell_lines("incomprehensibilities", 8), ["incompre", "hensibil", "ities"]);
    }

    #[test]
    fn the_parts_of_a_list_are_not_broken() {
        let parts = ["one two", "three four", "five six"].map(str::to_owned);
        let mut text = String::new();
        wrap_list(&mut text, "all ", &parts, 16);
        assert_eq!(text, "all one two,\n    three four,\n    five six\n");
    }

    proptest! {
        #[test]
        fn cells_keep_their_width_and_lose_nothing(words in "[a-zäß ]{0,80}", width in 8_usize..40) {
            let lines = cell_lines(&words, width);
            prop_assert!(lines.iter().all(|line| line.width() <= width), "{lines:?}");
            let without = |text: &str| text.replace(' ', "");
            prop_assert_eq!(without(&lines.concat()), without(&words));
        }

        #[test]
        fn no_word_is_lost(words in "[a-z0-9%ms ]{0,80}", width in 1_usize..40, indent in 0_usize..6) {
            let text = wrapped(&words, width, indent);
            let split = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(split(&text), split(&words));
        }
    }
}
