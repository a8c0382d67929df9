//! The tables that HPACK's indices refer to (RFC 7541, 2.3): the static one, and the dynamic one of a direction.

use super::field::{Meaning, Name};
use std::collections::VecDeque;

/// Name and value as sent.
pub type Text = (Vec<u8>, Vec<u8>);

/// Overhead charged for every entry in addition to its name and value (RFC 7541, 4.1).
pub const ENTRY_OVERHEAD_BYTES: u64 = 32;
/// Size of a dynamic table until its encoder changes it (RFC 9113, 6.5.2).
pub const DEFAULT_SIZE_BYTES: u64 = 4096;
/// Size kept while the encoder's size is unknown. Older entries are then unknown.
const ASSUMED_SIZE_BYTES: u64 = 65_536;
/// Maximum entries. An encoder with a larger table may refer to older ones, which are then unknown.
pub const MAX_ENTRIES: usize = 8192;

/// RFC 7541, appendix A.
pub static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The name of an entry of the static table (from 1).
#[inline]
pub fn static_name(index: usize) -> Name {
    match index {
        2 | 3 | 6 | 7 => Name::OfRequest,
        4 | 5 => Name::Path,
        8..=14 => Name::Status,
        31 => Name::ContentType,
        _ => Name::Other,
    }
}

/// An entry of a dynamic table. Only the lengths and the meaning of its text are kept, unless there is an
/// observer.
#[derive(Debug)]
pub struct Entry {
    /// Length of the name; needed again if a field refers to only the name.
    pub name_bytes: u32,
    /// Length of the value.
    pub value_bytes: u32,
    /// The name.
    pub name: Name,
    /// The meaning of the field.
    pub meaning: Meaning,
    /// Whether the name was recognised by the shape of a value.
    pub by_shape: bool,
    /// The text, for an observer.
    pub text: Option<Box<Text>>,
}

impl Entry {
    fn size_bytes(&self) -> u64 {
        u64::from(self.name_bytes) + u64::from(self.value_bytes) + ENTRY_OVERHEAD_BYTES
    }
}

/// The target of an index.
#[derive(Debug)]
pub enum Found<'a> {
    /// An entry of the static table, by its number.
    Static(usize),
    /// An entry of the dynamic table.
    Dynamic(&'a Entry),
    /// An entry from before the capture, or beyond the maximum.
    Unknown,
    /// No entry: the bytes are not HPACK, or not of this connection.
    None,
}

/// The dynamic table of one direction, newest entry first.
///
/// Indices count from the newest entry, so observed entries are found regardless of earlier ones. Keeping an
/// entry longer than the encoder does no harm, since the encoder cannot refer to it. So the size matters only if
/// the whole table was seen; then it distinguishes HPACK from other bytes.
#[derive(Debug)]
pub struct Table {
    entries: VecDeque<Entry>,
    /// Sum of the sizes of `entries`.
    size_bytes: u64,
    /// The encoder's size; `None` if it may have been set before the capture.
    limit_bytes: Option<u64>,
    /// Whether the encoder may have older entries than these.
    older_unknown: bool,
}

impl Table {
    /// For a connection seen from its start.
    pub fn empty() -> Table {
        Table {
            entries: VecDeque::new(),
            size_bytes: 0,
            limit_bytes: Some(DEFAULT_SIZE_BYTES),
            older_unknown: false,
        }
    }

    /// For a connection joined later.
    pub fn unknown() -> Table {
        Table { limit_bytes: None, older_unknown: true, ..Table::empty() }
    }

    /// An unreadable entry was inserted: all indices have shifted.
    pub fn forget(&mut self) {
        *self = Table { entries: std::mem::take(&mut self.entries), ..Table::unknown() };
        self.entries.clear();
    }

    /// The entry for an index from the wire.
    #[inline]
    pub fn get(&self, index: usize) -> Found<'_> {
        match index.checked_sub(STATIC.len() + 1) {
            None if index == 0 => Found::None,
            None => Found::Static(index),
            Some(place) => match self.entries.get(place) {
                Some(entry) => Found::Dynamic(entry),
                None if self.older_unknown => Found::Unknown,
                None => Found::None,
            },
        }
    }

    /// Inserts an entry; the oldest ones make room for it (RFC 7541, 4.4).
    #[inline]
    pub fn insert(&mut self, entry: Entry) {
        let size = entry.size_bytes();
        self.shrink(self.limit_bytes.unwrap_or(ASSUMED_SIZE_BYTES).saturating_sub(size));
        if self.limit_bytes.is_some_and(|limit| size > limit) {
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.older_unknown = true;
            self.remove_oldest();
        }
        self.size_bytes += size;
        self.entries.push_front(entry);
    }

    /// The encoder changes the size of its table.
    pub fn resize(&mut self, limit_bytes: u64) {
        self.limit_bytes = Some(limit_bytes);
        self.shrink(limit_bytes);
        if limit_bytes < ENTRY_OVERHEAD_BYTES {
            // No entry fits: all earlier ones are gone.
            self.older_unknown = false;
        }
    }

    fn shrink(&mut self, to_bytes: u64) {
        while self.size_bytes > to_bytes {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_back() {
            self.size_bytes -= entry.size_bytes();
        }
    }

    /// Sum of the sizes of the known entries, as RFC 7541, 4.1 counts them.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Known entries, newest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Memory use.
    pub fn memory_bytes(&self) -> usize {
        let texts = self.entries.iter().filter(|entry| entry.text.is_some());
        let texts: usize = texts.map(|entry| (entry.name_bytes + entry.value_bytes) as usize).sum();
        self.entries.capacity() * size_of::<Entry>() + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name_bytes: u32) -> Entry {
        Entry {
            name_bytes,
            value_bytes: 0,
            name: Name::Other,
            meaning: Meaning::Nothing,
            by_shape: false,
            text: None,
        }
    }

    fn found(table: &Table, index: usize) -> Option<u32> {
        match table.get(index) {
            Found::Dynamic(entry) => Some(entry.name_bytes),
            _ => None,
        }
    }

    #[test]
    fn the_static_table_has_the_right_names() {
        for (index, (name, _)) in STATIC.iter().enumerate() {
            assert_eq!(static_name(index + 1), Name::of(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_oldest_entries_are_evicted() {
        let mut table = Table::empty();
        table.resize(100);
        for bytes in [10, 20] {
            table.insert(entry(bytes));
        }
        assert_eq!((found(&table, 62), found(&table, 63), table.size_bytes()), (Some(20), Some(10), 94));
        table.insert(entry(30));
        assert_eq!((found(&table, 62), found(&table, 63), table.size_bytes()), (Some(30), None, 62));
        assert!(matches!(table.get(63), Found::None));
        table.insert(entry(69));
        assert_eq!(table.size_bytes(), 0, "an entry larger than the table empties it");
    }

    #[test]
    fn earlier_entries_are_unknown() {
        let mut table = Table::unknown();
        table.insert(entry(1));
        assert_eq!(found(&table, 62), Some(1));
        assert!(matches!(table.get(63), Found::Unknown));
        assert!(matches!(table.get(0), Found::None));
        table.resize(0);
        assert!(matches!(table.get(62), Found::None), "a table of no size has no entries");
        let mut table = Table::empty();
        table.resize(1 << 30);
        (0..=MAX_ENTRIES as u32).for_each(|bytes| table.insert(entry(bytes)));
        assert_eq!(found(&table, 61 + MAX_ENTRIES), Some(1));
        assert!(matches!(table.get(62 + MAX_ENTRIES), Found::Unknown), "an entry that found no room");
    }
}
