//! What is sent again, and when: rows replace themselves, and none is lost.

use super::front::Front;
use super::rows::{key, minute};
use super::{DAY, HOUR, PLENTY, Sharing, conforms, some_minutes};
use spangap_meter::clickhouse::ClickHouse;
use spangap_meter::history::{History, Limits};

#[test]
fn rows_whose_answer_is_lost_are_sent_again_and_counted_once() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(tables.path(), &[]) else { return };
    let mut meter = Sharing::with(folder.path(), "m", &front);
    let minutes = some_minutes(1);
    meter.write(DAY + 60 * HOUR, &minutes);
    // Of a batch, pairs arrive, then pairs and worst calls, then all of it.
    for insertion in 1..=3 {
        front.lose_answer_of(insertion);
        meter.shared().send().unwrap_err();
    }
    meter.send_all();
    let rows = |of: &str| front.sql(&format!("SELECT count() FROM {of}")).trim().parse::<u64>().unwrap();
    assert!(rows("spangap_pairs FINAL") > minutes.len() as u64, "minutes and their sums");
    assert!(meter.shared().coverage().failed_requests == 3);
    conforms(&meter.all(), &minutes);
}

#[test]
fn a_process_that_did_not_learn_what_arrived_sends_it_again() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(tables.path(), &[]) else { return };
    let minutes = some_minutes(1);
    let (before, after) = minutes.split_at(minutes.len() / 2);
    let mut meter = Sharing::with(folder.path(), "m", &front);
    meter.write(DAY + HOUR, before);
    meter.send_all();
    // No checkpoint has removed the marks.
    drop(meter);
    let mut meter = Sharing::with(folder.path(), "m", &front);
    meter.write(DAY + 60 * HOUR, after);
    assert!(meter.shared().coverage().unsent_rows >= minutes.len() as u64);
    meter.send_all();
    conforms(&meter.all(), &minutes);
    meter.write(DAY + 60 * HOUR, &[]);
    assert_eq!(meter.shared().coverage().unsent_rows, 0);
}

#[test]
fn late_minutes_replace_rows_and_their_sums() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(tables.path(), &[]) else { return };
    let mut meter = Sharing::with(folder.path(), "m", &front);
    let mut minutes = some_minutes(1);
    meter.write(DAY + 60 * HOUR, &minutes);
    meter.send_all();
    // The same pairs and minutes once more, one pair more, and another day.
    let mut late = some_minutes(2);
    late.truncate(100);
    late.push(minute(DAY + 60, &key("late", "cart"), &[5, 6], 77));
    late.push(minute(DAY + 49 * HOUR, &key("late", "cart"), &[7], 78));
    meter.write(DAY + 60 * HOUR, &late);
    meter.send_all();
    minutes.extend(late);
    conforms(&meter.all(), &minutes);
    conforms(&meter.own(), &minutes);
}

#[test]
fn rows_wait_in_the_history_and_dropped_ones_are_counted() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(mut front) = Front::start(tables.path(), &[]) else { return };
    let mut meter = Sharing::with(folder.path(), "m", &front);
    front.kill();
    let minutes = some_minutes(1);
    meter.write(DAY + 60 * HOUR, &minutes);
    meter.shared().send().unwrap_err();
    assert!(meter.shared().coverage().unsent_rows >= minutes.len() as u64);
    front.restart();
    meter.send_all();
    conforms(&meter.all(), &minutes);

    // What is too old for the history is lost to the other store, too.
    drop(meter);
    let path = folder.path().join("history.sqlite");
    let limits = Limits { max_age_s: 40 * HOUR, ..PLENTY };
    let mut history = History::open(Some(&path), PLENTY, DAY + 60 * HOUR).unwrap();
    let settings = serde_json::from_str(&format!(r#"{{"url": "{}"}}"#, "http://127.0.0.1:1")).unwrap();
    ClickHouse::open(&settings, None, None, "host", &mut history).unwrap();
    drop(history);
    let mut history = History::open(Some(&path), limits, DAY + 60 * HOUR).unwrap();
    let shared = ClickHouse::open(&settings, None, None, "host", &mut history).unwrap();
    let at_start = shared.coverage();
    assert!(
        at_start.lost_rows > 0 && at_start.unsent_rows > 0,
        "the rows of the second day are left: {at_start:?}"
    );
    history.prune(DAY + 400 * HOUR).unwrap();
    let later = shared.coverage().lost_rows;
    assert_eq!(later, at_start.lost_rows + at_start.unsent_rows);
}

#[test]
fn a_refused_password_is_told() {
    let [folder, tables] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(tables.path(), &[("PASSWORD", "right")]) else { return };
    let settings =
        serde_json::from_str(&format!(r#"{{"url": "{}", "user": "spangap"}}"#, front.url)).unwrap();
    let mut meter = Sharing::alone(folder.path());
    let wrong = ClickHouse::open(&settings, Some("wrong".into()), None, "h", &mut meter.history).unwrap();
    let told = wrong.send().unwrap_err().to_string();
    assert!(told.contains("Authentication failed") && !told.contains("wrong"), "{told}");
    let right = ClickHouse::open(&settings, Some("right".into()), None, "h", &mut meter.history).unwrap();
    right.send().unwrap();
}
