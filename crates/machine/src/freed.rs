//! Memory that this process has freed, given back to the system. The one `unsafe` of this crate.
//!
//! glibc keeps what a thread has freed for threads that share its arena. Where any of many threads may do a large piece of
//! work, each arena would in time hold as much as the largest piece took.
#![allow(unsafe_code)]

use crate::facts::process_status::own_resident_bytes;

/// Growth of the process from which giving back is worth its time, bytes.
const WORTH_BYTES: u64 = 16 << 20;

/// Resident memory after memory was last given back.
#[derive(Debug, Default)]
pub struct Freed {
    after_bytes: u64,
}

impl Freed {
    /// Gives freed memory back if the process has grown since the last time.
    pub fn give_back_if_grown(&mut self) {
        let Ok(resident) = own_resident_bytes() else { return };
        if resident > self.after_bytes + WORTH_BYTES {
            self.give_back();
        }
        self.after_bytes = self.after_bytes.min(resident);
    }

    /// Gives all freed memory back.
    pub fn give_back(&mut self) {
        give_back();
        self.after_bytes = own_resident_bytes().unwrap_or(self.after_bytes);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: takes no pointer; it locks one arena after the other, and changes only memory that is free.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators keep little.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    const THREADS: usize = 4;
    const BYTES: usize = 48 << 20;
    const PIECE: usize = 4 << 10;

    #[test]
    fn what_threads_have_freed_goes_back_to_the_system() {
        let mut freed = Freed { after_bytes: own_resident_bytes().expect("/proc") };
        // Each is alive until the look, with a piece at the end of its arena that is in use.
        let both = Arc::new(Barrier::new(THREADS + 1));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let both = both.clone();
                std::thread::spawn(move || {
                    let mut pieces: Vec<Vec<u8>> = (0..BYTES / PIECE).map(|_| vec![1; PIECE]).collect();
                    let last = pieces.pop();
                    drop(pieces);
                    both.wait();
                    both.wait();
                    last
                })
            })
            .collect();
        both.wait();
        let before = own_resident_bytes().expect("/proc");
        freed.give_back_if_grown();
        let after = own_resident_bytes().expect("/proc");
        both.wait();
        for thread in threads {
            assert!(thread.join().expect("no panic").is_some());
        }
        let all = (THREADS * BYTES) as u64;
        assert!(before - after > all / 2, "{before} bytes before, {after} after, {all} of them freed");
    }
}
