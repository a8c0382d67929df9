//! Header compression of HTTP/2 (RFC 7541), decoded to the meaning of the fields.
//!
//! Written here, because the libraries decode for a peer: from the first byte of a connection, with nothing lost. A
//! capture may begin in the middle or have holes. Then entries of the table are unknown, and a block that refers to
//! one still has other fields worth reading.

use super::field::{Head, Meaning, Name};
use super::table::{Entry, Found, STATIC, Table, Text, static_name};
use super::{huffman, shape};
use crate::app::Texts;

/// Why bytes are not a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It ends inside a field.
    #[error("byte {0} of the header block: it ends inside a field")]
    Truncated(usize),
    /// An integer beyond 32 bits.
    #[error("byte {0} of the header block: an integer beyond 32 bits")]
    Integer(usize),
    /// An index without an entry.
    #[error("byte {0} of the header block: an index without an entry")]
    Index(usize),
    /// Not a Huffman code.
    #[error("byte {0} of the header block: {1} where a Huffman code should be")]
    Huffman(usize, huffman::Fault),
    /// A change of the table's size after the first field.
    #[error("byte {0} of the header block: a change of the table's size after a field")]
    Resize(usize),
}

/// Number of blocks remembered: those that begin and end a response, and a request without ids of its own.
const REMEMBERED: usize = 4;
/// Maximum size of a remembered block.
const REMEMBERED_BYTES: usize = 31;

/// A block of indices only: its length, its bytes, and zeros. In one place, because with thousands of connections every place
/// costs a miss of the cache.
type IndexBlock = [u8; REMEMBERED_BYTES + 1];

/// `None` for blocks that are too large, or begin with something else.
#[inline]
fn index_block(block: &[u8]) -> Option<IndexBlock> {
    let mut indices = [0; REMEMBERED_BYTES + 1];
    if !block.first().is_some_and(is_short_index) || block.len() > REMEMBERED_BYTES {
        return None;
    }
    indices[0] = block.len() as u8;
    indices[1..=block.len()].copy_from_slice(block);
    Some(indices)
}

/// An index below 127, which takes one byte.
#[inline]
fn is_short_index(byte: &u8) -> bool {
    (0x81..0xff).contains(byte)
}

/// The decoder of one direction.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// Blocks that stacks send with call after call, until the table changes; zeros for none.
    remembered: [IndexBlock; REMEMBERED],
    /// Their content.
    heads: [Head; REMEMBERED],
    next_remembered: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A literal field, as given by its first bytes.
#[derive(Clone, Copy)]
struct Literal {
    /// Index of its name in the tables; 0 if the name follows in the block.
    index: u32,
    /// Whether it enters the dynamic table.
    insert: bool,
    /// Its offset in the block.
    start: usize,
    /// Number of fields before it.
    place: u32,
}

/// Maximum scratch capacity kept from block to block.
const SCRATCH_BYTES: usize = 16_384;

impl Decoder {
    /// For a direction seen from its start, or joined later.
    pub fn new(from_start: bool) -> Decoder {
        let table = if from_start { Table::empty() } else { Table::unknown() };
        Decoder {
            table,
            remembered: Default::default(),
            heads: Default::default(),
            next_remembered: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// A header block was lost: the content of the table is no longer known.
    pub fn forget(&mut self) {
        self.changes();
        self.table.forget();
    }

    /// The table is about to change, which shifts its indices.
    #[inline]
    fn changes(&mut self) {
        self.remembered = Default::default();
    }

    /// Remembers a block without literals.
    #[inline]
    fn remember(&mut self, block: IndexBlock, head: Head) {
        let place = self.next_remembered % REMEMBERED;
        (self.remembered[place], self.heads[place]) = (block, head);
        self.next_remembered = self.next_remembered.wrapping_add(1);
    }

    /// Decodes a whole header block. The text of its fields goes to `observed`, if given.
    ///
    /// # Errors
    /// If it is not a header block. The table is then unknown.
    pub fn decode(
        &mut self,
        block: &[u8],
        texts: &mut Texts,
        observed: Option<&mut Vec<Text>>,
    ) -> Result<Head, Fault> {
        let indices = if observed.is_none() { index_block(block) } else { None };
        if let Some(indices) = indices
            && let Some(place) = self.remembered.iter().position(|known| *known == indices)
        {
            return Ok(self.heads[place]);
        }
        let refused = texts.refused;
        let result = self.fields(block, texts, observed);
        match result {
            Err(_) => self.forget(),
            Ok(head) if texts.refused == refused => {
                // Only indices: nothing in the block can have changed the table.
                if let Some(indices) = indices.filter(|_| block.iter().all(is_short_index)) {
                    self.remember(indices, head);
                }
            }
            Ok(_) => {}
        }
        if self.name.capacity().max(self.value.capacity()) > SCRATCH_BYTES {
            self.name.shrink_to(SCRATCH_BYTES);
            self.value.shrink_to(SCRATCH_BYTES);
        }
        result
    }

    fn fields(
        &mut self,
        block: &[u8],
        texts: &mut Texts,
        mut observed: Option<&mut Vec<Text>>,
    ) -> Result<Head, Fault> {
        let mut head = Head::default();
        let mut cursor = Cursor { block, at: 0 };
        let mut fields = 0;
        while let Some(byte) = block.get(cursor.at).copied() {
            let start = cursor.at;
            if byte & 0x80 != 0 {
                let index = cursor.integer(7)?;
                let mut text = None;
                match self.table.get(index as usize) {
                    Found::Dynamic(entry) => {
                        match entry.by_shape {
                            true => head.take_by_shape(&entry.meaning),
                            false => head.take(&entry.meaning),
                        }
                        text = entry.text.as_deref();
                    }
                    Found::Static(index) => head.take(&static_meaning(index, texts)),
                    Found::Unknown => head.take(&Meaning::Unknown),
                    Found::None => return Err(Fault::Index(start)),
                }
                if let Some(observed) = observed.as_deref_mut() {
                    if let Some(text) = text {
                        observed.push(text.clone());
                    } else if let Some((name, value)) = STATIC.get((index as usize).wrapping_sub(1)) {
                        observed.push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
                    }
                }
            } else if byte & 0xe0 == 0x20 {
                if fields > 0 {
                    return Err(Fault::Resize(start));
                }
                let size = cursor.integer(5)?;
                self.changes();
                self.table.resize(u64::from(size));
                continue;
            } else {
                let indexed = byte & 0x40 != 0;
                let index = cursor.integer(if indexed { 6 } else { 4 })?;
                let literal = Literal { index, insert: indexed, start, place: fields };
                self.literal(&mut cursor, literal, texts, &mut head, observed.as_deref_mut())?;
            }
            fields += 1;
        }
        Ok(head)
    }

    /// A field whose value, and possibly name, is in the block.
    #[inline]
    fn literal(
        &mut self,
        cursor: &mut Cursor<'_>,
        literal: Literal,
        texts: &mut Texts,
        head: &mut Head,
        observed: Option<&mut Vec<Text>>,
    ) -> Result<(), Fault> {
        let Literal { index, insert, start, .. } = literal;
        // Only an observer needs the name's text: otherwise its meaning and length suffice.
        let watched = observed.is_some();
        let mut by_shape = false;
        let (name, name_bytes, name_text) = if index == 0 {
            let text = cursor.string(&mut self.name)?;
            (Name::of(text), text.len() as u32, watched.then(|| text.to_vec()))
        } else {
            match self.table.get(index as usize) {
                Found::Static(index) => {
                    let text = STATIC[index - 1].0.as_bytes();
                    (static_name(index), text.len() as u32, watched.then(|| text.to_vec()))
                }
                Found::Dynamic(entry) if entry.name == Name::Unknown => (Name::Unknown, 0, None),
                Found::Dynamic(entry) => {
                    by_shape = entry.by_shape;
                    (entry.name, entry.name_bytes, entry.text.as_ref().map(|text| text.0.clone()))
                }
                Found::Unknown => (Name::Unknown, 0, None),
                Found::None => return Err(Fault::Index(start)),
            }
        };
        if name == Name::Unknown {
            return self.nameless(cursor, literal, texts, head);
        }
        if !insert && !watched && name == Name::Other {
            // It enters no table and is irrelevant: its value need not be decoded.
            return cursor.skip_string();
        }
        let value = cursor.string(&mut self.value)?;
        let meaning = name.read(value, texts);
        match by_shape {
            true => head.take_by_shape(&meaning),
            false => head.take(&meaning),
        }
        let text = name_text.map(|name| (name, value.to_vec()));
        if insert {
            let text = text.clone().map(Box::new);
            let value_bytes = value.len() as u32;
            self.changes();
            self.table.insert(Entry { name_bytes, value_bytes, name, meaning, by_shape, text });
        }
        if let (Some(observed), Some(text)) = (observed, text) {
            observed.push(text);
        }
        Ok(())
    }

    /// A literal whose name is in an unseen part of the table: derives what its value shows.
    #[cold]
    fn nameless(
        &mut self,
        cursor: &mut Cursor<'_>,
        literal: Literal,
        texts: &mut Texts,
        head: &mut Head,
    ) -> Result<(), Fault> {
        let value = cursor.string(&mut self.value)?;
        let shape = shape::of(value, literal.place, texts);
        let (name, meaning) = shape.unwrap_or((Name::Unknown, Meaning::Unknown));
        head.take_by_shape(&meaning);
        if shape.is_none() {
            head.small = shape::small_status(value);
        }
        if literal.insert {
            let value_bytes = value.len() as u32;
            let by_shape = shape.is_some();
            self.changes();
            self.table.insert(Entry { name_bytes: 0, value_bytes, name, meaning, by_shape, text: None });
        }
        Ok(())
    }

    /// The dynamic table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Memory use.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.name.capacity() + self.value.capacity()
    }
}

/// Meaning of an entry of the static table.
#[inline]
fn static_meaning(index: usize, texts: &mut Texts) -> Meaning {
    match index {
        2 | 3 | 6 | 7 => Meaning::OfRequest,
        4 | 5 => Meaning::Path(texts.id(STATIC[index - 1].1.as_bytes())),
        8 => Meaning::Status(200),
        9..=14 => Name::Status.read(STATIC[index - 1].1.as_bytes(), texts),
        _ => Meaning::Nothing,
    }
}

/// Whether bytes can be a header block, whatever the tables contain.
pub fn plausible(block: &[u8]) -> bool {
    let mut cursor = Cursor { block, at: 0 };
    let mut scratch = Vec::new();
    let mut fields = 0;
    while let Some(byte) = block.get(cursor.at).copied() {
        let fine = if byte & 0x80 != 0 {
            cursor.integer(7).is_ok_and(|index| index != 0 && index < 4096)
        } else if byte & 0xe0 == 0x20 {
            fields == 0 && cursor.integer(5).is_ok()
        } else {
            let index = cursor.integer(if byte & 0x40 != 0 { 6 } else { 4 });
            let named = match index {
                Ok(0) => cursor.string(&mut scratch).is_ok_and(is_name),
                other => other.is_ok_and(|index| index < 4096),
            };
            named && cursor.string(&mut scratch).is_ok()
        };
        if !fine {
            return false;
        }
        fields += 1;
    }
    fields > 0
}

/// Whether bytes can be the name of an HTTP/2 field: no upper case, no control characters (RFC 9113, 8.2.1).
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
}

/// A position in a header block.
struct Cursor<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// An integer whose first `prefix` bits are in the current byte (RFC 7541, 5.1).
    #[inline]
    fn integer(&mut self, prefix: u32) -> Result<u32, Fault> {
        let mask = (1u32 << prefix) - 1;
        let start = self.at;
        let first = u32::from(*self.block.get(start).ok_or(Fault::Truncated(start))?) & mask;
        self.at += 1;
        if first < mask { Ok(first) } else { self.long_integer(first, start) }
    }

    fn long_integer(&mut self, first: u32, start: usize) -> Result<u32, Fault> {
        let mut value = u64::from(first);
        // Five bytes hold 32 bits; more of them could only be zeros.
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.block.get(self.at).ok_or(Fault::Truncated(start))?;
            self.at += 1;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| Fault::Integer(start));
            }
        }
        Err(Fault::Integer(start))
    }

    /// The bytes of a string, and whether they are Huffman coded.
    #[inline]
    fn raw_string(&mut self) -> Result<(&'a [u8], bool), Fault> {
        let start = self.at;
        let coded = self.block.get(start).is_some_and(|byte| byte & 0x80 != 0);
        let length = self.integer(7)? as usize;
        let end = self.at.checked_add(length).ok_or(Fault::Truncated(start))?;
        let bytes = self.block.get(self.at..end).ok_or(Fault::Truncated(start))?;
        self.at = end;
        Ok((bytes, coded))
    }

    /// Skips a string (RFC 7541, 5.2).
    fn skip_string(&mut self) -> Result<(), Fault> {
        self.raw_string().map(|_| ())
    }

    /// A string; decoded into `scratch` if needed.
    #[inline]
    fn string<'s>(&mut self, scratch: &'s mut Vec<u8>) -> Result<&'s [u8], Fault>
    where
        'a: 's,
    {
        let start = self.at;
        let (bytes, coded) = self.raw_string()?;
        if !coded {
            return Ok(bytes);
        }
        scratch.clear();
        huffman::decode(bytes, scratch).map_err(|fault| Fault::Huffman(start, fault))?;
        Ok(scratch)
    }
}

#[cfg(test)]
mod tests;
