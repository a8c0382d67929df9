//! Processes and threads of this machine, from `/proc`.

use super::files::Root;
use spangap_machine::facts::process_stat::{self, ProcessStat};
use spangap_machine::facts::process_status::{self, ProcessStatus};
use std::fs;
use std::io;

/// Ids of the processes with this name.
pub fn named(root: &Root, name: &str) -> io::Result<Vec<u32>> {
    let name = &name[..name.len().min(COMM_BYTES)];
    let mut pids = ids(root)?;
    // A process that has just ended does not count.
    pids.retain(|pid| root.read(&format!("/proc/{pid}/comm")).ok().flatten().as_deref() == Some(name));
    Ok(pids)
}

/// Folder of a thread. The live `/proc` resolves any thread by its id; in a copy it is below its process.
pub fn folder(root: &Root, tid: u32) -> io::Result<Option<String>> {
    if !root.is_copy() {
        return Ok(Some(format!("/proc/{tid}")));
    }
    let below = |pid: u32| format!("/proc/{pid}/task/{tid}");
    let is_there = |pid: &u32| root.real(&below(*pid)).is_ok_and(|folder| folder.is_dir());
    if is_there(&tid) {
        return Ok(Some(below(tid)));
    }
    Ok(ids(root)?.into_iter().find(is_there).map(below))
}

/// Ids of all processes.
fn ids(root: &Root) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(root.real("/proc")?) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.file_name())).collect();
    let mut ids: Vec<u32> = names?.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Length to which the kernel truncates names.
const COMM_BYTES: usize = 15;

/// Start time of a thread, in ticks since boot; `None` if it does not exist.
pub fn start_ticks(root: &Root, tid: u32) -> io::Result<Option<u64>> {
    Ok(stat(root, tid)?.map(|stat| stat.start_ticks))
}

/// Whether it is a kernel thread; `None` if it does not exist.
pub fn is_kernels(root: &Root, tid: u32) -> io::Result<Option<bool>> {
    Ok(stat(root, tid)?.map(|stat| stat.is_kernels()))
}

fn stat(root: &Root, tid: u32) -> io::Result<Option<ProcessStat>> {
    let Some((path, text)) = file(root, tid, process_stat::NAME)? else { return Ok(None) };
    process_stat::parse(&path, &text).map(Some).map_err(io::Error::other)
}

/// A line `NAME:\tVALUE` of `status`.
pub fn status(root: &Root, tid: u32, name: &str) -> io::Result<Option<String>> {
    let Some((path, text)) = file(root, tid, process_status::NAME)? else { return Ok(None) };
    Ok(ProcessStatus::new(&path, &text).field(name).map(str::to_owned))
}

/// A file of a thread: path and content.
fn file(root: &Root, tid: u32, name: &str) -> io::Result<Option<(String, String)>> {
    let Some(folder) = folder(root, tid)? else { return Ok(None) };
    let path = format!("{folder}/{name}");
    Ok(root.read(&path)?.map(|text| (path, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found() {
        let root = Root::machine();
        let own = std::process::id();
        let name = root.read(&format!("/proc/{own}/comm")).expect("/proc is there").expect("we are there");
        assert!(named(&root, &name).expect("/proc is there").contains(&own));
        assert!(start_ticks(&root, own).expect("/proc is there").is_some());
        assert_eq!(is_kernels(&root, own).expect("/proc is there"), Some(false));
        assert_eq!(status(&root, own, "Pid").expect("/proc is there"), Some(own.to_string()));
        assert_eq!(start_ticks(&root, u32::MAX).expect("that is no error"), None);
    }
}
