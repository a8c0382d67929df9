//! Where threads sleep in the kernel: the system call if that says it all, otherwise the stack, by its number in the
//! program's map. Walking a stack costs more than everything else at a context switch.

use crate::symbols::Symbols;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// From here on, a stack's number is this plus that of a system call. `bpf/asleep.h` has the same.
pub(super) const IN_CALL: u16 = 1 << 15;

/// System calls in which an interruptible sleep has one reason only, and the function that each of them always runs and
/// that [`crate::reasons`] knows. Others, such as reads, depend on the file: for them a stack is taken.
#[cfg(target_arch = "x86_64")]
pub(super) const TELLING_CALLS: &[(u16, &str)] = &[
    (libc::SYS_futex as u16, "do_futex"),
    (libc::SYS_epoll_wait as u16, "do_epoll_wait"),
    (libc::SYS_epoll_pwait as u16, "do_epoll_wait"),
    (libc::SYS_epoll_pwait2 as u16, "do_epoll_wait"),
    (libc::SYS_poll as u16, "do_sys_poll"),
    (libc::SYS_ppoll as u16, "do_sys_poll"),
    (libc::SYS_select as u16, "core_sys_select"),
    (libc::SYS_pselect6 as u16, "core_sys_select"),
    (libc::SYS_recvfrom as u16, "sock_recvmsg"),
    (libc::SYS_recvmsg as u16, "sock_recvmsg"),
    (libc::SYS_accept as u16, "__sys_accept4"),
    (libc::SYS_accept4 as u16, "__sys_accept4"),
    (libc::SYS_nanosleep as u16, "hrtimer_nanosleep"),
    (libc::SYS_clock_nanosleep as u16, "__x64_sys_clock_nanosleep"),
];
/// Elsewhere, a thread's registers do not tell the call.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const TELLING_CALLS: &[(u16, &str)] = &[];

/// The map, and the symbols to resolve its addresses.
pub(super) struct Stacks {
    map: MapHandle,
    symbols: Symbols,
}

impl Stacks {
    pub fn new(map: MapHandle) -> Stacks {
        Stacks { map, symbols: Symbols::read() }
    }

    /// Why functions have no names here, if so.
    pub fn why_nameless(&self) -> Option<String> {
        let why = self.symbols.why_none()?;
        Some(format!(
            "why threads slept is unknown unless their system call tells: the kernel's functions have no names: {why}"
        ))
    }

    /// Functions of a stack, the innermost first; empty if the stack is missing.
    pub fn functions(&self, stack: u16) -> Vec<String> {
        if let Some(call) = stack.checked_sub(IN_CALL) {
            let told = TELLING_CALLS.iter().filter(|(number, _)| *number == call);
            return told.map(|(_, function)| (*function).to_owned()).collect();
        }
        let found = self.map.lookup(&u32::from(stack).to_ne_bytes(), MapFlags::ANY);
        let Ok(Some(bytes)) = found else { return Vec::new() };
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        // A return address lies behind the call, which may be the last instruction of its function.
        words.take_while(|address| *address != 0).map(|address| self.symbols.name(address - 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons::reason;
    use spangap_model::WaitReason;

    #[test]
    fn each_call_has_a_reason_of_its_own() {
        for (call, function) in TELLING_CALLS {
            let functions = [(*function).to_owned()];
            let (reason, shown) = reason(&functions);
            assert!(!matches!(reason, WaitReason::Other | WaitReason::Unknown), "{call}: {function}");
            assert_eq!(shown, Some(*function));
            assert!(*call < 512, "{call} has no bit in the program");
        }
    }
}
