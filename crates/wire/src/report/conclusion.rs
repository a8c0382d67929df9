//! Explains in words what took the time of the listed calls.

use super::hops::stage_words;
use super::words::at_side;
use super::{CallReport, Conclusion, DissectReport, SumsReport};
use crate::hops::Stage;
use spangap_model::advice::{about, about_leg, to_be_sure};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Finding, LegRecord, Missing};
use spangap_model::{Cause, Side};
use spangap_report::figures::{counted, percent_of};
use std::cmp::Reverse;

/// Minimum calls of a pair for a usual duration: fewer have no quartiles.
const USUAL: u64 = 8;
/// Maximum causes that are put into words; the rest appear in the tables.
const MAX_STATED: usize = 4;

/// One conclusion for each leading cause, most costly first; then those that are only possible; then the calls
/// that nothing on the wire explains.
pub(super) fn conclusions(report: &DissectReport) -> Vec<Conclusion> {
    let of = what_calls(report);
    let mut all: Vec<Conclusion> = Vec::new();
    for shown in [true, false] {
        for group in groups(&report.calls, shown).into_iter().take(MAX_STATED) {
            let mut conclusion = conclusion_about(&group, shown, &of, report);
            if all.iter().any(|before| (before.cause, before.side) == (conclusion.cause, conclusion.side)) {
                // The meaning is already stated above.
                conclusion.meaning.clear();
                conclusion.next.clear();
            }
            all.push(conclusion);
        }
    }
    let unexplained = report.calls.iter().filter(|call| call.findings.is_empty());
    let (ordinary, slow): (Vec<&CallReport>, Vec<&CallReport>) =
        unexplained.partition(|call| report.is_ordinary(call));
    all.extend(unexplained_by_leg(&slow, &of, report.calls.len()));
    all.extend(ordinary_calls(&ordinary, &of, report));
    all
}

/// `the 10 slowest calls`, `the 3 calls of the trace`.
fn what_calls(report: &DissectReport) -> String {
    let shown = report.calls.len() as u64;
    if !report.selection.trace_ids.is_empty() {
        let traces = if report.selection.trace_ids.len() == 1 { "the trace" } else { "the traces" };
        return format!("the {} of {traces}", counted(shown, "call"));
    }
    let slowest = if report.matching_calls > shown { "slowest " } else { "" };
    format!("the {}", counted(shown, &format!("{slowest}call")))
}

/// Calls with one cause at one side.
struct Group {
    cause: Cause,
    side: Option<Side>,
    calls: u64,
    /// The known costs.
    costs: Vec<u64>,
    missing: Option<&'static str>,
}

fn groups(calls: &[CallReport], shown: bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for call in calls {
        let mut counted: Vec<(Cause, Option<Side>)> = Vec::new();
        for finding in call.findings.iter().filter(|finding| finding.is_shown() == shown) {
            let key = (finding.culprit.cause, finding.culprit.side);
            let place = groups.iter().position(|group| (group.cause, group.side) == key);
            let place = place.unwrap_or_else(|| {
                let (cause, side) = key;
                groups.push(Group {
                    cause,
                    side,
                    calls: 0,
                    costs: Vec::new(),
                    missing: finding.certainty.missing().map(Missing::words),
                });
                groups.len() - 1
            });
            groups[place].costs.extend(finding.cost_ns);
            if !counted.contains(&key) {
                groups[place].calls += 1;
                counted.push(key);
            }
        }
    }
    groups.sort_by_key(|group| Reverse((group.costs.iter().sum::<u64>(), group.calls)));
    groups
}

/// `1 of the 10 slowest calls`, `All of the 10 slowest calls`.
fn share_of(calls: u64, of: &str, shown: usize) -> String {
    match (calls, shown) {
        (1, 1) => "The call".into(),
        (calls, shown) if calls as usize == shown => format!("All of {of}"),
        _ => format!("{calls} of {of}"),
    }
}

fn conclusion_about(group: &Group, shown: bool, of: &str, report: &DissectReport) -> Conclusion {
    let advice = about(group.cause, group.side);
    let who = share_of(group.calls, of, report.calls.len());
    let mut costs = group.costs.clone();
    costs.sort_unstable();
    let cost = match (costs.first(), costs.last()) {
        (Some(least), Some(most)) if format_ns(*least) == format_ns(*most) => {
            format!(", {}{}", format_ns(*most), if costs.len() > 1 { " each time" } else { "" })
        }
        (Some(least), Some(most)) => format!(", {} to {}", format_ns(*least), format_ns(*most)),
        _ => match opening(group, shown, report) {
            Some((least, most)) if format_ns(least) == format_ns(most) => {
                format!(", {} before the call's own time", format_ns(most))
            }
            Some((least, most)) => {
                format!(", {} to {} before the call's own time", format_ns(least), format_ns(most))
            }
            None => ", for a time that the wire does not show".into(),
        },
    };
    let name = format!("{}{}", group.cause, at_side(group.side));
    let mut seen = match shown {
        true => format!("{who} {}{cost} ({name}).", advice.did),
        false => {
            let missing = group.missing.map_or(String::new(), |missing| format!(" Not known: {missing}."));
            format!("Possible, not shown: {} {}{cost} ({name}).{missing}", lower_first(&who), advice.did)
        }
    };
    let sum = report.totals.causes.iter().find(|sum| (sum.cause, sum.side) == (group.cause, group.side));
    if let Some(sum) = sum.filter(|sum| shown && sum.calls > group.calls && report.totals.total_ns > 0) {
        seen += &format!(" Over all calls: {} with it", counted(sum.calls, "call"));
        if sum.cost_ns > 0 {
            let share = percent_of(sum.cost_ns, report.totals.total_ns);
            seen += &format!(", {} together, {share} of all time in calls", format_ns(sum.cost_ns));
        }
        seen += ".";
    }
    if let Cause::NoResponse | Cause::BlackHole = group.cause {
        seen += &endings_of(group, shown, report);
    }
    let to_be_sure = if shown { "" } else { to_be_sure(group.cause) };
    Conclusion {
        cause: group.cause,
        side: group.side,
        calls: group.calls,
        seen,
        // A cause that is only possible is not explained as if it were certain.
        meaning: if to_be_sure.is_empty() {
            format!("{}.", upper_first(advice.meaning))
        } else {
            String::new()
        },
        next: if to_be_sure.is_empty() { advice.next.into() } else { to_be_sure.into() },
    }
}

/// Minimum and maximum time from the SYN to the request, nanoseconds, for that cause: only a CLIENT span shows
/// how much of it a call waited, but its total is in the evidence.
fn opening(group: &Group, shown: bool, report: &DissectReport) -> Option<(u64, u64)> {
    let is_it = |finding: &&Finding| {
        group.cause == Cause::ConnectionPerCall
            && finding.culprit.cause == group.cause
            && finding.is_shown() == shown
    };
    let took =
        report.calls.iter().flat_map(|call| call.findings.iter().filter(is_it)).filter_map(|finding| {
            let mut packets = finding.packets();
            let (opened, begins) = packets.next().zip(packets.next())?;
            Some(begins.time_unix_ns.saturating_sub(opened.time_unix_ns).max(0).unsigned_abs())
        });
    took.fold(None, |range: Option<(u64, u64)>, ns| {
        let (least, most) = range.unwrap_or((ns, ns));
        Some((least.min(ns), most.max(ns)))
    })
}

/// ` 2 deadline, 1 connection_reset.`
fn endings_of(group: &Group, shown: bool, report: &DissectReport) -> String {
    let is_it = |finding: &Finding| {
        (finding.culprit.cause, finding.culprit.side, finding.is_shown()) == (group.cause, group.side, shown)
    };
    let mut counts: Vec<(String, u64)> = Vec::new();
    for call in report.calls.iter().filter(|call| call.findings.iter().any(is_it)) {
        let status = super::outcome::cell(call);
        match counts.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => counts.push((status, 1)),
        }
    }
    let words: Vec<String> = counts.into_iter().map(|(status, count)| format!("{count} {status}")).collect();
    format!(" How they ended: {}.", words.join(", "))
}

/// Calls without a shown cause, grouped by their longest leg: the most frequent one is put into words.
fn unexplained_by_leg(calls: &[&CallReport], of: &str, shown: usize) -> Option<Conclusion> {
    let mut legs: Vec<((u8, Stage), u64, i64, u64)> = Vec::new();
    for call in calls {
        let on_path = call.largest_on_path().map(|leg| ((leg.hop, leg.leg), leg.ns));
        let Some((leg, leg_ns)) =
            on_path.or_else(|| call.largest_leg().map(|leg| ((0, Stage::Call(leg.legs)), leg.ns)))
        else {
            continue;
        };
        match legs.iter_mut().find(|(known, ..)| *known == leg) {
            Some((_, count, ns, total)) => {
                *count += 1;
                *ns += leg_ns;
                *total += call.duration_ns;
            }
            None => legs.push((leg, 1, leg_ns, call.duration_ns)),
        }
    }
    let ((hop, leg), count, ns, total) = legs.into_iter().max_by_key(|(_, count, ns, _)| (*count, *ns))?;
    let all = calls.len() as u64;
    let verb = if all == 1 { "shows" } else { "show" };
    let which = if count == all { String::new() } else { format!(" in {count} of them") };
    Some(Conclusion {
        cause: Cause::None,
        side: None,
        calls: all,
        seen: format!(
            "{} {verb} no cause on the wire;{which} {} of the time is \"{}\" ({leg}).",
            share_of(all, of, shown),
            percent_of(ns, total),
            stage_words(hop, leg)
        ),
        meaning: String::new(),
        next: match leg {
            Stage::Call(legs) => about_leg(legs).into(),
            _ => about(Cause::Proxy, None).next.into(),
        },
    })
}

/// Calls that take no longer than usual between their hosts: they need no cause.
fn ordinary_calls(calls: &[&CallReport], of: &str, report: &DissectReport) -> Option<Conclusion> {
    let slowest = calls.iter().max_by_key(|call| call.duration_ns)?;
    let median = report.sums_of(slowest).p50_ns?;
    let leg = slowest.largest_leg().map_or(String::new(), |leg| {
        let share = percent_of(leg.ns, slowest.duration_ns);
        format!("; {share} of that is \"{}\" ({})", stage_words(0, Stage::Call(leg.legs)), leg.legs)
    });
    let all = calls.len() as u64;
    Some(Conclusion {
        cause: Cause::None,
        side: None,
        calls: all,
        seen: format!(
            "{} {} no longer than usual between these hosts, {} at most where the median is {}{leg}.",
            share_of(all, of, report.calls.len()),
            if all == 1 { "takes" } else { "take" },
            format_ns(slowest.duration_ns),
            format_ns(median)
        ),
        meaning: String::new(),
        next: String::new(),
    })
}

impl DissectReport {
    /// The sums for the hosts of a call, or the overall sums.
    fn sums_of(&self, call: &CallReport) -> &SumsReport {
        let client =
            call.client.as_deref().and_then(|client| client.rsplit_once(':')).map_or("", |(host, _)| host);
        let client = client.trim_start_matches('[').trim_end_matches(']');
        let server = call.server.as_deref();
        let pair =
            self.pairs.iter().find(|pair| pair.client == client && Some(pair.server.as_str()) == server);
        pair.map_or(&self.totals, |pair| &pair.sums)
    }

    /// Whether a call is not an outlier among those of its pair: within Tukey's outer fence, three interquartile
    /// ranges above the third quartile. With few calls, none is ordinary.
    fn is_ordinary(&self, call: &CallReport) -> bool {
        let sums = self.sums_of(call);
        let (Some(low), Some(high)) = (sums.p25_ns, sums.p75_ns) else { return false };
        let fence_ns = high.saturating_add(high.saturating_sub(low).saturating_mul(3));
        sums.calls >= USUAL && call.ending.is_none() && call.duration_ns <= fence_ns
    }
}

fn upper_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

impl CallReport {
    /// The leg that took most of its time.
    pub fn largest_leg(&self) -> Option<&LegRecord> {
        self.legs.iter().max_by_key(|leg| leg.ns)
    }
}

impl Conclusion {
    /// The whole conclusion as a paragraph.
    pub fn text(&self) -> String {
        let parts = [&self.seen, &self.meaning, &self.next];
        parts.into_iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;

    #[test]
    fn a_leading_cause_is_stated_with_figures_and_remedy() {
        let report = samples::report();
        let [first, last] = report.conclusions.as_slice() else { panic!("{:#?}", report.conclusions) };
        assert!(
            first.seen.starts_with(
                "2 of the 3 slowest calls waited for a delayed ACK, 40.0 ms each time (nagle-delayed-ack, client side)."
            ),
            "{}",
            first.seen
        );
        assert!(first.seen.contains("Over all calls: 60 calls with it, 2.40 s together"), "{}", first.seen);
        assert!(first.next.contains("TCP_NODELAY on the client's"));
        // The third call is as long as most, so it needs no cause.
        assert!(
            last.seen.starts_with(
                "1 of the 3 slowest calls takes no longer than usual between these hosts, 480 us"
            ),
            "{}",
            last.seen
        );
        assert_eq!(last.next, "");
    }

    #[test]
    fn an_outlier_without_a_cause_names_its_longest_leg() {
        let mut report = samples::report();
        let call = report.calls.iter_mut().find(|call| call.findings.is_empty()).expect("the third");
        call.duration_ns = 9_000_000_000;
        let conclusions = super::conclusions(&report);
        let last = conclusions.last().expect("one at least");
        assert!(
            last.seen.starts_with("1 of the 3 slowest calls shows no cause on the wire"),
            "{}",
            last.seen
        );
        assert!(last.next.contains("--spans"), "{}", last.next);
        // Neither does any call, if there are too few to tell what is usual.
        let mut report = samples::report();
        report.pairs.iter_mut().for_each(|pair| pair.sums.calls = 3);
        report.totals.calls = 3;
        let conclusions = super::conclusions(&report);
        assert!(conclusions.last().expect("one").seen.contains("no cause on the wire"), "{conclusions:#?}");
    }

    #[test]
    fn a_possible_cause_is_marked_as_possible() {
        let report = samples::report_of(samples::possible_dissection());
        assert!(report.conclusions[0].seen.starts_with("Possible, not shown: "), "{:#?}", report.conclusions);
        assert!(report.conclusions[0].seen.contains("Not known: the server's capture"));
        assert_eq!(report.conclusions.len(), 1, "a call with a possible cause is not one without");
    }
}
