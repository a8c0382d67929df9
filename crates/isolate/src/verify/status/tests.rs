use super::*;
use crate::journal::{Entry, Head};
use crate::verify::effect::tests::{made_plan, made_topology};
use std::path::Path;

fn entry(place: Place) -> Entry {
    Entry { place, old: Some("0-3".into()), new: "2".into(), irq: None }
}

fn irq(number: u32) -> Place {
    Place::file(format!("/proc/irq/{number}/smp_affinity_list"))
}

fn journal(records: Vec<Record>, confirm_within_ns: Option<u64>) -> Journal {
    let head = Head {
        format: Head::FORMAT.into(),
        boot_id: "boot".into(),
        net_namespace: None,
        root: None,
        time_unix_ns: 1_000,
        confirm_within_ns,
        plan: made_plan(4, "2-3"),
    };
    Journal::new(head, records)
}

fn status(journal: &Journal, states: &[(Place, State)]) -> Status {
    let standings: Vec<Standing> = states
        .iter()
        .map(|(place, state)| Standing { entry: entry(place.clone()), state: state.clone() })
        .collect();
    let path = Path::new("/var/lib/spangap/isolate/open.journal");
    let now = made_topology(4);
    let open =
        Open { path, journal, standings: &standings, now: &now, guard_alive: true, another_boot: false };
    Status::new(&open)
}

const DONE: Record = Record::Applied { time_unix_ns: 2_000 };

fn moved() -> Vec<(Place, State)> {
    vec![(irq(40), State::Ours), (irq(41), State::Changed { found: "0-3".into() })]
}

#[test]
fn the_states_of_a_plan() {
    let guard = Record::Guard { pid: 7, start_ticks: 9 };
    let confirmed = Record::Confirmed { time_unix_ns: 3_000 };
    let undone = Record::RolledBack { time_unix_ns: 4_000, by: "rollback".into(), left: vec![irq(41)] };
    let of = |records: &[&Record], within| {
        status(&journal(records.iter().copied().cloned().collect(), within), &moved())
    };
    let unfinished = of(&[&guard], Some(500));
    assert_eq!((unfinished.state, unfinished.until_unix_ns), (Applied::Unfinished, Some(1_500)));
    assert_eq!(unfinished.drift, [], "what is not written yet has not drifted");
    let waiting = of(&[&guard, &DONE], Some(500));
    assert_eq!((waiting.state, waiting.guard), (Applied::Waiting, Some(Guard { pid: 7, alive: true })));
    assert_eq!((waiting.drift.len(), waiting.held()), (1, (1, 2)));
    let plain = of(&[&DONE], None);
    assert_eq!((plain.state, plain.until_unix_ns, plain.guard), (Applied::Applied, None, None));
    let stays = of(&[&guard, &DONE, &confirmed], Some(500));
    assert_eq!((stays.state, stays.until_unix_ns, stays.guard), (Applied::Confirmed, None, None));
    let left = of(&[&DONE, &undone], None);
    assert_eq!((left.state, left.drift.len()), (Applied::RolledBack, 0));
    assert_eq!(left.rolled_back.unwrap().left, [irq(41)]);
    let nothing = Status::nothing(Some(&journal(vec![DONE, undone], None)));
    let whole = Record::RolledBack { time_unix_ns: 4_000, by: "guard".into(), left: Vec::new() };
    let put_away = Status::nothing(Some(&journal(vec![DONE, whole.clone()], None)));
    assert_eq!(of(&[&DONE, &whole], None), put_away, "no second event when the journal is put away");
    assert_eq!((nothing.state, nothing.rolled_back.unwrap().by.as_str()), (Applied::Nothing, "rollback"));
}

#[test]
fn another_boot_keeps_nothing() {
    let (journal, now) = (journal(vec![DONE], None), made_topology(4));
    let standings = [Standing { entry: entry(irq(40)), state: State::Before }];
    let path = Path::new("/j");
    let open = Open {
        path,
        journal: &journal,
        standings: &standings,
        now: &now,
        guard_alive: false,
        another_boot: true,
    };
    let status = Status::new(&open);
    assert_eq!((status.state, status.drift.len(), status.held()), (Applied::AnotherBoot, 0, (0, 0)));
}

#[test]
fn parts_are_counted_by_the_plan_or_by_what_they_are() {
    let thread = |comm: &str| Place::Affinity { tid: 1, start_ticks: 1, comm: comm.into() };
    let places = [
        (irq(40), Part::Irqs),
        (Place::file("/sys/class/net/eth0/queues/rx-0/rps_cpus"), Part::Steering),
        (Place::file("/proc/sys/net/core/rps_sock_flow_entries"), Part::Steering),
        (Place::file("/sys/fs/cgroup/x/cpuset.cpus"), Part::Cpusets),
        (thread("napi/eth0-1"), Part::Steering),
        (thread("server"), Part::Tasks),
        (Place::Queues { interface: "eth0".into() }, Part::Queues),
        (Place::BannedIrqs, Part::Irqbalance),
    ];
    let mut plan = made_plan(4, "2-3");
    for (place, part) in &places {
        assert_eq!(part_of(&plan, place), *part, "{place}");
    }
    plan.changes[0].place = irq(40);
    assert_eq!(part_of(&plan, &irq(40)), Part::Cpusets, "the plan says so");
    let refused = Record::Refused { place: irq(42), why: "Input/output error".into() };
    let gone = (Place::Group { path: "/sys/fs/cgroup/x".into() }, State::Gone);
    let status = status(&journal(vec![refused, DONE], None), &[moved(), vec![gone]].concat());
    let irqs =
        PartStanding { part: Part::Irqs, held: 1, before: 0, changed: 1, gone: 0, unknown: 0, refused: 1 };
    let sets =
        PartStanding { part: Part::Cpusets, held: 0, before: 0, changed: 0, gone: 1, unknown: 0, refused: 0 };
    assert_eq!(status.parts, [irqs, sets]);
    let unknown = State::Unknown { why: "permission denied".into() };
    let status = super::tests::status(&journal(vec![DONE], None), &[(irq(40), unknown)]);
    assert_eq!(status.unreadable, [Refused { place: irq(40), why: "permission denied".into() }]);
    assert_eq!((status.drifted(), status.held()), (false, (0, 1)));
}

#[test]
fn changes_are_reported_once() {
    let journal = journal(vec![DONE], Some(500));
    let held = status(&journal, &[(irq(40), State::Ours), (irq(41), State::Ours)]);
    let drifted = status(&journal, &moved());
    assert_eq!(events(&held, &held, 5), []);
    let told = events(&held, &drifted, 5);
    assert_eq!((told.len(), told[0].event, told[0].time_unix_ns), (1, "drift", 5));
    assert!(
        told[0].words.starts_with("/proc/irq/41/smp_affinity_list is \"0-3\", was set to \"2\": "),
        "{told:?}"
    );
    assert_eq!(events(&drifted, &drifted, 6), []);
    let again = events(&drifted, &held, 7);
    assert_eq!((again.len(), again[0].event), (1, "held_again"));
    let undone = events(&drifted, &Status::nothing(None), 8);
    assert_eq!(
        (undone.len(), undone[0].event),
        (1, "nothing"),
        "what is undone does not hold again: {undone:?}"
    );
    let mut came = held.clone();
    came.came.push("/sys/fs/cgroup/cpuset/docker/abc".into());
    assert_eq!(events(&held, &came, 9)[0].event, "cgroup_came");
    let guarded = |alive| Status { guard: Some(Guard { pid: 7, alive }), ..held.clone() };
    assert_eq!(events(&guarded(true), &guarded(false), 9)[0].event, "guard_ended");
    assert_eq!(events(&Status::nothing(None), &held, 9)[0].event, "applied");
}
