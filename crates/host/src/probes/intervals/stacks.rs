//! Kernel stacks of sleeping threads, by their number in the program's map.

use crate::symbols::Symbols;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

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
        Some(format!("why threads slept is unknown: the kernel's functions have no names: {why}"))
    }

    /// Functions of a stack, the innermost first; empty if the stack is missing.
    pub fn functions(&self, stack: u16) -> Vec<String> {
        let found = self.map.lookup(&u32::from(stack).to_ne_bytes(), MapFlags::ANY);
        let Ok(Some(bytes)) = found else { return Vec::new() };
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        // A return address lies behind the call, which may be the last instruction of its function.
        words.take_while(|address| *address != 0).map(|address| self.symbols.name(address - 1)).collect()
    }
}
