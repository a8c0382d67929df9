//! Two readings of a machine, some time apart.

use super::facts::cgroup;
use super::facts::listeners::{self, Listener};
use super::facts::memory::{self, Memory};
use super::facts::nic::{self, Nic};
use super::facts::power::{self, Frequency, Idle};
use super::facts::pressure::{self, Pressure};
use super::facts::process::{Net, Process};
use super::finding::NoVerdict;
use super::{Cpus, FactError, Host, Known};
use crate::halted::{self, Halted};
use spangap_machine::facts::cpu_manager_state::{self, CpuManagerState};
use spangap_machine::facts::cpu_table::{self, Row};
use spangap_machine::facts::mountinfo::CgroupMount;
use spangap_machine::facts::softnet_stat::{self, Softnet};
use spangap_machine::facts::stat::{self, Stat, Times};
use spangap_machine::facts::{cpu_list, cpuinfo, figures, uptime};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Counters that are read twice.
#[derive(Debug)]
pub struct Counters {
    uptime_s: Known<f64>,
    online: Known<Cpus>,
    /// CPU times of each CPU.
    pub stat: Known<BTreeMap<u32, Times>>,
    /// Interrupts by line and CPU.
    pub interrupts: Known<Vec<Row>>,
    /// Softirqs by vector and CPU.
    pub softirqs: Known<Vec<Row>>,
    /// Receive backlog counters by CPU.
    pub softnet: Known<BTreeMap<u32, Softnet>>,
    /// CPU pressure of the whole machine.
    pub pressure: Known<Pressure>,
    /// Memory pressure of the whole machine.
    pub memory_pressure: Known<Pressure>,
    /// I/O pressure of the whole machine.
    pub io_pressure: Known<Pressure>,
    /// Memory cgroups of the processes under inspection.
    pub memory: BTreeMap<u32, Known<Memory>>,
    /// Entries and microseconds of residency of each idle state, on the CPUs that matter.
    pub idle: Known<BTreeMap<String, (u64, u64)>>,
    /// TCP counters of this network namespace.
    pub net: Net,
    /// The processes under inspection.
    pub processes: BTreeMap<u32, Known<Process>>,
}

/// A TCP connection of a process under inspection, supplied by a caller that can read sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Owning process.
    pub pid: u32,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: SocketAddr,
    /// `TCP_NODELAY`, if known.
    pub nodelay: Option<bool>,
    /// Bytes written but not yet sent.
    pub unsent_bytes: Option<u64>,
    /// Segments sent but not yet acknowledged.
    pub unacknowledged: Option<u64>,
}

/// A listening socket of a process under inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    pub port: u16,
    /// Limit of the accept queue.
    pub limit: u64,
}

/// TCP sockets of all processes under inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpSockets {
    pub connections: Vec<Connection>,
    pub listening: Vec<AcceptQueue>,
}

/// The sockets, or the reason why they cannot be read.
pub type Sockets = Result<TcpSockets, String>;

/// Both readings, together with everything that does not change in between.
#[derive(Debug)]
pub struct Inspection {
    before: Option<Counters>,
    /// The second reading.
    pub after: Counters,
    /// Processes under inspection; empty for the whole machine.
    pub pids: Vec<u32>,
    pub online: Known<Cpus>,
    /// Interfaces.
    pub nics: Known<Vec<Nic>>,
    /// SMT siblings, by CPU.
    pub siblings: BTreeMap<u32, Cpus>,
    /// NUMA nodes and their CPUs.
    pub nodes: BTreeMap<u32, Cpus>,
    /// CPUs excluded from load balancing by `isolcpus=`.
    pub isolated: Cpus,
    /// Tickless CPUs, by `nohz_full=`.
    pub nohz_full: Cpus,
    /// Idle-state management.
    pub idle: Known<Idle>,
    /// `/dev/cpu_dma_latency`: the exit latency currently allowed, in microseconds.
    pub dma_latency_us: Known<i32>,
    /// Frequency limits.
    pub frequencies: Known<Vec<Frequency>>,
    /// Whether turbo is enabled, and the file that says so.
    pub turbo: Option<(&'static str, bool)>,
    /// Whether this is a virtual machine.
    pub virtual_machine: bool,
    /// The kernel's clock source.
    pub clocksource: Known<String>,
    /// Settings below `/proc/sys`.
    pub settings: BTreeMap<&'static str, Known<i64>>,
    /// Processes named irqbalance.
    pub irqbalance: Known<Vec<Irqbalance>>,
    /// Processes that are stopped or frozen.
    pub halted: Vec<Halted>,
    /// State of the kubelet's CPU manager.
    pub kubelet: Known<CpuManagerState>,
    /// The cpuset of each process.
    pub cpusets: BTreeMap<u32, Known<cgroup::CpuSet>>,
    /// Listening sockets of each process.
    pub listeners: BTreeMap<u32, Known<Vec<Listener>>>,
    /// Sockets of the processes; `None` if nobody read them.
    pub sockets: Option<Sockets>,
}

/// A running irqbalance.
#[derive(Debug)]
pub struct Irqbalance {
    pub pid: u32,
    /// Its arguments and `IRQBALANCE_...=...` variables.
    pub told: Vec<String>,
    /// Whether its environment could be read.
    pub environment: Known<()>,
}

/// File in which distributions configure irqbalance.
const IRQBALANCE_FILE: &str = "/etc/default/irqbalance";

/// Settings of interest below `/proc/sys`.
pub const SETTINGS: &[&str] = &[
    "net/core/busy_poll",
    "net/core/busy_read",
    "net/core/netdev_budget",
    "net/core/netdev_budget_usecs",
    "net/core/netdev_max_backlog",
    "net/core/rps_sock_flow_entries",
    "net/core/somaxconn",
    "net/ipv4/tcp_autocorking",
    "net/ipv4/tcp_slow_start_after_idle",
];

impl Counters {
    pub fn read(host: &Host, pids: &[u32]) -> Counters {
        let mounts = cgroup::mounts(host);
        Counters::with(host, &mounts, pids)
    }

    fn with(host: &Host, mounts: &Known<Vec<CgroupMount>>, pids: &[u32]) -> Counters {
        let online = host.parsed(cpu_list::ONLINE, cpu_list::list);
        let table = |path| host.parsed(path, cpu_table::parse)?.whole();
        let processes: BTreeMap<u32, Known<Process>> =
            pids.iter().map(|&pid| (pid, Process::read(host, mounts, pid))).collect();
        let used =
            processes.values().flatten().fold(Cpus::default(), |all, process| all.either(&process.cpus()));
        let used = if pids.is_empty() { online.clone() } else { Ok(used) };
        Counters {
            uptime_s: host.parsed(uptime::UPTIME, uptime::uptime_s),
            stat: host.parsed(stat::PATH, stat::parse).and_then(Stat::whole),
            interrupts: table(cpu_table::INTERRUPTS),
            softirqs: table(cpu_table::SOFTIRQS),
            softnet: host.parsed(softnet_stat::PATH, |path, text| {
                softnet_stat::parse(path, text, online.as_ref().unwrap_or(&Cpus::default()))
            }),
            pressure: host.parsed("/proc/pressure/cpu", pressure::parse),
            memory_pressure: host.parsed("/proc/pressure/memory", pressure::parse),
            io_pressure: host.parsed("/proc/pressure/io", pressure::parse),
            memory: pids
                .iter()
                .map(|&pid| (pid, mounts.clone().and_then(|mounts| memory::of(host, &mounts, pid))))
                .collect(),
            idle: used.and_then(|cpus| power::idle_spent(host, &cpus)),
            net: Net::read(host, "/proc/net"),
            online,
            processes,
        }
    }
}

impl Inspection {
    /// Takes the second reading, along with everything that is read once. Without `before` there is nothing to
    /// compare with.
    ///
    /// # Errors
    /// A process does not exist.
    pub fn read(host: &Host, before: Option<Counters>, pids: &[u32]) -> Known<Inspection> {
        let mounts = cgroup::mounts(host);
        let after = Counters::with(host, &mounts, pids);
        if let Some(Err(error)) = after.processes.values().find(|process| process.is_err()) {
            return Err(error.clone());
        }
        let word = |path: &str| Ok::<_, FactError>(host.read(path)?.trim().to_owned());
        let list = |path: &str| host.parsed(path, cpu_list::list);
        let online = after.online.clone();
        let every = online.clone().unwrap_or_default();
        let used = after
            .processes
            .values()
            .flatten()
            .fold(Cpus::default(), |all, process| all.either(&process.cpus()));
        let used = if pids.is_empty() { every.clone() } else { used };
        let sibling = |cpu| {
            Some((
                cpu,
                list(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok()?,
            ))
        };
        let node = |name: &String| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            Some((number, list(&format!("/sys/devices/system/node/{name}/cpulist")).ok()?))
        };
        let setting = |name: &&'static str| {
            let path = format!("/proc/sys/{name}");
            (*name, host.parsed(&path, figures::number))
        };
        let first = used.iter().next().unwrap_or(0);
        let of_each =
            |pid: &u32| (*pid, mounts.clone().and_then(|mounts| cgroup::cpuset(host, &mounts, *pid)));
        Ok(Inspection {
            before,
            pids: pids.to_vec(),
            nics: nic::read(host, &after.interrupts),
            siblings: every.iter().filter_map(sibling).collect(),
            nodes: host.list("/sys/devices/system/node").iter().flatten().filter_map(node).collect(),
            isolated: list("/sys/devices/system/cpu/isolated").unwrap_or_default(),
            nohz_full: list("/sys/devices/system/cpu/nohz_full").unwrap_or_default(),
            idle: power::idle(host, first),
            dma_latency_us: host.read_i32("/dev/cpu_dma_latency"),
            frequencies: power::frequencies(host, &used),
            turbo: power::turbo(host),
            virtual_machine: host.read(cpuinfo::PATH).is_ok_and(|text| cpuinfo::parse(&text).is_virtual),
            clocksource: word("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            settings: SETTINGS.iter().map(setting).collect(),
            irqbalance: irqbalance(host),
            halted: halted::halted(host, pids),
            kubelet: host.parsed(cpu_manager_state::PATH, cpu_manager_state::parse),
            cpusets: pids.iter().map(of_each).collect(),
            listeners: pids.iter().map(|&pid| (pid, listeners::of(host, pid))).collect(),
            sockets: None,
            online,
            after,
        })
    }

    /// Whether the whole machine is under inspection.
    pub fn whole_machine(&self) -> bool {
        self.pids.is_empty()
    }

    /// The first reading.
    ///
    /// # Errors
    /// There was only one reading.
    pub fn before(&self) -> Result<&Counters, NoVerdict> {
        self.before.as_ref().ok_or_else(|| NoVerdict::from("this machine was read only once"))
    }

    /// Seconds between the two readings, by the machine's own clock.
    ///
    /// # Errors
    /// There was only one reading, or the clock cannot be read.
    pub fn seconds(&self) -> Result<f64, NoVerdict> {
        let (from, to) = (self.before()?.uptime_s.as_ref()?, self.after.uptime_s.as_ref()?);
        if to > from {
            Ok(to - from)
        } else {
            Err(NoVerdict::from("no time passed between the two readings"))
        }
    }

    /// CPUs that the processes may use; all online CPUs for the whole machine.
    ///
    /// # Errors
    /// The CPUs cannot be read.
    pub fn cpus(&self) -> Result<Cpus, NoVerdict> {
        if self.whole_machine() {
            return Ok(self.online.clone()?);
        }
        let cpus = self.processes().fold(Cpus::default(), |all, process| all.either(&process.cpus()));
        Ok(cpus.both(self.online.as_ref().unwrap_or(&cpus)))
    }

    /// The processes under inspection, at the second reading.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.after.processes.values().flatten()
    }

    /// Memory cgroups of the processes at both readings, where known.
    pub fn memories(&self) -> impl Iterator<Item = (&Memory, &Memory)> {
        let before = self.before.as_ref();
        self.after.memory.iter().filter_map(move |(pid, after)| {
            Some((before?.memory.get(pid)?.as_ref().ok()?, after.as_ref().ok()?))
        })
    }

    /// A process at the first reading.
    pub fn process_before(&self, pid: u32) -> Option<&Process> {
        self.before.as_ref()?.processes.get(&pid)?.as_ref().ok()
    }

    /// Increase of each row of an interrupt or softirq table on each CPU between the readings.
    ///
    /// # Errors
    /// A reading lacks the table.
    pub fn happened(&self, of: impl Fn(&Counters) -> &Known<Vec<Row>>) -> Result<Vec<Row>, NoVerdict> {
        let (before, after) = (of(self.before()?).as_ref()?, of(&self.after).as_ref()?);
        let first: BTreeMap<&str, &Row> = before.iter().map(|row| (row.name.as_str(), row)).collect();
        let since = |row: &Row| {
            let earlier = first.get(row.name.as_str());
            let counts = row.counts.iter().map(|(cpu, count)| {
                let earlier = earlier.and_then(|row| row.counts.get(cpu)).copied().unwrap_or(0);
                (*cpu, wrapped(earlier, *count))
            });
            Row { counts: counts.collect(), ..row.clone() }
        };
        Ok(after.iter().map(since).collect())
    }

    /// CPU times that each CPU spent between the readings.
    ///
    /// # Errors
    /// A reading lacks the times.
    pub fn times(&self) -> Result<BTreeMap<u32, Times>, NoVerdict> {
        let (before, after) = (self.before()?.stat.as_ref()?, self.after.stat.as_ref()?);
        Ok(after.iter().filter_map(|(cpu, times)| Some((*cpu, times.since(before.get(cpu)?)))).collect())
    }

    /// A TCP counter at both readings, in a process's network namespace or in this one.
    ///
    /// # Errors
    /// The counter cannot be read, or this kernel lacks it.
    pub fn tcp(&self, name: &str, pid: Option<u32>) -> Result<(Option<u64>, u64), NoVerdict> {
        let of = |counters: &Counters| {
            let process = pid.and_then(|pid| counters.processes.get(&pid)?.as_ref().ok());
            let net = process.map_or(&counters.net, |process| &process.net);
            net.get(name).map_err(NoVerdict::from)
        };
        let after =
            of(&self.after)?.ok_or_else(|| NoVerdict(format!("this kernel has no counter {name}")))?;
        Ok((self.before.as_ref().and_then(|before| of(before).ok()?), after))
    }

    /// One entry per network namespace: a process in it (or this tool), and the folder of its counters.
    pub fn net_namespaces(&self) -> Vec<(Option<u32>, String)> {
        if self.whole_machine() {
            return vec![(None, "/proc/net".to_owned())];
        }
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for process in self.processes() {
            if process.net_namespace.is_err() || !seen.contains(&&process.net_namespace) {
                seen.push(&process.net_namespace);
                all.push((Some(process.pid), format!("/proc/{}/net", process.pid)));
            }
        }
        all
    }
}

/// The kernel's interrupt counters have 32 bits.
pub fn wrapped(before: u64, after: u64) -> u64 {
    if after >= before { after - before } else { after.saturating_add(1 << 32).saturating_sub(before) }
}

fn irqbalance(host: &Host) -> Known<Vec<Irqbalance>> {
    let pids = host.list("/proc")?;
    let its = pids.iter().filter_map(|name| name.parse::<u32>().ok()).filter_map(|pid| {
        let comm = host.read(&format!("/proc/{pid}/comm")).ok()?;
        (comm.trim() == "irqbalance").then(|| {
            let words = |text: &str, between: char| -> Vec<String> {
                let words = text.split(between).map(|word| word.trim().trim_matches('"').to_owned());
                words.filter(|word| !word.is_empty()).collect()
            };
            let arguments = host.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut told: Vec<String> = words(&arguments, '\0').into_iter().skip(1).collect();
            let environment = host.read(&format!("/proc/{pid}/environ"));
            // If the environment is unreadable, the file that it is usually built from.
            let set = match &environment {
                Ok(text) => words(text, '\0'),
                Err(_) => words(&host.read(IRQBALANCE_FILE).unwrap_or_default(), '\n'),
            };
            told.extend(set.into_iter().filter(|word| word.starts_with("IRQBALANCE_")));
            Irqbalance { pid, told, environment: environment.map(drop) }
        })
    });
    Ok(its.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_32_bits_wrap() {
        assert_eq!((wrapped(5, 9), wrapped(u64::from(u32::MAX), 2), wrapped(9, 9)), (4, 3, 0));
    }

    #[test]
    fn this_machine_is_read_without_malformed_figures() {
        let host = Host::below("/");
        let pids = [std::process::id()];
        let before = Counters::read(&host, &pids);
        let look = Inspection::read(&host, Some(before), &pids).unwrap();
        for error in [
            look.after.stat.as_ref().err(),
            look.after.interrupts.as_ref().err(),
            look.after.softirqs.as_ref().err(),
            look.after.softnet.as_ref().err(),
            look.after.pressure.as_ref().err(),
            look.after.net.get("TcpExt.ListenDrops").err(),
            look.after.net.get("Tcp.OutSegs").err(),
        ]
        .into_iter()
        .flatten()
        {
            assert!(matches!(error, FactError::Read { .. }), "{error}");
        }
        assert!(!look.cpus().unwrap().is_empty());
        assert!(Inspection::read(&host, None, &[u32::MAX]).unwrap_err().is_absent());
    }
}
