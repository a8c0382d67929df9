//! `/proc/stat`: CPU times since boot, in ticks of `USER_HZ` (1/100 s on all supported architectures).

use super::figures::count;
use crate::{FactError, Known};
use std::collections::BTreeMap;

/// Of the whole machine.
pub const PATH: &str = "/proc/stat";

/// Times of a CPU, in ticks. Guest time is part of user time; nothing is counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Running tasks: user, nice and system.
    pub busy: u64,
    /// Idle, including iowait. The kernel may decrease iowait: this can fall.
    pub idle: u64,
    /// In interrupt handlers.
    pub irq: u64,
    /// In softirqs, including `ksoftirqd`.
    pub softirq: u64,
    /// Withheld by the hypervisor.
    pub steal: u64,
}

impl Times {
    /// Sum of all.
    pub fn total(&self) -> u64 {
        self.busy + self.idle + self.irq + self.softirq + self.steal
    }

    /// Difference to an earlier reading.
    pub fn since(&self, before: &Times) -> Times {
        Times {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// Sum of both.
    pub fn plus(&self, other: &Times) -> Times {
        Times {
            busy: self.busy + other.busy,
            idle: self.idle + other.idle,
            irq: self.irq + other.irq,
            softirq: self.softirq + other.softirq,
            steal: self.steal + other.steal,
        }
    }
}

/// The CPU lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Whole machine, including CPUs that are now offline; `None` if that line is missing.
    pub all: Option<Times>,
    /// By online CPU, except for malformed lines.
    pub cpus: BTreeMap<u32, Times>,
    /// Errors of the malformed lines.
    pub bad: Vec<FactError>,
}

impl Stat {
    /// Times of each CPU, for callers that need them complete.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn whole(self) -> Known<BTreeMap<u32, Times>> {
        self.bad.into_iter().next().map_or(Ok(self.cpus), Err)
    }
}

/// Parses it.
///
/// # Errors
/// There is no CPU line.
pub fn parse(path: &str, text: &str) -> Known<Stat> {
    let mut stat = Stat::default();
    for (at, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(cpu) = words.next().and_then(|name| name.strip_prefix("cpu")) else { continue };
        match (times(words), cpu.parse()) {
            (Some(times), _) if cpu.is_empty() => stat.all = Some(times),
            (Some(times), Ok(cpu)) => drop(stat.cpus.insert(cpu, times)),
            _ => {
                let expected = "cpuN and at least 8 figures in ticks";
                stat.bad.push(FactError::malformed(path, at, line, expected));
            }
        }
    }
    if stat.cpus.is_empty() && stat.bad.is_empty() {
        return Err(FactError::malformed(path, 0, text, "lines cpu0, cpu1, ..."));
    }
    Ok(stat)
}

/// Context switches on all CPUs since boot.
///
/// # Errors
/// There is no line `ctxt` with a figure.
pub fn switches(path: &str, text: &str) -> Known<u64> {
    let figure = text.lines().find_map(|line| count(line.strip_prefix("ctxt ")?.trim()));
    figure.ok_or_else(|| FactError::malformed(path, 0, text, "a line `ctxt N`"))
}

fn times<'a>(words: impl Iterator<Item = &'a str>) -> Option<Times> {
    let figures: Vec<u64> = words.map(count).collect::<Option<_>>()?;
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = figures.as_slice() else {
        return None;
    };
    Some(Times { busy: user + nice + system, idle: idle + iowait, irq, softirq, steal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cpus() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 0 70 0 0 0\nintr 5\n";
        let stat = parse(PATH, text).unwrap();
        let zero = Times { busy: 6, idle: 9, irq: 6, softirq: 7, steal: 8 };
        assert_eq!(stat.all, Some(Times { busy: 27, idle: 18, irq: 9, softirq: 9, steal: 9 }));
        assert_eq!(stat.cpus, [(0, zero), (10, Times { softirq: 70, ..Times::default() })].into());
        assert_eq!(zero.total(), 36);
    }

    #[test]
    fn the_forms_of_several_kernels_and_others() {
        // Linux 2.6.11 to .23 has no guest time, and 2.6.24 to .32 has a single figure.
        for text in ["cpu0 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8 0\n", "cpu0 1 2 3 4 5 6 7 8 0 0 1 2\n"] {
            assert_eq!(parse(PATH, text).unwrap().cpus[&0].steal, 8, "{text}");
        }
        for bad in
            ["", "cpu  1 2 3 4 5 6 7 8\n", "cpu0 1 2\n", "cpux 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 +8\n"]
        {
            assert!(parse(PATH, bad).and_then(Stat::whole).is_err(), "{bad}");
        }
        // Negative steal time: a meaningless counter is not added to any, and does not affect other CPUs.
        let stat = parse(
            PATH,
            "cpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 18446744073709551615 0 0\ncpu2 1 2 3 4 5 6 7 8\n",
        );
        let stat = stat.unwrap();
        assert_eq!(stat.cpus.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(stat.whole().unwrap_err().to_string().starts_with("/proc/stat, line 2: "));
    }
}
