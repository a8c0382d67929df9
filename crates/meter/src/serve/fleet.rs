//! Selection of pairs, and the time they lost per step.

use super::api::{Answer, Api, Wanted, covered};
use super::whose::Whose;
use crate::history::{Lost, step_for};
use crate::report::*;
use serde::Deserialize;
use spangap_model::PairKey;
use std::collections::BTreeMap;

/// Maximum number of steps of a timeline.
const MAX_STEPS: u64 = 1_500;
/// Default number of steps of a timeline.
const DEFAULT_STEPS: u64 = 120;

/// Selection of pairs. An omitted field matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    /// Words that must all occur in the pair's names, case-insensitive.
    q: Option<String>,
    /// Matches either side.
    service: Option<String>,
    client: Option<String>,
    server: Option<String>,
    method: Option<String>,
}

impl Filter {
    /// Whether a pair's names match.
    pub fn matches(&self, key: &PairKey) -> bool {
        let is = |asked: &Option<String>, name: &str| asked.as_deref().is_none_or(|asked| asked == name);
        if !is(&self.client, &key.client) || !is(&self.server, &key.server) {
            return false;
        }
        if self.service.as_deref().is_some_and(|service| *key.client != *service && *key.server != *service) {
            return false;
        }
        if self.method.is_some() && key.method.as_deref() != self.method.as_deref() {
            return false;
        }
        let Some(words) = self.q.as_deref() else { return true };
        let names = format!("{} {} {}", key.client, key.server, key.method.as_deref().unwrap_or_default());
        let names = names.to_lowercase();
        words.split_whitespace().all(|word| names.contains(&word.to_lowercase()))
    }
}

/// Number of steps of a timeline.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Steps {
    steps: Option<u64>,
}

/// Time lost by all matching pairs, per step.
pub(super) async fn timeline(
    api: &Api,
    wanted: Wanted,
    (from_s, to_s): (u64, u64),
    filter: Filter,
    steps: Steps,
    whose: Whose,
) -> Answer {
    let step_s = step_for(from_s, to_s, steps.steps.unwrap_or(DEFAULT_STEPS).min(MAX_STEPS));
    api.ask_source(wanted, whose, move |_, source| {
        let minutes = source.gaps(|key| filter.matches(key))?;
        let mut points: BTreeMap<u64, Lost> = BTreeMap::new();
        let matches = |key: &PairKey| filter.matches(key);
        let reached = minutes.lost((from_s, to_s), step_s, &matches, &mut |_, at, lost| {
            points.entry(at).or_default().add(lost);
        })?;
        let point = |(unix_s, lost): (u64, Lost)| TimelinePoint {
            unix_s,
            calls: lost.calls,
            lost_ns_total: u64::try_from(lost.gap_ns).unwrap_or(u64::MAX),
            client_ns_total: u64::try_from(lost.client_ns).unwrap_or(u64::MAX),
        };
        Ok(Ok(Timeline {
            from_unix_s: from_s,
            to_unix_s: to_s,
            covered_from_unix_s: covered(reached, from_s),
            of_meters: source.of_meters,
            step_s,
            points: points.into_iter().map(point).collect(),
        }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: &str, server: &str, method: Option<&str>) -> PairKey {
        PairKey { client: client.into(), server: server.into(), method: method.map(Into::into) }
    }

    #[test]
    fn every_word_of_a_search_must_occur() {
        let pair = key("Frontend", "shop/checkout", Some("Cart.Add"));
        let search = |q: &str| Filter { q: Some(q.into()), ..Filter::default() }.matches(&pair);
        for found in ["", "front", "CHECK cart", "add  frontend"] {
            assert!(search(found), "{found:?}");
        }
        for missing in ["backend", "front redis", "cart.remove"] {
            assert!(!search(missing), "{missing:?}");
        }
    }

    #[test]
    fn service_matches_either_side_and_client_and_server_only_one() {
        let pair = key("a", "b", None);
        let with = |filter: Filter| filter.matches(&pair);
        let is = |name: &str| Some(name.to_string());
        assert!(with(Filter { service: is("a"), ..Filter::default() }));
        assert!(with(Filter { service: is("b"), ..Filter::default() }));
        assert!(!with(Filter { service: is("c"), ..Filter::default() }));
        assert!(!with(Filter { client: is("b"), ..Filter::default() }));
        assert!(!with(Filter { method: is("m"), ..Filter::default() }));
    }
}
