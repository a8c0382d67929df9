//! The history on real files: what is read back, dropped, survives a kill, and is refused.

#[path = "history/child.rs"]
mod child;
#[path = "history/damage.rs"]
mod damage;
#[path = "history/rows.rs"]
mod rows;

use proptest::prelude::*;
use rows::{key, minute, same};
use spangap_meter::engine::PairMinute;
use spangap_meter::history::{
    Checkpoint, History, HistoryError, LastRun, Limits, Step, UnwrittenMinutes, View, Waiting, by_pair,
};
use spangap_model::{Accounting, PairKey, PairStats};
use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

const PLENTY: Limits = Limits { max_age_s: u64::MAX, max_bytes: u64::MAX };

/// Minutes of a few pairs in a few minutes, each pair and minute once.
fn minutes() -> impl Strategy<Value = Vec<PairMinute>> {
    let cells = prop::collection::btree_map(
        (0u64..6, 0usize..4),
        prop::collection::vec(0u64..100_000_000, 0..12),
        0..12,
    );
    (cells, any::<u32>()).prop_map(|(cells, salt)| {
        let method = |i: usize| (i == 3).then(|| "/a.B/C".into());
        let key = |i: usize| PairKey {
            client: ["web", "ü\"'", "web", "web"][i].into(),
            server: ["a", "b", "c", "a"][i].into(),
            method: method(i),
        };
        let made = cells.iter().map(|((at, pair), gaps)| {
            minute(60 * at, &key(*pair), gaps, u64::from(salt) * 100 + at * 10 + *pair as u64)
        });
        made.collect()
    })
}

fn file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("history.sqlite")
}

/// A history with its queue, as in the recorder.
struct Recorded {
    history: History,
    waiting: Waiting,
}

impl Deref for Recorded {
    type Target = History;
    fn deref(&self) -> &History {
        &self.history
    }
}

impl DerefMut for Recorded {
    fn deref_mut(&mut self) -> &mut History {
        &mut self.history
    }
}

impl Recorded {
    fn new(history: History) -> Recorded {
        let waiting = Waiting::new(history.generation(), u64::MAX);
        Recorded { history, waiting }
    }

    /// Passes on closed minutes and the open ones.
    fn checkpoint(
        &mut self,
        now_unix_s: u64,
        closed: &[PairMinute],
        open: &[PairMinute],
    ) -> Result<(), HistoryError> {
        self.waiting.push(closed.to_vec());
        let batches = self.waiting.batches();
        self.history.checkpoint(&Checkpoint {
            now_unix_s,
            closed: &batches,
            open,
            settled_before_s: now_unix_s,
            spans: &Accounting::default(),
            counted: None,
        })?;
        self.waiting.written(self.history.generation());
        Ok(())
    }

    fn maintain_all(&mut self) {
        while self.history.maintain().unwrap() {}
    }

    fn view(&self) -> View {
        self.history.reader().view(Default::default()).unwrap()
    }

    /// All minutes with their worst calls.
    fn all(&self) -> Vec<PairMinute> {
        self.view().stored(Step::Minute, 0, u64::MAX, true).unwrap()
    }

    /// The sums of all pairs, and of each for itself: they are the same but for the worst calls.
    fn pairs(&self, from_s: u64, to_s: u64) -> HashMap<PairKey, PairStats> {
        let (view, memory) = (self.view(), UnwrittenMinutes::default());
        let mut pairs = HashMap::new();
        view.pairs(from_s, to_s, &memory, |key, stats| assert!(pairs.insert(key, stats).is_none())).unwrap();
        for (key, stats) in &pairs {
            let alone = view.pair(key, (from_s, to_s), &memory).unwrap();
            assert!(same(&alone, &PairStats { worst: Vec::new(), ..stats.clone() }), "{key:?}");
        }
        pairs
    }
}

fn open(path: &Path, limits: Limits, now_unix_s: u64) -> Recorded {
    Recorded::new(History::open(Some(path), limits, now_unix_s).unwrap())
}

fn on_disk(path: &Path) -> u64 {
    let size = |suffix: &str| std::fs::metadata(format!("{}{suffix}", path.display())).map_or(0, |f| f.len());
    size("") + size("-wal")
}

/// Whether a sum equals the truth in every distribution and count, and in its five largest gaps.
fn is_sum(read: &PairStats, truth: &PairStats) -> bool {
    let without = |stats: &PairStats| PairStats { worst: Vec::new(), ..stats.clone() };
    let worst = |stats: &PairStats| stats.worst.iter().take(5).map(|call| call.gap_ns).collect::<Vec<_>>();
    same(&without(read), &without(truth)) && worst(read) == worst(truth)
}

/// Expected content of the history: minutes summed up by time and pair.
#[derive(Clone, Default)]
struct Truth(BTreeMap<(u64, PairKey), PairStats>);

impl Truth {
    fn add(&mut self, minutes: &[PairMinute]) {
        for minute in minutes {
            self.0.entry((minute.unix_s, minute.key.clone())).or_default().merge(&minute.stats);
        }
    }

    /// Sums by pair and by start of a step, over the minutes from `from_s` to `to_s`.
    fn sums(&self, step_s: u64, from_s: u64, to_s: u64) -> BTreeMap<(u64, PairKey), PairStats> {
        let mut sums: BTreeMap<(u64, PairKey), PairStats> = BTreeMap::new();
        for ((unix_s, key), stats) in
            self.0.iter().filter(|((unix_s, _), _)| (from_s..=to_s).contains(unix_s))
        {
            sums.entry((unix_s - unix_s % step_s, key.clone())).or_default().merge(stats);
        }
        sums.retain(|_, stats| !stats.is_empty());
        sums
    }
}

/// Minutes scattered over three days, close together and far apart; some contain a retracted call.
fn scattered() -> impl Strategy<Value = Vec<PairMinute>> {
    (minutes(), prop::sample::select(vec![0u64, 540, 3_540, 40_000, 86_340, 180_000]), any::<bool>())
        .prop_map(|(mut minutes, base_s, retract)| {
            for minute in &mut minutes {
                minute.unix_s += base_s / 60 * 60;
                if retract && minute.stats.calls() > 0 {
                    minute.stats.gap.record(200_000_000);
                    minute.stats.gap.retract(200_000_000);
                }
            }
            minutes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs of several checkpoints. Each has closed minutes in any order, including late and repeated ones,
    /// and open minutes that replace those of the previous checkpoint. Intervals may or may not be summed up
    /// in between.
    #[test]
    fn queries_return_the_written_minutes(
        runs in prop::collection::vec(prop::collection::vec((scattered(), minutes(), any::<bool>()), 1..4), 1..3),
        from in 0u64..4_000, span in 0u64..4_000,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (mut truth, mut left_open) = (Truth::default(), Vec::new());
        for checkpoints in &runs {
            let mut history = open(&file(&directory), PLENTY, 300_000);
            // Minutes left open by the previous run were closed by its end.
            truth.add(&std::mem::take(&mut left_open));
            for (closed, open_minutes, maintain) in checkpoints {
                history.checkpoint(300_000, closed, open_minutes).unwrap();
                truth.add(closed);
                left_open = open_minutes.clone();
                if *maintain {
                    history.maintain_all();
                }

                let view = history.view();
                let rolled = *maintain;
                for step in Step::ALL {
                    let stored = view.stored(step, 0, u64::MAX, true).unwrap();
                    let sums = truth.sums(step.seconds(), 0, u64::MAX);
                    if rolled || step == Step::Minute {
                        let kept = stored.iter().filter(|row| !row.stats.is_empty()).count();
                        prop_assert_eq!(kept, sums.len(), "{:?}", step);
                    }
                    for row in stored.iter().filter(|row| !row.stats.is_empty()) {
                        let sum = &sums[&(row.unix_s, row.key.clone())];
                        prop_assert!(is_sum(&row.stats, sum), "{:?} of {}", step, row.unix_s);
                    }
                }
                let (from_s, to_s) = (60 * from, 60 * (from + span));
                let wanted: HashMap<PairKey, PairStats> =
                    truth.sums(u64::MAX, from_s, to_s).into_iter().map(|((_, key), stats)| (key, stats)).collect();
                let read = history.pairs(from_s, to_s);
                prop_assert_eq!(read.len(), wanted.len());
                for (key, stats) in &wanted {
                    prop_assert!(is_sum(&read[key], stats), "{:?}", key);
                    let over_time = view.over_time(key, from_s, to_s, &UnwrittenMinutes::default()).unwrap();
                    prop_assert!(is_sum(&over_time.total, stats));
                    let step_s = over_time.step.seconds();
                    let points = truth.sums(step_s, from_s, to_s).into_iter().filter(|((_, of), _)| of == key);
                    let points: BTreeMap<u64, PairStats> = points.map(|((at, _), stats)| (at, stats)).collect();
                    prop_assert!(over_time.points.keys().eq(points.keys()));
                    for (at, (stats, still_open)) in &over_time.points {
                        let truth = PairStats { worst: Vec::new(), ..points[at].clone() };
                        prop_assert!(same(stats, &truth) && !still_open);
                    }
                }
                let worst = view.worst(from_s, to_s, |_| true, 0..=u64::MAX, 20, &UnwrittenMinutes::default()).unwrap().calls;
                let mut gaps: Vec<u64> = wanted.values().flat_map(|s| &s.worst).map(|call| call.gap_ns).collect();
                gaps.sort_unstable_by(|a, b| b.cmp(a));
                // The truth retains ten per pair.
                let known = worst.len().min(10).min(gaps.len());
                prop_assert!(worst.iter().map(|(_, call)| call.gap_ns).take(known).eq(gaps.into_iter().take(known)));
                prop_assert_eq!(history.reader().damaged_rows(), 0);
            }
        }
    }
}

#[test]
fn two_runs_within_one_minute_are_added() {
    let directory = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let mut history = open(&file(&directory), PLENTY, 600 + run);
        history.checkpoint(610, &[minute(600, &key("a", "b"), &[5, 6, 7], 1 + run)], &[]).unwrap();
        history.close(620).unwrap();
    }
    let history = open(&file(&directory), PLENTY, 700);
    let pairs = by_pair(history.all());
    assert_eq!(pairs[&key("a", "b")].calls(), 6);
    assert_eq!(pairs[&key("a", "b")].worst.len(), 2);
}

#[test]
fn a_call_is_found_by_its_ids() {
    let mut history = Recorded::new(History::open(None, PLENTY, 0).unwrap());
    let rows: Vec<PairMinute> =
        (1..50).map(|i| minute(60 * (i % 7), &key("a", &format!("s{i}")), &[1_000 + i], i)).collect();
    history.checkpoint(0, &rows, &[]).unwrap();
    let call = &rows[20].stats.worst[0];
    let find = |trace_id: &[u8; 16], span_id: Option<&[u8; 8]>| {
        history.view().call(trace_id, span_id, &UnwrittenMinutes::default()).unwrap()
    };
    let (pair, found) = find(&call.trace_id, Some(&call.client_span_id)).unwrap();
    assert_eq!((&pair, &found), (&rows[20].key, call));
    assert_eq!(find(&call.trace_id, None).unwrap().1, *call);
    assert!(find(&call.trace_id, Some(b"no span.")).is_none());
    assert!(find(b"no such trace id", None).is_none());
}

#[test]
fn old_rows_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { max_age_s: 600, ..PLENTY };
    let mut history = open(&file(&directory), limits, 0);
    for at in 0..30 {
        history.checkpoint(60 * at, &[minute(60 * at, &key("a", "b"), &[at + 1], at)], &[]).unwrap();
    }
    history.prune(30 * 60).unwrap();
    let left: Vec<u64> = history.all().iter().map(|m| m.unix_s / 60).collect();
    assert_eq!(left, (20..30).collect::<Vec<_>>());
    assert_eq!(history.figures().unwrap().pruned_rows, 20);
    drop(history);
    let history = open(&file(&directory), limits, 35 * 60);
    assert_eq!(history.all().len(), 5, "the start of a run prunes too");
}

#[test]
fn the_file_stays_below_its_limit_and_shrinks_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let row = |at: u64, pair: u64| {
        // Gaps that compress badly.
        let gaps: Vec<u64> =
            (0..200).map(|i| (at * 977 + pair * 31 + i * 7_919) * 104_729 % 50_000_000).collect();
        minute(60 * at, &key("a", &format!("s{pair}")), &gaps, at * 100 + pair)
    };
    let grow = |history: &mut Recorded, minutes: std::ops::Range<u64>| {
        for at in minutes {
            let rows: Vec<_> = (0..20).map(|pair| row(at, pair)).collect();
            history.checkpoint(60 * at, &rows, &[]).unwrap();
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
    let left = history.all();
    let pruned = history.figures().unwrap().pruned_rows;
    assert_eq!(left.len() as u64 + pruned, 200 * 20);
    let first = left[0].unix_s / 60;
    assert!(first > 0 && left.len() as u64 == (200 - first) * 20, "the oldest minutes went, and whole ones");

    // Further minutes displace old ones at the checkpoint itself; the allowance is for the log.
    for at in 200..400 {
        grow(&mut history, at..at + 1);
        assert!(on_disk(&path) <= max_bytes + (5 << 20), "minute {at}: {} bytes", on_disk(&path));
    }
    assert!(history.all()[0].unix_s > 60 * 200);
    assert_eq!(history.all().last().unwrap().unix_s, 60 * 399);
}

#[test]
fn holes_lie_between_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    for (from, to) in [(1_000, 2_000), (2_030, 3_000), (4_000, 5_000)] {
        let mut history = open(&path, PLENTY, from);
        history.checkpoint(to, &[minute(to / 60 * 60, &key("a", "b"), &[1], 1)], &[]).unwrap();
    }
    let history = History::open(Some(&path), PLENTY, 9_000).unwrap();
    let last = history.last_run().clone();
    let holes: Vec<_> =
        Recorded::new(history).view().holes().unwrap().iter().map(|h| (h.from_unix_s, h.to_unix_s)).collect();
    assert_eq!(holes, [(5_000, 9_000), (3_000, 4_000)], "30 s between runs are no hole");
    assert!(matches!(last, LastRun::Killed { .. }));
}

#[test]
fn the_end_of_the_last_run_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let mut history = History::open(Some(&path), PLENTY, 1_700_000_000).unwrap();
    assert_eq!(*history.last_run(), LastRun::None);
    history.close(1_700_000_060).unwrap();
    drop(history);
    let history = History::open(Some(&path), PLENTY, 1_700_000_100).unwrap();
    assert_eq!(history.last_run().to_string(), "the last run closed it at 2023-11-14T22:14:20Z");
    let mut history = Recorded::new(history);
    history.checkpoint(1_700_000_120, &[], &[]).unwrap();
    drop(history);
    let last = History::open(Some(&path), PLENTY, 1_700_000_200).unwrap().last_run().to_string();
    assert!(
        last.contains("without closing")
            && last.contains("2023-11-14T22:15:20Z")
            && last.contains("5 s apart"),
        "{last}"
    );
}

#[test]
fn waiting_minutes_are_in_answers_exactly_once() {
    let mut history = Recorded::new(History::open(None, PLENTY, 0).unwrap());
    let pair = key("a", "b");
    history.checkpoint(600, &[minute(0, &pair, &[10, 20], 1)], &[minute(60, &pair, &[30], 2)]).unwrap();
    let waiting = vec![minute(60, &pair, &[30, 40], 2), minute(0, &pair, &[50], 3)];
    let memory = UnwrittenMinutes { waiting: vec![waiting.into()], open: vec![minute(120, &pair, &[60], 4)] };
    let view = history.view();
    let over_time = view.over_time(&pair, 0, 200, &memory).unwrap();
    let points: Vec<_> =
        over_time.points.iter().map(|(at, (stats, open))| (*at, stats.calls(), *open)).collect();
    assert_eq!(points, [(0, 3, false), (60, 2, false), (120, 1, true)]);
    assert_eq!(over_time.total.calls(), 6);
    let mut calls = 0;
    view.pairs(0, 200, &memory, |_, stats| calls += stats.calls()).unwrap();
    assert_eq!(calls, 6);
    let worst = view.worst(0, 200, |_| true, 0..=u64::MAX, 10, &memory).unwrap().calls;
    assert_eq!(worst.iter().map(|(_, call)| call.gap_ns).collect::<Vec<_>>(), [60, 50, 40, 20]);
    let id = memory.open[0].stats.worst[0].trace_id;
    assert!(view.call(&id, None, &memory).unwrap().is_some());
}

#[test]
fn coarser_rows_replace_dropped_minutes_and_answers_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let mut history = open(&path, PLENTY, 0);
    const MINUTES: u64 = 26 * 60;
    for hour in 0..MINUTES / 60 {
        let rows = (hour * 60..hour * 60 + 60).flat_map(|at| {
            let gaps: Vec<u64> = (0..100).map(|i| (at * 977 + i * 7_919) * 104_729 % 50_000_000).collect();
            (0..4).map(move |pair| minute(60 * at, &key("a", &format!("s{pair}")), &gaps, at * 10 + pair))
        });
        history.checkpoint(3_600 * (hour + 1), &rows.collect::<Vec<_>>(), &[]).unwrap();
    }
    history.maintain_all();
    let now = 60 * MINUTES;
    let before = history.pairs(0, now);
    drop(history);
    let max_bytes = on_disk(&path) / 2;
    let mut history = open(&path, Limits { max_bytes, ..PLENTY }, now);
    history.maintain_all();
    let steps = history.steps().unwrap();
    let reach = |step: Step| steps.iter().find(|s| s.step_s == step.seconds()).unwrap().from_unix_s.unwrap();
    assert!(reach(Step::Minute) > 0 && reach(Step::Day) == 0, "{steps:?}");
    assert!(on_disk(&path) <= max_bytes);

    // The total has lost no call.
    let after = history.pairs(0, now);
    for (key, stats) in &before {
        let without = |stats: &PairStats| PairStats { worst: Vec::new(), ..stats.clone() };
        assert!(same(&without(stats), &without(&after[key])));
    }
    // A boundary within dropped minutes is rounded to the remaining rows, and the answer states the result.
    let view = history.view();
    let from_s = reach(Step::TenMinutes).max(600) + 420;
    assert!(from_s < reach(Step::Minute), "{steps:?}");
    let covered = view.pairs(from_s, now, &UnwrittenMinutes::default(), |_, _| {}).unwrap().from_unix_s;
    assert!(covered <= from_s && covered.is_multiple_of(600), "{covered} of {from_s}: {steps:?}");
    let over_time = view.over_time(&key("a", "s0"), from_s, now, &UnwrittenMinutes::default()).unwrap();
    assert!(over_time.step > Step::Minute && over_time.covered.from_unix_s == covered);
}

/// A file written by the previous version: 2 pairs, 70 minutes, 64 calls each.
#[test]
fn a_history_of_the_first_schema_is_read_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let stored = include_bytes!("history/first_schema.sqlite.zst");
    std::fs::write(&path, zstd::decode_all(&stored[..]).unwrap()).unwrap();
    let database = rusqlite::Connection::open(&path).unwrap();
    let mut select = database
        .prepare("SELECT unix_s, client, server, calls, trace_ids FROM minute JOIN pair USING (pair_id)")
        .unwrap();
    let wanted: BTreeMap<(u64, PairKey), (u64, Vec<u8>)> = select
        .query_map([], |row| {
            let key = key(&row.get::<_, String>(1)?, &row.get::<_, String>(2)?);
            Ok(((row.get::<_, i64>(0)? as u64, key), (row.get::<_, i64>(3)? as u64, row.get(4)?)))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    drop(select);
    drop(database);
    assert_eq!(wanted.len(), 2 * 70);

    let now = 1_700_000_100;
    let mut history = open(&path, PLENTY, now);
    assert!(history.first_minutes_before_s().unwrap().is_some(), "it is told that some are not there yet");
    // An exit in between neither loses nor duplicates any.
    history.maintain().unwrap();
    drop(history);
    let mut history = open(&path, PLENTY, now);
    history.checkpoint(now, &[], &[]).unwrap();
    history.maintain_all();
    assert_eq!(history.first_minutes_before_s().unwrap(), None);
    let read = history.all();
    assert_eq!(read.len(), wanted.len());
    for minute in &read {
        let (calls, trace_ids) = &wanted[&(minute.unix_s, minute.key.clone())];
        assert_eq!(minute.stats.calls(), *calls);
        let ids: Vec<u8> = minute.stats.worst.iter().flat_map(|call| call.trace_id).collect();
        assert_eq!(ids, *trace_ids);
        assert!(minute.stats.worst.iter().all(|call| call.client.whole.is_some()));
    }
    assert!(history.steps().unwrap().iter().take(3).all(|step| step.rows > 0), "and is summed up");
    assert_eq!(history.pairs(0, u64::MAX).values().map(PairStats::calls).sum::<u64>(), 2 * 70 * 64);
    assert_eq!(history.reader().damaged_rows(), 0);
}

#[test]
fn a_clock_far_ahead_does_not_empty_the_history_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits { max_age_s: 14 * 86_400, ..PLENTY };
    let mut history = open(&file(&directory), limits, 1_000_000);
    history.checkpoint(1_000_000, &[minute(999_960, &key("a", "b"), &[1], 1)], &[]).unwrap();
    drop(history);
    let history = open(&file(&directory), limits, 1_000_000 + 400 * 86_400);
    assert_eq!(history.all().len(), 1, "whether the clock is right shows within minutes");
}
