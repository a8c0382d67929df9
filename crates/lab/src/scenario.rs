//! A scenario: a fault, its parameters, its near miss, and how it is made.

use crate::LabError;
use crate::stage::Stage;
use crate::truth::FaultReport;
use spangap_model::duration::parse_ns;
use spangap_model::{Culprit, Legs};
use std::collections::BTreeMap;
use std::time::Duration;

/// One fault.
pub struct Scenario {
    /// Name; lower case, with hyphens.
    pub name: &'static str,
    /// Description in one line.
    pub title: &'static str,
    pub culprit: Culprit,
    /// Other correct answers, which describe the same thing from another perspective.
    pub also_right: &'static [Culprit],
    /// Leg that it acts on; `None` if nothing is wrong, or it acts on the whole call.
    pub leg: Option<Legs>,
    /// Parameters with default values.
    pub parameters: &'static [Parameter],
    pub near_miss: NearMiss,
    /// Text of its page.
    pub page: Page,
    /// Makes it, and proves that it acted.
    pub make: fn(&mut Stage<'_>, &Case<'_>) -> Result<FaultReport, LabError>,
}

/// A control run that resembles the fault.
pub struct NearMiss {
    /// Difference, in one line.
    pub title: &'static str,
    /// Culprit: none, or another one.
    pub culprit: Culprit,
    /// Leg that is longer, if any.
    pub leg: Option<Legs>,
}

/// A parameter: `--set NAME=VALUE`.
pub struct Parameter {
    /// Lower case, with hyphens.
    pub name: &'static str,
    /// Description.
    pub what: &'static str,
    /// Default value, which also defines the kind.
    pub default: Value,
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Number(u64),
    /// Nanoseconds, given as `10ms`.
    Duration(u64),
}

/// The text of the scenario's page; a real run adds the figures.
pub struct Page {
    /// What happens, and why it takes time. A paragraph or two.
    pub what: &'static str,
    /// Where it occurs in practice.
    pub real_life: &'static str,
    /// References: title and address.
    pub sources: &'static [(&'static str, &'static str)],
    /// How the lab makes it.
    pub made: &'static str,
    /// Remedy.
    pub cure: &'static str,
}

/// A run to make.
pub struct Case<'a> {
    pub scenario: &'a Scenario,
    /// Whether it is the near miss.
    pub near_miss: bool,
    values: BTreeMap<&'static str, Value>,
}

impl<'a> Case<'a> {
    /// Parses `NAME=VALUE` settings.
    ///
    /// # Errors
    /// A parameter is unknown, or its value invalid.
    pub fn new(scenario: &'a Scenario, near_miss: bool, settings: &[String]) -> Result<Self, LabError> {
        let mut values: BTreeMap<_, _> =
            scenario.parameters.iter().map(|parameter| (parameter.name, parameter.default)).collect();
        for setting in settings {
            let refused = |why: String| LabError::Parameter(format!("--set {setting}: {why}"));
            let (name, text) = setting.split_once('=').ok_or_else(|| refused("expected KEY=VALUE".into()))?;
            let Some(parameter) = scenario.parameters.iter().find(|parameter| parameter.name == name) else {
                let names: Vec<_> = scenario.parameters.iter().map(|parameter| parameter.name).collect();
                let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(refused(format!("{} has the parameters: {has}", scenario.name)));
            };
            let value = match parameter.default {
                Value::Number(_) => {
                    text.parse().ok().map(Value::Number).ok_or("expected a whole number".into())
                }
                Value::Duration(_) => parse_ns(text).map(Value::Duration),
            };
            values.insert(parameter.name, value.map_err(refused)?);
        }
        Ok(Case { scenario, near_miss, values })
    }

    /// A numeric parameter.
    ///
    /// # Panics
    /// The scenario has none of that name and kind: a bug in its own file.
    pub fn number(&self, name: &str) -> u64 {
        match self.values.get(name) {
            Some(Value::Number(number)) => *number,
            other => panic!("{}: {name} is no number: {other:?}", self.scenario.name),
        }
    }

    /// A duration parameter.
    ///
    /// # Panics
    /// As above.
    pub fn duration(&self, name: &str) -> Duration {
        match self.values.get(name) {
            Some(Value::Duration(ns)) => Duration::from_nanos(*ns),
            other => panic!("{}: {name} is no duration: {other:?}", self.scenario.name),
        }
    }

    /// All parameters, in the syntax of `--set`.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        self.values.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
    }

    /// Name of the run, with the suffix of a near miss.
    pub fn name(&self) -> String {
        let ending = if self.near_miss { NEAR_MISS } else { "" };
        format!("{}{ending}", self.scenario.name)
    }
}

/// Suffix of a near miss's name.
pub const NEAR_MISS: &str = "-near-miss";

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            // Exact, so that the command repeats the same run.
            Value::Duration(ns) if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            Value::Duration(ns) if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            Value::Duration(ns) => write!(f, "{ns}ns"),
        }
    }
}
