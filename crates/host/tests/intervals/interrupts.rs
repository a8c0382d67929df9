//! Softirqs by interface, and interrupts compared with the kernel's own counts.

use super::while_streaming;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spangap_host::event::{Irq, What};
use spangap_host::probes::intervals::Settings;
use spangap_host::timeline::Taker;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Two network namespaces with a veth pair between them.
struct Pair {
    names: [String; 2],
}

impl Pair {
    fn new() -> Result<Pair, String> {
        let names = ["a", "b"].map(|end| format!("sgi{}{end}", std::process::id()));
        let pair = Pair { names: names.clone() };
        let [a, b] = names.each_ref();
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add veth-a netns {a} type veth peer name veth-b netns {b}"),
            format!("-n {a} address add 10.250.7.1/24 dev veth-a"),
            format!("-n {b} address add 10.250.7.2/24 dev veth-b"),
            format!("-n {a} link set veth-a up"),
            format!("-n {b} link set veth-b up"),
        ] {
            let done =
                Command::new("ip").args(line.split(' ')).output().map_err(|error| error.to_string())?;
            if !done.status.success() {
                return Err(format!("ip {line}: {}", String::from_utf8_lossy(&done.stderr).trim()));
            }
        }
        Ok(pair)
    }

    fn file(&self, end: usize) -> File {
        File::open(format!("/run/netns/{}", self.names[end])).unwrap()
    }

    /// Moves the calling thread into one of the namespaces.
    fn enter(&self, end: usize) {
        move_into_link_name_space(self.file(end).as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            // Namespaces that were never made cannot be deleted.
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

const PACKETS: u64 = 3000;

#[test]
fn packets_are_counted_by_interface() {
    let pair = match Pair::new() {
        Ok(pair) => pair,
        Err(why) => {
            eprintln!("not run: {why}");
            return;
        }
    };
    let work = || {
        let receiver = thread::scope(|scope| {
            let made = scope.spawn(|| {
                pair.enter(1);
                UdpSocket::bind("10.250.7.2:9999").unwrap()
            });
            made.join().unwrap()
        });
        pair.enter(0);
        let sender = UdpSocket::bind("10.250.7.1:0").unwrap();
        for _ in 0..PACKETS {
            sender.send_to(&[0; 64], "10.250.7.2:9999").unwrap();
        }
        // Either the last packet has arrived, or there was no room for it: all have been through the softirq.
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        receiver.recv(&mut [0; 64]).unwrap();
    };
    let Some((events, ended, ())) = while_streaming(&Settings::default(), work) else { return };
    assert_eq!(ended.counts.lost, 0);
    let mut packets: BTreeMap<u32, u64> = BTreeMap::new();
    for event in &events {
        if let What::Softirq { vector: 3, device, packets: more, began_ns, .. } = event.what {
            assert!(began_ns <= event.time_ns);
            *packets.entry(device).or_default() += u64::from(more);
        }
    }
    let network = pair.file(1).metadata().unwrap().ino() as u32;
    let found = packets.iter().find(|(device, _)| {
        ended
            .names
            .device(**device)
            .is_some_and(|name| name.name == "veth-b" && name.network == Some(network))
    });
    let (&device, &count) = found.unwrap_or_else(|| panic!("no veth-b in {packets:?}"));
    // Neighbour discovery adds a few.
    assert!((PACKETS..PACKETS + 100).contains(&count), "{count} packets");
    let words = ended.names.taker(&Taker::Softirq { vector: 3, device, own: false });
    assert_eq!(words, format!("NET_RX of veth-b (network namespace {network})"));
}

/// Timer interrupts of each CPU, from `/proc/interrupts`; empty if there is no such line.
fn timer_interrupts() -> Vec<u64> {
    let text = fs::read_to_string("/proc/interrupts").unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("LOC:"));
    line.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect()
}

#[test]
fn timer_interrupts_match_the_kernels_count() {
    let work = || {
        let before = timer_interrupts();
        // Until there are enough for a comparison.
        while timer_interrupts().iter().sum::<u64>() < before.iter().sum::<u64>() + 500 {
            thread::park_timeout(Duration::from_millis(10));
            if before.is_empty() {
                return None;
            }
        }
        Some(timer_interrupts().iter().sum::<u64>() - before.iter().sum::<u64>())
    };
    let Some((events, ended, counted)) = while_streaming(&Settings::default(), work) else { return };
    let Some(counted) = counted else {
        eprintln!("not run: /proc/interrupts has no line LOC: this is not x86");
        return;
    };
    assert_eq!(ended.counts.lost, 0);
    let timers = events.iter().filter(|event| matches!(event.what, What::Hardirq { irq: Irq::Timer, .. }));
    let told = timers.count() as u64;
    // The stream began a little before the count and ended a little after it.
    assert!(told >= counted && told <= counted * 2, "{told} told, {counted} counted");
}
