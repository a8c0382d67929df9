//! Hand-made capture files in every format.

/// A packet to write.
#[derive(Clone, Debug)]
pub struct Record {
    /// Index into the interfaces; pcap has one.
    pub interface: usize,
    pub time_ns: u64,
    pub wire_len: u32,
    pub data: Vec<u8>,
}

impl Record {
    pub fn new(interface: usize, time_ns: u64, data: Vec<u8>) -> Record {
        Record { interface, time_ns, wire_len: data.len() as u32, data }
    }

    pub fn cut(mut self, snaplen: usize) -> Record {
        self.data.truncate(snaplen);
        self
    }
}

/// Writes numbers in one byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub big: bool,
}

impl Order {
    pub fn half(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn word(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn long(self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

/// Variants of pcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Micros,
    Nanos,
    Modified,
}

pub fn pcap(order: Order, kind: Kind, link: u16, records: &[Record]) -> Vec<u8> {
    let (magic, unit_ns) = match kind {
        Kind::Micros => (0xa1b2_c3d4, 1000),
        Kind::Nanos => (0xa1b2_3c4d, 1),
        Kind::Modified => (0xa1b2_cd34, 1000),
    };
    let mut file = order.word(magic).to_vec();
    file.extend_from_slice(&order.half(2));
    file.extend_from_slice(&order.half(4));
    for word in [0, 0, 262_144, u32::from(link)] {
        file.extend_from_slice(&order.word(word));
    }
    for record in records {
        let seconds = (record.time_ns / 1_000_000_000) as u32;
        let fraction = (record.time_ns % 1_000_000_000 / unit_ns) as u32;
        for word in [seconds, fraction, record.data.len() as u32, record.wire_len] {
            file.extend_from_slice(&order.word(word));
        }
        if kind == Kind::Modified {
            file.extend_from_slice(&[0, 0, 0, 1, 0, 8, 0, 0]);
        }
        file.extend_from_slice(&record.data);
    }
    file
}

/// An interface of a section: link type, if_tsresol, if_tsoffset in seconds, snap length.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub link: u16,
    pub resolution: Option<u8>,
    pub offset_s: i64,
    pub snaplen: u32,
}

impl Interface {
    pub fn new(link: u16, resolution: Option<u8>) -> Interface {
        Interface { link, resolution, offset_s: 0, snaplen: 262_144 }
    }

    /// The time in units of this interface's clock.
    fn units(&self, time_ns: u64) -> u64 {
        let time_ns = u128::from(time_ns) - (self.offset_s.cast_unsigned() as u128) * 1_000_000_000;
        let resolution = self.resolution.unwrap_or(6);
        let units = match (u32::from(resolution & 0x7f), resolution & 0x80 != 0) {
            (bits, true) => (time_ns << bits).div_ceil(1_000_000_000),
            (digits, false) => time_ns * 10_u128.pow(digits) / 1_000_000_000,
        };
        u64::try_from(units).expect("a time that fits")
    }
}

/// A block of any type.
pub fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let len = order.word(12 + body.len().next_multiple_of(4) as u32);
    let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
    [&order.word(kind), &len, body, &padding, &len].concat()
}

/// An option of a block, padded.
pub fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
    [&order.half(code), &order.half(value.len() as u16), value, &padding].concat()
}

pub fn section(order: Order) -> Vec<u8> {
    let mut body = order.word(0x1a2b_3c4d).to_vec();
    body.extend_from_slice(&order.half(1));
    body.extend_from_slice(&order.half(0));
    body.extend_from_slice(&order.long(u64::MAX));
    body.extend_from_slice(&option(order, 4, b"a test"));
    body.extend_from_slice(&[0; 4]);
    block(order, 0x0a0d_0d0a, &body)
}

pub fn interface(order: Order, interface: Interface) -> Vec<u8> {
    let mut body = order.half(interface.link).to_vec();
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(&order.word(interface.snaplen));
    body.extend_from_slice(&option(order, 2, b"eth0"));
    if let Some(resolution) = interface.resolution {
        body.extend_from_slice(&option(order, 9, &[resolution]));
    }
    if interface.offset_s != 0 {
        body.extend_from_slice(&option(order, 14, &order.long(interface.offset_s.cast_unsigned())));
    }
    body.extend_from_slice(&[0; 4]);
    block(order, 1, &body)
}

/// Enhanced packet block, with options of a multiple of four bytes.
pub fn packet(order: Order, interfaces: &[Interface], record: &Record, options: &[u8]) -> Vec<u8> {
    let units = interfaces[record.interface].units(record.time_ns);
    let mut body = order.word(record.interface as u32).to_vec();
    for word in [(units >> 32) as u32, units as u32, record.data.len() as u32, record.wire_len] {
        body.extend_from_slice(&order.word(word));
    }
    body.extend_from_slice(&record.data);
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend_from_slice(options);
    block(order, 6, &body)
}

/// The obsolete packet block.
pub fn old_packet(order: Order, interfaces: &[Interface], record: &Record, drops: u16) -> Vec<u8> {
    let units = interfaces[record.interface].units(record.time_ns);
    let mut body = order.half(record.interface as u16).to_vec();
    body.extend_from_slice(&order.half(drops));
    for word in [(units >> 32) as u32, units as u32, record.data.len() as u32, record.wire_len] {
        body.extend_from_slice(&order.word(word));
    }
    body.extend_from_slice(&record.data);
    block(order, 2, &body)
}

/// Simple packet block.
pub fn simple_packet(order: Order, data: &[u8]) -> Vec<u8> {
    block(order, 3, &[&order.word(data.len() as u32), data].concat())
}

/// Interface statistics with the drops of the interface and the system.
pub fn statistics(order: Order, interface: u32, dropped: u64, dropped_by_system: u64) -> Vec<u8> {
    let mut body = order.word(interface).to_vec();
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&option(order, 5, &order.long(dropped)));
    body.extend_from_slice(&option(order, 7, &order.long(dropped_by_system)));
    body.extend_from_slice(&[0; 4]);
    block(order, 5, &body)
}

/// TLS keys.
pub fn secrets(order: Order, lines: &[u8]) -> Vec<u8> {
    block(order, 10, &[&order.word(0x544c_534b), &order.word(lines.len() as u32), lines].concat())
}

/// One section with its interfaces and packets.
pub fn pcapng(order: Order, interfaces: &[Interface], records: &[Record]) -> Vec<u8> {
    let mut file = section(order);
    interfaces.iter().for_each(|described| file.extend(interface(order, *described)));
    records.iter().for_each(|record| file.extend(packet(order, interfaces, record, &[])));
    file
}
