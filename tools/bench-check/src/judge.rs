//! Detects regressions: of instructions by a fixed share, of ratios beyond the variation between rounds and
//! days.

use crate::measures::{Kind, Measured, Value};
use crate::record::{Record, median};
use spangap_bench::compare::statistics::shift;

/// Tolerance of instruction counts. They are deterministic, and a different code layout by the compiler
/// changes them by less.
const INSTRUCTIONS_SHARE: f64 = 0.03;
/// Probability of a false alarm among all ratios of a run.
const FALSE_ALARMS: f64 = 0.02;
/// Variation of ratios between two days on one machine, regardless of the rounds within a day.
const DAYS_SHARE: f64 = 0.05;

/// A figure compared with the committed one.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    before: Option<f64>,
    now: Option<f64>,
    /// Bounds of the growth of the figure, as ratios; for ratios with a joint confidence of 98 %.
    range: Option<(f64, f64)>,
    /// Tolerated growth.
    allowed: f64,
    /// Whether a larger figure means a slower program.
    larger_is_slower: bool,
    why_not: Option<String>,
}

/// Compares the measurements with the committed figures.
pub fn judge(before: &Record, now: &Record, measured: &[Measured], only: &[Kind]) -> Vec<Outcome> {
    let is_ratio = |one: &&Measured| matches!(one.value, Some(Value::Ratios(_)));
    let ratios = measured.iter().filter(is_ratio).count().max(1);
    let confidence = 1.0 - FALSE_ALARMS / ratios as f64;
    let mut outcomes: Vec<Outcome> = measured
        .iter()
        .map(|one| outcome(one, before.figures.get(&one.name), now.figures.get(&one.name), confidence))
        .collect();
    // A figure that is no longer measured would otherwise disappear unnoticed.
    let gone = before.figures.keys().filter(|name| !measured.iter().any(|one| one.name == **name));
    outcomes.extend(gone.filter(|_| only.is_empty()).map(|name| Outcome {
        name: name.clone(),
        before: None,
        now: None,
        range: None,
        allowed: 0.0,
        larger_is_slower: true,
        why_not: Some("it is committed, and was not measured".into()),
    }));
    outcomes
}

fn outcome(one: &Measured, before: Option<&Value>, now: Option<&Value>, confidence: f64) -> Outcome {
    let middle = |value: Option<&Value>| match value? {
        Value::Instructions(count) => Some(*count),
        Value::Ratios(ratios) => median(ratios),
    };
    let (range, allowed) = match (before, now) {
        (Some(Value::Instructions(before)), Some(Value::Instructions(now))) => {
            (Some((now / before, now / before)), INSTRUCTIONS_SHARE)
        }
        (Some(Value::Ratios(before)), Some(Value::Ratios(now))) => {
            let logarithms = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.ln()).collect() };
            let shift = shift(&logarithms(before), &logarithms(now), confidence);
            (shift.and_then(|shift| shift.interval).map(|(low, high)| (low.exp(), high.exp())), DAYS_SHARE)
        }
        _ => (None, 0.0),
    };
    let why_not = match (&one.not_run, before, now, range) {
        (Some(why), ..) => Some(why.clone()),
        (None, None, ..) => Some("there is no committed figure".into()),
        (None, _, _, None) => Some("there are too few rounds to tell".into()),
        _ => None,
    };
    Outcome {
        name: one.name.clone(),
        before: middle(before),
        now: middle(now),
        range,
        allowed,
        larger_is_slower: one.larger_is_slower,
        why_not,
    }
}

impl Outcome {
    /// Lower bound of the slowdown, as a ratio.
    fn slower(&self) -> Option<f64> {
        let (low, high) = self.range?;
        Some(if self.larger_is_slower { low } else { 1.0 / high })
    }

    /// Whether it became slower beyond chance and variation between days.
    pub fn is_slower(&self) -> bool {
        self.slower().is_some_and(|ratio| ratio > 1.0 + self.allowed)
    }

    /// Whether it was compared with a committed figure.
    fn is_compared(&self) -> bool {
        self.why_not.is_none() && self.range.is_some()
    }

    /// The regression, its lower bound, and its excess over noise.
    pub fn words(&self) -> String {
        let at_least = (self.slower().unwrap_or(1.0) - 1.0) * 100.0;
        let show = |value: Option<f64>| value.map_or("?".into(), number);
        format!(
            "SLOWER: {} was {} and is {}: {at_least:.1} % slower at least, {:.1} % beyond what noise explains.",
            self.name,
            show(self.before),
            show(self.now),
            at_least - self.allowed * 100.0
        )
    }
}

/// Summary if there is no regression. `None` if no figure could be compared: then nothing is known.
pub fn nothing_slower(outcomes: &[Outcome]) -> Option<String> {
    let compared = outcomes.iter().filter(|outcome| outcome.is_compared()).count();
    let figures = outcomes.len();
    (compared > 0).then(|| {
        format!("Nothing became slower, as far as {compared} of {figures} figures that were compared tell.")
    })
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<52}{:>12}{:>12}  {:<22}\n", "", "COMMITTED", "NOW", "CHANGE");
    for outcome in outcomes {
        let show = |value: Option<f64>| value.map_or("-".into(), number);
        let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let change = match (&outcome.why_not, outcome.range) {
            (Some(why), _) => format!("not compared: {why}"),
            (None, Some((low, high))) if low == high => percent(low),
            (None, Some((low, high))) => format!("{} to {}", percent(low), percent(high)),
            (None, None) => String::new(),
        };
        let (before, now) = (show(outcome.before), show(outcome.now));
        text += &format!("{:<52}{before:>12}{now:>12}  {change}\n", outcome.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Value) -> Record {
        Record { figures: [("x".to_owned(), value)].into(), ..Record::default() }
    }

    fn outcomes(before: Value, now: Value, larger_is_slower: bool) -> Vec<Outcome> {
        let measured =
            Measured { name: "x".into(), value: Some(now.clone()), larger_is_slower, not_run: None };
        judge(&record(before), &record(now), &[measured], &[])
    }

    /// Rounds around a mean, all different.
    fn rounds(middle: f64) -> Value {
        Value::Ratios((-4..=4).map(|n| middle * (1.0 + f64::from(n) * 0.01)).collect())
    }

    #[test]
    fn three_percent_more_instructions_are_reported() {
        for (now, told) in [(12_000.0, false), (12_350.0, false), (12_370.0, true), (9_000.0, false)] {
            let found = outcomes(Value::Instructions(12_000.0), Value::Instructions(now), true);
            assert_eq!(found[0].is_slower(), told, "{now}: {found:?}");
        }
        let found = outcomes(Value::Instructions(10_000.0), Value::Instructions(10_500.0), true);
        assert_eq!(
            found[0].words(),
            "SLOWER: x was 10000 and is 10500: 5.0 % slower at least, 2.0 % beyond what noise explains."
        );
    }

    #[test]
    fn a_ratio_is_reported_if_all_of_it_is_beyond_the_noise() {
        for (now, told) in [(10.0, false), (10.6, false), (13.0, true), (7.0, false)] {
            assert_eq!(outcomes(rounds(10.0), rounds(now), true)[0].is_slower(), told, "{now}");
        }
        // If more is better, the direction is reversed.
        for (now, told) in [(10.0, false), (13.0, false), (7.0, true)] {
            assert_eq!(outcomes(rounds(10.0), rounds(now), false)[0].is_slower(), told, "{now}");
        }
        // A single outlier among nine rounds is not due to the program.
        let Value::Ratios(mut wild) = rounds(10.0) else { panic!("ratios") };
        wild[3] = 100.0;
        assert!(!outcomes(rounds(10.0), Value::Ratios(wild), true)[0].is_slower());
    }

    #[test]
    fn missing_comparisons_are_reported() {
        let few = Value::Ratios(vec![10.0, 11.0]);
        let found = outcomes(few.clone(), few, true);
        assert!(!found[0].is_slower() && table(&found).contains("too few rounds"), "{}", table(&found));
        let found = judge(&record(rounds(1.0)), &Record::default(), &[], &[]);
        assert!(table(&found).contains("it is committed, and was not measured"), "{}", table(&found));
        assert_eq!(nothing_slower(&found), None);
    }

    #[test]
    fn success_states_the_number_of_comparisons() {
        let mut found = outcomes(rounds(10.0), rounds(10.0), true);
        found.extend(judge(&record(rounds(1.0)), &Record::default(), &[], &[]));
        let said = nothing_slower(&found).expect("one was compared");
        assert!(said.contains("1 of 2 figures"), "{said}");
    }
}
