//! The meaning of header fields for a call. A field is parsed once, when it enters a table; afterwards only its
//! meaning is kept.

use super::grpc;
use crate::app::trace::{self, TracePart, TraceParts};
use crate::app::{Texts, without_query};
use crate::exchange::{ByShape, TextId, TraceContext};

/// Names of the relevant header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    /// Any other name.
    #[default]
    Other,
    /// Unknown, because the table entry it refers to is.
    Unknown,
    /// `:path`
    Path,
    /// `:method`, `:scheme`, which only requests have.
    OfRequest,
    /// `:status`
    Status,
    /// `content-type`
    ContentType,
    /// `grpc-status`
    GrpcStatus,
    /// `grpc-timeout`
    GrpcTimeout,
    /// A field with a trace context, or half of one: its index in a list, which keeps the tables small.
    Trace(u8),
}

const TRACE_NAMES: [&[u8]; 10] = [
    b"traceparent",
    b"b3",
    b"x-b3-traceid",
    b"x-b3-spanid",
    b"uber-trace-id",
    b"grpc-trace-bin",
    b"x-datadog-trace-id",
    b"x-datadog-parent-id",
    b"x-datadog-tags",
    b"x-request-id",
];

impl Name {
    /// The name that `text` stands for.
    #[inline]
    pub fn of(text: &[u8]) -> Name {
        match text {
            b":path" => Name::Path,
            b":method" | b":scheme" => Name::OfRequest,
            b":status" => Name::Status,
            b"content-type" => Name::ContentType,
            b"grpc-status" => Name::GrpcStatus,
            b"grpc-timeout" => Name::GrpcTimeout,
            _ => TRACE_NAMES
                .iter()
                .position(|name| *name == text)
                .map_or(Name::Other, |place| Name::Trace(place as u8)),
        }
    }

    /// The text of a name that carries a trace context.
    pub fn text(self) -> Option<&'static [u8]> {
        match self {
            Name::Trace(place) => TRACE_NAMES.get(usize::from(place)).copied(),
            _ => None,
        }
    }

    /// The meaning of a value under this name.
    #[inline]
    pub fn read(self, value: &[u8], texts: &mut Texts) -> Meaning {
        match self {
            Name::Other => Meaning::Nothing,
            Name::Unknown => Meaning::Unknown,
            Name::Path => Meaning::Path(texts.id(without_query(value))),
            Name::OfRequest => Meaning::OfRequest,
            Name::Status => decimal(value).map_or(Meaning::Nothing, Meaning::Status),
            Name::ContentType => Meaning::ContentType { grpc: grpc::is_grpc(value) },
            Name::GrpcStatus => decimal(value).map_or(Meaning::Nothing, Meaning::GrpcStatus),
            Name::GrpcTimeout => grpc::timeout_ns(value).map_or(Meaning::Nothing, Meaning::Timeout),
            Name::Trace(place) => {
                let name = TRACE_NAMES.get(usize::from(place)).copied().unwrap_or_default();
                trace::part(name, value).map_or(Meaning::Nothing, Meaning::Trace)
            }
        }
    }
}

/// A number of at most nine digits.
fn decimal(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

/// Content of a header field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing relevant.
    #[default]
    Nothing,
    /// Cannot be known.
    Unknown,
    /// The method of a call.
    Path(TextId),
    /// A field that only requests have.
    OfRequest,
    /// HTTP status.
    Status(u32),
    /// Whether the body is gRPC.
    ContentType {
        /// Whether it is a gRPC content type.
        grpc: bool,
    },
    /// gRPC status.
    GrpcStatus(u32),
    /// Remaining time, nanoseconds.
    Timeout(u64),
    /// A trace context, or half of one.
    Trace(TracePart),
}

/// The combined content of one header block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `:path`.
    pub path: Option<TextId>,
    /// `:status`.
    pub status: Option<u32>,
    /// Whether it has a field that only requests have.
    pub request: bool,
    /// Whether the body is gRPC, if there is a content type.
    pub grpc: Option<bool>,
    /// `grpc-status`.
    pub grpc_status: Option<u32>,
    /// `grpc-timeout`, nanoseconds.
    pub timeout_ns: Option<u64>,
    /// Trace ids and request id.
    trace: TraceParts,
    /// Fields that could not be decoded.
    pub unknown: u32,
    /// Fields recognised by shape.
    pub by_shape: ByShape,
    /// The value of a nameless field that may be a gRPC status.
    pub small: Option<u32>,
}

impl Head {
    /// A block that could not be read. The number of its fields is unknown, but at least one.
    pub fn unreadable() -> Head {
        Head { unknown: 1, ..Head::default() }
    }

    /// Adds the next field.
    #[inline]
    pub fn take(&mut self, meaning: &Meaning) {
        match *meaning {
            Meaning::Nothing => {}
            Meaning::Unknown => self.unknown += 1,
            Meaning::Path(id) => {
                self.path = Some(id);
                self.request = true;
            }
            Meaning::OfRequest => self.request = true,
            Meaning::Status(status) => self.status = Some(status),
            Meaning::ContentType { grpc } => self.grpc = Some(grpc),
            Meaning::GrpcStatus(status) => self.grpc_status = Some(status),
            Meaning::Timeout(ns) => self.timeout_ns = Some(ns),
            Meaning::Trace(ref part) => self.trace.add(part),
        }
    }

    /// Adds the next field, which could not be decoded; its name was recognised by shape at best.
    #[cold]
    pub fn take_by_shape(&mut self, meaning: &Meaning) {
        self.take(meaning);
        self.unknown += u32::from(!matches!(meaning, Meaning::Unknown));
        match meaning {
            Meaning::Trace(_) => self.by_shape.trace = true,
            Meaning::Path(_) => self.by_shape.method = true,
            Meaning::Status(_) => self.by_shape.status = true,
            _ => {}
        }
    }

    /// Completes the trailers of a gRPC response: they must contain its status, so if only one field has no name,
    /// it is the status.
    #[cold]
    pub fn complete_trailers(&mut self) {
        if self.unknown == 1 && self.grpc_status.is_none() && self.small.is_some() {
            (self.grpc_status, self.by_shape.status) = (self.small, true);
        }
    }

    /// Hash of `x-request-id`; zero without one.
    pub fn request_id(&self) -> u64 {
        self.trace.request_id()
    }

    /// The trace context of the most precise header.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace.context()
    }

    /// Whether it is an informational response (RFC 9110, 15.2), which the real one follows.
    pub fn informational(&self) -> bool {
        self.status.is_some_and(|status| (100..200).contains(&status))
    }
}
