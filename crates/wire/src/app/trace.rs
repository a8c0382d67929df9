//! Trace contexts in header fields, in every common format, for HTTP/1 and HTTP/2 alike.
//!
//! A proxy or a library may send several of them; the first in this order counts: `traceparent`, `b3`, `x-b3-*`,
//! `uber-trace-id`, `grpc-trace-bin`, `x-datadog-*`. Malformed fields are ignored.

use crate::exchange::TraceContext;

type TraceId = [u8; 16];
type SpanId = [u8; 8];

/// The relevant header fields of one request, collected field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceParts {
    /// The best complete context so far, and its rank.
    whole: Option<(u8, TraceContext)>,
    b3_trace: Option<TraceId>,
    b3_span: Option<SpanId>,
    datadog_trace: Option<u64>,
    datadog_trace_high: u64,
    datadog_span: Option<u64>,
    request_id: u64,
}

const TRACEPARENT: u8 = 0;
const B3: u8 = 1;
const B3_PARTS: u8 = 2;
const JAEGER: u8 = 3;
const GRPC_TRACE_BIN: u8 = 4;
const DATADOG: u8 = 5;

/// Content of one header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePart {
    /// A complete context, and its rank.
    Whole(u8, TraceContext),
    /// `x-b3-traceid`
    B3Trace(TraceId),
    /// `x-b3-spanid`
    B3Span(SpanId),
    /// `x-datadog-trace-id`, in network byte order like the next two, which keeps this type small.
    DatadogTrace([u8; 8]),
    /// Its high half, from `x-datadog-tags`.
    DatadogTraceHigh([u8; 8]),
    /// `x-datadog-parent-id`
    DatadogSpan([u8; 8]),
    /// Hash of `x-request-id`. It is not a trace context, but the name that proxies give a request, in any form.
    RequestId([u8; 8]),
}

/// Processes one header field; the name may have any case.
#[inline]
pub fn from_header(name: &[u8], value: &[u8], into: &mut TraceParts) {
    if let Some(part) = part(name, value) {
        into.add(&part);
    }
}

/// Parses a header field; its name may have any case. Irrelevant fields cost only a check of the name's length
/// and its first letter.
#[inline]
pub fn part(name: &[u8], value: &[u8]) -> Option<TracePart> {
    if !matches!(name.len(), 2 | 11..=14 | 18 | 19)
        || !matches!(name[0] | 0x20, b't' | b'b' | b'x' | b'u' | b'g')
    {
        return None;
    }
    known_length(name, value.trim_ascii())
}

fn known_length(name: &[u8], value: &[u8]) -> Option<TracePart> {
    let is = |what: &[u8]| name == what || name.eq_ignore_ascii_case(what);
    let whole = |place| move |context| TracePart::Whole(place, context);
    match name.len() {
        2 if is(b"b3") => b3(value).map(whole(B3)),
        11 if is(b"traceparent") => traceparent(value).map(whole(TRACEPARENT)),
        11 if is(b"x-b3-spanid") => hex(value).map(TracePart::B3Span),
        12 if is(b"x-b3-traceid") => hex(value).map(TracePart::B3Trace),
        12 if is(b"x-request-id") => Some(TracePart::RequestId(request_id(value).to_be_bytes())),
        13 if is(b"uber-trace-id") => jaeger(value).map(whole(JAEGER)),
        14 if is(b"grpc-trace-bin") => grpc_trace_bin(value).map(whole(GRPC_TRACE_BIN)),
        14 if is(b"x-datadog-tags") => datadog_high(value).map(TracePart::DatadogTraceHigh),
        18 if is(b"x-datadog-trace-id") => decimal(value).map(u64::to_be_bytes).map(TracePart::DatadogTrace),
        19 if is(b"x-datadog-parent-id") => decimal(value).map(u64::to_be_bytes).map(TracePart::DatadogSpan),
        _ => None,
    }
}

/// The header that a value belongs to, and its content, by the shape of the value alone: ids in full length and
/// lower case, with every separator and flag in its place.
pub fn by_shape(value: &[u8]) -> Option<(&'static [u8], TracePart)> {
    let lower = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let ids = |separator: u8| {
        let mut parts = value.split(move |byte| *byte == separator);
        let (trace, span) = (parts.next()?, parts.next()?);
        (matches!(trace.len(), 16 | 32) && span.len() == 16 && lower(trace) && lower(span)).then_some(parts)
    };
    let found = |name: &'static [u8], place, context: Option<TraceContext>| {
        context.map(|context| (name, TracePart::Whole(place, context)))
    };
    match value.len() {
        55 if value.starts_with(b"00-") && value.iter().all(|byte| *byte == b'-' || lower(&[*byte])) => {
            found(b"traceparent", TRACEPARENT, traceparent(value))
        }
        39 | 40 if value.starts_with(b"AA") => {
            let mut bytes = [0u8; 32];
            let whole = base64(value, &mut bytes) == Some(29);
            let fields = (bytes[0], bytes[1], bytes[18], bytes[27]) == (0, 0, 1, 2);
            found(b"grpc-trace-bin", GRPC_TRACE_BIN, grpc_trace_bin(value).filter(|_| whole && fields))
        }
        _ => {
            if let Some(mut rest) = ids(b'-') {
                // The sampling decision, and possibly the parent's id.
                let sampled = matches!(rest.next(), Some(b"0" | b"1" | b"d"));
                let parent = rest.next().is_none_or(|parent| parent.len() == 16 && lower(parent));
                return found(b"b3", B3, b3(value).filter(|_| sampled && parent && rest.next().is_none()));
            }
            let mut rest = ids(b':')?;
            let (parent, flags) = (rest.next()?, rest.next()?);
            let parent = matches!(parent.len(), 1 | 16) && lower(parent);
            let flags = matches!(flags.len(), 1 | 2) && lower(flags);
            found(
                b"uber-trace-id",
                JAEGER,
                jaeger(value).filter(|_| parent && flags && rest.next().is_none()),
            )
        }
    }
}

impl TraceParts {
    fn whole(&mut self, place: u8, context: Option<TraceContext>) {
        let Some(context) = context else { return };
        if self.whole.is_none_or(|(before, _)| place < before) {
            self.whole = Some((place, context));
        }
    }

    /// Adds another field of the same request.
    #[inline]
    pub fn add(&mut self, part: &TracePart) {
        match *part {
            TracePart::Whole(place, context) => self.whole(place, Some(context)),
            TracePart::B3Trace(id) => self.b3_trace = Some(id),
            TracePart::B3Span(id) => self.b3_span = Some(id),
            TracePart::DatadogTrace(id) => self.datadog_trace = Some(u64::from_be_bytes(id)),
            TracePart::DatadogTraceHigh(id) => self.datadog_trace_high |= u64::from_be_bytes(id),
            TracePart::DatadogSpan(id) => self.datadog_span = Some(u64::from_be_bytes(id)),
            TracePart::RequestId(id) => self.request_id = u64::from_be_bytes(id),
        }
    }

    /// Hash of `x-request-id`; zero without one.
    #[inline]
    pub fn request_id(&self) -> u64 {
        self.request_id
    }

    /// The context with the highest rank.
    #[inline]
    pub fn context(&self) -> Option<TraceContext> {
        let mut all = *self;
        if let (Some(trace), Some(span)) = (self.b3_trace, self.b3_span) {
            all.whole(B3_PARTS, valid(trace, span));
        }
        if let (Some(low), Some(span)) = (self.datadog_trace, self.datadog_span) {
            let trace = u128::from(self.datadog_trace_high) << 64 | u128::from(low);
            all.whole(DATADOG, valid(trace.to_be_bytes(), span.to_be_bytes()));
        }
        all.whole.map(|(_, context)| context)
    }
}

/// A hash of the value (FNV-1a); zero only if the value is empty.
fn request_id(value: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    if value.is_empty() { 0 } else { value.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1) }
}

/// All zeros mean "none" in each of the formats.
fn valid(trace_id: TraceId, span_id: SpanId) -> Option<TraceContext> {
    (trace_id != TraceId::default() && span_id != SpanId::default())
        .then_some(TraceContext { trace_id, span_id })
}

/// W3C Trace Context, 3.2: `version-trace id-parent id-flags`. Future versions may have more fields after the
/// flags.
fn traceparent(value: &[u8]) -> Option<TraceContext> {
    let dashes = [2, 35, 52].iter().all(|at| value.get(*at) == Some(&b'-'));
    let version: [u8; 1] = hex_exactly(value.get(..2)?)?;
    let flags: Option<[u8; 1]> = hex_exactly(value.get(53..55)?);
    let ends = value.len() == 55 || (version != [0] && value.get(55) == Some(&b'-'));
    if !dashes || version == [0xff] || flags.is_none() || !ends {
        return None;
    }
    valid(hex_exactly(value.get(3..35)?)?, hex_exactly(value.get(36..52)?)?)
}

/// B3 in one field: `trace id-span id[-sampling[-parent]]`; a bare sampling decision carries no ids.
fn b3(value: &[u8]) -> Option<TraceContext> {
    let mut parts = value.split(|b| *b == b'-');
    valid(hex(parts.next()?)?, hex(parts.next()?)?)
}

/// Jaeger: `trace id:span id:parent id:flags`, with hexadecimal ids with or without leading zeros, and colons
/// that may be percent-encoded.
fn jaeger(value: &[u8]) -> Option<TraceContext> {
    let (trace, rest) = jaeger_part(value)?;
    let (span, _) = jaeger_part(rest)?;
    valid(hex(trace)?, hex(span)?)
}

fn jaeger_part(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = value.iter().position(|b| matches!(b, b':' | b'%'))?;
    let (part, rest) = value.split_at(end);
    let after = if rest[0] == b':' {
        1
    } else if rest.len() >= 3 && rest[..3].eq_ignore_ascii_case(b"%3a") {
        3
    } else {
        return None;
    };
    Some((part, &rest[after..]))
}

/// OpenCensus' binary format in base64: version 0, then fields `0` with a trace id of 16 bytes, `1` with a span
/// id of 8 bytes, `2` with one byte of options.
fn grpc_trace_bin(value: &[u8]) -> Option<TraceContext> {
    let mut bytes = [0u8; 32];
    let len = base64(value, &mut bytes)?;
    let (mut rest, mut trace, mut span) = (bytes.get(..len)?.strip_prefix(&[0])?, None, None);
    while let Some((field, after)) = rest.split_first() {
        let len = match field {
            0 => 16,
            1 => 8,
            2 => 1,
            _ => break,
        };
        let (content, after) = after.split_at_checked(len)?;
        match field {
            0 => trace = content.try_into().ok(),
            1 => span = content.try_into().ok(),
            _ => {}
        }
        rest = after;
    }
    valid(trace?, span?)
}

/// The high half of a 128-bit id among Datadog's tags: `_dd.p.tid=` and 16 hexadecimal digits.
fn datadog_high(value: &[u8]) -> Option<[u8; 8]> {
    let tag = value.split(|b| *b == b',').find_map(|tag| tag.trim_ascii().strip_prefix(b"_dd.p.tid="))?;
    hex_exactly(tag)
}

/// Values of hexadecimal digits; other bytes map to a value beyond them.
static DIGITS: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Bytes of exactly 2 N hexadecimal digits.
#[inline]
fn hex_exactly<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = digits.as_chunks::<2>();
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok().filter(|_| rest.is_empty())?;
    let (mut bytes, mut all) = ([0u8; N], 0);
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (DIGITS[usize::from(*high)], DIGITS[usize::from(*low)]);
        all |= high | low;
        *byte = high << 4 | low & 0xf;
    }
    (all <= 0xf).then_some(bytes)
}

/// Bytes from up to 2 N hexadecimal digits, padded with leading zeros.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.is_empty() || digits.len() > 2 * N {
        return None;
    }
    let mut bytes = [0u8; N];
    for (at, digit) in digits.iter().rev().enumerate() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        bytes[N - 1 - at / 2] |= value << (4 * (at % 2));
    }
    Some(bytes)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Decodes base64 (RFC 4648, 4 and 5), padded or not; returns the number of bytes. `None` if it is invalid, or
/// too long.
fn base64(text: &[u8], into: &mut [u8]) -> Option<usize> {
    let end = text.iter().rposition(|b| *b != b'=').map_or(0, |at| at + 1);
    let (mut bits, mut held, mut len) = (0u32, 0u32, 0);
    for letter in &text[..end] {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            *into.get_mut(len)? = (bits >> held) as u8;
            len += 1;
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(fields: &[(&str, &str)]) -> Option<TraceContext> {
        let mut parts = TraceParts::default();
        for (name, value) in fields {
            from_header(name.as_bytes(), value.as_bytes(), &mut parts);
        }
        parts.context()
    }

    fn context(trace: u128, span: u64) -> Option<TraceContext> {
        Some(TraceContext { trace_id: trace.to_be_bytes(), span_id: span.to_be_bytes() })
    }

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

    #[test]
    fn every_format_yields_the_same_context() {
        let all: &[&[(&str, &str)]] = &[
            &[("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
            &[("Traceparent", " cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more ")],
            &[("uber-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7:0:1")],
            &[("uber-trace-id", "4bf92f3577b34da6a3ce929d0e0e4736%3Af067aa0ba902b7%3a0%3A1")],
            &[("b3", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1-05e3ac9a4f6e3b90")],
            &[("b3", "4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7")],
            &[("X-B3-TraceId", "4bf92f3577b34da6a3ce929d0e0e4736"), ("X-B3-SpanId", "00f067aa0ba902b7")],
            &[("grpc-trace-bin", "AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE")],
            &[("grpc-trace-bin", "AABL+S81d7NNpqPOkp0ODkc2AQDwZ6oLqQK3AgE=")],
            &[
                ("x-datadog-trace-id", "11803532876627986230"),
                ("x-datadog-parent-id", "67667974448284343"),
                ("x-datadog-tags", "_dd.p.dm=-1,_dd.p.tid=4bf92f3577b34da6"),
            ],
        ];
        for fields in all {
            assert_eq!(of(fields), context(TRACE, SPAN), "{fields:?}");
        }
    }

    #[test]
    fn short_ids_are_padded_with_zeros() {
        assert_eq!(of(&[("uber-trace-id", "abc:1f:0:1")]), context(0xabc, 0x1f));
        assert_eq!(
            of(&[("b3", "a3ce929d0e0e4736-00f067aa0ba902b7-1")]),
            context(TRACE & u128::from(u64::MAX), SPAN)
        );
        let datadog = [("x-datadog-trace-id", "5"), ("x-datadog-parent-id", "6")];
        assert_eq!(of(&datadog), context(5, 6));
    }

    #[test]
    fn the_order_of_the_fields_does_not_matter() {
        let w3c = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let other = ("uber-trace-id", "1:2:0:1");
        assert_eq!(of(&[w3c, other]), context(TRACE, SPAN));
        assert_eq!(of(&[other, w3c]), context(TRACE, SPAN));
        let broken = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7");
        assert_eq!(of(&[broken, other]), context(1, 2));
    }

    #[test]
    fn malformed_fields_are_ignored() {
        for (name, value) in [
            ("traceparent", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01"),
            ("b3", "0"),
            ("b3", "-"),
            ("uber-trace-id", "1:"),
            ("uber-trace-id", "1%3b2"),
            ("uber-trace-id", "123456789012345678901234567890123:1:0:1"),
            ("grpc-trace-bin", "AABL"),
            ("grpc-trace-bin", "!!"),
            ("x-b3-traceid", "1"),
            ("x-datadog-trace-id", "99999999999999999999999"),
            ("tracestate1", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("", ""),
        ] {
            assert_eq!(of(&[(name, value)]), None, "{name}: {value}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(name in "(?i)traceparent|b3|x-b3-(span|trace)id|uber-trace-id|\
            grpc-trace-bin|x-datadog-(tags|trace-id|parent-id)", value in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut parts = TraceParts::default();
            from_header(name.as_bytes(), &value, &mut parts);
            let _ = parts.context();
        }

        #[test]
        fn every_id_round_trips(trace in 1u128.., span in 1u64..) {
            prop_assert_eq!(of(&[("traceparent", &format!("00-{trace:032x}-{span:016x}-00"))]), context(trace, span));
            prop_assert_eq!(of(&[("uber-trace-id", &format!("{trace:x}:{span:x}:0:1"))]), context(trace, span));
            prop_assert_eq!(of(&[("b3", &format!("{trace:032x}-{span:016x}-d"))]), context(trace, span));
        }
    }
}
