//! Users of given CPUs, whichever threads wanted them: JSON shape and text.

use super::text::columns;
use super::words::{cpu_list, in_words};
use super::{CpuReport, EventsReport, Kind};
use crate::names::Names;
use crate::probes::cost::Cost;
use crate::thieves::CpusUsed;
use crate::timeline::Taker;
use serde::Serialize;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;
use spangap_report::figures::percent_of;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of users shown; the JSON has all.
const USERS: usize = 20;
/// Maximum number of users named per CPU in the text.
const NAMED: usize = 3;

/// Users of some CPUs.
#[derive(Clone, Debug, Serialize)]
pub struct CpusReport {
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    pub cpus: Vec<CpuUseReport>,
    /// Users, the largest first.
    pub users: Vec<UserReport>,
    pub events: EventsReport,
    /// Measurement overhead.
    pub cost: Option<Cost>,
    pub conclusions: Vec<String>,
    /// Limitations of the figures.
    pub notes: Vec<String>,
}

/// One CPU. Its nanoseconds sum to the duration; `steal_ns` is contained in the others.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuUseReport {
    pub cpu: u16,
    /// Time running tasks.
    pub tasks_ns: u64,
    /// Time in softirqs.
    pub softirq_ns: u64,
    /// Time in interrupt handlers.
    pub hardirq_ns: u64,
    pub idle_ns: u64,
    /// Unknown: events were lost, or none ever came from this CPU.
    pub unknown_ns: u64,
    /// Time taken by the hypervisor, whatever ran.
    pub steal_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct UserReport {
    /// Kind of taker.
    pub kind: Kind,
    pub name: String,
    /// Process id, for tasks.
    pub pid: Option<u32>,
    /// Cgroup, for tasks.
    pub cgroup: Option<String>,
    pub total_ns: u64,
    /// Share of the time of all these CPUs.
    pub share: f64,
    /// Runs of a task, or of an interrupt.
    pub count: u64,
    /// Longest run.
    pub longest_ns: u64,
    /// Time on each CPU.
    pub cpus: Vec<CpuReport>,
}

/// Facts beyond the sums.
pub struct CpuCircumstances<'a> {
    /// The measured CPUs.
    pub cpus: Vec<u16>,
    /// Process id of this tool.
    pub spangap: u32,
    /// Names of all objects.
    pub names: &'a Names,
    /// Length of the measurement, in nanoseconds.
    pub duration_ns: u64,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    pub events: EventsReport,
    /// Measurement overhead.
    pub cost: Option<Cost>,
    /// What this kernel cannot report.
    pub lacks: Vec<String>,
}

impl CpusReport {
    /// Adds names and conclusions.
    pub fn new(found: &CpusUsed, known: &CpuCircumstances<'_>) -> CpusReport {
        let mut cpus: BTreeMap<u16, CpuUseReport> =
            known.cpus.iter().map(|&cpu| (cpu, CpuUseReport { cpu, ..CpuUseReport::default() })).collect();
        let mut users: BTreeMap<(Kind, String), UserReport> = BTreeMap::new();
        for (&(cpu, taker), occupied) in &found.used {
            let cpu_use = cpus.entry(cpu).or_insert(CpuUseReport { cpu, ..CpuUseReport::default() });
            *match taker {
                None => &mut cpu_use.unknown_ns,
                Some(Taker::Task(0)) => &mut cpu_use.idle_ns,
                Some(Taker::Task(_)) => &mut cpu_use.tasks_ns,
                Some(Taker::Softirq { .. }) => &mut cpu_use.softirq_ns,
                Some(Taker::Hardirq(_)) => &mut cpu_use.hardirq_ns,
            } += occupied.total_ns;
            let Some(taker) = taker else { continue };
            let who = identify(taker, known);
            let user = users.entry((who.kind, who.name.clone())).or_insert(who);
            user.total_ns += occupied.total_ns;
            user.count += occupied.count;
            user.longest_ns = user.longest_ns.max(occupied.longest_ns);
            match user.cpus.iter_mut().find(|one| one.cpu == cpu) {
                Some(one) => one.ns += occupied.total_ns,
                None => user.cpus.push(CpuReport { cpu, ns: occupied.total_ns }),
            }
        }
        for (cpu, ns) in &found.steal {
            cpus.entry(*cpu).or_default().steal_ns = *ns;
        }
        for cpu in cpus.values_mut() {
            let told = cpu.tasks_ns + cpu.softirq_ns + cpu.hardirq_ns + cpu.idle_ns + cpu.unknown_ns;
            cpu.unknown_ns += known.duration_ns.saturating_sub(told);
        }
        let all = known.duration_ns * cpus.len() as u64;
        let mut users: Vec<UserReport> = users.into_values().collect();
        for user in &mut users {
            user.share = user.total_ns as f64 / all.max(1) as f64;
        }
        users.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        let mut report = CpusReport {
            duration_ns: known.duration_ns,
            interrupted: known.interrupted,
            cpus: cpus.into_values().collect(),
            users,
            events: known.events,
            cost: known.cost,
            conclusions: Vec::new(),
            notes: Vec::new(),
        };
        report.conclusions = report.cpus.iter().map(|cpu| report.conclude(cpu)).collect();
        report.notes = report.notes(&known.lacks);
        report
    }

    fn conclude(&self, cpu: &CpuUseReport) -> String {
        let here =
            |user: &UserReport| user.cpus.iter().find(|one| one.cpu == cpu.cpu).map_or(0, |one| one.ns);
        let busy: Vec<&UserReport> = self.users.iter().filter(|user| user.kind != Kind::Idle).collect();
        let mut most: Vec<(u64, &str)> =
            busy.iter().map(|user| (here(user), user.name.as_str())).filter(|(ns, _)| *ns > 0).collect();
        most.sort_by_key(|(ns, _)| Reverse(*ns));
        let named: Vec<String> = most
            .iter()
            .take(NAMED)
            .map(|(ns, name)| format!("{name} {}", percent_of(*ns, self.duration_ns)))
            .collect();
        let share = |ns: u64| percent_of(ns, self.duration_ns);
        let mut words = format!(
            "CPU {}: tasks {}, softirqs {}, hardirqs {}, idle {}",
            cpu.cpu,
            share(cpu.tasks_ns),
            share(cpu.softirq_ns),
            share(cpu.hardirq_ns),
            share(cpu.idle_ns)
        );
        if cpu.unknown_ns > 0 {
            words += &format!(", not known {}", share(cpu.unknown_ns));
        }
        if !named.is_empty() {
            words += &format!("; most by {}", named.join(", "));
        }
        words + "."
    }

    fn notes(&self, lacks: &[String]) -> Vec<String> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push("interrupted: this is what had been seen by then".into());
        }
        if self.events.lost > 0 {
            notes.push(format!("{} events were lost", grouped(self.events.lost)));
        }
        let steal: u64 = self.cpus.iter().map(|cpu| cpu.steal_ns).sum();
        if steal > 0 {
            let took = format_ns(steal);
            notes.push(format!(
                "the hypervisor took {took} of it, which is included in the time of whatever ran"
            ));
        }
        notes.extend(lacks.iter().cloned());
        notes
    }
}

fn identify(taker: Taker, known: &CpuCircumstances<'_>) -> UserReport {
    let names = known.names;
    let user = |kind, name: String, pid, cgroup| UserReport {
        kind,
        name,
        pid,
        cgroup,
        total_ns: 0,
        share: 0.0,
        count: 0,
        longest_ns: 0,
        cpus: Vec::new(),
    };
    match taker {
        Taker::Task(0) => user(Kind::Idle, "idle".into(), None, None),
        Taker::Task(tid) => {
            let pid = names.tgid(tid).filter(|pid| *pid != 0).unwrap_or(tid);
            let task = names.task(pid).or_else(|| names.task(tid));
            let name = task.map_or_else(|| format!("pid {pid}"), |task| format!("{} (pid {pid})", task.comm));
            let cgroup = task.and_then(|task| names.cgroup(task.cgroup_id)).map(str::to_owned);
            match pid == known.spangap {
                true => user(Kind::Spangap, format!("{name}, this program"), Some(pid), cgroup),
                false => user(Kind::Task, name, Some(pid), cgroup),
            }
        }
        Taker::Softirq { .. } => user(Kind::Softirq, names.taker(&taker), None, None),
        Taker::Hardirq(_) => user(Kind::Hardirq, names.taker(&taker), None, None),
    }
}

/// For a terminal.
pub fn text(report: &CpusReport) -> String {
    let cpus = cpu_list(report.cpus.iter().map(|cpu| cpu.cpu));
    let lost = match report.events.lost {
        0 => "none".into(),
        lost => grouped(lost),
    };
    let events = grouped(report.events.received);
    let mut text =
        format!("CPU {cpus} for {}; {events} events, {lost} lost\n\n", format_ns(report.duration_ns));
    let head = ["Who had them", "TOTAL", "SHARE", "COUNT", "LONGEST", "CPU"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for user in report.users.iter().take(USERS) {
        let name = match user.cgroup.as_deref() {
            Some(path) if path != "/" => format!("{} in {path}", user.name),
            _ => user.name.clone(),
        };
        rows.push(vec![
            name,
            format_ns(user.total_ns),
            percent_of(user.total_ns, report.duration_ns * report.cpus.len() as u64),
            grouped(user.count),
            format_ns(user.longest_ns),
            cpu_list(user.cpus.iter().map(|cpu| cpu.cpu)),
        ]);
    }
    text += &columns(&rows);
    if report.users.len() > USERS {
        let rest: u64 = report.users[USERS..].iter().map(|user| user.total_ns).sum();
        let more = report.users.len() - USERS;
        text += &format!("  and {more} more with {} together; --json has them\n", format_ns(rest));
    }
    text + &in_words(&report.conclusions, &report.notes, report.cost.as_ref())
}
