use super::*;
use crate::event::{Irq, Sleep, Waker, Woken};
use crate::halted::How;
use crate::names::TaskName;
use crate::thieves::Thieves;
use crate::timeline;
use spangap_model::evidence::{Finding, Proof, Scope};

fn names() -> Names {
    let mut names = Names::default();
    for (tid, tgid, comm) in [
        (10, 10, "web"),
        (11, 10, "web-io"),
        (20, 20, "<b>hog & co"),
        (21, 20, "hog thread"),
        (30, 30, "spangap"),
    ] {
        let comm = comm.to_string();
        names.told_task(0, tid, TaskName { comm, tgid, ..TaskName::default() });
    }
    names.told_device(1, 0, b"lo\0");
    names.told_device(2, 0, b"eth0\0");
    names
}

/// A report on thread 10, whose activities last this many milliseconds each.
fn report(did: &[(u64, Doing, Option<Taker>)], steal_ms: u64) -> ThievesReport {
    const MS: u64 = 1_000_000;
    let mut thieves = Thieves::new(2, 10 * MS);
    let mut from_ns = 0;
    for (ms, doing, taker) in did {
        let to_ns = from_ns + ms * MS;
        thieves.on(10, &timeline::Interval { from_ns, to_ns, doing: *doing, taker: *taker, cpu: Some(1) });
        from_ns = to_ns;
    }
    if steal_ms > 0 {
        thieves.steal(1, steal_ms * MS);
    }
    let names = names();
    let known = Circumstances { ended_ns: from_ns, ..circumstances(&names, &|tid| tid == 10 || tid == 11) };
    ThievesReport::new(&thieves.finish(), &known)
}

fn circumstances<'a>(names: &'a Names, is_own: &'a dyn Fn(Tid) -> bool) -> Circumstances<'a> {
    Circumstances {
        target: "web (pid 10)".into(),
        is_own,
        spangap: 30,
        names,
        began_ns: 0,
        ended_ns: 0,
        idle_ns: &|_| 20_000_000,
        unix_ns: &|_| None,
        interrupted: false,
        events: EventsReport::default(),
        cost: None,
        lacks: Vec::new(),
        halted: Vec::new(),
    }
}

const fn softirq(device: u32) -> Option<Taker> {
    Some(Taker::Softirq { vector: 3, device, own: false })
}

fn culprit(report: &ThievesReport) -> Option<(&str, &str)> {
    report.culprit.as_ref().map(|culprit| (culprit.cause, culprit.name.as_str()))
}

#[test]
fn largest_process_is_the_culprit() {
    let report = report(
        &[
            (50, Doing::Running, None),
            (3, Doing::Runnable, Some(Taker::Task(20))),
            (50, Doing::Running, None),
            (4, Doing::Runnable, Some(Taker::Task(21))),
            (50, Doing::Running, None),
            (5, Doing::Interrupted, softirq(2)),
        ],
        0,
    );
    assert_eq!(culprit(&report), Some(("run-queue", "<b>hog & co (pid 20)")));
    let causes: Vec<&str> = report.causes.iter().map(|cause| cause.cause).collect();
    assert_eq!(causes, ["run-queue", "softirq-on-cpu"]);
    assert_eq!((report.takers[0].count, report.takers[0].longest_ns), (2, 4_000_000));
    assert_eq!(report.takers[1].name, "NET_RX of eth0");
    let page = page::ThievesPage::new(&report);
    assert_eq!(page.takers[0].name, "<b>hog & co (pid 20)");
    assert_eq!(page.takers[0].blamed_for, Some("run-queue"));
    let drawn: u64 = page.windows[0].pieces.iter().map(|piece| piece.ns).sum();
    assert_eq!(drawn, page.windows[0].duration_ns);
    let picture = picture::svg(&report);
    assert!(picture.contains("&lt;b&gt;hog &amp; co") && !picture.contains("<b>hog"));
    assert!(
        picture.contains(">runnable behind a task<") && !picture.contains(">out of CPU quota<"),
        "{picture}"
    );
}

#[test]
fn own_and_idle_takers_are_shown_but_not_blamed() {
    let report = report(
        &[
            (50, Doing::Running, None),
            (9, Doing::Runnable, Some(Taker::Task(11))),
            (8, Doing::Interrupted, softirq(1)),
            (7, Doing::Runnable, Some(Taker::Task(0))),
            (6, Doing::Runnable, Some(Taker::Task(30))),
        ],
        0,
    );
    assert_eq!(culprit(&report), None);
    assert!(report.causes.is_empty());
    let kinds: Vec<Kind> = report.takers.iter().map(|taker| taker.kind).collect();
    assert_eq!(kinds, [Kind::OwnTask, Kind::OwnSoftirq, Kind::Idle, Kind::Spangap]);
    let words = report.conclusions.join("\n");
    for part in ["none: nobody", "each other's way", "over the loopback", "was idle", "spangap itself"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn loopback_packets_during_a_wait_belong_to_others() {
    let report = report(&[(50, Doing::Running, None), (9, Doing::Runnable, softirq(1))], 0);
    assert_eq!(culprit(&report), Some(("softirq-on-cpu", "NET_RX of lo")));
}

#[test]
fn small_takers_are_omitted_unless_at_once() {
    let hog = Some(Taker::Task(20));
    let timer = Some(Taker::Hardirq(Irq::Timer));
    let little =
        report(&[(500, Doing::Running, None), (5, Doing::Runnable, hog), (4, Doing::Interrupted, timer)], 0);
    assert_eq!(culprit(&little), None);
    assert!(
        little.conclusions[0].contains("others took 9.00 ms (1.8 %), most of it by <b>hog & co (pid 20)")
    );
    let at_once = report(&[(5000, Doing::Running, None), (10, Doing::Runnable, hog)], 0);
    assert_eq!(culprit(&at_once), Some(("run-queue", "<b>hog & co (pid 20)")));
}

/// A thread that is almost idle loses a large share of next to nothing to any other thread.
#[test]
fn an_idle_process_has_no_thief() {
    let hog = Some(Taker::Task(20));
    let idle = [(1, Doing::Running, None), (1, Doing::Runnable, hog), (4000, Doing::Blocked, None)];
    let idle = report(&idle, 0);
    assert_eq!(culprit(&idle), None);
    assert!(idle.causes.is_empty() && idle.floor_ns == 4_002_000, "{}", idle.floor_ns);
    assert!(idle.conclusions[0].contains("4.00 ms in all"), "{:?}", idle.conclusions);
    let busy =
        report(&[(100, Doing::Running, None), (5, Doing::Runnable, hog), (3895, Doing::Blocked, None)], 0);
    assert_eq!(culprit(&busy), Some(("run-queue", "<b>hog & co (pid 20)")));
}

#[test]
fn housekeeping_is_shown_but_not_blamed() {
    let housekeeping = [
        (100, Doing::Running, None),
        (5, Doing::Interrupted, Some(Taker::Hardirq(Irq::Timer))),
        (100, Doing::Running, None),
        (9, Doing::Interrupted, Some(Taker::Softirq { vector: 9, device: 0, own: false })),
        (100, Doing::Running, None),
        (7, Doing::Interrupted, Some(Taker::Hardirq(Irq::Call))),
    ];
    let report = report(&housekeeping, 0);
    assert_eq!(culprit(&report), None);
    assert!(report.takers.iter().all(|taker| taker.kind == Kind::Housekeeping), "{:?}", report.takers);
    let words = report.conclusions.join(" ");
    assert!(words.contains("RCU took 9.00 ms") && words.contains("nohz_full"), "{words}");
}

#[test]
fn timers_beyond_ticks_are_blamed() {
    let names = names();
    let one = [(1, Doing::Running, None), (1, Doing::Interrupted, Some(Taker::Hardirq(Irq::Timer)))];
    // 500 a second are ticks, 50,000 are not.
    let report = report(&one.repeat(200), 0);
    assert_eq!(culprit(&report), None);
    let mut thieves = Thieves::new(2, 1_000_000);
    let mut from_ns = 0;
    for at in 0..20_000 {
        let doing = if at % 2 == 0 { Doing::Running } else { Doing::Interrupted };
        let taker = (doing == Doing::Interrupted).then_some(Taker::Hardirq(Irq::Timer));
        thieves.on(10, &timeline::Interval { from_ns, to_ns: from_ns + 10_000, doing, taker, cpu: Some(1) });
        from_ns += 10_000;
    }
    let known = Circumstances { ended_ns: from_ns, ..circumstances(&names, &|tid| tid == 10) };
    let report = ThievesReport::new(&thieves.finish(), &known);
    assert_eq!(culprit(&report), Some(("softirq-on-cpu", "timer")));
    assert!(report.conclusions[0].contains("other programs arm timers"), "{:?}", report.conclusions);
}

#[test]
fn cooperating_process_is_not_a_thief() {
    let turns =
        [(3, Doing::Running, None), (1, Doing::Runnable, Some(Taker::Task(20))), (1, Doing::Blocked, None)];
    let names = names();
    let judged = |wakes: u64, longest_ms: u64| {
        let mut thieves = Thieves::new(2, 10_000_000);
        let mut from_ns = 0;
        let longest = [(longest_ms, Doing::Runnable, Some(Taker::Task(21))), (1, Doing::Blocked, None)];
        for (ms, doing, taker) in turns.repeat(20).into_iter().chain(longest) {
            let to_ns = from_ns + ms * 1_000_000;
            thieves.on(10, &timeline::Interval { from_ns, to_ns, doing, taker, cpu: Some(1) });
            from_ns = to_ns;
        }
        let sleep = Sleep { stack: None, uninterruptible: false, as_for_a_lock: false };
        for _ in 0..wakes {
            thieves.woken(&Woken { tid: 10, since_ns: 0, sleep, by: Waker::Task(21) });
        }
        let known = Circumstances { ended_ns: from_ns, ..circumstances(&names, &|tid| tid == 10) };
        ThievesReport::new(&thieves.finish(), &known)
    };
    let peer = judged(20, 1);
    assert_eq!(culprit(&peer), None);
    assert_eq!((peer.takers[0].kind, peer.takers[0].woke), (Kind::Peer, 20));
    assert!(peer.conclusions.join(" ").contains("it works with the target"), "{:?}", peer.conclusions);
    // Takers that never woke it, and those that kept the CPU, are thieves.
    assert_eq!(judged(0, 1).takers[0].kind, Kind::Task);
    assert!(culprit(&judged(0, 1)).is_some() && culprit(&judged(20, 50)).is_some());
}

#[test]
fn packets_for_its_own_sockets_are_its_own_on_any_interface() {
    let own = Some(Taker::Softirq { vector: 3, device: 2, own: true });
    let report = report(
        &[(50, Doing::Running, None), (9, Doing::Interrupted, own), (9, Doing::Interrupted, softirq(2))],
        0,
    );
    assert_eq!(culprit(&report), Some(("softirq-on-cpu", "NET_RX of eth0")));
    let kinds: Vec<(Kind, u64)> = report.takers.iter().map(|taker| (taker.kind, taker.total_ns)).collect();
    assert_eq!(kinds, [(Kind::Softirq, 9_000_000), (Kind::OwnSoftirq, 9_000_000)]);
}

#[test]
fn steal_that_exceeds_other_tasks_time_is_blamed() {
    // Idle for 20 of 100 ms: others had the CPU for 40.
    let did = [(40, Doing::Running, None), (60, Doing::Blocked, None)];
    let blamed = report(&did, 70);
    assert_eq!(culprit(&blamed), Some(("steal", "the hypervisor")));
    assert_eq!((blamed.steal_at_least_ns, blamed.steal_at_most_ns), (30_000_000, 40_000_000));
    assert_eq!(blamed.steal, [CpuReport { cpu: 1, ns: 70_000_000 }]);
    let text = text::text(&blamed);
    assert!(text.contains("steal: the hypervisor took 30.0 ms to 40.0 ms (75 % or more"), "{text}");
    let possible = report(&did, 35);
    assert_eq!(culprit(&possible), None);
    assert_eq!((possible.steal_at_least_ns, possible.steal_at_most_ns), (0, 35_000_000));
}

#[test]
fn thread_that_never_ran_is_reported_as_unseen() {
    let report = report(&[], 0);
    assert_eq!(report.conclusions, ["No thread of web (pid 10) ran or waited for a CPU."]);
    assert!(report.culprit.is_none());
}

#[test]
fn blamed_takers_are_findings_and_cleared_ones_are_not() {
    let report = report(
        &[
            (50, Doing::Running, None),
            (9, Doing::Runnable, Some(Taker::Task(11))),
            (5, Doing::Runnable, Some(Taker::Task(21))),
            (7, Doing::Interrupted, softirq(2)),
            (3, Doing::Runnable, softirq(2)),
            (8, Doing::Interrupted, softirq(1)),
            (4, Doing::Throttled, None),
        ],
        0,
    );
    let found: Vec<(Cause, Option<u64>)> =
        report.evidence.findings.iter().map(|finding| (finding.culprit.cause, finding.cost_ns)).collect();
    const MS: u64 = 1_000_000;
    let expected = [(Cause::SoftirqOnCpu, 10 * MS), (Cause::RunQueue, 5 * MS), (Cause::CpuQuota, 4 * MS)];
    assert_eq!(found, expected.map(|(cause, ns)| (cause, Some(ns))));
    let stretch = |doing, taker, ns| Proof::Stretch { side: None, doing, taker, ns };
    let eth0 = Named::Softirq { vector: "NET_RX".into(), device: Some("eth0".into()) };
    let hog = Named::Task { tid: 20, pid: Some(20), name: Some("<b>hog & co".into()) };
    let proofs: Vec<Proof> =
        report.evidence.findings.iter().flat_map(|finding| finding.proofs.clone()).collect();
    let expected = [
        stretch(Doing::Runnable, Some(eth0.clone()), 3 * MS),
        stretch(Doing::Interrupted, Some(eth0), 7 * MS),
        stretch(Doing::Runnable, Some(hog), 5 * MS),
        stretch(Doing::Throttled, None, 4 * MS),
    ];
    assert_eq!(proofs, expected);
    let scope = Scope::Process { pid: 10, name: "web".into() };
    assert!(report.evidence.findings.iter().all(|finding| finding.scope == scope && finding.is_shown()));
}

#[test]
fn steal_costs_its_lower_bound_and_a_halt_the_whole_measurement() {
    let did = [(40, Doing::Running, None), (60, Doing::Blocked, None)];
    let [steal] = <[Finding; 1]>::try_from(report(&did, 70).evidence.findings).unwrap();
    assert_eq!((steal.culprit.cause, steal.cost_ns), (Cause::Steal, Some(30_000_000)));
    assert!(report(&did, 35).evidence.findings.is_empty());
    let halted = |whole_look_ns| Halted {
        pid: 10,
        name: "web".into(),
        how: How::Stopped,
        threads: 2,
        of_threads: 2,
        whole_look_ns,
    };
    let names = names();
    let of = |whole_look_ns| {
        let known = Circumstances {
            ended_ns: 5_000,
            halted: vec![halted(whole_look_ns)],
            events: EventsReport { received: 7, lost: 2, untold: 1 },
            unix_ns: &|mono_ns| Some(1_000_000 + mono_ns as i64),
            lacks: vec!["no steal".into()],
            ..circumstances(&names, &|tid| tid == 10)
        };
        ThievesReport::new(&Thieves::new(2, 1_000).finish(), &known).evidence
    };
    let testimony = of(Some(5_000));
    let [stopped] = testimony.findings.as_slice() else { panic!("{testimony:?}") };
    assert_eq!((stopped.culprit.cause, stopped.cost_ns), (Cause::Stopped, Some(5_000)));
    assert!(of(None).findings.is_empty(), "it went on meanwhile");
    let [coverage] = testimony.coverage.as_slice() else { panic!("one look") };
    assert_eq!((coverage.seen, coverage.lost, coverage.source.as_str()), (7, 3, "web (pid 10)"));
    assert_eq!(coverage.when, Some(Interval { from_unix_ns: 1_000_000, to_unix_ns: 1_005_000 }));
    assert!(coverage.cannot.contains(&"no steal.".to_owned()), "{:?}", coverage.cannot);
}
