//! W3C Trace Context: the ids of a call, and the `traceparent` header that carries them.

use std::fmt;

/// Name of the header.
pub const TRACEPARENT: &str = "traceparent";
/// Length of a header of version 00.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// A span as its children refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Not all zero.
    pub trace_id: [u8; 16],
    /// Not all zero.
    pub span_id: [u8; 8],
    /// Whether the caller records this trace.
    pub sampled: bool,
}

/// Reason for an unusable `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceparentError {
    /// Too short, too long for version 00, or a dash is missing.
    #[error("not of the form 00-TRACEID-SPANID-FLAGS")]
    Form,
    /// Something other than lower-case hexadecimal digits.
    #[error("byte {0} is not a lower-case hexadecimal digit")]
    Digit(usize),
    /// Version ff.
    #[error("version ff is not allowed")]
    Version,
    /// An id of zeros.
    #[error("an id is all zero")]
    ZeroId,
}

impl TraceContext {
    /// Parses a header's value. Versions above 00 are parsed as far as 00 goes, as the specification requires.
    ///
    /// # Errors
    /// The value is malformed: the receiver must then start a new trace.
    pub fn parse(header: &[u8]) -> Result<Self, TraceparentError> {
        let longer_is_fine = header.get(LENGTH) == Some(&b'-') && !header.starts_with(b"00");
        if header.len() < LENGTH || (header.len() > LENGTH && !longer_is_fine) {
            return Err(TraceparentError::Form);
        }
        if [2, 35, 52].iter().any(|&at| header[at] != b'-') {
            return Err(TraceparentError::Form);
        }
        let [version] = digits::<1>(header, 0)?;
        if version == 0xff {
            return Err(TraceparentError::Version);
        }
        let trace_id = digits(header, 3)?;
        let span_id = digits(header, 36)?;
        let [flags] = digits::<1>(header, 53)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return Err(TraceparentError::ZeroId);
        }
        Ok(TraceContext { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }
}

impl TraceContext {
    /// The header's value, version 00: lower-case hexadecimal digits and dashes.
    pub fn header(&self) -> [u8; LENGTH] {
        let mut header = *b"00-                                -                -00";
        write_digits(&self.trace_id, &mut header[3..35]);
        write_digits(&self.span_id, &mut header[36..52]);
        write_digits(&[u8::from(self.sampled)], &mut header[53..]);
        header
    }
}

fn write_digits(bytes: &[u8], digits: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (byte, digits) in bytes.iter().zip(digits.as_chunks_mut::<2>().0) {
        *digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
}

impl fmt::Display for TraceContext {
    /// The header's value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.header().iter().try_for_each(|&digit| fmt::Write::write_char(f, digit.into()))
    }
}

/// Bytes as lower-case hexadecimal digits.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn digits<const N: usize>(header: &[u8], at: usize) -> Result<[u8; N], TraceparentError> {
    let digit = |at: usize| match header[at] {
        c @ b'0'..=b'9' => Ok(c - b'0'),
        c @ b'a'..=b'f' => Ok(c - b'a' + 10),
        _ => Err(TraceparentError::Digit(at)),
    };
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = digit(at + 2 * i)? << 4 | digit(at + 2 * i + 1)?;
    }
    Ok(bytes)
}

/// Random ids. One per process suffices: it is seeded by the kernel.
pub struct Ids(fastrand::Rng);

impl Ids {
    /// Seeds the generator.
    pub fn new() -> Self {
        let mut seed = [0; 8];
        match rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => Ids(fastrand::Rng::with_seed(u64::from_ne_bytes(seed))),
            // fastrand's own seed combines the time and the thread.
            _ => Ids(fastrand::Rng::new()),
        }
    }

    /// A trace id that is not zero.
    pub fn trace_id(&mut self) -> [u8; 16] {
        self.0.u128(1..).to_be_bytes()
    }

    /// A span id that is not zero.
    pub fn span_id(&mut self) -> [u8; 8] {
        self.0.u64(1..).to_be_bytes()
    }

    /// A new trace with its first span.
    pub fn root(&mut self) -> TraceContext {
        TraceContext { trace_id: self.trace_id(), span_id: self.span_id(), sampled: true }
    }
}

impl Default for Ids {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_example_of_the_specification() {
        let context = TraceContext::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(Hex(&context.trace_id).to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(Hex(&context.span_id).to_string(), "b7ad6b7169203331");
        assert!(context.sampled);
        assert_eq!(context.to_string(), GOOD);
    }

    #[test]
    fn malformed_headers_are_told_apart() {
        let cases = [
            ("", TraceparentError::Form),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", TraceparentError::Form),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", TraceparentError::Form),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more", TraceparentError::Form),
            ("00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceparentError::Form),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceparentError::Version),
            ("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceparentError::Digit(4)),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g", TraceparentError::Digit(54)),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", TraceparentError::ZeroId),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", TraceparentError::ZeroId),
        ];
        for (header, expected) in cases {
            assert_eq!(TraceContext::parse(header.as_bytes()), Err(expected), "{header}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_known() {
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02-what-the-future-brings";
        assert!(!TraceContext::parse(later.as_bytes()).unwrap().sampled);
    }

    #[test]
    fn ids_differ() {
        let mut ids = Ids::new();
        let seen: std::collections::HashSet<_> = (0..10_000).map(|_| ids.span_id()).collect();
        assert_eq!(seen.len(), 10_000);
        assert_ne!(Ids::new().trace_id(), Ids::new().trace_id());
    }

    proptest! {
        #[test]
        fn round_trip(trace_id in any::<[u8; 16]>(), span_id in any::<[u8; 8]>(), sampled: bool) {
            prop_assume!(trace_id != [0; 16] && span_id != [0; 8]);
            let context = TraceContext { trace_id, span_id, sampled };
            prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Ok(context));
        }

        #[test]
        fn accepted_values_keep_their_meaning(mut header in Just(GOOD.as_bytes().to_vec()), at in 0usize..55, byte: u8) {
            header[at] = byte;
            if let Ok(context) = TraceContext::parse(&header) {
                let text = context.to_string();
                prop_assert_eq!(&text.as_bytes()[3..52], &header[3..52]);
            }
        }

        #[test]
        fn no_input_panics(header: Vec<u8>) {
            let _ = TraceContext::parse(&header);
        }
    }
}
