// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The clock of the run queues, in which the scheduler tells since when a thread stands on one, against CLOCK_MONOTONIC.
//
// The former stands still between updates, and is not updated when the scheduler runs because a thread was woken that
// may preempt: all that keeps it from running at once, such as a softirq, would seem to take no time. So moments are read
// from CLOCK_MONOTONIC, and how far the two are apart is looked at all the time.
#pragma once

#include "kernel.h"

enum {
    LOOK_EVERY = 1 << 18, // ns, whether the two clocks have drifted apart
    DRIFT = 11,           // they drift apart by less than one part in 2^DRIFT: adjtimex(2) allows 500 ppm
};

__s64 clock_offset = 0;   // CLOCK_MONOTONIC less the run queues' clock
__u64 clock_looked = 0;   // when that was looked at; 0 before

// The clock of the run queue is late by as much as the scheduler took so far, or more: the least difference is right.
// It is believed to have grown only as fast as clocks can drift apart.
static __noinline void look_at_clocks(__s64 difference, __u64 now)
{
    if (!clock_looked || difference < clock_offset + (__s64)((now - clock_looked) >> DRIFT)) {
        clock_offset = difference;
        clock_looked = now;
    }
}

static __always_inline void compare_clocks(__u64 now, __u64 clock)
{
    __s64 difference = now - clock;
    if (difference < clock_offset || now - clock_looked > LOOK_EVERY)
        look_at_clocks(difference, now);
}
