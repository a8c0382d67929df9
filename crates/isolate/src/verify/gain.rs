//! Gain of a plan: measurements before and after, and what their difference proves.

use super::proof::{Figure, Measurement, Proof, Source};
use serde::Serialize;
use spangap_model::duration::format_ns;
use std::collections::BTreeMap;

/// Comparison of two proofs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Subjects that both contain.
    pub gains: Vec<Gain>,
    /// Subjects that only the earlier one contains.
    pub only_before: Vec<String>,
    /// Subjects that only the later one contains.
    pub only_after: Vec<String>,
    pub caveats: Vec<String>,
}

/// One pair of services, or one configuration of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Subject of the measurement.
    pub of: String,
    /// Calls before, in all runs.
    pub calls_before: u64,
    /// Calls after, in all runs.
    pub calls_after: u64,
    /// Runs before; 1 for a gap table.
    pub runs_before: usize,
    pub runs_after: usize,
    /// The quantiles that both contain: p99 first, because it is what isolation targets.
    pub figures: Vec<Difference>,
}

/// One quantile before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// `p99`, `p50`, `p99.9`.
    pub figure: &'static str,
    /// Value before; the median of several runs.
    pub before_ns: u64,
    /// Value after; the median of several runs.
    pub after_ns: u64,
    /// Ratio of before to after (below 1: it got longer); `None` if after is 0.
    pub times_shorter: Option<f64>,
    /// The same ratio from the ends of both intervals; `None` if one of them is unknown.
    pub times_shorter_between: Option<[f64; 2]>,
    pub verdict: GainVerdict,
    /// The verdict in words.
    pub words: String,
}

/// What a difference proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GainVerdict {
    /// Shorter after.
    Shorter,
    /// Longer after.
    Longer,
    /// The intervals overlap.
    NoDifferenceClaimed,
    /// An interval is unknown.
    CannotTell,
}

/// Subject of a row of measurements, and its runs.
type Rows<'a> = BTreeMap<&'a BTreeMap<String, String>, Vec<&'a Measurement>>;

/// Compares measurements of the same pairs of services, or of runs with the same settings.
pub fn compare(before: &Proof, after: &Proof) -> Comparison {
    let (earlier, later) = (by_subject(before), by_subject(after));
    let same_kind = before.proof == after.proof;
    let mate = |rows: &Rows<'_>, of: &BTreeMap<String, String>| same_kind && rows.contains_key(of);
    let gains: Vec<Gain> = earlier
        .iter()
        .filter(|_| same_kind)
        .filter_map(|(of, runs)| Some(Gain::new(after.proof, of, runs, later.get(of)?)))
        .collect();
    let alone = |rows: &Rows<'_>, others: &Rows<'_>, source| {
        rows.keys().filter(|of| !mate(others, of)).map(|of| subject(source, of)).collect()
    };
    let mut caveats = Vec::new();
    if !same_kind {
        caveats
            .push("one is a gap table and the other a tank's report: they measure different things".into());
    }
    if !gains.is_empty() {
        caveats.push(
            "measured one after the other: whatever else changed in between (load, neighbours, builds) is also in \
             the difference"
                .to_owned(),
        );
        caveats.push(
            "the intervals assume that calls are independent of each other; stalls that many calls share make them \
             wider than shown"
                .to_owned(),
        );
    }
    for (when, rows, others) in [("before", &earlier, &later), ("after", &later, &earlier)] {
        for (of, runs) in rows.iter().filter(|(of, _)| mate(others, of)) {
            let failed: u64 = runs.iter().filter_map(|run| run.failed).fold(0, u64::saturating_add);
            if failed > 0 {
                let of = subject(after.proof, of);
                caveats.push(format!(
                    "{failed} calls failed or were left out {when}, and are not in the figures ({of})"
                ));
            }
        }
    }
    Comparison {
        gains,
        only_before: alone(&earlier, &later, before.proof),
        only_after: alone(&later, &earlier, after.proof),
        caveats,
    }
}

fn by_subject(proof: &Proof) -> Rows<'_> {
    let mut rows = Rows::new();
    for measured in &proof.measured {
        rows.entry(&measured.of).or_default().push(measured);
    }
    rows
}

/// Subject of a measurement, in words.
pub fn subject(source: Source, of: &BTreeMap<String, String>) -> String {
    let get = |key: &str| of.get(key).map_or("?", String::as_str);
    match source {
        Source::GapTable => {
            let method = of.get("method").map_or(String::new(), |method| format!(" {method}"));
            format!("{} -> {}{method}", get("client"), get("server"))
        }
        Source::Tank => {
            let load = match (of.get("inflight"), of.get("rate_per_s")) {
                (Some(inflight), _) => format!("{inflight} in flight"),
                (None, Some(rate)) => format!("{rate} calls/s"),
                (None, None) => "load unknown".into(),
            };
            let cpus = of.get("cpus").map_or(String::new(), |cpus| format!(", client on CPUs {cpus}"));
            let (stack, call, channels) = (get("stack"), get("call"), get("channels"));
            format!("{stack} {call} to {}, {channels} channels, {load}{cpus}", get("target"))
        }
    }
}

impl Gain {
    fn new(
        source: Source,
        of: &BTreeMap<String, String>,
        before: &[&Measurement],
        after: &[&Measurement],
    ) -> Gain {
        let calls = |runs: &[&Measurement]| runs.iter().map(|run| run.calls).fold(0, u64::saturating_add);
        type Of = fn(&Measurement) -> Option<Figure>;
        let figures: [(&'static str, Of); 3] =
            [("p99", |run| run.p99), ("p50", |run| run.p50), ("p99.9", |run| run.p999)];
        let figures = figures.into_iter().filter_map(|(name, of)| {
            Some(Difference::new(
                name,
                middle(before, of)?,
                middle(after, of)?,
                calls(before).min(calls(after)),
            ))
        });
        Gain {
            of: subject(source, of),
            calls_before: calls(before),
            calls_after: calls(after),
            runs_before: before.len(),
            runs_after: after.len(),
            figures: figures.collect(),
        }
    }

    pub fn p99(&self) -> Option<&Difference> {
        self.figures.iter().find(|difference| difference.figure == "p99")
    }
}

/// The median of several runs, with an interval that contains the intervals of all of them: runs differ from
/// each other by more than their calls suggest.
fn middle(runs: &[&Measurement], of: fn(&Measurement) -> Option<Figure>) -> Option<Figure> {
    let figures: Vec<Figure> = runs.iter().map(|run| of(run)).collect::<Option<_>>()?;
    let mut values: Vec<u64> = figures.iter().map(|figure| figure.ns).collect();
    values.sort_unstable();
    let all: Option<Vec<[u64; 2]>> = figures.iter().map(|figure| figure.ci95_ns).collect();
    let ci95_ns = all.and_then(|all| {
        let (low, high) = (all.iter().map(|ends| ends[0]).min()?, all.iter().map(|ends| ends[1]).max()?);
        Some([low, high])
    });
    Some(Figure { ns: *values.get(values.len() / 2)?, ci95_ns })
}

fn ratio(one: u64, other: u64) -> Option<f64> {
    (other > 0).then(|| one as f64 / other as f64)
}

impl Difference {
    fn new(figure: &'static str, before: Figure, after: Figure, fewest_calls: u64) -> Difference {
        let (b, a) = (before.ns, after.ns);
        let between = before.ci95_ns.zip(after.ci95_ns);
        let verdict = match between {
            None => GainVerdict::CannotTell,
            Some((before, after)) if before[0] > after[1] => GainVerdict::Shorter,
            Some((before, after)) if after[0] > before[1] => GainVerdict::Longer,
            Some(_) => GainVerdict::NoDifferenceClaimed,
        };
        let times_shorter_between = between
            .and_then(|(before, after)| Some([ratio(before[0], after[1])?, ratio(before[1], after[0])?]));
        let values = format!("{figure} {} -> {}", format_ns(b), format_ns(a));
        let times = |value: Option<f64>, ends: Option<[f64; 2]>, word: &str| match (value, ends) {
            (Some(value), Some([low, high])) => {
                format!("{} times {word}; between {} and {}", digits(value), digits(low), digits(high))
            }
            _ => format!("how many times {word} is unknown"),
        };
        let turned =
            |ends: [f64; 2]| (ends[0] > 0.0 && ends[1] > 0.0).then(|| [1.0 / ends[1], 1.0 / ends[0]]);
        let words = match verdict {
            GainVerdict::Shorter => {
                format!("{values} ({})", times(ratio(b, a), times_shorter_between, "shorter"))
            }
            GainVerdict::Longer => {
                let times = times(ratio(a, b), times_shorter_between.and_then(turned), "longer");
                format!("{values}: worse ({times})")
            }
            GainVerdict::NoDifferenceClaimed => {
                let interval = |[low, high]: [u64; 2]| format!("{} to {}", format_ns(low), format_ns(high));
                let ends = between.map_or(String::new(), |(before, after)| {
                    format!(
                        " (the truth is in {} before, and in {} after)",
                        interval(before),
                        interval(after)
                    )
                });
                format!("{values}: no difference can be claimed{ends}")
            }
            GainVerdict::CannotTell => {
                format!("{values}: cannot tell, {fewest_calls} calls are too few to say how sure that is")
            }
        };
        Difference {
            figure,
            before_ns: b,
            after_ns: a,
            times_shorter: ratio(b, a),
            times_shorter_between,
            verdict,
            words,
        }
    }
}

/// Three digits at most.
fn digits(ratio: f64) -> String {
    match ratio {
        r if r < 9.995 => format!("{r:.2}"),
        r if r < 99.95 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proof::read;
    use super::super::proof::tests::table;
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn proof(calls: u64, p99_ns: u64, ci95: Option<[u64; 2]>) -> Proof {
        read(&table(calls, p99_ns, ci95)).unwrap()
    }

    fn p99(before: &Proof, after: &Proof) -> Difference {
        compare(before, after).gains[0].p99().unwrap().clone()
    }

    #[test]
    fn shorter_longer_or_undecided() {
        let slow = proof(10_000, 51_900_000, Some([50_000_000, 54_000_000]));
        let fast = proof(10_000, 390_000, Some([380_000, 400_000]));
        let gain = p99(&slow, &fast);
        assert_eq!(gain.verdict, GainVerdict::Shorter);
        assert_eq!(gain.words, "p99 51.9 ms -> 390 us (133 times shorter; between 125 and 142)");
        let loss = p99(&fast, &slow);
        assert_eq!(loss.verdict, GainVerdict::Longer);
        assert_eq!(loss.words, "p99 390 us -> 51.9 ms: worse (133 times longer; between 125 and 142)");
        let near = proof(10_000, 50_500_000, Some([49_000_000, 50_000_000]));
        assert_eq!(p99(&slow, &near).verdict, GainVerdict::NoDifferenceClaimed, "they touch");
        assert_eq!(
            p99(&slow, &near).words,
            "p99 51.9 ms -> 50.5 ms: no difference can be claimed (the truth is in 50.0 ms to 54.0 ms before, and in \
             49.0 ms to 50.0 ms after)"
        );
    }

    #[test]
    fn too_few_calls_claim_nothing() {
        let (many, few) = (proof(10_000, 51_900_000, None), proof(200, 390_000, None));
        let gain = p99(&many, &few);
        assert_eq!(gain.verdict, GainVerdict::CannotTell);
        assert!(
            gain.words.ends_with("cannot tell, 200 calls are too few to say how sure that is"),
            "{}",
            gain.words
        );
    }

    #[test]
    fn equal_runs_are_grouped_and_others_reported() {
        let run = |inflight: u64, p99: u64, errors: u64| {
            json!({"target": "10.0.0.1:50051", "stack": "rust", "call": "unary", "channels": "shared", "inflight": inflight,
                "request_bytes": 0, "nodelay": "on", "split_writes": false, "threads": 1, "trace": false, "ok": 10_000,
                "errors": {"UNAVAILABLE": errors}, "skipped_overload": 0,
                "latency": {"p50_ns": p99 / 10, "p99_ns": p99, "p999_ns": p99 * 2, "max_ns": p99 * 3},
                "spectrum": [[0.0, 1], [0.5, p99 / 10], [0.9875, p99 / 10 * 9], [0.99, p99], [0.992, p99 / 10 * 11], [1.0, p99 * 3]]})
        };
        let report = |runs: Vec<Value>| read(&json!({ "runs": runs })).unwrap();
        use serde_json::Value;
        let before =
            report(vec![run(8, 900_000, 0), run(8, 1_000_000, 2), run(8, 1_100_000, 0), run(1, 5, 0)]);
        let after = report(vec![run(8, 100_000, 0), run(64, 5, 0)]);
        let compared = compare(&before, &after);
        let gain = &compared.gains[0];
        assert_eq!((compared.gains.len(), gain.runs_before, gain.runs_after), (1, 3, 1));
        assert_eq!(gain.of, "rust unary to 10.0.0.1:50051, shared channels, 8 in flight");
        let p99 = gain.p99().unwrap();
        assert_eq!((p99.before_ns, p99.verdict), (1_000_000, GainVerdict::Shorter));
        // From the slowest end of the slowest run to the fastest end of the fastest.
        let [low, high] = p99.times_shorter_between.unwrap();
        assert!((low - 809_190.0 / 110_110.0).abs() < 1e-9 && (high - 1_211_210.0 / 89_910.0).abs() < 1e-9);
        assert_eq!(compared.only_before, ["rust unary to 10.0.0.1:50051, shared channels, 1 in flight"]);
        assert_eq!(compared.only_after, ["rust unary to 10.0.0.1:50051, shared channels, 64 in flight"]);
        assert!(
            compared.caveats.iter().any(|caveat| caveat.starts_with("2 calls failed")),
            "{:?}",
            compared.caveats
        );
        let other = compare(&before, &proof(10_000, 5, None));
        assert!(other.gains.is_empty() && other.caveats[0].contains("different things"), "{other:?}");
        assert_eq!(
            (other.only_before.len(), other.only_after.as_slice()),
            (2, ["frontend -> cart".to_owned()].as_slice())
        );
    }

    proptest! {
        #[test]
        fn overlapping_intervals_allow_no_claim(
            one in prop::array::uniform2(0_u64..1_000), other in prop::array::uniform2(0_u64..1_000),
        ) {
            let of = |mut ends: [u64; 2]| {
                ends.sort_unstable();
                Figure { ns: ends[0] / 2 + ends[1] / 2, ci95_ns: Some(ends) }
            };
            let (one, other) = (of(one), of(other));
            let difference = Difference::new("p99", one, other, 1);
            let ([a, b], [c, d]) = (one.ci95_ns.unwrap(), other.ci95_ns.unwrap());
            let overlap = a <= d && c <= b;
            prop_assert_eq!(difference.verdict == GainVerdict::NoDifferenceClaimed, overlap);
            let mirrored = Difference::new("p99", other, one, 1).verdict;
            prop_assert_eq!(difference.verdict == GainVerdict::Shorter, mirrored == GainVerdict::Longer);
        }
    }
}
