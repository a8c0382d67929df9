//! Progress of `hunt` on a terminal: the files being read, and each suspect as the judge clears it. Printed on
//! standard error, and only if that is a terminal.

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

/// Tick interval of an idle progress bar.
const TICK: Duration = Duration::from_millis(120);
/// Width of the column of suspects.
const SUSPECT: usize = 32;

/// Standard error, if it is a terminal.
pub struct Terminal {
    bar: Option<ProgressBar>,
    /// Width.
    width: usize,
    last: Progress,
}

impl Terminal {
    /// `wanted`: whether the user wants progress.
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

    /// Prints the sources.
    pub fn begins(&mut self, sources: &Sources) {
        self.last = Progress::default();
        let Some(bar) = &self.bar else { return };
        bar.set_message(match sources.spans.is_empty() {
            true => format!("reading {}", counted(sources.captures.len() as u64, "capture")),
            false => format!("reading spans of {}", counted(sources.spans.len() as u64, "file")),
        });
    }

    /// Shows the progress of reading packets.
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

    /// Leaves a summary of what was read.
    pub fn has_read(&self, sources: &Sources) {
        let kinds = [
            (sources.captures.len(), "capture", ""),
            (sources.spans.len(), "file", " of spans"),
            (sources.recordings.len(), "recording", ""),
            (sources.documents.len() + usize::from(sources.tank.is_some()), "document", ""),
        ];
        let kinds = kinds.into_iter().filter(|(number, ..)| *number > 0);
        let files: Vec<String> = kinds.map(|(number, what, of)| counted(number as u64, what) + of).collect();
        let (bytes, packets) = (HumanBytes(self.last.bytes), HumanCount(self.last.packets));
        self.line(&format!(
            "read {}: {bytes}, {packets} packets, {} calls",
            files.join(", "),
            HumanCount(self.last.calls)
        ));
        self.works("attributing the time of each call");
    }

    /// Shows the current step.
    pub fn works(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// Shows the judge's progress.
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

    /// Prints cleared suspects of one cause: both sides share a line if their evidence is equal.
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
            let seen = match first.figures {
                Some(figures) => figures.words(did),
                None => format!("{did}: {}", first.seen),
            };
            self.line(&format!("  x {name:SUSPECT$} {seen}"));
        }
    }

    /// Prints a permanent line, cut to the terminal's width.
    fn line(&self, text: &str) {
        let Some(bar) = &self.bar else { return };
        let mut line: String = text.chars().take(self.width - 1).collect();
        if line.len() < text.len() {
            line.pop();
            line.push('…');
        }
        bar.suspend(|| eprintln!("{line}"));
    }

    /// Clears the progress bar; the verdict follows.
    pub fn ends(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            eprintln!();
        }
    }
}
