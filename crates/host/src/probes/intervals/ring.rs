//! Memory shared by the programs and this process: one map with a ring of events per CPU, and one map with the
//! state of each ring. `bpf/event.h` is the other half.
//!
//! A program reserves the next entry of its CPU's ring, fills it, and makes it valid by writing the event's
//! number plus one as its stamp. A hardirq's program may interrupt a softirq's between these steps, so an entry
//! can become valid before its predecessor does. This side reads valid entries in order, and then advances the
//! tail.

#![allow(unsafe_code)]

use crate::probes::mapping::Mapping;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// An event in the program's layout: `struct event`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub time_ns: u64,
    pub a: u64,
    pub b: u32,
    pub c: u32,
    pub kind: u8,
    pub state: u8,
    pub lost: u16,
    pub stamp: u32,
}

/// `struct ring`.
#[repr(C)]
struct Ends {
    head: AtomicU64,
    limit: u64,
    irq_began: AtomicU64,
    irq: u32,
    irq_kind: u8,
    fresh: u8,
    shift: AtomicU16,
    softirq_began: AtomicU64,
    device: u64,
    device_id: u32,
    softirq: AtomicU32,
    packets: [u32; 2],
    lost: AtomicU64,
    spare_of_programs: [u64; 7],
    tail: AtomicU64,
    spare_of_reader: [u64; 7],
}

/// The rings of all CPUs.
pub(super) struct Rings {
    events: Mapping,
    ends: Mapping,
    cpus: usize,
    shift: u32,
}

impl Rings {
    /// Maps `events`, with `cpus << shift` entries, and `rings`, with `cpus` entries.
    pub fn map(events: BorrowedFd<'_>, rings: BorrowedFd<'_>, cpus: usize, shift: u32) -> io::Result<Rings> {
        Ok(Rings {
            events: Mapping::new(events, (cpus << shift) * size_of::<Raw>(), false)?,
            ends: Mapping::new(rings, cpus * size_of::<Ends>(), true)?,
            cpus,
            shift,
        })
    }

    pub fn cpus(&self) -> usize {
        self.cpus
    }

    fn ends(&self, cpu: usize) -> &Ends {
        assert!(cpu < self.cpus, "CPU {cpu} of {}", self.cpus);
        // SAFETY: the mapping holds `cpus` of them, initially zeroed; fields that programs write are read only
        // as atomics.
        unsafe { self.ends.entry::<Ends>(cpu).as_ref() }
    }

    /// Number of the next event that `cpu` will write.
    pub fn head(&self, cpu: usize) -> u64 {
        self.ends(cpu).head.load(Ordering::Acquire)
    }

    /// Since when a softirq has been running on `cpu`, if one is: events that are still to come may be that old. Read it before
    /// [`head`](Self::head).
    pub fn softirq_began(&self, cpu: usize) -> Option<u64> {
        let ends = self.ends(cpu);
        // Set before the clock is read, so what a softirq that begins now will write is younger than this look; until the
        // beginning is there, an earlier softirq's is.
        (ends.softirq.load(Ordering::Acquire) != 0).then(|| ends.softirq_began.load(Ordering::Relaxed))
    }

    /// Tells the programs of all CPUs their shift. If it is odd, they rest.
    pub fn set_shift(&self, shift: u16) {
        (0..self.cpus).for_each(|cpu| self.ends(cpu).shift.store(shift, Ordering::SeqCst));
    }

    /// Forgets which interrupts had begun when the programs were detached: they have ended since.
    pub fn forget_interrupts(&self) {
        for cpu in 0..self.cpus {
            self.ends(cpu).irq_began.store(0, Ordering::Relaxed);
            self.ends(cpu).softirq.store(0, Ordering::Relaxed);
        }
    }

    /// Number of events of `cpu` for which its ring had no room.
    pub fn lost(&self, cpu: usize) -> u64 {
        self.ends(cpu).lost.load(Ordering::Relaxed)
    }

    /// Event `number` of `cpu`, if it is already valid. It stays valid until [`release`](Self::release) passes
    /// it.
    pub fn event(&self, cpu: usize, number: u64) -> Option<Raw> {
        assert!(cpu < self.cpus, "CPU {cpu} of {}", self.cpus);
        let place = (cpu << self.shift) | (number as usize & ((1 << self.shift) - 1));
        // SAFETY: `place` is below `cpus << shift`, which is how many the mapping holds. The last eight bytes are
        // written last and at once, and read as an atomic first; once they are there the program leaves the place
        // alone until the tail passes it.
        unsafe {
            let place = self.events.entry::<Raw>(place);
            let last = place.cast::<AtomicU64>().add(3).as_ref().load(Ordering::Acquire);
            (last >> 32 == (number + 1) & 0xffff_ffff).then(|| place.read_volatile())
        }
    }

    /// Returns the entries of all events of `cpu` before `number` to the program.
    pub fn release(&self, cpu: usize, number: u64) {
        self.ends(cpu).tail.store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::skeletons::intervals::types::{event, ring};
    use std::mem::offset_of;

    /// The skeleton's types come from the BTF of the compiled program.
    #[test]
    fn both_sides_have_the_same_layout() {
        assert_eq!(size_of::<Raw>(), size_of::<event>());
        assert_eq!(size_of::<Raw>(), 32);
        macro_rules! same {
            ($ours:ty, $theirs:ty: $($field:ident)*) => {
                $(assert_eq!(offset_of!($ours, $field), offset_of!($theirs, $field), stringify!($field));)*
            };
        }
        same!(Raw, event: time_ns a b c kind state lost stamp);
        assert_eq!(offset_of!(Raw, kind), 24, "the last eight bytes are written at once");
        same!(Ends, ring: head irq_began shift softirq_began softirq lost tail);
        assert_eq!(size_of::<Ends>(), size_of::<ring>());
        assert_eq!(offset_of!(Ends, tail) % 64, 0, "the reader has a cache line of its own");
        assert_eq!(offset_of!(ring, own) + 4, 64, "what every program needs is in one cache line");
    }
}
