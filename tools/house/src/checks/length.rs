//! Length and names of files.

use crate::rules;
use crate::tree::{File, Tree, Violation};

/// Files above the hard limit, and files or folders with a meaningless name.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let too_long = counted(tree).filter(|(_, lines)| *lines > rules::MAX_FILE_LINES).map(|(file, lines)| {
        let text = format!("has {lines} lines, expected at most {}: split it", rules::MAX_FILE_LINES);
        Violation::new(file, rules::MAX_FILE_LINES + 1, text)
    });
    let sources = tree.files.iter().filter(|file| is_source(file));
    let empty_names = sources.filter_map(|file| {
        let part = file.path.split('/').find(|part| {
            let stem = part.split('.').next().unwrap_or(part);
            rules::EMPTY_NAMES.contains(&stem)
        })?;
        Some(Violation::new(file, 1, format!("the name `{part}` says nothing, expected what is inside")))
    });
    too_long.chain(empty_names).collect()
}

/// Notices about files that are getting long.
pub fn long_files(tree: &Tree) -> Vec<String> {
    let within = |lines: &usize| (rules::LONG_FILE_LINES + 1..=rules::MAX_FILE_LINES).contains(lines);
    let mut long: Vec<_> = counted(tree).filter(|(_, lines)| within(lines)).collect();
    long.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    long.iter().map(|(file, lines)| format!("{}: long, {lines} lines", file.path)).collect()
}

fn counted(tree: &Tree) -> impl Iterator<Item = (&File, usize)> {
    let own = tree.files.iter().filter(|file| is_source(file) && !rules::GENERATED.contains(&file.name()));
    own.map(|file| (file, file.text.lines().count()))
}

fn is_source(file: &File) -> bool {
    rules::LENGTH_ENDINGS.iter().any(|ending| file.path.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn lengths_and_names() {
        let (limit, over) = ("\n".repeat(rules::MAX_FILE_LINES), "\n".repeat(rules::MAX_FILE_LINES + 1));
        let tree = tree_of(&[
            ("crates/a/src/fits.rs", &limit),
            ("crates/a/src/long.rs", &over),
            ("crates/a/src/vmlinux.h", &over),
            ("crates/a/src/utils.rs", ""),
            ("web/src/common/x.ts", ""),
            ("docs/guide.md", &over),
        ]);
        assert_eq!(
            texts(check(&tree)),
            [
                "crates/a/src/long.rs:801: has 801 lines, expected at most 800: split it",
                "crates/a/src/utils.rs:1: the name `utils.rs` says nothing, expected what is inside",
                "web/src/common/x.ts:1: the name `common` says nothing, expected what is inside",
            ]
        );
        assert_eq!(long_files(&tree), ["crates/a/src/fits.rs: long, 800 lines"]);
    }
}
