//! The relevant header fields of a message (RFC 9112, 5 and 6).

use crate::app::trace::{TraceParts, from_header};

/// Facts from the header fields, mainly about the end of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// `Content-Length`.
    pub length: Option<u64>,
    /// `Transfer-Encoding` ends with `chunked`.
    pub chunked: bool,
    /// `Upgrade: h2c`
    pub h2c: bool,
    /// Whether lengths are contradictory or invalid.
    pub broken: bool,
    /// Trace contexts.
    pub trace: TraceParts,
}

/// Offset after the empty line that ends the head, searching from `from`.
#[inline]
pub fn end(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| match bytes[from + at + 1..] {
        [b'\n', ..] => Some(from + at + 2),
        [b'\r', b'\n', ..] => Some(from + at + 3),
        _ => None,
    })
}

/// Lines, without their ends.
pub fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = head;
    std::iter::from_fn(move || {
        let at = memchr::memchr(b'\n', rest)?;
        let line = &rest[..at];
        rest = &rest[at + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

impl Fields {
    /// Parses the lines after the first one. A continuation line (obs-fold) is skipped.
    #[inline]
    pub fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Fields {
        let mut fields = Fields::default();
        for line in lines {
            let Some(first) = line.first() else { break };
            if !matches!(first | 0x20, b'b' | b'c' | b'g' | b't' | b'u' | b'x') {
                continue;
            }
            let Some((name, value)) = split(line) else { continue };
            match name.len() {
                7 if name.eq_ignore_ascii_case(b"upgrade") => {
                    fields.h2c |=
                        value.split(|b| *b == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(b"h2c"));
                }
                14 if name.eq_ignore_ascii_case(b"content-length") => fields.length(value),
                17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                    let last = value.rsplit(|b| *b == b',').next().unwrap_or_default();
                    fields.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
                }
                _ => from_header(name, value, &mut fields.trace),
            }
        }
        fields
    }

    /// The same length may occur several times (RFC 9110, 8.6).
    fn length(&mut self, value: &[u8]) {
        for one in value.split(|b| *b == b',') {
            let digits = one.trim_ascii();
            let number = digits.iter().try_fold(0u64, |sum, digit| {
                let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
                sum.checked_mul(10)?.checked_add(digit)
            });
            match number {
                Some(number) if !digits.is_empty() && self.length.is_none_or(|before| before == number) => {
                    self.length = Some(number);
                }
                _ => self.broken = true,
            }
        }
    }
}

/// Name and value of a field.
pub fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// Every field, for an observer, with continuation lines joined.
pub fn all<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in lines.take_while(|line| !line.is_empty()) {
        match (line[0], fields.last_mut(), split(line)) {
            (b' ' | b'\t', Some((_, value)), _) => {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
            (_, _, Some((name, value))) => fields.push((name.to_ascii_lowercase(), value.to_vec())),
            _ => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Fields {
        Fields::read(lines(text.as_bytes()))
    }

    #[test]
    fn lengths_and_codings_are_parsed() {
        assert_eq!(read("Content-length: 12\r\n\r\n").length, Some(12));
        assert_eq!(read("content-length:12, 12\ncontent-length: 12\n").length, Some(12));
        assert!(read("content-length: 12\r\ncontent-length: 13\r\n").broken);
        for broken in ["x", "-1", "", "1,", "99999999999999999999"] {
            assert!(read(&format!("content-length: {broken}\r\n")).broken, "{broken}");
        }
        assert!(read("Transfer-Encoding: gzip , Chunked\r\n").chunked);
        assert!(!read("transfer-encoding: chunked, gzip\r\n").chunked);
        assert!(read("Upgrade: websocket, h2c\r\n").h2c);
        assert!(!read("x: \r\n upgrade: h2c\r\n").h2c, "a continued line is no field");
    }

    #[test]
    fn the_end_of_a_head_is_found_with_both_line_ends() {
        assert_eq!(end(b"a\r\n\r\nb", 0), Some(5));
        assert_eq!(end(b"a\n\nb", 0), Some(3));
        assert_eq!(end(b"a\r\nb\r\n\r", 0), None);
    }

    #[test]
    fn continuation_lines_are_joined_for_an_observer() {
        let fields = all(lines(b"A: 1\r\n  2\r\nB:3\r\n\r\nC: 4\r\n"));
        assert_eq!(fields, [(b"a".to_vec(), b"1 2".to_vec()), (b"b".to_vec(), b"3".to_vec())]);
    }
}
