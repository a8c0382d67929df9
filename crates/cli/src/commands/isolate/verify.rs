//! `spangap isolate verify`: whether an applied plan holds, and what it achieves.

use super::folder::{WhereArgs, damaged};
use super::status::{look, not_here, wait};
use super::{now_unix_ns, print_json, print_text};
use crate::Outcome;
use crate::output::width;
use crate::signals::{self, ASKED};
use crate::values::{Duration, wrong_usage};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spangap_isolate::journal::Head;
use spangap_isolate::kernel::Live;
use spangap_isolate::report::verify::VerifyReport;
use spangap_isolate::topology::Topology;
use spangap_isolate::verify::cost::cost;
use spangap_isolate::verify::counter_deltas::CounterDeltas;
use spangap_isolate::verify::effect::{self, EffectInput, EffectVerdict};
use spangap_isolate::verify::gain::{Comparison, compare};
use spangap_isolate::verify::proof::{self, Proof};
use spangap_isolate::verify::status::Applied;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

const EXAMPLES: &str = "\
Examples:
  spangap isolate verify
      exit with 0 if the plan holds, or nothing contradicts it; with 3 if it does not hold
  spangap isolate apply PLAN.json --confirm-within 60s && spangap isolate verify --fail-on any && spangap isolate confirm
      keep it only if nothing at all is found; `confirm` alone also verifies, and refuses a plan that does not hold
  spangap isolate verify --for 10s --json
      as one JSON document, with counters watched for 10 s: under load, or there is nothing to see
  spangap gaps after.otlp.json --json > after.json && spangap isolate verify --after after.json
      also the gain, against what `plan --before before.json` recorded

Reads everything back, watches interrupts, softirqs and load on every CPU for a while, and says what holds,
what does not, and what cannot be determined. The cost is the CPUs taken from applications, and how busy the
network's CPUs are. A gain is claimed only if the 95 % intervals of before and after do not overlap. Changes
nothing.

--fail-on: effect (something does not hold), drift (a value has changed since, or a cgroup is new), headroom
(too few CPUs for the network), any (any of these, or another finding that matters), never (exit code 0
whatever is found). What cannot be determined (no packet arrived while watching) is not a failure. Exit code 1
means that it could not read, or that nothing is applied.";

/// Check whether an applied plan still holds, what it achieves and what it costs
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    #[command(flatten)]
    place: WhereArgs,
    /// How long to watch counters; Ctrl-C ends it early
    #[arg(long = "for", value_name = "DURATION", default_value = "2s")]
    watch: Duration,
    /// How long calls take now: a document of `gaps --json` or `tank --json`
    #[arg(long, value_name = "FILE")]
    after: Option<PathBuf>,
    /// How long calls took before: a document of the same kind [default: what the plan was given]
    #[arg(long, value_name = "FILE", requires = "after")]
    before: Option<PathBuf>,
    /// Exit with 3 if this is found
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "effect,drift")]
    fail_on: Vec<FailOn>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Conditions for exit code 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    Effect,
    Headroom,
    Drift,
    Any,
    Never,
}

impl FailOn {
    fn is_met(self, report: &VerifyReport) -> bool {
        let effect = || report.effect.iter().any(|judgement| judgement.verdict == EffectVerdict::DoesNotHold);
        let drift = || report.status.drifted();
        let findings = &report.cost.findings;
        match self {
            FailOn::Effect => effect(),
            FailOn::Headroom => findings.iter().any(|found| found.finding == "too-few-net-cpus"),
            FailOn::Drift => drift(),
            FailOn::Any => effect() || drift() || findings.iter().any(|found| found.matters),
            FailOn::Never => false,
        }
    }
}

/// Reads twice, judges, and prints.
pub fn run(args: VerifyArgs) -> anyhow::Result<Outcome> {
    if args.fail_on.len() > 1 && args.fail_on.contains(&FailOn::Never) {
        return Err(wrong_usage("--fail-on never: expected nothing else beside it").into());
    }
    let after = args.after.as_deref().map(|path| measured("--after", path)).transpose()?;
    let before = args.before.as_deref().map(|path| measured("--before", path)).transpose()?;
    // From here on, Ctrl-C only ends the wait.
    let stop = signals::flag(ASKED)?;
    let Observation { mut report, head } = observe(&args.place, args.watch, &stop)?;
    let kept = head.plan.before.as_ref().map(proof::read).transpose();
    match gain(before.or(kept.context("what the plan got as --before")?), after) {
        Ok(gain) => report.gain = Some(gain),
        Err(missing) => report.gain_missing = Some(missing.to_owned()),
    }
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&report.text(now_unix_ns(), width(100, 160)))?;
    }
    let found = args.fail_on.iter().any(|what| what.is_met(&report));
    Ok(if found { Outcome::Found } else { Outcome::Done })
}

/// Result of observing an applied plan.
pub struct Observation {
    /// Everything except the gain.
    pub report: VerifyReport,
    /// Head of the observed plan's journal.
    pub head: Head,
}

/// Reads everything back, observes counters for a while, and judges. Fails if no plan is applied, or it is not
/// visible.
pub fn observe(place: &WhereArgs, time: Duration, stop: &AtomicBool) -> anyhow::Result<Observation> {
    let first = look(place)?;
    let Some((journal, live, earlier)) = first.open else {
        bail!("nothing is applied: there is nothing to verify")
    };
    match first.status.state {
        Applied::AnotherBoot => {
            bail!("it was applied before this machine's last boot: nothing of it is left")
        }
        Applied::Unfinished => bail!("apply did not finish: `spangap isolate rollback` first"),
        Applied::RolledBack => bail!("it was undone: there is nothing to verify"),
        Applied::Nothing | Applied::Waiting | Applied::Applied | Applied::Confirmed => {}
    }
    if !journal.is_whole() {
        let path = first.status.journal.unwrap_or_default();
        bail!("{}: `spangap isolate rollback` first", damaged(&path, &journal));
    }
    if let Some(elsewhere) = &first.elsewhere {
        bail!("{}", not_here(elsewhere));
    }
    let interrupted = live.copied_to().is_none() && !watch(time, stop);
    let (earlier, later) = match live.copied_to() {
        Some(root) => copies(root),
        None => (Some(earlier), None),
    };
    // The journal after the wait: the plan may have been undone in the meantime.
    let second = look(place)?;
    let Some((_, _, now)) = second.open.filter(|(again, ..)| again.head == journal.head) else {
        bail!("it was undone while it was being verified");
    };
    let now = later.unwrap_or(now);
    let since = CounterDeltas::new(earlier.as_ref(), &now);
    let plan = &journal.head.plan;
    let effect = effect::judge(&EffectInput { plan, now: &now, since: &since });
    let mut report = VerifyReport::new(second.status, effect, cost(plan, &since));
    report.interrupted = interrupted;
    report.unknown = now.unknown.iter().map(ToString::to_string).collect();
    Ok(Observation { report, head: journal.head })
}

/// Comparison of both measurements, or how to obtain the missing one.
fn gain(before: Option<Proof>, after: Option<Proof>) -> Result<Comparison, &'static str> {
    match (before, after) {
        (Some(before), Some(after)) => Ok(compare(&before, &after)),
        (Some(_), None) => {
            Err("not measured: measure again as before, and pass the result (`verify --after FILE`)")
        }
        (None, Some(_)) => Err(
            "nothing to compare with: the plan was made without a measurement (`plan --before FILE`); `verify --before FILE` \
             names one",
        ),
        (None, None) => Err(
            "not measured: `spangap gaps SPANS --json` or `spangap tank HOST:PORT --json`, once before (`plan --before FILE`) \
             and once after (`verify --after FILE`)",
        ),
    }
}

fn measured(flag: &str, path: &Path) -> anyhow::Result<Proof> {
    let text = fs::read_to_string(path)
        .map_err(|error| wrong_usage(format!("{flag} {}: {error}", path.display())))?;
    proof::parse(&text).with_context(|| format!("{flag} {}", path.display()))
}

/// Two readings saved as a copy, in its folders `before` and `after`; without these it has a single one.
fn copies(root: &Path) -> (Option<Topology>, Option<Topology>) {
    let (before, after) = (root.join("before"), root.join("after"));
    if !before.join("proc").is_dir() || !after.join("proc").is_dir() {
        return (None, None);
    }
    (Some(Live::copy(before).topology()), Some(Live::copy(after).topology()))
}

/// Waits with a progress bar on a terminal; `false` if Ctrl-C came.
fn watch(time: Duration, stop: &AtomicBool) -> bool {
    const STEPS: u32 = 50;
    if !io::stderr().is_terminal() {
        return wait(time.std(), stop);
    }
    let style =
        ProgressStyle::with_template("{msg} {wide_bar}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar =
        ProgressBar::with_draw_target(Some(STEPS.into()), ProgressDrawTarget::stderr()).with_style(style);
    bar.set_message("looking");
    for _ in 0..STEPS {
        wait(time.std() / STEPS, stop);
        bar.inc(1);
    }
    bar.finish_and_clear();
    !stop.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_sockets_are_reported() {
        let none = || Proof { proof: proof::Source::Tank, measured: Vec::new() };
        assert!(gain(None, None).unwrap_err().contains("plan --before FILE"));
        assert!(gain(Some(none()), None).unwrap_err().contains("verify --after FILE"));
        assert!(gain(None, Some(none())).unwrap_err().contains("verify --before FILE"));
        assert!(gain(Some(none()), Some(none())).is_ok());
    }
}
