//! A single style of modules: a module with files of its own is a folder with a `mod.rs`.

use crate::tree::{File, Tree, Violation};

/// Source files next to a folder of their name that contains more than their tests.
pub fn check(tree: &Tree) -> Vec<Violation> {
    let beside = |(file, _): (&File, _)| {
        let folder = file.path.strip_suffix(".rs")?;
        let in_sources =
            matches!(folder.split('/').collect::<Vec<_>>()[..], ["crates" | "tools", _, "src", ..]);
        let below = |other: &&File| other.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let part = tree.files.iter().filter(below).find(|part| !part.is_test())?;
        let text = format!("has files of its own ({}), expected it to be {folder}/mod.rs", part.name());
        in_sources.then(|| Violation::new(file, 1, text))
    };
    tree.rust_files().filter_map(beside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::texts;
    use crate::tree::tree_of;

    #[test]
    fn a_folder_has_its_module_inside() {
        let tree = tree_of(&[
            ("crates/a/src/join.rs", ""),
            ("crates/a/src/join/links.rs", ""),
            ("crates/a/src/joined/mod.rs", ""),
            ("crates/a/src/only_tests.rs", ""),
            ("crates/a/src/only_tests/tests.rs", ""),
            ("crates/a/tests/truth.rs", ""),
            ("crates/a/tests/truth/case.rs", ""),
        ]);
        assert_eq!(
            texts(check(&tree)),
            [
                "crates/a/src/join.rs:1: has files of its own (links.rs), expected it to be crates/a/src/join/mod.rs"
            ]
        );
    }
}
