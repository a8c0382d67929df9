//! Copies of one packet on several interfaces: on a host with bridges and veths, a packet passes several of them, and
//! each copy is captured. A slice keeps one: the copy on the interface that saw most of the connection or, in a tie, on
//! the interface with the lowest number, which is the host's own device rather than a pod's veth. A packet that did not
//! pass there stays.

use rustc_hash::{FxHashMap, FxHasher};
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::segment::{Endpoint, Segment};
use std::hash::{Hash, Hasher};

/// Copies are no further apart than this, nanoseconds; what comes later was sent again.
const APART_NS: i64 = 20_000_000;
/// Interfaces of which one saw at least so many parts of what the other saw have seen as many.
const AS_MANY: u64 = 16;
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

/// What is the same in all copies of a segment, and not in one that is sent again.
fn fingerprint(segment: &Segment<'_>) -> u64 {
    let mut hash = FxHasher::default();
    (segment.source, segment.destination, segment.network).hash(&mut hash);
    (segment.seq, segment.ack, segment.flags.0, segment.window, segment.ip_id, segment.payload_len)
        .hash(&mut hash);
    hash.finish()
}

/// First pass: which interfaces saw a connection, and how much of it.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    counts: FxHashMap<Key, Vec<(u32, u64)>>,
}

impl Passes {
    pub fn see(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        let (key, Some(index)) = (key(segment), interface(packet)) else { return };
        if self.counts.len() >= MOST_CONNECTIONS && !self.counts.contains_key(&key) {
            return;
        }
        let counts = self.counts.entry(key).or_default();
        match counts.iter_mut().find(|(other, _)| *other == index) {
            Some((_, count)) => *count += 1,
            None => counts.push((index, 1)),
        }
    }

    /// The one to keep of each connection that was seen on several.
    pub fn chosen(self) -> Copies {
        let several = self.counts.into_iter().filter(|(_, counts)| counts.len() > 1);
        let choose = |(key, counts): (Key, Vec<(u32, u64)>)| {
            let most = counts.iter().map(|(_, count)| *count).max()?;
            let as_many = counts.iter().filter(|(_, count)| *count + most / AS_MANY >= most);
            Some((key, as_many.map(|(index, _)| *index).min()?))
        };
        Copies { chosen: several.filter_map(choose).collect(), seen: Vec::new(), is_sorted: false }
    }
}

/// Second and third pass: what passed the chosen interfaces, and what is a copy of that.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    chosen: FxHashMap<Key, u32>,
    seen: Vec<(u64, i64)>,
    is_sorted: bool,
}

impl Copies {
    /// Whether there can be any.
    pub fn are_possible(&self) -> bool {
        !self.chosen.is_empty()
    }

    pub fn see(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        let chosen = self.chosen.get(&key(segment));
        if chosen.is_some() && chosen == interface(packet).as_ref() && self.seen.len() < MOST_PACKETS {
            self.seen.push((fingerprint(segment), packet.time_ns));
            self.is_sorted = false;
        }
    }

    /// Whether the packet is a copy of one that is kept.
    pub fn is_one(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) -> bool {
        let Some(chosen) = self.chosen.get(&key(segment)) else { return false };
        if interface(packet).is_none_or(|index| index == *chosen) {
            return false;
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
        let mut decoder = Decoder::default();
        let mut passes = Passes::default();
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
        each(&mut |packet, segment| passes.see(packet, segment));
        let mut copies = passes.chosen();
        each(&mut |packet, segment| copies.see(packet, segment));
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
}
