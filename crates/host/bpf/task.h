// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// What a context switch tells of a thread, on whichever kernel.
#pragma once

#include "kernel.h"

// Bits of a thread's state.
enum {
    STATE_INTERRUPTIBLE = 1,
    STATE_UNINTERRUPTIBLE = 2,
    STATE_STOPPED = 4 | 8, // by a signal or a debugger
    STATE_DEAD = 0x80,
};

// State of the thread that leaves its CPU, 0 if it could have continued. `told`: whether it is the tracepoint's fourth
// argument (Linux 5.18).
static __always_inline __u32 state_at_switch(__u64 *ctx, struct task_struct *prev, bool told)
{
    struct task_struct___before_5_14 *old = (void *)prev;
    if (!told)
        return bpf_core_field_exists(old->state) ? old->state : prev->__state;
    __u32 state = ctx[3];
    // Until 6.14, the argument kept the state of a thread that wanted to block and could not because of a pending
    // signal.
    if (state && bpf_core_field_exists(prev->__state) && !prev->__state)
        return 0;
    return state;
}

// Whether its cgroup has used up its quota.
static __always_inline bool is_throttled(struct task_struct *task)
{
    if (bpf_core_field_exists(task->throttled))
        return task->throttled;
    if (bpf_core_field_exists(task->se.cfs_rq->throttle_count))
        return task->se.cfs_rq->throttle_count;
    return false;
}
