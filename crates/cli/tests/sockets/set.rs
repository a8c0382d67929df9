//! `spangap sockets set` and `undo`, when nothing goes wrong, and when told to stop.

use crate::process::until;
use crate::{Scene, as_nobody, error, json, spangap};
use serde_json::json;

#[test]
fn the_printed_undo_command_works() {
    let Some(mut scene) = Scene::new(4) else { return };
    scene.program.say("c[1].setsockopt(6, 1, 1)");
    let dry = scene.run(&["nodelay=on", "--dry-run"]);
    assert!(
        dry.code == Some(0) && dry.out.iter().any(|line| line.contains("3 connections would")),
        "{dry:?}"
    );
    assert_eq!((scene.on(), scene.journals().len()), (1, 0));

    let done = json(&scene.run(&["nodelay=on", "--json"]));
    assert_eq!(
        (scene.on(), &done["already"], &done["changes"][0]["became"]),
        (4, &json!(1), &json!("changed"))
    );
    let undo = done["undo_command"].as_str().unwrap();
    let journal = done["journal"].as_str().unwrap();
    assert_eq!(undo, format!("spangap sockets undo --journal {journal}"));

    let marked =
        json(&spangap(&["sockets", "list", "--pid", &scene.pid, "--journal", scene.folder(), "--json"]));
    let marked =
        marked["sockets"].as_array().unwrap().iter().filter(|socket| socket["open_undo"] == *journal).count();
    assert_eq!(marked, 3);
    let again = error(&scene.run(&["nodelay=off"]));
    assert!(again.contains("not restored") && again.contains(journal), "{again}");
    assert_eq!(scene.on(), 4);

    let undone = json(&spangap(&["sockets", "undo", "--journal", journal, "--json"]));
    assert_eq!(undone["journals"][0]["sockets"].as_array().unwrap().len(), 3);
    assert_eq!((scene.on(), scene.journals().len()), (1, 0));
    let twice = spangap(&["sockets", "undo", "--journal", journal]);
    assert!(twice.code == Some(0) && twice.out[0].contains("undone already"), "{twice:?}");
    assert!(
        error(&spangap(&["sockets", "undo", "--journal", "/nonexistent"])).contains("expected a journal")
    );
}

#[test]
fn a_change_without_effect_leaves_no_journal() {
    let Some(mut scene) = Scene::new(2) else { return };
    let done = scene.run(&["nodelay=off"]);
    assert!(done.code == Some(0) && done.out[0].contains("nothing to undo"), "{done:?}");
    assert_eq!((scene.on(), scene.journals().len()), (0, 0));
    let elsewhere = spangap(&scene.set("192.0.2.1", &["nodelay=on"]));
    assert!(error(&elsewhere).contains("4 connections to"), "{elsewhere:?}");
    let wrong = spangap(&scene.set("127.0.0.1", &["cork=on"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn half_of_the_connections_are_changed_and_the_others_named() {
    let Some(mut scene) = Scene::new(6) else { return };
    let done = json(&scene.run(&["nodelay=on", "--half", "--json"]));
    assert_eq!((done["changes"].as_array().unwrap().len(), done["left"].as_array().unwrap().len()), (3, 3));
    for left in done["left"].as_array().unwrap() {
        assert!(done["changes"].as_array().unwrap().iter().all(|change| change["local"] != left["local"]));
    }
    assert_eq!(scene.on(), 3);
    assert_eq!((scene.undo_all().code, scene.on()), (Some(0), 0));
}

#[test]
fn timed_changes_are_restored_and_new_connections_counted() {
    let Some(mut scene) = Scene::new(3) else { return };
    let tool = scene.start(&["nodelay=on", "--for", "5s"]);
    until("changed", || (scene.on() == 3).then_some(()));
    let more = format!("globals().update(n=socket.create_connection(('127.0.0.1', {})))", scene.port);
    scene.program.say(&more);
    let ended = tool.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.iter().any(|line| line.contains("1 connection came meanwhile")), "{ended:?}");
    assert!(ended.out.iter().any(|line| line.contains("3 connections set back")), "{ended:?}");
    assert_eq!((scene.on(), scene.journals().len()), (0, 0));
}

#[test]
fn an_interrupt_restores_at_once() {
    for signal in ["INT", "TERM"] {
        let Some(mut scene) = Scene::new(3) else { return };
        let tool = scene.start(&["nodelay=on", "--for", "2h"]);
        until("changed", || (scene.on() == 3).then_some(()));
        tool.signal(signal);
        let ended = tool.wait();
        assert_eq!((ended.code, scene.on(), scene.journals().len()), (Some(0), 0, 0), "{ended:?}");
    }
}

#[test]
fn nothing_is_changed_without_a_place_for_the_journal() {
    let Some(mut scene) = Scene::new(1) else { return };
    let Some(denied) = as_nobody(&["sockets", "set", "--pid", &scene.pid, "nodelay=on"]) else { return };
    let said = String::from_utf8(denied.stderr).unwrap();
    assert!(denied.status.code() == Some(1) && said.contains("--journal DIR"), "{said}");
    let no_folder =
        spangap(&["sockets", "set", "--pid", &scene.pid, "--journal", "/proc/nowhere", "nodelay=on"]);
    assert!(error(&no_folder).contains("/proc/nowhere"), "{no_folder:?}");
    assert_eq!(scene.on(), 0);
}
