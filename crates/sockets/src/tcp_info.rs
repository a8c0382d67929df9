//! `TCP_INFO` of a socket. The one `unsafe` of this crate: no library reads it safely.
#![allow(unsafe_code)]

use libc::{self, socklen_t, tcp_info};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};

const MICROSECOND_NS: u64 = 1_000;

/// What the kernel measured on a connection. A figure that it does not have (yet) is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    pub rtt_ns: Option<u64>,
    pub min_rtt_ns: Option<u64>,
    pub retransmitted_segments: Option<u64>,
}

/// Reads it; `None` when the kernel does not tell.
pub fn of(socket: impl AsFd) -> Option<TcpInfo> {
    let mut bytes = [0u8; size_of::<tcp_info>()];
    let mut length = bytes.len() as socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `fd` is open for the whole call, as it is borrowed; the kernel writes at most `length` bytes to
    // `bytes`, which has that many, and the length that it wrote to `length`. Any byte is a valid `u8`.
    let failed = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            std::ptr::from_mut(&mut length),
        )
    };
    (failed == 0).then(|| decode(bytes.get(..length as usize).unwrap_or(&bytes)))
}

/// Figures that lie behind the end are unknown to this kernel: older ones have a shorter struct.
fn decode(bytes: &[u8]) -> TcpInfo {
    let field = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u64::from(u32::from_ne_bytes(four.try_into().ok()?)))
    };
    // Before its first sample the round trip is zero and the smallest one has all bits set.
    let rtt_us = field(offset_of!(tcp_info, tcpi_rtt)).filter(|us| *us != 0);
    let min_rtt_us = field(offset_of!(tcp_info, tcpi_min_rtt)).filter(|us| *us != u64::from(u32::MAX));
    TcpInfo {
        rtt_ns: rtt_us.map(|us| us * MICROSECOND_NS),
        min_rtt_ns: min_rtt_us.map(|us| us * MICROSECOND_NS),
        retransmitted_segments: field(offset_of!(tcp_info, tcpi_total_retrans)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_has_a_round_trip_and_nothing_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = of(&stream).unwrap();
        let (rtt_ns, min_rtt_ns) = (info.rtt_ns.unwrap(), info.min_rtt_ns.unwrap());
        assert!(min_rtt_ns <= rtt_ns, "{info:?}");
        assert_eq!(info.retransmitted_segments, Some(0));
        assert_eq!(of(std::fs::File::open("/proc/self/stat").unwrap()), None, "a file is no socket");
    }

    #[test]
    fn what_an_older_kernel_does_not_have_is_unknown() {
        let mut bytes = [0u8; size_of::<tcp_info>()];
        bytes[offset_of!(tcp_info, tcpi_rtt)] = 7;
        bytes[offset_of!(tcp_info, tcpi_total_retrans)] = 2;
        bytes[offset_of!(tcp_info, tcpi_min_rtt)] = 5;
        let whole = TcpInfo { rtt_ns: Some(7_000), min_rtt_ns: Some(5_000), retransmitted_segments: Some(2) };
        assert_eq!(decode(&bytes), whole);
        let older = TcpInfo { min_rtt_ns: None, ..whole };
        assert_eq!(decode(&bytes[..offset_of!(tcp_info, tcpi_min_rtt) + 3]), older);
        assert_eq!(decode(&[]), TcpInfo::default());
    }

    #[test]
    fn a_connection_without_a_sample_has_no_round_trip() {
        let mut bytes = [0u8; size_of::<tcp_info>()];
        let at = offset_of!(tcp_info, tcpi_min_rtt);
        bytes[at..at + 4].fill(0xff);
        assert_eq!((decode(&bytes).rtt_ns, decode(&bytes).min_rtt_ns), (None, None));
    }
}
