//! Capture filters compared with tcpdump's: the same packets pass.

use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::source::filter::{Instruction, LoopbackOnce, compile};
use spangap_wire::source::write::{Origin, PcapngWriter};
use std::process::Command;

/// A local generator, so that the packets are the same every time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.next(of.len() as u64) as usize]
    }
}

const PORTS: &[u16] = &[22, 80, 443, 8000, 8050, 8099, 8100, 50051, 65535];
const HOSTS: &[[u8; 4]] = &[[10, 0, 0, 1], [10, 0, 0, 2], [10, 1, 0, 1], [192, 168, 7, 9]];
const HOSTS6: &[u16] = &[1, 2, 0x100, 0xffff];

/// An Ethernet frame: IPv4 with or without options and fragments, IPv6, or neither. (No ARP addresses:
/// tcpdump matches these, too.)
fn frame(random: &mut Random) -> Vec<u8> {
    let carrier = *random.pick(&[6u8, 6, 6, 17, 1, 132]);
    let (source, target) = (*random.pick(PORTS), *random.pick(PORTS));
    let mut inner = [source.to_be_bytes(), target.to_be_bytes()].concat();
    inner.resize(40, 0);
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match random.next(10) {
        0 => out.extend_from_slice(&[0x88, 0xcc, 0, 1, 8, 0, 6, 4, 0, 1]),
        1..=3 => {
            out.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, carrier, 64]);
            for _ in 0..2 {
                out.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&random.pick(HOSTS6).to_be_bytes());
            }
        }
        _ => {
            let words = *random.pick(&[5u8, 5, 5, 6, 15]);
            let fragment = *random.pick(&[0x4000u16, 0x4000, 0x2000, 0x2007, 0x0009]);
            let length = (words as usize * 4 + inner.len()) as u16;
            out.extend_from_slice(&[8, 0, 0x40 | words, 0]);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&[0, 1]);
            out.extend_from_slice(&fragment.to_be_bytes());
            out.extend_from_slice(&[64, carrier, 0, 0]);
            out.extend_from_slice(&random.pick(HOSTS)[..]);
            out.extend_from_slice(&random.pick(HOSTS)[..]);
            out.resize(14 + words as usize * 4, 1);
        }
    }
    out.extend_from_slice(&inner);
    out
}

fn expression(random: &mut Random, depth: u64) -> String {
    let end = *random.pick(&["", "", "src ", "dst "]);
    match random.next(if depth == 0 { 9 } else { 13 }) {
        0 => "tcp".into(),
        1 => "udp".into(),
        2 => random.pick(&["ip", "ip6"]).to_string(),
        3 => format!("{end}port {}", random.pick(PORTS)),
        4 => format!("tcp {end}port {}", random.pick(PORTS)),
        5 => format!("{end}portrange 8000-8099"),
        6 => {
            let [a, b, c, d] = random.pick(HOSTS);
            format!("{end}host {a}.{b}.{c}.{d}")
        }
        7 => {
            format!("{end}net {}", random.pick(&["10.0.0.0/8", "10.0.0.0/31", "192.168.0.0/16", "0.0.0.0/0"]))
        }
        8 => format!("{end}net {}", random.pick(&["fd00::/120", "fd00::/8", "fd00::100/128", "fd00::/64"])),
        9 => format!("not {}", expression(random, depth - 1)),
        10 => format!("({})", expression(random, depth - 1)),
        11 => format!("{} and {}", expression(random, depth - 1), expression(random, depth - 1)),
        _ => format!("({} or {})", expression(random, depth - 1), expression(random, depth - 1)),
    }
}

/// Runs a program as the kernel would on an Ethernet frame, whose network header begins at byte 14.
fn run(program: &[Instruction], frame: &[u8]) -> u32 {
    const NETWORK: i64 = -0x10_0000;
    let load = |at: i64, size: usize| -> Option<u32> {
        if at == -0x1000 {
            return Some(u16::from_be_bytes([frame[12], frame[13]]) as u32);
        }
        let at = usize::try_from(at - NETWORK + 14).ok()?;
        Some(frame.get(at..at + size)?.iter().fold(0, |sum, byte| sum << 8 | *byte as u32))
    };
    let (mut a, mut x, mut at) = (0u32, 0u32, 0);
    loop {
        let i = program[at];
        at += 1;
        let jump = |holds: bool| if holds { i.jump_true } else { i.jump_false } as usize;
        let k = i.k as i32 as i64;
        let loaded = match i.code {
            0x20 => load(k, 4),
            0x28 => load(k, 2),
            0x30 => load(k, 1),
            0x48 => load(k + x as i64, 2),
            0xb1 => {
                let Some(byte) = load(k, 1) else { return 0 };
                x = (byte & 15) * 4;
                continue;
            }
            0x54 => Some(a & i.k),
            0x05 => {
                at += i.k as usize;
                continue;
            }
            0x15 | 0x25 | 0x35 | 0x45 => {
                at += jump(match i.code {
                    0x15 => a == i.k,
                    0x25 => a > i.k,
                    0x35 => a >= i.k,
                    _ => a & i.k != 0,
                });
                continue;
            }
            0x06 => return i.k,
            other => panic!("operation {other:#x} was never emitted"),
        };
        // A load beyond the packet ends the program, and rejects the packet.
        let Some(loaded) = loaded else { return 0 };
        a = loaded;
    }
}

#[test]
fn the_same_packets_pass_as_with_tcpdump() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("not run: tcpdump, the other compiler of filters, is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.pcapng");
    let mut random = Random(0x5eed);
    let frames: Vec<_> = (0..400).map(|_| frame(&mut random)).collect();
    let origin = Origin { interface: "made", link: LinkType::ETHERNET, snap_bytes: 0, comment: "" };
    let mut file = PcapngWriter::create(std::fs::File::create(&path).unwrap(), &origin).unwrap();
    for (n, data) in frames.iter().enumerate() {
        let time_ns = (n as i64 + 1) * 1_000_000_000;
        let (link, wire_len) = (LinkType::ETHERNET, data.len() as u32);
        file.packet(&Packet { number: 0, time_ns, interface: 0, link, wire_len, data }).unwrap();
    }
    file.finish(0, frames.len() as u64, 0).unwrap();

    let mut passed = 0;
    for n in 0..250 {
        let text = if n == 0 { String::new() } else { expression(&mut random, 3) };
        let program = compile(&text, 512, LoopbackOnce::No).unwrap();
        assert!(program.len() <= 4096);
        let ours: Vec<usize> =
            (0..frames.len()).filter(|n| run(&program, &frames[*n]) == 512).map(|n| n + 1).collect();
        let output =
            Command::new("tcpdump").args(["-n", "-tt", "-r"]).arg(&path).arg(&text).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("expression rejects all packets") {
            assert_eq!(ours, Vec::<usize>::new(), "{text}");
            continue;
        }
        assert!(output.status.success(), "{text}: {said}");
        let theirs: Vec<usize> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once('.')?.0.parse().ok())
            .collect();
        assert_eq!(ours, theirs, "{text}");
        passed += ours.len();
    }
    assert!(passed > 10_000, "the expressions let something through: {passed}");
}
