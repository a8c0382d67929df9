//! The floor: length-prefixed frames over TCP, with nothing between the call and the kernel. [`frame`] is the
//! format of both ends, [`server`] the target's end, and [`usage`] queries the target's usage.

pub mod frame;
mod pipeline;
pub mod server;

use crate::ping::UsageResponse;
use frame::{FrameError, HEADER_BYTES, Head, Kind};
use prost::Message;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// The `library` that both ends report.
pub const LIBRARY: &str = concat!("spangap ", env!("CARGO_PKG_VERSION"), ", raw frames over TCP");
/// Maximum size of a usage response.
const MAX_USAGE_BYTES: u32 = 64 << 10;

/// Reason for a missing usage response.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The socket failed.
    #[error("cannot ask {target} what it has used")]
    Socket {
        /// The target.
        target: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// It does not speak the protocol.
    #[error("{target} does not speak the raw protocol: {what}")]
    Answer {
        /// The target.
        target: String,
        /// What arrived.
        what: String,
    },
}

/// Queries a raw target's usage over a separate connection. Each step may take `timeout`.
///
/// # Errors
/// It is unreachable, or does not speak the protocol.
pub fn usage(target: &str, timeout: Duration) -> Result<UsageResponse, UsageError> {
    let socket = |source| UsageError::Socket { target: target.into(), source };
    let answer = |what: String| UsageError::Answer { target: target.into(), what };
    let mut stream = connect(target, timeout).map_err(socket)?;
    stream.set_read_timeout(Some(timeout)).map_err(socket)?;
    stream.set_write_timeout(Some(timeout)).map_err(socket)?;
    let mut request = Vec::new();
    Head { kind: Kind::UsageRequest, ..Head::ping(0) }.encode(&mut request);
    stream.write_all(&request).map_err(socket)?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).map_err(socket)?;
    let head = match Head::parse(&header) {
        Ok(Some((head, _))) if head.kind == Kind::UsageResponse => head,
        Ok(other) => {
            let kind = other.map_or(Kind::Ping, |(head, _)| head.kind);
            return Err(answer(FrameError::Unexpected(kind).to_string()));
        }
        Err(error) => return Err(answer(error.to_string())),
    };
    if head.payload_bytes > MAX_USAGE_BYTES {
        let found = head.payload_bytes;
        return Err(answer(format!("usage of {found} bytes: expected at most {MAX_USAGE_BYTES}")));
    }
    let mut payload = vec![0; head.payload_bytes as usize];
    stream.read_exact(&mut payload).map_err(socket)?;
    UsageResponse::decode(&payload[..]).map_err(|error| answer(error.to_string()))
}

/// Connects to the first of the target's addresses that accepts.
pub(crate) fn connect(target: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for address in target.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
