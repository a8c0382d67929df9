//! `/proc/PID/net/tcp` and `tcp6`: the TCP sockets of a network namespace, readable by any user.

use crate::{FactError, Known};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of a TCP socket, as the kernel defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Open at both ends.
    Established,
    /// SYN sent, no answer yet.
    SynSent,
    /// SYN received and answered; the last part of the handshake is missing.
    SynRecv,
    /// Closed here; the FIN is not acknowledged.
    FinWait1,
    /// Closed here and acknowledged; the peer may still send.
    FinWait2,
    /// Closed at both ends, kept for stray segments.
    TimeWait,
    /// Not connected.
    Close,
    /// Closed by the peer, and not yet by the application here.
    CloseWait,
    /// Closed at both ends; the FIN is not acknowledged.
    LastAck,
    /// Waiting for connections.
    Listen,
    /// Both ends closed at once; the FIN is not acknowledged.
    Closing,
    /// Unknown to this program.
    Other,
}

impl State {
    /// From the kernel's number.
    pub fn of(number: u8) -> State {
        match number {
            1 => State::Established,
            2 => State::SynSent,
            // 12 is a request of a listening socket that is not a full socket yet.
            3 | 12 => State::SynRecv,
            4 => State::FinWait1,
            5 => State::FinWait2,
            6 => State::TimeWait,
            7 => State::Close,
            8 => State::CloseWait,
            9 => State::LastAck,
            10 => State::Listen,
            11 => State::Closing,
            _ => State::Other,
        }
    }

    /// Name in `ss` output.
    pub fn name(self) -> &'static str {
        match self {
            State::Established => "ESTAB",
            State::SynSent => "SYN-SENT",
            State::SynRecv => "SYN-RECV",
            State::FinWait1 => "FIN-WAIT-1",
            State::FinWait2 => "FIN-WAIT-2",
            State::TimeWait => "TIME-WAIT",
            State::Close => "CLOSED",
            State::CloseWait => "CLOSE-WAIT",
            State::LastAck => "LAST-ACK",
            State::Listen => "LISTEN",
            State::Closing => "CLOSING",
            State::Other => "UNKNOWN",
        }
    }
}

/// Kind of a socket's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4 through an IPv4 socket.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 through an IPv6 socket.
    Ipv4Mapped,
}

/// Pending kernel timer of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    /// Retransmission.
    Retransmit,
    /// Keep-alive probe.
    KeepAlive,
    /// End of TIME-WAIT.
    TimeWait,
    /// Zero-window probe.
    WindowProbe,
}

/// File names in `/proc/net` and in a process's `net` folder. A kernel without IPv6 lacks the second.
pub const NAMES: [&str; 2] = ["tcp", "tcp6"];

/// One line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Kind of its addresses.
    pub family: Family,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
    /// State of the connection.
    pub state: State,
    /// Bytes written and not acknowledged.
    pub send_queue_bytes: u64,
    /// Bytes received and not read; for a listening socket, length of the accept queue.
    pub receive_queue: u64,
    /// Pending timer, and nanoseconds until it fires.
    pub timer: Option<(Timer, u64)>,
    /// User id of the owner.
    pub uid: u32,
    /// Inode; zero if no process owns the socket.
    pub inode: u64,
    /// `None` if it is not a full socket.
    pub acks: Option<Acks>,
}

/// ACK behaviour of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    /// Number of ACKs that will be sent without delay.
    pub quick_left: u64,
    /// Considered interactive: ACKs are delayed to ride on data.
    pub pingpong: bool,
}

/// Parses a table with its heading.
///
/// # Errors
/// A line in a form that the kernel is not known to write.
pub fn parse(path: &str, text: &str) -> Known<Vec<Row>> {
    let lines = text.lines().enumerate().skip(1);
    let read = |(at, line)| {
        row(line).ok_or_else(|| FactError::malformed(path, at, line, "the fields of a TCP socket"))
    };
    lines.map(read).collect()
}

/// Nanoseconds per tick: the kernel reports times to user space in hundredths of a second.
const TICK_NS: u64 = 10_000_000;

fn row(line: &str) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace();
    let (local, family) = address(fields.nth(1)?)?;
    let (peer, _) = address(fields.next()?)?;
    let state = State::of(u8::from_str_radix(fields.next()?, 16).ok()?);
    let (send, receive) = fields.next()?.split_once(':')?;
    let (timer, ticks) = fields.next()?.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let timer = match hex(timer)? {
        1 => Some(Timer::Retransmit),
        2 => Some(Timer::KeepAlive),
        3 => Some(Timer::TimeWait),
        4 => Some(Timer::WindowProbe),
        _ => None,
    };
    let timer_ns = hex(ticks)?.saturating_mul(TICK_NS);
    let uid = fields.nth(1)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    // Reference count, address, retransmission timeout, delayed ACK; only full sockets have them.
    let acks: Option<u64> = fields.nth(4).and_then(|field| field.parse().ok());
    Some(Row {
        family,
        local,
        peer,
        state,
        send_queue_bytes: hex(send)?,
        receive_queue: hex(receive)?,
        timer: timer.map(|timer| (timer, timer_ns)),
        uid,
        inode,
        acks: acks.map(|both| Acks { quick_left: both >> 1, pingpong: both & 1 != 0 }),
    })
}

/// `HEX:PORT`, the address as 32-bit words in the machine's byte order. IPv4-mapped addresses become IPv4.
fn address(text: &str) -> Option<(SocketAddr, Family)> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let (ip, family) = match ip.len() {
        8 => (IpAddr::from(Ipv4Addr::from(word(0)?)), Family::Ipv4),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            let ip = Ipv6Addr::from(bytes).to_canonical();
            (ip, if ip.is_ipv4() { Family::Ipv4Mapped } else { Family::Ipv6 })
        }
        _ => return None,
    };
    Some((SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?), family))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(address: SocketAddr) -> String {
        let bytes = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let words: String = words.map(|word| format!("{word:08X}")).collect();
        format!("{words}:{:04X}", address.port())
    }

    type Made = (SocketAddr, SocketAddr, u8, u64, (u32, u32, u32), Option<(u32, bool)>);

    fn table(rows: &[Made]) -> String {
        let mut text = "  sl  local_address rem_address   st tx_queue rx_queue ...\n".to_owned();
        for (at, (local, peer, state, inode, (send, receive, uid), acks)) in rows.iter().enumerate() {
            let (local, peer) = (hex(*local), hex(*peer));
            text += &format!(
                "{at:4}: {local} {peer} {state:02X} {send:08X}:{receive:08X} 01:00000014 00000000 {uid:5}        0 {inode} 1 0"
            );
            if let Some((quick, pingpong)) = acks {
                text += &format!(" 20 4 {} 10 -1", u64::from(*quick) << 1 | u64::from(*pingpong));
            }
            text += "\n";
        }
        text
    }

    proptest! {
        #[test]
        fn kernel_format_is_parsed(made in prop::collection::vec(any::<Made>(), 0..20)) {
            let read = parse("/proc/net/tcp", &table(&made)).unwrap();
            prop_assert_eq!(read.len(), made.len());
            for (row, (local, peer, state, inode, (send, receive, uid), acks)) in read.iter().zip(made) {
                let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
                prop_assert_eq!((row.local, row.peer), (canonical(local), canonical(peer)));
                prop_assert_eq!((row.state, row.inode, row.uid), (State::of(state), inode, uid));
                prop_assert_eq!((row.send_queue_bytes, row.receive_queue), (send.into(), receive.into()));
                prop_assert_eq!(row.timer, Some((Timer::Retransmit, 200_000_000)));
                let expected = acks.map(|(quick, pingpong)| Acks { quick_left: quick.into(), pingpong });
                prop_assert_eq!(row.acks, expected);
            }
        }

        #[test]
        fn no_address_panics(text in "\\PC{0,8}[0-9A-F]{0,32}:[0-9A-Fa-f+]{0,5}") {
            let _ = address(&text);
        }
    }

    #[test]
    fn ipv4_in_ipv6_is_ipv4() {
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        let expected: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        // In the format of a little-endian machine.
        if cfg!(target_endian = "little") {
            assert_eq!(address(mapped), Some((expected, Family::Ipv4Mapped)));
            assert_eq!(address("0100007F:1F90"), Some((expected, Family::Ipv4)));
        }
    }

    #[test]
    fn malformed_line_is_reported() {
        let text = "heading\n   0: 0100007F:1F90 nonsense 01\n";
        let error = parse("/proc/net/tcp", text).unwrap_err().to_string();
        assert!(error.contains("/proc/net/tcp, line 2: ") && error.contains("nonsense"), "{error}");
    }
}
