// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Programs that do nothing, at the tracepoints where those of the host probes are: what the kernel charges for calling a
// program there.
#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "GPL";

#define EMPTY(tracepoint)        \
    SEC("tp_btf/" #tracepoint)   \
    int tracepoint(void *ctx)    \
    {                            \
        return 0;                \
    }

EMPTY(sched_switch)
EMPTY(sched_waking)
EMPTY(tcp_rcv_space_adjust)
EMPTY(tcp_probe)
EMPTY(inet_sock_set_state)
EMPTY(tcp_sendmsg_locked)
EMPTY(netif_receive_skb)
EMPTY(softirq_entry)
EMPTY(softirq_exit)
EMPTY(irq_handler_entry)
EMPTY(irq_handler_exit)
EMPTY(local_timer_entry)
EMPTY(local_timer_exit)
EMPTY(call_function_entry)
EMPTY(call_function_exit)
EMPTY(call_function_single_entry)
EMPTY(call_function_single_exit)
