//! Copies of one packet on several interfaces: on a host with bridges and veths, a packet passes several of them, and
//! each copy is captured. A slice keeps one: the copy on the interface that saw most of the connection or, in a tie, on
//! the interface with the lowest number, which is the host's own device rather than a pod's veth. A packet that did not
//! pass there stays.
//!
//! Where both ends of a connection are at this host, the copies tell what happened between them. A slice near one end
//! keeps what passed the interface next to it, and nothing else: the client's packets come in through the interface
//! next to the client, and go out through the one next to the server. Bridges in between see both; which copy is the
//! first and which the last is the order in which they were captured.

use rustc_hash::{FxHashMap, FxHasher};
use spangap_model::Side;
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::segment::{Endpoint, Segment};
use spangap_wire::tcp::roles::Roles;
use std::hash::{Hash, Hasher};

/// Copies are no further apart than this, nanoseconds; what comes later was sent again.
const APART_NS: i64 = 20_000_000;
/// Interfaces of which one saw at least so many parts of what the other saw have seen as many.
const AS_MANY: u64 = 16;
/// PACKET_OUTGOING of packet(7).
const OUTGOING: u8 = 4;
/// Maximum number of connections, and of their packets, that are compared; all others are kept.
const MOST_CONNECTIONS: usize = 1 << 16;
const MOST_PACKETS: usize = 1 << 18;

type Key = (Endpoint, Endpoint, u32);

fn key(segment: &Segment<'_>) -> Key {
    let (a, b) = (segment.source, segment.destination);
    (a.min(b), a.max(b), segment.network)
}

/// On which interface a cooked packet was seen.
fn interface(packet: &Packet<'_>) -> Option<u32> {
    let index = packet.data.get(4..8).filter(|_| packet.link == LinkType::LINUX_SLL2)?;
    Some(u32::from_be_bytes(index.try_into().ok()?))
}

/// Whether a cooked packet left through its interface.
fn is_outgoing(packet: &Packet<'_>) -> bool {
    packet.data.get(10) == Some(&OUTGOING)
}

/// What is the same in all copies of a segment, and not in one that is sent again.
fn fingerprint(segment: &Segment<'_>) -> u64 {
    let mut hash = FxHasher::default();
    (segment.source, segment.destination, segment.network).hash(&mut hash);
    (segment.seq, segment.ack, segment.flags.0, segment.window, segment.ip_id, segment.payload_len)
        .hash(&mut hash);
    hash.finish()
}

/// What one interface saw of a connection.
#[derive(Debug, Default)]
struct Passed {
    index: u32,
    packets: u64,
    /// The client's packets that came in through it, less those that went out.
    came_in: i64,
    /// The client's packets of which the next copy was on another interface, less those of which the last one was.
    ahead: i64,
}

#[derive(Debug, Default)]
struct Connection {
    /// The client's end, as far as it is known or guessed.
    client: Option<Endpoint>,
    interfaces: Vec<Passed>,
    /// The client's latest packet, and where it was seen last.
    latest: Option<(u64, usize)>,
}

impl Connection {
    fn interface(&mut self, index: u32) -> usize {
        self.interfaces.iter().position(|one| one.index == index).unwrap_or_else(|| {
            self.interfaces.push(Passed { index, ..Passed::default() });
            self.interfaces.len() - 1
        })
    }

    /// Follows the client's packets from interface to interface.
    fn follow(&mut self, packet: &Packet<'_>, segment: &Segment<'_>, place: usize) {
        self.interfaces[place].came_in += if is_outgoing(packet) { -1 } else { 1 };
        let print = fingerprint(segment);
        if let Some((_, before)) = self.latest.filter(|(latest, before)| *latest == print && *before != place)
        {
            self.interfaces[before].ahead += 1;
            self.interfaces[place].ahead -= 1;
        }
        self.latest = Some((print, place));
    }

    /// The interface next to one end, if its packets show one.
    fn next_to(&self, side: Side) -> Option<u32> {
        let found = match side {
            Side::Client => self
                .interfaces
                .iter()
                .filter(|one| one.came_in > 0)
                .max_by_key(|one| (one.ahead, one.packets)),
            Side::Server => self
                .interfaces
                .iter()
                .filter(|one| one.came_in < 0)
                .max_by_key(|one| (-one.ahead, one.packets)),
        };
        found.map(|one| one.index)
    }

    /// The interface to keep if it was seen on several.
    fn fullest(&self) -> Option<u32> {
        let several = Some(&self.interfaces).filter(|interfaces| interfaces.len() > 1)?;
        let most = several.iter().map(|one| one.packets).max()?;
        let as_many = several.iter().filter(|one| one.packets + most / AS_MANY >= most);
        as_many.map(|one| one.index).min()
    }
}

/// First pass: which interfaces saw a connection, and how much of it.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    /// The end that is asked for; `None` for each packet once.
    near: Option<Side>,
    roles: Roles,
    connections: FxHashMap<Key, Connection>,
}

impl Passes {
    pub fn new(near: Option<Side>) -> Passes {
        Passes { near, ..Passes::default() }
    }

    /// `server` says whether an end is known to be a server's.
    pub fn see(&mut self, packet: &Packet<'_>, segment: &Segment<'_>, server: impl Fn(&Endpoint) -> bool) {
        let (key, Some(index)) = (key(segment), interface(packet)) else { return };
        if self.connections.len() >= MOST_CONNECTIONS && !self.connections.contains_key(&key) {
            return;
        }
        let connection = self.connections.entry(key).or_default();
        let place = connection.interface(index);
        connection.interfaces[place].packets += 1;
        if self.near.is_none() {
            return;
        }
        let (source, destination) = (segment.source, segment.destination);
        let (side, is_certain) = match [server(&source), server(&destination)] {
            [true, false] => (Side::Server, true),
            [false, true] => (Side::Client, true),
            _ => self.roles.side(segment),
        };
        let client = if side == Side::Client { source } else { destination };
        if is_certain || connection.client.is_none() {
            connection.client = Some(client);
        }
        if connection.client == Some(source) {
            connection.follow(packet, segment, place);
        }
    }

    /// The interface to keep of each connection.
    pub fn chosen(self) -> Copies {
        let near = self.near;
        let choose = |(key, connection): (Key, Connection)| {
            let chosen = match near {
                Some(side) => connection.next_to(side),
                None => connection.fullest(),
            };
            Some((key, chosen?))
        };
        let connections = self.connections.len();
        let chosen: FxHashMap<Key, u32> = self.connections.into_iter().filter_map(choose).collect();
        let not_near = if near.is_some() { (connections - chosen.len()) as u64 } else { 0 };
        Copies { chosen, is_near: near.is_some(), not_near, seen: Vec::new(), is_sorted: false }
    }
}

/// Second and third pass: what passed the chosen interfaces, and what is a copy of that.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    chosen: FxHashMap<Key, u32>,
    /// Whether only what passed the chosen interfaces is kept.
    is_near: bool,
    /// Number of connections without such an interface.
    pub not_near: u64,
    seen: Vec<(u64, i64)>,
    is_sorted: bool,
}

impl Copies {
    /// Whether packets are compared with each other.
    pub fn are_compared(&self) -> bool {
        !self.is_near && !self.chosen.is_empty()
    }

    /// Whether any packet may be left out.
    pub fn are_possible(&self) -> bool {
        self.is_near || self.are_compared()
    }

    pub fn see(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        let chosen = self.chosen.get(&key(segment));
        if chosen.is_some() && chosen == interface(packet).as_ref() && self.seen.len() < MOST_PACKETS {
            self.seen.push((fingerprint(segment), packet.time_ns));
            self.is_sorted = false;
        }
    }

    /// Whether the packet is a copy of one that is kept, or did not pass where it was asked for.
    pub fn is_one(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) -> bool {
        let Some(chosen) = self.chosen.get(&key(segment)) else { return self.is_near };
        if interface(packet).is_none_or(|index| index == *chosen) {
            return false;
        }
        if self.is_near {
            return true;
        }
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.seen.sort_unstable();
        }
        let print = fingerprint(segment);
        let near = (print, packet.time_ns.saturating_sub(APART_NS));
        let place = self.seen.partition_point(|one| *one < near);
        let next = self.seen.get(place);
        next.is_some_and(|(other, time_ns)| {
            *other == print && *time_ns <= packet.time_ns.saturating_add(APART_NS)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_wire::decode::Decoder;

    /// An ACK of 10.0.0.1 as it is captured on an interface: its number and time, milliseconds, IP identification.
    fn cooked(index: u32, at_ms: i64, id: u16, port: u16) -> (i64, Vec<u8>) {
        let mut data = vec![0x08, 0, 0, 0];
        data.extend_from_slice(&index.to_be_bytes());
        data.extend_from_slice(&[0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        data.extend_from_slice(&[0x45, 0, 0, 40]);
        data.extend_from_slice(&id.to_be_bytes());
        data.extend_from_slice(&[0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        data.extend_from_slice(&port.to_be_bytes());
        data.extend_from_slice(&[0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        (at_ms * 1_000_000, data)
    }

    /// Interface and IP identification of what is kept.
    fn kept(packets: &[(i64, Vec<u8>)]) -> Vec<(u32, u16)> {
        kept_near(None, packets)
    }

    fn kept_near(near: Option<Side>, packets: &[(i64, Vec<u8>)]) -> Vec<(u32, u16)> {
        let mut decoder = Decoder::default();
        let mut passes = Passes::new(near);
        let packet = |(time_ns, data): &(i64, Vec<u8>)| (*time_ns, data.clone());
        let all: Vec<(i64, Vec<u8>)> = packets.iter().map(packet).collect();
        let of = |(time_ns, data): &'_ (i64, Vec<u8>)| (*time_ns, data.len() as u32);
        let mut each = |look: &mut dyn FnMut(&Packet<'_>, &Segment<'_>)| {
            for one in &all {
                let (time_ns, wire_len) = of(one);
                let packet = Packet {
                    number: 1,
                    time_ns,
                    interface: 0,
                    link: LinkType::LINUX_SLL2,
                    wire_len,
                    data: &one.1,
                };
                let segment = decoder.decode(&packet).expect("a segment");
                look(&packet, &segment);
            }
        };
        each(&mut |packet, segment| passes.see(packet, segment, |_| false));
        let mut copies = passes.chosen();
        if copies.are_compared() {
            each(&mut |packet, segment| copies.see(packet, segment));
        }
        let mut kept = Vec::new();
        each(&mut |packet, segment| {
            if !copies.is_one(packet, segment) {
                kept.push((interface(packet).expect("cooked"), segment.ip_id));
            }
        });
        kept
    }

    #[test]
    fn of_copies_the_one_on_the_hosts_own_device_stays() {
        let packets = [cooked(9, 0, 1, 5), cooked(2, 0, 1, 5), cooked(9, 5, 2, 5), cooked(2, 5, 2, 5)];
        assert_eq!(kept(&packets), [(2, 1), (2, 2)]);
    }

    #[test]
    fn what_passed_one_interface_alone_stays() {
        // Lost between the cable of the pod and the device, and sent again.
        let mut packets = vec![cooked(9, 0, 1, 5), cooked(9, 300, 2, 5), cooked(2, 300, 2, 5)];
        packets.extend((3..30).flat_map(|id| [cooked(9, 400, id, 5), cooked(2, 400, id, 5)]));
        let kept = kept(&packets);
        assert_eq!(kept[..2], [(9, 1), (2, 2)]);
        assert!(kept[1..].iter().all(|(index, _)| *index == 2), "{kept:?}");
    }

    #[test]
    fn there_and_back_over_two_devices_are_no_copies() {
        let packets = [cooked(2, 0, 1, 5), cooked(3, 0, 2, 5), cooked(2, 1, 3, 5), cooked(3, 1, 4, 5)];
        assert_eq!(kept(&packets).len(), 4);
    }

    #[test]
    fn what_is_sent_again_is_no_copy_even_without_an_identification() {
        let packets = [cooked(2, 0, 0, 5), cooked(9, 0, 0, 5), cooked(2, 250, 0, 5), cooked(9, 250, 0, 5)];
        assert_eq!(kept(&packets), [(2, 0), (2, 0)]);
    }

    /// The same packet as it leaves through an interface.
    fn out(mut packet: (i64, Vec<u8>)) -> (i64, Vec<u8>) {
        packet.1[10] = OUTGOING;
        packet
    }

    /// An answer to [`cooked`].
    fn back(mut packet: (i64, Vec<u8>)) -> (i64, Vec<u8>) {
        let ends = 20 + 12;
        let (addresses, ports) = (packet.1[ends..ends + 8].to_vec(), packet.1[ends + 8..ends + 12].to_vec());
        packet.1[ends..ends + 8].copy_from_slice(&[&addresses[4..], &addresses[..4]].concat());
        packet.1[ends + 8..ends + 12].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
        packet
    }

    #[test]
    fn near_an_end_of_two_pods_is_what_passed_its_veth() {
        // From port 50,000 to port 80: the veth of the client is 9, that of the server 5; 2 is the bridge, on which a
        // packet comes in and goes out.
        let there = |at_ms, id| {
            [cooked(9, at_ms, id, 50_000), cooked(2, at_ms, id, 50_000), out(cooked(5, at_ms, id, 50_000))]
        };
        let again = |at_ms, id| {
            [cooked(5, at_ms, id, 50_000), cooked(2, at_ms, id, 50_000), out(cooked(9, at_ms, id, 50_000))]
                .map(back)
        };
        let mut packets: Vec<_> =
            (0..20).flat_map(|n| [there(n, 2 * n as u16), again(n, 2 * n as u16 + 1)].concat()).collect();
        // One is dropped by the bridge, and sent again.
        packets.extend([cooked(9, 40, 99, 50_000), cooked(2, 40, 99, 50_000)]);
        packets.extend(there(300, 100));
        let of = |side| kept_near(Some(side), &packets);
        let (client, server) = (of(Side::Client), of(Side::Server));
        assert!(client.iter().all(|(index, _)| *index == 9), "{client:?}");
        assert!(server.iter().all(|(index, _)| *index == 5), "{server:?}");
        assert_eq!((client.len(), server.len()), (42, 41), "the dropped one has not come to the server");
    }

    #[test]
    fn a_translated_address_has_one_interface_and_one_end() {
        // The client calls an address that is translated between the veths: two connections, as the packets tell it.
        let mut packets = Vec::new();
        for n in 0..20 {
            packets.extend([cooked(9, n, n as u16, 50_000), out(cooked(5, n, n as u16, 50_001))]);
        }
        let of = |side| kept_near(Some(side), &packets).first().copied();
        assert_eq!(of(Side::Client), Some((9, 0)));
        assert_eq!(of(Side::Server), Some((5, 0)));
    }

    #[test]
    fn a_connection_over_one_interface_is_near_one_end_alone() {
        let packets: Vec<_> = (0..20).map(|n| out(cooked(1, n, n as u16, 50_000))).collect();
        assert_eq!(kept_near(Some(Side::Client), &packets), []);
        assert_eq!(kept_near(Some(Side::Server), &packets).len(), 20);
    }
}
