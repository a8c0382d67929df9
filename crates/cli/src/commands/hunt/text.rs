//! The verdict on one screen.

use spangap_diagnose::hunt::verdict::{Answer, Blamed, Line};
use spangap_diagnose::hunt::{Hunt, Kind};
use spangap_model::duration::format_ns;
use spangap_report::figures::{counted, percent};
use spangap_report::wrap::wrapped;
use std::fmt::Write;

/// Columns of the bar of a whole share.
const BAR: usize = 30;
/// Lines of the sheet shown; the JSON has all.
const LINES: usize = 8;
/// Findings, and suspects that nobody looked for, shown.
const SOME: usize = 6;
/// A line with less than this share, either way, is left out.
const LITTLE: f64 = 0.005;

/// What a verdict is called.
pub fn title(hunt: &Hunt) -> String {
    let names = names(&hunt.culprits);
    let title = match hunt.verdict {
        Kind::One => "One culprit",
        Kind::Several => "Several culprits",
        Kind::Place => "The place, not the cause",
        Kind::Nothing => "Nothing stands out",
        Kind::Unknown => "Unknown",
    };
    format!("{title}{names}")
}

fn names(culprits: &[Blamed]) -> String {
    let names: Vec<String> = culprits.iter().map(|one| one.culprit.to_string()).collect();
    if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) }
}

/// Who owns a line.
pub fn owner(line: &Line) -> String {
    let hop = line.hop.map_or(String::new(), |hop| format!(" behind proxy {hop}"));
    match (&line.culprit, &line.leg) {
        (Some(culprit), _) if line.noise => format!("{culprit}, behind many: noise"),
        (Some(culprit), _) => culprit.to_string(),
        (None, Some(leg)) => format!("unexplained, in {leg}{hop}"),
        (None, None) => "unexplained".into(),
    }
}

/// The lines worth a look.
pub fn lines(sheet: &[Line]) -> impl Iterator<Item = &Line> {
    sheet.iter().filter(|line| line.share.mid.abs() >= LITTLE).take(LINES)
}

/// The other question and its answer, in a sentence.
pub fn other(hunt: &Hunt) -> Option<String> {
    let (words, answer) = match hunt.question {
        "slow" => ("Why everything takes as long as it does", hunt.questions.all.as_ref()),
        _ => ("Why slow calls are slower than others", hunt.questions.slow.as_ref()),
    };
    let Answer { words: answer, .. } = answer?;
    Some(format!("{words}: {answer}"))
}

/// All of it.
pub fn write(hunt: &Hunt, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n{}\n", title(hunt), wrapped(&hunt.words, width, 0));
    for line in lines(&hunt.sheet) {
        let _ = writeln!(out, "  {}", bar(line));
    }
    let seen = &hunt.coverage;
    let hosts = if seen.hosts.is_empty() { "none".to_owned() } else { seen.hosts.join(" and ") };
    let _ = writeln!(
        out,
        "\n{}",
        wrapped(
            &format!(
                "Seen: {} of {} calls of {}, {} of them one by one, {} of their time in legs of its own or owned; {} of kinds \
                 too rare to compare; hosts recorded: {hosts}.",
                seen.captured,
                seen.calls,
                hunt.excess.pair,
                seen.looked_at,
                percent(seen.with_legs),
                seen.set_aside
            ),
            width,
            2
        )
    );
    for one in &hunt.culprits {
        about(&mut out, one, width);
    }
    if let Some(words) = other(hunt) {
        let _ = writeln!(out, "{}", wrapped(&words, width, 2));
    }
    if !hunt.beside.is_empty() {
        let _ = writeln!(out, "Other instruments, of the hosts and not of these calls:");
    }
    for finding in hunt.beside.iter().take(SOME) {
        let sure = if finding.is_shown() { "" } else { "possible: " };
        let note = if finding.note.is_empty() { String::new() } else { format!(": {}", finding.note) };
        let line = format!("  {sure}{} ({}){note}", finding.culprit, finding.instrument);
        let _ = writeln!(out, "{}", wrapped(&line, width, 4));
    }
    suspects(&mut out, hunt, width);
    for next in &hunt.look_next {
        let _ = writeln!(out, "{}", wrapped(next, width, 2));
    }
    if !hunt.trace_ids.is_empty() {
        let _ = writeln!(out, "Calls that it rests on: {}", hunt.trace_ids.join(", "));
    }
    out
}

fn bar(line: &Line) -> String {
    let of = |share: f64| ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    let (low, high) = (of(line.share.low), of(line.share.high));
    let drawn =
        format!("{}{}{}", "█".repeat(low), "▒".repeat(high.saturating_sub(low)), " ".repeat(BAR - high));
    let sign = if line.ns < 0 { "-" } else { "" };
    format!(
        "{drawn} {:>4.0} % ({:.0} to {:.0} %)  {sign}{} a call  {}",
        line.share.mid * 100.0,
        line.share.low * 100.0,
        line.share.high * 100.0,
        format_ns(line.ns.unsigned_abs()),
        owner(line)
    )
}

fn about(out: &mut String, one: &Blamed, width: usize) {
    let mut say = |head: &str, words: &[String]| {
        for words in words {
            let _ = writeln!(out, "{}", wrapped(&format!("{head}{words}"), width, 2));
        }
    };
    say("For: ", &one.speaks_for);
    say("Against: ", &one.speaks_against);
    if !one.remedy.is_empty() {
        let wins = win(one).map_or(String::new(), |words| format!(" {words}"));
        say("", &[format!("Remedy ({}): {}{wins}", one.culprit, one.remedy)]);
    }
}

/// What a remedy should win, in a sentence.
pub fn win(one: &Blamed) -> Option<String> {
    let wins = one.wins;
    (wins.p50_ns > 0 || wins.p99_ns > 0).then(|| {
        format!("It should win {} at p99 and {} at p50.", format_ns(wins.p99_ns), format_ns(wins.p50_ns))
    })
}

fn suspects(out: &mut String, hunt: &Hunt, width: usize) {
    if !hunt.cleared.is_empty() {
        let mut names: Vec<String> = hunt.cleared.iter().map(|one| one.culprit.to_string()).collect();
        let all = names.len();
        names.truncate(2 * SOME);
        let more = if all > names.len() { format!(" and {} more", all - names.len()) } else { String::new() };
        let words = format!("Cleared ({}): {}{more}.", counted(all as u64, "suspect"), names.join(", "));
        let _ = writeln!(out, "{}", wrapped(&words, width, 2));
    }
    // What lacks the same is one line.
    let mut by_needs: Vec<(&str, Vec<String>)> = Vec::new();
    for one in &hunt.not_looked {
        match by_needs.iter_mut().find(|(needs, _)| *needs == one.needs) {
            Some((_, culprits)) => culprits.push(one.culprit.to_string()),
            None => by_needs.push((&one.needs, vec![one.culprit.to_string()])),
        }
    }
    for (needs, culprits) in by_needs.iter().take(SOME) {
        let words = format!("Not looked for: {}; it needs {needs}.", culprits.join(", "));
        let _ = writeln!(out, "{}", wrapped(&words, width, 2));
    }
}
