//! Capture filters: compiles an expression in the usual syntax to a classic BPF program for the kernel.
//!
//! The supported subset of pcap-filter(7) covers RPC traffic: `tcp`, `udp`, `ip`, `ip6`, `host`, `net`, `port`,
//! `portrange` (for IP packets only), with an optional `src` or `dst`, combined by `and`, `or`, `not` and
//! parentheses. Offsets are relative to the network header (SKF_NET_OFF), so that one program serves every kind
//! of interface.
//!
//! libpcap has such a compiler, but its programs are made for one link type each, and it would be a C library that the
//! binary needs on every host.

mod expression;
mod program;

pub use expression::FilterError;
pub use program::{Instruction, Interfaces, LoopbackOnce};

/// Compiles an expression; an empty one accepts everything. `snap_bytes` is the length to keep of a packet.
///
/// # Errors
/// [`FilterError`] with the column, what was found and what was expected there.
pub fn compile(text: &str, snap_bytes: u32, once: LoopbackOnce) -> Result<Vec<Instruction>, FilterError> {
    compile_on(&Interfaces::All, text, snap_bytes, once)
}

/// As [`compile`], for a subset of the interfaces when capturing on all of them.
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
