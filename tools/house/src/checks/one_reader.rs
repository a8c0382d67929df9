//! One reader for each fact: only `machine::facts` names the files that it reads, so nothing else can parse
//! them differently.

use crate::rules;
use crate::tree::{Tree, Violation};

/// String literals outside `machine` with the path of such a file; test code is exempt.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    let is_free = |path: &str| rules::FACT_PLACES.iter().any(|place| path.starts_with(place));
    let inside = |path: &str| path.starts_with("crates/") && path.contains("/src/") && !is_free(path);
    for (file, rust) in tree.rust_files().filter(|(file, _)| inside(&file.path) && !file.is_test()) {
        let literals = rust.literals.iter().filter(|(line, _)| !rust.is_test_line(*line));
        for (line, literal) in literals {
            if let Some(fact) = rules::FACTS.iter().find(|fact| is_path_of(literal, fact)) {
                let text = format!(
                    "names {literal:?}, expected {fact:?} to be read through machine::facts, by the name it has there"
                );
                findings.push(Violation::new(file, *line, text));
            }
        }
    }
    findings
}

/// Whether a literal is a path that ends in this file, rather than a sentence that mentions it.
fn is_path_of(literal: &str, fact: &str) -> bool {
    let is_path = literal.contains('/') && !literal.contains(char::is_whitespace);
    let before = literal.strip_suffix(fact);
    is_path
        && before.is_some_and(|before| fact.starts_with('}') || before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn sentences_tests_places_and_other_files_pass() {
        let tree = tree_of(&[
            ("crates/machine/src/facts/stat.rs", "pub const PATH: &str = \"/proc/stat\";"),
            ("crates/host/src/check/traps/steal.rs", "fn f() { g(\"/proc/stat\") }"),
            (
                "crates/lab/src/counters.rs",
                "// \"/proc/stat\"\nfn f() { g(\"/proc/stat has no CPU 7\", \"/sys/fs/cgroup\", \"status\", \"a/substat\") }\n\
                 #[cfg(test)]\nmod tests { const S: &str = \"/proc/stat\"; }\n",
            ),
            ("crates/lab/tests/runs.rs", "const S: &str = \"/proc/stat\";"),
            ("crates/lab/src/undo/tests.rs", "const S: &str = \"/proc/stat\";"),
            ("tools/host-bench/src/main.rs", "const S: &str = \"/proc/stat\";"),
        ]);
        assert_eq!(texts(check(&tree)), [""; 0]);
    }

    #[test]
    fn a_second_reader_is_found_however_its_path_is_made() {
        let lines = [
            "fn f(pid: u32) {",
            "    g(\"/proc/interrupts\");",
            "    g(format!(\"/proc/{pid}/stat\"));",
            "    g(format!(\"{folder}/status\"));",
            "    g(r\"/proc/self/cgroup\", format!(\"{at}/cgroup\"));",
            "    g(Path::new(\"proc/net/softnet_stat\"));",
            "}",
        ];
        let found = texts(check(&tree_of(&[("crates/host/src/names.rs", &lines.join("\n"))])));
        let lines: Vec<&str> = found.iter().filter_map(|text| text.split(": names ").next()).collect();
        let at = |line: usize| format!("crates/host/src/names.rs:{line}");
        assert_eq!(lines, [at(2), at(3), at(4), at(5), at(5), at(6)]);
        assert!(
            found[0]
                .contains("names \"/proc/interrupts\", expected \"interrupts\" to be read through machine")
        );
    }

    #[test]
    fn every_place_and_every_fact_still_counts() {
        // If one fact's path contained another's, a match would be ambiguous.
        for (at, fact) in rules::FACTS.iter().enumerate() {
            let others = rules::FACTS.iter().enumerate().filter(|(other, _)| *other != at);
            assert!(others.into_iter().all(|(_, other)| !is_path_of(&format!("a/{fact}"), other)), "{fact}");
        }
    }
}
