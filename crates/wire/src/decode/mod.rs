//! From the bytes of a packet to the TCP segment inside: link, IP, tunnels, fragments, TCP.

use crate::packet::Packet;
use crate::segment::Segment;

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
pub struct Decoder {}

impl Decoder {
    /// The segment in a packet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn decode<'a>(&'a mut self, packet: &Packet<'a>) -> Result<Segment<'a>, Unparsed> {
        let _ = packet;
        Err(Unparsed::LinkType)
    }
}
