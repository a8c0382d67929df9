//! An answer in sentences.

use super::document::Place;
use super::read::{MOST, PLACE_MOMENTS, Read, may_follow, refined, where_lost};
use super::scattered::scattered;
use super::{Asked, Kind, Named, Owner};
use crate::hunt::answer::Answered;
use spangap_model::duration::format_ns;
use spangap_model::{Cause, Leg, Side};

pub fn words(read: &Read, answered: &Answered) -> String {
    let (calls, each) = (answered.calls.round(), format_ns(answered.each_ns.mid.max(0.0) as u64));
    let took = match answered.asked {
        Asked::Slow if answered.by_event => {
            let event = read.culprits.first().map_or("losses".into(), |named| named.culprit.to_string());
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
    let head = match read.kind {
        Kind::Nothing if read.is_spread => "Nothing stands out: ",
        Kind::Nothing => "Nothing but the machine's own noise: ",
        _ => "",
    };
    format!("{head}{took} {}", accounts_for(read, answered))
}

/// Who or what accounts for the time, as a sentence after the one that says how much it is.
fn accounts_for(read: &Read, answered: &Answered) -> String {
    let who = |named: &Named| format!("{} accounts for {}", named.culprit, named.share.percent());
    match (read.kind, &read.place) {
        (Kind::One | Kind::Several, _) => {
            let who: Vec<String> = read.culprits.iter().map(who).collect();
            format!("{} of that.", who.join(", "))
        }
        (Kind::Nothing, _) if read.is_spread => {
            "It is a little of many things, none of which has half of it.".to_owned()
        }
        (Kind::Nothing, _) => format!(
            "{} of that passed while threads waited for CPUs behind many others, none of which caused most of the \
             wait.",
            answered.noise.percent()
        ),
        (_, Some(place)) if place.lost => lost(place),
        (_, Some(place)) if place.both_ways && answered.asked != Asked::All => format!(
            "{} of that passed on the network between the hosts, in both directions; no single cause accounts for most \
             of it.",
            place.share.percent()
        ),
        (_, Some(place)) if place.both_ways => format!(
            "{} of that passed on the network between the hosts, in both directions, with no other cause. The path \
             takes that long; only a reference can tell whether it always did (`--against`).",
            place.share.percent()
        ),
        (_, Some(place)) if read.is_usual_place => format!(
            "{} of that passed in {}, {}. Only a reference can tell whether the server always takes that long \
             (`--against`).",
            place.share.percent(),
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
            format!("{} of that passed {}; {why}.", place.share.percent(), at(place))
        }
        _ if read.beside_noise.is_some() => format!(
            "{} of that passed while threads waited for CPUs behind many others. But most of these calls, and hardly any \
             others, also show {}: {}. A run on a quieter machine would tell how much of the wait that causes.",
            answered.noise.percent(),
            read.beside_noise.map_or(String::new(), |named| named.culprit.to_string()),
            read.beside_noise.map_or(String::new(), |named| named.share.percent()),
        ),
        _ if answered.asked != Asked::All && read.by_chance.is_none() && answered.noise.mid > MOST => {
            let largest = answered.shares.iter().find(|(owner, _)| !matches!(owner, Owner::Noise(_)));
            let rest = largest.map_or(String::new(), |(owner, share)| {
                let name = match owner {
                    Owner::Culprit(culprit) | Owner::Noise(culprit) => {
                        refined(*culprit, answered).to_string()
                    }
                    Owner::Place(legs) | Owner::Between(legs) => legs.in_words().to_string(),
                    Owner::Lost(sender) => where_lost(*sender).in_words().to_string(),
                    Owner::Hop(hop, legs) => format!("{} behind proxy {hop}", legs.in_words()),
                };
                format!(" Another {} belongs to: {name}.", share.percent())
            });
            format!(
                "{} of that passed while threads waited for CPUs behind many others.{rest} A run on a quieter machine would tell \
                 whether that is more than noise.",
                answered.noise.percent()
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
                    place.share.percent(),
                    at(place),
                    untold(place, answered)
                ),
                None if answered.outside > MOST => format!(
                    "{:.0} % of that passed at the client or on the way: the server's end alone does not tell these apart.",
                    answered.outside.min(1.0) * 100.0
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
        Owner::Lost(_) | Owner::Place(_) | Owner::Between(_) | Owner::Hop(..) => false,
    };
    answered.shares.iter().filter(|(owner, _)| is_wait(owner)).map(|(_, share)| share.mid).sum()
}

/// Where bytes were lost that packets of the sender's end alone show.
fn lost(place: &Place) -> String {
    let (what, host) = match place.leg.first {
        Leg::ServerSend => ("response", Side::Client.name()),
        _ => ("request", Side::Server.name()),
    };
    format!(
        "{} of that passed until bytes of the {what} that had been lost were sent again. The path lost them, or the {host}'s host dropped \
         them behind its network interface: captures of both ends would tell which.",
        place.share.percent()
    )
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
        _ if may_follow(place, answered) => {
            "But no span tells when these calls began: a client that holds calls up, and then sends them all at once, would look \
             the same, and so would responses that wait behind others."
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
        Owner::Culprit(_) | Owner::Noise(_) | Owner::Lost(_) => false,
    };
    let unowned = answered.shares.iter().filter(|(owner, _)| is_there(owner));
    unowned.map(|(_, share)| share.mid).sum::<f64>() >= MOST * place.share.mid
}
