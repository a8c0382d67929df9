//! Result of a trap's rule.

use super::FactError;
use spangap_model::Cause;

/// Expected cost of a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It takes effect now, and often.
    High,
    /// It takes effect now.
    Medium,
    /// It could take effect.
    Low,
}

impl Severity {
    /// All severities, the worst first.
    pub const ALL: [Severity; 3] = [Severity::High, Severity::Medium, Severity::Low];

    /// Name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        }
    }
}

/// Whether the trap is present. Ordered as reports list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrapVerdict {
    /// The trap is present.
    Trap(Severity),
    /// The files that would show it cannot be read.
    CannotTell,
    /// The trap is absent.
    Fine,
}

impl TrapVerdict {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            TrapVerdict::Trap(_) => "trap",
            TrapVerdict::CannotTell => "cannot-tell",
            TrapVerdict::Fine => "fine",
        }
    }
}

/// A figure and the file it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapFigure {
    /// What the file says, with units.
    pub what: String,
    /// Path of the file.
    pub path: String,
}

/// Result of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapFinding {
    pub trap: &'static str,
    /// Causes of delay that the trap is known for.
    pub causes: &'static [Cause],
    /// Whether the trap is present.
    pub verdict: TrapVerdict,
    /// The observation, or the reason why there is no verdict: one short sentence without a full stop.
    pub summary: String,
    /// Figures that support the verdict.
    pub evidence: Vec<TrapFigure>,
    /// Consequence for calls; only for a present trap.
    pub means: String,
    /// Commands that would fix it, with comments behind `#`. Never executed here.
    pub fix: Vec<String>,
    /// Files that could not be read, although the verdict stands.
    pub unknown: Vec<String>,
    /// The cause whose own counter rose between the readings; `None` if only the setting is known.
    pub counted: Option<Cause>,
    /// Subject of the figures.
    pub whose: Subject,
}

/// Subject of a finding's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole machine.
    Machine,
    /// Only the processes under inspection.
    Processes,
}

/// A finding under construction.
#[derive(Clone, Debug)]
pub struct FindingDraft {
    verdict: TrapVerdict,
    summary: String,
    evidence: Vec<TrapFigure>,
    means: String,
    fix: Vec<String>,
    unknown: Vec<String>,
    counted: Option<Cause>,
    whose: Subject,
}

/// Reason why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoVerdict(pub String);

impl From<&FactError> for NoVerdict {
    fn from(error: &FactError) -> NoVerdict {
        match error.closed() {
            Some(path) => NoVerdict(format!("this user may not read {path}: try as root")),
            None => NoVerdict(error.to_string()),
        }
    }
}

impl From<FactError> for NoVerdict {
    fn from(error: FactError) -> NoVerdict {
        NoVerdict::from(&error)
    }
}

impl From<&str> for NoVerdict {
    fn from(why: &str) -> NoVerdict {
        NoVerdict(why.to_owned())
    }
}

impl From<String> for NoVerdict {
    fn from(why: String) -> NoVerdict {
        NoVerdict(why)
    }
}

impl FindingDraft {
    fn new(verdict: TrapVerdict, summary: impl Into<String>) -> FindingDraft {
        let summary = summary.into();
        FindingDraft {
            verdict,
            summary,
            evidence: Vec::new(),
            means: String::new(),
            fix: Vec::new(),
            unknown: Vec::new(),
            counted: None,
            whose: Subject::Machine,
        }
    }

    /// The trap is absent.
    pub fn fine(summary: impl Into<String>) -> FindingDraft {
        FindingDraft::new(TrapVerdict::Fine, summary)
    }

    /// The trap is present.
    pub fn trap(severity: Severity, summary: impl Into<String>) -> FindingDraft {
        FindingDraft::new(TrapVerdict::Trap(severity), summary)
    }

    /// A trap of this severity, or none.
    pub fn when(severity: Option<Severity>, summary: impl Into<String>) -> FindingDraft {
        FindingDraft::new(severity.map_or(TrapVerdict::Fine, TrapVerdict::Trap), summary)
    }

    /// Whether the trap is present.
    pub fn is_trap(&self) -> bool {
        matches!(self.verdict, TrapVerdict::Trap(_))
    }

    /// Adds a supporting figure.
    pub fn evidence(mut self, what: impl Into<String>, path: impl Into<String>) -> FindingDraft {
        self.evidence.push(TrapFigure { what: what.into(), path: path.into() });
        self
    }

    /// Sets the consequence for calls.
    pub fn means(mut self, means: impl Into<String>) -> FindingDraft {
        self.means = means.into();
        self
    }

    /// Adds a command that would help.
    pub fn fix(mut self, fix: impl Into<String>) -> FindingDraft {
        self.fix.push(fix.into());
        self
    }

    /// Adds a file that could not be read.
    pub fn unknown(mut self, why: impl Into<NoVerdict>) -> FindingDraft {
        let NoVerdict(why) = why.into();
        if !self.unknown.contains(&why) {
            self.unknown.push(why);
        }
        self
    }

    /// Records that this cause took effect between the readings, if its own counter rose.
    pub fn counted(mut self, cause: Cause, rose: bool) -> FindingDraft {
        self.counted = rose.then_some(cause);
        self
    }

    /// Restricts the figures to the processes under inspection.
    pub fn of_the_processes(mut self) -> FindingDraft {
        self.whose = Subject::Processes;
        self
    }

    /// Completes the finding with the trap's name. An absent trap needs neither consequence nor fix.
    pub fn of(self, trap: &'static str, causes: &'static [Cause]) -> TrapFinding {
        let FindingDraft { verdict, summary, evidence, means, fix, unknown, counted, whose } = self;
        let is_trap = matches!(verdict, TrapVerdict::Trap(_));
        let (means, fix) = if is_trap { (means, fix) } else { Default::default() };
        TrapFinding { trap, causes, verdict, summary, evidence, means, fix, unknown, counted, whose }
    }
}

/// A finding without a verdict.
pub fn cannot_tell(trap: &'static str, causes: &'static [Cause], why: &NoVerdict) -> TrapFinding {
    FindingDraft::new(TrapVerdict::CannotTell, why.0.clone()).of(trap, causes)
}
