//! Parser for TCP in an IP packet, as far as a line needs it.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of IPv6 extension headers skipped.
const MOST_EXTENSIONS: usize = 8;
const TCP: u8 = 6;

/// Relevant facts about a TCP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
    /// Sequence number of its first byte.
    pub sequence: u32,
    pub payload_bytes: u32,
    /// Whether it opens a connection.
    pub syn: bool,
}

impl Tcp {
    /// Whether it carries all bytes of `other`, on the same connection in the same direction.
    pub fn covers(&self, other: &Tcp) -> bool {
        let behind = other.sequence.wrapping_sub(self.sequence);
        (self.source, self.destination, self.syn) == (other.source, other.destination, other.syn)
            && behind <= self.payload_bytes
            && other.payload_bytes <= self.payload_bytes - behind
    }
}

/// Parses it; `None` if it is not TCP, is truncated, or is a fragment without the header.
pub fn tcp(packet: &[u8]) -> Option<Tcp> {
    let (source, destination, segment) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let bytes = usize::from(number(packet, 2)?);
            let offset = number(packet, 6)? & 0x1fff;
            let addresses = packet.get(12..20).filter(|_| header >= 20)?;
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = addresses.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(bytes).into())
            };
            if packet[9] != TCP || offset != 0 {
                return None;
            }
            (address(0)?, address(4)?, packet.get(header..bytes)?)
        }
        6 => {
            let bytes = 40 + usize::from(number(packet, 4)?);
            let addresses = packet.get(8..40)?;
            let address = |at: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = addresses.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(bytes).into())
            };
            let header = past_extensions(packet)?;
            (address(0)?, address(16)?, packet.get(header..bytes)?)
        }
        _ => return None,
    };
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let payload = segment.get(header..).filter(|_| header >= 20)?;
    let sequence = u32::from_be_bytes(segment.get(4..8)?.try_into().ok()?);
    Some(Tcp {
        source: SocketAddr::new(source, number(segment, 0)?),
        destination: SocketAddr::new(destination, number(segment, 2)?),
        sequence,
        payload_bytes: payload.len() as u32,
        syn: segment.get(13)? & 2 != 0,
    })
}

/// Offset of TCP in an IPv6 packet.
fn past_extensions(packet: &[u8]) -> Option<usize> {
    let (mut kind, mut at) = (*packet.get(6)?, 40);
    for _ in 0..MOST_EXTENSIONS {
        match kind {
            TCP => return Some(at),
            // A fragment: only the first has the TCP header.
            44 if number(packet, at + 2)? >> 3 == 0 => {
                kind = *packet.get(at)?;
                at += 8;
            }
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                kind = *packet.get(at)?;
                at += 8 + usize::from(*packet.get(at + 1)?) * 8;
            }
            _ => return None,
        }
    }
    None
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of TCP over IPv4 from port 1000 to 2000.
    pub(crate) fn v4(sequence: u32, payload: usize, flags: u8) -> Vec<u8> {
        let mut packet = vec![0; 40 + payload];
        let total = packet.len() as u16;
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[9] = TCP;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[3, 232, 7, 208]);
        packet[24..28].copy_from_slice(&sequence.to_be_bytes());
        packet[32] = 0x50;
        packet[33] = flags;
        packet
    }

    fn v6(extensions: &[(u8, u8)], payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x60;
        packet[6] = extensions.first().map_or(TCP, |(kind, _)| *kind);
        for (n, (_, length)) in extensions.iter().enumerate() {
            let next = extensions.get(n + 1).map_or(TCP, |(kind, _)| *kind);
            packet.extend([next, *length]);
            packet.resize(packet.len() + 6 + usize::from(*length) * 8, 0);
        }
        let segment = v4(7, payload, 16)[20..].to_vec();
        packet.extend(segment);
        let bytes = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&bytes.to_be_bytes());
        packet
    }

    #[test]
    fn both_versions_of_ip() {
        let four = tcp(&v4(5, 100, 2)).expect("TCP");
        assert_eq!(
            (four.source.to_string(), four.destination.to_string()),
            ("10.0.0.1:1000".into(), "10.0.0.2:2000".into())
        );
        assert_eq!((four.sequence, four.payload_bytes, four.syn), (5, 100, true));
        for extensions in [vec![], vec![(0, 0), (43, 2), (60, 1)], vec![(44, 0)]] {
            let six = tcp(&v6(&extensions, 33)).unwrap_or_else(|| panic!("{extensions:?}"));
            assert_eq!((six.sequence, six.payload_bytes, six.source.port()), (7, 33, 1000));
        }
        let mut other = v4(1, 0, 0);
        other[9] = 17;
        assert_eq!(tcp(&other), None);
        let mut fragment = v4(1, 9, 0);
        fragment[7] = 1;
        assert_eq!(tcp(&fragment), None);
    }

    #[test]
    fn retransmissions_are_recognised() {
        let of = |sequence, payload| tcp(&v4(sequence, payload, 16)).expect("TCP");
        let lost = of(u32::MAX - 9, 100);
        assert!(of(u32::MAX - 9, 100).covers(&lost));
        assert!(of(u32::MAX - 59, 200).covers(&lost));
        assert!(!of(u32::MAX - 9, 50).covers(&lost));
        assert!(!of(90, 100).covers(&lost));
        let syn = tcp(&v4(3, 0, 2)).expect("TCP");
        assert!(syn.covers(&syn) && !of(3, 0).covers(&syn));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), version in 0..3_u8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = [*first, 0x45, 0x60][usize::from(version)];
            }
            let _ = tcp(&bytes);
        }

        #[test]
        fn no_damage_makes_it_panic(at in 0..90_usize, value: u8, cut in 0..200_usize) {
            for mut packet in [v4(1, 20, 16), v6(&[(0, 1), (44, 0)], 20)] {
                let length = packet.len();
                packet[at % length] = value;
                packet.truncate(cut.min(length));
                if let Some(tcp) = tcp(&packet) {
                    prop_assert!((tcp.payload_bytes as usize) < packet.len());
                }
            }
        }
    }
}
