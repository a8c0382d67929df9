//! Whether a plan holds, what it gained and what it cost: JSON and text.

use crate::verify::cost::Cost;
use crate::verify::effect::{EffectVerdict, Judgement};
use crate::verify::gain::Comparison;
use crate::verify::status::Status;
use serde::Serialize;
use spangap_report::figures::{counted, small_percent};
use spangap_report::times::ago;
use spangap_report::wrap::{NARROWEST, wrap_strictly};
use std::fmt::Write;

/// Results of a verification.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// Overall verdict.
    pub verdict: EffectVerdict,
    /// The verdict in a sentence.
    pub summary: String,
    /// Time between the two readings; `None` if there was only one.
    pub looked_s: Option<f64>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// State of the applied plan, by reading it back.
    pub status: Status,
    pub effect: Vec<Judgement>,
    pub cost: Cost,
    /// Gain; `None` if not measured.
    pub gain: Option<Comparison>,
    /// How to measure the gain.
    pub gain_missing: Option<String>,
    /// Files that could not be read.
    pub unknown: Vec<String>,
}

/// Verdict from the effects and the values read back.
pub fn verdict(status: &Status, effect: &[Judgement]) -> EffectVerdict {
    let any = |verdict| effect.iter().any(|judgement| judgement.verdict == verdict);
    if any(EffectVerdict::DoesNotHold) || status.drifted() {
        EffectVerdict::DoesNotHold
    } else if any(EffectVerdict::Holds) {
        EffectVerdict::Holds
    } else {
        EffectVerdict::CannotTell
    }
}

/// The verdict in a sentence.
fn sentence(verdict: EffectVerdict, status: &Status, effect: &[Judgement]) -> String {
    let of = |verdict| effect.iter().filter(move |judgement| judgement.verdict == verdict);
    let name = |judgement: &Judgement| match &judgement.of {
        Some(interface) => format!("{} of {interface}", judgement.what),
        None => judgement.what.to_owned(),
    };
    let (held, all) = status.held();
    let mut unsure: Vec<String> = of(EffectVerdict::CannotTell).map(name).collect();
    unsure.dedup();
    let unsure = match unsure.is_empty() {
        true => String::new(),
        false => format!("; cannot be told: {}", unsure.join(", ")),
    };
    match verdict {
        EffectVerdict::DoesNotHold => {
            let mut why: Vec<String> = of(EffectVerdict::DoesNotHold)
                .map(|judgement| format!("{}: {}", name(judgement), judgement.summary))
                .collect();
            if !status.drift.is_empty() {
                let drifted = counted(status.drift.len(), "value");
                let mut who: Vec<String> = status.drift.iter().map(|drift| drift.who_words()).collect();
                who.sort_unstable();
                who.dedup();
                why.push(format!("{drifted} no longer as written ({})", who.join(", ")));
            }
            if !status.came.is_empty() {
                why.push(format!("{} new with CPUs of the network", counted(status.came.len(), "cgroup")));
            }
            format!("Does not hold: {}{unsure}.", why.join("; "))
        }
        EffectVerdict::Holds if unsure.is_empty() => {
            format!("Holds: {held} of {all} values as written, with the intended effect.")
        }
        EffectVerdict::Holds => {
            format!("Holds as far as can be determined: {held} of {all} values as written{unsure}.")
        }
        EffectVerdict::CannotTell | EffectVerdict::Remark => {
            let one = effect.iter().all(|judgement| judgement.what == "effect");
            let unsure = if one { "" } else { &unsure };
            format!("Effect unknown: {held} of {all} values as written{unsure}.")
        }
    }
}

impl VerifyReport {
    /// Assembles the report.
    pub fn new(status: Status, effect: Vec<Judgement>, cost: Cost) -> VerifyReport {
        let verdict = verdict(&status, &effect);
        VerifyReport {
            verdict,
            summary: sentence(verdict, &status, &effect),
            looked_s: cost.seconds,
            interrupted: false,
            status,
            effect,
            cost,
            gain: None,
            gain_missing: None,
            unknown: Vec::new(),
        }
    }

    /// As text for a terminal of `width` columns.
    pub fn text(&self, now_unix_ns: u64, width: usize) -> String {
        let width = width.max(NARROWEST);
        let mut text = String::new();
        wrap_strictly(&mut text, "", &self.summary, width);
        if let Some(then) = self.status.applied_unix_ns {
            let _ = writeln!(text, "Applied {}.", ago(then, now_unix_ns));
        }
        self.effect(&mut text, width);
        self.drift(&mut text, width);
        self.cost(&mut text, width);
        self.gain(&mut text, width);
        for finding in &self.cost.findings {
            let _ =
                writeln!(text, "\n{}{}", finding.finding, if finding.matters { "" } else { " (a remark)" });
            wrap_strictly(&mut text, "  ", &finding.summary, width);
            wrap_strictly(&mut text, "  ", &finding.help, width);
        }
        if !self.unknown.is_empty() {
            let _ = writeln!(text, "\nNot read");
        }
        for unknown in &self.unknown {
            wrap_strictly(&mut text, "  * ", unknown, width);
        }
        text
    }

    fn effect(&self, text: &mut String, width: usize) {
        let looked = match self.looked_s {
            Some(seconds) if self.interrupted => format!(", in {seconds:.1} s, cut short"),
            Some(seconds) => format!(", in {seconds:.1} s"),
            None => String::new(),
        };
        let _ = writeln!(text, "\nEffect{looked}");
        for judgement in &self.effect {
            let mark = match judgement.verdict {
                EffectVerdict::Holds => "holds",
                EffectVerdict::DoesNotHold => "DOES NOT",
                EffectVerdict::CannotTell => "can't tell",
                EffectVerdict::Remark => "",
            };
            let of = judgement.of.as_ref().map_or(String::new(), |of| format!(" {of}"));
            let head = format!("  {mark:<12}{:<18}", format!("{}{of}", judgement.what));
            wrap_strictly(text, &format!("{head} "), &judgement.summary, width);
            for line in &judgement.evidence {
                wrap_strictly(text, &format!("{:16}", ""), line, width);
            }
        }
    }

    fn drift(&self, text: &mut String, width: usize) {
        if self.status.drifted() {
            let _ = writeln!(text, "\nNo longer as written");
        }
        for drift in &self.status.drift {
            wrap_strictly(text, "  * ", &drift.words(), width);
        }
        for group in &self.status.came {
            wrap_strictly(text, "  * ", &format!("{group} is new, with CPUs of the network"), width);
        }
    }

    fn cost(&self, text: &mut String, width: usize) {
        let cost = &self.cost;
        let _ = writeln!(text, "\nCost");
        let (net, all) = (cost.net_cpus.len(), cost.cpus);
        let taken = match cost.taken {
            true => {
                let share = small_percent(cost.taken_ratio);
                format!("{net} of {all} CPUs are taken from applications ({share}): {}", cost.net_cpus)
            }
            false => format!(
                "no CPU is taken from applications: the plan has no cpusets, so they may still run on {}",
                cost.net_cpus.words()
            ),
        };
        wrap_strictly(text, "  ", &taken, width);
        if let (Some(busiest), Some(headroom)) = (&cost.busiest, cost.headroom_ratio) {
            let words = format!(
                "interrupts and softirqs keep the busiest, CPU {}, busy for {}: {} is left",
                busiest.cpu,
                busiest.words(),
                small_percent(headroom)
            );
            wrap_strictly(text, "  ", &words, width);
        }
        let loads = cost.load.iter().map(|cpu| format!("CPU {} {}", cpu.cpu, small_percent(cpu.busy_ratio)));
        if cost.load.len() > 1 {
            wrap_strictly(text, "  each: ", &loads.collect::<Vec<_>>().join(", "), width);
        }
        if let Some(apps) = cost.apps_busy_ratio {
            wrap_strictly(
                text,
                "  ",
                &format!("the CPUs of applications are busy {}", small_percent(apps)),
                width,
            );
        }
        for unknown in &cost.unknown {
            wrap_strictly(text, "  not known: ", unknown, width);
        }
    }

    fn gain(&self, text: &mut String, width: usize) {
        let _ = writeln!(text, "\nGain");
        if let Some(missing) = &self.gain_missing {
            wrap_strictly(text, "  ", missing, width);
        }
        let Some(comparison) = &self.gain else { return };
        for gain in &comparison.gains {
            let runs = |runs: usize, calls: u64| match runs {
                1 => counted(calls as usize, "call"),
                _ => format!("{} in {runs} runs", counted(calls as usize, "call")),
            };
            let (before, after) =
                (runs(gain.runs_before, gain.calls_before), runs(gain.runs_after, gain.calls_after));
            wrap_strictly(text, "  ", &format!("{} ({before} before, {after} after)", gain.of), width);
            for difference in &gain.figures {
                wrap_strictly(text, "    ", &difference.words, width);
            }
        }
        for (when, list) in [("before", &comparison.only_before), ("after", &comparison.only_after)] {
            for of in list {
                wrap_strictly(text, "  ", &format!("{of}: measured {when} only"), width);
            }
        }
        for caveat in &comparison.caveats {
            wrap_strictly(text, "  * ", caveat, width);
        }
    }
}

#[cfg(test)]
mod tests;
