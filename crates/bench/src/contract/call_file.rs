//! The call that a client makes instead of a ping, as tank hands it over: encoded once, so that a client needs neither
//! descriptors nor JSON.

use bytes::Bytes;

/// What `--call-file` names.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CallFile {
    /// `/package.Service/Method`.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Whether any number of messages may come back; otherwise it is one.
    #[prost(bool, tag = "2")]
    pub server_streaming: bool,
    /// Encoded messages of the request, in order; one unless the client streams.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub messages: Vec<Bytes>,
    /// Metadata of the request, in order.
    #[prost(message, repeated, tag = "4")]
    pub metadata: Vec<Header>,
}

/// One entry of the metadata.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Header {
    /// Lowercase; of binary values it ends in `-bin`.
    #[prost(string, tag = "1")]
    pub key: String,
    /// As it is, not in base64.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}
