//! No decision depends on our own prose: programs decide by values, and sentences are made from these for
//! people.

use crate::rules;
use crate::tree::{Tree, Violation};

/// Text before a literal that is being compared.
const BEFORE: [&str; 8] =
    ["==", "!=", "starts_with(", "ends_with(", "contains(", "strip_prefix(", "strip_suffix(", "split_once("];
/// Text after a literal that is being compared.
const AFTER: [&str; 3] = ["==", "!=", "=>"];

/// Comparisons with a literal of several words in the crates, except with other programs' words; test code is
/// exempt.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    let inside = |path: &str| path.starts_with("crates/") && !rules::FOREIGN_WORDS.contains(&path);
    for (file, rust) in tree.rust_files().filter(|(file, _)| inside(&file.path) && !file.is_test()) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (line, literal) in rust.literals.iter().filter(|(line, _)| !rust.is_test_line(*line)) {
            if has_words(literal) && is_compared(&lines, *line, literal) {
                let text = format!("compares with {literal:?}, expected a value: sentences are for people");
                findings.push(Violation::new(file, *line, text));
            }
        }
    }
    findings
}

/// Whether it contains a blank between two words.
fn has_words(literal: &str) -> bool {
    let is_word = |text: Option<&str>| text.is_some_and(|word| word.contains(char::is_alphanumeric));
    literal.split_once(' ').is_some_and(|(one, other)| is_word(Some(one)) && is_word(Some(other)))
}

/// Whether a literal on this line, counted from 1, is an operand of a comparison.
fn is_compared(lines: &[&str], line: usize, literal: &str) -> bool {
    let own = lines.get(line - 1).copied().unwrap_or_default();
    own.match_indices(&format!("\"{literal}\"")).any(|(at, found)| {
        let alone = own[..at].trim().is_empty();
        let before = if alone {
            line.checked_sub(2).and_then(|above| lines.get(above).copied())
        } else {
            Some(&own[..at])
        };
        let (before, after) = (before.unwrap_or_default().trim_end(), own[at + found.len()..].trim_start());
        // The literal may be borrowed.
        let before = before.trim_end_matches('&').trim_end();
        BEFORE.iter().any(|mark| before.ends_with(mark)) || AFTER.iter().any(|mark| after.starts_with(mark))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn sentences_that_are_made_marks_and_tests_pass() {
        let code = "fn f() {\n    g(\"all of it\");\n    if a == \"b\" || a.starts_with(\"# \") || a.contains(\" (\") {}\n\
                    let x = (a == b, \"of the path\");\n}\n\
                    #[cfg(test)]\nmod tests { fn g() { assert!(a == \"all of it\"); } }\n";
        let tree = tree_of(&[
            ("crates/gather/src/spans.rs", code),
            ("crates/undo/src/journal.rs", "fn f() { a.split_once(\" at line \") == \"all of it\" }"),
            ("crates/diagnose/src/judge/tests.rs", "fn f() { a == \"all of it\" }"),
        ]);
        assert_eq!(texts(check(&tree)), [""; 0]);
    }

    #[test]
    fn each_way_to_go_by_a_sentence_is_found() {
        let lines = [
            "fn f(why: &str) {",
            "    if why == \"permission denied\" {}",
            "    if \"NET_RX of lo\" != name {}",
            "    if why.starts_with(\"the capture\") || !why.contains(\"run queue\") {}",
            "    match why { \"not known\" => 1, _ => 2 }",
            "    let rest = why.strip_prefix(",
            "        \"held by \\",
            "         Nagle\",",
            "    );",
            "    why ==",
            "        \"all of it\"",
            "}",
        ];
        let found = texts(check(&tree_of(&[("crates/diagnose/src/judge/mod.rs", &lines.join("\n"))])));
        let at: Vec<&str> = found.iter().filter_map(|text| text.split(": compares with ").next()).collect();
        let of = |line: usize| format!("crates/diagnose/src/judge/mod.rs:{line}");
        assert_eq!(at, [of(2), of(3), of(4), of(4), of(5), of(11)]);
        assert!(found[0].contains("compares with \"permission denied\", expected a value"), "{}", found[0]);
    }
}
