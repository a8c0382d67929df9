//! One request and its response, as one tap saw them: the half of a call that a capture knows.

use spangap_model::{CallStatus, Side};

/// When a byte was seen at the tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the packet that carries it was first seen, Unix nanoseconds: what counts where it is sent.
    pub seen_ns: i64,
    /// When it and every byte before it had been seen: what counts where it is received, since an application
    /// cannot read past a hole. Not before `seen_ns`.
    pub ready_ns: i64,
    /// Number of the packet that carries it.
    pub packet: u64,
    /// Number of the packet that made it ready: the same, unless it had to wait for bytes before it.
    pub ready_packet: u64,
}

/// Request or response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first byte on the wire (of an HTTP/2 HEADERS frame's header, an HTTP/1 request line, ...).
    pub first: Mark,
    /// Its last byte.
    pub last: Mark,
    /// Stream offset of the first byte (see [`crate::tcp`]: the low 32 bits are the raw sequence number).
    pub start: u64,
    /// Stream offset after the last byte.
    pub end: u64,
    /// Bytes of its body: of DATA frames without padding, of an HTTP/1 body, of a turn.
    pub body_bytes: u64,
    /// gRPC messages in it, complete ones.
    pub messages: u32,
}

/// What was spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// HTTP/2, not gRPC as far as can be seen.
    Http2,
    /// HTTP/1.0 or 1.1.
    Http1,
    /// TLS without keys: turns of application data.
    Tls,
    /// Anything else: bytes there, then bytes back.
    #[default]
    Turns,
}

impl Protocol {
    /// The name in JSON and tables.
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
    /// With its response complete.
    #[default]
    Complete,
    /// RST_STREAM, with its error code (RFC 9113, 7), from the client or not.
    Reset {
        /// The error code.
        code: u32,
        /// Whether the client sent it.
        by_client: bool,
    },
    /// The connection ended first.
    ConnectionClosed,
    /// The capture ended first.
    CaptureEnded,
}

/// What ended an exchange before its response was whole.
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

/// The end of an exchange without a whole response: when, by whom, how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When this tap saw it, Unix nanoseconds.
    pub at_ns: i64,
    /// Number of the packet.
    pub packet: u64,
    /// Who ended it; `None` when nobody did.
    pub by: Option<Side>,
    /// What ended it.
    pub stop: Stop,
    /// Whether this tap saw the last byte of the request acknowledged by then.
    pub request_acked: bool,
}

/// What may be wrong with what is known of an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// Bytes of its request or response are missing from the capture (dropped, not only cut by the snap length).
    pub hole: bool,
    /// The connection was joined after its start, and some header fields could not be decoded.
    pub headers_unknown: bool,
    /// The snap length cut bytes off that are of it or may be: header fields, or its end.
    pub cut: bool,
    /// Several requests were under way without anything that tells their responses apart.
    pub turns_overlap: bool,
    /// Session tickets of TLS may stand before the response: when that began is not known.
    pub tickets: bool,
    /// Its spans were found by their times, since no packet shows a trace context of it.
    pub by_time: bool,
    /// No end of it was seen, and it may have had one: bytes are missing from the capture, or the protocol does not show
    /// whether an answer was due.
    pub end_unknown: bool,
    /// Of its request and of its response: the snap length cut off where it ends, among bytes that may be of other calls.
    /// The last byte known of it is a bound, and not its end.
    pub end_cut: [bool; 2],
    /// The capture's clock was set while it was under way: its times are those of two clocks.
    pub clock_set: bool,
}

/// What was recognised by the shape of a header field's value, its name not being known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByShape {
    /// The trace context.
    pub trace: bool,
    /// The method.
    pub method: bool,
    /// The status.
    pub status: bool,
}

/// A trace context found in a request's header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// As W3C writes it; a 64-bit id has eight zero bytes before it.
    pub trace_id: [u8; 16],
    /// Id of the CLIENT span.
    pub span_id: [u8; 8],
}

/// Where a text (a method, an authority) is kept: see [`crate::app::Texts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

/// One request and its response at one tap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// The tap's number of the connection.
    pub connection: u32,
    /// HTTP/2 stream; otherwise the number of the exchange on its connection, from 1.
    pub stream_id: u32,
    /// Which of several turns of one HTTP/2 stream this is, from 1; zero when the stream is one exchange.
    pub turn: u32,
    /// What was spoken.
    pub protocol: Protocol,
    /// The request.
    pub request: Part,
    /// The response; `None` when nothing of it was seen.
    pub response: Option<Part>,
    /// How it ended.
    pub ended: Ended,
    /// When and how it ended without a whole response; `None` where the response is whole or [`Doubts::end_unknown`].
    pub ending: Option<Ending>,
    /// What may be wrong.
    pub doubts: Doubts,
    /// Which of the next three were recognised by shape.
    pub by_shape: ByShape,
    /// `:path`, or method and target of HTTP/1; zero is unknown.
    pub method: TextId,
    /// gRPC status, else class of the HTTP status; unset when neither was seen.
    pub status: CallStatus,
    /// The exact HTTP status, where it is what `status` is the class of.
    pub http_status: Option<u16>,
    /// Trace context, where a header field carries one.
    pub trace: Option<TraceContext>,
    /// Hash of `x-request-id`; zero without one.
    pub request_id: u64,
    /// `grpc-timeout`, nanoseconds.
    pub deadline_ns: Option<u64>,
    /// Calls under way on the connection when this one's request began, itself included.
    pub in_flight: u32,
}

impl Exchange {
    /// Whether it was over before anything of a response was seen: the client had gone, whatever came after.
    pub fn is_unanswered(&self) -> bool {
        let before = |ending: &Ending| self.response.is_none_or(|part| part.first.seen_ns >= ending.at_ns);
        self.ending.as_ref().is_some_and(before)
    }

    /// Whether its end is not in the capture because the snap length may have cut it off.
    pub fn end_was_cut(&self) -> bool {
        self.doubts.cut && matches!(self.ended, Ended::CaptureEnded | Ended::ConnectionClosed)
    }
}
