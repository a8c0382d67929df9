// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
#include "kernel.h"

char LICENSE[] SEC("license") = "GPL";

const volatile __u32 only_tgid = 0;
const volatile __u32 task_mask = 0;
const volatile bool switch_has_state = true;

struct task {
    __u64 since;
    __u64 run_delay;
    __u32 tid;
    __u32 state;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 32768);
    __type(key, __u32);
    __type(value, struct task);
} tasks SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2048);
    __type(key, __u32);
    __type(value, __u64);
} hists SEC(".maps");

static __always_inline __u32 log2_floor(__u64 v) {
    __u32 log = (v > 0xffffffff) << 5; v >>= log;
    __u32 shift = (v > 0xffff) << 4; v >>= shift; log |= shift;
    shift = (v > 0xff) << 3; v >>= shift; log |= shift;
    shift = (v > 0xf) << 2; v >>= shift; log |= shift;
    shift = (v > 3) << 1; v >>= shift; log |= shift;
    return log | v >> 1;
}
static __always_inline __u32 bucket(__u64 ns) {
    if (ns < 16) return ns;
    __u32 log = log2_floor(ns);
    return ((log - 3) << 4 | (ns >> (log - 4) & 15));
}

static __always_inline void count(__u32 kind, __u64 ns) {
    __u32 b = kind << 10 | bucket(ns);
    __u64 *n = bpf_map_lookup_elem(&hists, &b);
    if (n) ++*n;
}

SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
    struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
    bool off = (!only_tgid || prev->tgid == only_tgid) && prev->pid;
    bool on = (!only_tgid || next->tgid == only_tgid) && next->pid;
    if (!off && !on) return 0;
    __u64 now = prev->se.cfs_rq->rq->clock;
    if (off) {
        __u32 tid = prev->pid, key = tid & task_mask;
        struct task *task = bpf_map_lookup_elem(&tasks, &key);
        if (task) {
            __u32 state = switch_has_state ? ctx[3] : prev->__state;
            task->since = now;
            task->run_delay = prev->sched_info.run_delay;
            task->tid = tid;
            task->state = state && !(ctx[0] & 1) ? 1 : 2;
        }
    }
    if (on) {
        __u32 tid = next->pid, key = tid & task_mask;
        struct task *task = bpf_map_lookup_elem(&tasks, &key);
        if (task && task->state) {
            __u64 queued = next->sched_info.last_queued;
            __u64 runnable = next->sched_info.run_delay - task->run_delay + now - queued;
            count(1, runnable);
            if (task->state == 1) count(0, now - task->since - runnable);
            task->state = 0;
        }
    }
    return 0;
}
