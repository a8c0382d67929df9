//! `unsafe` only in the listed files, and never without a reason.

use crate::rules;
use crate::tree::{File, Tree, Violation};

/// `unsafe` in unlisted files or without a SAFETY line, and listed files without any.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust_files() {
        let lines: Vec<usize> = rust.lines_with("unsafe").collect();
        let listed = rules::UNSAFE_FILES.contains(&file.path.as_str());
        if listed && lines.is_empty() {
            let text = "has no `unsafe` any more, expected it off UNSAFE_FILES in tools/house/src/rules.rs";
            findings.push(Violation::new(file, 1, text.into()));
        }
        for line in lines {
            if !listed {
                let text = format!("uses `unsafe`, expected that only in {}", rules::UNSAFE_FILES.join(", "));
                findings.push(Violation::new(file, line, text));
            }
            if !has_reason(file, line) {
                let text = "`unsafe` without its reason, expected a line `// SAFETY: …` above it";
                findings.push(Violation::new(file, line, text.into()));
            }
        }
    }
    findings
}

/// Whether the comment directly above the line, except for attributes, has a SAFETY line.
fn has_reason(file: &File, line: usize) -> bool {
    let above: Vec<&str> = file.text.lines().take(line - 1).map(str::trim_start).collect();
    let block = above.iter().rev().take_while(|text| text.starts_with("//") || text.starts_with("#["));
    block.into_iter().any(|text| text.starts_with("// SAFETY: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn a_listed_file_with_reasons_passes() {
        let text = "#![allow(unsafe_code)]\nfn f() {\n    // SAFETY: the pointer is\n    // valid.\n    unsafe { g() }\n}\n";
        assert_eq!(texts(check(&tree_of(&[(rules::UNSAFE_FILES[0], text)]))), [""; 0]);
    }

    #[test]
    fn unsafe_elsewhere_without_a_reason_and_a_stale_listing() {
        let tree = tree_of(&[
            (rules::UNSAFE_FILES[0], "// unsafe\n"),
            ("crates/model/src/pair.rs", "// SAFETY: not above it\nfn f() {\n    unsafe { g() }\n}\n"),
        ]);
        let found = texts(check(&tree));
        assert_eq!(found.len(), 3, "{found:?}");
        let stale = format!("{}:1: has no `unsafe` any more", rules::UNSAFE_FILES[0]);
        let elsewhere = "crates/model/src/pair.rs:3: uses `unsafe`, expected that only in";
        let reasonless = "crates/model/src/pair.rs:3: `unsafe` without its reason";
        for expected in [&stale, elsewhere, reasonless] {
            assert!(found.iter().any(|text| text.starts_with(expected)), "{expected}: {found:?}");
        }
    }
}
