//! Sampled stacks as folded lines, and as a flame graph that needs no other file.

use super::flame::{ContextReport, StackReport, StacksReport};
use super::flame_text;
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use spangap_model::markup::escaped;
use std::io;

/// Frame of a process in user mode: which code that was is not asked.
const USER_MODE: &str = "[user mode]";

/// Who stands at the bottom of a stack: `NET_RX interrupting memcached (pid 812)`.
fn bottom(stack: &StackReport, process: &str) -> String {
    let softirq = stack.vector.unwrap_or("softirq");
    match stack.context {
        ContextReport::Process => process.to_string(),
        ContextReport::SoftirqAfterInterrupt => format!("{softirq} interrupting {process}"),
        ContextReport::SoftirqInCall => format!("{softirq} in a call of {process}"),
        ContextReport::Hardirq => format!("hardirq interrupting {process}"),
    }
}

/// One line per stack and current process, `root;...;leaf count`; the counts sum up to the samples kept.
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

/// The flame graph, as one SVG with its script inside: frames can be clicked and searched for.
pub fn svg(report: &StacksReport) -> io::Result<String> {
    let mut options = Options::default();
    options.title = flame_text::title(report);
    options.subtitle = Some(flame_text::shares(&report.samples));
    options.count_name = "samples".into();
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.deterministic = true;
    let lines = folded(report);
    let mut svg = Vec::new();
    if lines.is_empty() {
        // An empty graph is an error there; here it is good news.
        return Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"60\"><text x=\"12\" y=\"36\" font-family=\"sans-serif\" font-size=\"15\">{}: nobody else had these CPUs</text></svg>\n",
            escaped(&options.title)
        ));
    }
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(io::Error::other)?;
    String::from_utf8(svg).map_err(io::Error::other)
}

/// The flame graph above the report in words, as one page.
pub fn html(report: &StacksReport) -> io::Result<String> {
    let svg = svg(report)?;
    // The prologue is for files of their own.
    let picture = svg.find("<svg").map_or(svg.as_str(), |at| &svg[at..]);
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1240px; padding: 0 1rem; }}\n\
         svg {{ max-width: 100%; height: auto; }}\npre {{ overflow-x: auto; font-size: 13px; }}</style>\n{picture}\n<pre>{text}</pre>\n</html>\n",
        title = escaped(&flame_text::title(report)),
        text = escaped(&flame_text::text(report)),
    ))
}
