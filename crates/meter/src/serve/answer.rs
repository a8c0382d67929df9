//! Answers: made once, complete and compressed, then sent to any number of readers, each at its own pace.

use super::readers::Place;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::write::GzEncoder;
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

/// Size of a piece. A shorter answer is sent with its length.
const PIECE: usize = 64 << 10;
/// A client that takes no piece for this long has gone.
const TAKES_WITHIN: Duration = Duration::from_secs(20);
/// Cheap: JSON and text with repeated names shrink tenfold at any level.
const GZIP_LEVEL: u32 = 1;
const ZSTD_LEVEL: i32 = 1;

/// How an answer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// The coding with the highest weight in `Accept-Encoding` (RFC 9110, 12.5.3); zstd before gzip among equals.
pub fn negotiate(accepted: &str) -> Coding {
    let weight_of = |name: &str| {
        let mut found = None;
        for range in accepted.split(',') {
            let (coding, parameters) = range.split_once(';').unwrap_or((range, ""));
            let weight = parameters.trim().strip_prefix("q=").map_or(Ok(1.0), |q| q.trim().parse::<f64>());
            let coding = coding.trim().to_ascii_lowercase();
            // A name counts more than a star, wherever it stands.
            if coding == name || (name == "gzip" && coding == "x-gzip") {
                return weight.unwrap_or(0.0);
            }
            if coding == "*" {
                found = Some(weight.unwrap_or(0.0));
            }
        }
        found.unwrap_or(if name == "identity" { 0.001 } else { 0.0 })
    };
    let codings = [(Coding::Identity, "identity"), (Coding::Gzip, "gzip"), (Coding::Zstd, "zstd")];
    let best = codings.into_iter().map(|(coding, name)| (coding, weight_of(name)));
    let best = best.filter(|(_, weight)| *weight > 0.0).max_by(|(_, a), (_, b)| a.total_cmp(b));
    // A client that refuses everything gets the plain answer all the same, as most servers do.
    best.map_or(Coding::Identity, |(coding, _)| coding)
}

impl Coding {
    /// The coding that a request prefers.
    pub fn of(request: &HeaderMap) -> Coding {
        let all = request.get_all(header::ACCEPT_ENCODING);
        let accepted: Vec<&str> = all.iter().filter_map(|value| value.to_str().ok()).collect();
        negotiate(&accepted.join(","))
    }

    /// The value of `Content-Encoding`.
    fn name(self) -> Option<&'static str> {
        match self {
            Coding::Identity => None,
            Coding::Gzip => Some("gzip"),
            Coding::Zstd => Some("zstd"),
        }
    }
}

/// A complete answer in one coding.
#[derive(Debug)]
pub struct Rendered {
    content_type: &'static str,
    coding: Coding,
    pieces: Vec<Piece>,
    bytes: usize,
    /// Whether newer answers need its memory.
    is_revoked: watch::Sender<bool>,
}

#[derive(Debug)]
enum Piece {
    /// As sent.
    Plain(Bytes),
    /// Compressed while it waits: a scrape of many pairs is a hundred megabytes long.
    Packed(Box<[u8]>),
}

impl Piece {
    fn pack(plain: &[u8]) -> io::Result<Piece> {
        Ok(Piece::Packed(zstd::bulk::compress(plain, ZSTD_LEVEL)?.into()))
    }

    fn plain(&self) -> io::Result<Bytes> {
        match self {
            Piece::Plain(bytes) => Ok(bytes.clone()),
            Piece::Packed(bytes) => Ok(zstd::bulk::decompress(bytes, PIECE)?.into()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Piece::Plain(bytes) => bytes.len(),
            Piece::Packed(bytes) => bytes.len(),
        }
    }
}

/// Divides what is written into pieces.
struct Pieces {
    coding: Coding,
    done: Vec<Piece>,
    piece: Vec<u8>,
}

impl Pieces {
    /// Ends a piece that others follow or precede.
    fn put(&mut self) -> io::Result<()> {
        let piece = match self.coding {
            Coding::Identity => Piece::pack(&self.piece)?,
            Coding::Gzip | Coding::Zstd => Piece::Plain(Bytes::copy_from_slice(&self.piece)),
        };
        self.piece.clear();
        self.done.push(piece);
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<Piece>> {
        if self.done.is_empty() {
            return Ok(vec![Piece::Plain(self.piece.into())]);
        }
        self.put()?;
        Ok(self.done)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE {
            self.put()?;
        }
        let some = &bytes[..bytes.len().min(PIECE - self.piece.len())];
        self.piece.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes on what `write` writes to an encoder. JSON is written in tokens of a few bytes, each of which would cost an
/// encoder as much as a kilobyte.
fn in_long_writes<W: Write>(
    encoder: W,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<W> {
    let mut buffered = BufWriter::with_capacity(PIECE, encoder);
    write(&mut buffered)?;
    buffered.into_inner().map_err(IntoInnerError::into_error)
}

impl Rendered {
    /// What `write` writes.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn new(
        coding: Coding,
        content_type: &'static str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<Rendered> {
        let mut out = Pieces { coding, done: Vec::new(), piece: Vec::new() };
        match coding {
            Coding::Identity => write(&mut out)?,
            Coding::Gzip => {
                let encoder = GzEncoder::new(&mut out, flate2::Compression::new(GZIP_LEVEL));
                in_long_writes(encoder, write)?.finish()?;
            }
            Coding::Zstd => {
                let encoder = zstd::Encoder::new(&mut out, ZSTD_LEVEL)?;
                in_long_writes(encoder, write)?.finish()?;
            }
        }
        let pieces = out.finish()?;
        let bytes = pieces.iter().map(Piece::bytes).sum();
        Ok(Rendered { content_type, coding, pieces, bytes, is_revoked: watch::Sender::new(false) })
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is sent at once, so that no reader can keep it waiting.
    pub fn is_short(&self) -> bool {
        self.pieces.len() == 1
    }

    /// Ends the answer of everybody who is still reading it.
    pub fn revoke(&self) {
        self.is_revoked.send_replace(true);
    }

    /// Answers a reader; a long answer needs a place.
    pub fn send(self: Arc<Self>, place: Option<Place>) -> Response {
        let (coding, content_type) = (self.coding, self.content_type);
        let body = match (&self.pieces[..], place) {
            ([Piece::Plain(whole)], _) => Body::from(whole.clone()),
            (_, place) => {
                let (to, pieces) = mpsc::channel(1);
                tokio::spawn(self.feed(place, to));
                Body::from_stream(ReceiverStream::new(pieces))
            }
        };
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(name) = coding.name() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
        }
        response
    }

    /// Hands over piece after piece, as the reader takes them.
    async fn feed(self: Arc<Self>, place: Option<Place>, to: mpsc::Sender<io::Result<Bytes>>) {
        if let Err(error) = self.hand_over(place, &to, TAKES_WITHIN).await {
            // The body ends in an error, so that nobody takes the part for the whole. Neither the place nor the answer
            // waits for that.
            drop(self);
            let _ = timeout(TAKES_WITHIN, to.send(Err(error))).await;
        }
    }

    async fn hand_over(
        &self,
        place: Option<Place>,
        to: &mpsc::Sender<io::Result<Bytes>>,
        within: Duration,
    ) -> io::Result<()> {
        let mut is_revoked = self.is_revoked.subscribe();
        for piece in &self.pieces {
            if let Some(place) = &place {
                place.waits_for_reader();
            }
            let room = tokio::select! {
                biased;
                () = told_to_go(place.as_ref()) => {
                    return Err(io::Error::other("others wait, and this reader is slow"));
                }
                () = revoked(&mut is_revoked) => {
                    place.iter().for_each(Place::is_displaced);
                    return Err(io::Error::other("newer answers need the memory, and this reader is slow"));
                }
                room = timeout(within, to.reserve()) => room,
            };
            let Ok(Ok(room)) = room else {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone"));
            };
            room.send(Ok(piece.plain()?));
            if let Some(place) = &place {
                place.goes_on();
            }
        }
        Ok(())
    }
}

async fn told_to_go(place: Option<&Place>) {
    match place {
        Some(place) => place.told_to_go().await,
        None => std::future::pending().await,
    }
}

async fn revoked(is_revoked: &mut watch::Receiver<bool>) {
    // The sender lives as long as the answer.
    let _ = is_revoked.wait_for(|is_revoked| *is_revoked).await;
}

/// An answer that is written while it is read, some pieces ahead of its reader.
#[derive(Debug)]
pub struct Outlet {
    piece: Vec<u8>,
    to: mpsc::Sender<io::Result<Bytes>>,
}

impl Outlet {
    /// The writing end, for a thread that may wait, and the body of the answer.
    pub fn new() -> (Outlet, Body) {
        let (to, pieces) = mpsc::channel(2);
        (Outlet { piece: Vec::new(), to }, Body::from_stream(ReceiverStream::new(pieces)))
    }

    /// Ends the answer, well or not.
    pub fn finish(mut self, written: io::Result<()>) {
        if let Err(error) = written.and_then(|()| self.flush()) {
            // If nobody reads, nobody needs to know.
            let _ = self.to.blocking_send(Err(error));
        }
    }
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
        self.to.blocking_send(Ok(piece)).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::places::Peer;
    use crate::serve::readers::Readers;
    use std::io::Read;

    #[test]
    fn the_coding_is_one_that_the_client_takes() {
        let cases = [
            ("", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("gzip, deflate, br", Coding::Gzip),
            ("gzip, deflate, br, zstd", Coding::Zstd),
            ("gzip;q=1.0, zstd;q=0.5", Coding::Gzip),
            ("GZIP ; q=0.3", Coding::Gzip),
            ("gzip;q=0", Coding::Identity),
            ("identity", Coding::Identity),
            ("identity;q=0.5, gzip;q=0.2", Coding::Identity),
            ("*", Coding::Zstd),
            ("*, zstd;q=0", Coding::Gzip),
            ("*;q=0", Coding::Identity),
            ("br", Coding::Identity),
            ("gzip;q=nonsense", Coding::Identity),
        ];
        for (accepted, coding) in cases {
            assert_eq!(negotiate(accepted), coding, "{accepted:?}");
        }
    }

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            Coding::Identity => plain.extend_from_slice(bytes),
            Coding::Gzip => {
                // One member: some clients read no further.
                let mut decoder = flate2::bufread::GzDecoder::new(bytes);
                decoder.read_to_end(&mut plain).expect("it is gzip");
                assert!(decoder.into_inner().is_empty(), "nothing follows the member");
            }
            Coding::Zstd => plain = zstd::decode_all(bytes).expect("it is zstd"),
        }
        plain
    }

    async fn body(response: Response) -> Result<Bytes, axum::Error> {
        axum::body::to_bytes(response.into_body(), usize::MAX).await
    }

    #[tokio::test]
    async fn every_coding_carries_the_same_bytes_to_every_reader() {
        let readers = Readers::new();
        for size in [0, 10, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 20 * PIECE + 7] {
            let plain: Vec<u8> = (0..size).map(|i| ((i * i) >> 7) as u8).collect();
            for coding in [Coding::Identity, Coding::Gzip, Coding::Zstd] {
                let rendered = Rendered::new(coding, "text/plain", |out| out.write_all(&plain));
                let rendered = Arc::new(rendered.expect("memory"));
                for _ in 0..2 {
                    let place = readers.enter(Peer::NOBODY).await.expect("a place");
                    let answer = rendered.clone().send(Some(place));
                    let name = answer.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
                    assert_eq!(name, coding.name().map(str::as_bytes));
                    let body = body(answer).await.expect("a whole answer");
                    assert!(decoded(coding, &body) == plain, "{coding:?}, {size} bytes");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_long_answer_takes_the_memory_of_its_compressed_form() {
        let line = "spangap_gap_seconds_bucket{client=\"web\",server=\"cart\",le=\"0.25\"} 17\n";
        let write = |out: &mut dyn Write| (0..100_000).try_for_each(|_| out.write_all(line.as_bytes()));
        let rendered = Rendered::new(Coding::Identity, "text/plain", write).expect("memory");
        assert!(rendered.bytes() * 10 < 100_000 * line.len(), "{} bytes", rendered.bytes());
    }

    /// An encoder that counts how often it is written to.
    struct Counting(usize);

    impl Write for Counting {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_encoder_is_not_called_for_every_token_of_json() {
        let numbers: Vec<usize> = (0..100_000).collect();
        let write = |out: &mut dyn Write| Ok(serde_json::to_writer(out, &numbers)?);
        let Counting(writes) = in_long_writes(Counting(0), write).expect("memory");
        assert!((5..50).contains(&writes), "{writes} for 600 kB");
    }

    /// Whoever reads slowly must learn that this is not all of it.
    #[tokio::test]
    async fn an_answer_that_is_cut_short_does_not_end_well() {
        let long = |out: &mut dyn Write| out.write_all(&[7; 5 * PIECE]);
        let rendered_anew = || Rendered::new(Coding::Identity, "text/plain", long).expect("memory");
        let rendered = Arc::new(rendered_anew());
        let readers = Readers::new();
        let place = readers.enter(Peer::NOBODY).await.expect("a place");
        let answer = rendered.clone().send(Some(place));
        rendered.revoke();
        assert!(body(answer).await.is_err());
        let displaced = readers.displaced.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(displaced, 1);

        let (to, mut pieces) = mpsc::channel(1);
        assert!(
            rendered_anew().hand_over(None, &to, Duration::ZERO).await.is_err(),
            "nobody takes the second piece"
        );
        assert!(pieces.try_recv().is_ok_and(|first| first.is_ok()));
    }
}
