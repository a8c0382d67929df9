//! A trace id as plain bytes, wherever it stands in a packet: for ids that travel outside of what is decoded.

use crate::packet::Packet;
use memchr::memmem::Finder;

/// Places kept.
pub(super) const MAX_PLACES: usize = 100;

/// Packets in which an id was found, and in which form.
pub(super) type Places = Vec<(u64, &'static str)>;

/// Looks for ids in their plain forms. (Huffman-coded ones are found by decoding headers, not here.)
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    forms: Vec<(Finder<'static>, &'static str)>,
    found: usize,
}

impl Search {
    /// For these ids; a 64-bit one (its first eight bytes zero) is looked for as such.
    pub fn new(ids: &[[u8; 16]]) -> Search {
        let mut forms = Vec::new();
        for id in ids {
            let bytes: &[u8] = if id[..8] == [0; 8] { &id[8..] } else { id };
            let hex = |upper: bool| -> String {
                bytes.iter().map(|b| if upper { format!("{b:02X}") } else { format!("{b:02x}") }).collect()
            };
            let mut add = |bytes: &[u8], form| forms.push((Finder::new(bytes).into_owned(), form));
            add(hex(false).as_bytes(), "hexadecimal");
            if hex(true) != hex(false) {
                add(hex(true).as_bytes(), "hexadecimal, upper case");
            }
            add(bytes, "raw bytes");
        }
        Search { forms, found: 0 }
    }

    /// Whether there is anything to look for.
    pub fn is_on(&self) -> bool {
        !self.forms.is_empty() && self.found < MAX_PLACES
    }

    /// Looks into a packet.
    pub fn packet(&mut self, packet: &Packet<'_>, places: &mut Places) {
        for (finder, form) in &self.forms {
            if finder.find(packet.data).is_some() && self.found < MAX_PLACES {
                self.found += 1;
                places.push((packet.number, form));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::LinkType;

    #[test]
    fn all_plain_forms_are_found() {
        let id = [0xab, 0xcd, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let (mut search, mut places) = (Search::new(&[id]), Places::new());
        let texts: [&[u8]; 4] =
            [b"x abcd030405060708090a0b0c0d0e0f10", b"ABCD030405060708090A0B0C0D0E0F10 y", &id, b"nothing"];
        for (i, data) in texts.into_iter().enumerate() {
            let wire_len = data.len() as u32;
            let packet = Packet {
                number: i as u64 + 1,
                time_ns: 0,
                interface: 0,
                link: LinkType::RAW,
                wire_len,
                data,
            };
            search.packet(&packet, &mut places);
        }
        let forms = ["hexadecimal", "hexadecimal, upper case", "raw bytes"];
        let expected: Vec<_> = (1..).zip(forms).collect();
        assert_eq!(places, expected);
    }
}
