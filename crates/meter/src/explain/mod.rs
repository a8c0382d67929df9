//! What sets the slow calls of a pair apart: every attribute of both spans and their resources, ranked by how much of the
//! excess it explains.
//!
//! Sampling depends only on gaps, never on attributes. If an attribute has nothing to do with the gap, any call of the
//! sample is equally likely to carry it. So the gap ranks of calls that carry it are tested against the others', period
//! by period, with a bound on the false discovery rate over all tests. How *much* an attribute explains is a separate
//! question, answered by the weights of the sampled calls.

mod attributes;
mod chance;
mod effects;
mod rows;

use crate::samples::Drawn;
use attributes::{Pool, Value};
use effects::Effects;
use rows::{Rising, Search};
use serde::{Deserialize, Serialize};
use spangap_model::PairKey;

/// Of what is shown, this share may be by chance.
pub const FALSE_DISCOVERIES: f64 = 0.05;
/// A value is tested when this many sampled calls carry it, and as many do not.
const LEAST_CALLS: usize = 5;
/// Values shown that lead a row, and numbers.
const SHOWN: usize = 10;
/// A value that explains less, even at its upper bound, is none that anybody looks for.
const LEAST_SHARE: f64 = 0.02;
/// A number is looked at as one when it has this many different values; below, each value is one of its own.
const NUMBERS: usize = 8;
/// ... in this many calls.
const NUMBERED_CALLS: usize = 20;

/// `GET /api/v1/explain`, and a member of `explain` in `gaps --explain --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
    /// Method, when told apart.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// Calls that the samples were drawn from: of the last half to full minute in a meter, all in files.
    pub calls: u64,
    /// Calls that were looked at.
    pub sampled: u64,
    /// Sampled calls that could not be, because their spans were no longer held whole.
    pub without_spans: u64,
    /// Median gap of the sampled calls, nanoseconds.
    pub typical_gap_ns: u64,
    /// Sum of all gaps beyond that, nanoseconds.
    pub excess_ns: u64,
    /// Different attributes of the sampled calls.
    pub attributes: u64,
    /// Values of them that were tested.
    pub tested: u64,
    /// Share of `differs` and `rises_with` that may be there by chance.
    pub false_discovery_rate: f64,
    /// Values that slow calls carry more often. The first explains the most of the excess, each further one the most of what is left;
    /// behind each are those that follow it.
    pub differs: Vec<Difference>,
    /// Numbers with which the gap rises.
    pub rises_with: Vec<Rise>,
}

/// A value that slow calls carry more often than others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// `client` or `server` and the attribute's name: `server: k8s.node.name`.
    pub attribute: String,
    /// Its value.
    pub value: String,
    /// Share of the excess that calls with it have beyond what as many typical calls have.
    pub share_of_excess: Share,
    /// Share of all calls that carry it.
    pub share_of_calls: f64,
    /// Sampled calls that carry it.
    pub sampled: u64,
    /// Their median gap as sampled by call, nanoseconds; `None` where none of them was.
    pub median_gap_ns: Option<u64>,
    /// The same of calls without it.
    pub median_gap_without_ns: Option<u64>,
    /// Probability that it is this far apart by chance, corrected for all that was tested.
    pub probability: f64,
    /// Other values that exactly the same sampled calls carry: the calls do not tell which of them it is.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub same_calls: Vec<Named>,
    /// The value that leads its row: without the calls of that one, or among them, there is nothing to this one. It comes right
    /// behind it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<Named>,
}

/// An attribute with its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// As in [`Difference`].
    pub attribute: String,
    /// Its value.
    pub value: String,
}

/// A share with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// 5 % of resampled samples are below.
    pub low: f64,
    /// As sampled.
    pub mid: f64,
    /// 5 % of resampled samples are above.
    pub high: f64,
}

/// A number with which the gap rises.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rise {
    /// As in [`Difference`].
    pub attribute: String,
    /// Rank correlation of the number and the gap, -1 to 1; below zero the gap falls with it.
    pub correlation: f64,
    /// As in [`Difference`].
    pub probability: f64,
    /// Calls by the size of the number, in four groups of as many calls.
    pub quarters: Vec<Quarter>,
}

/// A quarter of the sampled calls with a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quarter {
    /// Least value.
    pub from: f64,
    /// Largest.
    pub to: f64,
    /// Calls.
    pub calls: u64,
    /// Their median gap, nanoseconds.
    pub median_gap_ns: u64,
}

/// What sets the slow calls of a pair apart, from its samples.
pub fn explain(key: &PairKey, samples: &[Drawn]) -> Explanation {
    let pool = Pool::new(samples);
    let effects = Effects::new(&pool, samples);
    let groups = pool.groups(LEAST_CALLS);
    let numbers = pool.numbers(NUMBERS, NUMBERED_CALLS);
    let search = Search { pool: &pool, effects: &effects, groups: &groups, numbers: &numbers };
    let (rows, rising) = search.found();
    let differs = rows.into_iter().flat_map(|row| row.differences(&search)).collect();

    let mut rises_with: Vec<Rise> = rising
        .into_iter()
        .map(|Rising { number, correlation, probability }| Rise {
            attribute: pool.name(numbers[number].attribute).to_owned(),
            correlation,
            probability,
            quarters: effects::quarters(&pool, &numbers[number].values),
        })
        .collect();
    rises_with.sort_by(|a, b| b.correlation.abs().total_cmp(&a.correlation.abs()));
    rises_with.truncate(SHOWN);

    Explanation {
        client: key.client.to_string(),
        server: key.server.to_string(),
        method: key.method.as_ref().map(|method| method.to_string()),
        calls: samples.iter().map(|drawn| drawn.calls).sum(),
        sampled: pool.calls.len() as u64,
        without_spans: pool.without_spans,
        typical_gap_ns: effects.typical_ns as u64,
        excess_ns: effects.excess_ns.max(0.0) as u64,
        attributes: pool.names() as u64,
        tested: (groups.len() + numbers.len()) as u64,
        false_discovery_rate: FALSE_DISCOVERIES,
        differs,
        rises_with,
    }
}

impl Value {
    fn words(&self) -> String {
        match self {
            Value::Text(text) => text.to_string(),
            Value::Number(number) => number.0.to_string(),
        }
    }
}
