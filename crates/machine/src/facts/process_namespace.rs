//! Whether the ids of processes in `/proc` are the kernel's own: those that tracing programs report. In a container
//! they usually are not.

/// How the kernel names the process namespace that it boots with, whose ids are its own.
const OF_THE_KERNEL: &str = "pid:[4026531836]";

/// False if `/proc` is that of a container; true also where that cannot be told.
pub fn has_the_kernels_ids() -> bool {
    let name = |path: &str| std::fs::read_link(path).ok()?.into_os_string().into_string().ok();
    match (name("/proc/self/ns/pid"), name("/proc/self")) {
        (Some(namespace), Some(shown)) => are_the_kernels(&namespace, &shown, std::process::id()),
        _ => true,
    }
}

/// From a process's namespace, its id as `/proc` shows it, and its id as it knows it.
fn are_the_kernels(namespace: &str, shown: &str, own: u32) -> bool {
    // A container may have the host's `/proc`, which shows its processes by other ids than they know.
    namespace == OF_THE_KERNEL || shown != own.to_string()
}

#[cfg(test)]
mod tests {
    use super::are_the_kernels;

    #[test]
    fn a_containers_own_proc_has_its_own_ids() {
        assert!(are_the_kernels("pid:[4026531836]", "4242", 4242));
        assert!(!are_the_kernels("pid:[4026532542]", "7", 7));
        assert!(are_the_kernels("pid:[4026532542]", "4242", 7));
    }
}
