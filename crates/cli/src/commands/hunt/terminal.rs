//! What people see on a terminal while `hunt` works: the files as they are read, and each suspect as the judge crosses it off.
//! It is on standard error, and nowhere when that is no terminal.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use spangap_diagnose::hunt::Step;
use spangap_diagnose::hunt::catalogue::Cleared;
use spangap_gather::Sources;
use spangap_model::advice::about;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_wire::dissect::Progress;
use std::io::{self, IsTerminal};
use std::time::Duration;

/// How often a bar that hears nothing moves.
const TICK: Duration = Duration::from_millis(120);
/// Columns of a suspect.
const SUSPECT: usize = 32;

/// Standard error, if somebody looks at it.
pub struct Terminal {
    bar: Option<ProgressBar>,
    /// Columns.
    width: usize,
    last: Progress,
}

impl Terminal {
    /// `wanted`: whether the user would like to see it.
    pub fn new(wanted: bool) -> Terminal {
        let bar = (wanted && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::hidden();
            let style = ProgressStyle::with_template("{spinner} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
            bar
        });
        let size = rustix::termios::tcgetwinsize(io::stderr());
        let width = size.map_or(100, |size| usize::from(size.ws_col)).max(80);
        Terminal { bar, width, last: Progress::default() }
    }

    /// Before they are read.
    pub fn begins(&mut self, sources: &Sources) {
        self.last = Progress::default();
        let Some(bar) = &self.bar else { return };
        bar.set_message(match sources.spans.is_empty() {
            true => format!("reading {}", counted(sources.captures.len() as u64, "capture")),
            false => format!("reading spans of {}", counted(sources.spans.len() as u64, "file")),
        });
    }

    /// Packets are read.
    pub fn reads(&mut self, sources: &Sources, progress: Progress) {
        self.last = progress;
        let Some(bar) = &self.bar else { return };
        let captures = counted(sources.captures.len() as u64, "capture");
        let (packets, calls) = (HumanCount(progress.packets), HumanCount(progress.calls));
        let is_over = progress.total_bytes.is_some_and(|total| progress.bytes >= total);
        bar.set_message(match (is_over, sources.recordings.len()) {
            (true, recordings) if recordings > 0 => {
                format!("{calls} calls; matching {} to them", counted(recordings as u64, "recording"))
            }
            _ => {
                let of = progress.total_bytes.map_or(String::new(), |all| format!(" of {}", HumanBytes(all)));
                let bytes = HumanBytes(progress.bytes);
                format!("reading {captures}: {bytes}{of}, {packets} packets, {calls} calls")
            }
        });
    }

    /// What was read stays to be seen.
    pub fn has_read(&self, sources: &Sources) {
        let kinds = [
            (sources.captures.len(), "capture"),
            (sources.spans.len(), "file of spans"),
            (sources.recordings.len(), "recording"),
            (sources.documents.len() + usize::from(sources.tank.is_some()), "document"),
        ];
        let files = kinds.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| match what {
            "file of spans" if number > 1 => format!("{number} files of spans"),
            "file of spans" => "1 file of spans".into(),
            what => counted(number as u64, what),
        });
        let files: Vec<String> = files.collect();
        let (bytes, packets) = (HumanBytes(self.last.bytes), HumanCount(self.last.packets));
        self.line(&format!(
            "read {}: {bytes}, {packets} packets, {} calls",
            files.join(", "),
            HumanCount(self.last.calls)
        ));
        self.works("attributing the time of each call");
    }

    /// What it does now, in words.
    pub fn works(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// The judge has come so far.
    pub fn hears(&self, step: Step<'_>) {
        match step {
            Step::Accounted(calls) => self.works(&format!("comparing {}", counted(calls, "call"))),
            Step::InQuestion(calls, each_ns) => self.line(&format!(
                "{} to explain, {} each; suspects crossed off:",
                counted(calls, "call"),
                format_ns(each_ns)
            )),
            Step::Cleared(cleared) => self.crosses_off(cleared),
        }
    }

    /// Suspects of one cause: its sides share a line where the same was seen of both.
    pub fn crosses_off(&self, cleared: &[Cleared]) {
        let mut rest = cleared;
        while let [first, others @ ..] = rest {
            let same = others.iter().take_while(|one| {
                (one.culprit.cause, &one.seen) == (first.culprit.cause, &first.seen)
                    && one.culprit.side.is_some()
            });
            let sides: Vec<&str> =
                std::iter::once(first).chain(same).filter_map(|one| Some(one.culprit.side?.name())).collect();
            rest = &rest[sides.len().max(1)..];
            let cause = first.culprit.cause;
            let name = match sides.is_empty() {
                true => cause.name().to_owned(),
                false => format!("{} ({})", cause.name(), sides.join(", ")),
            };
            let did = about(cause, first.culprit.side).did;
            // `0 of 28 calls did`, and what.
            let seen = match first.seen.split_once(" calls did") {
                Some((calls, figures)) => format!("{calls} {did}{figures}"),
                None => format!("{did}: {}", first.seen),
            };
            self.line(&format!("  x {name:SUSPECT$} {seen}"));
        }
    }

    /// A line that stays, however narrow the terminal.
    fn line(&self, text: &str) {
        let Some(bar) = &self.bar else { return };
        let mut line: String = text.chars().take(self.width - 1).collect();
        if line.len() < text.len() {
            line.pop();
            line.push('…');
        }
        bar.suspend(|| eprintln!("{line}"));
    }

    /// Nothing moves any more; the verdict follows.
    pub fn ends(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            eprintln!();
        }
    }
}
