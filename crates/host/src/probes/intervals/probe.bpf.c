// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
#include "event.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sched_switch")
int switched(__u64 *ctx)
{
    return 0;
}
