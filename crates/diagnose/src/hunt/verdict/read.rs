//! The outcome of one question, read from its shares: a culprit, several, a place, or neither.

use super::blameless::{is_blameless, is_of_few_moments};
use super::named::{MOMENTS, Named};
use super::{Kind, Place, SEEN, SLOW_NS};
use crate::claims::{host_of, is_held_up, is_of_host, is_remainder};
use crate::hunt::account::BEYOND_CLIENT;
use crate::hunt::answer::Answered;
use crate::hunt::population::Population;
use crate::hunt::shares::Share;
use crate::hunt::{Asked, Owner};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};

/// One culprit has to own this much of the excess, by its lower bound.
pub const MOST: f64 = 0.5;
/// Of several, each has to own this much.
const SOME: f64 = 0.15;
/// What is in all calls but these, or in these alone, tells them apart.
const FEW: f64 = 0.1;
/// A program that goes on with something else holds up whoever comes meanwhile, and all others by a little.
const SOME_HAVE_IT: f64 = 0.25;
/// Noise that has less is not worth setting aside.
const LITTLE: f64 = 0.05;
/// Of everything, without a comparison, what packets or a host show has to own this much.
pub const THIRD: f64 = 1.0 / 3.0;
/// So many calls are enough to name somebody beside noise, which is another doubt.
const BESIDE_NOISE: f64 = 8.0;
/// Where time passed is told if it did so in this many moments.
pub const PLACE_MOMENTS: f64 = 2.0;
/// Owners that together have so much less than nothing contradict the others.
const CONTRADICTION: f64 = 0.25;
/// What is spread over several owners in one place is nothing below this, nanoseconds: larger excesses are to be found.
const SPREAD_NS: f64 = 200_000.0;
/// So much of the time has to lie in legs that are told apart.
const COVERED: f64 = 0.5;

/// What one question comes to.
pub struct Read {
    /// A culprit, several, a place, nothing, or unknown.
    pub kind: Kind,
    /// Those that it names; empty unless it is one or several.
    pub culprits: Vec<Named>,
    /// Where the time passed, if no culprit is named and most of it passed in one place.
    pub place: Option<Place>,
    /// Where most of it passed, although that says nothing of other calls: it was a single moment's, or nobody recorded the host.
    pub untold: Option<Place>,
    /// Who would be named, had it not been in so few moments.
    pub by_chance: Option<Named>,
    /// What slow calls have and others do not, where noise has most of what they take.
    pub beside_noise: Option<Named>,
    /// Whether the place is what calls always consist of: a round trip, or the server's work.
    pub is_usual_place: bool,
    /// Whether it is nothing because so little is spread over so many.
    pub is_spread: bool,
}

impl Read {
    fn of(kind: Kind) -> Read {
        Read {
            kind,
            culprits: Vec::new(),
            place: None,
            untold: None,
            by_chance: None,
            beside_noise: None,
            is_usual_place: false,
            is_spread: false,
        }
    }

    /// The same without the place that it tells.
    pub fn without_place(self) -> Read {
        Read { kind: Kind::Unknown, place: None, is_usual_place: false, ..self }
    }

    /// Share of the first culprit, or of losses.
    pub fn lead(&self) -> f64 {
        let lost = || self.place.as_ref().filter(|place| place.lost).map_or(0.0, |place| place.share.mid);
        self.culprits.first().map_or_else(lost, |named| named.share.mid)
    }

    /// Whether its place is where bytes were lost: that names as much as packets of one end can.
    pub fn is_of_losses(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.lost)
    }

    /// Whether it names what holds calls up one by one.
    pub fn is_event(&self) -> bool {
        let is_named = || self.culprits.iter().all(|named| is_event(named.culprit.cause));
        self.is_of_losses() || self.kind == Kind::One && is_named()
    }

    /// Whether it names what holds calls up one by one, and is none of what a busy machine does to all of them.
    pub fn is_held_up(&self) -> bool {
        self.is_event() && self.culprits.iter().all(|named| is_held_up(named.culprit.cause))
    }

    /// Without a reference, nobody can tell whether the way between the hosts always took as long, or the server's work: they are
    /// where most of it passed, and no culprits. A way that varies is one for calls that take long.
    pub fn what_is_usual_is_a_place(&mut self, answered: &Answered, usual_ns: u64) {
        let [named] = self.culprits[..] else { return };
        let is_usual = match named.culprit.cause {
            Cause::NetworkDelay | Cause::ServerApp => true,
            Cause::NetworkJitter => usual_ns < SLOW_NS,
            _ => false,
        };
        if answered.asked != Asked::All || !is_usual {
            return;
        }
        self.is_usual_place = true;
        if named.culprit.cause == Cause::ServerApp {
            (self.kind, self.culprits) = (Kind::Place, Vec::new());
            self.place = Some(Place::of(Legs::one(Leg::ServerApp), named.share));
            return;
        }
        let ways = answered
            .whole
            .iter()
            .filter(|(legs, _)| [Leg::RequestWire, Leg::ResponseWire].map(Legs::one).contains(legs));
        let Some((leg, _)) = ways.max_by(|(_, one), (_, other)| one.mid.total_cmp(&other.mid)) else {
            return;
        };
        (self.kind, self.culprits) = (Kind::Place, Vec::new());
        self.place = Some(Place { both_ways: true, ..Place::of(*leg, named.share) });
    }

    /// Whether it names waits for a CPU: behind one process, since those behind many are nobody's doing.
    pub fn is_one_that_runs(&self) -> bool {
        self.kind == Kind::One && self.culprits.iter().all(|named| named.culprit.cause == Cause::RunQueue)
    }

    /// Whether both name the same.
    pub fn is_same(&self, other: &Read) -> bool {
        let culprits = |read: &Read| read.culprits.iter().map(|named| named.culprit).collect::<Vec<_>>();
        culprits(self) == culprits(other)
    }

    /// Whether it is what calls always consist of, however long they take.
    pub fn is_always_there(&self) -> bool {
        self.culprits.iter().all(|named| always_there(named.culprit.cause))
    }

    /// Whether it is what calls that take no time consist of.
    pub fn is_usual(&self) -> bool {
        self.culprits.iter().all(|named| is_remainder(named.culprit.cause))
    }
}

/// Whether it says something that another answer would have to beat.
pub fn is_standing(kind: Kind) -> bool {
    matches!(kind, Kind::One | Kind::Place)
}

/// Reads it off.
pub fn read(answered: &Answered, covered: f64) -> Read {
    let named = |(owner, share): &(Owner, Share)| match owner {
        Owner::Culprit(culprit) => {
            Some(Named { owner: *owner, culprit: refined(*culprit, answered), share: *share })
        }
        Owner::Noise(_) | Owner::Lost(_) | Owner::Place(_) | Owner::Between(_) | Owner::Hop(..) => None,
    };
    let of = |shares: &[(Owner, Share)]| {
        let named = shares.iter().filter_map(named).filter(|named| !is_blameless(named, answered));
        named.collect::<Vec<Named>>()
    };
    let culprits = of(&answered.shares);
    let convicted = match answered.asked {
        Asked::Slow | Asked::Against => compared(&culprits),
        Asked::All => consists_of(&culprits, worked(&answered.shares), answered.queued),
    };
    let convicted = convicted.or_else(|| {
        let (kind, convicted) = match answered.asked {
            _ if answered.noise.mid < LITTLE || answered.calls < BESIDE_NOISE => None,
            // A thread that was late has a queue before it, which is no reason of its own.
            Asked::Slow | Asked::Against => {
                let mut events = of(&answered.beside_noise);
                events.retain(|named| is_event(named.culprit.cause));
                compared(&events)
            }
            // What calls always consist of has to have most of everything, and then needs no allowance.
            Asked::All => {
                consists_of(&of(&answered.beside_noise), worked(&answered.beside_noise), answered.queued)
                    .filter(|(_, named)| !named.iter().all(|named| always_there(named.culprit.cause)))
            }
        }?;
        // Each with its share of everything, and not far behind the noise.
        let convicted: Vec<Named> = convicted
            .iter()
            .filter_map(|named| culprits.iter().find(|one| one.owner == named.owner).copied())
            .collect();
        let together: f64 = convicted.iter().map(|named| named.share.mid).sum();
        let each = convicted.iter().all(|named| named.share.low > 0.0);
        (together > THIRD && each).then_some((kind, convicted))
    });
    let by_chance = |(_, named): &(Kind, Vec<Named>)| {
        named.iter().copied().find(|named| is_of_few_moments(named, answered))
    };
    let told = place(answered);
    let (told, untold) = match told {
        Some(place) if !is_told(&place, answered) => (None, Some(place)),
        told => (told, None),
    };
    if let Some(named) = convicted.as_ref().and_then(by_chance) {
        // Where a remainder passed is known all the same.
        let place = told.filter(|_| is_remainder(named.culprit.cause));
        let kind = if place.is_some() { Kind::Place } else { Kind::Unknown };
        return Read { place, by_chance: Some(named), ..Read::of(kind) };
    }
    // Legs by a clock that cannot be that of the packets are nobody's time; what packets show, they do by their own.
    let is_one_clock = answered.answered_unsent <= MOST;
    let holds = |named: &[Named]| is_one_clock || named.iter().all(|named| is_event(named.culprit.cause));
    if let Some((kind, culprits)) = convicted.filter(|(_, named)| covered >= COVERED && holds(named)) {
        // Of calls whose begin nobody saw, most may have passed before it.
        let known = answered.asked != Asked::All || answered.knows_ends && !contradicts(answered);
        if known || !culprits.iter().all(|named| always_there(named.culprit.cause)) {
            return Read { culprits, ..Read::of(kind) };
        }
    }
    if answered.asked != Asked::All && is_noise(answered) {
        let beside_noise = culprits.iter().copied().find(|named| tells_apart(named, answered));
        // Noise stretches whatever a call does. What has a third of the excess besides is more than that, and so is what would
        // be slow without it.
        let is_nearly_all = answered.noise.mid >= 1.0 - THIRD || !answered.more_than_noise;
        let is_all_there_is =
            beside_noise.is_none() && is_nearly_all && largest_beside_noise(answered) <= THIRD;
        let kind = if is_all_there_is { Kind::Nothing } else { Kind::Unknown };
        return Read { beside_noise, ..Read::of(kind) };
    }
    if told.as_ref().is_some_and(|place| is_spread(place, answered)) {
        return Read { is_spread: true, ..Read::of(Kind::Nothing) };
    }
    let kind = if told.is_some() { Kind::Place } else { Kind::Unknown };
    Read { place: told, untold, ..Read::of(kind) }
}

/// Whether what slow calls take longer in a place is a little of many things: less than sleeps and wake-ups make some calls of any
/// program longer than others, and nobody has half of it.
fn is_spread(place: &Place, answered: &Answered) -> bool {
    let is_little = place.share.mid * answered.each_ns.mid < SPREAD_NS;
    answered.asked == Asked::Slow && is_little && answered.shares.iter().all(|(_, share)| share.mid < MOST)
}

/// The largest share that a single owner has besides noise.
fn largest_beside_noise(answered: &Answered) -> f64 {
    let others = answered.shares.iter().filter(|(owner, _)| !matches!(owner, Owner::Noise(_)));
    others.map(|(_, share)| share.mid).fold(0.0, f64::max)
}

/// Whether something is in most slow calls and in hardly any other: noise alone would not choose these.
fn tells_apart(named: &Named, answered: &Answered) -> bool {
    let Some(present) = answered.present.get(&named.owner) else { return false };
    let (most, few) = match named.culprit.cause {
        cause if is_held_up(cause) => (MOST, FEW),
        cause if is_own_doing(cause) => (1.0 - SOME_HAVE_IT, SOME_HAVE_IT),
        _ => return false,
    };
    // Or it may have set off most of the noise in them.
    let is_some = named.share.low > FEW || named.share.mid > 0.0 && named.share.high > MOST;
    is_some
        && present.calls >= most * answered.calls
        && present.ordinary_ns <= few * present.ns
        && present.moments >= MOMENTS
}

/// What a program does itself: a busy machine stretches it, and does not bring it about.
fn is_own_doing(cause: Cause) -> bool {
    matches!(cause, Cause::ServerQueue | Cause::ClientApp | Cause::ServerApp)
}

/// What calls always consist of.
fn always_there(cause: Cause) -> bool {
    matches!(cause, Cause::NetworkDelay | Cause::NetworkJitter | Cause::ServerApp)
}

/// Whether a place can be told: of all time, where all of it is known, or it is where the known part begins; of a difference,
/// where it is not one moment's, and an end where its host was recorded, since a busy machine shows itself nowhere else.
fn is_told(place: &Place, answered: &Answered) -> bool {
    // What packets show, they do by their own clock.
    let is_possible = place.lost || !contradicts(answered);
    is_possible
        && !may_follow(place, answered)
        && match answered.asked {
            Asked::All => answered.knows_ends || place.lost || place.leg.last <= Leg::ClientSend,
            Asked::Slow => {
                answered.moments >= PLACE_MOMENTS
                    && place.side.is_none_or(|side| answered.recorded[side.index()] >= COVERED)
            }
            Asked::Against => true,
        }
}

/// Whether what passed in a place may follow from what nobody saw, because no span tells when these calls began: a client that holds
/// calls up and then sends all at once makes them wait for each other at the server, and its own legs are more than packets show.
/// Nor is it the server's work that takes longer where responses may have waited behind others.
pub fn may_follow(place: &Place, answered: &Answered) -> bool {
    if answered.knows_ends || answered.asked == Asked::All || place.lost || place.both_ways {
        return false;
    }
    match place.leg {
        _ if place.side == Some(Side::Server) => answered.asked == Asked::Slow,
        Legs { first: Leg::ServerHostIn, last } if last <= Leg::ServerHostOut => {
            answered.asked == Asked::Slow || answered.behind_others >= MOST * place.share.mid
        }
        Legs { first, .. } => matches!(first, Leg::ClientSend | Leg::ClientAppIn),
    }
}

/// Whether some have so much less than no time that others cannot have what they seem to, or calls were answered that never
/// left: clocks that nobody could compare.
fn contradicts(answered: &Answered) -> bool {
    let below: f64 = answered.shares.iter().map(|(_, share)| share.mid.min(0.0)).sum();
    below < -CONTRADICTION || answered.answered_unsent > MOST
}

/// Causes that hold calls up one by one, and that an instrument shows where they did.
pub fn is_event(cause: Cause) -> bool {
    !is_remainder(cause) && cause != Cause::RunQueue
}

/// Whether noise has most of a difference, and nothing else comes near.
fn is_noise(answered: &Answered) -> bool {
    let others = answered.shares.iter().filter(|(owner, _)| !matches!(owner, Owner::Noise(_)));
    let rival = others.map(|(_, share)| share.high).fold(0.0, f64::max);
    answered.noise.low > MOST || answered.noise.mid > MOST && answered.noise.low > rival
}

/// Of a difference between calls, who has most of it.
fn compared(culprits: &[Named]) -> Option<(Kind, Vec<Named>)> {
    let (first, others) = culprits.split_first()?;
    let rival = others.iter().map(|named| named.share.high).fold(0.0, f64::max);
    if first.share.low > MOST && first.share.low > rival {
        return Some((Kind::One, vec![*first]));
    }
    several(culprits.iter())
}

/// Of all time, who has so much that it cannot be what calls consist of. A round trip and servers at work are always there:
/// they have to be most of it, and what is shown is weighed against the time beside the server's work. Of what a queue at the
/// server has, so much was seen to be one (`queued`).
fn consists_of(culprits: &[Named], worked: f64, queued: f64) -> Option<(Kind, Vec<Named>)> {
    let is_seen = |named: &Named| {
        let is_queue = named.culprit.cause == Cause::ServerQueue && queued >= SEEN;
        !is_remainder(named.culprit.cause) || is_queue && named.share.low > THIRD
    };
    let usual = culprits.iter().find(|named| !is_seen(named));
    let most = usual.filter(|named| named.share.low > MOST);
    let beside = (1.0 - worked).max(f64::MIN_POSITIVE);
    let mut shown = culprits.iter().filter(|named| is_seen(named));
    if let Some(first) = shown.next() {
        let rival = shown.next().map_or(0.0, |named| named.share.high);
        // To send a large message takes time beside what holds it up.
        let large = culprits.iter().find(|named| named.culprit.cause == Cause::LargePayload);
        let rival = rival.max(large.map_or(0.0, |named| named.share.high));
        // Work is a rival, a round trip is none.
        let most_is_work = most.is_some_and(|named| named.culprit.cause != Cause::NetworkDelay);
        // Threads that are kept from their work have to be kept for longer than they work.
        let is_beside = !is_of_host(first.culprit.cause);
        let beside = if is_beside { beside } else { 1.0 };
        // A machine on which much else runs keeps threads waiting all the time, more or less: to have much of that is not enough.
        let enough = if first.culprit.cause == Cause::RunQueue { MOST } else { THIRD };
        let is_enough = first.share.low / beside > enough && (is_beside || first.share.mid > worked);
        if is_enough && first.share.low > rival && !most_is_work {
            return Some((Kind::One, vec![*first]));
        }
    }
    if let Some(most) = most {
        return Some((Kind::One, vec![*most]));
    }
    several(culprits.iter().filter(|named| !is_remainder(named.culprit.cause)))
}

/// Two or three that together have most of it. The server's application is none of them: it has whatever no instrument saw of
/// its time, and what is beside it may have caused that. Nor is the path beside what keeps packets from the tap at its end.
fn several<'n>(culprits: impl Iterator<Item = &'n Named>) -> Option<(Kind, Vec<Named>)> {
    let is_shown = |named: &Named| named.culprit.cause != Cause::ServerApp && named.share.low > SOME;
    let mut some: Vec<Named> = culprits.copied().filter(is_shown).take(3).collect();
    let keeps_packets = |named: &Named| {
        matches!(named.culprit.cause, Cause::SoftirqOnCpu | Cause::SoftirqLate | Cause::Steal)
    };
    if some.iter().any(keeps_packets) {
        some.retain(|named| named.culprit.cause != Cause::NetworkJitter);
    }
    let together: f64 = some.iter().map(|named| named.share.low).sum();
    (some.len() > 1 && together > MOST).then_some((Kind::Several, some))
}

/// Share of the time in which the server's application worked, as far as nothing else owns it.
fn worked(shares: &[(Owner, Share)]) -> f64 {
    let is_work = |owner: &Owner| {
        *owner == Owner::Culprit(Culprit::at(Cause::ServerApp, Side::Server))
            || *owner == Owner::Place(Legs::one(Leg::ServerApp))
            || *owner == Owner::Between(Legs::one(Leg::ServerApp))
    };
    shares.iter().filter(|(owner, _)| is_work(owner)).map(|(_, share)| share.mid.clamp(0.0, 1.0)).sum()
}

/// Where the time of an owner passed whom nothing names.
fn unowned(owner: Owner, share: Share) -> Option<Place> {
    Some(match owner {
        Owner::Place(leg) => Place::of(leg, share),
        Owner::Between(leg) => Place { between_threads: true, ..Place::of(leg, share) },
        Owner::Lost(sender) => Place { lost: true, ..Place::of(where_lost(sender), share) },
        Owner::Hop(hop, leg) => Place { hop: Some(hop), ..Place::of(leg, share) },
        Owner::Culprit(_) | Owner::Noise(_) => return None,
    })
}

/// Where bytes of that side are from when they are first sent to when they arrive for good.
pub fn where_lost(sender: Side) -> Legs {
    match sender {
        Side::Client => Legs { first: Leg::ClientSend, last: Leg::RequestWire },
        Side::Server => Legs { first: Leg::ServerSend, last: Leg::ResponseWire },
    }
}

/// The finest place in which most of it passed: a leg that nobody owns, a leg whoever owns it, of a difference also an end.
/// All time of a call is always at some end.
fn place(answered: &Answered) -> Option<Place> {
    let most = |shares: &[(Owner, Share)]| {
        let of = |(owner, share): &(Owner, Share)| unowned(*owner, *share).filter(|_| share.low > MOST);
        shares.iter().find_map(of)
    };
    // Beside noise it has to have most of everything by what was measured, and of the rest by its lower bound, on a host that
    // was recorded: elsewhere there may be more noise.
    let is_recorded = |place: &Place| answered.recorded[host_of(place.leg).index()] >= COVERED;
    let beside_noise = || {
        let (owner, _) =
            answered.beside_noise.iter().find(|one| most(std::slice::from_ref(*one)).is_some())?;
        let (_, share) = answered.shares.iter().find(|(other, _)| other == owner)?;
        unowned(*owner, *share).filter(|place| share.mid > MOST && share.low > THIRD && is_recorded(place))
    };
    let unowned = most(&answered.shares).or_else(beside_noise);
    let largest = |of: &dyn Fn(Legs) -> bool| {
        let legs = answered.whole.iter().filter(|(legs, _)| of(*legs));
        legs.max_by(|(_, one), (_, other)| one.mid.total_cmp(&other.mid)).copied()
    };
    let whole = || {
        let (leg, share) = largest(&|_| true)?;
        (share.low > MOST).then_some(Place::of(leg, share))
    };
    let end = || {
        let (side, share) = Side::ALL.into_iter().find_map(|side| {
            Some((side, *answered.ends.get(&Some(side))?)).filter(|(_, share)| share.low > MOST)
        })?;
        // The server's legs are neighbours; of the client's, the one that has most of it.
        let leg = match side {
            Side::Server => Legs { first: Leg::ServerHostIn, last: Leg::ServerSend },
            Side::Client => largest(&|legs| host_of(legs) == Side::Client && legs.first == legs.last)?.0,
        };
        Some(Place { side: Some(side), ..Place::of(leg, share) })
    };
    // Both ways, neither of which has most of it.
    let way = || {
        let share = answered.ends.get(&None).filter(|share| share.low > MOST)?;
        let (leg, _) =
            largest(&|legs| legs == Legs::one(Leg::RequestWire) || legs == Legs::one(Leg::ResponseWire))?;
        Some(Place { both_ways: true, ..Place::of(leg, *share) })
    };
    match answered.asked {
        // Beyond the client most of every call passes.
        Asked::All => unowned.or_else(whole).filter(|place| place.leg != BEYOND_CLIENT),
        // Noise has a place, too, and it is nobody's.
        Asked::Slow | Asked::Against if answered.noise.mid >= THIRD || answered.noise.high > MOST => unowned,
        Asked::Slow | Asked::Against => unowned.or_else(whole).or_else(end).or_else(way),
    }
}

/// A path that some calls take longer on than others varies.
pub fn refined(culprit: Culprit, answered: &Answered) -> Culprit {
    match culprit.cause {
        Cause::NetworkDelay if answered.asked == Asked::Slow || answered.varies => {
            Culprit::of(Cause::NetworkJitter)
        }
        _ => culprit,
    }
}

/// Share of the time that has an owner, or lies in legs of one host or of one way.
pub fn covered(population: &Population<'_>) -> f64 {
    let mut known = 0.0;
    for row in &population.rows {
        for (owner, ns) in row.account {
            let single = match owner {
                Owner::Culprit(_) | Owner::Noise(_) | Owner::Lost(_) | Owner::Between(_) => true,
                // On one host: packets at both of its ends bound it.
                Owner::Place(legs) | Owner::Hop(_, legs) => {
                    legs.first == legs.last
                        || Leg::ServerHostIn <= legs.first && legs.last <= Leg::ServerHostOut
                }
            };
            known += if single { row.call.weight * (*ns).max(0) as f64 } else { 0.0 };
        }
    }
    // Legs below zero, where two things went on at once, make others longer than the call.
    (known / population.total_ns.max(1.0)).min(1.0)
}
