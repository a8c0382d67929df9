//! The kernel stack on which a thread fell asleep -> why it slept.

use spangap_model::WaitReason;

/// Functions by what it means to sleep in them or below; a name that ends in `*` stands for all that begin so. Each
/// list holds the names of Linux 5.10 to 6.18. Earlier rows win over later ones, wherever in the stack they are: a page
/// fault that has to reclaim memory first is reclaim, an fsync that waits for the journal is an fsync.
const RULES: &[(WaitReason, &[&str])] = &[
    (WaitReason::Frozen, &["do_freezer_trap", "__refrigerator"]),
    (WaitReason::Traced, &["ptrace_stop", "ptrace_notify"]),
    (WaitReason::Stopped, &["do_signal_stop"]),
    (
        WaitReason::Reclaim,
        &[
            "try_to_free_pages",
            "try_to_free_mem_cgroup_pages",
            "mem_cgroup_handle_over_high",
            "__mem_cgroup_handle_over_high",
            "mem_cgroup_oom_synchronize",
            "reclaim_throttle",
            "shrink_node*",
            "congestion_wait",
        ],
    ),
    (WaitReason::WriteThrottle, &["balance_dirty_pages*"]),
    (
        WaitReason::Fsync,
        &[
            "vfs_fsync*",
            "do_fsync",
            "ksys_sync*",
            "__do_sys_syncfs",
            "__x64_sys_sync*",
            "__arm64_sys_sync*",
            "generic_write_sync",
            "iterate_supers",
            "__x64_sys_msync",
            "__arm64_sys_msync",
        ],
    ),
    (
        WaitReason::RemoteFiles,
        &[
            "fuse_*",
            "request_wait_answer",
            "nfs_*",
            "nfs4_*",
            "rpc_wait_bit_killable",
            "p9_client_rpc",
            "cifs_*",
        ],
    ),
    (
        WaitReason::FileLock,
        &[
            "locks_lock_inode_wait",
            "locks_lock_file_wait",
            "flock_lock_inode_wait",
            "posix_lock_inode_wait",
            "do_lock_file_wait",
            "fcntl_setlk*",
            "__break_lease",
        ],
    ),
    (
        WaitReason::Semaphore,
        &[
            "do_semtimedop",
            "__do_semtimedop",
            "do_msgrcv",
            "do_msgsnd",
            "wq_sleep",
            "do_mq_timedreceive",
            "do_mq_timedsend",
        ],
    ),
    (
        WaitReason::KernelLock,
        &[
            "rwsem_down_*",
            "__mutex_lock*",
            "mutex_lock*",
            "__down*",
            "down_read*",
            "down_write*",
            "rt_mutex_*",
            "__rt_mutex_*",
            "percpu_rwsem_wait",
            "__percpu_down_read",
        ],
    ),
    (
        WaitReason::PageFault,
        &[
            "handle_mm_fault",
            "exc_page_fault",
            "do_user_addr_fault",
            "do_page_fault",
            "do_swap_page",
            "filemap_fault",
        ],
    ),
    (
        WaitReason::Journal,
        &[
            "start_this_handle",
            "wait_transaction_locked",
            "jbd2_*",
            "xlog_*",
            "xfs_log_*",
            "btrfs_wait_*",
            "wait_current_trans",
        ],
    ),
    (WaitReason::Futex, &["futex_*", "do_futex", "__futex_*"]),
    (
        WaitReason::Sleep,
        &[
            "do_nanosleep",
            "hrtimer_nanosleep",
            "common_nsleep*",
            "alarm_timer_nsleep",
            "__x64_sys_clock_nanosleep",
        ],
    ),
    (
        WaitReason::Poll,
        &[
            "ep_poll",
            "do_epoll_wait",
            "do_sys_poll",
            "do_poll*",
            "poll_schedule_timeout*",
            "do_select",
            "core_sys_select",
            "io_cqring_*",
            "read_events",
        ],
    ),
    (
        WaitReason::Accept,
        &["inet_csk_accept", "inet_csk_wait_for_connect", "unix_accept", "do_accept", "__sys_accept4"],
    ),
    (
        WaitReason::Connect,
        &["inet_stream_connect", "__inet_stream_connect", "inet_wait_for_connect", "unix_stream_connect"],
    ),
    (
        WaitReason::SocketWrite,
        &["sk_stream_wait_memory", "sock_alloc_send_pskb", "sock_wait_for_wmem", "unix_wait_for_peer"],
    ),
    (
        WaitReason::SocketRead,
        &[
            "sk_wait_data",
            "tcp_recvmsg*",
            "tcp_splice_read",
            "__skb_wait_for_more_packets",
            "unix_stream_data_wait",
            "unix_stream_read_generic",
            "sock_recvmsg",
            "vsock_*",
            "netlink_recvmsg",
        ],
    ),
    (
        WaitReason::PipeRead,
        &["pipe_read", "anon_pipe_read", "fifo_pipe_read", "wait_for_partner", "fifo_open"],
    ),
    (WaitReason::PipeWrite, &["pipe_write", "anon_pipe_write", "fifo_pipe_write", "pipe_wait_writable"]),
    (WaitReason::PipeRead, &["pipe_wait_readable", "pipe_wait"]),
    (WaitReason::Child, &["do_wait", "kernel_wait*", "wait_for_vfork_done", "kernel_clone"]),
    (
        WaitReason::Signal,
        &["do_sigtimedwait", "sigsuspend", "__do_sys_pause", "__x64_sys_pause", "signalfd_read*"],
    ),
    (WaitReason::Event, &["eventfd_read", "timerfd_read*", "inotify_read", "fanotify_read", "perf_read"]),
    (WaitReason::Terminal, &["n_tty_read", "n_tty_write", "wait_port_writable"]),
    (
        WaitReason::Disk,
        &[
            "io_schedule*",
            "folio_wait_*",
            "wait_on_page_*",
            "__wait_on_buffer",
            "bit_wait_io",
            "blk_mq_get_tag",
            "submit_bio_wait",
            "blk_execute_rq",
            "wait_for_completion_io*",
        ],
    ),
    (
        WaitReason::Kernel,
        &["synchronize_rcu*", "__wait_rcu_gp", "rcu_barrier", "stop_machine*", "stop_one_cpu", "membarrier*"],
    ),
];

/// Functions that every sleep goes through, and that say nothing of its reason.
const PLUMBING: &[&str] = &[
    "__schedule",
    "schedule",
    "schedule_timeout*",
    "schedule_hrtimeout*",
    "preempt_schedule*",
    "__cond_resched",
    "wait_woken",
    "__wait_on_bit*",
    "out_of_line_wait_on_bit*",
    "bit_wait*",
    "wait_for_completion*",
    "__wait_for_common",
    "do_wait_intr*",
    "prepare_to_wait*",
];

/// Why a thread slept whose stack has these functions, the innermost first, and in which function that shows. What is
/// no kernel function of a name (see [`crate::symbols::Symbols::name`]) is passed over.
pub fn reason(functions: &[String]) -> (WaitReason, Option<&str>) {
    if functions.is_empty() {
        return (WaitReason::Unknown, None);
    }
    // What is above the scheduler belongs to the tracepoint and to the program that looked.
    let from = functions.iter().position(|name| is(name, "__schedule") || is(name, "schedule")).unwrap_or(0);
    let functions = &functions[from..];
    for (reason, names) in RULES {
        let at = functions.iter().position(|function| names.iter().any(|name| is(function, name)));
        if let Some(at) = at {
            return (*reason, Some(plain(&functions[at])));
        }
    }
    let first = functions.iter().find(|name| !PLUMBING.iter().any(|plumbing| is(name, plumbing)));
    match first {
        // The compiler may have put `do_freezer_trap` into it. Everything else that sleeps there has a function of its own.
        Some(first) if is(first, "get_signal") => (WaitReason::Frozen, Some(plain(first))),
        Some(first) if !first.starts_with("0x") => (WaitReason::Other, Some(plain(first))),
        _ => (WaitReason::Unknown, None),
    }
}

/// Without what the compiler appended, and the module.
fn plain(function: &str) -> &str {
    function.split(['.', ' ']).next().unwrap_or(function)
}

fn is(function: &str, name: &str) -> bool {
    let function = plain(function);
    match name.strip_suffix('*') {
        Some(begin) => function.starts_with(begin),
        None => function == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: &str) -> (WaitReason, Option<String>) {
        let functions: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        let (reason, function) = reason(&functions);
        (reason, function.map(str::to_owned))
    }

    /// As real kernels showed them, the innermost function first.
    #[test]
    fn stacks_of_real_kernels() {
        for (stack, expected) in [
            (
                "__schedule schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex",
                WaitReason::Futex,
            ),
            ("__schedule schedule futex_wait_queue_me futex_wait do_futex", WaitReason::Futex),
            ("__schedule schedule schedule_hrtimeout_range ep_poll do_epoll_wait", WaitReason::Poll),
            ("__schedule schedule do_nanosleep hrtimer_nanosleep", WaitReason::Sleep),
            ("__schedule schedule anon_pipe_read vfs_read ksys_read", WaitReason::PipeRead),
            (
                "__schedule schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked tcp_recvmsg",
                WaitReason::SocketRead,
            ),
            (
                "__schedule schedule schedule_timeout inet_csk_accept inet_accept do_accept",
                WaitReason::Accept,
            ),
            (
                "__schedule schedule jbd2_log_wait_commit ext4_sync_file vfs_fsync_range do_fsync",
                WaitReason::Fsync,
            ),
            (
                "__schedule schedule wait_transaction_locked add_transaction_credits start_this_handle ext4_create",
                WaitReason::Journal,
            ),
            (
                "__schedule schedule io_schedule folio_wait_bit_common filemap_fault __do_fault handle_mm_fault exc_page_fault",
                WaitReason::PageFault,
            ),
            (
                "__schedule schedule io_schedule shrink_folio_list shrink_node try_to_free_mem_cgroup_pages handle_mm_fault",
                WaitReason::Reclaim,
            ),
            ("__schedule schedule io_schedule folio_wait_bit_common filemap_read vfs_read", WaitReason::Disk),
            (
                "__schedule schedule io_schedule_timeout balance_dirty_pages_ratelimited generic_perform_write",
                WaitReason::WriteThrottle,
            ),
            (
                "__schedule schedule rwsem_down_read_slowpath.isra.0 down_read do_user_addr_fault",
                WaitReason::KernelLock,
            ),
            ("__schedule schedule locks_lock_inode_wait __do_sys_flock do_syscall_64", WaitReason::FileLock),
            ("__schedule schedule fcntl_setlk do_fcntl __x64_sys_fcntl", WaitReason::FileLock),
            ("__schedule schedule __do_semtimedop do_semtimedop __x64_sys_semtimedop", WaitReason::Semaphore),
            (
                "__schedule schedule schedule_hrtimeout_range wq_sleep.constprop.0 do_mq_timedreceive",
                WaitReason::Semaphore,
            ),
            ("__schedule schedule do_signal_stop get_signal", WaitReason::Stopped),
            ("__schedule schedule ptrace_stop get_signal", WaitReason::Traced),
            ("__schedule schedule do_freezer_trap get_signal", WaitReason::Frozen),
            ("__schedule schedule get_signal arch_do_signal_or_restart", WaitReason::Frozen),
            ("__schedule schedule do_exit do_group_exit get_signal", WaitReason::Other),
            ("__schedule schedule do_wait kernel_wait4", WaitReason::Child),
        ] {
            assert_eq!(of(stack).0, expected, "{stack}");
        }
    }

    #[test]
    fn what_is_no_reason_is_not_made_one() {
        assert_eq!(
            of("__schedule schedule worker_thread kthread"),
            (WaitReason::Other, Some("worker_thread".into()))
        );
        assert_eq!(of(""), (WaitReason::Unknown, None));
        assert_eq!(of("0xffffffff81000000 0x1"), (WaitReason::Unknown, None));
        // The looking program's own frames say nothing.
        assert_eq!(of("futex_hook bpf_prog_1 __schedule schedule do_nanosleep").0, WaitReason::Sleep);
    }
}
