// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The kernel's types as far as our probes read them. Offsets are corrected when a program is loaded (CO-RE), so that
// only names and types of fields matter here, and only of those that are used.
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };

// Values of the kernel's include/uapi/linux/bpf.h.
enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_STACK_TRACE = 7,
    BPF_MAP_TYPE_LRU_HASH = 9,
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
    BPF_F_MMAPABLE = 1 << 10,
};

// include/linux/cgroup_subsys.h: numbered by what the kernel was built with.
enum cgroup_subsys_id {
    cpuset_cgrp_id,
    cpu_cgrp_id,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
    __u64 id;
};
struct cgroup_subsys_state {
    struct cgroup *cgroup;
    struct cgroup_subsys_state *parent;
};
struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node *kn;
};
struct css_set {
    struct cgroup_subsys_state *subsys[2];
    struct cgroup *dfl_cgrp;
};
struct rq {
    __u64 clock;
};
struct ns_common {
    unsigned int inum;
};
struct net {
    struct ns_common ns;
};
typedef struct {
    struct net *net;
} possible_net_t;
struct net_device {
    int ifindex;
    char name[16];
    possible_net_t nd_net;
};
struct sk_buff {
    struct net_device *dev;
    char cb[48];
};
struct in6_addr {
    union {
        __be32 u6_addr32[4];
    } in6_u;
};
struct sock_common {
    __be32 skc_daddr;
    __be16 skc_dport;
    __u16 skc_num;
    unsigned short skc_family;
    struct in6_addr skc_v6_daddr;
};
struct sock {
    struct sock_common __sk_common;
};
struct tcp_sock {
    __u32 copied_seq;
    __u32 write_seq;
};
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long ax, dx, si, di, orig_ax, cs, sp;
};
#endif
struct cfs_rq {
    struct rq *rq;
    int throttle_count;
};
struct sched_info {
    unsigned long pcount;
    unsigned long long run_delay;
    unsigned long long last_queued;
};
struct sched_entity {
    struct cfs_rq *cfs_rq;
};
struct task_struct {
    unsigned int __state;
    int pid;
    int tgid;
    struct task_struct *group_leader;
    __u64 start_time;
    int prio;
    char comm[16];
    struct css_set *cgroups;
    struct sched_entity se;
    struct sched_info sched_info;
    bool throttled;
};
// Before 5.14.
struct task_struct___before_5_14 {
    long state;
};

#pragma clang attribute pop

// Makes everything written before visible before this.
#if defined(__TARGET_ARCH_x86)
#define PUBLISH(place, value)                             \
    do {                                                  \
        barrier();                                        \
        *(volatile typeof(place) *)&(place) = (value);    \
    } while (0)
#else
#define PUBLISH(place, value) ((void)__sync_lock_test_and_set(&(place), (value)))
#endif

extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

// The TCP part of a TCP socket; null if it is none, which only kernels before 6.2 check.
static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
    if (bpf_ksym_exists(bpf_rdonly_cast))
        return bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct tcp_sock));
    return bpf_skc_to_tcp_sock(sk);
}
