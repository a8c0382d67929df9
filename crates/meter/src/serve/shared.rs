//! Answers that equal requests share: whoever asks while one is being made gets the next one, and all of them the same.
//! So many readers cost no more than one, however slowly they read.

use super::answer::Rendered;
use rustc_hash::FxHashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync;
use tokio::time::Instant;

/// Memory of all answers that are being read. Beyond it, the readers of the oldest are cut off.
const MAX_BYTES: usize = 64 << 20;

/// The latest answer to equal requests, and when it was begun. Locked while one is being made.
type Latest = Arc<sync::Mutex<Option<(Instant, Arc<Rendered>)>>>;

/// All answers that are being made or read.
#[derive(Debug)]
pub struct Answers {
    max_bytes: usize,
    /// By what was asked, while anybody waits for it.
    awaited: Mutex<FxHashMap<String, Latest>>,
    /// Oldest first.
    read: Mutex<Vec<Weak<Rendered>>>,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { max_bytes: MAX_BYTES, awaited: Mutex::default(), read: Mutex::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One who waits for an answer.
struct Awaits<'a> {
    answers: &'a Answers,
    key: &'a str,
    latest: Latest,
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        let mut awaited = locked(&self.answers.awaited);
        // The map has one, and this the other.
        if Arc::strong_count(&self.latest) == 2 {
            awaited.remove(self.key);
        }
    }
}

impl Answers {
    /// The answer to this request: one that was begun after the call, by this caller or another one. What `make`
    /// yields must depend on nothing but the key and the time.
    ///
    /// # Errors
    /// Those of `make`; each caller then tries for itself.
    pub async fn get<E>(
        &self,
        key: &str,
        make: impl Future<Output = Result<Rendered, E>>,
    ) -> Result<Arc<Rendered>, E> {
        let asked = Instant::now();
        let latest = locked(&self.awaited).entry(key.to_string()).or_default().clone();
        let awaits = Awaits { answers: self, key, latest };
        let mut latest = awaits.latest.lock().await;
        if let Some((_, answer)) = latest.as_ref().filter(|(begun, _)| *begun >= asked) {
            return Ok(answer.clone());
        }
        let begun = Instant::now();
        let answer = Arc::new(make.await?);
        self.hold(&answer);
        *latest = Some((begun, answer.clone()));
        Ok(answer)
    }

    /// Makes room for a new answer.
    fn hold(&self, new: &Arc<Rendered>) {
        let mut read = locked(&self.read);
        let mut held: Vec<Arc<Rendered>> = read.iter().filter_map(Weak::upgrade).collect();
        let mut bytes: usize = held.iter().map(|answer| answer.bytes()).sum();
        let mut revoked = 0;
        while bytes + new.bytes() > self.max_bytes && revoked < held.len() {
            held[revoked].revoke();
            bytes -= held[revoked].bytes();
            revoked += 1;
        }
        held.drain(..revoked);
        *read = held.iter().chain([new]).map(Arc::downgrade).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::answer::Coding;
    use crate::serve::places::Peer;
    use crate::serve::readers::Readers;
    use std::convert::Infallible;
    use std::io;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    fn rendered(bytes: &[u8]) -> Rendered {
        Rendered::new(Coding::Gzip, "text/plain", |out| out.write_all(bytes)).expect("memory")
    }

    fn awaited(answers: &Answers, key: &str) -> usize {
        locked(&answers.awaited).get(key).map_or(0, |latest| Arc::strong_count(latest) - 1)
    }

    #[tokio::test]
    async fn those_who_ask_meanwhile_share_the_next_answer() {
        let answers: Arc<Answers> = Arc::default();
        let (made, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (answers, made, may_end) = (answers.clone(), made.clone(), may_end.clone());
            tokio::spawn(async move {
                let make = async {
                    made.fetch_add(1, Relaxed);
                    may_end.acquire().await.expect("open").forget();
                    Ok::<_, Infallible>(rendered(b"answer"))
                };
                answers.get("key", make).await.expect("an answer")
            })
        };
        let first = ask();
        while made.load(Relaxed) == 0 {
            yield_now().await;
        }
        let meanwhile: Vec<_> = (0..100).map(|_| ask()).collect();
        while awaited(&answers, "key") < 101 {
            yield_now().await;
        }
        assert_eq!(made.load(Relaxed), 1, "one at a time");
        may_end.add_permits(2);
        let first = first.await.expect("no panic");
        let mut of_the_others = Vec::new();
        for one in meanwhile {
            of_the_others.push(one.await.expect("no panic"));
        }
        assert_eq!(made.load(Relaxed), 2);
        assert!(of_the_others.iter().all(|answer| Arc::ptr_eq(answer, &of_the_others[0])));
        // It was begun before they asked, and may lack what they want to see.
        assert!(!Arc::ptr_eq(&first, &of_the_others[0]));
        assert_eq!(awaited(&answers, "key"), 0);
        assert!(locked(&answers.awaited).is_empty(), "nothing is kept for those who may ask again");
    }

    #[tokio::test]
    async fn an_error_is_shared_with_nobody_and_a_caller_that_leaves_ends_nothing() {
        let answers: Arc<Answers> = Arc::default();
        let leaves = tokio::spawn({
            let answers = answers.clone();
            async move { answers.get("key", std::future::pending::<Result<Rendered, ()>>()).await }
        });
        while awaited(&answers, "key") == 0 {
            yield_now().await;
        }
        let fails = tokio::spawn({
            let answers = answers.clone();
            async move { answers.get("key", async { Err(7) }).await.map(drop) }
        });
        while awaited(&answers, "key") < 2 {
            yield_now().await;
        }
        leaves.abort();
        assert_eq!(fails.await.expect("no panic"), Err(7));
        let answer = answers.get("key", async { Ok::<_, ()>(rendered(b"answer")) }).await;
        assert!(answer.is_ok() && locked(&answers.awaited).is_empty());
    }

    #[tokio::test]
    async fn beyond_the_limit_the_oldest_answers_end() {
        let noise = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect::<Vec<u8>>()
        };
        let answers = Answers { max_bytes: 5 << 19, ..Answers::default() };
        let readers = Readers::new();
        let mut bodies = Vec::new();
        for at in 0..4 {
            let answer =
                answers.get(&at.to_string(), async { Ok::<_, io::Error>(rendered(&noise(at))) }).await;
            let place = readers.enter(Peer::NOBODY).await.expect("a place");
            bodies.push(answer.expect("memory").send(Some(place)).into_body());
        }
        let mut is_whole = Vec::new();
        for body in bodies {
            is_whole.push(axum::body::to_bytes(body, usize::MAX).await.is_ok());
        }
        assert_eq!(is_whole, [false, false, true, true]);
        assert_eq!(readers.displaced.load(Relaxed), 2);
    }
}
