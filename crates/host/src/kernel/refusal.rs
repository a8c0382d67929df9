//! The reason for which a probe cannot run, derived from this process's rights and from the messages of libbpf
//! and the verifier.

use super::{Capability, Kernel, Lockdown, TYPED_TRACEPOINTS};
use libbpf_rs::{ErrorKind, PrintLevel, set_print};
use std::cell::RefCell;
use std::io;
use std::sync::Once;

/// A probe cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// This process may not load programs.
    #[error("cannot run the probe {probe}: {need}; `spangap host check` works without")]
    NotRoot {
        probe: &'static str,
        /// Missing right.
        need: String,
    },
    /// The kernel lacks type information (BTF).
    #[error(
        "cannot load the probe {probe}: the kernel has no type information, which a probe needs to adapt to it \
         (/sys/kernel/btf/vmlinux cannot be read; a kernel built with CONFIG_DEBUG_INFO_BTF=y has it); \
         `spangap host check` works without"
    )]
    NoBtf { probe: &'static str },
    /// The kernel lacks a feature that the probe requires.
    #[error("this kernel has no {what}, which came with Linux {since}; `spangap host check` works without")]
    Lacks {
        /// Missing feature.
        what: String,
        /// First version that has it.
        since: &'static str,
    },
    /// The kernel rejected a program.
    #[error("cannot load the probe {probe}: {reason}")]
    Load {
        probe: &'static str,
        /// Reason, from the kernel or from libbpf.
        reason: String,
    },
    /// A program cannot be attached.
    #[error("cannot attach {program} of the probe {probe}: {reason}")]
    Attach {
        probe: &'static str,
        /// The program, or its attach point.
        program: String,
        /// Reason, from the kernel or from libbpf.
        reason: String,
    },
    /// A file or map cannot be read or written.
    #[error("{what}: {source}")]
    Io {
        /// Operation and path.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Missing capabilities, in words.
pub(super) fn need_capabilities(kernel: &Kernel, missing: &[Capability]) -> String {
    if kernel.user_namespace {
        return "this process is in a user namespace, whose capabilities do not count for the kernel as a whole: run it as root of the host".into();
    }
    let names: Vec<_> = missing.iter().map(Capability::to_string).collect();
    let names = names.join(" and ");
    let instead = match missing {
        [Capability::SysAdmin] => "",
        [_] => " (or CAP_SYS_ADMIN instead)",
        _ => " (or CAP_SYS_ADMIN instead of both)",
    };
    format!("this process lacks {names}{instead}: run it as root, or give it these capabilities")
}

/// Maximum number of lines kept; a verifier log has thousands, and its last lines carry the reason.
const MAX_LINES: usize = 200;

thread_local! {
    // libbpf prints on the thread that called it.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn keep(_: PrintLevel, text: String) {
    SAID.with_borrow_mut(|said| {
        said.extend(text.lines().map(|line| line.trim_end().to_string()));
        let over = said.len().saturating_sub(MAX_LINES);
        said.drain(..over);
    });
}

/// Keeps libbpf from printing to standard error; its warnings go into the errors of [`refused`] instead. Call
/// before each load: it also discards earlier messages of this thread.
pub fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, keep)));
    });
    SAID.take();
}

/// Extracts the reason for a failed load from libbpf's messages on this thread since [`quiet`].
pub fn refused(probe: &'static str, error: libbpf_rs::Error) -> ProbeError {
    reason(probe, &Kernel::look(), error.kind(), &format!("{error:#}"), &SAID.take())
}

fn reason(probe: &'static str, kernel: &Kernel, kind: ErrorKind, error: &str, said: &[String]) -> ProbeError {
    let missing = kernel.missing_for_probes();
    if !missing.is_empty() {
        return ProbeError::NotRoot { probe, need: need_capabilities(kernel, &missing) };
    }
    if kernel.version() < TYPED_TRACEPOINTS && kernel.version() != (0, 0) {
        return ProbeError::Lacks { what: "tracepoints with types".into(), since: "5.5" };
    }
    if !kernel.btf {
        return ProbeError::NoBtf { probe };
    }
    let said = last_words(said);
    let reason = match (&said, kind) {
        (Some(said), ErrorKind::PermissionDenied) if !said.verifier => {
            format!("{}{}", said.line, policy(kernel))
        }
        (Some(said), _) if said.verifier => {
            format!("the verifier of Linux {} refused: {}", kernel.release, said.line)
        }
        (Some(said), _) => said.line.clone(),
        (None, ErrorKind::PermissionDenied) => format!("{error}{}", policy(kernel)),
        (None, _) => error.to_string(),
    };
    ProbeError::Load { probe, reason }
}

/// The security policy that may refuse despite sufficient capabilities.
fn policy(kernel: &Kernel) -> &'static str {
    match kernel.lockdown {
        Lockdown::Confidentiality => " (lockdown is at confidentiality)",
        Lockdown::Integrity => " (lockdown is at integrity)",
        Lockdown::None => {
            " (although the capabilities are there: a container's seccomp filter or a security module refuses)"
        }
        Lockdown::Unknown => {
            " (although the capabilities are there: lockdown, a container's seccomp filter or a security module refuses)"
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct LibbpfMessage {
    line: String,
    /// Whether the verifier printed it, rather than libbpf.
    verifier: bool,
}

/// The line with the reason: the last line of the verifier's log that is not statistics, or else libbpf's first
/// complaint, which causes all later ones.
fn last_words(said: &[String]) -> Option<LibbpfMessage> {
    const STATISTICS: &[&str] = &[
        "processed ",
        "max_states_per_insn",
        "peak_states",
        "stack depth",
        "verification time",
        "mark_read",
    ];
    let end = said.iter().rposition(|line| line.contains("END PROG LOAD LOG"));
    let begin = said.iter().rposition(|line| line.contains("BEGIN PROG LOAD LOG")).map_or(0, |at| at + 1);
    if let Some(end) = end
        && let Some(log) = said.get(begin..end)
        && let Some(line) = log.iter().rev().find(|line| {
            !line.is_empty()
                && !STATISTICS.iter().any(|prefix| line.starts_with(prefix))
                && !line.contains(" PROG LOAD LOG")
        })
    {
        return Some(LibbpfMessage { line: line.clone(), verifier: true });
    }
    let first = said.iter().find(|line| !line.is_empty())?;
    Some(LibbpfMessage { line: first.trim_start_matches("libbpf: ").to_string(), verifier: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            release: "6.1.0-50".into(),
            btf: true,
            capabilities: u64::MAX,
            user_namespace: false,
            lockdown: Lockdown::None,
            perf_event_paranoid: Some(2),
            kptr_restrict: Some(0),
            unprivileged_bpf_disabled: Some(2),
        }
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_string).collect()
    }

    /// Output of libbpf 1.7 when the verifier rejects a program.
    const VERIFIER: &str = "\
libbpf: prog 'switched': BPF program load failed: Permission denied
libbpf: prog 'switched': -- BEGIN PROG LOAD LOG --
0: R1=ctx(off=0,imm=0) R10=fp0
9: (79) r1 = *(u64 *)(r1 +0)
R1 unbounded memory access, make sure to bounds check any such access
processed 30 insns (limit 1000000) max_states_per_insn 0 total_states 2 peak_states 2 mark_read 1
-- END PROG LOAD LOG --
libbpf: prog 'switched': failed to load: -13
libbpf: failed to load object 'probe_bpf'";

    #[test]
    fn the_verifiers_reason_is_reported() {
        let error = reason("offcpu", &kernel(), ErrorKind::PermissionDenied, "failed", &lines(VERIFIER));
        assert_eq!(
            error.to_string(),
            "cannot load the probe offcpu: the verifier of Linux 6.1.0-50 refused: R1 unbounded memory access, make sure to bounds check any such access"
        );
        // A truncated log, as long ones are.
        let cut = lines(VERIFIER).split_off(3);
        assert_eq!(last_words(&cut).unwrap().line, last_words(&lines(VERIFIER)).unwrap().line);
    }

    #[test]
    fn libbpfs_first_complaint_is_reported() {
        let said = "libbpf: prog 'polled': failed to find kernel BTF type ID of 'napi_poll': -3\nlibbpf: prog 'polled': failed to prepare load attributes: -3";
        let error = reason("intervals", &kernel(), ErrorKind::NotFound, "failed", &lines(said)).to_string();
        assert!(error.ends_with("failed to find kernel BTF type ID of 'napi_poll': -3"), "{error}");
        let error = reason("intervals", &kernel(), ErrorKind::Other, "Argument list too long", &[]);
        assert!(error.to_string().ends_with("Argument list too long"));
    }

    #[test]
    fn policy_is_blamed_only_if_capabilities_suffice() {
        let said = lines("libbpf: map 'tasks': failed to create: -EPERM");
        let with = |kernel: &Kernel| {
            reason("offcpu", kernel, ErrorKind::PermissionDenied, "not permitted", &said).to_string()
        };
        assert!(with(&kernel()).contains("seccomp"), "{}", with(&kernel()));
        let locked = Kernel { lockdown: Lockdown::Integrity, ..kernel() };
        assert!(with(&locked).contains("lockdown is at integrity"));
        let user = Kernel { capabilities: 0, ..kernel() };
        assert!(with(&user).contains("lacks CAP_BPF and CAP_PERFMON"), "{}", with(&user));
        assert!(with(&user).contains("host check"));
        let bare = Kernel { btf: false, ..kernel() };
        assert!(matches!(
            reason("offcpu", &bare, ErrorKind::NotFound, "", &said),
            ProbeError::NoBtf { probe: "offcpu" }
        ));
    }

    #[test]
    fn libbpf_messages_are_captured_rather_than_printed() {
        quiet();
        // Not an ELF file.
        let Err(error) = libbpf_rs::ObjectBuilder::default().open_memory(b"not an object") else {
            panic!("that was no object")
        };
        let said = SAID.with_borrow(Vec::clone);
        assert!(said.iter().any(|line| line.contains("libbpf")), "{said:?}");
        let error = refused("offcpu", error).to_string();
        assert!(error.contains("offcpu"), "{error}");
    }
}
