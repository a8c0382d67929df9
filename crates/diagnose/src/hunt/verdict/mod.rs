//! From shares to a verdict: a culprit only if even its lower bound is most of the excess.

mod blameless;
pub(super) mod document;
mod headline;
mod limits;
mod named;
mod read;
mod scattered;
mod unanswered;
mod words;

pub use document::{
    Answer, Behind, Blamed, Effect, Excess, Experiment, Hunt, Kind, Line, Place, Questions, Seen, Win,
};

use super::answer::Answered;
use super::population::{Population, quantile};
use super::recorded::recorded;
use super::{Asked, OnStep, Owner, Question, Slower, Step, catalogue, support};
use crate::verdict::{self as brief, Verdict};
use named::Named;
pub use read::where_lost;
use read::{Read, THIRD, read, refined};
use spangap_model::advice::{about, about_leg};
use spangap_model::evidence::{Evidence, Instrument};
use spangap_model::{Culprit, Side};
use std::collections::BTreeSet;
use words::words;

/// What slow calls take beyond others of their kind is a footnote below this share of all time, unless somebody is named for it
/// who holds calls up one by one.
const FOOTNOTE: f64 = 0.05;
/// Where nothing is shown and there is neither a reference nor a slower half, a call that takes less is not called slow for
/// what it consists of, nanoseconds. Nothing in the pair itself tells a long call from a short one there.
const SLOW_NS: u64 = 5_000_000;
/// A queue is named where this much of it was seen to be one.
const SEEN: f64 = 0.8;

/// The answers to both questions.
pub(super) struct Answers {
    /// Why the slow ones are slow.
    pub slow: Option<Answered>,
    /// What has held up calls for the longest time, and what these calls take beyond others.
    pub held_up: Option<(Owner, Answered)>,
    /// Why everything is slow.
    pub all: Option<Answered>,
    /// Whether that is beside a reference: without an answer, calls take as long as there.
    pub compared: bool,
    /// Whether as many calls of the reference are as slow as those that stand out.
    pub slow_as_often: bool,
    /// What calls take longer than in the reference, nanoseconds, where that is spread over everything.
    pub spread_ns: Option<f64>,
}

/// What both questions come to.
pub(super) fn of(
    evidence: &Evidence,
    question: &Question<'_>,
    population: &Population<'_>,
    answers: Answers,
    on_step: &mut OnStep<'_>,
) -> Hunt {
    let Answers { slow, held_up, all, compared, slow_as_often, spread_ns } = answers;
    let covered = read::covered(population);
    let usual_ns = population.median_ns();
    let read_of = |answered: Option<Answered>| answered.map(|answered| (read(&answered, covered), answered));
    let (mut slow, mut all) = (read_of(slow), read_of(all));
    if let Some((read, answered)) = all.as_mut() {
        read.what_is_usual_is_a_place(answered, usual_ns);
    }
    // What is within the spread that calls have anyway is nothing, unless it is shown, call by call.
    slow = slow.filter(|(read, answered)| answered.stands_out || read.is_event());
    if slow.as_ref().is_none_or(|(read, _)| matches!(read.kind, Kind::Unknown | Kind::Place)) {
        let of_slow = slow.as_ref().map(|(_, answered)| answered);
        slow = held_up.and_then(|held_up| convicts(held_up, of_slow, covered)).or(slow);
    }
    // What is as slow as often in the reference is nothing new, unless somebody is shown to do it.
    slow = slow.filter(|(read, _)| !slow_as_often || !read.culprits.is_empty() || read.is_of_losses());
    let answers = Questions {
        slow: slow.as_ref().map(|(read, answered)| answer_of(read, answered, population)),
        all: all.as_ref().map(|(read, answered)| answer_of(read, answered, population)),
    };
    let headline = headline::headline(question, usual_ns, slow, all);
    let mut hunt = match &headline {
        Some((read, answered)) => report(read, answered, population),
        None if population.rows.is_empty() => unanswered::no_calls(evidence),
        None => match population.few().filter(|_| !slow_as_often) {
            Some(few) => unanswered::too_few(&few),
            None if population.are_streams() => unanswered::streams(population),
            None => unanswered::nothing(question, compared, spread_ns, usual_ns),
        },
    };
    hunt.questions = answers;
    hunt.coverage = coverage(evidence, population, covered);
    hunt.excess.calls = population.calls().round() as u64;
    hunt.excess.pair = pair(population);
    hunt.excess.method.clone_from(&question.method);
    hunt.excess.quantile = match question.slower {
        Some(Slower::Quantile(share)) => Some(share),
        _ => None,
    };
    hunt.beside.clone_from(&evidence.findings);
    hunt.beside.sort_by_key(|finding| !finding.is_shown());
    limits::also(&mut hunt, evidence, population);
    limits::not_captured(&mut hunt, question);
    limits::before_first_bytes(&mut hunt, population);
    limits::not_placed(&mut hunt, evidence, population);
    for blamed in &mut hunt.culprits {
        support::weigh(blamed, evidence, headline.as_ref().map(|(_, answered)| answered));
    }
    let named: Vec<Culprit> = hunt.culprits.iter().map(|one| one.culprit).collect();
    let answered = headline.as_ref().map(|(_, answered)| answered);
    if let Some(answered) = answered {
        hunt.coverage.without_recording = answered.left_out as u64;
        on_step(Step::InQuestion(hunt.excess.slow_calls, hunt.excess.mean_ns));
    }
    (hunt.cleared, hunt.not_looked) = catalogue::suspects(evidence, population, answered, &named, on_step);
    if !matches!(hunt.verdict, Kind::One | Kind::Nothing) {
        hunt.look_next.extend(limits::needs(evidence, population, &hunt.not_looked));
    }
    if question.against.is_some() && !compared {
        hunt.look_next
            .push("The reference has too few calls of the same kinds (method, instruments).".into());
    }
    hunt
}

/// What holds calls up, where that explains what they take beyond others, and is much of why slow calls are slow.
fn convicts(
    (owner, answered): (Owner, Answered),
    slow: Option<&Answered>,
    covered: f64,
) -> Option<(Read, Answered)> {
    let share = |(of, share): &(Owner, super::shares::Share)| (*of == owner).then_some(share.mid);
    let of_slow = slow.map(|slow| slow.shares.iter().find_map(share).unwrap_or(0.0));
    let read = read(&answered, covered);
    let names_it = match owner {
        Owner::Lost(_) => read.is_of_losses(),
        _ => read.kind == Kind::One && read.culprits.iter().all(|named| named.owner == owner),
    };
    (names_it && answered.of_all >= FOOTNOTE && of_slow.is_none_or(|share| share >= THIRD))
        .then_some((read, answered))
}

fn question_name(asked: Asked) -> &'static str {
    match asked {
        Asked::Slow => "slow",
        Asked::All | Asked::Against => "all",
    }
}

fn sheet(answered: &Answered) -> Vec<Line> {
    let line = |(owner, share): &(Owner, super::shares::Share)| {
        let (culprit, leg, hop) = match owner {
            Owner::Culprit(culprit) | Owner::Noise(culprit) => {
                (Some(refined(*culprit, answered)), None, None)
            }
            Owner::Place(legs) | Owner::Between(legs) => (None, Some(*legs), None),
            Owner::Lost(sender) => (None, Some(where_lost(*sender)), None),
            Owner::Hop(hop, legs) => (None, Some(*legs), Some(*hop)),
        };
        let of = |share: f64| (share * answered.each_ns.mid) as i64;
        Line {
            culprit,
            noise: matches!(owner, Owner::Noise(_)),
            leg,
            hop,
            between_threads: matches!(owner, Owner::Between(_)),
            lost: matches!(owner, Owner::Lost(_)),
            ns: of(share.mid),
            low_ns: of(share.low),
            high_ns: of(share.high),
            share: *share,
        }
    };
    answered.shares.iter().map(line).collect()
}

fn blamed(read: &Read, answered: &Answered, population: &Population<'_>) -> Vec<Blamed> {
    let one = |named: &Named| Blamed {
        culprit: named.culprit,
        share: named.share,
        calls: answered.present.get(&named.owner).map_or(0, |present| present.calls.round() as u64),
        speaks_for: Vec::new(),
        speaks_against: Vec::new(),
        meaning: about(named.culprit.cause, named.culprit.side).meaning.into(),
        remedy: about(named.culprit.cause, named.culprit.side).next.into(),
        wins: win(population, named.owner),
        behind: Vec::new(),
    };
    read.culprits.iter().map(one).collect()
}

/// What calls would take without an owner's time: at the median and at the 99th percentile.
fn win(population: &Population<'_>, owner: Owner) -> Win {
    let rows = || population.rows.iter();
    let now: Vec<(u64, f64)> = rows().map(|row| (row.call.duration_ns, row.call.weight)).collect();
    let without = rows().map(|row| {
        let ns = row.account.get(&owner).copied().unwrap_or(0).max(0);
        (row.call.duration_ns.saturating_sub(ns.unsigned_abs()), row.call.weight)
    });
    let without: Vec<(u64, f64)> = without.collect();
    let at = |share: f64| quantile(now.clone(), share).saturating_sub(quantile(without.clone(), share));
    Win { p50_ns: at(0.5), p99_ns: at(0.99) }
}

fn excess(answered: &Answered) -> Excess {
    Excess {
        pair: String::new(),
        method: None,
        quantile: None,
        calls: 0,
        slow_calls: answered.calls.round() as u64,
        total_ns: (answered.each_ns.mid * answered.calls) as u64,
        baseline_ns: answered.baseline_ns as u64,
        mean_ns: answered.each_ns.mid as u64,
        of_all: answered.of_all,
        by_event: answered.by_event,
    }
}

fn answer_of(read: &Read, answered: &Answered, population: &Population<'_>) -> Answer {
    Answer {
        verdict: read.kind,
        culprits: blamed(read, answered, population),
        place: read.place.clone(),
        excess: excess(answered),
        sheet: sheet(answered),
        unexplained: answered.unexplained,
        trace_ids: rests_on(read, answered),
        words: words(read, answered),
    }
}

/// Calls that an answer rests on: those that have the most of what it names.
fn rests_on(read: &Read, answered: &Answered) -> Vec<String> {
    let first = read.culprits.first().and_then(|named| answered.present.get(&named.owner));
    let ids = first.map(|present| &present.trace_ids).filter(|ids| !ids.is_empty());
    ids.unwrap_or(&answered.trace_ids).clone()
}

fn report(read: &Read, answered: &Answered, population: &Population<'_>) -> Hunt {
    let of = answer_of(read, answered, population);
    Hunt {
        verdict: of.verdict,
        question: question_name(answered.asked),
        culprits: of.culprits,
        look_next: of.place.iter().map(|place| about_leg(place.leg).to_owned()).collect(),
        place: of.place,
        excess: of.excess,
        sheet: of.sheet,
        unexplained: of.unexplained,
        trace_ids: of.trace_ids,
        words: of.words,
        ..Hunt::default()
    }
}

/// The pair: hosts of the clients, and addresses of the servers, by name where there is one of each.
fn pair(population: &Population<'_>) -> String {
    let host = |at: &str| at.rsplit_once(':').map_or(at.to_owned(), |(host, _)| host.to_owned());
    let records = || population.rows.iter().map(|row| row.call.record);
    let clients: BTreeSet<String> = records().filter_map(|call| call.client.as_deref()).map(host).collect();
    let servers: BTreeSet<String> = records().filter_map(|call| call.server.clone()).collect();
    let name = |of: &BTreeSet<String>, noun: &str| match of.len() {
        0 => "?".to_owned(),
        1 => of.first().cloned().unwrap_or_default(),
        many => format!("{many} {noun}"),
    };
    format!("{}->{}", name(&clients, "clients"), name(&servers, "servers"))
}

fn coverage(evidence: &Evidence, population: &Population<'_>, covered: f64) -> Seen {
    // Spans are counted each, two for a call.
    let spans = evidence.spans.map_or(0, |spans| spans.joined / 2);
    let hosts = Side::ALL.into_iter().filter(|side| recorded(population, *side) > 0.0);
    let recordings = evidence.coverage.iter().filter(|one| one.instrument == Instrument::HostRecording);
    Seen {
        calls: evidence.matching_calls.max(spans),
        captured: evidence.matching_calls,
        looked_at: population.rows.len() as u64,
        set_aside: population.set_aside as u64,
        without_spans: 0,
        not_behind_proxies: 0,
        without_recording: 0,
        with_legs: covered,
        hosts: hosts.map(|side| side.name().to_owned()).collect(),
        recordings: recordings.cloned().collect(),
        limits: evidence.limits().cloned().collect(),
    }
}

impl Hunt {
    /// As short as a judge says it.
    pub fn verdict(&self) -> Verdict {
        let answer = match (self.verdict, self.culprits.as_slice()) {
            (Kind::One, [one]) => brief::Answer::Culprit(one.culprit),
            (Kind::Nothing, _) => brief::Answer::NOTHING,
            _ => brief::Answer::Unknown,
        };
        Verdict { answer, leg: self.place.as_ref().map(|place| place.leg), why: Some(self.words.clone()) }
    }
}
