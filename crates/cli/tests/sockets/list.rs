//! `spangap sockets list`.

use crate::{Scene, as_nobody, error, json, spangap};
use serde_json::{Value, json};

#[test]
fn the_document_is_complete_and_true() {
    let Some(mut scene) = Scene::new(3) else { return };
    scene.program.say("c[0].setsockopt(6, 1, 1) or [c[0].sendall(b'x' * 999) for _ in range(40)]");
    let document = json(&spangap(&["sockets", "list", "--pid", &scene.pid, "--listening", "--json"]));
    assert_eq!(document["asked"]["pids"], json!([scene.pid.parse::<u64>().unwrap()]));
    let sockets = document["sockets"].as_array().unwrap();
    let of = |key: &'static str, value: Value| sockets.iter().filter(move |socket| socket[key] == value);
    assert_eq!((sockets.len(), of("state", json!("listen")).count()), (7, 1));
    assert_eq!((of("accepted", json!(true)).count(), of("nodelay", json!(true)).count()), (3, 1));
    for socket in sockets {
        for key in [
            "inode",
            "network_namespace",
            "family",
            "local",
            "peer",
            "state",
            "owners",
            "source",
            "nodelay",
            "cork",
            "quickack",
            "quick_acks_left",
            "congestion_control",
            "rtt_ns",
            "rttvar_ns",
            "min_rtt_ns",
            "rto_ns",
            "ato_ns",
            "send_mss_bytes",
            "cwnd_segments",
            "ssthresh_segments",
            "unacked_segments",
            "notsent_bytes",
            "send_queue_bytes",
            "receive_queue_bytes",
            "receive_window_bytes",
            "send_window_bytes",
            "retransmitting_segments",
            "retransmitted_segments",
            "lost_segments",
            "reordering_segments",
            "last_sent_ns",
            "last_received_ns",
            "busy_ns",
            "receive_window_limited_ns",
            "send_buffer_limited_ns",
            "delivery_rate_bytes_per_s",
            "sent_bytes",
            "acked_bytes",
            "received_bytes",
            "sent_segments",
            "received_segments",
            "peer_socket",
            "open_undo",
            "not_borrowed_because",
        ] {
            assert!(socket.as_object().unwrap().contains_key(key), "no {key}: {socket:#}");
        }
    }
    let group =
        document["peers"].as_array().unwrap().iter().find(|group| group["accepted"] == false).unwrap();
    assert_eq!((&group["connections"], &group["sent_bytes"]), (&json!(3), &json!(40 * 999)));
    assert_eq!(group["largest_share"], json!(1.0));
    let hints = document["hints"].to_string();
    assert!(hints.contains("1 of 3 connections") && hints.contains("100 % of the bytes"), "{hints}");
}

#[test]
fn small_messages_are_hinted_at_only_without_nodelay() {
    let Some(mut scene) = Scene::new(1) else { return };
    let small = |scene: &Scene| {
        let document = json(&spangap(&["sockets", "list", "--pid", &scene.pid, "--json"]));
        document["hints"].to_string().contains("nodelay_off_small_messages")
    };
    assert!(!small(&scene), "nothing was sent");
    scene.program.say(
        "[(c[0].sendall(b'x' * 80), a[0].recv(80), a[0].sendall(b'y'), c[0].recv(1)) for _ in range(50)]",
    );
    assert!(small(&scene));
    scene.program.say("[x.setsockopt(6, 1, 1) for x in c + a]");
    assert!(!small(&scene));
}

#[test]
fn missing_sockets_are_reported_with_existing_ones() {
    let Some(scene) = Scene::new(2) else { return };
    let of_port = error(&spangap(&["sockets", "list", "--pid", &scene.pid, "--port", "1"]));
    assert!(of_port.contains("4 connections and 1 listening"), "{of_port}");
    assert!(
        error(&spangap(&["sockets", "list", "--pid", "4194304"])).contains("there is no process 4194304")
    );
    let neither = spangap(&["sockets", "list"]);
    assert_eq!(neither.code, Some(2), "{neither:?}");
    // A document is printed nevertheless.
    let nothing = spangap(&["sockets", "list", "--pid", &scene.pid, "--port", "1", "--json"]);
    assert_eq!((json(&nothing)["sockets"].clone(), nothing.code), (json!([]), Some(1)));
}

#[test]
fn another_user_sees_public_values_and_the_missing_right() {
    let Some(scene) = Scene::new(2) else { return };
    let Some(denied) = as_nobody(&["sockets", "list", "--pid", &scene.pid]) else { return };
    let said = String::from_utf8(denied.stderr).unwrap();
    assert!(denied.status.code() == Some(1) && said.contains("CAP_SYS_PTRACE"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        ["sockets", "set", "--pid", &scene.pid, "--journal", folder.path().to_str().unwrap(), "nodelay=on"];
    let denied = as_nobody(&arguments).unwrap();
    let said = String::from_utf8(denied.stderr).unwrap();
    assert!(denied.status.code() == Some(1) && said.contains("CAP_SYS_PTRACE"), "{said}");

    let by_port = as_nobody(&["sockets", "list", "--port", &scene.port, "--json"]).unwrap();
    let theirs: Value = serde_json::from_slice(&by_port.stdout).unwrap();
    let ours = json(&spangap(&["sockets", "list", "--port", &scene.port, "--json"]));
    let sockets = |document: &Value| document["sockets"].as_array().unwrap().clone();
    assert_eq!((sockets(&theirs).len(), sockets(&ours).len()), (4, 4));
    for their in sockets(&theirs) {
        let our = sockets(&ours).into_iter().find(|our| our["inode"] == their["inode"]).unwrap();
        assert_eq!(
            (&their["source"], &their["nodelay"], &their["owners"]),
            (&json!("sock_diag"), &Value::Null, &json!([]))
        );
        for key in
            ["rtt_ns", "cwnd_segments", "congestion_control", "send_queue_bytes", "quickack", "sent_segments"]
        {
            assert_eq!(their[key], our[key], "{key}");
        }
        assert!(their["not_borrowed_because"].as_str().unwrap().contains("CAP_SYS_PTRACE"));
    }
}
