//! Which of the answers comes first.

use super::read::{MOST, Read, THIRD, is_event, is_standing};
use super::{Asked, FOOTNOTE, Kind, Named, Owner, Place, Question, SEEN, SLOW_NS};
use crate::claims::{host_of, is_held_up, is_of_host};
use crate::hunt::account::QUEUE;
use crate::hunt::answer::Answered;
use crate::hunt::shares::Share;
use spangap_model::Leg;

/// What slow calls take beyond others is more than a footnote if it is known where that passed, and it is this much of all time.
const LEAST_OF_ALL: f64 = 0.02;
/// It is the headline from this share on, whatever it comes to.
const HEADLINE: f64 = 0.2;
/// A way that has most of the time of calls is a place from so much on, since nothing tells whether it always took that,
/// nanoseconds: two hosts near each other exchange packets in less.
const FAR_NS: f64 = 500_000.0;
/// A queue that was seen to be one is named from so much on, nanoseconds.
const QUEUE_NS: f64 = 200_000.0;
/// A mean that is so many times the median is that of few calls.
const FEW_HAVE_MOST: f64 = 3.0;

/// Which of the two answers comes first.
pub fn headline(
    question: &Question<'_>,
    usual_ns: u64,
    slow: Option<(Read, Answered)>,
    all: Option<(Read, Answered)>,
) -> Option<(Read, Answered)> {
    // Who says which calls are slow asks about these.
    if question.slower.is_some() && slow.is_some() {
        return slow;
    }
    let (slow, all) = match all {
        Some(all) if all.1.asked == Asked::Against => return Some(beside_reference(slow, all)),
        all => (slow, all),
    };
    // What calls always consist of is no answer where few of them stand out, and it is shown by what, or where.
    let is_footnote = |slow: &(Read, Answered)| {
        // Nor where what they consist of would be named in the stead of one process that has the CPU.
        let yields = || {
            all.as_ref().is_some_and(|all| all.0.kind == Kind::One || all.0.is_usual_place)
                && slow.0.is_one_that_runs()
        };
        let is_told = slow.0.is_held_up()
            || slow.1.of_all >= LEAST_OF_ALL
                && (slow.0.kind == Kind::Place || slow.1.outside > MOST || yields());
        slow.1.of_all < FOOTNOTE && !(is_told && all.as_ref().is_none_or(|all| all.0.is_always_there()))
    };
    let (slow, noise) = match slow.filter(|slow| !is_footnote(slow)) {
        Some(slow) if slow.0.kind == Kind::Nothing => (None, Some(slow)),
        slow => (slow, None),
    };
    let all = all.map(|(read, answered)| match is_beside_an_event(&read, &answered) {
        true => (read.without_place(), answered),
        false => (read, answered),
    });
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
                (Kind::Place, Kind::Place) if all.0.is_usual_place => {
                    slow.1.of_all >= FOOTNOTE || shows_why(&slow.1)
                }
                (Kind::Place, Kind::Place) => true,
                // Who leads among slow calls, and is not certain there, is not certain of all.
                (Kind::Place, Kind::One) if is_led_by(&slow.1, &all.0) => true,
                // What calls consist of at the server is no answer where slow ones are slow outside of it.
                (Kind::Unknown, Kind::Place) if slow.1.outside > MOST => true,
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

/// Of calls that all take longer than in a reference, and some of which take longer than the others: who explains more of all
/// time. What is named comes before what is not.
fn beside_reference(slow: Option<(Read, Answered)>, all: (Read, Answered)) -> (Read, Answered) {
    let Some(slow) = slow.filter(|(read, answered)| read.is_held_up() || answered.of_all >= FOOTNOTE) else {
        return all;
    };
    let names =
        |(read, _): &(Read, Answered)| matches!(read.kind, Kind::One | Kind::Several) || read.is_of_losses();
    let explains = |(read, answered): &(Read, Answered)| read.lead() * answered.of_all;
    let first = match (names(&slow), names(&all)) {
        // Where they are the same, the contrast within one window shows it better.
        (true, true) => slow.0.is_same(&all.0) || explains(&slow) >= explains(&all),
        (named, _) => named,
    };
    if first { slow } else { all }
}

/// Whether what holds calls up one by one has most of an excess, though its interval leaves room for doubt.
fn shows_why(slow: &Answered) -> bool {
    let first = slow.shares.first();
    first.is_some_and(|(owner, share)| {
        let is_shown = match owner {
            Owner::Culprit(culprit) => is_event(culprit.cause) && is_held_up(culprit.cause),
            Owner::Lost(_) => true,
            _ => false,
        };
        is_shown && share.mid > MOST
    })
}

/// Whether what all calls consist of is told of a place, while a recording shows what held up calls elsewhere for some of their
/// time: calls do not always consist of that, so that the place is no answer.
fn is_beside_an_event(read: &Read, answered: &Answered) -> bool {
    let Some(place) = read.place.as_ref().filter(|_| answered.asked == Asked::All) else { return false };
    let is_path = |leg: Leg| matches!(leg, Leg::RequestWire | Leg::ResponseWire);
    let place = if is_path(place.leg.first) { None } else { Some(host_of(place.leg)) };
    let is_elsewhere = |owner: &Owner| {
        matches!(owner, Owner::Culprit(culprit)
            if is_held_up(culprit.cause) && is_of_host(culprit.cause) && culprit.side != place)
    };
    answered.shares.iter().any(|(owner, share)| is_elsewhere(owner) && share.mid >= FOOTNOTE)
}

/// Whether what one answer names has the most of another one's time.
fn is_led_by(answered: &Answered, read: &Read) -> bool {
    answered.shares.first().is_some_and(|(owner, _)| read.culprits.iter().any(|named| named.owner == *owner))
}

/// Whether it can be said of calls that do not take long: that packets were on their way for most of it, or that bytes waited
/// for threads that had other calls in hand.
fn tells_of_quick(read: &Read, answered: &Answered) -> bool {
    let takes = |share: Share| share.low * answered.each_ns.mid;
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
