//! Request bodies: read within deadlines and a byte budget shared by all requests, and decompressed within a size limit.

use super::admission::Permit;
use super::buffers::{Buffers, Gathered};
use super::places::Deadlines;
use super::refusal::Refusal;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use std::cell::RefCell;
use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

/// A complete body, with its share of the budget.
#[derive(Debug)]
pub struct Body {
    /// The message, possibly still compressed.
    pub bytes: Bytes,
    /// gRPC's compressed flag; for plain HTTP whether there is a content encoding.
    pub compressed: bool,
    _permit: Permit,
    buffers: Arc<Buffers>,
}

impl Drop for Body {
    fn drop(&mut self) {
        self.buffers.give_back(std::mem::take(&mut self.bytes));
    }
}

/// Length of a gRPC message's prefix: one byte of flags, four of length.
const GRPC_PREFIX: usize = 5;

/// Minimum average rate of a body after [`LEAST_RATE_AFTER`], in bytes per second.
const LEAST_RATE: u64 = 4 << 10;
const LEAST_RATE_AFTER: Duration = Duration::from_secs(10);

/// A body in transit, with its deadlines and its share of the budget.
#[derive(Debug)]
pub struct Arrival<'a> {
    body: &'a mut Whole,
    permit: Permit,
    buffers: Arc<Buffers>,
    deadlines: Deadlines,
    begun: Instant,
    last: Instant,
    arrived: u64,
}

impl<'a> Arrival<'a> {
    /// Starts the deadlines now.
    pub fn new(
        body: &'a mut Whole,
        permit: Permit,
        buffers: Arc<Buffers>,
        deadlines: Deadlines,
    ) -> Arrival<'a> {
        let now = Instant::now();
        Arrival { body, permit, buffers, deadlines, begun: now, last: now, arrived: 0 }
    }

    /// Deadline of the next piece.
    fn due(&self) -> Instant {
        let at_least_rate = Duration::from_millis(self.arrived.saturating_mul(1000) / LEAST_RATE);
        let whole = self.deadlines.body.min(LEAST_RATE_AFTER + at_least_rate);
        (self.begun + whole).min(self.last + self.deadlines.stall())
    }

    fn too_slow(&self) -> Refusal {
        self.permit.is_too_slow();
        let waited_s = self.begun.elapsed().as_secs_f64();
        Refusal::TooSlow(format!(
            "{} bytes in {waited_s:.1} s; expected the whole body within {} s, {LEAST_RATE} bytes a second after {} s, \
             and no pause of {} s",
            self.arrived,
            self.deadlines.body.as_secs_f64(),
            LEAST_RATE_AFTER.as_secs(),
            self.deadlines.stall().as_secs_f64(),
        ))
    }

    /// The next piece, charged to the budget; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let frame = tokio::select! {
                biased;
                refusal = self.permit.displaced() => return Err(refusal),
                frame = timeout_at(self.due(), self.body.frame()) => frame,
            };
            let Ok(frame) = frame else { return Err(self.too_slow()) };
            let Some(frame) = frame else {
                self.permit.arrived()?;
                return Ok(None);
            };
            let Ok(data) = frame.map_err(|e| Refusal::Lost(e.to_string()))?.into_data() else { continue };
            self.arrived += data.len() as u64;
            self.last = Instant::now();
            self.permit.grow(data.len() as u64)?;
            return Ok(Some(data));
        }
    }

    /// Reads the one message of a unary gRPC request. `keeps`: its bytes will be kept beyond the request.
    ///
    /// # Errors
    /// [`Refusal`], with what was found and what was expected.
    pub async fn grpc(mut self, limit: u64, keeps: bool) -> Result<Body, Refusal> {
        let (mut prefix, mut prefixed) = ([0; GRPC_PREFIX], 0);
        let mut size = 0;
        let mut message = Gathered::new(keeps);
        while let Some(mut piece) = self.next().await? {
            if prefixed < GRPC_PREFIX {
                let part = piece.len().min(GRPC_PREFIX - prefixed);
                piece.copy_to_slice(&mut prefix[prefixed..prefixed + part]);
                prefixed += part;
                if prefixed < GRPC_PREFIX {
                    continue;
                }
                size = size_of_message(prefix, limit)?;
                // Most messages arrive in one piece, which need not be copied. It pins the connection's read buffer, so
                // it must be used at once, and not wait for more.
                if piece.len() == size && !keeps && self.body.is_end_stream() {
                    self.permit.arrived()?;
                    return Ok(self.body(piece, prefix[0] != 0));
                }
            }
            if message.len() + piece.len() > size {
                return Err(Refusal::Invalid("more than one message in a unary call".into()));
            }
            self.buffers.add(&mut message, &piece);
        }
        if prefixed < GRPC_PREFIX {
            let why = "no message in the call: expected one ExportTraceServiceRequest";
            return Err(Refusal::Invalid(why.into()));
        }
        if message.len() < size {
            let got = message.len();
            return Err(Refusal::Invalid(format!("message ends after {got} of {size} bytes")));
        }
        let whole = self.buffers.whole(message);
        Ok(self.body(whole, prefix[0] != 0))
    }

    /// Reads a plain HTTP body. `declared` is its Content-Length, if there is one. `keeps`: its bytes will be kept beyond the
    /// request.
    ///
    /// # Errors
    /// [`Refusal`], with what was found and what was expected.
    pub async fn http(
        mut self,
        declared: Option<u64>,
        compressed: bool,
        limit: u64,
        keeps: bool,
    ) -> Result<Body, Refusal> {
        if let Some(size) = declared.filter(|size| *size > limit) {
            return Err(Refusal::TooLarge { size, limit });
        }
        let mut bytes = Gathered::new(keeps);
        while let Some(piece) = self.next().await? {
            let size = (bytes.len() + piece.len()) as u64;
            if size > limit {
                return Err(Refusal::TooLarge { size, limit });
            }
            self.buffers.add(&mut bytes, &piece);
        }
        let whole = self.buffers.whole(bytes);
        Ok(self.body(whole, compressed))
    }

    fn body(self, bytes: Bytes, compressed: bool) -> Body {
        Body { bytes, compressed, _permit: self.permit, buffers: self.buffers }
    }
}

/// The size of a message by its prefix, at most `limit`.
fn size_of_message([_, size @ ..]: [u8; GRPC_PREFIX], limit: u64) -> Result<usize, Refusal> {
    match u32::from_be_bytes(size) {
        size if u64::from(size) > limit => Err(Refusal::TooLarge { size: size.into(), limit }),
        size => Ok(size as usize),
    }
}

/// Maximum number of bytes of a body read only to be discarded.
const DISCARD: usize = 64 << 20;

/// Time limit of discarding.
const DISCARD_TIME: Duration = Duration::from_secs(20);

/// The body of a request, which is read to its end and discarded if the handler drops it early. Closing a
/// connection with unread data resets it, as it does an HTTP/2 stream, and the reset can overtake the answer
/// with the reason. Discarding is bounded in bytes and in time.
#[derive(Debug)]
pub struct Whole {
    /// `None` after it was read to its end or handed over.
    body: Option<Incoming>,
    /// Whether its sender waits for `100 Continue` and has sent nothing yet.
    is_awaited: bool,
    stall: Duration,
}

impl Whole {
    /// The body of a request with this head.
    pub fn of(body: Incoming, head: &HeaderMap, deadlines: &Deadlines) -> Whole {
        Whole { body: Some(body), is_awaited: head.contains_key(EXPECT), stall: deadlines.stall() }
    }

    /// The raw body: if it is dropped early, its stream is reset.
    pub fn as_it_comes(mut self) -> Option<Incoming> {
        self.body.take()
    }
}

impl hyper::body::Body for Whole {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        self.is_awaited = false;
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        if self.is_awaited {
            return;
        }
        // Without a runtime, the process is ending.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(discard(body, self.stall));
        }
    }
}

async fn discard(mut body: Incoming, stall: Duration) {
    let rest = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > DISCARD {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME.min(stall), rest).await;
}

/// Compression of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// None.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Encoding {
    /// The encoding by the value of `content-encoding` or `grpc-encoding`.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] with the supported encodings.
    pub fn from_name(name: Option<&str>) -> Result<Encoding, Refusal> {
        match name.map(str::trim) {
            None | Some("" | "identity") => Ok(Encoding::Identity),
            Some("gzip" | "x-gzip") => Ok(Encoding::Gzip),
            Some("zstd") => Ok(Encoding::Zstd),
            Some(other) => Err(Refusal::Unsupported(format!(
                "encoding {other:?} is not supported: expected gzip, zstd or identity"
            ))),
        }
    }
}

thread_local! {
    static PLAIN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that one request grew beyond this is freed afterwards.
const KEEP_CAPACITY: usize = 4 << 20;

/// The largest window of a zstd frame, as a power of two: the one that RFC 8878 recommends every decoder to
/// support.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Passes the decompressed bytes to `then`; their length must not exceed `limit`.
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
                let decoder = zstd::stream::read::Decoder::with_buffer(bytes).and_then(|mut decoder| {
                    // A frame may request a window of 128 MiB, whatever its content.
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(decoder)
                });
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
}
