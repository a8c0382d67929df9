//! Attributes of sampled calls: of both spans, of their resources, and of the call itself.

use super::Named;
use crate::samples::Drawn;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};
use spangap_model::pair::KeptSide;
use spangap_model::{KeptCall, Side};
use std::collections::BTreeMap;

/// Maximum number of different attributes; further ones are ignored.
const MAX_NAMES: usize = 2_000;
/// Maximum number of attributes per span or resource.
const MAX_ATTRIBUTES: usize = 256;
/// Maximum length of a text in characters; longer ones are truncated.
const MAX_TEXT_CHARS: usize = 200;

/// A number usable as a key: two are equal if their bits are equal.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f64);

impl PartialEq for Number {
    fn eq(&self, other: &Number) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A text, or a rendering of any value that is neither text nor number.
    Text(Box<str>),
    /// A number.
    Number(Number),
}

/// A call of the pool.
#[derive(Clone, Debug)]
pub struct Pooled<'a> {
    /// The call.
    pub call: &'a KeptCall,
    /// Interval in which it was sampled.
    pub stretch: usize,
}

/// All sampled calls of a pair, without duplicates, with their attributes.
#[derive(Debug)]
pub struct Pool<'a> {
    /// The calls.
    pub calls: Vec<Pooled<'a>>,
    /// Index of each call by its ids.
    pub numbers: FxHashMap<([u8; 16], [u8; 8]), usize>,
    /// Sampled calls whose spans were not retained.
    pub without_spans: u64,
    names: Vec<String>,
    /// Sorted indices of the calls that carry a value, by attribute and value.
    carriers: BTreeMap<usize, FxHashMap<Value, Vec<usize>>>,
}

/// Values carried by exactly the same calls.
#[derive(Clone, Debug)]
pub struct Group {
    values: Vec<(usize, Value)>,
    /// Membership of each call in the pool.
    pub members: Vec<bool>,
}

/// A numeric attribute.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Its index.
    pub attribute: usize,
    /// Its value in each call of the pool.
    pub values: Vec<Option<f64>>,
}

impl<'a> Pool<'a> {
    /// A pool of all samples, without duplicates.
    pub fn new(samples: &'a [Drawn]) -> Pool<'a> {
        let mut pool = Pool {
            calls: Vec::new(),
            numbers: FxHashMap::default(),
            without_spans: 0,
            names: Vec::new(),
            carriers: BTreeMap::new(),
        };
        let mut seen = FxHashSet::default();
        let mut numbers_of_names = FxHashMap::default();
        for (stretch, drawn) in samples.iter().enumerate() {
            for call in drawn.by_call.iter().chain(drawn.by_time.iter().map(|(call, _)| call)) {
                let id = (call.trace_id, call.client_span_id);
                if !seen.insert(id) {
                    continue;
                }
                let Some(attributes) = attributes(call) else {
                    pool.without_spans += 1;
                    continue;
                };
                let number = pool.calls.len();
                pool.numbers.insert(id, number);
                pool.calls.push(Pooled { call, stretch });
                for (name, value) in attributes {
                    let names = &mut pool.names;
                    let full = names.len() >= MAX_NAMES;
                    let at = match numbers_of_names.get(&name) {
                        Some(at) => *at,
                        None if full => continue,
                        None => {
                            names.push(name.clone());
                            numbers_of_names.insert(name, names.len() - 1);
                            names.len() - 1
                        }
                    };
                    let carriers = pool.carriers.entry(at).or_default().entry(value).or_default();
                    // Counts a repeated attribute once.
                    if carriers.last() != Some(&number) {
                        carriers.push(number);
                    }
                }
            }
        }
        pool
    }

    /// Number of different attributes.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Name of an attribute.
    pub fn name(&self, attribute: usize) -> &str {
        &self.names[attribute]
    }

    /// Values that at least `least` calls carry and at least as many do not; values with the same calls are
    /// grouped.
    pub fn groups(&self, least: usize) -> Vec<Group> {
        let mut groups: BTreeMap<&[usize], Vec<(usize, Value)>> = BTreeMap::new();
        for (attribute, values) in &self.carriers {
            for (value, calls) in values {
                if calls.len() >= least && self.calls.len() - calls.len() >= least {
                    groups.entry(calls).or_default().push((*attribute, value.clone()));
                }
            }
        }
        let groups = groups.into_iter().map(|(calls, mut values)| {
            values.sort_by_key(|(attribute, _)| *attribute);
            let mut members = vec![false; self.calls.len()];
            calls.iter().for_each(|call| members[*call] = true);
            Group { values, members }
        });
        groups.collect()
    }

    /// Numeric attributes with at least `different` values in at least `least` calls. Numbers that name something have no size.
    pub fn numbers(&self, different: usize, least: usize) -> Vec<Numbered> {
        let mut numbers = Vec::new();
        for (attribute, by_value) in
            self.carriers.iter().filter(|(attribute, _)| !is_id(&self.names[**attribute]))
        {
            let mut values = vec![None; self.calls.len()];
            let mut seen = 0;
            for (value, calls) in by_value {
                let Value::Number(number) = value else { continue };
                seen += 1;
                calls.iter().for_each(|call| values[*call] = Some(number.0));
            }
            if seen >= different && values.iter().flatten().count() >= least {
                numbers.push(Numbered { attribute: *attribute, values });
            }
        }
        numbers
    }
}

impl Group {
    /// The value that names the group, and the others. Names of places come first, because readers look for
    /// those.
    pub fn named(&self, pool: &Pool<'_>) -> (Named, Vec<Named>) {
        const TELLING: [&str; 6] =
            ["k8s.node.name", "host.name", "k8s.pod.name", "service.version", "status", "rpc.method"];
        let telling = |attribute: usize| {
            let name = pool.name(attribute);
            TELLING.iter().position(|telling| name.ends_with(telling)).unwrap_or(TELLING.len())
        };
        let mut values = self.values.clone();
        values.sort_by_key(|(attribute, _)| (telling(*attribute), *attribute));
        let named = values.iter().map(|(attribute, value)| Named {
            attribute: pool.name(*attribute).to_owned(),
            value: value.words(),
        });
        let mut named = named.collect::<Vec<_>>().into_iter();
        (named.next().unwrap_or_default(), named.collect())
    }
}

/// Attributes of both spans and their resources; `None` unless both are complete.
fn attributes(call: &KeptCall) -> Option<Vec<(String, Value)>> {
    let mut all = vec![("status".to_owned(), Value::Text(call.status.name().into()))];
    for (side, kept) in [(Side::Client, &call.client), (Side::Server, &call.server)] {
        of_side(side, kept, &mut all)?;
    }
    Some(all)
}

fn of_side(side: Side, kept: &KeptSide, all: &mut Vec<(String, Value)>) -> Option<()> {
    let whole = kept.whole.as_ref()?;
    let resource = Resource::decode(&whole.resource[..]).ok()?;
    let span = Span::decode(&whole.span[..]).ok()?;
    all.push((format!("{side}: span name"), Value::Text(cut(&span.name))));
    let attributes = resource.attributes.into_iter().take(MAX_ATTRIBUTES);
    for KeyValue { key, value, .. } in attributes.chain(span.attributes.into_iter().take(MAX_ATTRIBUTES)) {
        if let Some(value) = value.and_then(of_any) {
            all.push((format!("{side}: {}", cut(&key)), value));
        }
    }
    Some(())
}

fn of_any(value: AnyValue) -> Option<Value> {
    Some(match value.value? {
        Any::StringValue(text) => match text.parse::<f64>() {
            // Some SDKs send numbers as texts. `nan` and `inf` are words.
            Ok(number) if number.is_finite() && text.len() < 20 => Value::Number(Number(number)),
            _ => Value::Text(cut(&text)),
        },
        Any::BoolValue(value) => Value::Text(value.to_string().into()),
        Any::IntValue(number) => Value::Number(Number(number as f64)),
        Any::DoubleValue(number) => Value::Number(Number(number)),
        Any::ArrayValue(array) => Value::Text(cut(&format!("{:?}", array.values))),
        _ => return None,
    })
}

/// Whether an attribute's number tells one from another, such as a port: a larger one is not more of anything.
fn is_id(attribute: &str) -> bool {
    let last = attribute.rsplit(['.', '_', ' ']).next().unwrap_or(attribute);
    ["id", "pid", "tid", "port"].contains(&last)
}

fn cut(text: &str) -> Box<str> {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}
