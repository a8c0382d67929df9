// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Why a thread sleeps: the system call that it is in, or its kernel stack.
#pragma once

#include "event.h"

enum {
    DEPTH = 24,      // frames of a stack at most
    OWN_FRAMES = 3,  // the tracepoint's and the program's own, which are left out
    CALLS = 512,     // system calls that may tell why a thread sleeps, by number
    IN_CALL = 1 << 15, // of a stack's number: the rest is the number of a system call instead
};

struct {
    __uint(type, BPF_MAP_TYPE_STACK_TRACE);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, DEPTH * sizeof(__u64));
} stacks SEC(".maps");

// Whether this kernel has bpf_task_pt_regs (Linux 5.15).
const volatile bool has_task_regs = false;

// System calls in which an interruptible sleep has one reason only, one bit each. `stacks.rs` lists them.
const volatile __u64 telling_calls[CALLS / 64] = {};

#if defined(__TARGET_ARCH_x86)
// The system call that a thread is in, or -1. `ax` holds this error from its beginning until it returns: what it sleeps
// for after that, such as a freezer or a debugger, is not the call. Calls of 32 bits have other numbers and segments.
static __always_inline __u64 call_of(struct pt_regs *regs)
{
    enum { ENOSYS = 38, USER_CS = 0x33 };
    return regs->ax == -ENOSYS && regs->cs == USER_CS ? regs->orig_ax : ~0ull;
}

// Whether the current thread waits on a futex with the value by which glibc, musl, Rust's library and Go's runtime mark
// a mutex that has an owner and a waiter, or in a call that is for locks alone. Condition variables, semaphores and
// parking wait with other values; musl's condition variables wait with the same one, but on a word in the waiting
// thread's own stack, where there is no mutex that another thread could hold.
static __always_inline bool waits_as_for_a_lock(struct pt_regs *regs)
{
    enum { FRAMES = 8192 };
    enum { WAIT = 0, LOCK_PI = 6, WAIT_BITSET = 9, LOCK_PI2 = 13, COMMAND = 0x7f };
    __u32 command = regs->si & COMMAND, value = regs->dx;
    if (command == LOCK_PI || command == LOCK_PI2)
        return true;
    // musl, and robust mutexes: the owner's thread id with the highest bit set.
    bool own_stack = regs->di - regs->sp < FRAMES;
    bool held = (value == 2 && !own_stack) || (value >> 31 && value != ~0u);
    return held && (command == WAIT || command == WAIT_BITSET);
}
#endif

// Why a thread sleeps, as far as that is cheap to know: a kernel stack takes longer to walk than everything else here.
// Returns bits of enum woken_by, and sets `stack` to the system call, if that says it all. In these calls, only
// userfaultfd, a FUSE file that is polled, and seccomp's user notification sleep interruptibly for another reason.
static __always_inline __u8 asleep_in_call(struct task_struct *task, bool interruptible, __u16 *stack)
{
    *stack = 0;
#if defined(__TARGET_ARCH_x86)
    enum { FUTEX = 202 };
    if (!has_task_regs)
        return STACK_UNKNOWN;
    struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
    __u64 call = call_of(regs);
    if (call >= CALLS)
        return STACK_UNKNOWN;
    __u8 how = call == FUTEX && waits_as_for_a_lock(regs) ? AS_A_LOCK : 0;
    if (!interruptible || !(telling_calls[call / 64] >> call % 64 & 1))
        return how | STACK_UNKNOWN;
    *stack = IN_CALL | call;
    return how;
#else
    return STACK_UNKNOWN;
#endif
}
