//! A kernel timer that the runtime polls like a socket: the runtime's own timers have a resolution of 1 ms, and
//! a separate thread would have to wake the calling one.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

const SECOND_NS: u64 = 1_000_000_000;

/// Fires at monotonic times.
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Must be called within a runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "unsound only for descriptors that may be closed before: this one is owned"
        )]
        Ok(Timer(AsyncFd::new(timer)?))
    }

    /// Waits until `monotonic_ns`; returns at once if that is past.
    pub async fn until(&self, monotonic_ns: u64) -> io::Result<()> {
        let it_value =
            Timespec { tv_sec: (monotonic_ns / SECOND_NS) as i64, tv_nsec: (monotonic_ns % SECOND_NS) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let expirations = &mut [0; 8];
            match ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), expirations)?)) {
                Ok(read) => return read.map(drop),
                // Re-armed since it fired.
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[tokio::test]
    async fn it_never_goes_off_early() {
        let timer = Timer::new().unwrap();
        for ahead_ns in [1, 2_000_000, 1_000, 0, 500_000] {
            let until_ns = clock::monotonic_ns() + ahead_ns;
            timer.until(until_ns).await.unwrap();
            assert!(clock::monotonic_ns() >= until_ns);
        }
    }

    #[tokio::test]
    async fn abandoned_wait_is_dropped() {
        let timer = Timer::new().unwrap();
        let soon_ns = clock::monotonic_ns() + 1_000_000;
        let waiting = timer.until(soon_ns);
        let waited = tokio::time::timeout(std::time::Duration::ZERO, waiting).await;
        assert!(waited.is_err() || clock::monotonic_ns() >= soon_ns);
        clock::sleep_until(soon_ns + 1_000_000);
        let until_ns = clock::monotonic_ns() + 5_000_000;
        timer.until(until_ns).await.unwrap();
        assert!(clock::monotonic_ns() >= until_ns);
    }
}
