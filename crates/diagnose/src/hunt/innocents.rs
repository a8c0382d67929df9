//! Innocents that a rule must not convict: for each rule, the fault it is for and an innocent that looks like it.

use super::lack::{Lack, Source};
use super::tests::{MS, call, leg, lost, of};
use super::*;
use spangap_model::Doing;
use spangap_model::WaitReason;
use spangap_model::evidence::{
    Certainty, Finding, HostPart, HostTime, Instrument, LegRecord, Missing, Scope, Waker,
};

pub(super) fn blocked(reason: WaitReason, waker: Waker, ms: i64) -> HostPart {
    HostPart {
        doing: Doing::Blocked,
        behind: None,
        waited_for: Some(reason),
        woken_by: None,
        waker: Some(waker),
        ns: (ms * MS) as u64,
    }
}

/// A leg in which this thread did that for all of its time.
pub(super) fn by_thread(place: Leg, tid: u32, ms: i64, parts: Vec<HostPart>) -> LegRecord {
    LegRecord {
        host: Some(HostTime { threads: Vec::new(), tids: vec![tid], read: None, parts }),
        ..leg(place, ms)
    }
}

pub(super) fn running(ms: i64) -> HostPart {
    HostPart {
        doing: Doing::Running,
        behind: None,
        waited_for: None,
        woken_by: None,
        waker: None,
        ns: (ms * MS) as u64,
    }
}

/// A call that begins then and whose thread waits at a futex until that one ends it.
fn waits(at_ms: i64, tid: u32, by: u32, ms: i64) -> CallRecord {
    let leg = by_thread(Leg::ServerApp, tid, ms, vec![blocked(WaitReason::Futex, Waker::Thread(by), ms)]);
    CallRecord { start_unix_ns: at_ms * MS, ..call(0, "/a", vec![leg], Vec::new()) }
}

/// Calls that are slow in groups, at these moments, among quick ones that run for a millisecond.
pub(super) fn among_quick(group: impl Fn(i64) -> Vec<CallRecord>) -> Hunt {
    let quick = (0..400).map(|n| {
        let leg = by_thread(Leg::ServerApp, 7, 1, vec![running(1)]);
        CallRecord { start_unix_ns: n * 10 * MS, ..call(0, "/a", vec![leg], Vec::new()) }
    });
    of((0..12).flat_map(|n| group(n * 300)).chain(quick))
}

const LOCK: Culprit = Culprit::at(Cause::Lock, Side::Server);

#[test]
fn threads_that_hand_on_what_they_waited_for_waited_for_a_lock() {
    // Housekeeping (9) has it for 60 ms; then the calls' threads have it one after the other.
    let hunt = among_quick(|at| {
        vec![waits(at, 1, 9, 60), waits(at + 5, 2, 1, 56), waits(at + 10, 3, 2, 52), waits(at + 20, 4, 3, 43)]
    });
    assert_eq!(hunt.verdict, Kind::One, "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, LOCK);
}

fn is_a_place_between_threads(hunt: &Hunt) {
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Place, 0), "{hunt:#?}");
    let place = hunt.place.as_ref().expect("a place");
    assert_eq!((place.leg, place.between_threads), (Legs::one(Leg::ServerApp), true));
}

#[test]
fn results_of_a_worker_are_no_lock_and_not_known_to_be_the_applications_work() {
    is_a_place_between_threads(&among_quick(|at| {
        vec![waits(at, 1, 9, 60), waits(at + 5, 2, 9, 56), waits(at + 10, 3, 9, 52), waits(at + 20, 4, 9, 43)]
    }));
}

#[test]
fn a_result_that_one_call_gets_and_the_others_wait_for_is_no_lock() {
    is_a_place_between_threads(&among_quick(|at| {
        vec![waits(at, 1, 9, 60), waits(at + 5, 2, 1, 56), waits(at + 10, 3, 1, 51), waits(at + 20, 4, 1, 41)]
    }));
}

#[test]
fn two_calls_of_which_one_wakes_the_other_are_no_lock() {
    is_a_place_between_threads(&among_quick(|at| vec![waits(at, 1, 9, 60), waits(at + 5, 2, 1, 56)]));
}

#[test]
fn the_application_is_named_where_it_is_seen_at_work_or_asleep_by_its_own_wish() {
    for part in [running(60), blocked(WaitReason::Sleep, Waker::Timer, 60)] {
        let hunt = among_quick(|at| {
            vec![call(at / 10, "/a", vec![by_thread(Leg::ServerApp, 1, 60, vec![part.clone()])], Vec::new())]
        });
        let named = hunt.culprits.first().map(|one| one.culprit);
        assert_eq!(named, Some(Culprit::at(Cause::ServerApp, Side::Server)), "{hunt:#?}");
    }
}

#[test]
fn the_application_is_not_named_beside_what_was_shown() {
    // Half of it a disk, half the application that writes there.
    let hunt = among_quick(|at| {
        let parts = vec![blocked(WaitReason::Fsync, Waker::Other, 5), running(6)];
        vec![call(at / 10, "/a", vec![by_thread(Leg::ServerApp, 1, 11, parts)], Vec::new())]
    });
    let place = hunt.place.as_ref().map(|place| place.leg);
    assert_eq!((hunt.culprits.len(), place), (0, Some(Legs::one(Leg::ServerApp))), "{hunt:#?}");
}

/// Calls whose server works for 20 ms by design, of which few are held up.
pub(super) fn beside_long_work(held_up: impl Fn() -> (Leg, Vec<Finding>, Option<HostPart>)) -> Hunt {
    of((0..310).map(|n| {
        let (place, findings, part) = held_up();
        let is_held = n % 25 == 0;
        let served = by_thread(Leg::ServerApp, 1, 20, vec![blocked(WaitReason::Sleep, Waker::Timer, 20)]);
        let parts = part.into_iter().collect();
        let held = LegRecord {
            host: Some(HostTime { threads: Vec::new(), tids: vec![2], read: None, parts }),
            ..leg(place, if is_held { 20 } else { 0 })
        };
        let held = if is_held { held } else { leg(place, 0) };
        call(n, "/a", vec![served, held], if is_held { findings } else { Vec::new() })
    }))
}

#[test]
fn work_that_all_calls_have_is_not_to_blame_for_what_holds_few_up() {
    let stopped = HostPart {
        doing: Doing::Stopped,
        waited_for: Some(WaitReason::Stopped),
        ..blocked(WaitReason::Stopped, Waker::Other, 20)
    };
    let hunt = beside_long_work(|| (Leg::ClientAppIn, Vec::new(), Some(stopped.clone())));
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::Stopped, Side::Client), "{hunt:#?}");
    let hunt = beside_long_work(|| (Leg::ResponseWire, vec![lost(20)], None));
    assert_eq!(hunt.culprits[0].culprit.cause, Cause::Rto, "{hunt:#?}");
    // What a busy machine does to all threads now and then is a footnote.
    let behind = HostPart {
        doing: Doing::SoftirqLate,
        waited_for: None,
        ..blocked(WaitReason::Other, Waker::Other, 20)
    };
    let hunt = beside_long_work(|| (Leg::ClientAppIn, Vec::new(), Some(behind.clone())));
    assert_eq!(hunt.question, "all", "{hunt:#?}");
}

/// Calls whose sender paces them over 5 to 25 ms, two of them over 90 ms; one in so many has lost bytes, which cost this.
fn paced(one_in: i64, lost_ms: i64) -> Hunt {
    of((0..150).map(|n| {
        let paced = if n % 70 == 36 { 90 } else { 5 + n * 7919 % 21 };
        let has_lost = n % one_in == 0;
        let wire = leg(Leg::ResponseWire, if has_lost { 6 + lost_ms } else { 6 });
        let findings = if has_lost { vec![lost(lost_ms as u64)] } else { Vec::new() };
        call(n, "/a", vec![leg(Leg::ServerSend, paced), wire], findings)
    }))
}

#[test]
fn what_holds_calls_up_is_told_by_those_that_have_it_where_all_calls_differ() {
    let hunt = paced(5, 20);
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "slow"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit.cause, Cause::Rto);
    // So little of all time, or so few calls, are no reason.
    for hunt in [paced(5, 2), paced(60, 20)] {
        assert!(hunt.culprits.is_empty(), "{hunt:#?}");
    }
}

#[test]
fn what_slow_calls_have_for_a_part_of_their_time_alone_is_not_to_blame() {
    // A loss of 6 ms in calls that the sender took 40 ms longer for.
    let hunt = of((0..150).map(|n| {
        let slow = n % 5 == 0;
        let send = if slow { 45 } else { 5 } + n * 7919 % 9;
        let findings = if slow { vec![lost(6)] } else { Vec::new() };
        let wire = leg(Leg::ResponseWire, if slow { 12 } else { 6 });
        call(n, "/a", vec![leg(Leg::ServerSend, send), wire], findings)
    }));
    assert!(hunt.culprits.is_empty(), "{hunt:#?}");
    assert_eq!(hunt.place.map(|place| place.leg), Some(Legs::one(Leg::ServerSend)));
}

#[test]
fn what_happened_once_to_many_calls_at_a_time_is_not_why_they_are_slow() {
    // 32 calls wait for a CPU behind one process; in two moments, or in 32.
    let behind = |at_ms: fn(i64) -> i64| {
        among_quick(|at| match at {
            0 => (0..32)
                .map(|n| {
                    let part = HostPart {
                        doing: Doing::Runnable,
                        behind: Some(spangap_model::Taker::Task { tid: 9, pid: Some(9), name: None }),
                        ..running(40)
                    };
                    let leg = by_thread(Leg::ServerApp, 1, 40, vec![part]);
                    CallRecord { start_unix_ns: at_ms(n) * MS, ..call(0, "/a", vec![leg], Vec::new()) }
                })
                .collect(),
            _ => Vec::new(),
        })
    };
    let once = behind(|n| n % 16 * 2 + n / 16 * 1_500);
    assert_eq!((once.verdict, once.culprits.len()), (Kind::Unknown, 0), "{}", once.words);
    let first = once.sheet.first().and_then(|line| line.culprit);
    assert_eq!(first, Some(Culprit::at(Cause::RunQueue, Side::Server)), "it stays on the sheet: {once:#?}");
    let often = behind(|n| n * 100);
    assert_eq!(often.culprits[0].culprit, Culprit::at(Cause::RunQueue, Side::Server), "{often:#?}");
}

#[test]
fn what_is_too_large_for_the_path_is_not_lost_by_chance() {
    let too_large = |ms| Finding { culprit: Culprit::of(Cause::PathMtu), ..lost(ms) };
    let hunt = of((0..100).map(|n| match n % 5 {
        0 => call(n, "/a", vec![leg(Leg::ResponseWire, 901)], vec![lost(600), too_large(300)]),
        _ => call(n, "/a", vec![leg(Leg::ResponseWire, 1)], Vec::new()),
    }));
    assert_eq!(hunt.culprits[0].culprit.cause, Cause::PathMtu, "{hunt:#?}");
}

#[test]
fn who_holds_calls_up_is_named_before_the_connections_that_they_opened() {
    let opens =
        Finding { culprit: Culprit::at(Cause::ConnectionPerCall, Side::Client), cost_ns: Some(0), ..lost(0) };
    // Most calls take no time, and all time is that of the others.
    let of = |lost_ms: i64| {
        of((0..100).map(|n| {
            let slow = if n % 3 == 0 { lost_ms } else { 0 };
            let legs = vec![leg(Leg::ServerApp, 1), leg(Leg::ResponseWire, 1 + slow)];
            let held =
                Finding { culprit: Culprit::at(Cause::ReceiveWindow, Side::Client), ..lost(slow as u64 / 2) };
            let findings = if slow > 0 { vec![lost(slow as u64 / 2), held] } else { Vec::new() };
            call(n, "/a", legs, [vec![opens.clone()], findings].concat())
        }))
    };
    let named = |hunt: Hunt| hunt.culprits.iter().map(|one| one.culprit.cause).collect::<Vec<_>>();
    assert_eq!(named(of(0)), [Cause::ConnectionPerCall]);
    assert_eq!(named(of(400)), [Cause::Rto, Cause::ReceiveWindow]);
}

#[test]
fn legs_that_contradict_each_other_are_no_place() {
    // Clocks that nobody could compare: 34 ms before the server's work, and as much less than nothing behind it.
    let hunt = of((0..100).map(|n| {
        let legs = vec![leg(Leg::ClientAppOut, 34), leg(Leg::ServerApp, 20), leg(Leg::ClientAppIn, -33)];
        call(n, "/a", legs, Vec::new())
    }));
    assert_eq!((hunt.culprits.len(), hunt.place), (0, None));
}

#[test]
fn calls_whose_begin_nobody_saw_are_not_told_to_consist_of_the_way() {
    let of = |begin: Option<LegRecord>| {
        of((0..100).map(|n| {
            let legs = [leg(Leg::ClientSend, 0), leg(Leg::RequestWire, 8), leg(Leg::ServerApp, 2)];
            call(n, "/a", begin.iter().cloned().chain(legs).collect(), Vec::new())
        }))
    };
    assert_eq!((of(None).culprits.len(), of(None).place), (0, None));
    let place = of(Some(leg(Leg::ClientAppOut, 0))).place.map(|place| (place.leg, place.both_ways));
    assert_eq!(place, Some((Legs::one(Leg::RequestWire), true)));
}

/// A call that waits for so long at the server, and is then served for so long, by one thread.
pub(super) fn served(at_ms: i64, wait_ms: i64, serve_ms: i64) -> CallRecord {
    let unseen = |place, ms| by_thread(place, 7, ms, Vec::new());
    let legs = vec![unseen(Leg::ServerHostIn, wait_ms), unseen(Leg::ServerApp, serve_ms)];
    CallRecord { start_unix_ns: at_ms * MS, ..call(0, "/a", legs, Vec::new()) }
}

#[test]
fn bytes_that_wait_while_their_thread_has_other_calls_in_hand_are_a_queue_however_short() {
    let hunt = of((0..200).map(|n| served(n, 3, 1)));
    assert_eq!((hunt.verdict, hunt.question), (Kind::One, "all"), "{hunt:#?}");
    assert_eq!(hunt.culprits[0].culprit, account::QUEUE);
}

#[test]
fn a_server_whose_spans_begin_late_has_no_queue() {
    // Every call is read for 3 ms before its span; each other one comes while another is in hand.
    let hunt = of((0..200).map(|n| served(n / 2 * 20 + n % 2 * 3, 3, 1)));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Nothing, 0), "{hunt:#?}");
}

/// Calls that take so long on either way and are served for as long as both, in microseconds.
fn on_the_way(way_us: i64, serve_us: i64) -> Hunt {
    of((0..200).map(|n| {
        let of = |place, us: i64| LegRecord { ns: us * 1_000, ..leg(place, 0) };
        let legs = vec![
            of(Leg::ClientAppOut, 10),
            of(Leg::RequestWire, way_us + 1),
            of(Leg::ServerApp, serve_us),
            of(Leg::ResponseWire, way_us),
            of(Leg::ClientAppIn, 10),
        ];
        call(n, "/a", legs, Vec::new())
    }))
}

#[test]
fn a_way_that_has_most_of_quick_calls_is_a_place_and_convicts_nobody() {
    let far = on_the_way(600, 400);
    assert_eq!((far.verdict, far.culprits.len(), far.question), (Kind::Place, 0, "all"), "{far:#?}");
    let place = far.place.expect("a place");
    assert_eq!((place.leg, place.both_ways), (Legs::one(Leg::RequestWire), true));
    assert!(far.words.contains("--against"), "{}", far.words);
    // Hosts near each other, and calls that take longer elsewhere.
    for near in [on_the_way(100, 50), on_the_way(600, 1_500)] {
        assert_eq!((near.verdict, near.place), (Kind::Nothing, None), "{}", near.words);
    }
}

#[test]
fn one_process_that_has_the_cpu_is_named_before_work_that_all_calls_have() {
    let behind = |pid: u32| HostPart {
        doing: Doing::Runnable,
        behind: Some(spangap_model::Taker::Task { tid: pid, pid: Some(pid), name: None }),
        ..running(20)
    };
    let hunt = beside_long_work(|| (Leg::ClientAppIn, Vec::new(), Some(behind(9))));
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::RunQueue, Side::Client), "{hunt:#?}");
    // Behind many it is the machine.
    let turn = std::cell::Cell::new(0);
    let next = || {
        turn.set(turn.get() + 1);
        behind(turn.get() % 100)
    };
    let hunt = beside_long_work(|| (Leg::ClientAppIn, Vec::new(), Some(next())));
    assert_eq!(hunt.question, "all", "{hunt:#?}");
}

/// Calls of which each 8th is slow by these parts, in milliseconds: a disk, own work, and waits behind many.
fn beside_a_busy_machine(disk: i64, own: i64, waited: i64) -> Hunt {
    of((0..400).map(|n| {
        let quick = vec![running(1)];
        let slow = || {
            let behind = spangap_model::Taker::Task { tid: n as u32, pid: Some(n as u32), name: None };
            let wait = HostPart { doing: Doing::Runnable, behind: Some(behind), ..running(waited) };
            let mut parts = vec![running(own + 1), wait];
            if disk > 0 {
                parts.push(blocked(WaitReason::Fsync, Waker::Other, disk));
            }
            parts
        };
        let is_slow = n % 8 == 0;
        let (ms, parts) = if is_slow { (1 + disk + own + waited, slow()) } else { (1, quick) };
        call(n * 10, "/a", vec![by_thread(Leg::ServerApp, 1, ms, parts)], Vec::new())
    }))
}

#[test]
fn a_little_noise_hides_nobody_and_much_of_it_leaves_who_it_is_unknown() {
    const DISK: Culprit = Culprit::at(Cause::Disk, Side::Server);
    let little = beside_a_busy_machine(26, 18, 8);
    assert_eq!(little.culprits.first().map(|one| one.culprit), Some(DISK), "{little:#?}");
    let much = beside_a_busy_machine(10, 3, 37);
    assert_eq!((much.verdict, much.culprits.len()), (Kind::Unknown, 0), "{much:#?}");
    assert!(much.words.contains(&DISK.to_string()) && much.words.contains("quieter"), "{}", much.words);
    // More than a third beside the noise is too much to call it nothing.
    let more = beside_a_busy_machine(0, 22, 28);
    assert_eq!((more.verdict, more.culprits.len()), (Kind::Unknown, 0), "{}", more.words);
    assert!(more.words.contains("server-app") && more.words.contains("quieter"), "{}", more.words);
    // However little: noise alone would not have chosen just these calls.
    let least = beside_a_busy_machine(2, 1, 37);
    assert_eq!((least.verdict, least.culprits.len()), (Kind::Unknown, 0), "{}", least.words);
    assert!(least.words.contains(&DISK.to_string()) && least.words.contains("quieter"), "{}", least.words);
    // So is work that other calls do not have: a hash of 13 ms, in a server that answers others in one.
    let hashes = beside_a_busy_machine(0, 13, 37);
    assert_eq!((hashes.verdict, hashes.culprits.len()), (Kind::Unknown, 0), "{}", hashes.words);
    let server_app = Culprit::at(Cause::ServerApp, Side::Server).to_string();
    assert!(hashes.words.contains(&server_app) && hashes.words.contains("quieter"), "{}", hashes.words);
    // Without it, it is the machine alone, which stretches a little of what every call does.
    for own in [0, 2] {
        assert_eq!(beside_a_busy_machine(0, own, 37).verdict, Kind::Nothing);
    }
}

#[test]
fn the_thread_that_serves_a_call_in_the_end_is_the_one_it_waited_for() {
    // Others read the bytes and hand them on: an event loop behind pollers.
    let behind_pollers = |n: i64| {
        let mut call = served(n, 3, 1);
        call.legs[0] = by_thread(Leg::ServerHostIn, 70 + n as u32 % 3, 3, Vec::new());
        call
    };
    let hunt = of((0..200).map(behind_pollers));
    assert_eq!(hunt.culprits.first().map(|one| one.culprit), Some(account::QUEUE), "{hunt:#?}");
}

#[test]
fn a_kind_of_calls_that_differ_anyway_hides_none_of_another() {
    let of = |slow: bool| {
        let get = (0..300).map(|n| {
            let ms = if slow && n % 15 == 0 { 12 } else { 1 };
            call(n, "/get", vec![leg(Leg::ServerApp, ms)], Vec::new())
        });
        let script = |n: i64| call(n * 17, "/eval", vec![leg(Leg::ServerApp, 1 + n * 30 / 16)], Vec::new());
        of(get.chain((0..17).map(script)))
    };
    let hunt = of(true);
    assert_eq!((hunt.verdict, hunt.question), (Kind::Place, "slow"), "{hunt:#?}");
    assert_eq!(hunt.excess.slow_calls, 20);
    assert_eq!(of(false).verdict, Kind::Nothing);
}

#[test]
fn calls_without_an_answer_are_slow_beside_those_that_have_one() {
    let hunt = of((0..300).map(|n| {
        let answered = CallRecord {
            response_bytes: Some(90_000),
            ..call(n, "/a", vec![leg(Leg::ServerApp, 3), leg(Leg::ResponseWire, 0)], Vec::new())
        };
        let not = call(n, "/a", vec![leg(Leg::ServerHostIn, 0), leg(Leg::NoResponse, 29)], Vec::new());
        if n % 10 == 0 { not } else { answered }
    }));
    assert_eq!(hunt.place.map(|place| place.leg), Some(Legs::one(Leg::NoResponse)), "{}", hunt.words);
}

#[test]
fn what_passed_at_a_proxy_or_behind_it_is_not_said_of_one_server() {
    use spangap_model::evidence::{HopLeg, HopPlace};
    let hunt = of((0..200).map(|n| {
        let each = if n % 6 == 0 { 11 } else { 1 };
        let one =
            |hop, place, ms: i64| HopLeg { hop, attempt: 0, place, ns: ms * MS, bound_ns: 0, host: None };
        let path = vec![
            one(0, HopPlace::Leg(Legs::one(Leg::ClientAppOut)), 1),
            one(0, HopPlace::Proxy, each),
            one(1, HopPlace::Leg(Legs::one(Leg::ServerHostIn)), each),
            one(1, HopPlace::Leg(Legs::one(Leg::ServerApp)), each),
        ];
        let legs = vec![leg(Leg::ClientAppOut, 1), leg(Leg::ServerApp, 3 * each)];
        CallRecord { path, ..call(n * 10, "/a", legs, Vec::new()) }
    }));
    assert_eq!(hunt.place.map(|place| place.leg), Some(account::BEYOND_CLIENT), "{}", hunt.words);
}

#[test]
fn a_place_beside_noise_is_told_of_a_host_that_was_recorded() {
    // Of what slow calls take beyond others so much passed before the response was sent, and 5 ms in waits behind many.
    let of = |is_recorded: bool, held_ms: i64| {
        of((0..400).map(|n| {
            let (ms, wait_ms) = if n % 8 == 0 { (held_ms, 5) } else { (0, 0) };
            let behind = spangap_model::Taker::Task { tid: n as u32, pid: Some(n as u32), name: None };
            let wait = HostPart { doing: Doing::Runnable, behind: Some(behind), ..running(5) };
            let waited = by_thread(Leg::ClientAppIn, 2, wait_ms, vec![wait]);
            let parts = if is_recorded { vec![running(ms)] } else { Vec::new() };
            let held = by_thread(Leg::ServerHostOut, 1, ms, parts);
            call(n * 10, "/a", vec![leg(Leg::ClientAppOut, 1), held, waited], Vec::new())
        }))
    };
    let recorded = of(true, 6);
    assert_eq!(
        recorded.place.map(|place| place.leg),
        Some(Legs::one(Leg::ServerHostOut)),
        "{}",
        recorded.words
    );
    // Nor where it is no more than the noise.
    for not in [of(false, 6), of(true, 5)] {
        assert_eq!((not.verdict, not.place), (Kind::Unknown, None), "{}", not.words);
    }
}

#[test]
fn a_host_that_was_recorded_is_not_said_to_be_missing_because_one_call_is_not_covered() {
    let lacking = Finding {
        hop: None,
        culprit: Culprit::at(Cause::ServerApp, Side::Server),
        certainty: Certainty::Possible(Missing::ServerHost),
        instrument: Instrument::Packets,
        scope: Scope::Call,
        when: None,
        cost_ns: None,
        note: String::new(),
        proofs: Vec::new(),
    };
    let of = |recorded: bool| {
        let one = |n: i64| {
            // Threads wait for each other, which says nothing of whose time it is.
            let ms = if n % 5 == 0 { 50 } else { 2 };
            let waits = blocked(WaitReason::Futex, Waker::Thread(9), ms);
            let served = match recorded {
                true => by_thread(Leg::ServerApp, 7, ms, vec![waits]),
                false => leg(Leg::ServerApp, ms),
            };
            call(n, "/a", vec![served], if n == 0 { vec![lacking.clone()] } else { Vec::new() })
        };
        let hunt = of((0..200).map(one));
        assert_eq!(hunt.verdict, Kind::Place, "{hunt:#?}");
        hunt.not_looked.iter().any(|one| one.lacks == Some(Lack::of(Source::ServerHost)))
    };
    assert!(of(false) && !of(true));
}

#[test]
fn waits_for_cpus_that_no_single_program_certainly_caused_are_unknown() {
    // At the server all are behind one program; at the client, behind many.
    let hunt = of((0..400).map(|n| {
        let wait = |pid: i64, ms| {
            let pid = pid as u32;
            let behind = Some(spangap_model::Taker::Task { tid: pid, pid: Some(pid), name: None });
            HostPart { doing: Doing::Runnable, behind, ..running(ms) }
        };
        let (server, client) = if n % 8 == 0 { (20, 18) } else { (0, 0) };
        let served = by_thread(Leg::ServerApp, 1, 1 + server, vec![wait(7, server), running(1)]);
        let taken = by_thread(Leg::ClientAppIn, 2, client, vec![wait(100 + n, client)]);
        call(n * 10, "/a", vec![leg(Leg::ClientAppOut, 0), served, taken], Vec::new())
    }));
    assert_eq!((hunt.verdict, hunt.culprits.len()), (Kind::Unknown, 0), "{hunt:#?}");
}

#[test]
fn calls_that_were_answered_had_left_whatever_the_spans_clock_says() {
    // With a capture of the server's end alone, and a clock that is a second ahead there.
    let of = |response_bytes: Option<u64>| {
        of((0..200).map(|n| {
            let ms = if n % 5 == 0 { 50 } else { 2 };
            let unsent = call(n * 10, "/a", vec![leg(Leg::ClientAppOut, ms)], Vec::new());
            CallRecord { response_bytes, ..unsent }
        }))
    };
    let answered = of(Some(64));
    assert_eq!((answered.verdict, &answered.place), (Kind::Unknown, &None), "{answered:#?}");
    assert_eq!(of(None).place.map(|place| place.leg), Some(Legs::one(Leg::ClientAppOut)));
}

#[test]
fn the_path_is_no_culprit_beside_softirqs_that_keep_packets_from_its_end() {
    let of = |doing: Doing, behind: Option<spangap_model::Taker>| {
        of((0..300).map(|n| {
            let (ms, late) = if n % 5 == 0 { (22, 20) } else { (0, 1) };
            let kept = HostPart { doing, behind: behind.clone(), ..running(ms) };
            let taken = by_thread(Leg::ClientAppIn, 2, ms, vec![kept]);
            let legs =
                vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(Leg::ResponseWire, late), taken];
            call(n * 10, "/a", legs, Vec::new())
        }))
    };
    let packets = spangap_model::Taker::Softirq { vector: "NET_RX".into(), device: None };
    let softirqs = of(Doing::Runnable, Some(packets));
    let is_path = |hunt: &Hunt| hunt.culprits.iter().any(|one| one.culprit.cause == Cause::NetworkJitter);
    assert!(!is_path(&softirqs), "{softirqs:#?}");
    assert!(is_path(&of(Doing::Stopped, None)), "a stopped program keeps no packets from a tap");
}
