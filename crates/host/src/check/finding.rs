//! The result of a trap's rule.

use super::FactError;
use spangap_model::Cause;

/// How much a trap is likely to cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It happens now, and often.
    High,
    /// It happens now.
    Medium,
    /// It can happen.
    Low,
}

impl Severity {
    /// All of them, the worst first.
    pub const ALL: [Severity; 3] = [Severity::High, Severity::Medium, Severity::Low];

    /// The name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        }
    }
}

/// Whether there is a trap. In the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// There is.
    Trap(Severity),
    /// What would show it cannot be read.
    CannotTell,
    /// There is none.
    Fine,
}

impl Verdict {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Trap(_) => "trap",
            Verdict::CannotTell => "cannot-tell",
            Verdict::Fine => "fine",
        }
    }
}

/// A figure, and the file that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// What the file says, with units.
    pub what: String,
    /// The file.
    pub path: String,
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The trap's name.
    pub trap: &'static str,
    /// What it does to calls.
    pub causes: &'static [Cause],
    /// Whether it is there.
    pub verdict: Verdict,
    /// What was found, or why it cannot be told, in one short sentence without a full stop.
    pub summary: String,
    /// The figures.
    pub evidence: Vec<Evidence>,
    /// What it means for calls; only of a trap.
    pub means: String,
    /// Commands that would mend it, with `#` before words for people. Never executed here.
    pub fix: Vec<String>,
    /// What could not be read although the verdict stands.
    pub unknown: Vec<String>,
    /// The cause whose happening was counted while it was looked; `None` where the trap is set and nothing more is known.
    pub counted: Option<Cause>,
    /// What the figures are of.
    pub whose: Whose,
}

/// What the figures of a finding are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Of the machine.
    Machine,
    /// Of the processes that are asked about, and of nobody else.
    Processes,
}

/// A finding in the making.
#[derive(Clone, Debug)]
pub struct Judged {
    verdict: Verdict,
    summary: String,
    evidence: Vec<Evidence>,
    means: String,
    fix: Vec<String>,
    unknown: Vec<String>,
    counted: Option<Cause>,
    whose: Whose,
}

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why(pub String);

impl From<&FactError> for Why {
    fn from(error: &FactError) -> Why {
        match error.closed() {
            Some(path) => Why(format!("this user may not read {path}: try as root")),
            None => Why(error.to_string()),
        }
    }
}

impl From<FactError> for Why {
    fn from(error: FactError) -> Why {
        Why::from(&error)
    }
}

impl From<&str> for Why {
    fn from(why: &str) -> Why {
        Why(why.to_owned())
    }
}

impl From<String> for Why {
    fn from(why: String) -> Why {
        Why(why)
    }
}

impl Judged {
    fn new(verdict: Verdict, summary: impl Into<String>) -> Judged {
        let summary = summary.into();
        Judged {
            verdict,
            summary,
            evidence: Vec::new(),
            means: String::new(),
            fix: Vec::new(),
            unknown: Vec::new(),
            counted: None,
            whose: Whose::Machine,
        }
    }

    /// There is no trap.
    pub fn fine(summary: impl Into<String>) -> Judged {
        Judged::new(Verdict::Fine, summary)
    }

    /// There is one.
    pub fn trap(severity: Severity, summary: impl Into<String>) -> Judged {
        Judged::new(Verdict::Trap(severity), summary)
    }

    /// A trap of this severity, or none.
    pub fn when(severity: Option<Severity>, summary: impl Into<String>) -> Judged {
        Judged::new(severity.map_or(Verdict::Fine, Verdict::Trap), summary)
    }

    /// Whether it is a trap.
    pub fn is_trap(&self) -> bool {
        matches!(self.verdict, Verdict::Trap(_))
    }

    /// Adds a figure.
    pub fn evidence(mut self, what: impl Into<String>, path: impl Into<String>) -> Judged {
        self.evidence.push(Evidence { what: what.into(), path: path.into() });
        self
    }

    /// Says what the trap means.
    pub fn means(mut self, means: impl Into<String>) -> Judged {
        self.means = means.into();
        self
    }

    /// Adds a command that would help.
    pub fn fix(mut self, fix: impl Into<String>) -> Judged {
        self.fix.push(fix.into());
        self
    }

    /// Adds something that could not be read.
    pub fn unknown(mut self, why: impl Into<Why>) -> Judged {
        let Why(why) = why.into();
        if !self.unknown.contains(&why) {
            self.unknown.push(why);
        }
        self
    }

    /// Says that this cause happened while it was looked, if it did: a counter of just that rose.
    pub fn counted(mut self, cause: Cause, rose: bool) -> Judged {
        self.counted = rose.then_some(cause);
        self
    }

    /// Says that the figures are those of the processes asked about alone.
    pub fn of_the_processes(mut self) -> Judged {
        self.whose = Whose::Processes;
        self
    }

    /// Gives it its trap's name. What is fine needs neither meaning nor remedy.
    pub fn of(self, trap: &'static str, causes: &'static [Cause]) -> Finding {
        let Judged { verdict, summary, evidence, means, fix, unknown, counted, whose } = self;
        let is_trap = matches!(verdict, Verdict::Trap(_));
        let (means, fix) = if is_trap { (means, fix) } else { Default::default() };
        Finding { trap, causes, verdict, summary, evidence, means, fix, unknown, counted, whose }
    }
}

/// No verdict.
pub fn cannot_tell(trap: &'static str, causes: &'static [Cause], why: &Why) -> Finding {
    Judged::new(Verdict::CannotTell, why.0.clone()).of(trap, causes)
}
