//! Masks the values of header blocks in place: every index and every length is preserved, and so is every table.

use super::value::{Masks, visible};
use crate::app::Texts;
use crate::app::http2::field::{Meaning, Name};
use crate::app::http2::table::{Entry, Found, STATIC, Table, static_name};
use crate::app::http2::{grpc, huffman, shape};

/// The blocks of one direction.
#[derive(Debug)]
pub(super) struct Blocks {
    table: Table,
}

/// Not a header block; none of it may be shown.
#[derive(Debug)]
pub(super) struct InvalidBlock;

/// Content of a block that affects the following frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockFacts {
    /// Whether the body is gRPC, if there is a content type.
    pub grpc: Option<bool>,
}

struct Cursor<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn integer(&mut self, prefix: u32) -> Result<u64, InvalidBlock> {
        let mask = (1u64 << prefix) - 1;
        let first = u64::from(*self.block.get(self.at).ok_or(InvalidBlock)?) & mask;
        self.at += 1;
        if first < mask {
            return Ok(first);
        }
        let mut value = first;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.block.get(self.at).ok_or(InvalidBlock)?;
            self.at += 1;
            value += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return if value <= u64::from(u32::MAX) { Ok(value) } else { Err(InvalidBlock) };
            }
        }
        Err(InvalidBlock)
    }

    /// The octets of a string, and whether they are Huffman coded.
    fn string(&mut self) -> Result<(&'a [u8], bool), InvalidBlock> {
        let coded = *self.block.get(self.at).ok_or(InvalidBlock)? & 0x80 != 0;
        let length = usize::try_from(self.integer(7)?).map_err(|_| InvalidBlock)?;
        let end = self.at.checked_add(length).ok_or(InvalidBlock)?;
        let octets = self.block.get(self.at..end).ok_or(InvalidBlock)?;
        self.at = end;
        Ok((octets, coded))
    }
}

fn decoded(octets: &[u8], coded: bool) -> Result<Vec<u8>, InvalidBlock> {
    if !coded {
        return Ok(octets.to_vec());
    }
    let mut text = Vec::new();
    huffman::decode(octets, &mut text).map_err(|_| InvalidBlock)?;
    Ok(text)
}

/// Whether bytes can be the name of an HTTP/2 field.
fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase())
}

impl Blocks {
    pub fn new(from_start: bool) -> Blocks {
        Blocks { table: if from_start { Table::empty() } else { Table::unknown() } }
    }

    /// A block is missing: the content of the table is no longer known.
    pub fn forget(&mut self) {
        self.table.forget();
    }

    /// Masks a whole block into `out`, which has the same length.
    pub fn mask(&mut self, block: &[u8], out: &mut [u8], masks: &Masks) -> Result<BlockFacts, InvalidBlock> {
        let facts = self.fields(block, out, masks);
        if facts.is_err() {
            out.fill(0);
            self.table.forget();
        }
        facts
    }

    fn fields(&mut self, block: &[u8], out: &mut [u8], masks: &Masks) -> Result<BlockFacts, InvalidBlock> {
        let mut facts = BlockFacts::default();
        let mut cursor = Cursor { block, at: 0 };
        let mut place = 0;
        while let Some(byte) = block.get(cursor.at).copied() {
            let start = cursor.at;
            if byte & 0x80 != 0 {
                let index = cursor.integer(7)?;
                match self.table.get(index as usize) {
                    Found::None => return Err(InvalidBlock),
                    Found::Dynamic(Entry { meaning: Meaning::ContentType { grpc }, .. }) => {
                        facts.grpc = Some(*grpc);
                    }
                    _ => {}
                }
                out[start..cursor.at].copy_from_slice(&block[start..cursor.at]);
            } else if byte & 0xe0 == 0x20 {
                if place > 0 {
                    return Err(InvalidBlock);
                }
                self.table.resize(cursor.integer(5)?);
                out[start..cursor.at].copy_from_slice(&block[start..cursor.at]);
                continue;
            } else {
                self.literal(&mut cursor, byte & 0x40 != 0, place, (out, masks, &mut facts))?;
            }
            place += 1;
        }
        Ok(facts)
    }

    fn literal(
        &mut self,
        cursor: &mut Cursor<'_>,
        insert: bool,
        place: u32,
        (out, masks, facts): (&mut [u8], &Masks, &mut BlockFacts),
    ) -> Result<(), InvalidBlock> {
        let (block, start) = (cursor.block, cursor.at);
        let index = cursor.integer(if insert { 6 } else { 4 })?;
        let mut text = Vec::new();
        let mut by_shape = false;
        let (mut name, mut name_bytes) = (Name::Unknown, 0);
        if index == 0 {
            let (octets, coded) = cursor.string()?;
            text = decoded(octets, coded)?;
            if !is_name(&text) {
                return Err(InvalidBlock);
            }
            (name, name_bytes) = (Name::of(&text), text.len() as u32);
        } else {
            match self.table.get(index as usize) {
                Found::Static(index) => {
                    let known = STATIC.get(index - 1).map_or(0, |(name, _)| name.len());
                    (name, name_bytes) = (static_name(index), known as u32);
                }
                Found::Dynamic(entry) => {
                    by_shape = entry.by_shape;
                    (name, name_bytes) = (entry.name, entry.name_bytes);
                }
                Found::Unknown => {}
                Found::None => return Err(InvalidBlock),
            }
        }
        let value_at = cursor.at;
        let (octets, coded) = cursor.string()?;
        let value = decoded(octets, coded)?;
        let mut visible_part = visible(name, &text, &value);
        if name == Name::Unknown {
            // The name is in an unseen part of the table.
            if let Some((known, _)) = shape::of(&value, place, &mut Texts::default()) {
                (name, by_shape) = (known, true);
                visible_part = visible(name, &text, &value);
            } else if shape::small_status(&value).is_some() {
                visible_part = 0..value.len();
            }
        }
        let octets_at = cursor.at - octets.len();
        out[start..octets_at].copy_from_slice(&block[start..octets_at]);
        debug_assert!(value_at < octets_at);
        let mask = match coded {
            true => masks.huffman(&value, octets.len(), visible_part).ok_or(InvalidBlock)?,
            false => masks.raw(&value, visible_part),
        };
        out[octets_at..cursor.at].copy_from_slice(&mask);
        let meaning = match name {
            Name::ContentType => Meaning::ContentType { grpc: grpc::is_grpc(&value) },
            _ => Meaning::Nothing,
        };
        if let Meaning::ContentType { grpc } = meaning {
            facts.grpc = Some(grpc);
        }
        if insert {
            let value_bytes = value.len() as u32;
            self.table.insert(Entry { name_bytes, value_bytes, name, meaning, by_shape, text: None });
        }
        Ok(())
    }
}
