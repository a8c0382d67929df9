//! The stored history over ends of all kinds.

use super::grpc::sender;
use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::{calls, gap_ns, trace_id};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use spangap_meter::report::{CallReport, WorstReport};
use std::path::Path;

/// The calls that the file holds now, in closed and in open minutes.
fn stored_calls(directory: &Path) -> i64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let file = Connection::open_with_flags(directory.join("history.sqlite"), flags).expect("it is there");
    file.query_row("SELECT coalesce(sum(calls), 0) FROM (SELECT calls FROM minute UNION ALL SELECT calls FROM open_minute)", [], |row| row.get(0)).expect("its schema")
}

async fn send(meter: &Meter, numbers: std::ops::Range<u64>) {
    let mut sender = sender(meter).await;
    sender.export(calls("web", "cart", numbers)).await.expect("it is accepted");
}

fn note(meter: &Meter) -> String {
    let notes = meter.coverage().notes;
    let note = notes.iter().find(|note| note.contains("last run"));
    note.unwrap_or_else(|| panic!("nothing on the last run in {notes:?}")).clone()
}

/// The call with the largest gap, with both of its spans.
fn worst_call(meter: &Meter, number: u64) -> CallReport {
    let worst = meter.api::<WorstReport>("/api/v1/worst?window=1h&client=web&server=cart&limit=1").calls;
    let worst = &worst[0].call;
    let id: String = trace_id(number).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&worst.trace_id, worst.gap_ns, worst.whole), (&id, gap_ns(number), true));
    let path = format!("/api/v1/call?trace_id={id}&client_span_id={}", worst.client_span_id);
    let call: CallReport = meter.api(&path);
    for (span, host) in [(&call.client_span, "web-host"), (&call.server_span, "cart-host")] {
        let text = span.as_ref().map(Value::to_string).expect("the span is whole");
        assert!(text.contains(host) && text.contains(&format!("\"{number}\"")), "{text}");
    }
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_loses_only_what_came_after_the_checkpoint_and_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = ["--data", directory.path().to_str().expect("its name is text")];

    let meter = Meter::start(&data);
    send(&meter, 0..500).await;
    let before = meter.pair("web", "cart", 500);
    let call = worst_call(&meter, 499);
    until("a checkpoint with the calls", || (stored_calls(directory.path()) == 500).then_some(()));
    meter.program.signal("KILL");
    assert_eq!(meter.program.wait().code, None);

    let meter = Meter::start(&data);
    let after = meter.pair("web", "cart", 500);
    assert_eq!((&after.gap, after.lost_ns_total), (&before.gap, before.lost_ns_total));
    assert_eq!(after.worst, before.worst);
    assert_eq!(worst_call(&meter, 499), call);
    let note = note(&meter);
    for part in ["ended without closing", "checkpoint of 20", "are lost", "5 s apart"] {
        assert!(note.contains(part), "{part:?}: {note}");
    }
    // A second run adds to the same minutes.
    send(&meter, 500..600).await;
    meter.pair("web", "cart", 600);
    let ended = meter.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.iter().any(|line| line.contains("the history is closed")), "{ended:?}");
    assert_eq!(stored_calls(directory.path()), 600, "a stop writes what no checkpoint has");

    let meter = Meter::start(&data);
    assert_eq!(meter.pair("web", "cart", 600).lost_ns_total, (0..600).map(gap_ns).sum::<u64>());
    let note = self::note(&meter);
    assert!(note.contains("closed it at 20") && !note.contains("lost"), "{note}");
    worst_call(&meter, 599);

    // Only one meter writes into a directory.
    let second = Program::start(&[&["meter"], &FREE_PORTS[..], &data].concat()).wait();
    assert_eq!((second.code, second.out.len()), (Some(1), 0), "{second:?}");
    let error = second.err.join("\n");
    assert!(error.contains("in use by another process") && error.contains(data[1]), "{error}");
    assert_eq!(meter.pair("web", "cart", 600).calls, 600, "the first one goes on");
}

#[test]
fn a_file_that_is_no_history_is_left_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("history.sqlite");
    std::fs::write(&file, "my diary").expect("it can be written");
    let data = ["--data", directory.path().to_str().expect("its name is text")];
    let ended = Program::start(&[&["meter"], &FREE_PORTS[..], &data].concat()).wait();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.join("\n").contains("history.sqlite"), "{ended:?}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"my diary");
}
