//! One request and its response, as seen at one tap: the half of a call that a capture contains.

use spangap_model::{CallStatus, Side};

/// When the tap saw a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the tap first saw the packet with this byte, Unix nanoseconds: the relevant time at the sender.
    pub seen_ns: i64,
    /// When the tap had seen this byte and every byte before it: the relevant time at the receiver, since an
    /// application cannot read past a hole. Never before `seen_ns`.
    pub ready_ns: i64,
    /// Number of the packet with this byte.
    pub packet: u64,
    /// Number of the packet that made it readable: a different one only if earlier bytes were missing.
    pub ready_packet: u64,
}

/// Request or response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// First byte on the wire (of an HTTP/2 HEADERS frame's header, an HTTP/1 request line, ...).
    pub first: Mark,
    /// Last byte.
    pub last: Mark,
    /// Stream offset of the first byte (see [`crate::tcp`]: the low 32 bits are the raw sequence number).
    pub start: u64,
    /// Stream offset after the last byte.
    pub end: u64,
    /// Body size: DATA frames without padding, the HTTP/1 body, or the whole turn.
    pub body_bytes: u64,
    /// Number of complete gRPC messages.
    pub messages: u32,
}

/// Application protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/2, with no sign of gRPC.
    Http2,
    /// HTTP/1.0 or 1.1.
    Http1,
    /// TLS without keys: turns of application data.
    Tls,
    /// Anything else: bytes one way, then bytes back.
    #[default]
    Turns,
}

impl Protocol {
    /// Name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Grpc => "grpc",
            Protocol::Http2 => "http2",
            Protocol::Http1 => "http1",
            Protocol::Tls => "tls",
            Protocol::Turns => "turns",
        }
    }
}

/// How an exchange ended at this tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// The response is complete.
    #[default]
    Complete,
    /// RST_STREAM from either side, with its error code (RFC 9113, 7).
    Reset {
        /// The error code.
        code: u32,
        /// Whether the client sent it.
        by_client: bool,
    },
    /// The connection closed before the end.
    ConnectionClosed,
    /// The capture stopped before the end.
    CaptureEnded,
}

/// What ended an exchange before its response was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// RST_STREAM, with its error code (RFC 9113, 7).
    RstStream(u32),
    /// GOAWAY whose last stream is below this one, with its error code.
    GoAway(u32),
    /// FIN.
    Fin,
    /// RST.
    Rst,
    /// Nothing: it was still open at the end of the capture, or at the last packet of its connection.
    StillOpen,
}

/// The end of an exchange without a complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When this tap saw it, Unix nanoseconds.
    pub at_ns: i64,
    /// Packet number.
    pub packet: u64,
    /// The side that ended it; `None` if neither did.
    pub by: Option<Side>,
    /// What ended it.
    pub stop: Stop,
    /// Whether this tap had seen the acknowledgement of the request's last byte by then.
    pub request_acked: bool,
}

/// Reasons to doubt the facts of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Bytes of its request or response are missing from the capture (dropped, not merely cut by the snap
    /// length).
    pub hole: bool,
    /// The capture joined the connection after its start, and some header fields could not be decoded.
    pub headers_unknown: bool,
    /// The snap length cut off bytes that belong or may belong to it: header fields, or its end.
    pub cut: bool,
    /// Several requests overlapped, and nothing tells their responses apart.
    pub turns_overlap: bool,
    /// TLS session tickets may precede the response, so that its start is unknown.
    pub tickets: bool,
    /// Its spans were matched by time, since no packet shows its trace context.
    pub by_time: bool,
    /// The tap saw no end, but there may have been one: bytes are missing from the capture, or the protocol does
    /// not show whether a response was due.
    pub end_unknown: bool,
    /// For the request and the response: the snap length cut off the end, among bytes that may belong to other
    /// calls. Its last known byte is a bound, not its end.
    pub end_cut: [bool; 2],
    /// The capture's clock was set during the exchange: its times come from two clocks.
    pub clock_set: bool,
}

/// Header fields of unknown name that were recognised by the shape of their value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByShape {
    /// The trace context.
    pub trace: bool,
    /// The method.
    pub method: bool,
    /// The status.
    pub status: bool,
}

/// A trace context from a request's header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// In the W3C format; a 64-bit id is padded with eight leading zero bytes.
    pub trace_id: [u8; 16],
    /// Id of the CLIENT span.
    pub span_id: [u8; 8],
}

/// Index of a text (a method, an authority) in [`crate::app::Texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

/// One request and its response at one tap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// The tap's number for the connection.
    pub connection: u32,
    /// HTTP/2 stream; for other protocols, the number of the exchange on its connection, from 1.
    pub stream_id: u32,
    /// Number of the turn within an HTTP/2 stream of several turns, from 1; zero when the whole stream is one
    /// exchange.
    pub turn: u32,
    /// Application protocol.
    pub protocol: Protocol,
    /// The request.
    pub request: Part,
    /// The response; `None` when the tap saw nothing of it.
    pub response: Option<Part>,
    /// How it ended.
    pub ended: Ended,
    /// End without a complete response; `None` when the response is complete, or with [`Doubts::end_unknown`].
    pub ending: Option<Ending>,
    /// Reasons to doubt these facts.
    pub doubts: Doubts,
    /// Which of the next three were recognised by shape.
    pub by_shape: ByShape,
    /// `:path`, or the method and target of HTTP/1; zero if unknown.
    pub method: TextId,
    /// gRPC status, else the class of the HTTP status; unset when the tap saw neither.
    pub status: CallStatus,
    /// The exact HTTP status, if `status` is its class.
    pub http_status: Option<u16>,
    /// Trace context, if a header field carries one.
    pub trace: Option<TraceContext>,
    /// Hash of `x-request-id`; zero without one.
    pub request_id: u64,
    /// `grpc-timeout`, nanoseconds.
    pub deadline_ns: Option<u64>,
    /// Calls in flight on the connection when this request began, including this one.
    pub in_flight: u32,
}

impl Exchange {
    /// Whether the exchange ended before any byte of a response: the client was gone, whatever arrived later.
    pub fn is_unanswered(&self) -> bool {
        let before = |ending: &Ending| self.response.is_none_or(|part| part.first.seen_ns >= ending.at_ns);
        self.ending.as_ref().is_some_and(before)
    }

    /// Whether the capture may lack its end because of the snap length.
    pub fn end_was_cut(&self) -> bool {
        self.doubts.cut && matches!(self.ended, Ended::CaptureEnded | Ended::ConnectionClosed)
    }
}
