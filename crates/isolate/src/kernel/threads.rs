//! CPUs that one thread may run on.

use super::files::Root;
use super::processes;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use spangap_model::Cpus;
use std::io;

/// The CPUs; `None`: the thread has ended.
pub fn affinity(root: &Root, tid: u32, start_ticks: u64) -> io::Result<Option<String>> {
    if processes::start_ticks(root, tid)? != Some(start_ticks) {
        return Ok(None);
    }
    processes::status(root, tid, "Cpus_allowed_list")
}

/// Sets them, as a list.
pub fn set_affinity(root: &Root, tid: u32, start_ticks: u64, list: &str) -> io::Result<()> {
    let cpus = Cpus::parse_list(list).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "expected CPUs as a list, such as 0,3-5")
    })?;
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        if cpu as usize >= CpuSet::MAX_CPU {
            let most = CpuSet::MAX_CPU;
            return Err(io::Error::other(format!(
                "CPU {cpu} is beyond the {most} that can be named to a thread"
            )));
        }
        set.set(cpu as usize);
    }
    let gone = || io::Error::from(rustix::io::Errno::SRCH);
    if processes::start_ticks(root, tid)? != Some(start_ticks) {
        return Err(gone());
    }
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    Ok(sched_setaffinity(Some(tid), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_to_some_of_its_cpus_and_let_go() {
        let root = Root::machine();
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let start = processes::start_ticks(&root, own).expect("/proc is there").expect("we are there");
        let get = || affinity(&root, own, start).expect("/proc is there").expect("we are there");
        let before = get();
        let first = Cpus::parse_list(&before).and_then(|cpus| cpus.iter().next()).expect("we run somewhere");
        set_affinity(&root, own, start, &first.to_string()).expect("it is ours");
        assert_eq!(get(), first.to_string());
        set_affinity(&root, own, start, &before).expect("it is ours");
        assert_eq!(get(), before);
    }

    #[test]
    fn another_thread_of_the_same_id_is_let_be() {
        let root = Root::machine();
        let own = std::process::id();
        assert_eq!(affinity(&root, own, 1).expect("that is no error"), None);
        assert!(set_affinity(&root, own, 1, "0").is_err());
        assert!(set_affinity(&root, own, 1, "").is_err());
        assert!(set_affinity(&root, own, 1, "70000").is_err());
        assert!(set_affinity(&root, own, 1, "2000").is_err_and(|error| error.to_string().contains("1024")));
    }
}
