//! Streaming responses: a thread that may block on the client writes them in pieces, compressed if the client accepts
//! that. Memory does not grow with the response.

use super::readers::Place;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::write::GzEncoder;
use std::io::{self, Write};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};

/// Size of a piece. A shorter answer is sent with its length.
const PIECE: usize = 64 << 10;
/// Pieces on their way.
const PIECES: usize = 4;
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

/// Collects pieces and hands them over.
struct Pieces {
    to: Sender<io::Result<Bytes>>,
    runtime: Handle,
    piece: Vec<u8>,
    place: Place,
}

impl Pieces {
    fn hand_over(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.place.waits_for_reader();
        let sent = self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.place.told_to_go() => Err(io::Error::other("others wait, and this reader is slow")),
                sent = tokio::time::timeout(TAKES_WITHIN, self.to.send(Ok(piece.into()))) => match sent {
                    Ok(Ok(())) => Ok(()),
                    _ => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")),
                },
            }
        });
        self.place.goes_on();
        sent
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE {
            self.hand_over()?;
        }
        let some = &bytes[..bytes.len().min(PIECE - self.piece.len())];
        self.piece.extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Answers with what `write` writes, in a coding that the request accepts. The place is held as long as `write` is.
pub async fn streamed(
    request: &HeaderMap,
    place: Place,
    content_type: &'static str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Response {
    let all = request.get_all(header::ACCEPT_ENCODING);
    let accepted: Vec<&str> = all.iter().filter_map(|value| value.to_str().ok()).collect();
    let coding = negotiate(&accepted.join(","));
    let (to, mut pieces) = mpsc::channel(PIECES);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut out = Pieces { to, runtime, piece: Vec::with_capacity(PIECE), place };
        let done = match coding {
            Coding::Identity => write(&mut out),
            Coding::Gzip => {
                let mut gzip = GzEncoder::new(&mut out, flate2::Compression::new(GZIP_LEVEL));
                write(&mut gzip).and_then(|()| gzip.finish().map(|_| ()))
            }
            Coding::Zstd => zstd::Encoder::new(&mut out, ZSTD_LEVEL)
                .and_then(|mut zstd| write(&mut zstd).and_then(|()| zstd.finish().map(|_| ()))),
        };
        match done.and_then(|()| out.hand_over()) {
            Ok(()) => {}
            // The body ends in an error, so that nobody takes the part for the whole; when the client has gone,
            // nobody is there to hear it. Neither the place nor the thread waits for that.
            Err(error) => {
                let Pieces { to, runtime, .. } = out;
                runtime.spawn(async move { tokio::time::timeout(TAKES_WITHIN, to.send(Err(error))).await });
            }
        }
    });
    let first = pieces.recv().await;
    let body = match (first, pieces.recv().await) {
        (Some(Ok(whole)), None) => Body::from(whole),
        (first, second) => {
            let begun = tokio_stream::iter(first.into_iter().chain(second));
            Body::from_stream(begun.chain(ReceiverStream::new(pieces)))
        }
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let name = match coding {
        Coding::Identity => return response,
        Coding::Gzip => "gzip",
        Coding::Zstd => "zstd",
    };
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::places::Peer;
    use crate::serve::readers::Readers;

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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_coding_carries_the_same_bytes() {
        let readers = Readers::new();
        for size in [0, 10, PIECE, PIECE + 1, 20 * PIECE + 7] {
            let plain: Vec<u8> = (0..size).map(|i| ((i * i) >> 7) as u8).collect();
            for (name, decode) in [
                ("identity", (|b: &[u8]| b.to_vec()) as fn(&[u8]) -> Vec<u8>),
                ("gzip", |b| {
                    let mut out = Vec::new();
                    io::copy(&mut flate2::read::GzDecoder::new(b), &mut out).unwrap();
                    out
                }),
                ("zstd", |b| zstd::decode_all(b).unwrap()),
            ] {
                let mut headers = HeaderMap::new();
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(name));
                let wanted = plain.clone();
                let place = readers.enter(Peer::NOBODY).await.expect("a place");
                let answer = streamed(&headers, place, "text/plain", move |out| out.write_all(&wanted)).await;
                let coding =
                    answer.headers().get(header::CONTENT_ENCODING).map(|v| v.to_str().unwrap().to_owned());
                assert_eq!(coding.as_deref().unwrap_or("identity"), name);
                let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
                assert!(decode(&body) == plain, "{name}, {size} bytes");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_answer_that_breaks_off_does_not_end_well() {
        let broken = |out: &mut dyn Write| -> io::Result<()> {
            out.write_all(&[7; 3 * PIECE])?;
            Err(io::Error::other("the disk is gone"))
        };
        let place = Readers::new().enter(Peer::NOBODY).await.expect("a place");
        let answer = streamed(&HeaderMap::new(), place, "text/plain", broken).await;
        assert!(axum::body::to_bytes(answer.into_body(), usize::MAX).await.is_err());
    }
}
