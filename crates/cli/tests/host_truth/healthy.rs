//! Healthy targets, for which nothing is blamed, and targets that cannot be observed.

use crate::programs::Program;
use crate::{report, sums_are_exact, thieves, turn_or_return};
use serde_json::Value;
use std::process::Output;

/// Number of attempts on a machine that is also doing other things.
const CHANCES: usize = 4;

#[test]
fn an_undisturbed_application_has_no_culprit() {
    let _turn = turn_or_return!();
    // No task of another class can take its CPU.
    let target = Program::target(&["chrt", "-f", "50"]);
    let mut blamed = None;
    let mut others_ran = true;
    for _ in 0..CHANCES {
        let (_, waited) = target.accounts();
        let report = report(target.pid(), &["--duration", "2s"]);
        let waited = target.accounts().1 - waited;
        sums_are_exact(&report);
        if report["culprit"].is_null() {
            assert_eq!(report["causes"].as_array().map(Vec::len), Some(0));
            let words = report["conclusions"][0].as_str().expect("a sentence");
            assert!(words.starts_with("none: nobody took a significant amount"), "{words}");
            return;
        }
        // Stolen time, and interrupts caused by other tests, are not this setup's fault.
        blamed = Some(report["culprit"].clone());
        // The kernel gives other tasks a twentieth of the time, so that they do not starve.
        let culprit = &report["culprit"];
        others_ran &= culprit["cause"] == "run-queue" && crate::number(&culprit["total_ns"]) <= waited;
    }
    if others_ran {
        return eprintln!("not run: other programs keep this machine busy: {blamed:?}");
    }
    panic!("{blamed:?} is blamed in each of {CHANCES} runs");
}

#[test]
fn loopback_traffic_of_the_target_is_its_own() {
    let _turn = turn_or_return!();
    let target = Program::loopback(&["chrt", "-f", "50"]);
    let report = report(target.pid(), &["--duration", "2s"]);
    sums_are_exact(&report);
    let takers = report["takers"].as_array().expect("takers");
    let own = takers.iter().find(|taker| taker["name"] == "NET_RX of lo, its own traffic");
    let own = own.unwrap_or_else(|| panic!("not among {takers:#?}"));
    assert_eq!((&own["kind"], &own["cause"]), (&"own_softirq".into(), &Value::Null));
    // It is worth mentioning, but nobody's fault.
    assert!(own["share"].as_f64().is_some_and(|share| share > 0.02), "{own}");
    assert!(!report["culprit"]["name"].as_str().is_some_and(|name| name.contains("lo")), "{report:#}");
    let conclusions = report["conclusions"].as_array().expect("conclusions");
    let told = |words: &Value| words.as_str().is_some_and(|words| words.contains("over the loopback"));
    assert!(conclusions.iter().any(told), "{conclusions:#?}");
}

/// Client and server alternate on one CPU: each delays the other, and works for it.
#[test]
fn a_client_and_its_server_on_one_cpu_are_not_thieves() {
    let _turn = turn_or_return!();
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let cpu = crate::CPU.to_string();
    let before = ["taskset", "-c", &cpu, "chrt", "-f", "50"];
    let server = Program::play(&format!("echo {port}"), &before);
    let client = Program::play(&format!("ask {port}"), &before);
    crate::programs::wait_until("they talk", || server.accounts().0 > 20_000_000);
    for (one, other) in [(&server, &client), (&client, &server)] {
        let report = report(one.pid(), &["--duration", "1s"]);
        sums_are_exact(&report);
        let takers = report["takers"].as_array().expect("takers");
        let blamed = takers.iter().any(|taker| taker["pid"] == other.pid() && taker["blamed"] == true);
        let lo = |taker: &&Value| taker["name"].as_str().is_some_and(|name| name.contains("of lo"));
        assert!(!blamed && takers.iter().filter(lo).all(|taker| taker["blamed"] == false), "{takers:#?}");
    }
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = thieves(arguments).output().expect("spangap starts");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

#[test]
fn missing_targets_are_wrong_usage() {
    if let Err(why) = crate::turn() {
        return eprintln!("not run: {why}");
    }
    for (arguments, words) in [
        (&["--pid", "4194999"][..], "no such process"),
        (&["--cpus", "1000"], "is not online"),
        (&["--cgroup", "/no/such/group"], "there is no /no/such/group"),
        (&["--cgroup", "/"], "holds everything"),
        (&[], "--pid"),
        (&["--pid", "1", "--cpus", "0"], "cannot be used with"),
        (&["--pid", "1", "--fail-on", "gremlins"], "gremlins"),
    ] {
        let (code, complaint) = refused(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    }
}
