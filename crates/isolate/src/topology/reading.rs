//! Files read one after the other; what is of another form, or closed to us, is remembered and left out.

use spangap_machine::facts::{cpu_list, figures};
use spangap_machine::{FactError, Host, Known};
use spangap_model::Cpus;

/// A machine being read.
pub(super) struct Reading<'a> {
    /// Its files.
    pub files: &'a Host,
    /// What could not be read until now.
    pub unknown: Vec<FactError>,
}

impl<'a> Reading<'a> {
    pub fn new(files: &'a Host) -> Reading<'a> {
        Reading { files, unknown: Vec::new() }
    }

    /// The fact, or nothing and a note of why.
    pub fn keep<T>(&mut self, fact: Known<T>) -> Option<T> {
        fact.map_err(|error| self.unknown.push(error)).ok()
    }

    /// The same for what a machine need not have.
    pub fn optional<T>(&mut self, fact: Known<T>) -> Option<T> {
        match fact {
            Err(error) if error.is_absent() => None,
            fact => self.keep(fact),
        }
    }

    /// A file that need not be there.
    pub fn text(&mut self, path: &str) -> Option<String> {
        self.optional(self.files.read(path))
    }

    /// The names in a folder that need not be there.
    pub fn names(&mut self, path: &str) -> Vec<String> {
        self.optional(self.files.list(path)).unwrap_or_default()
    }

    /// A file that need not be there, parsed.
    pub fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str, &str) -> Known<T>) -> Option<T> {
        self.optional(self.files.parsed(path, parse))
    }

    /// A file that every machine has, parsed.
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

    /// The last part of where a link points.
    pub fn link_name(&mut self, path: &str) -> Option<String> {
        let to = self.optional(self.files.link(path))?;
        to.rsplit('/').next().map(str::to_owned)
    }
}
