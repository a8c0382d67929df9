//! The machine as files, as `/proc` and `/sys` show it.

use super::{START_TICKS, State};
use std::fmt::Write as _;

const PF_KTHREAD: u32 = 0x0020_0000;
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

impl State {
    /// As a text that `spangap_machine::Kept` parses.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut put = |path: &str, content: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "=== {path}\n{}", content.trim_end());
        };
        for (path, content) in &self.files {
            put(path, content);
        }
        put("/sys/devices/system/cpu/online", &self.online.to_string());
        let columns: Vec<String> = self.online.iter().map(|cpu| format!("CPU{cpu}")).collect();
        let mut interrupts = columns.join(" ");
        for (number, irq) in &self.irqs {
            let counts = "0 ".repeat(columns.len());
            let _ = write!(interrupts, "\n{number}: {counts}  PCI-MSI {number}-edge      {}", irq.name);
            put(&format!("/proc/irq/{number}/smp_affinity_list"), &irq.affinity.to_string());
        }
        put("/proc/interrupts", &interrupts);
        for (name, interface) in &self.interfaces {
            let at = format!("/sys/class/net/{name}");
            put(&format!("{at}/flags"), "0x1003");
            put(&format!("{at}/operstate"), "up");
            put(&format!("{at}/device/numa_node"), &interface.node.to_string());
            let prefix = format!("{name}-");
            let irqs = self.irqs.iter().filter(|(_, irq)| irq.name.starts_with(&prefix));
            for (number, _) in irqs {
                put(&format!("{at}/device/msi_irqs/{number}"), "msix");
            }
            for queue in 0..interface.now {
                for value in [
                    format!("rx-{queue}/rps_cpus"),
                    format!("rx-{queue}/rps_flow_cnt"),
                    format!("tx-{queue}/xps_cpus"),
                ] {
                    let path = format!("{at}/queues/{value}");
                    put(&path, &self.read_device(&path).unwrap_or_default());
                }
            }
        }
        put("/proc/self/mountinfo", self.mountinfo());
        for group in self.groups.keys() {
            let at = self.at(group);
            for name in GROUP_FILES {
                let path = format!("{at}/{name}");
                if let Some(content) = self.read_group_file(&path) {
                    let content = match content.as_str() {
                        "+cpuset" => "cpuset cpu memory pids",
                        "-cpuset" => "cpu memory pids",
                        content => content,
                    };
                    put(&path, content);
                }
            }
        }
        for (tid, task) in &self.tasks {
            let mut flags = if task.kernel { PF_KTHREAD } else { 0 };
            flags |= if task.bound { PF_NO_SETAFFINITY } else { 0 };
            let stat =
                format!("{tid} ({}) S 1 1 1 0 -1 {flags}{} {START_TICKS} 0", task.comm, " 0".repeat(12));
            let status = format!("Name:\t{}\nCpus_allowed_list:\t{}", task.comm, task.allowed);
            let line = if self.flavour.v2 { "0::" } else { "4:cpuset:" };
            for at in [format!("/proc/{tid}"), format!("/proc/{tid}/task/{tid}")] {
                put(&format!("{at}/stat"), &stat);
                put(&format!("{at}/status"), &status);
                put(&format!("{at}/comm"), &task.comm);
                put(&format!("{at}/cgroup"), &format!("{line}{}", task.group));
            }
        }
        text
    }

    fn mountinfo(&self) -> &'static str {
        if self.flavour.v2 {
            "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
        } else {
            "30 25 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset"
        }
    }
}

const GROUP_FILES: [&str; 12] = [
    "cgroup.controllers",
    "cgroup.subtree_control",
    "cgroup.procs",
    "cgroup.threads",
    "tasks",
    "cpuset.cpus",
    "cpuset.effective_cpus",
    "cpuset.cpus.effective",
    "cpuset.mems",
    "cpuset.cpu_exclusive",
    "cpuset.sched_load_balance",
    "cpuset.cpus.partition",
];
