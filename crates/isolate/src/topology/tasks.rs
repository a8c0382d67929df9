//! Threads: kernel threads, and those that may not use all CPUs of their cgroup.

use super::cpusets::group_of;
use super::reading::Reading;
use super::{Cpusets, PinnedTask};
use spangap_machine::Known;
use spangap_machine::facts::mountinfo::CgroupMount;
use spangap_machine::facts::process_status::{self, ProcessStatus};
use spangap_machine::facts::{process_cgroup, process_stat};
use spangap_model::Cpus;
use std::collections::{BTreeMap, BTreeSet};

/// All threads, as far as relevant here.
#[derive(Default)]
pub(super) struct Tasks {
    /// Processes with their names.
    pub processes: Vec<(u32, String)>,
    /// Kernel threads.
    pub kernel: BTreeSet<u32>,
    /// Threads that may not use all online CPUs, and NAPI threads.
    some_cpus: Vec<Task>,
}

struct Task {
    pid: u32,
    tid: u32,
    /// Folder.
    at: String,
    allowed: Cpus,
}

/// Examines every thread of the machine. One that ends in the meantime is left out.
pub(super) fn scan(reading: &mut Reading, online: &Cpus) -> Tasks {
    let mut tasks = Tasks::default();
    let names = reading.keep(reading.files.list("/proc")).unwrap_or_default();
    // Most threads have one of few distinct lists.
    let mut lists: BTreeMap<String, (Cpus, bool)> = BTreeMap::new();
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let at = format!("/proc/{pid}");
        let comm = match passing(reading, &format!("{at}/{}", process_stat::NAME), process_stat::parse) {
            Some(stat) => {
                if stat.is_kernels() {
                    tasks.kernel.insert(pid);
                }
                Some(stat.comm)
            }
            None => passing(reading, &format!("{at}/comm"), |_, text| Ok(text.trim_end().to_owned())),
        };
        let of_napi = comm.as_ref().is_some_and(|comm| comm.starts_with("napi/"));
        tasks.processes.extend(comm.map(|comm| (pid, comm)));
        let threads = reading.files.list(&format!("{at}/task")).unwrap_or_default();
        for tid in threads.iter().filter_map(|name| name.parse::<u32>().ok()) {
            let at = format!("{at}/task/{tid}");
            let found = passing(reading, &format!("{at}/{}", process_status::NAME), |path, text| {
                let status = ProcessStatus::new(path, text);
                let list = status.allowed_list()?;
                if !lists.contains_key(list) {
                    let cpus = status.allowed()?;
                    let everywhere = online.without(&cpus).is_empty();
                    lists.insert(list.to_owned(), (cpus, everywhere));
                }
                let (allowed, everywhere) = &lists[list];
                Ok((!everywhere || of_napi).then(|| allowed.clone()))
            });
            if let Some(allowed) = found.flatten() {
                tasks.some_cpus.push(Task { pid, tid, at, allowed });
            }
        }
    }
    tasks
}

/// Those that may not use all CPUs of their cgroup, and NAPI threads.
pub(super) fn pinned(
    reading: &mut Reading,
    tasks: &Tasks,
    online: &Cpus,
    cpusets: Option<(&Cpusets, &CgroupMount)>,
) -> Vec<PinnedTask> {
    let effective: BTreeMap<&str, &Cpus> = cpusets
        .iter()
        .flat_map(|(cpusets, _)| &cpusets.groups)
        .filter_map(|group| Some((group.path.as_str(), group.effective.as_ref()?)))
        .collect();
    let mut pinned = Vec::new();
    for task in &tasks.some_cpus {
        let Some(stat) =
            passing(reading, &format!("{}/{}", task.at, process_stat::NAME), process_stat::parse)
        else {
            continue;
        };
        let group = cpusets.and_then(|(_, place)| {
            passing(reading, &format!("{}/{}", task.at, process_cgroup::NAME), |path, text| {
                Ok(group_of(&process_cgroup::parse(path, text)?, place))
            })?
        });
        let group = group.unwrap_or_else(|| "/".to_owned());
        let has = effective.get(group.as_str()).copied().unwrap_or(online);
        if has.both(online).without(&task.allowed).is_empty() && !stat.comm.starts_with("napi/") {
            continue;
        }
        pinned.push(PinnedTask {
            tid: task.tid,
            pid: task.pid,
            start_ticks: stat.start_ticks,
            allowed: task.allowed.both(online),
            kernel: stat.is_kernels(),
            bound: stat.is_bound(),
            comm: stat.comm,
            group,
        });
    }
    pinned.sort_by_key(|task| task.tid);
    pinned
}

/// A file of a thread, which may end at any time; only malformed content is reported.
fn passing<T>(reading: &mut Reading, path: &str, parse: impl FnOnce(&str, &str) -> Known<T>) -> Option<T> {
    let text = reading.files.read(path).ok()?;
    reading.keep(parse(path, &text))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};

    const PF_KTHREAD: u32 = 0x0020_0000;
    const PF_NO_SETAFFINITY: u32 = 0x0400_0000;

    fn thread(pid: u32, tid: u32, comm: &str, flags: u32, allowed: &str, group: &str) -> String {
        let stat = format!("{tid} ({comm}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n", tid * 7);
        let whole = if pid == tid { format!("=== /proc/{pid}/stat\n{stat}") } else { String::new() };
        format!(
            "{whole}=== /proc/{pid}/task/{tid}/stat\n{stat}\
             === /proc/{pid}/task/{tid}/status\nName:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t{allowed}\n\
             === /proc/{pid}/task/{tid}/cgroup\n0::{group}\n"
        )
    }

    const V2: &str = "=== /sys/devices/system/cpu/online\n0-3\n\
        === /proc/self/mountinfo\n30 22 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
        === /sys/fs/cgroup/cgroup.controllers\ncpuset\n=== /sys/fs/cgroup/cpuset.cpus.effective\n0-3\n\
        === /sys/fs/cgroup/cgroup.threads\n2\n9\n10\n11\n20\n\
        === /sys/fs/cgroup/a/cpuset.cpus.effective\n0-1\n=== /sys/fs/cgroup/a/cgroup.threads\n12\n13\n";

    #[test]
    fn pinned_threads_may_not_use_all_cpus_of_their_group() {
        let machine = read(&format!(
            "{V2}{}{}{}{}{}{}{}",
            thread(9, 9, "free", 0, "0-7", "/"),
            thread(10, 10, "a (b) c", 0, "2-3,9", "/"),
            thread(9, 11, "worker", 0, "3", "/"),
            thread(12, 12, "all of its group", 0, "0-1", "/a"),
            thread(12, 13, "half of it", 0, "1", "/a"),
            thread(2, 2, "kworker/1:0", PF_KTHREAD | PF_NO_SETAFFINITY, "1", "/"),
            thread(20, 20, "napi/eth0-8193", PF_KTHREAD, "0-3", "/"),
        ));
        let shown: Vec<_> = machine
            .pinned
            .iter()
            .map(|task| {
                (task.tid, task.pid, task.comm.as_str(), task.allowed.to_string(), task.kernel, task.bound)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (2, 2, "kworker/1:0", "1".to_owned(), true, true),
                (10, 10, "a (b) c", "2-3".to_owned(), false, false),
                (11, 9, "worker", "3".to_owned(), false, false),
                (13, 12, "half of it", "1".to_owned(), false, false),
                (20, 20, "napi/eth0-8193", "0-3".to_owned(), true, false),
            ]
        );
        assert_eq!((machine.pinned[3].group.as_str(), machine.pinned[3].start_ticks), ("/a", 91));
        let groups = &machine.cpusets.as_ref().unwrap().groups;
        let counts: Vec<_> = groups.iter().map(|group| (group.tasks, group.kernel_tasks)).collect();
        assert_eq!(counts, [(5, 2), (2, 0)]);
    }

    #[test]
    fn without_cpusets_all_cpus_count() {
        let files = thread(10, 10, "one", 0, "2", "/a") + &thread(11, 11, "all", 0, "0-3", "/a");
        let machine = read(&format!("=== /sys/devices/system/cpu/online\n0-3\n{files}"));
        let shown: Vec<_> = machine.pinned.iter().map(|task| (task.tid, task.group.as_str())).collect();
        assert_eq!(shown, [(10, "/")]);
    }

    #[test]
    fn ended_threads_are_omitted_and_malformed_ones_reported() {
        let machine = read(&format!(
            "{V2}=== /proc/30/task : 30 31\n=== /proc/30/stat ! No such process (os error 3)\n\
             === /proc/30/task/30/status ! No such process (os error 3)\n=== /proc/32/stat\n32 (x\n\
             === /proc/32/comm\nnamed\n=== /proc/32/task/32/status\nName:\tx\n\
             === /proc/33/task/33/status\nCpus_allowed_list:\t1-\n",
        ));
        assert_eq!(machine.pinned, vec![]);
        assert_eq!(
            told(&machine, "/proc/3"),
            [
                "/proc/32/stat, line 1: found \"32 (x\", expected an id, a name in brackets, and 20 more fields",
                "/proc/32/task/32/status, line 1: found \"Name:\\tx\", expected a line Cpus_allowed_list",
                "/proc/33/task/33/status, line 1: found \"1-\", expected a list of CPUs, such as 0,3-48",
            ]
        );
    }
}
