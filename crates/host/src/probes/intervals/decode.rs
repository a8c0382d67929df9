//! Ring entries -> events.

use super::ring::Raw;
use crate::event::{Event, Irq, Left, Sleep, Transfer, Waker, What, Woken};

/// Content of one ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingEntry {
    Event(Event),
    /// A thread's NUL-padded name and its process.
    Name {
        tid: u32,
        tgid: u32,
        comm: [u8; 16],
    },
    /// Cgroup of the thread named just before, and the time of that information.
    Group {
        time_ns: u64,
        tid: u32,
        cgroup: u64,
    },
    /// An interface's name, and the inode of its network namespace.
    Device {
        id: u32,
        network: u32,
        name: [u8; 16],
    },
    /// An entry of a kind unknown to this version.
    Unknown(u8),
}

const SWITCH: u8 = 1;
const SOFTIRQ: u8 = 2;
const HARDIRQ: u8 = 3;
const ARRIVED: u8 = 4;
const READ: u8 = 5;
const WROTE: u8 = 6;
const NAME: u8 = 7;
const GROUP: u8 = 8;
const DEVICE: u8 = 9;
const WOKEN: u8 = 10;
/// Bits of a wake-up's `state`.
const BY: u8 = 15;
const UNINTERRUPTIBLE: u8 = 1 << 4;
const STACK_UNKNOWN: u8 = 1 << 5;
const AS_FOR_A_LOCK: u8 = 1 << 6;
const NEXT_WAS_THROTTLED: u8 = 1 << 7;

/// Decodes an entry of `cpu`'s ring.
pub(super) fn decode(cpu: u16, raw: &Raw) -> RingEntry {
    let Raw { time_ns, a, b, c, kind, state, .. } = *raw;
    let what = match kind {
        SWITCH => What::Switch {
            prev: b,
            left: match state & !NEXT_WAS_THROTTLED {
                0 => Left::Runnable,
                1 => Left::Throttled,
                2 => Left::Blocked,
                3 => Left::Stopped,
                4 => Left::Ended,
                _ => return RingEntry::Unknown(kind),
            },
            next: c,
            waited_ns: a,
            throttled: state & NEXT_WAS_THROTTLED != 0,
        },
        SOFTIRQ => What::Softirq { vector: state, device: c, packets: b & 0xffff, own: b >> 16, began_ns: a },
        HARDIRQ => {
            let irq = match state {
                0 => Irq::Line(b),
                1 => Irq::Timer,
                2 => Irq::Call,
                _ => return RingEntry::Unknown(kind),
            };
            What::Hardirq { irq, began_ns: a }
        }
        ARRIVED => What::Arrived(transfer(a, b)),
        READ => What::Read { tid: c, at: transfer(a, b) },
        WROTE => What::Wrote { tid: c, at: transfer(a, b) },
        WOKEN => {
            let by = match state & BY {
                0 => Waker::Task(c),
                1 => Waker::Hardirq(Irq::Line(c)),
                2 => Waker::Hardirq(Irq::Timer),
                3 => Waker::Hardirq(Irq::Call),
                4 => Waker::Unseen,
                15 => Waker::Idle,
                softirq => Waker::Softirq { vector: softirq - 5, during: c },
            };
            let sleep = Sleep {
                stack: (state & STACK_UNKNOWN == 0).then_some((a >> 48) as u16),
                uninterruptible: state & UNINTERRUPTIBLE != 0,
                as_for_a_lock: state & AS_FOR_A_LOCK != 0,
            };
            let since_ns = time_ns.saturating_sub(a & ((1 << 48) - 1));
            What::Woken(Woken { tid: b, since_ns, sleep, by })
        }
        NAME => return RingEntry::Name { tid: b, tgid: c, comm: text(a, time_ns) },
        GROUP => return RingEntry::Group { time_ns, tid: b, cgroup: a },
        DEVICE => return RingEntry::Device { id: b, network: c, name: text(a, time_ns) },
        _ => return RingEntry::Unknown(kind),
    };
    RingEntry::Event(Event { time_ns, cpu, what })
}

fn transfer(a: u64, b: u32) -> Transfer {
    Transfer {
        local_port: (b >> 16) as u16,
        peer_port: b as u16,
        // The program read the address as a number in native byte order; its bytes are the address.
        peer_tail: u32::from_be_bytes(((a >> 32) as u32).to_ne_bytes()),
        seq: a as u32,
    }
}

fn text(first: u64, second: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_ne_bytes());
    bytes[8..].copy_from_slice(&second.to_ne_bytes());
    bytes
}
