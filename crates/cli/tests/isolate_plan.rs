//! `spangap isolate plan` as users run it: the plan as text and as JSON, saved for `apply`; refusals; wrong
//! usage.

use serde_json::Value;
use spangap_isolate::place::Place;
use spangap_isolate::plan::Plan;
use spangap_isolate::topology::Topology;
use spangap_machine::{Host, Kept};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate").join(name).join("machine.txt")
}

/// Exit code, standard output, standard error.
fn plan(arguments: &[&str], root: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.args(["isolate", "plan"]).args(arguments).arg("--root").arg(root).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("spangap runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

#[test]
fn the_plan_for_the_articles_server() {
    let machine = fixture("article-2x24x2");
    let (code, text, error) = plan(&["--interface", "eth0", "--net-cpus", "4"], &machine);
    assert_eq!((code, error.as_str()), (0, ""));
    for line in [
        "CPUs 1-2,49-50 for the network of eth0",
        "CPUs 0,3-48,51-95 left for everything else",
        "Interrupts (4 changes)",
        "? - 0-23,48-71  + 49  /proc/irq/147/smp_affinity_list  queue 1 of eth0",
        "  - 0-95  + 0,3-48,51-95  /sys/fs/cgroup/cpuset/docker/.../cpuset.cpus of 6 cgroups",
        "Not possible without a reboot, or not from here",
        "CPUAffinity=0 3-48 51-95",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let next = text.lines().last().unwrap();
    assert!(next.starts_with("  spangap isolate plan --interface eth0 --net-cpus 4 --root "), "{next}");
    assert!(next.ends_with(" --write plan.json"), "{next}");

    let (code, text, error) = plan(&["--interface", "eth0", "--net-cpus", "4", "--json"], &machine);
    assert_eq!((code, error.as_str()), (0, ""));
    let document: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(document.format, Plan::FORMAT);
    assert_eq!(document.changes[0].place, Place::file("/proc/irq/146/smp_affinity_list"));
    let keys: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&keys["net_cpus"], &keys["changes"][0]["to"]), (&"1-2,49-50".into(), &"1".into()));
}

#[test]
fn a_plan_is_saved_for_apply() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    Kept::parse(&fs::read_to_string(fixture("no-smt")).unwrap()).unwrap().write_below(&copy).unwrap();
    let (kept, before) = (folder.path().join("my plan.json"), folder.path().join("before.json"));
    fs::write(&before, r#"{"pairs":[],"spans":{}}"#).unwrap();
    let arguments =
        ["--interface", "enp1s0f0", "--write", kept.to_str().unwrap(), "--before", before.to_str().unwrap()];
    let (code, text, error) = plan(&arguments, &copy);
    assert_eq!((code, error.as_str()), (0, ""));
    let next = format!(
        "\nNext\n  spangap isolate apply '{}' --confirm-within 60s --root {}\n",
        kept.display(),
        copy.display()
    );
    assert!(text.ends_with(&next), "{text}");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "nothing is left beside it: {names:?}");
    let document: Plan = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    assert_eq!(document.boot_id, Topology::read(&Host::below(&copy)).boot.id);
    assert!(document.before.is_some());

    let apply = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .args(["isolate", "apply", "--no-confirm"])
        .arg(&kept)
        .arg("--root")
        .arg(&copy)
        .output()
        .unwrap();
    assert!(apply.status.success(), "{}", String::from_utf8_lossy(&apply.stderr));
    let (code, text, error) = plan(&["--interface", "enp1s0f0", "--json"], &copy);
    assert_eq!((code, error.as_str()), (0, ""));
    let again: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(again.changes, [], "it is applied");
    let (_, text, _) = plan(&["--interface", "enp1s0f0"], &copy);
    assert!(text.contains("Nothing to change"), "{text}");
}

#[test]
fn a_refused_plan_lists_all_reasons() {
    let machine = fixture("kubernetes-v1-static");
    let arguments = ["--interface", "eth0", "--net-cpus", "3-4,11-12"];
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("plan.json");
    let (code, output, error) =
        plan(&[&arguments[..], &["--write", kept.to_str().unwrap()]].concat(), &machine);
    assert_eq!((code, output.as_str()), (1, ""));
    assert!(error.starts_with("spangap: there is no plan, for 2 reasons:\n"), "{error}");
    for words in
        ["(exclusive-pod)", "container java of pod", "(kubelet-pool)", "reservedSystemCPUs", "help: "]
    {
        assert!(error.contains(words), "no {words:?} in {error}");
    }
    assert!(!kept.exists());
    let (code, output, error) = plan(&[&arguments[..], &["--json"]].concat(), &machine);
    assert_eq!(code, 1);
    assert_eq!(error, "spangap: there is no plan, for 2 reasons\n");
    let document: Value = serde_json::from_str(&output).unwrap();
    let rules: Vec<&Value> = document["refused"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
    assert_eq!(rules.len(), 2);
    assert!(
        rules.contains(&&"exclusive-pod".into()) && rules.contains(&&"kubelet-pool".into()),
        "{document}"
    );
}

#[test]
fn wrong_usage() {
    let machine = fixture("two-nics");
    for (arguments, words) in [
        (&["--interface", "eth7"][..], "there is no such interface here: eth0, eth1"),
        (&[], "--interface"),
        (&["--interface", "eth0", "--net-cpus", "0"], "at least one CPU"),
        (&["--interface", "eth0", "--net-cpus", "some"], "expected a number of CPUs"),
        (&["--interface", "eth0", "--irqbalance", "kill"], "possible values: ban, stop, leave"),
    ] {
        let (code, output, error) = plan(arguments, &machine);
        assert_eq!((code, output.as_str()), (2, ""), "{error}");
        assert!(error.contains(words), "no {words:?} in {error}");
    }
    let (code, _, error) = plan(&["--interface", "eth0"], Path::new("/nowhere"));
    assert_eq!(code, 2);
    assert!(error.contains("/nowhere: there is no proc inside"), "{error}");
}

#[test]
fn unreadable_and_unwritable_files_are_named() {
    let machine = fixture("two-nics");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("what.json"), "{\"weather\": 1}").unwrap();
    fs::write(path("kept.txt"), "no entry\n").unwrap();
    for (arguments, words) in [
        (["--before", &path("none.json")], "cannot read"),
        (["--before", &path("what.json")], "expected a gap table"),
        (["--write", &path("no folder/plan.json")], "cannot write"),
    ] {
        let (code, output, error) = plan(&[&["--interface", "eth0,eth1"][..], &arguments].concat(), &machine);
        assert_eq!((code, output.as_str()), (1, ""), "{error}");
        assert!(error.starts_with("spangap: ") && error.contains(words), "no {words:?} in {error}");
    }
    let (code, _, error) = plan(&["--interface", "eth0"], Path::new(&path("kept.txt")));
    assert_eq!(code, 1);
    assert!(error.contains("line 1: found \"no entry\""), "{error}");
}
