//! The code map of ARCHITECTURE.md and the tree name the same files.

use crate::tree::{Tree, Violation};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Code map";
/// Files that every crate or folder has, which the map need not name.
const STRUCTURE: [&str; 3] = ["lib.rs", "main.rs", "mod.rs"];

struct Entry {
    line: usize,
    path: String,
    /// Whether the map names parts of this folder: then it must name all of them.
    has_parts: bool,
}

/// Paths in the map that do not exist, and source files that the map does not cover.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let Some(document) = tree.file(DOCUMENT) else {
        let text = format!("is missing, expected the document with the section {HEADING:?}");
        return vec![Violation { path: DOCUMENT.into(), line: 1, text }];
    };
    let entries = entries(&document.text);
    if entries.is_empty() {
        let text = format!("has no code map, expected a block of paths under {HEADING:?}");
        return vec![Violation::new(document, document.line_of(HEADING), text)];
    }
    let mut findings = Vec::new();
    for entry in &entries {
        let exists = match entry.path.strip_suffix('/') {
            Some(_) => tree.files.iter().any(|file| file.path.starts_with(&entry.path)),
            None => tree.file(&entry.path).is_some(),
        };
        if !exists {
            findings.push(Violation::new(
                document,
                entry.line,
                format!("names {}, expected it to exist", entry.path),
            ));
        }
    }
    for (file, _) in tree.rust_files() {
        let in_sources =
            matches!(file.path.split('/').collect::<Vec<_>>()[..], ["crates" | "tools", _, "src", ..]);
        let covered = |entry: &Entry| {
            file.path == entry.path
                || (entry.path.ends_with('/') && !entry.has_parts && file.path.starts_with(&entry.path))
        };
        if in_sources && !STRUCTURE.contains(&file.name()) && !entries.iter().any(covered) {
            findings.push(Violation::new(
                file,
                1,
                format!("is not in the code map of {DOCUMENT}, expected a line there"),
            ));
        }
    }
    findings
}

/// Paths of the map: a line without indentation names a folder or file, an indented one a part of the folder
/// above it; `a/{b,c}.rs` names two.
fn entries(document: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut folder: Option<usize> = None;
    let section = document.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let block = section.skip_while(|(_, line)| !line.starts_with("```")).skip(1);
    for (at, text) in block.take_while(|(_, line)| !line.starts_with("```")) {
        let Some(name) = text.split_whitespace().next() else { continue };
        if text.starts_with(' ') {
            let Some(folder) = folder else { continue };
            entries[folder].has_parts = true;
            let base = entries[folder].path.clone();
            for part in alternatives(name) {
                entries.push(Entry { line: at + 1, path: format!("{base}{part}"), has_parts: false });
            }
        } else {
            folder = Some(entries.len());
            entries.push(Entry { line: at + 1, path: name.into(), has_parts: false });
        }
    }
    entries
}

fn alternatives(name: &str) -> Vec<String> {
    match (name.split_once('{'), name.split_once('}')) {
        (Some((before, _)), Some((_, after))) => {
            let inside = &name[before.len() + 1..name.len() - after.len() - 1];
            inside.split(',').map(|part| format!("{before}{part}{after}")).collect()
        }
        _ => vec![name.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    const MAP: &str = "# A\n\n## Code map\n\n```\ncrates/model/src/   words\n  pair.rs           a pair\n  \
                       in/{a,b}.rs       two\n  serve/            all of it\ntools/house/        lints\n```\n\n## More\n";

    #[test]
    fn map_and_tree_agree() {
        let tree = tree_of(&[
            (DOCUMENT, MAP),
            ("crates/model/src/lib.rs", ""),
            ("crates/model/src/pair.rs", ""),
            ("crates/model/src/in/a.rs", ""),
            ("crates/model/src/in/b.rs", ""),
            ("crates/model/src/serve/deep/x.rs", ""),
            ("crates/model/tests/free.rs", ""),
            ("tools/house/src/rules.rs", ""),
        ]);
        assert_eq!(texts(check(&tree)), [""; 0]);
    }

    #[test]
    fn a_path_that_is_gone_and_a_file_that_is_new() {
        let tree = tree_of(&[
            (DOCUMENT, MAP),
            ("crates/model/src/pair.rs", ""),
            ("crates/model/src/in/a.rs", ""),
            ("crates/model/src/new.rs", ""),
            ("crates/model/src/serve/x.rs", ""),
            ("tools/house/src/rules.rs", ""),
        ]);
        assert_eq!(
            texts(check(&tree)),
            [
                "ARCHITECTURE.md:8: names crates/model/src/in/b.rs, expected it to exist",
                "crates/model/src/new.rs:1: is not in the code map of ARCHITECTURE.md, expected a line there",
            ]
        );
    }

    #[test]
    fn no_document_and_no_map() {
        assert!(texts(check(&tree_of(&[])))[0].contains("ARCHITECTURE.md:1: is missing"));
        assert!(texts(check(&tree_of(&[(DOCUMENT, "# A\n")])))[0].contains("has no code map"));
    }
}
