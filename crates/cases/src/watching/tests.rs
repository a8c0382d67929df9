//! Pairs that leave their baselines, and when they are back.

use super::*;
use spangap_model::Histogram;

struct Calls([Histogram; 2]);

impl Calls {
    /// Adds calls with gaps around `gap_ms` milliseconds.
    fn more(&mut self, calls: u64, gap_ms: f64) -> [Counts; 2] {
        for n in 0..calls {
            let gap_ns = (gap_ms * (0.9 + 0.2 * n as f64 / calls as f64) * 1e6) as u64;
            self.0[0].record(gap_ns);
            self.0[1].record(gap_ns + 2_000_000);
        }
        [Counts::of(&self.0[0]), Counts::of(&self.0[1])]
    }
}

#[test]
fn a_pair_leaves_its_baseline_returns_and_leaves_again() {
    let (mut pair, mut calls, mut at) = (Pair::default(), Calls([Histogram::new(), Histogram::new()]), 0);
    let mut slots = |slots: usize, gap_ms: f64| {
        let mut told = Vec::new();
        for _ in 0..slots {
            at += SLOT_MS;
            pair.slot(calls.more(100, gap_ms), None, false, at, &mut |what| told.push((at, what)));
        }
        told
    };
    assert!(slots(30, 1.0).is_empty());
    let out = slots(4, 40.0);
    assert_eq!(out.len(), 4, "{out:?}");
    assert_eq!(out[0].1, What::Doubtful, "the first one alone may be noise");
    let What::Out { left, is_new: true, since_unix_ms, lost_ns } = out[1].1 else { panic!("{out:?}") };
    assert_eq!(since_unix_ms, 31 * SLOT_MS, "the first one's end");
    assert!((3_000_000_000..4_500_000_000).contains(&lost_ns), "a hundred calls, 39 ms each: {lost_ns}");
    assert!(left.usual_ns < 1_300_000 && left.now_ns > 35_000_000, "{left:?}");
    assert!(matches!(out[2].1, What::Out { is_new: false, .. }));
    let back = slots(13, 1.0);
    let [(_, What::Back { by, other_is_slower, usual, before, after })] = &back[..] else {
        panic!("{back:?}")
    };
    assert_eq!((*by, *other_is_slower, usual.calls), (Measure::Gap, false, 3_000));
    assert!(before.gap.p50_ns > 30_000_000 && after.gap.p99_ns < 2_000_000, "{before:?} {after:?}");
    assert_eq!((before.calls, after.calls), (300, 1200));
    assert_eq!(after.to_unix_ms - after.from_unix_ms, 60_000);
    assert!(matches!(slots(2, 40.0)[..], [_, (_, What::Out { is_new: true, .. })]));
}

#[test]
fn the_threshold_is_reported_once_a_minute() {
    let (mut pair, mut calls) = (Pair::default(), Calls([Histogram::new(), Histogram::new()]));
    let mut told = Vec::new();
    for slot in 1..=12 {
        pair.slot(calls.more(1, 40.0), Some(20_000_000), false, slot * SLOT_MS, &mut |what| {
            told.push((slot, what))
        });
    }
    assert_eq!(told, [(3, What::Over { calls: 1 })]);
    assert!(pair.watch.usual(u64::MAX).is_none(), "one call each five seconds: no window within a minute");
}

/// A pair, its calls, and the clock.
struct Simulated(Pair, Calls, u64);

impl Simulated {
    fn new() -> Simulated {
        Simulated(Pair::default(), Calls([Histogram::new(), Histogram::new()]), 0)
    }

    /// Simulates slots of a hundred calls each, with gaps around `gap_ms` milliseconds.
    fn slots(&mut self, slots: usize, is_tried: bool, gap_ms: f64) -> Vec<What> {
        let Simulated(pair, calls, at) = self;
        let mut told = Vec::new();
        for _ in 0..slots {
            *at += SLOT_MS;
            let now = calls.more(100, gap_ms);
            pair.slot(now, None, is_tried, *at, &mut |what| told.push(what));
        }
        told
    }

    /// Medians of the gaps before and since a slot, milliseconds.
    fn rows(&self, since_slot: u64) -> Result<[u64; 2], NoUsual> {
        let rows = self.0.rows(Some(since_slot * SLOT_MS), 0, self.2)?;
        Ok(rows.map(|row| row.gap.p50_ns / 1_000_000))
    }
}

#[test]
fn usual_calls_during_an_experiment_do_not_fix_a_pair() {
    let mut pair = Simulated::new();
    pair.slots(30, false, 1.0);
    assert_eq!(pair.slots(4, false, 40.0).len(), 4);
    // A remedy that helps, for two minutes: the decisive minute has not begun.
    assert_eq!(pair.slots(24, true, 1.0), []);
    assert_eq!(pair.slots(11, false, 1.0), []);
    let back = pair.slots(1, false, 1.0);
    let [What::Back { before, after, .. }] = &back[..] else { panic!("{back:?}") };
    assert_eq!((before.calls, after.calls), (300, 1_200), "none of the calls meanwhile");
    assert_eq!(after.from_unix_ms, 58 * SLOT_MS);
    // A remedy that helps half of the calls: the pair is outside without it, and remains so after it.
    let mut pair = Simulated::new();
    pair.slots(30, false, 1.0);
    pair.slots(4, false, 40.0);
    for _ in 0..8 {
        assert_eq!(pair.slots(1, true, 1.0), []);
        pair.slots(1, true, 40.0);
    }
    let out = pair.slots(20, false, 40.0);
    assert!(out.iter().all(|what| matches!(what, What::Out { is_new: false, .. })), "{out:?}");
    assert!(out.len() >= 19, "{}", out.len());
}

/// Windows of fifty calls, of which some take much longer, or else are as usual; the server takes 2 ms.
fn few(pair: &mut Simulated, slots: usize, gap_ms: f64, tail: u64) -> Vec<What> {
    let Simulated(pair, calls, at) = pair;
    let mut told = Vec::new();
    for _ in 0..slots {
        *at += SLOT_MS;
        calls.more(50 - tail, gap_ms);
        let now = calls.more(tail, 4.0 * gap_ms);
        pair.slot(now, None, false, *at, &mut |what| told.push(what));
    }
    told
}

#[test]
fn a_tail_that_stays_is_not_back_although_no_window_has_a_p99() {
    let mut pair = Simulated::new();
    few(&mut pair, 30, 1.0, 0);
    assert!(few(&mut pair, 4, 40.0, 0).iter().any(|what| matches!(what, What::Out { .. })));
    // Each window is as usual in its median, mean and p90; of six hundred calls, two in a hundred take four times as long.
    assert_eq!(few(&mut pair, 24, 1.0, 1), []);
    let back = few(&mut pair, 12, 1.0, 0);
    let [What::Back { usual, after, .. }] = &back[..] else { panic!("{back:?}") };
    assert!(after.gap.p99_ns < usual.gap.p99_ns * 3 / 2, "{after:?} {usual:?}");
}

#[test]
fn a_measure_that_is_not_the_case_s_own_is_told_of() {
    let (mut pair, mut at) = (Pair::default(), 0);
    let mut all = [Histogram::new(), Histogram::new()];
    // Of fifty calls, one has another gap, which its server's span makes up for.
    let mut slots = |slots: usize, client_ms: u64, other_gap_ms: u64| {
        let mut told = Vec::new();
        for _ in 0..slots {
            at += SLOT_MS;
            for n in 0..50 {
                all[0].record(if n == 0 { other_gap_ms } else { 1 } * 1_000_000);
                all[1].record(client_ms * 1_000_000);
            }
            let now = [Counts::of(&all[0]), Counts::of(&all[1])];
            pair.slot(now, None, false, at, &mut |what| told.push(what));
        }
        told
    };
    slots(30, 21, 1);
    slots(4, 80, 1);
    let back = slots(12, 21, 5);
    let told = back.iter().find_map(|what| match what {
        What::Back { by, other_is_slower, .. } => Some((*by, *other_is_slower)),
        _ => None,
    });
    assert_eq!(told, Some((Measure::ClientDuration, true)), "{back:?}");
}

#[test]
fn calls_of_an_experiment_do_not_enter_the_baseline() {
    let mut pair = Simulated::new();
    assert_eq!(pair.slots(10, true, 1.0), []);
    assert_eq!(pair.rows(20), Err(NoUsual::TooFew));
    pair.slots(20, false, 20.0);
    pair.slots(40, true, 1.0);
    let usual = pair.0.watch.usual(u64::MAX).expect("it was watched");
    assert!(usual.counts[0].quantile_ns(0.01) > 15e6, "{usual:?}");
}

#[test]
fn a_new_normal_does_not_count_as_fixed() {
    let mut pair = Simulated::new();
    pair.slots(60, false, 1.0);
    let told = pair.slots(600, false, 40.0);
    let ends: Vec<&What> =
        told.iter().filter(|what| !matches!(what, What::Out { .. } | What::Doubtful)).collect();
    let [What::Accustomed { since_unix_ms }] = ends[..] else { panic!("{ends:?}") };
    assert_eq!(*since_unix_ms, 61 * SLOT_MS);
}

#[test]
fn usual_figures_precede_the_calls_in_question() {
    // Slow from the beginning, and queried late.
    let mut pair = Simulated::new();
    pair.slots(20, false, 40.0);
    assert_eq!(pair.rows(15), Err(NoUsual::AsSlow));
    assert_eq!(pair.rows(3), Err(NoUsual::TooFew));
    // Its rise was too slow to count as outside: a caller that knows the start gets the earlier figures,
    // without a mixture of both.
    let mut pair = Simulated::new();
    pair.slots(20, false, 2.2);
    for step in 1..=16 {
        pair.slots(1, false, 2.2 + f64::from(step) * 0.12);
    }
    assert!(pair.0.excursion.is_none());
    assert_eq!(pair.rows(20), Ok([2, 3]));
    // A pair outside its baseline: the figures from before, whenever they are requested.
    let mut pair = Simulated::new();
    pair.slots(30, false, 1.0);
    pair.slots(60, false, 40.0);
    for since in [28, 60, 85] {
        let [usual, slow] = pair.rows(since).expect("both");
        assert!(usual <= 1 && slow >= 35, "{since}: {usual} {slow}");
    }
    // Without a given start, the time at which it left its usual figures counts.
    let rows = pair.0.rows(None, 10 * SLOT_MS, 90 * SLOT_MS).expect("both");
    assert_eq!((rows[0].calls, rows[0].to_unix_ms), (3_000, 30 * SLOT_MS));
}
