//! Permissions and capabilities of this kernel and user, and what is unavailable without them.
//!
//! Everything is read from `/proc` and `/sys`; nothing is probed by trial. [`ProbeError`] holds the reason for
//! which a probe was refused.

mod refusal;

pub use refusal::{ProbeError, quiet, refused};

use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::facts::system_name;
use spangap_machine::read_here;
use std::fmt;
use std::path::Path;

/// Relevant Linux capabilities, by their number in the kernel's masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// A catch-all; implies CAP_PERFMON and CAP_BPF.
    SysAdmin = 21,
    /// Access to other processes' descriptors, maps and stacks.
    SysPtrace = 19,
    /// Access to kernel addresses.
    Syslog = 34,
    /// Performance events and stacks of all processes.
    Perfmon = 38,
    /// Loading of eBPF programs.
    Bpf = 39,
}

impl fmt::Display for Capability {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::SysPtrace => "CAP_SYS_PTRACE",
            Capability::Syslog => "CAP_SYSLOG",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        })
    }
}

/// Restrictions of kernel lockdown, which apply even to root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lockdown {
    /// No restriction.
    None,
    /// The running kernel cannot be modified.
    Integrity,
    /// Its memory cannot be read, either.
    Confidentiality,
    /// `/sys/kernel/security/lockdown` cannot be read: securityfs is not mounted, or the kernel has no lockdown.
    Unknown,
}

impl fmt::Display for Lockdown {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Lockdown::None => "none",
            Lockdown::Integrity => "integrity",
            Lockdown::Confidentiality => "confidentiality",
            Lockdown::Unknown => "unknown",
        })
    }
}

/// The kernel and this process's rights on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` prints it.
    pub release: String,
    /// Whether the kernel provides BTF, which our eBPF programs need to adapt to it.
    pub btf: bool,
    /// Effective capabilities of this process, one bit each.
    pub capabilities: u64,
    /// Whether this process is root in a user namespace only: its capabilities then do not apply here.
    pub user_namespace: bool,
    /// Lockdown state.
    pub lockdown: Lockdown,
    /// Who may use performance events: 2: users on their own code in user mode; 1: also in the kernel; 0: also
    /// on whole CPUs; -1: everybody.
    pub perf_event_paranoid: Option<i32>,
    /// Who may see kernel addresses: 0: everybody; 1: holders of CAP_SYSLOG; 2: nobody.
    pub kptr_restrict: Option<i32>,
    /// 0: everybody may load (some) eBPF programs; 1 and 2: only holders of CAP_BPF.
    pub unprivileged_bpf_disabled: Option<i32>,
}

/// First version in which all probes work in full.
const FULL: (u32, u32) = (5, 15);
/// First version with typed tracepoints, which our programs need.
const TYPED_TRACEPOINTS: (u32, u32) = (5, 5);
/// First version that has CAP_BPF and CAP_PERFMON.
const SPLIT_CAPABILITIES: (u32, u32) = (5, 8);

impl Kernel {
    /// Reads this machine's `/proc` and `/sys`.
    pub fn look() -> Kernel {
        Self::look_under(Path::new("/"))
    }

    /// Reads the `proc` and `sys` below a folder.
    pub fn look_under(root: &Path) -> Kernel {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let number = |name: &str| text(&format!("proc/sys/kernel/{name}"))?.trim().parse().ok();
        let path = root.join("proc/self").join(process_status::NAME);
        let capabilities =
            read_here(&path.to_string_lossy(), |path, text| ProcessStatus::new(path, text).capabilities());
        // In the initial user namespace every id maps to itself.
        let ids = text("proc/self/uid_map").unwrap_or_default();
        let user_namespace = !ids.is_empty() && !ids.split_whitespace().eq(["0", "0", "4294967295"]);
        let lockdown = text("sys/kernel/security/lockdown").unwrap_or_default();
        let lockdown = match lockdown.split(['[', ']']).nth(1) {
            Some("none") => Lockdown::None,
            Some("integrity") => Lockdown::Integrity,
            Some("confidentiality") => Lockdown::Confidentiality,
            _ => Lockdown::Unknown,
        };
        let release = root.join(system_name::KERNEL.trim_start_matches('/'));
        Kernel {
            release: read_here(&release.to_string_lossy(), system_name::parse).unwrap_or_default(),
            btf: std::fs::File::open(root.join("sys/kernel/btf/vmlinux")).is_ok(),
            capabilities: capabilities.unwrap_or(0),
            user_namespace,
            lockdown,
            perf_event_paranoid: number("perf_event_paranoid"),
            kptr_restrict: number("kptr_restrict"),
            unprivileged_bpf_disabled: number("unprivileged_bpf_disabled"),
        }
    }

    /// Major and minor version; `(0, 0)` if the release does not begin with two numbers.
    pub fn version(&self) -> (u32, u32) {
        let mut parts = self.release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (0, 0),
        }
    }

    /// Whether this process has a capability, directly or implied by CAP_SYS_ADMIN.
    pub fn can(&self, capability: Capability) -> bool {
        let has = |capability| !self.user_namespace && self.capabilities >> capability as u32 & 1 == 1;
        // CAP_SYS_ADMIN implies only these two, which were split off from it.
        let split_off = matches!(capability, Capability::Bpf | Capability::Perfmon);
        has(capability) || split_off && has(Capability::SysAdmin)
    }

    /// Capabilities for loading tracing programs that this process lacks.
    pub fn missing_for_probes(&self) -> Vec<Capability> {
        let wanted = if self.version() < SPLIT_CAPABILITIES {
            &[Capability::SysAdmin][..]
        } else {
            &[Capability::Bpf, Capability::Perfmon][..]
        };
        wanted.iter().copied().filter(|&one| !self.can(one)).collect()
    }

    /// Whether whole CPUs may be sampled, including kernel stacks.
    pub fn may_sample_cpus(&self) -> bool {
        self.can(Capability::Perfmon) || self.perf_event_paranoid.is_some_and(|level| level <= 0)
    }

    /// Why kernel addresses are hidden, if they are.
    pub fn hides_addresses(&self) -> Option<String> {
        match self.kptr_restrict {
            Some(2..) => Some("kernel.kptr_restrict is 2: nobody sees kernel addresses; `sysctl kernel.kptr_restrict=1` lets root see them".into()),
            Some(1) if !self.can(Capability::Syslog) => {
                Some("kernel.kptr_restrict is 1 and this process lacks CAP_SYSLOG".into())
            }
            // With 0 the kernel still checks the right to profile it.
            _ if !self.can(Capability::Syslog) && self.perf_event_paranoid.is_some_and(|level| level > 1) => {
                Some("this process lacks CAP_SYSLOG, and kernel.perf_event_paranoid is above 1".into())
            }
            _ => None,
        }
    }

    /// What is unavailable here, one sentence each, with the remedy. Empty if everything works.
    pub fn lost(&self) -> Vec<String> {
        let mut lost = Vec::new();
        let version = self.version();
        let missing = self.missing_for_probes();
        const VERBS: &str = "`host offcpu`, `host thieves` and `host record`";
        if version < TYPED_TRACEPOINTS && version != (0, 0) {
            lost.push(format!(
                "{VERBS} do not work: Linux {} is older than 5.5, whose tracepoints are the first with types",
                self.release
            ));
        } else if !self.btf {
            lost.push(format!(
                "{VERBS} do not work: the kernel has no type information, /sys/kernel/btf/vmlinux cannot be read (CONFIG_DEBUG_INFO_BTF=y brings it)"
            ));
        } else if !missing.is_empty() {
            lost.push(format!("{VERBS} do not work: {}", refusal::need_capabilities(self, &missing)));
        } else if version < FULL && version != (0, 0) {
            lost.push(format!(
                "Linux {} is older than 5.15: only some probes load there, and they say what they left out",
                self.release
            ));
        }
        if !self.may_sample_cpus() {
            lost.push(
                "`host stacks` does not work: it needs CAP_PERFMON, or kernel.perf_event_paranoid at 0 or less"
                    .to_string(),
            );
        } else if let Some(why) = self.hides_addresses() {
            lost.push(format!(
                "`host stacks` shows addresses instead of names, and cannot tell interrupts from the application's own system calls: {why}"
            ));
        }
        if !self.can(Capability::SysPtrace) {
            lost.push(
                "TCP_NODELAY of sockets is read and set only for processes of this user: others need CAP_SYS_PTRACE"
                    .to_string(),
            );
        }
        if self.lockdown == Lockdown::Confidentiality {
            lost.push(
                "lockdown is at confidentiality: extras that read kernel memory by address are left out; what is measured without them stays the same"
                    .to_string(),
            );
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const FULL_HOST: &[(&str, &str)] = &[
        ("proc/sys/kernel/osrelease", "6.1.0-50-cloud-amd64\n"),
        ("proc/sys/kernel/perf_event_paranoid", "3\n"),
        ("proc/sys/kernel/kptr_restrict", "0\n"),
        ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
        ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
        ("proc/self/uid_map", "         0          0 4294967295\n"),
        ("sys/kernel/btf/vmlinux", "BTF"),
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
    ];

    /// The full host with some files replaced, or removed where the text is empty.
    fn but(changes: &[(&str, &str)]) -> Kernel {
        let files: Vec<_> = FULL_HOST
            .iter()
            .map(|&(path, text)| {
                (path, changes.iter().find(|(changed, _)| *changed == path).map_or(text, |(_, text)| text))
            })
            .filter(|(_, text)| !text.is_empty())
            .collect();
        Kernel::look_under(root(&files).path())
    }

    #[test]
    fn nothing_is_lost_where_everything_is_allowed() {
        let kernel = but(&[]);
        assert_eq!(kernel.lost(), Vec::<String>::new());
        assert_eq!(kernel.version(), (6, 1));
        assert_eq!(kernel.lockdown, Lockdown::None);
        assert_eq!(kernel.perf_event_paranoid, Some(3));
    }

    #[test]
    fn each_missing_capability_is_reported() {
        let lost = but(&[("proc/self/status", "CapEff:\t0000000000000000\n")]).lost();
        assert_eq!(lost.len(), 3, "{lost:#?}");
        assert!(lost[0].contains("CAP_BPF and CAP_PERFMON"), "{}", lost[0]);
        assert!(lost[1].contains("`host stacks`") && lost[1].contains("CAP_PERFMON"), "{}", lost[1]);
        assert!(lost[2].contains("CAP_SYS_PTRACE"), "{}", lost[2]);
    }

    #[test]
    fn capabilities_decide_rather_than_the_user() {
        // CAP_BPF and CAP_PERFMON only.
        let kernel = but(&[("proc/self/status", "CapEff:\t000000c000000000\n")]);
        assert!(kernel.missing_for_probes().is_empty() && kernel.may_sample_cpus());
        assert!(!kernel.can(Capability::SysPtrace));
        // Before 5.8 only CAP_SYS_ADMIN exists.
        let old = but(&[
            ("proc/self/status", "CapEff:\t000000c000000000\n"),
            ("proc/sys/kernel/osrelease", "5.4.0-1\n"),
        ]);
        assert_eq!(old.missing_for_probes(), [Capability::SysAdmin]);
        assert!(old.lost()[0].contains("5.5"), "{:?}", old.lost());
    }

    #[test]
    fn root_in_a_user_namespace_is_not_root() {
        let kernel = but(&[("proc/self/uid_map", "0 1000 1\n")]);
        assert!(kernel.user_namespace);
        assert!(kernel.lost()[0].contains("user namespace"), "{:?}", kernel.lost());
    }

    #[test]
    fn missing_features_are_reported() {
        let lost = but(&[("sys/kernel/btf/vmlinux", "")]).lost();
        assert!(lost[0].contains("CONFIG_DEBUG_INFO_BTF"), "{lost:?}");
        let locked = but(&[("sys/kernel/security/lockdown", "none integrity [confidentiality]\n")]);
        assert_eq!(locked.lockdown, Lockdown::Confidentiality);
        assert!(locked.lost()[0].contains("confidentiality"));
        assert_eq!(but(&[("sys/kernel/security/lockdown", "")]).lockdown, Lockdown::Unknown);
        let hidden = but(&[("proc/sys/kernel/kptr_restrict", "2\n")]).lost();
        assert!(hidden[0].contains("kptr_restrict is 2"), "{hidden:?}");
        // CAP_SYS_ADMIN without CAP_SYSLOG.
        let admin = but(&[("proc/self/status", "CapEff:\t0000000000200000\n")]);
        assert!(admin.may_sample_cpus() && admin.hides_addresses().unwrap().contains("CAP_SYSLOG"));
    }
}
