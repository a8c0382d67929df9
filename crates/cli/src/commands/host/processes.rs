//! Processes named on the command line.

use crate::values::wrong_usage;
use spangap_machine::facts::process_namespace;
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::{FactError, read_here};

/// The processes that these ids belong to; ids may be those of threads. `flag` is the option they were given
/// by.
pub fn processes(flag: &str, pids: &[u32]) -> anyhow::Result<Vec<u32>> {
    let mut tgids = Vec::new();
    for pid in pids {
        let path = format!("/proc/{pid}/{}", process_status::NAME);
        let tgid = match read_here(&path, |path, text| ProcessStatus::new(path, text).process()) {
            Err(FactError::Read { why, .. }) => {
                return Err(wrong_usage(format!("{flag} {pid}: there is no such process: {why}")).into());
            }
            tgid => tgid?,
        };
        if !tgids.contains(&tgid) {
            tgids.push(tgid);
        }
    }
    Ok(tgids)
}

/// The same for probes, which find a process by the id that the kernel knows it by.
pub fn of_the_kernel(flag: &str, pids: &[u32]) -> anyhow::Result<Vec<u32>> {
    let tgids = processes(flag, pids)?;
    anyhow::ensure!(
        tgids.is_empty() || process_namespace::has_the_kernels_ids(),
        "{flag}: this is a container with process ids of its own, and the kernel reports others: run it with the ids of the host (hostPID: true in Kubernetes, --pid=host in Docker)"
    );
    Ok(tgids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stands_for_its_process_once_and_nobody_is_named() {
        let own = std::process::id();
        let thread = std::thread::spawn(move || {
            processes("--pid", &[rustix::thread::gettid().as_raw_pid() as u32, own])
        });
        assert_eq!(thread.join().expect("it ends").expect("it is there"), [own]);
        let error = processes("--not-pid", &[u32::MAX]).expect_err("there is none");
        assert!(
            error.to_string().contains(&format!("--not-pid {}: there is no such process", u32::MAX)),
            "{error}"
        );
    }
}
