//! The processes whose sockets and sleeps the programs follow; the set can change while they run.

use super::PROBE;
use super::ports;
use crate::kernel::{ProbeError, refused};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The maps that hold the set, and their current content.
pub(super) struct WatchedProcesses {
    tgids: MapHandle,
    ports: MapHandle,
    mask: u32,
    now: BTreeSet<u32>,
}

impl WatchedProcesses {
    /// An empty set. Processes whose numbers agree in `mask` share an entry: the one named last owns it.
    pub fn new(tgids: MapHandle, ports: MapHandle, mask: u32) -> WatchedProcesses {
        WatchedProcesses { tgids, ports, mask, now: BTreeSet::new() }
    }

    /// Replaces the set. A port once watched stays so: a segment for it costs one check of the process that
    /// reads it.
    pub fn set(&mut self, tgids: &BTreeSet<u32>) -> Result<(), ProbeError> {
        let mut words = BTreeMap::new();
        for &tgid in tgids.difference(&self.now) {
            for port in ports::of_process(Path::new(&format!("/proc/{tgid}"))) {
                *words.entry(u32::from(port) >> 6).or_insert(0u64) |= 1 << (port & 63);
            }
        }
        // Ports go before processes: arrivals are recorded from the first read on.
        for (key, word) in words {
            let key = key.to_ne_bytes();
            let found = self.ports.lookup(&key, MapFlags::ANY).map_err(|error| refused(PROBE, error))?;
            let found = found.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes);
            // A port that a program adds meanwhile is added again when its process next reads.
            let word = (found | word).to_ne_bytes();
            self.ports.update(&key, &word, MapFlags::ANY).map_err(|error| refused(PROBE, error))?;
        }
        let places: BTreeMap<u32, u32> = tgids.iter().map(|&tgid| (tgid & self.mask, tgid)).collect();
        for gone in self.now.difference(tgids).map(|tgid| tgid & self.mask) {
            if !places.contains_key(&gone) {
                self.put(gone, 0)?;
            }
        }
        for (place, tgid) in places {
            if !self.now.contains(&tgid) {
                self.put(place, tgid)?;
            }
        }
        self.now.clone_from(tgids);
        Ok(())
    }

    fn put(&self, place: u32, tgid: u32) -> Result<(), ProbeError> {
        self.tgids
            .update(&place.to_ne_bytes(), &tgid.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| refused(PROBE, error))
    }
}
