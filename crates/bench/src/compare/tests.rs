use super::*;
use crate::contract::{Channels, Stack};
use crate::report::TankReport;
use crate::report::fields::Field;
use crate::report::samples::{report, run};
use proptest::prelude::*;

const LOADS: [u32; 3] = [1, 8, 64];

/// Repetitions of shared and distinct channels, alternating; distinct is faster by this factor.
fn arms(repeats: u32, faster: f64, seed: u64) -> TankReport {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut runs = Vec::new();
    for repeat in 0..repeats {
        for load in LOADS {
            for (channels, factor) in [(Channels::Shared, 1.0), (Channels::Distinct, faster)] {
                let base = 40_000.0 * f64::from(load) / factor * (0.97 + 0.06 * random.f64());
                let latencies: Vec<u64> = (0..1_000).map(|i| base as u64 + i).collect();
                let mut one = run(Stack::CppAsync, channels, load, repeat, &latencies);
                one.throughput_per_s = f64::from(load) * 1e9 / base;
                one.cpu_client_s *= factor * (0.97 + 0.06 * random.f64());
                one.start_unix_ns = Some(1_000 + runs.len() as u64);
                runs.push(one);
            }
        }
    }
    report(runs)
}

fn by_channels(report: &TankReport) -> Comparison {
    compare(&ArmPair::by_field(report, Field::Channels), &Metric::ALL)
}

fn verdict(comparison: &Comparison, metric: Metric) -> (ArmVerdict, &str) {
    let row = comparison.pairs[0].rows.iter().find(|row| row.metric == metric).unwrap();
    (row.verdict, &row.words)
}

#[test]
fn known_shift_is_found_and_worded() {
    let report = arms(5, 1.5, 1);
    let comparison = by_channels(&report);
    assert_eq!((comparison.comparisons, comparison.pairs[0].rows.len()), (18, 18));
    let (found, words) = verdict(&comparison, Metric::ThroughputPerS);
    assert_eq!(found, ArmVerdict::Faster, "{comparison}");
    assert!(words.starts_with("distinct is 1.4") && words.ends_with("faster"), "{words}");
    assert_eq!(verdict(&comparison, Metric::P50Ns).0, ArmVerdict::Faster, "{comparison}");
    let (found, words) = verdict(&comparison, Metric::CpuClientSPerCall);
    assert_eq!(found, ArmVerdict::Dearer);
    assert!(words.contains("as much CPU"), "{words}");
    for row in &comparison.pairs[0].rows {
        let (low, high) = (row.ratio_low.unwrap(), row.ratio_high.unwrap());
        assert!(low <= row.ratio.unwrap() && row.ratio.unwrap() <= high, "{row:?}");
    }
}

#[test]
fn one_run_is_never_a_verdict() {
    for repeats in 1..=3 {
        let comparison = by_channels(&arms(repeats, 3.0, 1));
        assert!(
            comparison.pairs[0].rows.iter().all(|row| row.verdict == ArmVerdict::CannotTell),
            "{comparison}"
        );
        let (_, words) = verdict(&comparison, Metric::ThroughputPerS);
        let runs = if repeats == 1 { "1 run".into() } else { format!("{repeats} runs") };
        assert_eq!(words, format!("cannot tell: {runs} each; at least 4 each are needed"));
    }
}

#[test]
fn arms_that_ran_one_after_the_other_get_no_verdict() {
    let mut report = arms(5, 1.5, 1);
    for run in &mut report.runs {
        let later = if run.asked.channels == Channels::Distinct { 1_000_000 } else { 0 };
        run.start_unix_ns = run.start_unix_ns.map(|start| start + later);
    }
    let comparison = by_channels(&report);
    let (found, words) = verdict(&comparison, Metric::ThroughputPerS);
    assert_eq!(found, ArmVerdict::CannotTell);
    assert!(words.contains("one after the other") && words.contains("(1.4"), "{words}");
    report.runs[0].start_unix_ns = None;
    assert!(verdict(&by_channels(&report), Metric::ThroughputPerS).1.contains("are unknown"));
}

#[test]
fn points_of_one_arm_are_reported() {
    let mut a = arms(4, 1.0, 1);
    let mut b = a.clone();
    a.runs.retain(|run| run.asked.channels == Channels::Shared && run.asked.inflight != Some(64));
    b.runs.retain(|run| run.asked.channels == Channels::Distinct && run.asked.inflight != Some(1));
    b.runs.iter_mut().for_each(|run| run.asked.threads = 4);
    b.runs[0].calls += 7;
    let comparison = compare(&[ArmPair::of_reports(("a".into(), &a), ("b".into(), &b))], &Metric::ALL);
    let pair = &comparison.pairs[0];
    let fields: Vec<&str> = pair.differs.iter().map(|difference| difference.field).collect();
    assert_eq!(fields, ["channels", "threads"]);
    assert_eq!(
        (&pair.only_a[..], &pair.only_b[..]),
        (&["1 in flight".into()][..], &["64 in flight".into()][..])
    );
    let text = comparison.to_string();
    for part in
        ["threads: 2 in A, 4 in B", "only in A: 1 in flight", "cannot be told", "b: 7 of 8007 calls failed"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn figures_that_runs_do_not_have_are_not_compared() {
    let mut report = arms(5, 1.5, 1);
    report.runs[0].latency.p99_ns = None;
    report.runs.iter_mut().for_each(|run| run.cpu_target_s = None);
    let comparison = by_channels(&report);
    assert_eq!(
        verdict(&comparison, Metric::P99Ns),
        (ArmVerdict::CannotTell, "cannot tell: 9 of 10 runs have this figure")
    );
    assert_eq!(verdict(&comparison, Metric::CpuTargetSPerCall).1, "cannot tell: no run has this figure");
    assert_eq!(comparison.comparisons, 14);
}

#[test]
fn more_arms_need_more_runs() {
    let mut report = arms(4, 3.0, 1);
    let mut third = report.clone();
    third.runs.retain(|run| run.asked.channels == Channels::Shared);
    third.runs.iter_mut().for_each(|run| run.asked.channels = Channels::LocalPool);
    report.runs.extend(third.runs);
    let comparison = by_channels(&report);
    assert_eq!((comparison.pairs.len(), comparison.runs_needed), (2, 5));
    assert!(comparison.to_string().contains("4 runs each; at least 5 each are needed"), "{comparison}");
    assert!(
        compare(&ArmPair::by_field(&report, Field::Stack), &Metric::ALL).to_string().starts_with("Nothing")
    );
}

#[test]
fn equal_arms_rarely_get_a_verdict() {
    let rounds = 100;
    let alarms = (0..rounds)
        .filter(|seed| {
            let comparison = by_channels(&arms(4, 1.0, *seed));
            let told =
                |row: &Row| !matches!(row.verdict, ArmVerdict::CannotTell | ArmVerdict::NoDifferenceSeen);
            comparison.pairs[0].rows.iter().any(told)
        })
        .count();
    // Three standard errors above 5 in 100.
    assert!(alarms <= 11, "{alarms} of {rounds} comparisons of equal arms ended in a verdict");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn swapping_the_files_mirrors(seed in any::<u64>(), faster in 0.5..2.0f64) {
        let report = arms(4, faster, seed);
        let of = |channels: Channels| {
            let mut one = report.clone();
            one.runs.retain(|run| run.asked.channels == channels);
            one
        };
        let (a, b) = (of(Channels::Shared), of(Channels::Distinct));
        let there = compare(&[ArmPair::of_reports(("a".into(), &a), ("b".into(), &b))], &Metric::ALL);
        let back = compare(&[ArmPair::of_reports(("b".into(), &b), ("a".into(), &a))], &Metric::ALL);
        for (one, other) in there.pairs[0].rows.iter().zip(&back.pairs[0].rows) {
            prop_assert!((one.ratio.unwrap() * other.ratio.unwrap() - 1.0).abs() < 1e-9);
            prop_assert!((one.ratio_low.unwrap() * other.ratio_high.unwrap() - 1.0).abs() < 1e-9);
            let mirrored = match one.verdict {
                ArmVerdict::Faster => ArmVerdict::Slower,
                ArmVerdict::Slower => ArmVerdict::Faster,
                ArmVerdict::Cheaper => ArmVerdict::Dearer,
                ArmVerdict::Dearer => ArmVerdict::Cheaper,
                same => same,
            };
            prop_assert_eq!(other.verdict, mirrored);
        }
    }
}

#[test]
fn verdicts_come_first() {
    let certain = by_channels(&arms(8, 1.5, 3));
    assert!(certain.summary.contains("comparisons differ: distinct is 1."), "{}", certain.summary);
    // Single runs allow no verdict, but the summary still states the observation and what it lacks.
    let once = by_channels(&arms(1, 100.0, 3));
    assert!(once.summary.starts_with("The largest difference seen is in "), "{}", once.summary);
    assert!(once.summary.contains("That is not a verdict: 1 run each; at least"), "{}", once.summary);
    assert!(once.to_string().starts_with(&once.summary));
    let equal = by_channels(&arms(8, 1.0, 5));
    assert!(equal.summary.starts_with("No comparison shows a difference."), "{}", equal.summary);
}
