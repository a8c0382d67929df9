//! What a line does to the packets of one direction, and its flags.

use crate::LabError;
use std::time::Duration;

/// Maximum duration: anything longer is no longer a delay.
const LONGEST: Duration = Duration::from_secs(3600);
/// Maximum number of packets in a list.
const MOST_NAMED: usize = 100_000;

/// One direction of a line. Lists identify packets by their number, from 1, among the counted ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Delay of every packet.
    pub delay: Duration,
    /// Additional random delay; see [`Way::shape`].
    pub jitter: Duration,
    /// Distribution of the jitter.
    pub shape: Shape,
    /// Whether a packet with less jitter may leave before one that was sent earlier.
    pub overtake: bool,
    /// Every counted packet whose number is a multiple of this takes [`Way::spike`] longer, and later ones
    /// wait behind it; 0 for none.
    pub spike_every: u64,
    /// Additional delay of these.
    pub spike: Duration,
    /// These take [`Way::late_by`] longer, and later ones wait behind them.
    pub late: Vec<u64>,
    /// Additional delay of these.
    pub late_by: Duration,
    /// Bytes per second, including IP headers.
    pub rate_bytes_per_s: Option<u64>,
    /// Maximum number of bytes waiting because of the rate; a packet without room is lost.
    pub queue_bytes: u64,
    /// Share of the counted packets that is lost at random.
    pub loss: f64,
    /// These are lost.
    pub drop: Vec<u64>,
    /// From each of these on, all of its connection is lost, as if something on the way had forgotten it.
    pub hole: Vec<u64>,
    /// Larger IP packets are lost silently.
    pub largest_bytes: u64,
    /// These come twice.
    pub twice: Vec<u64>,
    /// These leave after the packet that follows them.
    pub swap: Vec<u64>,
    /// Packets leave only at multiples of this; 0 for any time.
    pub clump: Duration,
    /// Which packets are counted.
    pub count: Count,
    /// Minimum TCP payload of a counted packet. With 0, bare ACKs count.
    pub least_bytes: u64,
    /// Maximum TCP payload of a counted packet.
    pub most_bytes: u64,
}

/// Distribution of a jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// Evenly from 0 up to it.
    #[default]
    Uniform,
    /// Exponentially with this mean, limited to twenty times as much.
    Exponential,
}

/// Which TCP packets are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// Those whose payload is within the bounds.
    #[default]
    Payload,
    /// Those that open a connection: SYN in one direction, SYN/ACK in the other.
    Syn,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            shape: Shape::Uniform,
            overtake: false,
            spike_every: 0,
            spike: Duration::ZERO,
            late: Vec::new(),
            late_by: Duration::ZERO,
            rate_bytes_per_s: None,
            queue_bytes: 256 << 10,
            loss: 0.0,
            drop: Vec::new(),
            hole: Vec::new(),
            largest_bytes: 65_535,
            twice: Vec::new(),
            swap: Vec::new(),
            clump: Duration::ZERO,
            count: Count::Payload,
            least_bytes: 1,
            most_bytes: 65_535,
        }
    }
}

impl Way {
    /// A pure delay.
    pub fn of_delay(delay: Duration) -> Way {
        Way { delay, ..Way::default() }
    }

    /// As flags of the actor: `--delay-a 5000000`. Defaults are omitted.
    pub fn flags(&self, end: char) -> Vec<String> {
        let ever = Way::default();
        let mut flags = Vec::new();
        let mut say = |name: &str, said: bool, value: String| {
            if said {
                flags.extend([format!("--{name}-{end}"), value]);
            }
        };
        let ns = |duration: Duration| duration.as_nanos().to_string();
        say("delay", self.delay != ever.delay, ns(self.delay));
        say("jitter", self.jitter != ever.jitter, ns(self.jitter));
        say("shape", self.shape != ever.shape, "exponential".into());
        say("overtake", self.overtake, "yes".into());
        say("spike", self.spike_every > 0, format!("{},{}", self.spike_every, ns(self.spike)));
        say("late", !self.late.is_empty(), list(&self.late));
        say("late-by", self.late_by != ever.late_by, ns(self.late_by));
        say(
            "rate",
            self.rate_bytes_per_s.is_some(),
            self.rate_bytes_per_s.map(|rate| rate.to_string()).unwrap_or_default(),
        );
        say("queue", self.queue_bytes != ever.queue_bytes, self.queue_bytes.to_string());
        say("loss", self.loss != ever.loss, self.loss.to_string());
        say("drop", !self.drop.is_empty(), list(&self.drop));
        say("hole", !self.hole.is_empty(), list(&self.hole));
        say("largest", self.largest_bytes != ever.largest_bytes, self.largest_bytes.to_string());
        say("twice", !self.twice.is_empty(), list(&self.twice));
        say("swap", !self.swap.is_empty(), list(&self.swap));
        say("clump", self.clump != ever.clump, ns(self.clump));
        say("count", self.count != ever.count, "syn".into());
        say("least", self.least_bytes != ever.least_bytes, self.least_bytes.to_string());
        say("most", self.most_bytes != ever.most_bytes, self.most_bytes.to_string());
        flags
    }

    /// Sets a flag, given without its dashes and its end.
    ///
    /// # Errors
    /// When there is no such flag, or it has no such value.
    pub fn set(&mut self, flag: &str, value: &str) -> Result<(), LabError> {
        let wrong = |expected: &str| LabError::Parameter(format!("--{flag} {value}: expected {expected}"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong("a whole number"));
        let ns = |text: &str| {
            let duration = Duration::from_nanos(number(text)?);
            if duration <= LONGEST { Ok(duration) } else { Err(wrong("an hour in nanoseconds at most")) }
        };
        let numbers = |text: &str| {
            read_list(text).ok_or_else(|| wrong("ascending numbers from 1, such as 3,5-9; 100000 at most"))
        };
        match flag {
            "delay" => self.delay = ns(value)?,
            "jitter" => self.jitter = ns(value)?,
            "shape" => {
                self.shape = match value {
                    "uniform" => Shape::Uniform,
                    "exponential" => Shape::Exponential,
                    _ => return Err(wrong("uniform or exponential")),
                }
            }
            "overtake" => {
                self.overtake = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(wrong("yes or no")),
                }
            }
            "spike" => {
                let (every, by) = value.split_once(',').ok_or_else(|| wrong("EVERY,NS"))?;
                (self.spike_every, self.spike) = (number(every)?, ns(by)?);
            }
            "late" => self.late = numbers(value)?,
            "late-by" => self.late_by = ns(value)?,
            "rate" => {
                let rate = number(value)?;
                self.rate_bytes_per_s = Some(rate).filter(|rate| *rate > 0);
            }
            "queue" => self.queue_bytes = number(value)?,
            "loss" => {
                let share = value.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                self.loss = share.ok_or_else(|| wrong("a share from 0 to 1"))?;
            }
            "drop" => self.drop = numbers(value)?,
            "hole" => self.hole = numbers(value)?,
            "largest" => self.largest_bytes = number(value)?,
            "twice" => self.twice = numbers(value)?,
            "swap" => self.swap = numbers(value)?,
            "clump" => self.clump = ns(value)?,
            "count" => {
                self.count = match value {
                    "payload" => Count::Payload,
                    "syn" => Count::Syn,
                    _ => return Err(wrong("payload or syn")),
                }
            }
            "least" => self.least_bytes = number(value)?,
            "most" => self.most_bytes = number(value)?,
            _ => return Err(LabError::Parameter(format!("the line has no flag --{flag}"))),
        }
        Ok(())
    }
}

/// Numbers separated by commas, consecutive ones as a range.
fn list(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

fn read_list(text: &str) -> Option<Vec<u64>> {
    let mut numbers: Vec<u64> = Vec::new();
    for word in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let ascends = first <= last && numbers.last().copied().unwrap_or(0) < first;
        let fits = last.saturating_sub(first) < (MOST_NAMED - numbers.len()) as u64;
        if !(ascends && fits) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::btree_set(1..200_u64, 0..20).prop_map(|set| set.into_iter().collect())
    }

    prop_compose! {
        fn ways()(
            times in proptest::collection::vec(0..3_600_000_000_000_u64, 5),
            flags in proptest::collection::vec(any::<bool>(), 3),
            spike_every in 0..50_u64,
            rate in proptest::option::of(1..u64::MAX),
            sizes in proptest::collection::vec(any::<u64>(), 4),
            loss in 0.0..=1.0,
            lists in proptest::collection::vec(numbers(), 5),
        ) -> Way {
            let [late, drop, hole, twice, swap] = lists.try_into().expect("four");
            let time = |at: usize| Duration::from_nanos(times[at]);
            Way {
                delay: time(0),
                jitter: time(1),
                shape: if flags[0] { Shape::Exponential } else { Shape::Uniform },
                overtake: flags[1],
                spike_every,
                spike: if spike_every > 0 { time(2) } else { Duration::ZERO },
                late,
                late_by: time(3),
                rate_bytes_per_s: rate,
                queue_bytes: sizes[0],
                loss,
                drop,
                hole,
                largest_bytes: sizes[3],
                twice,
                swap,
                clump: time(4),
                count: if flags[2] { Count::Syn } else { Count::Payload },
                least_bytes: sizes[1],
                most_bytes: sizes[2],
            }
        }
    }

    proptest! {
        #[test]
        fn flags_say_all_of_it(way in ways()) {
            let mut read = Way::default();
            for pair in way.flags('a').chunks(2) {
                let name = pair[0].strip_prefix("--").and_then(|name| name.strip_suffix("-a")).expect("a flag");
                read.set(name, &pair[1]).expect("its own flags");
            }
            prop_assert_eq!(read, way);
        }

        #[test]
        fn any_text_is_taken_or_refused(flag in "[a-z-]{0,10}", value in ".{0,40}") {
            let flags = ["late", "drop", "spike", "loss", "rate", "delay", flag.as_str()];
            for flag in flags {
                let _ = Way::default().set(flag, &value);
            }
        }
    }

    #[test]
    fn lists_are_ascending_and_bounded() {
        assert_eq!(read_list("3,5-7,9"), Some(vec![3, 5, 6, 7, 9]));
        assert_eq!(read_list(""), Some(vec![]));
        for wrong in ["0", "3,3", "5-4", "4,", "1-100001", "1-18446744073709551615", "a", "-"] {
            assert_eq!(read_list(wrong), None, "{wrong}");
        }
    }
}
