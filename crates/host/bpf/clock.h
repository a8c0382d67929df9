// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The run queues' clock, by which the scheduler says since when a thread has been queued, against CLOCK_MONOTONIC.
//
// The former stands still between updates, and is not updated when the scheduler runs because a thread was woken that
// may preempt: whatever delays that thread, such as a softirq, would seem to take no time. So times are read from
// CLOCK_MONOTONIC, and the offset between the two clocks is observed continuously.
#pragma once

#include "kernel.h"

enum {
    WINDOW = 1 << 25, // ns, over which the smallest difference is taken
    DRIFT = 11,       // they drift apart by less than one part in 2^DRIFT: adjtimex(2) allows 500 ppm
};

__s64 clock_offset = 0; // CLOCK_MONOTONIC minus the run queues' clock
__s64 clock_least = 0;  // least difference of this window
__u64 clock_window = 0; // when it began; 0 before the first

// The offset may have grown: up to the smallest observed difference, and as far as clocks can drift.
static __noinline void begin_window(__s64 difference, __u64 now)
{
    __s64 most = clock_offset + (__s64)((now - clock_window) >> DRIFT);
    if (!clock_window)
        clock_offset = difference;
    else
        clock_offset = clock_least < most ? clock_least : most;
    clock_least = difference;
    clock_window = now;
}

// The run queue's clock is late by as much as the scheduler has taken so far, or more: the smallest difference is
// right.
static __always_inline void compare_clocks(__u64 now, __u64 clock)
{
    __s64 difference = now - clock;
    if (difference < clock_least)
        clock_least = difference;
    if (difference < clock_offset)
        clock_offset = difference;
    if (now - clock_window > WINDOW)
        begin_window(difference, now);
}
