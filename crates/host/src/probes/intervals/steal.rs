//! Steal time, from `/proc/stat`.

use spangap_machine::facts::stat;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// An increase of one CPU's steal time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    pub cpu: u16,
    pub ns: u64,
}

/// Steal time of all CPUs since the last poll. The kernel counts in ticks, usually of 10 ms.
#[derive(Debug)]
pub(super) struct Steal {
    file: File,
    text: String,
    tick_ns: u64,
    /// Last value by CPU, in ticks.
    seen: Vec<Option<u64>>,
}

impl Steal {
    pub fn open(path: &Path) -> io::Result<Steal> {
        let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
        let file = File::open(path)?;
        let mut steal =
            Steal { file, text: String::new(), tick_ns: 1_000_000_000 / ticks_per_s, seen: Vec::new() };
        steal.look(&mut |_| ())?;
        Ok(steal)
    }

    /// Whether this machine has ever had steal time.
    pub fn is_known_here(&self) -> bool {
        self.seen.iter().flatten().any(|&ticks| ticks > 0)
    }

    /// Reports each CPU whose steal time has grown.
    pub fn look(&mut self, on: &mut dyn FnMut(Grown)) -> io::Result<()> {
        self.text.clear();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_string(&mut self.text)?;
        // A CPU whose line is malformed is skipped; so are all if the file is missing.
        let stat = stat::parse(stat::PATH, &self.text).unwrap_or_default();
        for (cpu, times) in &stat.cpus {
            let Ok(cpu) = u16::try_from(*cpu) else { continue };
            let (place, ticks) = (usize::from(cpu), times.steal);
            if self.seen.len() <= place {
                self.seen.resize(place + 1, None);
            }
            // The counter of a CPU that goes offline and comes back may restart.
            if let Some(grown) = self.seen[place].and_then(|before| ticks.checked_sub(before))
                && grown > 0
            {
                on(Grown { cpu, ns: grown * self.tick_ns });
            }
            self.seen[place] = Some(ticks);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn growth_is_reported_by_cpu() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stat");
        let stat = |first: u64, second: u64| {
            format!(
                "cpu  1 2 3 4 5 6 7 {} 0 0\ncpu0 1 2 3 4 5 6 7 {first} 0 0\ncpu11 1 2 3 4 5 6 7 {second} 0 0\nintr 5 0\n",
                first + second
            )
        };
        fs::write(&path, stat(0, 0)).unwrap();
        let mut steal = Steal::open(&path).unwrap();
        assert!(!steal.is_known_here());
        fs::write(&path, stat(0, 3)).unwrap();
        let mut grown = Vec::new();
        steal.look(&mut |one| grown.push(one)).unwrap();
        assert_eq!(grown, [Grown { cpu: 11, ns: 3 * steal.tick_ns }]);
        assert!(steal.is_known_here());
        // The CPU was taken offline, and its counter restarted.
        fs::write(&path, stat(0, 1)).unwrap();
        steal.look(&mut |one| panic!("{one:?}")).unwrap();
    }

    #[test]
    fn this_machine_has_a_line_for_each_cpu() {
        let steal = Steal::open(Path::new(stat::PATH)).unwrap();
        assert!(steal.seen.iter().flatten().count() >= 1);
    }
}
