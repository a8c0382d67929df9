//! Sequential reading of files that records malformed and unreadable ones, and continues without them.

use spangap_machine::facts::{cpu_list, figures};
use spangap_machine::{FactError, Host, Known};
use spangap_model::Cpus;

/// A machine being read.
pub(super) struct Reading<'a> {
    /// Files of the machine.
    pub files: &'a Host,
    /// Errors so far.
    pub unknown: Vec<FactError>,
}

impl<'a> Reading<'a> {
    pub fn new(files: &'a Host) -> Reading<'a> {
        Reading { files, unknown: Vec::new() }
    }

    /// The fact, or `None` and a recorded error.
    pub fn keep<T>(&mut self, fact: Known<T>) -> Option<T> {
        fact.map_err(|error| self.unknown.push(error)).ok()
    }

    /// The same for facts that a machine need not have.
    pub fn optional<T>(&mut self, fact: Known<T>) -> Option<T> {
        match fact {
            Err(error) if error.is_absent() => None,
            fact => self.keep(fact),
        }
    }

    /// An optional file.
    pub fn text(&mut self, path: &str) -> Option<String> {
        self.optional(self.files.read(path))
    }

    /// Names in an optional folder.
    pub fn names(&mut self, path: &str) -> Vec<String> {
        self.optional(self.files.list(path)).unwrap_or_default()
    }

    /// An optional file, parsed.
    pub fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str, &str) -> Known<T>) -> Option<T> {
        self.optional(self.files.parsed(path, parse))
    }

    /// A required file, parsed.
    pub fn needed<T>(&mut self, path: &str, parse: impl Fn(&str, &str) -> Known<T>) -> Option<T> {
        self.keep(self.files.parsed(path, parse))
    }

    /// A list of CPUs, `0,3-48`.
    pub fn list(&mut self, path: &str) -> Option<Cpus> {
        self.parsed(path, cpu_list::list)
    }

    /// A mask of CPUs, `ff,00000003`.
    pub fn mask(&mut self, path: &str) -> Option<Cpus> {
        self.parsed(path, cpu_list::mask)
    }

    /// A whole number.
    pub fn number<T: std::str::FromStr>(&mut self, path: &str) -> Option<T> {
        self.parsed(path, figures::number)
    }

    /// Last component of a link's target.
    pub fn link_name(&mut self, path: &str) -> Option<String> {
        let to = self.optional(self.files.link(path))?;
        to.rsplit('/').next().map(str::to_owned)
    }
}
