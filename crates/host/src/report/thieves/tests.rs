use super::*;
use crate::event::Irq;
use crate::names::TaskName;
use crate::report::{thieves_html, thieves_picture, thieves_text};
use crate::thieves::Thieves;
use crate::timeline::Interval;

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

/// Of thread 10, which does these for so many milliseconds each.
fn report(did: &[(u64, Doing, Option<Taker>)], steal_ms: u64) -> ThievesReport {
    const MS: u64 = 1_000_000;
    let mut thieves = Thieves::new(2, 10 * MS);
    let mut from_ns = 0;
    for (ms, doing, taker) in did {
        let to_ns = from_ns + ms * MS;
        thieves.on(10, &Interval { from_ns, to_ns, doing: *doing, taker: *taker, cpu: Some(1) });
        from_ns = to_ns;
    }
    if steal_ms > 0 {
        thieves.steal(1, steal_ms * MS);
    }
    let known = Circumstances {
        target: "web (pid 10)".into(),
        is_own: &|tid| tid == 10 || tid == 11,
        spangap: 30,
        names: &names(),
        began_ns: 0,
        ended_ns: from_ns,
        idle_ns: &|_| 20 * MS,
        unix_ns: &|_| None,
        interrupted: false,
        events: EventsReport::default(),
        cost: None,
        lacks: Vec::new(),
    };
    ThievesReport::new(&thieves.finish(), &known)
}

const fn softirq(device: u32) -> Option<Taker> {
    Some(Taker::Softirq { vector: 3, device })
}

fn culprit(report: &ThievesReport) -> Option<(&str, &str)> {
    report.culprit.as_ref().map(|culprit| (culprit.cause, culprit.name.as_str()))
}

#[test]
fn the_one_who_took_most_is_the_culprit_and_threads_of_one_process_are_one() {
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
    let page = thieves_html::html(&report);
    assert!(page.contains("&lt;b&gt;hog &amp; co") && !page.contains("<b>hog"));
    let picture = thieves_picture::svg(&report);
    assert!(picture.contains("&lt;b&gt;hog &amp; co") && !picture.contains("<b>hog"));
    assert!(
        picture.contains(">runnable behind a task<") && !picture.contains(">out of CPU quota<"),
        "{picture}"
    );
}

#[test]
fn what_is_its_own_or_nobodys_is_shown_and_not_blamed() {
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
    for part in ["none: nobody", "each other's way", "over the loopback", "was idle", "This very program"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn packets_of_the_loopback_that_come_while_it_waits_are_others() {
    let report = report(&[(50, Doing::Running, None), (9, Doing::Runnable, softirq(1))], 0);
    assert_eq!(culprit(&report), Some(("softirq-on-cpu", "NET_RX of lo")));
}

#[test]
fn little_is_not_worth_mention_unless_at_once() {
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

#[test]
fn the_hypervisor_is_blamed_for_what_does_not_fit_into_the_time_of_others() {
    // Idle for 20 of 100 ms: others had the CPU for 40.
    let did = [(40, Doing::Running, None), (60, Doing::Blocked, None)];
    let blamed = report(&did, 70);
    assert_eq!(culprit(&blamed), Some(("steal", "the hypervisor")));
    assert_eq!((blamed.steal_at_least_ns, blamed.steal_at_most_ns), (30_000_000, 40_000_000));
    assert_eq!(blamed.steal, [CpuReport { cpu: 1, ns: 70_000_000 }]);
    let text = thieves_text::text(&blamed);
    assert!(text.contains("steal: the hypervisor took 30.0 ms to 40.0 ms (75 % or more"), "{text}");
    let possible = report(&did, 35);
    assert_eq!(culprit(&possible), None);
    assert_eq!((possible.steal_at_least_ns, possible.steal_at_most_ns), (0, 35_000_000));
}

#[test]
fn a_thread_that_never_ran_is_said_to_be_unseen() {
    let report = report(&[], 0);
    assert_eq!(report.conclusions, ["No thread of web (pid 10) was seen to run or to wait for a CPU."]);
    assert!(report.culprit.is_none());
}
