//! Calls to methods other than the pings: requests are sent as given, responses counted but not decoded.

use crate::connection::{Connection, in_words};
use crate::contract::call_file::CallFile;
use crate::ping::MAX_MESSAGE_BYTES;
use crate::trace::{TRACEPARENT, TraceContext};
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap,
};
use tonic::{Request, Status};

/// A method and the request for every call.
#[derive(Clone)]
pub struct PreparedCall(Arc<Parts>);

struct Parts {
    path: PathAndQuery,
    server_streaming: bool,
    messages: Vec<Bytes>,
    metadata: MetadataMap,
}

impl PreparedCall {
    /// Reads the file that tank wrote.
    ///
    /// # Errors
    /// The file cannot be read or decoded.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("cannot use the call file {}: {why}", path.display());
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let file = CallFile::decode(bytes.as_slice()).map_err(|error| wrong(error.to_string()))?;
        let mut metadata = MetadataMap::new();
        for header in &file.metadata {
            let unfit = || wrong(format!("header {:?} is not valid metadata", header.key));
            if header.key.ends_with("-bin") {
                let key = BinaryMetadataKey::from_bytes(header.key.as_bytes()).map_err(|_| unfit())?;
                metadata.append_bin(key, BinaryMetadataValue::from_bytes(&header.value));
            } else {
                let key = AsciiMetadataKey::from_bytes(header.key.as_bytes()).map_err(|_| unfit())?;
                let value = AsciiMetadataValue::try_from(header.value.to_vec()).map_err(|_| unfit())?;
                metadata.append(key, value);
            }
        }
        let path = PathAndQuery::try_from(file.path.as_str()).map_err(|error| wrong(error.to_string()))?;
        let CallFile { server_streaming, messages, .. } = file;
        Ok(PreparedCall(Arc::new(Parts { path, server_streaming, messages, metadata })))
    }

    /// The request with this call's context.
    pub fn request(&self, context: Option<&TraceContext>) -> Request<()> {
        let mut request = Request::new(());
        *request.metadata_mut() = self.0.metadata.clone();
        if let Some(context) = context {
            let header = AsciiMetadataValue::try_from(context.header().to_vec());
            let header = header.expect("hexadecimal digits and dashes are ASCII");
            request.metadata_mut().insert(TRACEPARENT, header);
        }
        request
    }

    /// Makes a call, and reads the response to its end.
    ///
    /// # Errors
    /// The status of the call, or `INTERNAL` if a unary method does not respond with exactly one message.
    pub async fn call(&self, connection: &Connection, request: Request<()>) -> Result<(), Status> {
        let Parts { path, server_streaming, messages, .. } = &*self.0;
        let mut grpc = Grpc::new(connection.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| Status::unavailable(in_words(&error)))?;
        let request = request.map(|()| tokio_stream::iter(messages.clone()));
        let mut answers = grpc.streaming(request, path.clone(), Verbatim).await?.into_inner();
        let mut count = 0u64;
        while answers.message().await?.is_some() {
            count += 1;
        }
        match (server_streaming, count) {
            (true, _) | (false, 1) => Ok(()),
            (false, count) => {
                Err(Status::internal(format!("expected one message in the answer, found {count}")))
            }
        }
    }
}

/// A codec that passes bytes through, and discards responses.
struct Verbatim;

impl Codec for Verbatim {
    type Encode = Bytes;
    type Decode = ();
    type Encoder = Verbatim;
    type Decoder = Verbatim;

    fn encoder(&mut self) -> Verbatim {
        Verbatim
    }

    fn decoder(&mut self) -> Verbatim {
        Verbatim
    }
}

impl Encoder for Verbatim {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Verbatim {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        message.advance(message.remaining());
        Ok(Some(()))
    }
}
