//! Position in a body, and its end (RFC 9112, 6 and 7).

/// Maximum length of a chunk-size line, or of all trailers together.
const MAX_LINES_BYTES: u32 = 64 << 10;

/// The remaining part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// This many bytes.
    Fixed(u64),
    /// Chunks.
    Chunked(Chunked),
    /// Everything until the connection ends.
    UntilClose,
}

/// Position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunked {
    /// In the line with the size.
    Size {
        /// Its value so far.
        value: u64,
        /// Whether its digits have ended.
        over: bool,
        /// Length of the line so far.
        seen: u32,
    },
    /// In the data, with this many bytes left.
    Data(u64),
    /// In the line end after the data.
    DataEnd,
    /// In the trailers.
    Trailers {
        /// Whether the line has been empty so far.
        empty: bool,
        /// Length of all trailers so far.
        seen: u32,
    },
}

/// Result of reading a piece of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes are content.
    Content(usize),
    /// This many bytes are framing.
    Framing(usize),
    /// The body ends after this many bytes of framing.
    End(usize),
    /// This is not a body.
    Broken,
}

impl Body {
    /// A chunked body at its start.
    pub const CHUNKED: Body = Body::Chunked(Chunked::SIZE);

    /// Whether nothing is left of it.
    #[inline]
    pub fn over(&self) -> bool {
        matches!(self, Body::Fixed(0))
    }

    /// Reads more; `bytes` is not empty, and the body has not ended.
    #[inline]
    pub fn step(&mut self, bytes: &[u8]) -> Step {
        match self {
            Body::Fixed(left) => {
                let used = (*left).min(bytes.len() as u64);
                *left -= used;
                Step::Content(used as usize)
            }
            Body::UntilClose => Step::Content(bytes.len()),
            Body::Chunked(chunked) => chunked.step(bytes),
        }
    }

    /// Skips missing bytes; returns whether the position is still known.
    pub fn skip(&mut self, len: u64) -> bool {
        match self {
            Body::UntilClose => true,
            Body::Fixed(left) if len <= *left => {
                *left -= len;
                true
            }
            Body::Chunked(Chunked::Data(left)) if len <= *left => {
                *left -= len;
                if *left == 0 {
                    *self = Body::Chunked(Chunked::DataEnd);
                }
                true
            }
            _ => false,
        }
    }
}

impl Chunked {
    const SIZE: Chunked = Chunked::Size { value: 0, over: false, seen: 0 };

    fn step(&mut self, bytes: &[u8]) -> Step {
        match *self {
            Chunked::Data(left) => {
                let used = left.min(bytes.len() as u64);
                *self = if used == left { Chunked::DataEnd } else { Chunked::Data(left - used) };
                Step::Content(used as usize)
            }
            Chunked::DataEnd => match bytes {
                [b'\r', b'\n', ..] => self.to(Chunked::SIZE, 2),
                [b'\n', ..] => self.to(Chunked::SIZE, 1),
                [b'\r'] => Step::Framing(1),
                _ => Step::Broken,
            },
            Chunked::Size { value, over, seen } => self.size(bytes, value, over, seen),
            Chunked::Trailers { empty, seen } => self.trailers(bytes, empty, seen),
        }
    }

    fn to(&mut self, next: Chunked, used: usize) -> Step {
        *self = next;
        Step::Framing(used)
    }

    fn size(&mut self, bytes: &[u8], mut value: u64, mut over: bool, mut seen: u32) -> Step {
        for (at, byte) in bytes.iter().enumerate() {
            match (char::from(*byte).to_digit(16), byte) {
                (_, b'\n') if seen > 0 => {
                    let next = if value == 0 {
                        Chunked::Trailers { empty: true, seen: 0 }
                    } else {
                        Chunked::Data(value)
                    };
                    return self.to(next, at + 1);
                }
                (Some(digit), _) if !over && value >> 60 == 0 => value = value << 4 | u64::from(digit),
                (None, b'\r' | b';' | b' ' | b'\t') if seen > 0 => over = true,
                _ if over => {}
                _ => return Step::Broken,
            }
            seen += 1;
            if seen > MAX_LINES_BYTES {
                return Step::Broken;
            }
        }
        self.to(Chunked::Size { value, over, seen }, bytes.len())
    }

    fn trailers(&mut self, bytes: &[u8], mut empty: bool, mut seen: u32) -> Step {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if empty => {
                    *self = Chunked::SIZE;
                    return Step::End(at + 1);
                }
                b'\n' => empty = true,
                b'\r' => {}
                _ => empty = false,
            }
            seen += 1;
            if seen > MAX_LINES_BYTES {
                return Step::Broken;
            }
        }
        self.to(Chunked::Trailers { empty, seen }, bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The content of a chunked body that arrives in pieces, and its length; `None` if it is broken.
    fn content(text: &[u8], piece: usize) -> Option<(Vec<u8>, usize)> {
        let (mut body, mut content, mut at) = (Body::CHUNKED, Vec::new(), 0);
        while at < text.len() {
            let bytes = &text[at..text.len().min(at + piece)];
            match body.step(bytes) {
                Step::Content(used) => {
                    content.extend_from_slice(&bytes[..used]);
                    at += used;
                }
                Step::Framing(used) => at += used,
                Step::End(used) => return Some((content, at + used)),
                Step::Broken => return None,
            }
        }
        Some((content, usize::MAX))
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        let text =
            b"4;a=\"b\"\r\nWiki\r\n0000a \r\npedia in\r\n\r\n2\nab\n0;x\r\nExpires: now\r\nA: b\r\n\r\nGET";
        for piece in 1..text.len() {
            assert_eq!(
                content(text, piece),
                Some((b"Wikipedia in\r\nab".to_vec(), text.len() - 3)),
                "{piece}"
            );
        }
        assert_eq!(content(b"0\r\n\r\n", 1), Some((vec![], 5)));
    }

    #[test]
    fn invalid_chunks_are_broken() {
        for text in ["x\r\n", "\r\n", "-1\r\n", "1\r\nabc", "11111111111111111\r\n", ";\r\n"] {
            assert_eq!(content(text.as_bytes(), 100), None, "{text:?}");
        }
    }
}
