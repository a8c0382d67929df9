//! A line on standard input, awaited beside everything else.

use anyhow::Context;
use std::io::{self, BufRead};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Gets the next line of standard input once; `None` at its end.
pub fn line() -> anyhow::Result<Receiver<Option<String>>> {
    let (tell, entered) = mpsc::channel();
    let read = move || {
        let mut line = String::new();
        let is_line = io::stdin().lock().read_line(&mut line).is_ok_and(|bytes| bytes > 0);
        // Nobody waits any more after Ctrl-C.
        let _ = tell.send(is_line.then_some(line));
    };
    thread::Builder::new().name("enter".into()).spawn(read).context("cannot start a thread")?;
    Ok(entered)
}
