//! One capture with its tap: packets in, batches out.

use crate::decode::Decoder;
use crate::dissect::search::{Places, Search};
use crate::dissect::sections::Choice;
use crate::source::{Capture, Reading};
use crate::tap::{Harvest, Tap};

/// Packets of one capture read before the other's turn is considered.
const BATCH: u64 = 128;

/// What some packets of one capture brought.
#[derive(Default)]
pub(super) struct Batch {
    pub harvest: Harvest,
    /// Time of its last packet.
    pub latest_ns: Option<i64>,
    /// Whether no packet follows.
    pub over: bool,
    pub progress: ReadSoFar,
    /// Where trace ids were found.
    pub places: Places,
}

/// What was read of a capture, as of a batch.
#[derive(Clone, Copy, Default)]
pub(super) struct ReadSoFar {
    pub packets: u64,
    pub stored_bytes: u64,
    pub stored_total_bytes: Option<u64>,
    /// Packets that the capturing host dropped.
    pub dropped: Option<u64>,
    /// When capturing stopped.
    pub stopped_ns: Option<i64>,
}

impl ReadSoFar {
    pub fn of(reading: &Reading) -> ReadSoFar {
        let Reading { packets, stored_bytes, stored_total_bytes, dropped, stopped_ns, .. } = *reading;
        ReadSoFar { packets, stored_bytes, stored_total_bytes, dropped, stopped_ns }
    }
}

/// Reads one capture.
pub(super) struct Reader {
    pub source: Capture,
    pub tap: Tap,
    /// Where the capture is in several sections: which of its connections are of this one.
    pub choice: Option<(Choice, Decoder)>,
    pub search: Search,
    /// Number of packets to read: growth of a file since the first pass is ignored.
    pub most: u64,
    /// Bytes of keys read.
    keys_read: usize,
}

impl Reader {
    pub fn new(mut source: Capture, key_log: &[u8], choice: Option<Choice>, search: Search) -> Reader {
        let mut tap = Tap::default();
        tap.add_keys(key_log);
        source.read_openings();
        source.openings().iter().for_each(|opening| tap.opening(opening));
        let choice = choice.map(|choice| (choice, Decoder::default()));
        Reader { source, tap, choice, search, most: u64::MAX, keys_read: 0 }
    }

    /// Reads some packets into an empty batch.
    pub fn read(&mut self, batch: &mut Batch) {
        let Reader { source, tap, choice, search, .. } = self;
        (batch.latest_ns, batch.over) = (None, false);
        let left = self.most.saturating_sub(source.reading().packets);
        for nth in 0..BATCH {
            // What follows the last packet belongs to it.
            let Some(packet) = source.next().filter(|_| nth < left) else {
                batch.over = true;
                break;
            };
            batch.latest_ns = Some(packet.time_ns);
            match choice {
                None => tap.packet(&packet),
                Some((choice, decoder)) => match decoder.decode(&packet) {
                    Ok(segment) if choice.takes(&segment) => tap.segment(&packet, &segment),
                    Err(_) if choice.has_the_rest() => tap.packet(&packet),
                    Ok(_) => continue,
                    Err(_) => {
                        tap.no_segment(&packet);
                        continue;
                    }
                },
            }
            if search.is_on() {
                search.packet(&packet, &mut batch.places);
            }
        }
        let keys = source.key_log();
        if keys.len() > self.keys_read {
            tap.add_keys(&keys[self.keys_read..]);
            self.keys_read = keys.len();
        }
        self.harvest(batch);
    }

    /// No more will be read: what is in progress is finished as it is.
    pub fn finish(&mut self, batch: &mut Batch) {
        (batch.latest_ns, batch.over) = (None, true);
        if let Some(stopped_ns) = self.source.reading().stopped_ns {
            self.tap.went_on_until(stopped_ns);
        }
        self.tap.finish();
        self.harvest(batch);
    }

    fn harvest(&mut self, batch: &mut Batch) {
        self.tap.harvest(&mut batch.harvest);
        batch.progress = ReadSoFar::of(self.source.reading());
    }
}
