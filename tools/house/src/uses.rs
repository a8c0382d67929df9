//! Which source file of a crate uses which other: paths, followed through modules and re-exports.

use crate::source::RustSource;
use crate::tree::{File, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// The source files of one crate, by module.
pub struct Crate<'a> {
    /// Module path, `""` for the root, and its file.
    modules: BTreeMap<String, Module<'a>>,
}

struct Module<'a> {
    file: &'a File,
    rust: &'a RustSource,
    /// Names that this file passes on from elsewhere, with the paths where they are.
    passed_on: BTreeMap<String, String>,
}

/// One file that uses another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use<'a> {
    /// The path of the file that uses.
    pub from: &'a str,
    /// The path of the file that is used.
    pub to: &'a str,
}

impl Use<'_> {
    /// Whether one file is the face of a module to which the other belongs.
    pub fn is_of_one_module(&self) -> bool {
        let inside =
            |path: &'_ str| source_place(path).map(|(_, inside)| module_path(inside)).unwrap_or_default();
        let (from, to) = (inside(self.from), inside(self.to));
        let holds = |outer: &str, inner: &str| {
            outer.is_empty() || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"))
        };
        holds(&from, &to) || holds(&to, &from)
    }
}

impl<'a> Crate<'a> {
    /// Every crate of the tree, without its test files.
    pub fn all(tree: &'a Tree) -> Vec<Crate<'a>> {
        let mut crates: BTreeMap<&str, Crate<'a>> = BTreeMap::new();
        for (file, rust) in tree.rust_files().filter(|(file, _)| !file.is_test()) {
            let Some((folder, inside)) = source_place(&file.path) else { continue };
            let module = Module { file, rust, passed_on: passed_on(rust) };
            let modules =
                &mut crates.entry(folder).or_insert_with(|| Crate { modules: BTreeMap::new() }).modules;
            modules.entry(module_path(inside)).or_insert(module);
        }
        crates.into_values().collect()
    }

    /// Who uses whom, and on which line first. A name that a module merely passes on counts for the file that it comes
    /// from, and passing it on is no use of it.
    pub fn uses(&self) -> BTreeMap<Use<'a>, usize> {
        let mut found = BTreeMap::new();
        for (place, module) in &self.modules {
            let passing = passing_lines(module.rust);
            for (line, path) in module.rust.paths() {
                if passing.contains(&line) || module.rust.is_test_line(line) || !path.contains("::") {
                    continue;
                }
                let Some(used) = self.file_of(place, &path, 0) else { continue };
                if used.path != module.file.path {
                    found.entry(Use { from: &module.file.path, to: &used.path }).or_insert(line);
                }
            }
        }
        found
    }

    /// The file in which `path`, written in the module `place`, ends; `None` if it is not in this crate.
    fn file_of(&self, place: &str, path: &str, depth: usize) -> Option<&'a File> {
        let mut parts = path.split("::").peekable();
        let mut at = match *parts.peek()? {
            "crate" => String::new(),
            "self" => place.to_owned(),
            "super" => parent(place)?.to_owned(),
            first if self.modules.contains_key(&child(place, first)) => child(place, first),
            _ => return None,
        };
        parts.next();
        for part in parts {
            if part == "super" {
                at = parent(&at)?.to_owned();
                continue;
            }
            let inside = child(&at, part);
            if self.modules.contains_key(&inside) {
                at = inside;
                continue;
            }
            // A chain of names passed on is short; more would be a circle of them.
            let from = self.modules.get(&at)?.passed_on.get(part).filter(|_| depth < 8);
            return match from {
                Some(from) => self.file_of(&at, from, depth + 1),
                None => Some(self.modules.get(&at)?.file),
            };
        }
        Some(self.modules.get(&at)?.file)
    }
}

/// `crates/a/src/` and the rest of the path, for a source of a library or a program.
fn source_place(path: &str) -> Option<(&str, &str)> {
    let at = path.find("/src/").filter(|_| path.starts_with("crates/") || path.starts_with("tools/"))?;
    Some(path.split_at(at + "/src/".len()))
}

/// `a::b` for `a/b.rs` and for `a/b/mod.rs`.
fn module_path(inside: &str) -> String {
    let path = inside.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") { String::new() } else { path.replace('/', "::") }
}

fn parent(module: &str) -> Option<&str> {
    match module {
        "" => None,
        _ => Some(module.rsplit_once("::").map_or("", |(parent, _)| parent)),
    }
}

fn child(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The names after `pub use` and `pub(crate) use`, with their paths.
fn passed_on(rust: &RustSource) -> BTreeMap<String, String> {
    let lines = passing_lines(rust);
    let paths = rust.paths().into_iter().filter(|(line, path)| lines.contains(line) && path.contains("::"));
    paths.filter_map(|(_, path)| Some((path.rsplit_once("::")?.1.to_owned(), path))).collect()
}

/// The lines of every `pub use` and `pub(crate) use`.
fn passing_lines(rust: &RustSource) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut inside = false;
    for (at, line) in rust.code.lines().enumerate() {
        let line = line.trim();
        inside |= line.starts_with("pub")
            && line.split_once(" use ").is_some_and(|(before, _)| !before.contains(' '));
        if inside {
            found.insert(at + 1);
        }
        inside &= !line.ends_with(';');
    }
    found
}
