//! The stores of pair-minutes, SQLite and ClickHouse, answer the same questions alike: one suite for both, against sums
//! made here.

mod front;
#[path = "../history/rows.rs"]
mod rows;
mod sent;
mod traces;

use front::Front;
use rows::{key, minute, same};
use spangap_meter::clickhouse::ClickHouse;
use spangap_meter::engine::PairMinute;
use spangap_meter::history::{
    Batch, Checkpoint, Figure, History, Limits, Lost, Minutes, Needs, Step, Stored, UnwrittenMinutes,
};
use spangap_model::{Accounting, Histogram, KeptCall, PairKey, PairStats};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

const PLENTY: Limits = Limits { max_age_s: u64::MAX, max_bytes: u64::MAX };
const HOUR: u64 = 3_600;
/// A day begins here.
const DAY: u64 = 19_700 * 86_400;

/// A meter's history, and what it shares.
struct Sharing {
    history: History,
    shared: Option<Arc<ClickHouse>>,
    batches: u64,
}

impl Sharing {
    fn alone(folder: &Path) -> Sharing {
        let history = History::open(Some(&folder.join("history.sqlite")), PLENTY, DAY).unwrap();
        let batches = history.generation();
        Sharing { history, shared: None, batches }
    }

    fn with(folder: &Path, name: &str, front: &Front) -> Sharing {
        let mut sharing = Sharing::alone(folder);
        let settings = format!(r#"{{"url": {:?}, "name": {name:?}}}"#, front.url);
        let settings = serde_json::from_str(&settings).unwrap();
        let shared = ClickHouse::open(&settings, None, None, "host", &mut sharing.history).unwrap();
        sharing.shared = Some(Arc::new(shared));
        sharing
    }

    /// Writes closed minutes, and sums them up as far as intervals are over at `now_s`.
    fn write(&mut self, now_s: u64, closed: &[PairMinute]) {
        self.batches += 1;
        self.history
            .checkpoint(&Checkpoint {
                now_unix_s: now_s,
                closed: &[Batch::new(self.batches, closed.to_vec())],
                open: &[],
                settled_before_s: now_s,
                spans: &Accounting::default(),
                counted: None,
            })
            .unwrap();
        while self.history.maintain().unwrap() {}
    }

    fn shared(&self) -> &Arc<ClickHouse> {
        self.shared.as_ref().unwrap()
    }

    fn send_all(&self) {
        while self.shared().send().unwrap() {}
    }

    fn own(&self) -> Stored {
        let view = self.history.reader().view(Arc::default()).unwrap();
        Stored { view, memory: UnwrittenMinutes::default() }
    }

    fn all(&self) -> impl Minutes + use<> {
        self.shared().minutes(&Arc::default()).unwrap()
    }
}

/// Names that are a part of a statement to whoever does not quote them.
fn pairs() -> [PairKey; 5] {
    let method = Some("/a.B/C\\' OR 1=1".into());
    [
        key("web", "cart"),
        key("'); DROP TABLE spangap_pairs; --", "\\"),
        key("\"quoted\" `ticked`", "two\nlines\ttab\0nul"),
        key("", "\u{fffd}\u{10ffff} {x:String} \\x41 %27"),
        PairKey { method, ..key("web", "cart") },
    ]
}

/// Some minutes of 28 hours, which differ by `salt`.
fn some_minutes(salt: u64) -> Vec<PairMinute> {
    let pairs = pairs();
    let mut minutes = Vec::new();
    for at in (0..28 * 60).step_by(7) {
        for (number, pair) in (0..).zip(&pairs) {
            let id = salt * 1_000_000 + at * 10 + number;
            // Hash of the id: gaps from nothing to seconds, none of them twice.
            let gap = |n: u64| (id * 8 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (30 + id % 20);
            let gaps: Vec<u64> = (0..=id % 4).map(gap).chain([0]).collect();
            if !(id + salt).is_multiple_of(3) {
                minutes.push(minute(DAY + 60 * at, pair, &gaps, id));
            }
        }
    }
    minutes
}

fn in_range(all: &[PairMinute], (from_s, to_s): (u64, u64)) -> impl Iterator<Item = &PairMinute> {
    all.iter().filter(move |one| (Step::Minute.start(from_s)..=to_s).contains(&one.unix_s))
}

fn sum<'a>(minutes: impl Iterator<Item = &'a PairMinute>) -> HashMap<PairKey, PairStats> {
    let mut sums: HashMap<PairKey, PairStats> = HashMap::new();
    minutes.for_each(|one| sums.entry(one.key.clone()).or_default().merge(&one.stats));
    sums
}

fn without_worst(stats: &PairStats) -> PairStats {
    PairStats { worst: Vec::new(), ..stats.clone() }
}

fn ids(calls: &[KeptCall]) -> Vec<(u64, [u8; 16])> {
    calls.iter().map(|call| (call.gap_ns, call.trace_id)).collect()
}

/// Asks for a part of the statistics only.
fn answers_what_is_needed(
    store: &dyn Minutes,
    range: (u64, u64),
    filter: &dyn Fn(&PairKey) -> bool,
    wanted: &HashMap<PairKey, PairStats>,
) {
    type Of = fn(&PairStats) -> &Histogram;
    let figures: [(Figure, Of); 3] = [
        (Figure::Gap, |stats| &stats.gap),
        (Figure::Client, |stats| &stats.client),
        (Figure::Server, |stats| &stats.server),
    ];
    let needs = figures.map(|(figure, _)| Needs::Distribution(figure)).into_iter().chain([Needs::Sums]);
    for needs in needs {
        let mut found = 0;
        store
            .pairs_of(range, needs, filter, &mut |key, stats| {
                found += 1;
                let truth = &wanted[&key];
                if let Needs::Distribution(asked) = needs {
                    // Every bucket and bound of it; the rest is undefined.
                    for (_, of) in figures.iter().filter(|(figure, _)| *figure == asked) {
                        assert_eq!(of(&stats), of(truth), "{needs:?} {key:?}");
                    }
                    return;
                }
                assert_eq!(
                    (stats.calls(), &stats.negative),
                    (truth.calls(), &truth.negative),
                    "{needs:?} {key:?}"
                );
                for (_, of) in figures {
                    let [one, other] = [of(&stats), of(truth)];
                    assert_eq!(
                        (one.count(), one.sum_ns()),
                        (other.count(), other.sum_ns()),
                        "{needs:?} {key:?}"
                    );
                }
            })
            .unwrap();
        assert_eq!(found, wanted.keys().filter(|key| filter(key)).count(), "{needs:?} {range:?}");
    }
}

/// Asks a store everything about minutes that it should have.
fn conforms(store: &dyn Minutes, truth: &[PairMinute]) {
    let ranges = [
        (DAY, DAY + 40 * HOUR),
        (DAY + 1, DAY + 26 * HOUR + 7),
        (DAY + 23 * HOUR + 59, DAY + 25 * HOUR + 1_234),
        (DAY + 5 * HOUR + 660, DAY + 5 * HOUR + 1_500),
        (DAY - 90 * HOUR, DAY + 7 * 60),
        (DAY + 200 * HOUR, DAY + 201 * HOUR),
    ];
    for range in ranges {
        let wanted = sum(in_range(truth, range));
        for filter in [|_: &PairKey| true, |key: &PairKey| &*key.client != "web"] {
            let mut found = HashMap::new();
            let each = &mut |key, stats| assert!(found.insert(key, stats).is_none());
            store.pairs_of(range, Needs::WorstCalls, &filter, each).unwrap();
            answers_what_is_needed(store, range, &filter, &wanted);
            assert_eq!(found.len(), wanted.keys().filter(|key| filter(key)).count(), "{range:?}");
            for (key, stats) in &found {
                assert!(same(&without_worst(stats), &without_worst(&wanted[key])), "{range:?} {key:?}");
                let shown = wanted[key].worst.len().min(5);
                assert_eq!(ids(&stats.worst)[..shown], ids(&wanted[key].worst)[..shown], "{range:?} {key:?}");
                assert!(same(&store.pair(key, range).unwrap(), &without_worst(stats)));
            }
            for step_s in [60, 600, 1_800, HOUR, 86_400, 1 << 62] {
                let mut found: BTreeMap<(PairKey, u64), Lost> = BTreeMap::new();
                let each =
                    &mut |key: &PairKey, at, part| found.entry((key.clone(), at)).or_default().add(part);
                store.lost(range, step_s, &filter, each).unwrap();
                let mut wanted: BTreeMap<(PairKey, u64), Lost> = BTreeMap::new();
                for one in in_range(truth, range).filter(|one| filter(&one.key)) {
                    let at = one.unix_s - one.unix_s % step_s;
                    wanted.entry((one.key.clone(), at)).or_default().add(Lost::of(&one.stats));
                }
                assert_eq!(found, wanted, "{range:?} by {step_s}");
            }
            let mut calls: Vec<KeptCall> = in_range(truth, range)
                .filter(|one| filter(&one.key))
                .flat_map(|one| one.stats.worst.clone())
                .collect();
            calls.sort_by_key(|call| (std::cmp::Reverse(call.gap_ns), call.trace_id));
            let worst = store.worst(range, &filter, 0..=u64::MAX, 12).unwrap().calls;
            let worst: Vec<KeptCall> = worst.into_iter().map(|(_, call)| call).collect();
            assert_eq!(worst, calls[..calls.len().min(12)], "{range:?}");
            // Coarse rows list their largest gaps alone: below these, calls may be missing, but none is wrong.
            let gaps = 1_000..=50_000_000;
            let worst = store.worst(range, &filter, gaps.clone(), 12).unwrap().calls;
            assert!(worst.iter().all(|(_, call)| gaps.contains(&call.gap_ns) && calls.contains(call)));
        }
        for (key, stats) in &wanted {
            let over_time = store.over_time(key, range).unwrap();
            assert!(same(&without_worst(&over_time.total), &without_worst(stats)), "{range:?} {key:?}");
            let mut points: BTreeMap<u64, PairStats> = BTreeMap::new();
            for one in in_range(truth, range).filter(|one| one.key == *key) {
                let at = over_time.step.start(one.unix_s);
                points.entry(at).or_default().merge_distributions(&one.stats);
            }
            assert!(points.keys().eq(over_time.points.keys()), "{range:?} {key:?}");
            for (at, (found, open)) in &over_time.points {
                assert!(same(&without_worst(found), &points[at]) && !open, "{range:?} {key:?} {at}");
            }
        }
    }
    for one in truth.iter().step_by(97).filter(|one| !one.stats.worst.is_empty()) {
        let call = &one.stats.worst[0];
        let (key, found) = store.call(&call.trace_id, Some(&call.client_span_id)).unwrap().unwrap();
        assert_eq!((&key, &found), (&one.key, call));
    }
    assert!(store.call(b"no such trace id", None).unwrap().is_none());
}

#[test]
fn sqlite_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let mut meter = Sharing::alone(folder.path());
    let minutes = some_minutes(1);
    meter.write(DAY + 60 * HOUR, &minutes);
    conforms(&meter.own(), &minutes);
}

#[test]
fn clickhouse_conforms_over_the_minutes_of_two_meters() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let Some(front) = Front::start(folders[2].path(), &[]) else { return };
    let mut truth = Vec::new();
    let mut meters = Vec::new();
    for (salt, name) in [(1, "first"), (2, "second")] {
        let mut meter = Sharing::with(folders[salt as usize - 1].path(), name, &front);
        let minutes = some_minutes(salt);
        // The last hours are not summed up yet.
        meter.write(DAY + 25 * HOUR, &minutes);
        meter.send_all();
        truth.extend(minutes);
        meters.push(meter);
    }
    for meter in &meters {
        conforms(&meter.all(), &truth);
    }
    let reach = meters[0].shared().minutes(&Arc::default()).unwrap().of_meters();
    assert_eq!(reach.meters.iter().map(|meter| &meter.name[..]).collect::<Vec<_>>(), ["first", "second"]);
    assert!(reach.note.contains("2 meters"), "{}", reach.note);
    assert!(front.sql("SHOW TABLES").contains("spangap_pairs"), "no name was taken for a statement");
}
