//! Pair ids and their limits: calls beyond a limit count in the pair `other`.

use crate::ingest::named::Part;
use crate::ingest::origins::{Interned, LiveNames, NO_NAME, OTHER_NAME, Origin};
use rustc_hash::FxHashMap;
use spangap_model::PairKey;
use spangap_model::pair::OTHER;
use std::sync::{Arc, PoisonError, RwLock};

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

/// Name numbers of a pair: client, server and method.
pub type Names = (u32, u32, u32);

impl Grouping {
    /// The names of the pair that a call belongs to.
    #[inline]
    pub fn names(self, client: &Origin, server: &Origin) -> Names {
        match self {
            Grouping::Pair => (client.service, server.service, NO_NAME),
            Grouping::Method => {
                // The server's instrumentation knows methods by their routes; the client's may know only a URL.
                let method = if server.method == NO_NAME { client.method } else { server.method };
                (client.service, server.service, method)
            }
            Grouping::Part(_, Ends::Client) => (client.service_at_part, server.service, NO_NAME),
            Grouping::Part(_, Ends::Server) => (client.service, server.service_at_part, NO_NAME),
            Grouping::Part(_, Ends::Both) => (client.service_at_part, server.service_at_part, NO_NAME),
        }
    }
}

/// A pair by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub number: u32,
    /// Whether it is an `other` pair.
    pub is_other: bool,
}

/// What a lane knows of the pairs, so that it asks for each only once. Names of pairs are never forgotten, so this does not
/// age.
#[derive(Debug, Default)]
pub struct KnownPairs(FxHashMap<Names, Numbered>);

impl KnownPairs {
    /// The pair of these names.
    #[inline]
    pub fn find(&mut self, names: Names, all: &RwLock<Pairs>, interned: &Interned) -> Numbered {
        match self.0.get(&names) {
            Some(known) => *known,
            None => self.ask(names, all, interned),
        }
    }

    #[cold]
    fn ask(&mut self, names: Names, all: &RwLock<Pairs>, interned: &Interned) -> Numbered {
        let mut all = all.write().unwrap_or_else(PoisonError::into_inner);
        let found = all.find_or_add(names, interned);
        // Past a limit the names are unbounded.
        if all.numbers.contains_key(&names) {
            self.0.insert(names, found);
        }
        found
    }
}

/// Pair numbers, in order of appearance.
#[derive(Debug)]
pub struct Pairs {
    limits: PairLimits,
    numbers: FxHashMap<Names, u32>,
    /// Pairs that collect the calls past a limit.
    others: FxHashMap<PairKey, u32>,
    keys: Vec<PairKey>,
    is_other: Vec<bool>,
    per_client: FxHashMap<u32, usize>,
    refused: u64,
}

impl Pairs {
    /// An empty table.
    pub fn new(limits: PairLimits) -> Pairs {
        Pairs {
            limits,
            numbers: FxHashMap::default(),
            others: FxHashMap::default(),
            keys: Vec::new(),
            is_other: Vec::new(),
            per_client: FxHashMap::default(),
            refused: 0,
        }
    }

    /// The pair of these names; the first call of a pair, or one past the limits.
    fn find_or_add(&mut self, names: Names, interned: &Interned) -> Numbered {
        let number = self.numbers.get(&names).copied();
        let number = number.unwrap_or_else(|| self.add(names, interned));
        Numbered { number, is_other: self.is_other[number as usize] }
    }

    fn add(&mut self, names: Names, interned: &Interned) -> u32 {
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
            // Not inserted by its names: the map stays bounded. The name of a server that is really called `other` makes the
            // same key.
            self.refused += 1;
            let known = self.others.get(&key).copied();
            let known = known.or_else(|| Some(self.keys.iter().position(|known| *known == key)? as u32));
            let number = known.unwrap_or(self.keys.len() as u32);
            self.others.insert(key.clone(), number);
            if known.is_some() {
                return number;
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
}
