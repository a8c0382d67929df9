//! How each fault begins.

use super::fault::{Cpus, Fault, Link};
use super::stage::Stage;
use anyhow::Context;
use spangap_lab::hosts::{self, DEVICE, SECOND_BROADCAST, ip};
use spangap_lab::shim::{Cost, Shim};
use spangap_lab::stage::cgroup::{Group, Quota};
use spangap_lab::stage::children;
use spangap_model::Side;
use std::time::Duration;

/// A tenth of a second, twice a second. Not in step with calls at fixed times: each time would fall into the same pause between two of
/// them, and no call would meet it.
const ON_AND_OFF: [&str; 4] = ["--on", "100ms", "--every", "510ms"];
/// Priority of what takes the CPU of programs in real time.
const FIRST: &str = "10";
/// Where nobody reads what is broadcast.
const PORT: &str = "5500";

impl Fault {
    /// Before the agents are started.
    pub fn prepare(self, stage: &mut Stage) -> anyhow::Result<()> {
        match self {
            Fault::Nagle => acks(stage, "1"),
            Fault::Softirq => {
                let cpu = stage.cpu(Side::Server);
                Ok(stage.hosts.second_cable(Side::Server, cpu)?)
            }
            Fault::CpuQuota => {
                let quota = Quota { time: Duration::from_millis(20), period: Duration::from_millis(100) };
                stage.group = Some(Group::make(&mut stage.undo, "server", quota)?);
                Ok(())
            }
            Fault::SharedConnection => {
                // A response has 1000 bytes, and 50 around it.
                let cost = Some(Cost { time: Duration::from_millis(8), bytes: 1050 });
                let shim = Shim { cost, ..Shim::at(Side::Client) };
                let folder = stage.folder().to_owned();
                stage.tank_environment = shim.environment(&folder, &folder.join("shim.log"))?;
                Ok(())
            }
            Fault::Rto => {
                for side in Side::ALL {
                    let write = "echo 0 >/proc/sys/net/ipv4/tcp_early_retrans";
                    ip(&["netns", "exec", stage.hosts.name(side), "sh", "-c", write])?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// From here on it is there.
    pub fn begin(self, stage: &mut Stage) -> anyhow::Result<()> {
        let scene = self.scene();
        let line = |stage: &mut Stage, more: &[&str]| {
            let Link::Line(usual) = scene.link else { return Ok(()) };
            stage.line(&[usual, more].concat())
        };
        let every = |n: u64| (1..=2_000).map(|at| (at * n).to_string()).collect::<Vec<_>>().join(",");
        match self {
            Fault::Nagle => acks(stage, "0"),
            Fault::Softirq => flood(stage),
            Fault::SharedConnection => {
                // One thread that sleeps would hold up any other connection as well.
                let more = ["--inflight", "8", "--channels", "shared", "--threads", "8"];
                stage.tank("tank more", &more, &scene)
            }
            Fault::Stopped => pause(stage, Side::Server, "target"),
            Fault::StoppedClient => pause(stage, Side::Client, "tank"),
            Fault::RunQueue | Fault::RunQueueClient => {
                let side = self.truth().side.context("it is of a side")?;
                let cpu = stage.cpu(side).to_string();
                stage.actor(
                    side,
                    &["taskset", "-c", &cpu, "chrt", "-f", FIRST],
                    &[&["hog"], &ON_AND_OFF[..]].concat(),
                )
            }
            Fault::CpuQuota => {
                let around = stage.around(Side::Server, &scene);
                let around: Vec<&str> = around.iter().map(String::as_str).collect();
                stage.actor(Side::Server, &around, &["hog", "--on", "200ms", "--every", "510ms"])
            }
            Fault::ServerApp => stage.tank("tank more", &["--rate", "20", "--think", "60ms"], &scene),
            Fault::ServerQueue => stage.tank(
                "batch",
                &["--inflight", "8", "--think", "40ms", "--service-name", "batch"],
                &scene,
            ),
            Fault::NetworkJitter => line(stage, &["--jitter-a", "20000000", "--jitter-b", "20000000"]),
            // The trailers have 10 bytes and a packet of their own; were it the one before, they would tell of the loss.
            Fault::Rto => line(stage, &["--drop-b", &every(20), "--most-b", "100"]),
            Fault::FastRetransmit => line(stage, &["--drop-b", &every(100), "--least-b", "1400"]),
        }
    }
}

/// Whether the server's host acknowledges at once.
fn acks(stage: &Stage, quickly: &str) -> anyhow::Result<()> {
    let host = stage.hosts.name(Side::Server);
    let route =
        ["-n", host, "route", "change", "10.88.0.0/24", "dev", DEVICE, "proto", "kernel", "scope", "link"];
    ip(&[&route[..], &["src", hosts::SERVER, "quickack", quickly]].concat())?;
    Ok(())
}

fn pause(stage: &mut Stage, side: Side, program: &str) -> anyhow::Result<()> {
    let pid = stage.pid(program)?;
    // The program that calls is a child of the tank; what serves is the target itself.
    let pid = if side == Side::Client { children(pid).first().copied().unwrap_or(pid) } else { pid };
    stage.actor(side, &[], &[&["pause", "--pid", &pid.to_string()], &ON_AND_OFF[..]].concat())
}

/// Packets that nobody wants, each handed to 600 sockets, in the softirq in which it arrives.
fn flood(stage: &mut Stage) -> anyhow::Result<()> {
    let (cpu, to) = (stage.cpu(Side::Client).to_string(), format!("{SECOND_BROADCAST}:{PORT}"));
    let behind = ["taskset", "-c", &cpu, "chrt", "-f", "2"];
    stage.actor(Side::Server, &behind, &["audience", "--port", PORT, "--sockets", "600"])?;
    let burst =
        ["flood", "--to", &to, "--packets", "700", "--apart", "50ms", "--on", "500ms", "--every", "1s"];
    stage.actor(Side::Client, &behind, &burst)
}

impl Stage {
    /// Programs in front of one that runs at an end.
    pub fn around(&self, side: Side, scene: &super::fault::Scene) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if let (Some(group), Side::Server) = (&self.group, side) {
            let tasks = group.path().join("cgroup.procs").display().to_string();
            push(&["sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", &tasks]);
        }
        match scene.cpus {
            Cpus::Any => {}
            Cpus::Apart => push(&["taskset", "-c", &self.cpu(side).to_string()]),
            Cpus::Together => push(&["taskset", "-c", &self.cpu(Side::Server).to_string()]),
        }
        if scene.real_time {
            push(&["chrt", "-f", "5"]);
        } else {
            push(&["nice", "-n", "-20"]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::fault::Fault;
    use clap::ValueEnum;

    /// Who is stopped now and then is seen to be, whenever the looks began.
    #[test]
    fn what_comes_and_goes_is_not_in_step_with_the_looks() {
        let ms = |at: usize| ON_AND_OFF[at].trim_end_matches("ms").parse::<u128>().unwrap();
        let (on_ms, every_ms, pause_ms) = (ms(1), ms(3), crate::commands::demo::whole::LOOK.as_millis());
        // What is done between two looks takes a while.
        for (look_ms, begin_ms) in
            (0..=20).flat_map(|work| (0..every_ms).map(move |ms| (pause_ms + work, ms)))
        {
            let looks = 10_000 / look_ms;
            let seen =
                (0..looks).filter(|look| (begin_ms + look * look_ms) % every_ms < on_ms).count() as u128;
            // Half of what it would be at random times.
            assert!(seen >= looks * on_ms / every_ms / 2, "every {look_ms} ms: {seen} of {looks}");
        }
    }

    /// Calls at fixed times would all miss what comes in step with them.
    #[test]
    fn what_comes_and_goes_is_not_in_step_with_the_calls() {
        let every_ms: u64 = ON_AND_OFF[3].trim_end_matches("ms").parse().unwrap();
        for fault in Fault::value_variants() {
            let load = fault.scene().load;
            let Some(at) = load.iter().position(|word| *word == "--rate") else { continue };
            let period_ms = 1_000 / load[at + 1].parse::<u64>().unwrap();
            let (mut common, mut rest) = (period_ms, every_ms % period_ms);
            while rest > 0 {
                (common, rest) = (rest, common % rest);
            }
            assert!(
                period_ms / common >= 5,
                "{fault:?}: at {} places of {period_ms} ms alone",
                period_ms / common
            );
        }
    }
}
