//! `spangap isolate` against a flood steered onto the target's CPU, judged by what `host thieves` sees
//! afterwards.

use crate::programs::Program;
use crate::softirqs::{Link, taken};
use crate::{CPU, OTHER_CPU, number, report, turn_or_return};
use std::path::Path;
use std::process::Command;

impl Link {
    /// The verb, run where the flood arrives, at the flood's nice value. Its journal is in a folder of the
    /// test.
    fn isolate(&self, folder: &Path, verb: &[&str]) {
        let mut command = Command::new("nice");
        command.args(["-n", "-20", "ip", "netns", "exec", &self.to, env!("CARGO_BIN_EXE_spangap")]);
        command.arg("isolate").args(verb);
        if verb[0] != "plan" {
            command.arg("--journal").arg(folder.join("journal"));
        }
        let done = command.output().expect("nice starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{verb:?}: {} {said}", done.status);
    }

    /// CPUs that the flood is steered to, as a mask.
    fn steered(&self) -> u64 {
        let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", self.device);
        let read = Command::new("ip").args(["netns", "exec", &self.to, "cat", &file]).output();
        let text = String::from_utf8_lossy(&read.expect("ip starts").stdout).trim().replace(',', "");
        u64::from_str_radix(&text, 16).expect("a mask")
    }
}

#[test]
fn a_plan_removes_the_culprit_and_a_rollback_restores_it() {
    let _turn = turn_or_return!();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return eprintln!("not run: no network namespaces can be made: {why}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.json");
    let plan = plan.to_str().expect("a path in UTF-8");
    // Tasks cannot take its CPU, so only interrupts compete with the target.
    let target = Program::target(&["chrt", "-f", "50"]);
    let look = || {
        let report = report(target.pid(), &["--duration", "2s"]);
        let share = taken(&report, &link.device) as f64 / number(&report["wanted_ns"]) as f64;
        (share, report["culprit"]["cause"].clone())
    };

    link.steer(CPU);
    let _flood = link.flood();
    // The strength of the flood depends on what else runs here; that it is to blame does not.
    let (before, blamed) = look();
    assert_eq!(
        blamed, "softirq-on-cpu",
        "steered onto the target's CPU: {before:.3} of what it wanted was taken"
    );

    let net = format!("cpu:{OTHER_CPU}");
    link.isolate(
        folder.path(),
        &["plan", "--interface", &link.device, "--net-cpus", &net, "--no-cpusets", "--write", plan],
    );
    link.isolate(folder.path(), &["apply", plan, "--no-confirm"]);
    assert_eq!(link.steered(), 1 << OTHER_CPU);
    let (applied, _) = look();
    link.isolate(folder.path(), &["rollback"]);
    assert!(
        applied * 20.0 < before,
        "of what the target wanted {before:.3} was taken, and applied {applied:.3}"
    );
    assert_eq!(link.steered(), 1 << CPU);
}
