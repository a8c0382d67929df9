//! Cost of a plan: CPUs taken from applications, the load of the network's CPUs, and whether there are too few
//! or too many of them.

use super::counter_deltas::{CounterDeltas, total_ticks};
use super::effect::keeps_applications_off;
use crate::plan::Plan;
use crate::topology::CpuLoad;
use serde::Serialize;
use spangap_model::Cpus;
use spangap_model::count::grouped;
use spangap_report::figures::{counted, small_percent};

/// From this share of time in interrupts and softirqs on, a CPU has too little headroom: at this load, queueing
/// makes a job take about five times its service time (`1 / (1 - busy)`), and there is no room for bursts.
pub const FULL: f64 = 0.8;
/// Share of NET_RX runs that stopped with packets left: an occasional one is harmless, one in a hundred is a
/// recurring burst.
pub const SQUEEZED: f64 = 0.01;
/// If every CPU of the network is below this, half of them would suffice, even for bursts of ten times the
/// load.
pub const IDLE: f64 = 0.05;
/// One CPU above this next to another below [`UNUSED`] means that packets are not spread.
pub const LOADED: f64 = 0.5;
/// See [`LOADED`]; also the bound for idle CPUs while applications lack CPUs.
pub const UNUSED: f64 = 0.1;
/// From this share of their CPUs' time on, applications wait for CPUs.
pub const SQUEEZED_APPS: f64 = 0.9;
/// The normal deviate that leaves 2.5 % on each side.
const DEVIATE: f64 = 1.96;

/// Cost of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// CPUs of the network.
    pub net_cpus: Cpus,
    /// Whether they are taken from applications; without cpusets, applications may still run there.
    pub taken: bool,
    /// Number of CPUs of the machine.
    pub cpus: usize,
    /// Share of all CPUs taken from applications.
    pub taken_ratio: f64,
    /// Load of each of them.
    pub load: Vec<CpuBusy>,
    /// The CPU busiest with interrupts and softirqs; `None` if unknown.
    pub busiest: Option<CpuBusy>,
    /// Its headroom; `None` if unknown.
    pub headroom_ratio: Option<f64>,
    /// Average load of the applications' CPUs.
    pub apps_busy_ratio: Option<f64>,
    /// Length of the observation.
    pub seconds: Option<f64>,
    /// Suggested changes.
    pub findings: Vec<Suggestion>,
    /// CPUs without figures, and why.
    pub unknown: Vec<String>,
}

/// Load of a CPU of the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuBusy {
    pub cpu: u32,
    /// Share of its time in interrupts and softirqs.
    pub busy_ratio: f64,
    /// Error of that share: the kernel counts in ticks, and where it samples at ticks, a short observation is a
    /// small sample.
    pub busy_plus_minus: f64,
    /// Share of its time running tasks, including `ksoftirqd`.
    pub tasks_ratio: f64,
    /// Share of its time taken by the hypervisor.
    pub steal_ratio: f64,
    /// Packets dropped because the backlog was full.
    pub backlog_dropped: u64,
    /// Times that NET_RX stopped with packets left.
    pub time_squeeze: u64,
    /// Runs of NET_RX.
    pub net_rx: u64,
}

/// A suggested change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// Stable name, `too-few-net-cpus`.
    pub finding: &'static str,
    /// Whether it costs calls time; otherwise it is a remark.
    pub matters: bool,
    /// A sentence with the figures.
    pub summary: String,
    /// Possible remedy.
    pub help: String,
}

/// Computes the cost.
pub fn cost(plan: &Plan, since: &CounterDeltas) -> Cost {
    let mut unknown = Vec::new();
    let mut known = |cpu: u32| match since.cpu(cpu).map(|load| CpuBusy::new(&load)) {
        Ok(Some(busy)) => Some(busy),
        Ok(None) => {
            unknown.push(format!("CPU {cpu}: no time passed"));
            None
        }
        Err(why) => {
            unknown.push(format!("CPU {cpu}: {why}"));
            None
        }
    };
    let load: Vec<CpuBusy> = plan.net_cpus.iter().filter_map(&mut known).collect();
    let all_known = load.len() == plan.net_cpus.len();
    if since.stands_still {
        unknown = vec!["how busy they are: on a copy nothing runs".into()];
    }
    let busiest = load.iter().copied().max_by(|one, other| one.busy_ratio.total_cmp(&other.busy_ratio));
    let apps: Vec<CpuBusy> =
        plan.app_cpus.iter().filter_map(|cpu| CpuBusy::new(&since.cpu(cpu).ok()?)).collect();
    let apps_busy_ratio = (!apps.is_empty()).then(|| {
        apps.iter().map(|cpu| (cpu.busy_ratio + cpu.tasks_ratio).min(1.0)).sum::<f64>() / apps.len() as f64
    });
    let cpus = plan.net_cpus.len() + plan.app_cpus.len();
    let headroom_ratio = busiest
        .filter(|_| all_known)
        .map(|busiest| (1.0 - busiest.busy_ratio - busiest.steal_ratio).max(0.0));
    let taken = keeps_applications_off(plan);
    let mut cost = Cost {
        net_cpus: plan.net_cpus.clone(),
        taken,
        cpus,
        taken_ratio: if taken { plan.net_cpus.len() as f64 / cpus.max(1) as f64 } else { 0.0 },
        load,
        busiest,
        headroom_ratio,
        apps_busy_ratio,
        seconds: since.seconds(),
        findings: Vec::new(),
        unknown,
    };
    cost.findings = findings(&cost, all_known);
    cost
}

impl CpuBusy {
    /// `None` if no time passed.
    fn new(load: &CpuLoad) -> Option<CpuBusy> {
        let all = total_ticks(load);
        if all == 0 {
            return None;
        }
        let share = |ticks: u64| ticks as f64 / all as f64;
        let busy_ratio = share(load.irq_ticks.saturating_add(load.softirq_ticks));
        // Both counters are truncated to whole ticks, and a tick that hits a softirq counts in full.
        let sampled = DEVIATE * (busy_ratio * (1.0 - busy_ratio) / all as f64).sqrt();
        Some(CpuBusy {
            cpu: load.cpu,
            busy_ratio,
            busy_plus_minus: sampled.max(2.0 / all as f64).min(1.0),
            tasks_ratio: share(load.tasks_ticks),
            steal_ratio: share(load.steal_ticks),
            backlog_dropped: load.backlog_dropped,
            time_squeeze: load.time_squeeze,
            net_rx: load.net_rx,
        })
    }

    fn squeezed(&self) -> bool {
        self.time_squeeze as f64 > SQUEEZED * self.net_rx as f64
    }

    /// `83 % (+- 4 %)`.
    pub fn words(&self) -> String {
        format!("{} (+- {})", small_percent(self.busy_ratio), small_percent(self.busy_plus_minus))
    }
}

fn findings(cost: &Cost, all_known: bool) -> Vec<Suggestion> {
    let mut findings = Vec::new();
    let Some(busiest) = cost.busiest else { return findings };
    let mut why = Vec::new();
    if busiest.busy_ratio >= FULL {
        why.push(format!("CPU {} is busy {} with interrupts and softirqs", busiest.cpu, busiest.words()));
    }
    let dropped = cost.load.iter().fold(0_u64, |all, cpu| all.saturating_add(cpu.backlog_dropped));
    if dropped > 0 {
        why.push(format!("{} dropped because a backlog was full", counted(dropped, "packet")));
    }
    if let Some(cpu) = cost.load.iter().find(|cpu| cpu.squeezed()) {
        let (left, runs) = (grouped(cpu.time_squeeze), grouped(cpu.net_rx));
        why.push(format!(
            "NET_RX had to stop with packets left in the queue {left} times in {runs} runs on CPU {}",
            cpu.cpu
        ));
    }
    if !why.is_empty() {
        findings.push(Suggestion {
            finding: "too-few-net-cpus",
            matters: true,
            summary: why.join("; "),
            help: "plan again with more of them (`--net-cpus N`), and as many queues (`--queues`)".into(),
        });
    }
    let least = cost.load.iter().min_by(|one, other| one.busy_ratio.total_cmp(&other.busy_ratio));
    if let Some(least) = least.filter(|least| busiest.busy_ratio >= LOADED && least.busy_ratio < UNUSED) {
        findings.push(Suggestion {
            finding: "uneven",
            matters: true,
            summary: format!(
                "CPU {} is busy {}, CPU {} only {}",
                busiest.cpu,
                busiest.words(),
                least.cpu,
                least.words()
            ),
            help: "fewer queues than CPUs (`ethtool -l IF`, `plan --queues`), or connections that the card's hash puts on \
                   one queue (`ethtool -x IF`)"
                .into(),
        });
    }
    if !all_known {
        return findings;
    }
    // One core is the minimum.
    if cost.load.len() > 2 && busiest.busy_ratio < IDLE && why.is_empty() {
        findings.push(Suggestion {
            finding: "too-many-net-cpus",
            matters: false,
            summary: format!(
                "none of the {} is busy more than {} of this time",
                cost.load.len(),
                small_percent(busiest.busy_ratio)
            ),
            help: "if it stays so under the highest load, fewer would do (`--net-cpus N`)".into(),
        });
    }
    if let Some(apps) = cost
        .apps_busy_ratio
        .filter(|apps| cost.taken && *apps >= SQUEEZED_APPS && busiest.busy_ratio < UNUSED)
    {
        findings.push(Suggestion {
            finding: "apps-squeezed",
            matters: true,
            summary: format!(
                "the CPUs of applications are busy {}, those of the network at most {}",
                small_percent(apps),
                small_percent(busiest.busy_ratio)
            ),
            help: "applications need CPUs that the network does not: plan again with fewer (`--net-cpus N`), or \
            roll back"
                .into(),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::effect::tests::{made_plan, made_topology};
    use proptest::prelude::*;

    /// One second of each CPU: irq and softirq ticks, task ticks.
    fn looked(loads: &[(u32, u64, u64)]) -> CounterDeltas {
        let before = made_topology(4);
        let mut after = before.clone();
        for (cpu, busy, tasks) in loads {
            let load = &mut after.load[*cpu as usize];
            load.irq_ticks += busy / 4;
            load.softirq_ticks += busy - busy / 4;
            load.tasks_ticks += tasks;
            load.idle_ticks += 100 - busy - tasks;
            load.net_rx += 1_000;
        }
        CounterDeltas::new(Some(&before), &after)
    }

    fn names(cost: &Cost) -> Vec<&'static str> {
        cost.findings.iter().map(|finding| finding.finding).collect()
    }

    #[test]
    fn thresholds_on_both_sides() {
        let plan = made_plan(4, "2-3");
        let found = |loads: &[(u32, u64, u64)]| names(&cost(&plan, &looked(loads)));
        let quiet = |two: u64, three: u64, apps: u64| {
            found(&[(0, 0, apps), (1, 0, apps), (2, two, 0), (3, three, 0)])
        };
        assert_eq!(quiet(40, 79, 10), [""; 0]);
        assert_eq!(quiet(40, 80, 10), ["too-few-net-cpus"]);
        assert_eq!(quiet(10, 50, 10), [""; 0]);
        assert_eq!(quiet(9, 50, 10), ["uneven"]);
        assert_eq!(quiet(9, 49, 10), [""; 0]);
        assert_eq!(quiet(9, 9, 89), [""; 0]);
        assert_eq!(quiet(9, 9, 90), ["apps-squeezed"]);
        assert_eq!(quiet(10, 10, 90), [""; 0]);
        assert_eq!(quiet(1, 1, 10), [""; 0], "one core is the least");
        let plan = made_plan(4, "1-3");
        let found =
            |busy| names(&cost(&plan, &looked(&[(0, 0, 0), (1, busy, 0), (2, busy, 0), (3, busy, 0)])));
        assert_eq!(found(4), ["too-many-net-cpus"]);
        assert_eq!(found(5), [""; 0]);
    }

    #[test]
    fn packets_dropped_or_left() {
        let plan = made_plan(4, "2-3");
        let mut since = looked(&[(0, 0, 0), (1, 0, 0), (2, 20, 0), (3, 20, 0)]);
        let mut set = |change: fn(&mut CpuLoad)| {
            if let Some(Ok(load)) = since.cpus.get_mut(&2) {
                change(load);
            }
            cost(&plan, &since)
        };
        assert_eq!(names(&set(|load| load.time_squeeze = 10)), [""; 0]);
        let squeezed = set(|load| load.time_squeeze = 11);
        assert_eq!(names(&squeezed), ["too-few-net-cpus"]);
        assert!(squeezed.findings[0].summary.contains("11 times in 1,000 runs on CPU 2"), "{squeezed:?}");
        let dropped = set(|load| (load.time_squeeze, load.backlog_dropped) = (0, 1));
        assert_eq!(dropped.findings[0].summary, "1 packet dropped because a backlog was full");
    }

    #[test]
    fn certainty_and_remainder() {
        let plan = made_plan(4, "2-3");
        let busy = cost(&plan, &looked(&[(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 50, 0)]));
        let busiest = busy.busiest.unwrap();
        assert_eq!((busiest.cpu, busiest.busy_ratio, busy.headroom_ratio), (3, 0.5, Some(0.5)));
        assert!((busiest.busy_plus_minus - 0.098).abs() < 1e-3, "of a hundred ticks: {busiest:?}");
        assert_eq!(busy.load[0].busy_plus_minus, 0.02, "two counters, cut to ticks");
        assert_eq!((busy.cpus, busy.taken_ratio, busy.seconds), (4, 0.5, Some(1.0)));
        // One of them came online in between.
        let mut before = made_topology(4);
        let after = before.clone();
        before.load.retain(|load| load.cpu != 3);
        let less = cost(&plan, &CounterDeltas::new(Some(&before), &after));
        assert_eq!((less.headroom_ratio, less.unknown.len()), (None, 2), "{less:?}");
    }

    proptest! {
        #[test]
        fn shares_are_shares(loads in prop::collection::vec((0_u64..=50, 0_u64..=50), 4)) {
            let plan = made_plan(4, "1-3");
            let loads: Vec<_> = loads.iter().zip(0..).map(|((busy, tasks), cpu)| (cpu, *busy, *tasks)).collect();
            let cost = cost(&plan, &looked(&loads));
            for cpu in &cost.load {
                prop_assert!((0.0..=1.0).contains(&cpu.busy_ratio) && (0.0..=1.0).contains(&cpu.busy_plus_minus));
            }
            let busiest = cost.busiest.unwrap().busy_ratio;
            prop_assert_eq!(cost.findings.iter().any(|found| found.finding == "too-few-net-cpus"), busiest >= FULL);
        }
    }
}
