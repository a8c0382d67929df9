//! Signals that ask a program to end: Ctrl-C, `kill`, the end of the terminal. Caught, so that it ends in its own way.

use anyhow::Context;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Poll;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and `kill`.
pub const ASKED: &[SignalKind] = &[SignalKind::interrupt(), SignalKind::terminate()];
/// The end of the terminal as well: for what has to be undone.
pub const ASKED_OR_LEFT: &[SignalKind] =
    &[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Signals that no longer end this process, also when this is gone.
pub struct Caught(Vec<Signal>);

impl Caught {
    /// Catches them. Within a runtime, whether or not it runs already: one that comes before it does counts, too.
    pub fn new(kinds: &[SignalKind]) -> anyhow::Result<Caught> {
        let caught: Result<_, _> = kinds.iter().map(|kind| signal(*kind)).collect();
        Ok(Caught(caught.context("cannot wait for signals")?))
    }

    /// Until the first of them comes.
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

/// Set by the first of them, and by each after it where what they ended has cleared it. None of them ends this process any
/// more, so that another Ctrl-C does not end what is done because of the first.
///
/// The handler itself sets it. A thread that waits for signals would set it when it gets a CPU, and on a busy machine
/// whoever looks at the flag between two changes could make all of them before that.
pub fn flag(kinds: &[SignalKind]) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for kind in kinds {
        signal_hook::flag::register(kind.as_raw_value(), stop.clone()).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// From here on they do nothing.
pub fn ignore(kinds: &[SignalKind]) -> anyhow::Result<()> {
    // A signal that was once caught stays so, also when nobody listens any more.
    catch(kinds).map(drop)
}

fn catch(kinds: &[SignalKind]) -> anyhow::Result<(Runtime, Caught)> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot wait for signals")?;
    let caught = {
        let _entered = runtime.enter();
        Caught::new(kinds)?
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
        // Of those that no other test sends.
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
            // To this very thread: its handler has run when the call returns, whoever else wants the CPU.
            signal_hook::low_level::raise(SignalKind::user_defined1().as_raw_value()).expect("it is sent");
            assert!(flag.swap(false, Relaxed));
        }
    }
}
