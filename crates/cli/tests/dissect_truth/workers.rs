//! Servers that read on one thread and work on another: what delayed the worker is known, and must be named,
//! whether the worker answers itself or hands the answer back. A thread that merely waits for work must not
//! be named.

use crate::hosts::{Ending, Hosts, SERVER};
use crate::recordings::{alone, hog, missing, record};
use crate::{calls, dissect};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// HTTP/1 on an event loop; four workers that wait for work on a condition variable. `argv`: who answers
/// (worker, loop), what a worker does (nothing, sleep, lock).
const POOL: &str = r#"
import collections, ctypes, os, selectors, socket, sys, threading, time
answers, work = sys.argv[1:3]
libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
libc.pthread_mutex_init(mutex, None)
def hold():
    while True:
        libc.pthread_mutex_lock(mutex); time.sleep(0.012); libc.pthread_mutex_unlock(mutex); time.sleep(0.018)
jobs, ready, done = collections.deque(), threading.Condition(), collections.deque()
inside, outside = socket.socketpair()
RESPONSE = b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'
def worker():
    os.sched_setaffinity(threading.get_native_id(), {1})
    while True:
        with ready:
            while not jobs: ready.wait()
            peer = jobs.popleft()
        if work == 'sleep': time.sleep(0.004)
        if work == 'lock': libc.pthread_mutex_lock(mutex); libc.pthread_mutex_unlock(mutex)
        if answers == 'worker': peer.send(RESPONSE)
        else: done.append(peer); outside.send(b'x')
os.sched_setaffinity(threading.get_native_id(), {0})
if work == 'lock': threading.Thread(target=hold, daemon=True).start()
for _ in range(4): threading.Thread(target=worker, daemon=True).start()
listening = socket.create_server((sys.argv[3], 0))
poll = selectors.DefaultSelector()
poll.register(listening, selectors.EVENT_READ); poll.register(inside, selectors.EVENT_READ)
print('listening on %s:%d' % listening.getsockname(), flush=True)
while True:
    for key, _ in poll.select():
        if key.fileobj is listening:
            peer, _ = listening.accept(); poll.register(peer, selectors.EVENT_READ)
        elif key.fileobj is inside:
            inside.recv(4096)
            while done: done.popleft().send(RESPONSE)
        elif key.fileobj.recv(65536):
            with ready: jobs.append(key.fileobj); ready.notify()
        else: poll.unregister(key.fileobj); key.fileobj.close()
"#;

/// Makes calls one after the other.
const CLIENT: &str = r#"
import http.client, sys, time
host, port = sys.argv[1].split(':')
connection = http.client.HTTPConnection(host, int(port))
for _ in range(int(sys.argv[2])):
    connection.request('GET', '/'); connection.getresponse().read(); time.sleep(0.001)
"#;

/// The report on calls to such a server.
fn served(folder: &Path, answers: &str, work: &str, disturbed: bool) -> Value {
    let hosts = Hosts::new(0, 0);
    hosts.line_on("0");
    let recording = folder.join("server.rec");
    // Below the hog and above everything ordinary: a worker that a neighbour keeps from sleeping takes its next call without a
    // wake-up, and nothing tells then who had that call.
    let mut server = hosts.on_server("chrt");
    server.args(["-f", "5", "python3", "-c", POOL, answers, work, SERVER]);
    let files = hosts.captured_from(folder, server, |hosts, address, pid| {
        let recorder = record(pid, &recording);
        let hog: Option<Ending> = disturbed.then(hog);
        // Beside a busy neighbour the client would be put on the workers' CPU, and wait for the hog between its calls.
        let client = ["-c", "0", "python3", "-c", CLIENT, address, "400"];
        let done = hosts.on_client("taskset").args(client).status();
        assert!(done.expect("taskset starts").success());
        drop(hog);
        recorder.end("INT");
    });
    hosts.end();
    dissect(&[&files[0], &files[1]], &["--same-clock", "--host", recording.to_str().expect("text")])
}

/// A leg that waited for a CPU for less than this in total has no finding about it.
const NAMED_NS: u64 = 1_000_000;

/// Time by cause of the findings shown, and of all parts by activity.
fn sums(report: &Value) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut causes, mut doing) = (BTreeMap::new(), BTreeMap::new());
    for call in calls(report) {
        for finding in call["findings"].as_array().expect("findings") {
            if finding["certainty"] == "shown" {
                *causes.entry(text(&finding["cause"])).or_insert(0) +=
                    finding["cost_ns"].as_u64().unwrap_or(0);
            }
        }
        for part in
            call["legs"].as_array().expect("legs").iter().flat_map(|leg| leg["host"]["parts"].as_array())
        {
            let waits = part.iter().filter(|part| part["doing"] == "runnable");
            let waited: u64 = waits.map(|part| part["ns"].as_u64().expect("a number")).sum();
            if waited >= NAMED_NS {
                *causes.entry("waits to be named".into()).or_insert(0) += waited;
            }
            for part in part {
                let name = match (&part["waited_for"], part["behind"].as_str()) {
                    (Value::String(reason), _) => format!("blocked: {reason}"),
                    (_, Some(taker)) if taker.contains("truth-hog") => "behind the hog".into(),
                    _ => text(&part["doing"]),
                };
                *doing.entry(name).or_insert(0) += part["ns"].as_u64().expect("a number");
            }
        }
    }
    (causes, doing)
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

#[test]
fn delays_of_a_worker_are_named_and_idle_waits_are_not() {
    if let Some(why) = missing() {
        return println!("not run: {why}");
    }
    let _alone = alone();
    for answers in ["worker", "loop"] {
        let of = |work: &str, disturbed: bool| {
            let folder = tempfile::tempdir().expect("a folder");
            let sums = sums(&served(folder.path(), answers, work, disturbed));
            eprintln!("{answers} {work} {disturbed}: {sums:#?}");
            sums
        };
        let ns = |sums: &BTreeMap<String, u64>, key: &str| sums.get(key).copied().unwrap_or(0);
        let all = |doing: &BTreeMap<String, u64>| doing.values().sum::<u64>();
        let blamed =
            |causes: &BTreeMap<String, u64>| ["lock", "disk", "memory"].map(|cause| ns(causes, cause));
        let (healthy, doing) = of("nothing", false);
        assert!(ns(&doing, "unknown") * 5 < all(&doing), "{doing:?}");
        assert!(blamed(&healthy).iter().sum::<u64>() * 20 < all(&doing), "{healthy:?} of {doing:?}");
        assert_eq!(ns(&doing, "behind the hog"), 0);
        // It has a quarter of the time on the workers' CPU, and none on the loop's.
        let (starved, doing) = of("nothing", true);
        // Anything else on this machine shares the CPU with both, and may keep the worker waiting for longer
        // than the hog does. How long each wait is, how many are too short to be named, and which is longer,
        // is not for a test to assert.
        let waited = ns(&starved, "waits to be named");
        assert!(ns(&doing, "behind the hog") > 5_000_000, "{answers}: {doing:?}");
        assert!(ns(&starved, "run-queue") * 10 > waited * 8, "{answers}: {starved:?} of {doing:?}");
        let (slept, doing) = of("sleep", false);
        assert!(blamed(&slept).iter().sum::<u64>() * 20 < all(&doing), "{slept:?} of {doing:?}");
        assert!(ns(&doing, "blocked: sleep") > 400 * 4_000_000 / 2, "{answers}: {doing:?}");
        // The lock is held for 12 of every 30 ms.
        let (locked, doing) = of("lock", false);
        assert!(ns(&locked, "lock") > 200_000_000, "{answers}: {locked:?} of {doing:?}");
    }
}
