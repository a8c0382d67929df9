//! The packets that the program keeps, in network namespaces of their own: compared with what the test sent. Each test runs in a
//! thread of its own, which moves to a new one.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spangap_host::kernel::ProbeError;
use spangap_host::probes::packets::{Packets, Record, Settings};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
/// `sll_pkttype` of a packet that leaves.
const OUTGOING: u8 = 4;

/// A process that holds a network namespace whose loopback is up. It ends when this is dropped, as its input does.
struct Holder(Child);

impl Holder {
    /// `None` without the right or the programs to make one.
    fn start() -> Option<Holder> {
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo ready; read word"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut holder = Holder(child.ok()?);
        let mut ready = String::new();
        BufReader::new(holder.0.stdout.take()?).read_line(&mut ready).ok()?;
        (ready == "ready\n").then_some(holder)
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It has ended, or it cannot be waited for.
        let _ended = self.0.wait();
    }
}

/// Runs `work` in a new network namespace, or says why not.
fn in_a_namespace(work: impl FnOnce() + Send) {
    let Some(holder) = Holder::start() else {
        return println!(
            "not run: it takes root and the programs unshare and ip to make a network namespace"
        );
    };
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let namespace = File::open(holder.namespace()).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work();
        });
        if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Runs `ip` in this thread's namespace.
fn ip(words: &str) -> Result<(), String> {
    let done = Command::new("ip").args(words.split(' ')).output().map_err(|error| error.to_string())?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

fn start(settings: Settings) -> Option<Packets> {
    match Packets::start(&Settings { bytes: settings.bytes.max(1 << 20), ..settings }) {
        Ok(packets) => Some(packets),
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::NoBtf { .. } | ProbeError::Lacks { .. })) => {
            println!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn all(packets: &Packets) -> Vec<(Record<'static>, Vec<u8>)> {
    let mut all = Vec::new();
    let taken = packets.between(
        |_, _| true,
        |record| {
            all.push((Record { data: &[], ..*record }, record.data.to_vec()));
            Ok::<(), std::convert::Infallible>(())
        },
    );
    let Ok(()) = taken;
    all
}

/// Payload of a TCP packet over IPv4 as far as it was kept, with the port it is for.
fn payload(data: &[u8]) -> Option<(u16, &[u8])> {
    let ip = usize::from(data.first()? & 0x0f) * 4;
    let tcp = data.get(ip..)?;
    Some((u16::from_be_bytes([tcp[2], tcp[3]]), tcp.get(usize::from(*tcp.get(12)? >> 4) * 4..)?))
}

/// The byte stream to this port, from the sequence numbers of the packets: what was sent again counts once.
fn streamed(packets: &[(Record<'static>, Vec<u8>)], port: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut first = None;
    for (_, data) in packets {
        let Some((_, payload)) = payload(data).filter(|(to, payload)| *to == port && !payload.is_empty())
        else {
            continue;
        };
        let tcp = usize::from(data[0] & 0x0f) * 4;
        let seq = u32::from_be_bytes(data[tcp + 4..tcp + 8].try_into().unwrap());
        let at = seq.wrapping_sub(*first.get_or_insert(seq)) as usize;
        bytes.resize(bytes.len().max(at + payload.len()), 0);
        bytes[at..at + payload.len()].copy_from_slice(payload);
    }
    bytes
}

fn talk(rounds: usize, length: usize) -> (u16, u16, Vec<u8>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut sent = Vec::new();
    for round in 0..rounds {
        let message: Vec<u8> = (0..length).map(|n| (round * 31 + n) as u8).collect();
        client.write_all(&message).unwrap();
        server.read_exact(&mut vec![0; length]).unwrap();
        server.write_all(b"y").unwrap();
        client.read_exact(&mut [0]).unwrap();
        sent.extend(message);
    }
    (listener.local_addr().unwrap().port(), client.local_addr().unwrap().port(), sent)
}

#[test]
fn every_packet_of_loopback_is_kept_once_in_order_of_time() {
    in_a_namespace(|| {
        let Some(packets) = start(Settings { bytes: 8 << 20, snap_bytes: 16 << 10, ..Settings::default() })
        else {
            return;
        };
        let (port, client, sent) = talk(500, 700);
        let before = packets.counts();
        let kept = all(&packets);
        let after = packets.counts();
        assert_eq!(streamed(&kept, port), sent);
        assert_eq!(streamed(&kept, client).len(), 500);
        // What is sent again has another identification.
        let sent_once = |(_, data): &(Record<'static>, Vec<u8>)| data[4..6].to_vec();
        let identified: Vec<_> =
            kept.iter().map(|one| (payload(&one.1).unwrap().0, sent_once(one))).collect();
        let with_id = identified.iter().filter(|(_, id)| id[..] != [0, 0]);
        assert!(with_id.clone().count() > 1_000, "{identified:?}");
        assert_eq!(with_id.clone().count(), with_id.collect::<BTreeSet<_>>().len(), "each packet once");
        // The kernel's clock may go back by some nanoseconds when it is adjusted.
        assert!(kept.is_sorted_by(|(one, _), (next, _)| one.mono_ns <= next.mono_ns + 1_000_000));
        assert!(kept.iter().all(|(record, _)| record.interface == 1 && record.kind != OUTGOING));
        let whole = |(record, data): &(Record<'static>, Vec<u8>)| record.length as usize == data.len();
        assert!(kept.iter().all(whole));
        assert!((before.packets..=after.packets).contains(&(kept.len() as u64)), "{before:?} {after:?}");
        assert_eq!((after.torn, after.overwritten_ns), (0, 0));
    });
}

#[test]
fn what_is_kept_of_a_packet_can_be_changed_and_only_tcp_is() {
    in_a_namespace(|| {
        let Some(packets) = start(Settings { snap_bytes: 100, ..Settings::default() }) else { return };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(b"nobody asked for this", socket.local_addr().unwrap()).unwrap();
        talk(10, 5_000);
        let cut = all(&packets);
        assert!(cut.iter().all(|(_, data)| data.len() <= 100 && data[9] == 6), "TCP, and little of it");
        assert!(cut.iter().any(|(record, data)| record.length > 1_000 && data.len() == 100));
        packets.keep_at_most(u32::MAX);
        let (port, _, sent) = talk(10, 5_000);
        assert_eq!(streamed(&all(&packets), port), sent);
    });
}

#[test]
fn the_oldest_packets_are_overwritten_and_it_is_known_which() {
    in_a_namespace(|| {
        let Some(packets) = start(Settings { snap_bytes: 16 << 10, ..Settings::default() }) else { return };
        let room = packets.kept_bytes_at_most();
        let begun = Instant::now();
        while packets.counts().bytes < 3 * room {
            talk(50, 9_000);
            assert!(begun.elapsed() < PATIENCE);
        }
        let kept = all(&packets);
        let counts = packets.counts();
        assert!(kept.len() < counts.packets as usize && counts.overwritten_ns > 0, "{counts:?}");
        // Whatever is younger than the last one overwritten is there: blocks of other CPUs may reach further back.
        let bytes: u64 = kept.iter().map(|(_, data)| (24 + data.len() as u64).next_multiple_of(8)).sum();
        assert!(bytes > room / 4 && bytes <= room, "{bytes} of {room} bytes");
        let younger = kept.iter().filter(|(record, _)| record.mono_ns > counts.overwritten_ns).count();
        assert!(younger > 0);
        let (port, _, sent) = talk(20, 9_000);
        assert_eq!(streamed(&all(&packets), port), sent, "the youngest are there");
    });
}

#[test]
fn packets_that_open_and_close_connections_are_told_apart() {
    in_a_namespace(|| {
        let Some(mut packets) = start(Settings { snap_bytes: 2_000, ..Settings::default() }) else { return };
        for _ in 0..50 {
            talk(3, 300);
        }
        let mut seen = Vec::new();
        let lost = packets.openings(|record| seen.push(record.data.to_vec()));
        assert_eq!(lost, 0);
        let flags = |data: &Vec<u8>| data[usize::from(data[0] & 0x0f) * 4 + 13];
        assert!(seen.iter().all(|data| data.len() <= 128 && flags(data) & 0x07 != 0));
        // A pair of ports is used once.
        let of = |wanted: u8| {
            let pairs =
                seen.iter().filter(|data| flags(data) & 0x13 == wanted).map(|data| data[20..24].to_vec());
            pairs.collect::<BTreeSet<Vec<u8>>>().len()
        };
        assert_eq!((of(0x02), of(0x12)), (50, 50), "SYNs and their answers");
        assert!(of(0x11) >= 50, "FINs");
        packets.openings(|record| assert_eq!(record.data[33] & 0x02, 0, "it was shown before"));
    });
}

#[test]
fn more_openings_than_there_is_room_for_are_counted() {
    in_a_namespace(|| {
        let Some(mut packets) = start(Settings { snap_bytes: 2_000, ..Settings::default() }) else { return };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        drop(listener);
        // Refused: a SYN and a reset each.
        for _ in 0..6_000 {
            assert!(TcpStream::connect(to).is_err());
        }
        let mut seen = 0_u64;
        let lost = packets.openings(|_| seen += 1);
        // Some may have been sent again.
        assert!((12_000..12_100).contains(&(seen + lost)), "{seen} and {lost}");
        assert!(lost >= 12_000 - 8_192, "{lost}");
    });
}

#[test]
fn an_interface_that_comes_later_is_followed_in_both_directions() {
    in_a_namespace(|| {
        let Some(mut packets) = start(Settings { snap_bytes: 2_000, ..Settings::default() }) else { return };
        // A link to a namespace that this one reaches through it: its other end has an address there alone.
        let far = Holder::start().expect("a second one");
        let pid = far.0.id();
        ip(&format!("link add near type veth peer far netns {pid}")).unwrap();
        ip("addr add 10.99.0.1/24 dev near").unwrap();
        ip("link set near up").unwrap();
        let there = |words: &str| {
            let done = Command::new("nsenter")
                .args([&format!("--net={}", far.namespace()), "ip"])
                .args(words.split(' '))
                .status();
            assert!(done.is_ok_and(|done| done.success()), "{words}");
        };
        there("addr add 10.99.0.2/24 dev far");
        there("link set far up");
        let begun = Instant::now();
        let both = |packets: &Packets| {
            let kinds = all(packets).into_iter().filter(|(record, _)| record.interface != 1);
            kinds.map(|(record, _)| record.kind == OUTGOING).collect::<BTreeSet<bool>>()
        };
        // The peer refuses: its reset comes back.
        while both(&packets).len() < 2 {
            packets.wait(10).unwrap();
            let _refused =
                TcpStream::connect_timeout(&([10, 99, 0, 2], 9).into(), Duration::from_millis(200));
            assert!(begun.elapsed() < PATIENCE, "{:?}", both(&packets));
        }
        ip("link del near").unwrap();
        packets.wait(10).unwrap();
        let (port, _, sent) = talk(1, 10);
        assert_eq!(streamed(&all(&packets), port), sent);
    });
}

#[test]
fn without_loopback_only_the_canary_is_kept_of_it() {
    in_a_namespace(|| {
        let canary = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let own = canary.local_addr().unwrap();
        let settings = Settings {
            snap_bytes: 2_000,
            canary_port: Some(own.port()),
            interfaces: vec!["eth7".into()],
            ..Settings::default()
        };
        let Some(packets) = start(settings) else { return };
        talk(5, 100);
        canary.send_to(b"here", own).unwrap();
        let kept = all(&packets);
        assert_eq!(kept.len(), 1);
        assert!(kept[0].1.ends_with(b"here") && kept[0].1[9] == 17);
    });
}
