//! Randomly made packets decode to what was put into them; fragments in any order, and hostile ones.

use crate::damage::Dice;
use crate::frames::{self, Tcp};
use proptest::prelude::*;
use spangap_wire::decode::{Decoder, Unparsed};
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::segment::Segment;
use std::net::IpAddr;

fn packet(link: u16, data: &[u8]) -> Packet<'_> {
    Packet {
        number: 1,
        time_ns: 1_000,
        interface: 0,
        link: LinkType(link),
        wire_len: data.len() as u32,
        data,
    }
}

fn address(bytes: &[u8]) -> IpAddr {
    match bytes {
        [a, b, c, d] => IpAddr::from([*a, *b, *c, *d]),
        bytes => IpAddr::from(<[u8; 16]>::try_from(bytes).expect("sixteen bytes")),
    }
}

fn holds(segment: &Segment<'_>, tcp: &Tcp, network: u32) {
    assert_eq!(segment.source.ip(), address(&tcp.source));
    assert_eq!(segment.destination.ip(), address(&tcp.destination));
    assert_eq!((segment.source.port, segment.destination.port), tcp.ports);
    assert_eq!((segment.seq, segment.ack, segment.window), (tcp.seq, tcp.ack, tcp.window));
    assert_eq!((segment.flags.0, segment.network), (tcp.flags, network));
    assert_eq!(segment.ip_id, if tcp.is_v6() { 0 } else { tcp.id });
    assert_eq!((segment.payload, segment.payload_len as usize), (&tcp.payload[..], tcp.payload.len()));
}

fn any_tcp() -> impl Strategy<Value = Tcp> {
    let v4 = prop::collection::vec(any::<u8>(), 4..=4);
    // No address that the standard library would format as IPv4.
    let v6 = prop::collection::vec(1..=255_u8, 16..=16);
    let addresses = prop_oneof![(v4.clone(), v4), (v6.clone(), v6)];
    let options = prop::collection::vec(any::<u8>(), 0..=40)
        .prop_map(|mut bytes| {
            bytes.truncate(bytes.len() / 4 * 4);
            bytes
        })
        .boxed();
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    let header = any::<(u16, u16, u32, u32, u8, u16, u16)>();
    (addresses, header, options, payload).prop_map(|((source, destination), header, options, payload)| {
        let (from, to, seq, ack, flags, window, id) = header;
        Tcp { source, destination, ports: (from, to), seq, ack, flags, window, id, options, payload }
    })
}

/// How a packet is wrapped: link type, bytes, network.
fn wrapped(tcp: &Tcp, way: usize, number: u32) -> (u16, Vec<u8>, u32) {
    let ip = tcp.ip();
    let frame = frames::ethernet(&[], &ip);
    let bare = |ip: Vec<u8>| frames::ethernet(&[], &ip);
    let vni = number & 0xff_ffff;
    match way {
        0 => (1, frame, 0),
        1 => (1, frames::ethernet(&[(0x88a8, 1), (0x8100, 2), (0x8100, 3), (0x9100, 4)], &ip), 0),
        2 => (113, frames::cooked(&ip), 0),
        3 => (276, frames::cooked2(&ip), 0),
        4 => (0, frames::loopback(number & 1 == 0, &ip), 0),
        5 => (101, ip, 0),
        6 => (1, bare(frames::vxlan(4789, vni, &frame)), vni + 1),
        7 => (1, bare(frames::geneve(vni, &[0; 16], 0x6558, &frame)), vni + 1),
        8 => (1, bare(frames::gre(Some(number), 0x6558, &frame)), number.saturating_add(1)),
        9 => (1, bare(frames::ip_in_ip(&ip)), 0),
        10 => (1, frames::mpls(&[1, 2, 3], &ip), 0),
        // A frame's padding.
        _ => (1, [frame, vec![0xaa; 18]].concat(), 0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_was_put_in_comes_out(tcp in any_tcp(), way in 0..12_usize, number in any::<u32>()) {
        let (link, bytes, network) = wrapped(&tcp, way, number);
        let mut decoder = Decoder::default();
        let segment = decoder.decode(&packet(link, &bytes)).expect("a segment");
        holds(&segment, &tcp, network);
    }

    #[test]
    fn options_come_out(
        mss in any::<u16>(),
        scale in any::<u8>(),
        stamps in any::<(u32, u32)>(),
        blocks in prop::collection::vec(any::<(u32, u32)>(), 1..=3),
    ) {
        let mut decoder = Decoder::default();
        let syn = Tcp { options: frames::syn_options(mss, scale), ..Tcp::default() };
        let bytes = syn.ip();
        let options = decoder.decode(&packet(101, &bytes)).expect("a segment").options;
        prop_assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(mss), Some(scale), true));
        let ack = [frames::timestamps(stamps.0, stamps.1), frames::sack(&blocks)].concat();
        let bytes = Tcp { options: ack, ..Tcp::default() }.ip();
        let options = decoder.decode(&packet(101, &bytes)).expect("a segment").options;
        prop_assert_eq!(options.timestamps, Some(stamps));
        prop_assert_eq!(&options.sack[..usize::from(options.sack_count)], &blocks[..]);
    }

    #[test]
    fn a_cut_packet_keeps_what_its_headers_say(tcp in any_tcp(), way in 0..12_usize, cut in any::<prop::sample::Index>()) {
        let (link, bytes, network) = wrapped(&tcp, way, 7);
        let data = &bytes[..cut.index(bytes.len())];
        let mut decoder = Decoder::default();
        let short = Packet { data, ..packet(link, &bytes) };
        match decoder.decode(&short) {
            Ok(segment) => {
                let payload = &tcp.payload[..segment.payload.len()];
                prop_assert_eq!(segment.payload, payload);
                prop_assert_eq!((segment.payload_len as usize, segment.network), (tcp.payload.len(), network));
            }
            Err(why) => prop_assert_eq!(why, Unparsed::Cut),
        }
    }

    #[test]
    fn fragments_make_the_segment_in_any_order(
        tcp in any_tcp(),
        size in 1..8_usize,
        seed in any::<u64>(),
        repeat in any::<bool>(),
    ) {
        let mut pieces = tcp.fragments(8 * size);
        prop_assume!(pieces.len() > 1);
        let mut dice = Dice(seed | 1);
        for at in (1..pieces.len()).rev() {
            pieces.swap(at, dice.roll(at + 1));
        }
        if repeat {
            pieces.insert(0, pieces[0].clone());
        }
        let mut decoder = Decoder::default();
        let (last, before) = pieces.split_last().expect("pieces");
        for piece in before {
            prop_assert_eq!(decoder.decode(&packet(101, piece)).err(), Some(Unparsed::Fragment));
        }
        let last = Packet { number: 99, ..packet(101, last) };
        let segment = decoder.decode(&last).expect("a segment");
        prop_assert_eq!(segment.packet, 99);
        holds(&segment, &tcp, 0);
        let counts = decoder.fragments();
        prop_assert_eq!((counts.datagrams, counts.repeated, counts.refused), (1, u64::from(repeat), 0));
    }

    #[test]
    fn any_bytes_are_survived(link in prop_oneof![Just(0_u16), Just(1), Just(101), Just(113), Just(276)], bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Decoder::default().decode(&packet(link, &bytes));
    }
}

#[test]
fn overlapping_fragments_are_refused() {
    let tcp = Tcp { payload: vec![1; 100], ..Tcp::default() };
    let whole = tcp.segment();
    let piece = |offset: usize, len: usize, more: bool| {
        let place = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
        frames::v4(&tcp.source, &tcp.destination, 5, place, 6, &[], &whole[offset..offset + len])
    };
    let mut decoder = Decoder::default();
    let rest = whole.len() - 64;
    for piece in [piece(0, 64, true), piece(56, 16, true), piece(64, rest, false), piece(0, 64, true)] {
        assert_eq!(decoder.decode(&packet(101, &piece)).err(), Some(Unparsed::Fragment));
    }
    let counts = decoder.fragments();
    assert_eq!((counts.refused, counts.datagrams), (1, 0));
    // Much later, the same identification belongs to another datagram.
    let later = |piece: &[u8], decoder: &mut Decoder| {
        let packet = Packet { time_ns: 61_000_000_000, ..packet(101, piece) };
        decoder.decode(&packet).is_ok()
    };
    assert!(!later(&piece(0, 64, true), &mut decoder));
    assert!(later(&piece(64, rest, false), &mut decoder));
}

#[test]
fn fragments_without_end_take_bounded_room() {
    let mut decoder = Decoder::default();
    for id in 0..5000_u32 {
        let tcp = Tcp { id: id as u16, payload: vec![0; 100], ..Tcp::default() };
        let _ = decoder.decode(&packet(101, &tcp.fragments(64)[0]));
    }
    let counts = decoder.fragments();
    assert_eq!((counts.seen, counts.given_up), (5000, 5000 - 1024));
}

#[test]
fn a_tunnel_in_fragments_is_followed() {
    let tcp = Tcp { payload: vec![7; 1400], ..Tcp::default() };
    let outer = frames::vxlan(4789, 9, &frames::ethernet(&[], &tcp.ip()));
    let mut decoder = Decoder::default();
    let (first, second) = outer[20..].split_at(1024);
    let hosts = [&[192, 0, 2, 1][..], &[192, 0, 2, 2]];
    let first = frames::v4(hosts[0], hosts[1], 1, 0x2000, 17, &[], first);
    let second = frames::v4(hosts[0], hosts[1], 1, 128, 17, &[], second);
    assert_eq!(decoder.decode(&packet(101, &first)).err(), Some(Unparsed::Fragment));
    holds(&decoder.decode(&packet(101, &second)).expect("a segment"), &tcp, 10);
    // The other way round: fragments, each in a packet of the tunnel.
    let pieces: Vec<_> = tcp
        .fragments(800)
        .iter()
        .map(|piece| frames::vxlan(4789, 9, &frames::ethernet(&[], piece)))
        .collect();
    assert_eq!(decoder.decode(&packet(101, &pieces[0])).err(), Some(Unparsed::Fragment));
    holds(&decoder.decode(&packet(101, &pieces[1])).expect("a segment"), &tcp, 10);
}

#[test]
fn a_jumbogram_says_its_length_in_an_option() {
    let tcp = Tcp { payload: vec![3; 100_000], ..Tcp::v6() };
    let segment = tcp.segment();
    let len = (segment.len() + 8) as u32;
    let option = [&[6, 0, 0xc2, 4][..], &len.to_be_bytes()].concat();
    let ip = frames::v6(&tcp.source, &tcp.destination, 0, 0, &[option, segment.clone()].concat());
    let mut decoder = Decoder::default();
    holds(&decoder.decode(&packet(101, &ip)).expect("a segment"), &tcp, 0);
    // Newer kernels omit the option.
    let ip = frames::v6(&tcp.source, &tcp.destination, 6, 0, &segment);
    holds(&decoder.decode(&packet(101, &ip)).expect("a segment"), &tcp, 0);
}

#[test]
fn what_is_no_segment_is_said_so() {
    let mut decoder = Decoder::default();
    let udp = Tcp::default().ip_with(17, &[0; 20]);
    let mut wrong = Tcp::default().ip();
    wrong[32] = 0x10;
    for (link, bytes, expected) in [
        (1, frames::arp(), Unparsed::NotIp),
        (127, frames::arp(), Unparsed::LinkType),
        (101, udp, Unparsed::NotTcp),
        (101, wrong, Unparsed::Malformed),
        (101, vec![0x95; 60], Unparsed::Malformed),
    ] {
        assert_eq!(decoder.decode(&packet(link, &bytes)).err(), Some(expected));
    }
}
