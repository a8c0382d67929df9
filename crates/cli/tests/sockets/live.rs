//! A tank without TCP_NODELAY, switched on while it makes calls: this tests the mechanism, not the gain.

use crate::process::{Program, until};
use crate::{json, spangap};
use serde_json::Value;

fn connections(port: &str) -> Vec<Value> {
    let listed = spangap(&["sockets", "list", "--port", port, "--json"]);
    if listed.code != Some(0) {
        return Vec::new();
    }
    let document = json(&listed);
    let sockets = document["sockets"].as_array().expect("a list").clone();
    sockets
        .into_iter()
        .filter(|socket| socket["accepted"] == false && socket["state"] == "established")
        .collect()
}

#[test]
fn nodelay_of_a_running_tank_is_set_and_restored() {
    let target = Program::start(&["target", "--listen", "127.0.0.1:0"]);
    let line = target.line().expect("a target says where it listens");
    let address = line.strip_prefix("listening on ").expect("an address").to_owned();
    let port = address.rsplit(':').next().expect("a port");
    let tank = Program::start(&[
        "tank",
        &address,
        "--stack",
        "rust",
        "--nodelay",
        "off",
        "--interval",
        "20ms",
        "--duration",
        "60s",
        "--json",
    ]);
    // A connection that moves bytes carries calls; the client's own queries to the target move hardly any.
    let busy = until("a connection of the tank that carries calls", || {
        let carries = |socket: &Value| socket["sent_data_segments"].as_u64() > Some(50);
        connections(port).into_iter().find(carries)
    });
    assert_eq!(busy["nodelay"], false, "{busy:#}");
    let pid = busy["owners"][0]["pid"].to_string();
    // tonic writes HEADERS and DATA separately: DATA waits for the ACK of HEADERS, and that wait is visible.
    until("Nagle's algorithm at work", || {
        let listed = json(&spangap(&["sockets", "list", "--pid", &pid, "--json"]));
        let hints = listed["hints"].as_array().expect("a list").clone();
        hints.into_iter().find(|hint| hint["kind"] == "held_back" && hint["inodes"][0] == busy["inode"])
    });
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("a plain path");
    let now = |inode: &Value| {
        connections(port).into_iter().find(|socket| socket["inode"] == *inode).expect("it lives")
    };

    let set = ["sockets", "set", "--pid", &pid, "--port", port, "--journal", folder, "nodelay=on", "--json"];
    let done = json(&spangap(&set));
    assert_eq!(done["changes"][0]["became"], "changed", "{done:#}");
    let flipped = now(&busy["inode"]);
    assert_eq!(flipped["nodelay"], true);
    // Once a second the tank reads its connections' settings: somebody else's setting stays.
    until("more than a second of calls", || {
        let sent = |socket: &Value| socket["sent_data_segments"].as_u64().expect("a count");
        (sent(&now(&busy["inode"])) > sent(&flipped) + 200).then_some(())
    });
    assert_eq!(now(&busy["inode"])["nodelay"], true);
    let undone = spangap(&["sockets", "undo", "--all", "--journal", folder]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(now(&busy["inode"])["nodelay"], false);
    tank.signal("INT");
    let report = json(&tank.wait());
    let warnings = report["runs"][0]["warnings"].as_array().expect("a list");
    let told = |warning: &Value| {
        warning.as_str().is_some_and(|words| words.starts_with("somebody else turned TCP_NODELAY on"))
    };
    assert!(warnings.iter().any(told), "{warnings:#?}");
}

#[test]
fn rates_match_the_traffic() {
    let Some(mut scene) = crate::Scene::new(2) else { return };
    scene.program.say("__import__('threading').Thread(target=lambda: [c[0].sendall(b'x' * 100) or a[0].recv(100) for _ in iter(int, 1)], daemon=True).start()");
    let ended =
        spangap(&["sockets", "list", "--pid", &scene.pid, "--interval", "100ms", "--count", "3", "--json"]);
    assert_eq!((ended.code, ended.out.len()), (Some(0), 3), "{ended:?}");
    for line in &ended.out {
        let rates: Value = serde_json::from_str(line).expect("a document a line");
        assert!(rates["elapsed_ns"].as_u64() >= Some(100_000_000), "{rates}");
        assert_eq!((&rates["opened"], &rates["closed"]), (&0.into(), &0.into()));
        let sockets = rates["sockets"].as_array().expect("a list");
        let moving = |key: &str| sockets.iter().filter(|socket| socket[key].as_f64() > Some(0.0)).count();
        assert_eq!(
            (sockets.len(), moving("sent_bytes_per_s"), moving("received_bytes_per_s")),
            (4, 1, 1),
            "{rates}"
        );
    }
    let watching = Program::start(&["sockets", "list", "--pid", &scene.pid, "--interval", "50ms"]);
    assert!(watching.line().is_some());
    watching.signal("INT");
    assert_eq!(watching.wait().code, Some(0));
    let short = spangap(&["sockets", "list", "--pid", &scene.pid, "--interval", "1ms"]);
    assert_eq!(short.code, Some(2), "{short:?}");
}
