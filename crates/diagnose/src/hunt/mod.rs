//! A balance sheet, not a vote: every nanosecond of the excess has an owner or is unexplained, and only what owns most of it
//! for certain is named.
//!
//! Two questions are asked of the same calls. *Why are the slow ones slow?* compares slow calls with ordinary ones of their
//! own kind ([`population`]), so that what both have (a slow method, think time, a long way) explains nothing. *Why is
//! everything slow?* compares all calls with those of a reference, and without one says what their time consists of.
//! Attempts become one call first ([`logical`]), each call's time is laid to owners ([`account`]), the groups are compared
//! ([`answer`], [`shares`]), the machine's own [`noise`] is set aside, and the verdict is read off ([`verdict`]), with what speaks for and against it ([`support`]) and
//! what was ruled out ([`catalogue`]).

pub mod account;
mod answer;
pub mod catalogue;
pub mod logical;
mod noise;
pub mod population;
pub mod shares;
pub mod support;
pub mod verdict;

use account::{Account, of_logical};
use logical::Logical;
use noise::Noise;
use population::Population;
use spangap_model::evidence::{CallRecord, Evidence};
use spangap_model::{Cause, Culprit, Doing, Leg, Legs, Side};
use std::collections::BTreeMap;
pub use verdict::{Hunt, Kind};

/// Whose a stretch of a call's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Something that takes time, as an instrument showed it.
    Culprit(Culprit),
    /// Many, none of whom is to blame: what so held the call up is the machine's own [`noise`].
    Noise(Culprit),
    /// Nobody that was shown: the time passed in these legs.
    Place(Legs),
    /// Nobody that was shown: the time passed behind so many proxies, in these legs.
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

/// So much of the time in a leg has to be recorded for what is left of it to be the application's.
const RECORDED: f64 = 0.5;

/// Asks both questions of the evidence, and says what it comes to.
pub fn hunt(evidence: &Evidence, question: &Question<'_>) -> Hunt {
    let calls = logical::calls(evidence, question);
    let reference = question.against.map(|reference| {
        // The time of a reference is its own.
        let of = Question { method: question.method.clone(), ..Question::default() };
        logical::calls(reference, &of)
    });
    let (mut recorded, mut noise) = (Recorded::of(&calls), Noise::of(&calls));
    if let Some(reference) = &reference {
        recorded = recorded.both(&Recorded::of(reference));
        noise = noise.both(Noise::of(reference));
    }
    let accounts = sheets(&calls, &recorded, noise);
    let population = Population::of(&calls, &accounts);
    let slow = answer::slow(&population, question);
    let all = match &reference {
        Some(reference) => {
            let accounts = sheets(reference, &recorded, noise);
            answer::against(&population, &Population::of(reference, &accounts))
        }
        None => answer::all(&population),
    };
    verdict::of(evidence, question, &population, slow, all)
}

/// The sheet of each call.
fn sheets(calls: &[Logical<'_>], recorded: &Recorded, noise: Noise) -> Vec<Account> {
    let sheet =
        |call: &Logical<'_>| named(noise.taken_out(of_logical(call)), recorded, is_large(call.record));
    let mut accounts: Vec<Account> = calls.iter().map(sheet).collect();
    behind_lost_bytes(&mut accounts);
    accounts
}

/// The legs in which what is left when the host is cleared is the application's, with the name of that.
const APPLICATIONS: [(Leg, Cause, Side); 2] =
    [(Leg::ServerApp, Cause::ServerApp, Side::Server), (Leg::ServerHostIn, Cause::ServerQueue, Side::Server)];

/// In which legs of [`APPLICATIONS`] the host was recorded for most of the time.
struct Recorded([bool; APPLICATIONS.len()]);

impl Recorded {
    fn of(calls: &[Logical<'_>]) -> Recorded {
        let mut sums = [(0_u64, 0_u64); APPLICATIONS.len()];
        for leg in calls.iter().flat_map(|call| &call.record.legs) {
            let Some(place) = APPLICATIONS.iter().position(|(one, ..)| leg.legs == Legs::one(*one)) else {
                continue;
            };
            let parts = leg.host.iter().flat_map(|host| &host.parts);
            let known: u64 = parts.filter(|part| part.doing != Doing::Unknown).map(|part| part.ns).sum();
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

fn is_large(call: &CallRecord) -> bool {
    call.request_bytes.max(call.response_bytes.unwrap_or(0)) >= LARGE_BYTES
}

/// Names what only one thing can own: the path between two taps, the sending of a large message, and an application whose
/// host was recorded and is cleared.
fn named(account: Account, recorded: &Recorded, is_large: bool) -> Account {
    let mut named = Account::new();
    for (owner, ns) in account {
        *named.entry(name(owner, recorded, is_large)).or_default() += ns;
    }
    named
}

fn name(owner: Owner, recorded: &Recorded, is_large: bool) -> Owner {
    let Owner::Place(legs) = owner else { return owner };
    if legs.first != legs.last {
        return owner;
    }
    match legs.first {
        Leg::ClientSend | Leg::ServerSend if is_large => {
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
        let Owner::Culprit(culprit) = owner else { continue };
        if matches!(culprit.cause, Cause::Rto | Cause::TailLoss | Cause::FastRetransmit | Cause::ReceiverDrop)
        {
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
mod properties;
#[cfg(test)]
mod tests;
