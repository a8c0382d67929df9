//! Which runs are compared: those of two reports, or of one report divided by a field.

use crate::report::fields::{Field, Load, name_of};
use crate::report::{Run, TankReport};
use serde::Serialize;

/// Runs of one side of a comparison.
#[derive(Clone, Debug)]
pub struct Arm<'a> {
    /// Name in the result.
    pub name: String,
    /// Its runs, in the order in which they ran.
    pub runs: Vec<&'a Run>,
}

/// A field that distinguishes the two arms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name, as of tank's flag.
    pub field: &'static str,
    /// Its values in arm A.
    pub a: String,
    /// Its values in arm B.
    pub b: String,
}

/// Two arms to compare, and the known differences between them.
#[derive(Clone, Debug)]
pub struct ArmPair<'a> {
    pub(super) a: Arm<'a>,
    pub(super) b: Arm<'a>,
    pub(super) differs: Vec<Difference>,
    /// Fields that must be equal for runs to belong to one point.
    keys: Vec<Field>,
}

/// A load point with the runs of both arms, in the order in which they ran.
#[derive(Debug)]
pub(super) struct PointPair<'a> {
    pub name: String,
    pub a: Vec<&'a Run>,
    pub b: Vec<&'a Run>,
}

impl<'a> ArmPair<'a> {
    /// All runs of one report against all of another. Fields in which the reports share no value distinguish
    /// them; runs are matched by all other fields.
    pub fn of_reports(a: (String, &'a TankReport), b: (String, &'a TankReport)) -> Self {
        let arm = |(name, report): (String, &'a TankReport)| Arm { name, runs: report.runs.iter().collect() };
        Self::new(arm(a), arm(b))
    }

    /// Values of a field in one report: the one that ran first against each of the others.
    pub fn by_field(report: &'a TankReport, field: Field) -> Vec<Self> {
        let mut arms: Vec<Arm> = Vec::new();
        for run in &report.runs {
            let name = field.of(&run.asked);
            match arms.iter_mut().find(|arm| arm.name == name) {
                Some(arm) => arm.runs.push(run),
                None => arms.push(Arm { name, runs: vec![run] }),
            }
        }
        let mut arms = arms.into_iter();
        let Some(first) = arms.next() else { return Vec::new() };
        arms.map(|other| Self::by(first.clone(), other, field)).collect()
    }

    fn by(a: Arm<'a>, b: Arm<'a>, field: Field) -> Self {
        let differs = vec![Difference { field: field.name(), a: a.name.clone(), b: b.name.clone() }];
        let keys = Field::ALL.into_iter().filter(|key| *key != field).collect();
        ArmPair { a, b, differs, keys }
    }

    fn new(a: Arm<'a>, b: Arm<'a>) -> Self {
        let values = |arm: &Arm, field: Field| {
            let mut values: Vec<String> = Vec::new();
            for value in arm.runs.iter().map(|run| field.of(&run.asked)) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            values
        };
        let (mut differs, mut keys) = (Vec::new(), Vec::new());
        for field in Field::ALL {
            let (of_a, of_b) = (values(&a, field), values(&b, field));
            match of_a.len() == 1 && of_b.len() == 1 && of_a != of_b {
                true => {
                    differs.push(Difference { field: field.name(), a: of_a.join(", "), b: of_b.join(", ") })
                }
                false => keys.push(field),
            }
        }
        ArmPair { a, b, differs, keys }
    }

    /// Points of both arms in the order in which they first ran, then those of a single arm.
    pub(super) fn points(&self) -> Vec<PointPair<'a>> {
        let runs = || self.a.runs.iter().chain(&self.b.runs).copied();
        let varying: Vec<Field> = Field::varying(runs().collect::<Vec<_>>())
            .into_iter()
            .filter(|field| self.keys.contains(field))
            .collect();
        let same = |one: &Run, other: &Run| {
            Load::of(&one.asked) == Load::of(&other.asked)
                && self.keys.iter().all(|key| key.of(&one.asked) == key.of(&other.asked))
        };
        let mut points: Vec<PointPair> = Vec::new();
        for (run, of_a) in
            self.a.runs.iter().map(|run| (*run, true)).chain(self.b.runs.iter().map(|run| (*run, false)))
        {
            let known =
                points.iter().position(|point| point.a.iter().chain(&point.b).any(|other| same(run, other)));
            let at = known.unwrap_or_else(|| {
                points.push(PointPair { name: name_of_point(run, &varying), a: Vec::new(), b: Vec::new() });
                points.len() - 1
            });
            if of_a { points[at].a.push(run) } else { points[at].b.push(run) }
        }
        points
    }
}

fn name_of_point(run: &Run, varying: &[Field]) -> String {
    let mut once = run.clone();
    once.repeat = 0;
    name_of(&once, varying, true)
}

/// Whether the runs of two arms alternated, so that a drift of the machine affects both alike: the arms' mean
/// ranks in time differ by at most half of the difference in a sequential order. `None` if a start is unknown.
pub(super) fn interleaved(a: &[&Run], b: &[&Run]) -> Option<bool> {
    let mut starts = Vec::with_capacity(a.len() + b.len());
    for (runs, of_a) in [(a, true), (b, false)] {
        for run in runs {
            starts.push((run.start_unix_ns?, of_a));
        }
    }
    starts.sort_unstable();
    let mean_rank = |of_a: bool| {
        let ranks: Vec<f64> =
            (0..starts.len()).filter(|rank| starts[*rank].1 == of_a).map(|rank| rank as f64).collect();
        ranks.iter().sum::<f64>() / ranks.len().max(1) as f64
    };
    Some((mean_rank(true) - mean_rank(false)).abs() <= starts.len() as f64 / 4.0)
}
