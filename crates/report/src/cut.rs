//! Names truncated to the available columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The text if it fits, else its start followed by `…`.
pub fn keep_start(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let kept = fitting(text.chars(), columns);
    text.chars().take(kept).chain(['…']).collect()
}

/// The text if it fits, else `…` and its end: the end of a method name says more than its package.
pub fn keep_end(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let kept = fitting(text.chars().rev(), columns);
    let cut = text.chars().count() - kept;
    std::iter::once('…').chain(text.chars().skip(cut)).collect()
}

/// Number of letters that fit next to `…`.
fn fitting(letters: impl Iterator<Item = char>, columns: usize) -> usize {
    let room = columns.saturating_sub(1);
    let ends = letters.scan(0, |used, letter| {
        *used += letter.width().unwrap_or(0);
        Some(*used)
    });
    ends.take_while(|end| *end <= room).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut() {
        assert_eq!(keep_end("/a.very.long.Service/Method", 8), "…/Method");
        assert_eq!((keep_end("/S/M", 8).as_str(), keep_start("/S/M", 4).as_str()), ("/S/M", "/S/M"));
        assert_eq!(keep_start("memcached", 5), "memc…");
        assert_eq!((keep_start("日本語", 4).as_str(), keep_end("日本語", 4).as_str()), ("日…", "…語"));
        assert_eq!((keep_start("abc", 0).as_str(), keep_end("abc", 1).as_str()), ("…", "…"));
    }
}
