//! Addresses of kernel code -> names of functions, from `/proc/kallsyms`.

use crate::kernel::Kernel;
use std::cmp::Reverse;
use std::ops::Range;

/// The kernel's functions, including those of modules and eBPF programs, as of when they were read.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Sorted by address, one per address.
    functions: Vec<Function>,
    /// All names and modules, concatenated.
    text: String,
    why_none: Option<String>,
}

#[derive(Debug)]
struct Function {
    address: u64,
    name: Range<u32>,
    module: Range<u32>,
}

/// An address farther than this from the start of a function has no name.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

impl Symbols {
    /// Reads the symbols. Without names if the kernel hides them (see [`Symbols::why_none`]).
    pub fn read() -> Symbols {
        let mut symbols = match std::fs::read_to_string("/proc/kallsyms") {
            Ok(text) => Self::parse(&text),
            Err(error) => {
                return Symbols {
                    why_none: Some(format!("cannot read /proc/kallsyms: {error}")),
                    ..Symbols::default()
                };
            }
        };
        if symbols.functions.is_empty() {
            symbols.why_none = Some(Kernel::look().hides_addresses().unwrap_or_else(|| {
                "/proc/kallsyms has no addresses (CONFIG_KALLSYMS=n, or a container hides them)".into()
            }));
        }
        symbols
    }

    /// Parses `/proc/kallsyms`. Hidden addresses read as zero, and are left out.
    pub fn parse(kallsyms: &str) -> Symbols {
        let mut found = Vec::new();
        for line in kallsyms.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address @ 1..) = u64::from_str_radix(address, 16) else { continue };
            if matches!(kind, "t" | "T" | "w" | "W") {
                found.push((address, preference(kind, name), name, words.next().unwrap_or_default()));
            }
        }
        found.sort_unstable();
        found.dedup_by_key(|(address, ..)| *address);
        let mut symbols = Symbols::default();
        for (address, _, name, module) in found {
            let name = symbols.put(name);
            let module = symbols.put(module.trim_matches(['[', ']']));
            symbols.functions.push(Function { address, name, module });
        }
        symbols
    }

    fn put(&mut self, text: &str) -> Range<u32> {
        let from = self.text.len() as u32;
        self.text.push_str(text);
        from..self.text.len() as u32
    }

    fn text(&self, range: &Range<u32>) -> &str {
        &self.text[range.start as usize..range.end as usize]
    }

    /// Why there are no names, if so.
    pub fn why_none(&self) -> Option<&str> {
        self.why_none.as_deref()
    }

    /// The function that contains an address, and its module (empty for the kernel itself).
    pub fn function(&self, address: u64) -> Option<(&str, &str)> {
        let after = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let close = address - function.address < MAX_FUNCTION_BYTES;
        close.then(|| (self.text(&function.name), self.text(&function.module)))
    }

    /// Name of an address: `napi_poll`, `e1000_clean [e1000]`, or the address itself if it has none.
    pub fn name(&self, address: u64) -> String {
        match self.function(address) {
            Some((name, "")) => name.to_string(),
            Some((name, module)) => format!("{name} [{module}]"),
            None => format!("{address:#x}"),
        }
    }

    /// Address ranges of the functions whose names `kind` recognises, sorted; suffixes of the compiler
    /// (`.isra.0`) are removed before the match.
    pub fn ranges<T>(&self, kind: impl Fn(&str) -> Option<T>) -> Vec<(Range<u64>, T)> {
        let ends = self.functions.iter().skip(1).map(|function| function.address).chain([u64::MAX]);
        let all = self.functions.iter().zip(ends);
        all.filter_map(|(function, end)| {
            let name = self.text(&function.name);
            let name = name.split_once('.').map_or(name, |(name, _)| name);
            Some((function.address..end, kind(name)?))
        })
        .collect()
    }
}

/// Preference among several names of one address: the least wins.
fn preference(kind: &str, name: &str) -> (bool, bool, usize, Reverse<usize>) {
    // Labels that bound a section share their address with its first function.
    let bound = name.ends_with("_start") || name.ends_with("_end") || matches!(name, "_text" | "_stext");
    let underscores = name.len() - name.trim_start_matches('_').len();
    (bound, kind != "T", underscores, Reverse(name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T first
ffffffff81200000 T __softirqentry_text_start
ffffffff81200000 T __do_softirq
ffffffff81200400 t __softirqentry_text_end
ffffffff81200400 t finish.isra.0
ffffffff82000000 D jiffies
ffffffffc0001000 t e1000_clean\t[e1000]
ffffffffc0009000 t bpf_prog_6deef7357e7b4530\t[bpf]
";

    #[test]
    fn address_resolves_to_its_function() {
        let symbols = Symbols::parse(KALLSYMS);
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), "first");
        assert_eq!(symbols.name(0xffff_ffff_8120_03ff), "__do_softirq");
        assert_eq!(symbols.name(0xffff_ffff_8120_0400), "finish.isra.0");
        assert_eq!(symbols.name(0xffff_ffff_c000_1234), "e1000_clean [e1000]");
        assert_eq!(symbols.function(0xffff_ffff_c000_9001), Some(("bpf_prog_6deef7357e7b4530", "bpf")));
        // Before the first function, and far from every one.
        assert_eq!(symbols.name(0x1000), "0x1000");
        assert_eq!(symbols.name(0xffff_ffff_9000_0000), "0xffffffff90000000");
    }

    #[test]
    fn functions_are_found_by_name() {
        let symbols = Symbols::parse(KALLSYMS);
        let found = symbols.ranges(|name| (name == "finish" || name == "__do_softirq").then_some(()));
        assert_eq!(
            found,
            [
                (0xffff_ffff_8120_0000..0xffff_ffff_8120_0400, ()),
                (0xffff_ffff_8120_0400..0xffff_ffff_c000_1000, ())
            ]
        );
    }

    #[test]
    fn hidden_addresses_are_not_symbols() {
        let hidden = "0000000000000000 T _text\n0000000000000000 t schedule\n";
        assert!(Symbols::parse(hidden).functions.is_empty());
        assert!(Symbols::parse("nonsense\n\nffff").functions.is_empty());
    }

    #[test]
    fn this_kernel_has_symbols_or_a_reason() {
        let symbols = Symbols::read();
        match symbols.why_none() {
            None => assert_eq!(symbols.ranges(|name| (name == "schedule").then_some(())).len(), 1),
            Some(why) => assert!(!why.is_empty()),
        }
    }
}
