//! Hand-made packets, layer by layer.

/// A TCP segment with all fields that a decoder should return.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Four or sixteen bytes each.
    pub source: Vec<u8>,
    pub destination: Vec<u8>,
    pub ports: (u16, u16),
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub id: u16,
    /// Length is a multiple of four bytes.
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Default for Tcp {
    fn default() -> Tcp {
        Tcp {
            source: vec![10, 0, 0, 1],
            destination: vec![10, 0, 0, 2],
            ports: (50_000, 7001),
            seq: 0x1234_5678,
            ack: 0x9abc_def0,
            flags: 0x18,
            window: 502,
            id: 4711,
            options: timestamps(7, 9),
            payload: b"a payload".to_vec(),
        }
    }
}

/// Two no-ops, and the timestamps option.
pub fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat()
}

/// Two no-ops, and the SACK option.
pub fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut option = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
    for (left, right) in blocks {
        option.extend_from_slice(&left.to_be_bytes());
        option.extend_from_slice(&right.to_be_bytes());
    }
    option
}

/// Options of a Linux SYN: MSS, SACK permitted, timestamps, window scale.
pub fn syn_options(mss: u16, scale: u8) -> Vec<u8> {
    let [a, b] = mss.to_be_bytes();
    vec![2, 4, a, b, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, scale]
}

impl Tcp {
    pub fn v6() -> Tcp {
        let address = |last| [&[0x20, 0x01, 0x0d, 0xb8][..], &[0; 11], &[last]].concat();
        Tcp { source: address(1), destination: address(2), id: 0, ..Tcp::default() }
    }

    pub fn is_v6(&self) -> bool {
        self.source.len() == 16
    }

    /// The TCP header and payload.
    pub fn segment(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.ports.0.to_be_bytes());
        bytes.extend_from_slice(&self.ports.1.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&self.ack.to_be_bytes());
        bytes.extend_from_slice(&[(((20 + self.options.len()) / 4) << 4) as u8, self.flags]);
        bytes.extend_from_slice(&self.window.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0]);
        bytes.extend_from_slice(&self.options);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// The IP packet.
    pub fn ip(&self) -> Vec<u8> {
        self.ip_with(6, &self.segment())
    }

    /// An IP packet between the same hosts with other content.
    pub fn ip_with(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        if self.is_v6() {
            return v6(&self.source, &self.destination, protocol, payload.len(), payload);
        }
        v4(&self.source, &self.destination, self.id, 0, protocol, &[], payload)
    }

    /// The IP packet as fragments of at most `size` bytes of payload, a multiple of eight.
    pub fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        let whole = self.segment();
        let pieces = whole.chunks(size).enumerate();
        let fragment = |(at, piece): (usize, &[u8])| {
            let (offset, more) = (at * size, (at + 1) * size < whole.len());
            if self.is_v6() {
                let place = (offset as u16 | u16::from(more)).to_be_bytes();
                let header = [6, 0, place[0], place[1], 0, 0, 0x12, 0x34];
                let payload = [&header[..], piece].concat();
                v6(&self.source, &self.destination, 44, payload.len(), &payload)
            } else {
                let place = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
                v4(&self.source, &self.destination, self.id, place, 6, &[], piece)
            }
        };
        pieces.map(fragment).collect()
    }
}

/// An IPv4 packet; `place` is flags and fragment offset.
pub fn v4(
    source: &[u8],
    destination: &[u8],
    id: u16,
    place: u16,
    protocol: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header_len = 20 + options.len();
    // Linux writes zero above 64 KiB.
    let len = u16::try_from(header_len + payload.len()).unwrap_or(0);
    let mut bytes = vec![0x40 | (header_len / 4) as u8, 0];
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&place.to_be_bytes());
    bytes.extend_from_slice(&[64, protocol, 0, 0]);
    bytes.extend_from_slice(source);
    bytes.extend_from_slice(destination);
    bytes.extend_from_slice(options);
    bytes.extend_from_slice(payload);
    bytes
}

/// An IPv6 packet with `len` as its payload length.
pub fn v6(source: &[u8], destination: &[u8], next: u8, len: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend_from_slice(&u16::try_from(len).unwrap_or(0).to_be_bytes());
    bytes.extend_from_slice(&[next, 64]);
    bytes.extend_from_slice(source);
    bytes.extend_from_slice(destination);
    bytes.extend_from_slice(payload);
    bytes
}

/// The protocol number of an IP packet in a link header.
fn ethertype(ip: &[u8]) -> [u8; 2] {
    if ip[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] }
}

/// An Ethernet frame around an IP packet, with VLAN tags `(kind, id)`, outermost first.
pub fn ethernet(tags: &[(u16, u16)], ip: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (kind, id) in tags {
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&id.to_be_bytes());
    }
    bytes.extend_from_slice(&ethertype(ip));
    bytes.extend_from_slice(ip);
    bytes
}

/// An Ethernet frame with MPLS labels.
pub fn mpls(labels: &[u32], ip: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0x47];
    for (at, label) in labels.iter().enumerate() {
        let last = u32::from(at + 1 == labels.len());
        bytes.extend_from_slice(&(label << 12 | last << 8 | 64).to_be_bytes());
    }
    bytes.extend_from_slice(ip);
    bytes
}

/// Linux cooked, version 1.
pub fn cooked(ip: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &ethertype(ip)[..], ip].concat()
}

/// Linux cooked, version 2.
pub fn cooked2(ip: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    [&ethertype(ip)[..], &header, ip].concat()
}

/// BSD loopback.
pub fn loopback(big_endian: bool, ip: &[u8]) -> Vec<u8> {
    let family = if ip[0] >> 4 == 6 { 30_u32 } else { 2 };
    let family = if big_endian { family.to_be_bytes() } else { family.to_le_bytes() };
    [&family[..], ip].concat()
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 40_000_u16.to_be_bytes().to_vec();
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

/// Outer hosts of a tunnel.
fn outer() -> Tcp {
    Tcp { source: vec![192, 0, 2, 1], destination: vec![192, 0, 2, 2], id: 77, ..Tcp::default() }
}

/// An IPv4 packet that contains VXLAN.
pub fn vxlan(port: u16, vni: u32, frame: &[u8]) -> Vec<u8> {
    let header = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes()].concat();
    outer().ip_with(17, &udp(port, &[&header, frame].concat()))
}

/// An IPv4 packet that contains Geneve, with options of a multiple of four bytes; `kind` is 0x6558 for a frame.
pub fn geneve(vni: u32, options: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![(options.len() / 4) as u8, 0];
    header.extend_from_slice(&kind.to_be_bytes());
    header.extend_from_slice(&(vni << 8).to_be_bytes());
    header.extend_from_slice(options);
    outer().ip_with(17, &udp(6081, &[&header, payload].concat()))
}

/// An IPv4 packet that contains GRE.
pub fn gre(key: Option<u32>, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![if key.is_some() { 0x20 } else { 0 }, 0];
    header.extend_from_slice(&kind.to_be_bytes());
    header.extend(key.into_iter().flat_map(u32::to_be_bytes));
    outer().ip_with(47, &[&header, payload].concat())
}

/// An IPv4 packet that contains an IP packet.
pub fn ip_in_ip(ip: &[u8]) -> Vec<u8> {
    outer().ip_with(if ip[0] >> 4 == 6 { 41 } else { 4 }, ip)
}

/// A packet that is not IP.
pub fn arp() -> Vec<u8> {
    let mut bytes = vec![0xff; 6];
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    bytes
}
