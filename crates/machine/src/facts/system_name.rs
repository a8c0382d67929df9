//! `kernel/osrelease`, `kernel/hostname`: what this system calls itself.

use crate::Known;

/// Path of the kernel's release.
pub const KERNEL: &str = "/proc/sys/kernel/osrelease";
/// Path of the host's name, that of the reader's UTS namespace.
pub const HOST: &str = "/proc/sys/kernel/hostname";

/// Parses one of them.
///
/// # Errors
/// Never: a name may be anything, and is empty where nobody gave one.
pub fn parse(_path: &str, text: &str) -> Known<String> {
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// This kernel's release; empty if it is not told.
pub fn kernel_here() -> String {
    crate::read_here(KERNEL, parse).unwrap_or_default()
}

/// This host's name; empty if it is not told.
pub fn host_here() -> String {
    crate::read_here(HOST, parse).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_without_its_end() {
        assert_eq!(parse(KERNEL, "6.1.0-50-cloud-amd64\n").as_deref(), Ok("6.1.0-50-cloud-amd64"));
        assert_eq!(parse(HOST, "").as_deref(), Ok(""));
        assert!(!kernel_here().is_empty() && !host_here().contains('\n'));
    }
}
