//! Agents that connect, disconnect, appear twice, and send more than there is room for.

use super::bounds::{MOST_BYTES, MOST_LINES, MOST_TEXT};
use super::*;
use spangap_fleet::v1::{Ask, Cancel, Container, from_meter::What};
use tokio::sync::mpsc;

fn hello(machine: &str, netns: u64, session: u64) -> Hello {
    Hello {
        protocol: spangap_fleet::PROTOCOL,
        host_name: "web".into(),
        machine_id: machine.into(),
        netns,
        session,
        ..Hello::default()
    }
}

fn link() -> (Sender<FromMeter>, mpsc::Receiver<FromMeter>) {
    mpsc::channel(4)
}

#[test]
fn two_hosts_of_one_name_are_two_agents() {
    let agents = Arc::new(Agents::default());
    let _one = agents.attach(hello("a", 1, 1), link().0, 0).unwrap();
    let _two = agents.attach(hello("b", 1, 2), link().0, 0).unwrap();
    let _three = agents.attach(hello("b", 2, 3), link().0, 0).unwrap();
    let ids: Vec<String> = agents.rows(0).into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["a-1", "b-1", "b-2"]);
}

#[test]
fn the_newest_session_of_a_host_wins_and_the_older_one_hears_why() {
    let agents = Arc::new(Agents::default());
    let old = agents.attach(hello("a", 1, 1), link().0, 0).unwrap();
    let _new = agents.attach(hello("a", 1, 2), link().0, 100).unwrap();
    assert_eq!(*old.end.borrow(), Some(Unwelcome::Replaced));
    // Messages of the old session must not count for the new one.
    old.health(Health { memory_bytes: 7, ..Health::default() });
    drop(old);
    let row = agents.rows(100).remove(0);
    assert!(row.connected && row.memory_bytes == 0 && row.replacements == 1, "{row:?}");
    // The old session returns, as an agent does after losing its connection, or an eavesdropper.
    assert_eq!(agents.attach(hello("a", 1, 1), link().0, 200).unwrap_err(), Unwelcome::Replaced);
    assert_eq!(agents.refused().hellos, 1);
}

#[test]
fn an_older_session_comes_back_when_the_newer_one_is_gone() {
    let agents = Arc::new(Agents::default());
    let _old = agents.attach(hello("a", 1, 1), link().0, 0).unwrap();
    // An agent started by hand beside it, for a moment.
    drop(agents.attach(hello("a", 1, 2), link().0, 100).unwrap());
    let again = agents.attach(hello("a", 1, 1), link().0, 200).expect("nobody else is there");
    let row = agents.rows(200).remove(0);
    assert!(row.connected && row.replacements == 1, "{row:?}");
    // It is not treated as its own replay, but the other one is now.
    assert_eq!(agents.attach(hello("a", 1, 1), link().0, 300).unwrap_err(), Unwelcome::Replay);
    assert_eq!(agents.attach(hello("a", 1, 2), link().0, 300).unwrap_err(), Unwelcome::Replaced);
    drop(again);
}

#[test]
fn hosts_whose_machine_id_was_copied_are_told_apart_by_their_boots() {
    let booted = |boot: &str, session| Hello { boot_id: boot.into(), ..hello("a", 1, session) };
    let agents = Arc::new(Agents::default());
    let one = agents.attach(booted("11111111-aaaa", 1), link().0, 0).unwrap();
    let two = agents.attach(booted("22222222-bbbb", 2), link().0, 0).unwrap();
    assert_eq!((&one.id[..], &two.id[..]), ("a-1", "a-1-22222222"));
    assert_eq!(*one.end.borrow(), None, "nobody has replaced it");
    assert_eq!(agents.places(0).len(), 2);
    // The second agent returns while the first is away, and keeps its identity.
    drop((one, two));
    let two = agents.attach(booted("22222222-bbbb", 2), link().0, 10).unwrap();
    let one = agents.attach(booted("11111111-aaaa", 1), link().0, 20).unwrap();
    assert_eq!((&one.id[..], &two.id[..]), ("a-1", "a-1-22222222"));
    // A rebooted host keeps its identity.
    drop(one);
    let again = agents.attach(booted("33333333-cccc", 3), link().0, 30).unwrap();
    assert_eq!(again.id, "a-1");
}

#[test]
fn a_registration_that_is_replayed_is_refused_and_one_that_reconnects_is_not() {
    let agents = Arc::new(Agents::default());
    let first = agents.attach(hello("a", 1, 1), link().0, 0).unwrap();
    assert_eq!(agents.attach(hello("a", 1, 1), link().0, STALE_MS).unwrap_err(), Unwelcome::Replay);
    // Its connection was cut silently, and it is stale.
    let again = agents.attach(hello("a", 1, 1), link().0, STALE_MS + 1).unwrap();
    drop(first);
    drop(again);
    assert!(!agents.rows(STALE_MS + 2)[0].connected);
    assert!(agents.attach(hello("a", 1, 1), link().0, STALE_MS + 3).is_ok());
}

#[test]
fn a_silent_agent_is_stale_and_gets_no_requests() {
    let agents = Arc::new(Agents::default());
    let attached = agents.attach(hello("a", 1, 1), link().0, 0).unwrap();
    assert_eq!((agents.places(STALE_MS).len(), agents.places(STALE_MS + 1).len()), (1, 0));
    assert_eq!(agents.ask("a-1", Ask::default(), STALE_MS + 1).unwrap_err(), NoAsk::Gone);
    attached.seen(STALE_MS + 1);
    assert_eq!(agents.ask("a-1", Ask::default(), STALE_MS + 1).unwrap_err(), NoAsk::Gone, "it hung up");
    assert_eq!(agents.ask("b-1", Ask::default(), 0).unwrap_err(), NoAsk::Gone);
}

#[test]
fn abandoned_requests_are_cancelled() {
    let agents = Arc::new(Agents::default());
    let (to, mut from) = link();
    let attached = agents.attach(hello("a", 1, 1), to, 0).unwrap();
    let asked = agents.ask("a-1", Ask::default(), 0).unwrap();
    let Some(What::Ask(ask)) = from.try_recv().unwrap().what else { panic!("an ask") };
    assert!(attached.waiting(ask.id, false).is_some());
    drop(asked);
    assert!(matches!(from.try_recv().unwrap().what, Some(What::Cancel(Cancel { id })) if id == ask.id));
    assert!(attached.waiting(ask.id, false).is_none());
    assert_eq!(agents.refused().unasked, 1);
}

#[test]
fn what_an_agent_says_is_bounded_and_what_is_cut_is_counted() {
    let agents = Arc::new(Agents::default());
    let container = Container { id: "c".repeat(9_000), pod_uid: String::new(), cgroup: "/".into() };
    let inventory =
        Inventory { addresses: vec!["1.2.3.4".into(); 100_000], containers: vec![container; 9_000] };
    let many = Hello {
        host_name: "ü".repeat(2_000),
        lacks: vec!["x".repeat(5_000); 1_000],
        inventory: Some(inventory),
        ..hello("", 1, 1)
    };
    let _attached = agents.attach(many, link().0, 0).unwrap();
    let row = agents.rows(0).remove(0);
    assert!(row.host_name.len() <= MOST_TEXT && row.lacks.len() <= MOST_LINES);
    assert!(row.lacks.iter().all(|line| line.len() <= MOST_TEXT));
    assert!(bytes_of(&agents.inner().agents[&row.id].inventory) <= MOST_BYTES);
    assert!(row.containers > 0, "some of it is kept");
    assert!(agents.refused().texts_cut > 9_000);
}

#[test]
fn the_number_of_agents_is_bounded() {
    let agents = Arc::new(Agents::default());
    let all: Vec<Attached> =
        (0..MOST_AGENTS as u64).map(|n| agents.attach(hello("a", n, n), link().0, 0).unwrap()).collect();
    assert_eq!(agents.attach(hello("b", 0, 0), link().0, 0).unwrap_err(), Unwelcome::Full);
    drop(all);
}

#[test]
fn unidentified_agents_and_unknown_protocols_are_refused() {
    let agents = Arc::new(Agents::default());
    let none = Hello { host_name: String::new(), ..hello("", 1, 1) };
    assert_eq!(agents.attach(none, link().0, 0).unwrap_err(), Unwelcome::Nobody);
    let other = Hello { protocol: 9, ..hello("a", 1, 1) };
    assert_eq!(agents.attach(other, link().0, 0).unwrap_err(), Unwelcome::Protocol(9));
}
