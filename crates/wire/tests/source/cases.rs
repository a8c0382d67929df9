//! Captures that together cover every supported feature.

use crate::files::{self, Interface, Kind, Order, Record};
use crate::frames::{self, Tcp};

pub const LITTLE: Order = Order { big: false };
pub const BIG: Order = Order { big: true };
const START_NS: u64 = 1_700_000_000_123_456_000;

/// Frames with everything that may surround a segment, on Ethernet, with the snap length of the cut ones.
pub fn ethernet_frames() -> Vec<(Vec<u8>, Option<usize>)> {
    let (v4, v6) = (Tcp::default(), Tcp::v6());
    let plain = |ip: &[u8]| frames::ethernet(&[], ip);
    let long = Tcp { payload: vec![b'x'; 3000], ..v4.clone() };
    let with = |options: Vec<u8>| Tcp { options, ..Tcp::default() }.ip();
    let bridged = |frame: &[u8]| frames::geneve(77, &[1, 2, 0, 1, 9, 9, 9, 9], 0x6558, frame);
    let mut frames = vec![
        plain(&v4.ip()),
        plain(&v6.ip()),
        frames::arp(),
        plain(&v4.ip_with(17, &[0xc3, 0x50, 0, 99, 0, 12, 0, 0, 1, 2, 3, 4])),
        // Tags: one, two, three.
        frames::ethernet(&[(0x8100, 5)], &v4.ip()),
        frames::ethernet(&[(0x88a8, 5), (0x8100, 6)], &v6.ip()),
        frames::ethernet(&[(0x8100, 5), (0x8100, 6), (0x8100, 7)], &v4.ip()),
        frames::mpls(&[16, 17], &v4.ip()),
        // Header options, padding, extension headers.
        plain(&frames::v4(&v4.source, &v4.destination, 9, 0, 6, &[1, 1, 1, 0], &v4.segment())),
        [&plain(&Tcp { payload: Vec::new(), options: Vec::new(), ..v4.clone() }.ip())[..], &[0; 6]].concat(),
        plain(&extended(&v6)),
        // TCP options.
        plain(&with(frames::syn_options(1460, 7))),
        plain(&with([frames::timestamps(1, 2), frames::sack(&[(10, 20), (30, 40), (50, 60)])].concat())),
        plain(&with(frames::sack(&[(10, 20), (30, 40), (50, 60), (70, 80)]))),
        // A super-frame with its length, and one without.
        plain(&Tcp { payload: vec![b'y'; 60_000], ..v4.clone() }.ip()),
        plain(&Tcp { payload: vec![b'y'; 70_000], ..v4.clone() }.ip()),
        // Tunnels.
        plain(&frames::vxlan(4789, 42, &plain(&v4.ip()))),
        plain(&frames::vxlan(8472, 43, &frames::ethernet(&[(0x8100, 5)], &v6.ip()))),
        plain(&bridged(&plain(&v4.ip()))),
        plain(&frames::geneve(78, &[], 0x0800, &v4.ip())),
        plain(&frames::gre(None, 0x0800, &v4.ip())),
        plain(&frames::gre(Some(7), 0x86dd, &v6.ip())),
        plain(&frames::ip_in_ip(&v4.ip())),
        plain(&frames::ip_in_ip(&v6.ip())),
    ];
    frames.extend(long.fragments(1480).iter().map(|ip| plain(ip)));
    frames.extend(
        Tcp { payload: vec![b'z'; 5000], ..v6.clone() }.fragments(1448).iter().rev().map(|ip| plain(ip)),
    );
    let mut frames: Vec<_> = frames.into_iter().map(|frame| (frame, None)).collect();
    frames.extend([54, 66, 68, 96, 200].map(|snaplen| (plain(&long.ip()), Some(snaplen))));
    frames
}

/// A segment behind hop-by-hop options, routing, destination options.
fn extended(tcp: &Tcp) -> Vec<u8> {
    let headers = [43, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, 6, 1, 1, 12, 0, 0, 0, 0];
    let payload = [&headers[..], &[0; 8], &tcp.segment()].concat();
    frames::v6(&tcp.source, &tcp.destination, 0, payload.len(), &payload)
}

/// Each packet 1234.567 microseconds after the previous one.
pub fn records(interface: usize, frames: &[(Vec<u8>, Option<usize>)]) -> Vec<Record> {
    let record = |(at, (data, snaplen)): (usize, &(Vec<u8>, Option<usize>))| {
        let record = Record::new(interface, START_NS + at as u64 * 1_234_567, data.clone());
        match snaplen {
            Some(snaplen) => record.cut(*snaplen),
            None => record,
        }
    };
    frames.iter().enumerate().map(record).collect()
}

/// The same two packets with every link header other than Ethernet's: LINKTYPE and frames.
pub fn other_links() -> Vec<(u16, Vec<Vec<u8>>)> {
    let ips = [Tcp::default().ip(), Tcp::v6().ip()];
    let all = |wrap: &dyn Fn(&[u8]) -> Vec<u8>| ips.iter().map(|ip| wrap(ip)).collect::<Vec<_>>();
    let one = |at: usize| vec![ips[at].clone()];
    vec![
        (101, all(&|ip| ip.to_vec())),
        (12, all(&|ip| ip.to_vec())),
        (228, one(0)),
        (229, one(1)),
        (113, all(&frames::cooked)),
        (276, all(&frames::cooked2)),
        (0, [all(&|ip| frames::loopback(false, ip)), all(&|ip| frames::loopback(true, ip))].concat()),
        (108, all(&|ip| frames::loopback(true, ip))),
    ]
}

fn whole(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<usize>)> {
    frames.iter().map(|frame| (frame.clone(), None)).collect()
}

/// Every case with its name.
pub fn all() -> Vec<(String, Vec<u8>)> {
    with_frames(&ethernet_frames())
}

/// Every case without its super-frames, for tests with many variants.
pub fn short() -> Vec<Vec<u8>> {
    let mut frames = ethernet_frames();
    frames.retain(|(frame, _)| frame.len() < 4000);
    with_frames(&frames).into_iter().map(|(_, file)| file).collect()
}

fn with_frames(frames: &[(Vec<u8>, Option<usize>)]) -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    let ethernet = records(0, frames);
    for order in [LITTLE, BIG] {
        for kind in [Kind::Micros, Kind::Nanos, Kind::Modified] {
            cases.push((format!("pcap {kind:?} {order:?}"), files::pcap(order, kind, 1, &ethernet)));
        }
        cases.push((format!("pcapng sections {order:?}"), sections(order, &ethernet)));
        cases.push((format!("pcapng resolutions {order:?}"), resolutions(order)));
    }
    for (link, frames) in other_links() {
        let records = records(0, &whole(&frames));
        cases.push((format!("pcap link {link}"), files::pcap(LITTLE, Kind::Nanos, link, &records)));
    }
    cases.push(("pcapng links".into(), links()));
    cases
}

/// One section with an interface of every link type, alternating.
fn links() -> Vec<u8> {
    let links = other_links();
    let interfaces: Vec<_> = links.iter().map(|(link, _)| Interface::new(*link, Some(9))).collect();
    let all = links.iter().enumerate().flat_map(|(at, (_, frames))| records(at, &whole(frames)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|record| record.time_ns);
    files::pcapng(LITTLE, &interfaces, &all)
}

/// Sections in both byte orders, each with every type of block.
fn sections(first: Order, ethernet: &[Record]) -> Vec<u8> {
    let mut file = Vec::new();
    for order in [first, Order { big: !first.big }] {
        let interfaces = [Interface::new(1, Some(9))];
        file.extend(files::section(order));
        file.extend(files::secrets(order, b"CLIENT_RANDOM 00 11\n"));
        file.extend(files::interface(order, interfaces[0]));
        file.extend(files::block(order, 4, &[0; 4]));
        for (at, record) in ethernet.iter().enumerate() {
            file.extend(match at % 3 {
                0 => files::packet(order, &interfaces, record, &[]),
                1 => files::old_packet(order, &interfaces, record, 0),
                _ => {
                    let comment = [files::option(order, 1, b"a comment"), vec![0; 4]].concat();
                    files::packet(order, &interfaces, record, &comment)
                }
            });
        }
        file.extend(files::statistics(order, 0, 3, 4));
    }
    file
}

/// Interfaces with clocks of many units, and some with an epoch other than 1970. Nothing finer than 10^-10 s,
/// because tshark's arithmetic overflows there.
fn resolutions(order: Order) -> Vec<u8> {
    let resolutions = [None, Some(0), Some(3), Some(6), Some(9), Some(10), Some(0x80 | 10), Some(0x80 | 30)];
    let mut interfaces: Vec<_> = resolutions.map(|resolution| Interface::new(1, resolution)).to_vec();
    interfaces.push(Interface { offset_s: 1_600_000_000, ..Interface::new(1, Some(9)) });
    interfaces.push(Interface { offset_s: 1_699_999_999, ..Interface::new(1, Some(10)) });
    let frame = frames::ethernet(&[], &Tcp::default().ip());
    let record =
        |at: u64| Record::new(at as usize % interfaces.len(), START_NS + at * 7_777_777, frame.clone());
    files::pcapng(order, &interfaces, &(0..40).map(record).collect::<Vec<_>>())
}
