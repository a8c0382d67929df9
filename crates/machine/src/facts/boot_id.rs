//! `boot_id`: identifies this boot. Notes made in another boot say nothing about current values.

use crate::{FactError, Known};

/// This boot, by a random id.
pub const PATH: &str = "/proc/sys/kernel/random/boot_id";

/// The id; the file ends in a newline.
///
/// # Errors
/// It is not exactly one word.
pub fn parse(path: &str, text: &str) -> Known<String> {
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        _ => Err(FactError::malformed(path, 0, text, "an id of one word")),
    }
}

/// Boot id of this machine.
///
/// # Errors
/// The file cannot be read.
pub fn here() -> Known<String> {
    crate::read_here(PATH, parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word() {
        let id = "fd60c9e4-1b83-4a1f-8e8f-7a4a9a3d1f11";
        assert_eq!(parse(PATH, &format!("{id}\n")).as_deref(), Ok(id));
        assert!(parse(PATH, "\n").is_err() && parse(PATH, "a b\n").is_err());
        let here = super::here().expect("this machine has booted");
        assert_eq!(here.len(), id.len());
    }
}
