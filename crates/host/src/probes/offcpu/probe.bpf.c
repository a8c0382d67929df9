// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// How long threads are off their CPU, as histograms. One program, run at every context switch.
//
// When a thread leaves, its entry records the time and the reason. When it returns, the scheduler's own account
// (sched_info) says since when it has been on a run queue, so no program has to run when threads are woken. That
// account uses the run queues' clock, while times here are of another one: see `clock.h`.
//
// `mod.rs` has the layout of `struct task`, `struct group` and of the histograms.
#include "kernel.h"
#include "bucket.h"
#include "clock.h"
#include "task.h"

char LICENSE[] SEC("license") = "GPL";

enum { EVERYBODY, FEW_PROCESSES, MANY_PROCESSES, CGROUPS };
enum { BY_PROCESS, BY_THREAD, BY_CGROUP };
// Kinds of waits, each with a histogram. `struct task` stores the kind plus one, as the thread left.
enum { BLOCKED, STOPPED, WOKEN, PREEMPTED, THROTTLED, KINDS };

enum {
    FEW = 8,             // processes that are compared without a look into a map
    DEPTH = 32,          // levels that a cgroup may lie below a wanted one
    V2 = ~0,             // instead of a controller of v1
    ROUGHLY = 10000,     // ns, by which a part of a wait may seem longer than the wait, as the offset is not exact
    OTHERS = 0,          // slot of all groups that found no slot of their own
    UNWATCHED = 0xffff,  // instead of a slot
    TRIES = 16,          // to find a free slot, while other CPUs do the same
};

// Histogram: the buckets, their sum and the longest wait, in a page.
enum {
    SUM = 510,
    LONGEST = 511,
    HISTOGRAM = 512,
};

const volatile __u32 watch = EVERYBODY;
const volatile __u32 few = 0;
const volatile __u32 few_tgids[FEW] = {};
const volatile __u32 group_by = BY_PROCESS;
const volatile __u32 hierarchy = V2;
const volatile __u32 task_mask = 0;
const volatile __u32 task_shift = 0; // to its highest bit
const volatile __u32 slot_count = 1;
const volatile bool switch_has_state = true;

// Counts of losses, and what else the reader needs to know.
__u64 lost_slot = 0;      // threads whose group found no slot: counted as OTHERS
__u64 lost_collision = 0; // waits lost because another thread needs the entry
__u64 lost_begun = 0;     // waits not counted because they had begun before the thread was first seen
__u64 lost_clock = 0;     // waits not counted because the clocks of two CPUs contradict each other
__u32 clock_looks = 0;    // how often before anything was counted
__u32 next_slot = 1;

struct task {
    __u64 since;     // when it left
    __u64 run_delay; // what it had spent on run queues until then
    __u64 groups;    // its set of cgroups, when the slot was found: as long as that is the same, so is the slot
    __u32 tid;       // 0: entry is free
    __u16 slot;
    __u16 left;      // kind plus one, 0 while it runs or nothing is known
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct task);
} tasks SEC(".maps");

// [cpu][slot] of [kind] histograms. No value type, because it is larger than the skeleton's types can be.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __uint(value_size, KINDS * HISTOGRAM * sizeof(__u64));
} histograms SEC(".maps");

struct key {
    __u64 id;      // of process, thread or cgroup
    __u64 started; // tells two processes or threads with one number apart
};
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct key);
    __type(value, __u32);
} slots SEC(".maps");

struct group {
    struct key key;
    __u64 claims; // 1: taken. More: nobody knows by whom, so that nobody has it
    __u32 tgid;
    char comm[16];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct group);
} groups SEC(".maps");

// Ids of processes or of cgroups.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, __u64);
    __type(value, __u32);
} wanted SEC(".maps");

static __always_inline struct cgroup *cgroup_of(struct task_struct *p)
{
    if (hierarchy == V2)
        return p->cgroups->dfl_cgrp;
    // A constant for the verifier, like everything in read-only data.
    __u32 controller = hierarchy;
    return p->cgroups->subsys[controller]->cgroup;
}

static __always_inline bool is_wanted(__u64 id)
{
    return bpf_map_lookup_elem(&wanted, &id);
}

static __always_inline bool in_wanted_cgroup(struct task_struct *p)
{
    struct cgroup *cgroup = cgroup_of(p);
    for (int level = 0; level < DEPTH; level++) {
        if (is_wanted(cgroup->kn->id))
            return true;
        struct cgroup_subsys_state *parent = cgroup->self.parent;
        if (!parent)
            return false;
        cgroup = parent->cgroup;
    }
    return false;
}

static __always_inline void copy_comm(struct group *group, struct task_struct *p)
{
    for (int i = 0; i < 16; i++)
        group->comm[i] = p->comm[i];
}

static __always_inline __u32 new_slot(struct task_struct *p, const struct key *key)
{
    for (int i = 0; i < TRIES; i++) {
        __u32 slot = next_slot;
        if (slot >= slot_count)
            return OTHERS;
        struct group *group = bpf_map_lookup_elem(&groups, &slot);
        if (!group)
            return OTHERS;
        next_slot = slot + 1;
        // Two CPUs that add before either reads both see 2 and both continue; before 5.12 there is nothing better.
        __sync_fetch_and_add(&group->claims, 1);
        if (*(volatile __u64 *)&group->claims != 1)
            continue;
        group->key = *key;
        group->tgid = p->tgid;
        copy_comm(group, group_by == BY_PROCESS ? p->group_leader : p);
        return slot;
    }
    return OTHERS;
}

static __always_inline __u32 slot_of(struct task_struct *p)
{
    struct key key = {};
    if (group_by == BY_CGROUP) {
        key.id = cgroup_of(p)->kn->id;
    } else {
        key.id = group_by == BY_PROCESS ? p->tgid : p->pid;
        key.started = group_by == BY_PROCESS ? p->group_leader->start_time : p->start_time;
    }
    __u32 *found = bpf_map_lookup_elem(&slots, &key);
    if (found)
        return *found;
    __u32 slot = new_slot(p, &key);
    if (slot != OTHERS && bpf_map_update_elem(&slots, &key, &slot, BPF_NOEXIST)) {
        // Another CPU was first; our slot stays empty.
        found = bpf_map_lookup_elem(&slots, &key);
        slot = found ? *found : OTHERS;
    }
    if (slot == OTHERS)
        __sync_fetch_and_add(&lost_slot, 1);
    return slot;
}

// Assigns the entry to this thread. Rarely needed, so it is kept out of the fast path.
static __noinline void claim(struct task *task, struct task_struct *p)
{
    __u32 slot = UNWATCHED;
    bool watched = true;
    if (watch == MANY_PROCESSES)
        watched = is_wanted(p->tgid);
    else if (watch == CGROUPS)
        watched = in_wanted_cgroup(p);
    if (watched)
        slot = slot_of(p);
    bool same = task->tid == p->pid;
    if (!same && task->left)
        __sync_fetch_and_add(&lost_collision, 1);
    // A thread that moved to another cgroup takes its wait along, if it was watched before and still is.
    if (!same || slot == UNWATCHED || task->slot == UNWATCHED)
        task->left = 0;
    task->tid = p->pid;
    task->groups = (__u64)p->cgroups;
    task->slot = slot;
}

static __always_inline bool may_be_watched(struct task_struct *p)
{
    if (watch != FEW_PROCESSES)
        return p->pid;
    __u32 tgid = p->tgid;
    for (int i = 0; i < FEW; i++)
        if (i < few && tgid == few_tgids[i])
            return true;
    return false;
}

// The thread's entry, found or made; null if it is not watched.
static __always_inline struct task *entry(struct task_struct *p)
{
    __u32 tid = p->pid;
    // Threads started together have adjacent ids and run on different CPUs: they must not share a cache line.
    __u32 at = (tid << 1 | (tid & task_mask) >> task_shift) & task_mask;
    struct task *task = bpf_map_lookup_elem(&tasks, &at);
    if (!task)
        return 0;
    bool same = task->tid == tid;
    if (watch == CGROUPS || group_by == BY_CGROUP)
        same = same && task->groups == (__u64)p->cgroups;
    if (!same)
        claim(task, p);
    return task;
}

static __always_inline void count(__u64 *histograms, __u32 kind, __u64 ns)
{
    __u32 at = bucket(ns);
    if (kind >= KINDS || at >= BUCKETS)
        return;
    __u64 *histogram = histograms + kind * HISTOGRAM;
    histogram[at]++;
    histogram[SUM] += ns;
    if (ns > histogram[LONGEST])
        histogram[LONGEST] = ns;
}

static __always_inline void leaves(__u64 *ctx, struct task_struct *p, __u64 now)
{
    struct task *task = entry(p);
    if (!task)
        return;
    __u32 state = state_at_switch(ctx, p, switch_has_state);
    __u32 left;
    if (!state || ctx[0] & 1)
        left = is_throttled(p) ? THROTTLED : PREEMPTED;
    else
        left = state & STATE_STOPPED ? STOPPED : BLOCKED;
    if (task->slot == UNWATCHED) {
        if (state & STATE_DEAD)
            task->tid = 0;
        return;
    }
    task->since = now;
    task->run_delay = p->sched_info.run_delay;
    task->left = left + 1;
    if (state & STATE_DEAD && !(ctx[0] & 1)) {
        // Its id may be reused by another thread; its name is final.
        task->tid = 0;
        task->left = 0;
        __u32 slot = task->slot;
        if (group_by == BY_THREAD || (group_by == BY_PROCESS && p->pid == p->tgid)) {
            struct group *group = bpf_map_lookup_elem(&groups, &slot);
            if (group && slot != OTHERS)
                copy_comm(group, p);
        }
    }
}

static __always_inline void comes(struct task_struct *p, __u64 now)
{
    struct task *task = entry(p);
    if (!task || task->slot == UNWATCHED)
        return;
    __u32 left = task->left;
    task->left = 0;
    __s64 waited = now - task->since, queued = 0;
    if (left <= STOPPED + 1)
        queued = now - clock_offset - p->sched_info.last_queued + p->sched_info.run_delay;
    if (left == 0) {
        // A new thread has waited since it was first put on a run queue.
        if (p->sched_info.pcount) {
            __sync_fetch_and_add(&lost_begun, 1);
            return;
        }
        waited = queued > 0 ? queued : 0;
    } else {
        queued -= task->run_delay;
    }
    __u32 cpu = bpf_get_smp_processor_id(), at = cpu * slot_count + task->slot;
    __u64 *histograms_of_slot = bpf_map_lookup_elem(&histograms, &at);
    if (!histograms_of_slot)
        return;
    if (left <= STOPPED + 1) {
        if (queued < -ROUGHLY || queued > waited + ROUGHLY) {
            __sync_fetch_and_add(&lost_clock, 1);
            return;
        }
        if (queued < 0)
            queued = 0;
        if (queued > waited)
            queued = waited;
        count(histograms_of_slot, WOKEN, queued);
        if (left)
            count(histograms_of_slot, left - 1, waited - queued);
    } else {
        count(histograms_of_slot, left - 1, waited);
    }
}

// Attached alone, before the other one: determines the offset between the clocks.
SEC("tp_btf/sched_switch")
int settles(__u64 *ctx)
{
    struct task_struct *prev = (void *)ctx[1];
    compare_clocks(bpf_ktime_get_ns(), prev->se.cfs_rq->rq->clock);
    clock_looks++;
    return 0;
}

SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
    struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
    bool off = may_be_watched(prev), on = may_be_watched(next);
    if (!off && !on)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    compare_clocks(now, prev->se.cfs_rq->rq->clock);
    if (off)
        leaves(ctx, prev, now);
    if (on)
        comes(next, now);
    return 0;
}
