//! Sets of CPUs in files of their own: `online`, `cpuset.cpus`, `smp_affinity_list`, `rps_cpus`.

use crate::{FactError, Known};
use spangap_model::Cpus;

/// Online CPUs.
pub const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Parses a list such as `0,3-48`. The kernel writes `(null)` for an option that was never given (`nohz_full`).
///
/// # Errors
/// Any other text.
pub fn list(path: &str, text: &str) -> Known<Cpus> {
    let none = text.trim() == "(null)";
    let cpus = if none { Some(Cpus::default()) } else { Cpus::parse_list(text) };
    cpus.ok_or_else(|| FactError::malformed(path, 0, text, "a list of CPUs, such as 0,3-48"))
}

/// Parses a mask such as `ff,00000003`.
///
/// # Errors
/// Any other text.
pub fn mask(path: &str, text: &str) -> Known<Cpus> {
    Cpus::parse_mask(text)
        .ok_or_else(|| FactError::malformed(path, 0, text, "a mask of CPUs, such as ff,00000003"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_masks_and_malformed_text() {
        let shown = |cpus: Known<Cpus>| cpus.map(|cpus| cpus.to_string());
        assert_eq!(shown(list(ONLINE, "0,3-5\n")), Ok("0,3-5".into()));
        assert_eq!(shown(list(ONLINE, "\n")), Ok(String::new()));
        assert_eq!(shown(list("/sys/devices/system/cpu/nohz_full", "  (null)\n")), Ok(String::new()));
        assert_eq!(shown(mask("/p", "1,00000003\n")), Ok("0-1,32".into()));
        let error = list("/p", "3-1\n").unwrap_err().to_string();
        assert_eq!(error, "/p, line 1: found \"3-1\", expected a list of CPUs, such as 0,3-48");
        assert!(mask("/p", "0x3\n").is_err() && mask("/p", "").is_err());
    }
}
