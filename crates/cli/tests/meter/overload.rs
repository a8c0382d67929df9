//! More requests at once than the meter has memory for.

use super::client::{open, read_answer};
use super::grpc::sender;
use super::process::{Meter, PATIENCE, until};
use super::spans::calls;
use prost::Message;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

const BUDGET: &str = "64KiB";
/// Each request is over half of the budget, so two never fit at once.
const CALLS: u64 = 250;

/// Sends requests with the numbers given, all at once; how many were accepted and how many refused.
async fn storm(meter: &Meter, numbers: std::ops::Range<u64>) -> (u64, u64) {
    let mut senders = Vec::new();
    for _ in 0..8 {
        senders.push(sender(meter).await);
    }
    let mut requests = JoinSet::new();
    for at in numbers {
        let mut sender = senders[at as usize % senders.len()].clone();
        requests
            .spawn(async move { sender.export(calls("web", "cart", at * CALLS..(at + 1) * CALLS)).await });
    }
    let (mut accepted, mut refused) = (0, 0);
    while let Some(done) = requests.join_next().await {
        match done.expect("no panic") {
            Ok(answer) => {
                assert_eq!(answer.into_inner().partial_success, None);
                accepted += 1;
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("retry"), "{status}");
                let retry = status.get_details_retry_info().expect("when to try again");
                assert!(retry.retry_delay.is_some_and(|delay| !delay.is_zero() && delay < PATIENCE));
                refused += 1;
            }
        }
    }
    (accepted, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_told_counted_and_forgotten() {
    assert!(calls("web", "cart", 0..CALLS).encoded_len() > 33 << 10);
    let meter = Arc::new(Meter::start(&["--request-budget", BUDGET]));
    // Figures are read all the while; each sample is held to the identity of the spans.
    let done = Arc::new(AtomicBool::new(false));
    let samples = std::thread::spawn({
        let (meter, done) = (meter.clone(), done.clone());
        move || {
            let mut samples = 0u64;
            while !done.load(Relaxed) {
                meter.coverage();
                samples += 1;
            }
            samples
        }
    });

    // A sender that is not done with its request has its bytes set aside: no second one fits beside it.
    let body = calls("slow", "cart", 1_000_000..1_000_000 + CALLS).encode_to_vec();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: meter\r\nConnection: close\r\n\
         Content-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut slow = open(meter.otlp_http, &head);
    // Whether its head has been read shows in what becomes of the others.
    let (mut sent, mut accepted, mut refused) = (0, 0, 0);
    while refused == 0 {
        let (taken, not) = storm(&meter, sent..sent + 1).await;
        (sent, accepted, refused) = (sent + 1, accepted + taken, refused + not);
        assert!(sent < 10_000, "never refused");
    }
    let (taken, not) = storm(&meter, sent..sent + 64).await;
    assert_eq!((taken, not), (0, 64), "while the slow sender holds the budget");
    (sent, refused) = (sent + 64, refused + 64);
    slow.write_all(&body).expect("it reads");
    let answer = tokio::task::spawn_blocking(|| read_answer(slow)).await.expect("no panic");
    assert_eq!(answer.status, 200, "{answer:?}");

    // Now with as many accepted as there is room for.
    let (taken, not) = storm(&meter, sent..sent + 256).await;
    assert_eq!(taken + not, 256);
    assert!(taken > 0, "a request alone is always taken");
    (accepted, refused) = (accepted + taken, refused + not);
    done.store(true, Relaxed);
    let samples = samples.join().expect("the identity holds in every sample");
    println!("{accepted} accepted, {refused} refused, {samples} samples of the figures");

    let coverage = meter.coverage();
    assert_eq!((coverage.refused_requests, coverage.invalid_requests), (refused, 0));
    assert_eq!(coverage.spans.received, 2 * CALLS * (accepted + 1));
    let mut sender = sender(&meter).await;
    sender.export(calls("later", "cart", 2_000_000..2_000_001)).await.expect("there is room again");
    meter.pair("later", "cart", 1);
    until("the same total", || (meter.pair("web", "cart", accepted * CALLS).calls > 0).then_some(()));
}

#[test]
fn over_http_the_status_is_503_with_a_time_to_wait() {
    let meter = Meter::start(&["--request-budget", BUDGET]);
    let head = |body: usize| {
        format!(
            "POST /v1/traces HTTP/1.1\r\nHost: meter\r\nConnection: close\r\n\
             Content-Type: application/x-protobuf\r\nContent-Length: {body}\r\n\r\n"
        )
    };
    let body = calls("web", "cart", 0..CALLS).encode_to_vec();
    let slow = open(meter.otlp_http, &head(60 << 10));
    eprintln!("body {}", body.len());
    let refused = until("a refusal", || {
        let mut other = open(meter.otlp_http, &head(body.len()));
        other.write_all(&body).expect("it reads");
        let answer = read_answer(other);
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let status = tonic_types::Status::decode(&*refused.body).expect("a google.rpc.Status");
    assert_eq!(status.code, Code::Unavailable as i32);
    assert_eq!(meter.coverage().refused_requests, 1);
    // A sender that goes away gives back what it held.
    drop(slow);
    until("room again", || {
        let mut other = open(meter.otlp_http, &head(body.len()));
        other.write_all(&body).expect("it reads");
        (read_answer(other).status == 200).then_some(())
    });
}
