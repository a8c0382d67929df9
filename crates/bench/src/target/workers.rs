//! Limit on concurrently handled calls; the others queue in the order of their arrival.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The workers; cheap to clone.
#[derive(Clone)]
pub struct Workers(Option<Arc<Semaphore>>);

/// A worker in use, free again when dropped.
pub struct Place {
    _held: Option<OwnedSemaphorePermit>,
}

/// A place in the queue. Dropping it leaves the queue.
pub struct Turn(Pin<Box<dyn Future<Output = Place> + Send>>);

impl Workers {
    /// This many workers; `None` for no limit.
    pub fn new(limit: Option<u32>) -> Self {
        Workers(limit.map(|limit| Arc::new(Semaphore::new(limit as usize))))
    }

    /// A free worker, or a place in the queue. Queued calls always come first.
    pub fn place(&self) -> Result<Place, Turn> {
        let Some(places) = &self.0 else { return Ok(Place { _held: None }) };
        match places.clone().try_acquire_owned() {
            Ok(place) => Ok(Place { _held: Some(place) }),
            Err(_) => {
                let turn = places.clone().acquire_owned();
                // Only a closed semaphore refuses, and this one is never closed.
                Err(Turn(Box::pin(async move { Place { _held: turn.await.ok() } })))
            }
        }
    }
}

impl Future for Turn {
    type Output = Place;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Place> {
        Poll::Ready(ready!(self.0.as_mut().poll(cx)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn has_come(turn: &mut Turn) -> Option<Place> {
        match Pin::new(turn).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        }
    }

    #[test]
    fn workers_are_assigned_in_order() {
        let workers = Workers::new(Some(2));
        let (first, second) = (workers.place().ok(), workers.place().ok());
        assert!(first.is_some() && second.is_some());
        let mut turns: Vec<_> = (0..3).map(|_| workers.place().err().expect("both are taken")).collect();
        assert!(turns.iter_mut().all(|turn| has_come(turn).is_none()));
        drop(first);
        assert!(workers.place().is_err(), "the free place is for the first who waits");
        assert!(has_come(&mut turns[1]).is_none());
        let place = has_come(&mut turns[0]);
        assert!(place.is_some());
        drop(turns.remove(1));
        drop(second);
        assert!(has_come(&mut turns[1]).is_some(), "who has left the queue does not get a place");
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let workers = Workers::new(None);
        let places: Vec<_> = (0..1000).map(|_| workers.place()).collect();
        assert!(places.iter().all(Result::is_ok));
    }
}
