//! Orders to keep packets off the application's CPUs, on a real kernel: steering is changed and restored,
//! whichever process is killed meanwhile.

use crate::change::{Scene, child, kill};
use crate::stage::{Ending, until};
use spangap_fleet::v1::{Isolate, LookIsolate, Order, OrderReport, Stage as Of, Undo, from_meter, order};
use std::process::Command;

/// The application runs on the second CPU, which also handles packets until isolation is ordered.
const APP: &str = "1";
const BEFORE: &str = "2";
const RPS: &str = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
/// So long that within a test's patience only a process that notices the death undoes it.
const LONG_MS: u32 = 60_000;

impl Scene {
    /// `None`, with a printed reason, where isolation is impossible.
    fn isolated(allow: &'static str) -> Option<Scene> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if cpus < 2 {
            println!("not run: it needs two CPUs, here is {cpus}");
            return None;
        }
        let scene = Scene::with(allow)?;
        // All threads of the tank and of its client program.
        let tank = scene.tank.as_ref().expect("it runs").0.id();
        for pid in [tank, child(tank, "client")] {
            let done = Command::new("taskset").args(["-a", "-p", "-c", APP, &pid.to_string()]).output();
            assert!(done.expect("taskset starts").status.success());
        }
        scene.shell(&format!("echo {BEFORE} >{RPS}"));
        assert!(!scene.is_changed());
        Some(scene)
    }

    fn shell(&self, script: &str) -> String {
        let output = self.stage.on_with_sys("client", "sh").args(["-c", script]).output().expect("sh starts");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Whether the client's packets are now handled on other CPUs than before.
    fn is_changed(&self) -> bool {
        let mask = self.shell(&format!("cat {RPS}"));
        let mask = u64::from_str_radix(&mask.trim().replace(',', ""), 16).expect("a mask");
        assert!(mask == 2 || mask & 2 == 0, "{mask:x} is neither before nor apart");
        mask != 2
    }

    fn isolate(&self, id: u64, interfaces: &[&str], net_cpus: &str, for_ms: u32) -> Order {
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        self.order(id, order::What::Isolate(Isolate { interfaces, net_cpus: net_cpus.into(), for_ms }))
    }

    fn plan(&self, id: u64, interfaces: &[&str]) -> OrderReport {
        let interfaces: Vec<String> = interfaces.iter().map(|name| (*name).to_owned()).collect();
        let mut id = id * 1_000;
        until("the actuator", || {
            id += 1;
            let what = order::What::LookIsolate(LookIsolate { interfaces: interfaces.clone() });
            let looked = self.meter().order(self.netns(), self.order(id, what));
            (looked.error != "the actuator is not ready").then_some(looked)
        })
    }

    fn isolated_for(&self, id: u64, for_ms: u32) {
        let plan = self.plan(id, &[]);
        assert_eq!(plan.stage(), Of::Looked, "{plan:?}");
        let made = self.meter().order(self.netns(), self.isolate(id, &["eth0"], &plan.net_cpus, for_ms));
        assert_eq!((made.stage(), made.error.as_str()), (Of::Changed, ""), "{made:?}");
        // A short change may be over by now.
        assert!(for_ms < LONG_MS || self.is_changed());
    }

    /// Checks that all is as before, that the log says so, and that no journal claims otherwise.
    fn is_as_before(&self, undone: usize) {
        until("the undo", || (!self.is_changed()).then_some(()));
        until("the line of the undo", || {
            let audit = self.audit();
            let lines: Vec<_> = audit.iter().filter(|line| line["event"] == "undone").collect();
            assert!(lines.iter().all(|line| line["error"].is_null() || line["error"] == ""), "{lines:#?}");
            (lines.len() == undone).then_some(())
        });
        let open = format!("{}/isolate/open.journal", self.path("journals"));
        until("the end of the journal", || (!std::path::Path::new(&open).exists()).then_some(()));
    }

    /// The guard, which undoes the change in time: its parent is gone.
    fn guard(&self) -> u32 {
        let journals = self.path("journals");
        until("the guard", || {
            std::fs::read_dir("/proc").expect("it is there").flatten().find_map(|entry| {
                let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
                let line = String::from_utf8(std::fs::read(entry.path().join("cmdline")).ok()?).ok()?;
                let words: Vec<&str> = line.split('\0').collect();
                let is_it = words.contains(&"guard") && words.iter().any(|word| word.starts_with(&journals));
                is_it.then_some(pid)
            })
        })
    }
}

#[test]
fn allow_sockets_does_not_allow_isolation() {
    let Some(scene) = Scene::isolated("sockets") else { return };
    let plan = scene.plan(1, &["eth0"]);
    assert!(plan.stage() == Of::Refused && plan.error.contains("--allow isolate"), "{plan:?}");
    let made = scene.meter().order(scene.netns(), scene.isolate(2, &["eth0"], "0", 1_000));
    assert!(made.stage() == Of::Refused && made.error.contains("--allow isolate"), "{made:?}");
    assert!(!scene.is_changed());
}

#[test]
fn packets_are_kept_off_the_applications_cpu_and_each_step_is_logged() {
    let Some(mut scene) = Scene::isolated("sockets,isolate") else { return };
    // The host finds the interface by itself: the one that delivers packets to the application's CPU.
    let plan = scene.plan(1, &[]);
    assert_eq!((plan.stage(), plan.error.as_str()), (Of::Looked, ""), "{plan:?}");
    assert_eq!((plan.app_cpus.as_str(), plan.interfaces.as_slice()), (APP, &["eth0".to_owned()][..]));
    assert!(plan.values.iter().any(|value| value.place == RPS), "{plan:?}");
    for (refused, why) in [
        (scene.isolate(2, &["eth0"], "5", 1_000), "would now go"),
        (scene.isolate(3, &["eth0"], &plan.net_cpus, 61_000), "at most 60s"),
        (scene.isolate(4, &["eth0"], &plan.net_cpus, 0), "more than 0"),
        (scene.isolate(5, &[], &plan.net_cpus, 1_000), "names no interface"),
        (scene.isolate(6, &["../../../etc"], &plan.net_cpus, 1_000), "is not the name"),
        (scene.isolate(7, &["eth7"], &plan.net_cpus, 1_000), "no interface eth7"),
    ] {
        let report = scene.meter().order(scene.netns(), refused);
        assert!(report.stage() == Of::Refused && report.error.contains(why), "{report:?}: expected {why}");
    }
    assert!(!scene.is_changed());
    scene.isolated_for(8, LONG_MS);
    // One at a time, because there is one journal.
    let again = scene.meter().order(scene.netns(), scene.isolate(9, &["eth0"], &plan.net_cpus, 1_000));
    assert_eq!(again.stage(), Of::Refused, "{again:?}");
    scene.meter().send(scene.netns(), from_meter::What::Undo(Undo { order: 8 }));
    assert_eq!(scene.meter().reported(scene.netns(), 8, Of::Undone).error, "");
    scene.is_as_before(1);
    // Nobody orders the second one's end.
    scene.isolated_for(10, 1_000);
    assert_eq!(scene.meter().reported(scene.netns(), 10, Of::Undone).error, "");
    scene.is_as_before(2);
    let events = scene.audit();
    let events = events.iter().map(|line| line["event"].as_str().expect("text"));
    let events: Vec<&str> = events.filter(|event| *event != "refused").collect();
    assert_eq!(events, ["ordered", "changed", "undone", "ordered", "changed", "undone"]);
    for line in scene.audit() {
        assert_eq!(line["order"]["case"], "20261122-tank-target", "{line:#}");
    }
    // A process that may run anywhere has no CPUs that packets could be kept off.
    let tank: Ending = scene.tank.take().expect("it runs");
    let client = child(tank.0.id(), "client").to_string();
    let every = format!("0-{}", std::thread::available_parallelism().map_or(1, usize::from) - 1);
    let done = Command::new("taskset").args(["-a", "-p", "-c", &every, &client]).output();
    assert!(done.expect("taskset starts").status.success());
    let plan = scene.plan(11, &["eth0"]);
    assert!(plan.stage() == Of::Refused && plan.error.contains("may run on all CPUs"), "{plan:?}");
}

#[test]
fn steering_is_restored_whichever_process_is_killed() {
    let Some(mut scene) = Scene::isolated("isolate") else { return };
    // Kill the agent: its actuator notices.
    scene.isolated_for(1, LONG_MS);
    kill(scene.agent());
    scene.is_as_before(1);
    scene.start_agent(true);
    // Kill the actuator: the agent starts another one, which undoes what it finds.
    scene.isolated_for(2, LONG_MS);
    kill(scene.actuator());
    let report = scene.meter().reported(scene.netns(), 2, Of::Refused);
    assert!(report.error.contains("the actuator has exited"), "{report:?}");
    scene.is_as_before(2);
    // Kill the guard: the actuator undoes the change in time.
    scene.isolated_for(3, LONG_MS);
    kill(scene.guard());
    assert_eq!(scene.meter().reported(scene.netns(), 3, Of::Undone).error, "");
    scene.is_as_before(3);
    // Kill agent and actuator: the guard remains, and waits until the time is up.
    scene.isolated_for(4, 3_000);
    let pids = [scene.actuator(), scene.agent()];
    pids.into_iter().for_each(kill);
    scene.is_as_before(4);
    scene.start_agent(true);
    // Kill all three: the journal remains, for the next start.
    scene.isolated_for(5, LONG_MS);
    let pids = [scene.guard(), scene.actuator(), scene.agent()];
    Command::new("kill").args(["-s", "STOP", &pids[1].to_string()]).status().expect("kill starts");
    pids.into_iter().for_each(kill);
    assert!(scene.is_changed());
    scene.start_agent(true);
    scene.is_as_before(5);
    // Kill the meter: nobody can tell the agent to end the change.
    scene.isolated_for(6, LONG_MS);
    scene.end_meter();
    scene.is_as_before(6);
}
