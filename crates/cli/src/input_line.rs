//! Waits for a line on standard input along with other events.

use anyhow::Context;
use std::io::{self, BufRead};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Receives the next line of standard input; `None` at its end.
pub fn line() -> anyhow::Result<Receiver<Option<String>>> {
    let (tell, entered) = mpsc::channel();
    let read = move || {
        let mut line = String::new();
        let is_line = io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0);
        // The receiver is gone after Ctrl-C.
        let _ = tell.send(is_line.then_some(line));
    };
    thread::Builder::new().name("enter".into()).spawn(read).context("cannot start a thread")?;
    Ok(entered)
}
