//! What runs show: statements about causes, each with the figures it rests on and what would refute it. Pure.
//!
//! Each rule asks first which innocent setup would look the same. A statement is *shown* when the figures exclude
//! the look-alikes that the rule names, with the intervals of the figures apart; otherwise it is *possible* and says
//! what would decide it. A rule whose figures are missing says nothing.

mod cpu;
mod idle;
mod nagle;
mod one_connection;
mod streams;
mod verdict;

use super::evidence::evidence;
use super::fields::{Field, Load};
use super::table::name_of;
use super::{Run, TankReport};
use serde::{Deserialize, Serialize};
use spangap_model::{Cause, Side};

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The figures exclude what else would look like it.
    Shown,
    /// The figures fit it, and something else as well.
    Possible,
}

/// What the runs show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinding {
    /// The cause.
    pub cause: Cause,
    /// The end that it is at, where it has one.
    pub side: Option<Side>,
    /// How sure it is.
    pub standing: Standing,
    /// One sentence in plain words.
    pub says: String,
    /// The figures that it rests on.
    pub rests_on: Vec<String>,
    /// What would refute it.
    pub cleared_by: String,
}

impl TankReport {
    /// Derives [`findings`](Self::findings), [`verdict`](Self::verdict) and [`evidence`](Self::evidence) anew from the runs.
    pub fn conclude(&mut self) {
        self.findings = of(&self.runs, self.noise.cpus);
        self.verdict = verdict::of(&self.runs, &self.findings);
        self.evidence = evidence(self);
    }
}

/// What these runs show, the most telling first. `cpus`: CPUs that the client could use.
pub fn of(runs: &[Run], cpus: u32) -> Vec<RunFinding> {
    let all = Runs { varying: Field::varying(runs), runs };
    let mut found = Vec::new();
    found.extend(nagle::find(&all));
    found.extend(streams::find(&all));
    found.extend(one_connection::find(&all));
    found.extend(cpu::find(&all, cpus));
    found.extend(idle::find(&all));
    // Stable: within a standing, rules stay in their order.
    found.sort_by_key(|finding| finding.standing);
    found
}

/// The runs of a report, and how they are told apart.
struct Runs<'a> {
    runs: &'a [Run],
    varying: Vec<Field>,
}

impl<'a> Runs<'a> {
    /// A run by what tells it from the others.
    fn name(&self, run: &Run) -> String {
        match self.runs.len() {
            1 => Load::of(&run.asked).to_string(),
            _ => name_of(run, &self.varying, true),
        }
    }

    /// Groups of runs that were asked the same but for the load and `but`, in the order in which they first ran.
    fn alike(&self, but: Option<Field>) -> Vec<Vec<&'a Run>> {
        let key = |run: &Run| -> Vec<String> {
            let fields = Field::ALL.into_iter().filter(|field| Some(*field) != but);
            fields.map(|field| field.of(&run.asked)).collect()
        };
        let mut groups: Vec<(Vec<String>, Vec<&Run>)> = Vec::new();
        for run in self.runs {
            let own = key(run);
            match groups.iter_mut().find(|(known, _)| *known == own) {
                Some((_, runs)) => runs.push(run),
                None => groups.push((own, vec![run])),
            }
        }
        groups.into_iter().map(|(_, runs)| runs).collect()
    }
}

/// Calls below which the median has no interval worth the name.
const FEW: u64 = 20;

/// Bounds of the median with 95 % confidence, in nanoseconds, from the ranks of the spectrum: they hold for any
/// distribution. `None` with fewer than [`FEW`] calls.
fn median_interval(run: &Run) -> Option<(u64, u64)> {
    interval_of(run, &run.spectrum)
}

fn interval_of(run: &Run, spectrum: &[(f64, u64)]) -> Option<(u64, u64)> {
    if run.ok < FEW {
        return None;
    }
    // Half the width of the interval of ranks, as a share: 1.96 standard deviations of a binomial with p = 1/2.
    let half = 0.98 / (run.ok as f64).sqrt();
    let low = spectrum.iter().rev().find(|(quantile, _)| *quantile <= 0.5 - half)?;
    let high = spectrum.iter().find(|(quantile, _)| *quantile >= 0.5 + half)?;
    Some((low.1, high.1))
}

/// The calls from their send on, at many quantiles: what tank's own machine was late by is not in it. In reports of earlier
/// versions, from when they were due.
fn from_send(run: &Run) -> &[(f64, u64)] {
    if run.spectrum_from_send.is_empty() { &run.spectrum } else { &run.spectrum_from_send }
}

/// `TCP_NODELAY` of all of the run's sockets as the kernel shows it; `None` when it is not known or not the same.
fn nodelay(run: &Run) -> Option<bool> {
    let sockets = run.sockets.as_ref()?;
    match (sockets.nodelay_on?, sockets.nodelay_off?) {
        (1.., 0) => Some(true),
        (0, 1..) => Some(false),
        _ => None,
    }
}

/// The median with its interval and the number of calls, in words.
fn median_in_words(run: &Run) -> String {
    use spangap_model::duration::format_ns;
    let p50 = run.latency.p50_ns.map_or_else(|| "n/a".into(), format_ns);
    match median_interval(run) {
        Some((low, high)) => {
            format!("p50 {p50} (95 % interval {} to {}, {} calls)", format_ns(low), format_ns(high), run.ok)
        }
        None => format!("p50 {p50} ({} calls)", run.ok),
    }
}

#[cfg(test)]
mod tests;
