//! A question, and its answer from the sheets of its calls.

use super::account::{Account, BEYOND_CLIENT, QUEUE};
use super::alike::{Compared as Alike, unseen_by_side, unseen_ns};
use super::contrary::within_the_whole;
use super::knock_on::set_off;
use super::population::{Population, Row, are_many, is_stream, quantile};
use super::recorded::recorded;
use super::shares::{Compared, Share, Weighed, compared};
use super::unwatched::{in_doubt, in_no_hand_ns};
use super::{Asked, HALVES, Owner, Question};
use spangap_model::evidence::{CallRecord, Certainty, Finding, LegRecord, Missing};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::collections::{BTreeMap, BTreeSet};

/// What the sheets say.
pub struct Answered {
    /// To which question.
    pub asked: Asked,
    /// Whether calls that show an event are compared with those that do not, and not slow calls with ordinary ones.
    pub by_event: bool,
    /// What each owner has of the time in question, the most first.
    pub shares: Vec<(Owner, Share)>,
    /// What whole legs have, whoever owns it.
    pub whole: Vec<(Legs, Share)>,
    /// What the ends have, whoever owns it; `None` is the way between.
    pub ends: BTreeMap<Option<Side>, Share>,
    /// What nobody owns.
    pub unexplained: Share,
    /// What the machine's own noise has.
    pub noise: Share,
    /// What each owner has of the time that is not noise, the most first.
    pub beside_noise: Vec<(Owner, Share)>,
    /// Whether the time in question is more than the spread of calls; see [`super::population::Slow`].
    pub stands_out: bool,
    /// Whether what is left of it beside the noise would still be more than that spread.
    pub more_than_noise: bool,
    /// Time in question of a call, nanoseconds.
    pub each_ns: Share,
    /// Calls in question.
    pub calls: f64,
    /// What a call takes with which they are compared, nanoseconds; zero without a comparison.
    pub baseline_ns: f64,
    /// Time in question, as a share of all time in calls.
    pub of_all: f64,
    /// Trace ids of the calls that have most of it.
    pub trace_ids: Vec<String>,
    /// How often each owner is there.
    pub present: BTreeMap<Owner, Presence>,
    /// Whether the way takes much longer for some calls than for others.
    pub varies: bool,
    /// How many times as large the messages of calls in question are as those of the calls that they are compared with.
    pub larger: f64,
    /// Of how many separate moments the time in question is, as if all of them had the same of it.
    pub moments: f64,
    /// Share of the time on each end's host that was recorded there.
    pub recorded: [f64; 2],
    /// Of what a queue at the server has, how much the threads had other calls in hand: the rest may be anything that comes
    /// before a span.
    pub queued: f64,
    /// Whether begin and end of most calls at the client are known: without spans they begin with their first byte.
    pub knows_ends: bool,
    /// Share of the time in question that may have passed behind other responses: only the server's spans would tell.
    pub behind_others: f64,
    /// Share of the time in question that passed outside the server's host, of which the server's end alone shows no more.
    pub outside: f64,
    /// Share of the calls in question that spans say were over before they left, and packets, that they were answered.
    pub answered_unsent: f64,
    /// Calls left out of the comparison, since a host was not recorded while they were there.
    pub left_out: usize,
}

/// How often an owner is there: in question, and among ordinary calls.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    /// Calls in question that have it.
    pub calls: f64,
    /// What a call in question has of it, nanoseconds.
    pub ns: f64,
    /// What an ordinary call has of it, nanoseconds.
    pub ordinary_ns: f64,
    /// Share of the ordinary calls that have it.
    pub ordinary_share: f64,
    /// Trace ids of the calls in question that have the most of it.
    pub trace_ids: Vec<String>,
    /// Of how many separate moments it is, as if all of them had the same of it.
    pub moments: f64,
}

/// Trace ids shown.
const TRACES: usize = 5;
/// A way varies when so much of its time is beyond the 10th percentile.
const VARIES: f64 = 0.25;
/// A path became longer, rather than that it varies, when even the quickest calls have so much of what all have on average beyond a
/// reference. Where each way varies evenly from nothing up, they have 0.45 of it.
const SHIFTED: f64 = 0.6;

/// Why the slow ones are slow; `None` where too few are, or not by enough.
pub fn slow(population: &Population<'_>, question: &Question<'_>) -> Option<Answered> {
    let mut slow = population.slow(question)?;
    let kinds: BTreeSet<usize> = slow.rows.iter().map(|row| row.stratum).collect();
    let is_ordinary = |row: &&Row<'_>| Population::is_ordinary(row) && kinds.contains(&row.stratum);
    let ordinary = population.rows.iter().filter(is_ordinary).collect();
    let compared = Alike::new(std::mem::take(&mut slow.rows), ordinary).alike();
    let mut answered = beside_others(&compared, population)?;
    answered.of_all = slow.beyond_ns / population.total_ns.max(1.0);
    answered.stands_out = slow.stands_out;
    answered.more_than_noise = slow.stands_out_with(1.0 - answered.noise.mid);
    Some(answered)
}

/// What all calls spend their time on. Streams are meant to last; and of a few that take most of it, anything may own most.
pub fn all(population: &Population<'_>) -> Option<Answered> {
    let mut rows: Vec<&Row<'_>> = population.rows.iter().filter(|row| !is_stream(row.call.record)).collect();
    if !are_many(&rows) {
        return None;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.call.duration_ns));
    let Alike { rows, left_out, .. } = Alike::new(rows, Vec::new()).alike();
    let mut answered = answer(Asked::All, &rows, &[], population)?;
    answered.left_out = left_out;
    Some(answered)
}

/// Why calls are slower than others of their kinds, where both were looked at alike.
pub fn beside_others(compared: &Alike<'_, '_>, population: &Population<'_>) -> Option<Answered> {
    let mut by_stratum: BTreeMap<usize, f64> = BTreeMap::new();
    for row in &compared.rows {
        *by_stratum.entry(row.stratum).or_default() += row.call.weight;
    }
    let others = weighed_like(&by_stratum, &compared.others);
    let mut answered = answer(Asked::Slow, &compared.rows, &others, population)?;
    answered.left_out = compared.left_out;
    Some(answered)
}

/// Ordinary calls, each kind weighed as the calls in question are of it.
fn weighed_like<'p, 'a>(by_stratum: &BTreeMap<usize, f64>, rows: &[&'p Row<'a>]) -> Vec<(&'p Row<'a>, f64)> {
    let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
    for row in rows {
        *sums.entry(row.stratum).or_default() += row.call.weight;
    }
    let weight = |row: &Row<'_>| {
        let ours = by_stratum.get(&row.stratum).copied().unwrap_or(0.0);
        ours * row.call.weight / sums.get(&row.stratum).copied().unwrap_or(1.0).max(f64::MIN_POSITIVE)
    };
    rows.iter().map(|row| (*row, weight(row))).collect()
}

pub fn answer(
    asked: Asked,
    rows: &[&Row<'_>],
    others: &[(&Row<'_>, f64)],
    population: &Population<'_>,
) -> Option<Answered> {
    let calls: f64 = rows.iter().map(|row| row.call.weight).sum();
    let mut weighed: Vec<(&Row<'_>, f64)> = rows.iter().map(|row| (*row, row.call.weight)).collect();
    weighed.extend(others.iter().map(|(row, weight)| (*row, -weight)));
    weighed.sort_by_key(|(row, _)| row.call.start_unix_ns);
    let by_owner = compare(asked, &weighed, |row| row.account.clone());
    if rows.is_empty() || by_owner.each_ns.mid <= 0.0 {
        return None;
    }
    let slack = slack(&weighed, asked);
    let ours: Vec<(&Row<'_>, f64)> = rows.iter().map(|row| (*row, row.call.weight)).collect();
    let unseen = unseen_by_side(&ours, others);
    let in_doubt = in_doubt(&ours, others);
    let set_off = set_off(rows, others);
    let widened = |owner: &Owner, share: Share, each_ns: f64| {
        let bounds = slack.get(owner).copied().unwrap_or(0.0);
        let (ours, theirs) = unseen_ns(owner, &unseen);
        let doubt: f64 = in_doubt.iter().filter(|(of, _)| of == owner).map(|(_, ns)| ns).sum();
        let each_ns = each_ns.max(1.0);
        let set_off = set_off.get(owner).copied().unwrap_or(0.0);
        share.widened((bounds + theirs + doubt) / each_ns, (bounds + ours + set_off) / each_ns)
    };
    let of_owner = |(owner, share): (&Owner, &Share)| (*owner, widened(owner, *share, by_owner.each_ns.mid));
    let mut shares: Vec<(Owner, Share)> = by_owner.shares.iter().map(of_owner).collect();
    if asked != Asked::All {
        within_the_whole(&mut shares);
    }
    most_first(&mut shares);
    let quiet = compare(asked, &weighed, |row| {
        let quiet = row.account.iter().filter(|(owner, _)| !is_noise(owner));
        quiet.map(|(owner, ns)| (*owner, *ns)).collect()
    });
    let of_quiet = |(owner, share): (&Owner, &Share)| (*owner, widened(owner, *share, quiet.each_ns.mid));
    let mut beside_noise: Vec<(Owner, Share)> = quiet.shares.iter().map(of_quiet).collect();
    if asked != Asked::All {
        within_the_whole(&mut beside_noise);
    }
    most_first(&mut beside_noise);
    let noise = compare(asked, &weighed, |row| {
        let mut of: BTreeMap<bool, i64> = BTreeMap::new();
        for (owner, ns) in row.account {
            *of.entry(is_noise(owner)).or_default() += ns;
        }
        of
    });
    let of_halves = |legs: Legs| if HALVES.contains(&legs) { BEYOND_CLIENT } else { legs };
    let whole = compare(asked, &weighed, |row| keyed(row, of_halves));
    let ends = compare(asked, &weighed, |row| keyed(row, end));
    let unexplained = compare(asked, &weighed, |row| {
        let mut of: BTreeMap<bool, i64> = BTreeMap::new();
        for (owner, ns) in row.account {
            *of.entry(!matches!(owner, Owner::Culprit(_) | Owner::Noise(_))).or_default() += ns;
        }
        of
    });
    let beyond = rows.iter().map(|row| (*row, row.beyond_ns)).filter(|(_, ns)| *ns > 0);
    let baseline: f64 = others.iter().map(|(row, weight)| weight * row.call.duration_ns as f64).sum();
    Some(Answered {
        asked,
        by_event: false,
        shares,
        whole: whole.shares.into_iter().map(|(legs, share)| (legs, share.widened(0.0, 0.0))).collect(),
        ends: ends
            .shares
            .into_iter()
            .filter_map(|(end, share)| Some((end?.0, share.widened(0.0, 0.0))))
            .collect(),
        unexplained: unexplained.shares.get(&true).copied().unwrap_or_default(),
        noise: noise.shares.get(&true).copied().unwrap_or_default(),
        beside_noise,
        stands_out: true,
        more_than_noise: true,
        each_ns: by_owner.each_ns,
        calls,
        baseline_ns: baseline / others.iter().map(|(_, weight)| weight).sum::<f64>().max(1.0),
        of_all: by_owner.each_ns.mid * calls / population.total_ns.max(1.0),
        trace_ids: rows.iter().filter_map(|row| row.call.record.trace_id.clone()).take(TRACES).collect(),
        present: presence(rows, others),
        varies: if asked == Asked::Against { varies_more(&ours, others) } else { varies(rows) },
        larger: larger(&ours, others),
        moments: moments(beyond.collect()),
        queued: queued(rows),
        knows_ends: knows_ends(rows),
        outside: (mean_of(&ours, outside_ns) - mean_of(others, outside_ns)) / by_owner.each_ns.mid,
        behind_others: (mean_of(&ours, behind_others_ns) - mean_of(others, behind_others_ns))
            / by_owner.each_ns.mid,
        answered_unsent: answered_unsent(rows),
        left_out: 0,
        recorded: Side::ALL.map(|side| recorded(population, side)),
    })
}

/// Those that have the same to a ten-thousandth keep their order: beyond that, shares are rounding.
fn most_first(shares: &mut [(Owner, Share)]) {
    shares.sort_by_key(|(_, share)| std::cmp::Reverse((share.mid * 1e4).round() as i64));
}

fn is_noise(owner: &Owner) -> bool {
    matches!(owner, Owner::Noise(_))
}

fn compare<Key: Ord + Copy>(
    asked: Asked,
    weighed: &[(&Row<'_>, f64)],
    account: impl Fn(&Row<'_>) -> BTreeMap<Key, i64>,
) -> Compared<Key> {
    let mut accounts: Vec<BTreeMap<Key, i64>> = weighed.iter().map(|(row, _)| account(row)).collect();
    if asked == Asked::Slow {
        beyond_usual(weighed, &mut accounts);
    }
    let calls = accounts.iter().zip(weighed);
    let calls: Vec<Weighed<'_, Key>> =
        calls.map(|(account, (_, weight))| Weighed { account, weight: *weight }).collect();
    if asked == Asked::Against {
        let (ours, theirs): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.weight >= 0.0);
        return compared(&[&ours, &theirs]);
    }
    compared(&[&calls])
}

/// Leaves of each call what it has beyond ordinary calls of its kind. The difference of the groups is the same, and does not
/// depend on how many of each kind a draw of the bootstrap has.
fn beyond_usual<Key: Ord + Copy>(weighed: &[(&Row<'_>, f64)], accounts: &mut [BTreeMap<Key, i64>]) {
    let mut usual: BTreeMap<usize, (f64, BTreeMap<Key, f64>)> = BTreeMap::new();
    for ((row, weight), account) in weighed.iter().zip(&*accounts).filter(|((_, weight), _)| *weight < 0.0) {
        let (calls, sums) = usual.entry(row.stratum).or_default();
        *calls -= weight;
        for (key, ns) in account {
            *sums.entry(*key).or_default() -= weight * *ns as f64;
        }
    }
    for ((row, _), account) in weighed.iter().zip(accounts) {
        let Some((calls, sums)) = usual.get(&row.stratum) else { continue };
        for (key, sum) in sums {
            *account.entry(*key).or_default() -= (sum / calls).round() as i64;
        }
    }
}

fn keyed<Key: Ord>(row: &Row<'_>, key: impl Fn(Legs) -> Key) -> BTreeMap<Key, i64> {
    let mut of: BTreeMap<Key, i64> = BTreeMap::new();
    let record = row.call.record;
    for leg in &record.legs {
        // The host that the client talks to is a proxy: its legs are of all hosts behind it, too.
        let is_there = !record.path.is_empty() && end(leg.legs) == Some(End(Some(Side::Server)));
        let legs = if is_there { BEYOND_CLIENT } else { leg.legs };
        *of.entry(key(legs)).or_default() += leg.ns;
    }
    of
}

/// An end of the calls, or the way between; `None` where legs lie on more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End(Option<Side>);

fn end(legs: Legs) -> Option<End> {
    let of = |leg: Leg| match leg {
        Leg::ClientAppOut | Leg::ClientSend | Leg::ClientAppIn => Some(Side::Client),
        Leg::RequestWire | Leg::ResponseWire | Leg::NoResponse => None,
        Leg::ServerHostIn | Leg::ServerApp | Leg::ServerHostOut | Leg::ServerSend => Some(Side::Server),
    };
    // All of a call begins and ends at the client.
    let (first, last) = (of(legs.first), of(legs.last));
    (first == last && (first.is_some() || legs.first == legs.last) && legs != super::account::ALL)
        .then_some(End(first))
}

/// What the bounds of legs, and the clocks in them, may move from one owner to another: nanoseconds of a call. Between calls
/// of one run a clock's error is the same in both groups, and only what differs counts.
fn slack(weighed: &[(&Row<'_>, f64)], asked: Asked) -> BTreeMap<Owner, f64> {
    let mut sums: BTreeMap<Owner, (f64, f64)> = BTreeMap::new();
    let (mut plus, mut minus) = (0.0, 0.0);
    for (row, weight) in weighed {
        if *weight >= 0.0 {
            plus += weight
        } else {
            minus -= weight
        }
        for (owner, bound) in bounds(row.account, &row.call.record.legs) {
            let of = sums.entry(owner).or_default();
            *(if *weight >= 0.0 { &mut of.0 } else { &mut of.1 }) += weight.abs() * bound;
        }
    }
    let mean = |sum: f64, weight: f64| if weight > 0.0 { sum / weight } else { 0.0 };
    let of = |(owner, (ours, theirs)): (Owner, (f64, f64))| {
        let (ours, theirs) = (mean(ours, plus), mean(theirs, minus));
        let slack = match asked {
            Asked::Slow => (ours - theirs).abs(),
            Asked::All => ours,
            Asked::Against => ours + theirs,
        };
        (owner, slack)
    };
    sums.into_iter().map(of).collect()
}

/// How far off each owner's time of a call may be. Both ways together do not depend on the clocks.
fn bounds(account: &Account, legs: &[LegRecord]) -> BTreeMap<Owner, f64> {
    let wire = Owner::Culprit(Culprit::of(Cause::NetworkDelay));
    let mut bounds: BTreeMap<Owner, f64> = BTreeMap::new();
    let mut ways: Option<f64> = None;
    for leg in legs {
        let bound = leg.bound_ns as f64;
        let is_way = leg.legs == Legs::one(Leg::RequestWire) || leg.legs == Legs::one(Leg::ResponseWire);
        if is_way {
            ways = Some(ways.map_or(bound, |other| (other - bound).abs()));
        } else if account.contains_key(&Owner::Place(leg.legs)) {
            *bounds.entry(Owner::Place(leg.legs)).or_default() += bound;
        }
    }
    if let Some(bound) = ways {
        bounds.insert(wire, bound);
    }
    bounds
}

fn presence(rows: &[&Row<'_>], others: &[(&Row<'_>, f64)]) -> BTreeMap<Owner, Presence> {
    let mut present: BTreeMap<Owner, Presence> = BTreeMap::new();
    // Each owner's calls, in one pass: there are many owners, and to look for each in every sheet takes most of a judgement.
    let mut have: BTreeMap<Owner, Vec<(&Row<'_>, i64)>> = BTreeMap::new();
    for row in rows {
        for (owner, ns) in row.account.iter().filter(|(_, ns)| **ns > 0) {
            let one = present.entry(*owner).or_default();
            one.calls += row.call.weight;
            one.ns += row.call.weight * *ns as f64;
            have.entry(*owner).or_default().push((row, *ns));
        }
    }
    for (row, weight) in others {
        for (owner, ns) in row.account.iter().filter(|(_, ns)| **ns > 0) {
            let one = present.entry(*owner).or_default();
            one.ordinary_ns += weight * *ns as f64;
            one.ordinary_share += weight;
        }
    }
    let ours: f64 = rows.iter().map(|row| row.call.weight).sum();
    let theirs: f64 = others.iter().map(|(_, weight)| weight).sum();
    for (owner, one) in &mut present {
        let of = have.remove(owner).unwrap_or_default();
        one.trace_ids = most_of(of.clone());
        one.moments = moments(of);
        one.ns /= ours.max(f64::MIN_POSITIVE);
        let theirs = if theirs > 0.0 { theirs } else { 1.0 };
        one.ordinary_ns /= theirs;
        one.ordinary_share /= theirs;
    }
    present
}

/// Trace ids of the calls that have the most of something.
fn most_of(mut rows: Vec<(&Row<'_>, i64)>) -> Vec<String> {
    rows.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    rows.into_iter().filter_map(|(row, _)| row.call.record.trace_id.clone()).take(TRACES).collect()
}

/// How long a response may have waited behind others, nanoseconds, where nothing tells when it was ready.
fn behind_others_ns(call: &CallRecord) -> f64 {
    let is_open = |finding: &&Finding| {
        let open = Certainty::Possible(Missing::ResponseReady);
        finding.culprit.cause == Cause::HeadOfLine && finding.certainty == open
    };
    call.findings.iter().filter(is_open).filter_map(|finding| finding.cost_ns).sum::<u64>() as f64
}

/// What the server's end alone shows of the client and the path, around what passed at the server: nothing tells how long one way is,
/// only how long both are together.
const OUTSIDE: [Legs; 2] = [
    Legs { first: Leg::ClientAppOut, last: Leg::RequestWire },
    Legs { first: Leg::ResponseWire, last: Leg::ClientAppIn },
];

fn outside_ns(call: &CallRecord) -> f64 {
    OUTSIDE.iter().map(|legs| call.leg_ns(*legs) as f64).sum()
}

/// The weighed mean over calls.
fn mean_of(rows: &[(&Row<'_>, f64)], of: impl Fn(&CallRecord) -> f64) -> f64 {
    let sum: f64 = rows.iter().map(|(row, weight)| weight * of(row.call.record)).sum();
    sum / rows.iter().map(|(_, weight)| weight).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Whether spans tell when most of the calls began, rather than packets when their first byte was sent.
pub fn knows_ends(rows: &[&Row<'_>]) -> bool {
    let begins_with_bytes = |row: &&&Row<'_>| {
        let begins = |leg: Leg| row.call.record.legs.iter().any(|own| own.legs.first == leg);
        begins(Leg::ClientSend) && !begins(Leg::ClientAppOut)
    };
    2 * rows.iter().filter(begins_with_bytes).count() < rows.len()
}

/// A call may be given up before it leaves. Where that goes for most, and they were answered, spans and capture have different
/// clocks: a capture from one end was taken for one from the other.
fn answered_unsent(rows: &[&Row<'_>]) -> f64 {
    let is_unsent = |call: &CallRecord| {
        call.legs.iter().all(|leg| leg.legs == Legs::one(Leg::ClientAppOut))
            && !call.legs.is_empty()
            && call.response_bytes.is_some()
    };
    let weight = |rows: &mut dyn Iterator<Item = &&Row<'_>>| rows.map(|row| row.call.weight).sum::<f64>();
    let unsent = weight(&mut rows.iter().filter(|row| is_unsent(row.call.record)));
    unsent / weight(&mut rows.iter()).max(f64::MIN_POSITIVE)
}

fn queued(rows: &[&Row<'_>]) -> f64 {
    let (mut shown, mut all) = (0.0, 0.0);
    for row in rows {
        let ns = row.account.get(&Owner::Culprit(QUEUE)).copied().unwrap_or(0).max(0);
        all += row.call.weight * ns as f64;
        let seen = row.call.queued.ns.max(in_no_hand_ns(row.call.record, Leg::ServerHostIn));
        shown += row.call.weight * ns.min(seen) as f64;
    }
    if all > 0.0 { shown / all } else { 0.0 }
}

/// Of how many separate moments a time of calls is: those that began while the first of them was under way have it of one.
fn moments(mut rows: Vec<(&Row<'_>, i64)>) -> f64 {
    rows.sort_by_key(|(row, _)| row.call.start_unix_ns);
    let (mut sum, mut squares, mut most, mut until) = (0.0, 0.0, 0.0_f64, i64::MIN);
    let mut close = |most: f64| {
        sum += most;
        squares += most * most;
    };
    for (row, ns) in rows {
        if row.call.start_unix_ns >= until {
            close(most);
            most = 0.0;
            until = row.call.start_unix_ns.saturating_add_unsigned(row.call.duration_ns);
        }
        most = most.max(ns as f64);
    }
    close(most);
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// How many times as large messages are, on average; one where they are compared with nothing.
fn larger(ours: &[(&Row<'_>, f64)], others: &[(&Row<'_>, f64)]) -> f64 {
    let mean = |of: &[(&Row<'_>, f64)]| {
        let bytes = |call: &CallRecord| call.request_bytes + call.response_bytes.unwrap_or(0);
        let sum: f64 = of.iter().map(|(row, weight)| weight * bytes(row.call.record) as f64).sum();
        sum / of.iter().map(|(_, weight)| weight).sum::<f64>().max(f64::MIN_POSITIVE)
    };
    if others.is_empty() { 1.0 } else { mean(ours) / mean(others).max(1.0) }
}

/// What a call takes both ways, as far as nobody else owns it, with its weight.
fn both_ways(row: &Row<'_>, weight: f64) -> (u64, f64) {
    let wire = Owner::Culprit(Culprit::of(Cause::NetworkDelay));
    let ns = row.account.get(&wire).copied().unwrap_or(0);
    (u64::try_from(ns).unwrap_or(0), weight)
}

fn mean(ways: &[(u64, f64)]) -> f64 {
    let calls: f64 = ways.iter().map(|(_, weight)| weight).sum();
    ways.iter().map(|(ns, weight)| *ns as f64 * weight).sum::<f64>() / calls.max(f64::MIN_POSITIVE)
}

/// Whether some calls have more of what a path takes beyond a reference than the quickest have: a path that became longer is longer
/// for these as well.
fn varies_more(ours: &[(&Row<'_>, f64)], others: &[(&Row<'_>, f64)]) -> bool {
    let ways = |of: &[(&Row<'_>, f64)]| of.iter().map(|(row, weight)| both_ways(row, *weight)).collect();
    let (ours, theirs): (Vec<_>, Vec<_>) = (ways(ours), ways(others));
    let longer = mean(&ours) - mean(&theirs);
    let quickest = quantile(ours, 0.1) as f64 - quantile(theirs, 0.1) as f64;
    quickest < SHIFTED * longer
}

/// Whether much of what both ways take together is beyond what they take at their best: what a path always takes does not vary.
fn varies(rows: &[&Row<'_>]) -> bool {
    let ways: Vec<(u64, f64)> = rows.iter().map(|row| both_ways(row, row.call.weight)).collect();
    let mean = mean(&ways);
    mean - quantile(ways, 0.1) as f64 > VARIES * mean
}
