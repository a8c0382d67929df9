//! Successful calls: their number, due times and parameters.

use crate::program::{SECOND_NS, Sums, Target, run, settings, with_each_target};
use spangap_bench::contract::{Call, ClientSettings, Pace, Phase, Stack};
use spangap_bench::schedule::Schedule;

const MS: u64 = 1_000_000;

pub fn closed_loop(stack: Stack) {
    with_each_target(stack, |target_stack| {
        for (call, warmup_ns, in_flight) in
            [(Call::Unary, 0, 1), (Call::Unary, 30 * MS, 5), (Call::Stream, 30 * MS, 5)]
        {
            let target = Target::start(target_stack, &[]);
            let run = run(&ClientSettings {
                call,
                warmup_ns,
                in_flight,
                calls: 300,
                ..settings(stack, &target.address)
            });
            let phases: &[_] = if warmup_ns > 0 { &["warmup", "measured"] } else { &["measured"] };
            run.is_done(phases);
            let measured = run.sums(Phase::Measured);
            assert_eq!((measured.due, measured.ok, measured.skipped), (300, 300, 0), "{call}");
            assert_eq!(
                (measured.latency.count(), measured.lateness.count()),
                (0, 0),
                "a closed loop has neither"
            );
            assert!(measured.duration_ns < 60 * SECOND_NS, "the calls end the phase");
            let warmup = run.sums(Phase::Warmup);
            assert_eq!(warmup.failed(), 0);
            let usage = target.usage();
            assert_eq!(usage.calls, 300 + warmup.ok, "the target has counted as many");
            assert!((1..=u64::from(in_flight)).contains(&usage.peak_in_progress), "{usage:?}");
            let report = target.end();
            assert_eq!(report["by_status"]["OK"], 300 + warmup.ok, "{report}");
        }
    });
}

pub fn open_loop(stack: Stack) {
    with_each_target(stack, |target_stack| {
        for call in [Call::Unary, Call::Stream] {
            let target = Target::start(target_stack, &[]);
            let run = run(&ClientSettings {
                call,
                pace: Pace::Open(Schedule::every(MS).expect("not 0")),
                in_flight: 1_000,
                warmup_ns: 50 * MS,
                duration_ns: 200 * MS,
                ..settings(stack, &target.address)
            });
            run.is_done(&["warmup", "measured"]);
            let (warmup, measured) = (run.sums(Phase::Warmup), run.sums(Phase::Measured));
            assert_eq!((warmup.due, measured.due), (50, 200), "by the schedule, and by nothing else");
            assert_eq!((warmup.duration_ns, measured.duration_ns), (50 * MS, 200 * MS));
            assert_eq!(measured.failed(), 0, "{:?}", measured.errors);
            let sent = measured.due - measured.skipped;
            assert_eq!((measured.lateness.count(), measured.latency.count()), (sent, sent));
            let Sums { latency, from_send, lateness, .. } = &measured;
            assert!(latency.sum_ns() >= from_send.sum_ns(), "due before sent");
            assert!(latency.sum_ns() >= lateness.sum_ns() && latency.max_ns() >= from_send.max_ns());
            assert_eq!(target.usage().calls, sent + warmup.ok);
        }
    });
}

pub fn skipping(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &[]);
        let run = run(&ClientSettings {
            pace: Pace::Open(Schedule::every(MS).expect("not 0")),
            in_flight: 2,
            think_ns: Some(100 * MS),
            duration_ns: 300 * MS,
            ..settings(stack, &target.address)
        });
        run.is_done(&["measured"]);
        let measured = run.sums(Phase::Measured);
        assert_eq!(measured.due, 300);
        // Two calls at a time, 100 ms each, one after the other until the last send, which is as late as the
        // client was delayed. Without a delay, each worker makes three, and calls on the boundary make it
        // eight in all.
        let sending_ns = 300 * MS + measured.lateness.max_ns();
        let think_ns = 100 * MS - MS / 10;
        let most = 2 * (sending_ns / think_ns + 1);
        assert!((1..=most).contains(&measured.ok), "{} calls, sent in {sending_ns} ns", measured.ok);
        assert_eq!(measured.skipped, 300 - measured.ok);
        assert_eq!(target.usage().peak_in_progress, 2);
    });
}

/// Bytes received over IP in this network namespace.
fn octets_in() -> u64 {
    let table = std::fs::read_to_string("/proc/net/netstat").expect("Linux has it");
    let mut rows = table.lines().filter(|line| line.starts_with("IpExt:"));
    let (names, values) = (rows.next().expect("a header"), rows.next().expect("values"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "InOctets").and_then(|(_, value)| value.parse().ok()).expect("InOctets")
}

pub fn sizes_and_think_times(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &["--response-bytes", "300KiB", "--think", "20ms"]);
        // Requested and actual values of request size, response size and think time.
        let cases = [
            ((200_000, None, None), (300 << 10, 20 * MS)),
            ((0, Some(900_000), Some(3 * MS)), (900_000, 3 * MS)),
        ];
        for call in [Call::Unary, Call::Stream] {
            for ((request_bytes, response_bytes, think_ns), (bytes, think)) in cases {
                let before = octets_in();
                let run = run(&ClientSettings {
                    call,
                    request_bytes,
                    response_bytes,
                    think_ns,
                    calls: 20,
                    ..settings(stack, &target.address)
                });
                run.is_done(&["measured"]);
                let measured = run.sums(Phase::Measured);
                assert_eq!((measured.ok, measured.failed()), (20, 0), "{:?}", measured.errors);
                let shortest = measured.from_send.buckets().next().expect("20 calls").0;
                assert!(
                    shortest >= think - think / 1_000,
                    "a call of {shortest} ns, with {think} ns of thinking"
                );
                let moved = octets_in() - before;
                assert!(moved >= 20 * (bytes + request_bytes), "{moved} bytes went over the wire");
            }
        }
    });
}
