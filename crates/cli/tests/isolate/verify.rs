//! Whether a plan still holds, what it gained, and who undid which part: on copies, with measurements made by
//! the binary itself.

use crate::process::{Ended, Program};
use crate::{ARTICLE, Copy, error, json, spangap, text, unpack};
use serde_json::Value;
use spangap_machine::Kept;
use std::fs;
use std::path::{Path, PathBuf};

const IRQ: &str = "/proc/irq/146/smp_affinity_list";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn applied() -> Copy {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--no-confirm"]);
    copy
}

fn line(program: &Program) -> Value {
    serde_json::from_str(&program.line().expect("a line")).expect("JSON")
}

#[test]
fn drift_from_the_applied_plan_is_reported() {
    let copy = Copy::of(ARTICLE);
    assert_eq!(copy.verb("status", &[]).out, ["Nothing is applied."]);
    assert!(error(&copy.verb("verify", &[])).starts_with("nothing is applied"));
    copy.applied(&["--no-confirm"]);
    let status = json(&copy.verb("status", &["--json", "--fail-on", "drift"]));
    assert_eq!(
        (&status["state"], &status["plan"]["net_cpus"]),
        (&"applied".into(), &"1-2,49-50".into()),
        "{status:#}"
    );
    assert_eq!(status["drift"].as_array().map(Vec::len), Some(0), "{status:#}");
    assert_eq!(
        (&status["parts"][0]["part"], &status["parts"][0]["held"]),
        (&"irqs".into(), &4.into()),
        "{status:#}"
    );
    copy.write(IRQ, "0-95\n");
    let drifted = copy.verb("status", &["--json", "--fail-on", "drift"]);
    assert_eq!(drifted.code, Some(3), "{drifted:?}");
    let drift = &json(&drifted)["drift"][0];
    assert_eq!(
        (&drift["place"]["path"], &drift["wanted"], &drift["found"]),
        (&IRQ.into(), &"1".into(), &"0-95".into())
    );
    let said = copy.verb("status", &[]).out.join("\n");
    assert!(said.contains("21 of 22 values as written") && said.contains("No longer as written"), "{said}");
    for (what, code) in [("drift", 3), ("any", 3), ("effect", 0), ("headroom", 0)] {
        let ended = copy.verb("verify", &["--fail-on", what]);
        assert_eq!(ended.code, Some(code), "{what}: {ended:?}");
        assert!(ended.out[0].starts_with("Does not hold: 1 value no longer as written ("), "{ended:?}");
    }
    assert_eq!(copy.verb("rollback", &["--force"]).code, Some(0));
    let nothing = copy.verb("status", &[]).out.join(" ");
    assert!(
        nothing.starts_with("Nothing is applied. The last plan was undone ")
            && nothing.ends_with(" by rollback."),
        "{nothing}"
    );
}

#[test]
fn a_copy_has_no_effects_to_verify() {
    let copy = applied();
    let report = json(&copy.verb("verify", &["--json", "--fail-on", "any"]));
    assert_eq!(report["verdict"], "cannot_tell", "{report:#}");
    assert_eq!(report["effect"].as_array().map(Vec::len), Some(1), "{report:#}");
    assert!(
        report["effect"][0]["summary"].as_str().is_some_and(|why| why.starts_with("on a copy nothing runs"))
    );
    assert_eq!((&report["cost"]["cpus"], &report["looked_s"]), (&96.into(), &Value::Null));
    // Changes applied before a reboot are gone.
    copy.write("/proc/sys/kernel/random/boot_id", "5a1f0000-0000-4000-8000-000000000000\n");
    let status = json(&copy.verb("status", &["--json"]));
    assert_eq!((&status["state"], &status["parts"]), (&"another_boot".into(), &Value::Array(Vec::new())));
    assert!(error(&copy.verb("verify", &[])).contains("before this machine's last boot"));
}

#[test]
fn a_plan_that_does_not_hold_exits_with_3_and_is_not_confirmed() {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--confirm-within", "2h"]);
    let holds = copy.verb("verify", &[]);
    assert_eq!(holds.code, Some(0), "nothing speaks against it: {holds:?}");
    let ours = copy.read(IRQ);
    copy.write(IRQ, "0-95\n");
    for (more, code) in [(&[][..], 3), (&["--fail-on", "never"][..], 0), (&["--fail-on", "never,any"][..], 2)]
    {
        let ended = copy.verb("verify", more);
        assert_eq!(ended.code, Some(code), "{more:?}: {ended:?}");
    }
    let refused = copy.verb("confirm", &[]);
    let said = error(&refused);
    assert!(said.starts_with("not confirmed: Does not hold: 1 value no longer as written"), "{said}");
    assert!(said.contains("it is undone in 71") && said.contains("confirm --no-verify"), "{said}");
    let refused = copy.verb("confirm", &["--json"]);
    let report = json(&refused);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(
        (&report["confirmed"], &report["verdict"]),
        (&false.into(), &"does_not_hold".into()),
        "{report:#}"
    );
    assert_eq!(json(&copy.verb("status", &["--json"]))["state"], "waiting");
    // `--no-verify` confirms it anyway, and once it holds again, no option is needed.
    let kept = copy.verb("confirm", &["--no-verify"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert!(kept.out.iter().any(|line| line.starts_with("1 of 22 values have changed since")), "{kept:?}");
    assert_eq!(copy.verb("rollback", &["--force"]).code, Some(0));
    copy.applied(&["--confirm-within", "2h"]);
    copy.write(IRQ, &ours);
    let confirmed = copy.verb("confirm", &["--json"]);
    assert_eq!(
        (confirmed.code, &json(&confirmed)["verdict"]),
        (Some(0), &"cannot_tell".into()),
        "{confirmed:?}"
    );
    assert_eq!(json(&copy.verb("status", &["--json"]))["state"], "confirmed");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
}

#[test]
fn two_readings_of_a_copy_are_compared() {
    let copy = applied();
    let machine = fs::read_to_string(fixtures().join("isolate").join(ARTICLE.0).join("machine.txt"))
        .expect("it is there");
    let reading = |name: &str, cpu: Option<usize>| {
        let root = copy.root().join(name);
        unpack(&Kept::parse(&machine).expect("a machine"), &root);
        let path = root.join("proc/interrupts");
        let moved: Vec<String> = fs::read_to_string(&path)
            .expect("it is there")
            .lines()
            .map(|line| {
                let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                if let (Some("146:"), Some(cpu)) = (words.first().map(String::as_str), cpu) {
                    words[1 + cpu] = (words[1 + cpu].parse::<u64>().expect("a count") + 1_234).to_string();
                }
                words.join(" ")
            })
            .collect();
        fs::write(path, moved.join("\n") + "\n").expect("it is ours");
    };
    let interrupts = || {
        let report = json(&copy.verb("verify", &["--json"]));
        report["effect"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["what"] == "interrupts")
            .cloned()
            .expect("judged")
    };
    reading("before", None);
    reading("after", Some(49));
    assert_eq!(interrupts()["verdict"], "holds");
    assert_eq!(interrupts()["summary"], "1,234 interrupts, all on CPUs 1-2,49-50 (3 of 4 had none)");
    fs::remove_dir_all(copy.root().join("after")).expect("it is ours");
    reading("after", Some(7));
    assert_eq!(interrupts()["summary"], "1,234 of 1,234 interrupts went elsewhere, to CPU 7");
}

#[test]
fn every_change_is_printed_until_ctrl_c() {
    let copy = applied();
    let root = copy.root();
    let watched = Program::start(&[
        "isolate",
        "status",
        "--root",
        text(&root),
        "--watch",
        "--interval",
        "20ms",
        "--json",
    ]);
    assert_eq!(line(&watched)["state"], "applied");
    let ours = copy.read(IRQ);
    copy.write(IRQ, "0-95\n");
    let drift = line(&watched);
    assert_eq!((&drift["event"], &drift["drift"]["found"]), (&"drift".into(), &"0-95".into()), "{drift:#}");
    copy.write(IRQ, &ours);
    assert_eq!(line(&watched)["event"], "held_again");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    // Anything observed during the rollback has drifted; the last line says that it was undone.
    let end = std::iter::from_fn(|| Some(line(&watched))).find(|event| event["event"] == "rolled_back");
    assert_eq!(end.expect("it goes on")["words"], "undone by rollback");
    watched.signal("INT");
    let Ended { code, out, err } = watched.wait();
    assert_eq!((code, out.len(), err.len()), (Some(0), 0, 0), "{out:?} {err:?}");
}

/// Applies a plan that has a measurement from before; returns the gain that `verify` finds in one from
/// afterwards.
fn gain(before: &str, after: &str) -> Value {
    let copy = Copy::of(ARTICLE);
    let [before, after] = [("before.json", before), ("after.json", after)].map(|(name, document)| {
        let path = copy.folder.path().join(name);
        fs::write(&path, document).expect("it is ours");
        path
    });
    copy.plan(ARTICLE.1, &["--before", text(&before)]);
    copy.applied(&["--no-confirm"]);
    let without = json(&copy.verb("verify", &["--json"]));
    assert!(
        without["gain_missing"].as_str().is_some_and(|how| how.contains("verify --after FILE")),
        "{without:#}"
    );
    let report = json(&copy.verb("verify", &["--json", "--after", text(&after)]));
    assert_eq!(report["gain_missing"], Value::Null);
    let nonsense = copy.verb("verify", &["--after", text(&copy.plan_path())]);
    assert!(error(&nonsense).contains("expected a gap table"), "{nonsense:?}");
    report["gain"].clone()
}

#[test]
fn a_gap_table_of_two_calls_claims_nothing() {
    let spans = fixtures().join("spans/otlp.json");
    let table = spangap(&["gaps", text(&spans), "--json"]).out.join("\n");
    let gain = gain(&table, &table);
    let of: Vec<&Value> = gain["gains"].as_array().expect("a list").iter().map(|gain| &gain["of"]).collect();
    assert_eq!(of, ["cart -> payment", "frontend -> cart"], "{gain:#}");
    assert_eq!(gain["gains"][1]["calls_before"], 2);
    let p99 = &gain["gains"][1]["figures"][0];
    assert_eq!((&p99["figure"], &p99["verdict"]), (&"p99".into(), &"cannot_tell".into()), "{gain:#}");
    assert!(p99["before_ns"].as_u64().is_some_and(|ns| ns > 8_000_000), "{gain:#}");
}

#[test]
fn a_tank_run_does_not_differ_from_itself() {
    let target = Program::start(&["target", "--listen", "127.0.0.1:0", "--stack", "raw"]);
    let said = target.line().expect("it listens");
    let address = said.strip_prefix("listening on ").expect("its address");
    let made = spangap(&[
        "tank",
        address,
        "--stack",
        "raw",
        "--inflight",
        "1",
        "--duration",
        "1s",
        "--warmup",
        "100ms",
        "--json",
    ]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let report = made.out.join("\n");
    let run = &json(&made)["runs"][0];
    let gain = gain(&report, &report);
    let one = &gain["gains"][0];
    assert_eq!(one["of"], format!("raw unary to {address}, shared channels, 1 in flight"), "{gain:#}");
    assert_eq!(one["calls_after"], run["ok"]);
    let p99 = &one["figures"][0];
    assert_eq!((&p99["figure"], &p99["after_ns"]), (&"p99".into(), &run["latency"]["p99_ns"]), "{gain:#}");
    if run["ok"].as_u64().is_some_and(|calls| calls >= 1_000) {
        assert_eq!(p99["verdict"], "no_difference_claimed", "{gain:#}");
        let between = p99["times_shorter_between"].as_array().expect("both ends");
        assert!(between[0].as_f64() < Some(1.0) && between[1].as_f64() > Some(1.0), "{gain:#}");
    } else {
        println!("not run: an interval: this machine made {} calls in a second", run["ok"]);
    }
}
