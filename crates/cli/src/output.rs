//! Standard output of all verbs.

use crate::Outcome;
use anyhow::Context;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, Write};

/// Prints one JSON document.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<Outcome> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from);
    written.and_then(|()| writeln!(out)).and_then(|()| out.flush()).or_else(seen_enough)?;
    Ok(Outcome::Done)
}

/// Prints lines.
pub fn print_text(text: &str) -> anyhow::Result<Outcome> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).or_else(seen_enough)?;
    Ok(Outcome::Done)
}

/// A reader may close the pipe once it has seen enough.
pub fn seen_enough(error: io::Error) -> anyhow::Result<()> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error).context("cannot print"),
    }
}

/// Terminal width between 80 and `most`; `elsewhere` if the output is not a terminal.
pub fn width(elsewhere: usize, most: usize) -> usize {
    if !io::stdout().is_terminal() {
        return elsewhere;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(elsewhere, |size| usize::from(size.ws_col)).clamp(80, most)
}
