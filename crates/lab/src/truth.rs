//! The truth about a run, known to its scenario by construction.

use crate::draw::DrawnRun;
use crate::host_clock::HostClock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Implementation of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// The kernel's netem, between the two hosts.
    Netem,
    /// TUN devices, and a program that forwards between them.
    Tun,
}

/// A time interval, in nanoseconds since 1970 by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// Start.
    pub from_unix_ns: u64,
    /// End.
    pub to_unix_ns: u64,
}

impl Active {
    /// Length in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_unix_ns.saturating_sub(self.from_unix_ns)
    }

    /// Length of its overlap with another interval, in nanoseconds.
    pub fn overlap_ns(&self, from_unix_ns: u64, to_unix_ns: u64) -> u64 {
        self.to_unix_ns.min(to_unix_ns).saturating_sub(self.from_unix_ns.max(from_unix_ns))
    }
}

/// A call that the fault made longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affected {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// Additional time, if known by construction.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_ns: Option<u64>,
}

/// A condition that must hold if the fault acted as intended (or, for a near miss, if it did not), measured by
/// an instrument of the scenario's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Measured quantity, with its unit.
    pub what: String,
    pub measured: f64,
    /// Expectation: `at least 5`.
    pub expected: String,
    /// Whether it holds.
    pub holds: bool,
}

/// What a scenario reports about its run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultReport {
    /// When the fault was present; empty if never.
    pub active: Vec<Active>,
    /// Affected calls.
    pub affected: Vec<Affected>,
    /// How these calls were determined, in a sentence.
    pub affected_rule: String,
    /// Proof.
    pub claims: Vec<Claim>,
}

impl FaultReport {
    /// Adds the claim that a value is at least `least`.
    pub fn at_least(&mut self, what: impl Into<String>, measured: f64, least: f64) {
        let (what, expected, holds) = (what.into(), format!("at least {least}"), measured >= least);
        self.claims.push(Claim { what, measured, expected, holds });
    }

    /// Adds the claim that a value is at most `most`.
    pub fn at_most(&mut self, what: impl Into<String>, measured: f64, most: f64) {
        let (what, expected, holds) = (what.into(), format!("at most {most}"), measured <= most);
        self.claims.push(Claim { what, measured, expected, holds });
    }

    /// Whether all claims hold.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

/// `truth.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the scenario, without the ending of a near miss.
    pub scenario: String,
    /// Whether it is the near miss.
    pub near_miss: bool,
    /// Name of the cause; `none` when nothing was wrong.
    pub culprit: String,
    /// `client` or `server`, where the cause has a side.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<String>,
    /// Other correct answers.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub also_right: Vec<String>,
    /// Culprit that a near miss resembles.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub looks_like: Option<String>,
    /// Leg that the fault makes longer, or legs joined by `+`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leg: Option<String>,
    /// Implementation of the line between the hosts, if there was one instead of a cable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<LineKind>,
    /// Clocks of hosts that differ from this machine's, by which all times of this document are given.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clocks: Vec<HostClock>,
    /// When the fault was present.
    pub active: Vec<Active>,
    /// Affected calls.
    pub affected: Vec<Affected>,
    /// How these calls were determined.
    pub affected_rule: String,
    /// Whether every claim holds. A run whose fault did not act proves nothing.
    pub acted: bool,
    pub proof: Vec<Claim>,
    /// Every parameter of the scenario with its value.
    pub parameters: BTreeMap<String, String>,
    /// Seed of random choices.
    pub seed: u64,
    /// The exact command that repeats such a run.
    pub command: String,
    /// A second fault, in addition to the scenario's own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub second: Option<Second>,
    /// The machine's own effects on the run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beside: Option<MachineNoise>,
    /// What was drawn, for a run of `spangap lab grade --draw`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drawn: Option<DrawnRun>,
}

/// The machine's own effects on a run during the measured calls, according to kernel counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNoise {
    /// From the start of the first measured call to the end of the last.
    #[serde(default)]
    pub measured_ns: u64,
    /// Total run-queue wait of the client's threads.
    pub client_waited_ns: u64,
    /// Total run-queue wait of the server's threads.
    pub server_waited_ns: u64,
    /// The same for the program between the hosts, if packets go through one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line_waited_ns: Option<u64>,
    /// How long a CPU ran nothing of the run, for whatever reason.
    pub paused_ns: u64,
}

/// A second fault of a run. Its proof is part of the scenario's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Name of the cause.
    pub culprit: String,
    /// `client` or `server`.
    pub side: String,
    /// Leg that it makes longer, or legs joined by `+`.
    pub leg: String,
    /// When it was present.
    pub active: Vec<Active>,
    /// Affected calls.
    pub affected: Vec<Affected>,
}
