//! Capture filters: an expression in the usual words becomes a classic BPF program that the kernel runs.
//!
//! Understood is the part of pcap-filter(7) that RPC traffic needs: `tcp`, `udp`, `ip`, `ip6`, `host`, `net`, `port`,
//! `portrange` (of IP packets only), with `src` or `dst` before them, joined by `and`, `or`, `not` and parentheses. Offsets count from the
//! network header (SKF_NET_OFF), so that one program serves every kind of interface.

mod expression;
mod program;

pub use expression::FilterError;
pub use program::{Instruction, Interfaces, LoopbackOnce};

/// Compiles an expression; the empty one takes everything. `snap_bytes` is what is kept of a packet.
///
/// # Errors
/// [`FilterError`] with the column, what was found and what was expected there.
pub fn compile(text: &str, snap_bytes: u32, once: LoopbackOnce) -> Result<Vec<Instruction>, FilterError> {
    compile_on(&Interfaces::All, text, snap_bytes, once)
}

/// As [`compile`], for some of the interfaces where all are listened to.
///
/// # Errors
/// As [`compile`].
pub fn compile_on(
    interfaces: &Interfaces,
    text: &str,
    snap_bytes: u32,
    once: LoopbackOnce,
) -> Result<Vec<Instruction>, FilterError> {
    let expression = expression::parse(text)?;
    Ok(program::assemble(expression.as_ref(), snap_bytes, once, interfaces))
}
