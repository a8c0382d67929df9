//! Frames in the layout of `clients/CONTRACT.md`: an 8-byte header, the fields that its flags announce, the
//! payload.
//!
//! A frame is read in two steps: its [`Head`] is validated as a whole, and gives the length of the payload. So
//! a payload that is only skipped needs no buffer: [`Skipping`] reads frames that way.
//!
//! Pings come in runs of equal size and parameters, and so do their responses. Each run is read and written as
//! one head and a count.

use crate::ping::MAX_PAYLOAD_BYTES;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Maximum number of bytes before the payload.
pub const MAX_HEAD_BYTES: usize = HEADER_BYTES + CONTEXT_BYTES + PARAMETER_BYTES;

const CONTEXT_BYTES: usize = 24;
const PARAMETER_BYTES: usize = 16;
const HAS_CONTEXT: u8 = 1;
const HAS_PARAMETERS: u8 = 2;
/// Highest gRPC status code.
const MAX_STATUS: u16 = 16;
/// On the wire: the target's own setting.
const OWN: u64 = u64::MAX;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A call.
    Ping = 0,
    /// Its response.
    Pong = 1,
    /// Requests the target's usage.
    UsageRequest = 2,
    /// Its response: an encoded `UsageResponse`.
    UsageResponse = 3,
}

/// The span that a ping belongs to. All-zero ids are not a context, but are carried unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Trace.
    pub trace_id: [u8; 16],
    /// The caller's span.
    pub span_id: [u8; 8],
}

/// Parameters of a ping; `None` stands for the target's own setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Payload of the response, in bytes.
    pub response_bytes: Option<u64>,
    /// Delay of the response, in nanoseconds.
    pub think_ns: Option<u64>,
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind.
    pub kind: Kind,
    /// gRPC status of a pong; 0 for every other kind.
    pub status: u8,
    /// Only for a ping.
    pub context: Option<Context>,
    /// Only for a ping.
    pub parameters: Option<Parameters>,
    /// Bytes that follow, at most [`MAX_PAYLOAD_BYTES`].
    pub payload_bytes: u32,
}

/// Reason for bytes not to be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// An unknown kind.
    #[error("frame of kind {0}: expected 0 to 3")]
    Kind(u8),
    /// Flags that this kind does not have.
    #[error("flags {flags:#04x} on a {kind:?}: expected only bits 0 and 1, and those only on a Ping")]
    Flags {
        /// Kind of the frame.
        kind: Kind,
        /// Flags found.
        flags: u8,
    },
    /// An invalid status.
    #[error("status {status} on a {kind:?}: expected 0, or up to 16 on a Pong")]
    Status {
        /// Kind of the frame.
        kind: Kind,
        /// Status found.
        status: u16,
    },
    /// An invalid length.
    #[error("length {found}: expected {least} to {max}", max = u64::from(*least) + MAX_PAYLOAD_BYTES)]
    Length {
        /// Length found.
        found: u32,
        /// Minimum for these flags.
        least: u32,
    },
    /// A kind that this end does not accept.
    #[error("a {0:?}: expected none at this end")]
    Unexpected(Kind),
}

impl Head {
    /// A ping with only a payload.
    pub fn ping(payload_bytes: u32) -> Self {
        Head { kind: Kind::Ping, status: 0, context: None, parameters: None, payload_bytes }
    }

    /// A response to a ping.
    pub fn pong(status: u8, payload_bytes: u32) -> Self {
        Head { kind: Kind::Pong, status, context: None, parameters: None, payload_bytes }
    }

    /// Parses the head at the start of `bytes`, and returns its length; `None` while it is incomplete.
    ///
    /// # Errors
    /// The bytes cannot be the start of a frame.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, kind, flags, s0, s1] = *header;
        let kind = match kind {
            0 => Kind::Ping,
            1 => Kind::Pong,
            2 => Kind::UsageRequest,
            3 => Kind::UsageResponse,
            other => return Err(FrameError::Kind(other)),
        };
        let known = if kind == Kind::Ping { HAS_CONTEXT | HAS_PARAMETERS } else { 0 };
        if flags & !known != 0 {
            return Err(FrameError::Flags { kind, flags });
        }
        let status = u16::from_le_bytes([s0, s1]);
        if status > if kind == Kind::Pong { MAX_STATUS } else { 0 } {
            return Err(FrameError::Status { kind, status });
        }
        let context_bytes = if flags & HAS_CONTEXT != 0 { CONTEXT_BYTES } else { 0 };
        let parameter_bytes = if flags & HAS_PARAMETERS != 0 { PARAMETER_BYTES } else { 0 };
        let least = (context_bytes + parameter_bytes) as u32;
        let found = u32::from_le_bytes([l0, l1, l2, l3]);
        let payload_bytes = match found.checked_sub(least) {
            Some(bytes) if u64::from(bytes) <= MAX_PAYLOAD_BYTES => bytes,
            _ => return Err(FrameError::Length { found, least }),
        };
        if rest.len() < context_bytes + parameter_bytes {
            return Ok(None);
        }
        let (context, rest) = rest.split_at(context_bytes);
        let head = Head {
            kind,
            status: status as u8,
            context: Context::read(context),
            parameters: Parameters::read(&rest[..parameter_bytes]),
            payload_bytes,
        };
        Ok(Some((head, HEADER_BYTES + context_bytes + parameter_bytes)))
    }

    /// Appends what [`parse`](Self::parse) reads. The payload follows separately.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        let mut length = self.payload_bytes;
        if self.context.is_some() {
            flags |= HAS_CONTEXT;
            length += CONTEXT_BYTES as u32;
        }
        if self.parameters.is_some() {
            flags |= HAS_PARAMETERS;
            length += PARAMETER_BYTES as u32;
        }
        let [l0, l1, l2, l3] = length.to_le_bytes();
        out.extend_from_slice(&[l0, l1, l2, l3, self.kind as u8, flags, self.status, 0]);
        if let Some(context) = &self.context {
            out.extend_from_slice(&context.trace_id);
            out.extend_from_slice(&context.span_id);
        }
        if let Some(parameters) = &self.parameters {
            out.extend_from_slice(&parameters.response_bytes.unwrap_or(OWN).to_le_bytes());
            out.extend_from_slice(&parameters.think_ns.unwrap_or(OWN).to_le_bytes());
        }
    }

    /// Appends this many frames with this head, and payloads of zeros.
    pub fn encode_frames(&self, times: u64, out: &mut Vec<u8>) {
        let start = out.len();
        if times == 0 {
            return;
        }
        self.encode(out);
        let head_bytes = out.len() - start;
        let frame_bytes = head_bytes + self.payload_bytes as usize;
        out.resize(start + frame_bytes * times as usize, 0);
        let (first, others) = out[start..].split_at_mut(frame_bytes);
        for frame in others.chunks_exact_mut(frame_bytes) {
            frame[..head_bytes].copy_from_slice(&first[..head_bytes]);
        }
    }
}

impl Context {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (trace_id, rest) = bytes.split_first_chunk()?;
        let (span_id, _) = rest.split_first_chunk()?;
        Some(Context { trace_id: *trace_id, span_id: *span_id })
    }

    /// Whether neither id is zero.
    pub fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

impl Parameters {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (response, rest) = bytes.split_first_chunk()?;
        let (think, _) = rest.split_first_chunk()?;
        let setting = |bytes: &[u8; 8]| Some(u64::from_le_bytes(*bytes)).filter(|value| *value != OWN);
        Some(Parameters { response_bytes: setting(response), think_ns: setting(think) })
    }
}

/// Reads frames without keeping their payloads, from pieces of any size.
#[derive(Default)]
pub struct Skipping {
    /// The frame whose payload is incomplete, and the number of missing bytes.
    open: Option<(Head, u32)>,
}

impl Skipping {
    /// Takes the next complete frame off `bytes`, together with directly following frames of the same head.
    /// Returns the head and the count. Otherwise, what is left is at most the start of a head, to be passed
    /// again with more bytes behind it.
    ///
    /// # Errors
    /// The bytes are not a frame.
    #[inline]
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<(Head, u64)>, FrameError> {
        let start = *bytes;
        let (head, head_bytes, missing) = match self.open.take() {
            Some((head, missing)) => (head, 0, missing),
            None => match Head::parse(start)? {
                Some((head, head_bytes)) => (head, head_bytes, head.payload_bytes),
                None => return Ok(None),
            },
        };
        let Some((frame, behind)) = start.split_at_checked(head_bytes + missing as usize) else {
            self.open = Some((head, missing - (start.len() - head_bytes) as u32));
            *bytes = &[];
            return Ok(None);
        };
        *bytes = behind;
        let mut times = 1;
        // Without the head's bytes there is nothing to compare with.
        while head_bytes > 0
            && let Some((next, behind)) = bytes.split_at_checked(frame.len())
            && next[..head_bytes] == frame[..head_bytes]
        {
            times += 1;
            *bytes = behind;
        }
        Ok(Some((head, times)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn any_head()(
            kind in 0u8..4, status in 0u8..=16, context in any::<Option<([u8; 16], [u8; 8])>>(),
            parameters in any::<Option<(Option<u64>, Option<u64>)>>(), payload_bytes in 0..=MAX_PAYLOAD_BYTES as u32,
        ) -> Head {
            let setting = |value: Option<u64>| value.filter(|value| *value != OWN);
            let context = context.map(|(trace_id, span_id)| Context { trace_id, span_id });
            let parameters = parameters.map(|(response, think)| {
                Parameters { response_bytes: setting(response), think_ns: setting(think) }
            });
            match kind {
                0 => Head { context, parameters, ..Head::ping(payload_bytes) },
                1 => Head::pong(status, payload_bytes),
                2 => Head { kind: Kind::UsageRequest, ..Head::ping(payload_bytes) },
                _ => Head { kind: Kind::UsageResponse, ..Head::ping(payload_bytes) },
            }
        }
    }

    fn encoded(head: &Head) -> Vec<u8> {
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_of_the_contract() {
        let context = Context { trace_id: [7; 16], span_id: [9; 8] };
        let parameters = Parameters { response_bytes: Some(3), think_ns: None };
        let bytes = encoded(&Head { context: Some(context), parameters: Some(parameters), ..Head::ping(5) });
        let parts: [&[u8]; 6] =
            [&[45, 0, 0, 0, 0, 3, 0, 0], &[7; 16], &[9; 8], &[3, 0, 0, 0, 0, 0, 0, 0], &[255; 8], &[]];
        assert_eq!(bytes, parts.concat());
        assert_eq!(encoded(&Head::pong(14, 258)), [2, 1, 0, 0, 1, 0, 14, 0]);
    }

    #[test]
    fn malformed_frame_is_reported() {
        let refused = |bytes: &[u8]| Head::parse(bytes).unwrap_err();
        assert_eq!(refused(&[0, 0, 0, 0, 4, 0, 0, 0]), FrameError::Kind(4));
        assert_eq!(refused(&[0, 0, 0, 0, 0, 4, 0, 0]), FrameError::Flags { kind: Kind::Ping, flags: 4 });
        assert_eq!(refused(&[24, 0, 0, 0, 1, 1, 0, 0]), FrameError::Flags { kind: Kind::Pong, flags: 1 });
        assert_eq!(refused(&[0, 0, 0, 0, 1, 0, 17, 0]), FrameError::Status { kind: Kind::Pong, status: 17 });
        assert_eq!(refused(&[0, 0, 0, 0, 0, 0, 1, 0]), FrameError::Status { kind: Kind::Ping, status: 1 });
        assert_eq!(refused(&[39, 0, 0, 0, 0, 3, 0, 0]), FrameError::Length { found: 39, least: 40 });
        // "GET / HTTP/1.1", as sent by a browser.
        assert_eq!(refused(b"GET / HTTP/1.1"), FrameError::Kind(b'/'));
    }

    proptest! {
        #[test]
        fn round_trip(head in any_head(), payload in prop::collection::vec(any::<u8>(), 0..9)) {
            let bytes = encoded(&head);
            prop_assert!(bytes.len() <= MAX_HEAD_BYTES);
            let more = [bytes.clone(), payload].concat();
            prop_assert_eq!(Head::parse(&more), Ok(Some((head, bytes.len()))));
        }

        #[test]
        fn prefix_of_a_frame_is_never_rejected(head in any_head(), cut in 0usize..MAX_HEAD_BYTES) {
            let bytes = encoded(&head);
            prop_assume!(cut < bytes.len());
            prop_assert_eq!(Head::parse(&bytes[..cut]), Ok(None));
        }

        #[test]
        fn accepted_input_round_trips(bytes in prop::collection::vec(any::<u8>(), 8..64), kind in 0u8..5) {
            let mut bytes = bytes;
            bytes[3] &= 3;
            bytes[4] = kind;
            bytes[5] &= 3;
            bytes[7] = 0;
            if let Ok(Some((head, length))) = Head::parse(&bytes) {
                prop_assert_eq!(encoded(&head), &bytes[..length]);
            }
        }

        #[test]
        fn pieces_make_the_same_frames(
            runs in prop::collection::vec((any_head(), 0u32..100, 0u64..5), 0..20),
            cuts in prop::collection::vec(prop_oneof![1usize..90, 1usize..900], 1..20), payload in any::<bool>(),
        ) {
            let runs = runs.into_iter().map(|(head, payload_bytes, times)| (Head { payload_bytes, ..head }, times));
            let (mut frames, mut stream) = (Vec::new(), Vec::new());
            for (head, times) in runs {
                frames.extend((0..times).map(|_| head));
                if payload {
                    let frame = [encoded(&head), vec![0xff; head.payload_bytes as usize]].concat();
                    stream.extend(frame.repeat(times as usize));
                } else {
                    head.encode_frames(times, &mut stream);
                }
            }
            let mut skipping = Skipping::default();
            let (mut seen, mut at, mut left) = (Vec::new(), 0, 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                let mut bytes = &stream[at - left..end];
                while let Some((head, times)) = skipping.next(&mut bytes).unwrap() {
                    seen.extend((0..times).map(|_| head));
                }
                prop_assert!(bytes.len() < MAX_HEAD_BYTES);
                left = bytes.len();
                at = end;
                if end == stream.len() {
                    break;
                }
            }
            prop_assert_eq!((seen, left), (frames, 0));
        }
    }
}
