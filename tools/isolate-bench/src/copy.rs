//! The files of a fictitious machine on disk: two packages, two threads per core, a NIC with 64 queues, and
//! containers.
//!
//! Names, columns and units are those of the kernel, as in `fixtures/isolate`. Files that `isolate` does not
//! need for a plan are omitted.

use crate::BenchError;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const QUEUES: usize = 64;
const FIRST_IRQ: usize = 100;

/// A copy under construction.
struct Copy<'a> {
    root: &'a Path,
    cpus: usize,
}

/// Writes a machine with this many CPUs, a multiple of four, and containers, two per pod.
pub fn write(root: &Path, version: u32, cpus: usize, containers: usize) -> Result<(), BenchError> {
    let copy = Copy { root, cpus };
    copy.processors()?;
    copy.interface()?;
    copy.put("/proc/sys/kernel/random/boot_id", "5a1f0000-1d3c-4e2b-9f60-000000000256")?;
    copy.put("/proc/sys/kernel/osrelease", "6.1.0-30-amd64")?;
    copy.put("/proc/cmdline", "root=/dev/sda1 ro quiet")?;
    copy.put("/proc/sys/net/core/rps_sock_flow_entries", "0")?;
    copy.cgroups(version, containers)
}

impl Copy<'_> {
    fn put(&self, path: &str, text: &str) -> Result<(), BenchError> {
        let file = self.root.join(path.trim_start_matches('/'));
        let folder = file.parent().unwrap_or(self.root);
        let failed = |path: &Path| {
            let path = PathBuf::from(path);
            move |error| BenchError::File { path, error }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        std::fs::write(&file, format!("{text}\n")).map_err(failed(&file))
    }

    fn all(&self) -> String {
        format!("0-{}", self.cpus - 1)
    }

    /// The second threads of the cores are numbered after all first threads; each node has half of the cores.
    fn processors(&self) -> Result<(), BenchError> {
        let cores = self.cpus / 2;
        let of_node = |node: usize| {
            let from = node * cores / 2;
            format!("{from}-{},{}-{}", from + cores / 2 - 1, cores + from, cores + from + cores / 2 - 1)
        };
        let base = "/sys/devices/system";
        self.put(&format!("{base}/cpu/online"), &self.all())?;
        self.put(&format!("{base}/cpu/isolated"), "")?;
        for node in 0..2 {
            self.put(&format!("{base}/node/node{node}/cpulist"), &of_node(node))?;
        }
        for cpu in 0..self.cpus {
            let (core, at) = (cpu % cores, format!("{base}/cpu/cpu{cpu}"));
            let node = core / (cores / 2);
            self.put(&format!("{at}/topology/thread_siblings_list"), &format!("{core},{}", core + cores))?;
            self.put(&format!("{at}/topology/physical_package_id"), &node.to_string())?;
            self.put(&format!("{at}/cache/index3/level"), "3")?;
            self.put(&format!("{at}/cache/index3/shared_cpu_list"), &of_node(node))?;
        }
        Ok(())
    }

    fn interface(&self) -> Result<(), BenchError> {
        let device = "/sys/devices/pci0000:3a/0000:3b:00.0";
        let at = format!("{device}/net/eth0");
        for (name, text) in [("flags", "0x1003"), ("operstate", "up"), ("threaded", "0")] {
            self.put(&format!("{at}/{name}"), text)?;
        }
        self.put(&format!("{device}/numa_node"), "0")?;
        let none = vec!["00000000"; self.cpus.div_ceil(32)].join(",");
        let mut table = " ".repeat(5);
        (0..self.cpus).for_each(|cpu| {
            let _ = write!(table, "{:>11}", format!("CPU{cpu}"));
        });
        for queue in 0..QUEUES {
            let (irq, cpu) = (FIRST_IRQ + queue, queue * 3 % self.cpus);
            self.put(&format!("{at}/queues/rx-{queue}/rps_cpus"), &none)?;
            self.put(&format!("{at}/queues/rx-{queue}/rps_flow_cnt"), "0")?;
            self.put(&format!("{at}/queues/tx-{queue}/xps_cpus"), &none)?;
            self.put(&format!("{device}/msi_irqs/{irq}"), "msix")?;
            self.put(&format!("/proc/irq/{irq}/smp_affinity_list"), &cpu.to_string())?;
            self.put(&format!("/proc/irq/{irq}/effective_affinity_list"), &cpu.to_string())?;
            let _ = write!(table, "\n{irq:>4}:");
            for one in 0..self.cpus {
                let _ = write!(table, "{:>11}", if one == cpu { 1_000_000 } else { 0 });
            }
            let _ = write!(table, "   IR-PCI-MSI {}-edge      eth0-TxRx-{queue}", 524_288 + queue);
        }
        self.put("/proc/interrupts", &table)?;
        let channels = |now| format!("RX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t{now}\n");
        let text = format!(
            "Channel parameters for eth0:\nPre-set maximums:\n{}Current hardware settings:\n{}",
            channels(QUEUES),
            channels(QUEUES)
        );
        self.put("/ethtool/eth0", text.trim_end())?;
        let class = self.root.join("sys/class/net");
        std::fs::create_dir_all(&class)
            .and_then(|()| {
                std::os::unix::fs::symlink(format!("../..{}", &at["/sys".len()..]), class.join("eth0"))
            })
            .map_err(|error| BenchError::File { path: class, error })
    }

    fn cgroups(&self, version: u32, containers: usize) -> Result<(), BenchError> {
        let mount = if version == 1 { "/sys/fs/cgroup/cpuset" } else { "/sys/fs/cgroup" };
        let line = match version {
            1 => "34 29 0:30 / /sys/fs/cgroup/cpuset rw,nosuid shared:15 - cgroup cgroup rw,cpuset",
            _ => "29 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
        };
        self.put(
            "/proc/self/mountinfo",
            &format!("24 1 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n{line}"),
        )?;
        if version == 2 {
            self.put(&format!("{mount}/cgroup.controllers"), "cpuset cpu io memory pids")?;
        }
        self.group(version, mount, true)?;
        let state = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        self.put("/var/lib/kubelet/cpu_manager_state", state)?;
        let v1 = version == 1;
        let pods = if v1 { "kubepods" } else { "kubepods.slice" };
        let pod = |n: usize| match v1 {
            true => format!("besteffort/pod{n:08x}"),
            false => format!("kubepods-besteffort.slice/kubepods-besteffort-pod{n:08x}.slice"),
        };
        let container = |n: usize| match v1 {
            true => format!("{n:064x}"),
            false => format!("cri-containerd-{n:064x}.scope"),
        };
        self.group(version, &format!("{mount}/{pods}"), false)?;
        let classes = pod(0);
        let class = classes.split('/').next().unwrap_or_default();
        self.group(version, &format!("{mount}/{pods}/{class}"), false)?;
        for number in 0..containers {
            let at = format!("{mount}/{pods}/{}", pod(number / 2));
            if number % 2 == 0 {
                self.group(version, &at, false)?;
            }
            self.group(version, &format!("{at}/{}", container(number)), false)?;
        }
        Ok(())
    }

    fn group(&self, version: u32, at: &str, root: bool) -> Result<(), BenchError> {
        let all = self.all();
        let files: &[(&str, &str)] = match (version, root) {
            (1, _) => &[
                ("cpuset.cpus", &all),
                ("cpuset.effective_cpus", &all),
                ("cpuset.mems", "0-1"),
                ("cpuset.cpu_exclusive", "0"),
                ("cpuset.sched_load_balance", "1"),
                ("tasks", ""),
                ("cgroup.procs", ""),
            ],
            (_, true) => &[
                ("cpuset.cpus.effective", &all),
                ("cgroup.subtree_control", "cpuset cpu io memory pids"),
                ("cgroup.procs", ""),
            ],
            (_, false) => &[
                ("cpuset.cpus", ""),
                ("cpuset.cpus.effective", &all),
                ("cpuset.cpus.partition", "member"),
                ("cgroup.subtree_control", ""),
                ("cgroup.procs", ""),
            ],
        };
        files.iter().try_for_each(|(name, text)| self.put(&format!("{at}/{name}"), text))
    }
}
