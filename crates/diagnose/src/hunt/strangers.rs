//! Lessons from servers and clients of other stacks that misled a rule: internal queues, garbage collectors, pools,
//! jobs of many processes, protocols without methods, captures that lack calls.

use super::innocents::{among_quick, beside_long_work, blocked, by_thread, running, served};
use super::tests::{MS, call, leg, lost, of};
use super::*;
use spangap_model::Doing;
use spangap_model::WaitReason;
use spangap_model::evidence::{Finding, HopLeg, HopPlace, HostPart, LegRecord, Waker};

#[test]
fn a_queue_behind_calls_that_were_held_up_is_due_to_what_held_them_up() {
    // Every tenth call has to be on disk before it goes on; those behind it wait for its thread.
    let of = |part: HostPart| {
        of((0..40).flat_map(|n| {
            let at = n * 200;
            let held = by_thread(Leg::ServerApp, 7, 60, vec![part.clone()]);
            let held = CallRecord { start_unix_ns: at * MS, ..call(0, "/a", vec![held], Vec::new()) };
            let behind = (1..4).map(move |m| served(at + m, 60 - m, 1));
            let quick = (4..10).map(move |m| served(at + 20 * m, 0, 1));
            std::iter::once(held).chain(behind).chain(quick).collect::<Vec<_>>()
        }))
    };
    let disk = of(blocked(WaitReason::Fsync, Waker::Other, 60));
    assert_eq!(disk.culprits[0].culprit, Culprit::at(Cause::Disk, Side::Server), "{disk:#?}");
    assert!(disk.culprits[0].share.low > 0.9, "{disk:#?}");
    // Work of its own is none of the kind: those behind it wait for a thread.
    let work = of(running(60));
    assert_eq!(work.culprits[0].culprit, account::QUEUE, "{work:#?}");
}

#[test]
fn calls_that_no_thread_has_in_hand_lie_in_a_queue_and_are_compared_all_the_same() {
    // A thread reads each request at once and puts it into a queue of its program; two workers take 15 ms for each.
    let hunt = of((0..300).map(|n| {
        let queued = if n % 3 == 0 { 40 } else { 0 };
        let unknown = HostPart { doing: Doing::Unknown, ..running(queued) };
        let parts = if queued > 0 { vec![unknown] } else { Vec::new() };
        let waits = by_thread(Leg::ServerHostIn, 5, queued, parts);
        call(
            n,
            "/a",
            vec![waits, by_thread(Leg::ServerApp, 7 + n as u32 % 2, 15, vec![running(15)])],
            Vec::new(),
        )
    }));
    assert_eq!(hunt.culprits[0].culprit, account::QUEUE, "{hunt:#?}");
    assert_eq!(hunt.coverage.without_recording, 0);
}

#[test]
fn slow_calls_that_no_span_was_found_for_are_beside_quick_ones_with_spans() {
    let hunt = of((0..300).map(|n| match n % 10 {
        0 => call(n, "/a", vec![leg(Leg::ServerApp, 50)], vec![lost(48)]),
        _ => call(
            n,
            "/a",
            vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 2), leg(Leg::ClientAppIn, 0)],
            Vec::new(),
        ),
    }));
    assert_eq!(hunt.culprits.first().map(|one| one.culprit.cause), Some(Cause::Rto), "{hunt:#?}");
}

#[test]
fn a_job_of_many_processes_that_has_the_cpu_is_one_program() {
    let behind = |name: fn(u32) -> String| {
        let turn = std::cell::Cell::new(0);
        beside_long_work(move || {
            turn.set(turn.get() + 1);
            let pid = turn.get() % 9 + 100;
            let behind = Some(spangap_model::Taker::Task { tid: pid, pid: Some(pid), name: Some(name(pid)) });
            (Leg::ClientAppIn, Vec::new(), Some(HostPart { doing: Doing::Runnable, behind, ..running(20) }))
        })
    };
    let one = behind(|_| "batch".into());
    assert_eq!(one.culprits[0].culprit, Culprit::at(Cause::RunQueue, Side::Client), "{one:#?}");
    let many = behind(|pid| format!("job-{pid}"));
    assert_eq!(many.question, "all", "{many:#?}");
}

#[test]
fn a_queue_is_named_beside_work_that_takes_as_long() {
    // Calls are served one after the other for 15 ms each, and come a little too often.
    let queue = |wait_ms: i64| of((0..200).map(|n| served(n * 16, wait_ms, 15)));
    assert_eq!(queue(13).culprits.first().map(|one| one.culprit), Some(account::QUEUE));
    let work = queue(2).culprits.first().map(|one| one.culprit);
    assert_ne!(work, Some(account::QUEUE), "a short queue before long work");
}

#[test]
fn connections_that_cost_nothing_are_not_why_healthy_calls_take_as_long_as_they_do() {
    let opens = |ms| Finding {
        culprit: Culprit::at(Cause::ConnectionPerCall, Side::Client),
        cost_ns: Some(0),
        ..lost(ms)
    };
    let of = |begin: Vec<LegRecord>| {
        of((0..100).map(|n| {
            let served = leg(Leg::ServerApp, 3);
            call(n, "/a", begin.iter().cloned().chain([served]).collect(), vec![opens(0)])
        }))
    };
    let known = of(vec![leg(Leg::ClientAppOut, 0)]);
    assert_eq!((known.verdict, known.culprits.len()), (Kind::Nothing, 0), "{known:#?}");
    // Calls whose begin nobody saw may have waited for theirs.
    assert_eq!(of(Vec::new()).culprits[0].culprit.cause, Cause::ConnectionPerCall);
}

#[test]
fn a_failed_attempt_without_a_body_is_beside_calls_with_one() {
    // The span of each twelfth call goes on for 120 ms after the answer to its first attempt, which has no body.
    let hunt = of((0..240).map(|n| {
        let failed = n % 12 == 0;
        let after = leg(Leg::ClientAppIn, if failed { 120 } else { 0 });
        let record =
            call(n * 10, "/a", vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), after], Vec::new());
        CallRecord { response_bytes: Some(if failed { 0 } else { 300 }), ..record }
    }));
    assert_ne!(hunt.verdict, Kind::Nothing, "{hunt:#?}");
    assert_eq!(hunt.excess.slow_calls, 20);
}

#[test]
fn nothing_stands_out_is_not_said_where_few_calls_have_most_of_the_time() {
    // Two kinds, one of which is slow and all alike: there is nothing to compare it with.
    let of = |place: Leg| {
        of((0..300).map(|n| {
            let method = if n % 10 == 0 { "/slow" } else { "/quick" };
            let ms = if n % 10 == 0 { 90 } else { 0 };
            call(
                n * 10,
                method,
                vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(place, ms)],
                Vec::new(),
            )
        }))
    };
    let late = of(Leg::ClientAppIn);
    assert_eq!(late.place.map(|place| place.leg), Some(Legs::one(Leg::ClientAppIn)), "{}", late.words);
    // A method whose server works for longer is slow by design.
    assert_eq!(of(Leg::ServerApp).verdict, Kind::Nothing);
}

#[test]
fn healthy_calls_whose_server_works_for_long_accuse_nobody() {
    let work = |ms: i64| by_thread(Leg::ServerApp, 7, ms, vec![blocked(WaitReason::Sleep, Waker::Timer, ms)]);
    let of = |late_ms: i64| {
        of((0..300).map(|n| {
            let late = leg(Leg::ClientAppIn, if n % 15 == 0 { late_ms } else { 0 });
            call(n * 20, "/a", vec![leg(Leg::ClientAppOut, 0), work(12), late], Vec::new())
        }))
    };
    let healthy = of(0);
    let place = healthy.place.as_ref().map(|place| place.leg);
    assert_eq!((healthy.culprits.len(), place), (0, Some(Legs::one(Leg::ServerApp))), "{healthy:#?}");
    assert!(healthy.words.contains("--against"), "{}", healthy.words);
    // What some of them take longer for comes first.
    let some = of(20);
    assert_eq!(
        (some.question, some.place.map(|place| place.leg)),
        ("slow", Some(Legs::one(Leg::ClientAppIn)))
    );
}

#[test]
fn of_calls_that_captures_lack_nobody_says_that_nothing_is_wrong() {
    use spangap_model::evidence::SpanCounts;
    let calls: Vec<CallRecord> =
        (0..200).map(|n| call(n, "/a", vec![leg(Leg::ServerApp, 1)], Vec::new())).collect();
    let verdict = |joined| {
        let spans = Some(SpanCounts { joined, ..SpanCounts::default() });
        let evidence = Evidence { matching_calls: 200, calls: calls.clone(), spans, ..Evidence::default() };
        super::hunt(&evidence, &Question::default()).verdict
    };
    // Two spans a call; some calls begin before a capture does.
    assert_eq!([400, 404, 424].map(verdict), [Kind::Nothing, Kind::Nothing, Kind::Unknown]);
}

#[test]
fn a_process_that_keeps_itself_waiting_has_nobody_to_blame_but_itself() {
    // Collector threads of the same process have the CPUs while its event loop has requests to read.
    let behind = |taker: spangap_model::Taker| {
        among_quick(move |at| {
            let part = HostPart { doing: Doing::Runnable, behind: Some(taker.clone()), ..running(40) };
            let waits = by_thread(Leg::ServerHostIn, 7, 40, vec![part]);
            let served = by_thread(Leg::ServerApp, 7, 1, vec![running(1)]);
            vec![CallRecord { start_unix_ns: at * 10 * MS, ..call(0, "/a", vec![waits, served], Vec::new()) }]
        })
    };
    let own = behind(spangap_model::Taker::Sibling { tid: 9, name: None });
    assert_eq!(own.culprits[0].culprit, account::QUEUE, "{own:#?}");
    // How many have it, what ordinary calls have of it, and that its CPUs are few.
    assert_eq!(own.culprits[0].speaks_for.len(), 3, "{own:#?}");
    let other = behind(spangap_model::Taker::Task { tid: 9, pid: Some(9), name: None });
    assert_eq!(other.culprits[0].culprit, Culprit::at(Cause::RunQueue, Side::Server), "{other:#?}");
}

#[test]
fn an_application_that_waits_while_no_thread_works_for_a_call_is_named_all_the_same() {
    // An event loop: its thread reads the request, sets a timer, and goes on with others.
    let served = |ms: i64| {
        let unknown = HostPart { doing: Doing::Unknown, ..running(ms) };
        by_thread(Leg::ServerApp, 7, ms, vec![unknown])
    };
    let hunt =
        of((0..300).map(|n| call(n * 10, "/a", vec![served(if n % 10 == 0 { 80 } else { 2 })], Vec::new())));
    assert_eq!(hunt.culprits[0].culprit, Culprit::at(Cause::ServerApp, Side::Server), "{hunt:#?}");
}

/// A part of a leg in which a thread waited for a CPU that these programs took in turn.
fn behind_many(ms: i64, programs: u32) -> Vec<HostPart> {
    let part = |pid: u32| HostPart {
        doing: Doing::Runnable,
        behind: Some(spangap_model::Taker::Task {
            tid: pid,
            pid: Some(pid),
            name: Some(format!("job-{pid}")),
        }),
        ..running(ms)
    };
    let each = |pid: u32| HostPart { ns: (ms * MS) as u64 / u64::from(programs), ..part(pid) };
    (100..100 + programs).map(each).collect()
}

#[test]
fn what_nobody_saw_is_no_queue_where_threads_that_were_seen_waited_for_cpus() {
    // Another thread goes on with the call than the one that reads it, and nobody sees from when on: it has a queue before it,
    // or waits for a CPU as the threads do that are seen.
    let of = |seen: fn() -> Vec<HostPart>| {
        of((0..300).map(|n| {
            let slow = n % 10 == 0;
            let unknown = HostPart { doing: Doing::Unknown, ..running(54) };
            let parts = if slow { [vec![unknown], seen()].concat() } else { vec![running(0)] };
            let waits = by_thread(Leg::ServerHostIn, 5, if slow { 60 } else { 0 }, parts);
            let served = by_thread(Leg::ServerApp, 7 + n as u32, 1, vec![running(1)]);
            call(n * 10, "/a", vec![leg(Leg::ClientAppOut, 0), waits, served], Vec::new())
        }))
    };
    let starved = of(|| behind_many(6, 4));
    let place = starved.place.as_ref().map(|place| place.leg);
    assert_eq!((starved.culprits.len(), place), (0, Some(Legs::one(Leg::ServerHostIn))), "{starved:#?}");
    assert_eq!(of(|| vec![running(6)]).culprits[0].culprit, account::QUEUE);
}

#[test]
fn a_busy_machine_stretches_what_a_program_does_and_is_not_all_there_is() {
    // An event loop does something else for 12 ms now and then, for which it needs 45 ms of a busy machine.
    let hunt = among_quick(|at| {
        let parts = [vec![running(14)], behind_many(31, 4)].concat();
        let waits = by_thread(Leg::ServerHostIn, 7, 45, parts);
        let served = by_thread(Leg::ServerApp, 7, 1, vec![running(1)]);
        vec![CallRecord { start_unix_ns: at * 10 * MS, ..call(0, "/a", vec![waits, served], Vec::new()) }]
    });
    assert_eq!((hunt.verdict, hunt.question), (Kind::Unknown, "slow"), "{hunt:#?}");
    assert!(hunt.sheet.iter().any(|line| line.culprit == Some(account::QUEUE)), "{:#?}", hunt.sheet);
}

#[test]
fn nobody_accounts_for_more_than_all_of_it() {
    // Ordinary calls have 31 ms of their own where slow ones have waited for others.
    let hunt = of((0..300).map(|n| {
        let slow = n % 5 == 0;
        let shared = Finding {
            culprit: Culprit::at(Cause::SharedConnection, Side::Client),
            when: None,
            cost_ns: Some(41 * MS as u64),
            ..lost(41)
        };
        let ms = if slow { 42 } else { 32 };
        let parts = vec![blocked(WaitReason::Sleep, Waker::Timer, if slow { 1 } else { 31 })];
        let back = by_thread(Leg::ClientAppIn, 7, ms, parts);
        let findings = if slow { vec![shared] } else { Vec::new() };
        call(n * 10, "/a", vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), back], findings)
    }));
    let slow = hunt.questions.slow.expect("some are slower");
    assert_eq!(slow.culprits[0].culprit.cause, Cause::SharedConnection, "{slow:#?}");
    let of = |share: shares::Share| share.mid.max(share.high);
    assert!(slow.sheet.iter().all(|line| of(line.share) < 1.2), "{:#?}", slow.sheet);
}

#[test]
fn a_wait_in_a_proxy_is_no_queue_of_the_server_where_a_capture_behind_it_begins_late() {
    // The proxy keeps calls for 30 ms until one of the server's two connections is free. The capture behind it lacks the first
    // third of the calls, whose SERVER spans then lie in the legs of the proxy's host.
    let of = |seen: i64| {
        of((0..300).map(|n| {
            let wait = 20 + n * 7919 % 21;
            let ends = [leg(Leg::ClientAppOut, 0), leg(Leg::ClientAppIn, 0)];
            let [out, back] = ends;
            let server = Some("10.0.0.2:8080".to_owned());
            if n < 300 - seen {
                let legs = vec![out, leg(Leg::ServerHostIn, wait), leg(Leg::ServerApp, 10), back];
                return CallRecord { server, ..call(n, "/a", legs, Vec::new()) };
            }
            let hop =
                |hop, place, ms: i64| HopLeg { hop, attempt: 0, place, ns: ms * MS, bound_ns: 0, host: None };
            let of = |one| HopPlace::Leg(Legs::one(one));
            let path = vec![
                hop(0, of(Leg::ClientAppOut), 0),
                hop(0, HopPlace::Proxy, wait),
                hop(1, of(Leg::ServerApp), 10),
                hop(0, of(Leg::ClientAppIn), 0),
            ];
            let between = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
            let inside = LegRecord { legs: between, ..leg(Leg::ServerApp, wait + 10) };
            CallRecord { server, path, ..call(n, "/a", vec![out, inside, back], Vec::new()) }
        }))
    };
    let hunt = of(200);
    assert_eq!(hunt.culprits.first().map(|one| one.culprit.cause), Some(Cause::Proxy), "{hunt:#?}");
    assert_eq!((hunt.coverage.not_behind_proxies, hunt.coverage.without_spans), (100, 0));
    // Too few of them to speak for all.
    assert_eq!(of(20).coverage.not_behind_proxies, 0);
}

#[test]
fn a_job_that_has_the_cpus_for_less_than_half_of_what_calls_take_is_not_why_they_take_it() {
    // Compilers run beside healthy calls, which take 5 ms, all of them more or less.
    let behind = |tenth_ms: i64| {
        of((0..300).map(|n| {
            let behind = Some(spangap_model::Taker::Task { tid: 9, pid: Some(9), name: Some("cc".into()) });
            let us = |ns: i64, part: HostPart| HostPart { ns: (ns * MS / 10) as u64, ..part };
            let waits = us(tenth_ms, HostPart { doing: Doing::Runnable, behind, ..running(0) });
            let spread = n * 7919 % 5;
            let parts = vec![waits, us(18, running(0))];
            let host = by_thread(Leg::ServerApp, 7, 0, parts).host;
            let served = LegRecord { ns: (tenth_ms + 18) * MS / 10, host, ..leg(Leg::ServerApp, 0) };
            let ends = LegRecord { ns: (10 + spread) * MS / 10, ..leg(Leg::ClientAppOut, 0) };
            call(n, "/a", vec![ends, served, leg(Leg::ClientAppIn, 0)], Vec::new())
        }))
    };
    let some = behind(22);
    assert!(some.culprits.is_empty(), "{some:#?}");
    let most = behind(60);
    assert_eq!(most.culprits[0].culprit, Culprit::at(Cause::RunQueue, Side::Server), "{most:#?}");
}

#[test]
fn what_would_be_slow_without_the_noise_is_more_than_noise() {
    // Every tenth call waits for a busy CPU, and before that three of five of these for a disk, the others for a lock.
    let of = |ms: i64| {
        of((0..400).map(|n| {
            let is_slow = n % 10 == 0;
            let reason = if n % 50 < 30 { WaitReason::Fsync } else { WaitReason::KernelLock };
            let (held, waits) = if is_slow { (ms, 10) } else { (0, 0) };
            let parts =
                [vec![blocked(reason, Waker::Other, held), running(1)], behind_many(waits, 4)].concat();
            let served = by_thread(Leg::ServerApp, 7, 1 + waits + held, parts);
            call(n, "/a", vec![leg(Leg::ClientAppOut, 0), served], Vec::new())
        }))
    };
    let beside = of(6);
    assert_ne!(beside.verdict, Kind::Nothing, "{beside:#?}");
    assert!(beside.words.contains("disk"), "{}", beside.words);
    assert_eq!(of(0).verdict, Kind::Nothing);
}
