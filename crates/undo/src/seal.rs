//! A checksum at the end of every line of a journal: `{...}<tab>~1a2b3c4d`.
//!
//! Our JSON contains no tab, so the mark is recognisable even in damaged bytes: if a lost newline joins two
//! lines, both can still be separated. CRC-32 detects every change of up to 32 consecutive bits, so a line with
//! one changed byte never counts as intact. Older journals have lines without checksums; they are readable as
//! well.

use std::ops::Range;

/// Separates a document from its checksum.
const MARK: &[u8] = b"\t~";
/// Number of hexadecimal digits of a checksum.
const DIGITS: usize = 8;

/// A document with its checksum, without the newline.
pub fn sealed(json: &str) -> String {
    debug_assert!(!json.contains(['\t', '\n']), "JSON has these escaped");
    format!("{json}\t~{:08x}", crc32fast::hash(json.as_bytes()))
}

/// First line of a journal: two copies of the head, so that damage to one costs nothing.
pub fn sealed_twice(json: &str) -> String {
    let once = sealed(json);
    format!("{once} {once}")
}

/// Length of a first line with a head of this length, without the newline.
pub(crate) fn twice(head: usize) -> usize {
    2 * (head + MARK.len() + DIGITS) + 1
}

/// A piece of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Line number, from one.
    pub line: usize,
    /// Range of bytes.
    pub range: Range<usize>,
    /// What it is.
    pub kind: Kind,
}

/// Whether a piece can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A document with a valid checksum; the range is that of the document.
    Whole,
    /// A line without a checksum in a journal that has none.
    Unsealed,
    /// The checksum does not match.
    Altered,
    /// The checksum is missing, although other lines have one.
    NoChecksum,
    /// A byte between two documents in place of a newline.
    LineEnd,
    /// The last line, without its newline: it was never completely on disk.
    Unfinished,
}

/// Divides all bytes of a journal into pieces, in order. Newlines belong to none of them.
pub fn pieces(bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (at, text) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let ended = text.last() == Some(&b'\n');
        line(bytes, at + 1, start..start + text.len() - usize::from(ended), ended, &mut pieces);
        start += text.len();
    }
    let any_sealed = pieces.iter().any(|piece| matches!(piece.kind, Kind::Whole | Kind::Altered));
    if any_sealed {
        for piece in pieces.iter_mut().filter(|piece| piece.kind == Kind::Unsealed) {
            piece.kind = Kind::NoChecksum;
        }
    }
    pieces
}

fn line(bytes: &[u8], line: usize, range: Range<usize>, ended: bool, pieces: &mut Vec<Piece>) {
    let mut push = |range: Range<usize>, kind| {
        if !range.is_empty() {
            pieces.push(Piece { line, range, kind });
        }
    };
    let mut start = range.start;
    let mut documents = 0;
    while let Some((mark, checksum)) = next_mark(bytes, start..range.end) {
        let right = |range: Range<usize>| crc32fast::hash(&bytes[range]) == checksum;
        if right(start..mark) {
            push(start..mark, Kind::Whole);
        } else if start < mark && right(start + 1..mark) {
            // A blank separates the two copies of the head; elsewhere it was a newline.
            let between_heads = line == 1 && documents == 1 && bytes[start] == b' ';
            if !between_heads {
                push(start..start + 1, Kind::LineEnd);
            }
            push(start + 1..mark, Kind::Whole);
        } else if let Some(at) = after_blanks(bytes, start..mark).find(|at| right(*at..mark)) {
            push(start..at - 1, Kind::Altered);
            push(at..mark, Kind::Whole);
        } else {
            push(start..mark + MARK.len() + DIGITS, Kind::Altered);
        }
        documents += 1;
        start = mark + MARK.len() + DIGITS;
    }
    let rest = start..range.end;
    match (ended, rest.len()) {
        (true, 1) if start > range.start => push(rest, Kind::LineEnd),
        (true, _) => push(rest, Kind::Unsealed),
        (false, _) => push(rest, Kind::Unfinished),
    }
}

/// Possible starts of the head's second copy, if the checksum of the first is damaged.
fn after_blanks(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = usize> {
    (range.start + 1..range.end).filter(|at| bytes[at - 1..=*at] == *b" {")
}

/// As checksums are written: `+1234567` would also parse as a number.
fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The next checksum within a range, and the position of its mark.
fn next_mark(bytes: &[u8], range: Range<usize>) -> Option<(usize, u32)> {
    let end = range.end.checked_sub(MARK.len() + DIGITS)?;
    (range.start..=end).find_map(|at| {
        let digits = bytes[at..].strip_prefix(MARK)?.get(..DIGITS)?;
        let digits = digits.iter().all(is_digit).then_some(digits)?;
        Some((at, u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_a_checksum() {
        let text = format!("{}\n{}\n", sealed_twice("{\"a\":1}"), sealed("{\"b\":2}"));
        let whole = pieces(text.as_bytes());
        assert!(whole.iter().all(|piece| piece.kind == Kind::Whole), "{whole:?}");
        let documents: Vec<&str> = whole.iter().map(|piece| &text[piece.range.clone()]).collect();
        assert_eq!(documents, ["{\"a\":1}", "{\"a\":1}", "{\"b\":2}"]);
        let before = pieces(b"{}\n{}\n{");
        let kinds: Vec<Kind> = before.iter().map(|piece| piece.kind).collect();
        assert_eq!(kinds, [Kind::Unsealed, Kind::Unsealed, Kind::Unfinished]);
        assert!(pieces(b"").is_empty());
    }

    #[test]
    fn a_lost_line_end_costs_no_line() {
        let text = format!("{}\n{}\n", sealed("{\"a\":1}"), sealed("{\"b\":2}")).replacen('\n', "x", 1);
        let kinds: Vec<Kind> = pieces(text.as_bytes()).iter().map(|piece| piece.kind).collect();
        assert_eq!(kinds, [Kind::Whole, Kind::LineEnd, Kind::Whole]);
        let last = format!("{}x", sealed("{\"a\":1}"));
        let kinds: Vec<Kind> = pieces(last.as_bytes()).iter().map(|piece| piece.kind).collect();
        assert_eq!(kinds, [Kind::Whole, Kind::Unfinished]);
    }
}
