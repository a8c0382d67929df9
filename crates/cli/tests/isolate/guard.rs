//! Without a confirmation, a process that outlives the tool undoes everything; with one, the changes stay.

use crate::{ARTICLE, Copy, assert_same, error, guards, json, no_guard, signal, until};
use std::fs;
use std::path::PathBuf;

fn journals(copy: &Copy) -> PathBuf {
    copy.journal().parent().expect("a folder").to_owned()
}

#[test]
fn an_unconfirmed_plan_is_undone() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    copy.applied(&["--confirm-within", "1s"]);
    until("put aside", || (!copy.journal().exists()).then_some(()));
    assert_same(&before, &copy.tree(), "guard");
    assert!(copy.last_journal().contains("guard: not confirmed in time"), "{}", copy.last_journal());
    let late = error(&copy.verb("confirm", &[]));
    assert!(late.contains("undone by guard: not confirmed in time"), "{late}");
    no_guard(&journals(&copy));
    // Nothing prevents the next plan.
    copy.applied(&["--no-confirm"]);
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "again");
}

#[test]
fn a_confirmed_plan_stays_until_it_is_undone() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let report = json(&copy.applied(&["--confirm-within", "2h", "--json"]));
    let applied = copy.tree();
    let guards = guards(&journals(&copy));
    assert_eq!(report["guard_pid"].as_u64(), guards.first().map(|pid| u64::from(*pid)), "{report:#}");
    assert_eq!(report["confirm_within_ns"].as_u64(), Some(7_200_000_000_000));
    let confirmed = copy.verb("confirm", &["--json"]);
    assert_eq!((confirmed.code, &json(&confirmed)["already"]), (Some(0), &false.into()), "{confirmed:?}");
    no_guard(&journals(&copy));
    assert_same(&applied, &copy.tree(), "confirmed");
    assert_eq!(json(&copy.verb("confirm", &["--json"]))["already"], true);
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "undone");
    assert!(error(&copy.verb("confirm", &[])).contains("undone by rollback"));
}

#[test]
fn a_plan_confirmed_while_the_guard_is_stopped_stays() {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--confirm-within", "2h"]);
    let applied = copy.tree();
    let guard = guards(&journals(&copy))[0];
    signal(guard, "STOP");
    assert_eq!(copy.verb("confirm", &[]).code, Some(0));
    signal(guard, "CONT");
    no_guard(&journals(&copy));
    assert_same(&applied, &copy.tree(), "confirmed");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
}

#[test]
fn a_guard_undoes_only_its_own_plan() {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--confirm-within", "2h"]);
    let first = guards(&journals(&copy))[0];
    signal(first, "STOP");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    copy.applied(&["--no-confirm"]);
    let applied = copy.tree();
    signal(first, "CONT");
    no_guard(&journals(&copy));
    assert_same(&applied, &copy.tree(), "another plan");
    assert!(copy.journal().exists());
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
}

#[test]
fn rollback_works_after_the_guard_is_killed() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    copy.applied(&["--confirm-within", "2h"]);
    signal(guards(&journals(&copy))[0], "KILL");
    no_guard(&journals(&copy));
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "killed");
}

#[test]
fn the_guard_depends_on_neither_terminal_nor_folder_nor_tool() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    // Started from a folder that is removed right afterwards.
    let folder = tempfile::tempdir().expect("a folder");
    let (plan, root) = (copy.plan_path(), copy.root());
    let applied = std::process::Command::new(env!("CARGO_BIN_EXE_spangap"))
        .args(["isolate", "apply"])
        .arg(plan)
        .args(["--confirm-within", "2h", "--root"])
        .arg(root)
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    assert!(applied.status.success(), "{applied:?}");
    drop(folder);
    let guard = guards(&journals(&copy))[0];
    let stat = fs::read_to_string(format!("/proc/{guard}/stat")).expect("it is there");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let (parent, session, terminal) = (fields[1], fields[3], fields[4]);
    assert_eq!(
        (session, terminal),
        (guard.to_string().as_str(), "0"),
        "a session of its own, without a terminal"
    );
    assert_ne!(parent, std::process::id().to_string(), "its parent is gone");
    assert_eq!(fs::read_link(format!("/proc/{guard}/cwd")).expect("it is there"), PathBuf::from("/"));
    signal(guard, "HUP");
    no_guard(&journals(&copy));
    assert_same(&before, &copy.tree(), "undone");
}
