//! What header fields mean to a call. A field is read once, when it enters a table: after that it is its meaning.

use super::grpc;
use crate::app::Texts;
use crate::app::trace::{self, TracePart, TraceParts};
use crate::exchange::{ByShape, TextId, TraceContext};

/// Names of header fields that mean something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Name {
    /// Any other.
    #[default]
    Other,
    /// One that is not known, since the entry it came from is not.
    Unknown,
    /// `:path`
    Path,
    /// `:method`, `:scheme`: only requests have them.
    OfRequest,
    /// `:status`
    Status,
    /// `content-type`
    ContentType,
    /// `grpc-status`
    GrpcStatus,
    /// `grpc-timeout`
    GrpcTimeout,
    /// One that carries a trace context, or half of one: its place in a list, which keeps the tables small.
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
    /// The name that `text` is.
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

    /// What a value means under this name.
    #[inline]
    pub fn read(self, value: &[u8], texts: &mut Texts) -> Meaning {
        match self {
            Name::Other => Meaning::Nothing,
            Name::Unknown => Meaning::Unknown,
            Name::Path => Meaning::Path(texts.id(value)),
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

/// What a header field says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing that matters here.
    #[default]
    Nothing,
    /// It cannot be known.
    Unknown,
    /// The method of a call.
    Path(TextId),
    /// It stands only in requests.
    OfRequest,
    /// HTTP status.
    Status(u32),
    /// Whether the body is gRPC.
    ContentType {
        /// See above.
        grpc: bool,
    },
    /// gRPC status.
    GrpcStatus(u32),
    /// Time left, nanoseconds.
    Timeout(u64),
    /// A trace context or half of one.
    Trace(TracePart),
}

/// What the fields of one header block say together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `:path`.
    pub path: Option<TextId>,
    /// `:status`.
    pub status: Option<u32>,
    /// Whether it has a field that only requests have.
    pub request: bool,
    /// Whether the body is gRPC, where there is a content type.
    pub grpc: Option<bool>,
    /// `grpc-status`.
    pub grpc_status: Option<u32>,
    /// `grpc-timeout`, nanoseconds.
    pub timeout_ns: Option<u64>,
    /// Ids found.
    trace: TraceParts,
    /// Fields that could not be decoded.
    pub unknown: u32,
    /// What was recognised by shape.
    pub by_shape: ByShape,
    /// The value of a field without a name that may be a gRPC status.
    pub small: Option<u32>,
}

impl Head {
    /// Of a block that could not be read. How many fields there were is not known, but one at least.
    pub fn unreadable() -> Head {
        Head { unknown: 1, ..Head::default() }
    }

    /// Takes the next field in.
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

    /// Takes the next field in, whose name was recognised by shape at best: it could not be decoded.
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

    /// The trailers of a gRPC response: they have to have its status, so where only one field has no name, it is that.
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

    /// The trace context, of the most exact header there is.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace.context()
    }

    /// Whether it is an informational response (RFC 9110, 15.2), after which the real one follows.
    pub fn informational(&self) -> bool {
        self.status.is_some_and(|status| (100..200).contains(&status))
    }
}
