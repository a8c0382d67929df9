// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Which thread ran where, and what interrupted it: one event each, in the ring of its CPU.
#include "event.h"
#include "clock.h"
#include "task.h"
#include "asleep.h"
#include "ring.h"

char LICENSE[] SEC("license") = "GPL";

// One less than the entries of `tasks` and `watched`, a power of two.
const volatile __u32 task_mask = 0;
// Whether the tracepoint's arguments include how `prev` left (Linux 5.18).
const volatile bool switch_has_state = true;
// Whether cgroups are identified by the `cpu` controller of version 1.
const volatile bool cgroup_v1 = false;
// Inode of the recorder's own network namespace: its interfaces are identified by their plain index.
const volatile __u32 own_network = 0;
// Whether to report why watched threads sleep and who wakes them; and whether to report nothing else.
const volatile bool waits = false;
const volatile bool only_waits = false;

#define NET_RX 3
#define LOOPBACK 1
#define DEVICES 256

// What has been reported about a thread, when it last ran, and how it sleeps: together, because a switch needs most of
// it, and because neighbours that run on different CPUs should not share a cache line.
struct task {
    __u64 name[2];
    __u64 groups; // address of its set of cgroups
    __u64 delay;  // all it had waited on run queues when it last began to run
    __u32 tid;

    __u32 sleeper; // thread that the rest is about, which more threads than it may share
    __u64 since;   // 0: it does not sleep, or that has been told
    __u16 stack;   // number in `stacks`, or IN_CALL and a system call
    __u8 how;      // bits of enum woken_by
    __u16 seen_in;  // shift of the programs in which it last began to run,
    __u16 slept_in; // and in which it fell asleep
    __u64 spare;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct task);
} tasks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, DEVICES);
    __type(key, __u32);
    __type(value, __u32);
} devices SEC(".maps");

// The processes whose sockets are followed, by their full id, because several share a place.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} watched SEC(".maps");

// Their local ports, one bit each: those open at the start, and those that they listen at, or have read from or written
// to.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, __u64);
} ports SEC(".maps");

static __always_inline __u64 cgroup_of(struct task_struct *task)
{
    if (!cgroup_v1)
        return task->cgroups->dfl_cgrp->kn->id;
    if (bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id) == 0)
        return task->cgroups->subsys[0]->cgroup->kn->id;
    return task->cgroups->subsys[1]->cgroup->kn->id;
}

// Introduces a thread. The second event has the time of both, because CPUs may introduce the same one at the same time.
static __always_inline void introduce(struct ring *ring, __u32 cpu, struct task *known, struct task_struct *task)
{
    __u64 name0 = *(__u64 *)&task->comm[0], name1 = *(__u64 *)&task->comm[8];
    __u32 tid = task->pid, tgid = task->tgid;
    if (!tell(ring, cpu, false, EVENT_NAME, name1, name0, tid, tgid))
        return;
    if (!tell(ring, cpu, false, EVENT_GROUP, bpf_ktime_get_ns(), cgroup_of(task), tid, tgid))
        return;
    known->name[0] = name0;
    known->name[1] = name1;
    known->groups = (__u64)task->cgroups;
    known->tid = tid;
}

static __always_inline __u8 how_it_left(__u64 *ctx, struct task_struct *prev, __u32 state)
{
    bool preempted = ctx[0] & 1;
    if (!state || preempted)
        return is_throttled(prev) ? LEFT_THROTTLED : LEFT_RUNNABLE;
    if (state & STATE_DEAD)
        return LEFT_ENDED;
    return state & STATE_STOPPED ? LEFT_STOPPED : LEFT_BLOCKED;
}

static __always_inline bool is_watched(__u32 tgid)
{
    __u32 key = tgid & task_mask;
    __u32 *found = bpf_map_lookup_elem(&watched, &key);
    return found && *found == tgid;
}

static __always_inline struct task *task_of(__u32 tid)
{
    __u32 key = tid & task_mask;
    return bpf_map_lookup_elem(&tasks, &key);
}

// A watched thread goes to sleep: records when, and how.
static __always_inline void falls_asleep(__u64 *ctx, struct task_struct *task, __u8 left, __u32 state, __u64 now,
                                         __u16 shift)
{
    __u32 tid = task->pid;
    struct task *asleep = task_of(tid);
    if (!asleep)
        return;
    if (left != LEFT_BLOCKED)
        state = 0;
    __u16 stack;
    bool interruptible = (state & (STATE_INTERRUPTIBLE | STATE_UNINTERRUPTIBLE)) == STATE_INTERRUPTIBLE;
    __u8 how = asleep_in_call(task, interruptible, &stack);
    if (how & STACK_UNKNOWN) {
        long found = bpf_get_stackid(ctx, &stacks, OWN_FRAMES);
        if (found >= 0) {
            stack = found;
            how &= ~STACK_UNKNOWN;
        }
    }
    if (state & STATE_UNINTERRUPTIBLE)
        how |= UNINTERRUPTIBLE;
    asleep->sleeper = tid;
    asleep->stack = stack;
    asleep->how = how;
    asleep->slept_in = shift;
    // Last, because the waker takes the entry over from here.
    *(volatile __u64 *)&asleep->since = now;
}

// Takes the time since which a thread has been asleep; 0 if another CPU has taken it, or the thread is not asleep.
static __always_inline __u64 asleep_since(struct task *asleep, __u32 tid)
{
    if (!*(volatile __u64 *)&asleep->since || asleep->sleeper != tid)
        return 0;
    return __sync_lock_test_and_set(&asleep->since, 0);
}

// The time, for an event whose place has been taken. Reading the clock costs more than most of what programs do, so what
// the first packet of a softirq's piece causes, a microsecond or two later, carries the beginning of the piece.
static __always_inline __u64 now_in(struct ring *ring)
{
    return ring->softirq && ring->fresh ? ring->softirq_began : bpf_ktime_get_ns();
}

// Reports why a thread slept, and who woke it. Interrupts are off.
static __always_inline void wakes(struct ring *ring, __u32 cpu, struct task *asleep, __u32 tid, __u8 by, __u32 who)
{
    __u32 stack = asleep->stack;
    __u8 how = asleep->how;
    // It may have run since, while the programs rested.
    bool is_known = asleep->slept_in == ring->shift;
    __u64 since = asleep_since(asleep, tid);
    struct place place;
    if (!since || !is_known || !take(ring, cpu, false, false, &place))
        return;
    __u64 now = now_in(ring), slept = now > since ? now - since : 0;
    if (slept >> 48)
        slept = (1ull << 48) - 1;
    place.event->time_ns = now;
    place.event->a = slept | (__u64)stack << 48;
    place.event->b = tid;
    place.event->c = who;
    give(&place, EVENT_WOKEN, by | how);
}

// Runs on the waker's CPU.
SEC("tp_btf/sched_waking")
int woken(__u64 *ctx)
{
    struct task_struct *task = (void *)ctx[0];
    if (!is_watched(task->tgid))
        return 0;
    __u32 tid = task->pid, cpu = bpf_get_smp_processor_id();
    struct task *asleep = task_of(tid);
    struct ring *ring = working_ring(cpu);
    // A thread that is woken before its sleep begins, sometimes by itself, has not slept.
    if (!asleep || !ring || !*(volatile __u64 *)&asleep->since)
        return 0;
    __u32 who = bpf_get_current_task_btf()->pid;
    __u8 by = who ? BY_TASK : BY_IDLE;
    if (ring->irq_began) {
        __u32 kind = ring->irq_kind;
        by = kind == IRQ_LINE ? BY_LINE : kind == IRQ_TIMER ? BY_TIMER : BY_CALL;
        who = ring->irq;
    } else if (ring->softirq) {
        by = BY_SOFTIRQ + ring->softirq - 1;
        // Packets of the loopback, whose index is 1 everywhere, come from whoever runs here. Other softirqs have
        // nothing to do with the thread that they interrupt.
        if (ring->softirq != NET_RX + 1 || (ring->device_id & 0xfffff) != 1)
            who = 0;
    }
    wakes(ring, cpu, asleep, tid, by & BY_MASK, who);
    return 0;
}

SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
    struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
    __u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = working_ring(cpu);
    if (!ring)
        return 0;
    __u32 next_tid = next->pid, prev_tid = prev->pid;
    if (waits && next_tid && is_watched(next->tgid)) {
        struct task *asleep = task_of(next_tid);
        if (asleep && *(volatile __u64 *)&asleep->since)
            wakes(ring, cpu, asleep, next_tid, BY_UNSEEN, 0);
    }
    bool sleeper = waits && prev_tid && is_watched(prev->tgid);
    __u32 state = state_at_switch(ctx, prev, switch_has_state);
    __u8 left = how_it_left(ctx, prev, state);
    sleeper = sleeper && (left == LEFT_BLOCKED || left == LEFT_STOPPED);
    if (only_waits) {
        if (sleeper)
            falls_asleep(ctx, prev, left, state, bpf_ktime_get_ns(), ring->shift);
        return 0;
    }
    __u64 clock = prev->se.cfs_rq->rq->clock, queued = 0, waited_elsewhere = 0;
    if (next_tid) {
        struct task *known = task_of(next_tid);
        if (!known)
            return 0;
        // Since it was last put on a run queue, and on those that it was moved away from before.
        queued = next->sched_info.last_queued;
        __u64 before = next->sched_info.run_delay;
        // What it waited while the programs rested is not part of this wait.
        if (known->tid != next_tid || known->seen_in != ring->shift)
            known->tid = 0;
        else if (before > known->delay)
            waited_elsewhere = before - known->delay;
        // As the scheduler itself will count it.
        known->delay = before + (queued ? clock - queued : 0);
        known->seen_in = ring->shift;
        if (known->tid != next_tid || known->name[0] != *(__u64 *)&next->comm[0] ||
            known->name[1] != *(__u64 *)&next->comm[8] || known->groups != (__u64)next->cgroups)
            introduce(ring, cpu, known, next);
    }
    if (left == LEFT_ENDED) {
        struct task *known = task_of(prev_tid);
        if (known && known->tid == prev_tid) {
            // A thread that began and ended without interruption has got its name since it was switched to.
            if (known->name[0] != *(__u64 *)&prev->comm[0] || known->name[1] != *(__u64 *)&prev->comm[8])
                introduce(ring, cpu, known, prev);
            known->tid = 0;
        }
    }
    struct place place;
    if (!take(ring, cpu, false, false, &place))
        return 0;
    __u64 now = bpf_ktime_get_ns();
    compare_clocks(now, clock);
    __s64 waited = queued ? now - clock_offset - queued : 0;
    place.event->time_ns = now;
    place.event->a = waited_elsewhere + (waited > 0 ? waited : 0);
    place.event->b = prev_tid;
    place.event->c = next_tid;
    give(&place, EVENT_SWITCH, left);
    if (sleeper)
        falls_asleep(ctx, prev, left, state, now, ring->shift);
    return 0;
}

static __always_inline void interrupt_began(__u8 kind, __u32 irq)
{
    struct ring *ring = working_ring(bpf_get_smp_processor_id());
    if (!ring)
        return;
    ring->irq = irq;
    ring->irq_kind = kind;
    ring->fresh = false;
    ring->irq_began = bpf_ktime_get_ns();
}

static __always_inline void interrupt_ended(__u8 kind, __u32 irq)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = working_ring(cpu);
    // An interrupt that was in progress when the program was attached has no beginning.
    if (!ring || !ring->irq_began)
        return;
    __u64 began = ring->irq_began;
    ring->irq_began = 0;
    if (only_waits)
        return;
    struct place place;
    if (!take(ring, cpu, false, false, &place))
        return;
    place.event->time_ns = bpf_ktime_get_ns();
    place.event->a = began;
    place.event->b = irq;
    place.event->c = 0;
    give(&place, EVENT_HARDIRQ, kind);
}

#define BEGINS(name, kind, irq)     \
    SEC("tp_btf/" #name)            \
    int name(__u64 *ctx)            \
    {                               \
        interrupt_began(kind, irq); \
        return 0;                   \
    }
#define ENDS(name, kind, irq)       \
    SEC("tp_btf/" #name)            \
    int name(__u64 *ctx)            \
    {                               \
        interrupt_ended(kind, irq); \
        return 0;                   \
    }

BEGINS(irq_handler_entry, IRQ_LINE, ctx[0])
ENDS(irq_handler_exit, IRQ_LINE, ctx[0])
BEGINS(local_timer_entry, IRQ_TIMER, 0)
ENDS(local_timer_exit, IRQ_TIMER, 0)
BEGINS(call_function_entry, IRQ_CALL, 0)
ENDS(call_function_exit, IRQ_CALL, 0)
BEGINS(call_function_single_entry, IRQ_CALL, 0)
ENDS(call_function_single_exit, IRQ_CALL, 0)

static __always_inline void softirq_piece(struct ring *ring, __u32 cpu, __u64 began, __u8 vector, bool reads_clock)
{
    struct place place;
    __u64 now;
    if (take(ring, cpu, true, false, &place)) {
        now = bpf_ktime_get_ns();
        place.event->time_ns = now;
        place.event->a = began;
        __u64 packets = ring->packets, own = ring->own;
        place.event->b = (packets < 0xffff ? packets : 0xffff) | (own < 0xffff ? own : 0xffff) << 16;
        place.event->c = ring->device_id;
        give(&place, EVENT_SOFTIRQ, vector);
        ring->softirq_began = now;
    } else if (reads_clock) {
        ring->softirq_began = bpf_ktime_get_ns();
    }
}

SEC("tp_btf/softirq_entry")
int softirq_entry(__u64 *ctx)
{
    struct ring *ring = working_ring(bpf_get_smp_processor_id());
    if (!ring)
        return 0;
    ring->device = 0;
    ring->device_id = 0;
    ring->packets = 0;
    ring->own = 0;
    ring->fresh = false;
    PUBLISH(ring->softirq, (__u32)ctx[0] + 1);
    ring->softirq_began = only_waits ? ~0ull : bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_exit(__u64 *ctx)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = working_ring(cpu);
    if (!ring || !ring->softirq)
        return 0;
    PUBLISH(ring->softirq, 0);
    if (only_waits)
        return 0;
    softirq_piece(ring, cpu, ring->softirq_began, ctx[0], false);
    return 0;
}

// A packet of an interface enters the stack. The time before it belongs to that interface, too, unless there was
// another one.
SEC("tp_btf/netif_receive_skb")
int netif_receive_skb(__u64 *ctx)
{
    struct sk_buff *skb = (void *)ctx[0];
    __u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = working_ring(cpu);
    if (!ring || ring->softirq != NET_RX + 1)
        return 0;
    struct net_device *device = skb->dev;
    if (ring->device == (__u64)device) {
        ring->fresh = false;
    } else {
        bool first = !ring->device;
        if (!first && !only_waits) {
            softirq_piece(ring, cpu, ring->softirq_began, NET_RX, true);
            ring->packets = 0;
            ring->own = 0;
        }
        __u32 id = device->ifindex, network = device->nd_net.net->ns.inum;
        // Every network namespace has an interface with index 1.
        if (network != own_network)
            id = 1u << 31 | (network & 0x7ff) << 20 | (id & 0xfffff);
        __u32 key = id & (DEVICES - 1);
        __u32 *known = bpf_map_lookup_elem(&devices, &key);
        if (known && *known != id &&
            tell(ring, cpu, true, EVENT_DEVICE, *(__u64 *)&device->name[8], *(__u64 *)&device->name[0], id, network))
            *known = id;
        ring->device = (__u64)device;
        ring->device_id = id;
        // A driver has taken packets from its device for a while before the first of them comes here; loopback has none.
        ring->fresh = !only_waits && (!first || id == LOOPBACK);
    }
    ring->packets++;
    return 0;
}

static __always_inline __u64 *port_word(__u16 port)
{
    __u32 key = port >> 6;
    return bpf_map_lookup_elem(&ports, &key);
}

static __always_inline void watch_port(__u16 port)
{
    __u64 *word = port_word(port), bit = 1ull << (port & 63);
    if (word && !(*word & bit))
        __sync_fetch_and_or(word, bit);
}

#define AF_INET6 10

static __always_inline void transfer(struct sock *sk, __u8 kind, __u32 tid, __u32 seq)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct ring *ring = working_ring(cpu);
    struct place place;
    if (!ring || !take(ring, cpu, true, false, &place))
        return;
    __u32 peer = sk->__sk_common.skc_family == AF_INET6 ? sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32[3]
                                                        : sk->__sk_common.skc_daddr;
    __u16 peer_port = __builtin_bswap16(sk->__sk_common.skc_dport);
    place.event->time_ns = kind == EVENT_ARRIVED ? now_in(ring) : bpf_ktime_get_ns();
    place.event->a = (__u64)peer << 32 | seq;
    place.event->b = (__u32)sk->__sk_common.skc_num << 16 | peer_port;
    place.event->c = tid;
    give(&place, kind, 0);
}

// A thread has read bytes from a socket.
SEC("tp_btf/tcp_rcv_space_adjust")
int has_read(__u64 *ctx)
{
    struct sock *sk = (void *)ctx[0];
    struct task_struct *who = bpf_get_current_task_btf();
    if (!is_watched(who->tgid))
        return 0;
    struct tcp_sock *tcp = tcp_of(sk);
    if (!tcp)
        return 0;
    watch_port(sk->__sk_common.skc_num);
    transfer(sk, EVENT_READ, who->pid, tcp->copied_seq);
    return 0;
}

#define TCP_LISTEN 10

// A process begins to listen: what arrives there matters before its first read.
SEC("tp_btf/inet_sock_set_state")
int listens(__u64 *ctx)
{
    struct sock *sk = (void *)ctx[0];
    if ((int)ctx[2] == TCP_LISTEN && is_watched(bpf_get_current_task_btf()->tgid))
        watch_port(sk->__sk_common.skc_num);
    return 0;
}

// A segment is about to be put into a socket's queue.
SEC("tp_btf/tcp_probe")
int arrived(__u64 *ctx)
{
    struct sock *sk = (void *)ctx[0];
    struct sk_buff *skb = (void *)ctx[1];
    __u16 port = sk->__sk_common.skc_num;
    __u64 *word = port_word(port);
    if (!word || !(*word & 1ull << (port & 63)))
        return 0;
    // struct tcp_skb_cb begins with the sequence number and the one after its end.
    __u32 seq = *(__u32 *)&skb->cb[0], end = *(__u32 *)&skb->cb[4];
    struct ring *ring = working_ring(bpf_get_smp_processor_id());
    // Including those that only acknowledge.
    if (ring && ring->softirq == NET_RX + 1)
        ring->own++;
    if (seq != end)
        transfer(sk, EVENT_ARRIVED, 0, end);
    return 0;
}

// A thread begins to write bytes to a socket, or continues in another buffer (Linux 6.16).
SEC("tp_btf/tcp_sendmsg_locked")
int writes(__u64 *ctx)
{
    struct sock *sk = (void *)ctx[0];
    struct task_struct *who = bpf_get_current_task_btf();
    if (!is_watched(who->tgid))
        return 0;
    struct tcp_sock *tcp = tcp_of(sk);
    if (!tcp)
        return 0;
    watch_port(sk->__sk_common.skc_num);
    transfer(sk, EVENT_WROTE, who->pid, tcp->write_seq);
    return 0;
}

// A thread has written bytes to a socket (Linux 6.3): used where the tracepoint above does not exist.
SEC("tp_btf/sock_send_length")
int has_written(__u64 *ctx)
{
    struct sock *sk = (void *)ctx[0];
    int written = ctx[1];
    struct task_struct *who = bpf_get_current_task_btf();
    if (written <= 0 || !is_watched(who->tgid))
        return 0;
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
    if (!tcp)
        return 0;
    watch_port(sk->__sk_common.skc_num);
    transfer(sk, EVENT_WROTE, who->pid, tcp->write_seq - written);
    return 0;
}
