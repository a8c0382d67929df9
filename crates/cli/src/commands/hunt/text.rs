//! The verdict on one screen. What is left out, `--json` has.

use spangap_diagnose::hunt::catalogue::NotLooked;
use spangap_diagnose::hunt::lack::{self, Included, Source};
use spangap_diagnose::hunt::verdict::{Answer, Blamed, Line};
use spangap_diagnose::hunt::{Hunt, Kind};
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_model::evidence::Coverage;
use spangap_report::figures::{counted, percent};
use spangap_report::wrap::{wrap, wrapped};
use std::fmt::Write;

/// Columns of the bar of a whole share.
const BAR: usize = 24;
/// Lines of the sheet, and findings of other instruments.
const SOME: usize = 6;
/// A line with less than this share, either way, is told with the others of its size.
const LITTLE: f64 = 0.015;
/// Calls that the verdict rests on: so many, two in a line.
const CALLS: usize = 4;

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

/// All of it.
pub fn write(hunt: &Hunt, width: usize) -> String {
    let mut out = String::new();
    let mut say = |indent: usize, words: &str| {
        let _ = writeln!(out, "{}", wrapped(words, width, indent));
    };
    // Where there is nothing to explain, one paragraph says so.
    if hunt.verdict == Kind::Nothing && hunt.sheet.is_empty() {
        say(0, &[&hunt.words, &seen(hunt), &suspects_in_short(hunt)].map(|part| part.as_str()).join(" "));
        limits(hunt, &mut say);
        other(hunt).into_iter().for_each(|words| say(2, &words));
        beside(&mut out, hunt, width);
        return out;
    }
    if hunt.verdict != Kind::Nothing {
        say(0, &title(hunt));
    }
    say(0, &hunt.words);
    out.push('\n');
    if !hunt.sheet.is_empty() {
        sheet(&mut out, hunt, width);
        out.push('\n');
    }
    let mut say = |indent: usize, words: &str| {
        let _ = writeln!(out, "{}", wrapped(words, width, indent));
    };
    say(2, &format!("Seen: {}", seen(hunt)));
    limits(hunt, &mut say);
    hunt.culprits.iter().flat_map(about).for_each(|words| say(2, &words));
    other(hunt).into_iter().for_each(|words| say(2, &words));
    beside(&mut out, hunt, width);
    suspects(&mut out, hunt, width);
    let calls: Vec<&str> = hunt.trace_ids.iter().take(CALLS).map(String::as_str).collect();
    for (place, two) in calls.chunks(2).enumerate() {
        let head = if place == 0 { "Based on calls:" } else { "" };
        let _ = writeln!(out, "{head:15} {}", two.join(" "));
    }
    out
}

/// Who has how much, as bars.
fn sheet(out: &mut String, hunt: &Hunt, width: usize) {
    let is_much = |line: &&Line| line.share.mid.abs() >= LITTLE;
    let shown = hunt.sheet.iter().filter(is_much).take(SOME);
    let shown: Vec<&Line> = shown.collect();
    for line in &shown {
        wrap(out, &bar(line), &owner(line), width);
    }
    let left_out = (hunt.sheet.len() - shown.len()) as u64;
    if left_out > 0 {
        let is_cut = hunt.sheet.iter().filter(is_much).count() > SOME;
        let less = if is_cut { "less".to_owned() } else { format!("less than {}", percent(LITTLE)) };
        let _ = writeln!(out, "  and {} with {less}", counted(left_out, "more line"));
    }
}

fn bar(line: &Line) -> String {
    let of = |share: f64| ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    let (low, high) = (of(line.share.low), of(line.share.high));
    let drawn =
        format!("{}{}{}", "█".repeat(low), "▒".repeat(high.saturating_sub(low)), " ".repeat(BAR - high));
    let sign = if line.ns < 0 { "-" } else { "" };
    let range = format!("({:.0} to {:.0} %)", line.share.low * 100.0, line.share.high * 100.0);
    let each = format!("{sign}{}", format_ns(line.ns.unsigned_abs()));
    format!("  {drawn} {:>4.0} % {range:13} {each:>8} a call  ", line.share.mid * 100.0)
}

/// Who owns a line.
fn owner(line: &Line) -> String {
    let hop = line.hop.map_or(String::new(), |hop| format!(" behind proxy {hop}"));
    match (&line.culprit, &line.leg) {
        (Some(culprit), _) if line.noise => format!("{culprit}, behind many others: noise"),
        (Some(culprit), _) => culprit.to_string(),
        (None, Some(leg)) if line.lost => {
            format!("lost and sent again, {} or where it arrived", leg.in_words())
        }
        (None, Some(leg)) if leg.first == leg.last => format!("unexplained, in {leg}{hop}"),
        (None, Some(leg)) => format!("unexplained{hop}, {}", leg.in_words()),
        (None, None) => "unexplained".into(),
    }
}

/// What the verdict rests on, in sentences.
fn seen(hunt: &Hunt) -> String {
    let seen = &hunt.coverage;
    let one_by_one = match seen.looked_at {
        all if all == seen.captured => String::new(),
        some => format!(" ({some} of them individually)"),
    };
    let aside = match seen.set_aside {
        0 => String::new(),
        calls => format!("; {} of kinds too rare to compare", are(calls)),
    };
    let unrecorded = match seen.without_recording {
        0 => String::new(),
        calls => format!("; {} left out, because no recording shows their threads", are(calls)),
    };
    let left_out = match seen.without_spans {
        0 => String::new(),
        calls => format!(
            "; {calls} without spans {} left out, because those with spans say more",
            if calls == 1 { "is" } else { "are" }
        ),
    };
    let not_behind = match seen.not_behind_proxies {
        0 => String::new(),
        calls => format!("; {} left out, because no capture behind the proxy covers them", are(calls)),
    };
    let hosts = match seen.hosts.as_slice() {
        [] => "none".to_owned(),
        sides => sides.iter().map(|side| recorded(side, &seen.recordings)).collect::<Vec<_>>().join(" and "),
    };
    format!(
        "{} of {} calls of {}{one_by_one}; {} of their time is attributed to a cause or to a single leg{aside}{left_out}{not_behind}{unrecorded}. \
         Hosts recorded: {hosts}.",
        seen.captured,
        seen.calls,
        hunt.excess.pair,
        percent(seen.with_legs),
    )
}

/// A side with its recordings: `client (client.host: 81,204 events in 4.52 s)`.
fn recorded(side: &str, recordings: &[Coverage]) -> String {
    let of_side = recordings.iter().filter(|one| one.side.is_some_and(|own| own.name() == side));
    let words = of_side.map(|one| {
        let mut words = format!("{}: {}", one.source, counted(one.seen, "event"));
        if let Some(when) = one.when {
            words += &format!(" in {}", format_ns((when.to_unix_ns - when.from_unix_ns).unsigned_abs()));
        }
        match one.lost {
            0 => words,
            lost => format!("{words}, {} lost", grouped(lost)),
        }
    });
    match words.collect::<Vec<_>>().as_slice() {
        [] => side.to_owned(),
        words => format!("{side} ({})", words.join("; ")),
    }
}

fn are(calls: u64) -> String {
    if calls == 1 { "1 is".into() } else { format!("{calls} are") }
}

/// What could not be read: a verdict from half a file must not look like one from all of it.
fn limits(hunt: &Hunt, say: &mut impl FnMut(usize, &str)) {
    let limits = &hunt.coverage.limits;
    if !limits.is_empty() {
        say(0, "What these figures cannot tell:");
    }
    limits.iter().take(SOME).for_each(|limit| say(4, &format!("  {limit}")));
    if limits.len() > SOME {
        say(4, &format!("  and {} more; `--json` has them", limits.len() - SOME));
    }
}

/// What speaks for a culprit and against it, and what mends it.
fn about(one: &Blamed) -> Vec<String> {
    let mut all = Vec::new();
    for (head, words) in [("For", &one.speaks_for), ("Against", &one.speaks_against)] {
        if !words.is_empty() {
            all.push(format!("{head}: {}", words.join(" ")));
        }
    }
    if !one.remedy.is_empty() {
        let wins = win(one).map_or(String::new(), |words| format!(" {words}"));
        all.push(format!("Remedy ({}): {}{wins}", one.culprit, one.remedy));
    }
    all
}

/// What a remedy should win, in a sentence.
fn win(one: &Blamed) -> Option<String> {
    let wins = [(one.wins.p99_ns, "p99"), (one.wins.p50_ns, "p50")];
    let wins = wins.into_iter().filter(|(ns, _)| *ns > 0);
    let wins: Vec<String> = wins.map(|(ns, at)| format!("{} at {at}", format_ns(ns))).collect();
    (!wins.is_empty()).then(|| format!("Expected gain: {}.", wins.join(" and ")))
}

/// The other question and its answer, where there is one that says something.
fn other(hunt: &Hunt) -> Option<String> {
    let (words, answer) = match hunt.question {
        "slow" => ("Where the time of all calls goes", hunt.questions.all.as_ref()),
        _ => ("Why slow calls are slower than others", hunt.questions.slow.as_ref()),
    };
    let Answer { words: answer, .. } =
        answer.filter(|answer| !matches!(answer.verdict, Kind::Unknown | Kind::Nothing))?;
    Some(format!("{words}: {answer}"))
}

fn beside(out: &mut String, hunt: &Hunt, width: usize) {
    if !hunt.beside.is_empty() {
        let _ = writeln!(out, "Other instruments, about the hosts rather than these calls:");
    }
    for finding in hunt.beside.iter().take(SOME) {
        let sure = if finding.is_shown() { "" } else { "possible: " };
        let note = if finding.note.is_empty() { String::new() } else { format!(": {}", finding.note) };
        let line = format!("  {sure}{} ({}){note}", finding.culprit, finding.instrument.in_words());
        let _ = writeln!(out, "{}", wrapped(&line, width, 4));
    }
}

/// Suspects where nobody is: how many were ruled out, and how many nobody could have seen.
fn suspects_in_short(hunt: &Hunt) -> String {
    let cleared = counted(hunt.cleared.len() as u64, "suspect");
    match hunt.not_looked.len() {
        0 => format!("{cleared} cleared."),
        more => format!(
            "{cleared} cleared; nothing here can show or clear {more} more (`--json` says what each needs)."
        ),
    }
}

fn suspects(out: &mut String, hunt: &Hunt, width: usize) {
    let mut say = |indent: usize, words: &str| {
        let _ = writeln!(out, "{}", wrapped(words, width, indent));
    };
    if !hunt.cleared.is_empty() {
        let number = counted(hunt.cleared.len() as u64, "suspect");
        say(2, &format!("Cleared: {number}; `--json` says what each would have shown and what was seen."));
    }
    let groups = by_source(&hunt.not_looked);
    if !groups.is_empty() {
        say(0, "Not checked; what would show them:");
    }
    for group in &groups {
        say(4, &format!("  {}: {}", group.words(), group.causes.join(", ")));
    }
    hunt.look_next.iter().for_each(|next| say(2, next));
}

/// Suspects that the same source at the same place would show.
struct Group<'h> {
    /// Absent in documents of earlier versions, which go by the words.
    source: Option<Source>,
    needs: &'h str,
    including: Vec<Included>,
    causes: Vec<&'static str>,
}

impl Group<'_> {
    fn words(&self) -> String {
        match self.source.filter(|_| !self.including.is_empty()) {
            Some(source) => lack::words(source, &self.including),
            None => self.needs.to_owned(),
        }
    }
}

/// `a capture at the client` would show several of them, whatever it has to include for each.
fn by_source(not_looked: &[NotLooked]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in not_looked {
        let source = one.lacks.map(|lack| lack.source);
        let is_same =
            |group: &Group<'_>| group.source == source && (source.is_some() || group.needs == one.needs);
        let place = groups.iter().position(is_same).unwrap_or_else(|| {
            groups.push(Group { source, needs: &one.needs, including: Vec::new(), causes: Vec::new() });
            groups.len() - 1
        });
        let group = &mut groups[place];
        if let Some(included) = one.lacks.and_then(|lack| lack.including)
            && !group.including.contains(&included)
        {
            group.including.push(included);
        }
        // The source says at which side.
        let cause = one.culprit.cause.name();
        if !group.causes.contains(&cause) {
            group.causes.push(cause);
        }
    }
    groups
}
