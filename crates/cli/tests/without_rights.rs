//! The verbs that look into the kernel and other processes, as an ordinary user: each works without the
//! right, or says which one is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Somebody without rights.
const NOBODY: &str = "65534";

/// A place for the binary that everyone can reach; `None`, with a printed reason, if this process cannot
/// change its user.
fn place() -> Option<tempfile::TempDir> {
    let root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root || Command::new("setpriv").arg("--version").output().is_err() {
        println!("not run: it takes root, and the program setpriv, to become an ordinary user");
        return None;
    }
    let place = tempfile::tempdir().expect("a folder");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    // Copied by a process of its own: another test's child would inherit a file that this process holds open
    // for writing, and the copy could not be run until that child ends (ETXTBSY).
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_spangap")).arg(place.path().join("spangap")).status();
    assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
    Some(place)
}

fn as_nobody(place: &Path, arguments: &[&str]) -> Output {
    Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"])
        .arg(place.join("spangap"))
        .args(arguments)
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .expect("setpriv starts")
}

/// Checks that it fails with one line that contains these words.
fn refused(place: &Path, arguments: &[&str], words: &[&str]) {
    let done = as_nobody(place, arguments);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
    assert!(said.starts_with("spangap: ") && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: {word:?} is not in {said}");
    }
}

#[test]
fn verbs_with_probes_name_the_missing_right() {
    let Some(place) = place() else { return };
    let own = std::process::id().to_string();
    let recording = place.path().join("open");
    fs::create_dir(&recording).expect("it is ours");
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let file = recording.join("x.rec");
    let needs = ["CAP_BPF", "CAP_SYS_ADMIN", "host check"];
    refused(place.path(), &["host", "offcpu", "--pid", &own, "--duration", "1s"], &needs);
    refused(place.path(), &["host", "thieves", "--pid", &own, "--duration", "1s"], &needs);
    refused(
        place.path(),
        &["host", "record", "--pid", &own, "--duration", "1s", "--write", file.to_str().expect("text")],
        &needs,
    );
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse::<i32>().is_ok_and(|level| level > 0) {
        let needs = ["CAP_PERFMON", "perf_event_paranoid", "host check"];
        refused(place.path(), &["host", "stacks", "--cpus", "0", "--duration", "1s"], &needs);
    } else {
        println!("not run: everyone may sample CPUs here (perf_event_paranoid is {})", paranoid.trim());
    }
}

/// There the probes would see nothing of the process, and say that nothing held it up.
#[test]
fn probes_refuse_ids_of_a_container() {
    if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).ok() != Some(0) {
        return println!("not run: process ids of a container: it takes root");
    }
    let unshared = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_spangap"), "host"])
            .args(arguments)
            .output()
            .expect("unshare starts")
    };
    for verb in ["offcpu", "thieves"] {
        let done = unshared(&[verb, "--pid", "1", "--duration", "100ms"]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && said.contains("hostPID: true"), "{verb}: {said}");
    }
    // Its own ids do no harm where the kernel translates them, or nobody is named.
    let done = unshared(&["check", "--pid", "1", "--for", "100ms"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn check_works_and_reports_what_it_cannot_tell() {
    let Some(place) = place() else { return };
    let done = as_nobody(place.path(), &["host", "check", "--pid", "1", "--for", "100ms", "--json"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("one document");
    let findings = report["findings"].as_array().expect("findings");
    let verdicts: Vec<&str> = findings.iter().filter_map(|finding| finding["verdict"].as_str()).collect();
    assert!(verdicts.contains(&"fine") && verdicts.contains(&"cannot-tell"), "{report:#}");
}

#[test]
fn foreign_sockets_are_neither_shown_nor_set() {
    let Some(place) = place() else { return };
    let own = std::process::id().to_string();
    refused(place.path(), &["sockets", "list", "--pid", &own], &["CAP_SYS_PTRACE"]);
    let done = as_nobody(place.path(), &["sockets", "set", "--pid", &own, "nodelay=on"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
}
