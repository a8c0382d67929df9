//! Classifies the protocol from the first bytes of one side.

use super::tls;
use super::{Look, Spoken, http1, http2};
use spangap_model::Side;

/// First bytes of an HTTP/2 client (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Examines contiguous bytes of one side: its first ones or, if `joined`, any.
pub fn look(from: Side, bytes: &[u8], joined: bool) -> Look {
    if bytes.is_empty() {
        return Look::More;
    }
    let preface = bytes.len().min(PREFACE.len());
    if bytes[..preface] == PREFACE[..preface] {
        return match (from, preface == PREFACE.len()) {
            (_, false) => Look::More,
            (Side::Server, true) if !joined => Look::Unknown,
            // Its parser determines the client by itself.
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
    // An HTTP/1 response precedes a request only if the request was not seen.
    let request = http1::looks_like_request(bytes);
    let response = if joined { http1::looks_like_response(bytes) } else { Look::Unknown };
    match (from, request, response) {
        (Side::Client, Look::Unknown, Look::Is(_)) | (Side::Server, Look::Is(_), _) if joined => {
            Look::OtherWay
        }
        (Side::Client, look, _) if look != Look::Unknown => look,
        (Side::Server, _, look) if look != Look::Unknown => look,
        _ if joined && http2::looks_like(bytes) => Look::Is(Spoken::Http2),
        _ => Look::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_identify_the_protocol() {
        use Look::{Is, More, OtherWay, Unknown};
        use Side::{Client as C, Server as S};
        let hello = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03abc";
        let record = b"\x17\x03\x03\x00\x05abcde";
        let ping = &b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678".repeat(3)[..];
        for (from, bytes, joined, expected) in [
            (C, PREFACE, false, Is(Spoken::Http2)),
            (C, &PREFACE[..9], false, More),
            (S, PREFACE, true, Is(Spoken::Http2)),
            (C, &b"P"[..], false, More),
            (C, b"POST /x HTTP/1.1\r\n", false, Is(Spoken::Http1)),
            (C, b"POST /x", false, More),
            (C, b"PURGE /x HTTP/1.1\r\n", false, Is(Spoken::Http1)),
            (C, b"M-SEARCH * HTTP/1.1\r\n", false, Is(Spoken::Http1)),
            (C, b"GET key\r\n", false, Unknown),
            (C, b"purge it over HTTP/1.1\r\n", false, Unknown),
            (C, b"LOG GET / HTTP/1.1\r\n", false, Unknown),
            (C, b"OPTIONS * RTSP/1.0\r\n", false, Unknown),
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
