//! Plans applied to copies of machines and undone: every file is as before, whenever that happens.

use spangap_isolate::apply::apply;
use spangap_isolate::journal::{Folder, Head, Record};
use spangap_isolate::kernel::{Kernel, Live, PlaceError, WriteEffects};
use spangap_isolate::place::Place;
use spangap_isolate::plan::{IrqbalancePolicy, NetCpus, Plan, Policy};
use spangap_isolate::rollback::rollback;
use spangap_isolate::topology::Topology;
use spangap_machine::{Host, Kept};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A copy, and every file in it.
struct Copy {
    name: String,
    folder: tempfile::TempDir,
}

impl Copy {
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut waiting = vec![self.folder.path().to_owned()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    // An empty folder is a difference, too.
                    files.insert(path.clone(), Vec::new());
                    waiting.push(path);
                } else if kind.is_file() {
                    files.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        files
    }
}

/// The machines of `fixtures/isolate`, each in a folder.
fn copies() -> Vec<Copy> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate");
    let mut copies = Vec::new();
    for entry in fs::read_dir(fixtures).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = fs::read_to_string(path.join("machine.txt")) else { continue };
        let folder = tempfile::tempdir().unwrap();
        Kept::parse(&text).unwrap().write_below(folder.path()).unwrap();
        copies.push(Copy { name: path.file_name().unwrap().to_string_lossy().into_owned(), folder });
    }
    copies
}

/// Policies that together cover everything that can be changed in a copy.
fn policies(topology: &Topology) -> Vec<Policy> {
    let device = topology.interfaces.iter().filter(|interface| interface.lower.is_empty());
    let mut policies = Vec::new();
    for interface in device {
        for (queues, cpusets) in [(false, true), (true, true), (false, false)] {
            policies.push(Policy {
                interfaces: vec![interface.name.clone()],
                net_cpus: NetCpus::Auto,
                queues,
                cpusets,
                irqbalance: IrqbalancePolicy::Ban,
            });
        }
    }
    policies
}

fn head(plan: &Plan) -> Head {
    Head {
        format: Head::FORMAT.into(),
        boot_id: plan.boot_id.clone(),
        net_namespace: None,
        root: None,
        time_unix_ns: 0,
        confirm_within_ns: None,
        plan: plan.clone(),
    }
}

/// A copy whose writer is killed before one of the writes.
struct Killed {
    live: Live,
    left: Cell<u64>,
}

impl Kernel for Killed {
    fn files(&self) -> Host {
        self.live.files()
    }

    fn topology(&self) -> Topology {
        Kernel::topology(&self.live)
    }

    fn get(&self, place: &Place) -> Result<Option<String>, PlaceError> {
        self.live.get(place)
    }

    fn set(&self, place: &Place, text: &str) -> Result<WriteEffects, PlaceError> {
        match self.left.get() {
            0 => std::panic::resume_unwind(Box::new("killed")),
            left => self.left.set(left - 1),
        }
        self.live.set(place, text)
    }
}

#[test]
fn every_file_is_as_before() {
    let mut plans = 0;
    for copy in copies() {
        let live = Live::copy(copy.folder.path());
        let before = copy.files();
        for policy in policies(&live.topology()) {
            let Ok(plan) = Plan::new(&live.topology(), &policy) else { continue };
            plans += 1;
            let temp = tempfile::tempdir().unwrap();
            let folder = Folder::new(temp.path());
            let lock = folder.lock().unwrap();
            let mut writer = folder.begin(&lock, &head(&plan)).unwrap();
            let applied = apply(&live, &plan, &mut writer, &|| false, &mut |_| {});
            let applied = applied.unwrap_or_else(|error| panic!("{} {policy:?}: {error}", copy.name));
            assert!(applied.changed > 0 || plan.changes.is_empty(), "{} {policy:?}: {applied:?}", copy.name);
            let journal = folder.open().unwrap().unwrap().1;
            let undone = rollback(&live, &journal, false, &mut |_| {});
            assert!(
                undone.left.is_empty() && undone.failed.is_empty(),
                "{} {policy:?}: {undone:?}",
                copy.name
            );
            assert_eq!(copy.files(), before, "{} {policy:?}", copy.name);
        }
    }
    assert!(plans >= 20, "{plans} plans");
}

#[test]
fn killed_at_any_write_every_file_is_as_before() {
    let copies = copies();
    let copy = copies.iter().find(|copy| copy.name == "article-2x24x2").unwrap();
    let live = Live::copy(copy.folder.path());
    let before = copy.files();
    let policy = policies(&live.topology()).swap_remove(0);
    let plan = Plan::new(&live.topology(), &policy).unwrap();
    for left in 0.. {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::new(temp.path());
        let lock = folder.lock().unwrap();
        let mut writer = folder.begin(&lock, &head(&plan)).unwrap();
        let kernel = Killed { live: live.clone(), left: Cell::new(left) };
        let apply =
            std::panic::AssertUnwindSafe(|| apply(&kernel, &plan, &mut writer, &|| false, &mut |_| {}));
        let whole = std::panic::catch_unwind(apply).is_ok();
        let journal = folder.open().unwrap().unwrap().1;
        assert!(
            journal.entries().count() >= plan.changes.len() - 1,
            "all is recorded before the first write"
        );
        // The rollback is killed half-way, too, and repeated.
        kernel.left.set(left / 2);
        let undo = std::panic::AssertUnwindSafe(|| rollback(&kernel, &journal, false, &mut |_| {}));
        let _ = std::panic::catch_unwind(undo);
        folder.append(&lock).unwrap().write(&[Record::Undoing]).unwrap();
        let undone = rollback(&live, &folder.open().unwrap().unwrap().1, false, &mut |_| {});
        assert!(undone.left.is_empty() && undone.failed.is_empty(), "{left}: {undone:?}");
        assert_eq!(copy.files(), before, "killed before write {left}");
        if whole {
            assert!(left > 20, "the plan has {left} writes");
            break;
        }
    }
}
