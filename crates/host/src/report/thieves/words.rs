//! Conclusions about thieves in words, with caveats.

use super::{Kind, TakerReport, ThievesReport, WORTH_MENTION, WORTH_MENTION_AT_ONCE_NS};
use crate::probes::cost::Cost;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_model::{Cause, Cpus, Taker};
use spangap_report::figures::{percent, percent_of};
use spangap_report::wrap::{COLUMNS, wrap};

/// Maximum number of thieves named after the first.
const MORE: usize = 3;

/// Closing part of a report.
pub(super) fn in_words(conclusions: &[String], notes: &[String], cost: Option<&Cost>) -> String {
    let mut text = String::from("\nIn words\n");
    for words in conclusions {
        wrap(&mut text, "  ", words, COLUMNS);
    }
    for note in notes {
        wrap(&mut text, "  ", &format!("Note: {note}."), COLUMNS);
    }
    if let Some(cost) = cost {
        text += &format!("    Measurement overhead: {cost}.\n");
    }
    text
}

/// `0-3,8`.
pub(super) fn cpu_list(cpus: impl IntoIterator<Item = u16>) -> String {
    cpus.into_iter().map(u32::from).collect::<Cpus>().to_string()
}

/// The main culprit with its share and cost, and the others worth mention; or that there is none.
pub(super) fn conclusions(report: &ThievesReport) -> Vec<String> {
    let halted =
        report.halted.iter().map(|halted| format!("stopped: {}. {}.", halted.sentence(), halted.remedy()));
    let mut said: Vec<String> = halted.collect();
    if report.threads.is_empty() {
        said.push(format!("No thread of {} ran or waited for a CPU.", report.target));
        return said;
    }
    let mut blamed: Vec<(u64, String)> = Vec::new();
    let mut advised: Vec<&str> = Vec::new();
    for taker in report.takers.iter().filter(|taker| taker.is_worth_mention()) {
        let cause = taker.cause.unwrap_or_default();
        // All takers of one cause have the same remedy.
        let advice = if advised.contains(&cause) { String::new() } else { format!(" {}", advice(taker)) };
        advised.push(cause);
        blamed.push((taker.total_ns, blame(report, taker) + &advice));
    }
    if let Some(steal) = report.causes.iter().find(|cause| cause.cause == Cause::Steal.name()) {
        let words = format!(
            "steal: the hypervisor took {} to {} ({} or more of the time in which {} wanted a CPU). The kernel \
             counts steal per CPU and in ticks, so its place in time is unknown; some of it is included in the time \
             shown as running. Ask \
             whoever runs the hypervisor.",
            format_ns(steal.ns),
            format_ns(report.steal_at_most_ns),
            percent_of(steal.ns, report.wanted_ns),
            report.target
        );
        blamed.push((steal.ns, words));
    }
    blamed.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let more = blamed.len().saturating_sub(1 + MORE);
    said.extend(blamed.into_iter().map(|(_, words)| words).take(1 + MORE));
    if more > 0 {
        said.push(format!("And {more} more worth mentioning; the table has them."));
    }
    if said.is_empty() || (said.len() == report.halted.len() && report.causes.is_empty()) {
        said.push(nobody(report));
    }
    said.extend(report.takers.iter().filter_map(|taker| not_blamed(report, taker)));
    said
}

fn nobody(report: &ThievesReport) -> String {
    let wanted = format_ns(report.wanted_ns);
    let own = [Kind::OwnTask, Kind::OwnSoftirq, Kind::OwnHardirq, Kind::Idle, Kind::Spangap];
    let blamable = report.takers.iter().filter(|taker| !own.contains(&taker.kind));
    let taken: u64 = blamable.clone().map(|taker| taker.total_ns).sum();
    let most = blamable.max_by_key(|taker| taker.total_ns);
    let most = most.map_or(String::new(), |taker| {
        format!(", most of it by {} ({})", taker.name, format_ns(taker.total_ns))
    });
    format!(
        "none: nobody took a significant amount. Of {wanted} in which {} wanted a CPU, others took {} ({}){most}. \
         Significant is {} and {} in all, or {} at once.",
        report.target,
        format_ns(taken),
        percent_of(taken, report.wanted_ns),
        percent(WORTH_MENTION),
        format_ns(report.floor_ns),
        format_ns(WORTH_MENTION_AT_ONCE_NS),
    )
}

fn blame(report: &ThievesReport, taker: &TakerReport) -> String {
    let cause = taker.cause.unwrap_or_default();
    let name = &taker.name;
    let target = &report.target;
    let total = format_ns(taker.total_ns);
    let cost = format!(
        "{} of the {} in which it wanted a CPU",
        percent_of(taker.total_ns, report.wanted_ns),
        format_ns(report.wanted_ns),
    );
    let times = |one: &str, many: &str| match taker.count {
        1 => format!("in one {one}"),
        count => format!("in {} {many}, {} in the longest", grouped(count), format_ns(taker.longest_ns)),
    };
    let cpus = cpu_list(taker.cpus.iter().map(|cpu| cpu.cpu));
    match taker.kind {
        Kind::Quota => {
            format!(
                "{cause}: {target} was out of CPU quota for {total}, {cost} ({}).",
                times("stretch", "stretches")
            )
        }
        Kind::Stop => {
            format!("{cause}: {target} was stopped for {total}, {cost} ({}).", times("stop", "stops"))
        }
        Kind::Softirq | Kind::Hardirq => {
            let split = match (taker.while_running_ns, taker.while_runnable_ns) {
                (_, 0) => "all of it while it nominally ran".into(),
                (0, _) => "all of it while it waited for the CPU".into(),
                (running, runnable) => format!(
                    "{} while it nominally ran, {} while it waited for the CPU",
                    format_ns(running),
                    format_ns(runnable)
                ),
            };
            let times = times("interruption", "interruptions");
            format!("{cause}: {name} took {total} from {target} on CPU {cpus}, {cost} ({times}; {split}).")
        }
        _ => {
            let cgroup = taker.cgroup.as_deref().filter(|path| *path != "/");
            let cgroup = cgroup.map_or(String::new(), |path| format!(" of cgroup {path}"));
            let times = times("wait", "waits");
            format!(
                "{cause}: {name}{cgroup} ran for {total} on CPU {cpus} while {target} waited, {cost} ({times})."
            )
        }
    }
}

fn advice(taker: &TakerReport) -> String {
    match taker.kind {
        Kind::Quota => {
            "Raise the quota (cpu.max, or cpu.cfs_quota_us; a container's CPU limit), or use less CPU at a \
                        time: fewer threads at once."
                .into()
        }
        Kind::Stop => "Look for who sends SIGSTOP, attaches a debugger, or freezes it for a snapshot.".into(),
        Kind::Hardirq if taker.taker == Some(Taker::Timer) => {
            "These are not just ticks: other programs arm timers on these CPUs. Move those programs away from the \
             application's CPUs, or the application away from them."
                .into()
        }
        Kind::Softirq | Kind::Hardirq => {
            let cpus = cpu_list(taker.cpus.iter().map(|cpu| cpu.cpu));
            format!(
                "Move these interrupts away from the application's CPUs (affinity of the irq, RPS), or the application \
                 away from them; `spangap host stacks --cpus {cpus}` shows what they do."
            )
        }
        _ => "Give the application CPUs of its own, or a larger weight.".into(),
    }
}

fn not_blamed(report: &ThievesReport, taker: &TakerReport) -> Option<String> {
    if taker.share < WORTH_MENTION {
        return None;
    }
    let took = format!("{} ({})", format_ns(taker.total_ns), percent_of(taker.total_ns, report.wanted_ns));
    Some(match taker.kind {
        Kind::OwnTask => format!(
            "Its threads got in each other's way for {took}: more of them want to run at once than they have CPUs."
        ),
        Kind::OwnSoftirq => format!(
            "{}, took {took}: what it sends over the loopback is received on its own CPU, within its own time; other \
             packets are for its own sockets.",
            taker.name
        ),
        Kind::OwnHardirq => format!(
            "{} took {took}: the target had asked that device for work, as {} of {} interruptions woke its threads.",
            taker.name,
            grouped(taker.woke),
            grouped(taker.count)
        ),
        Kind::Housekeeping => format!(
            "{} took {took}: the kernel's own work on each CPU, with the target's own timers in it. No affinity \
             setting moves it; nohz_full= and rcu_nocbs= keep ticks and RCU away from chosen CPUs.",
            taker.name
        ),
        Kind::Peer => format!(
            "{} took {took}, {} at most at once: it works with the target, whose threads it woke {} times while it \
             got in their way {} times. They share a CPU and take turns; with separate CPUs they would overlap.",
            taker.name,
            format_ns(taker.longest_ns),
            grouped(taker.woke),
            grouped(taker.count)
        ),
        Kind::Idle => format!(
            "For {took} its CPU was idle although a thread was runnable: the CPU was waking up, a hypervisor ran it \
             late, or the thread was moved there after waiting elsewhere."
        ),
        Kind::Spangap => format!("spangap itself took {took} of it: watch for longer, or fewer events."),
        _ => return None,
    })
}

/// Limitations of the figures.
pub(super) fn notes(report: &ThievesReport, lacks: &[String]) -> Vec<String> {
    let mut notes = Vec::new();
    if report.interrupted {
        notes.push("interrupted: this is what had been seen by then".into());
    }
    if report.events.lost > 0 {
        notes.push(format!(
            "{} events of some CPU were lost: {} of the threads' time is therefore unknown",
            grouped(report.events.lost),
            format_ns(report.did.unknown_ns)
        ));
    }
    if report.events.untold > 0 && report.did.unknown_ns > 0 {
        notes.push(format!(
            "this kernel does not report switches away from certain threads (at least {}): {} of the threads' time \
             is therefore unknown",
            grouped(report.events.untold),
            format_ns(report.did.unknown_ns)
        ));
    }
    if !report.steal.is_empty() {
        let all: u64 = report.steal.iter().map(|cpu| cpu.ns).sum();
        notes.push(format!(
            "the hypervisor took {} from the CPUs, {} to {} of it while these threads ran; it is counted in ticks \
             and cannot be placed in time, so it is included in the running time and the takers' time above",
            format_ns(all),
            format_ns(report.steal_at_least_ns),
            format_ns(report.steal_at_most_ns)
        ));
    }
    let unseen = report.did.unseen_ns;
    if unseen > 0 {
        notes.push(format!(
            "{} of the threads' time lies before they were first seen, or after they were last seen falling asleep",
            format_ns(unseen)
        ));
    }
    if report.takers.iter().any(|taker| taker.kind == Kind::Softirq && taker.is_worth_mention()) {
        notes.push(
            "softirqs are attributed to devices, not to the owners of the packets: some may be the application's \
             own".into(),
        );
    }
    notes.extend(lacks.iter().cloned());
    notes
}
