//! What a scenario is: a fault, its parameters, what looks like it and is not, and how it is made.

use crate::LabError;
use crate::stage::Stage;
use crate::truth::Acted;
use spangap_model::duration::parse_ns;
use spangap_model::{Culprit, Legs};
use std::collections::BTreeMap;
use std::time::Duration;

/// One fault.
pub struct Scenario {
    /// What it is called by; lower case, with hyphens.
    pub name: &'static str,
    /// What happens, in a line.
    pub title: &'static str,
    /// What is to blame.
    pub culprit: Culprit,
    /// Other causes that a judge may name and be right, because they are the same thing seen elsewhere.
    pub also_right: &'static [Culprit],
    /// The leg it acts on; `None` where there is nothing wrong, or it is on the whole call.
    pub leg: Option<Legs>,
    /// What can be set, with the strength that is used unless told otherwise.
    pub parameters: &'static [Parameter],
    /// What looks alike and is not it.
    pub near_miss: NearMiss,
    /// What its page says.
    pub page: Page,
    /// Makes it, and proves that it acted.
    pub make: fn(&mut Stage<'_>, &Case<'_>) -> Result<Acted, LabError>,
}

/// What looks like the fault and is not it.
pub struct NearMiss {
    /// What is different, in a line.
    pub title: &'static str,
    /// What is to blame there: nothing, or something else.
    pub culprit: Culprit,
    /// The leg that is longer there, if any.
    pub leg: Option<Legs>,
}

/// Something that can be set: `--set NAME=VALUE`.
pub struct Parameter {
    /// Lower case, with hyphens.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Its value unless set; also tells its kind.
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

/// The scenario's page: [`crate::scenario`] has the words, a real run the figures.
pub struct Page {
    /// What happens, and why that takes time. A paragraph or two.
    pub what: &'static str,
    /// Where it happens in real life.
    pub real_life: &'static str,
    /// Where that is told: title and address.
    pub sources: &'static [(&'static str, &'static str)],
    /// How the lab makes it.
    pub made: &'static str,
    /// What cures it.
    pub cure: &'static str,
}

/// What is to be made in one run.
pub struct Case<'a> {
    /// Of which scenario.
    pub scenario: &'a Scenario,
    /// Whether its near miss.
    pub near_miss: bool,
    values: BTreeMap<&'static str, Value>,
}

impl<'a> Case<'a> {
    /// Takes `NAME=VALUE` settings.
    ///
    /// # Errors
    /// When there is no such parameter, or it has no such value.
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

    /// A parameter that is a number.
    ///
    /// # Panics
    /// When the scenario has none of that name and kind: a mistake in its own file.
    pub fn number(&self, name: &str) -> u64 {
        match self.values.get(name) {
            Some(Value::Number(number)) => *number,
            other => panic!("{}: {name} is no number: {other:?}", self.scenario.name),
        }
    }

    /// A parameter that is a duration.
    ///
    /// # Panics
    /// As above.
    pub fn duration(&self, name: &str) -> Duration {
        match self.values.get(name) {
            Some(Value::Duration(ns)) => Duration::from_nanos(*ns),
            other => panic!("{}: {name} is no duration: {other:?}", self.scenario.name),
        }
    }

    /// All of them, as text that `--set` takes.
    pub fn parameters(&self) -> BTreeMap<String, String> {
        self.values.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
    }

    /// Name of what is made, with the ending of a near miss.
    pub fn name(&self) -> String {
        let ending = if self.near_miss { NEAR_MISS } else { "" };
        format!("{}{ending}", self.scenario.name)
    }
}

/// Ending of a near miss' name.
pub const NEAR_MISS: &str = "-near-miss";

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            // Exact, so that the command makes the same run again.
            Value::Duration(ns) if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            Value::Duration(ns) if ns % 1_000 == 0 => write!(f, "{}us", ns / 1_000),
            Value::Duration(ns) => write!(f, "{ns}ns"),
        }
    }
}
