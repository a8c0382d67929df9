//! A line between the two hosts with configurable delay, loss and reordering.
//!
//! A pure delay uses netem if the kernel has it. Everything else uses TUN devices and the actor `line`, whose
//! log records the fate of each packet, from which the truth derives the delay of each call. Netem reports only
//! counts.

pub use super::delayed_calls::{DelayedCall, LineReport};
pub use crate::actors::line::direction::{Counts, Fate, Loss};
pub use crate::actors::line::log::{Direct, Entry, Summary};
pub use crate::actors::line::packet::Tcp;
pub use crate::actors::line::way::{Count, Shape, Way};

use super::netem::{self, Queue};
use super::{ADDRESSES, DEVICE, Hosts, ip};
use crate::LabError;
use crate::actors::line::log;
use crate::stage::{Stage, Surroundings};
use crate::truth::LineKind;
use spangap_model::Side;
use std::path::Path;

/// Queue length of a device, in packets.
const DEVICE_QUEUE: &str = "10000";
/// Niceness of the line: if it waits for a CPU, the network is slower than requested.
const NICE: i32 = -20;
/// File that the line writes, next to the files of the run.
const LOG: &str = "line.jsonl";

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// From the client's host to the server's.
    pub to_server: Way,
    /// And back.
    pub to_client: Way,
    /// Seed of its random choices.
    pub seed: u64,
}

/// Chosen implementation of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// Arguments of netem, by the index of the side that packets go to.
    Netem([Vec<String>; 2]),
    Tun,
}

impl Plan {
    /// `logged`: whether the fate of single packets will be needed. `netem`: whether it is available.
    fn of(line: &Line, logged: bool, netem: impl FnOnce() -> bool) -> Plan {
        let words = line.netem().filter(|_| !logged && netem());
        words.map_or(Plan::Tun, Plan::Netem)
    }
}

impl Line {
    /// Arguments of `tc ... netem` for traffic to the client and to the server; `None` if netem does not do
    /// exactly what both directions require.
    pub(super) fn netem(&self) -> Option<[Vec<String>; 2]> {
        Some([netem::words(&self.to_client)?, netem::words(&self.to_server)?])
    }
}

impl Hosts {
    /// Creates a device on each host, with the addresses that a cable would have.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tun(&self) -> Result<(), LabError> {
        for (name, address) in self.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "tuntap", "add", "dev", DEVICE, "mode", "tun"])?;
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", DEVICE, "txqueuelen", DEVICE_QUEUE, "up"])?;
        }
        Ok(())
    }
}

impl Stage<'_> {
    /// Two hosts with a line between them.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn line(&mut self, line: &Line) -> Result<(), LabError> {
        self.lay(line, false)
    }

    /// The same with a log of single packets ([`Stage::end_logged_line`]). A scenario uses one for its near
    /// miss, too: both runs must differ only in the fault.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn logged_line(&mut self, line: &Line) -> Result<(), LabError> {
        self.lay(line, true)
    }

    fn lay(&mut self, line: &Line, logged: bool) -> Result<(), LabError> {
        match Plan::of(line, logged, netem::path_available) {
            Plan::Netem(words) => self.line_of_netem(&words),
            Plan::Tun => self.line_of_tun(line),
        }
    }

    fn line_of_netem(&mut self, words: &[Vec<String>; 2]) -> Result<(), LabError> {
        let mut hosts = Hosts::make(self.undo)?;
        hosts.path(self.undo)?;
        for side in [Side::Client, Side::Server] {
            hosts.netem(side, &words[side.index()])?;
        }
        self.hosts = Some(hosts);
        self.line = Some(LineKind::Netem);
        Ok(())
    }

    fn line_of_tun(&mut self, line: &Line) -> Result<(), LabError> {
        let hosts = Hosts::make(self.undo)?;
        hosts.tun()?;
        let mut arguments = [line.to_server.flags('a'), line.to_client.flags('b')].concat();
        let log = self.file(LOG).display().to_string();
        arguments.extend(["--seed".into(), line.seed.to_string(), "--log".into(), log]);
        for side in [Side::Client, Side::Server] {
            arguments.extend([hosts.name(side).to_owned(), DEVICE.to_owned()]);
        }
        self.hosts = Some(hosts);
        self.line = Some(LineKind::Tun);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let around = Surroundings { nice: Some(NICE), ..Surroundings::default() };
        self.actor(Side::Client, &around, "line", &arguments).map(drop)
    }

    /// Sets a per-host value below `/proc/sys`: `net/ipv4/tcp_early_retrans`. It vanishes with the host.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn setting(&self, side: Side, path: &str, value: &str) -> Result<(), LabError> {
        let mut shell = self.on(side, &Surroundings::default(), Path::new("sh"));
        let output = shell.args(["-c", "echo \"$1\" >\"/proc/sys/$0\"", path, value]).output();
        let output = output.map_err(|error| LabError::program("sh", error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LabError::program(format!("{path} on the {}'s host", side.name()), why))
    }

    /// Ends the line. Call after [`Stage::end`].
    ///
    /// # Errors
    /// It failed; with netem also if it lost packets, or passed none.
    pub fn end_line(&mut self) -> Result<(), LabError> {
        if self.line != Some(LineKind::Netem) {
            return self.end_logged_line().map(drop);
        }
        for side in [Side::Client, Side::Server] {
            passed_all(self.hosts().queue(side)?)
                .map_err(|why| LabError::program(format!("netem to the {}", side.name()), why))?;
        }
        Ok(())
    }

    /// Ends a logged line, and reads its log. Call after [`Stage::end`].
    ///
    /// # Errors
    /// It failed, or uses netem, which has no log: a bug of the scenario.
    pub fn end_logged_line(&mut self) -> Result<LineReport, LabError> {
        if self.line == Some(LineKind::Netem) {
            let why = "netem does not tell what became of single packets; it takes a logged line";
            return Err(LabError::program("line", why));
        }
        let said = self.end_actor("line")?;
        let last = said.lines().last().unwrap_or_default();
        let summary = serde_json::from_str(last)
            .map_err(|error| LabError::program("line", format!("no counts: {error}: {last:?}")))?;
        Ok(LineReport { summary, entries: log::read(&self.file(LOG))? })
    }
}

/// A line that lost packets for lack of room did more than delay them; one that passed nothing was not in use.
fn passed_all(queue: Queue) -> Result<(), String> {
    match queue {
        Queue { packets: 0, .. } => Err("no packet came through it".into()),
        Queue { drops: 0, .. } => Ok(()),
        Queue { packets, drops, overlimits } => Err(format!(
            "it lost {drops} packets ({packets} came through; {overlimits} times over its limit)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn netem_is_used_if_equivalent_and_no_log_is_needed() {
        let delay = Way::of_delay(Duration::from_millis(20));
        let line = Line { to_server: delay.clone(), to_client: Way::default(), seed: 1 };
        let words = line.netem().expect("only a delay");
        assert_eq!(Plan::of(&line, false, || true), Plan::Netem(words));
        assert_eq!(Plan::of(&line, false, || false), Plan::Tun);
        // Nothing is tried then.
        assert_eq!(Plan::of(&line, true, || unreachable!()), Plan::Tun);
        let jitter = Way { jitter: Duration::from_millis(1), ..delay };
        let line = Line { to_client: jitter, ..line };
        assert_eq!(Plan::of(&line, false, || unreachable!()), Plan::Tun);
    }

    #[test]
    fn lossy_line_is_not_a_pure_delay() {
        let queue = Queue { packets: 30, drops: 0, overlimits: 0 };
        assert_eq!(passed_all(queue), Ok(()));
        let lost = passed_all(Queue { drops: 2, ..queue }).expect_err("it lost some");
        assert!(lost.contains("lost 2 packets"), "{lost}");
        passed_all(Queue { packets: 0, ..queue }).expect_err("it was on no way");
    }
}
