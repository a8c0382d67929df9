//! Signals that ask a run to end: Ctrl-C, the end of the terminal, `kill`.

use anyhow::Context;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Set by the first of them. None of them ends this process any more, so that another Ctrl-C does not end the undoing.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let (runtime, [mut interrupt, mut terminate, mut hangup]) = catch()?;
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

/// From here on they do nothing.
pub fn ignore() -> anyhow::Result<()> {
    // A signal that was once caught stays so, also when nobody listens any more.
    catch().map(drop)
}

/// Caught when this returns, whether or not the runtime runs already.
fn catch() -> anyhow::Result<(Runtime, [Signal; 3])> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    let entered = runtime.enter();
    let register = |kind| signal(kind).context("cannot wait for signals");
    let signals = [
        register(SignalKind::interrupt())?,
        register(SignalKind::terminate())?,
        register(SignalKind::hangup())?,
    ];
    drop(entered);
    Ok((runtime, signals))
}
