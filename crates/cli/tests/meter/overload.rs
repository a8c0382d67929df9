//! More concurrent requests than the meter has memory for.

use super::client::{open, read_answer, request};
use super::grpc::sender;
use super::process::{Meter, PATIENCE, until};
use super::spans::calls;
use prost::Message;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

const PROTOBUF: &str = "application/x-protobuf";
const BUDGET: &str = "64KiB";
/// Each request needs over half of the budget, so two never fit at once.
const CALLS: u64 = 250;

/// Sends the requests with these numbers at once; returns how many were accepted and how many refused.
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

/// Sends all but the last byte of a request, and waits until the meter has charged what it received.
fn open_and_hold(meter: &Meter, body: &[u8]) -> TcpStream {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: meter\r\nConnection: close\r\n\
         Content-Type: {PROTOBUF}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = open(meter.otlp_http, &head);
    let most = &body[..body.len() - 1];
    stream.write_all(most).expect("it reads");
    until("it is charged", || (meter.coverage().request_bytes >= most.len() as u64).then_some(()));
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_reported_counted_and_forgotten() {
    assert!(calls("web", "cart", 0..CALLS).encoded_len() > 33 << 10);
    let meter = Arc::new(Meter::start(&["--request-budget", BUDGET, "--slow-after", "1h"]));
    // Figures are read throughout, and each sample must satisfy the identity of the spans.
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

    // A sender that has not finished its request holds what has arrived of it, so no second one fits beside
    // it.
    let body = calls("slow", "cart", 1_000_000..1_000_000 + CALLS).encode_to_vec();
    let mut slow = open_and_hold(&meter, &body);
    let (none, refused_before) = storm(&meter, 0..64).await;
    assert_eq!((none, refused_before), (0, 64), "while the slow sender holds the budget");
    slow.write_all(&body[body.len() - 1..]).expect("it reads");
    let answer = tokio::task::spawn_blocking(|| read_answer(slow)).await.expect("no panic");
    assert_eq!(answer.status, 200, "{answer:?}");

    // Now the meter accepts as many as there is room for.
    let (accepted, refused) = storm(&meter, 64..320).await;
    assert_eq!(accepted + refused, 256);
    assert!(accepted > 0, "a request alone is always taken");
    let refused = refused_before + refused;
    done.store(true, Relaxed);
    let samples = samples.join().expect("the identity holds in every sample");
    println!("{accepted} accepted, {refused} refused, {samples} samples of the figures");

    let coverage = meter.coverage();
    assert_eq!((coverage.refused_requests, coverage.invalid_requests), (refused, 0));
    assert_eq!(coverage.spans.received, 2 * CALLS * (accepted + 1));
    let mut sender = sender(&meter).await;
    sender.export(calls("later", "cart", 2_000_000..2_000_001)).await.expect("there is room again");
    meter.pair("later", "cart", 1);
    meter.pair("web", "cart", accepted * CALLS);
}

#[test]
fn http_refusals_are_503_with_retry_after() {
    let meter = Meter::start(&["--request-budget", BUDGET, "--slow-after", "1h"]);
    let slow = open_and_hold(&meter, &vec![0; 60 << 10]);
    let body = calls("web", "cart", 0..CALLS).encode_to_vec();
    let send = || request(meter.otlp_http, "POST", "/v1/traces", &[("Content-Type", PROTOBUF)], &body);
    let refused = send();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    let status = tonic_types::Status::decode(&*refused.body).expect("a google.rpc.Status");
    assert_eq!(status.code, Code::Unavailable as i32);
    assert_eq!(meter.coverage().refused_requests, 1);
    // When a sender goes away, the memory that it held is released.
    drop(slow);
    until("room again", || (send().status == 200).then_some(()));
}
