//! Settings of a run, field by field: equal ones are stated once for all runs, varying ones head a group.

use super::{Asked, Run};
use spangap_model::duration::format_ns;

/// A field of [`Asked`] other than the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Target,
    Stack,
    Call,
    Method,
    Channels,
    Nodelay,
    SplitWrites,
    Attempts,
    Threads,
    Cpus,
    RequestBytes,
    ResponseBytes,
    Think,
    Trace,
}

impl Field {
    /// All fields, in display order.
    pub const ALL: [Field; 14] = [
        Field::Target,
        Field::Stack,
        Field::Call,
        Field::Method,
        Field::Channels,
        Field::Nodelay,
        Field::SplitWrites,
        Field::Attempts,
        Field::Threads,
        Field::Cpus,
        Field::RequestBytes,
        Field::ResponseBytes,
        Field::Think,
        Field::Trace,
    ];

    /// Name, as of tank's flag.
    pub fn name(self) -> &'static str {
        match self {
            Field::Target => "target",
            Field::Stack => "stack",
            Field::Call => "call",
            Field::Method => "method",
            Field::Channels => "channels",
            Field::Nodelay => "nodelay",
            Field::SplitWrites => "split-writes",
            Field::Attempts => "attempts",
            Field::Threads => "threads",
            Field::Cpus => "cpus",
            Field::RequestBytes => "request-bytes",
            Field::ResponseBytes => "response-bytes",
            Field::Think => "think",
            Field::Trace => "trace",
        }
    }

    /// Value as text; equal texts are equal values.
    pub fn of(self, asked: &Asked) -> String {
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        let the_targets = || "the target's".to_owned();
        match self {
            Field::Target => asked.target.clone(),
            Field::Stack => asked.stack.to_string(),
            Field::Call => asked.call.to_string(),
            Field::Method => asked.method.clone().unwrap_or_else(|| "ping".into()),
            Field::Channels => asked.channels.to_string(),
            Field::Nodelay => asked.nodelay.to_string(),
            Field::SplitWrites => switch(asked.split_writes),
            Field::Attempts => asked.attempts.to_string(),
            Field::Threads => asked.threads.to_string(),
            Field::Cpus => asked.cpus.clone().unwrap_or_else(|| "all".into()),
            Field::RequestBytes => asked.request_bytes.to_string(),
            Field::ResponseBytes => asked.response_bytes.map_or_else(the_targets, |bytes| bytes.to_string()),
            Field::Think => asked.think_ns.map_or_else(the_targets, exact_ns),
            Field::Trace => switch(asked.trace),
        }
    }

    /// Fields in which these runs differ.
    pub fn varying<'a>(runs: impl IntoIterator<Item = &'a Run> + Clone) -> Vec<Field> {
        let differs = |field: &Field| {
            let mut values = runs.clone().into_iter().map(|run| field.of(&run.asked));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        Field::ALL.into_iter().filter(differs).collect()
    }
}

/// Three digits, or more where different values would look equal.
fn exact_ns(ns: u64) -> String {
    let short = format_ns(ns);
    if spangap_model::duration::parse_ns(&short) == Ok(ns) { short } else { format!("{ns} ns") }
}

/// Load of a run: the quantity that sweeps vary.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum Load {
    /// Closed loop: number of calls in flight.
    InFlight(u32),
    /// Open loop: calls due per second.
    RatePerS(f64),
    /// Missing in the report.
    Unknown,
}

impl Load {
    /// The load of a run.
    pub fn of(asked: &Asked) -> Load {
        match (asked.rate_per_s, asked.inflight) {
            (Some(rate), _) => Load::RatePerS(rate),
            (None, Some(n)) => Load::InFlight(n),
            (None, None) => Load::Unknown,
        }
    }

    /// As a number, for sorting.
    pub fn value(self) -> f64 {
        match self {
            Load::InFlight(n) => f64::from(n),
            Load::RatePerS(rate) => rate,
            Load::Unknown => f64::NAN,
        }
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Load::InFlight(n) => f.pad(&format!("{n} in flight")),
            Load::RatePerS(rate) => f.pad(&format!("{}/s", rounded(*rate))),
            Load::Unknown => f.pad("unknown load"),
        }
    }
}

/// A rate without needless digits: `1000`, `0.5`, `33.33`.
pub(crate) fn rounded(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Name that distinguishes one of several runs.
pub(crate) fn name_of(run: &Run, varying: &[Field], several: bool) -> String {
    if !several {
        return String::new();
    }
    let mut parts: Vec<String> = varying.iter().map(|field| field.of(&run.asked)).collect();
    parts.push(Load::of(&run.asked).to_string());
    if run.repeat > 0 {
        parts.push(format!("run {}", run.repeat + 1));
    }
    parts.join(", ")
}
