//! `/proc/PID/status`, of a process or thread: lines of a name, a colon and a value.

use super::figures;
use crate::{FactError, Known};
use spangap_model::Cpus;

/// File name in a process's or thread's folder.
pub const NAME: &str = "status";

/// The text; fields are parsed on demand, because there are 60 lines for each of many thousand threads.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStatus<'a> {
    path: &'a str,
    text: &'a str,
}

impl<'a> ProcessStatus<'a> {
    /// Wraps the text of a file.
    pub fn new(path: &'a str, text: &'a str) -> ProcessStatus<'a> {
        ProcessStatus { path, text }
    }

    /// Value of an optional line.
    pub fn field(&self, name: &str) -> Option<&'a str> {
        self.line(name).map(|(_, value)| value)
    }

    /// Number of the line, from 0, and its value.
    fn line(&self, name: &str) -> Option<(usize, &'a str)> {
        let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
        self.text.lines().enumerate().find_map(|(at, line)| Some((at, value(line)?.trim())))
    }

    fn needed<T>(
        &self,
        name: &str,
        missing: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Known<T> {
        let line = self.line(name);
        let (at, value) = line.ok_or_else(|| FactError::malformed(self.path, 0, self.text, missing))?;
        parse(value).ok_or_else(|| FactError::malformed(self.path, at, value, expected))
    }

    /// Name. The kernel escapes a newline in it as `\n`.
    ///
    /// # Errors
    /// The line is missing; the same below.
    pub fn name(&self) -> Known<&'a str> {
        self.needed("Name", "a line Name", "a name", Some)
    }

    /// Id of its process.
    ///
    /// # Errors
    /// As above.
    pub fn process(&self) -> Known<u32> {
        self.needed("Tgid", "a line Tgid", "the number of a process", |value| value.parse().ok())
    }

    /// Process id of its tracer; 0 if none.
    ///
    /// # Errors
    /// As above.
    pub fn tracer(&self) -> Known<u32> {
        self.needed("TracerPid", "a line TracerPid", "the number of a process", |value| value.parse().ok())
    }

    /// Resident memory; absent for threads of the kernel.
    ///
    /// # Errors
    /// As above.
    pub fn resident_bytes(&self) -> Known<u64> {
        self.needed("VmRSS", "a line VmRSS", "a size in kB", figures::kib)
    }

    /// Effective capabilities.
    ///
    /// # Errors
    /// As above.
    pub fn capabilities(&self) -> Known<u64> {
        let mask = |value| u64::from_str_radix(value, 16).ok();
        self.needed("CapEff", "a line CapEff", "a mask of capabilities", mask)
    }

    /// Allowed CPUs as text: most threads of a machine share one of few such lists.
    ///
    /// # Errors
    /// As above.
    pub fn allowed_list(&self) -> Known<&'a str> {
        self.needed("Cpus_allowed_list", "a line Cpus_allowed_list", "a list", Some)
    }

    /// Allowed CPUs.
    ///
    /// # Errors
    /// As above.
    pub fn allowed(&self) -> Known<Cpus> {
        let expected = "a list of CPUs, such as 0,3-48";
        self.needed("Cpus_allowed_list", "a line Cpus_allowed_list", expected, Cpus::parse_list)
    }
}

/// Resident memory of this process.
///
/// # Errors
/// There is no /proc.
pub fn own_resident_bytes() -> Known<u64> {
    crate::read_here("/proc/self/status", |path, text| ProcessStatus::new(path, text).resident_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tkworker/0:1\nUmask:\t0000\nState:\tI (idle)\nTgid:\t12\nNgid:\t0\nPid:\t13\nPPid:\t2\n\
        TracerPid:\t99\nVmRSS:\t    2048 kB\nCapEff:\t000001ffffffffff\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n";

    #[test]
    fn values_of_lines() {
        let status = ProcessStatus::new("/proc/13/status", TEXT);
        assert_eq!((status.name(), status.process(), status.tracer()), (Ok("kworker/0:1"), Ok(12), Ok(99)));
        assert_eq!((status.capabilities(), status.allowed_list()), (Ok((1 << 41) - 1), Ok("0-3")));
        assert_eq!(status.allowed().unwrap().to_string(), "0-3");
        assert_eq!(status.resident_bytes(), Ok(2 << 20));
        assert!(own_resident_bytes().expect("this is a process of Linux") > 0);
        // A name must match in full: `Pid` is not `PPid`, and `Cpus_allowed` not the list.
        assert_eq!((status.field("Pid"), status.field("Cpus_allowed")), (Some("13"), Some("f")));
        assert_eq!(status.field("Speculation_Store_Bypass"), None);
    }

    #[test]
    fn missing_or_malformed_lines_are_reported() {
        let text = "Name:\tx\nCpus_allowed_list:\tnone\n";
        let status = ProcessStatus::new("/proc/1/status", text);
        assert_eq!(
            status.allowed().unwrap_err().to_string(),
            "/proc/1/status, line 2: found \"none\", expected a list of CPUs, such as 0,3-48"
        );
        let missing = status.process().unwrap_err().to_string();
        assert!(missing.ends_with("expected a line Tgid"), "{missing}");
        assert!(ProcessStatus::new("/p", "").name().is_err());
    }
}
