//! `/proc/meminfo`: memory of the machine.

use crate::{FactError, Known};

/// Path of the file.
pub const PATH: &str = "/proc/meminfo";

/// Memory of the machine, without what the kernel keeps for itself at boot.
///
/// # Errors
/// No such line, or not in kB, which is the kernel's name for KiB.
pub fn total_bytes(path: &str, text: &str) -> Known<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let bytes = value.and_then(|value| super::figures::kib(value.trim()));
    bytes.ok_or_else(|| FactError::malformed(path, 0, value.unwrap_or_default(), "a line MemTotal in kB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_whole_machine() {
        let text = "MemFree: 3 kB\nMemTotal:        2048 kB\n";
        assert_eq!(total_bytes(PATH, text), Ok(2048 * 1024));
        for bad in ["", "MemTotal: 2048\n", "MemTotal: x kB\n", "MemTotal: 18446744073709551615 kB\n"] {
            assert!(total_bytes(PATH, bad).is_err(), "{bad}");
        }
    }
}
