//! `/proc/stat`: what each CPU did since boot, in ticks of `USER_HZ` (1/100 s on all that this program runs on).

use super::figures::count;
use crate::{FactError, Known};
use std::collections::BTreeMap;

/// Where it is.
pub const PATH: &str = "/proc/stat";

/// What a CPU did, in ticks. The time of guests is in that of programs; nothing is counted twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In programs, and in the kernel on their behalf: user, nice and system.
    pub busy: u64,
    /// Idle, also while something waits for a disk. The kernel may take iowait back: this can fall.
    pub idle: u64,
    /// In interrupt handlers.
    pub irq: u64,
    /// In softirqs, `ksoftirqd` included.
    pub softirq: u64,
    /// Kept away by the hypervisor.
    pub steal: u64,
}

impl Times {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.busy + self.idle + self.irq + self.softirq + self.steal
    }

    /// What came since.
    pub fn since(&self, before: &Times) -> Times {
        Times {
            busy: self.busy.saturating_sub(before.busy),
            idle: self.idle.saturating_sub(before.idle),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// Together.
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

/// The lines of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Of the whole machine, CPUs that are offline now included; `None` where that line is missing.
    pub all: Option<Times>,
    /// By CPU, those that are online, but for lines of another form.
    pub cpus: BTreeMap<u32, Times>,
    /// Those: what was found in their place.
    pub bad: Vec<FactError>,
}

impl Stat {
    /// What each CPU did, for those who need all of them.
    ///
    /// # Errors
    /// The first line that is of another form.
    pub fn whole(self) -> Known<BTreeMap<u32, Times>> {
        self.bad.into_iter().next().map_or(Ok(self.cpus), Err)
    }
}

/// Reads it.
///
/// # Errors
/// There is no line of a CPU.
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

/// Context switches of all CPUs since the machine was booted.
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
        // Linux 2.6.11 to .23 has no time of guests, and 2.6.24 to .32 has one figure of it.
        for text in ["cpu0 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8 0\n", "cpu0 1 2 3 4 5 6 7 8 0 0 1 2\n"] {
            assert_eq!(parse(PATH, text).unwrap().cpus[&0].steal, 8, "{text}");
        }
        for bad in
            ["", "cpu  1 2 3 4 5 6 7 8\n", "cpu0 1 2\n", "cpux 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 +8\n"]
        {
            assert!(parse(PATH, bad).and_then(Stat::whole).is_err(), "{bad}");
        }
        // Steal time below zero: a counter that means nothing is not added to any, and hides no other CPU.
        let stat = parse(
            PATH,
            "cpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 18446744073709551615 0 0\ncpu2 1 2 3 4 5 6 7 8\n",
        );
        let stat = stat.unwrap();
        assert_eq!(stat.cpus.keys().copied().collect::<Vec<_>>(), [0, 2]);
        assert!(stat.whole().unwrap_err().to_string().starts_with("/proc/stat, line 2: "));
    }
}
