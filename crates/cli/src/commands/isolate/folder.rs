//! The machine to work on, and the folder of its journal.

use crate::values::wrong_usage;
use anyhow::{Context, Result, bail};
use clap::Args;
use spangap_isolate::journal::{Folder, HeadRead, Journal};
use spangap_isolate::kernel::Live;
use spangap_undo::guard::Process;
use std::path::{Path, PathBuf};

/// Default folder, relative to the root.
const FOLDER: &str = "var/lib/spangap/isolate";

/// Command-line arguments for the machine and its journal.
#[derive(Args, Clone, Debug)]
pub struct WhereArgs {
    /// Folder of the journal that undoes a plan [default: /var/lib/spangap/isolate; for a copy, inside it]
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
    /// Work on a copy of a machine: a folder with proc and sys inside [default: this machine]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The resolved machine and journal.
#[derive(Debug)]
pub struct MachinePaths {
    pub live: Live,
    /// Copy; `None` for this machine.
    pub root: Option<PathBuf>,
    /// Folder of the journal.
    pub folder: Folder,
    asked: WhereArgs,
}

impl WhereArgs {
    /// Resolves the arguments.
    pub fn find(&self) -> Result<MachinePaths> {
        let root = match &self.root {
            Some(path) if path != Path::new("/") => Some(copy(path)?),
            _ => None,
        };
        let of_machine = || root.clone().unwrap_or_else(|| "/".into()).join(FOLDER);
        let folder = match &self.journal {
            Some(path) => {
                std::path::absolute(path).with_context(|| format!("--journal {}", path.display()))?
            }
            None => of_machine(),
        };
        Ok(MachinePaths { live: live(&root), root, folder: Folder::new(folder), asked: self.clone() })
    }
}

fn live(root: &Option<PathBuf>) -> Live {
    root.as_ref().map_or_else(Live::new, Live::copy)
}

fn copy(path: &Path) -> Result<PathBuf> {
    if !path.join("proc").is_dir() {
        return Err(wrong_usage(format!("--root {}: there is no proc inside", path.display())).into());
    }
    path.canonicalize().with_context(|| format!("--root {}", path.display()))
}

impl MachinePaths {
    /// Only root may change a machine: an attempt without all rights would stop, and be undone, half-way.
    pub fn needs_root(&self, verb: &str) -> Result<()> {
        if self.root.is_none() && !rustix::process::geteuid().is_root() {
            bail!("isolate {verb} needs root on a live machine");
        }
        Ok(())
    }

    /// Switches to the machine that a journal belongs to, which only the journal knows.
    pub fn of_journal(&mut self, path: &Path, journal: &Journal) -> Result<()> {
        if journal.head_read == HeadRead::Lost {
            // In that case only the user can know.
            if self.asked.root.is_none() && self.asked.journal.is_some() {
                let said = format!(
                    "the head of the journal {} cannot be read, so it does not say which machine it is for: --root \
                     / for this one, --root DIR for a copy",
                    path.display()
                );
                return Err(wrong_usage(said).into());
            }
            return Ok(());
        }
        if self.root.is_some() && self.root != journal.head.root {
            let applied_to = match &journal.head.root {
                Some(root) => format!("the copy {}", root.display()),
                None => "this machine".to_owned(),
            };
            let said = format!("--root: the journal {} is for {applied_to}", path.display());
            return Err(wrong_usage(said).into());
        }
        self.root.clone_from(&journal.head.root);
        self.live = live(&self.root);
        Ok(())
    }

    /// A command with this verb for the same machine and journal.
    pub fn command(&self, verb: &str) -> String {
        let mut command = format!("spangap isolate {verb}");
        for (flag, path) in [("--journal", &self.asked.journal), ("--root", &self.asked.root)] {
            if let Some(path) = path {
                command += &format!(" {flag} {}", quoted(&path.to_string_lossy()));
            }
        }
        command
    }
}

/// Why a plan with a damaged journal stays unconfirmed: a permanent plan must remain undoable.
pub fn damaged(path: &Path, journal: &Journal) -> String {
    let lost: Vec<String> = journal.lost().map(ToString::to_string).collect();
    format!("journal {} is damaged at {}", path.display(), lost.join("; "))
}

/// Makes the guard of a journal check it now: if the plan is confirmed or undone, the guard ends.
pub fn end_guard(journal: &Journal) {
    // A guard that has ended has done its work.
    let _ = journal.guard().as_ref().map(Process::ask_to_end);
}

/// A word quoted for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let asked = WhereArgs { journal: Some("/a b/it's".into()), root: None };
        let command = asked.find().expect("nothing is read for that").command("rollback");
        assert_eq!(command, r"spangap isolate rollback --journal '/a b/it'\''s'");
    }

    #[test]
    fn a_copy_has_its_journal_inside() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = WhereArgs { journal: None, root: Some(folder.path().into()) };
        assert!(asked.find().is_err_and(|error| error.is::<clap::Error>()), "no proc inside");
        std::fs::create_dir(folder.path().join("proc")).expect("it is ours");
        let found = asked.find().expect("a copy");
        let root = folder.path().canonicalize().expect("it is there");
        assert_eq!(found.folder.path(), root.join(FOLDER));
        assert_eq!(found.root, Some(root));
        let machine = WhereArgs { journal: None, root: Some("/".into()) }.find().expect("this machine");
        assert_eq!((machine.root, machine.folder.path()), (None, Path::new("/var/lib/spangap/isolate")));
    }
}
