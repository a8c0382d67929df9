//! SYNs of live connections, kept because the ring of packets does not reach back that far. Without them, window scales
//! and segment sizes are unknown.

use rustc_hash::FxHashMap;
use spangap_sockets::TcpSocket;
use spangap_wire::decode::Decoder;
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::segment::{Endpoint, Flags, Segment};
use spangap_wire::source::Opening;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Flags of the packets examined.
pub(crate) const WATCHED: u8 = Flags::SYN | Flags::FIN | Flags::RST;
/// The longest possible header: cooked, IPv6, TCP with all its options.
const LONGEST: usize = 20 + 40 + 60;
/// Maximum memory per connection, including its entries in the tables, bytes.
const EACH_BYTES: u64 = 2 * (LONGEST as u64 + 48) + 160;

/// Both ends, the smaller one first, and the virtual network.
type Key = (Endpoint, Endpoint, u32);

fn key(segment: &Segment<'_>) -> Key {
    let (a, b) = (segment.source, segment.destination);
    (a.min(b), a.max(b), segment.network)
}

#[derive(Debug, Default)]
struct Connection {
    /// The SYN and its answer, with their senders.
    syns: [Option<(Endpoint, Opening)>; 2],
    /// Senders of FINs.
    fins: [Option<Endpoint>; 2],
    /// When it ended, Unix nanoseconds.
    over_ns: Option<i64>,
    /// Distinguishes it from others between the same ports.
    number: u64,
}

/// SYNs by connection.
#[derive(Debug)]
pub(crate) struct Openings {
    connections: FxHashMap<Key, Connection>,
    /// Oldest first; entries that no longer have this number in the table are skipped.
    order: VecDeque<(Key, u64)>,
    /// Closed connections, in the order in which they closed.
    over: VecDeque<(Key, u64, i64)>,
    next: u64,
    most: usize,
    /// Connections whose SYNs were dropped for lack of room while they were open.
    pub given_up: u64,
}

impl Openings {
    /// Uses at most this many bytes.
    pub fn new(most_bytes: u64) -> Openings {
        Openings {
            connections: FxHashMap::default(),
            order: VecDeque::new(),
            over: VecDeque::new(),
            next: 0,
            most: (most_bytes / EACH_BYTES).max(16) as usize,
            given_up: 0,
        }
    }

    /// Processes a packet with one of the flags [`WATCHED`].
    pub fn see(&mut self, packet: &Packet<'_>) {
        // Nobody sends these in fragments, so the state of other fragments is not needed here.
        let mut decoder = Decoder::default();
        let Ok(segment) = decoder.decode(packet) else { return };
        let key = key(&segment);
        if segment.flags.has(Flags::SYN) {
            return self.opens(key, &segment, packet);
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if segment.flags.has(Flags::FIN) {
            match &mut connection.fins {
                [Some(one), other] if *one != segment.source => *other = Some(segment.source),
                [one, _] => *one = Some(segment.source),
            }
        }
        let is_over = segment.flags.has(Flags::RST) || connection.fins[1].is_some();
        if is_over && connection.over_ns.is_none() {
            connection.over_ns = Some(segment.time_ns);
            self.over.push_back((key, connection.number, segment.time_ns));
        }
    }

    fn opens(&mut self, key: Key, segment: &Segment<'_>, packet: &Packet<'_>) {
        // It may carry a payload (RFC 7413), which must not be kept.
        let headers = packet.data.len() - segment.payload.len().min(packet.data.len());
        let opening = Opening {
            time_ns: packet.time_ns,
            link: packet.link,
            wire_len: packet.wire_len,
            told_by_kernel: false,
            data: packet.data[..headers.min(LONGEST)].into(),
        };
        let answers = segment.flags.has(Flags::ACK);
        let known = self.connections.get_mut(&key).filter(|known| {
            // Retransmitted, or the answer to the known SYN; otherwise the ports are being reused.
            let mut others = known.syns.iter().take(1).flatten();
            known.over_ns.is_none() && others.all(|(end, _)| answers || *end == segment.source)
        });
        let connection = match known {
            Some(known) if answers || known.syns[1].is_none() => known,
            _ => {
                self.next += 1;
                self.order.push_back((key, self.next));
                let fresh = Connection { number: self.next, ..Connection::default() };
                self.connections.insert(key, fresh);
                self.make_room();
                let Some(fresh) = self.connections.get_mut(&key) else { return };
                fresh
            }
        };
        connection.syns[usize::from(answers)] = Some((segment.source, opening));
    }

    fn make_room(&mut self) {
        while self.connections.len() > self.most {
            let Some((key, number)) = self.order.pop_front() else { return };
            if let Some(oldest) = self.connections.get(&key).filter(|oldest| oldest.number == number) {
                self.given_up += u64::from(oldest.over_ns.is_none());
                self.connections.remove(&key);
            }
        }
        // Entries of past connections are not kept for ever.
        if self.order.len() > 2 * self.most {
            let Openings { order, connections, .. } = self;
            order.retain(|(key, number)| connections.get(key).is_some_and(|one| one.number == *number));
        }
    }

    /// Forgets connections that ended before the ring's oldest packet.
    pub fn forget_before(&mut self, oldest_ns: i64) {
        while let Some((key, number, _)) = self.over.front().filter(|(.., over_ns)| *over_ns < oldest_ns) {
            if self.connections.get(key).is_some_and(|one| one.number == *number) {
                self.connections.remove(key);
            }
            self.over.pop_front();
        }
    }

    fn is_opened_since(&self, key: &Key, from_ns: i64) -> bool {
        let syns = self.connections.get(key).map_or(&[None, None], |one| &one.syns);
        syns.iter().flatten().any(|(_, opening)| opening.time_ns >= from_ns)
    }

    /// How a connection was opened whose packets from `from_ns` on do not show it.
    fn of(&self, key: &Key, from_ns: i64) -> impl Iterator<Item = &Opening> {
        let connection = self.connections.get(key);
        let connection = connection.filter(|one| one.over_ns.is_none_or(|over_ns| over_ns >= from_ns));
        let openings = connection.into_iter().flat_map(|one| one.syns.iter().flatten());
        openings.map(|(_, opening)| opening).filter(move |opening| opening.time_ns < from_ns)
    }
}

/// How the connections of a slice were opened, as far as is known.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// For the file, before its packets.
    pub openings: Vec<Opening>,
    /// Connections opened before it: all of them; those whose SYNs were kept; those known from a socket; and
    /// unknown ones.
    pub before: u64,
    pub kept: u64,
    pub told: u64,
    pub unknown: u64,
}

/// Connections of a slice, collected while its packets pass.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Whether its first packet in the slice opens it.
    seen: FxHashMap<Key, bool>,
}

impl Connections {
    /// Maximum number of connections distinguished in a slice.
    const MOST: usize = 1 << 16;

    pub fn see(&mut self, segment: &Segment<'_>) {
        let key = key(segment);
        if self.seen.len() < Connections::MOST || self.seen.contains_key(&key) {
            self.seen.entry(key).or_insert(segment.flags.has(Flags::SYN));
        }
    }

    /// The openings that the slice does not contain, in at most this many bytes.
    pub fn opened(
        &self,
        openings: &Openings,
        sockets: &[TcpSocket],
        from_ns: i64,
        most_bytes: u64,
    ) -> Opened {
        let mut opened = Opened::default();
        let mut bytes = 0;
        let of_sockets: FxHashMap<Key, &TcpSocket> =
            sockets.iter().filter_map(|socket| Some((socket_key(socket)?, socket))).collect();
        for (key, _) in self.seen.iter().filter(|(_, opens)| !**opens) {
            opened.before += 1;
            let kept: Vec<Opening> = openings.of(key, from_ns).cloned().collect();
            // Another connection uses their ports now, and the socket belongs to it.
            let is_again = openings.is_opened_since(key, from_ns);
            let told = || of_sockets.get(key).map_or_else(Vec::new, |socket| told(socket, from_ns));
            // One of the two is half of it.
            let (syns, count) = match kept.len() {
                2 => (kept, &mut opened.kept),
                _ if is_again => (Vec::new(), &mut opened.told),
                _ => (told(), &mut opened.told),
            };
            bytes += syns.iter().map(|syn| syn.data.len() as u64 + 36).sum::<u64>();
            if syns.is_empty() || bytes > most_bytes {
                opened.unknown += 1;
            } else {
                *count += 1;
                opened.openings.extend(syns);
            }
        }
        // By time, as they passed.
        opened.openings.sort_by_key(|opening| opening.time_ns);
        opened
    }
}

fn endpoint(address: SocketAddr) -> Endpoint {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    Endpoint { address: ip.octets(), port: address.port() }
}

fn socket_key(socket: &TcpSocket) -> Option<Key> {
    let (a, b) = (endpoint(socket.local), endpoint(socket.peer?));
    Some((a.min(b), a.max(b), 0))
}

/// The kernel's facts about a socket, as the two SYNs that would lead to it: they do not show which end is
/// the client, so neither answers the other.
fn told(socket: &TcpSocket, at_ns: i64) -> Vec<Opening> {
    let info = &socket.info;
    let (Some(peer), Some(send_scale), Some(receive_scale), Some(send_mss), Some(own_mss)) = (
        socket.peer,
        info.send_window_scale,
        info.receive_window_scale,
        info.send_mss_bytes,
        info.advertised_mss_bytes,
    ) else {
        return Vec::new();
    };
    // The announced size includes the options that each segment carries.
    let options = if info.timestamps == Some(true) { 12 } else { 0 };
    let syn = |from: SocketAddr, to: SocketAddr, mss: u64, scale: u64| Opening {
        time_ns: at_ns,
        link: LinkType::RAW,
        wire_len: 0,
        told_by_kernel: true,
        data: syn(&endpoint(from), &endpoint(to), mss.min(65_535) as u16, scale.min(14) as u8),
    };
    vec![
        syn(socket.local, peer, own_mss, receive_scale),
        syn(peer, socket.local, send_mss + options, send_scale),
    ]
}

/// A SYN with this content and nothing else.
fn syn(from: &Endpoint, to: &Endpoint, mss: u16, scale: u8) -> Box<[u8]> {
    let mut tcp = Vec::with_capacity(28);
    tcp.extend_from_slice(&from.port.to_be_bytes());
    tcp.extend_from_slice(&to.port.to_be_bytes());
    tcp.extend_from_slice(&[0; 8]);
    // Seven words; SYN; no window, no checksum, no urgent pointer.
    tcp.extend_from_slice(&[7 << 4, Flags::SYN, 0, 0, 0, 0, 0, 0]);
    tcp.extend_from_slice(&[2, 4]);
    tcp.extend_from_slice(&mss.to_be_bytes());
    tcp.extend_from_slice(&[1, 3, 3, scale]);
    let mut packet = Vec::with_capacity(68);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend_from_slice(&[0x45, 0, 0, 20 + 28, 0, 0, 0, 0, 64, 6, 0, 0]);
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
        }
        _ => {
            packet.extend_from_slice(&[0x60, 0, 0, 0, 0, 28, 6, 64]);
            packet.extend_from_slice(&from.address);
            packet.extend_from_slice(&to.address);
        }
    }
    packet.extend_from_slice(&tcp);
    packet.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u8, port: u16) -> Endpoint {
        Endpoint::v4([10, 0, 0, n], port)
    }

    /// A packet with these flags, as a raw one.
    fn bytes(from: Endpoint, to: Endpoint, flags: u8) -> Vec<u8> {
        let mut data = Vec::from(syn(&from, &to, 1460, 7));
        data[20 + 13] = flags;
        data
    }

    fn see(openings: &mut Openings, data: &[u8], time_ns: i64) {
        openings.see(&Packet {
            number: 0,
            time_ns,
            interface: 0,
            link: LinkType::RAW,
            wire_len: data.len() as u32,
            data,
        });
    }

    fn key_of(from: Endpoint, to: Endpoint) -> Key {
        (from.min(to), from.max(to), 0)
    }

    fn open(openings: &mut Openings, port: u16, at_ns: i64) {
        see(openings, &bytes(at(1, port), at(2, 80), Flags::SYN), at_ns);
        see(openings, &bytes(at(2, 80), at(1, port), Flags::SYN | Flags::ACK), at_ns + 1);
    }

    #[test]
    fn both_syns_are_kept_until_the_ring_has_forgotten_the_end() {
        let mut openings = Openings::new(1 << 20);
        open(&mut openings, 5000, 10);
        let key = key_of(at(1, 5000), at(2, 80));
        assert_eq!(openings.of(&key, 100).count(), 2);
        assert_eq!(openings.of(&key, 10).count(), 0, "what is in the slice is not put before it");
        see(&mut openings, &bytes(at(1, 5000), at(2, 80), Flags::FIN | Flags::ACK), 200);
        see(&mut openings, &bytes(at(1, 5000), at(2, 80), Flags::FIN | Flags::ACK), 210);
        openings.forget_before(1000);
        assert_eq!(openings.of(&key, 300).count(), 2, "one side has more to say");
        see(&mut openings, &bytes(at(2, 80), at(1, 5000), Flags::FIN | Flags::ACK), 250);
        assert_eq!(openings.of(&key, 220).count(), 2);
        assert_eq!(openings.of(&key, 300).count(), 0, "it was over before the slice");
        openings.forget_before(240);
        assert_eq!(openings.connections.len(), 1);
        openings.forget_before(300);
        assert_eq!(openings.connections.len(), 0);
    }

    #[test]
    fn ports_that_are_used_again_have_their_latest_syns() {
        let mut openings = Openings::new(1 << 20);
        open(&mut openings, 5000, 10);
        open(&mut openings, 5000, 1000);
        let key = key_of(at(1, 5000), at(2, 80));
        let times: Vec<i64> = openings.of(&key, 5000).map(|opening| opening.time_ns).collect();
        assert_eq!(times, [1000, 1001]);
        assert_eq!(openings.connections.len(), 1);
    }

    #[test]
    fn a_flood_of_syns_takes_no_more_than_its_room() {
        let mut openings = Openings::new(100 * EACH_BYTES);
        for n in 0..50_000_u32 {
            see(
                &mut openings,
                &bytes(at(1, (n % 60_000) as u16), at((n / 60_000) as u8 + 2, 80), Flags::SYN),
                n.into(),
            );
        }
        assert_eq!(openings.connections.len(), 100);
        assert!(openings.order.len() <= 200, "{}", openings.order.len());
        assert_eq!(openings.given_up, 49_900);
    }

    #[test]
    fn what_a_syn_brings_along_is_not_kept() {
        let mut openings = Openings::new(1 << 20);
        let mut data = bytes(at(1, 5000), at(2, 80), Flags::SYN);
        data.extend_from_slice(b"secret");
        data[3] += 6;
        see(&mut openings, &data, 10);
        let kept: Vec<_> = openings.of(&key_of(at(1, 5000), at(2, 80)), 100).collect();
        assert_eq!(kept.len(), 1);
        assert!(kept[0].data.len() == 48 && kept[0].wire_len == 54, "{kept:?}");
    }
}
