// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The beginning of each TCP packet, written to memory that the reader maps: a filter of packet sockets that keeps what it
// sees and passes nothing on, so that no packet is queued and nobody is woken.
//
// All CPUs share the blocks: each fills one of its own, then takes the oldest of all. Nothing waits for the reader.
#include "kernel.h"

char LICENSE[] SEC("license") = "GPL";

#define BLOCK_BYTES (64 << 10)
// At most this is kept of a packet. Most packets are small, and a block is full as soon as one of its class may not fit.
#define MOST_KEPT (16 << 10)
#define SMALL 2048
// A packet that opens or closes a connection is kept once more, without its payload.
#define OPENINGS 8192
#define OPENING_BYTES 128

// Number of blocks; a CPU leaves its block before this many more have been taken, which is some less.
const volatile __u32 blocks_number = 0;
const volatile __u32 leaves_after = 0;
// Port of the datagrams that prove that this works; 0: none.
const volatile __u32 canary_port = 0;
// Whether to keep TCP of loopback, or only those datagrams.
const volatile bool keeps_loopback = true;

// The context of a filter, as far as it is read (include/uapi/linux/bpf.h).
struct __sk_buff {
    __u32 len;
    __u32 pkt_type;
    __u32 mark;
    __u32 queue_mapping;
    __u32 protocol;
    __u32 vlan_present;
    __u32 vlan_tci;
    __u32 vlan_proto;
    __u32 priority;
    __u32 ingress_ifindex;
    __u32 ifindex;
};

// Half of what is kept of a busy host are packets of less than a hundred bytes: each byte here is a hundredth of the
// time that the memory reaches back.
struct record {
    __u32 after_low; // nanoseconds after the first packet of its block, the lower 32 bits
    __u32 interface;
    __u32 length_and_after_high; // length of the packet in 24 bits, the upper 8 bits of the time
    __u16 kept;
    __u8 type;    // sll_pkttype
    __u8 version; // of IP
};
#define MOST_LENGTH ((1u << 24) - 1)
#define MOST_AFTER_NS ((1ull << 40) - 1)

struct block_head {
    __u64 number; // from 1; 0 while it changes hands
    __u64 first_ns;
    __u64 last_ns;
    __u32 used;
    __u32 cpu;
    __u64 spare[4];
};

struct block {
    struct block_head head;
    __u8 records[BLOCK_BYTES - sizeof(struct block_head)];
};

struct opening {
    __u64 stamp; // its number plus one, written last
    __u64 time_ns;
    struct record record;
    __u8 data[OPENING_BYTES];
};

// What a CPU has done, and its block.
struct packets_state {
    __u64 number; // of its block; 0: none
    __u32 index;
    __u32 used;
    __u64 packets;
    __u64 bytes;
    __u64 overwritten_ns; // time of the last packet that it has overwritten
    __u64 torn;           // packets whose block another CPU took meanwhile
    __u64 first_ns;       // since when it has its block
    __u64 spare;
};

// What all CPUs share with the reader.
struct packets_shared {
    __u64 taken;     // blocks
    __u64 spare[7];
    __u64 openings;
    __u64 others[7];
    __u32 snap_bytes; // written by the reader
    __u32 last[15];
};

#define MAPPED_ARRAY(name, type_)            \
    struct {                                 \
        __uint(type, BPF_MAP_TYPE_ARRAY);    \
        __uint(map_flags, BPF_F_MMAPABLE);   \
        __uint(max_entries, 1);              \
        __type(key, __u32);                  \
        __type(value, type_);                \
    } name SEC(".maps")

MAPPED_ARRAY(blocks, struct block);
MAPPED_ARRAY(states, struct packets_state);
MAPPED_ARRAY(shared, struct packets_shared);

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, OPENINGS);
    __type(key, __u32);
    __type(value, struct opening);
} openings SEC(".maps");

#define LOOPBACK 1
#define PACKET_OUTGOING 4
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define TCP 6
#define UDP 17
#define FRAGMENT 44
#define OPENS_OR_CLOSES 0x07 // FIN, SYN, RST

static __always_inline __u64 blocks_taken(struct packets_shared *all)
{
    return *(volatile __u64 *)&all->taken;
}

// Takes the oldest block of all.
static __noinline int take_block(struct packets_shared *all, struct packets_state *state, __u32 cpu, __u64 now)
{
    if (!all || !state || !blocks_number)
        return 0;
    __u64 number = __sync_fetch_and_add(&all->taken, 1) + 1;
    __u32 index = (number - 1) % blocks_number;
    struct block *block = bpf_map_lookup_elem(&blocks, &index);
    if (!block)
        return 0;
    PUBLISH(block->head.number, 0);
    if (block->head.last_ns > state->overwritten_ns)
        PUBLISH(state->overwritten_ns, block->head.last_ns);
    block->head.first_ns = 0;
    block->head.last_ns = 0;
    block->head.used = sizeof(struct block_head);
    block->head.cpu = cpu;
    PUBLISH(block->head.number, number);
    state->number = number;
    state->index = index;
    state->used = sizeof(struct block_head);
    state->first_ns = now;
    return 1;
}

// Keeps a packet that opens or closes its connection.
static __always_inline void keep_opening(struct packets_shared *all, __u64 now, struct record *record, __u8 *at,
                                         __u32 header)
{
    if (record->kept < header + 14 || !(at[header + 13] & OPENS_OR_CLOSES))
        return;
    __u64 number = __sync_fetch_and_add(&all->openings, 1);
    __u32 key = number & (OPENINGS - 1);
    struct opening *opening = bpf_map_lookup_elem(&openings, &key);
    if (!opening)
        return;
    PUBLISH(opening->stamp, 0);
    opening->time_ns = now;
    opening->record = *record;
    __builtin_memcpy(opening->data, at, OPENING_BYTES);
    PUBLISH(opening->stamp, number + 1);
}

// `most` is a power of two.
static __always_inline int keep(struct __sk_buff *skb, struct packets_shared *all, __u32 kept, __u32 most, bool tcp)
{
    __u32 cpu = bpf_get_smp_processor_id();
    struct packets_state *state = bpf_map_lookup_elem(&states, &cpu);
    if (!state)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    __u32 room = BLOCK_BYTES - sizeof(struct record) - most;
    if (!state->number || state->used > room || blocks_taken(all) - state->number >= leaves_after ||
        now - state->first_ns > MOST_AFTER_NS) {
        if (!take_block(all, state, cpu, now))
            return 0;
    }
    __u32 index = state->index, used = state->used;
    // The barriers keep the compiler from merging comparisons and from checking a copy, which verifiers before 6.8 cannot follow.
    barrier_var(used);
    if (used > room || kept == 0 || kept > most)
        return 0;
    barrier_var(used);
    struct block *block = bpf_map_lookup_elem(&blocks, &index);
    if (!block)
        return 0;
    barrier_var(kept);
    kept = ((kept - 1) & (most - 1)) + 1;
    struct record *record = (void *)block + used;
    __u8 *at = (__u8 *)(record + 1);
    if (bpf_skb_load_bytes(skb, 0, at, kept))
        return 0;
    bool v4 = skb->protocol == __builtin_bswap16(ETHERTYPE_IPV4);
    __u64 after_ns = now - state->first_ns;
    __u32 length = skb->len;
    record->after_low = after_ns;
    record->interface = skb->ifindex;
    record->length_and_after_high = (length < MOST_LENGTH ? length : MOST_LENGTH) | (after_ns >> 32) << 24;
    record->kept = kept;
    record->type = skb->pkt_type;
    record->version = v4 ? 4 : 6;
    // This CPU stood still while the others filled all blocks but a few.
    if (blocks_taken(all) - state->number >= blocks_number) {
        state->torn++;
        state->number = 0;
        return 0;
    }
    if (tcp) {
        if (v4)
            keep_opening(all, now, record, at, (at[0] & 0x0f) * 4);
        else
            keep_opening(all, now, record, at, 40);
    }
    __u32 bytes = (sizeof(struct record) + kept + 7) & ~7u;
    if (used == sizeof(struct block_head))
        block->head.first_ns = state->first_ns;
    block->head.last_ns = now;
    state->packets++;
    state->bytes += bytes;
    state->used = used + bytes;
    PUBLISH(block->head.used, used + bytes);
    return 0;
}

static __always_inline __u8 protocol_of(struct __sk_buff *skb)
{
    __u8 protocol = 0;
    if (skb->protocol == __builtin_bswap16(ETHERTYPE_IPV4)) {
        bpf_skb_load_bytes(skb, 9, &protocol, 1);
    } else if (skb->protocol == __builtin_bswap16(ETHERTYPE_IPV6)) {
        bpf_skb_load_bytes(skb, 6, &protocol, 1);
        if (protocol == FRAGMENT)
            bpf_skb_load_bytes(skb, 40, &protocol, 1);
    }
    return protocol;
}

// Whether it is a datagram of the canary, which has no options and goes over IPv4.
static __always_inline bool is_canary(struct __sk_buff *skb)
{
    __be16 port = 0;
    return canary_port && skb->protocol == __builtin_bswap16(ETHERTYPE_IPV4) &&
           !bpf_skb_load_bytes(skb, 22, &port, 2) && port == __builtin_bswap16(canary_port);
}

SEC("socket")
int packet(struct __sk_buff *skb)
{
    bool loopback = skb->ifindex == LOOPBACK;
    // It comes in again.
    if (loopback && skb->pkt_type == PACKET_OUTGOING)
        return 0;
    __u8 protocol = protocol_of(skb);
    bool tcp = protocol == TCP && (keeps_loopback || !loopback);
    if (!tcp && !(protocol == UDP && is_canary(skb)))
        return 0;
    __u32 key = 0;
    struct packets_shared *all = bpf_map_lookup_elem(&shared, &key);
    if (!all)
        return 0;
    __u32 kept = skb->len, snap_bytes = *(volatile __u32 *)&all->snap_bytes;
    if (kept > snap_bytes)
        kept = snap_bytes;
    if (kept <= SMALL)
        return keep(skb, all, kept, SMALL, tcp);
    return keep(skb, all, kept < MOST_KEPT ? kept : MOST_KEPT, MOST_KEPT, tcp);
}
