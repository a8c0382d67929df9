//! The waiting part of a guard: until its time is over, or a signal arrives, even if its parent is gone.

use crate::signals::{ASKED_OR_LEFT, CaughtSignals};
use anyhow::Context;
use rustix::process::setsid;
use spangap_undo::guard::{READY, timer};
use std::io::{self, Write};
use std::thread;

/// Detaches from the parent's terminal and folder: neither a Ctrl-C there nor their end affects this process.
pub fn apart() -> anyhow::Result<()> {
    setsid().context("cannot leave the session")?;
    std::env::set_current_dir("/").context("cannot leave the folder")
}

/// Waits until a time on CLOCK_BOOTTIME; `true` if a signal came first. Announces readiness once no signal can
/// be missed.
pub fn wait(until_ns: u64) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot wait")?.block_on(async {
        let mut asked = CaughtSignals::new(ASKED_OR_LEFT)?;
        let timer = timer(until_ns).context("cannot make a timer")?;
        let (over, time) = tokio::sync::oneshot::channel();
        let wait = move || {
            // The receiver is gone after a signal.
            let _ = over.send(spangap_undo::guard::wait(&timer));
        };
        thread::Builder::new().name("timer".into()).spawn(wait).context("cannot start a thread")?;
        writeln!(io::stdout(), "{READY}").context("nobody listens")?;
        tokio::select! {
            over = time => over.context("cannot wait")?.context("cannot wait").map(|()| false),
            () = asked.first() => Ok(true),
        }
    })
}
