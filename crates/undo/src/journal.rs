//! Parser for journals of JSON Lines: intact lines are used, damaged ones reported with their position and
//! text.

use crate::seal::{Kind, pieces, sealed, sealed_twice, twice};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Maximum length quoted from a damaged line.
const SHOWN: usize = 2_000;

/// A head and the records that follow, as far as readable.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedJournal<H, R> {
    /// The first line; `None` if neither copy is readable.
    pub head: Option<H>,
    /// The other readable lines, in order.
    pub records: Vec<R>,
    /// Unreadable parts.
    pub damage: Vec<Damage>,
    /// Bytes after the last newline: a truncated write, so nothing that they describe was begun.
    pub unfinished: Option<Range<usize>>,
}

/// Unreadable bytes of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Line number, from one.
    pub line: usize,
    /// Offset of the first byte, from zero.
    pub offset: usize,
    /// Number of bytes.
    pub bytes: usize,
    /// What is wrong.
    pub why: String,
    /// The bytes as text: whatever is legible allows a manual restoration.
    pub text: String,
    /// Whether information is missing: a damaged copy of the head has an intact twin.
    pub lost: bool,
}

/// `line 3, bytes 120 to 240: its checksum is another line's: {"record":...`
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.offset + self.bytes.saturating_sub(1);
        write!(f, "line {}, bytes {} to {last}: {}", self.line, self.offset, self.why)?;
        match (self.lost, self.text.is_empty()) {
            // Nobody needs to restore from these bytes by hand.
            (false, _) => f.write_str(" (nothing is lost by it)"),
            (true, true) => Ok(()),
            (true, false) => write!(f, ": {}", self.text),
        }
    }
}

impl Damage {
    /// Describes a range of a journal's bytes.
    pub fn at(bytes: &[u8], line: usize, range: Range<usize>, why: impl Into<String>) -> Damage {
        let shown = &bytes[range.start..range.end.min(range.start + SHOWN)];
        let text: String = String::from_utf8_lossy(shown)
            .chars()
            .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
            .collect();
        let more = if shown.len() < range.len() { "..." } else { "" };
        let (offset, count) = (range.start, range.len());
        Damage { line, offset, bytes: count, why: why.into(), text: text + more, lost: true }
    }
}

impl<H, R> ParsedJournal<H, R> {
    /// Whether everything is readable.
    pub fn is_whole(&self) -> bool {
        self.head.is_some() && !self.damage.iter().any(|damage| damage.lost)
    }
}

/// Parses a journal, with or without checksums.
pub fn parse<H: DeserializeOwned, R: DeserializeOwned>(bytes: &[u8]) -> ParsedJournal<H, R> {
    let mut parsed = ParsedJournal { head: None, records: Vec::new(), damage: Vec::new(), unfinished: None };
    // End of the head's copies.
    let mut heads = 0;
    for piece in pieces(bytes) {
        let (line, range) = (piece.line, piece.range);
        let damage = |why: &str| Damage::at(bytes, line, range.clone(), why);
        let document = &bytes[range.clone()];
        match piece.kind {
            Kind::Whole | Kind::Unsealed => {
                // By position rather than by line: a byte that turned into a newline splits a line into two.
                let head =
                    if parsed.records.is_empty() { serde_json::from_slice(document).ok() } else { None };
                if let Some(head) = head {
                    let sealed = piece.kind == Kind::Whole;
                    heads =
                        heads.max(if sealed && range.start == 0 { twice(range.len()) } else { range.end });
                    parsed.head = parsed.head.or(Some(head));
                    continue;
                }
                match serde_json::from_slice(document) {
                    Ok(record) => parsed.records.push(record),
                    Err(error) => {
                        let head = line == 1 && parsed.head.is_none();
                        let expected = if head { "the head of a journal" } else { "a line of this journal" };
                        parsed.damage.push(damage(&not(expected, &error)));
                    }
                }
            }
            Kind::Altered => parsed.damage.push(damage("its checksum is not that of what is there")),
            Kind::NoChecksum => parsed.damage.push(damage("it has no checksum")),
            Kind::LineEnd => {
                let wrong = damage("expected the end of the line");
                parsed.damage.push(Damage { lost: false, ..wrong });
            }
            Kind::Unfinished => parsed.unfinished = Some(range),
        }
    }
    if bytes.is_empty() {
        parsed.damage.push(Damage::at(bytes, 1, 0..0, "the file is empty"));
    }
    for damage in parsed.damage.iter_mut().filter(|damage| damage.offset < heads) {
        // The other copy is intact.
        damage.lost = false;
    }
    parsed
}

/// Every line is a document of its own: the position in the parser's error says nothing about the file.
fn not(expected: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("found {what}, expected {expected}")
}

/// First line of a journal.
pub fn head_line(head: &impl Serialize) -> String {
    sealed_twice(&json(head)) + "\n"
}

/// A further line.
pub fn line(record: &impl Serialize) -> String {
    sealed(&json(record)) + "\n"
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Head {
        boot: String,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Record {
        place: String,
        old: Option<u64>,
    }

    fn text(head: &Head, records: &[Record]) -> String {
        head_line(head) + &records.iter().map(line).collect::<String>()
    }

    /// Range of each record's line, without its newline.
    fn lines(text: &str) -> Vec<Range<usize>> {
        let mut at = 0;
        let ranges = text.split_inclusive('\n').map(|line| {
            at += line.len();
            at - line.len()..at - 1
        });
        ranges.skip(1).collect()
    }

    fn journal() -> impl Strategy<Value = (Head, Vec<Record>)> {
        let head = any::<String>().prop_map(|boot| Head { boot });
        let record = any::<(String, Option<u64>)>().prop_map(|(place, old)| Record { place, old });
        (head, prop::collection::vec(record, 0..6))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// With any byte of a journal changed in several ways, at most one line is lost, and it is the one
        /// reported.
        #[test]
        fn a_changed_byte_costs_its_own_line_alone((head, records) in journal(), other: u8) {
            let whole = text(&head, &records);
            let lines = lines(&whole);
            for at in 0..whole.len() {
                let was = whole.as_bytes()[at];
                for value in [was ^ 1, was ^ 0x80, b'\n', b' ', b'0', b'\t', b'~', other] {
                    let mut bytes = whole.clone().into_bytes();
                    if bytes[at] == value {
                        continue;
                    }
                    bytes[at] = value;
                    let read: ParsedJournal<Head, Record> = parse(&bytes);
                    prop_assert_eq!(read.head.as_ref(), Some(&head), "byte {} to {}", at, value);
                    let hit = lines.iter().position(|line| line.contains(&at));
                    let mut rest = records.clone();
                    if let Some(hit) = hit {
                        rest.remove(hit);
                    }
                    prop_assert_eq!(&read.records, &rest, "byte {} to {}", at, value);
                    // An extra newline is reported next to the line that it split.
                    let around = |damage: &Damage| damage.offset.saturating_sub(1)..=damage.offset + damage.bytes;
                    let named = read.damage.iter().any(|damage| around(damage).contains(&at));
                    // A missing final newline cannot be distinguished from a truncated write.
                    let last = at + 1 == whole.len() && read.unfinished.is_some();
                    // A newline between the two copies of the head changes nothing.
                    let between = at == seal_len(&head) && value == b'\n';
                    prop_assert!(named || last || between, "byte {} to {}: {:?}", at, value, read);
                    prop_assert_eq!(read.is_whole(), hit.is_none());
                }
            }
        }

        #[test]
        fn truncated_journal_yields_every_complete_line((head, records) in journal()) {
            let whole = text(&head, &records);
            let copy = seal_len(&head);
            for cut in 0..=whole.len() {
                let read: ParsedJournal<Head, Record> = parse(&whole.as_bytes()[..cut]);
                prop_assert_eq!(read.head.is_some(), cut >= copy, "{}", cut);
                // A line that lacks only its newline is complete by its checksum.
                let lines = lines(&whole).iter().filter(|line| line.end <= cut).count();
                prop_assert_eq!(&read.records[..], &records[..lines], "{}", cut);
                prop_assert!(cut == 0 || read.damage.is_empty(), "{:?}", read);
            }
        }

        #[test]
        fn older_lines_have_no_checksum((head, records) in journal()) {
            let lines = std::iter::once(json(&head)).chain(records.iter().map(json));
            let text: String = lines.map(|line| line + "\n").collect();
            let read: ParsedJournal<Head, Record> = parse(text.as_bytes());
            prop_assert!(read.is_whole());
            prop_assert_eq!((read.head, read.records), (Some(head), records));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _: ParsedJournal<Head, Record> = parse(&bytes);
        }
    }

    fn seal_len(head: &Head) -> usize {
        sealed(&json(head)).len()
    }
}
