//! Sampled stacks as folded lines, and as a self-contained flame graph.

use super::{ContextReport, StackReport, StacksReport, text};
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use spangap_report::svg::{self, Anchor, Picture};
use std::io;

/// Frame of a process in user mode, whose stack is not sampled.
const USER_MODE: &str = "[user mode]";

/// Root frame of a stack: `NET_RX interrupting memcached (pid 812)`.
fn bottom(stack: &StackReport, process: &str) -> String {
    let softirq = stack.vector.unwrap_or("softirq");
    match stack.context {
        ContextReport::Process => process.to_string(),
        ContextReport::SoftirqAfterInterrupt => format!("{softirq} interrupting {process}"),
        ContextReport::SoftirqInCall => format!("{softirq} in a call of {process}"),
        ContextReport::Hardirq => format!("hardirq interrupting {process}"),
    }
}

/// One line per stack and current process, `root;...;leaf count`; the counts sum to the samples kept.
pub fn folded(report: &StacksReport) -> Vec<String> {
    let mut lines = Vec::new();
    for stack in &report.stacks {
        for current in &stack.current {
            let mut line = bottom(stack, &current.process.words()).replace(';', ",");
            for frame in stack.frames.iter().rev() {
                line.push(';');
                line.push_str(frame);
            }
            if stack.user {
                line.push(';');
                line.push_str(USER_MODE);
            }
            lines.push(format!("{line} {}", current.samples));
        }
    }
    lines.sort_unstable();
    lines
}

/// The flame graph as one SVG with its script inside: frames can be clicked and searched.
pub fn svg(report: &StacksReport) -> io::Result<String> {
    let mut options = Options::default();
    options.title = text::title(report);
    options.subtitle = Some(text::shares(&report.samples));
    options.count_name = "samples".into();
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.deterministic = true;
    let lines = folded(report);
    let mut svg = Vec::new();
    if lines.is_empty() {
        // For the library an empty graph is an error; here it is good news.
        let words = format!("{}: nothing else used these CPUs", options.title);
        let picture = Picture { class: "", width: 1200.0, height: 60.0, label: &words };
        let style = "text{font:15px system-ui,sans-serif;fill:var(--text)}";
        return Ok(picture.file(style, &svg::text("", 12.0, 36.0, Anchor::Start, &words)));
    }
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(io::Error::other)?;
    String::from_utf8(svg).map_err(io::Error::other)
}
