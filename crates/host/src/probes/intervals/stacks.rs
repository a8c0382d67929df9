//! Kernel stacks on which threads slept, by their number in the program's map.

use crate::symbols::Symbols;
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// The map, and the names of what is in it.
pub(super) struct Stacks {
    map: MapHandle,
    symbols: Symbols,
}

impl Stacks {
    pub fn new(map: MapHandle) -> Stacks {
        Stacks { map, symbols: Symbols::read() }
    }

    /// Why functions have no names here, if they have none.
    pub fn why_nameless(&self) -> Option<String> {
        let why = self.symbols.why_none()?;
        Some(format!("why threads slept is unknown: the kernel's functions have no names: {why}"))
    }

    /// The functions of a stack, the innermost first; none where it is not there.
    pub fn functions(&self, stack: u16) -> Vec<String> {
        let found = self.map.lookup(&u32::from(stack).to_ne_bytes(), MapFlags::ANY);
        let Ok(Some(bytes)) = found else { return Vec::new() };
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes));
        // Return addresses lie behind the call, which may be the last thing in its function.
        words.take_while(|address| *address != 0).map(|address| self.symbols.name(address - 1)).collect()
    }
}
