//! Enforces ARCHITECTURE.md: `spangap-house [FOLDER]` reads the tree and prints rule violations, one
//! `FILE:LINE: what, what was expected` per line. Exit code 1 if there are any.

mod checks;
mod rules;
mod source;
mod tree;
mod uses;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let tree = match tree::Tree::read(&root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("spangap-house: {error}");
            return ExitCode::FAILURE;
        }
    };
    for notice in checks::long_files(&tree) {
        println!("{notice}");
    }
    let findings = checks::all(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => ExitCode::SUCCESS,
        n => {
            eprintln!("spangap-house: {n} to fix");
            ExitCode::FAILURE
        }
    }
}
