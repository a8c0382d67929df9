//! From shares to a verdict: a culprit only if even its lower bound is most of the excess.

mod blameless;
pub(super) mod document;
mod named;
mod read;
mod scattered;

pub use document::{
    Answer, Behind, Blamed, Effect, Excess, Experiment, Hunt, Kind, Line, Place, Questions, Seen, Win,
};

use super::account::QUEUE;
use super::answer::{Answered, knows_ends};
use super::catalogue::NotLooked;
use super::lack::Lack;
use super::population::{Population, Row, Slow, quantile};
use super::recorded::recorded;
use super::{Asked, OnStep, Owner, Question, Slower, Step, catalogue, support};
use crate::verdict::{self as brief, Verdict};
use named::Named;
use read::{MOST, PLACE_MOMENTS, Read, THIRD, is_standing, read, refined};
use scattered::scattered;
use spangap_model::advice::{about, about_leg};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{CallRecord, Evidence, Finding, Need};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeSet;

/// What slow calls take beyond others of their kind is a footnote below this share of all time, unless somebody is named for it
/// who holds calls up one by one ...
const FOOTNOTE: f64 = 0.05;
/// ... or it is known where that passed, and it is this much ...
const LEAST_OF_ALL: f64 = 0.02;
/// ... and the headline from this share on, whatever it comes to.
const HEADLINE: f64 = 0.2;
/// Where nothing is shown and there is neither a reference nor a slower half, a call that takes less is not called slow for
/// what it consists of, nanoseconds. Nothing in the pair itself tells a long call from a short one there.
const SLOW_NS: u64 = 5_000_000;
/// Below that, a way that has most of the time is a place, since nothing tells whether it always took that, nanoseconds: two
/// hosts near each other exchange packets in less ...
const FAR_NS: f64 = 500_000.0;
/// ... and a queue is named where this much of it was seen to be one, and it takes so long, nanoseconds.
const SEEN: f64 = 0.8;
const QUEUE_NS: f64 = 200_000.0;
/// A mean that is so many times the median is that of few calls.
const FEW_HAVE_MOST: f64 = 3.0;
/// Noise explains few calls where it has nearly all of what they take: something else may have the rest.
const NEARLY_ALL: f64 = 0.75;
/// So many calls that captures lack are too many to say of all that nothing is wrong.
const NOT_CAPTURED: f64 = 0.02;
/// Of the calls, so many with a connection of their own say why.
const MANY: f64 = 0.05;

/// The answers to both questions.
pub(super) struct Answers {
    /// Why the slow ones are slow.
    pub slow: Option<Answered>,
    /// What has held up calls for the longest time, and what these calls take beyond others.
    pub held_up: Option<(Owner, Answered)>,
    /// Why everything is slow.
    pub all: Option<Answered>,
}

/// What both questions come to.
pub(super) fn of(
    evidence: &Evidence,
    question: &Question<'_>,
    population: &Population<'_>,
    answers: Answers,
    on_step: &mut OnStep<'_>,
) -> Hunt {
    let Answers { slow, held_up, all } = answers;
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
    let answers = Questions {
        slow: slow.as_ref().map(|(read, answered)| answer_of(read, answered, population)),
        all: all.as_ref().map(|(read, answered)| answer_of(read, answered, population)),
    };
    let headline = headline(question, usual_ns, slow, all);
    let mut hunt = match &headline {
        Some((read, answered)) => report(read, answered, population),
        None if population.rows.is_empty() => no_calls(evidence),
        None => match population.few() {
            Some(few) => too_few(&few),
            None if population.are_streams() => streams(population),
            None => nothing(question, usual_ns),
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
    also(&mut hunt, evidence, population);
    not_captured(&mut hunt, question);
    before_first_bytes(&mut hunt, population);
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
        hunt.look_next.extend(needs(evidence, population, &hunt.not_looked));
    }
    if question.against.is_some() && hunt.questions.all.is_none() {
        hunt.look_next.push(
            "The reference has too few calls of the same kinds (method, size, instruments), or they take just as \
             long."
                .into(),
        );
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
    let names_it = read.kind == Kind::One && read.culprits.iter().all(|named| named.owner == owner);
    (names_it && answered.of_all >= FOOTNOTE && of_slow.is_none_or(|share| share >= THIRD))
        .then_some((read, answered))
}

/// Which of the two answers comes first.
fn headline(
    question: &Question<'_>,
    usual_ns: u64,
    slow: Option<(Read, Answered)>,
    all: Option<(Read, Answered)>,
) -> Option<(Read, Answered)> {
    // Who says which calls are slow asks about these.
    if question.slower.is_some() && slow.is_some() {
        return slow;
    }
    if question.against.is_some() && all.is_some() {
        return all;
    }
    // What calls always consist of is no answer where few of them stand out, and it is shown by what, or where.
    let is_footnote = |slow: &(Read, Answered)| {
        // Nor where what they consist of would be named in the stead of one process that has the CPU.
        let yields = || {
            all.as_ref().is_some_and(|all| all.0.kind == Kind::One || all.0.is_usual_place)
                && slow.0.is_one_that_runs()
        };
        let is_told =
            slow.0.is_held_up() || slow.1.of_all >= LEAST_OF_ALL && (slow.0.kind == Kind::Place || yields());
        slow.1.of_all < FOOTNOTE && !(is_told && all.as_ref().is_none_or(|all| all.0.is_always_there()))
    };
    let (slow, noise) = match slow.filter(|slow| !is_footnote(slow)) {
        Some(slow) if slow.0.kind == Kind::Nothing => (None, Some(slow)),
        slow => (slow, None),
    };
    // Of everything, a place is said of calls that take long alone, or where a few of them have most of the time; what is shown,
    // of any.
    let all = all.filter(|(read, answered)| {
        usual_ns >= SLOW_NS
            || !read.culprits.is_empty() && !read.is_usual()
            || tells_of_quick(read, answered)
            || tells_of_few(read, answered, usual_ns)
    });
    match (slow, all) {
        (Some(slow), Some(all)) => {
            let first = match (slow.0.kind, all.0.kind) {
                // Of two that are both named, the one that took more time of all calls; what is always there yields. Where
                // they are the same, the contrast shows it better.
                (Kind::One, Kind::One) if !all.0.is_always_there() && !slow.0.is_same(&all.0) => {
                    slow.0.lead() * slow.1.of_all >= all.0.lead() * all.1.of_all
                }
                (Kind::One, _) => true,
                // What calls always consist of is no answer to why some are slow.
                (Kind::Place, Kind::Place) if all.0.is_usual_place => slow.1.of_all >= FOOTNOTE,
                (Kind::Place, Kind::Place) => true,
                // Who leads among slow calls, and is not certain there, is not certain of all.
                (Kind::Place, Kind::One) if is_led_by(&slow.1, &all.0) => true,
                // An excess that nobody owns beside what somebody has of all time.
                (Kind::Unknown | Kind::Place, Kind::One) if !all.0.is_always_there() => {
                    slow.1.of_all * (1.0 - slow.1.noise.mid) > all.0.lead()
                }
                (_, of_all) => slow.1.of_all >= HEADLINE || !is_standing(of_all),
            };
            Some(if first { slow } else { all })
        }
        // Noise in the slow ones is no answer where all calls take long, and nobody knows why.
        (slow, all) => slow.or(all).or(noise),
    }
}

/// Whether what one answer names has the most of another one's time.
fn is_led_by(answered: &Answered, read: &Read) -> bool {
    answered.shares.first().is_some_and(|(owner, _)| read.culprits.iter().any(|named| named.owner == *owner))
}

/// Whether it can be said of calls that do not take long: that packets were on their way for most of it, or that bytes waited
/// for threads that had other calls in hand.
fn tells_of_quick(read: &Read, answered: &Answered) -> bool {
    let takes = |share: super::shares::Share| share.low * answered.each_ns.mid;
    let is_queue = |named: &Named| named.owner == Owner::Culprit(QUEUE) && takes(named.share) >= QUEUE_NS;
    let is_way = read.place.as_ref().is_some_and(|place| place.both_ways && takes(place.share) >= FAR_NS);
    is_way || read.kind == Kind::One && answered.queued >= SEEN && read.culprits.iter().all(is_queue)
}

/// Whether the mean is so far above the median that most of the time is that of few calls, and it did not pass in the server's work,
/// which some methods take long for by design.
fn tells_of_few(read: &Read, answered: &Answered, usual_ns: u64) -> bool {
    let is_work = |place: &Place| place.leg.contains(Leg::ServerApp);
    answered.asked == Asked::All
        && answered.each_ns.low > FEW_HAVE_MOST * usual_ns as f64
        && answered.noise.high < THIRD
        && read.place.as_ref().is_some_and(|place| !is_work(place))
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
            Owner::Hop(hop, legs) => (None, Some(*legs), Some(*hop)),
        };
        let of = |share: f64| (share * answered.each_ns.mid) as i64;
        Line {
            culprit,
            noise: matches!(owner, Owner::Noise(_)),
            leg,
            hop,
            between_threads: matches!(owner, Owner::Between(_)),
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

fn percent(share: super::shares::Share) -> String {
    let of = |share: f64| format!("{:.0}", share.clamp(-9.99, 9.99) * 100.0);
    format!("{} % ({} to {} %)", of(share.mid), of(share.low), of(share.high))
}

fn words(read: &Read, answered: &Answered) -> String {
    let (calls, each) = (answered.calls.round(), format_ns(answered.each_ns.mid.max(0.0) as u64));
    let took = match answered.asked {
        Asked::Slow if answered.by_event => {
            let event = read.culprits.first().map_or(String::new(), |named| named.culprit.to_string());
            format!(
                "{calls} calls show {event}; they took {each} longer, on average, than calls of their kind that do not."
            )
        }
        Asked::Slow => {
            format!("{calls} slow calls took {each} longer, on average, than ordinary calls of their kind.")
        }
        Asked::All => format!("All {calls} calls took {each} on average."),
        Asked::Against => {
            format!("{calls} calls took {each} longer, on average, than those of the reference.")
        }
    };
    let head = if read.kind == Kind::Nothing { "Nothing but the machine's own noise: " } else { "" };
    format!("{head}{took} {}", accounts_for(read, answered))
}

/// Who or what accounts for the time, as a sentence after the one that says how much it is.
fn accounts_for(read: &Read, answered: &Answered) -> String {
    let who = |named: &Named| format!("{} accounts for {}", named.culprit, percent(named.share));
    match (read.kind, &read.place) {
        (Kind::One | Kind::Several, _) => {
            let who: Vec<String> = read.culprits.iter().map(who).collect();
            format!("{} of that.", who.join(", "))
        }
        (Kind::Nothing, _) => format!(
            "{} of that passed while threads waited for CPUs behind many others, none of which caused most of the \
             wait.",
            percent(answered.noise)
        ),
        (_, Some(place)) if place.both_ways && answered.asked != Asked::All => format!(
            "{} of that passed on the network between the hosts, in both directions; no single cause accounts for most \
             of it.",
            percent(place.share)
        ),
        (_, Some(place)) if place.both_ways => format!(
            "{} of that passed on the network between the hosts, in both directions, with no other cause. The path \
             takes that long; only a reference can tell whether it always did (`--against`).",
            percent(place.share)
        ),
        (_, Some(place)) if read.is_usual_place => format!(
            "{} of that passed in {}, {}. Only a reference can tell whether the server always takes that long \
             (`--against`).",
            percent(place.share),
            place.leg,
            place.leg.in_words()
        ),
        (_, Some(place)) => {
            let why = match place.between_threads {
                true => {
                    "while a thread there waited on a futex for another thread of its process, for a lock or for a \
                     result: the evidence does not tell them apart"
                }
                false if read.by_chance.is_some() => {
                    "in fewer than four separate moments, which are too few to say why"
                }
                false if is_unowned(place, answered) => "the evidence does not say why",
                false => "no single cause accounts for most of it",
            };
            format!("{} of that passed {}; {why}.", percent(place.share), at(place))
        }
        _ if read.beside_noise.is_some() => format!(
            "{} of that passed while threads waited for CPUs behind many others. But most of these calls, and hardly any \
             others, also show {}: {}. A run on a quieter machine would tell how much of the wait that causes.",
            percent(answered.noise),
            read.beside_noise.map_or(String::new(), |named| named.culprit.to_string()),
            read.beside_noise.map_or(String::new(), |named| percent(named.share)),
        ),
        _ if answered.asked != Asked::All && read.by_chance.is_none() && answered.noise.mid > MOST => {
            let largest = answered.shares.iter().find(|(owner, _)| !matches!(owner, Owner::Noise(_)));
            let rest = largest.map_or(String::new(), |(owner, share)| {
                let name = match owner {
                    Owner::Culprit(culprit) | Owner::Noise(culprit) => {
                        refined(*culprit, answered).to_string()
                    }
                    Owner::Place(legs) | Owner::Between(legs) => legs.in_words().to_string(),
                    Owner::Hop(hop, legs) => format!("{} behind proxy {hop}", legs.in_words()),
                };
                format!(" Another {} belongs to: {name}.", percent(*share))
            });
            format!(
                "{} of that passed while threads waited for CPUs behind many others.{rest} A run on a quieter machine would tell \
                 whether that is more than noise.",
                percent(answered.noise)
            )
        }
        _ => match &read.by_chance {
            Some(named) => format!(
                "{} of that, but nearly all of it in fewer than four separate moments: too few to blame it.",
                who(named)
            ),
            None => match &read.untold {
                Some(place) => format!(
                    "{} of that passed {}. {}",
                    percent(place.share),
                    at(place),
                    untold(place, answered)
                ),
                None if waits_for_cpus(answered) > MOST => format!(
                    "{:.0} % of that passed while threads waited for CPUs, and no single program certainly had most of it.",
                    waits_for_cpus(answered).min(1.0) * 100.0
                ),
                None => scattered(
                    &answered.ends,
                    answered.noise,
                    answered.asked != Asked::All || answered.knows_ends,
                ),
            },
        },
    }
}

/// The share of waits for CPUs at both ends, whoever had these.
fn waits_for_cpus(answered: &Answered) -> f64 {
    let is_wait = |owner: &Owner| match owner {
        Owner::Culprit(culprit) | Owner::Noise(culprit) => culprit.cause == Cause::RunQueue,
        Owner::Place(_) | Owner::Between(_) | Owner::Hop(..) => false,
    };
    answered.shares.iter().filter(|(owner, _)| is_wait(owner)).map(|(_, share)| share.mid).sum()
}

/// The name of a leg is in the glossary; several joined are told as places alone.
fn at(place: &Place) -> String {
    let hop = place.hop.map_or(String::new(), |hop| format!(" behind proxy {hop}"));
    let (leg, words) = (place.leg, place.leg.in_words());
    if leg.first == leg.last { format!("in {leg}{hop}, {words}") } else { format!("{words}{hop}") }
}

/// Why a place is not told.
fn untold(place: &Place, answered: &Answered) -> &'static str {
    match place.side.map(|side| answered.recorded[side.index()]) {
        _ if answered.answered_unsent > MOST => {
            "But packets show that these calls were answered, so that they had left: the spans have another clock than the \
             capture, which is not from the client's end."
        }
        _ if answered.asked == Asked::All => {
            "But nobody saw when these calls began, and more may have passed before that."
        }
        _ if answered.moments < PLACE_MOMENTS => {
            "But it was a single moment, which tells nothing about other calls."
        }
        Some(recorded) if recorded < MOST => {
            "But nobody recorded that host, and a busy machine would look the same."
        }
        _ => "But other legs took less than no time, so the clocks cannot have been compared.",
    }
}

/// Whether most of a place's time has no owner.
fn is_unowned(place: &Place, answered: &Answered) -> bool {
    let is_there = |owner: &Owner| match owner {
        Owner::Place(legs) | Owner::Between(legs) | Owner::Hop(_, legs) => {
            place.leg.contains(legs.first) && place.leg.contains(legs.last)
        }
        Owner::Culprit(_) | Owner::Noise(_) => false,
    };
    let unowned = answered.shares.iter().filter(|(owner, _)| is_there(owner));
    unowned.map(|(_, share)| share.mid).sum::<f64>() >= MOST * place.share.mid
}

fn nothing(question: &Question<'_>, usual_ns: u64) -> Hunt {
    let usual = format_ns(usual_ns);
    let words = match (question.slower, question.against) {
        (Some(_), _) => format!(
            "Nothing to explain: too few calls are that slow, or they take no longer than others of their kind. The \
             median is {usual}."
        ),
        (_, Some(_)) => {
            format!("Nothing to explain: the median call takes {usual}, no longer than in the reference.")
        }
        _ => format!("Nothing stands out: the median call takes {usual}, and hardly any takes much longer."),
    };
    Hunt { question: if question.against.is_some() { "all" } else { "slow" }, words, ..Hunt::default() }
}

/// Streams last as long as their messages go on: a slow receiver makes them long, and so does a long story.
fn streams(population: &Population<'_>) -> Hunt {
    let durations = population.rows.iter().map(|row| (row.call.duration_ns, row.call.weight));
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: format!(
            "None of these calls stands out from the others. All of them are streams, whose server works while it sends, \
             and they last {} (median). Only a reference can tell whether that is too long (`--against`).",
            format_ns(quantile(durations.collect(), 0.5))
        ),
        ..Hunt::default()
    }
}

/// Of calls that nobody saw, nobody says that nothing is wrong.
fn no_calls(evidence: &Evidence) -> Hunt {
    let words = match evidence.matching_calls {
        0 => {
            "The captures show no call: its connections may have been refused, or the packets may be of something else."
        }
        _ => "The captures show calls, but none of those that were asked for.",
    };
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: words.into(),
        look_next: vec![
            "`spangap dissect` says which connections were opened, refused or not understood.".into(),
        ],
        ..Hunt::default()
    }
}

/// Calls that stand out, and too few of them to compare.
fn too_few(few: &Slow<'_, '_>) -> Hunt {
    let noise: f64 = few.rows.iter().map(|row| row.call.weight * of_noise(row)).sum();
    let mut hunt = of_few(few);
    if noise >= few.beyond_ns * NEARLY_ALL {
        hunt.verdict = Kind::Nothing;
        hunt.words = format!(
            "Nothing but the machine's own noise: few calls stand out, and while they lasted, threads waited for CPUs behind many \
             others, for {} in all.",
            format_ns(noise as u64)
        );
    }
    hunt
}

/// What noise has of a call, nanoseconds.
fn of_noise(row: &Row<'_>) -> f64 {
    let noise = row.account.iter().filter(|(owner, _)| matches!(owner, Owner::Noise(_)));
    noise.map(|(_, ns)| *ns as f64).sum()
}

fn of_few(few: &Slow<'_, '_>) -> Hunt {
    let (calls, each) = (few.calls.round(), format_ns((few.beyond_ns / few.calls.max(1.0)) as u64));
    let noun = if calls == 1.0 { "call took" } else { "calls took" };
    let ids = few.rows.iter().filter_map(|row| row.call.record.trace_id.clone());
    Hunt {
        verdict: Kind::Unknown,
        question: "slow",
        words: format!(
            "{calls} {noun} {each} longer than others of their kind: too few for a comparison to show why."
        ),
        look_next: vec!["`spangap dissect` shows the slowest calls one by one, packet by packet.".into()],
        trace_ids: ids.take(5).collect(),
        excess: Excess {
            slow_calls: calls as u64,
            total_ns: few.beyond_ns as u64,
            mean_ns: (few.beyond_ns / few.calls.max(1.0)) as u64,
            ..Excess::default()
        },
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
        limits: evidence.limits().cloned().collect(),
    }
}

/// What the sheet cannot show, being no stretch of a call: a connection for every call.
fn also(hunt: &mut Hunt, evidence: &Evidence, population: &Population<'_>) {
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
    } else if hunt.verdict == Kind::Nothing && opened > 1 && 2 * opened >= population.rows.len() {
        hunt.words = format!("{opened} of {} calls opened their connection first.", population.rows.len());
        hunt.culprits = vec![of(Culprit::at(Cause::ConnectionPerCall, Side::Client))];
        hunt.verdict = Kind::One;
    }
}

/// Calls that spans show and captures lack may be the slow ones: of the others alone nothing is said of all.
fn not_captured(hunt: &mut Hunt, question: &Question<'_>) {
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

/// Packets show a call from its first byte on. Of what it waited for before, in the client's program, nobody says that it was
/// nothing.
fn before_first_bytes(hunt: &mut Hunt, population: &Population<'_>) {
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
fn needs(evidence: &Evidence, population: &Population<'_>, not_looked: &[NotLooked]) -> Vec<String> {
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
