//! Writing a recording.

use super::code::Encoder;
use super::{End, HEADER, Kind, MAGIC, MAX_PAYLOAD, Meta, Reading, VERSION};
use crate::event::Event;
use crate::names::Names;
use serde::Serialize;
use std::io::{self, Write};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// Events of one record at most.
const EVENTS_PER_RECORD: u64 = 1 << 16;
/// Level of compression: the fastest, as the recorder shares the machine with what it records.
const LEVEL: i32 = 1;

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Events, those not yet in the file included.
    pub events: u64,
    /// Bytes of events before compression.
    pub event_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a recording.
pub struct Writer<W: Write> {
    to: W,
    compressor: Compressor<'static>,
    encoder: Encoder,
    written: Written,
}

impl Writer<Vec<u8>> {
    /// What was written since it was last asked.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut taken = std::mem::take(&mut self.to);
        taken.shrink_to_fit();
        taken
    }
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    pub fn new(mut to: W, meta: &Meta) -> io::Result<Writer<W>> {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        let mut begin = MAGIC.to_vec();
        begin.extend(VERSION.to_le_bytes());
        to.write_all(&begin)?;
        let written = Written { bytes: begin.len() as u64, ..Written::default() };
        let mut writer = Writer { to, compressor, encoder: Encoder::default(), written };
        writer.json(Kind::Meta, meta)?;
        Ok(writer)
    }

    /// Adds an event, which comes into the file with the next ones, or by [`flush`](Self::flush).
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        self.encoder.push(event);
        self.written.events += 1;
        if self.encoder.events() >= EVENTS_PER_RECORD { self.flush() } else { Ok(()) }
    }

    /// Adds names: those that are new or have changed.
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        if names.is_empty() { Ok(()) } else { self.json(Kind::Names, names) }
    }

    /// Adds a reading of the clocks.
    pub fn clocks(&mut self, reading: &Reading) -> io::Result<()> {
        self.json(Kind::Clocks, reading)
    }

    /// Writes out all events added so far.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.encoder.events() == 0 {
            return Ok(());
        }
        let bytes = self.encoder.take();
        self.written.event_bytes += bytes.len() as u64;
        self.record(Kind::Events as u8, &bytes)
    }

    /// Adds whole records of events, as another writer made them.
    pub(super) fn whole(&mut self, records: &[u8], events: u64) -> io::Result<()> {
        self.written.events += events;
        self.written.bytes += records.len() as u64;
        self.to.write_all(records)
    }

    /// What was written so far.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Ends the recording. `end.events` is set to what was written.
    pub fn finish(mut self, end: End) -> io::Result<(W, Written)> {
        self.flush()?;
        let end = End { events: self.written.events, ..end };
        self.finish_as(&end)
    }

    /// Ends the recording with what is known of its end; every event is written.
    pub(super) fn finish_as(mut self, end: &End) -> io::Result<(W, Written)> {
        self.json(Kind::End, end)?;
        self.to.flush()?;
        Ok((self.to, self.written))
    }

    fn json(&mut self, kind: Kind, value: &impl Serialize) -> io::Result<()> {
        self.record(kind as u8, &serde_json::to_vec(value)?)
    }

    pub(super) fn record(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let raw = u32::try_from(payload.len()).ok().filter(|&bytes| bytes <= MAX_PAYLOAD);
        let raw = raw.ok_or_else(|| {
            let what = format!("a record of {} bytes, expected at most {MAX_PAYLOAD}", payload.len());
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        let packed = self.compressor.compress(payload)?;
        // At once, so that a kill leaves whole records only.
        let mut record = Vec::with_capacity(HEADER + packed.len());
        record.push(kind);
        record.extend(raw.to_le_bytes());
        record.extend((packed.len() as u32).to_le_bytes());
        record.extend(packed);
        self.written.bytes += record.len() as u64;
        self.to.write_all(&record)
    }
}
