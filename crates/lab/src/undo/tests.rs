//! Journals, complete and truncated; and real objects created and removed through their journal. What needs
//! root is skipped without it.

use super::MARK;
use super::Undo;
use super::journal::{CreatedObject, Head, Journal};
use super::{UndoReport, clean, keeper};
use proptest::prelude::*;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ID: &str = "0123456789";

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::yield_now();
    }
}

fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not run: it takes root to make namespaces and control groups");
    }
    root
}

/// A killed run: its lock is gone, its journal exists.
fn killed(undo: Undo, state: &Path) {
    let id = undo.id().to_owned();
    let path = state.join(format!("{id}.journal"));
    let text = fs::read(&path).expect("it is there");
    undo.abandon();
    assert_eq!(fs::read(&path).expect("it is still there"), text);
}

fn only(state: &Path) -> UndoReport {
    // A program that another test is just starting holds the lock's descriptor until its exec.
    let mut cleaned = until("a run that nobody has", || {
        let cleaned = clean(state, false).expect("the folder can be read");
        cleaned.going_on.is_empty().then_some(cleaned)
    });
    assert_eq!(cleaned.runs.len(), 1, "{cleaned:?}");
    cleaned.runs.remove(0)
}

fn nothing_left(state: &Path) {
    let again = clean(state, false).expect("the folder can be read");
    assert!(again.runs.is_empty() && again.going_on.is_empty(), "{again:?}");
    assert_eq!(fs::read_dir(state).expect("it is a folder").count(), 0);
}

/// Names with the run's id in them, plus arbitrary characters.
fn made() -> impl Strategy<Value = CreatedObject> {
    let name = "[ -.0-~é\"\\\\]{0,8}".prop_map(|name| format!("{name}{ID}"));
    let path = (name.clone(), "[a-z\"\\\\ é]{1,8}")
        .prop_map(|(name, parent)| PathBuf::from("/").join(parent).join(name));
    prop_oneof![
        name.clone().prop_map(|name| CreatedObject::Namespace { name }),
        name.prop_map(|namespace| CreatedObject::Names { namespace }),
        path.clone().prop_map(|path| CreatedObject::Cgroup { path }),
        path.prop_map(|path| CreatedObject::Folder { path }),
    ]
}

proptest! {
    #[test]
    fn truncated_journal_lists_earlier_objects(
        made in prop::collection::vec(made(), 0..8),
        at in any::<prop::sample::Index>(),
    ) {
        let head = Some(Head { boot_id: "1d11778c-7801-4c02-ba1b-d6584a795ca7".into() });
        let whole = Journal { head, made, ..Journal::default() };
        let text = whole.text();
        let path = PathBuf::from(format!("/x/{ID}.journal"));
        prop_assert_eq!(&Journal::parse(&path, text.as_bytes()).expect("it was written so"), &whole);
        let cut = at.index(text.len() + 1);
        let read = Journal::parse(&path, &text.as_bytes()[..cut]).expect("it is only shorter");
        // A line that lacks only its newline is complete by its checksum; the head has two copies.
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        prop_assert_eq!(read.head.is_some(), cut >= ends[0] / 2);
        let lines = ends[1..].iter().filter(|end| **end <= cut).count();
        prop_assert_eq!(&read.made[..], &whole.made[..lines]);
        prop_assert!(read.damage.is_empty());
    }

    #[test]
    fn damaged_journal_names_no_foreign_object(
        made in prop::collection::vec(made(), 1..5),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let head = Some(Head { boot_id: String::new() });
        let mut bytes = Journal { head, made, ..Journal::default() }.text().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let read = Journal::parse(Path::new(&format!("/x/{ID}.journal")), &bytes).expect("its name is a run's");
        for made in &read.made {
            prop_assert!(made.to_string().contains(ID), "{}", made);
        }
    }
}

#[test]
fn foreign_objects_are_refused_on_write_and_read() {
    let state = tempfile::tempdir().expect("a folder");
    let mut undo = Undo::begin(state.path()).expect("a journal");
    let id = undo.id().to_owned();
    let folder = |path: &str| CreatedObject::Folder { path: path.into() };
    for (made, word) in [
        (folder("/"), "does not contain the id"),
        (folder("/etc"), "does not contain the id"),
        (folder(&format!("tmp/{id}")), "absolute"),
        (folder(&format!("/tmp/../{id}")), "absolute"),
        (CreatedObject::Cgroup { path: "/sys/fs/cgroup".into() }, "does not contain the id"),
        (CreatedObject::Namespace { name: "blue".into() }, "does not contain the id"),
        (CreatedObject::Names { namespace: format!("../{id}") }, "not the name"),
    ] {
        let path = PathBuf::from(format!("/x/{id}.journal"));
        let text = Journal {
            head: Some(Head { boot_id: String::new() }),
            made: vec![made.clone()],
            damage: Vec::new(),
        }
        .text();
        let read = Journal::parse(&path, text.as_bytes()).expect("its name is a run's");
        assert!(read.made.is_empty(), "{read:?}");
        let said = read.lost().next().expect("it is another's").to_string();
        assert!(said.starts_with("line 2, bytes ") && said.contains(word), "{said}");
        let refused = undo.about_to_make(made).expect_err("it is another's").to_string();
        assert!(refused.contains(word), "{refused}");
    }
    undo.everything().expect("there is nothing");
    nothing_left(state.path());
}

#[test]
fn unremovable_objects_stay_in_the_journal() {
    let (state, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut undo = Undo::begin(state.path()).expect("a journal");
    let file = place.path().join("file");
    fs::write(&file, "").expect("it is ours");
    let paths = ["first", "file", "last"].map(|name| place.path().join(name).join(undo.id()));
    for path in &paths {
        undo.about_to_make(CreatedObject::Folder { path: path.clone() }).expect("it is of the run");
    }
    for path in [&paths[0], &paths[2]] {
        fs::create_dir_all(path.join("deep")).expect("it is ours");
    }
    let journal = state.path().join(format!("{}.journal", undo.id()));
    let said = undo.everything().expect_err("a file has no folder inside").to_string();
    assert!(said.contains(&paths[1].display().to_string()) && said.contains("lab clean"), "{said}");
    assert!(!paths[0].exists() && !paths[2].exists() && journal.exists());
    // The same again, with nothing else left to do.
    let undone = only(state.path());
    assert_eq!((undone.left.len(), undone.removed.len()), (1, 0), "{undone:?}");
    fs::remove_file(&file).expect("it is ours");
    fs::create_dir_all(&paths[1]).expect("it is ours");
    let undone = only(state.path());
    assert_eq!((undone.left.len(), undone.removed.len()), (0, 1), "{undone:?}");
    assert!(!paths[1].exists());
    nothing_left(state.path());
}

#[test]
fn readable_part_of_a_damaged_journal_is_removed() {
    let place = tempfile::tempdir().expect("a folder");
    let paths = ["one", "two", "three"].map(|name| place.path().join(name).join(ID));
    let made = paths.iter().map(|path| CreatedObject::Folder { path: path.clone() }).collect();
    let head = Some(Head { boot_id: spangap_machine::facts::boot_id::here().expect("the kernel has one") });
    let whole = Journal { head, made, damage: Vec::new() }.text();
    let ends: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at).collect();
    for at in 0..whole.len() {
        let state = tempfile::tempdir().expect("a folder");
        paths.iter().for_each(|path| fs::create_dir_all(path).expect("it is ours"));
        let journal = state.path().join(format!("{ID}.journal"));
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        fs::write(&journal, &bytes).expect("it is ours");
        let undone = only(state.path());
        let there = paths.iter().filter(|path| path.exists()).count();
        // The line that contains the byte; a single byte of the head or of a newline does not matter.
        let hit = at > ends[0] && !ends.contains(&at);
        assert_eq!(
            (there, undone.unreadable.len()),
            (usize::from(hit), usize::from(hit)),
            "byte {at}: {undone:?}"
        );
        assert!(undone.left.is_empty() && journal.exists() == hit, "byte {at}: {undone:?}");
        if hit {
            assert!(undone.unreadable[0].text.contains("folder") || at < ends[3], "{undone:?}");
            let forgotten = clean(state.path(), true).expect("the folder can be read");
            let aside = forgotten.runs[0].set_aside.clone().expect("it is kept");
            assert_eq!(fs::read(aside).expect("it is there"), bytes);
            assert!(clean(state.path(), false).expect("it can be read").runs.is_empty());
        }
    }
}

#[test]
fn previous_journal_version_is_undone() {
    let (state, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let folder = place.path().join(ID);
    fs::create_dir(&folder).expect("it is ours");
    let head = Head { boot_id: spangap_machine::facts::boot_id::here().expect("the kernel has one") };
    let made = CreatedObject::Folder { path: folder.clone() };
    let [head, made] =
        [serde_json::to_string(&head), serde_json::to_string(&made)].map(|line| line.expect("plain"));
    fs::write(state.path().join(format!("{ID}.journal")), format!("{head}\n{made}\n")).expect("it is ours");
    let undone = only(state.path());
    assert!(undone.left.is_empty() && undone.unreadable.is_empty() && !folder.exists(), "{undone:?}");
    nothing_left(state.path());
}

#[test]
fn continuous_cleaning_never_takes_an_active_journal() {
    let state = tempfile::tempdir().expect("a folder");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let cleaned = clean(state.path(), false).expect("the folder can be read");
                    assert!(cleaned.runs.iter().all(|run| run.left.is_empty()), "{cleaned:?}");
                }
            });
        }
        for _ in 0..50 {
            let mut undo = Undo::begin(state.path()).expect("a journal");
            let path = state.path().join(format!("{}.journal", undo.id()));
            undo.about_to_make(CreatedObject::Folder { path: state.path().join(undo.id()) })
                .expect("it is of the run");
            let text = fs::read(&path).expect("it is there as long as its run");
            assert_eq!(Journal::parse(&path, &text).expect("it is whole").made.len(), 1);
            undo.everything().expect("there is nothing");
            assert!(!path.exists());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    nothing_left(state.path());
}

#[test]
fn a_keeper_waits_for_the_end_of_its_run_and_then_for_the_lock() {
    let state = tempfile::tempdir().expect("a folder");
    let (mut life_line, held) = io::pipe().expect("a pipe");
    let undo = Undo::begin(state.path()).expect("a journal");
    let path = state.path().join(format!("{}.journal", undo.id()));
    let keeping = {
        let path = path.clone();
        std::thread::spawn(move || keeper::keep(&path, &mut life_line))
    };
    drop(held);
    // It may wait for the lock, or not get there before the end: it finds nothing to do either way.
    undo.everything().expect("there is nothing");
    assert!(keeping.join().expect("no panic").expect("no error").is_none());
    // A run that is killed.
    let undo = Undo::begin(state.path()).expect("a journal");
    let path = state.path().join(format!("{}.journal", undo.id()));
    killed(undo, state.path());
    let undone = keeper::keep(&path, io::empty()).expect("no error").expect("it was there");
    assert!(undone.left.is_empty() && !path.exists(), "{undone:?}");
    assert!(keeper::keep(&path, io::empty()).expect("no error").is_none());
}

#[test]
fn journal_of_another_boot_concerns_only_folders() {
    let (state, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let folder = place.path().join(ID);
    fs::create_dir(&folder).expect("it is ours");
    let mut sleeper = marked(ID, &["sleep", "1000"]);
    let head = Some(Head { boot_id: "another".into() });
    // A control group there would be an error, if it were examined.
    let group = PathBuf::from(format!("/proc/self/status/{ID}"));
    let made = vec![CreatedObject::Folder { path: folder.clone() }, CreatedObject::Cgroup { path: group }];
    let text = Journal { head, made, ..Journal::default() }.text();
    fs::write(state.path().join(format!("{ID}.journal")), text).expect("it is ours");
    let undone = only(state.path());
    assert_eq!((undone.left.len(), undone.removed.len(), undone.processes), (0, 1, 0), "{undone:?}");
    assert!(!folder.exists());
    assert!(sleeper.try_wait().expect("it is ours").is_none(), "its id is a process's of this boot");
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("it ends");
    nothing_left(state.path());
}

fn marked(id: &str, words: &[&str]) -> Child {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(MARK, id).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("it starts")
}

fn state_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("gone").trim().to_owned()
}

#[test]
fn processes_that_are_stopped_or_fork_without_end_are_ended() {
    let state = tempfile::tempdir().expect("a folder");
    let undo = Undo::begin(state.path()).expect("a journal");
    let mut stopped = marked(undo.id(), &["sleep", "1000"]);
    let signalled = Command::new("kill").args(["-STOP", &stopped.id().to_string()]).status();
    assert!(signalled.expect("kill is there").success());
    until("stopped", || state_of(stopped.id()).starts_with('T').then_some(()));
    // Each generation ends as soon as it has a child, which is in a session of its own.
    let script = "exec </dev/null; setsid sh -c \"$0\" \"$0\" & exit 0";
    let mut forking = marked(undo.id(), &["sh", "-c", script, script]);
    // Some generations have come and gone.
    forking.wait().expect("the first has a child and ends");
    killed(undo, state.path());
    let undone = only(state.path());
    assert!(undone.left.is_empty() && undone.processes >= 2, "{undone:?}");
    assert!(!stopped.wait().expect("it has ended").success());
    nothing_left(state.path());
    let mut rest = String::new();
    // The pipe of all generations closes when the last one has ended.
    forking.stdout.take().expect("it is piped").read_to_string(&mut rest).expect("an end");
}

#[test]
fn namespace_is_removed_with_its_processes_and_names() {
    if !root() {
        return;
    }
    let state = tempfile::tempdir().expect("a folder");
    let mut undo = Undo::begin(state.path()).expect("a journal");
    let hosts = crate::hosts::Hosts::make(&mut undo).expect("as root");
    let name = hosts.name(spangap_model::Side::Client).to_owned();
    // An observer, without the marker.
    let mut guest = Command::new("ip").args(["netns", "exec", &name, "sleep", "1000"]).spawn().expect("ip");
    let inside = fs::metadata(format!("/run/netns/{name}")).expect("it is there");
    use std::os::unix::fs::MetadataExt;
    until("inside", || {
        let around = fs::metadata(format!("/proc/{}/ns/net", guest.id())).ok()?;
        (around.ino() == inside.ino()).then_some(())
    });
    // One that was being created when the run was killed: a file with nothing mounted.
    let half = format!("lab-{}-half", undo.id());
    undo.about_to_make(CreatedObject::Namespace { name: half.clone() }).expect("it is of the run");
    let half = Path::new("/run/netns").join(half);
    fs::OpenOptions::new().create_new(true).write(true).mode(0o400).open(&half).expect("as root");
    let id = undo.id().to_owned();
    killed(undo, state.path());
    let undone = only(state.path());
    assert!(undone.left.is_empty(), "{undone:?}");
    assert_eq!((undone.removed.len(), undone.processes), (5, 1), "{undone:?}");
    assert!(!guest.wait().expect("it has ended").success());
    for folder in ["/run/netns", "/etc/netns"] {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        let own: Vec<_> = names.filter(|name| name.file_name().to_string_lossy().contains(&id)).collect();
        assert!(own.is_empty(), "{own:?}");
    }
    nothing_left(state.path());
}

#[test]
fn the_namespace_of_the_machine_itself_is_never_emptied() {
    if !root() {
        return;
    }
    let state = tempfile::tempdir().expect("a folder");
    let mut undo = Undo::begin(state.path()).expect("a journal");
    let name = format!("lab-{}-own", undo.id());
    undo.about_to_make(CreatedObject::Namespace { name: name.clone() }).expect("it is of the run");
    // `ip netns attach` names the namespace of a process: here that of this one.
    let own = std::process::id().to_string();
    let attached = Command::new("ip").args(["netns", "attach", &name, &own]).status().expect("ip");
    assert!(attached.success());
    killed(undo, state.path());
    let undone = only(state.path());
    assert_eq!((undone.left.len(), undone.removed.len(), undone.processes), (0, 1, 0), "{undone:?}");
    assert!(!Path::new("/run/netns").join(&name).exists());
    nothing_left(state.path());
}

/// Folders below which control groups of either version can be created, one of them with a freezer.
fn hierarchies() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let freezes = words[2] == "cgroup2" || (words[2] == "cgroup" && words[3].contains("freezer"));
        freezes.then(|| PathBuf::from(words[1]))
    });
    mounts.collect()
}

#[test]
fn frozen_and_nested_control_groups_are_removed() {
    if !root() {
        return;
    }
    let mut made = 0;
    for hierarchy in hierarchies() {
        let state = tempfile::tempdir().expect("a folder");
        let mut undo = Undo::begin(state.path()).expect("a journal");
        let group = hierarchy.join(format!("spangap-lab-{}", undo.id()));
        undo.about_to_make(CreatedObject::Cgroup { path: group.clone() }).expect("it is of the run");
        let deep = group.join("deep");
        if let Err(error) = fs::create_dir_all(&deep) {
            println!("not run: no control group can be made in {}: {error}", hierarchy.display());
            continue;
        }
        // Without the marker: only the group shows that it belongs to the run.
        let mut sleepers = [&group, &deep].map(|group| {
            // A reader of the output does not wait for a process that was left behind.
            let sleeper =
                Command::new("sleep").arg("1000").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            let sleeper = sleeper.expect("it starts");
            fs::write(group.join("cgroup.procs"), sleeper.id().to_string()).expect("as root");
            sleeper
        });
        let freezer = [("freezer.state", "FROZEN"), ("cgroup.freeze", "1")];
        let freezer = freezer.into_iter().find(|(name, _)| group.join(name).exists());
        let Some((file, word)) = freezer else { panic!("{} cannot freeze", group.display()) };
        fs::write(group.join(file), word).expect("as root");
        until("frozen", || {
            let text = fs::read_to_string(group.join("freezer.state"))
                .or_else(|_| fs::read_to_string(group.join("cgroup.events")))
                .expect("it is there");
            (text.trim() == "FROZEN" || text.contains("frozen 1")).then_some(())
        });
        killed(undo, state.path());
        let undone = only(state.path());
        assert!(undone.left.is_empty() && undone.processes == 2, "{undone:?}");
        assert!(!group.exists());
        sleepers.iter_mut().for_each(|sleeper| assert!(!sleeper.wait().expect("it has ended").success()));
        nothing_left(state.path());
        made += 1;
    }
    println!("hierarchies: {made}");
}
