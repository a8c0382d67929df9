//! A plan for a terminal: a diff with the reason for each line. In JSON, the plan itself is printed.

mod rows;
#[cfg(test)]
mod tests;

use crate::plan::{NetCpus, Part, Permanent, Plan, Refusal, Weight};
use rows::{Row, rows};
use serde::Serialize;
use spangap_report::figures::counted;
use spangap_report::wrap::{NARROWEST, wrap_strictly};
use std::fmt::Write;

/// Reasons for not making a plan, as JSON.
#[derive(Debug, Serialize)]
pub struct Refused<'a> {
    /// All reasons.
    pub refused: &'a [Refusal],
}

/// The plan and, at the end, the next command, wrapped at `width` columns (80 at least) except for longer paths
/// and lists.
pub fn text(plan: &Plan, next: &str, width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    head(&mut text, plan, width);
    if plan.changes.is_empty() {
        text.push_str("\nNothing to change: everything is already as planned.\n");
    }
    for part in PARTS {
        let changes: Vec<_> = plan.changes.iter().filter(|change| change.part == part).collect();
        if !changes.is_empty() {
            let _ = writeln!(text, "\n{} ({})", title(part), counted(changes.len(), "change"));
            lines(&mut text, &rows(&changes), width);
        }
    }
    if plan.changes.iter().any(|change| !change.needed) {
        text.push_str("\n? the kernel may refuse this: that is counted, and the next change is made\n");
    }
    let headed = [
        (Weight::Warning, "Warnings"),
        (Weight::Impossible, "Not possible without a reboot, or not from here"),
        (Weight::Remark, "Good to know"),
    ];
    for (weight, title) in headed {
        let notes: Vec<_> = plan.notes.iter().filter(|note| note.weight == weight).collect();
        if !notes.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for note in notes {
            wrap_strictly(&mut text, "  * ", &note.text, width);
        }
    }
    permanent(&mut text, &plan.permanent, width);
    let _ = writeln!(text, "\nNext\n  {next}");
    text
}

/// In the order of execution.
const PARTS: [Part; 6] =
    [Part::Irqbalance, Part::Queues, Part::Irqs, Part::Steering, Part::Cpusets, Part::Tasks];

fn title(part: Part) -> &'static str {
    match part {
        Part::Irqbalance => "irqbalance",
        Part::Queues => "Queues",
        Part::Irqs => "Interrupts",
        Part::Steering => "Steering in software",
        Part::Cpusets => "Cgroups",
        Part::Tasks => "Pinned threads",
    }
}

fn head(text: &mut String, plan: &Plan, width: usize) {
    let interfaces = plan.policy.interfaces.join(", ");
    wrap_strictly(text, "", &format!("{} for the network of {interfaces}", plan.net_cpus.words()), width);
    for because in &plan.choice {
        wrap_strictly(text, "  * ", because, width);
    }
    wrap_strictly(text, "", &format!("{} left for everything else", plan.app_cpus.words()), width);
    if matches!(plan.policy.net_cpus, NetCpus::Auto) {
        wrap_strictly(text, "  * ", "`--net-cpus N` or a list chooses others", width);
    }
    if plan.before.is_some() {
        wrap_strictly(
            text,
            "  * ",
            "how long calls took before is attached: `verify --after FILE` compares with it",
            width,
        );
    }
}

/// `- old  + new  where`, with the reason behind it or below.
fn lines(text: &mut String, rows: &[Row], width: usize) {
    let widest =
        |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default();
    let (old, new) = (widest(|row| &row.old), widest(|row| &row.new));
    for row in rows {
        let optional = if row.needed { ' ' } else { '?' };
        let line = format!("{optional} - {:old$}  + {:new$}  {}", row.old, row.new, row.place);
        if line.chars().count() + 2 + row.why.chars().count() <= width {
            let _ = writeln!(text, "{line}  {}", row.why);
        } else {
            let _ = writeln!(text, "{line}");
            wrap_strictly(text, "        ", &row.why, width);
        }
    }
}

fn permanent(text: &mut String, settings: &[Permanent], width: usize) {
    if settings.is_empty() {
        return;
    }
    text.push_str("\nTo make it last beyond the next boot (never done by apply)\n");
    for setting in settings {
        wrap_strictly(text, "  * ", &format!("{}: {}", setting.whose, setting.place), width);
        for line in setting.text.lines() {
            let _ = writeln!(text, "        {line}");
        }
    }
}

/// All reasons for a refusal, each with its rule and possible remedy.
pub fn refused_text(refusals: &[Refusal], width: usize) -> String {
    let width = width.max(NARROWEST);
    let mut text = String::new();
    for refusal in refusals {
        wrap_strictly(&mut text, "  * ", &format!("{} ({})", refusal.why, refusal.rule), width);
        if let Some(help) = &refusal.help {
            wrap_strictly(&mut text, "      help: ", help, width);
        }
    }
    text
}
