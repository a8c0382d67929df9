//! `spangap`: finds where an RPC's time goes between client and server.
//!
//! `main` parses, dispatches and alone decides the exit code: 0 done, 1 failed, 2 wrong usage,
//! 3 done and found something that `--fail-on` asked for.

// First: its macros apply to the modules after it.
#[macro_use]
mod stderr;

mod args;
mod commands;
mod guard_wait;
mod help;
mod input_line;
mod output;
mod report_page;
mod signals;
mod temporary;
mod values;
mod web;
mod whole_file;

use std::process::ExitCode;

/// Result of a verb, for `main`.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 3: done, and found what `--fail-on` names.
    Found,
}

/// An error with its causes. An error whose message includes its cause is printed without repetition.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.ends_with(&cause) {
            words += ": ";
            words += &cause;
        }
    }
    words
}

fn main() -> ExitCode {
    let cli = args::Cli::from_terminal();
    match cli.verb.run() {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(3),
        Err(error) if error.is::<clap::Error>() => {
            eprint!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("spangap: {}", in_words(&error));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fmt, io};

    #[test]
    fn a_reason_is_told_once() {
        #[derive(Debug)]
        struct SaysItself(io::Error);
        impl fmt::Display for SaysItself {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "cgroup no/such: {}", self.0)
            }
        }
        impl std::error::Error for SaysItself {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is none");
        let itself = anyhow::Error::from(SaysItself(none()));
        assert_eq!(in_words(&itself), "cgroup no/such: there is none");
        let beside = anyhow::Error::from(none()).context("cannot look");
        assert_eq!(in_words(&beside), "cannot look: there is none");
        assert_eq!(in_words(&itself.context("offcpu")), "offcpu: cgroup no/such: there is none");
    }
}
