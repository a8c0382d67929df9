//! A run seen from outside: its journal, its keeper, and everything that it leaves on the machine.

use crate::process::{Ended, Program};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for the journals of one test, and one for the folders of its runs.
pub struct Scene {
    pub folder: tempfile::TempDir,
}

impl Scene {
    /// `None`, with a printed reason, where no hosts can be made.
    pub fn new() -> Option<Scene> {
        let made = Command::new("unshare").args(["--net", "ip", "link", "show", "lo"]).output();
        if !made.is_ok_and(|output| output.status.success()) {
            println!("not run: it takes root and the program ip to make network namespaces");
            return None;
        }
        Some(Scene { folder: tempfile::tempdir().expect("a folder") })
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn out(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// Starts the shortest run.
    pub fn start(&self) -> Program {
        self.start_one("healthy")
    }

    /// Starts a short run of a scenario.
    pub fn start_one(&self, scenario: &str) -> Program {
        let (state, out) = (self.state(), self.out());
        let [state, out] = [&state, &out].map(|path| path.to_str().expect("a plain path"));
        Program::start(&["lab", "run", scenario, "--set", "duration=300ms", "--state", state, "--out", out])
    }

    pub fn clean(&self, arguments: &[&str]) -> Ended {
        self.start_clean(arguments).wait()
    }

    pub fn start_clean(&self, arguments: &[&str]) -> Program {
        let state = self.state();
        let state = state.to_str().expect("a plain path");
        Program::start(&[&["lab", "clean", "--state", state], arguments].concat())
    }

    pub fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// The id of the running run, from its keeper, which exists before everything else.
    pub fn id(&self) -> Option<String> {
        let keeper = *keepers(&self.state()).first()?;
        let journal = words(keeper).into_iter().find(|word| word.ends_with(".journal"))?;
        Some(Path::new(&journal).file_stem()?.to_str()?.to_owned())
    }

    /// The working folder of the run.
    pub fn work(&self, id: &str) -> PathBuf {
        self.folder.path().join(format!(".lab-{id}"))
    }

    /// Everything on the machine that belongs to a run, except its finished folder.
    pub fn left(&self, id: &str) -> Vec<String> {
        let mut left = Vec::new();
        for folder in ["/run/netns", "/etc/netns"].map(Path::new).into_iter().chain([self.folder.path()]) {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let own = names.filter(|name| name.file_name().to_string_lossy().contains(id));
            left.extend(own.map(|name| name.path().display().to_string()));
        }
        left.extend(cgroups(Path::new("/sys/fs/cgroup"), id));
        left.extend(self.journals().iter().map(|path| path.display().to_string()));
        let mark = format!("SPANGAP_LAB={id}");
        let marked = processes().into_iter().filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        });
        left.extend(marked.chain(keepers(&self.state())).map(|pid| format!("{pid}: {:?}", words(pid))));
        left
    }
}

pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub fn words(pid: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Keepers of runs whose journals are in this folder.
pub fn keepers(state: &Path) -> Vec<u32> {
    let state = format!("{}/", state.display());
    let is_keeper = |pid: &u32| {
        let words = words(*pid);
        words.iter().any(|word| word == "keeper") && words.iter().any(|word| word.starts_with(&state))
    };
    processes().into_iter().filter(is_keeper).collect()
}

pub fn kill(pid: u32, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

/// Control groups whose names contain the run's id.
fn cgroups(folder: &Path, id: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains(id) {
                found.push(entry.path().display().to_string());
            }
            found.extend(cgroups(&entry.path(), id));
        }
    }
    found
}

/// Which CPUs may handle interrupts and packets on this machine: masks of interrupts, RPS and XPS, by file.
pub fn masks() -> BTreeMap<PathBuf, String> {
    let mut masks = BTreeMap::new();
    let mut read = |path: PathBuf| {
        if let Ok(text) = fs::read_to_string(&path) {
            masks.insert(path, text);
        }
    };
    for number in fs::read_dir("/proc/irq").into_iter().flatten().flatten() {
        read(number.path().join("smp_affinity"));
    }
    for device in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
        for queue in fs::read_dir(device.path().join("queues")).into_iter().flatten().flatten() {
            ["rps_cpus", "rps_flow_cnt", "xps_cpus"]
                .into_iter()
                .for_each(|file| read(queue.path().join(file)));
        }
    }
    masks
}

/// Masks that have changed since. Interfaces that were added or removed meanwhile do not count.
pub fn changed(before: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let now = masks();
    let both = before.iter().filter_map(|(path, was)| Some((path, was, now.get(path)?)));
    both.filter(|(_, was, is)| was != is)
        .map(|(path, was, is)| format!("{}: {was:?}, now {is:?}", path.display()))
        .collect()
}
