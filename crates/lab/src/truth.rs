//! What was the matter in a run, as its scenario knows it by construction.

use crate::clocks::HostClock;
use crate::draw::Drawn;
use crate::hosts::line::Made;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A stretch of time, nanoseconds since 1970 by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// Beginning.
    pub from_unix_ns: u64,
    /// End.
    pub to_unix_ns: u64,
}

impl Active {
    /// How long it is, nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_unix_ns.saturating_sub(self.from_unix_ns)
    }

    /// How much of another stretch it covers, nanoseconds.
    pub fn overlap_ns(&self, from_unix_ns: u64, to_unix_ns: u64) -> u64 {
        self.to_unix_ns.min(to_unix_ns).saturating_sub(self.from_unix_ns.max(from_unix_ns))
    }
}

/// A call that the fault made longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Affected {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// By how much, where that is known by construction.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost_ns: Option<u64>,
}

/// Something that has to hold if the fault did what it was made for (or, of a near miss, if it did not), measured by an
/// instrument of the scenario's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What was measured, with its unit.
    pub what: String,
    /// What came out.
    pub measured: f64,
    /// What was to come out: `at least 5`.
    pub expected: String,
    /// Whether it did.
    pub holds: bool,
}

/// What a scenario tells of a run that it made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Acted {
    /// When the fault was there. Empty: it was not.
    pub active: Vec<Active>,
    /// Calls that it made longer.
    pub affected: Vec<Affected>,
    /// How it is known which calls those are, in a sentence.
    pub affected_rule: String,
    /// What proves it.
    pub claims: Vec<Claim>,
}

impl Acted {
    /// Claims that something came out as `least` or more.
    pub fn at_least(&mut self, what: impl Into<String>, measured: f64, least: f64) {
        let (what, expected, holds) = (what.into(), format!("at least {least}"), measured >= least);
        self.claims.push(Claim { what, measured, expected, holds });
    }

    /// Claims that something came out as `most` or less.
    pub fn at_most(&mut self, what: impl Into<String>, measured: f64, most: f64) {
        let (what, expected, holds) = (what.into(), format!("at most {most}"), measured <= most);
        self.claims.push(Claim { what, measured, expected, holds });
    }

    /// Whether all that was claimed holds.
    pub fn holds(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds)
    }
}

/// `truth.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Name of the scenario, without the ending of a near miss.
    pub scenario: String,
    /// Whether it is the scenario's near miss.
    pub near_miss: bool,
    /// Name of the cause; `none` when nothing was wrong.
    pub culprit: String,
    /// `client` or `server`, where the cause has a side.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<String>,
    /// Other names that are right, too.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub also_right: Vec<String>,
    /// What a near miss looks like and is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub looks_like: Option<String>,
    /// Leg of the call that the fault makes longer, or legs joined by `+`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leg: Option<String>,
    /// What the line between the hosts was made of, where there was one and not a cable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line: Option<Made>,
    /// Clocks of hosts that are not this machine's. All times of this document are by this machine's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clocks: Vec<HostClock>,
    /// When it was there.
    pub active: Vec<Active>,
    /// Calls that it made longer.
    pub affected: Vec<Affected>,
    /// How it is known which those are.
    pub affected_rule: String,
    /// Whether every claim holds. A run whose fault did not act proves nothing.
    pub acted: bool,
    /// What proves it.
    pub proof: Vec<Claim>,
    /// Every parameter of the scenario with its value.
    pub parameters: BTreeMap<String, String>,
    /// Seed of whatever was left to chance.
    pub seed: u64,
    /// The exact command that makes such a run.
    pub command: String,
    /// A second fault of the run, beside the scenario's own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub second: Option<Second>,
    /// What the machine itself did to the run, whatever was wrong in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub beside: Option<Beside>,
    /// What was drawn, of a run of `spangap lab grade --draw`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drawn: Option<Drawn>,
}

/// What the machine itself did to a run while calls were measured, by the kernel's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// From the start of the first measured call to the end of the last.
    #[serde(default)]
    pub measured_ns: u64,
    /// How long the client's threads waited for a CPU while they could run, all together.
    pub client_waited_ns: u64,
    /// The same of the server's.
    pub server_waited_ns: u64,
    /// The same of the program between the hosts, where packets go through one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub line_waited_ns: Option<u64>,
    /// How long a CPU ran nothing of the run, whoever had asked for it.
    pub paused_ns: u64,
}

/// A second fault of a run. What proves it stands with the proof of the scenario's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Name of the cause.
    pub culprit: String,
    /// `client` or `server`.
    pub side: String,
    /// Leg of the call that it makes longer, or legs joined by `+`.
    pub leg: String,
    /// When it was there.
    pub active: Vec<Active>,
    /// Calls that it made longer.
    pub affected: Vec<Affected>,
}
