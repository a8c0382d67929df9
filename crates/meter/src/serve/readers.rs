//! Answers on their way to their readers: so many at once, since each holds in memory what it is written from. A reader
//! that dawdles gives its place up as soon as somebody else wants one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// Answers of one kind that are read at once.
const READERS: usize = 16;
/// A reader that has had its place for so long may have it taken.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How long somebody who was told to go may take, before another one is told.
const GOES_WITHIN: Duration = Duration::from_millis(100);

/// The places of one kind of answer.
#[derive(Debug)]
pub struct Readers {
    free: Arc<Semaphore>,
    slow_after: Duration,
    taken: Mutex<Taken>,
    /// Answers that were cut off because others waited.
    pub displaced: AtomicU64,
}

/// By number: the oldest is the first.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: BTreeMap<u64, (Instant, Arc<Notify>)>,
}

impl Readers {
    /// Nobody reads yet.
    pub fn new() -> Arc<Readers> {
        Readers::of(READERS, SLOW_AFTER)
    }

    fn of(places: usize, slow_after: Duration) -> Arc<Readers> {
        let (free, displaced) = (Arc::new(Semaphore::new(places)), AtomicU64::new(0));
        Arc::new(Readers { free, slow_after, taken: Mutex::default(), displaced })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, as soon as there is one: that of a slow reader, if need be. Whoever comes first has it first.
    pub async fn enter(self: &Arc<Self>) -> Place {
        let mut free = std::pin::pin!(self.free.clone().acquire_owned());
        let permit = loop {
            tokio::select! {
                biased;
                permit = &mut free => break permit.ok(),
                () = sleep(self.make_room()) => {}
            }
        };
        let told = Arc::new(Notify::new());
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.places.insert(number, (Instant::now(), told.clone()));
        drop(taken);
        Place { of: self.clone(), number, told, _permit: permit }
    }

    /// Tells the one with the oldest place to go, if it is slow and somebody must; when to look again.
    fn make_room(&self) -> Duration {
        if self.free.available_permits() > 0 {
            return GOES_WITHIN;
        }
        let mut taken = self.taken();
        let Some((since, _)) = taken.places.first_key_value().map(|(_, place)| place) else {
            return GOES_WITHIN;
        };
        let left = self.slow_after.saturating_sub(since.elapsed());
        if left.is_zero() {
            if let Some((_, (_, told))) = taken.places.pop_first() {
                told.notify_one();
                self.displaced.fetch_add(1, Relaxed);
            }
            return GOES_WITHIN;
        }
        left
    }
}

/// The place of one reader, given up when dropped.
#[derive(Debug)]
pub struct Place {
    of: Arc<Readers>,
    number: u64,
    told: Arc<Notify>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    /// Completes when somebody else needs the place more.
    pub async fn told_to_go(&self) {
        self.told.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.taken().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const NEVER: Duration = Duration::from_secs(86_400);

    #[tokio::test]
    async fn the_slowest_makes_room_and_nobody_who_is_quick() {
        let readers = Readers::of(2, Duration::ZERO);
        let (first, second) = (readers.enter().await, readers.enter().await);
        let enter = tokio::spawn({
            let readers = readers.clone();
            async move { readers.enter().await }
        });
        first.told_to_go().await;
        assert!(!enter.is_finished(), "it has not gone yet");
        drop(first);
        let third = enter.await.expect("no panic");
        assert_eq!(readers.displaced.load(Relaxed), 1);
        assert!(timeout(Duration::ZERO, second.told_to_go()).await.is_err(), "one is enough");
        drop((second, third));
        assert!(readers.taken().places.is_empty());
        assert_eq!(readers.free.available_permits(), 2);
    }

    #[tokio::test]
    async fn whoever_is_not_slow_keeps_the_place() {
        let readers = Readers::of(1, NEVER);
        let first = readers.enter().await;
        let waits = timeout(Duration::from_millis(20), readers.enter());
        assert!(waits.await.is_err());
        assert_eq!(readers.displaced.load(Relaxed), 0);
        drop(first);
        readers.enter().await;
    }
}
