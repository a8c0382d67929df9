//! Whatever happens between the first write and the last, a rollback restores everything.

use super::*;
use crate::journal::{Folder, Head, Journal, KillPoint, Lock, Record, head};
use crate::kernel::modelled::{Act, Modelled, State, generated};
use crate::plan::Policy;
use crate::rollback::{RolledBack, rollback};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A journal in a folder of its own.
struct Disk {
    _temp: tempfile::TempDir,
    folder: Folder,
    lock: Lock,
}

impl Disk {
    fn new() -> Disk {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::new(temp.path());
        let lock = folder.lock().unwrap();
        Disk { _temp: temp, folder, lock }
    }

    fn begin(&self, plan: &Plan) -> Writer {
        self.folder.begin(&self.lock, &Head { plan: plan.clone(), ..head() }).unwrap()
    }

    fn journal(&self) -> Journal {
        self.folder.open().unwrap().unwrap().1
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("open.journal")).unwrap()
    }

    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.folder.path().join("open.journal"), bytes).unwrap();
    }

    fn undo(&self, kernel: &Modelled) -> RolledBack {
        let journal = self.journal();
        self.folder.append(&self.lock).unwrap().write(&[Record::Undoing]).unwrap();
        rollback(kernel, &journal, false, &mut |_| {})
    }
}

fn planned(state: &State, policy: &Policy) -> Option<Plan> {
    Plan::new(&Modelled::new(state.clone()).topology(), policy).ok()
}

fn run(kernel: &Modelled, plan: &Plan, writer: &mut Writer) -> Result<Applied, ApplyError> {
    apply(kernel, plan, writer, &|| false, &mut |_| {})
}

/// The observable state; the affinity once requested for a thread is not observable.
fn seen(state: &State) -> State {
    let mut state = state.clone();
    state.tasks.values_mut().for_each(|task| task.asked = None);
    state
}

/// The state without what a driver resets for renumbered interrupts: numbers, names and affinities.
fn but_new_interrupts(state: &State, plan: &Plan) -> State {
    let mut state = seen(state);
    if state.flavour.renumbers {
        for change in &plan.changes {
            if let Place::Queues { interface } = &change.place {
                state.irqs.retain(|_, irq| !matches!(&irq.queue, Some((of, _)) if of == interface));
            }
        }
    }
    state
}

fn same(plan: &Plan, before: &State, after: &State) -> Result<(), TestCaseError> {
    let (before, after) = (but_new_interrupts(before, plan), but_new_interrupts(after, plan));
    prop_assert_eq!(&before.groups, &after.groups);
    prop_assert_eq!(&before.tasks, &after.tasks);
    prop_assert_eq!(&before.irqs, &after.irqs);
    prop_assert_eq!(before, after);
    Ok(())
}

/// Runs it up to the point where the process is killed, if at all.
fn killed<T>(it: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(it)).ok()
}

/// A machine after its plan was applied, with the journal.
fn applied(state: &State, plan: &Plan) -> (Modelled, Disk) {
    let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
    // What a refusal leaves half-applied must be undone as well.
    let _ = run(&kernel, plan, &mut disk.begin(plan));
    (kernel, disk)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn rollback_restores_everything((state, policy) in generated()) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
        // What a refusal leaves half-applied must be undone as well.
        let applied = run(&kernel, &plan, &mut disk.begin(&plan));
        let undone = disk.undo(&kernel);
        prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "{:?}", undone);
        same(&plan, &state, &kernel.snapshot())?;
        let queues = plan.changes.iter().any(|change| matches!(change.place, Place::Queues { .. }));
        if let (Ok(applied), false) = (&applied, queues) {
            prop_assert_eq!(undone.restored.len() as u64, applied.changed, "{:?} {:?}", applied, undone);
        }
        let (writes, once) = (kernel.writes.get(), kernel.snapshot());
        disk.undo(&kernel);
        prop_assert_eq!(kernel.writes.get(), writes, "the second time there is nothing to do");
        prop_assert_eq!(kernel.snapshot(), once);
    }

    #[test]
    fn applied_plan_clears_the_networks_cpus((state, policy) in generated()) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (kernel, disk) = (Modelled::new(state), Disk::new());
        let applied = match run(&kernel, &plan, &mut disk.begin(&plan)) {
            Ok(applied) => applied,
            // All its queues are managed.
            Err(ApplyError::NoInterrupt { .. }) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let after = kernel.snapshot();
        if policy.cpusets {
            for task in after.tasks.values().filter(|task| !task.kernel) {
                prop_assert!(task.allowed.both(&plan.net_cpus).is_empty(), "{:?}", task);
            }
        }
        for interface in &policy.interfaces {
            let irqs = after.irqs.values().filter(|irq| matches!(&irq.queue, Some((of, _)) if of == interface));
            for irq in irqs.filter(|irq| !irq.managed) {
                prop_assert!(irq.affinity.without(&plan.net_cpus).is_empty(), "{:?}", irq);
            }
        }
        // A plan for the current state contains only the refused changes.
        let places: Vec<_> = applied.refused.iter().map(|(place, _)| place.clone()).collect();
        let again = applied.plan.after_queues(&kernel.topology());
        let left = again.iter().flat_map(|plan| &plan.changes).filter(|change| !places.contains(&change.place));
        let left: Vec<_> = left.filter(|change| !matches!(change.place, Place::Tasks { .. })).collect();
        prop_assert!(left.is_empty(), "{:?}", left);
    }

    #[test]
    fn interrupts_moved_by_irqbalance_need_no_new_plan(
        (state, policy) in generated(),
        cpu in any::<prop::sample::Index>(),
    ) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let told = plan.changes.iter().any(|change| change.part == Part::Irqbalance);
        if !told || plan.planned_again_after_queues {
            return Ok(());
        }
        let kernel = Modelled::new(state);
        let cpus: Vec<u32> = plan.app_cpus.iter().collect();
        let to = cpu.get(&cpus).to_string();
        for change in plan.changes.iter().filter(|change| change.part == Part::Irqs) {
            let Place::File { path } = &change.place else { continue };
            kernel.act(&Act::Write { path: path.clone(), text: to.clone() });
        }
        let (before, disk) = (kernel.snapshot(), Disk::new());
        match run(&kernel, &plan, &mut disk.begin(&plan)) {
            Ok(_) => {}
            Err(ApplyError::NoInterrupt { .. }) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        for irq in kernel.snapshot().irqs.values().filter(|irq| !irq.managed) {
            let ours = irq.queue.as_ref().is_some_and(|(of, _)| policy.interfaces.contains(of));
            prop_assert!(!ours || irq.affinity.without(&plan.net_cpus).is_empty(), "{:?}", irq);
        }
        disk.undo(&kernel);
        same(&plan, &before, &kernel.snapshot())?;
    }

    #[test]
    fn stale_plan_writes_nothing((state, policy) in generated(), which: prop::sample::Index) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let wandering = plan.changes.iter().any(|change| change.part == Part::Irqbalance);
        let files = plan.changes.iter().filter(|change| {
            matches!(&change.place, Place::File { .. })
                && change.from.is_some()
                && change.place.in_group().is_none()
                && !(wandering && change.place.irq().is_some())
        });
        let files: Vec<_> = files.collect();
        if files.is_empty() {
            return Ok(());
        }
        let changed = which.get(&files);
        let kernel = Modelled::new(state);
        let Place::File { path } = &changed.place else { return Ok(()) };
        kernel.act(&Act::Write { path: path.clone(), text: changed.to.clone() });
        if kernel.get(&changed.place)? == changed.from {
            // A managed interrupt stays.
            return Ok(());
        }
        let before = kernel.snapshot();
        let disk = Disk::new();
        let error = run(&kernel, &plan, &mut disk.begin(&plan)).unwrap_err();
        prop_assert!(matches!(&error, ApplyError::Stale { place, .. } if *place == changed.place), "{}", error);
        prop_assert_eq!(kernel.snapshot(), before);
        prop_assert_eq!((kernel.writes.get(), disk.journal().records.len()), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn killed_at_any_write_it_can_be_undone((state, policy) in generated()) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (whole, _) = applied(&state, &plan);
        for at in 0..=whole.writes.get() {
            let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
            kernel.killed_at.set(Some(at));
            killed(|| run(&kernel, &plan, &mut disk.begin(&plan)));
            kernel.killed_at.set(None);
            let undone = disk.undo(&kernel);
            prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "at {}: {:?}", at, undone);
            same(&plan, &state, &kernel.snapshot())?;
        }
    }

    #[test]
    fn killed_at_any_line_of_the_journal_it_can_be_undone((state, policy) in generated(), bytes in 0..2000_usize) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        for after in 0.. {
            let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
            let mut writer = disk.begin(&plan);
            writer.dies = Some(KillPoint { after, bytes });
            let whole = killed(|| run(&kernel, &plan, &mut writer)).is_some();
            let undone = disk.undo(&kernel);
            prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "after {}: {:?}", after, undone);
            same(&plan, &state, &kernel.snapshot())?;
            if whole {
                break;
            }
        }
    }

    #[test]
    fn rollback_killed_at_any_write_can_be_repeated((state, policy) in generated(), half in 0..40_u64) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        // After a complete execution as well as after a killed one.
        for applied_until in [None, Some(half)] {
            let (whole, disk) = (Modelled::new(state.clone()), Disk::new());
            whole.killed_at.set(applied_until);
            killed(|| run(&whole, &plan, &mut disk.begin(&plan)));
            whole.killed_at.set(None);
            let middle = whole.snapshot();
            whole.writes.set(0);
            disk.undo(&whole);
            for at in 0..whole.writes.get() {
                let kernel = Modelled::new(middle.clone());
                kernel.killed_at.set(Some(at));
                prop_assert!(killed(|| disk.undo(&kernel)).is_none(), "it ends at write {}", at);
                kernel.killed_at.set(None);
                let undone = disk.undo(&kernel);
                prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "at {}: {:?}", at, undone);
                same(&plan, &state, &kernel.snapshot())?;
            }
        }
    }

    #[test]
    fn foreign_changes_are_left_and_reported((state, policy) in generated(), which: prop::sample::Index) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (kernel, disk) = applied(&state, &plan);
        let journal = disk.journal();
        let other = |entry: &crate::journal::Entry| {
            let text = match entry.place.form() {
                crate::place::Form::List => "0",
                crate::place::Form::Mask => "1",
                crate::place::Form::Text => return None,
            };
            // An older kernel resets a thread's affinity, no matter who set it.
            if let Place::Affinity { tid, .. } = &entry.place
                && (!state.flavour.keeps_pinned || state.effective(&state.tasks[tid].group).len() == 1)
            {
                return None;
            }
            let is = |value: &str| entry.place.same(value, text);
            let held = entry.old.as_ref() == Some(&entry.new);
            let taken = held || entry.old.as_deref().is_none_or(is) || is(&entry.new);
            (!taken && entry.place.in_group().is_none()).then(|| (entry.place.clone(), text))
        };
        // A queue's values vanish with it when the number of queues is restored.
        let places: Vec<_> = journal.entries().filter_map(other).collect();
        if places.is_empty() || plan.planned_again_after_queues {
            return Ok(());
        }
        let (place, text) = which.get(&places);
        if kernel.set(place, text).is_err() {
            return Ok(());
        }
        let theirs = kernel.get(place)?;
        let undone = disk.undo(&kernel);
        prop_assert_eq!(undone.left.len(), 1, "{:?}", undone);
        prop_assert_eq!(&undone.left[0].entry.place, place);
        prop_assert_eq!(kernel.get(place)?, theirs.clone());
        // Everything else is as before.
        let before = Modelled::new(state.clone());
        before.set(place, text).unwrap();
        same(&plan, &before.snapshot(), &kernel.snapshot())?;
        // They are overwritten if requested.
        let undone = rollback(&kernel, &journal, true, &mut |_| {});
        prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "{:?}", undone);
        same(&plan, &state, &kernel.snapshot())?;
    }

    #[test]
    fn new_containers_are_narrowed_and_restored(
        (state, policy) in generated(),
        come in prop::collection::vec((any::<prop::sample::Index>(), 0..40_u64), 1..4),
    ) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let parents: Vec<String> = state.groups.keys().cloned().collect();
        let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
        let before = Modelled::new(state.clone());
        for (at, (below, write)) in come.iter().enumerate() {
            let come = Act::Container { below: below.get(&parents).clone(), name: format!("new-{at}") };
            kernel.act_at(*write, come.clone());
            before.act(&come);
        }
        let done = run(&kernel, &plan, &mut disk.begin(&plan));
        let after = kernel.snapshot();
        if policy.cpusets && done.is_ok() {
            for task in after.tasks.values().filter(|task| !task.kernel) {
                prop_assert!(task.allowed.both(&plan.net_cpus).is_empty(), "{:?}", task);
            }
        }
        let undone = disk.undo(&kernel);
        prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "{:?}", undone);
        let (after, before) = (kernel.snapshot(), before.snapshot());
        for (name, group) in &after.groups {
            prop_assert_eq!(group, &before.groups[name], "{}", name);
        }
        let mut known = after.clone();
        known.groups.retain(|name, _| !name.contains("new-"));
        known.tasks.retain(|_, task| !task.comm.contains("new-"));
        same(&plan, &state, &known)?;
    }

    #[test]
    fn tasks_and_containers_come_and_go(
        (state, policy) in generated(),
        acts in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u32, 0..40_u64), 1..5),
    ) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
        let (tids, groups): (Vec<u32>, Vec<String>) =
            (state.tasks.keys().copied().collect(), state.groups.keys().skip(1).cloned().collect());
        for (at, (which, kind, write)) in acts.iter().enumerate() {
            let act = match kind {
                0 => Act::Fork { of: *which.get(&tids), child: 5000 + at as u32 },
                1 => Act::Exit { tid: *which.get(&tids) },
                _ if groups.is_empty() => continue,
                _ => Act::Gone { group: which.get(&groups).clone() },
            };
            kernel.act_at(*write, act);
        }
        let done = run(&kernel, &plan, &mut disk.begin(&plan));
        if policy.cpusets && done.is_ok() {
            for task in kernel.snapshot().tasks.values().filter(|task| !task.kernel) {
                // A child of a pinned thread inherits its parent's CPUs, and nobody knows about it.
                let pinned_before = task.asked.is_some();
                prop_assert!(pinned_before || task.allowed.both(&plan.net_cpus).is_empty(), "{:?}", task);
            }
        }
        let undone = disk.undo(&kernel);
        prop_assert!(undone.left.is_empty() && undone.failed.is_empty(), "{:?}", undone);
        // Every task that still exists is as before.
        let after = kernel.snapshot();
        for (tid, task) in seen(&after).tasks.iter().filter(|(tid, _)| **tid < 5000) {
            prop_assert_eq!(task, &seen(&state).tasks[tid]);
        }
        for (name, group) in &after.groups {
            prop_assert_eq!(group, &state.groups[name]);
        }
        prop_assert!(!after.tasks.values().any(|task| task.group.contains("spangap")));
    }
}

#[test]
fn most_generated_machines_have_a_plan() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut plans, mut changes, mut queues) = (0, 0, 0);
    for _ in 0..200 {
        let (state, policy) = generated().new_tree(&mut runner).unwrap().current();
        let kernel = Modelled::new(state.clone());
        assert_eq!(kernel.topology().pinned, state.pinned(), "{}", state.render());
        if let Some(plan) = planned(&state, &policy) {
            plans += 1;
            changes += plan.changes.len();
            queues += usize::from(plan.planned_again_after_queues);
        }
    }
    assert!(
        plans > 120 && changes > 5 * plans && queues > 10,
        "{plans} plans, {changes} changes, {queues} with queues"
    );
}

#[test]
fn container_created_at_any_time_leaves_the_networks_cpus() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut tried = 0;
    for _ in 0..60 {
        let (state, policy) = generated().new_tree(&mut runner).unwrap().current();
        let Some(plan) = planned(&state, &policy).filter(|_| policy.cpusets) else { continue };
        let writes = {
            let kernel = Modelled::new(state.clone());
            if run(&kernel, &plan, &mut Disk::new().begin(&plan)).is_err() {
                continue;
            }
            kernel.writes.get()
        };
        for write in 0..writes {
            let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
            kernel.act_at(write, Act::Container { below: "/".into(), name: "new".into() });
            if run(&kernel, &plan, &mut disk.begin(&plan)).is_err() {
                continue;
            }
            tried += 1;
            for task in kernel.snapshot().tasks.values().filter(|task| !task.kernel) {
                let theirs = task.allowed.both(&plan.net_cpus);
                assert!(theirs.is_empty(), "before write {write} of {writes}: {task:?}");
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn another_boot_and_a_stop() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (state, plan) = std::iter::repeat_with(|| generated().new_tree(&mut runner).unwrap().current())
        .find_map(|(state, policy)| Some((state.clone(), planned(&state, &policy)?)))
        .unwrap();
    let (kernel, disk) = (Modelled::new(state.clone()), Disk::new());
    let other = Plan { boot_id: "another".into(), ..plan.clone() };
    let mut writer = disk.begin(&plan);
    assert!(matches!(run(&kernel, &other, &mut writer), Err(ApplyError::OtherBoot)));
    let stopped = apply(&kernel, &plan, &mut writer, &|| kernel.writes.get() == 3, &mut |_| {});
    assert!(matches!(stopped, Err(ApplyError::Interrupted)), "{stopped:?}");
    assert_eq!(kernel.writes.get(), 3);
    // After a reboot no value is as it was written, and nothing is touched.
    let later = |id: &str| {
        kernel.state.borrow_mut().files.insert("/proc/sys/kernel/random/boot_id".into(), id.into())
    };
    later("another");
    let undone = disk.undo(&kernel);
    assert!(undone.other_boot && undone.restored.is_empty());
    assert_eq!(kernel.writes.get(), 3);
    later("boot");
    disk.undo(&kernel);
    assert_eq!(seen(&kernel.snapshot()), seen(&state));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn damaged_journal_is_undone_except_for_reported_parts((state, policy) in generated(), bit in 0..8_u32, begin in 0..11_usize) {
        let Some(plan) = planned(&state, &policy) else { return Ok(()) };
        let (whole, disk) = applied(&state, &plan);
        let (middle, bytes) = (whole.snapshot(), disk.bytes());
        let records = disk.journal().records;
        let queues = plan.changes.iter().any(|change| matches!(change.place, Place::Queues { .. }));
        let undone = |bytes: &[u8]| {
            disk.put(bytes);
            let (kernel, journal) = (Modelled::new(middle.clone()), disk.journal());
            let undone = rollback(&kernel, &journal, false, &mut |_| {});
            (kernel.snapshot(), undone, journal)
        };
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        let mut lost = 0;
        for at in (first + begin..bytes.len()).step_by(11) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            disk.put(&bytes);
            let journal = disk.journal();
            if journal.records == records {
                prop_assert!(journal.is_whole(), "byte {}", at);
                continue;
            }
            // Every other damaged byte of a line costs the same line.
            let line = journal.lost().next().map(|damage| damage.line);
            if line == Some(lost) {
                continue;
            }
            lost = line.unwrap();
            let (after, undone, journal) = undone(&bytes);
            prop_assert!(!undone.is_complete() && undone.unreadable == journal.damage, "byte {}", at);
            // The plan holds the old values of lost records, except for renumbered interrupts.
            if !queues {
                for (number, irq) in &after.irqs {
                    prop_assert_eq!(&irq.affinity, &state.irqs[number].affinity, "byte {} of {:?}", at, undone);
                }
            }
        }
        for cut in first..bytes.len() {
            if cut > first + 1 && bytes[cut - 1] != b'\n' {
                continue;
            }
            let (after, undone, _) = undone(&bytes[..cut]);
            if !queues {
                for (number, irq) in &after.irqs {
                    prop_assert_eq!(&irq.affinity, &state.irqs[number].affinity, "cut at {} of {:?}", cut, undone);
                }
            }
        }
    }
}
