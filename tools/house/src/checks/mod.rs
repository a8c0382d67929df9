//! One rule, one file.

mod circles;
mod code_map;
mod fuzz_targets;
mod imports;
mod length;
mod manifests;
mod modules;
mod one_reader;
mod own_prose;
mod text;
mod unsafety;

pub use length::long_files;

use crate::tree::{Tree, Violation};

/// All violations of all rules, ordered by file.
pub fn all(tree: &Tree) -> Vec<Violation> {
    let checks = [
        manifests::check,
        imports::check,
        length::check,
        unsafety::check,
        one_reader::check,
        own_prose::check,
        code_map::check,
        text::check,
        fuzz_targets::check,
        modules::check,
        circles::check,
    ];
    let mut findings: Vec<Violation> = checks.iter().flat_map(|check| check(tree)).collect();
    findings.sort();
    findings
}

#[cfg(test)]
pub fn texts(findings: Vec<Violation>) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}
