//! The two hosts of a run, seen from outside, and the error where none can be made.

use crate::process::until;
use crate::scene::Scene;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

fn on(id: &str, side: &str, words: &[&str]) -> String {
    let output = Command::new("ip").args(["netns", "exec", &format!("lab-{id}-{side}")]).args(words).output();
    let output = output.expect("ip is there");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_two_hosts_resolve_only_each_other() {
    let Some(scene) = Scene::new() else { return };
    let run = scene.start();
    let id = until("a keeper", || scene.id());
    until("a target", || scene.work(&id).join("target.out").exists().then_some(()));
    run.signal("STOP");
    for side in ["client", "server"] {
        for (name, address) in [("client", "10.88.0.1"), ("server", "10.88.0.2"), ("localhost", "127.0.0.1")]
        {
            let hosts = on(&id, side, &["getent", "ahostsv4", name]);
            assert!(hosts.starts_with(&format!("{address} ")), "{name} on {side}: {hosts}");
        }
        let devices = on(&id, side, &["ip", "-o", "link", "show", "up"]);
        assert_eq!(devices.lines().count(), 2, "{devices}");
        assert!(devices.contains(" lo: ") && devices.contains(" eth0@"), "{devices}");
        let routes = on(&id, side, &["ip", "route"]);
        assert_eq!(routes.lines().count(), 1, "no way out: {routes}");
    }
    run.signal("CONT");
    run.signal("TERM");
    assert_eq!(run.wait().code, Some(1));
    assert_eq!(scene.left(&id), [""; 0]);
}

fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

#[test]
fn nothing_is_made_without_the_program_ip() {
    let Some(scene) = Scene::new() else { return };
    let run = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .args(["lab", "run", "healthy", "--state"])
        .arg(scene.state())
        .arg("--out")
        .arg(scene.out())
        .env("PATH", scene.folder.path())
        .output();
    refused(&run.expect("the binary starts"), &["lab run", "program ip", "iproute2"]);
    assert_eq!(fs::read_dir(scene.folder.path()).expect("it is ours").count(), 0);
}

#[test]
fn nothing_is_made_without_root() {
    let Some(scene) = Scene::new() else { return };
    let folder = scene.folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let binary = folder.join("spangap");
    // Copied by a process of its own: see `tests/without_rights.rs`.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_spangap")).arg(&binary).status();
    assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
    let run = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"])
        .arg(&binary)
        .args(["lab", "run", "healthy", "--state"])
        .arg(scene.state())
        .arg("--out")
        .arg(scene.out())
        .output();
    let Ok(run) = run else {
        println!("not run: there is no program setpriv");
        return;
    };
    refused(&run, &["lab run", "needs root"]);
    assert_eq!(fs::read_dir(folder).expect("it is ours").count(), 1);
}
