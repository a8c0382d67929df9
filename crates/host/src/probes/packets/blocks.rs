//! Memory that the program fills and this process maps: blocks of packets, what each CPU has done, and the packets that open
//! or close connections. The program never waits for this side: whatever is read is copied first, and counts only if it was not
//! overwritten meanwhile.

#![allow(unsafe_code)]

use crate::probes::mapping::Mapping;
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// Packets that open or close connections and are not read yet, at most.
const OPENINGS: u64 = 8192;
const OPENING_BYTES: usize = 128;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// `struct record`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RawRecord {
    after_low: u32,
    interface: u32,
    length_and_after_high: u32,
    kept: u16,
    kind: u8,
    version: u8,
}

impl RawRecord {
    /// Time after the first packet of its block, nanoseconds.
    fn after_ns(&self) -> u64 {
        u64::from(self.length_and_after_high >> 24) << 32 | u64::from(self.after_low)
    }

    fn show<'a>(&self, mono_ns: u64, data: &'a [u8]) -> Record<'a> {
        Record {
            mono_ns,
            length: self.length_and_after_high & 0x00ff_ffff,
            interface: self.interface,
            protocol: if self.version == 4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 },
            kind: self.kind,
            data,
        }
    }
}

/// `struct block_head`.
#[repr(C)]
struct Head {
    number: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    used: AtomicU32,
    cpu: AtomicU32,
    spare: [u64; 4],
}

#[repr(C, align(8))]
struct Block {
    head: Head,
    records: [u8; BLOCK_BYTES - size_of::<Head>()],
}

/// `struct opening`.
#[repr(C)]
struct OpeningEntry {
    stamp: AtomicU64,
    time_ns: u64,
    record: RawRecord,
    data: [u8; OPENING_BYTES],
}

/// `struct packets_state`.
#[repr(C)]
struct State {
    number: AtomicU64,
    index: u32,
    used: u32,
    packets: AtomicU64,
    bytes: AtomicU64,
    overwritten_ns: AtomicU64,
    torn: AtomicU64,
    first_ns: u64,
    spare: u64,
}

/// `struct packets_shared`.
#[repr(C)]
struct Shared {
    taken: AtomicU64,
    spare: [u64; 7],
    openings: AtomicU64,
    others: [u64; 7],
    snap_bytes: AtomicU32,
    last: [u32; 15],
}

/// A packet, without its link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// When it passed, nanoseconds of CLOCK_MONOTONIC.
    pub mono_ns: u64,
    /// Length of the packet in bytes.
    pub length: u32,
    /// Index of the interface.
    pub interface: u32,
    /// Its EtherType.
    pub protocol: u16,
    /// Its direction, as `sll_pkttype` has it.
    pub kind: u8,
    /// Its beginning, from the network header on.
    pub data: &'a [u8],
}

/// What the programs of all CPUs have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets kept so far.
    pub packets: u64,
    /// Bytes that these took.
    pub bytes: u64,
    /// Packets that were lost because their CPU stood still while the others filled all of the memory.
    pub torn: u64,
    /// Time of the last packet that was overwritten by a younger one; 0: none was.
    pub overwritten_ns: u64,
}

/// The mapped memory.
pub(super) struct Blocks {
    blocks: Mapping,
    states: Mapping,
    shared: Mapping,
    openings: Mapping,
    number: usize,
    cpus: usize,
    openings_read: u64,
}

impl Blocks {
    /// Maps the maps of the same names.
    pub fn map(
        [blocks, states, shared, openings]: [BorrowedFd<'_>; 4],
        number: usize,
        cpus: usize,
    ) -> io::Result<Blocks> {
        Ok(Blocks {
            blocks: Mapping::new(blocks, number * size_of::<Block>(), false)?,
            states: Mapping::new(states, cpus * size_of::<State>(), false)?,
            shared: Mapping::new(shared, size_of::<Shared>(), true)?,
            openings: Mapping::new(openings, OPENINGS as usize * size_of::<OpeningEntry>(), false)?,
            number,
            cpus,
            openings_read: 0,
        })
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping has one of them; what programs write is read only as atomics.
        unsafe { self.shared.entry::<Shared>(0).as_ref() }
    }

    fn head(&self, index: usize) -> &Head {
        // SAFETY: `entry` checks that the mapping has it; a head is read only as atomics.
        unsafe { self.blocks.entry::<Block>(index).cast::<Head>().as_ref() }
    }

    /// Keeps at most this many bytes of each packet from now on.
    pub fn keep_at_most(&self, snap_bytes: u32) {
        self.shared().snap_bytes.store(snap_bytes, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        (0..self.cpus).fold(Counts::default(), |sum, cpu| {
            // SAFETY: `entry` checks that the mapping has it; what is read of a state is read as atomics.
            let state = unsafe { self.states.entry::<State>(cpu).as_ref() };
            Counts {
                packets: sum.packets + state.packets.load(Ordering::Relaxed),
                bytes: sum.bytes + state.bytes.load(Ordering::Relaxed),
                torn: sum.torn + state.torn.load(Ordering::Relaxed),
                overwritten_ns: sum.overwritten_ns.max(state.overwritten_ns.load(Ordering::Acquire)),
            }
        })
    }

    /// Blocks that hold packets.
    pub fn filled(&self) -> usize {
        usize::try_from(self.shared().taken.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(self.number)
    }

    /// Time of the last packet.
    pub fn last_ns(&self) -> Option<u64> {
        let last = |index| self.head(index).last_ns.load(Ordering::Relaxed);
        (0..self.filled()).map(last).max().filter(|last_ns| *last_ns > 0)
    }

    /// Shows the packets of those blocks that `wants`, by the times of their first and their last packet, in order of time.
    pub fn between<E>(
        &self,
        wants: impl Fn(u64, u64) -> bool,
        mut take: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut of_cpus = BTreeMap::<u32, Vec<(u64, usize)>>::new();
        for index in 0..self.filled() {
            let head = self.head(index);
            let number = head.number.load(Ordering::Acquire);
            let times = [&head.first_ns, &head.last_ns].map(|ns| ns.load(Ordering::Relaxed));
            if number > 0 && times[0] > 0 && wants(times[0], times[1]) {
                of_cpus.entry(head.cpu.load(Ordering::Relaxed)).or_default().push((number, index));
            }
        }
        // On one CPU, time passes from packet to packet; what several CPUs saw is merged.
        let mut cursors: Vec<Cursor> = of_cpus.into_values().map(Cursor::new).collect();
        cursors.retain_mut(|cursor| cursor.go_on(self));
        while let Some(first) = (0..cursors.len()).min_by_key(|n| cursors[*n].next_ns()) {
            take(&cursors[first].record())?;
            cursors[first].at += record_bytes(&cursors[first].next);
            if !cursors[first].go_on(self) {
                cursors.swap_remove(first);
            }
        }
        Ok(())
    }

    /// Copies a block, unless another one has taken its place. Returns the bytes used.
    fn copy(&self, (number, index): (u64, usize), to: &mut Vec<u64>) -> Option<usize> {
        let head = self.head(index);
        if head.number.load(Ordering::Acquire) != number {
            return None;
        }
        let used = (head.used.load(Ordering::Acquire) as usize).min(BLOCK_BYTES);
        let from = self.blocks.entry::<Block>(index).cast::<u64>();
        to.clear();
        // SAFETY: `used` is within the block. The program may write to it at the same time; then what was read is dropped below.
        to.extend((0..used / 8).map(|word| unsafe { from.add(word).read_volatile() }));
        fence(Ordering::Acquire);
        (head.number.load(Ordering::Relaxed) == number).then_some(used)
    }

    /// Shows the packets that opened or closed a connection since the last call, without their payload. Returns how many were
    /// overwritten before.
    pub fn openings(&mut self, mut see: impl FnMut(&Record<'_>)) -> u64 {
        let head = self.shared().openings.load(Ordering::Acquire);
        let lost = head.saturating_sub(self.openings_read).saturating_sub(OPENINGS);
        self.openings_read += lost;
        let mut torn = 0;
        while self.openings_read < head {
            let entry = self.openings.entry::<OpeningEntry>((self.openings_read % OPENINGS) as usize);
            // SAFETY: `entry` checks that the mapping has it. The program may write to it at the same time, which its stamp tells
            // before and after.
            let (before, copy, after) = unsafe {
                let stamp = &(*entry.as_ptr()).stamp;
                let before = stamp.load(Ordering::Acquire);
                let time_ns = (&raw const (*entry.as_ptr()).time_ns).read_volatile();
                let record = (&raw const (*entry.as_ptr()).record).read_volatile();
                let data = (&raw const (*entry.as_ptr()).data).read_volatile();
                fence(Ordering::Acquire);
                (before, (time_ns, record, data), stamp.load(Ordering::Relaxed))
            };
            // Not written yet: a CPU has the place, and has not come further.
            if before <= self.openings_read {
                break;
            }
            self.openings_read += 1;
            if before != self.openings_read || after != before {
                torn += 1;
                continue;
            }
            let (time_ns, record, data) = copy;
            let kept = usize::from(record.kept).min(OPENING_BYTES);
            see(&record.show(time_ns, &data[..kept]));
        }
        lost + torn
    }
}

fn record_bytes(record: &RawRecord) -> usize {
    (size_of::<RawRecord>() + usize::from(record.kept)).next_multiple_of(8)
}

/// Where the reader is among the blocks of a CPU.
struct Cursor {
    /// Blocks that follow, the next one last.
    waiting: Vec<(u64, usize)>,
    copy: Vec<u64>,
    used: usize,
    at: usize,
    /// Time of the block's first packet.
    first_ns: u64,
    next: RawRecord,
}

impl Cursor {
    fn new(mut waiting: Vec<(u64, usize)>) -> Cursor {
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        Cursor { waiting, copy: Vec::new(), used: 0, at: 0, first_ns: 0, next: RawRecord::default() }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the same memory, as bytes.
        unsafe { std::slice::from_raw_parts(self.copy.as_ptr().cast(), self.copy.len() * 8) }
    }

    /// Goes to the packet at `at`, or to the first one of the next block. Whether there is one.
    fn go_on(&mut self, blocks: &Blocks) -> bool {
        loop {
            let bytes = self.bytes();
            if self.at + size_of::<RawRecord>() <= self.used.min(bytes.len()) {
                // SAFETY: the bytes are there, aligned to eight, and any bytes are a record.
                self.next = unsafe { bytes.as_ptr().add(self.at).cast::<RawRecord>().read() };
                if self.at + record_bytes(&self.next) <= self.used {
                    return true;
                }
            }
            let Some(block) = self.waiting.pop() else { return false };
            self.used = blocks.copy(block, &mut self.copy).unwrap_or(0);
            self.at = size_of::<Head>();
            self.first_ns = self.copy.get(offset_of!(Head, first_ns) / 8).copied().unwrap_or(0);
        }
    }

    fn next_ns(&self) -> u64 {
        self.first_ns + self.next.after_ns()
    }

    fn record(&self) -> Record<'_> {
        let from = self.at + size_of::<RawRecord>();
        self.next.show(self.next_ns(), &self.bytes()[from..from + usize::from(self.next.kept)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::skeletons::packets::types;

    #[test]
    fn a_record_has_its_length_and_a_time_of_more_than_32_bits() {
        let record = RawRecord {
            after_low: 7,
            length_and_after_high: 2 << 24 | 0x00ab_cdef,
            version: 6,
            ..RawRecord::default()
        };
        let shown = record.show(1_000 + record.after_ns(), &[1, 2]);
        assert_eq!((shown.mono_ns, shown.length), (1_007 + (2 << 32), 0x00ab_cdef));
        assert_eq!((shown.protocol, shown.data), (ETHERTYPE_IPV6, &[1, 2][..]));
        let record = RawRecord { version: 4, ..record };
        assert_eq!(record.show(0, &[]).protocol, ETHERTYPE_IPV4);
    }

    /// The skeleton's types come from the BTF of the compiled program.
    #[test]
    fn both_sides_have_the_same_layout() {
        macro_rules! same {
            ($ours:ty, $theirs:ty: $($field:ident)*) => {
                assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
                $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $field), stringify!($field));)*
            };
        }
        same!(RawRecord, types::record: after_low interface length_and_after_high kept version);
        same!(Head, types::block_head: number first_ns last_ns used cpu);
        same!(Block, types::block: head records);
        same!(OpeningEntry, types::opening: stamp time_ns record data);
        same!(State, types::packets_state: number packets bytes overwritten_ns torn);
        same!(Shared, types::packets_shared: taken openings snap_bytes);
    }
}
