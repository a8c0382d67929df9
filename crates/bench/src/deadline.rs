//! A blocking connection for one short exchange under a common deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A connection whose reads and writes fail as `TimedOut` after the deadline.
pub struct DeadlineStream {
    stream: TcpStream,
    until: Instant,
}

impl DeadlineStream {
    /// Connects.
    pub fn connect(peer: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let until = Instant::now() + timeout;
        let stream = TcpStream::connect_timeout(&peer, timeout.max(Duration::from_nanos(1)))?;
        // Each request waits for a response.
        stream.set_nodelay(true)?;
        Ok(DeadlineStream { stream, until })
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// The kernel returns `WouldBlock` when a socket times out.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn silent_and_trickling_peers_time_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let timeout = Duration::from_millis(50);
        let mut silent = DeadlineStream::connect(address, timeout).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (mut first, _) = listener.accept().unwrap();
        first.write_all(&[1; 1000]).unwrap();
        // The deadline passed before there was anything to read, and stays passed.
        assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(silent.write(&[0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
