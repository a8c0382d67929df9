//! Concurrent streams that an HTTP/2 server allows per connection, as announced in its first frame.

use crate::deadline::DeadlineStream;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// The client's preface, followed by an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const SETTING_BYTES: usize = 6;
/// Maximum frame size before the peer allows more.
const MAX_FRAME_BYTES: usize = 16_384;

/// Reason for an unknown limit.
#[derive(Debug, thiserror::Error)]
pub enum StreamLimitError {
    /// No connection.
    #[error("cannot connect to {peer}")]
    Connect {
        /// The server.
        peer: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The connection ended, or the time was over, before the frame was complete.
    #[error("{peer} did not send its HTTP/2 settings")]
    Exchange {
        /// The server.
        peer: SocketAddr,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The peer does not speak HTTP/2.
    #[error("{peer} does not speak HTTP/2: {source}")]
    Frame {
        /// The server.
        peer: SocketAddr,
        /// What is wrong.
        source: FrameError,
    },
}

/// Reason for bytes not to be a server's first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another type; bytes that are no frame at all usually end up here.
    #[error("its first frame is of type {0}, flags {1}: expected SETTINGS, type 4, flags 0")]
    Kind(u8, u8),
    /// Settings apply to the connection.
    #[error("its SETTINGS frame is for stream {0}: expected 0")]
    Stream(u32),
    /// Not a whole number of settings, or too many.
    #[error("its SETTINGS frame has {0} bytes: expected a multiple of 6, at most 16384")]
    Length(usize),
}

/// Connects to `peer` and reads `SETTINGS_MAX_CONCURRENT_STREAMS`; `None` if it announces no limit. The whole
/// exchange takes at most `timeout`.
///
/// # Errors
/// There is no connection, or the first frame in time is not SETTINGS.
pub fn ask(peer: SocketAddr, timeout: Duration) -> Result<Option<u32>, StreamLimitError> {
    let connected = DeadlineStream::connect(peer, timeout);
    let mut stream = connected.map_err(|source| StreamLimitError::Connect { peer, source })?;
    let broken = |source| StreamLimitError::Exchange { peer, source };
    stream.write_all(PREFACE).map_err(broken)?;
    let mut header = [0; 9];
    stream.read_exact(&mut header).map_err(broken)?;
    let length = settings_length(&header).map_err(|source| StreamLimitError::Frame { peer, source })?;
    let mut settings = vec![0; length];
    stream.read_exact(&mut settings).map_err(broken)?;
    Ok(limit_in(&settings))
}

/// Length of the SETTINGS frame with this header.
///
/// # Errors
/// It is not a SETTINGS frame.
pub fn settings_length(header: &[u8; 9]) -> Result<usize, FrameError> {
    let [a, b, c, kind, flags, stream @ ..] = *header;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    // The first bit is reserved and must be ignored. So must flags that SETTINGS does not define.
    let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
    match (kind, flags & ACK, stream, length) {
        (SETTINGS, 0, 0, 0..=MAX_FRAME_BYTES) if length.is_multiple_of(SETTING_BYTES) => Ok(length),
        (SETTINGS, 0, 0, _) => Err(FrameError::Length(length)),
        (SETTINGS, 0, _, _) => Err(FrameError::Stream(stream)),
        _ => Err(FrameError::Kind(kind, flags)),
    }
}

/// The limit among a frame's settings; the last one wins. `None` if there is none.
pub fn limit_in(settings: &[u8]) -> Option<u32> {
    let (settings, _) = settings.as_chunks::<SETTING_BYTES>();
    let last = settings.iter().rfind(|[a, b, ..]| u16::from_be_bytes([*a, *b]) == MAX_CONCURRENT_STREAMS);
    last.map(|&[_, _, value @ ..]| u32::from_be_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::TcpListener;

    fn encode(settings: &[(u16, u32)]) -> Vec<u8> {
        settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect()
    }

    fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; 9] {
        let [_, a, b, c] = (length as u32).to_be_bytes();
        let [d, e, f, g] = stream.to_be_bytes();
        [a, b, c, kind, flags, d, e, f, g]
    }

    proptest! {
        #[test]
        fn the_last_limit_counts(settings in prop::collection::vec((0u16..8, any::<u32>()), 0..20)) {
            let last = settings.iter().rfind(|(id, _)| *id == 3);
            prop_assert_eq!(limit_in(&encode(&settings)), last.map(|(_, value)| *value));
        }

        #[test]
        fn a_length_that_is_accepted_can_be_read(bytes: [u8; 9]) {
            if let Ok(length) = settings_length(&bytes) {
                prop_assert!(length <= MAX_FRAME_BYTES && length % SETTING_BYTES == 0);
                prop_assert_eq!((bytes[3], bytes[4] & 1), (SETTINGS, 0));
            }
        }

        #[test]
        fn settings_of_any_length_up_to_the_largest(count in 0usize..=MAX_FRAME_BYTES / SETTING_BYTES) {
            prop_assert_eq!(settings_length(&header(6 * count, 4, 0, 0)), Ok(6 * count));
        }
    }

    #[test]
    fn other_frames_are_refused_with_what_was_found() {
        let cases = [
            (header(6, 4, 1, 0), FrameError::Kind(4, 1)),
            (header(8, 6, 0, 0), FrameError::Kind(6, 0)),
            (header(6, 4, 0, 3), FrameError::Stream(3)),
            (header(7, 4, 0, 0), FrameError::Length(7)),
            (header(16_386, 4, 0, 0), FrameError::Length(16_386)),
            (*b"HTTP/1.1 ", FrameError::Kind(b'P', b'/')),
        ];
        for (header, expected) in cases {
            assert_eq!(settings_length(&header), Err(expected));
        }
        assert_eq!(settings_length(&header(0, 4, 0, 1 << 31)), Ok(0), "the reserved bit is ignored");
    }

    /// A server that responds to the preface with `bytes` and closes the connection.
    fn answer(bytes: &'static [u8]) -> Result<Option<u32>, StreamLimitError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut preface = [0; PREFACE.len()];
            client.read_exact(&mut preface).unwrap();
            client.write_all(bytes).unwrap();
            preface
        });
        let limit = ask(address, Duration::from_secs(60));
        assert_eq!(server.join().unwrap(), PREFACE);
        limit
    }

    #[test]
    fn other_protocols_are_distinguished() {
        assert_eq!(answer(b"\0\0\x0c\x04\0\0\0\0\0\0\x04\0\x01\0\0\0\x03\0\0\0\x64more").unwrap(), Some(100));
        assert_eq!(answer(b"\0\0\0\x04\0\0\0\0\0").unwrap(), None);
        let error = answer(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err().to_string();
        assert!(error.contains("does not speak HTTP/2: its first frame is of type 80"), "{error}");
        for cut_off in [&b""[..], b"\0\0\x06\x04\0", b"\0\0\x06\x04\0\0\0\0\0\0\x03\0"] {
            let error = answer(cut_off).unwrap_err();
            assert!(matches!(error, StreamLimitError::Exchange { .. }), "{error}");
        }
    }

    #[test]
    fn no_listener() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = ask(free, Duration::from_secs(60)).unwrap_err().to_string();
        assert_eq!(error, format!("cannot connect to {free}"));
    }
}
