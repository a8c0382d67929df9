//! A balance sheet, not a vote: every nanosecond of the excess has an owner or is unexplained, and only an owner that
//! certainly has most of it is named.
//!
//! The same calls answer two questions. *Why are the slow ones slow?* compares slow calls with ordinary ones of their
//! own kind ([`population`]), so that whatever both have (a slow method, think time, a long path) explains nothing.
//! *Why is everything slow?* compares all calls with a reference ([`against`]) or, without one, says what their time consists of.
//! First, attempts become one call ([`logical`]), and each call's time is assigned to owners ([`account`]; waits of
//! calls for each other are found over all calls: [`queued`], [`in_turn`], [`turns`]). Then groups with equal coverage
//! ([`alike`]) are compared ([`answer`], [`shares`]; calls with an event with calls without it: [`held_up`]), and the
//! machine's own [`noise`] is set aside. The [`verdict`] follows, with its [`support`] and the suspects that were ruled
//! out ([`catalogue`]).

pub mod account;
mod against;
mod alike;
mod answer;
mod behind;
pub mod catalogue;
mod contrary;
mod foreign_clock;
mod held_up;
mod in_turn;
mod knock_on;
pub mod lack;
pub mod logical;
mod noise;
pub mod population;
pub mod queued;
mod recorded;
mod sampled;
pub mod shares;
pub mod support;
mod suspects;
pub mod turns;
mod unwatched;
pub mod verdict;

use crate::claims::is_loss;
use account::{Account, of_logical};
use against::Beside;
use catalogue::Cleared;
use logical::Logical;
use noise::Noise;
use population::Population;
use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::BTreeMap;
use turns::Turns;
pub use verdict::{Hunt, Kind};

/// Who owns a stretch of a call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A cause that an instrument showed.
    Culprit(Culprit),
    /// The machine's own [`noise`]: waits behind many programs, none of which is to blame.
    Noise(Culprit),
    /// Bytes of that side were lost and sent again, on the path or in the receiver's host: no packets tell which.
    Lost(Side),
    /// No known cause: the time passed in these legs.
    Place(Legs),
    /// No known cause: in this leg, a thread waited for another thread of its process, for a lock or for a result.
    Between(Legs),
    /// No known cause: the time passed behind so many proxies, in these legs.
    Hop(u8, Legs),
}

/// Which calls are slow, where the caller says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slower {
    /// Those of this quantile of the durations or above, from 0 to 1.
    Quantile(f64),
    /// Those that take so long or longer, nanoseconds.
    Over(u64),
}

/// What is asked: by default why those calls are slow that stand out, and what all calls consist of.
#[derive(Clone, Debug, Default)]
pub struct Question<'a> {
    /// Calls of this method alone.
    pub method: Option<String>,
    /// Which calls are slow; by default those that stand out from others of their kind.
    pub slower: Option<Slower>,
    /// Calls that begin then or later, Unix nanoseconds.
    pub from_unix_ns: Option<i64>,
    /// Calls that begin before, Unix nanoseconds.
    pub to_unix_ns: Option<i64>,
    /// Calls with which all are compared.
    pub against: Option<&'a Evidence>,
}

impl Question<'_> {
    /// Whether a call is in question.
    pub fn is_asked(&self, call: &CallRecord) -> bool {
        self.method.as_ref().is_none_or(|method| call.method.as_ref() == Some(method))
            && self.from_unix_ns.is_none_or(|from| call.start_unix_ns >= from)
            && self.to_unix_ns.is_none_or(|to| call.start_unix_ns < to)
    }
}

/// Which of the two questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Why the slow calls are slower than the others of their kind.
    Slow,
    /// What all calls spend their time on.
    All,
    /// Why all calls take longer than those of a reference.
    Against,
}

/// Progress of a judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// The time of so many calls is assigned to owners.
    Accounted(u64),
    /// The number of calls to explain, and the mean time to explain in each, nanoseconds.
    InQuestion(u64, u64),
    /// One cause is ruled out, at these sides.
    Cleared(&'a [Cleared]),
}

/// Hears each [`Step`] as it is taken.
pub type OnStep<'a> = dyn FnMut(Step<'_>) + 'a;

/// The share of a leg's time that has to be recorded before its remainder counts as the application's.
const RECORDED: f64 = 0.5;

/// Answers both questions from the evidence, and draws the verdict.
pub fn hunt(evidence: &Evidence, question: &Question<'_>) -> Hunt {
    hunt_aloud(evidence, question, &mut |_| {})
}

/// The same, and reports progress: each suspect as it is ruled out.
pub fn hunt_aloud(evidence: &Evidence, question: &Question<'_>, on_step: &mut OnStep<'_>) -> Hunt {
    let without = foreign_clock::without_foreign_spans(evidence);
    let is_foreign = without.is_some();
    let evidence = without.as_ref().unwrap_or(evidence);
    let mut hunt = answered(evidence, question, on_step);
    if is_foreign {
        hunt.coverage.limits.push(foreign_clock::LEFT_ASIDE.into());
    }
    hunt
}

fn answered(evidence: &Evidence, question: &Question<'_>, on_step: &mut OnStep<'_>) -> Hunt {
    let (calls, not_behind_proxies) = sampled::seen_behind_proxies(logical::calls(evidence, question));
    let (mut calls, without_spans) = sampled::with_spans(calls);
    find_queues(&mut calls);
    let (recorded, noise) = (Recorded::of(&calls), Noise::of(&calls));
    let accounts = sheets(&calls, &recorded, noise);
    on_step(Step::Accounted(accounts.len() as u64));
    let population = Population::of(&calls, &accounts);
    let slow = answer::slow(&population, question);
    let held_up = question.slower.is_none().then(|| held_up::held_up(&population)).flatten();
    let beside = beside_reference(&calls, &recorded, noise, question);
    let compared = !matches!(beside, Beside::Nothing);
    let (slow_as_often, spread_ns) = match &beside {
        Beside::AsLong { slow_as_often, spread_ns } => (*slow_as_often, *spread_ns),
        Beside::Nothing | Beside::Longer(_) => (false, None),
    };
    let all = match beside {
        Beside::Nothing => answer::all(&population),
        Beside::AsLong { .. } => None,
        Beside::Longer(answered) => Some(*answered),
    };
    let answers = verdict::Answers { slow, held_up, all, compared, slow_as_often, spread_ns };
    let mut hunt = verdict::of(evidence, question, &population, answers, on_step);
    hunt.coverage.without_spans = without_spans as u64;
    hunt.coverage.not_behind_proxies = not_behind_proxies as u64;
    hunt
}

/// All calls beside those of the reference, if there is one. Waits that are noise now are nobody's doing, whatever they were then.
fn beside_reference(
    calls: &[Logical<'_>],
    recorded: &Recorded,
    noise: Noise,
    question: &Question<'_>,
) -> Beside {
    let Some(reference) = question.against else { return Beside::Nothing };
    // The time of a reference is its own.
    let of = Question { method: question.method.clone(), ..Question::default() };
    let mut before = logical::calls(reference, &of);
    find_queues(&mut before);
    // What only one of them shows would look like a difference.
    let recorded = recorded.both(&Recorded::of(&before));
    let (now, then) = (sheets(calls, &recorded, noise), sheets(&before, &recorded, noise));
    against::against(&Population::of(calls, &now), &Population::of(&before, &then))
}

fn find_queues(calls: &mut [Logical<'_>]) {
    let queued = queued::queued(calls);
    for (call, queued) in calls.iter_mut().zip(queued) {
        call.queued = queued;
    }
    let in_turn = in_turn::waited(calls);
    for (call, in_turn_ns) in calls.iter_mut().zip(in_turn) {
        call.in_turn_ns = in_turn_ns;
    }
}

/// The account of each call.
fn sheets(calls: &[Logical<'_>], recorded: &Recorded, noise: Noise) -> Vec<Account> {
    let turns = Turns::of(calls);
    let sheet = |call: &Logical<'_>| named(noise.taken_out(of_logical(call, &turns)), recorded, call.record);
    let mut accounts: Vec<Account> = calls.iter().map(sheet).collect();
    behind_lost_bytes(&mut accounts);
    accounts
}

/// Legs whose remainder, once the host is ruled out, is the application's, with the cause that names it.
const APPLICATIONS: [(Leg, Cause, Side); 2] =
    [(Leg::ServerApp, Cause::ServerApp, Side::Server), (Leg::ServerHostIn, Cause::ServerQueue, Side::Server)];

/// Whether the host was recorded for most of the time in each leg of [`APPLICATIONS`].
struct Recorded([bool; APPLICATIONS.len()]);

impl Recorded {
    fn of(calls: &[Logical<'_>]) -> Recorded {
        let mut sums = [(0_u64, 0_u64); APPLICATIONS.len()];
        for leg in calls.iter().flat_map(|call| &call.record.legs) {
            let Some(place) = APPLICATIONS.iter().position(|(one, ..)| leg.legs == Legs::one(*one)) else {
                continue;
            };
            let known = recorded::recorded_ns(leg.ns, leg.host.as_ref());
            sums[place].0 += known;
            sums[place].1 += u64::try_from(leg.ns).unwrap_or(0);
        }
        Recorded(sums.map(|(known, all)| all > 0 && known as f64 >= RECORDED * all as f64))
    }

    fn both(&self, other: &Recorded) -> Recorded {
        let mut both = [false; APPLICATIONS.len()];
        for (place, one) in both.iter_mut().enumerate() {
            *one = self.0[place] && other.0[place];
        }
        Recorded(both)
    }
}

/// A message of this many bytes is large: to send it takes time wherever it is.
const LARGE_BYTES: u64 = 256 << 10;

/// A window that never lets in more is smaller than any system's by default, bytes: somebody made it so.
const SMALL_WINDOW: u64 = 48 << 10;

/// Whether a message is so large that sending it takes the time that was spent on that, and its receiver is known to have let it
/// in: otherwise its reader may be slow, or its window small.
fn is_large(call: &CallRecord, sends: Leg) -> bool {
    let receiver = if sends == Leg::ClientSend { Side::Server } else { Side::Client };
    call.request_bytes.max(call.response_bytes.unwrap_or(0)) >= LARGE_BYTES
        && call.windows[receiver.index()].is_some_and(|window| window >= SMALL_WINDOW)
}

/// What the client's end alone shows of the path and the server's host, around the server's span: nothing tells how long one of them
/// is, only how long both are together.
const HALVES: [Legs; 2] = [
    Legs { first: Leg::RequestWire, last: Leg::ServerHostIn },
    Legs { first: Leg::ServerHostOut, last: Leg::ResponseWire },
];

/// Names what only one thing can own: the path between two taps, the sending of a large message, and an application whose
/// host was recorded and is cleared.
fn named(account: Account, recorded: &Recorded, call: &CallRecord) -> Account {
    let mut named = Account::new();
    for (owner, ns) in account {
        *named.entry(name(owner, recorded, call)).or_default() += ns;
    }
    named
}

fn name(owner: Owner, recorded: &Recorded, call: &CallRecord) -> Owner {
    let Owner::Place(legs) = owner else { return owner };
    if HALVES.contains(&legs) {
        return Owner::Place(account::BEYOND_CLIENT);
    }
    if legs.first != legs.last {
        return owner;
    }
    match legs.first {
        sends @ (Leg::ClientSend | Leg::ServerSend) if is_large(call, sends) => {
            return Owner::Culprit(Culprit::of(Cause::LargePayload));
        }
        Leg::RequestWire | Leg::ResponseWire => return Owner::Culprit(Culprit::of(Cause::NetworkDelay)),
        _ => {}
    }
    let mut applications = APPLICATIONS.iter().zip(recorded.0);
    let application = applications.find(|((leg, ..), recorded)| *recorded && *leg == legs.first);
    application.map_or(owner, |((_, cause, side), _)| Owner::Culprit(Culprit::at(*cause, *side)))
}

/// Bytes that wait behind lost ones wait for what mends the loss. Those that wait behind a larger message do so at the end
/// that sends it, and have a side.
fn behind_lost_bytes(accounts: &mut [Account]) {
    let behind = Owner::Culprit(Culprit::of(Cause::HeadOfLine));
    let mut losses: BTreeMap<Owner, i64> = BTreeMap::new();
    for (owner, ns) in accounts.iter().flatten() {
        let is_loss = match owner {
            Owner::Culprit(culprit) => is_loss(culprit.cause),
            Owner::Lost(_) => true,
            _ => false,
        };
        if is_loss {
            *losses.entry(*owner).or_default() += ns;
        }
    }
    let Some((loss, _)) = losses.into_iter().max_by_key(|(_, ns)| *ns) else { return };
    for account in accounts {
        if let Some(ns) = account.remove(&behind) {
            *account.entry(loss).or_default() += ns;
        }
    }
}

#[cfg(test)]
mod brief;
#[cfg(test)]
mod half_seen;
#[cfg(test)]
mod innocents;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod retried;
#[cfg(test)]
mod strangers;
#[cfg(test)]
mod tests;
