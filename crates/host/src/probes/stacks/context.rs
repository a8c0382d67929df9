//! The context a CPU was in, derived from the functions in its call chain: a sample does not say whether it was
//! taken in an interrupt, and `current` is then whichever thread was interrupted.

use crate::symbols::Symbols;
use std::ops::Range;

/// Execution context of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Context {
    /// The current thread itself.
    Thread,
    /// A softirq at the end of an interrupt, on top of whatever the CPU was doing.
    SoftirqAfterInterrupt,
    /// A softirq inside a system call of the current thread, run when the call re-enabled softirqs. The sender
    /// of loopback packets processes them this way.
    SoftirqInCall,
    /// An interrupt handler.
    Hardirq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Softirq,
    /// A thread whose own work is softirqs.
    SoftirqThread,
    /// The handler has returned, and its softirqs may run.
    InterruptExit,
    /// The interrupt is over: a thread, usually another one, runs on top of it.
    Thread,
    Hardirq,
}

/// Address ranges of the functions that mark a context.
#[derive(Debug)]
pub struct Marks(Vec<(Range<u64>, Mark)>);

fn mark(function: &str) -> Option<Mark> {
    Some(match function {
        // 6.10 moved the second function's work into the first.
        "handle_softirqs" | "__do_softirq" => Mark::Softirq,
        "run_ksoftirqd" => Mark::SoftirqThread,
        "irq_exit" | "irq_exit_rcu" | "__irq_exit_rcu" => Mark::InterruptExit,
        "schedule"
        | "__schedule"
        | "preempt_schedule_irq"
        | "preempt_schedule_common"
        | "irqentry_exit"
        | "irqentry_exit_to_user_mode"
        | "irqentry_exit_cond_resched"
        | "raw_irqentry_exit_cond_resched"
        | "exit_to_user_mode_prepare"
        | "exit_to_user_mode_loop"
        | "arm64_preempt_schedule_irq" => Mark::Thread,
        // x86; arm64 from 5.14 on and before; the generic layer below, for the others.
        "common_interrupt"
        | "asm_common_interrupt"
        | "__common_interrupt"
        | "el1_interrupt"
        | "el0_interrupt"
        | "el1h_64_irq"
        | "el1h_64_irq_handler"
        | "el0t_64_irq"
        | "el0t_64_irq_handler"
        | "el1_irq"
        | "el0_irq"
        | "do_interrupt_handler"
        | "call_on_irq_stack"
        | "gic_handle_irq"
        | "handle_irq_event"
        | "do_IRQ" => Mark::Hardirq,
        _ if ["asm_sysvec_", "sysvec_", "__sysvec_"].iter().any(|start| function.starts_with(start)) => {
            Mark::Hardirq
        }
        _ => return None,
    })
}

impl Marks {
    /// Looks up the marking functions.
    pub fn find(symbols: &Symbols) -> Marks {
        Marks(symbols.ranges(mark))
    }

    /// Whether contexts can be distinguished at all.
    pub fn usable(&self) -> bool {
        self.0.iter().any(|(_, mark)| *mark == Mark::Softirq)
    }

    fn at(&self, address: u64) -> Option<Mark> {
        let after = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, mark) = self.0.get(after.checked_sub(1)?)?;
        range.contains(&address).then_some(*mark)
    }

    /// Context of a call chain, and how many of its frames, from the leaf on, belong to it: frames below an
    /// interrupt belong to the interrupted code.
    pub fn context(&self, frames: &[u64]) -> (Context, usize) {
        let marks: Vec<_> = (0..frames.len()).map(|index| self.at(call_site(frames, index))).collect();
        for (index, mark) in marks.iter().enumerate() {
            match mark {
                Some(Mark::Softirq) => {
                    let below = &marks[index + 1..];
                    if below.contains(&Some(Mark::SoftirqThread)) {
                        return (Context::Thread, frames.len());
                    }
                    // The interrupt exit calls the softirqs, with at most a switch of stacks between them.
                    let after_interrupt = below.iter().take(4).any(|mark| *mark == Some(Mark::InterruptExit));
                    let context =
                        if after_interrupt { Context::SoftirqAfterInterrupt } else { Context::SoftirqInCall };
                    return (context, index + 1);
                }
                Some(Mark::Hardirq) => {
                    let more = marks[index..].iter().take_while(|mark| **mark == Some(Mark::Hardirq)).count();
                    return (Context::Hardirq, index + more);
                }
                Some(Mark::Thread) => break,
                Some(Mark::SoftirqThread | Mark::InterruptExit) | None => {}
            }
        }
        (Context::Thread, frames.len())
    }
}

/// The address to look up for a frame: that of the call rather than the return address, which may lie in
/// another function.
pub fn call_site(frames: &[u64], index: usize) -> u64 {
    frames[index].saturating_sub(u64::from(index > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: &[&str] = &[
        "asm_sysvec_apic_timer_interrupt",
        "sysvec_apic_timer_interrupt",
        "asm_common_interrupt",
        "common_interrupt",
        "handle_irq_event",
        "irqentry_exit",
        "__irq_exit_rcu",
        "do_softirq_own_stack",
        "handle_softirqs.constprop.0",
        "net_rx_action",
        "__napi_poll",
        "e1000_clean",
        "e1000_intr",
        "run_ksoftirqd",
        "smpboot_thread_fn",
        "__local_bh_enable_ip",
        "tcp_sendmsg",
        "entry_SYSCALL_64_after_hwframe",
        "preempt_schedule_irq",
        "__schedule",
        "finish_task_switch.isra.0",
    ];

    fn symbols() -> Symbols {
        let lines = FUNCTIONS.iter().enumerate();
        let text: String =
            lines.map(|(n, name)| format!("{:016x} T {name}\n", 0xffff_0000 + n as u64 * 256)).collect();
        Symbols::parse(&text)
    }

    /// A chain in the order it is printed: leaf first.
    fn context(chain: &str) -> (Context, usize) {
        let symbols = symbols();
        let frames: Vec<_> = chain
            .split(" <- ")
            .map(|name| {
                let at = FUNCTIONS.iter().position(|f| f.split('.').next() == Some(name));
                0xffff_0010 + at.unwrap_or_else(|| panic!("{name}")) as u64 * 256
            })
            .collect();
        Marks::find(&symbols).context(&frames)
    }

    #[test]
    fn softirqs_are_classified_by_their_caller() {
        assert_eq!(
            context(
                "e1000_clean <- __napi_poll <- net_rx_action <- handle_softirqs <- __irq_exit_rcu <- common_interrupt <- \
                 asm_common_interrupt <- tcp_sendmsg <- entry_SYSCALL_64_after_hwframe"
            ),
            (Context::SoftirqAfterInterrupt, 4)
        );
        assert_eq!(
            context(
                "net_rx_action <- handle_softirqs <- do_softirq_own_stack <- __local_bh_enable_ip <- tcp_sendmsg"
            ),
            (Context::SoftirqInCall, 2)
        );
        assert_eq!(
            context("net_rx_action <- handle_softirqs <- run_ksoftirqd <- smpboot_thread_fn"),
            (Context::Thread, 4)
        );
    }

    #[test]
    fn handler_includes_its_entry_frames() {
        assert_eq!(
            context(
                "e1000_intr <- handle_irq_event <- common_interrupt <- asm_common_interrupt <- tcp_sendmsg"
            ),
            (Context::Hardirq, 4)
        );
        // On top of a softirq.
        assert_eq!(
            context(
                "sysvec_apic_timer_interrupt <- asm_sysvec_apic_timer_interrupt <- net_rx_action <- handle_softirqs"
            ),
            (Context::Hardirq, 2)
        );
    }

    #[test]
    fn thread_scheduled_by_an_interrupt_is_a_thread() {
        assert_eq!(
            context(
                "finish_task_switch <- __schedule <- preempt_schedule_irq <- irqentry_exit <- asm_sysvec_apic_timer_interrupt <- tcp_sendmsg"
            ),
            (Context::Thread, 6)
        );
        assert_eq!(context("tcp_sendmsg <- entry_SYSCALL_64_after_hwframe"), (Context::Thread, 2));
        assert_eq!(Marks::find(&symbols()).context(&[]), (Context::Thread, 0));
    }

    #[test]
    fn without_symbols_contexts_are_unknown() {
        let marks = Marks::find(&Symbols::default());
        assert!(!marks.usable());
        assert_eq!(marks.context(&[1, 2]), (Context::Thread, 2));
    }

    #[test]
    fn this_kernel_has_the_marking_functions() {
        let symbols = Symbols::read();
        if let Some(why) = symbols.why_none() {
            println!("not run: {why}");
            return;
        }
        let marks = Marks::find(&symbols);
        assert!(marks.usable());
        for kind in [Mark::InterruptExit, Mark::Hardirq, Mark::Thread, Mark::SoftirqThread] {
            assert!(marks.0.iter().any(|(_, mark)| *mark == kind), "{kind:?}");
        }
    }
}
