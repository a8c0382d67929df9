//! Batches encoded for the wire.

use crate::workload::SpanBatch;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// How batches are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP, protobuf.
    Http,
}

/// Protocol and compression of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    pub protocol: Protocol,
    /// Whether the body is compressed with gzip.
    pub gzip: bool,
}

impl Wire {
    /// gRPC without compression.
    pub const GRPC: Wire = Wire { protocol: Protocol::Grpc, gzip: false };
    /// HTTP without compression.
    pub const HTTP: Wire = Wire { protocol: Protocol::Http, gzip: false };

    /// Name for tables and JSON: `grpc`, `http+gzip`.
    pub fn name(self) -> String {
        let protocol = match self.protocol {
            Protocol::Grpc => "grpc",
            Protocol::Http => "http",
        };
        format!("{protocol}{}", if self.gzip { "+gzip" } else { "" })
    }
}

/// Body of one request, ready to be sent.
#[derive(Clone)]
pub struct Payload {
    /// The body; for gRPC including the message's five-byte prefix.
    pub body: Bytes,
    pub spans: u64,
}

impl Payload {
    /// Encodes a batch with the ids of pass `pass`.
    pub fn new(batch: &SpanBatch, pass: u32, wire: Wire) -> Payload {
        const PREFIX: usize = 5;
        let prefix = if wire.protocol == Protocol::Grpc { PREFIX } else { 0 };
        let mut body = vec![0; prefix];
        if wire.gzip {
            let mut encoder = GzEncoder::new(body, Compression::default());
            let written = encoder.write_all(&batch.of_pass(pass));
            body = written.and_then(|()| encoder.finish()).expect("writing to memory does not fail");
        } else {
            body.extend_from_slice(&batch.bytes);
            batch.patch(pass, &mut body[prefix..]);
        }
        if prefix > 0 {
            body[0] = u8::from(wire.gzip);
            let len = u32::try_from(body.len() - PREFIX).expect("batches are far below 4 GiB");
            body[1..PREFIX].copy_from_slice(&len.to_be_bytes());
        }
        Payload { body: body.into(), spans: batch.spans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Shape, generate};
    use std::io::Read;

    #[test]
    fn the_frame_is_what_grpc_and_http_expect() {
        let (workload, _) = generate(&Shape { spans: 64, batch: 32, ..Shape::default() });
        let batch = &workload.batches[0];
        let plain = batch.of_pass(3);
        let http = Payload::new(batch, 3, Wire::HTTP);
        assert_eq!(http.body, plain);
        let grpc = Payload::new(batch, 3, Wire { gzip: true, ..Wire::GRPC });
        assert_eq!(grpc.body[0], 1);
        assert_eq!(
            u32::from_be_bytes(grpc.body[1..5].try_into().expect("four bytes")) as usize,
            grpc.body.len() - 5
        );
        let mut unzipped = Vec::new();
        flate2::read::GzDecoder::new(&grpc.body[5..]).read_to_end(&mut unzipped).expect("gzip");
        assert_eq!(unzipped, plain);
    }
}
