//! Versions of services (`service.version`) and the times they appeared. Only new resources are inspected, so
//! spans cost nothing.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Maximum number of services with tracked versions; others have none.
const SERVICES: usize = 10_000;
/// Versions retained per service, the most recent.
const VERSIONS: usize = 16;
/// Changes retained, the most recent.
const CHANGES: usize = 500;
/// Maximum length of a version in characters.
const LETTERS: usize = 100;

/// The appearance of a new version of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionChange {
    /// Arrival of the first resource with it, in milliseconds of the meter's clock.
    pub at_ms: u64,
    /// The service.
    pub service: String,
    /// Its new version.
    pub version: String,
    /// The previous version.
    pub before: String,
}

/// Known versions. The first one of a service is not a change: it may be long in use.
#[derive(Debug, Default)]
pub struct Versions {
    known: FxHashMap<String, VecDeque<String>>,
    changes: VecDeque<VersionChange>,
}

impl Versions {
    /// Records the version of a new resource.
    pub fn seen(&mut self, service: &str, version: &str, now_ms: u64) {
        let version: String = version.chars().take(LETTERS).collect();
        let is_full = self.known.len() >= SERVICES && !self.known.contains_key(service);
        if version.is_empty() || is_full {
            return;
        }
        let versions = self.known.entry(service.to_owned()).or_default();
        if versions.contains(&version) {
            return;
        }
        if let Some(before) = versions.back() {
            if self.changes.len() >= CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back(VersionChange {
                at_ms: now_ms,
                service: service.to_owned(),
                version: version.clone(),
                before: before.clone(),
            });
        }
        if versions.len() >= VERSIONS {
            versions.pop_front();
        }
        versions.push_back(version);
    }

    /// The changes, oldest first.
    pub fn changes(&self) -> impl Iterator<Item = &VersionChange> {
        self.changes.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_version_is_one_change() {
        let mut versions = Versions::default();
        for (service, version, at) in [
            ("a", "1", 1),
            ("b", "7", 2),
            ("a", "1", 3),
            ("a", "2", 4),
            ("a", "1", 5),
            ("a", "", 6),
            ("a", "2", 7),
        ] {
            versions.seen(service, version, at);
        }
        let told: Vec<_> = versions.changes().cloned().collect();
        let expected =
            VersionChange { at_ms: 4, service: "a".into(), version: "2".into(), before: "1".into() };
        assert_eq!(told, [expected]);
    }

    #[test]
    fn many_versions_are_bounded() {
        let mut versions = Versions::default();
        for number in 0..30_000 {
            versions.seen(&format!("service {}", number % 12_000), &"x".repeat(number % 400), number as u64);
            versions.seen("one", &number.to_string(), number as u64);
        }
        assert!(versions.known.len() <= SERVICES && versions.changes.len() <= CHANGES);
        assert!(versions.known.values().all(|all| all.len() <= VERSIONS));
        assert!(versions.known.values().flatten().all(|version| version.len() <= LETTERS));
    }
}
