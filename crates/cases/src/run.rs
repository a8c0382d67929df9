//! The loop: all pairs are watched slot by slot, and each case is pursued when its moment has come.

use crate::cases::{Cases, moment};
use crate::now_unix_ms;
use crate::pursuit::pursue;
use crate::report::State;
use crate::watching::SLOT_MS;
use spangap_machine::freed::Freed;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

impl Cases {
    /// Watches the pairs and pursues their cases until it is dropped.
    pub async fn run(self: Arc<Self>) {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut next_slot_ms = now_unix_ms() + SLOT_MS;
        let mut freed = Freed::default();
        loop {
            second.tick().await;
            let now_ms = now_unix_ms();
            if now_ms >= next_slot_ms {
                // A clock that was set back does not stop the slots.
                next_slot_ms = now_ms + SLOT_MS - (now_ms - next_slot_ms).min(SLOT_MS - 1);
                let cases = self.clone();
                let mut freed_before = std::mem::take(&mut freed);
                // A panic in there is a bug; the pairs are watched on.
                let work = tokio::task::spawn_blocking(move || {
                    cases.slot(now_ms);
                    freed_before.give_back_if_grown();
                    freed_before
                });
                freed = work.await.unwrap_or_default();
            } else if next_slot_ms > now_ms + 2 * SLOT_MS {
                next_slot_ms = now_ms + SLOT_MS;
            }
            for id in self.due(now_ms) {
                let pursuit = pursue(self.clone(), id.clone());
                tokio::spawn(self.clone().see_through(id, pursuit));
            }
        }
    }

    /// Pursues a case. A panic in there is a bug; a case that stayed open after it would be the last of its pair.
    pub(crate) async fn see_through(
        self: Arc<Self>,
        id: String,
        pursuit: impl Future<Output = ()> + Send + 'static,
    ) {
        if tokio::spawn(pursuit).await.is_ok() {
            return;
        }
        self.agents.count(|refused| refused.verdicts += 1);
        let why = "No verdict: the work on this case failed, which is a bug in spangap.";
        self.change(&id, |case| {
            case.time_line.push(moment(now_unix_ms(), why));
            case.lacks.push(why.into());
            case.row.state = State::Unknown;
        });
    }
}
