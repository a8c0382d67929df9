//! No decision depends on our own prose: programs decide by values, and sentences are made from these for
//! people.

use crate::rules;
use crate::tree::{Tree, Violation};

/// Text before a literal that is being compared, or taken out of a sentence.
const BEFORE: [&str; 18] = [
    "==",
    "!=",
    "starts_with(",
    "ends_with(",
    "contains(",
    "strip_prefix(",
    "strip_suffix(",
    "split_once(",
    "split(",
    "splitn(",
    "split_terminator(",
    "find(",
    "matches(",
    "match_indices(",
    "trim_start_matches(",
    "trim_end_matches(",
    "replace(",
    "replacen(",
];
/// Text after a literal that is being compared.
const AFTER: [&str; 4] = ["==", "!=", "=>", "|"];

/// Methods of strings in the page that take text apart.
const ON_THE_PAGE: [&str; 8] =
    ["startsWith(", "endsWith(", "includes(", "indexOf(", "split(", "replace(", "replaceAll(", "match("];
/// Methods of regular expressions.
const OF_EXPRESSIONS: [&str; 2] = ["test(", "exec("];

/// All violations, in the crates and on the page.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let mut findings = in_crates(tree);
    findings.extend(on_page(tree));
    findings
}

/// Text that the page takes apart by two words or more. It may still compare a whole value: of a type that lists its
/// values, the compiler knows them.
fn on_page(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    let is_page =
        |path: &str| path.starts_with("web/src/") && (path.ends_with(".ts") || path.ends_with(".tsx"));
    for file in tree.files.iter().filter(|file| is_page(&file.path)) {
        for (at, line) in file.text.lines().enumerate() {
            for literal in taken_apart_by(line).filter(|literal| has_two_words(literal)) {
                let text =
                    format!("takes text apart by {literal:?}, expected a value: sentences are for people");
                findings.push(Violation::new(file, at + 1, text));
            }
        }
    }
    findings
}

/// The literals by which a line of TypeScript takes text apart.
fn taken_apart_by(line: &str) -> impl Iterator<Item = &str> {
    let quoted = |after: &'_ str| -> Option<usize> {
        let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`' | '/'))?;
        after[1..].find(quote).map(|end| end + 1)
    };
    let arguments = ON_THE_PAGE.iter().flat_map(move |method| {
        line.match_indices(method).filter_map(move |(at, found)| {
            let after = line[at + found.len()..].trim_start();
            quoted(after).map(|end| &after[1..end])
        })
    });
    let expressions = OF_EXPRESSIONS.iter().flat_map(move |method| {
        line.match_indices(method).filter_map(move |(at, _)| {
            // Before it: the expression with its flags, and the dot.
            let before =
                line[..at].strip_suffix('.')?.trim_end_matches(|flag: char| flag.is_ascii_lowercase());
            let before = before.strip_suffix('/')?;
            before.rfind('/').map(|start| &before[start + 1..])
        })
    });
    arguments.chain(expressions)
}

/// Comparisons with a literal of words in the crates, also by the name of a constant, except with other
/// programs' words; test code is exempt.
fn in_crates(tree: &Tree) -> Vec<Violation> {
    let mut findings = Vec::new();
    let inside = |path: &str| path.starts_with("crates/") && !rules::FOREIGN_WORDS.contains(&path);
    for (file, rust) in tree.rust_files().filter(|(file, _)| inside(&file.path) && !file.is_test()) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (line, literal) in rust.literals.iter().filter(|(line, _)| !rust.is_test_line(*line)) {
            let mut at: Vec<usize> = Vec::new();
            if (has_two_words(literal) || is_phrase(literal))
                && is_compared(&lines, *line, &format!("\"{literal}\""))
            {
                at.push(*line);
            }
            let name = constant(lines.get(line - 1).copied().unwrap_or_default());
            if let Some(name) = name.filter(|_| is_phrase(literal)) {
                let uses = (1..=lines.len()).filter(|line| !rust.is_test_line(*line));
                at.extend(uses.filter(|line| is_compared(&lines, *line, name)));
            }
            for line in at {
                let text = format!("compares with {literal:?}, expected a value: sentences are for people");
                findings.push(Violation::new(file, line, text));
            }
        }
    }
    findings
}

/// Whether it contains a blank between two words.
fn has_two_words(literal: &str) -> bool {
    let is_word = |text: Option<&str>| text.is_some_and(|word| word.contains(char::is_alphanumeric));
    literal.split_once(' ').is_some_and(|(one, other)| is_word(Some(one)) && is_word(Some(other)))
}

/// Whether it reads as part of a sentence: it has a blank and a word of three small letters, and no end of line,
/// which marks a format.
fn is_phrase(literal: &str) -> bool {
    let is_word = |word: &str| word.chars().filter(|letter| letter.is_lowercase()).count() >= 3;
    literal.contains(' ')
        && !literal.ends_with("\\n")
        && literal.split(|letter: char| !letter.is_alphabetic()).any(is_word)
}

/// The name of the constant that a line defines as text.
fn constant(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("const ").or_else(|| line.split_once("static "))?;
    let (name, kind) = after.split_once(':')?;
    (kind.trim_start().starts_with('&') && !before.contains('"')).then_some(name)
}

/// Whether this text on this line, counted from 1, is an operand of a comparison.
fn is_compared(lines: &[&str], line: usize, operand: &str) -> bool {
    let own = lines.get(line - 1).copied().unwrap_or_default();
    own.match_indices(operand).any(|(at, found)| {
        let alone = own[..at].trim().is_empty();
        let before = if alone {
            line.checked_sub(2).and_then(|above| lines.get(above).copied())
        } else {
            Some(&own[..at])
        };
        let (before, after) = (before.unwrap_or_default().trim_end(), own[at + found.len()..].trim_start());
        // The literal may be borrowed.
        let before = before.trim_end_matches('&').trim_end();
        // `||` joins conditions, of which a literal is none.
        let joins = after.starts_with("||");
        BEFORE.iter().any(|mark| before.ends_with(mark))
            || !joins && AFTER.iter().any(|mark| after.starts_with(mark))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn sentences_that_are_made_marks_and_tests_pass() {
        let code = "fn f() {\n    g(\"all of it\");\n    if a == \"b\" || a.starts_with(\"# \") || a.contains(\" (\") || a.find(\"IRQ \") {}\n\
                        const MARK: &str = \"spans index 1\\n\"; if a.starts_with(MARK) || a.contains(\"span\") { g(SENTENCE) }\n\
                        const SENTENCE: &str = \"all of it\";\n\
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
    fn the_page_takes_no_sentence_apart() {
        let lines = [
            r#"if (/^degraded: |damaged|are lost$/.test(note)) return "wrong";"#,
            r#"return note.startsWith("the size of") ? 1 : 2;"#,
            r#"const rest = note.replace(/^spangap dissect( · )?/, "");"#,
            r#"if (row.key === "client tap" || /^\w+$/.test(name) || name.endsWith("_bytes")) {}"#,
            r#"const said = "it says " + list.join(", ") + text.split(" ").length;"#,
        ];
        let found = texts(check(&tree_of(&[
            ("web/src/findings.ts", &lines.join("\n")),
            ("web/test/findings.test.ts", lines[1]),
        ])));
        let at: Vec<&str> = found.iter().filter_map(|text| text.split(": takes text apart").next()).collect();
        assert_eq!(at, [1, 2, 3].map(|line| format!("web/src/findings.ts:{line}")));
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
            "    let (text, rest) = why.split_once(\" that includes \");",
            "    let at = why.find(\"held by \");",
            "    matches!(why, \"not known\" | \"of no use\")",
            "    const HEAD: &str = \"Not looked: \";",
            "    why.trim_start_matches(HEAD)",
            "    g(why.replace(\". Clocks: that\", \"; that\"), HEAD)",
            "}",
        ];
        let found = texts(check(&tree_of(&[("crates/diagnose/src/judge/mod.rs", &lines.join("\n"))])));
        let at: Vec<&str> = found.iter().filter_map(|text| text.split(": compares with ").next()).collect();
        let of = |line: usize| format!("crates/diagnose/src/judge/mod.rs:{line}");
        let expected = [2, 3, 4, 4, 5, 11, 12, 13, 14, 16, 17];
        assert_eq!(at, expected.map(of));
        assert!(found[0].contains("compares with \"permission denied\", expected a value"), "{}", found[0]);
    }
}
