//! The stream of CPU intervals of the running kernel, compared with the kernel's own counts, and with what
//! the test knows because it did it.

mod interrupts;
mod loss;
mod recorder;
mod rest;
mod sleeps;
mod sockets;
mod threads;

use spangap_host::event::{Event, What};
use spangap_host::kernel::ProbeError;
use spangap_host::probes::intervals::{Ended, Intervals, Settings};
use std::thread;
use std::time::Duration;

/// Runs `work` while the stream is on. `None`, with a printed reason, where the stream is unavailable.
fn while_streaming<T: Send>(
    settings: &Settings,
    work: impl FnOnce() -> T + Send,
) -> Option<(Vec<Event>, Ended, T)> {
    streamed(settings, true, work)
}

/// The same, but the rings are not read before the end.
fn unobserved<T: Send>(
    settings: &Settings,
    work: impl FnOnce() -> T + Send,
) -> Option<(Vec<Event>, Ended, T)> {
    streamed(settings, false, work)
}

fn streamed<T: Send>(
    settings: &Settings,
    looks: bool,
    work: impl FnOnce() -> T + Send,
) -> Option<(Vec<Event>, Ended, T)> {
    let mut intervals = match Intervals::start(settings) {
        Ok(intervals) => intervals,
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::NoBtf { .. } | ProbeError::Lacks { .. })) => {
            eprintln!("not run: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let began_ns = intervals.began_ns();
    let mut events = Vec::new();
    let result = thread::scope(|scope| {
        let worker = scope.spawn(work);
        while looks && !worker.is_finished() {
            intervals.poll(Duration::from_millis(50), &mut |event| events.push(*event)).unwrap();
        }
        worker.join().unwrap()
    });
    let ended = intervals.stop(&mut |event| events.push(*event)).unwrap();
    assert_eq!(ended.counts.events, events.len() as u64);
    assert_eq!((ended.counts.late, ended.counts.unknown), (0, 0));
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let within = |event: &Event| (began_ns..=ended.ended_ns).contains(&event.time_ns);
    assert!(events.iter().all(within));
    let told: u64 = events.iter().filter_map(lost).sum();
    assert_eq!(told, ended.counts.lost, "every loss is told");
    Some((events, ended, result))
}

fn lost(event: &Event) -> Option<u64> {
    match event.what {
        What::Lost { count, .. } => Some(count),
        _ => None,
    }
}

/// Thread id of the caller.
fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}
