// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// The bucket of a duration. `buckets.rs` has the same in Rust; a test compares the two at every edge.
#pragma once

enum {
    SUB = 4,                         // 16 buckets for each power of two
    BUCKETS = (32 - SUB + 1) << SUB, // the last one is open above
};

static inline __attribute__((always_inline)) unsigned bucket(unsigned long long ns)
{
    if (ns >= 66000000000)
        return BUCKETS - 1;
    // In 64ths of a microsecond, so that powers of two of microseconds are edges.
    unsigned long long v = ns * 274877907 >> 32;
    if (v < 1 << SUB)
        return v;
    // Without branches, because the next wait is never as long as this one; without a leading-zero count, which BPF
    // lacks.
    unsigned long long shift, log;
    log = (0xfffffULL - v) >> 63 << 4, v >>= log;
    shift = (0xfffULL - v) >> 63 << 3, v >>= shift, log += shift;
    shift = (0xffULL - v) >> 63 << 2, v >>= shift, log += shift;
    shift = (0x3fULL - v) >> 63 << 1, v >>= shift, log += shift;
    shift = (0x1fULL - v) >> 63, v >>= shift, log += shift;
    return (log << SUB) + v;
}
