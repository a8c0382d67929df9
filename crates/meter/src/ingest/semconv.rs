//! The attributes that the join needs, by their old and new names in the semantic conventions.
//!
//! Status: `rpc.grpc.status_code` (until 1.37), `rpc.response.status_code` (since), `http.response.status_code`,
//! `http.status_code` (until 1.20). Response size: no settled attribute, so a configurable list, which includes the
//! response's `content-length` where headers are recorded and what proxies write, the bytes a server wrote, and the
//! `message` / `rpc.message` events of the gRPC instrumentations. Method: `rpc.method` with `rpc.service`,
//! else `http.route` with the HTTP method, else the span's name.

use super::wire::{Cursor, LEN, WalkError};
use spangap_model::CallStatus;
use std::borrow::Cow;

/// Default attributes of a CLIENT or SERVER span that state the response size.
pub const RESPONSE_SIZE_ATTRIBUTES: [&str; 10] = [
    "http.response.body.size",
    "http.response.size",
    "http.response_content_length",
    "http.response_content_length_uncompressed",
    "rpc.response.size",
    "rpc.client.response.size",
    "rpc.server.response.size",
    "http.response.header.content-length",
    "http.response.header.content_length",
    "response_size",
];
/// Attribute of older Go instrumentations: the response size on a SERVER span, the request size on a CLIENT
/// span.
const SERVER_WROTE: &str = "http.wrote_bytes";
/// Its counterpart: the response size on a CLIENT span, the request size on a SERVER span.
const CLIENT_READ: &str = "http.read_bytes";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    GrpcStatus,
    HttpStatus,
    ResponseSize,
    WroteBytes,
    ReadBytes,
    RpcMethod,
    RpcService,
    HttpRoute,
    HttpMethod,
}

/// The attributes that the walk reads.
#[derive(Clone, Debug)]
pub struct Interest {
    /// Whether methods are separated.
    pub methods: bool,
    /// Indexed by first byte modulo 32: bit n is set if a relevant name with this first byte has n bytes.
    /// First byte and length together dismiss most attributes.
    lengths: [u64; 32],
    names: Vec<(Box<[u8]>, Meaning)>,
}

impl Interest {
    /// Reads status and size attributes, and methods if `methods` is set. Names of 64 bytes or more are never
    /// matched.
    pub fn new(methods: bool, response_size_attributes: &[impl AsRef<str>]) -> Interest {
        let mut names = vec![
            ("rpc.grpc.status_code", Meaning::GrpcStatus),
            ("rpc.response.status_code", Meaning::GrpcStatus),
            ("http.response.status_code", Meaning::HttpStatus),
            ("http.status_code", Meaning::HttpStatus),
            (SERVER_WROTE, Meaning::WroteBytes),
            (CLIENT_READ, Meaning::ReadBytes),
        ];
        names.extend(response_size_attributes.iter().map(|name| (name.as_ref(), Meaning::ResponseSize)));
        if methods {
            names.extend([
                ("rpc.method", Meaning::RpcMethod),
                ("rpc.service", Meaning::RpcService),
                ("http.route", Meaning::HttpRoute),
                ("http.request.method", Meaning::HttpMethod),
                ("http.method", Meaning::HttpMethod),
            ]);
        }
        let mut lengths = [0; 32];
        for name in names.iter().map(|(name, _)| name.as_bytes()).filter(|name| (1..64).contains(&name.len()))
        {
            lengths[name[0] as usize % 32] |= 1u64 << name.len();
        }
        let names = names.into_iter().map(|(n, meaning)| (n.as_bytes().into(), meaning)).collect();
        Interest { methods, lengths, names }
    }

    /// Reads one attribute (a `KeyValue` from `from` to the end of `buf`) and records its meaning.
    #[inline]
    pub fn attribute(&self, buf: &[u8], from: usize, found: &mut Attributes) -> Result<(), WalkError> {
        // All known encoders write the key first, with a one-byte length.
        if let [0x0a, len, first, ..] = buf[from..]
            && len < 64
            && self.lengths[first as usize % 32] >> len & 1 == 0
        {
            return Ok(());
        }
        self.attribute_of_some_length(buf, from, found)
    }

    fn attribute_of_some_length(
        &self,
        buf: &[u8],
        from: usize,
        found: &mut Attributes,
    ) -> Result<(), WalkError> {
        let (key, value) = key_value(buf, from)?;
        let Some((_, meaning)) = self.names.iter().find(|(name, _)| **name == buf[key.0..key.1]) else {
            return Ok(());
        };
        let value = any_value(&buf[..value.1], value.0)?;
        match meaning {
            Meaning::GrpcStatus => match value {
                Value::Int(code) => found.grpc = Some(CallStatus::from_grpc(code)),
                Value::Text(from, to) => {
                    let text = String::from_utf8_lossy(&buf[from as usize..to as usize]);
                    let code = text.parse().map(CallStatus::from_grpc).ok();
                    found.grpc = code.or_else(|| CallStatus::from_grpc_name(&text)).or(found.grpc);
                }
                Value::List(..) | Value::Other => {}
            },
            Meaning::HttpStatus => found.http_status = value.as_number(buf).unwrap_or(found.http_status),
            Meaning::ResponseSize => found.response_bytes = found.response_bytes.max(value.as_number(buf)),
            Meaning::WroteBytes => found.wrote_bytes = value.as_number(buf).or(found.wrote_bytes),
            Meaning::ReadBytes => found.read_bytes = value.as_number(buf).or(found.read_bytes),
            Meaning::RpcMethod => found.rpc_method = value.as_text(),
            Meaning::RpcService => found.rpc_service = value.as_text(),
            Meaning::HttpRoute => found.http_route = value.as_text(),
            Meaning::HttpMethod => found.http_method = value.as_text(),
        }
        Ok(())
    }

    /// Reads the size of a message sent or received from an event.
    pub fn event(&self, buf: &[u8], from: usize, found: &mut Attributes) -> Result<(), WalkError> {
        let mut is_message = false;
        let (mut sent, mut size, mut compressed) = (None, None, None);
        let mut fields = Cursor::at(buf, from);
        while let Some((field, wire)) = fields.tag()? {
            match (field, wire) {
                (2, LEN) => {
                    let (from, to) = fields.len_range()?;
                    is_message = matches!(&buf[from..to], b"message" | b"rpc.message");
                }
                (3, LEN) => {
                    let (from, to) = fields.len_range()?;
                    let (key, value) = key_value(&buf[..to], from)?;
                    let value = any_value(&buf[..value.1], value.0)?;
                    match &buf[key.0..key.1] {
                        b"message.type" | b"rpc.message.type" => {
                            if let Value::Text(from, to) = value {
                                sent = match &buf[from as usize..to as usize] {
                                    t if t.eq_ignore_ascii_case(b"SENT") => Some(true),
                                    t if t.eq_ignore_ascii_case(b"RECEIVED") => Some(false),
                                    _ => None,
                                };
                            }
                        }
                        b"message.uncompressed_size" | b"rpc.message.uncompressed_size" => {
                            size = value.as_number(buf);
                        }
                        b"message.compressed_size" | b"rpc.message.compressed_size" => {
                            compressed = value.as_number(buf);
                        }
                        _ => {}
                    }
                }
                _ => fields.skip(field, wire)?,
            }
        }
        if is_message && let Some(size) = size.or(compressed) {
            let sum = |bytes: Option<u64>| Some(bytes.unwrap_or(0).saturating_add(size));
            match sent {
                Some(true) => found.sent_bytes = sum(found.sent_bytes),
                Some(false) => found.received_bytes = sum(found.received_bytes),
                None => {}
            }
        }
        Ok(())
    }
}

/// Relevant kinds of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpanKind {
    /// INTERNAL, PRODUCER, CONSUMER, unspecified and unknown.
    #[default]
    Other,
    /// SPAN_KIND_CLIENT
    Client,
    /// SPAN_KIND_SERVER
    Server,
}

/// A range of the request, holding a text that is decoded only if needed.
type Range = (u32, u32);

/// Properties of one span, from its attributes and events.
#[derive(Default, Debug)]
pub struct Attributes {
    grpc: Option<CallStatus>,
    http_status: u64,
    response_bytes: Option<u64>,
    sent_bytes: Option<u64>,
    received_bytes: Option<u64>,
    wrote_bytes: Option<u64>,
    read_bytes: Option<u64>,
    rpc_method: Range,
    rpc_service: Range,
    http_route: Range,
    http_method: Range,
    /// The span's name.
    pub name: Range,
}

impl Attributes {
    /// The most specific status known.
    #[inline]
    pub fn status(&self, span_code: u64) -> CallStatus {
        match self.grpc {
            Some(status) => status,
            None if self.http_status != 0 => CallStatus::from_http(self.http_status),
            None => CallStatus::from_span_code(span_code),
        }
    }

    /// Size of the response: from an attribute, else the bytes the client received or the server sent; `None`
    /// if unknown.
    #[inline]
    pub fn response_bytes(&self, kind: SpanKind) -> Option<u64> {
        let moved = match kind {
            SpanKind::Client => self.received_bytes.max(self.read_bytes),
            SpanKind::Server => self.sent_bytes.max(self.wrote_bytes),
            SpanKind::Other => None,
        };
        self.response_bytes.max(moved)
    }

    /// The method, as far as it is known.
    pub fn method<'a>(&self, buf: &'a [u8]) -> Cow<'a, str> {
        let text = |range: Range| String::from_utf8_lossy(&buf[range.0 as usize..range.1 as usize]);
        let is_set = |range: Range| range.1 > range.0;
        if is_set(self.rpc_method) {
            // Since semantic conventions 1.38, rpc.method includes the service.
            let method = text(self.rpc_method);
            return match is_set(self.rpc_service) && !method.contains('/') {
                true => format!("{}/{method}", text(self.rpc_service)).into(),
                false => method,
            };
        }
        if is_set(self.http_route) {
            return match is_set(self.http_method) {
                true => format!("{} {}", text(self.http_method), text(self.http_route)).into(),
                false => text(self.http_route),
            };
        }
        text(self.name)
    }
}

enum Value {
    Int(u64),
    Text(u32, u32),
    /// An `ArrayValue`, such as a header that may be repeated.
    List(u32, u32),
    Other,
}

impl Value {
    fn as_number(&self, buf: &[u8]) -> Option<u64> {
        match *self {
            Value::Int(n) => Some(n),
            Value::Text(from, to) => {
                std::str::from_utf8(&buf[from as usize..to as usize]).ok().and_then(|t| t.trim().parse().ok())
            }
            Value::List(from, to) => match only_item(&buf[..to as usize], from as usize) {
                Ok(Some(item @ (Value::Int(_) | Value::Text(..)))) => item.as_number(buf),
                _ => None,
            },
            Value::Other => None,
        }
    }

    fn as_text(&self) -> Range {
        match *self {
            Value::Text(from, to) => (from, to),
            _ => (0, 0),
        }
    }
}

/// Ranges of key and value of a `KeyValue`.
pub(super) type KeyValueRanges = ((usize, usize), (usize, usize));

/// Finds key and value of a `KeyValue` message from `from` to the end of `buf`.
pub(super) fn key_value(buf: &[u8], from: usize) -> Result<KeyValueRanges, WalkError> {
    let (mut key, mut value) = ((from, from), (from, from));
    let mut fields = Cursor::at(buf, from);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (1, LEN) => key = fields.len_range()?,
            (2, LEN) => value = fields.len_range()?,
            (1 | 2, _) => return Err(fields.expected("a length-delimited KeyValue field")),
            _ => fields.skip(field, wire)?,
        }
    }
    Ok((key, value))
}

/// Reads an `AnyValue` from `from` to the end of `buf`; the last field wins, as in any `oneof`.
fn any_value(buf: &[u8], from: usize) -> Result<Value, WalkError> {
    let mut value = Value::Other;
    let mut fields = Cursor::at(buf, from);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (1, LEN) => {
                let (from, to) = fields.len_range()?;
                value = Value::Text(from as u32, to as u32);
            }
            (3, 0) => {
                let n = fields.varint()?;
                value = if n > i64::MAX as u64 { Value::Other } else { Value::Int(n) };
            }
            (5, LEN) => {
                let (from, to) = fields.len_range()?;
                value = Value::List(from as u32, to as u32);
            }
            (1 | 3, _) => return Err(fields.expected("an AnyValue field of its own wire type")),
            _ => {
                fields.skip(field, wire)?;
                if (2..=8).contains(&field) {
                    value = Value::Other;
                }
            }
        }
    }
    Ok(value)
}

/// The item of an `ArrayValue` with exactly one.
fn only_item(buf: &[u8], from: usize) -> Result<Option<Value>, WalkError> {
    let mut only = None;
    let mut fields = Cursor::at(buf, from);
    while let Some((field, wire)) = fields.tag()? {
        match (field, wire) {
            (1, LEN) if only.is_none() => {
                let (from, to) = fields.len_range()?;
                only = Some(any_value(&buf[..to], from)?);
            }
            (1, _) => return Ok(None),
            _ => fields.skip(field, wire)?,
        }
    }
    Ok(only)
}

/// The text of a `KeyValue`'s value, if it is a text.
pub(super) fn text_value(buf: &[u8], from: usize) -> Result<Option<String>, WalkError> {
    Ok(match any_value(buf, from)? {
        Value::Text(from, to) => Some(String::from_utf8_lossy(&buf[from as usize..to as usize]).into_owned()),
        Value::Int(n) => Some(n.to_string()),
        Value::List(..) | Value::Other => None,
    })
}
