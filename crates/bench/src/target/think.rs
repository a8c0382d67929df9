//! Waits with the precision of kernel timers, on a dedicated thread: the async runtime's timers have a
//! resolution of 1 ms.

use crate::clock;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Wakes waiting tasks. Dropping it ends the thread, and releases the tasks that still wait.
pub struct Alarm(Arc<Shared>);

#[derive(Default)]
struct Shared {
    sleepers: Mutex<Sleepers>,
    changed: Condvar,
}

#[derive(Default)]
struct Sleepers {
    /// By monotonic due time, and a number that distinguishes equal ones.
    by_due: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next_number: u64,
    over: bool,
}

impl Alarm {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let for_thread = shared.clone();
        std::thread::Builder::new().name("alarm".into()).spawn(move || for_thread.run())?;
        Ok(Alarm(shared))
    }

    /// A future that completes after `ns` nanoseconds; `None` for 0.
    pub fn wait(&self, ns: u64) -> Option<Waiting> {
        if ns == 0 {
            return None;
        }
        let (sender, woken) = oneshot::channel();
        self.0.add(clock::monotonic_ns().saturating_add(ns), sender);
        Some(Waiting(woken))
    }
}

/// A wait in progress.
pub struct Waiting(oneshot::Receiver<()>);

impl Future for Waiting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The sender is dropped unsent only when the alarm has ended.
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, due_ns: u64, sleeper: oneshot::Sender<()>) {
        let mut sleepers = self.lock();
        let earliest = sleepers.by_due.first_key_value().is_none_or(|((first_ns, _), _)| due_ns < *first_ns);
        let number = sleepers.next_number;
        sleepers.next_number += 1;
        sleepers.by_due.insert((due_ns, number), sleeper);
        drop(sleepers);
        if earliest {
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        clock::cut_timer_slack();
        let mut sleepers = self.lock();
        while !sleepers.over {
            let now_ns = clock::monotonic_ns();
            let first_ns = sleepers.by_due.first_key_value().map(|((due_ns, _), _)| *due_ns);
            sleepers = match first_ns {
                Some(due_ns) if due_ns <= now_ns => {
                    if let Some((_, sleeper)) = sleepers.by_due.pop_first() {
                        // The receiver is gone if the call was cancelled.
                        let _ = sleeper.send(());
                    }
                    sleepers
                }
                Some(due_ns) => {
                    let ahead = Duration::from_nanos(due_ns - now_ns);
                    self.changed.wait_timeout(sleepers, ahead).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(sleepers).unwrap_or_else(PoisonError::into_inner),
            };
        }
        sleepers.by_due.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wakes_are_never_early() {
        let alarm = Arc::new(Alarm::start().unwrap());
        let sleepers: Vec<_> = [5_000_000u64, 0, 1, 3_000_000, 200_000, 3_000_000]
            .map(|ns| {
                let alarm = alarm.clone();
                tokio::spawn(async move {
                    let start = clock::monotonic_ns();
                    if let Some(waiting) = alarm.wait(ns) {
                        waiting.await;
                    }
                    assert!(clock::monotonic_ns() - start >= ns);
                })
            })
            .into();
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
    }

    #[tokio::test]
    async fn end_releases_all_waits() {
        let alarm = Alarm::start().unwrap();
        let (sender, woken) = oneshot::channel();
        alarm.0.add(u64::MAX, sender);
        drop(alarm);
        assert!(woken.await.is_err());
    }
}
