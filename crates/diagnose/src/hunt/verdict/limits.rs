//! What the sheet cannot show: a verdict is amended by it, and says what would.

use super::{Blamed, Hunt, Kind, Question};
use crate::hunt::answer::knows_ends;
use crate::hunt::catalogue::{self, NotLooked};
use crate::hunt::lack::Lack;
use crate::hunt::population::{EFFECTIVE, Population, Row};
use spangap_model::advice::about;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{CallRecord, Evidence, Finding, Need, UnplacedSpans};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::{BTreeMap, BTreeSet};

/// So many calls that captures lack are too many to say of all that nothing is wrong.
const NOT_CAPTURED: f64 = 0.02;
/// Spans that take so many times as long as the calls in the packets are of more than these.
const LONGER: u64 = 2;
/// The least time after which a handshake is tried again, nanoseconds (RFC 6298, 2.1).
const FIRST_RETRY_NS: u64 = 1_000_000_000;
/// Of the calls, so many with a connection of their own say why.
const MANY: f64 = 0.05;

/// What the sheet cannot show, being no stretch of a call: a connection for every call.
pub fn also(hunt: &mut Hunt, evidence: &Evidence, population: &Population<'_>) {
    let of = |culprit: Culprit| Blamed {
        culprit,
        meaning: about(culprit.cause, culprit.side).meaning.into(),
        remedy: about(culprit.cause, culprit.side).next.into(),
        ..Blamed::default()
    };
    let retried = evidence.spans.is_some_and(|spans| {
        spans.extra_attempts > 1 && spans.extra_attempts as f64 >= MANY * spans.joined as f64
    });
    let opens = |call: &CallRecord| {
        // Connections behind a proxy are the proxy's.
        let is_clients = |finding: &Finding| finding.hop.is_none_or(|hop| hop == 0);
        call.findings.iter().any(|finding| {
            finding.culprit.cause == Cause::ConnectionPerCall && finding.is_shown() && is_clients(finding)
        })
    };
    // Where the begin of a call is known, what it took to connect is on its sheet.
    let is_on_sheet =
        |call: &CallRecord| call.legs.iter().any(|leg| leg.legs == Legs::one(Leg::ClientAppOut));
    let opened = population.rows.iter().map(|row| row.call.record);
    let opened = opened.filter(|call| opens(call) && !is_on_sheet(call)).count();
    let in_sheet = population.rows.iter().any(|row| row.call.attempts > 1);
    if retried && !in_sheet && !matches!(hunt.verdict, Kind::One) {
        hunt.words = "Spans show calls with several attempts; nothing shows what the earlier attempts cost."
            .to_owned();
        hunt.culprits = vec![of(Culprit::of(Cause::Retries))];
        hunt.verdict = Kind::One;
        return;
    }
    let held_up = held_up_opening(population);
    // To try again takes a second at least: more than anything else may explain.
    let takes_most = held_up.is_some_and(|(_, calls)| calls * FIRST_RETRY_NS > hunt.excess.total_ns);
    let is_place = matches!(hunt.verdict, Kind::Place | Kind::Unknown);
    if hunt.verdict != Kind::Nothing && !(is_place && takes_most) {
        return;
    }
    if let Some((culprit, calls)) = held_up {
        hunt.place = None;
        hunt.words = format!(
            "{calls} of {} calls waited for {culprit} while their connection opened, before the first byte of their request.",
            population.rows.len()
        );
        hunt.culprits = vec![of(culprit)];
        hunt.verdict = Kind::One;
    } else if opened > 1 && 2 * opened >= population.rows.len() {
        hunt.words = format!("{opened} of {} calls opened their connection first.", population.rows.len());
        hunt.culprits = vec![of(Culprit::at(Cause::ConnectionPerCall, Side::Client))];
        hunt.verdict = Kind::One;
    }
}

/// What held up the opening of connections, as packets show, before the first byte of so many requests that it is no single
/// case. Where no span shows when a call began, that is on no sheet.
fn held_up_opening(population: &Population<'_>) -> Option<(Culprit, u64)> {
    let begins_with_bytes =
        |call: &CallRecord| !call.legs.iter().any(|leg| leg.legs.first == Leg::ClientAppOut);
    let mut calls: BTreeMap<Culprit, f64> = BTreeMap::new();
    for row in population.rows.iter().filter(|row| begins_with_bytes(row.call.record)) {
        let of_opening = row.call.record.findings.iter().find(|finding| {
            let is_of_opening = matches!(finding.culprit.cause, Cause::SynLoss | Cause::AcceptOverflow);
            is_of_opening && finding.is_shown() && finding.hop.is_none_or(|hop| hop == 0)
        });
        if let Some(finding) = of_opening {
            *calls.entry(finding.culprit).or_default() += row.call.weight;
        }
    }
    let (culprit, calls) = calls.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    (calls >= EFFECTIVE).then_some((culprit, calls.round() as u64))
}

/// Calls that spans show and captures lack may be the slow ones: of the others alone nothing is said of all.
pub fn not_captured(hunt: &mut Hunt, question: &Question<'_>) {
    let is_part =
        question.method.is_some() || question.from_unix_ns.is_some() || question.to_unix_ns.is_some();
    let (calls, missing) = (hunt.coverage.calls, hunt.coverage.calls.saturating_sub(hunt.coverage.captured));
    if is_part
        || hunt.verdict != Kind::Nothing
        || missing < 4
        || (missing as f64) < NOT_CAPTURED * calls as f64
    {
        return;
    }
    hunt.verdict = Kind::Unknown;
    hunt.words = format!(
        "The captures lack {missing} of the {calls} calls that spans show; nothing can be said about those. About \
         the others: {}",
        hunt.words
    );
    hunt.look_next.push("`spangap gaps --explain` compares the spans of all calls, captured or not.".into());
}

/// Spans that fit no call say how long clients waited, and calls in the packets how much of that passed there. Where the rest is
/// more than what an answer accounts for, the answer is not why clients wait.
pub fn not_placed(hunt: &mut Hunt, evidence: &Evidence, population: &Population<'_>) {
    let Some(UnplacedSpans { spans, median_ns }) = evidence.unplaced else { return };
    let usual_ns = population.median_ns();
    let elsewhere_ns = median_ns.saturating_sub(usual_ns) as f64 * population.calls();
    if median_ns < LONGER * usual_ns || elsewhere_ns <= hunt.excess.total_ns as f64 {
        return;
    }
    hunt.words = format!(
        "Clients wait for something that is not in the packets of their calls: {spans} CLIENT spans take {} (median), the calls that \
         packets show take {}, and nothing tells which span is of which call. Of the packets alone: {}",
        format_ns(median_ns),
        format_ns(usual_ns),
        hunt.words
    );
    (hunt.verdict, hunt.culprits, hunt.place) = (Kind::Unknown, Vec::new(), None);
    hunt.look_next.push(
        "Trace context in the requests, or TLS keys in the captures, would tell which span is of which call."
            .into(),
    );
}

/// Packets show a call from its first byte on. Of what it waited for before, in the client's program, nobody says that it was
/// nothing.
pub fn before_first_bytes(hunt: &mut Hunt, population: &Population<'_>) {
    let rows: Vec<&Row<'_>> = population.rows.iter().collect();
    if hunt.verdict != Kind::Nothing || knows_ends(&rows) {
        return;
    }
    hunt.verdict = Kind::Unknown;
    hunt.words.push_str(
        " That is from the first byte of each request on: no span shows when these calls began in the client's program, and \
         they may have waited there, for a connection, a name, a lock or a CPU.",
    );
}

/// What would supply what is missing, in sentences. What suspects that nobody looked for need is said with them.
pub fn needs(evidence: &Evidence, population: &Population<'_>, not_looked: &[NotLooked]) -> Vec<String> {
    let findings = population.rows.iter().flat_map(|row| &row.call.record.findings);
    let mut needs: BTreeSet<Need> =
        findings.filter_map(|finding| Some(finding.certainty.missing()?.need())).collect();
    for side in Side::ALL {
        needs.extend([Need::Capture(side), Need::HostRecording(side), Need::Spans(side)]);
    }
    // What one call lacks, most may have.
    let looked = catalogue::Looked::of(evidence, population);
    let is_said = |lack: Lack| not_looked.iter().any(|one| one.lacks == Some(lack));
    let sentence = |need| {
        if need == Need::LongerCapture {
            return Some("Some captures begin or end in the middle of connections.".into());
        }
        let missing = looked.lacks_need(need).filter(|(lack, _)| !is_said(*lack))?;
        Some(format!("Not looked: {}.", catalogue::in_words(missing)))
    };
    needs.into_iter().filter_map(sentence).collect()
}
