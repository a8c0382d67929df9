//! How conclusions stand beside truths.

use super::*;
use crate::grade::conclusion::BlamedCulprit;
use spangap_model::{Cause, Side};

const RTO: Culprit = Culprit::of(Cause::Rto);
const RUN_QUEUE: Culprit = Culprit::at(Cause::RunQueue, Side::Server);

fn fault(culprit: Culprit, legs: Legs) -> Fault {
    Fault { culprit, also_right: Vec::new(), legs: Some(legs), affected: BTreeMap::new() }
}

fn known(faults: &[Fault]) -> Known {
    Known { faults: faults.to_vec(), ..Known::default() }
}

fn rto() -> Known {
    known(&[fault(RTO, Legs::one(Leg::ResponseWire))])
}

fn standing(known: &Known, said: &Conclusion) -> Standing {
    stands(known, said).standing
}

fn several(culprits: &[Culprit]) -> Conclusion {
    let named = |culprit: &Culprit| BlamedCulprit { culprit: *culprit, share: None };
    Conclusion { culprits: culprits.iter().map(named).collect(), ..Conclusion::of(Kind::Several) }
}

#[test]
fn a_culprit_that_is_not_to_blame_is_an_innocent_on_any_run() {
    let healthy = Known::default();
    assert_eq!(standing(&healthy, &Conclusion::named(RTO)), Standing::Innocent);
    assert_eq!(standing(&rto(), &Conclusion::named(RUN_QUEUE)), Standing::Innocent);
    assert_eq!(standing(&rto(), &Conclusion::named(RTO)), Standing::Right);
    // Beside one who is to blame he stays one.
    let both = stands(&rto(), &several(&[RTO, RUN_QUEUE]));
    assert_eq!((both.standing, both.innocents), (Standing::Innocent, vec![RUN_QUEUE]));
    // The wrong end is somebody else.
    let server = known(&[fault(RUN_QUEUE, Legs::one(Leg::ServerApp))]);
    let client = Culprit::at(Cause::RunQueue, Side::Client);
    assert_eq!(standing(&server, &Conclusion::named(client)), Standing::Innocent);
    assert_eq!(standing(&server, &Conclusion::named(Culprit::of(Cause::RunQueue))), Standing::Innocent);
}

#[test]
fn machine_noise_is_neither_innocent_nor_right() {
    let noisy = Known { noise: vec![RUN_QUEUE], ..rto() };
    assert_eq!(standing(&noisy, &Conclusion::named(RUN_QUEUE)), Standing::Noise);
    assert_eq!(standing(&noisy, &several(&[RTO, RUN_QUEUE])), Standing::Right);
    assert_eq!(standing(&noisy, &several(&[Culprit::of(Cause::SynLoss), RUN_QUEUE])), Standing::Innocent);
    assert_eq!(
        standing(&Known { noise: vec![RUN_QUEUE], ..Known::default() }, &Conclusion::named(RUN_QUEUE)),
        Standing::Noise
    );
}

#[test]
fn either_or_both_of_two_faults_are_right() {
    let two = known(&[
        fault(RTO, Legs::one(Leg::ResponseWire)),
        fault(RUN_QUEUE, Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut }),
    ]);
    for named in [vec![RTO], vec![RUN_QUEUE], vec![RUN_QUEUE, RTO]] {
        assert_eq!(standing(&two, &several(&named)), Standing::Right, "{named:?}");
    }
    assert_eq!(standing(&two, &Conclusion::place(Legs::one(Leg::ServerApp))), Standing::RightPlace);
    assert_eq!(standing(&two, &Conclusion::place(Legs::one(Leg::ClientSend))), Standing::WrongPlace);
}

#[test]
fn nothing_is_the_right_answer_for_a_healthy_run() {
    let nothing = Conclusion::of(Kind::Nothing);
    assert_eq!(standing(&Known::default(), &nothing), Standing::Right);
    assert_eq!(standing(&Known::default(), &Conclusion::named(Culprit::NOTHING)), Standing::Unknown);
    assert_eq!(standing(&rto(), &nothing), Standing::WronglyNothing);
    assert_eq!(standing(&rto(), &Conclusion::of(Kind::Unknown)), Standing::Unknown);
    assert_eq!(standing(&Known::default(), &Conclusion::of(Kind::Unknown)), Standing::Unknown);
    // A clock that differs harms nobody, and may be named.
    let clock = Culprit::of(Cause::Clock);
    let known = Known { harmless: vec![clock], ..Known::default() };
    assert_eq!(standing(&known, &Conclusion::named(clock)), Standing::Right);
    assert_eq!(standing(&known, &Conclusion::named(RTO)), Standing::Innocent);
    assert_eq!(standing(&rto(), &Conclusion::named(clock)), Standing::Innocent);
}

#[test]
fn places() {
    let at = |first, last| Conclusion::place(Legs { first, last });
    let one = |leg| at(leg, leg);
    let app = known(&[fault(Culprit::at(Cause::ServerApp, Side::Server), Legs::one(Leg::ServerApp))]);
    for (said, expected) in [
        (one(Leg::ServerApp), Standing::RightPlace),
        (one(Leg::ServerHostIn), Standing::WrongPlace),
        (one(Leg::ResponseWire), Standing::WrongPlace),
        // As far as one capture can tell; the whole call tells nothing.
        (at(Leg::ServerHostIn, Leg::ServerHostOut), Standing::RightPlace),
        (at(Leg::RequestWire, Leg::ResponseWire), Standing::RightPlace),
        (at(Leg::ClientAppOut, Leg::ClientAppIn), Standing::WrongPlace),
    ] {
        assert_eq!(standing(&app, &said), expected, "{:?}", said.place);
    }
    let path = known(&[fault(
        Culprit::of(Cause::NetworkDelay),
        Legs { first: Leg::RequestWire, last: Leg::ResponseWire },
    )]);
    assert_eq!(standing(&path, &one(Leg::RequestWire)), Standing::RightPlace);
    assert_eq!(
        standing(&path, &one(Leg::ServerApp)),
        Standing::WrongPlace,
        "the server is between both ways"
    );
    assert_eq!(standing(&Known::default(), &one(Leg::ServerApp)), Standing::WrongPlace);
    let nowhere =
        known(&[Fault { legs: None, ..fault(Culprit::of(Cause::Retries), Legs::one(Leg::ServerApp)) }]);
    assert_eq!(standing(&nowhere, &one(Leg::ServerApp)), Standing::Unknown);
}

#[test]
fn grounded_is_what_rests_on_calls_that_were_longer() {
    let mut known = rto();
    known.faults[0].affected = [("a".to_owned(), None), ("b".to_owned(), None)].into();
    let grounded = |ids: &[&str]| {
        let trace_ids = ids.iter().map(|id| (*id).to_owned()).collect();
        stands(&known, &Conclusion { trace_ids, ..Conclusion::named(RTO) }).grounded
    };
    assert_eq!(grounded(&["a", "b"]), Some(true));
    assert_eq!(grounded(&["a", "b", "a", "b", "c"]), Some(true));
    assert_eq!(grounded(&["a", "c"]), Some(false));
    assert_eq!(grounded(&[]), Some(false), "a name alone may be luck");
    assert_eq!(stands(&known, &Conclusion::named(RUN_QUEUE)).grounded, None);
    // The warm-up's calls are in the evidence, and not in the truth.
    known.calls = ["a", "b", "c"].map(|id| (id.to_owned(), 1)).into();
    let grounded = |ids: &[&str]| {
        let trace_ids = ids.iter().map(|id| (*id).to_owned()).collect();
        stands(&known, &Conclusion { trace_ids, ..Conclusion::named(RTO) }).grounded
    };
    assert_eq!(grounded(&["a", "w", "b"]), Some(true));
    assert_eq!((grounded(&["a", "w", "c"]), grounded(&["w"])), (Some(false), Some(false)));
}

#[test]
fn the_share_by_construction() {
    let calls: Vec<(String, u64)> = (0..10).map(|n| (n.to_string(), if n < 2 { 100 } else { 10 })).collect();
    let mut fault = fault(RTO, Legs::one(Leg::ResponseWire));
    fault.affected = [("0".to_owned(), Some(90)), ("1".to_owned(), Some(45))].into();
    // Two calls take 90 more than the others; of these 180 it cost 135.
    let slow = constructed_share(&fault, &calls, Of::Slow(None)).expect("known");
    assert!((slow - 0.75).abs() < 1e-9, "{slow}");
    // Of the slowest one alone it is another share.
    assert_eq!(constructed_share(&fault, &calls, Of::Slow(Some(1))), Some(0.5));
    let all = constructed_share(&fault, &calls, Of::All).expect("known");
    assert!((all - 135.0 / 280.0).abs() < 1e-9, "{all}");
    // What every call has explains nothing of why some are slow.
    fault.affected = calls.iter().map(|(id, _)| (id.clone(), Some(5))).collect();
    assert_eq!(constructed_share(&fault, &calls, Of::Slow(None)), Some(0.0));
    // None can have lost more than it took beyond the quickest of the others.
    fault.affected = [("0".to_owned(), Some(9_000)), ("1".to_owned(), Some(9_000))].into();
    assert_eq!(constructed_share(&fault, &calls, Of::All), Some(180.0 / 280.0));
    // Beside a reference, of what they take more than there, and of nothing where that is no more.
    let mean = 280.0 / calls.len() as f64;
    let beyond = constructed_share(&fault, &calls, Of::Beyond(1)).expect("known");
    assert!((beyond - 180.0 / calls.len() as f64 / (mean - 1.0)).abs() < 1e-9, "{beyond}");
    assert_eq!(constructed_share(&fault, &calls, Of::Beyond(280)), None);
    assert_eq!(constructed_share(&fault, &calls, Of::Slow(None)), Some(1.0));
    fault.affected.insert("2".into(), None);
    assert_eq!(constructed_share(&fault, &calls, Of::Slow(None)), None);

    fault.affected = [("0".to_owned(), Some(90)), ("1".to_owned(), Some(45))].into();
    let known = Known { faults: vec![fault], calls, ..Known::default() };
    let said = |low, high| Conclusion {
        culprits: vec![BlamedCulprit { culprit: RTO, share: Some(Interval { low, high }) }],
        question: Some(Question::Slow),
        ..Conclusion::of(Kind::One)
    };
    let (interval, share) = stands(&known, &said(0.7, 0.8)).share.expect("both are known");
    assert!(interval.low < share && share < interval.high);
    assert_eq!(excess_ns(&known), Some(67));
}

#[test]
fn unknown_excess_is_relative_to_the_other_calls() {
    let calls = || {
        [("a", 50), ("b", 54), ("c", 10), ("d", 8), ("e", 12)].map(|(id, ns)| (id.to_owned(), ns)).to_vec()
    };
    let of = |ids: &[&str]| {
        let mut known = Known { calls: calls(), ..rto() };
        known.faults[0].affected = ids.iter().map(|id| ((*id).to_owned(), None)).collect();
        excess_ns(&known)
    };
    assert_eq!(of(&["a", "b"]), Some(42));
    assert_eq!(of(&["a", "b", "c", "d", "e"]), Some(26 - 8));
    assert_eq!(of(&["x"]), None);
    assert_eq!(excess_ns(&Known::default()), None);
}

#[test]
fn the_share_of_an_event_is_of_the_calls_that_have_it() {
    // Two calls waited for 40 of their 60 and 50; the slowest of all waited for nothing.
    let mut calls: Vec<(String, u64)> = (0..30).map(|n| (n.to_string(), 10)).collect();
    calls.extend([("a", 60), ("b", 50), ("c", 100)].map(|(id, ns)| (id.to_owned(), ns)));
    let mut fault = fault(RTO, Legs::one(Leg::ResponseWire));
    fault.affected = ["a", "b"].map(|id| (id.to_owned(), Some(40))).into();
    let usual = (30.0 * 10.0 + 100.0) / 31.0;
    let share = constructed_share(&fault, &calls, Of::WithEvent).expect("known");
    assert!((share - 40.0 / (55.0 - usual)).abs() < 1e-9, "{share}");
    assert_ne!(constructed_share(&fault, &calls, Of::Slow(Some(2))), Some(share));
    fault.affected = calls.iter().map(|(id, _)| (id.clone(), Some(5))).collect();
    assert_eq!(constructed_share(&fault, &calls, Of::WithEvent), None, "nothing is left to compare with");
    fault.affected.clear();
    assert_eq!(constructed_share(&fault, &calls, Of::WithEvent), None);
}
