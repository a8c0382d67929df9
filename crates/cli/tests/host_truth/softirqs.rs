//! A flood of packets whose softirqs are steered onto the target's CPU, and away from it.

use crate::programs::{Program, wait_until};
use crate::{CPU, OTHER_CPU, number, report, sums_are_exact, turn_or_return};
use serde_json::Value;
use std::process::Command;

/// Two network namespaces with a link between them, removed when dropped.
pub struct Link {
    pub from: String,
    pub to: String,
    pub device: String,
}

const TO: &str = "10.213.0.2";

fn ip(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {}: {complaint}", arguments.join(" "))) }
}

impl Link {
    pub fn new() -> Result<Link, String> {
        let pid = std::process::id();
        let link = Link {
            from: format!("thieves-a-{pid}"),
            to: format!("thieves-b-{pid}"),
            // Fifteen characters at most.
            device: format!("tb{pid}"),
        };
        let peer = format!("ta{pid}");
        let Link { from, to, device } = &link;
        ip(&["netns", "add", from])?;
        ip(&["netns", "add", to])?;
        let pair = ["link", "add", &peer, "netns", from, "type", "veth", "peer", device, "netns", to];
        ip(&pair)?;
        for (namespace, device, address) in [(from, &peer, "10.213.0.1/24"), (to, device, "10.213.0.2/24")] {
            ip(&["-n", namespace, "addr", "add", address, "dev", device])?;
            ip(&["-n", namespace, "link", "set", device, "up"])?;
        }
        Ok(link)
    }

    /// Steers the softirqs of arriving packets to a CPU.
    pub fn steer(&self, cpu: usize) {
        let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", self.device);
        let write = format!("echo {:x} > {file}", 1 << cpu);
        ip(&["netns", "exec", &self.to, "sh", "-c", &write]).expect("steering");
    }

    fn packets(&self) -> u64 {
        let file = format!("/sys/class/net/{}/statistics/rx_packets", self.device);
        let read = Command::new("ip").args(["netns", "exec", &self.to, "cat", &file]).output();
        String::from_utf8_lossy(&read.expect("ip starts").stdout).trim().parse().expect("a count")
    }

    pub fn flood(&self) -> Program {
        let cpu = OTHER_CPU.to_string();
        // Other work on its CPU would weaken the flood.
        let before = ["ip", "netns", "exec", &self.from, "taskset", "-c", &cpu, "nice", "-n", "-20"];
        let program = Program::play(&format!("flood {TO}:9999"), &before);
        wait_until("packets arrive", || self.packets() > 10_000);
        program
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.from]);
        let _ = ip(&["netns", "del", &self.to]);
    }
}

/// Time that the softirqs of this device took from the target.
pub fn taken(report: &Value, device: &str) -> u64 {
    let takers = report["takers"].as_array().expect("takers");
    let of_device = |taker: &&Value| taker["name"].as_str().is_some_and(|name| name.contains(device));
    takers.iter().filter(of_device).map(|taker| number(&taker["total_ns"])).sum()
}

#[test]
fn a_flood_is_blamed_by_device_where_it_is_steered_onto_the_targets_cpu() {
    let _turn = turn_or_return!();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return eprintln!("not run: no network namespaces can be made: {why}"),
    };
    // Tasks cannot take its CPU, so only interrupts compete with the target.
    let target = Program::target(&["chrt", "-f", "50"]);

    link.steer(CPU);
    let flood = link.flood();
    let onto = report(target.pid(), &["--duration", "3s"]);
    sums_are_exact(&onto);
    let culprit = &onto["culprit"];
    assert_eq!(culprit["cause"], "softirq-on-cpu");
    let name = culprit["name"].as_str().expect("a name");
    assert!(name.starts_with(&format!("NET_RX of {}", link.device)), "{name}");
    assert_eq!(onto["causes"][0]["cause"], "softirq-on-cpu");
    let taker = &onto["takers"].as_array().expect("takers")[0];
    assert_eq!(taker["name"], culprit["name"]);
    assert_eq!(taker["cpus"].as_array().map(Vec::len), Some(1));
    assert_eq!(number(&taker["cpus"][0]["cpu"]), CPU as u64);
    drop(flood);

    link.steer(OTHER_CPU);
    let _flood = link.flood();
    let away = report(target.pid(), &["--duration", "3s"]);
    sums_are_exact(&away);
    assert!(
        taken(&away, &link.device) * 50 < number(&away["wanted_ns"]),
        "steered away, yet {} ns of it",
        taken(&away, &link.device)
    );
    assert!(!away["culprit"]["name"].as_str().is_some_and(|name| name.contains(&link.device)), "{away:#}");
}
