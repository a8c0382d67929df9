//! Recognises header fields of unknown name by their value alone.
//!
//! On a connection joined after its start, a field's name is often an index into a table whose filling nobody
//! saw, while its value is present in full. Only unmistakable values are accepted: a wrong trace id or status is
//! worse than none.

use super::field::{Meaning, Name};
use crate::app::trace;
use crate::app::{Texts, without_query};

/// Number of pseudo-header fields in a request: they precede all others (RFC 9113, 8.3).
const PSEUDO_FIELDS: u32 = 4;

/// Name and meaning of a nameless value; its field is number `place` of the block, from 0.
#[cold]
pub fn of(value: &[u8], place: u32, texts: &mut Texts) -> Option<(Name, Meaning)> {
    if let Some((name, part)) = trace::by_shape(value) {
        return Some((Name::of(name), Meaning::Trace(part)));
    }
    if place < PSEUDO_FIELDS && is_grpc_path(value) {
        return Some((Name::Path, Meaning::Path(texts.id(without_query(value)))));
    }
    // The first field of a response is `:status`, and no field of trailers is a number of three digits.
    match *value {
        [first @ b'1'..=b'5', second, third]
            if place == 0 && second.is_ascii_digit() && third.is_ascii_digit() =>
        {
            let digit = |byte: u8| u32::from(byte - b'0');
            Some((Name::Status, Meaning::Status(100 * digit(first) + 10 * digit(second) + digit(third))))
        }
        _ => None,
    }
}

/// A gRPC status in its written form; a small number may also be something else.
pub fn small_status(value: &[u8]) -> Option<u32> {
    match *value {
        [one @ b'0'..=b'9'] => Some(u32::from(one - b'0')),
        [b'1', one @ b'0'..=b'6'] => Some(10 + u32::from(one - b'0')),
        _ => None,
    }
}

/// `/package.Service/Method`
fn is_grpc_path(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"/") else { return false };
    let Some(slash) = memchr::memchr(b'/', rest) else { return false };
    let (service, method) = (&rest[..slash], &rest[slash + 1..]);
    let word = |text: &[u8]| {
        let first = text.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
        first && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let parts = service.split(|byte| *byte == b'.');
    parts.clone().count() > 1 && parts.clone().all(word) && word(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(value: &str, place: u32) -> Option<Name> {
        of(value.as_bytes(), place, &mut Texts::default()).map(|(name, _)| name)
    }

    #[test]
    fn unmistakable_values_are_recognised() {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(name(traceparent, 9), Some(Name::of(b"traceparent")));
        assert_eq!(name("4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", 9), Some(Name::of(b"b3")));
        assert_eq!(
            name("4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7:0:1", 9),
            Some(Name::of(b"uber-trace-id"))
        );
        assert_eq!(name("AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE", 9), Some(Name::of(b"grpc-trace-bin")));
        assert_eq!(name("/shop.v1.Cart/Add", 3), Some(Name::Path));
        assert_eq!((name("204", 0), name("503", 0)), (Some(Name::Status), Some(Name::Status)));
    }

    #[test]
    fn ambiguous_values_are_ignored() {
        for (value, place) in [
            // Not version 00, upper case, no ids, more or less than 55 bytes.
            ("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 5),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", 5),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", 5),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", 5),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", 5),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", 5),
            // Ids of requests and of sessions.
            ("4bf92f35-77b3-4da6-a3ce-929d0e0e4736", 5),
            ("4bf92f3577b34da6a3ce929d0e0e4736", 5),
            ("4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", 5),
            ("4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7", 5),
            ("1:2:0:1", 5),
            ("AABL", 5),
            // Paths of redirected requests, of files, and without a package.
            ("/shop.v1.Cart/Add", 4),
            ("/v1.2/index.html", 0),
            ("/Cart/Add", 0),
            ("/a..b/C", 0),
            // Lengths, ages, and statuses that are not the first field.
            ("200", 1),
            ("0", 0),
            ("600", 0),
            ("2000", 0),
        ] {
            assert_eq!(name(value, place), None, "{value} at {place}");
        }
    }
}
