//! Request bodies: read within a byte budget shared by all requests, and decompressed within a size limit.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::cell::RefCell;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Why a request is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The meter has all the requests in hand that it has memory for. The sender should try again.
    #[error("overloaded: {in_flight} bytes of requests in hand, limit {limit}; retry")]
    Overloaded {
        /// Bytes in hand.
        in_flight: u64,
        /// The budget.
        limit: u64,
    },
    /// One request is larger than allowed.
    #[error("request of {size} bytes, limit {limit}: send smaller batches or raise --max-request-bytes")]
    TooLarge {
        /// Its size, as far as it was read.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The body cannot be what it says it is.
    #[error("{0}")]
    Invalid(String),
    /// An encoding that is not known here.
    #[error("{0}")]
    Unsupported(String),
    /// The connection ended inside the body.
    #[error("connection lost inside the request body: {0}")]
    Lost(String),
}

/// The byte budget for requests in hand.
#[derive(Debug)]
pub struct Admission {
    in_flight: AtomicU64,
    limit: u64,
}

impl Admission {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Admission> {
        Arc::new(Admission { in_flight: AtomicU64::new(0), limit })
    }

    fn permit(self: &Arc<Self>) -> Permit {
        Permit { admission: self.clone(), bytes: 0 }
    }
}

/// A share of the budget, given back when dropped.
#[derive(Debug)]
struct Permit {
    admission: Arc<Admission>,
    bytes: u64,
}

impl Permit {
    fn grow(&mut self, bytes: u64) -> Result<(), Refusal> {
        let in_flight = self.admission.in_flight.fetch_add(bytes, Relaxed) + bytes;
        self.bytes += bytes;
        let limit = self.admission.limit;
        // A request alone in the house is always taken, whatever its size.
        if in_flight > limit && in_flight > self.bytes {
            return Err(Refusal::Overloaded { in_flight, limit });
        }
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.bytes, Relaxed);
    }
}

/// A body in hand, with its share of the budget.
#[derive(Debug)]
pub struct Body {
    /// The message, possibly still compressed.
    pub bytes: Bytes,
    /// gRPC's compressed flag; for plain HTTP true when there is a content encoding.
    pub compressed: bool,
    _permit: Permit,
}

/// Bytes of a gRPC message's prefix: one of flags, four of length.
const GRPC_PREFIX: usize = 5;

/// Reads the one message of a unary gRPC request.
pub async fn read_grpc(mut body: Incoming, admission: &Arc<Admission>, limit: u64) -> Result<Body, Refusal> {
    let mut permit = admission.permit();
    let mut message = BytesMut::new();
    let mut prefix: Option<(bool, usize)> = None;
    while let Some(mut data) = next_data(&mut body).await? {
        if prefix.is_none() {
            message.extend_from_slice(&data);
            if message.len() < GRPC_PREFIX {
                continue;
            }
            let compressed = message.get_u8() != 0;
            let size = message.get_u32() as usize;
            if size as u64 > limit {
                return Err(Refusal::TooLarge { size: size as u64, limit });
            }
            permit.grow(size as u64)?;
            prefix = Some((compressed, size));
            data = message.split().freeze();
            message.reserve(size);
        }
        message.extend_from_slice(&data);
        if prefix.is_some_and(|(_, size)| message.len() > size) {
            return Err(Refusal::Invalid("more than one message in a unary call".into()));
        }
    }
    match prefix {
        Some((compressed, size)) if message.len() == size => {
            Ok(Body { bytes: message.freeze(), compressed, _permit: permit })
        }
        Some((_, size)) => {
            let got = message.len();
            Err(Refusal::Invalid(format!("message ends after {got} of {size} bytes")))
        }
        None => {
            Err(Refusal::Invalid("no message in the call: expected one ExportTraceServiceRequest".into()))
        }
    }
}

/// Reads a plain HTTP body. `declared` is its Content-Length, if there is one.
pub async fn read_http(
    body: &mut Incoming,
    declared: Option<u64>,
    compressed: bool,
    admission: &Arc<Admission>,
    limit: u64,
) -> Result<Body, Refusal> {
    let mut permit = admission.permit();
    let declared = declared.unwrap_or(0);
    if declared > limit {
        return Err(Refusal::TooLarge { size: declared, limit });
    }
    permit.grow(declared)?;
    let mut bytes = BytesMut::with_capacity(declared as usize);
    while let Some(data) = next_data(body).await? {
        let size = (bytes.len() + data.len()) as u64;
        if size > limit {
            return Err(Refusal::TooLarge { size, limit });
        }
        permit.grow(size.saturating_sub(permit.bytes))?;
        bytes.extend_from_slice(&data);
    }
    Ok(Body { bytes: bytes.freeze(), compressed, _permit: permit })
}

/// How long the next piece of a body may take: a sender that stalls would hold its share of the budget.
const STALL: Duration = Duration::from_secs(20);

async fn next_data(body: &mut Incoming) -> Result<Option<Bytes>, Refusal> {
    let stalled = |_| Refusal::Lost(format!("no data for {} s", STALL.as_secs()));
    while let Some(frame) = tokio::time::timeout(STALL, body.frame()).await.map_err(stalled)? {
        match frame.map_err(|e| Refusal::Lost(e.to_string()))?.into_data() {
            Ok(data) => return Ok(Some(data)),
            Err(_trailers) => continue,
        }
    }
    Ok(None)
}

/// Most that is read of a body only to be forgotten.
const DISCARD: usize = 64 << 20;

/// Reads and forgets what a refused sender is still writing, up to a limit in bytes and in time: a connection that
/// is closed on unread data is reset, and the reset can overtake the answer that says why.
pub async fn discard(body: &mut Incoming) {
    let rest = async {
        let mut read = 0;
        while let Ok(Some(data)) = next_data(body).await {
            read += data.len();
            if read > DISCARD {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(STALL, rest).await;
}

/// How a body may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Encoding {
    /// From the value of `content-encoding` or `grpc-encoding`.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] naming what is understood.
    pub fn from_name(name: Option<&str>) -> Result<Encoding, Refusal> {
        match name.map(str::trim) {
            None | Some("" | "identity") => Ok(Encoding::Identity),
            Some("gzip" | "x-gzip") => Ok(Encoding::Gzip),
            Some("zstd") => Ok(Encoding::Zstd),
            Some(other) => Err(Refusal::Unsupported(format!(
                "encoding {other:?} is not known: expected gzip, zstd or identity"
            ))),
        }
    }
}

thread_local! {
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A buffer grown beyond this by one request is given back after it.
const KEEP_CAPACITY: usize = 4 << 20;

/// Hands the decompressed bytes to `then`; they may not be longer than `limit`.
pub fn with_plain<T>(
    bytes: &[u8],
    encoding: Encoding,
    limit: u64,
    then: impl FnOnce(&[u8]) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    if encoding == Encoding::Identity {
        return then(bytes);
    }
    PLAIN.with_borrow_mut(|plain| {
        plain.clear();
        let (name, read) = match encoding {
            Encoding::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(bytes);
                ("zstd", decoder.and_then(|d| d.take(limit + 1).read_to_end(plain)))
            }
            _ => ("gzip", flate2::bufread::MultiGzDecoder::new(bytes).take(limit + 1).read_to_end(plain)),
        };
        let done = match read {
            Err(e) => {
                Err(Refusal::Invalid(format!("not {name} data after {} bytes of output: {e}", plain.len())))
            }
            Ok(size) if size as u64 > limit => Err(Refusal::TooLarge { size: size as u64, limit }),
            Ok(_) => then(plain),
        };
        if plain.capacity() > KEEP_CAPACITY {
            *plain = Vec::new();
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&vec![0; 10 << 20]).unwrap();
        let bomb = gz.finish().unwrap();
        let refused = with_plain(&bomb, Encoding::Gzip, 1 << 20, |_| Ok(()));
        assert_eq!(refused, Err(Refusal::TooLarge { size: (1 << 20) + 1, limit: 1 << 20 }));
        let zst = zstd::encode_all(&vec![7u8; 5000][..], 3).unwrap();
        assert_eq!(with_plain(&zst, Encoding::Zstd, 1 << 20, |b| Ok(b.to_vec())), Ok(vec![7u8; 5000]));
        assert!(matches!(with_plain(b"junk", Encoding::Zstd, 100, |_| Ok(())), Err(Refusal::Invalid(_))));
        assert!(matches!(with_plain(b"junk", Encoding::Gzip, 100, |_| Ok(())), Err(Refusal::Invalid(_))));
    }

    #[test]
    fn the_budget_is_given_back() {
        let admission = Admission::new(100);
        let mut first = admission.permit();
        assert_eq!(first.grow(150), Ok(()), "alone in the house");
        let mut second = admission.permit();
        assert!(matches!(second.grow(1), Err(Refusal::Overloaded { .. })));
        drop((first, second));
        assert_eq!(admission.in_flight.load(Relaxed), 0);
    }
}
