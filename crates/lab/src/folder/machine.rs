//! `machine.json`: the machine and its other load during a run. It does not reveal the fault.

use super::RECORDED;
use crate::host_clock::now_unix_ns;
use crate::hosts::netem;
use crate::truth::Active;
use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spangap_machine::Host;
use spangap_machine::facts::{cpuinfo, meminfo, process_stat, stat, system_name, uptime};

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// What they are called, where they say so.
    pub cpu_model: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Hypervisor; `None` if the machine does not look virtual.
    pub virtualization: Option<String>,
    /// 1 or 2; `None` without control groups.
    pub cgroup_version: Option<u32>,
    /// Whether the kernel has netem.
    pub netem: bool,
    /// Load averages of 1, 5 and 15 minutes before the run.
    pub load_before: Vec<f64>,
    /// ... and after it.
    pub load_after: Vec<f64>,
    /// Other load during the run.
    pub noise: Noise,
    /// Versions of the programs.
    pub versions: Versions,
    /// Recordings, with their times.
    pub recorded: Vec<Recorded>,
    /// Missing recordings, with reasons.
    pub not_recorded: Vec<NotRecorded>,
}

/// Other load during the run, from start to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// How long the run took.
    pub wall_ns: u64,
    /// CPU time outside of the run, including kernel threads and interrupts, even those that work for the run.
    /// In kernel ticks, like all times here; `None` if `/proc/stat` cannot be read.
    pub others_cpu_ns: Option<u64>,
    /// CPU time that the hypervisor took.
    pub steal_ns: Option<u64>,
    /// Intervals longer than 3 ms during the calls in which a CPU did not run even the most urgent thread of
    /// the run: their total,
    #[serde(default)]
    pub paused_ns: u64,
    /// and the longest of them.
    #[serde(default)]
    pub longest_pause_ns: u64,
}

/// Versions of client and target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Versions {
    /// This program.
    pub spangap: String,
    /// Stack of the client, and its library.
    pub client: Option<String>,
    /// The same for the target.
    pub server: Option<String>,
}

/// A recording and its time, by the clock of the host that it is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    pub file: String,
    /// Events before this are missing.
    pub from_unix_ns: u64,
    /// Events after this are missing.
    pub to_unix_ns: u64,
}

/// A missing recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotRecorded {
    pub file: String,
    /// Reason.
    pub why: String,
}

/// State of the machine before a run.
#[derive(Debug)]
pub(crate) struct Before {
    at_unix_ns: u64,
    load: Vec<f64>,
    cpu: Option<Cpu>,
}

/// CPU time, ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cpu {
    /// All CPUs, without idle time, steal, and time that is counted twice.
    busy: u64,
    steal: u64,
    /// This process and all children that it has waited for, recursively.
    own: u64,
}

impl Before {
    /// Reads the machine's state.
    pub fn look(host: &Host) -> Before {
        Before { at_unix_ns: now_unix_ns(), load: load(host), cpu: cpu(host) }
    }

    /// Reads it again, once every process of the run has ended.
    pub fn until_now(
        self,
        host: &Host,
        tank: &Value,
        pauses: &[Active],
        recorded: Vec<Recorded>,
        not_recorded: Vec<NotRecorded>,
    ) -> Machine {
        let tick_ns = 1_000_000_000 / clock_ticks_per_second().max(1);
        let both = self.cpu.zip(cpu(host));
        let grown = |of: fn(&Cpu) -> u64| {
            both.map(|(before, after)| of(&after).saturating_sub(of(&before)) * tick_ns)
        };
        let cpuinfo = cpuinfo::parse(&host.read(cpuinfo::PATH).unwrap_or_default());
        let library = |stack: &str, library: &str| {
            let run = &tank["runs"][0];
            Some(format!("{}, {}", run[stack].as_str()?, run[library].as_str()?))
        };
        Machine {
            kernel: host.parsed(system_name::KERNEL, system_name::parse).unwrap_or_default(),
            cpus: cpuinfo.count,
            cpu_model: cpuinfo.model,
            memory_bytes: host.parsed(meminfo::PATH, meminfo::total_bytes).ok(),
            virtualization: cpuinfo.is_virtual.then(|| hypervisor(host)),
            cgroup_version: match host.list("/sys/fs/cgroup") {
                Ok(entries) if entries.iter().any(|entry| entry == "cgroup.controllers") => Some(2),
                Ok(entries) if entries.iter().any(|entry| entry.starts_with("cpu")) => Some(1),
                _ => None,
            },
            netem: netem::available(),
            load_before: self.load,
            load_after: load(host),
            noise: Noise {
                wall_ns: now_unix_ns().saturating_sub(self.at_unix_ns),
                others_cpu_ns: grown(|cpu| cpu.busy)
                    .zip(grown(|cpu| cpu.own))
                    .map(|(busy, own)| busy.saturating_sub(own)),
                steal_ns: grown(|cpu| cpu.steal),
                paused_ns: pauses.iter().map(Active::length_ns).sum(),
                longest_pause_ns: pauses.iter().map(Active::length_ns).max().unwrap_or(0),
            },
            versions: Versions {
                spangap: env!("CARGO_PKG_VERSION").into(),
                client: library("stack", "library"),
                server: library("target_stack", "target_library"),
            },
            recorded,
            not_recorded,
        }
    }
}

impl NotRecorded {
    /// Recordings without a file, with the known reasons: `FILE: WHY`.
    pub(crate) fn of(is_there: impl Fn(&str) -> bool, reasons: &[String]) -> Vec<NotRecorded> {
        let missing = RECORDED.iter().filter(|file| !is_there(file));
        missing
            .map(|file| {
                let why = reasons.iter().find_map(|reason| reason.strip_prefix(file)?.strip_prefix(": "));
                NotRecorded { file: (*file).into(), why: why.unwrap_or("not asked for").into() }
            })
            .collect()
    }
}

fn load(host: &Host) -> Vec<f64> {
    host.parsed(uptime::LOADAVG, uptime::load).map_or_else(|_| Vec::new(), |load| load.averages.to_vec())
}

fn cpu(host: &Host) -> Option<Cpu> {
    let all = host.parsed(stat::PATH, stat::parse).ok()?.all?;
    let own = host.parsed(&format!("/proc/self/{}", process_stat::NAME), process_stat::parse).ok()?;
    Some(Cpu { busy: all.busy + all.irq + all.softirq, steal: all.steal, own: own.cpu_ticks })
}

fn hypervisor(host: &Host) -> String {
    let names = ["sys_vendor", "product_name"].map(|file| host.read(&format!("/sys/class/dmi/id/{file}")));
    let names: Vec<String> = names.into_iter().flatten().map(|name| name.trim().to_owned()).collect();
    let name = names.join(" ").trim().to_owned();
    if name.is_empty() { "a hypervisor that does not say its name".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn copy(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("folders");
            fs::write(path, text).expect("a file");
        }
        let host = Host::below(root.path());
        (root, host)
    }

    #[test]
    fn others_cpu_time_excludes_the_run() {
        let own = |ticks: u64| format!("7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 1 2 3 20 0 1 0 7 0 0");
        let stat = |user: u64, steal: u64| {
            format!("cpu  {user} 1 10 9000 5 2 3 {steal} 50 0\ncpu0 {user} 1 10 9000 5 2 3 {steal} 50 0\n")
        };
        let (root, host) = copy(&[
            ("proc/stat", &stat(100, 4)),
            ("proc/self/stat", &own(10)),
            ("proc/loadavg", "0.50 1.00 2.00 1/2 3\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: A CPU\nflags\t: fpu hypervisor\nprocessor\t: 1\n",
            ),
            ("proc/meminfo", "MemTotal:        2048 kB\nMemFree: 3 kB\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("sys/fs/cgroup/cpu/cpu.shares", "1"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
        ]);
        let before = Before::look(&host);
        fs::write(root.path().join("proc/stat"), stat(160, 9)).expect("a file");
        fs::write(root.path().join("proc/self/stat"), own(30)).expect("a file");
        let tank =
            serde_json::json!({ "runs": [{ "stack": "rust", "library": "tonic 1", "target_stack": "go" }] });
        let machine = before.until_now(
            &host,
            &tank,
            &[Active { from_unix_ns: 5, to_unix_ns: 9 }, Active { from_unix_ns: 20, to_unix_ns: 23 }],
            Vec::new(),
            Vec::new(),
        );
        let tick_ns = 1_000_000_000 / clock_ticks_per_second();
        assert_eq!(machine.noise.others_cpu_ns, Some(40 * tick_ns));
        assert_eq!(machine.noise.steal_ns, Some(5 * tick_ns));
        assert_eq!((machine.noise.paused_ns, machine.noise.longest_pause_ns), (7, 4));
        assert_eq!((machine.kernel.as_str(), machine.cpus), ("6.1.0", 2));
        assert_eq!((machine.cpu_model.as_deref(), machine.memory_bytes), (Some("A CPU"), Some(2 << 20)));
        assert_eq!((machine.virtualization.as_deref(), machine.cgroup_version), (Some("QEMU"), Some(1)));
        assert_eq!(machine.load_after, [0.5, 1.0, 2.0]);
        assert_eq!(
            (machine.versions.client.as_deref(), machine.versions.server),
            (Some("rust, tonic 1"), None)
        );
    }

    #[test]
    fn machine_without_facts() {
        let (_root, host) = copy(&[]);
        let machine = Before::look(&host).until_now(&host, &Value::Null, &[], Vec::new(), Vec::new());
        assert_eq!((machine.noise.others_cpu_ns, machine.cgroup_version, machine.cpus), (None, None, 0));
    }

    #[test]
    fn missing_recordings_have_reasons() {
        let reasons = ["client.host: no BTF".to_owned()];
        let missing = NotRecorded::of(|file| !file.ends_with(".host"), &reasons);
        let told: Vec<_> = missing.iter().map(|one| (one.file.as_str(), one.why.as_str())).collect();
        assert_eq!(told, [("client.host", "no BTF"), ("server.host", "not asked for")]);
    }
}
