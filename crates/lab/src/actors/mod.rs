//! Small programs that a run starts: `spangap lab actor NAME ARGUMENTS...`, one file each. Each prints `ready` when it
//! does what it is for, and ends when its standard input does.

pub mod collect;
pub mod line;

use crate::LabError;

/// Becomes an actor.
///
/// # Errors
/// When it is not known, or fails.
pub fn act(name: &str, arguments: &[String]) -> Result<(), LabError> {
    match name {
        "collect" => collect::act(arguments),
        "line" => line::act(arguments),
        _ => Err(LabError::Parameter(format!("there is no actor {name}"))),
    }
}

/// The value behind a flag.
fn value<'a>(arguments: &'a [String], flag: &str) -> Result<&'a str, LabError> {
    let at = arguments.iter().position(|word| word == flag);
    let value = at.and_then(|at| arguments.get(at + 1)).map(String::as_str);
    value.ok_or_else(|| LabError::Parameter(format!("{flag} and its value are missing")))
}
