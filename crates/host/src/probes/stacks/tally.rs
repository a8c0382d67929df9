//! Aggregated samples: each distinct chain once, in bounded memory.

use super::context::{Context, Marks, call_site};
use crate::symbols::Symbols;
use std::collections::{BTreeMap, HashMap};

/// Classified samples of one CPU. `received = kept + application + idle`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Samples due in the time that this CPU was sampled.
    pub expected: u64,
    /// Samples that arrived.
    pub received: u64,
    /// Samples of others than the application.
    pub kept: u64,
    /// Samples of the application itself, in user mode or in its system calls.
    pub application: u64,
    /// Samples of an idle CPU.
    pub idle: u64,
    /// Samples and other records that found no room in the ring.
    pub lost: u64,
    /// How often the kernel throttled sampling because samples came too fast.
    pub throttled: u64,
    /// Chains longer than the kernel records: their roots are missing.
    pub truncated: u64,
    /// Kept samples without a chain, because there were too many distinct ones.
    pub not_told_apart: u64,
}

/// Kept samples of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Execution context.
    pub context: Context,
    /// Whether it was user mode; the chain is then empty.
    pub user: bool,
    /// Current process, interrupted or not.
    pub tgid: u32,
    pub cpu: u32,
    /// Index of the call chain.
    chain: u32,
}

/// Approximate memory limit for distinct chains.
const MAX_CHAIN_BYTES: usize = 64 << 20;
/// Stands for all chains that found no room.
const OTHER_CHAINS: u32 = u32::MAX;
/// Bytes that a chain takes in addition to its frames.
const CHAIN_OVERHEAD: usize = 120;

/// Aggregates samples.
pub struct Tally {
    marks: Marks,
    /// Bottom functions of an idle CPU; empty without symbols.
    idle: Vec<std::ops::Range<u64>>,
    application: Vec<u32>,
    max_frames: usize,
    chains: HashMap<Box<[u64]>, u32>,
    chain_bytes: usize,
    counts: HashMap<Key, u64>,
    cpus: BTreeMap<u32, CpuCounts>,
}

impl Tally {
    /// `application`: processes whose own samples are dropped; `max_frames`: length at which the kernel
    /// truncates chains.
    pub fn new(symbols: &Symbols, application: &[u32], max_frames: usize) -> Tally {
        let idle = symbols.ranges(|name| matches!(name, "do_idle" | "cpu_startup_entry").then_some(()));
        Tally {
            marks: Marks::find(symbols),
            idle: idle.into_iter().map(|(range, ())| range).collect(),
            application: application.to_vec(),
            max_frames,
            chains: HashMap::new(),
            chain_bytes: 0,
            counts: HashMap::new(),
            cpus: BTreeMap::new(),
        }
    }

    /// Counts of one CPU.
    pub fn cpu(&mut self, cpu: u32) -> &mut CpuCounts {
        self.cpus.entry(cpu).or_default()
    }

    /// Counts of every CPU.
    pub fn cpus(&self) -> &BTreeMap<u32, CpuCounts> {
        &self.cpus
    }

    /// Whether interrupts can be distinguished from the code they interrupt.
    pub fn tells_contexts(&self) -> bool {
        self.marks.usable()
    }

    /// Adds a sample.
    pub fn add(&mut self, cpu: u32, tgid: u32, user: bool, frames: &[u64]) {
        let (context, about) = if user { (Context::Thread, 0) } else { self.marks.context(frames) };
        let idle = context == Context::Thread && tgid == 0 && !user && self.is_idle(frames);
        let application = context == Context::Thread && self.application.contains(&tgid);
        let truncated = frames.len() >= self.max_frames;
        let chain = if idle || application {
            None
        } else {
            Some(self.chain(if user { &[] } else { &frames[..about] }))
        };
        let counts = self.cpu(cpu);
        counts.received += 1;
        counts.truncated += u64::from(truncated);
        match chain {
            None if idle => counts.idle += 1,
            None => counts.application += 1,
            Some(chain) => {
                counts.kept += 1;
                counts.not_told_apart += u64::from(chain == OTHER_CHAINS);
                *self.counts.entry(Key { context, user, tgid, cpu, chain }).or_default() += 1;
            }
        }
    }

    /// Process 0 may also be one of another pid namespace, whose chain then does not come from the idle loop.
    /// Without symbols, or with a truncated root, the two cannot be distinguished.
    fn is_idle(&self, frames: &[u64]) -> bool {
        let of_idle = |index| {
            let address = call_site(frames, index);
            self.idle.iter().any(|range| range.contains(&address))
        };
        self.idle.is_empty() || frames.len() >= self.max_frames || (0..frames.len()).any(of_idle)
    }

    fn chain(&mut self, frames: &[u64]) -> u32 {
        if let Some(&chain) = self.chains.get(frames) {
            return chain;
        }
        let bytes = size_of_val(frames) + CHAIN_OVERHEAD;
        if self.chain_bytes + bytes > MAX_CHAIN_BYTES {
            return OTHER_CHAINS;
        }
        self.chain_bytes += bytes;
        let chain = self.chains.len() as u32;
        self.chains.insert(frames.into(), chain);
        chain
    }

    /// Groups of like samples, with their frames (leaf first) and their number; `None` for frames that found no
    /// room.
    pub fn kept(&self) -> Vec<(Key, Option<&[u64]>, u64)> {
        let mut chains = vec![&[][..]; self.chains.len()];
        for (frames, &chain) in &self.chains {
            chains[chain as usize] = frames;
        }
        let mut kept: Vec<_> = self
            .counts
            .iter()
            .map(|(key, &samples)| (*key, chains.get(key.chain as usize).copied(), samples))
            .collect();
        kept.sort_unstable_by_key(|(key, _, samples)| (std::cmp::Reverse(*samples), *key));
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DO_IDLE: u64 = 0x1010;
    const NET_RX: u64 = 0x2010;
    const SOFTIRQ: u64 = 0x3010;
    const EXIT: u64 = 0x4010;
    const SEND: u64 = 0x5010;

    fn tally(application: &[u32]) -> Tally {
        let symbols = Symbols::parse(
            "1000 T do_idle\n2000 T net_rx_action\n3000 T handle_softirqs\n4000 T __irq_exit_rcu\n5000 T tcp_sendmsg\n",
        );
        Tally::new(&symbols, application, 4)
    }

    #[test]
    fn application_samples_are_dropped_but_interrupts_kept() {
        let mut tally = tally(&[7]);
        tally.add(1, 7, true, &[]);
        tally.add(1, 7, false, &[SEND]);
        tally.add(1, 7, false, &[NET_RX, SOFTIRQ, EXIT]);
        tally.add(1, 8, true, &[]);
        tally.add(1, 8, false, &[SEND]);
        tally.add(0, 0, false, &[DO_IDLE]);
        tally.add(0, 0, false, &[NET_RX, SOFTIRQ, EXIT, DO_IDLE]);
        let kept = tally.kept();
        assert_eq!(kept.iter().map(|(.., samples)| samples).sum::<u64>(), 4);
        let of =
            |cpu, tgid| kept.iter().find(|(key, ..)| (key.cpu, key.tgid, key.user) == (cpu, tgid, false));
        let (key, frames, 1) = of(1, 7).unwrap() else { panic!("{kept:?}") };
        assert_eq!((key.context, *frames), (Context::SoftirqAfterInterrupt, Some(&[NET_RX, SOFTIRQ][..])));
        assert!(of(0, 0).is_some() && of(1, 8).is_some());
        let cpu = tally.cpus()[&1];
        assert_eq!((cpu.received, cpu.kept, cpu.application, cpu.idle), (5, 3, 2, 0));
        let cpu = tally.cpus()[&0];
        assert_eq!((cpu.received, cpu.kept, cpu.idle, cpu.truncated), (2, 1, 1, 1));
    }

    #[test]
    fn process_of_another_pid_namespace_is_not_idle() {
        let mut tally = tally(&[]);
        tally.add(0, 0, false, &[SEND]);
        tally.add(0, 0, true, &[]);
        assert_eq!((tally.cpus()[&0].kept, tally.cpus()[&0].idle), (2, 0));
        // Without symbols the two cannot be distinguished.
        let mut blind = Tally::new(&Symbols::default(), &[], 127);
        blind.add(0, 0, false, &[SEND]);
        assert_eq!(blind.cpus()[&0].idle, 1);
        assert!(!blind.tells_contexts());
    }

    #[test]
    fn chains_beyond_the_limit_are_counted_together() {
        let mut tally = tally(&[]);
        tally.add(0, 9, false, &[1, 2]);
        tally.chain_bytes = MAX_CHAIN_BYTES;
        tally.add(0, 9, false, &[3, 4]);
        tally.add(0, 9, false, &[1, 2]);
        let kept = tally.kept();
        assert_eq!(kept[0].1.zip(Some(kept[0].2)), Some((&[1u64, 2][..], 2)));
        assert_eq!((kept[1].1, kept[1].2), (None, 1));
        assert_eq!(tally.cpus()[&0].not_told_apart, 1);
    }
}
