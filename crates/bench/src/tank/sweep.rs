//! Lists and ranges of numbers, as in `1,2,4..64`. Pure.

use std::fmt;
use std::str::FromStr;

/// Maximum number of values in a list.
const MOST: usize = 1_000;

/// Values in the given order; at least one, none zero.
///
/// Items are separated by commas. `A..B` doubles from A up to B, or halves from A down to B; B is always
/// included. `A..B+N` advances in steps of N, `A..B*N` (or `xN`) by a factor of N. `A..B..C` continues from B
/// to C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep(Vec<u64>);

/// Reason for an unreadable list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// Not a number.
    #[error(
        "{0:?} is not a whole number: expected a list such as 1,2,4 or a range such as 1..64, 10..50+10, 1..1000x10"
    )]
    Number(String),
    /// A zero.
    #[error("0 is not possible: expected at least 1")]
    Zero,
    /// Not a step, or one that makes no progress.
    #[error("{0:?} is not a step: expected at least +1, or x2, at the end of a range")]
    Step(String),
    /// A step without a range.
    #[error("{0:?} has a step but no range: expected A..B before it")]
    NoRange(String),
    /// Too long.
    #[error("more than {MOST} values")]
    TooMany,
}

#[derive(Clone, Copy)]
enum Step {
    Add(u64),
    Times(u64),
}

impl Step {
    /// The value after this one on the way to `end`, which is never passed.
    fn next(self, value: u64, end: u64) -> u64 {
        match self {
            Step::Add(n) if value < end => value.saturating_add(n).min(end),
            Step::Add(n) => value.saturating_sub(n).max(end),
            Step::Times(n) if value < end => value.saturating_mul(n).min(end),
            Step::Times(n) => (value / n).max(end),
        }
    }
}

impl Sweep {
    /// The values.
    pub fn values(&self) -> &[u64] {
        &self.0
    }
}

fn number(text: &str) -> Result<u64, SweepError> {
    match text.trim().parse() {
        Ok(0) => Err(SweepError::Zero),
        Ok(number) => Ok(number),
        Err(_) => Err(SweepError::Number(text.into())),
    }
}

/// Separates the step at the end of an item.
fn step(item: &str) -> Result<(&str, Option<Step>), SweepError> {
    let Some(at) = item.find(['+', 'x', '*']) else { return Ok((item, None)) };
    let (range, step) = item.split_at(at);
    let by: u64 = step[1..].trim().parse().map_err(|_| SweepError::Step(step.into()))?;
    match (step.as_bytes()[0], by) {
        (b'+', 1..) => Ok((range, Some(Step::Add(by)))),
        (b'x' | b'*', 2..) => Ok((range, Some(Step::Times(by)))),
        _ => Err(SweepError::Step(step.into())),
    }
}

impl FromStr for Sweep {
    type Err = SweepError;

    fn from_str(text: &str) -> Result<Self, SweepError> {
        let mut values = Vec::new();
        let mut push = |value| match values.len() {
            MOST => Err(SweepError::TooMany),
            _ => {
                values.push(value);
                Ok(())
            }
        };
        for item in text.split(',') {
            let (range, step) = step(item)?;
            let ends = range.split("..").map(number).collect::<Result<Vec<_>, _>>()?;
            if step.is_some() && ends.len() == 1 {
                return Err(SweepError::NoRange(item.into()));
            }
            let step = step.unwrap_or(Step::Times(2));
            push(ends[0])?;
            for pair in ends.windows(2) {
                let mut value = pair[0];
                while value != pair[1] {
                    value = step.next(value, pair[1]);
                    push(value)?;
                }
            }
        }
        Ok(Sweep(values))
    }
}

impl fmt::Display for Sweep {
    /// The values, separated by commas.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Vec<u64> {
        text.parse::<Sweep>().unwrap_or_else(|error| panic!("{text}: {error}")).0
    }

    #[test]
    fn lists_ranges_and_chains() {
        assert_eq!(values("1,2,4..64"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(values("3..20"), [3, 6, 12, 20]);
        assert_eq!(values("20..3"), [20, 10, 5, 3]);
        assert_eq!(values("1..5..1"), [1, 2, 4, 5, 2, 1]);
        assert_eq!(values("10..50+10"), [10, 20, 30, 40, 50]);
        assert_eq!(values("50..15+10"), [50, 40, 30, 20, 15]);
        assert_eq!(values("1..10000x10"), [1, 10, 100, 1000, 10_000]);
        assert_eq!(values("1..500*10,7"), [1, 10, 100, 500, 7]);
        assert_eq!(values("8..8"), [8]);
    }

    #[test]
    fn unreadable_input_is_reported() {
        use SweepError::{NoRange, Number, Step, TooMany, Zero};
        let cases = [
            ("", Number("".into())),
            ("1,,2", Number("".into())),
            ("many", Number("many".into())),
            ("1..", Number("".into())),
            ("0", Zero),
            ("0..8", Zero),
            ("1..8+0", Step("+0".into())),
            ("1..8x1", Step("x1".into())),
            ("1..8x", Step("x".into())),
            ("8+2", NoRange("8+2".into())),
            ("1..1000000+1", TooMany),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Sweep>(), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_range_has_its_ends_and_no_turn(a in 1u64.., b in 1u64.., factor in 2u64..50) {
            let range = values(&format!("{a}..{b}x{factor}"));
            prop_assert_eq!((range[0], *range.last().unwrap()), (a, b));
            let ahead = |pair: &[u64]| if a < b { pair[0] < pair[1] } else { pair[0] > pair[1] };
            prop_assert!(range.windows(2).all(ahead), "{:?}", range);
        }

        #[test]
        fn a_chain_is_its_ranges_with_their_joints_once(a in 1u64..1000, b in 1u64..1000, c in 1u64..1000, n in 20u64..50) {
            let chain = values(&format!("{a}..{b}..{c}+{n}"));
            let mut parts = values(&format!("{a}..{b}+{n}"));
            parts.extend(&values(&format!("{b}..{c}+{n}"))[1..]);
            prop_assert_eq!(chain, parts);
        }

        #[test]
        fn displayed_values_parse(list in prop::collection::vec(1u64.., 1..50)) {
            let sweep = Sweep(list);
            prop_assert_eq!(sweep.to_string().parse(), Ok(sweep));
        }

        #[test]
        fn nothing_panics(text in "[0-9.,+x* ]{0,12}") {
            let _ = text.parse::<Sweep>();
        }
    }
}
