//! The history on real files: what comes back, what is dropped, what survives a kill, and what is refused.

#[path = "history/child.rs"]
mod child;
#[path = "history/rows.rs"]
mod rows;

use proptest::prelude::*;
use rows::{key, minute, minutes, same};
use spangap_meter::engine::PairMinute;
use spangap_meter::history::{History, HistoryError, LastRun, Limits, Which, by_pair};
use spangap_model::{Accounting, PairKey, PairStats};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const PLENTY: Limits = Limits { max_age_s: u64::MAX, max_bytes: u64::MAX };
const ALL: Which = Which { pair: None, open_from_s: None, worst: true };
const NONE: Accounting = Accounting {
    received: 0,
    joined: 0,
    pending: 0,
    expired_client_only: 0,
    expired_server_only: 0,
    evicted: 0,
    duplicate: 0,
    extra_attempts: 0,
    root: 0,
    other_kind: 0,
    malformed: 0,
};

fn file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("history.sqlite")
}

fn open(path: &Path, limits: Limits, now_unix_s: u64) -> History {
    History::open(Some(path), limits, now_unix_s).unwrap().0
}

fn all(history: &mut History) -> Vec<PairMinute> {
    history.minutes(0, u64::MAX, ALL).unwrap()
}

fn merged<'a>(minutes: impl IntoIterator<Item = &'a PairMinute>) -> HashMap<PairKey, PairStats> {
    by_pair(minutes.into_iter().cloned().collect())
}

fn on_disk(path: &Path) -> u64 {
    let size = |suffix: &str| std::fs::metadata(format!("{}{suffix}", path.display())).map_or(0, |f| f.len());
    size("") + size("-wal")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two runs of several checkpoints each, later ones replacing minutes of earlier ones.
    #[test]
    fn what_is_read_is_what_was_written(runs in prop::collection::vec(prop::collection::vec(minutes(), 1..4), 1..3), from in 0u64..6, to in 0u64..6, open_from in 0u64..8) {
        let directory = tempfile::tempdir().unwrap();
        let mut truth: Vec<BTreeMap<(u64, PairKey), PairMinute>> = Vec::new();
        for checkpoints in &runs {
            let mut history = open(&file(&directory), PLENTY, 100);
            let mut run = BTreeMap::new();
            for minutes in checkpoints {
                history.checkpoint(100, minutes, &NONE).unwrap();
                run.extend(minutes.iter().map(|m| ((m.unix_s, m.key.clone()), m.clone())));
            }
            truth.push(run);
            let (from_s, to_s, open_from_s) = (60 * from, 60 * to, 60 * open_from);
            let last = truth.len() - 1;
            let wanted = truth.iter().enumerate().flat_map(|(i, run)| run.values().map(move |m| (i, m)));
            let wanted = wanted.filter(|(_, m)| (from_s..=to_s).contains(&m.unix_s));
            let closed: Vec<_> = wanted.clone().filter(|(i, m)| *i < last || m.unix_s < open_from_s).map(|(_, m)| m).collect();
            let wanted: Vec<_> = wanted.map(|(_, m)| m).collect();

            let compare = |read: Vec<PairMinute>, truth: &[&PairMinute]| {
                let (read, truth) = (by_pair(read), merged(truth.iter().copied()));
                read.len() == truth.len() && truth.iter().all(|(key, stats)| read.get(key).is_some_and(|r| same(r, stats)))
            };
            prop_assert!(compare(history.minutes(from_s, to_s, ALL).unwrap(), &wanted));
            let which = Which { open_from_s: Some(open_from_s), ..ALL };
            prop_assert!(compare(history.minutes(from_s, to_s, which).unwrap(), &closed), "the open minutes of this run left out");
            for pair in merged(wanted.iter().copied()).keys() {
                let of_pair: Vec<_> = wanted.iter().copied().filter(|m| m.key == *pair).collect();
                let read = history.minutes(from_s, to_s, Which { pair: Some(pair), ..ALL }).unwrap();
                prop_assert!(read.iter().map(|m| m.unix_s).is_sorted());
                prop_assert!(compare(read, &of_pair));
            }
            let brief = history.minutes(from_s, to_s, Which::default()).unwrap();
            prop_assert!(brief.iter().all(|m| m.stats.worst.is_empty()), "worst calls only when asked for");
            prop_assert_eq!(brief.len(), wanted.len());
            prop_assert_eq!(history.damaged_rows, 0);
        }
    }
}

#[test]
fn two_runs_within_one_minute_sum_up() {
    let directory = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let mut history = open(&file(&directory), PLENTY, 600 + run);
        history.checkpoint(610, &[minute(600, &key("a", "b"), &[5, 6, 7], 1 + run)], &NONE).unwrap();
        history.close(620).unwrap();
    }
    let mut history = open(&file(&directory), PLENTY, 700);
    let pairs = by_pair(all(&mut history));
    assert_eq!(pairs[&key("a", "b")].calls(), 6);
    assert_eq!(pairs[&key("a", "b")].worst.len(), 2);
}

#[test]
fn a_call_is_found_by_its_ids() {
    let mut history = History::open(None, PLENTY, 0).unwrap().0;
    let rows: Vec<PairMinute> =
        (1..50).map(|i| minute(60 * (i % 7), &key("a", &format!("s{i}")), &[1_000 + i], i)).collect();
    history.checkpoint(0, &rows, &NONE).unwrap();
    let call = &rows[20].stats.worst[0];
    let (pair, found) = history.find_call(&call.trace_id, Some(&call.client_span_id)).unwrap().unwrap();
    assert_eq!((&pair, &found), (&rows[20].key, call));
    assert_eq!(history.find_call(&call.trace_id, None).unwrap().unwrap().1, *call);
    assert!(history.find_call(&call.trace_id, Some(b"no span.")).unwrap().is_none());
    assert!(history.find_call(b"no such trace id", None).unwrap().is_none());
}

#[test]
fn what_is_too_old_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { max_age_s: 600, ..PLENTY };
    let mut history = open(&file(&directory), limits, 0);
    for at in 0..30 {
        history.checkpoint(60 * at, &[minute(60 * at, &key("a", "b"), &[at + 1], at)], &NONE).unwrap();
    }
    history.prune(30 * 60).unwrap();
    let left: Vec<u64> = all(&mut history).iter().map(|m| m.unix_s / 60).collect();
    assert_eq!(left, (20..30).collect::<Vec<_>>());
    assert_eq!(history.figures().unwrap().pruned_rows, 20);
    drop(history);
    let mut history = open(&file(&directory), limits, 35 * 60);
    assert_eq!(all(&mut history).len(), 5, "the start of a run prunes too");
}

#[test]
fn the_file_stays_below_its_limit_and_shrinks_for_real() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let row = |at: u64, pair: u64| {
        // Gaps that do not compress well.
        let gaps: Vec<u64> =
            (0..200).map(|i| (at * 977 + pair * 31 + i * 7_919) * 104_729 % 50_000_000).collect();
        minute(60 * at, &key("a", &format!("s{pair}")), &gaps, at * 100 + pair)
    };
    let grow = |history: &mut History, minutes: std::ops::Range<u64>| {
        for at in minutes {
            let rows: Vec<_> = (0..20).map(|pair| row(at, pair)).collect();
            history.checkpoint(60 * at, &rows, &NONE).unwrap();
        }
    };
    let mut history = open(&path, PLENTY, 0);
    grow(&mut history, 0..200);
    drop(history);
    let full = on_disk(&path);
    let max_bytes = full / 3;

    let mut history = open(&path, Limits { max_bytes, ..PLENTY }, 200 * 60);
    assert!(on_disk(&path) <= max_bytes, "{} of {full} bytes left, the limit is {max_bytes}", on_disk(&path));
    assert_eq!(history.figures().unwrap().bytes, on_disk(&path));
    let left = all(&mut history);
    let pruned = history.figures().unwrap().pruned_rows;
    assert_eq!(left.len() as u64 + pruned, 200 * 20);
    let first = left[0].unix_s / 60;
    assert!(first > 0 && left.len() as u64 == (200 - first) * 20, "the oldest minutes went, and whole ones");

    // Further minutes push out old ones at the checkpoint itself; what the log may hold comes on top.
    for at in 200..400 {
        grow(&mut history, at..at + 1);
        assert!(on_disk(&path) <= max_bytes + (5 << 20), "minute {at}: {} bytes", on_disk(&path));
    }
    assert!(all(&mut history)[0].unix_s > 60 * 200);
    assert_eq!(all(&mut history).last().unwrap().unix_s, 60 * 399);
}

#[test]
fn holes_lie_between_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    for (from, to) in [(1_000, 2_000), (2_030, 3_000), (4_000, 5_000)] {
        let mut history = open(&path, PLENTY, from);
        history.checkpoint(to, &[minute(to / 60 * 60, &key("a", "b"), &[1], 1)], &NONE).unwrap();
    }
    let (history, last) = History::open(Some(&path), PLENTY, 9_000).unwrap();
    let holes: Vec<_> = history.holes().unwrap().iter().map(|h| (h.from_unix_s, h.to_unix_s)).collect();
    assert_eq!(holes, [(5_000, 9_000), (3_000, 4_000)], "30 s between runs are no hole");
    assert!(matches!(last, LastRun::Killed { .. }));
}

#[test]
fn the_end_of_the_last_run_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let (mut history, last) = History::open(Some(&path), PLENTY, 1_700_000_000).unwrap();
    assert_eq!(last, LastRun::None);
    history.close(1_700_000_060).unwrap();
    drop(history);
    let (mut history, last) = History::open(Some(&path), PLENTY, 1_700_000_100).unwrap();
    assert_eq!(last.to_string(), "the last run closed it at 2023-11-14T22:14:20Z");
    history.checkpoint(1_700_000_120, &[], &NONE).unwrap();
    drop(history);
    let last = History::open(Some(&path), PLENTY, 1_700_000_200).unwrap().1.to_string();
    assert!(
        last.contains("without closing")
            && last.contains("2023-11-14T22:15:20Z")
            && last.contains("5 s apart"),
        "{last}"
    );
}

#[test]
fn a_damaged_row_is_left_out_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let mut history = open(&path, PLENTY, 0);
    let rows: Vec<_> = (0..10).map(|i| minute(60 * i, &key("a", "b"), &[1_000 * (i + 1); 30], i)).collect();
    history.checkpoint(600, &rows, &NONE).unwrap();
    drop(history);
    let database = rusqlite::Connection::open(&path).unwrap();
    // One bit in the middle of the statistics of minute 3; the calls of minute 5 cut short.
    let blob = |column: &str, at: u64| -> Vec<u8> {
        database
            .query_row(&format!("SELECT {column} FROM minute WHERE unix_s = ?1"), [at as i64], |r| r.get(0))
            .unwrap()
    };
    let mut stats = blob("stats", 180);
    let middle = stats.len() / 2;
    stats[middle] ^= 1;
    database.execute("UPDATE minute SET stats = ?1 WHERE unix_s = 180", [stats]).unwrap();
    let mut worst = blob("worst", 300);
    worst.pop();
    database.execute("UPDATE minute SET worst = ?1 WHERE unix_s = 300", [worst]).unwrap();
    drop(database);

    let mut history = open(&path, PLENTY, 700);
    let left: Vec<u64> = all(&mut history).iter().map(|m| m.unix_s / 60).collect();
    assert_eq!(left, [0, 1, 2, 4, 6, 7, 8, 9]);
    assert_eq!(history.figures().unwrap().damaged_rows, 2);
    assert_eq!(
        history.minutes(0, 600, Which::default()).unwrap().len(),
        9,
        "the cut calls are not asked for"
    );
}

#[test]
fn foreign_files_are_refused_with_their_path() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| -> (HistoryError, String) {
        let error = History::open(Some(path), PLENTY, 0).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&path.with_extension("").display().to_string()), "{text}");
        (error, text)
    };
    let text_file = directory.path().join("notes.sqlite");
    std::fs::write(&text_file, "meeting at noon, bring the figures ".repeat(100)).unwrap();
    assert!(matches!(refusal(&text_file).0, HistoryError::Database { .. }));
    assert!(std::fs::read_to_string(&text_file).unwrap().starts_with("meeting"), "left as it was");

    let other = directory.path().join("browser.sqlite");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmark (url TEXT)").unwrap();
    let (error, text) = refusal(&other);
    assert!(matches!(error, HistoryError::Foreign { .. }) && text.contains("another program"), "{text}");

    let newer = directory.path().join("newer.sqlite");
    drop(open(&newer, PLENTY, 0));
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let text = refusal(&newer).1;
    assert!(text.contains("99") && text.contains("newer"), "{text}");

    refusal(&directory.path().join("no such directory").join("history.sqlite"));

    let taken = directory.path().join("taken.sqlite");
    let _first = open(&taken, PLENTY, 0);
    assert!(matches!(refusal(&taken).0, HistoryError::InUse { .. }));
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut permissions = std::fs::metadata(directory.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(directory.path(), permissions).unwrap();
    if std::fs::write(directory.path().join("probe"), "").is_ok() {
        return println!("not run: a history in a read-only directory: this user may write everywhere");
    }
    let error = History::open(Some(&file(&directory)), PLENTY, 0).unwrap_err().to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
}
