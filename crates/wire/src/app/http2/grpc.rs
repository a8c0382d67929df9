//! gRPC over HTTP/2: message boundaries in a body, and gRPC's own header fields (PROTOCOL-HTTP2 of gRPC).

/// Size of the prefix of each message: the compression flag and the length.
pub const PREFIX_BYTES: usize = 5;

/// Whether a content type is one of gRPC: `application/grpc`, alone or followed by `+` or `;`. gRPC-Web frames
/// its trailers differently, but its messages the same way.
pub fn is_grpc(content_type: &[u8]) -> bool {
    content_type.starts_with(b"application/grpc")
}

/// `grpc-timeout`: at most eight digits and a unit.
pub fn timeout_ns(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let unit_ns = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(number * unit_ns)
}

/// An event of a message at some byte of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next byte is its first.
    Begin,
    /// The next byte is the first after it.
    End,
}

/// Position of one stream direction within its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    prefix: [u8; PREFIX_BYTES],
    /// Number of prefix bytes seen.
    have: u8,
    /// Remaining bytes of the message, once its prefix is complete.
    left: u32,
    /// Bytes are missing: the start of the next message is unknown.
    lost: bool,
}

impl Messages {
    /// Advances over the body to the next event: returns the number of bytes before it, and the event; `None` if
    /// `body` has none, which is then consumed.
    #[inline]
    pub fn next(&mut self, body: &[u8]) -> Option<(usize, Event)> {
        if self.lost || body.is_empty() {
            return None;
        }
        if self.have == 0 {
            self.prefix[0] = body[0];
            self.have = 1;
            if body[0] > 1 {
                // Neither compressed nor uncompressed: this is not a message.
                self.lost = true;
                return None;
            }
            // The byte itself is already recorded, so the next call steps over it.
            return Some((1, Event::Begin));
        }
        let mut used = 0;
        while usize::from(self.have) < PREFIX_BYTES {
            let byte = body.get(used)?;
            self.prefix[usize::from(self.have)] = *byte;
            self.have += 1;
            used += 1;
            if usize::from(self.have) == PREFIX_BYTES {
                let [_, a, b, c, d] = self.prefix;
                self.left = u32::from_be_bytes([a, b, c, d]);
            }
        }
        let step = (body.len() - used).min(self.left as usize);
        self.left -= step as u32;
        if self.left == 0 {
            self.have = 0;
            return Some((used + step, Event::End));
        }
        None
    }

    /// Skips missing bytes of the body. If a message continues after them, its position is still known; returns
    /// whether it ends with them.
    pub fn skip(&mut self, bytes: u64) -> bool {
        match u64::from(self.left).checked_sub(bytes) {
            Some(left) if self.inside() => {
                self.left = left as u32;
                if left == 0 {
                    self.have = 0;
                }
                left == 0
            }
            _ => {
                self.lost = true;
                false
            }
        }
    }

    /// Whether the prefix of a message was seen, but not its end.
    pub fn inside(&self) -> bool {
        !self.lost && usize::from(self.have) == PREFIX_BYTES
    }

    /// Whether message boundaries are no longer known.
    pub fn lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of the events in a body that arrives in these pieces.
    fn events(messages: &mut Messages, pieces: &[&[u8]]) -> Vec<(usize, Event)> {
        let mut found = Vec::new();
        let mut before = 0;
        for piece in pieces {
            let mut at = 0;
            while let Some((used, event)) = messages.next(&piece[at..]) {
                at += used;
                found.push((before + at - usize::from(event == Event::Begin), event));
            }
            before += piece.len();
        }
        found
    }

    #[test]
    fn messages_are_found_however_the_body_is_split() {
        let body = [0, 0, 0, 0, 2, 7, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9];
        let expected = [(0, Event::Begin), (7, Event::End), (7, Event::Begin), (12, Event::End)];
        let expected = [&expected[..], &[(12, Event::Begin), (18, Event::End)]].concat();
        for first in 0..body.len() {
            for second in first..body.len() {
                let pieces = [&body[..first], &body[first..second], &body[second..]];
                assert_eq!(events(&mut Messages::default(), &pieces), expected, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_gap_inside_a_message_keeps_the_position() {
        let mut messages = Messages::default();
        assert_eq!(events(&mut messages, &[&[0, 0, 0, 0, 9, 1]]), [(0, Event::Begin)]);
        assert!(!messages.skip(5));
        assert!(messages.skip(3), "the message ends with the gap");
        assert_eq!(events(&mut messages, &[&[0, 0, 0, 0, 0]]), [(0, Event::Begin), (5, Event::End)]);
        assert!(!messages.skip(1) && messages.lost(), "between messages a gap may hide any number of them");
        assert_eq!(events(&mut messages, &[&[0, 0, 0, 0, 0]]), []);
    }

    #[test]
    fn timeouts_of_every_unit() {
        assert_eq!(timeout_ns(b"1H"), Some(3_600_000_000_000));
        assert_eq!(timeout_ns(b"2M"), Some(120_000_000_000));
        assert_eq!(timeout_ns(b"3S"), Some(3_000_000_000));
        assert_eq!(timeout_ns(b"250m"), Some(250_000_000));
        assert_eq!(timeout_ns(b"99999999u"), Some(99_999_999_000));
        assert_eq!(timeout_ns(b"7n"), Some(7));
        for wrong in [&b""[..], b"S", b"1", b"1s", b"-1S", b"123456789S"] {
            assert_eq!(timeout_ns(wrong), None);
        }
    }
}
