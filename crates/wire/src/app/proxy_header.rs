//! The header with which a proxy passes on its client's address (PROXY protocol 1 and 2, as HAProxy defines it). It
//! comes before the first byte of whatever the connection carries, and is part of no call.

/// Length of a header of version 1, with its line end, at most.
const MAX_LINE_BYTES: usize = 107;
/// First bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the part before the addresses.
const FIXED_BYTES: usize = 16;
/// First bytes of version 1.
const WORD: &[u8] = b"PROXY ";

/// What the first bytes of a client are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// Something else.
    None,
    /// More bytes may decide.
    More,
    /// A header of this length.
    Len(usize),
}

/// Examines the first bytes of a client.
pub fn look(bytes: &[u8]) -> ProxyHeader {
    let begins = |with: &[u8]| {
        let both = bytes.len().min(with.len());
        bytes[..both] == with[..both]
    };
    if bytes.is_empty() {
        ProxyHeader::More
    } else if begins(WORD) {
        line(bytes)
    } else if begins(SIGNATURE) {
        binary(bytes)
    } else {
        ProxyHeader::None
    }
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 40000 443`, or `TCP6`, or `UNKNOWN` with anything behind it.
fn line(bytes: &[u8]) -> ProxyHeader {
    let Some(end) = memchr::memchr(b'\n', &bytes[..bytes.len().min(MAX_LINE_BYTES)]) else {
        return if bytes.len() < MAX_LINE_BYTES { ProxyHeader::More } else { ProxyHeader::None };
    };
    let mut words = bytes[..end].strip_suffix(b"\r").unwrap_or_default().split(|byte| *byte == b' ');
    let is_header = match words.nth(1) {
        Some(b"TCP4" | b"TCP6") => words.count() == 4,
        Some(b"UNKNOWN") => true,
        _ => false,
    };
    if is_header { ProxyHeader::Len(end + 1) } else { ProxyHeader::None }
}

/// Signature, version and command, family, and the length of what follows.
fn binary(bytes: &[u8]) -> ProxyHeader {
    match bytes.get(SIGNATURE.len()..) {
        Some([0x20 | 0x21, _, high, low, ..]) => {
            let len = FIXED_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
            if bytes.len() < len { ProxyHeader::More } else { ProxyHeader::Len(len) }
        }
        None | Some([] | [0x20 | 0x21, ..]) => ProxyHeader::More,
        Some(_) => ProxyHeader::None,
    }
}

/// A whole header of the same length without what it says of anybody: its kind and its separators.
pub fn without_addresses(header: &[u8]) -> Vec<u8> {
    let words = if header.starts_with(WORD) { 2 } else { 0 };
    let mut spaces = 0;
    let kept = |(at, byte): (usize, &u8)| {
        spaces += usize::from(*byte == b' ');
        let keep = if words == 0 { at < FIXED_BYTES } else { spaces < words || b" .:\r\n".contains(byte) };
        if keep { *byte } else { b'0' * u8::from(words > 0) }
    };
    header.iter().enumerate().map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_end_where_their_content_begins() {
        let v2 = |command: u8, addresses: &[u8]| {
            [SIGNATURE, &[command, 0x11, 0, addresses.len() as u8][..], addresses].concat()
        };
        for header in [
            b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n".to_vec(),
            b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n".to_vec(),
            b"PROXY UNKNOWN\r\n".to_vec(),
            b"PROXY UNKNOWN whatever it says\r\n".to_vec(),
            v2(0x21, &[7; 12]),
            v2(0x21, &[7; 36 + 20]),
            v2(0x20, &[]),
        ] {
            for content in [&b""[..], b"G", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"PROXY "] {
                let bytes = [&header[..], content].concat();
                assert_eq!(look(&bytes), ProxyHeader::Len(header.len()), "{bytes:?}");
            }
            for cut in 0..header.len() {
                assert_eq!(look(&header[..cut]), ProxyHeader::More, "{:?}", &header[..cut]);
            }
        }
    }

    #[test]
    fn a_header_without_addresses_is_a_header_of_the_same_length() {
        let of = |header: &[u8]| String::from_utf8(without_addresses(header)).expect("text");
        assert_eq!(
            of(b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\r\n"),
            "PROXY TCP4 000.0.0.0 000.0.0.0 00000 000\r\n"
        );
        assert_eq!(of(b"PROXY UNKNOWN 2001:db8::1\r\n"), "PROXY UNKNOWN 0000:000::0\r\n");
        let binary = [&SIGNATURE[..], &[0x21, 0x11, 0, 4, 192, 0, 2, 1]].concat();
        let masked = without_addresses(&binary);
        assert_eq!((&masked[..16], &masked[16..]), (&binary[..16], &[0; 4][..]));
        assert_eq!(look(&masked), ProxyHeader::Len(binary.len()));
    }

    #[test]
    fn nothing_else_is_a_header() {
        for bytes in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"POST / HTTP/1.1\r\n",
            b"PROXY / HTTP/1.1\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 40000\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 443\n",
            &[&b"PROXY UNKNOWN "[..], &[b'x'; MAX_LINE_BYTES]].concat(),
            b"\r\n\r\nGET / HTTP/1.1\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x11\x11\0\0",
        ] {
            assert_eq!(look(bytes), ProxyHeader::None, "{bytes:?}");
        }
    }
}
