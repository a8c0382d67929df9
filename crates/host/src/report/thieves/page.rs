//! Content of the page of thieves: all sentences and figures in words, and the data for its drawings. The page
//! itself is built from `web/src/report/`, and embeds a document of this shape.

use super::picture::{caption, class_of, longest, title};
use super::text::{did_rows, looked_at, name, time, who};
use super::words::cpu_list;
use super::{TakerReport, ThievesReport, WindowReport};
use serde::Serialize;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_report::figures::percent_of;

/// Maximum number of takers shown; `--json` has all.
const TAKERS: usize = 50;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ThievesPage {
    /// Title of the document.
    pub title: String,
    /// Target, duration, number of events.
    pub facts: String,
    /// Conclusions, the main one first.
    pub conclusions: Vec<String>,
    /// Time of all threads together, by activity.
    pub did: Vec<DidPage>,
    /// Who had the CPU while they wanted it.
    pub takers: Vec<TakerPage>,
    /// Number of further takers, and their total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_takers: Option<String>,
    /// The worst windows of time.
    pub windows: Vec<WindowPage>,
    /// Limitations of the figures.
    pub notes: Vec<String>,
    /// Measurement overhead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
}

/// One activity of threads.
#[derive(Clone, Debug, Serialize)]
pub struct DidPage {
    /// Activity, by the name of its colour.
    pub doing: &'static str,
    /// In words.
    pub words: &'static str,
    /// Duration.
    pub time: String,
    /// Share of all time.
    pub share: f64,
    /// The same in words.
    pub of_all: String,
    /// Share of the wanted time, where the activity is part of it.
    pub of_wanted: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct TakerPage {
    /// Name, with the cgroup.
    pub name: String,
    /// The cause it is blamed for, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blamed_for: Option<&'static str>,
    /// Time taken, as a share of the wanted time.
    pub share: f64,
    /// The same in words.
    pub of_wanted: String,
    /// Time taken.
    pub time: String,
    /// Number of waits and interruptions.
    pub count: String,
    /// Longest of these.
    pub longest: String,
    /// Taken while a thread was runnable.
    pub waited: String,
    /// Taken while a thread ran.
    pub ran: String,
    /// CPUs involved.
    pub cpus: String,
}

/// A window of one thread's time.
#[derive(Clone, Debug, Serialize)]
pub struct WindowPage {
    /// Thread, time and length.
    pub words: String,
    /// Who had its CPU for longest.
    pub longest: String,
    /// Length in nanoseconds.
    pub duration_ns: u64,
    /// Activities, in order.
    pub pieces: Vec<PiecePage>,
}

/// One activity in a window.
#[derive(Clone, Debug, Serialize)]
pub struct PiecePage {
    /// Activity, by the name of its colour.
    pub doing: &'static str,
    /// Start in nanoseconds, relative to the window.
    pub from_ns: u64,
    /// Length in nanoseconds.
    pub ns: u64,
    /// Who had the CPU, or what the thread waited for.
    pub who: String,
}

impl ThievesPage {
    /// Selects what to show of a report.
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
