// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// An event as it stands in the rings that programs and readers share. `src/probes/intervals/ring.rs` has the same
// layout in Rust; a test compares the sizes and offsets with what the build found in the program's type information.
#pragma once

#include "kernel.h"

enum event_kind {
    EVENT_SWITCH = 1,
    EVENT_SOFTIRQ = 2,
    EVENT_HARDIRQ = 3,
    EVENT_ARRIVED = 4,
    EVENT_READ = 5,
    EVENT_WROTE = 6,
    EVENT_NAME = 7,
    EVENT_GROUP = 8, // always just after the name of the same thread
    EVENT_DEVICE = 9,
    EVENT_WOKEN = 10,
};

// The context in which a thread was woken, in the low four bits of `state` of EVENT_WOKEN. Softirqs add their vector.
enum woken_by {
    BY_TASK = 0,
    BY_LINE = 1,
    BY_TIMER = 2,
    BY_CALL = 3,
    BY_UNSEEN = 4, // the thread came back, and its wake-up was not seen
    BY_SOFTIRQ = 5,
    BY_IDLE = 15,  // the idle task's context: an interrupt that has no tracepoint
    BY_MASK = 15,
    UNINTERRUPTIBLE = 1 << 4,
    STACK_UNKNOWN = 1 << 5,
    AS_A_LOCK = 1 << 6, // a futex whose value is that of a contended mutex
};

// How a thread left its CPU.
enum left {
    LEFT_RUNNABLE = 0,
    LEFT_THROTTLED = 1,
    LEFT_BLOCKED = 2,
    LEFT_STOPPED = 3,
    LEFT_ENDED = 4,
    NEXT_WAS_THROTTLED = 1 << 7,
};

// Interrupts without a numbered line in /proc/interrupts.
enum irq_kind {
    IRQ_LINE = 0,
    IRQ_TIMER = 1,
    IRQ_CALL = 2,
};

struct event {
    __u64 time_ns; // names: bytes 8..16 of the name instead; they come just before the event that first needs them
    __u64 a;       // switch: time waited; interrupts: begin; transfers: peer_tail << 32 | seq; names: bytes 0..8;
                   // group: its id; woken: how long it slept in the low 48 bits; above, in which stack or call
    __u32 b;       // switch: prev; softirq: packets, those for watched sockets in the high half; hardirq: irq;
                   // transfers: local_port << 16 | peer_port;
                   // name, group, woken: tid; device: its id
    __u32 c;       // switch: next; softirq: device; transfers: tid; name: tgid; device: network namespace;
                   // woken: tid of the waker; of a softirq for the loopback, of whom it runs in; or the irq
    __u8 kind;
    __u8 state;    // switch: enum left; softirq: vector; hardirq: enum irq_kind; woken: enum woken_by
    __u16 lost;    // events of this CPU lost just before this one, at most 65535: the rest is told by the next ones
    __u32 stamp;   // low half of the event's number plus one. Written last, together with the three fields above
};

// Shared by one CPU's programs and the reader. Each side writes only its own cache lines; what every program needs is in
// the first. The reader also looks at `softirq` and `softirq_began`: an event of a softirq may carry its beginning; and
// it writes `shift`, which is rare.
struct ring {
    __u64 head;          // events ever written
    __u64 limit;         // no room from this head on, as far as was last looked
    __u64 irq_began;     // of the interrupt handler that runs
    __u32 irq;           // line of the interrupt handler that runs
    __u8 irq_kind;       // and its enum irq_kind
    bool fresh;          // the softirq's piece has just begun: its beginning is the time of what its first packet does
    __u16 shift;         // odd: programs rest. Else the number of this shift, before which nothing is known
    __u64 softirq_began; // of the softirq that runs, or of its current piece
    __u64 device;        // address of the interface whose packets the current piece handles, 0: none yet
    __u32 device_id;
    __u32 softirq;       // one more than the vector that runs, 0: none; set before its beginning is read
    __u32 packets;       // of the current piece
    __u32 own;           // packets of the current piece that were for watched sockets
    __u64 lost;          // events that found no room, ever
    __u64 untold;        // of these, those that no event's `lost` has told of yet
    __u64 spare[6];
    __u64 tail;          // events ever read: written by the reader
    __u64 read_spare[7];
};
