//! Pair ids and their limits: calls beyond a limit count in the pair `other`.

use crate::ingest::named::Part;
use crate::ingest::origins::{Interned, LiveNames, NO_NAME, OTHER_NAME, Origin};
use rustc_hash::FxHashMap;
use spangap_model::PairKey;
use spangap_model::pair::OTHER;
use std::sync::Arc;

/// What a table row represents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Client service and server service.
    #[default]
    Pair,
    /// Client service, server service and method.
    Method,
    /// Client service and server service, with one or both divided into parts, such as nodes.
    Part(Part, Ends),
}

/// The ends of a pair that are divided into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The caller.
    Client,
    /// The callee.
    Server,
    /// Both.
    Both,
}

impl Grouping {
    /// The part by which services are divided.
    pub fn part(self) -> Part {
        match self {
            Grouping::Part(part, _) => part,
            Grouping::Pair | Grouping::Method => Part::default(),
        }
    }
}

/// Limits on the number of pairs.
#[derive(Clone, Copy, Debug)]
pub struct PairLimits {
    /// Pairs in total.
    pub total: usize,
    /// Pairs per client service.
    pub per_client: usize,
}

/// Pair numbers, in order of appearance.
#[derive(Debug)]
pub struct Pairs {
    grouping: Grouping,
    limits: PairLimits,
    numbers: FxHashMap<(u32, u32, u32), u32>,
    keys: Vec<PairKey>,
    is_other: Vec<bool>,
    per_client: FxHashMap<u32, usize>,
    refused: u64,
}

impl Pairs {
    /// An empty table.
    pub fn new(grouping: Grouping, limits: PairLimits) -> Pairs {
        Pairs {
            grouping,
            limits,
            numbers: FxHashMap::default(),
            keys: Vec::new(),
            is_other: Vec::new(),
            per_client: FxHashMap::default(),
            refused: 0,
        }
    }

    /// The pair number of two origins.
    #[inline]
    pub fn number(&mut self, client: &Origin, server: &Origin, interned: &Interned) -> u32 {
        // The server's instrumentation knows methods by their routes; the client's may know only a URL.
        let method = if server.method == NO_NAME { client.method } else { server.method };
        let names = match self.grouping {
            Grouping::Pair => (client.service, server.service, NO_NAME),
            Grouping::Method => (client.service, server.service, method),
            Grouping::Part(_, Ends::Client) => (client.service_at_part, server.service, NO_NAME),
            Grouping::Part(_, Ends::Server) => (client.service, server.service_at_part, NO_NAME),
            Grouping::Part(_, Ends::Both) => (client.service_at_part, server.service_at_part, NO_NAME),
        };
        match self.numbers.get(&names) {
            Some(number) => *number,
            None => self.add(names, interned),
        }
    }

    #[cold]
    fn add(&mut self, names: (u32, u32, u32), interned: &Interned) -> u32 {
        let text = |number| interned.name(number).cloned();
        let other: Arc<str> = OTHER.into();
        let client = text(names.0).unwrap_or_else(|| other.clone());
        let of_client = self.per_client.get(&names.0).copied().unwrap_or(0);
        let (key, is_past_limit) = if self.keys.len() >= self.limits.total {
            (PairKey { client: other.clone(), server: other, method: None }, true)
        } else if of_client >= self.limits.per_client {
            (PairKey { client, server: other, method: None }, true)
        } else {
            let server = text(names.1).unwrap_or(other);
            (PairKey { client, server, method: text(names.2) }, false)
        };
        if is_past_limit {
            // Not inserted by its names: the map stays bounded, and this scan is the price of an overflow.
            self.refused += 1;
            if let Some(at) = self.keys.iter().position(|k| *k == key) {
                return at as u32;
            }
        }
        let number = self.keys.len() as u32;
        self.keys.push(key);
        // A name rejected for lack of room combines the calls of many.
        let named = [names.0, names.1, names.2];
        self.is_other.push(is_past_limit || named.contains(&OTHER_NAME));
        if !is_past_limit {
            *self.per_client.entry(names.0).or_default() += 1;
            self.numbers.insert(names, number);
            named.into_iter().for_each(|name| interned.pair_of(name));
        }
        number
    }

    /// Marks the names of pairs as in use.
    pub fn mark(&self, live: &mut LiveNames) {
        for (client, server, method) in self.numbers.keys() {
            [*client, *server, *method].into_iter().for_each(|number| live.mark(number));
        }
    }

    /// Calls counted in `other` because of a limit.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The pair with this number.
    pub fn key(&self, number: u32) -> &PairKey {
        &self.keys[number as usize]
    }

    /// All pairs in order of their numbers.
    pub fn keys(&self) -> &[PairKey] {
        &self.keys
    }

    /// Whether this is an `other` pair.
    #[inline]
    pub fn is_other(&self, number: u32) -> bool {
        self.is_other[number as usize]
    }
}
