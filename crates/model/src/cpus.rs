//! Sets of CPUs in the kernel's formats: lists `0,3-48` and masks `ff,00000003`.

use std::collections::BTreeSet;
use std::fmt;

/// A CPU number above this is treated as an error in the text.
const MAX_CPU: u32 = 1 << 16;

/// A set of CPUs by number, as the kernel names them in lists and masks; numbers need not be contiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<u32>);

impl Cpus {
    /// Parses a list such as `0,3-48`; an empty text is the empty set. `None` for anything else.
    pub fn parse_list(text: &str) -> Option<Cpus> {
        let mut cpus = Cpus::default();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
            if from > to || to > MAX_CPU {
                return None;
            }
            cpus.0.extend(from..=to);
        }
        Some(cpus)
    }

    /// Parses a mask of hexadecimal 32-bit words, the highest first. `None` for anything else.
    pub fn parse_mask(text: &str) -> Option<Cpus> {
        let mut cpus = Cpus::default();
        let words: Vec<&str> = text.trim().split(',').collect();
        if words.len() > (MAX_CPU / 32) as usize {
            return None;
        }
        for (at, word) in words.iter().rev().enumerate() {
            let word = u32::from_str_radix(word, 16).ok()?;
            cpus.0.extend((0..32).filter(|bit| word >> bit & 1 == 1).map(|bit| at as u32 * 32 + bit));
        }
        Some(cpus)
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it contains this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// CPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Intersection.
    pub fn both(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }

    /// Difference.
    pub fn without(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.difference(&other.0).copied().collect())
    }

    /// Union.
    pub fn either(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.union(&other.0).copied().collect())
    }

    /// In words: `CPU 3`, `CPUs 4-7`, `no CPU`.
    pub fn words(&self) -> String {
        match self.len() {
            0 => "no CPU".to_owned(),
            1 => format!("CPU {self}"),
            _ => format!("CPUs {self}"),
        }
    }

    /// The mask in the kernel's format: 32-bit words, the highest first.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |at: u32| {
            (0..32).filter(|bit| self.contains(at * 32 + bit)).fold(0_u32, |all, bit| all | 1 << bit)
        };
        let written: Vec<String> = (0..words)
            .rev()
            .map(|at| if at + 1 == words { format!("{:x}", word(at)) } else { format!("{:08x}", word(at)) })
            .collect();
        written.join(",")
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl serde::Serialize for Cpus {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cpus {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Cpus::parse_list(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not a list of CPUs, such as 0,3-48"))
        })
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, to)) if *to + 1 == cpu => *to = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let runs: Vec<String> = runs
            .iter()
            .map(|&(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
            .collect();
        f.write_str(&runs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_and_masks_are_read_as_they_are_written(cpus in prop::collection::btree_set(0_u32..600, 0..80)) {
            let cpus = Cpus(cpus);
            prop_assert_eq!(Cpus::parse_list(&cpus.to_string()), Some(cpus.clone()));
            prop_assert_eq!(Cpus::parse_mask(&cpus.mask()), Some(cpus));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|[0-9,-]{0,20}|[0-9a-f,]{0,40}") {
            let _ = (Cpus::parse_list(&text), Cpus::parse_mask(&text));
        }
    }

    #[test]
    fn as_the_kernel_writes_them() {
        assert_eq!(Cpus::parse_list("0,3-5\n").map(|cpus| cpus.to_string()).as_deref(), Some("0,3-5"));
        assert_eq!(Cpus::parse_list("\n"), Some(Cpus::default()));
        assert_eq!(Cpus::parse_list("5-3"), None);
        assert_eq!(Cpus::parse_list("0-4000000000"), None, "no memory for nonsense");
        let mask = Cpus::parse_mask("00000001,80000000\n").unwrap();
        assert_eq!((mask.to_string().as_str(), mask.mask().as_str()), ("31-32", "1,80000000"));
        assert_eq!(Cpus::default().mask(), "0");
        let words = |list| Cpus::parse_list(list).unwrap().words();
        assert_eq!([words(""), words("3"), words("4-7")], ["no CPU", "CPU 3", "CPUs 4-7"]);
    }
}
