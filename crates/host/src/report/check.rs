//! `host check` as text and as JSON. Pure.

use crate::check::{self, Inspection, TrapFigure, TrapFinding, TrapVerdict};
use serde::Serialize;
use spangap_model::duration::format_ns;
use spangap_model::evidence::Testimony;
use spangap_report::figures::counted;
use spangap_report::wrap::wrap;
use std::fmt::Write as _;

/// Results of `host check`.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// The same as evidence, the common form of all instruments.
    pub evidence: Testimony,
    /// Time between the two readings; `None` if there was only one.
    pub looked_ns: Option<u64>,
    pub cpus_online: Option<String>,
    /// CPUs that the processes may use; all for the whole machine.
    pub cpus: Option<String>,
    /// Processes under inspection; empty for the whole machine.
    pub processes: Vec<ProcessJson>,
    /// Number of findings of each kind.
    pub counts: Counts,
    /// One finding per trap: present traps first, the worst first; then those without a verdict; then absent
    /// ones.
    pub findings: Vec<FindingJson>,
}

/// A process under inspection.
#[derive(Debug, Serialize)]
pub struct ProcessJson {
    pub pid: u32,
    pub comm: String,
    pub threads: usize,
    /// CPUs that at least one of its threads may run on.
    pub cpus: String,
}

/// Number of findings of each kind.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Present traps.
    pub trap: usize,
    /// Traps without a verdict.
    pub cannot_tell: usize,
    /// Absent traps.
    pub fine: usize,
}

#[derive(Debug, Serialize)]
pub struct FindingJson {
    pub trap: &'static str,
    /// `trap`, `cannot-tell`, `fine`.
    pub verdict: &'static str,
    /// `high`, `medium`, `low`; only for a present trap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<&'static str>,
    /// Causes of delay that it is known for, by the names that other verbs use.
    pub causes: Vec<&'static str>,
    /// The observation, or the reason why there is no verdict.
    pub summary: String,
    /// Supporting figures.
    pub evidence: Vec<EvidenceJson>,
    /// Consequence for calls; empty unless the trap is present.
    pub means: String,
    /// Commands that would fix it; lines beginning with `#` are comments.
    pub fix: Vec<String>,
    /// Files that could not be read, although the verdict stands.
    pub unknown: Vec<String>,
}

/// A figure and the file it comes from.
#[derive(Debug, Serialize)]
pub struct EvidenceJson {
    /// What the file says.
    pub what: String,
    /// The file.
    pub path: String,
}

impl CheckReport {
    /// Assembles the report.
    pub fn new(look: &Inspection, findings: &[TrapFinding]) -> CheckReport {
        let mut counts = Counts::default();
        for finding in findings {
            match finding.verdict {
                TrapVerdict::Trap(_) => counts.trap += 1,
                TrapVerdict::CannotTell => counts.cannot_tell += 1,
                TrapVerdict::Fine => counts.fine += 1,
            }
        }
        let processes = look.processes().map(|process| ProcessJson {
            pid: process.pid,
            comm: process.comm.clone(),
            threads: process.threads.len(),
            cpus: process.cpus().to_string(),
        });
        CheckReport {
            evidence: check::evidence(look, findings),
            looked_ns: look.seconds().ok().map(|seconds| (seconds * 1e9) as u64),
            cpus_online: look.online.as_ref().ok().map(ToString::to_string),
            cpus: look.cpus().ok().map(|cpus| cpus.to_string()),
            processes: processes.collect(),
            counts,
            findings: findings.iter().map(FindingJson::new).collect(),
        }
    }

    /// As text for a terminal of `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.heading());
        for finding in self.of("trap") {
            text.push('\n');
            trap(&mut text, finding, width);
        }
        let unknown = self.unknown();
        if !unknown.is_empty() {
            text += "\ncan't tell, because\n";
        }
        for (why, traps) in unknown {
            line(&mut text, &traps.join(", "), why, width);
        }
        if self.counts.fine > 0 {
            text += "\nfine\n";
        }
        let fine: Vec<String> =
            self.of("fine").map(|finding| format!("  {:<NAME$}{}", finding.trap, finding.summary)).collect();
        columns(&mut text, &fine, width);
        text
    }

    /// Reasons for a missing verdict with the traps they apply to, in order of appearance.
    fn unknown(&self) -> Vec<(&str, Vec<&'static str>)> {
        let mut all: Vec<(&str, Vec<&'static str>)> = Vec::new();
        for finding in self.of("cannot-tell").chain(self.of("fine")) {
            let whole = Some(&finding.summary).filter(|_| finding.verdict == "cannot-tell");
            for why in whole.into_iter().chain(&finding.unknown) {
                match all.iter_mut().find(|(same, _)| same == why) {
                    Some((_, traps)) => traps.push(finding.trap),
                    None => all.push((why, vec![finding.trap])),
                }
            }
        }
        all
    }

    fn of<'a>(&'a self, verdict: &'static str) -> impl Iterator<Item = &'a FindingJson> {
        self.findings.iter().filter(move |finding| finding.verdict == verdict)
    }

    fn heading(&self) -> String {
        let Counts { trap, cannot_tell, fine } = self.counts;
        let of: Vec<String> = self
            .processes
            .iter()
            .map(|process| {
                format!(
                    "{} ({}), {} on {}",
                    process.comm,
                    process.pid,
                    counted(process.threads, "thread"),
                    words(&process.cpus)
                )
            })
            .collect();
        let of = if of.is_empty() {
            format!("the whole machine, {}", words(self.cpus.as_deref().unwrap_or("unknown")))
        } else {
            of.join("; ")
        };
        let online = self
            .cpus_online
            .as_ref()
            .filter(|_| !self.processes.is_empty())
            .map_or(String::new(), |online| format!(" of {online}"));
        let looked = match self.looked_ns {
            Some(ns) => format!("looked at for {}", format_ns(ns)),
            None => "looked at once".to_owned(),
        };
        let traps = counted(trap, "trap");
        format!("{of}{online}; {looked}\n{traps}, {fine} fine, {cannot_tell} that can't be told")
    }
}

impl FindingJson {
    fn new(finding: &TrapFinding) -> FindingJson {
        let evidence =
            |TrapFigure { what, path }: &TrapFigure| EvidenceJson { what: what.clone(), path: path.clone() };
        FindingJson {
            trap: finding.trap,
            verdict: finding.verdict.name(),
            severity: if let TrapVerdict::Trap(severity) = finding.verdict {
                Some(severity.name())
            } else {
                None
            },
            causes: finding.causes.iter().map(|cause| cause.name()).collect(),
            summary: finding.summary.clone(),
            evidence: finding.evidence.iter().map(evidence).collect(),
            means: finding.means.clone(),
            fix: finding.fix.clone(),
            unknown: finding.unknown.clone(),
        }
    }
}

/// `CPU 3`, `CPUs 4-7`.
fn words(list: &str) -> String {
    format!("CPU{} {list}", if list.contains([',', '-']) { "s" } else { "" })
}

/// Indentation of a trap's details.
const INDENT: usize = 8;
/// Column width of trap names in lists.
const NAME: usize = 18;

fn trap(text: &mut String, finding: &FindingJson, width: usize) {
    let severity = finding.severity.unwrap_or_default().to_uppercase();
    wrap(text, &format!("{severity:<INDENT$}"), &format!("{}: {}", finding.trap, finding.summary), width);
    for EvidenceJson { what, path } in &finding.evidence {
        // The file stands at the right, where it does not distract.
        let room = width.saturating_sub(INDENT + 2 + what.chars().count() + path.chars().count());
        if room > 0 {
            let _ = writeln!(text, "{:INDENT$}{what}  {:room$}{path}", "", "", room = room - 1);
        } else {
            wrap(text, &" ".repeat(INDENT), &format!("{what} [{path}]"), width);
        }
    }
    wrap(text, &format!("{:<INDENT$}", "  means"), &finding.means, width);
    // Everything can be pasted: prose stands behind `#`, and commands are not wrapped.
    for (at, fix) in finding.fix.iter().enumerate() {
        let head = format!("{:<INDENT$}", if at == 0 { "  fix" } else { "" });
        match fix.strip_prefix("# ") {
            Some(words) => {
                let mut wrapped = String::new();
                wrap(&mut wrapped, "", words, width.saturating_sub(INDENT + 2));
                for (at, line) in wrapped.lines().enumerate() {
                    let _ =
                        writeln!(text, "{}# {line}", if at == 0 { head.clone() } else { " ".repeat(INDENT) });
                }
            }
            None => {
                let _ = writeln!(text, "{head}{fix}");
            }
        }
    }
    for why in &finding.unknown {
        wrap(text, &format!("{:<INDENT$}", ""), &format!("not seen: {why}"), width);
    }
}

fn line(text: &mut String, name: &str, what: &str, width: usize) {
    let head = format!("  {name:<NAME$}");
    if name.len() < NAME {
        wrap(text, &head, what, width);
    } else {
        wrap(text, "  ", &format!("{name}:"), width);
        wrap(text, &format!("  {:NAME$}", ""), what, width);
    }
}

/// Prints lines in two columns where they fit, longer ones on their own.
fn columns(text: &mut String, lines: &[String], width: usize) {
    let half = width / 2;
    let (short, long): (Vec<&String>, Vec<&String>) =
        lines.iter().partition(|line| line.chars().count() < half);
    for line in long {
        let (name, what) = line.split_at(2 + NAME);
        wrap(text, name, what, width);
    }
    for pair in short.chunks(2) {
        let _ = match pair {
            [left, right] => writeln!(text, "{left:<half$}{right}"),
            _ => writeln!(text, "{}", pair[0]),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_share_a_row() {
        let mut text = String::new();
        let name = |name: &str| format!("  {name:<NAME$}");
        columns(
            &mut text,
            &[name("a") + "1", name("b") + "one two three four five six", name("c") + "3"],
            44,
        );
        let left = name("a") + "1";
        assert_eq!(
            text,
            format!("{}one two three four five\n{:20}six\n{left:<22}{}3\n", name("b"), "", name("c"))
        );
    }
}
