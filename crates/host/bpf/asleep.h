// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Threads that sleep, and on which kernel stack.
#pragma once

#include "kernel.h"

enum {
    DEPTH = 24,      // frames of a stack at most
    OWN_FRAMES = 3,  // the tracepoint's and the program's own, which are left out
};

struct asleep {
    __u64 since; // 0: it does not sleep, or that has been told
    __u32 tid;
    __u16 stack; // number in `stacks`
    __u8 how;    // bits of enum woken_by
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct asleep);
} asleep_threads SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_STACK_TRACE);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, DEPTH * sizeof(__u64));
} stacks SEC(".maps");

// Whether this kernel has bpf_task_pt_regs (Linux 5.15).
const volatile bool has_task_regs = false;

// Whether the current thread waits on a futex with the value by which glibc, musl, Rust's library and Go's runtime mark
// a mutex that has an owner and a waiter, or in a call that is for locks alone. Condition variables, semaphores and
// parking wait with other values; musl's condition variables wait with the same one, but on a word in the waiting
// thread's own stack, where there is no mutex that another thread could hold.
static __always_inline bool waits_as_for_a_lock(void)
{
#if defined(__TARGET_ARCH_x86)
    enum { FRAMES = 8192 };
    enum { FUTEX = 202, WAIT = 0, LOCK_PI = 6, WAIT_BITSET = 9, LOCK_PI2 = 13, COMMAND = 0x7f };
    if (!has_task_regs)
        return false;
    struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
    if (regs->orig_ax != FUTEX)
        return false;
    __u32 command = regs->si & COMMAND, value = regs->dx;
    if (command == LOCK_PI || command == LOCK_PI2)
        return true;
    // musl, and robust mutexes: the owner's thread id with the highest bit set.
    bool own_stack = regs->di - regs->sp < FRAMES;
    bool held = (value == 2 && !own_stack) || (value >> 31 && value != ~0u);
    return held && (command == WAIT || command == WAIT_BITSET);
#else
    return false;
#endif
}
