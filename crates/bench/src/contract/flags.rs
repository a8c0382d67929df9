//! `--name=value` flags: none missing, duplicate or unknown.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// A problem with the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// Not of the form `--name=value`.
    #[error("{0:?} is not a flag: expected --name=value")]
    Form(String),
    /// Given more than once.
    #[error("--{0} is given twice")]
    Twice(String),
    /// Missing.
    #[error("--{0} is missing: every flag has to be given")]
    Missing(&'static str),
    /// Unknown.
    #[error("--{0} is not known")]
    Unknown(String),
    /// A value that cannot be read.
    #[error("--{name}={value}: {why}")]
    Value {
        /// Flag.
        name: &'static str,
        /// Value.
        value: String,
        /// Expectation.
        why: String,
    },
}

/// The flags not taken yet.
pub struct Flags(BTreeMap<String, String>);

impl Flags {
    /// Splits arguments into names and values.
    ///
    /// # Errors
    /// An argument is not a flag, or a flag is given twice.
    pub fn parse(arguments: &[String]) -> Result<Self, FlagError> {
        let mut flags = BTreeMap::new();
        for argument in arguments {
            let (name, value) = argument
                .strip_prefix("--")
                .and_then(|flag| flag.split_once('='))
                .ok_or_else(|| FlagError::Form(argument.clone()))?;
            if flags.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(FlagError::Twice(name.to_owned()));
            }
        }
        Ok(Flags(flags))
    }

    /// Takes a value as text.
    ///
    /// # Errors
    /// It is missing.
    pub fn text(&mut self, name: &'static str) -> Result<String, FlagError> {
        self.0.remove(name).ok_or(FlagError::Missing(name))
    }

    /// Takes a value of any type that parses from text.
    ///
    /// # Errors
    /// It is missing or does not parse.
    pub fn take<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<T, FlagError> {
        let value = self.text(name)?;
        value.parse().map_err(|why: T::Err| FlagError::Value { name, why: why.to_string(), value })
    }

    /// Takes an optional value.
    ///
    /// # Errors
    /// It does not parse.
    pub fn optional<T: FromStr<Err: Display>>(&mut self, name: &'static str) -> Result<Option<T>, FlagError> {
        if self.0.contains_key(name) { self.take(name).map(Some) } else { Ok(None) }
    }

    /// Takes `on` or `off`.
    ///
    /// # Errors
    /// It is missing or anything else.
    pub fn switch(&mut self, name: &'static str) -> Result<bool, FlagError> {
        match self.text(name)?.as_str() {
            "on" => Ok(true),
            "off" => Ok(false),
            value => Err(FlagError::Value { name, value: value.into(), why: "expected on, off".into() }),
        }
    }

    /// Takes a number, or `None` for the word `target`.
    ///
    /// # Errors
    /// It is missing or neither.
    pub fn number_or_target(&mut self, name: &'static str) -> Result<Option<u64>, FlagError> {
        match self.0.get(name).map(String::as_str) {
            Some("target") => self.text(name).map(|_| None),
            _ => self.take(name).map(Some),
        }
    }

    /// Checks that no flag is left.
    ///
    /// # Errors
    /// Names a flag that was not taken.
    pub fn finish(self) -> Result<(), FlagError> {
        match self.0.into_keys().next() {
            Some(name) => Err(FlagError::Unknown(name)),
            None => Ok(()),
        }
    }
}
