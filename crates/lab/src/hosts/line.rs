//! A line between the two hosts that delays, drops and reorders as it is told: TUN devices and the actor `line`. Never netem:
//! on a host's own device it delays what is sent before the sender's tap, so that the wait would not be on the wire.

pub use super::passed::{Held, Passed};
pub use crate::actors::line::direction::{Counts, Fate, Loss};
pub use crate::actors::line::log::{Direct, Entry, Summary};
pub use crate::actors::line::packet::Tcp;
pub use crate::actors::line::way::{Count, Shape, Way};

use super::{CLIENT, DEVICE, Hosts, SERVER, ip};
use crate::LabError;
use crate::actors::line::log;
use crate::stage::{Around, Stage};
use spangap_model::Side;
use std::path::Path;

/// Packets that a device keeps until the line has read them.
const DEVICE_QUEUE: &str = "10000";
/// Niceness of the line: a network that waits for a CPU is slower than it was asked to be.
const NICE: i32 = -20;
/// What the line writes, beside the files of the run.
const LOG: &str = "line.jsonl";

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// From the client's host to the server's.
    pub to_server: Way,
    /// And back.
    pub to_client: Way,
    /// Of what is left to chance.
    pub seed: u64,
}

impl Hosts {
    /// Makes a device on either host, with the addresses that a cable would have.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn tun(&self) -> Result<(), LabError> {
        for (side, address) in [(Side::Client, CLIENT), (Side::Server, SERVER)] {
            let name = self.name(side);
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
    /// When they cannot be made.
    pub fn line(&mut self, line: &Line) -> Result<(), LabError> {
        let hosts = Hosts::make(self.undo)?;
        hosts.tun()?;
        let mut arguments = [line.to_server.flags('a'), line.to_client.flags('b')].concat();
        let log = self.file(LOG).display().to_string();
        arguments.extend(["--seed".into(), line.seed.to_string(), "--log".into(), log]);
        for side in [Side::Client, Side::Server] {
            arguments.extend([hosts.name(side).to_owned(), DEVICE.to_owned()]);
        }
        self.hosts = Some(hosts);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let around = Around { nice: Some(NICE), ..Around::default() };
        self.actor(Side::Client, &around, "line", &arguments).map(drop)
    }

    /// Sets a value below `/proc/sys` on a host, of those that each host has its own of: `net/ipv4/tcp_early_retrans`. It goes
    /// with the host.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn setting(&self, side: Side, path: &str, value: &str) -> Result<(), LabError> {
        let mut shell = self.on(side, &Around::default(), Path::new("sh"));
        let output = shell.args(["-c", "echo \"$1\" >\"/proc/sys/$0\"", path, value]).output();
        let output = output.map_err(|error| LabError::program("sh", error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(LabError::program(format!("{path} on the {}'s host", side.name()), why))
    }

    /// Ends the line, and reads what it did. To be called after [`Stage::end`].
    ///
    /// # Errors
    /// When it has failed.
    pub fn end_line(&mut self) -> Result<Passed, LabError> {
        let said = self.end_actor("line")?;
        let last = said.lines().last().unwrap_or_default();
        let summary = serde_json::from_str(last)
            .map_err(|error| LabError::program("line", format!("no counts: {error}: {last:?}")))?;
        Ok(Passed { summary, entries: log::read(&self.file(LOG))? })
    }
}
