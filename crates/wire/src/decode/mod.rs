//! From the bytes of a packet to the TCP segment inside: link, IP, tunnels, fragments, TCP.

mod fragments;
mod ip;
mod link;
mod tcp;
mod tunnel;

pub use fragments::FragmentCounts;

use crate::packet::Packet;
use crate::segment::{Endpoint, Segment};
use fragments::Fragments;
use ip::Ip;
use link::Bytes;

/// Packets within packets that are followed.
const MAX_DEPTH: usize = 8;

/// Why a packet yields no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unparsed {
    /// A link type this does not know.
    LinkType,
    /// Neither IPv4 nor IPv6 (ARP, ...).
    NotIp,
    /// IP, and not TCP (UDP without a tunnel, ICMP, ...).
    NotTcp,
    /// A fragment whose datagram is not complete yet, or never was.
    Fragment,
    /// Cut by the snap length before the TCP header ends.
    Cut,
    /// A header that contradicts itself.
    Malformed,
}

/// Decodes packets; keeps the fragments of datagrams that are not complete.
#[derive(Debug, Default)]
pub struct Decoder {
    fragments: Fragments,
    /// The last reassembled datagrams: one, and one found within it.
    datagrams: [Vec<u8>; 2],
}

/// A datagram of UDP, outside of any tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Number of the packet.
    pub packet: u64,
    /// When it was seen, Unix nanoseconds.
    pub time_ns: i64,
    /// Who sent it.
    pub source: Endpoint,
    /// To whom.
    pub destination: Endpoint,
    /// What it carries, as far as it was captured.
    pub payload: &'a [u8],
}

/// The datagram in a packet; `None` for other packets and for fragments.
#[cold]
pub fn datagram<'a>(packet: &Packet<'a>) -> Option<Datagram<'a>> {
    let bytes = Bytes { data: packet.data, wire_len: packet.wire_len };
    let ip = ip::ip(link::ip(packet.link, bytes).ok()?).ok()?;
    if ip.protocol != tunnel::UDP || ip.fragment.is_some() {
        return None;
    }
    let header = ip.payload.head::<8>().ok()?;
    let end =
        |address, at: usize| Endpoint { address, port: u16::from_be_bytes([header[at], header[at + 1]]) };
    Some(Datagram {
        packet: packet.number,
        time_ns: packet.time_ns,
        source: end(ip.source, 0),
        destination: end(ip.destination, 2),
        payload: ip.payload.after(8).ok()?.data,
    })
}

/// What a packet turned out to hold.
enum Inside<'a> {
    Segment(Segment<'a>),
    /// A fragment, and its network.
    Fragment(Ip<'a>, u32),
}

impl Decoder {
    /// The segment in a packet.
    ///
    /// # Errors
    /// Why there is none.
    #[inline]
    pub fn decode<'a>(&'a mut self, packet: &Packet<'a>) -> Result<Segment<'a>, Unparsed> {
        let bytes = Bytes { data: packet.data, wire_len: packet.wire_len };
        let ip = ip::ip(link::ip(packet.link, bytes)?)?;
        if ip.protocol == ip::TCP && ip.fragment.is_none() {
            return tcp::segment(packet, &ip, 0);
        }
        match inside(packet, ip, 0)? {
            Inside::Segment(segment) => Ok(segment),
            Inside::Fragment(ip, network) => {
                fragment(packet, ip, network, &mut self.fragments, &mut self.datagrams)
            }
        }
    }

    /// What became of fragments.
    pub fn fragments(&self) -> FragmentCounts {
        self.fragments.counts
    }
}

/// Follows packets within packets to a segment or a fragment.
fn inside<'a>(packet: &Packet<'_>, mut ip: Ip<'a>, mut network: u32) -> Result<Inside<'a>, Unparsed> {
    for _ in 0..MAX_DEPTH {
        if ip.fragment.is_some() {
            return Ok(Inside::Fragment(ip, network));
        }
        if ip.protocol == ip::TCP {
            return tcp::segment(packet, &ip, network).map(Inside::Segment);
        }
        let (bytes, inner) = tunnel::inner(&ip, network)?;
        (ip, network) = (ip::ip(bytes)?, inner);
    }
    Err(Unparsed::NotTcp)
}

/// Stores a fragment; continues with the datagram once it is complete.
#[cold]
fn fragment<'a>(
    packet: &Packet<'_>,
    ip: Ip<'_>,
    network: u32,
    fragments: &mut Fragments,
    datagrams: &'a mut [Vec<u8>],
) -> Result<Segment<'a>, Unparsed> {
    let Some((datagram, deeper)) = datagrams.split_first_mut() else { return Err(Unparsed::Fragment) };
    let whole = fragments.add(&ip, network, packet.time_ns, datagram).ok_or(Unparsed::Fragment)?;
    match inside(packet, whole, network)? {
        Inside::Segment(segment) => Ok(segment),
        Inside::Fragment(ip, network) => fragment(packet, ip, network, fragments, deeper),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::LinkType;
    use crate::segment::{Endpoint, Flags};

    /// Ethernet, IPv4, TCP with timestamps, five bytes of payload, one of padding.
    const FRAME: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\x00\
        \x45\x00\x00\x39\x12\x34\x40\x00\x40\x06\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02\
        \xc3\x50\x01\xbb\x00\x00\x10\x00\x00\x00\x20\x00\x80\x18\x01\xf6\x00\x00\x00\x00\
        \x01\x01\x08\x0a\x00\x00\x00\x07\x00\x00\x00\x09hello\xff";

    fn packet(data: &[u8], wire_len: usize) -> Packet<'_> {
        Packet {
            number: 3,
            time_ns: 11,
            interface: 0,
            link: LinkType::ETHERNET,
            wire_len: wire_len as u32,
            data,
        }
    }

    #[test]
    fn a_segment_has_what_stands_in_the_headers() {
        let mut decoder = Decoder::default();
        let segment = decoder.decode(&packet(FRAME, FRAME.len())).expect("a segment");
        assert_eq!((segment.packet, segment.time_ns, segment.network), (3, 11, 0));
        assert_eq!(segment.source, Endpoint::v4([10, 0, 0, 1], 50_000));
        assert_eq!(segment.destination, Endpoint::v4([10, 0, 0, 2], 443));
        assert_eq!((segment.seq, segment.ack), (0x1000, 0x2000));
        assert_eq!((segment.flags, segment.window), (Flags(Flags::ACK | Flags::PSH), 502));
        assert_eq!((segment.ip_id, segment.options.timestamps), (0x1234, Some((7, 9))));
        assert_eq!((segment.payload_len, segment.payload), (5, &b"hello"[..]));
    }

    /// In GRE from one switch to another.
    fn in_gre(header: &[u8], inner: &[u8]) -> Vec<u8> {
        let length = (20 + header.len() + inner.len()) as u16;
        let ip =
            [&[0x45, 0][..], &length.to_be_bytes(), &[0, 1, 0, 0, 64, 47, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]];
        [&FRAME[..14], &ip.concat(), header, inner].concat()
    }

    #[test]
    fn what_switches_mirror_and_modems_carry_is_the_same_segment() {
        let ppp = [&FRAME[..12], b"\x88\x64\x11\0\0\x05\0\x3b\0\x21", &FRAME[14..]].concat();
        let third = b"\x10\0\x22\xeb\0\0\0\x01\x20\0\0\x01\0\0\0\0\0\0\0";
        let plain = [&third[..], &[0]].concat();
        let of_platform = [&third[..], &[1], &[0; 8]].concat();
        let wrapped = [
            ("ERSPAN I", in_gre(b"\0\0\x88\xbe", FRAME)),
            ("ERSPAN II", in_gre(b"\x10\0\x88\xbe\0\0\0\x01\x10\x01\0\x01\0\0\0\0", FRAME)),
            ("ERSPAN III", in_gre(&plain, FRAME)),
            ("ERSPAN III of a platform", in_gre(&of_platform, FRAME)),
            ("PPPoE", ppp),
        ];
        for (name, data) in wrapped {
            let mut decoder = Decoder::default();
            let segment =
                decoder.decode(&packet(&data, data.len())).unwrap_or_else(|why| panic!("{name}: {why:?}"));
            assert_eq!(segment.source, Endpoint::v4([10, 0, 0, 1], 50_000), "{name}");
            assert_eq!((segment.seq, segment.payload, segment.network), (0x1000, &b"hello"[..], 0), "{name}");
            // However it is cut, it is not taken for something else.
            for len in 0..data.len() - 6 {
                let cut = decoder.decode(&packet(&data[..len], data.len()));
                assert!(
                    cut.is_ok_and(|segment| segment.seq == 0x1000) || cut.is_err(),
                    "{name}, {len} bytes"
                );
            }
        }
    }

    #[test]
    fn a_cut_packet_is_a_segment_as_long_as_its_headers_are_there() {
        let mut decoder = Decoder::default();
        for len in 0..FRAME.len() - 1 {
            let decoded = decoder.decode(&packet(&FRAME[..len], FRAME.len()));
            if len < 66 {
                assert_eq!(decoded.err(), Some(Unparsed::Cut), "{len} bytes");
            } else {
                let segment = decoded.expect("a segment");
                assert_eq!((segment.payload_len, segment.payload), (5, &b"hello"[..len - 66]));
            }
        }
    }
}
