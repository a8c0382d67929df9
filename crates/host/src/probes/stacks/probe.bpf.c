// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
#include "kernel.h"

char LICENSE[] SEC("license") = "GPL";

SEC("perf_event")
int sampled(void *ctx)
{
    return 0;
}
