//! What the page of thieves shows: every sentence and figure in words, and what is drawn. The page itself is built from
//! `web/src/report/`; a document of this shape stands in it.

use super::picture::{caption, class_of, longest, title};
use super::text::{did_rows, looked_at, name, time, who};
use super::words::cpu_list;
use super::{TakerReport, ThievesReport, WindowReport};
use serde::Serialize;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_report::figures::percent_of;

/// Takers shown; all are in the JSON of `--json`.
const TAKERS: usize = 50;

/// The page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThievesPage {
    /// Title of the document.
    pub title: String,
    /// Whose threads, for how long, how many events.
    pub facts: String,
    /// What it means, the first one first.
    pub conclusions: Vec<String>,
    /// What all threads did together.
    pub did: Vec<DidPage>,
    /// Who had the CPU while they wanted one.
    pub takers: Vec<TakerPage>,
    /// How many more takers there are, and what they took together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_takers: Option<String>,
    /// The worst stretches of time.
    pub windows: Vec<WindowPage>,
    /// What the figures cannot tell.
    pub notes: Vec<String>,
    /// What the looking cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
}

/// A part of what threads did.
#[derive(Clone, Debug, Serialize)]
pub struct DidPage {
    /// What, as the colours are named.
    pub doing: &'static str,
    /// In words.
    pub words: &'static str,
    /// How long.
    pub time: String,
    /// Of all time.
    pub share: f64,
    /// The same in words.
    pub of_all: String,
    /// Of the time in which a CPU was wanted, where it is part of that.
    pub of_wanted: String,
}

/// One that had a CPU.
#[derive(Clone, Debug, Serialize)]
pub struct TakerPage {
    /// Its name, with its cgroup.
    pub name: String,
    /// What it is to blame for, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blamed_for: Option<&'static str>,
    /// What it took, as a share of what was wanted.
    pub share: f64,
    /// The same in words.
    pub of_wanted: String,
    /// What it took.
    pub time: String,
    /// How often.
    pub count: String,
    /// The most at once.
    pub longest: String,
    /// While a thread waited.
    pub waited: String,
    /// While a thread nominally ran.
    pub ran: String,
    /// On which CPUs.
    pub cpus: String,
}

/// A stretch of time of one thread.
#[derive(Clone, Debug, Serialize)]
pub struct WindowPage {
    /// Whose, when, for how long.
    pub words: String,
    /// Who had its CPU longest.
    pub longest: String,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// What the thread did, in order.
    pub pieces: Vec<PiecePage>,
}

/// What a thread did for a while.
#[derive(Clone, Debug, Serialize)]
pub struct PiecePage {
    /// What, as the colours are named.
    pub doing: &'static str,
    /// Nanoseconds from the begin of the window.
    pub from_ns: u64,
    /// Nanoseconds.
    pub ns: u64,
    /// Who had the CPU, or what the thread waited for.
    pub who: String,
}

impl ThievesPage {
    /// What is shown of a report.
    pub fn new(report: &ThievesReport) -> ThievesPage {
        let rest = report.takers.get(TAKERS..).unwrap_or_default();
        let more_takers = (!rest.is_empty()).then(|| {
            let rest_ns = rest.iter().map(|taker| taker.total_ns).sum();
            format!("and {} more with {} together; --json has them", rest.len(), format_ns(rest_ns))
        });
        ThievesPage {
            title: title(report),
            facts: looked_at(report),
            conclusions: report.conclusions.clone(),
            did: did(report),
            takers: report.takers.iter().take(TAKERS).map(|one| taker(report, one)).collect(),
            more_takers,
            windows: report.windows.iter().map(window).collect(),
            notes: report.notes.clone(),
            cost: report.cost.as_ref().map(|cost| format!("Measurement overhead: {cost}.")),
        }
    }
}

fn did(report: &ThievesReport) -> Vec<DidPage> {
    if report.threads.is_empty() {
        return Vec::new();
    }
    let all_ns = report.did.sum_ns;
    let row = |row: super::text::DidRow| DidPage {
        doing: row.doing,
        words: row.words,
        time: format_ns(row.ns),
        share: row.ns as f64 / all_ns.max(1) as f64,
        of_all: percent_of(row.ns, all_ns),
        of_wanted: if row.is_wanted { percent_of(row.ns, report.wanted_ns) } else { String::new() },
    };
    did_rows(&report.did).map(row).collect()
}

fn taker(report: &ThievesReport, taker: &TakerReport) -> TakerPage {
    TakerPage {
        name: name(taker),
        blamed_for: taker.cause.filter(|_| taker.is_worth_mention()),
        share: taker.share,
        of_wanted: percent_of(taker.total_ns, report.wanted_ns),
        time: format_ns(taker.total_ns),
        count: grouped(taker.count),
        longest: format_ns(taker.longest_ns),
        waited: time(taker.while_runnable_ns),
        ran: time(taker.while_running_ns),
        cpus: cpu_list(taker.cpus.iter().map(|cpu| cpu.cpu)),
    }
}

fn window(window: &WindowReport) -> WindowPage {
    let piece = |piece: &super::PieceReport| PiecePage {
        doing: class_of(piece),
        from_ns: piece.from_ns,
        ns: piece.ns,
        who: who(piece),
    };
    WindowPage {
        words: caption(window),
        longest: longest(window),
        duration_ns: window.duration_ns,
        pieces: window.pieces.iter().map(piece).collect(),
    }
}
