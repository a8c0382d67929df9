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
    EVENT_GROUP = 8,
};

struct event {
    __u64 time_ns;
    __u64 a; // switch: time waited; interrupts: begin; transfers: peer_tail << 32 | seq; name: bytes 0..8; group: its id
    __u32 b; // switch: prev; softirq: packets; hardirq: irq; transfers: local_port << 16 | peer_port; names: tid
    __u32 c; // switch: next; softirq: device; transfers: tid; name: tgid
    __u8 kind;
    __u8 state; // switch: how prev left, bit 7: next was throttled; softirq: vector; hardirq: kind of irq
    __u16 lost; // events of this CPU lost just before this one, at most 65535; the ring's counter has them all
    __u32 stamp; // low half of the event's number plus one, written last
};

// What reader and writer of one CPU's ring tell each other. Each on its own cache line.
struct ring_ends {
    __u64 head __attribute__((aligned(64))); // events ever written: program only
    __u64 lost;                              // events that found no room: program only
    __u64 tail __attribute__((aligned(64))); // events ever read: reader only
};
