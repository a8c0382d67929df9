//! On this machine, as root: interfaces of a network namespace, cgroups and processes, all made for the test.

use crate::{Program, error, guards, json, no_guard, until};
use spangap_isolate::kernel::{Kernel, Live, WriteEffects};
use spangap_isolate::place::Place;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("not run: needs root");
    }
    root
}

/// A network namespace with the interface `noise` in it, removed at the end.
struct Namespace {
    name: String,
    folder: tempfile::TempDir,
}

impl Namespace {
    fn new(name: &str) -> Option<Namespace> {
        if !is_root() {
            return None;
        }
        let namespace = Namespace {
            name: format!("spangap-{name}-{}", std::process::id()),
            folder: tempfile::tempdir().expect("a folder"),
        };
        let made = ip(&["netns", "add", &namespace.name]);
        if !made.as_ref().is_ok_and(|output| output.status.success()) {
            println!("not run: no network namespace can be made: {made:?}");
            std::mem::forget(namespace);
            return None;
        }
        let veth = ["link", "add", "noise", "type", "veth", "peer", "name", "far"];
        let made = ip(&[&["-n", &namespace.name], veth.as_slice()].concat());
        assert!(made.as_ref().is_ok_and(|output| output.status.success()), "{made:?}");
        Some(namespace)
    }

    /// Runs `spangap` inside.
    fn spangap(&self, arguments: &[&str]) -> crate::Ended {
        let binary = env!("CARGO_BIN_EXE_spangap");
        let inside = ["netns", "exec", &self.name, binary];
        let output = ip(&[&inside, arguments].concat()).expect("ip is there");
        let lines = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
        crate::Ended { code: output.status.code(), out: lines(&output.stdout), err: lines(&output.stderr) }
    }

    fn journals(&self) -> PathBuf {
        self.folder.path().join("journals")
    }

    fn verb(&self, verb: &str, more: &[&str]) -> crate::Ended {
        let journals = self.journals();
        self.spangap(&[&["isolate", verb, "--journal", crate::text(&journals)], more].concat())
    }

    /// Makes a plan for CPU 0, and applies it.
    fn applied(&self, more: &[&str]) {
        let (plan, journals) = (self.folder.path().join("plan.json"), self.journals());
        let planned = self.spangap(&[
            "isolate",
            "plan",
            "--interface",
            "noise",
            "--net-cpus",
            "cpu:0",
            "--no-cpusets",
            "--write",
            crate::text(&plan),
        ]);
        assert_eq!(planned.code, Some(0), "{planned:?}");
        let apply = ["isolate", "apply", crate::text(&plan), "--journal", crate::text(&journals)];
        let applied = self.spangap(&[&apply, more].concat());
        assert_eq!(applied.code, Some(0), "{applied:?}");
    }

    /// CPUs that the interface's packets are steered to.
    fn rps_cpus(&self) -> u32 {
        let path = "/sys/class/net/noise/queues/rx-0/rps_cpus";
        let output = ip(&["netns", "exec", &self.name, "cat", path]).expect("ip is there");
        let text = String::from_utf8_lossy(&output.stdout).trim().replace(',', "");
        u32::from_str_radix(&text, 16).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("ip").args(arguments).stdin(Stdio::null()).output()
}

#[test]
fn packets_of_an_interface_are_moved_and_restored() {
    let Some(namespace) = Namespace::new("moved") else { return };
    assert_eq!(namespace.rps_cpus(), 0);
    namespace.applied(&["--no-confirm"]);
    assert_eq!(namespace.rps_cpus(), 1, "CPU 0");
    let back = namespace.verb("rollback", &["--json"]);
    assert_eq!((back.code, &json(&back)["outcome"]), (Some(0), &"restored".into()), "{back:?}");
    assert_eq!(namespace.rps_cpus(), 0);
}

#[test]
fn unconfirmed_steering_is_restored() {
    let Some(namespace) = Namespace::new("guarded") else { return };
    namespace.applied(&["--confirm-within", "1s"]);
    until("set back", || (namespace.rps_cpus() == 0).then_some(()));
    no_guard(&namespace.journals());
    namespace.applied(&["--confirm-within", "2h"]);
    let confirmed = namespace.verb("confirm", &[]);
    assert_eq!(confirmed.code, Some(0), "{confirmed:?}");
    no_guard(&namespace.journals());
    assert_eq!(namespace.rps_cpus(), 1);
    assert_eq!(namespace.verb("rollback", &[]).code, Some(0));
    assert_eq!(namespace.rps_cpus(), 0);
}

#[test]
fn outside_the_namespace_the_way_in_is_named() {
    let Some(namespace) = Namespace::new("outside") else { return };
    namespace.applied(&["--no-confirm"]);
    let journals = namespace.journals();
    let outside = ["isolate", "rollback", "--journal", crate::text(&journals)];
    let said = error(&Program::start(&outside).wait());
    let command = format!("`ip netns exec {} spangap isolate rollback --journal", namespace.name);
    assert!(said.contains(&command), "{said}, expected {command}");
    assert_eq!(namespace.rps_cpus(), 1, "nothing was touched");
    // The interface disappears with its namespace, and nothing is left to undo.
    let deleted = ip(&["netns", "del", &namespace.name]).expect("ip is there");
    assert!(deleted.status.success(), "{deleted:?}");
    let gone = Program::start(&outside).wait();
    assert_eq!(gone.code, Some(0), "{gone:?}");
    assert!(gone.err.iter().any(|line| line.contains("is gone")), "{gone:?}");
    assert!(!journals.join("open.journal").exists());
    assert!(guards(&journals).is_empty());
}

#[test]
fn nothing_is_done_while_sys_shows_another_namespace() {
    let Some(namespace) = Namespace::new("sight") else { return };
    namespace.applied(&["--no-confirm"]);
    let journals = namespace.journals();
    let net = format!("--net=/run/netns/{}", namespace.name);
    // Without `ip netns exec`, it is the machine's /sys.
    let inside = Command::new("nsenter")
        .args([&net, env!("CARGO_BIN_EXE_spangap"), "isolate", "rollback", "--journal"])
        .arg(&journals)
        .output()
        .expect("nsenter is there");
    let said = String::from_utf8_lossy(&inside.stderr).into_owned();
    assert_eq!(inside.status.code(), Some(1), "{said}");
    assert!(said.contains("belongs to another network namespace than this process"), "{said}");
    assert!(journals.join("open.journal").exists());
    // The command that the message suggests leads there.
    let by_hand = format!(
        "nsenter {net} unshare --mount sh -c 'mount -t sysfs sysfs /sys && exec \"$@\"' sh {} isolate rollback --journal {}",
        env!("CARGO_BIN_EXE_spangap"),
        journals.display()
    );
    let back = Command::new("sh").args(["-c", &by_hand]).output().expect("sh is there");
    assert!(back.status.success(), "{by_hand}: {back:?}");
    assert_eq!(namespace.rps_cpus(), 0);
}

/// An irqbalance whose interrupts are files made for it instead of this machine's.
struct Irqbalance(Child);

impl Irqbalance {
    const ITS_OWN: &str = "
        set -e
        mount --make-rprivate /
        mount -t tmpfs tmpfs /mnt
        for irq in /proc/irq/[0-9]*; do
            mkdir /mnt/${irq##*/}
            cat $irq/smp_affinity > /mnt/${irq##*/}/smp_affinity
        done
        mount --bind /mnt /proc/irq
        mount -t tmpfs tmpfs /run
        mkdir /run/irqbalance
        test \"$(stat -f -c %T /proc/irq)\" = tmpfs
        exec irqbalance --foreground --banirq=30";

    fn start() -> Option<Irqbalance> {
        if !is_root() {
            return None;
        }
        let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
        let is_one =
            |path: PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == "irqbalance\n");
        if processes.map(|entry| entry.path()).any(is_one) {
            println!("not run: an irqbalance runs here, and is let be");
            return None;
        }
        let there = Command::new("sh").args(["-c", "command -v irqbalance"]).stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            println!("not run: irqbalance is not installed");
            return None;
        }
        let started = Command::new("unshare").args(["--mount", "sh", "-c", Irqbalance::ITS_OWN]).spawn();
        Some(Irqbalance(started.expect("unshare is there")))
    }
}

impl Drop for Irqbalance {
    fn drop(&mut self) {
        // Our child, not yet reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn irqbalance_is_asked_to_leave_interrupts_alone() {
    let Some(mut irqbalance) = Irqbalance::start() else { return };
    let ready = || {
        assert!(irqbalance.0.try_wait().is_ok_and(|ended| ended.is_none()), "it runs");
        Live::new().get(&Place::BannedIrqs).ok().flatten()
    };
    assert_eq!(until("irqbalance answers", ready), "30");
    set(&Place::BannedIrqs, "31 24");
    assert_eq!(get(&Place::BannedIrqs).as_deref(), Some("24 31"));
    set(&Place::BannedIrqs, "");
    assert_eq!(get(&Place::BannedIrqs).as_deref(), Some(""));
    set(&Place::BannedIrqs, "30");
    let many: Vec<String> = (100..400).map(|irq| irq.to_string()).collect();
    let said = Live::new()
        .set(&Place::BannedIrqs, &many.join(" "))
        .expect_err("too many for one request")
        .to_string();
    assert!(said.contains("--irqbalance stop"), "{said}");
    assert_eq!(get(&Place::BannedIrqs).as_deref(), Some("30"), "nothing was cut off");
}

/// A cgroup for a test, with processes in it that only sleep; all are removed at the end.
struct Groups {
    top: String,
    sleepers: Vec<Child>,
}

impl Groups {
    /// Makes it below this mount, if there is one, with these values.
    fn new(mount: &str, name: &str, values: &[(&str, &str)]) -> Option<Groups> {
        if !is_root() {
            return None;
        }
        if !Path::new(mount).join("cgroup.procs").exists() {
            println!("not run: no cgroups at {mount}");
            return None;
        }
        let groups =
            Groups { top: format!("{mount}/spangap-{name}-{}", std::process::id()), sleepers: Vec::new() };
        for group in [groups.top.clone(), groups.below("one"), groups.below("two")] {
            set(&Place::Group { path: group.clone() }, "made");
            for (file, value) in values {
                set(&Place::file(format!("{group}/{file}")), value);
            }
        }
        Some(groups)
    }

    fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.top)
    }

    /// Starts processes in a group.
    fn sleep_in(&mut self, group: &str, count: usize) {
        for _ in 0..count {
            let sleeper = Command::new("sleep").arg("3600").spawn().expect("sleep is there");
            fs::write(format!("{group}/cgroup.procs"), sleeper.id().to_string()).expect("it can be moved");
            self.sleepers.push(sleeper);
        }
    }

    /// Processes of a group, in order.
    fn processes(&self, group: &str) -> Vec<u32> {
        let text = fs::read_to_string(format!("{group}/cgroup.procs")).expect("the group is there");
        let mut ids: Vec<u32> = text.lines().map(|line| line.parse().expect("an id")).collect();
        ids.sort_unstable();
        ids
    }

    fn all(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.sleepers.iter().map(Child::id).collect();
        ids.sort_unstable();
        ids
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            // Our child, not yet reaped.
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
        for group in [self.below("one"), self.below("two"), self.top.clone()] {
            // A killed process leaves its group a moment later.
            let begun = std::time::Instant::now();
            while fs::remove_dir(&group).is_err()
                && Path::new(&group).exists()
                && begun.elapsed() < crate::process::PATIENCE
            {
                std::thread::park_timeout(std::time::Duration::from_millis(1));
            }
        }
    }
}

fn set(place: &Place, text: &str) -> WriteEffects {
    Live::new().set(place, text).unwrap_or_else(|error| panic!("{error}"))
}

fn get(place: &Place) -> Option<String> {
    Live::new().get(place).unwrap_or_else(|error| panic!("{error}"))
}

/// Tasks move to another group and back, and to the parent when their group is removed.
fn tasks_move(mount: &str, name: &str, values: &[(&str, &str)]) {
    let Some(mut groups) = Groups::new(mount, name, values) else { return };
    let (one, two) = (groups.below("one"), groups.below("two"));
    let tasks = Place::Tasks { from: one.clone(), to: two.clone() };
    groups.sleep_in(&one, 5);
    assert_eq!(get(&tasks).as_deref(), Some("back"));
    assert_eq!(set(&tasks, "moved"), WriteEffects { tasks_moved: 5, tasks_refused: 0 });
    assert_eq!((groups.processes(&one), groups.processes(&two)), (vec![], groups.all()));
    assert_eq!(get(&tasks).as_deref(), Some("moved"));
    assert_eq!(set(&tasks, "moved"), WriteEffects::default());
    assert_eq!(set(&tasks, "back").tasks_moved, 5);
    assert_eq!((groups.processes(&one), get(&tasks).as_deref()), (groups.all(), Some("back")));

    let group = Place::Group { path: one.clone() };
    assert_eq!(get(&group).as_deref(), Some("made"));
    assert_eq!(set(&group, "gone").tasks_moved, 5);
    assert_eq!((get(&group), get(&tasks)), (None, None));
    assert_eq!(groups.processes(&groups.top), groups.all());
    assert_eq!(set(&group, "gone"), WriteEffects::default());

    let said =
        Live::new().set(&Place::Group { path: groups.top.clone() }, "gone").expect_err("there is one below");
    assert!(said.to_string().contains("groups below it"), "{said}");
}

const CPUSET_V1: &str = "/sys/fs/cgroup/cpuset";

/// Values that a group of version 1 needs before it accepts tasks.
fn cpuset() -> Option<[(&'static str, &'static str); 2]> {
    if !Path::new(CPUSET_V1).join("cpuset.cpus").exists() {
        println!("not run: no cpusets of version 1 at {CPUSET_V1}");
        return None;
    }
    Some([("cpuset.cpus", "0"), ("cpuset.mems", "0")])
}

#[test]
fn tasks_of_a_cpuset_of_version_1() {
    if let Some(values) = cpuset() {
        tasks_move(CPUSET_V1, "tasks", &values);
    }
}

#[test]
fn tasks_of_a_cgroup_of_version_2() {
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let version_2 = |mount: &&str| Path::new(mount).join("cgroup.controllers").exists();
    match mounts.into_iter().find(version_2) {
        Some(mount) => tasks_move(mount, "tasks-v2", &[]),
        None => println!("not run: no cgroups of version 2"),
    }
}

#[test]
fn kernel_refusals_are_explained() {
    let Some(values) = cpuset() else { return };
    let Some(mut groups) = Groups::new(CPUSET_V1, "refused", &values) else { return };
    let (top, one) = (groups.top.clone(), groups.below("one"));
    groups.sleep_in(&one, 1);
    let refused = |place: Place, text: &str, expected: &str| {
        let said = Live::new().set(&place, text).expect_err("the kernel refuses").to_string();
        assert!(said.contains(expected) && said.contains("os error"), "{said}, expected {expected}");
    };
    let cpus = |group: &str| Place::file(format!("{group}/cpuset.cpus"));
    refused(cpus(&one), "", "needs a CPU and memory".replace("needs", "need").as_str());
    refused(cpus(&top), "", "a group below it would lose CPUs");
    refused(cpus(&one), "100000", "a CPU that this machine does not have");
    refused(Place::file(format!("{top}/cpuset.nothing")), "0", "No such file");
    assert_eq!(get(&cpus(&one)).as_deref(), Some("0"), "nothing was changed");
    let thread = groups.all()[0];
    let stat = fs::read_to_string(format!("/proc/{thread}/stat")).expect("it sleeps");
    let start_ticks =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    let start_ticks = start_ticks.expect("a time");
    let affinity = Place::Affinity { tid: thread, start_ticks, comm: "sleep".into() };
    assert_eq!(get(&affinity).as_deref(), Some("0"));
    refused(affinity, "1", "none of these is in its cpuset");
    let nobody = Place::Affinity { tid: thread, start_ticks: start_ticks + 1, comm: "sleep".into() };
    assert_eq!(get(&nobody), None, "another thread of that id");
}
