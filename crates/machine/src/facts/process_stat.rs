//! `/proc/PID/stat`, of a process or thread: its name in parentheses, which may contain parentheses and blanks,
//! then numbers.

use crate::{FactError, Known, read_here};

/// File name in a process's or thread's folder.
pub const NAME: &str = "stat";

/// A kernel thread: flags from `include/linux/sched.h`.
const PF_KTHREAD: u32 = 0x0020_0000;
/// Its affinity is immutable.
const PF_NO_SETAFFINITY: u32 = 0x0400_0000;
/// The kernel is closing its descriptors.
const PF_EXITING: u32 = 0x0000_0004;

/// Facts about a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name, cut by the kernel to 15 bytes; a thread may have one of its own.
    pub comm: String,
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub state: char,
    flags: u32,
    /// Its own CPU time, in ticks of `USER_HZ`.
    pub own_ticks: u64,
    /// Its own CPU time and that of the children it has waited for, in ticks of `USER_HZ`.
    pub cpu_ticks: u64,
    /// Start time, in ticks since boot: together with the id, it identifies the process forever.
    pub start_ticks: u64,
}

impl ProcessStat {
    /// Whether it is a kernel thread.
    pub fn is_kernels(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether its affinity is immutable.
    pub fn is_bound(&self) -> bool {
        self.flags & PF_NO_SETAFFINITY != 0
    }

    /// Whether the kernel is closing its descriptors; the flag is set before it begins to.
    pub fn is_ending(&self) -> bool {
        self.flags & PF_EXITING != 0
    }

    /// Whether it is a zombie.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it is stopped by a signal or traced.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Parses it.
///
/// # Errors
/// Malformed.
pub fn parse(path: &str, text: &str) -> Known<ProcessStat> {
    let bad = || FactError::malformed(path, 0, text, "an id, a name in brackets, and 20 more fields");
    let (head, rest) = text.rsplit_once(')').ok_or_else(bad)?;
    let (_, comm) = head.split_once('(').ok_or_else(bad)?;
    // Numbered as in its manual page: the first field after the name is the third.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied().ok_or_else(bad);
    // The kernel writes the children's times as signed numbers.
    let ticks = |number| Ok(field(number)?.parse::<i64>().map_err(|_| bad())?.max(0) as u64);
    let own_ticks: u64 = ticks(14)?.saturating_add(ticks(15)?);
    let mut letters = field(3)?.chars();
    let (Some(state), None) = (letters.next(), letters.next()) else { return Err(bad()) };
    Ok(ProcessStat {
        comm: comm.to_owned(),
        state,
        flags: field(9)?.parse().map_err(|_| bad())?,
        own_ticks,
        cpu_ticks: own_ticks.saturating_add(ticks(16)?).saturating_add(ticks(17)?),
        start_ticks: field(22)?.parse().map_err(|_| bad())?,
    })
}

/// A process or thread of this machine; `None` if it does not exist.
///
/// # Errors
/// Unreadable or malformed.
pub fn of(pid: u32) -> Known<Option<ProcessStat>> {
    match read_here(&format!("/proc/{pid}/{NAME}"), parse) {
        Err(error) if error.is_absent() => Ok(None),
        stat => stat.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_flags() {
        let line = |comm: &str, state: &str, flags: u32| {
            format!("7 ({comm}) {state} 1 1 1 0 -1 {flags} 102 0 0 0 10 1 2 -1 20 0 1 0 4711 3133440 394\n")
        };
        let stat = parse("/proc/7/stat", &line("a (b) c", "S", PF_KTHREAD | PF_NO_SETAFFINITY)).unwrap();
        assert_eq!((stat.comm.as_str(), stat.state, stat.start_ticks), ("a (b) c", 'S', 4711));
        assert_eq!((stat.is_kernels(), stat.is_bound(), stat.is_ending()), (true, true, false));
        assert_eq!((stat.own_ticks, stat.cpu_ticks, stat.is_dead()), (11, 13, false));
        let dead = parse("/proc/7/stat", &line(") Z 1 (", "Z", PF_EXITING)).unwrap();
        assert_eq!((dead.comm.as_str(), dead.is_dead(), dead.is_ending()), (") Z 1 (", true, true));
        assert!(parse("/proc/7/stat", &line("x", "t", 0)).unwrap().is_stopped());
    }

    #[test]
    fn of_linux_6_18_and_of_2_6() {
        let now = "15057 (cat) R 15044 15044 1556 0 -1 4194304 102 0 0 0 3 4 0 0 20 0 1 0 1272668 3133440 394 \
            18446744073709551615 93860686708736 93860686728617 140735360175968 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 \
            93860686744624 93860686746240 93860709797888 140735360182770 140735360182790 140735360182790 140735360184299 0\n";
        assert_eq!(parse("/p", now).unwrap().start_ticks, 1_272_668);
        let old = "1 (init) S 0 1 1 0 -1 4202752 3165 1209421 21 2115 5 283 3110 1553 20 0 1 0 3 19869696 387 \
            18446744073709551615 1 1 0 0 0 0 0 4096 536962595 18446744073709551615 0 0 0 0 0 0 7 0 0\n";
        let old = parse("/p", old).unwrap();
        assert_eq!((old.start_ticks, old.cpu_ticks), (3, 5 + 283 + 3110 + 1553));
    }

    #[test]
    fn other_texts_are_told() {
        for bad in [
            "",
            "32 (x\n",
            "32 x) S",
            "7 (x) S 1 1\n",
            "7 (x) SS 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0\n",
        ] {
            let error = parse("/proc/32/stat", bad).unwrap_err().to_string();
            assert!(error.starts_with("/proc/32/stat, line 1: found "), "{error}");
        }
    }

    #[test]
    fn this_process_and_a_missing_one() {
        let own = of(std::process::id()).expect("/proc is there").expect("this one runs");
        assert!(own.start_ticks > 0 && !own.is_kernels() && !own.is_dead());
        assert_eq!(of(u32::MAX), Ok(None));
    }
}
