//! The project's text files, read once.

use crate::rules;
use crate::source::RustSource;
use std::fmt;
use std::path::{Path, PathBuf};

/// Reason why the tree could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct TreeError {
    path: PathBuf,
    source: std::io::Error,
}

/// One text file.
pub struct File {
    /// Path relative to the project's folder, separated by `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The file as a compiler sees it, for Rust.
    pub rust: Option<RustSource>,
}

impl File {
    /// The first line, counted from 1, that contains `needle`; 1 if there is none.
    pub fn line_of(&self, needle: &str) -> usize {
        self.text.lines().position(|line| line.contains(needle)).map_or(1, |at| at + 1)
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether the whole file is test code.
    pub fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests") || self.name() == "tests.rs"
    }
}

/// Every text file of the project, by path.
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
}

impl Tree {
    /// Reads the folder recursively, except for built and fetched files and git's own.
    ///
    /// # Errors
    /// A folder or file cannot be read. A file that is not UTF-8 is left out.
    pub fn read(root: &Path) -> Result<Tree, TreeError> {
        let mut files = Vec::new();
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let failed = |source| TreeError { path: folder.clone(), source };
            for entry in std::fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let path = entry.path();
                let kind = entry.file_type().map_err(failed)?;
                let relative = path.strip_prefix(root).unwrap_or(&path);
                if rules::SKIPPED_PATHS.iter().any(|skipped| relative == Path::new(skipped)) {
                    continue;
                }
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let bytes =
                        std::fs::read(&path).map_err(|source| TreeError { path: path.clone(), source })?;
                    let Ok(text) = String::from_utf8(bytes) else { continue };
                    let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                    let rust = path.ends_with(".rs").then(|| RustSource::new(&text));
                    files.push(File { path, text, rust });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().map(|at| &self.files[at])
    }

    /// The Rust files, as a compiler sees them.
    pub fn rust_files(&self) -> impl Iterator<Item = (&File, &RustSource)> {
        self.files.iter().filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    /// The manifests of the workspace's packages.
    pub fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| {
            let parts: Vec<&str> = file.path.split('/').collect();
            matches!(parts[..], ["crates" | "tools", _, "Cargo.toml"])
        })
    }
}

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// File it is in.
    pub path: String,
    /// Line, counted from 1.
    pub line: usize,
    /// What was found, and what was expected.
    pub text: String,
}

impl Violation {
    /// A violation in `file`.
    pub fn new(file: &File, line: usize, text: String) -> Violation {
        Violation { path: file.path.clone(), line, text }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// A real folder with these files, read.
#[cfg(test)]
pub fn tree_of(files: &[(&str, &str)]) -> Tree {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder in it");
        std::fs::write(path, text).expect("a file in it");
    }
    Tree::read(folder.path()).expect("to read it back")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_skipped_by_its_place_and_not_by_its_name() {
        let tree =
            tree_of(&[("target/a.rs", ""), ("web/dist/b.js", ""), ("crates/bench/src/target/c.rs", "")]);
        let paths: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["crates/bench/src/target/c.rs"]);
    }
}
