//! Ctrl-C, the end of the terminal, being told to end: a change is stopped and undone, an undo is finished.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use tokio::signal::unix::{SignalKind, signal};

/// Set when any of them comes. From now on none of them ends the program.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    // Registered here and now: one that comes before the thread runs counts too.
    let entered = runtime.enter();
    let register = |kind| signal(kind).context("cannot wait for signals");
    let mut interrupt = register(SignalKind::interrupt())?;
    let mut terminate = register(SignalKind::terminate())?;
    let mut hangup = register(SignalKind::hangup())?;
    drop(entered);
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let wait = move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
        });
        told.store(true, Relaxed);
    };
    thread::Builder::new().name("signals".into()).spawn(wait).context("cannot start a thread")?;
    Ok(stop)
}
