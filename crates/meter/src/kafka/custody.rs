//! Who has counted which part of a partition, as the group's committed offset says it.
//!
//! Kafka keeps a text with each committed offset. Ours names the meters that have read the partition and where each
//! of them began, so that the meters' histories divide the partition among them: a meter's part ends where the next
//! one began, whatever it was doing when it died.

use std::fmt;

/// What a text of ours starts with.
const MARK: &str = "spangap1";
/// Meters named in a text; Kafka allows 4096 bytes. A meter that returns after this many changes of hands cannot
/// tell any more what it left to others.
const MOST_OWNERS: usize = 60;

/// The history of one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custody {
    /// Time of the partition before the committed offset, Unix milliseconds; 0 if unknown.
    pub time_ms: u64,
    /// Halves waiting there.
    pub waiting: u64,
    /// Names of meters, and the first message that each counted; the last one is or was at it.
    pub owners: Vec<(String, i64)>,
}

impl Custody {
    /// Reads a text; one that is not ours says nothing.
    pub fn read(text: &str) -> Custody {
        let mut words = text.split(' ');
        let mut custody = Custody::default();
        if words.next() != Some(MARK) {
            return custody;
        }
        for word in words {
            if let Some(ms) = word.strip_prefix("t=") {
                custody.time_ms = ms.parse().unwrap_or(0);
            } else if let Some(waiting) = word.strip_prefix("w=") {
                custody.waiting = waiting.parse().unwrap_or(0);
            } else if let Some((name, from)) = word.rsplit_once('@')
                && let Ok(from) = from.parse()
            {
                custody.owners.push((name.into(), from));
            }
        }
        custody
    }

    /// The meter that counts the partition, or was the last to.
    pub fn owner(&self) -> Option<&str> {
        self.owners.last().map(|(name, _)| name.as_str())
    }

    /// Hands the partition over.
    pub fn hand_to(&mut self, name: &str, from: i64) {
        if self.owner() != Some(name) {
            self.owners.push((name.into(), from));
            let excess = self.owners.len().saturating_sub(MOST_OWNERS);
            self.owners.drain(..excess);
        }
    }

    /// The part of a meter that is no longer the owner.
    pub fn part_of(&self, name: &str) -> Part {
        match self.owners.iter().rposition(|(owner, _)| owner == name) {
            // A meter that is not named has never committed, unless names were dropped for lack of room.
            None if self.owners.len() < MOST_OWNERS => Part::Open,
            None => Part::Unknown,
            Some(at) => match self.owners.get(at + 1) {
                None => Part::Open,
                Some((_, until)) => Part::Ended { from: self.owners[at].1, until: *until },
            },
        }
    }
}

/// Where a meter's part of a partition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nobody has counted after it.
    Open,
    /// The next meter counts from `until` on.
    Ended {
        /// First message of the part.
        from: i64,
        /// The message after its last.
        until: i64,
    },
    /// Too many others have since.
    Unknown,
}

impl fmt::Display for Custody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK} t={} w={}", self.time_ms, self.waiting)?;
        self.owners.iter().try_for_each(|(name, from)| write!(f, " {name}@{from}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_and_others_say_nothing() {
        let mut custody = Custody { time_ms: 1_700_000_000_000, waiting: 7, owners: Vec::new() };
        for turn in 0..200 {
            custody.hand_to(["a1b2c3d4", "00ff00ff", "12345678"][turn % 3], 1 << 40 | turn as i64);
        }
        let text = custody.to_string();
        assert_eq!(Custody::read(&text), custody);
        assert!(text.len() < 4096, "{} bytes", text.len());
        for other in ["", "x", "spangap2 t=1", "{\"a\":1}"] {
            assert_eq!(Custody::read(other), Custody::default());
        }
    }

    #[test]
    fn a_part_ends_where_the_next_meter_began() {
        let mut custody = Custody::default();
        assert_eq!(custody.part_of("a"), Part::Open, "nobody has read it");
        custody.hand_to("a", 0);
        custody.hand_to("a", 50);
        assert_eq!((custody.part_of("a"), custody.owners.len()), (Part::Open, 1));
        custody.hand_to("b", 100);
        custody.hand_to("a", 200);
        custody.hand_to("c", 300);
        assert_eq!(custody.part_of("a"), Part::Ended { from: 200, until: 300 }, "the latest of its parts");
        assert_eq!(custody.part_of("b"), Part::Ended { from: 100, until: 200 });
        assert_eq!(custody.part_of("c"), Part::Open);
        assert_eq!(custody.part_of("d"), Part::Open, "it has committed nothing");
        (0..MOST_OWNERS).for_each(|turn| custody.hand_to(["x", "y"][turn % 2], 400 + turn as i64));
        assert_eq!(custody.part_of("a"), Part::Unknown);
    }
}
