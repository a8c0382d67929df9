//! Plans applied to copies and undone: every file of the copy is as it was, or whatever remains is named.

use crate::{ARTICLE, Copy, assert_same, error, json, spangap, text};
use std::fs;

/// Machines of different shapes, with one interface of each.
const MACHINES: &[(&str, &str)] = &[
    ARTICLE,
    ("amd-ccx", "enp193s0f0np0"),
    ("nic-on-node-1", "eno2"),
    ("nic-without-node", "ens1f0np0"),
    ("no-smt", "enp1s0f0"),
    ("two-nics", "eth0"),
];

#[test]
fn an_applied_plan_is_undone_completely() {
    for machine in MACHINES {
        let copy = Copy::of(*machine);
        let before = copy.tree();
        let applied = copy.applied(&["--no-confirm", "--json"]);
        let report = json(&applied);
        assert_eq!((&report["applied"], report["error"].as_str()), (&true.into(), None), "{machine:?}");
        assert_eq!(report["not_as_written"].as_array().map(Vec::len), Some(0), "{machine:?}: {report:#}");
        assert_ne!(copy.tree(), before, "{machine:?}");
        let back = json(&copy.verb("rollback", &["--json"]));
        assert_eq!(back["outcome"], "restored", "{machine:?}: {back:#}");
        assert_same(&before, &copy.tree(), machine.0);
        assert!(!copy.journal().exists());
        let again = copy.verb("rollback", &[]);
        assert_eq!((again.code, again.out), (Some(0), vec!["Nothing is applied.".to_owned()]));
    }
}

#[test]
fn an_applied_plan_is_undone_after_a_change_of_queues() {
    let copy = Copy::of(ARTICLE);
    copy.plan(ARTICLE.1, &["--queues", "--net-cpus", "2"]);
    let before = copy.tree();
    let report = json(&copy.applied(&["--no-confirm", "--json"]));
    assert_eq!(report["planned_again"], true, "{report:#}");
    assert!(copy.read("/ethtool/eth0").contains("Combined:\t2"), "{}", copy.read("/ethtool/eth0"));
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "queues");
}

#[test]
fn counts_of_changed_read_and_restored_values_agree() {
    let copy = Copy::of(ARTICLE);
    let applied = json(&copy.applied(&["--no-confirm", "--json"]));
    let [changed, already] = ["changed", "already"].map(|key| applied[key].as_u64().expect("a count"));
    let (status, all) = (copy.verb("status", &[]).out.join("\n"), changed + already);
    assert!(status.contains(&format!("{all} of {all} values as written")), "{applied:#}: {status}");
    let back = json(&copy.verb("rollback", &["--json"]));
    let restored = back["rolled_back"]["restored"].as_array().map(|places| places.len() as u64);
    assert_eq!(restored, Some(changed), "{back:#}");
}

#[test]
fn suggested_commands_can_be_pasted() {
    let copy = Copy::of(ARTICLE);
    let applied = copy.applied(&["--confirm-within", "2h"]);
    let root = copy.root();
    for verb in ["verify", "confirm", "rollback"] {
        let command = format!("  spangap isolate {verb} --root {}", text(&root));
        assert!(applied.out.iter().any(|line| line.starts_with(&command)), "{command}: {applied:?}");
    }
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
}

#[test]
fn foreign_changes_are_left_unless_forced() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let files = copy.files_of_plan();
    let (path, old) = &files[0];
    copy.applied(&["--no-confirm"]);
    let applied = copy.tree();
    copy.write(path, "7\n");
    let left = copy.verb("rollback", &[]);
    let said = error(&left);
    assert!(said.contains("rollback --force"), "{said}");
    let line = left.out.iter().find(|line| line.contains(path.as_str())).expect("it is named");
    assert!(line.contains("is \"7\"") && line.contains(old.as_str()), "{line}");
    assert_eq!(copy.read(path), "7\n");
    let mut all_but_one = before.clone();
    all_but_one.insert(copy.real(path), "= 7\n".to_owned());
    assert_same(&all_but_one, &copy.tree(), "left");
    assert!(copy.journal().exists());
    assert_ne!(applied, before);
    // What remains is still the applied plan, so another one has to wait.
    let second = copy.apply(&["--no-confirm"]);
    assert!(error(&second).contains("already applied"), "{second:?}");
    let forced = copy.verb("rollback", &["--force"]);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_same(&before, &copy.tree(), "forced");
    assert!(!copy.journal().exists());
}

#[test]
fn a_second_plan_is_refused() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let both = [copy.start(&["--no-confirm"]), copy.start(&["--no-confirm"])].map(crate::Program::wait);
    let done = both.iter().filter(|ended| ended.code == Some(0)).count();
    assert_eq!(done, 1, "{both:?}");
    let refused = both.iter().find(|ended| ended.code != Some(0)).map(error).expect("one is refused");
    assert!(refused.contains("already applied") && refused.contains("rollback"), "{refused}");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "two");
}

#[test]
fn a_forgotten_plan_stays_in_effect() {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--confirm-within", "2h"]);
    let applied = copy.tree();
    let forgotten = copy.verb("rollback", &["--forget"]);
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    let (path, _) = &copy.files_of_plan()[0];
    assert!(forgotten.out.iter().any(|line| line.contains(path.as_str())), "{forgotten:?}");
    assert_same(&applied, &copy.tree(), "forgotten");
    crate::no_guard(copy.journal().parent().expect("a folder"));
    assert_same(&applied, &copy.tree(), "the guard has nothing to undo");
    assert_eq!(copy.verb("rollback", &[]).out, ["Nothing is applied."]);
}

#[test]
fn nothing_is_undone_after_a_reboot() {
    let copy = Copy::of(ARTICLE);
    copy.applied(&["--no-confirm"]);
    copy.write("/proc/sys/kernel/random/boot_id", "00000000-0000-0000-0000-000000000001\n");
    let applied = copy.tree();
    assert!(error(&copy.verb("confirm", &[])).contains("before this machine's last boot"));
    let second = copy.apply(&["--no-confirm"]);
    assert!(error(&second).contains("plan again"), "{second:?}");
    let back = copy.verb("rollback", &[]);
    assert_eq!(back.code, Some(0), "{back:?}");
    assert!(back.out[0].contains("before this machine's last boot: nothing to undo"), "{back:?}");
    assert_same(&applied, &copy.tree(), "nothing was touched");
    assert!(!copy.journal().exists());
}

#[test]
fn readable_parts_of_a_damaged_journal_are_undone() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    copy.applied(&["--no-confirm"]);
    let applied = copy.tree();
    let whole = fs::read(copy.journal()).expect("it is there");
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    // A byte of the head, of its duplicate, and of every line after them.
    let flips =
        [ends[0] / 4, ends[0] * 3 / 4].into_iter().chain(ends.windows(2).map(|ends| (ends[0] + ends[1]) / 2));
    for at in flips {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(copy.journal(), &damaged).expect("it is ours");
        let back = copy.verb("rollback", &[]);
        // The plan replaces a record, the duplicate replaces the head.
        assert_same(&before, &copy.tree(), &format!("byte {at}: {back:?}"));
        if at < ends[0] {
            assert_eq!((back.code, copy.journal().exists()), (Some(0), false), "byte {at}: {back:?}");
            assert!(back.out.iter().any(|line| line.contains("nothing is lost by it")), "{back:?}");
        } else {
            let line = 1 + ends.iter().filter(|end| **end < at).count();
            assert!(error(&back).contains("the journal is damaged"), "byte {at}: {back:?}");
            let named = format!("  damaged  line {line}, bytes ");
            assert!(back.out.iter().any(|said| said.starts_with(&named)), "byte {at}: {back:?}");
            for verb in ["confirm", "verify"] {
                let said = error(&copy.verb(verb, &[]));
                assert!(
                    said.contains(&format!("is damaged at line {line}, bytes"))
                        || said.contains("it was undone"),
                    "{said}"
                );
            }
            assert!(error(&copy.apply(&["--no-confirm"])).contains("rollback"), "nothing is begun over it");
            let forgotten = copy.verb("rollback", &["--forget", "--json"]);
            let aside = json(&forgotten)["set_aside"].as_str().expect("it is kept").to_owned();
            assert!(fs::read(&aside).expect("it is there").starts_with(&damaged), "{aside}");
            fs::remove_file(aside).expect("it is ours");
        }
        assert_eq!(copy.verb("rollback", &[]).out, ["Nothing is applied."]);
        for (path, text) in &applied {
            if before.get(path) != Some(text) {
                match text.strip_prefix("= ") {
                    Some(text) => fs::write(path, text).expect("it is ours"),
                    None => fs::create_dir_all(path).expect("it is ours"),
                }
            }
        }
        assert_same(&applied, &copy.tree(), "applied again");
    }
    // Nothing at all can be read.
    for damaged in ["{}\n", ""] {
        fs::write(copy.journal(), damaged).expect("it is ours");
        for verb in ["rollback", "confirm"] {
            let said = error(&copy.verb(verb, &[]));
            let place = format!("{} is damaged at line 1, bytes 0 to", copy.journal().display());
            assert!(
                said.contains(&place) && said.contains("rollback --forget"),
                "{verb}: {said}, expected {place}"
            );
        }
        assert!(error(&copy.apply(&["--no-confirm"])).contains("is damaged at line 1"));
        assert_same(&applied, &copy.tree(), "damaged");
        assert_eq!(copy.verb("rollback", &["--forget"]).code, Some(0));
        assert!(!copy.journal().exists());
    }
    fs::write(copy.journal(), &whole).expect("it is ours");
    assert_eq!(copy.verb("rollback", &[]).code, Some(0));
    assert_same(&before, &copy.tree(), "whole again");
}

#[test]
fn a_truncated_journal_is_undone() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    copy.applied(&["--no-confirm"]);
    let applied = copy.tree();
    let whole = fs::read(copy.journal()).expect("it is there");
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for cut in
        ends.iter().step_by(5).flat_map(|end| [*end - 7, *end, *end + 1]).filter(|cut| *cut < whole.len())
    {
        for (path, text) in &applied {
            match text.strip_prefix("= ") {
                Some(text) if before.get(path).is_none_or(|before| before[2..] != *text) => {
                    fs::write(path, text).expect("it is ours");
                }
                None if !text.starts_with("->") => fs::create_dir_all(path).expect("it is ours"),
                _ => {}
            }
        }
        fs::write(copy.journal(), &whole[..cut]).expect("it is ours");
        let back = copy.verb("rollback", &[]);
        assert_eq!(back.code, Some(0), "cut at {cut}: {back:?}");
        assert_same(&before, &copy.tree(), &format!("cut at {cut}: {back:?}"));
    }
}

#[test]
fn values_changed_since_the_plan_are_named() {
    let copy = Copy::of(ARTICLE);
    let (path, old) = copy.files_of_plan().remove(0);
    copy.write(&path, "7\n");
    let said = error(&copy.apply(&["--no-confirm"]));
    let expected = format!("{path} was \"{old}\" when the plan was made, and now is \"7\": plan again");
    assert!(said.starts_with(&expected), "{said}, expected {expected}");
}

#[test]
fn an_outdated_plan_changes_nothing() {
    let copy = Copy::of(ARTICLE);
    let before = copy.tree();
    let whole = fs::read_to_string(copy.plan_path()).expect("it is there");
    let said = |plan: &str| {
        fs::write(copy.plan_path(), plan).expect("it is ours");
        let said = error(&copy.apply(&["--no-confirm"]));
        assert_same(&before, &copy.tree(), &said);
        assert!(!copy.journal().exists(), "{said}");
        said
    };
    let bad = [
        (whole.replacen("isolate plan 1", "isolate plan 99", 1), "isolate plan 99"),
        (whole.replacen("\"boot_id\": \"", "\"boot_id\": \"0", 1), "before this machine's last boot"),
        (whole.replacen("\"net_cpus\"", "\"net_spus\"", 1), "line"),
        (whole[..whole.len() / 2].to_owned(), "line"),
        ("{}".to_owned(), "no \"format\""),
        (whole.replacen("\"eth0\"", "\"eth7\"", 1), "no interface eth7"),
    ];
    for (plan, expected) in &bad {
        let said = said(plan);
        assert!(said.contains(expected), "{said}, expected {expected}");
    }
    let path = text(&copy.plan_path()).to_owned();
    assert!(said("nonsense").contains(&path), "the file is named");
    fs::remove_file(copy.plan_path()).expect("it is ours");
    assert!(error(&copy.apply(&[])).contains(&path));
    let wrong = spangap(&["isolate", "apply", &path, "--root", "/nowhere"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn a_changed_machine_is_planned_again() {
    let copy = Copy::of(ARTICLE);
    let (path, _) = copy.files_of_plan().remove(0);
    copy.write(&path, "9\n");
    let before = copy.tree();
    let said = error(&copy.apply(&["--confirm-within", "2h"]));
    assert!(said.contains(&path) && said.contains("plan again"), "{said}");
    assert_same(&before, &copy.tree(), "nothing was changed");
    assert!(!copy.journal().exists());
    crate::no_guard(copy.journal().parent().expect("a folder"));
}

#[test]
fn a_failed_plan_is_undone_and_both_are_reported() {
    let copy = Copy::of(ARTICLE);
    // No cgroup can be made where a file is.
    copy.write("/sys/fs/cgroup/cpuset/spangap-net", "");
    let before = copy.tree();
    let failed = copy.apply(&["--confirm-within", "2h", "--json"]);
    let said = error(&failed);
    assert!(said.contains("spangap-net: File exists"), "{said}");
    assert!(said.contains("everything is as before"), "{said}");
    let report = json(&failed);
    assert_eq!(report["applied"], false);
    assert!(
        report["rolled_back"]["restored"].as_array().is_some_and(|restored| !restored.is_empty()),
        "{report:#}"
    );
    assert_same(&before, &copy.tree(), "undone");
    assert!(!copy.journal().exists());
    crate::no_guard(copy.journal().parent().expect("a folder"));
}
