//! CPU affinity of a single thread.

use super::files::Root;
use super::processes;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use spangap_machine::facts::process_status;
use spangap_model::Cpus;
use std::io;

/// The line of `status` that holds it.
const ALLOWED: &str = "Cpus_allowed_list";

/// The CPUs; `None` if the thread has ended.
pub fn affinity(root: &Root, tid: u32, start_ticks: u64) -> io::Result<Option<String>> {
    if processes::start_ticks(root, tid)? != Some(start_ticks) {
        return Ok(None);
    }
    processes::status(root, tid, ALLOWED)
}

/// Sets the CPUs, as a list.
pub fn set_affinity(root: &Root, tid: u32, start_ticks: u64, list: &str) -> io::Result<()> {
    let cpus = Cpus::parse_list(list).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "expected CPUs as a list, such as 0,3-5")
    })?;
    if root.is_copy() {
        return in_copy(root, tid, start_ticks, list);
    }
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
    if processes::start_ticks(root, tid)? != Some(start_ticks) {
        return Err(gone());
    }
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    Ok(sched_setaffinity(Some(tid), &set)?)
}

fn gone() -> io::Error {
    rustix::io::Errno::SRCH.into()
}

/// In a copy, edits that line.
fn in_copy(root: &Root, tid: u32, start_ticks: u64, list: &str) -> io::Result<()> {
    if affinity(root, tid, start_ticks)?.is_none() {
        return Err(gone());
    }
    let path = format!("{}/{}", processes::folder(root, tid)?.ok_or_else(gone)?, process_status::NAME);
    let text = root.read(&path)?.unwrap_or_default();
    let line = |line: &str| match line.split_once(ALLOWED) {
        Some(("", rest)) => {
            let blanks: String = rest.chars().take_while(|c| !c.is_ascii_digit() && *c != ',').collect();
            format!("{ALLOWED}{blanks}{list}")
        }
        _ => line.to_owned(),
    };
    root.write(&path, &text.lines().map(line).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_pinned_and_unpinned() {
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
    fn in_a_copy_it_is_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let of_thread = folder.path().join("proc/70/task/71");
        std::fs::create_dir_all(&of_thread).expect("it is ours");
        let stat = "71 (a ) b) S 0 1 1 0 -1 4194560 10 0 0 0 4 2 0 0 20 0 1 0 103 0 0\n";
        std::fs::write(of_thread.join("stat"), stat).expect("it is ours");
        let status = "Name:\ta ) b\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n";
        std::fs::write(of_thread.join("status"), status).expect("it is ours");
        let root = Root::copy(folder.path());
        let get = || affinity(&root, 71, 103).expect("it is there");
        assert_eq!(get().as_deref(), Some("0-7"));
        set_affinity(&root, 71, 103, "0,3-7").expect("it is there");
        assert_eq!(get().as_deref(), Some("0,3-7"));
        set_affinity(&root, 71, 103, "0-7").expect("it is there");
        assert_eq!(std::fs::read_to_string(of_thread.join("status")).expect("it is there"), status);
        assert!(set_affinity(&root, 71, 104, "0").is_err());
        assert_eq!(affinity(&root, 72, 103).expect("that is no error"), None);
    }

    #[test]
    fn reused_thread_id_is_left_alone() {
        let root = Root::machine();
        let own = std::process::id();
        assert_eq!(affinity(&root, own, 1).expect("that is no error"), None);
        assert!(set_affinity(&root, own, 1, "0").is_err());
        assert!(set_affinity(&root, own, 1, "").is_err());
        assert!(set_affinity(&root, own, 1, "70000").is_err());
        assert!(set_affinity(&root, own, 1, "2000").is_err_and(|error| error.to_string().contains("1024")));
    }
}
