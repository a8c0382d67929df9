//! Existing pairs with names similar to an unknown one.

use crate::report::PairRow;
use spangap_model::PairKey;

/// Number of suggestions for a pair that does not exist.
pub(crate) const NEAREST: usize = 5;

/// The pairs with the most similar names.
pub(crate) struct Nearest<'a> {
    to: &'a PairRow,
    /// Sorted by decreasing similarity.
    found: Vec<(f64, PairRow)>,
}

impl<'a> Nearest<'a> {
    pub(crate) fn to(pair: &'a PairRow) -> Nearest<'a> {
        Nearest { to: pair, found: Vec::new() }
    }

    pub(crate) fn see(&mut self, key: &PairKey) {
        let like = |a: &str, b: &str| strsim::jaro_winkler(&a.to_lowercase(), &b.to_lowercase());
        let likeness = like(&self.to.client, &key.client) + like(&self.to.server, &key.server);
        let is_far = self.found.last().is_some_and(|(worst, _)| likeness <= *worst);
        if self.found.len() >= NEAREST && is_far || self.found.iter().any(|(_, pair)| is_pair(pair, key)) {
            return;
        }
        let place = self.found.partition_point(|(other, _)| *other >= likeness);
        self.found.insert(place, (likeness, row(key)));
        self.found.truncate(NEAREST);
    }

    pub(crate) fn pairs(self) -> Vec<PairRow> {
        self.found.into_iter().map(|(_, pair)| pair).collect()
    }
}

fn row(key: &PairKey) -> PairRow {
    PairRow { client: key.client.to_string(), server: key.server.to_string() }
}

fn is_pair(pair: &PairRow, key: &PairKey) -> bool {
    *pair.client == *key.client && *pair.server == *key.server
}

/// The suggestions, in words.
pub(crate) fn near(pairs: &[PairRow]) -> String {
    if pairs.is_empty() {
        return "no pair has been seen yet: both services must send their spans here".into();
    }
    let names: Vec<String> = pairs.iter().map(|pair| format!("{} -> {}", pair.client, pair.server)).collect();
    format!("the nearest that were: {}", names.join(", "))
}
