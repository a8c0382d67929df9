//! Protobuf's wire format: a cursor with checked reads.

/// Wire type of length-delimited fields.
pub const LEN: u8 = 2;

/// The bytes are not well-formed protobuf, or not the expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an OTLP trace request: expected {expected} at byte {offset}")]
pub struct WalkError {
    /// Offset in bytes from the start of the request.
    pub offset: usize,
    /// What was expected there.
    pub expected: &'static str,
}

/// Maximum nesting depth of groups, as in protobuf's own libraries.
const MAX_GROUP_DEPTH: u32 = 100;

/// Reads one field after the other. Offsets are relative to the whole request, so that errors can state them.
pub struct Cursor<'a> {
    buf: &'a [u8],
    pos: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor over a whole request.
    pub fn new(buf: &'a [u8]) -> Self {
        Cursor { buf, pos: 0 }
    }

    /// A cursor from `pos` to the end of `buf`, which is the request truncated at the end of the message.
    #[inline]
    pub fn at(buf: &'a [u8], pos: usize) -> Self {
        Cursor { buf, pos }
    }

    /// Offset of the next read.
    pub fn position(&self) -> usize {
        self.pos
    }

    /// An error at the current position.
    #[cold]
    pub fn expected(&self, expected: &'static str) -> WalkError {
        WalkError { offset: self.pos, expected }
    }

    /// Number and wire type of the next field; `None` at the end of the message.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<(u32, u8)>, WalkError> {
        let Some(&byte) = self.buf.get(self.pos) else { return Ok(None) };
        let tag = if byte < 0x80 {
            self.pos += 1;
            byte as u64
        } else {
            self.varint()?
        };
        match u32::try_from(tag) {
            Ok(tag) if tag >= 8 => Ok(Some((tag >> 3, (tag & 7) as u8))),
            _ => Err(self.expected("a field tag")),
        }
    }

    /// A varint of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, WalkError> {
        match self.buf.get(self.pos) {
            Some(&byte) if byte < 0x80 => {
                self.pos += 1;
                Ok(byte as u64)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WalkError> {
        let mut value = 0u64;
        for (i, &byte) in self.buf[self.pos..].iter().take(10).enumerate() {
            value |= ((byte & 0x7f) as u64) << (7 * i);
            if byte < 0x80 {
                if i == 9 && byte > 1 {
                    return Err(self.expected("a varint of at most 64 bits"));
                }
                self.pos += i + 1;
                return Ok(value);
            }
        }
        Err(self.expected("a complete varint"))
    }

    /// Eight bytes, little-endian.
    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, WalkError> {
        let bytes = self.buf[self.pos..].first_chunk::<8>().ok_or_else(|| self.expected("eight bytes"))?;
        self.pos += 8;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Skips a length-delimited field and returns the range of its content.
    #[inline]
    pub fn len_range(&mut self) -> Result<(usize, usize), WalkError> {
        let len = self.varint()?;
        if len > (self.buf.len() - self.pos) as u64 {
            return Err(self.expected("a length within its message"));
        }
        let from = self.pos;
        self.pos += len as usize;
        Ok((from, self.pos))
    }

    /// Skips a field of any wire type.
    #[inline]
    pub fn skip(&mut self, field: u32, wire: u8) -> Result<(), WalkError> {
        match wire {
            LEN => self.len_range().map(|_| ()),
            0 => self.varint().map(|_| ()),
            _ => self.skip_rare(field, wire, 0),
        }
    }

    fn skip_rare(&mut self, field: u32, wire: u8, depth: u32) -> Result<(), WalkError> {
        match wire {
            0 | LEN => self.skip(field, wire),
            1 => self.fixed64().map(|_| ()),
            5 => {
                if self.buf.len() - self.pos < 4 {
                    return Err(self.expected("four bytes"));
                }
                self.pos += 4;
                Ok(())
            }
            3 if depth < MAX_GROUP_DEPTH => loop {
                match self.tag()? {
                    Some((end, 4)) if end == field => return Ok(()),
                    Some((_, 4)) | None => return Err(self.expected("the end of the group")),
                    Some((inner, wire)) => self.skip_rare(inner, wire, depth + 1)?,
                }
            },
            _ => Err(self.expected("a known wire type")),
        }
    }
}
