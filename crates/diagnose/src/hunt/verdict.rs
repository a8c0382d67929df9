//! From shares to a verdict: a culprit only when even its lower bound is most of the excess.

use super::population::Population;
use super::shares::Share;
use super::{Answered, Owner, Question};
use crate::verdict::{Answer, Verdict};
use serde::Serialize;
use spangap_model::advice::{about, about_leg};
use spangap_model::duration::format_ns;
use spangap_model::evidence::{CallRecord, Evidence, Finding, Need};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeSet;

/// One culprit has to own this much of the excess, by its lower bound.
const MOST: f64 = 0.5;
/// Of several, each has to own this much.
const SOME: f64 = 0.15;
/// Of everything, without a comparison, what packets or a host show has to own this much.
const THIRD: f64 = 1.0 / 3.0;
/// What slow calls take beyond others of their kind is a footnote below this share of all time ...
const FOOTNOTE: f64 = 0.05;
/// ... and the headline from this share on, whatever it comes to.
const HEADLINE: f64 = 0.2;
/// A call that takes less is not called slow for what it consists of, nanoseconds.
const SLOW_NS: u64 = 1_000_000;
/// So much of the time has to lie in legs that are told apart.
const COVERED: f64 = 0.5;
/// Of the calls that have both spans, so many with several attempts, or with a connection of their own, say why.
const MANY: f64 = 0.05;

/// What a verdict comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One culprit owns most of it.
    One,
    /// Two or three together do.
    Several,
    /// It is known where the time passed, and not why.
    Place,
    /// Nothing stands out.
    Nothing,
    /// Neither is known.
    Unknown,
}

/// The verdict, with its sheet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hunt {
    /// What it comes to.
    pub verdict: Kind,
    /// `slow`: why slow calls are slower than others of their kind; `all`: what all calls spend their time on.
    pub question: &'static str,
    /// Who is to blame; empty unless `one` or `several`.
    pub culprits: Vec<Blamed>,
    /// Where the time passed, where no culprit is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What had to be explained.
    pub excess: Excess,
    /// Who owns it, the most first.
    pub sheet: Vec<Line>,
    /// What nobody owns.
    pub unexplained: f64,
    /// What was seen.
    pub coverage: Seen,
    /// What other instruments show of hosts, processes and connections, beside the calls. It has no share: none of it says
    /// which calls it held up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Finding>,
    /// What would decide more, in sentences.
    pub look_next: Vec<String>,
    /// Calls that it rests on.
    pub trace_ids: Vec<String>,
    /// All of it in one sentence.
    pub words: String,
}

/// Somebody to blame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blamed {
    /// Who.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// What it has of the excess.
    pub share: Share,
    /// What would mend it.
    pub remedy: &'static str,
}

/// Where the time passed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The legs.
    pub leg: Legs,
    /// What they have of the excess.
    pub share: Share,
}

/// What had to be explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excess {
    /// Calls looked at.
    pub calls: u64,
    /// Those in question.
    pub slow_calls: u64,
    /// Mean time in question of one of them, nanoseconds.
    pub mean_ns: u64,
    /// As a share of all time in calls.
    pub of_all: f64,
}

/// A line of the sheet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Who owns it; absent where nobody does.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<Culprit>,
    /// Where it passed, where nobody owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Legs>,
    /// Of a call in question, nanoseconds.
    pub ns: i64,
    /// What it has of the excess.
    pub share: Share,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Calls that there were.
    pub calls: u64,
    /// Calls that were looked at one by one.
    pub looked_at: u64,
    /// Calls of kinds too rare to be compared.
    pub set_aside: u64,
    /// Share of the time that has an owner, or lies in legs of one host or of one way.
    pub with_legs: f64,
}

/// What both questions come to.
pub fn of(
    evidence: &Evidence,
    population: &Population<'_>,
    slow: Option<Answered>,
    all: Option<Answered>,
) -> Hunt {
    let covered = covered(population);
    let usual_ns = population.medians.values().copied().max().unwrap_or(0);
    let slow = slow.filter(|slow| slow.of_all >= FOOTNOTE).map(|slow| (read(&slow, covered), slow));
    let all = all.map(|all| (read(&all, covered), all));
    let standing = |kind: Kind| matches!(kind, Kind::One | Kind::Place);
    // Of everything, a place is said of calls that take long alone; what is shown, of any.
    let all =
        all.filter(|(read, _)| usual_ns >= SLOW_NS || matches!(read.kind, Kind::One) && !is_usual(read));
    let headline = match (slow, all) {
        (Some(slow), Some(all)) => {
            let first = match (slow.0.kind, all.0.kind) {
                // Of two that are both named, the one that took more time of all calls; what is always there yields.
                (Kind::One, Kind::One) if !is_usual(&all.0) => {
                    slow.0.lead() * slow.1.of_all >= all.0.lead() * all.1.of_all
                }
                (Kind::One, _) => true,
                (_, of_all) => slow.1.of_all >= HEADLINE || !standing(of_all),
            };
            Some(if first { slow } else { all })
        }
        (slow, all) => slow.or(all),
    };
    let mut hunt = match headline {
        Some((read, answered)) => report(read, &answered),
        None => nothing(usual_ns),
    };
    hunt.coverage = Seen {
        calls: evidence.matching_calls,
        looked_at: population.rows.len() as u64,
        set_aside: population.set_aside as u64,
        with_legs: covered,
    };
    hunt.excess.calls = population.rows.len() as u64;
    hunt.beside.clone_from(&evidence.findings);
    hunt.beside.sort_by_key(|finding| !finding.is_shown());
    also(&mut hunt, evidence, population);
    if !matches!(hunt.verdict, Kind::One | Kind::Nothing) {
        hunt.look_next.extend(needs(population));
    }
    hunt
}

/// What one question comes to.
struct Read {
    kind: Kind,
    culprits: Vec<(Culprit, Share)>,
    place: Option<(Legs, Share)>,
}

fn read(answered: &Answered, covered: f64) -> Read {
    let culprits: Vec<(Culprit, Share)> = answered
        .shares
        .iter()
        .filter_map(|(owner, share)| match owner {
            Owner::Culprit(culprit) => Some((refined(*culprit, answered), *share)),
            Owner::Place(_) => None,
        })
        .collect();
    let enough = |first: &(Culprit, Share)| match answered.question {
        Question::Slow => first.1.low > MOST,
        // A round trip, and the server at work, are always there: they need more than a cause that is shown.
        Question::All if is_place(first.0.cause) => first.1.low > MOST,
        Question::All => first.1.low > THIRD,
    };
    // What is always there is no rival of what is shown.
    let mut ranked = culprits.clone();
    if answered.question == Question::All {
        ranked.sort_by(|one, other| {
            let key = |of: &(Culprit, Share)| (is_place(of.0.cause), -of.1.mid);
            key(one).partial_cmp(&key(other)).unwrap_or(std::cmp::Ordering::Equal)
        });
        if ranked.first().is_some_and(|first| !enough(first)) {
            ranked.clone_from(&culprits);
        }
    }
    let rival = |first: &(Culprit, Share)| {
        let others = ranked.iter().skip(1);
        let others = others.filter(|other| {
            answered.question == Question::Slow || is_place(other.0.cause) == is_place(first.0.cause)
        });
        others.map(|(_, share)| share.high).fold(0.0, f64::max)
    };
    if covered >= COVERED {
        if let Some(first) = ranked.first().filter(|first| enough(first) && first.1.low > rival(first)) {
            return Read { kind: Kind::One, culprits: vec![*first], place: None };
        }
        let some: Vec<(Culprit, Share)> =
            culprits.iter().copied().filter(|(_, share)| share.low > SOME).take(3).collect();
        if some.len() > 1 && some.iter().map(|(_, share)| share.low).sum::<f64>() > MOST {
            return Read { kind: Kind::Several, culprits: some, place: None };
        }
    }
    let place = answered.shares.iter().find_map(|(owner, share)| match owner {
        Owner::Place(legs) if share.low > MOST => Some((*legs, *share)),
        _ => None,
    });
    let kind = if place.is_some() { Kind::Place } else { Kind::Unknown };
    Read { kind, culprits: Vec::new(), place }
}

/// A path that some calls take longer on than others varies; large messages take their time wherever they are.
fn refined(culprit: Culprit, answered: &Answered) -> Culprit {
    match culprit.cause {
        Cause::ServerApp | Cause::ClientApp | Cause::ServerQueue | Cause::NetworkDelay if answered.large => {
            Culprit::of(Cause::LargePayload)
        }
        Cause::NetworkDelay if answered.question == Question::Slow => Culprit::of(Cause::NetworkJitter),
        _ => culprit,
    }
}

fn is_place(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::NetworkDelay
            | Cause::NetworkJitter
            | Cause::ServerApp
            | Cause::ServerQueue
            | Cause::ClientApp
            | Cause::LargePayload
    )
}

impl Read {
    /// Share of the first culprit.
    fn lead(&self) -> f64 {
        self.culprits.first().map_or(0.0, |(_, share)| share.mid)
    }
}

/// Whether it is what calls that take no time consist of.
fn is_usual(read: &Read) -> bool {
    read.culprits.iter().all(|(culprit, _)| is_place(culprit.cause))
}

/// Share of the time that has an owner, or lies in legs of one host or of one way.
fn covered(population: &Population<'_>) -> f64 {
    let mut known = 0;
    for (owner, ns) in population.rows.iter().flat_map(|row| row.account) {
        let single = match owner {
            Owner::Culprit(_) => true,
            // On one host: packets at both of its ends bound it.
            Owner::Place(legs) => {
                legs.first == legs.last || Leg::ServerHostIn <= legs.first && legs.last <= Leg::ServerHostOut
            }
        };
        known += if single { (*ns).max(0) } else { 0 };
    }
    known as f64 / population.total_ns.max(1) as f64
}

fn report(read: Read, answered: &Answered) -> Hunt {
    let line = |(owner, share): &(Owner, Share)| {
        let (culprit, leg) = match owner {
            Owner::Culprit(culprit) => (Some(refined(*culprit, answered)), None),
            Owner::Place(legs) => (None, Some(*legs)),
        };
        Line { culprit, leg, ns: (share.mid * answered.mean_ns as f64) as i64, share: *share }
    };
    let sheet: Vec<Line> = answered.shares.iter().map(line).collect();
    let unexplained = sheet.iter().filter(|line| line.culprit.is_none()).map(|line| line.share.mid).sum();
    let culprits: Vec<Blamed> = read
        .culprits
        .iter()
        .map(|(culprit, share)| Blamed {
            culprit: *culprit,
            share: *share,
            remedy: about(culprit.cause, culprit.side).next,
        })
        .collect();
    let look_next = read.place.iter().map(|(legs, _)| about_leg(*legs).to_owned()).collect();
    Hunt {
        verdict: read.kind,
        question: match answered.question {
            Question::Slow => "slow",
            Question::All => "all",
        },
        words: words(&read, answered),
        culprits,
        place: read.place.map(|(leg, share)| Place { leg, share }),
        excess: Excess {
            calls: 0,
            slow_calls: answered.calls as u64,
            mean_ns: answered.mean_ns,
            of_all: answered.of_all,
        },
        sheet,
        unexplained,
        coverage: Seen { calls: 0, looked_at: 0, set_aside: 0, with_legs: 0.0 },
        beside: Vec::new(),
        look_next,
        trace_ids: answered.trace_ids.clone(),
    }
}

fn percent(share: Share) -> String {
    let of = |share: f64| format!("{:.0}", share * 100.0);
    format!("{} % ({} to {} %)", of(share.mid), of(share.low), of(share.high))
}

fn words(read: &Read, answered: &Answered) -> String {
    let what = match answered.question {
        Question::Slow => format!(
            "what {} slow calls take beyond others of their kind, {} each",
            answered.calls,
            format_ns(answered.mean_ns)
        ),
        Question::All => {
            format!("the time of all {} calls, {} each", answered.calls, format_ns(answered.mean_ns))
        }
    };
    let who: Vec<String> =
        read.culprits.iter().map(|(culprit, share)| format!("{culprit} owns {}", percent(*share))).collect();
    match (read.kind, &read.place) {
        (Kind::One | Kind::Several, _) => format!("Of {what}, {}.", who.join(", ")),
        (_, Some((legs, share))) => {
            format!("Of {what}, {} passed in {legs}; why is not known.", percent(*share))
        }
        _ => format!("Nothing owns most of {what}, nor did it pass in one place."),
    }
}

fn nothing(usual_ns: u64) -> Hunt {
    Hunt {
        verdict: Kind::Nothing,
        question: "slow",
        culprits: Vec::new(),
        place: None,
        excess: Excess { calls: 0, slow_calls: 0, mean_ns: 0, of_all: 0.0 },
        sheet: Vec::new(),
        unexplained: 0.0,
        coverage: Seen { calls: 0, looked_at: 0, set_aside: 0, with_legs: 0.0 },
        beside: Vec::new(),
        look_next: Vec::new(),
        trace_ids: Vec::new(),
        words: format!(
            "Nothing stands out: calls take {} or less in the median, and hardly any takes much longer.",
            format_ns(usual_ns)
        ),
    }
}

/// What the sheet cannot show, being no stretch of a call: attempts beyond the first, a connection for every call.
fn also(hunt: &mut Hunt, evidence: &Evidence, population: &Population<'_>) {
    if hunt.verdict == Kind::One {
        return;
    }
    let retried = evidence.spans.is_some_and(|spans| {
        spans.extra_attempts > 1 && spans.extra_attempts as f64 >= MANY * spans.joined as f64
    });
    let opens = |call: &CallRecord| {
        call.findings
            .iter()
            .any(|finding| finding.culprit.cause == Cause::ConnectionPerCall && finding.is_shown())
    };
    let opened = population.rows.iter().filter(|row| opens(row.call)).count();
    let of = |culprit: Culprit, words: &str| Blamed {
        culprit,
        share: Share::default(),
        remedy: if words.is_empty() { "" } else { about(culprit.cause, culprit.side).next },
    };
    if retried {
        let words = "Calls had several attempts, as spans show; what that cost is not shown.";
        hunt.culprits = vec![of(Culprit::of(Cause::Retries), words)];
        hunt.words = words.to_owned();
        hunt.verdict = Kind::One;
    } else if hunt.verdict == Kind::Nothing && opened > 1 && 2 * opened >= population.rows.len() {
        let words = format!("{opened} of {} calls opened their connection first.", population.rows.len());
        hunt.culprits = vec![of(Culprit::at(Cause::ConnectionPerCall, Side::Client), &words)];
        hunt.words = words;
        hunt.verdict = Kind::One;
    }
}

/// What would supply what is missing, in sentences.
fn needs(population: &Population<'_>) -> Vec<String> {
    let calls = || population.rows.iter().map(|row| row.call);
    let missing = calls().flat_map(|call| &call.findings).filter_map(|finding| finding.certainty.missing());
    let mut needs: BTreeSet<Need> = missing.map(|missing| missing.need()).collect();
    for side in Side::ALL {
        if calls().any(|call| call.seen_in[side.index()].is_none()) {
            needs.insert(Need::Capture(side));
        }
        if !calls().flat_map(|call| &call.legs).any(|leg| leg.host.is_some() && at(leg.legs) == side) {
            needs.insert(Need::HostRecording(side));
        }
    }
    needs.into_iter().filter_map(sentence).collect()
}

fn at(legs: Legs) -> Side {
    match legs.first {
        Leg::ClientAppOut | Leg::ClientSend | Leg::ClientAppIn => Side::Client,
        _ => Side::Server,
    }
}

fn sentence(need: Need) -> Option<String> {
    Some(match need {
        Need::Spans(side) => format!("Not looked: spans of the {side}."),
        Need::Capture(side) => format!("Not looked: a capture at the {side} (`spangap capture`)."),
        Need::HostRecording(side) => {
            format!("Not looked: what the {side}'s host did (`spangap host record --pid`).")
        }
        Need::HostCheck(side) => format!("Not looked: counters of the {side}'s host (`spangap host check`)."),
        Need::LongerCapture => "Some captures begin or end in the middle of connections.".into(),
        Need::Nothing => return None,
    })
}

impl Hunt {
    /// As short as a judge says it.
    pub fn verdict(&self) -> Verdict {
        let answer = match (self.verdict, self.culprits.as_slice()) {
            (Kind::One, [one]) => Answer::Culprit(one.culprit),
            (Kind::Nothing, _) => Answer::NOTHING,
            _ => Answer::Unknown,
        };
        Verdict { answer, leg: self.place.as_ref().map(|place| place.leg), why: Some(self.words.clone()) }
    }
}
