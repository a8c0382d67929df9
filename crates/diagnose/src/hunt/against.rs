//! All calls beside those of a reference, such as an earlier window: why they take longer.

use super::answer::{Answered, answer};
use super::population::{EFFECTIVE, Kind, Population, Row, is_stream, quantile};
use super::shares::Share;
use super::{Asked, Owner, Question};
use std::collections::BTreeMap;

/// Calls of a reference that are enough to compare with.
const LEAST: usize = 8;
/// What all calls take beyond a reference is noise below this share of what that takes ...
const LEAST_OF_REFERENCE: f64 = 0.05;
/// ... and below this, nanoseconds: calls wake threads and CPUs that sleep for longer the fewer calls there are, and no two windows
/// have the same load.
const LEAST_NS: f64 = 200_000.0;
/// Calls of other sizes are compared only if fewer than this share has the same.
const MOST: f64 = 0.5;

/// What is so frequent in the reference, as a share of what it is here, has not become more frequent: a few calls are by chance.
const HALF: f64 = 0.5;

/// What a comparison comes to.
pub enum Beside {
    /// The reference has too few calls of the same kinds.
    Nothing,
    /// They take no longer; and whether as many of the reference are as slow as those that stand out.
    AsLong {
        /// Then that they are slow says nothing about this window.
        slow_as_often: bool,
        /// What they do take longer, nanoseconds, if that is spread over so many causes and legs that none has enough of it.
        spread_ns: Option<f64>,
    },
    /// They take longer, and why.
    Longer(Box<Answered>),
}

/// Compares with a reference. Streams are left out, which are meant to last.
pub fn against(population: &Population<'_>, reference: &Population<'_>) -> Beside {
    let same = |kind: &Kind| kind.clone();
    let mut pairs = pairs(population, reference, &same);
    let calls = |pairs: &Pairs<'_, '_>| pairs.values().map(|(ours, _)| weight(ours)).sum::<f64>();
    if calls(&pairs) < MOST * population.calls() {
        let of_any_size = self::pairs(population, reference, &Kind::of_any_size);
        if calls(&of_any_size) > calls(&pairs) {
            pairs = of_any_size;
        }
    }
    if pairs.is_empty() {
        return Beside::Nothing;
    }
    let mut rows: Vec<&Row<'_>> = pairs.values().flat_map(|(ours, _)| ours.iter().copied()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.call.duration_ns));
    let others: Vec<(&Row<'_>, f64)> = pairs
        .values()
        .flat_map(|(ours, theirs)| {
            let factor = weight(ours) / weight(theirs).max(f64::MIN_POSITIVE);
            theirs.iter().map(move |row| (*row, factor * row.call.weight))
        })
        .collect();
    match answer(Asked::Against, &rows, &others, population) {
        Some(answered) if is_more(&answered) && !is_spread(&answered) => Beside::Longer(Box::new(answered)),
        answered => Beside::AsLong {
            slow_as_often: is_slow_as_often(population, &pairs),
            spread_ns: answered.filter(is_more).map(|answered| answered.each_ns.mid),
        },
    }
}

/// Whether calls as slow as half of those that stand out are, in the reference, at least half as frequent.
fn is_slow_as_often(population: &Population<'_>, pairs: &Pairs<'_, '_>) -> bool {
    let Some(slow) = population.slow(&Question::default()) else { return false };
    let slow = slow.rows.iter().map(|row| (row.call.duration_ns, row.call.weight)).collect();
    let as_slow_ns = quantile(slow, 0.5);
    let is_slow = |row: &&&Row<'_>| row.call.duration_ns >= as_slow_ns;
    let all = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>().max(f64::MIN_POSITIVE);
    let ours = || pairs.values().flat_map(|(ours, _)| ours);
    let theirs = || pairs.values().flat_map(|(_, theirs)| theirs);
    let our_share = all(&mut ours().filter(is_slow).map(|row| row.call.weight))
        / all(&mut ours().map(|row| row.call.weight));
    let their_slow = all(&mut theirs().filter(is_slow).map(|row| row.call.weight));
    let their_share = their_slow / all(&mut theirs().map(|row| row.call.weight));
    their_slow >= EFFECTIVE && their_share >= HALF * our_share
}

fn is_more(answered: &Answered) -> bool {
    let least = LEAST_NS.max(LEAST_OF_REFERENCE * answered.baseline_ns);
    answered.each_ns.low > 0.0 && answered.each_ns.mid >= least
}

/// Whether a difference is made of many small ones: nobody has half of it, nor as much as another load changes in a single leg.
/// Programs that were started anew, sleep for longer or find other work in their caches are a little slower everywhere.
fn is_spread(answered: &Answered) -> bool {
    let has_enough =
        |(_, share): &(Owner, Share)| share.mid >= HALF || share.mid * answered.each_ns.mid >= LEAST_NS;
    !answered.shares.iter().any(has_enough)
}

/// Calls of the same kind: ours, and those of the reference.
type Pairs<'p, 'a> = BTreeMap<Kind, (Vec<&'p Row<'a>>, Vec<&'p Row<'a>>)>;

fn pairs<'p, 'a>(
    population: &'p Population<'a>,
    reference: &'p Population<'a>,
    as_kind: &dyn Fn(&Kind) -> Kind,
) -> Pairs<'p, 'a> {
    let ours = by_kind(population, as_kind);
    let mut theirs = by_kind(reference, as_kind);
    let pair = |(kind, ours): (Kind, Vec<&'p Row<'a>>)| {
        let theirs = theirs.remove(&kind).filter(|theirs| theirs.len() >= LEAST)?;
        Some((kind, (ours, theirs)))
    };
    ours.into_iter().filter_map(pair).collect()
}

/// The calls of each kind that is not too rare.
fn by_kind<'p, 'a>(
    population: &'p Population<'a>,
    as_kind: &dyn Fn(&Kind) -> Kind,
) -> BTreeMap<Kind, Vec<&'p Row<'a>>> {
    let kinds: BTreeMap<usize, Kind> =
        population.kinds.iter().map(|(kind, number)| (*number, as_kind(kind))).collect();
    let mut of: BTreeMap<Kind, Vec<&'p Row<'a>>> = BTreeMap::new();
    for row in population.rows.iter().filter(|row| !is_stream(row.call.record)) {
        if let Some(kind) = kinds.get(&row.stratum) {
            of.entry(kind.clone()).or_default().push(row);
        }
    }
    of
}

fn weight(rows: &[&Row<'_>]) -> f64 {
    rows.iter().map(|row| row.call.weight).sum()
}

#[cfg(test)]
mod tests {
    use crate::hunt::innocents::{by_thread, running};
    use crate::hunt::tests::{MS, call, leg, lost};
    use crate::hunt::{Hunt, Kind, Question, hunt};
    use spangap_model::evidence::{CallRecord, Evidence, HostPart, LegRecord};
    use spangap_model::{Cause, Culprit, Doing, Leg, Legs, Side, Taker};

    fn evidence(calls: impl Iterator<Item = CallRecord>) -> Evidence {
        let calls: Vec<CallRecord> = calls.collect();
        Evidence { matching_calls: calls.len() as u64, calls, ..Evidence::default() }
    }

    fn beside(now: &Evidence, before: &Evidence) -> Hunt {
        hunt(now, &Question { against: Some(before), ..Question::default() })
    }

    fn named(hunt: &Hunt) -> Option<Culprit> {
        hunt.culprits.first().map(|one| one.culprit)
    }

    #[test]
    fn only_the_difference_counts() {
        let of = |wire: i64| {
            evidence((0..100).map(move |n| {
                let legs = vec![leg(Leg::ServerApp, 30), leg(Leg::ResponseWire, wire + n % 3)];
                call(n, "/a", legs, if wire > 5 { vec![lost(wire as u64 - 1)] } else { Vec::new() })
            }))
        };
        let (before, now) = (of(1), of(15));
        let worse = beside(&now, &before);
        assert_eq!((worse.verdict, worse.question), (Kind::One, "all"), "{worse:#?}");
        assert_eq!(worse.culprits[0].culprit.cause, Cause::Rto);
        assert_eq!((worse.excess.mean_ns, worse.excess.baseline_ns), (14 * MS as u64, 31_990_000));
        let same = beside(&before, &before);
        assert_eq!((same.verdict, same.question), (Kind::Nothing, "all"), "{same:#?}");
        assert!(same.words.contains("no longer than in the reference"), "{}", same.words);
    }

    /// Every tenth call, or fewer, takes so much longer in the server's host, for a reason that nobody sees.
    fn dawdles(every: i64, ms: i64) -> Evidence {
        evidence((0..300).map(move |n| {
            let late = if n % every == 0 { ms } else { 0 };
            let legs = [
                leg(Leg::ClientAppOut, 0),
                leg(Leg::ServerHostIn, late / 2),
                leg(Leg::ServerApp, 1),
                leg(Leg::ServerHostOut, late / 2),
            ];
            call(n * 20, "/a", legs.to_vec(), Vec::new())
        }))
    }

    #[test]
    fn calls_that_were_as_slow_as_often_before_are_nothing_new() {
        let now = dawdles(10, 8);
        assert_ne!(hunt(&now, &Question::default()).verdict, Kind::Nothing);
        let always = beside(&now, &dawdles(12, 8));
        assert_eq!(always.verdict, Kind::Nothing, "{always:#?}");
        assert!(always.words.contains("no longer than in the reference"), "{}", always.words);
        // Once in a while is not as often, and a little is not as slow.
        for before in [dawdles(60, 8), dawdles(10, 2)] {
            let new = beside(&now, &before);
            assert_ne!(new.verdict, Kind::Nothing, "{new:#?}");
        }
    }

    /// Calls of a recorded server that all take so many microseconds in it, and as many on their way.
    fn serves(server_us: i64, way_us: i64) -> Evidence {
        evidence((0..100).map(move |n| {
            let served = LegRecord {
                ns: server_us * 1_000,
                ..by_thread(Leg::ServerApp, 7, server_us / 1_000, vec![running(server_us / 1_000)])
            };
            let way = LegRecord { ns: way_us * 1_000, ..leg(Leg::RequestWire, 0) };
            let back = LegRecord { ns: way_us * 1_000, ..leg(Leg::ResponseWire, 0) };
            let legs = vec![leg(Leg::ClientAppOut, 0), way, served, back, leg(Leg::ClientAppIn, 0)];
            let mut record = call(n * 20, "/a", legs, Vec::new());
            record.duration_ns = record.legs.iter().map(|leg| leg.ns).sum::<i64>() as u64;
            record
        }))
    }

    #[test]
    fn what_became_slower_is_named_and_what_was_always_slow_is_not() {
        let server = Culprit::at(Cause::ServerApp, Side::Server);
        assert_eq!(named(&beside(&serves(20_000, 100), &serves(1_000, 100))), Some(server));
        let way = Culprit::of(Cause::NetworkDelay);
        assert_eq!(named(&beside(&serves(1_000, 9_000), &serves(1_000, 100))), Some(way));
        // A far away server that takes its time, and always did.
        for always in [serves(20_000, 100), serves(1_000, 9_000)] {
            let same = beside(&always, &always);
            assert_eq!((same.verdict, named(&same)), (Kind::Nothing, None), "{same:#?}");
        }
    }

    #[test]
    fn one_moment_in_which_a_program_had_the_cpu_is_not_why_all_calls_take_longer() {
        // Twenty calls wait until the moment ends, once or in six places.
        let busy = |times: i64| {
            evidence((0..300).map(move |n| {
                let within = n % 50;
                let ms = if n / 50 < times && within < 20 { 400 - within * 20 } else { 0 };
                let behind = Some(Taker::Task { tid: 99, pid: Some(99), name: Some("backup".into()) });
                let waits = HostPart { doing: Doing::Runnable, behind, ..running(ms) };
                let served = by_thread(Leg::ServerApp, 7, ms + 1, vec![waits, running(1)]);
                call(n * 2, "/a", vec![leg(Leg::ClientAppOut, 0), served], Vec::new())
            }))
        };
        let quiet = busy(0);
        assert_eq!(named(&beside(&busy(1), &quiet)), None);
        assert_eq!(named(&beside(&busy(6), &quiet)), Some(Culprit::at(Cause::RunQueue, Side::Server)));
    }

    #[test]
    fn a_few_slow_calls_are_enough_beside_many_quick_ones() {
        let mut few = serves(20_000, 100);
        few.calls.truncate(12);
        let mut many = serves(1_000, 100);
        let quick = many.calls.clone();
        for round in 1..40 {
            many.calls.extend(quick.iter().map(|call| CallRecord {
                start_unix_ns: call.start_unix_ns + round * 40_000 * MS,
                ..call.clone()
            }));
        }
        let server = Culprit::at(Cause::ServerApp, Side::Server);
        assert_eq!(named(&beside(&few, &many)), Some(server));
        assert_eq!(named(&beside(&many, &few)), None);
    }

    #[test]
    fn a_few_microseconds_are_within_what_another_load_changes() {
        let same = beside(&serves(1_150, 100), &serves(1_000, 100));
        assert_eq!((same.verdict, named(&same)), (Kind::Nothing, None), "{same:#?}");
    }

    #[test]
    fn a_difference_that_is_a_little_of_everything_is_what_two_windows_differ_by() {
        // Five legs, each of which takes so much longer than before.
        let of = |us: i64| {
            evidence((0..200).map(move |n| {
                let legs = [
                    Leg::ClientAppOut,
                    Leg::RequestWire,
                    Leg::ServerHostIn,
                    Leg::ServerHostOut,
                    Leg::ClientAppIn,
                ];
                let legs: Vec<LegRecord> =
                    legs.map(|one| LegRecord { ns: (100 + us) * 1_000, ..leg(one, 0) }).into();
                CallRecord {
                    duration_ns: legs.iter().map(|leg| leg.ns).sum::<i64>() as u64,
                    ..call(n * 20, "/a", legs, Vec::new())
                }
            }))
        };
        let little = beside(&of(60), &of(0));
        assert_eq!((little.verdict, named(&little)), (Kind::Nothing, None), "{little:#?}");
        assert!(little.words.contains("300 us longer"), "{}", little.words);
        let much = beside(&of(250), &of(0));
        assert_ne!(much.verdict, Kind::Nothing, "{much:#?}");
    }

    #[test]
    fn a_reference_of_other_calls_is_none() {
        let mut other = serves(1_000, 100);
        for call in &mut other.calls {
            call.method = Some("/b".into());
        }
        let hunt = beside(&serves(20_000, 100), &other);
        assert_eq!((hunt.verdict, named(&hunt)), (Kind::Place, None), "{hunt:#?}");
        assert_eq!(hunt.place.as_ref().map(|place| place.leg), Some(Legs::one(Leg::ServerApp)));
        assert!(hunt.look_next.iter().any(|next| next.contains("reference has too few calls")), "{hunt:#?}");
    }

    #[test]
    fn messages_that_have_grown_are_compared_with_small_ones() {
        let sends = |bytes: u64, ms: i64| {
            evidence((0..40).map(move |n| CallRecord {
                response_bytes: Some(bytes),
                windows: [Some(1 << 20); 2],
                ..call(
                    n * 100,
                    "/a",
                    vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(Leg::ServerSend, ms)],
                    Vec::new(),
                )
            }))
        };
        let grown = beside(&sends(16 << 20, 40), &sends(300 << 10, 1));
        assert_eq!(named(&grown), Some(Culprit::of(Cause::LargePayload)), "{grown:#?}");
    }

    #[test]
    fn uploads_that_a_server_begins_to_work_on_are_compared_although_most_of_their_time_is_that() {
        let over = |way_ms: i64| {
            evidence((0..60).map(move |n| {
                let legs = vec![
                    leg(Leg::ClientAppOut, 0),
                    leg(Leg::ClientSend, 3),
                    leg(Leg::RequestWire, way_ms),
                    leg(Leg::ServerHostIn, -3),
                    leg(Leg::ServerApp, 4),
                    leg(Leg::ResponseWire, way_ms),
                    leg(Leg::ClientAppIn, 0),
                ];
                CallRecord { request_bytes: 600_000, ..call(n * 20, "/a", legs, Vec::new()) }
            }))
        };
        let longer = beside(&over(20), &over(0));
        assert_eq!(named(&longer), Some(Culprit::of(Cause::NetworkDelay)), "{longer:#?}");
    }

    #[test]
    fn what_slow_calls_show_comes_before_a_smaller_difference_of_all() {
        // Every tenth call waits for a retransmission; and the server takes a millisecond longer than it did.
        let now = evidence((0..300).map(|n| {
            let wire = if n % 10 == 0 { 201 } else { 1 };
            let legs = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 3), leg(Leg::ResponseWire, wire)];
            call(n * 20, "/a", legs, if n % 10 == 0 { vec![lost(200)] } else { Vec::new() })
        }));
        let before = evidence((0..300).map(|n| {
            let legs = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 2), leg(Leg::ResponseWire, 1)];
            call(n * 20, "/a", legs, Vec::new())
        }));
        let hunt = beside(&now, &before);
        assert_eq!(named(&hunt).map(|culprit| culprit.cause), Some(Cause::Rto), "{hunt:#?}");
    }
}
