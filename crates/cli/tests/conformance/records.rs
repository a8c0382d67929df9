//! Records of calls, and the target's spans for them.

use crate::program::{Client, SECOND_NS, Target, run, settings, with_each_target};
use crate::spans::Collector;
use spangap_bench::contract::record::RECORD_BYTES;
use spangap_bench::contract::{Call, CallRecord, ClientMessage, ClientSettings, Pace, Phase, Records, Stack};
use spangap_bench::schedule::Schedule;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

fn read(path: &Path) -> Vec<CallRecord> {
    let bytes = std::fs::read(path).expect("the file is there");
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    assert!(rest.is_empty(), "{} bytes", bytes.len());
    records.iter().map(CallRecord::decode).collect()
}

pub fn all(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let open = Pace::Open(Schedule::every(1_000_000).expect("not 0"));
        for (call, pace) in [(Call::Unary, Pace::Closed), (Call::Stream, Pace::Closed), (Call::Unary, open)] {
            let collector = Collector::start();
            let target = Target::start(target_stack, &["--otlp", collector.url()]);
            let folder = tempfile::tempdir().expect("a temporary folder");
            let record_file = folder.path().join("records");
            let run = run(&ClientSettings {
                call,
                pace,
                in_flight: 4,
                warmup_ns: 20_000_000,
                calls: 100,
                trace: true,
                records: Records::All,
                record_file: record_file.clone(),
                ..settings(stack, &target.address)
            });
            run.is_done(&["warmup", "measured"]);
            let (warmup, measured) = (run.sums(Phase::Warmup), run.sums(Phase::Measured));
            assert_eq!((warmup.failed(), measured.failed()), (0, 0));
            assert_eq!((warmup.records_dropped, measured.records_dropped), (0, 0));
            let records = read(&record_file);
            let of_measured = records.iter().filter(|record| record.measured);
            assert_eq!(of_measured.clone().count() as u64, measured.ok);
            assert_eq!(records.len() as u64, warmup.ok + measured.ok);
            let durations: u128 = of_measured.map(|record| u128::from(record.duration_ns)).sum();
            assert_eq!(durations, measured.from_send.sum_ns(), "records and histogram tell the same");

            let ids: HashSet<_> = records.iter().map(|record| record.span_id).collect();
            let traces: HashSet<_> = records.iter().map(|record| record.trace_id).collect();
            assert_eq!(
                (ids.len(), traces.len()),
                (records.len(), records.len()),
                "each call is a trace of its own"
            );
            let in_stream = call == Call::Stream && stack != Stack::Raw;
            let method = match (stack, in_stream) {
                (Stack::Raw, _) => "ping",
                (_, false) => "spangap.ping.v1.Ping/Ping",
                (_, true) => "spangap.ping.v1.Ping/PingStream",
            };
            let now_ns = spangap_bench::clock::unix_ns();
            for record in &records {
                assert_eq!((record.status, record.parent_span_id), (0, [0; 8]), "{record:?}");
                assert_eq!(record.stream, in_stream, "{record:?}");
                assert!(now_ns - record.start_unix_ns < 600 * SECOND_NS, "{record:?}");
                assert!(pace != Pace::Closed || record.lateness_ns == 0, "{record:?}");
            }

            target.end();
            let spans = collector.spans();
            let by_trace: HashMap<_, _> =
                records.iter().map(|record| (record.trace_id.to_vec(), record)).collect();
            assert_eq!(spans.len(), records.len(), "a server span for each call");
            for span in spans {
                let record = by_trace.get(&span.trace_id).unwrap_or_else(|| panic!("whose is {span:?}?"));
                assert_eq!(span.parent_span_id, record.span_id, "{record:?}");
                assert_eq!(span.name, method);
            }
        }
    });
}

pub fn slow(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &[]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (slow_ns, expected) in [(1, 60), (600 * SECOND_NS, 0)] {
            let record_file = folder.path().join(expected.to_string());
            let run = run(&ClientSettings {
                warmup_ns: 20_000_000,
                calls: 60,
                trace: true,
                records: Records::Slow,
                slow_ns,
                record_file: record_file.clone(),
                ..settings(stack, &target.address)
            });
            run.is_done(&["warmup", "measured"]);
            assert_eq!(run.sums(Phase::Measured).slow, expected);
            let records = read(&record_file);
            assert_eq!(records.len() as u64, expected);
            assert!(records.iter().all(|record| record.slow && record.measured));
        }
    });
}

pub fn unread(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &[]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("coreutils are there").success());
        let mut client = Client::start(&ClientSettings {
            in_flight: 4,
            calls: 2_000,
            records: Records::All,
            record_file: fifo,
            ..settings(stack, &target.address)
        });
        client.ready();
        client.go();
        client.hear("drain", |message| matches!(message, ClientMessage::Phase { phase: Phase::Drain, .. }));
        client.let_go();
        let run = client.finish();
        assert_eq!(run.code, Some(0));
        assert_eq!(run.sums(Phase::Measured).ok, 2_000);
    });
}
