//! One packet of a capture, as it is stored there.

/// How a packet begins; the numbers are those of the pcap and pcapng formats (LINKTYPE_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: four bytes of address family in the byte order of the capturing host.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// IPv4 or IPv6 without anything before it (the number of some BSDs).
    pub const RAW_BSD: LinkType = LinkType(12);
    /// IPv4 or IPv6 without anything before it.
    pub const RAW: LinkType = LinkType(101);
    /// OpenBSD loopback: four bytes of address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux cooked capture.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// IPv4 without anything before it.
    pub const IPV4: LinkType = LinkType(228);
    /// IPv6 without anything before it.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);
}

/// One packet. `data` is what was captured of it, `wire_len` what there was.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Number in its capture, from 1, as Wireshark shows it.
    pub number: u64,
    /// When the tap saw it, Unix nanoseconds by the capturing host's clock.
    pub time_ns: i64,
    /// The interface that saw it, by its number in the file: packets of one are in the order in which they were seen,
    /// those of several need not be.
    pub interface: u32,
    /// How it begins.
    pub link: LinkType,
    /// Length in bytes before the capture cut it; never below `data.len()`.
    pub wire_len: u32,
    /// The bytes captured.
    pub data: &'a [u8],
}
