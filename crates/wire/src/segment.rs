//! One TCP segment, and the addresses of its connection.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// One end of a TCP connection. IPv4 addresses are stored as IPv4-mapped IPv6 addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address in network byte order.
    pub address: [u8; 16],
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// From an IPv4 address in network byte order.
    #[inline]
    pub fn v4(address: [u8; 4], port: u16) -> Endpoint {
        let [a, b, c, d] = address;
        Endpoint { address: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d], port }
    }

    /// The address as the standard library's; IPv4 where it is IPv4.
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.address).to_canonical()
    }
}

/// `10.0.0.1:443`, `[2001:db8::1]:443`
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.ip(), self.port).fmt(f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bits of the TCP header's flags byte (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;

    /// Whether all bits of `mask` are set.
    #[inline]
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask == mask
    }
}

/// The TCP options that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size (SYN only).
    pub mss: Option<u16>,
    /// Window scale shift (SYN only).
    pub window_scale: Option<u8>,
    /// SACK permitted (SYN only).
    pub sack_permitted: bool,
    /// SACK blocks `(left, right)`, the first `sack_count` of them.
    pub sack: [(u32, u32); 4],
    /// How many blocks there are.
    pub sack_count: u8,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// Multipath TCP.
    pub multipath: Multipath,
}

/// What the handshake of Multipath TCP (RFC 8684) says of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multipath {
    /// Nothing.
    #[default]
    None,
    /// Connections that join this one name this token.
    Token(u32),
    /// It joins the connection with this token: both carry pieces of the same bytes.
    Joins(u32),
}

/// One TCP segment as a tap saw it; with segmentation offload it may be longer than any packet on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Number of its packet (the last fragment's, when IP was fragmented).
    pub packet: u64,
    /// When the tap saw it, Unix nanoseconds.
    pub time_ns: i64,
    /// Sender.
    pub source: Endpoint,
    /// Receiver.
    pub destination: Endpoint,
    /// VXLAN or Geneve network identifier plus one, zero outside of tunnels: the same addresses in two virtual
    /// networks are two connections.
    pub network: u32,
    /// Sequence number of the first byte (of the SYN, if it is one).
    pub seq: u32,
    /// Acknowledgement number, valid with [`Flags::ACK`].
    pub ack: u32,
    /// Flags.
    pub flags: Flags,
    /// Window as it stands in the header, not scaled.
    pub window: u16,
    /// Identification of the IPv4 header, zero for IPv6: tells a packet seen twice from one sent twice.
    pub ip_id: u16,
    /// Options.
    pub options: Options,
    /// Payload bytes there were on the wire.
    pub payload_len: u32,
    /// The captured beginning of them.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// The SACK blocks: raw sequence numbers.
    #[inline]
    pub fn sacked(&self) -> &[(u32, u32)] {
        self.options.sack.get(..usize::from(self.options.sack_count)).unwrap_or_default()
    }

    /// The first SACK block, if it reports bytes that came twice (RFC 2883, 4).
    pub fn dsack(&self) -> Option<(u32, u32)> {
        let mut blocks = self.sacked().iter();
        let (left, right) = *blocks.next()?;
        let within = |(outer_left, outer_right): &(u32, u32)| {
            left.wrapping_sub(*outer_left) as i32 >= 0 && outer_right.wrapping_sub(right) as i32 >= 0
        };
        let twice = right.wrapping_sub(self.ack) as i32 <= 0 || blocks.next().is_some_and(within);
        twice.then_some((left, right))
    }
}
