//! Values of header fields: the parts that the analysis needs, and the replacement for the rest.

use crate::app::http2::field::Name;
use crate::app::http2::{grpc, huffman};
use crate::app::trace;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;

/// Maximum length of a plausible trace context.
const MAX_TRACE_BYTES: usize = 140;
/// Maximum length of a protocol word: a method, a coding.
const MAX_WORD_BYTES: usize = 40;
/// Length of a `traceparent` of version 00; additions of later versions are unknown.
const TRACEPARENT_BYTES: usize = 55;

/// HTTP/1 fields that are required to find the end of a message.
const WORDS: [&[u8]; 4] = [b"content-length", b"transfer-encoding", b"upgrade", b"connection"];

/// Their legal values (RFC 9112, 6.1, 7; RFC 9110, 7.8; RFC 7540, 3.2).
const TOKENS: [&[u8]; 15] = [
    b"chunked",
    b"gzip",
    b"x-gzip",
    b"deflate",
    b"compress",
    b"identity",
    b"trailers",
    b"keep-alive",
    b"close",
    b"upgrade",
    b"te",
    b"http2-settings",
    b"h2c",
    b"websocket",
    b"proxy-connection",
];
/// Maximum digits of a message length.
const MAX_DIGITS: usize = 20;

/// The part of a field's value that may be shown; the name may have any case.
pub(super) fn visible_in(name: &[u8], value: &[u8]) -> Range<usize> {
    let name = name.to_ascii_lowercase();
    if WORDS.contains(&&name[..]) {
        let is = |word: &[u8]| {
            let word = word.trim_ascii();
            TOKENS.iter().any(|token| token.eq_ignore_ascii_case(word))
                || word.len() <= MAX_DIGITS && word.iter().all(u8::is_ascii_digit)
        };
        return all_if(value, value.split(|byte| *byte == b',').all(is));
    }
    visible(Name::of(&name), &name, value)
}

/// The part of a value that may be shown. `text` is the literal name, if present.
pub(super) fn visible(name: Name, text: &[u8], value: &[u8]) -> Range<usize> {
    let until = |ends: &[u8]| 0..value.iter().position(|byte| ends.contains(byte)).unwrap_or(value.len());
    let decimal = value.len() <= 9 && value.iter().all(u8::is_ascii_digit);
    match name {
        // A path contains no blanks or control characters.
        Name::Path if value.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) => 0..0,
        Name::Path => until(b"?#"),
        Name::ContentType => {
            let kind = until(b";");
            all_if(&value[kind.clone()], kind.len() <= 2 * MAX_WORD_BYTES && is_words(&value[kind.clone()]))
        }
        Name::OfRequest => all_if(value, is_words(value)),
        Name::Status | Name::GrpcStatus => all_if(value, decimal),
        Name::GrpcTimeout => all_if(value, grpc::timeout_ns(value).is_some()),
        Name::Trace(_) => visible_trace(name.text().unwrap_or(text), value),
        Name::Other | Name::Unknown => 0..0,
    }
}

fn all_if(value: &[u8], is: bool) -> Range<usize> {
    if is { 0..value.len() } else { 0..0 }
}

fn is_words(value: &[u8]) -> bool {
    value.len() <= 2 * MAX_WORD_BYTES
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b" ,-/+._*".contains(byte))
}

fn visible_trace(name: &[u8], value: &[u8]) -> Range<usize> {
    let fits = value.len() <= MAX_TRACE_BYTES
        && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b" -:%+/=_.".contains(byte));
    match name {
        // Only its high half of the id.
        b"x-datadog-tags" => {
            const TAG: &[u8] = b"_dd.p.tid=";
            let at = value.windows(TAG.len()).position(|window| window == TAG);
            let whole = at.filter(|_| trace::part(name, value).is_some());
            whole.map_or(0..0, |at| at..(at + TAG.len() + 16).min(value.len()))
        }
        b"traceparent" if trace::part(name, value).is_some() => {
            let begin = value.len() - value.trim_ascii_start().len();
            0..(begin + TRACEPARENT_BYTES).min(value.len())
        }
        b"traceparent" => 0..0,
        _ => all_if(value, fits && trace::part(name, value).is_some()),
    }
}

/// Creates masks: equal values have equal masks, and without the key nobody can tell which value a mask stands
/// for.
#[derive(Clone, Debug, Default)]
pub(super) struct Masks {
    key: RandomState,
}

/// A generator that is random enough for letters, seeded by one number.
struct Letters(u64);

impl Letters {
    fn of<'a>(&mut self, from: &'a [u8]) -> &'a u8 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let choice = (mixed ^ mixed >> 31) % from.len().max(1) as u64;
        from.get(choice as usize).unwrap_or(&b'x')
    }
}

/// Excludes hexadecimal digits, so that a mask never looks like an id.
const LETTERS: &[u8] = b"ghijklmnopqrstuvwxyz";

impl Masks {
    /// With a key shared by others.
    pub fn new(key: RandomState) -> Masks {
        Masks { key }
    }

    fn letters(&self, value: &[u8]) -> Letters {
        Letters(self.key.hash_one(value))
    }

    /// A mask with the length of `value`; the part in `shown` is kept.
    pub fn raw(&self, value: &[u8], shown: Range<usize>) -> Vec<u8> {
        let mut letters = self.letters(value);
        let mask = |(at, byte): (usize, &u8)| if shown.contains(&at) { *byte } else { *letters.of(LETTERS) };
        value.iter().enumerate().map(mask).collect()
    }

    /// A Huffman code of `coded` octets for as many symbols as in `value`; the part in `shown` is kept. `None` if
    /// there is none, which cannot happen for the code of a value.
    pub fn huffman(&self, value: &[u8], coded: usize, shown: Range<usize>) -> Option<Vec<u8>> {
        let bits_of = |bytes: &[u8]| bytes.iter().map(|byte| huffman::bits(*byte)).sum::<usize>();
        let hidden = value.len() - shown.len();
        let shown_bits = bits_of(value.get(shown.clone())?);
        let hidden_bits = bits_of(value) - shown_bits;
        // The number of bits in the last octet reveals nothing if it is the same for every value of this length.
        let last = (coded * 8).checked_sub(shown_bits)?;
        let lengths = (last.saturating_sub(7)..=last).rev().find_map(|bits| compose(hidden, bits));
        let mut lengths = lengths.unwrap_or_else(|| {
            let kept = value.iter().enumerate().filter(|(at, _)| !shown.contains(at));
            kept.rev().map(|(_, byte)| huffman::bits(*byte)).collect()
        });
        debug_assert!(lengths.len() == hidden && hidden_bits <= last);
        let mut letters = self.letters(value);
        let mut masked = Vec::with_capacity(value.len());
        for (at, byte) in value.iter().enumerate() {
            masked.push(match shown.contains(&at) {
                true => *byte,
                false => *letters.of(&symbols(lengths.pop()?)),
            });
        }
        Some(huffman::encode(&masked)).filter(|code| code.len() == coded)
    }
}

/// Lengths of `symbols` codes with `bits` bits in total, if these lengths can be combined so.
fn compose(symbols: usize, bits: usize) -> Option<Vec<usize>> {
    const LENGTHS: [usize; 7] = [28, 15, 13, 8, 7, 6, 5];
    const SHORTEST: usize = 5;
    let mut more = bits.checked_sub(SHORTEST * symbols)?;
    let mut lengths = Vec::with_capacity(symbols);
    for length in LENGTHS {
        let extra = length - SHORTEST;
        while lengths.len() < symbols && more >= extra && (extra > 0 || more == 0) {
            lengths.push(length);
            more -= extra;
        }
    }
    (more == 0 && lengths.len() == symbols).then_some(lengths)
}

/// Symbols with a code of this length; preferably letters that are not hexadecimal digits.
fn symbols(length: usize) -> Vec<u8> {
    let all = (0..=u8::MAX).filter(|byte| huffman::bits(*byte) == length);
    let (letters, others): (Vec<u8>, Vec<u8>) =
        all.partition(|byte| byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit());
    if letters.is_empty() { others } else { letters }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_masked_code_has_the_same_encoded_and_decoded_length(value in prop::collection::vec(any::<u8>(), 0..60), from in 0usize..60, len in 0usize..60) {
            let masks = Masks::default();
            let code = huffman::encode(&value);
            let shown = from.min(value.len())..(from + len).min(value.len());
            let masked = masks.huffman(&value, code.len(), shown.clone()).expect("every code has a mask");
            prop_assert_eq!(masked.len(), code.len());
            let mut decoded = Vec::new();
            prop_assert!(huffman::decode(&masked, &mut decoded).is_ok());
            prop_assert_eq!(decoded.len(), value.len());
            prop_assert_eq!(&decoded[shown.clone()], &value[shown]);
            prop_assert_eq!(masks.huffman(&value, code.len(), 0..0), masks.huffman(&value, code.len(), 0..0));
        }

        #[test]
        fn nothing_of_ordinary_text_remains(value in "[ -~]{8,60}") {
            let masks = Masks::default();
            let code = huffman::encode(value.as_bytes());
            let masked = masks.huffman(value.as_bytes(), code.len(), 0..0).expect("every code has a mask");
            // Any value with this many symbols and octets has the same possible originals.
            let mut lengths = Vec::new();
            let mut decoded = Vec::new();
            huffman::decode(&masked, &mut decoded).expect("a code");
            lengths.extend(decoded.iter().map(|byte| huffman::bits(*byte)));
            let other = masks.huffman(&decoded, code.len(), 0..0).expect("every code has a mask");
            let mut again = Vec::new();
            huffman::decode(&other, &mut again).expect("a code");
            prop_assert_eq!(lengths, again.iter().map(|byte| huffman::bits(*byte)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_required_parts_are_shown() {
        let seen = |name: &str, value: &str| {
            let range = visible_in(name.as_bytes(), value.as_bytes());
            value[range].to_owned()
        };
        assert_eq!(seen(":path", "/shop.Cart/Add?token=hunter2"), "/shop.Cart/Add");
        assert_eq!(seen("content-type", "application/grpc; secret=1"), "application/grpc");
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(seen("TraceParent", traceparent), traceparent);
        assert_eq!(seen("traceparent", "hunter2"), "");
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-hunter2";
        assert_eq!(seen("traceparent", later).len(), 55);
        assert_eq!(
            seen("x-datadog-tags", "user=hunter2,_dd.p.tid=4bf92f3577b34da6,a=b"),
            "_dd.p.tid=4bf92f3577b34da6"
        );
        for name in [
            "authorization",
            "cookie",
            "set-cookie",
            "x-api-key",
            "grpc-message",
            "host",
            ":authority",
            "tracestate",
            "baggage",
        ] {
            assert_eq!(seen(name, "hunter2"), "", "{name}");
        }
        assert_eq!(seen("grpc-timeout", "100m"), "100m");
        assert_eq!(seen("grpc-timeout", "hunter2"), "");
        assert_eq!(seen("grpc-status", "13"), "13");
        assert_eq!(seen("grpc-status", "hunter2"), "");
    }
}
