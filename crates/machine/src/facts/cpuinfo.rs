//! `/proc/cpuinfo`: blocks of `name : value`, one per online CPU. Architectures agree on few names.

/// The CPUs that are online.
pub const PATH: &str = "/proc/cpuinfo";

/// Facts about the CPUs. Nothing here is an error, because every architecture has other fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// Number of online CPUs.
    pub count: usize,
    /// Model of the first CPU; `None` if missing (ARM).
    pub model: Option<String>,
    /// Whether this is a virtual machine, by the flag that hypervisors set for their guests on x86.
    pub is_virtual: bool,
}

/// Parses it; what an architecture does not write stays empty.
pub fn parse(text: &str) -> CpuInfo {
    let lines = || {
        text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
    };
    let flags = |value: &str| value.split_whitespace().any(|flag| flag == "hypervisor");
    CpuInfo {
        count: lines().filter(|(name, _)| *name == "processor").count(),
        model: lines()
            .find(|(name, value)| *name == "model name" && !value.is_empty())
            .map(|(_, value)| value.to_owned()),
        is_virtual: lines().any(|(name, value)| name == "flags" && flags(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_architectures() {
        let x86 = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\nmodel name\t: A CPU\n";
        assert_eq!(parse(x86), CpuInfo { count: 2, model: Some("A CPU".into()), is_virtual: true });
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n";
        assert_eq!(parse(arm), CpuInfo { count: 1, model: None, is_virtual: false });
        // A flag is a whole word.
        assert!(!parse("flags : nohypervisor\n").is_virtual);
    }
}
