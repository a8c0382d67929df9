//! The files of a machine, below a root that may be a copy of another machine; everything read can be saved as
//! one text.

#![warn(missing_docs)]

pub mod facts;
pub mod freed;

use spangap_model::Cpus;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Reason for an unknown fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// An unreadable file, folder or link.
    #[error("cannot read {path}: {why}")]
    Read {
        /// Path on the machine itself.
        path: String,
        /// Error of the kernel.
        why: String,
        /// Whether it does not exist.
        absent: bool,
    },
    /// A malformed line.
    #[error("{path}, line {line}: found {found:?}, expected {expected}")]
    Malformed {
        /// Path on the machine itself.
        path: String,
        /// Line number, from 1.
        line: usize,
        /// Text found.
        found: String,
        /// Expected form.
        expected: &'static str,
    },
}

impl FactError {
    /// A malformed line; `line` counts from 0.
    pub fn malformed(path: &str, line: usize, found: &str, expected: &'static str) -> FactError {
        let found = found.trim().chars().take(60).collect();
        FactError::Malformed { path: path.to_owned(), line: line + 1, found, expected }
    }

    /// Whether the file does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, FactError::Read { absent: true, .. })
    }

    /// The file, if this user may not read it.
    pub fn closed(&self) -> Option<&str> {
        match self {
            FactError::Read { path, why, .. } if why == DENIED => Some(path),
            _ => None,
        }
    }
}

/// Reason for a file that this user may not read, here and in a saved machine.
const DENIED: &str = "permission denied";

/// A fact, or the reason why it is unknown.
pub type Known<T> = Result<T, FactError>;

/// Whether a file, thread, cgroup or device does not exist, or vanished while being read.
fn is_absent(error: &io::Error) -> bool {
    const NO_SUCH_PROCESS: i32 = 3;
    const NO_SUCH_DEVICE: i32 = 19;
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    kinds.contains(&error.kind()) || matches!(error.raw_os_error(), Some(NO_SUCH_PROCESS | NO_SUCH_DEVICE))
}

/// Parses a file of this machine. Unlike a [`Host`] this does not record what it reads: for frequent reads.
///
/// # Errors
/// Error of the kernel, with the path; error of the parser.
pub fn read_here<T>(path: &str, parse: impl FnOnce(&str, &str) -> Known<T>) -> Known<T> {
    let bytes = fs::read(path).map_err(|error| FactError::Read {
        path: path.to_owned(),
        why: error.to_string(),
        absent: is_absent(&error),
    })?;
    parse(path, &String::from_utf8_lossy(&bytes))
}

/// Content of a path at the time of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Text(String),
    Link(String),
    Names(Vec<String>),
    Refused(String),
}

/// Everything read of a machine at one moment, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept(BTreeMap<Key, Entry>);

/// A path, and whether it is read as a link: the target of a link to a folder differs from the folder's
/// content.
type Key = (String, bool);

enum Source {
    Root(PathBuf),
    Kept(Kept),
}

/// A machine whose files are read.
pub struct Host {
    source: Source,
    kept: Mutex<Kept>,
    /// Whether a path that was read keeps its content.
    once: bool,
}

impl Host {
    /// A machine whose `/proc`, `/sys`, ... are below `root`; `/` is this machine.
    pub fn below(root: impl Into<PathBuf>) -> Host {
        Host { source: Source::Root(root.into()), kept: Mutex::default(), once: false }
    }

    /// Reads each path once, and answers with that from then on: what is judged is what [`Host::seen`] returns, even
    /// if threads end meanwhile.
    #[must_use]
    pub fn at_one_moment(self) -> Host {
        Host { once: true, ..self }
    }

    /// A saved machine.
    pub fn kept(kept: Kept) -> Host {
        Host { source: Source::Kept(kept), kept: Mutex::default(), once: false }
    }

    /// Everything read so far.
    pub fn seen(&self) -> Kept {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Text of a file. Invalid UTF-8 becomes replacement characters.
    ///
    /// # Errors
    /// Error of the kernel, with the path.
    pub fn read(&self, path: &str) -> Known<String> {
        self.ask(
            path,
            false,
            |entry| if let Entry::Text(text) = entry { Some(text) } else { None },
            |real| fs::read(real).map(|bytes| Entry::Text(String::from_utf8_lossy(&bytes).into_owned())),
        )
    }

    /// A file of four bytes: a number in this machine's byte order.
    ///
    /// # Errors
    /// Error of the kernel, with the path.
    pub fn read_i32(&self, path: &str) -> Known<i32> {
        let text = self.ask(
            path,
            false,
            |entry| if let Entry::Text(text) = entry { Some(text) } else { None },
            |real| {
                let mut four = [0; 4];
                io::Read::read_exact(&mut fs::File::open(real)?, &mut four)?;
                Ok(Entry::Text(i32::from_ne_bytes(four).to_string()))
            },
        )?;
        text.trim().parse().map_err(|_| FactError::malformed(path, 0, &text, "a number"))
    }

    /// A parsed file.
    ///
    /// # Errors
    /// Error of the kernel, with the path; error of the parser.
    pub fn parsed<T>(&self, path: &str, parse: impl FnOnce(&str, &str) -> Known<T>) -> Known<T> {
        parse(path, &self.read(path)?)
    }

    /// Names in a folder, numbers in numerical order.
    ///
    /// # Errors
    /// Error of the kernel, with the path.
    pub fn list(&self, path: &str) -> Known<Vec<String>> {
        let names = self.ask(
            path,
            false,
            |entry| if let Entry::Names(names) = entry { Some(names) } else { None },
            |real| {
                let entries = fs::read_dir(real)?;
                let names: io::Result<Vec<String>> =
                    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
                names.map(Entry::Names)
            },
        );
        let mut names = match (&self.source, names) {
            (Source::Kept(kept), Err(error)) if error.is_absent() => kept.below(path).ok_or(error)?,
            (_, names) => names?,
        };
        names.sort_by_cached_key(|name| natural(name));
        Ok(names)
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// Error of the kernel, with the path.
    pub fn link(&self, path: &str) -> Known<String> {
        self.ask(
            path,
            true,
            |entry| if let Entry::Link(to) = entry { Some(to) } else { None },
            |real| Ok(Entry::Link(fs::read_link(real)?.to_string_lossy().into_owned())),
        )
    }

    fn ask<T>(
        &self,
        path: &str,
        link: bool,
        of: impl Fn(Entry) -> Option<T>,
        real: impl Fn(&Path) -> io::Result<Entry>,
    ) -> Known<T> {
        let absent =
            || FactError::Read { path: path.to_owned(), why: "there is no such file".into(), absent: true };
        let refused = |why| FactError::Read { path: path.to_owned(), why, absent: false };
        let known = || self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(path, link).cloned();
        let entry = match &self.source {
            Source::Kept(kept) => kept.get(path, link).cloned().ok_or_else(absent)?,
            Source::Root(_)
                if self.once
                    && let Some(entry) = known() =>
            {
                entry
            }
            Source::Root(root) => match real(&root.join(path.trim_start_matches('/'))) {
                Ok(entry) => entry,
                Err(error) if is_absent(&error) => return Err(absent()),
                Err(error) => match error.kind() {
                    // It exists, and is not a link.
                    io::ErrorKind::InvalidInput if link => return Err(absent()),
                    io::ErrorKind::PermissionDenied => Entry::Refused(DENIED.into()),
                    _ => Entry::Refused(error.to_string()),
                },
            },
        };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).add(path, entry.clone());
        match entry {
            Entry::Refused(why) if why == GONE => Err(absent()),
            Entry::Refused(why) => Err(refused(why)),
            entry => of(entry).ok_or_else(absent),
        }
    }
}

/// Sort key of natural order: `eth2` before `eth10`.
fn natural(name: &str) -> (String, u64, String) {
    let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
    let head = &name[..name.len() - digits.len()];
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    (head.to_owned(), digits[..end].parse().unwrap_or(0), digits[end..].to_owned())
}

/// Separates two readings of a machine in one text.
const SECOND_READING: &str = "##### second reading\n";

/// Stands for the reason at a path that the first reading found and the second did not.
const GONE: &str = "gone";

/// Two readings of a machine as one text; of the second only differences from the first. The second must have asked
/// for everything that the first did.
pub fn write_readings(first: &Kept, second: &Kept) -> String {
    let changed = second.0.iter().filter(|(key, entry)| first.0.get(*key) != Some(*entry));
    let mut changed = Kept(changed.map(|(key, entry)| (key.clone(), entry.clone())).collect());
    let gone = first.0.keys().filter(|(path, link)| second.get(path, *link).is_none());
    gone.for_each(|(path, _)| changed.add(path, Entry::Refused(GONE.into())));
    format!("{}{SECOND_READING}{}", first.text(), changed.text())
}

/// Parses the output of [`write_readings`]; a text with a single reading has no first one.
///
/// # Errors
/// A malformed line.
pub fn parse_readings(text: &str) -> Result<(Option<Kept>, Kept), KeptError> {
    let Some((first, second)) = text.split_once(SECOND_READING) else {
        return Ok((None, Kept::parse(text)?));
    };
    let parsed = Kept::parse(first)?;
    let lines = first.lines().count() + 1;
    let second = Kept::parse(second).map_err(|error| KeptError { line: error.line + lines, ..error })?;
    let whole = parsed.with(&second);
    Ok((Some(parsed), whole))
}

/// Starts an entry of a saved machine.
const MARK: &str = "=== ";

/// A malformed line of a saved machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: found {found:?}, expected `=== /PATH`, and what was there below it")]
pub struct KeptError {
    line: usize,
    found: String,
}

impl Kept {
    /// Parses the output of [`Kept::text`]. `[0-3,8]` in a path stands for several paths with equal content.
    ///
    /// # Errors
    /// A malformed line.
    pub fn parse(text: &str) -> Result<Kept, KeptError> {
        let mut kept = Kept::default();
        let mut paths: Vec<String> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let Some(head) = line.strip_prefix(MARK) else {
                if paths.is_empty() && !line.trim().is_empty() && !line.starts_with('#') {
                    return Err(KeptError { line: at + 1, found: line.to_owned() });
                }
                for path in &paths {
                    if let Some(Entry::Text(text)) = kept.0.get_mut(&(path.clone(), false)) {
                        text.push_str(line);
                        text.push('\n');
                    }
                }
                continue;
            };
            let (path, entry) = if let Some((path, to)) = head.split_once(" -> ") {
                (path, Entry::Link(to.to_owned()))
            } else if let Some((path, why)) = head.split_once(" ! ") {
                (path, Entry::Refused(why.to_owned()))
            } else if let Some((path, names)) = head.split_once(" : ") {
                (path, Entry::Names(names.split_whitespace().map(str::to_owned).collect()))
            } else {
                (head.trim_end(), Entry::Text(String::new()))
            };
            let bad = || KeptError { line: at + 1, found: line.to_owned() };
            paths =
                several(path).filter(|paths| !paths.is_empty() && path.starts_with('/')).ok_or_else(bad)?;
            paths.iter().for_each(|path| kept.add(path, entry.clone()));
        }
        Ok(kept)
    }

    /// Whether anything was saved for this path.
    pub fn has(&self, path: &str) -> bool {
        self.get(path, false).is_some() || self.get(path, true).is_some()
    }

    fn get(&self, path: &str, link: bool) -> Option<&Entry> {
        let refused =
            || self.0.get(&(path.to_owned(), false)).filter(|entry| matches!(entry, Entry::Refused(_)));
        self.0.get(&(path.to_owned(), link)).or_else(|| if link { refused() } else { None })
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let link = matches!(entry, Entry::Link(_));
        self.0.insert((path.to_owned(), link), entry);
    }

    /// Writes everything as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for ((path, _), entry) in &self.0 {
            // Writing to a string cannot fail.
            let _ = match entry {
                Entry::Text(content) => write!(
                    text,
                    "{MARK}{path}\n{content}{}",
                    if content.is_empty() || content.ends_with('\n') { "" } else { "\n" }
                ),
                Entry::Link(to) => writeln!(text, "{MARK}{path} -> {to}"),
                Entry::Refused(why) => writeln!(text, "{MARK}{path} ! {why}"),
                Entry::Names(names) => writeln!(text, "{MARK}{path} : {}", names.join(" ")),
            };
        }
        text
    }

    /// Writes everything below a folder, for [`Host::below`] to read: links are redirected into the folder; a
    /// listed name without further content becomes an empty file. What could not be read is left out.
    ///
    /// # Errors
    /// Error of the file system; `InvalidInput` for a path or link that would leave the folder.
    pub fn write_below(&self, root: &Path) -> io::Result<()> {
        let below = |path: &str| -> io::Result<PathBuf> {
            let real = self.led_along(path).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("{path} leads out of the copy"))
            })?;
            Ok(root.join(real.trim_start_matches('/')))
        };
        for ((path, _), entry) in &self.0 {
            match entry {
                Entry::Link(to) => {
                    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
                    let real = below(folder)?;
                    fs::create_dir_all(&real)?;
                    std::os::unix::fs::symlink(to, real.join(name))?;
                }
                Entry::Text(text) => {
                    let real = below(path)?;
                    real.parent().map_or(Ok(()), fs::create_dir_all)?;
                    fs::write(real, text)?;
                }
                Entry::Names(_) => fs::create_dir_all(below(path)?)?,
                Entry::Refused(_) => {}
            }
        }
        for ((path, _), entry) in &self.0 {
            let Entry::Names(names) = entry else { continue };
            let real = below(path)?;
            for missing in
                names.iter().map(|name| real.join(name)).filter(|path| path.symlink_metadata().is_err())
            {
                fs::write(missing, "")?;
            }
        }
        Ok(())
    }

    /// The path with its links resolved; `None` if one leaves the machine or forms a cycle.
    fn led_along(&self, path: &str) -> Option<String> {
        /// The kernel's limit.
        const MOST_LINKS: usize = 40;
        let mut waiting: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let (mut real, mut links): (Vec<String>, usize) = (Vec::new(), 0);
        while let Some(part) = waiting.pop() {
            match part.as_str() {
                "" | "." => {}
                ".." => drop(real.pop()?),
                _ => {
                    real.push(part);
                    // The saved path may name the place by the link, or by its target.
                    let here = (format!("/{}", real.join("/")), true);
                    let Some(Entry::Link(to)) = self.0.get(&here) else { continue };
                    links += 1;
                    if links > MOST_LINKS || to.starts_with('/') {
                        return None;
                    }
                    real.pop();
                    waiting.extend(to.split('/').rev().map(str::to_owned));
                }
            }
        }
        Some(format!("/{}", real.join("/")))
    }

    /// This machine, with the entries of the other replacing its own, path by path.
    fn with(&self, other: &Kept) -> Kept {
        let mut both = self.clone();
        for ((path, link), entry) in &other.0 {
            if matches!(entry, Entry::Refused(_)) {
                both.0.remove(&(path.clone(), true));
            }
            both.0.insert((path.clone(), *link), entry.clone());
        }
        both
    }

    /// Names in a folder whose listing was not saved: those of the paths below it.
    fn below(&self, folder: &str) -> Option<Vec<String>> {
        let folder = format!("{}/", folder.trim_end_matches('/'));
        let paths = self.0.range((folder.clone(), false)..).map(|((path, _), _)| path);
        let mut names: Vec<String> = paths
            .map_while(|path| path.strip_prefix(&folder))
            .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
            .collect();
        names.dedup();
        (!names.is_empty()).then_some(names)
    }
}

/// The paths that a path with `[LIST]` stands for.
fn several(path: &str) -> Option<Vec<String>> {
    let Some((head, rest)) = path.split_once('[') else { return Some(vec![path.to_owned()]) };
    let (list, tail) = rest.split_once(']')?;
    let tails = several(tail)?;
    let cpus = Cpus::parse_list(list)?;
    Some(cpus.iter().flat_map(|cpu| tails.iter().map(move |tail| format!("{head}{cpu}{tail}"))).collect())
}

#[cfg(test)]
mod tests;
