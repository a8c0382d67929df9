// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The rings: a program takes the next place of its CPU's ring, fills in an event, and makes it valid.
#pragma once

#include "event.h"

// A ring has 1 << ring_shift events; those of CPU n begin at n << ring_shift.
const volatile __u32 ring_shift = 0;

// Places reserved for events of interrupts that come in between.
#define SLACK 64

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct event);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct ring);
} rings SEC(".maps");

static __always_inline struct ring *ring_of(__u32 cpu)
{
    return bpf_map_lookup_elem(&rings, &cpu);
}

// The ring, unless programs rest: they are about to be detached, or not all of them are attached yet.
static __always_inline struct ring *working_ring(__u32 cpu)
{
    struct ring *ring = ring_of(cpu);
    if (ring && *(volatile __u16 *)&ring->shift & 1) {
        ring->irq_began = 0;
        PUBLISH(ring->softirq, 0);
        return 0;
    }
    return ring;
}

// The ring is full as far as is known: checks how far the reader is by now. Returns how many events were lost before,
// or -1 if there is no room; then `losing` more are lost. A name that finds no room is not an event: it is sent next
// time.
static __noinline int look_for_room(struct ring *ring, __u32 losing)
{
    if (!ring)
        return -1;
    __u64 limit = ring->tail + (1ull << ring_shift) - SLACK;
    if (ring->head >= limit) {
        if (losing) {
            __sync_fetch_and_add(&ring->lost, 1);
            __sync_fetch_and_add(&ring->untold, 1);
        }
        return -1;
    }
    __u64 untold = __sync_lock_test_and_set(&ring->untold, 0);
    if (untold > 0xffff) {
        // The limit remains exceeded, so that the next event comes here and reports the rest.
        __sync_fetch_and_add(&ring->untold, untold - 0xffff);
        return 0xffff;
    }
    ring->limit = limit;
    return untold;
}

struct place {
    struct event *event;
    __u64 number;
    __u64 lost;
};

// Takes the next place of this CPU's ring. Programs of softirqs and threads can be interrupted by another one.
static __always_inline bool take(struct ring *ring, __u32 cpu, bool interruptible, bool name, struct place *place)
{
    __u64 head = ring->head;
    place->lost = 0;
    if (head >= *(volatile __u64 *)&ring->limit) {
        int lost = look_for_room(ring, !name);
        if (lost < 0)
            return false;
        place->lost = lost;
    }
    if (interruptible)
        head = __sync_fetch_and_add(&ring->head, 1);
    else
        *(volatile __u64 *)&ring->head = head + 1;
    place->number = head;
    __u32 index = cpu << ring_shift | ((__u32)head & ((1u << ring_shift) - 1));
    place->event = bpf_map_lookup_elem(&events, &index);
    return place->event;
}

// Makes the event valid.
static __always_inline void give(struct place *place, __u8 kind, __u8 state)
{
    __u64 last = kind | (__u64)state << 8 | place->lost << 16 | (place->number + 1) << 32;
#if defined(__TARGET_ARCH_x86)
    barrier();
    *(volatile __u64 *)&place->event->kind = last;
#else
    __sync_lock_test_and_set((__u64 *)&place->event->kind, last);
#endif
}

static __always_inline bool tell(struct ring *ring, __u32 cpu, bool interruptible, __u8 kind, __u64 time_or_text,
                                 __u64 a, __u32 b, __u32 c)
{
    struct place place;
    if (!take(ring, cpu, interruptible, true, &place))
        return false;
    place.event->time_ns = time_or_text;
    place.event->a = a;
    place.event->b = b;
    place.event->c = c;
    give(&place, kind, 0);
    return true;
}
