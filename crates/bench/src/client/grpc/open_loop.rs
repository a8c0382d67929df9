//! Starts calls when they are due, whatever became of earlier ones.

use super::Shared;
use super::timer::Timer;
use super::worker::{Due, Worker};
use crate::client::tally::Tally;
use crate::clock;
use crate::schedule::Schedule;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use tokio::task::JoinSet;

/// Upper bound on how long a sleep may delay noticing a stop.
const LONGEST_SLEEP_NS: u64 = 50_000_000;
/// When many calls are due at once, number of calls started before yielding so that they can be sent.
const BATCH: u32 = 32;

/// Assigns due calls to idle workers.
pub struct OpenLoop {
    shared: Arc<Shared>,
    schedule: Schedule,
    timer: Timer,
    tally: Arc<Tally>,
    slots: Vec<Arc<Slot>>,
    /// Idle workers; the most recently busy one is taken first.
    idle: Arc<Mutex<Vec<usize>>>,
}

/// Where a worker finds its next call.
#[derive(Default)]
struct Slot(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    due: Option<Due>,
    over: bool,
    waker: Option<Waker>,
}

impl OpenLoop {
    pub fn new(shared: Arc<Shared>, schedule: Schedule) -> io::Result<Self> {
        let tally = shared.tallies[0].clone();
        Ok(OpenLoop {
            shared,
            schedule,
            timer: Timer::new()?,
            tally,
            slots: Vec::new(),
            idle: Arc::default(),
        })
    }

    /// Runs until no more calls are due. The workers end after their last call.
    pub async fn run(mut self, start_ns: u64, workers: &mut JoinSet<()>) {
        let mut at_once = 0;
        for n in 0.. {
            let due_ns = start_ns.saturating_add(self.schedule.intended_ns(n));
            if clock::monotonic_ns() < due_ns {
                at_once = 0;
                if !self.sleep_until(due_ns).await {
                    break;
                }
            } else if at_once == BATCH {
                at_once = 0;
                tokio::task::yield_now().await;
            }
            at_once += 1;
            let Some(phase) = self.shared.session.admit(due_ns) else { break };
            self.hand_over(Due { due_ns, phase }, workers);
        }
        self.slots.iter().for_each(|slot| slot.end());
    }

    /// False if the time for calls ends before; returns no earlier than that end, so that the phase has its
    /// full length.
    async fn sleep_until(&self, due_ns: u64) -> bool {
        loop {
            let (now_ns, end_ns) = (clock::monotonic_ns(), self.shared.session.end_ns());
            if now_ns >= due_ns {
                return true;
            }
            if now_ns >= end_ns {
                return false;
            }
            let until_ns = due_ns.min(end_ns).min(now_ns + LONGEST_SLEEP_NS);
            // A timer that exists can be set and read.
            self.timer.until(until_ns).await.expect("the timer works");
        }
    }

    /// Assigns a call to an idle worker, or to a new one; otherwise the call is skipped.
    fn hand_over(&mut self, due: Due, workers: &mut JoinSet<()>) {
        if let Some(index) = lock(&self.idle).pop() {
            self.slots[index].put(due);
        } else if self.slots.len() < self.shared.settings.in_flight as usize {
            let index = self.slots.len();
            let slot = Arc::<Slot>::default();
            slot.put(due);
            self.slots.push(slot.clone());
            workers.spawn(work(self.shared.worker(index), slot, self.idle.clone(), index));
        } else {
            self.tally.lock().skipped(due.phase);
        }
    }
}

async fn work(mut worker: Worker, slot: Arc<Slot>, idle: Arc<Mutex<Vec<usize>>>, index: usize) {
    while let Some(due) = slot.take().await {
        worker.call_due(due).await;
        lock(&idle).push(index);
    }
    worker.close().await;
}

impl Slot {
    fn put(&self, due: Due) {
        let mut mail = lock(&self.0);
        mail.due = Some(due);
        wake(mail);
    }

    fn end(&self) {
        let mut mail = lock(&self.0);
        mail.over = true;
        wake(mail);
    }

    /// The next call; `None` if there will be none.
    async fn take(&self) -> Option<Due> {
        poll_fn(|cx| {
            let mut mail = lock(&self.0);
            match (mail.due.take(), mail.over) {
                (Some(due), _) => Poll::Ready(Some(due)),
                (None, true) => Poll::Ready(None),
                (None, false) => {
                    mail.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

fn wake(mut mail: MutexGuard<'_, Mail>) {
    let waker = mail.waker.take();
    drop(mail);
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
