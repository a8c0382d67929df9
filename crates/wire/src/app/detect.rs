//! What the first bytes of one side say about the protocol.

use super::http1;
use super::tls;
use spangap_model::Side;

/// What a client of HTTP/2 says first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Which parser understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// TLS.
    Tls,
    /// None of them.
    Unknown,
}

/// What a look at bytes yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// This is spoken.
    Is(Spoken),
    /// What was taken for the server is the client.
    OtherWay,
    /// It may become something with more bytes.
    More,
    /// Nothing known begins like this.
    Unknown,
}

/// Looks at bytes of one side without a hole between them: its first ones or, if `joined`, any.
pub fn look(from: Side, bytes: &[u8], joined: bool) -> Look {
    if bytes.is_empty() {
        return Look::More;
    }
    let preface = bytes.len().min(PREFACE.len());
    if bytes[..preface] == PREFACE[..preface] {
        return match (from, preface == PREFACE.len()) {
            (_, false) => Look::More,
            (Side::Server, true) if !joined => Look::Unknown,
            // Its parser finds out by itself which side is the client.
            _ => Look::Is(Spoken::Http2),
        };
    }
    let by_tls = tls::looks_like(bytes, joined);
    match (by_tls, from, bytes) {
        (Look::Unknown, ..) => {}
        // A ClientHello.
        (_, Side::Server, [22, _, _, _, _, 1, ..]) if joined => return Look::OtherWay,
        (look, ..) => return look,
    }
    // A response of HTTP/1 comes before a request only where the request was not seen.
    let request = http1::looks_like_request(bytes);
    let response = if joined { http1::looks_like_response(bytes) } else { Look::Unknown };
    match (from, request, response) {
        (Side::Client, Look::Unknown, Look::Is(_)) | (Side::Server, Look::Is(_), _) if joined => {
            Look::OtherWay
        }
        (Side::Client, look, _) if look != Look::Unknown => look,
        (Side::Server, _, look) if look != Look::Unknown => look,
        _ if joined && looks_like_frames(bytes) => Look::Is(Spoken::Http2),
        _ => Look::Unknown,
    }
}

/// Whether bytes are HTTP/2 frames, one after the other (RFC 9113, 4.1 and 6): a known type with a length and a
/// stream that this type may have, and no flags but its own. One that fills the bytes exactly will do, or two.
fn looks_like_frames(bytes: &[u8]) -> bool {
    let (mut rest, mut frames) = (bytes, 0);
    while let Some((header, after)) = rest.split_first_chunk::<9>() {
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        let (kind, flags, on_stream) = (header[3], header[4], stream != 0);
        let possible = stream < 1 << 31
            && len <= 1 << 14
            && match kind {
                0 => on_stream && flags & !0x09 == 0,
                1 => on_stream && flags & !0x2d == 0 && len > 0,
                3 => on_stream && len == 4 && flags == 0,
                4 => !on_stream && len.is_multiple_of(6) && flags & !1 == 0 && (flags == 0 || len == 0),
                6 => !on_stream && len == 8 && flags & !1 == 0,
                7 => !on_stream && len >= 8 && flags == 0,
                8 => len == 4 && flags == 0,
                9 => on_stream && flags & !4 == 0,
                _ => false,
            };
        if !possible {
            return false;
        }
        frames += 1;
        match after.split_at_checked(len) {
            Some((_, after)) => rest = after,
            None => return frames >= 2,
        }
    }
    frames >= 1 && (rest.is_empty() || frames >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_name_the_protocol() {
        use Look::{Is, More, OtherWay, Unknown};
        use Side::{Client as C, Server as S};
        let hello = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03abc";
        let record = b"\x17\x03\x03\x00\x05abcde";
        let ping = b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678";
        for (from, bytes, joined, expected) in [
            (C, PREFACE, false, Is(Spoken::Http2)),
            (C, &PREFACE[..9], false, More),
            (S, PREFACE, true, Is(Spoken::Http2)),
            (C, &b"P"[..], false, More),
            (C, b"POST /x HTTP/1.1\r\n", false, Is(Spoken::Http1)),
            (C, b"POST /x", false, More),
            (C, b"GET key\r\n", false, Unknown),
            (C, b"*1\r\n$4\r\nPING\r\n", false, Unknown),
            (C, b"HTTP/1.1 200 OK\r\n", true, OtherWay),
            (S, b"GET / HTTP/1.1\r\n", true, OtherWay),
            (S, b"GET / HTTP/1.1\r\n", false, Unknown),
            (S, b"HTTP/1.1 200 OK\r\n", true, Is(Spoken::Http1)),
            (S, b"220 mail", false, Unknown),
            (C, hello, false, Is(Spoken::Tls)),
            (C, &hello[..3], false, More),
            (S, record, true, Is(Spoken::Tls)),
            (S, hello, true, OtherWay),
            (C, record, false, Unknown),
            (S, ping, true, Is(Spoken::Http2)),
            (S, ping, false, Unknown),
            (S, &[], false, More),
        ] {
            assert_eq!(
                look(from, bytes, joined),
                expected,
                "{from:?} {joined} {:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}
