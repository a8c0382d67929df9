//! Processes that are currently stopped, or whose cgroup is frozen. A process halted before a recording starts
//! leaves no event in it: it neither runs nor wants to.

use crate::check::freezer;
use serde::{Deserialize, Serialize};
use spangap_machine::Host;
use spangap_machine::facts::process_stat;
use spangap_machine::facts::process_status::{self, ProcessStatus};

/// What halts a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum How {
    /// Stopped by a signal.
    Stopped,
    /// Traced by a debugger.
    Traced {
        /// Process id of the debugger.
        tracer: u32,
    },
    /// Frozen with its cgroup.
    Frozen {
        /// File that shows it.
        file: String,
    },
}

/// A halted process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    pub pid: u32,
    pub name: String,
    /// Reason.
    #[serde(flatten)]
    pub how: How,
    /// Number of its threads that are halted.
    pub threads: usize,
    /// Number of all its threads.
    pub of_threads: usize,
    /// Length of the observation, in nanoseconds, if it stayed halted throughout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_look_ns: Option<u64>,
}

impl Halted {
    /// The reason, as a name.
    pub fn words(&self) -> String {
        match &self.how {
            How::Stopped => "stop signal".into(),
            How::Traced { tracer } => format!("debugger (pid {tracer})"),
            How::Frozen { file } => format!("freezer ({file})"),
        }
    }

    /// A one-sentence description without a full stop.
    pub fn sentence(&self) -> String {
        let what = match &self.how {
            How::Stopped => "was stopped by a signal".to_owned(),
            How::Traced { tracer } => format!("was held by a debugger (pid {tracer})"),
            How::Frozen { file } => format!("was frozen ({file})"),
        };
        let threads = match self.threads == self.of_threads {
            true => String::new(),
            false => format!(", {} of its {} threads,", self.threads, self.of_threads),
        };
        let until = match self.whole_look_ns {
            Some(_) => "from before this check began until after it ended",
            None => "before this check began",
        };
        format!("{} (pid {}){threads} {what} {until}", self.name, self.pid)
    }

    pub fn remedy(&self) -> String {
        match &self.how {
            How::Stopped => format!("kill -CONT {} lets it go on", self.pid),
            How::Traced { tracer } => format!("Detach the debugger: pid {tracer}"),
            How::Frozen { file } => format!(
                "Thaw its cgroup: {}",
                match file.rsplit_once('/') {
                    Some((folder, "freezer.state")) => format!("echo THAWED > {folder}/freezer.state"),
                    Some((folder, _)) =>
                        format!("echo 0 > {folder}/cgroup.freeze, or that of a cgroup above"),
                    None => "echo 0 > cgroup.freeze".into(),
                }
            ),
        }
    }
}

/// Which of these processes are currently halted.
pub fn halted(host: &Host, pids: &[u32]) -> Vec<Halted> {
    pids.iter().filter_map(|pid| one(host, *pid)).collect()
}

/// Marks the processes in `before` that are still halted `ns` later.
pub fn still(host: &Host, before: &mut [Halted], ns: u64) {
    for halted in before {
        let now = one(host, halted.pid);
        halted.whole_look_ns = now.filter(|now| now.how == halted.how).map(|_| ns);
    }
}

fn one(host: &Host, pid: u32) -> Option<Halted> {
    let threads = host.list(&format!("/proc/{pid}/task")).ok()?;
    let state = |tid: &String| {
        let path = format!("/proc/{pid}/task/{tid}/{}", process_stat::NAME);
        host.parsed(&path, process_stat::parse).ok().map(|stat| stat.state)
    };
    let states: Vec<char> = threads.iter().filter_map(state).collect();
    let count = |letter: char| states.iter().filter(|state| **state == letter).count();
    let name = host.read(&format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    let found = |how, threads| {
        Some(Halted { pid, name: name.clone(), how, threads, of_threads: states.len(), whole_look_ns: None })
    };
    if count('t') > 0 {
        let path = format!("/proc/{pid}/{}", process_status::NAME);
        let tracer = host.parsed(&path, |path, text| ProcessStatus::new(path, text).tracer());
        return found(How::Traced { tracer: tracer.unwrap_or(0) }, count('t'));
    }
    if count('T') > 0 {
        return found(How::Stopped, count('T'));
    }
    freezer(host, pid).and_then(|file| found(How::Frozen { file }, states.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_machine::Kept;

    fn host(text: &str) -> Host {
        Host::kept(Kept::parse(text).unwrap())
    }

    fn process(letter: char, more: &str) -> Host {
        let rest = "1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0";
        host(&format!(
            "=== /proc/7/comm\ndb (1)\n=== /proc/7/task/7/stat\n7 (db (1)) {letter} {rest}\n\
             === /proc/7/task/8/stat\n8 (io) {letter} {rest}\n=== /proc/7/status\nTracerPid:\t99\n{more}"
        ))
    }

    #[test]
    fn stopped_traced_and_neither() {
        let [one] = <[Halted; 1]>::try_from(halted(&process('T', ""), &[7])).unwrap();
        assert_eq!((&one.how, one.threads, one.of_threads), (&How::Stopped, 2, 2));
        assert_eq!(one.sentence(), "db (1) (pid 7) was stopped by a signal before this check began");
        let [one] = <[Halted; 1]>::try_from(halted(&process('t', ""), &[7])).unwrap();
        assert_eq!(one.how, How::Traced { tracer: 99 });
        assert_eq!(halted(&process('S', ""), &[7]), []);
        assert_eq!(halted(&process('R', ""), &[8]), []);
    }

    #[test]
    fn frozen_by_either_version() {
        let version_1 = "=== /proc/self/mountinfo\n1 2 0:1 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
             === /proc/7/cgroup\n3:freezer:/pod\n=== /sys/fs/cgroup/freezer/pod/freezer.state\n";
        let version_2 = "=== /proc/self/mountinfo\n1 2 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             === /proc/7/cgroup\n0::/pod\n=== /sys/fs/cgroup/pod/cgroup.events\npopulated 1\n";
        for (text, file) in [
            (format!("{version_1}FROZEN\n"), "/sys/fs/cgroup/freezer/pod/freezer.state"),
            (format!("{version_2}frozen 1\n"), "/sys/fs/cgroup/pod/cgroup.events"),
        ] {
            let [one] = <[Halted; 1]>::try_from(halted(&process('D', &text), &[7])).unwrap();
            assert_eq!(one.how, How::Frozen { file: file.into() });
        }
        for text in [format!("{version_1}THAWED\n"), format!("{version_2}frozen 0\n")] {
            assert_eq!(halted(&process('D', &text), &[7]), []);
        }
    }

    #[test]
    fn process_halted_at_both_ends_counts_as_halted_throughout() {
        let mut before = halted(&process('T', ""), &[7]);
        still(&process('S', ""), &mut before, 5);
        assert_eq!(before[0].whole_look_ns, None);
        still(&process('T', ""), &mut before, 5);
        assert_eq!(before[0].whole_look_ns, Some(5));
        assert!(before[0].sentence().ends_with("from before this check began until after it ended"));
    }
}
