//! Signals that ask a program to end: Ctrl-C, `kill`, the end of the terminal. Caught, so that it can clean up.

use anyhow::Context;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and `kill`.
pub const ASKED: &[SignalKind] = &[SignalKind::interrupt(), SignalKind::terminate()];
/// The end of the terminal as well: for verbs that have changes to undo.
pub const ASKED_OR_LEFT: &[SignalKind] =
    &[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Signals that no longer end this process, even after this is dropped.
pub struct CaughtSignals(Vec<Signal>);

impl CaughtSignals {
    /// Catches the signals. Must be called within a runtime, running or not: a signal that arrives before it
    /// runs counts, too.
    pub fn new(kinds: &[SignalKind]) -> anyhow::Result<CaughtSignals> {
        let caught: Result<_, _> = kinds.iter().map(|kind| signal(*kind)).collect();
        Ok(CaughtSignals(caught.context("cannot wait for signals")?))
    }

    /// Waits for the first signal.
    pub async fn first(&mut self) {
        poll_fn(|context| {
            let mut signals = self.0.iter_mut();
            if signals.any(|signal| signal.poll_recv(context).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// A flag set by the first signal, and by later ones if the owner has cleared it. None of them ends this
/// process any more, so another Ctrl-C does not interrupt the clean-up after the first.
///
/// The handler itself sets the flag. A thread waiting for signals would set it only when it gets a CPU, and on
/// a busy machine a caller that checks the flag between changes could make all of them before that.
pub fn flag(kinds: &[SignalKind]) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for kind in kinds {
        signal_hook::flag::register(kind.as_raw_value(), stop.clone()).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// Ignores the signals from now on.
pub fn ignore(kinds: &[SignalKind]) -> anyhow::Result<()> {
    // A signal once caught stays caught, even without a listener.
    catch(kinds).map(drop)
}

fn catch(kinds: &[SignalKind]) -> anyhow::Result<(Runtime, CaughtSignals)> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    let caught = {
        let _entered = runtime.enter();
        CaughtSignals::new(kinds)?
    };
    Ok((runtime, caught))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    #[test]
    fn the_first_of_several_sets_the_flag_and_none_of_them_ends_the_process() {
        // Signals that no other test sends.
        let kinds = [SignalKind::user_defined2(), SignalKind::window_change()];
        let flag = flag(&kinds).expect("signals are caught");
        assert!(!flag.load(Relaxed));
        let begun = Instant::now();
        for signal in [Signal::USR2, Signal::WINCH, Signal::USR2] {
            kill_process(getpid(), signal).expect("it is sent");
            while !flag.load(Relaxed) {
                assert!(begun.elapsed() < Duration::from_secs(20), "the flag is not set");
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_signal_is_known_before_its_sender_goes_on() {
        let flag = flag(&[SignalKind::user_defined1()]).expect("signals are caught");
        for _ in 0..1_000 {
            // To this very thread: its handler has run when the call returns, whichever thread gets the CPU.
            signal_hook::low_level::raise(SignalKind::user_defined1().as_raw_value()).expect("it is sent");
            assert!(flag.swap(false, Relaxed));
        }
    }
}
