//! A bound on what the kernel takes of an answer before its peer has room for it.
//!
//! A send buffer grows to megabytes. Whoever asks and never reads would have that much of an answer made for it before
//! anything shows that it does not read.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes that are not sent yet, beyond which the kernel takes no more.
const MAX_UNSENT_BYTES: libc::c_int = 128 << 10;

/// Bounds them for all connections that this listener will accept.
pub fn bound(listener: &impl AsFd) -> io::Result<()> {
    let fd = listener.as_fd().as_raw_fd();
    let value = std::ptr::from_ref(&MAX_UNSENT_BYTES).cast();
    let len = size_of_val(&MAX_UNSENT_BYTES) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `listener` is borrowed, and `value` points to `len` bytes.
    match unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Bytes that can be written to a peer that reads nothing.
    fn taken(listener: &TcpListener) -> usize {
        let _reads_nothing =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nonblocking(true).expect("it can be");
        let mut taken = 0;
        loop {
            match stream.write(&[0; 64 << 10]) {
                Ok(bytes) => taken += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_is_sent_little() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let before = taken(&listener);
        bound(&listener).expect("Linux has it");
        let bounded = taken(&listener);
        assert!(bounded < before / 2, "{bounded} of {before} bytes");
    }
}
