//! Faults of the demonstration: each begins while calls are made, and its truth is known.

use super::stage::Stage;
use clap::ValueEnum;
use spangap_lab::hosts::{self, DEVICE, ip};
use spangap_model::{Cause, Culprit, Side};

/// What is made to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// The client has no TCP_NODELAY, and the server's host begins to delay its ACKs
    Nagle,
    /// The server's process is stopped, a tenth of a second at a time
    Stopped,
    /// A neighbour of higher priority takes the server's CPU in bursts
    RunQueue,
}

/// Calls per second of each connection. A faster call would bring the delayed ACK along.
pub const RATE: &str = "10";
/// Tanks with a connection each: a pool would move calls from slow connections to fast ones, and none could be compared.
pub const TANKS: [&str; 4] = ["tank", "tank 2", "tank 3", "tank 4"];

impl Fault {
    /// What is to blame.
    pub fn truth(self) -> Culprit {
        match self {
            Fault::Nagle => Culprit::at(Cause::NagleDelayedAck, Side::Client),
            Fault::Stopped => Culprit::at(Cause::Stopped, Side::Server),
            Fault::RunQueue => Culprit::at(Cause::RunQueue, Side::Server),
        }
    }

    /// What happens, in words.
    pub fn words(self) -> &'static str {
        match self {
            Fault::Nagle => {
                "the server's host delays its ACKs from now on, and the client's sockets have no TCP_NODELAY: the second part \
                 of each request waits for the ACK of the first"
            }
            Fault::Stopped => "the server's process is stopped for 100 ms, twice a second",
            Fault::RunQueue => "a real-time neighbour spins on the server's CPU for 100 ms, twice a second",
        }
    }

    /// What the tank and the target are told.
    pub fn arguments(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Fault::Nagle => (&["--nodelay", "off"], &["--nodelay", "on"]),
            Fault::Stopped | Fault::RunQueue => (&[], &["--think", "1ms"]),
        }
    }

    /// Programs in front of the target.
    pub fn around_target(self) -> &'static [&'static str] {
        match self {
            Fault::RunQueue => &["taskset", "-c", "0"],
            Fault::Nagle | Fault::Stopped => &[],
        }
    }

    /// Before the first call.
    pub fn prepare(self, stage: &Stage) -> anyhow::Result<()> {
        if self == Fault::Nagle {
            acks(stage, "1")?;
        }
        Ok(())
    }

    /// From here on it is there.
    pub fn begin(self, stage: &mut Stage) -> anyhow::Result<()> {
        match self {
            Fault::Nagle => acks(stage, "0"),
            Fault::Stopped => {
                let pid = stage.target_pid()?.to_string();
                stage.actor(&[], &["pause", "--pid", &pid, "--on", "100ms", "--every", "500ms"])
            }
            Fault::RunQueue => stage.actor(
                &["taskset", "-c", "0", "chrt", "-f", "10"],
                &["hog", "--on", "100ms", "--every", "500ms"],
            ),
        }
    }
}

/// Whether the server's host acknowledges at once.
fn acks(stage: &Stage, quickly: &str) -> anyhow::Result<()> {
    let host = stage.hosts.name(Side::Server);
    ip(&[
        "-n",
        host,
        "route",
        "change",
        "10.88.0.0/24",
        "dev",
        DEVICE,
        "proto",
        "kernel",
        "scope",
        "link",
        "src",
        hosts::SERVER,
        "quickack",
        quickly,
    ])?;
    Ok(())
}
