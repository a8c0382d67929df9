//! `spangap demo --auto` as a user runs it, as root: two hosts, a fault, the case, its verdict, the proof,
//! everything undone. Nothing here is timed: the demonstration waits for its own conditions, and says so when
//! one is not met.

use super::process::{FREE_PORTS, Program};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Two demonstrations at once would be noise to each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn is_possible() -> bool {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let made = || Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|done| done.success());
    let is_possible = root && made();
    if !is_possible {
        println!("not run: it needs root, and network namespaces");
    }
    is_possible
}

/// Existing namespaces of the lab's hosts.
fn hosts() -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = names.map(|name| name.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("lab-")).collect()
}

#[test]
fn a_fault_is_found_explained_proven_and_undone() {
    let _alone = alone();
    if !is_possible() {
        return;
    }
    let demo = Program::start(&[&["demo", "--auto", "--fault", "nagle"], &FREE_PORTS[..]].concat());
    let mut said = Vec::new();
    let mut namespaces = Vec::new();
    for line in std::iter::from_fn(|| demo.line()) {
        if line.contains("both are connected") {
            namespaces = hosts();
            assert!(namespaces.len() >= 2, "{namespaces:?}");
        }
        println!("{line}");
        said.push(line);
    }
    let ended = demo.wait();
    // As one line, however it is wrapped.
    let said = said.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    let place =
        |what: &str| said.find(what).unwrap_or_else(|| panic!("{what:?} is not said: {said} {ended:?}"));
    let steps = ["FAULT: ", "CASE ", "VERDICT: ", "TRUTH: nagle-delayed-ack (client)", "REMEDY: TCP_NODELAY"];
    let places: Vec<usize> = steps.into_iter().map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    // On a busy machine the proof may not succeed; the demonstration then says so, and claims nothing.
    let [proven, undecided] = ["Proven: the remedy takes", "Undecided: "].map(|word| said.contains(word));
    assert!(proven || undecided, "{said}");
    assert!(said.contains("The host reports that every change is undone"), "{said}");
    assert!(said.ends_with("All is undone."), "{said}");
    assert!(!said.contains("The verdict is WRONG") || said.contains("spangap can remedy"), "{said}");
    assert_eq!(ended.code, Some(i32::from(!proven)), "{ended:?}");
    // Its own two are gone; those of other runs come and go.
    let left = hosts().into_iter().filter(|name| namespaces.contains(name)).count();
    assert!(left + 2 <= namespaces.len(), "{left} of {namespaces:?}");
}
