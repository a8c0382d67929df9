//! Findings: statements about causes, each with the figures that support it and what would refute it. Pure.
//!
//! Each rule first excludes innocent setups that look the same. A finding is *shown* if the figures exclude the
//! look-alikes named in the rule, with disjoint intervals; otherwise it is *possible* and says what would
//! decide it. A rule without its figures yields nothing.

mod cpu;
mod idle;
mod nagle;
mod one_connection;
mod streams;
pub(super) mod verdict;

use super::Run;
use super::fields::{Field, Load, name_of};
use serde::{Deserialize, Serialize};
use spangap_model::{Cause, Side};

/// Certainty of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// The figures exclude all look-alikes.
    Shown,
    /// The figures also fit a look-alike.
    Possible,
}

/// A finding of the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFinding {
    /// Cause.
    pub cause: Cause,
    /// Side, if it has one.
    pub side: Option<Side>,
    /// Certainty.
    pub standing: Standing,
    /// Statement in one sentence.
    pub says: String,
    /// Supporting figures.
    pub rests_on: Vec<String>,
    /// Refuting observation.
    pub cleared_by: String,
}

/// Findings of these runs, the strongest first. `cpus`: CPUs that the client may use.
pub fn of(runs: &[Run], cpus: u32) -> Vec<RunFinding> {
    let all = Runs { varying: Field::varying(runs), runs };
    let mut found = Vec::new();
    found.extend(nagle::find(&all));
    found.extend(streams::find(&all));
    found.extend(one_connection::find(&all));
    found.extend(cpu::find(&all, cpus));
    found.extend(idle::find(&all));
    // Stable: findings of equal certainty stay in the order of the rules.
    found.sort_by_key(|finding| finding.standing);
    found
}

/// Runs of a report, and the fields that distinguish them.
struct Runs<'a> {
    runs: &'a [Run],
    varying: Vec<Field>,
}

impl<'a> Runs<'a> {
    /// Name of a run, made of its distinguishing fields.
    fn name(&self, run: &Run) -> String {
        match self.runs.len() {
            1 => Load::of(&run.asked).to_string(),
            _ => name_of(run, &self.varying, true),
        }
    }

    /// Groups of runs with equal settings except for the load and `but`, in the order in which they first ran.
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

/// With fewer calls, the interval of the median is too wide to use.
const FEW: u64 = 20;

/// 95 % confidence interval of the median in nanoseconds, from the ranks of the spectrum: valid for any
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

/// Latency from the send, at many quantiles: excludes the lateness of tank's own machine. In reports of earlier
/// versions, latency from the due time.
fn from_send(run: &Run) -> &[(f64, u64)] {
    if run.spectrum_from_send.is_empty() { &run.spectrum } else { &run.spectrum_from_send }
}

/// `TCP_NODELAY` of all sockets of the run, as shown by the kernel; `None` if unknown or mixed.
fn nodelay(run: &Run) -> Option<bool> {
    let sockets = run.sockets.as_ref()?;
    match (sockets.nodelay_on?, sockets.nodelay_off?) {
        (1.., 0) => Some(true),
        (0, 1..) => Some(false),
        _ => None,
    }
}

/// The median, its interval and the number of calls, in words.
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
