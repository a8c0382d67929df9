//! The call that a client makes instead of a ping, encoded once by tank, so that a client needs neither
//! descriptors nor JSON.

use bytes::Bytes;

/// Content of the `--call-file`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CallFile {
    /// `/package.Service/Method`.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Whether the response is a stream; otherwise it is a single message.
    #[prost(bool, tag = "2")]
    pub server_streaming: bool,
    /// Encoded request messages, in order; a single one unless the client streams.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub messages: Vec<Bytes>,
    /// Request metadata, in order.
    #[prost(message, repeated, tag = "4")]
    pub metadata: Vec<Header>,
}

/// A metadata entry.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Header {
    /// Lower case; ends in `-bin` for binary values.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Raw value, not in base64.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}
