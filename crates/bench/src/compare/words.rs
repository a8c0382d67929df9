//! Verdict of a row, and the comparison in words.

use super::{ArmVerdict, CONFIDENCE, Comparison, Metric, PairComparison, Row};

/// Maximum number of verdicts in the summary.
const MOST_VERDICTS: usize = 3;
use spangap_report::figures::counted;
use std::fmt::{self, Display, Formatter};

/// Decides the verdict of a row and words it. `figures` counts the runs of each arm that have the metric.
pub(super) fn judge(row: &mut Row, b: &str, needed: usize, figures: (usize, usize)) {
    match verdict(row, b, needed, figures) {
        Ok((verdict, words)) => (row.verdict, row.words) = (verdict, words),
        Err(why) => {
            (row.verdict, row.words) = (ArmVerdict::CannotTell, format!("cannot tell: {why}"));
            row.without_verdict = Some(why);
        }
    }
}

/// A verdict in words, or why there is none.
fn verdict(
    row: &Row,
    b: &str,
    needed: usize,
    figures: (usize, usize),
) -> Result<(ArmVerdict, String), String> {
    let cannot_tell = Err;
    if figures == (0, 0) {
        return cannot_tell("no run has this figure".into());
    }
    if figures != (row.runs_a, row.runs_b) {
        let (have, of) = (figures.0 + figures.1, row.runs_a + row.runs_b);
        return cannot_tell(format!("{have} of {of} runs have this figure"));
    }
    let few = row.runs_a.min(row.runs_b);
    let (Some(low), Some(high)) = (row.ratio_low, row.ratio_high) else {
        return cannot_tell(too_few(row, needed));
    };
    if few < needed {
        return cannot_tell(too_few(row, needed));
    }
    let range = format!("{} to {}", digits(low), digits(high));
    match row.interleaved {
        Some(true) => {}
        Some(false) => {
            return cannot_tell(format!(
                "the arms ran one after the other, and drift looks like a difference ({range})"
            ));
        }
        None => {
            return cannot_tell(format!(
                "the start times of the runs are unknown, and drift looks like a difference ({range})"
            ));
        }
    }
    let outside = low > 1.0 || high < 1.0;
    if !outside {
        return Ok((ArmVerdict::NoDifferenceSeen, format!("no difference seen ({range})")));
    }
    if row.adjusted_probability.is_none_or(|p| p > 1.0 - CONFIDENCE) {
        return cannot_tell(format!("chance alone goes this far among so many comparisons ({range})"));
    }
    // A throughput ratio of 0.5 is 2 times slower; a latency ratio of 0.5, 2 times faster.
    let more = low > 1.0;
    let (least, most) = if more { (low, high) } else { (1.0 / high, 1.0 / low) };
    let times = format!("{}x to {}x", digits(least), digits(most));
    Ok(match (row.metric.is_speed(), row.metric == Metric::ThroughputPerS, more) {
        (false, _, true) => (ArmVerdict::Dearer, format!("{b} needs {times} as much CPU")),
        (false, _, false) => (ArmVerdict::Cheaper, format!("{b} needs {times} less CPU")),
        (true, throughput, more) if throughput == more => {
            (ArmVerdict::Faster, format!("{b} is {times} faster"))
        }
        (true, ..) => (ArmVerdict::Slower, format!("{b} is {times} slower")),
    })
}

fn too_few(row: &Row, needed: usize) -> String {
    let runs = |n: usize| counted(n, "run");
    let have = match row.runs_a == row.runs_b {
        true => format!("{} each", runs(row.runs_a)),
        false => format!("{} and {}", runs(row.runs_a), runs(row.runs_b)),
    };
    format!("{have}; at least {needed} each are needed")
}

/// Summary of all pairs: the verdicts or, without any, the largest observed difference and what it lacks.
pub(super) fn summary(pairs: &[PairComparison]) -> String {
    let rows = || pairs.iter().flat_map(|pair| pair.rows.iter().map(move |row| (pair, row)));
    let decided: Vec<_> = rows()
        .filter(|(_, row)| !matches!(row.verdict, ArmVerdict::CannotTell | ArmVerdict::NoDifferenceSeen))
        .collect();
    let compared = rows().filter(|(_, row)| row.ratio.is_some()).count();
    if !decided.is_empty() {
        let first: Vec<String> = decided
            .iter()
            .take(MOST_VERDICTS)
            .map(|(_, row)| format!("{} ({}, {})", row.words, row.metric.name(), row.point))
            .collect();
        let more = decided.len() - first.len();
        let more = if more == 0 { String::new() } else { format!("; and {more} more") };
        return format!("{} of {compared} comparisons differ: {}{more}.", decided.len(), first.join("; "));
    }
    let distance = |row: &Row| row.ratio.map_or(0.0, |ratio| ratio.ln().abs());
    let farthest = rows().max_by(|a, b| distance(a.1).total_cmp(&distance(b.1)));
    let Some((pair, row)) = farthest.filter(|(_, row)| distance(row) > 0.0) else {
        return format!("No difference was seen in {compared} comparisons.");
    };
    let seen = format!(
        "The largest difference seen is in {} at {}: {} in {}, {} in {}",
        row.metric.name(),
        row.point,
        value(row.metric, row.median_a),
        pair.a,
        value(row.metric, row.median_b),
        pair.b
    );
    match &row.without_verdict {
        Some(why) => format!("{seen}. That is not a verdict: {why}."),
        None => format!("No comparison shows a difference. {seen}; its interval includes none."),
    }
}

/// Three digits, which ratios near 1 need.
fn digits(ratio: f64) -> String {
    match ratio {
        r if r < 0.0995 => format!("{r:.2e}"),
        r if r < 9.995 => format!("{r:.2}"),
        r if r < 99.95 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

fn value(metric: Metric, value: Option<f64>) -> String {
    let Some(value) = value else { return "n/a".into() };
    match metric {
        Metric::ThroughputPerS => {
            format!("{}/s", if value < 99.95 { format!("{value:.1}") } else { format!("{value:.0}") })
        }
        Metric::CpuClientSPerCall | Metric::CpuTargetSPerCall => format!("{:.1} us", value * 1e6),
        _ => spangap_model::duration::format_ns(value.round() as u64),
    }
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.pairs.is_empty() {
            writeln!(f, "{}\n", self.summary)?;
        } else {
            writeln!(f, "Nothing to compare: all runs have the same value of that field.")?;
        }
        self.pairs.iter().try_for_each(|pair| write_pair(f, pair))?;
        writeln!(
            f,
            "{} comparisons; ratios are B / A with the {:.0} % interval of each (Hodges-Lehmann, Mann-Whitney).\n\
             Verdicts hold for all of them together (Westfall-Young), and need {} interleaved runs of each arm.",
            self.comparisons,
            self.confidence * 100.0,
            self.runs_needed
        )
    }
}

fn write_pair(f: &mut Formatter<'_>, pair: &PairComparison) -> fmt::Result {
    writeln!(f, "A: {}\nB: {}", pair.a, pair.b)?;
    for difference in &pair.differs {
        writeln!(f, "{}: {} in A, {} in B", difference.field, difference.a, difference.b)?;
    }
    let mut point = None;
    for row in &pair.rows {
        if point != Some(&row.point) {
            writeln!(f, "\n{}, {} and {} runs", row.point, row.runs_a, row.runs_b)?;
            point = Some(&row.point);
        }
        writeln!(
            f,
            "  {:<11} {:>10} {:>10} {:>7}  {}",
            row.metric.name(),
            value(row.metric, row.median_a),
            value(row.metric, row.median_b),
            row.ratio.map_or_else(|| "n/a".into(), digits),
            row.words
        )?;
    }
    writeln!(f)?;
    for (arm, points) in [("A", &pair.only_a), ("B", &pair.only_b)] {
        if !points.is_empty() {
            writeln!(f, "only in {arm}: {}", points.join("; "))?;
        }
    }
    pair.warnings.iter().try_for_each(|warning| writeln!(f, "warning: {warning}"))
}
