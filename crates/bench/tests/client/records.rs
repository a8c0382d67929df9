//! The record file.

use crate::{Client, MILLISECOND, Server, settings};
use spangap_bench::contract::record::{CallRecord, RECORD_BYTES};
use spangap_bench::contract::{Call, Pace, Phase, Records};
use spangap_bench::schedule::Schedule;
use std::collections::BTreeSet;
use std::path::Path;

fn read(path: &Path) -> Vec<CallRecord> {
    let bytes = std::fs::read(path).unwrap();
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    assert!(rest.is_empty());
    records.iter().map(CallRecord::decode).collect()
}

#[test]
fn every_call_has_its_record() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start();
    for call in [Call::Unary, Call::Stream] {
        for pace in [Pace::Closed, Pace::Open(Schedule::per_second(2_000).unwrap())] {
            let mut settings = settings(server.address);
            (settings.call, settings.pace, settings.in_flight, settings.calls) = (call, pace, 50, 100);
            settings.warmup_ns = 20 * MILLISECOND;
            (settings.records, settings.slow_ns) = (Records::All, 0);
            settings.record_file = directory.path().join("records");
            let told = Client::go(&settings).rest();
            let (warmup, measured) = (told.sum(Phase::Warmup), told.sum(Phase::Measured));
            let seen: BTreeSet<_> = server.seen().iter().map(|ping| ping.context.unwrap()).collect();
            let records = read(&settings.record_file);
            assert_eq!(records.len() as u64, warmup.ok + measured.ok);
            let ids: BTreeSet<_> = records.iter().map(|one| (one.trace_id, one.span_id)).collect();
            assert_eq!(ids, seen);
            for (of, sum) in [(false, &warmup), (true, &measured)] {
                let of = records.iter().filter(|one| one.measured == of);
                let total_ns: u128 = of.clone().map(|one| u128::from(one.duration_ns)).sum();
                assert_eq!(total_ns, sum.from_send.sum_ns());
                let late_ns: u128 = of.clone().map(|one| u128::from(one.lateness_ns)).sum();
                assert_eq!(late_ns, sum.lateness.sum_ns());
            }
            for one in records {
                assert_eq!((one.parent_span_id, one.status, one.connection, one.slow), ([0; 8], 0, 0, true));
                assert!(one.start_unix_ns < told.intervals.last().unwrap().at_unix_ns);
            }
        }
    }
}

#[test]
fn slow_records_are_of_measured_calls() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start();
    let mut settings = settings(server.address);
    // Long enough for a call in the warm-up, even on a machine that schedules this process only every 100 ms.
    (settings.warmup_ns, settings.calls) = (600 * MILLISECOND, 50);
    (settings.records, settings.slow_ns) = (Records::Slow, 0);
    settings.record_file = directory.path().join("records");
    let told = Client::go(&settings).rest();
    let records = read(&settings.record_file);
    assert_eq!((records.len() as u64, told.sum(Phase::Measured).slow), (50, 50));
    assert!(records.iter().all(|one| one.measured && one.slow));
    assert!(told.sum(Phase::Warmup).slow > 0);

    settings.slow_ns = u64::MAX;
    Client::go(&settings).rest();
    assert!(read(&settings.record_file).is_empty());
}

#[test]
fn an_unwritable_record_file_is_reported_before_the_run() {
    let server = Server::start();
    let mut settings = settings(server.address);
    (settings.records, settings.record_file) = (Records::All, "/nowhere/records".into());
    let error = Client::start(&settings).rest().failed.expect("no run");
    assert!(error.contains("/nowhere/records: No such file"), "{error}");
}
