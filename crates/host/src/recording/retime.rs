//! A recording by other clocks: what it would be if the host's clocks were set off, and went faster or slower.
//!
//! A clock that is adjusted takes CLOCK_MONOTONIC along, so that a skew changes the times of events, too; an offset is
//! only in the relation of the clocks.

use super::code::{Decoder, Encoder};
use super::{End, Kind, Meta, Reading, Recording, RecordingError, Writer, Written};
use crate::event::{Event, What, Woken};
use serde::de::DeserializeOwned;
use spangap_model::Clock;
use spangap_model::clock::gained;
use std::io::{self, Read, Seek, Write};

/// It cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RetimeError {
    /// The recording cannot be read, or is not whole.
    #[error(transparent)]
    Read(#[from] RecordingError),
    /// It does not tell what its times are by the wall clock, or by a clock that has been set meanwhile.
    #[error(
        "{path}: the time was set {steps} times while it was recorded, expected one relation of its clocks"
    )]
    Steps {
        /// Which file.
        path: String,
        /// How often.
        steps: usize,
    },
    /// Writing failed.
    #[error("cannot write the recording by another clock: {0}")]
    Write(io::Error),
}

/// Both clocks of the host.
struct Clocks {
    real: Clock,
    /// Where CLOCK_MONOTONIC was when the real one began to go differently.
    since_mono_ns: u64,
}

impl<R: Read + Seek> Recording<R> {
    /// Writes it as the host would have recorded it whose wall clock is `clock`, record by record.
    ///
    /// # Errors
    /// [`RetimeError`], also where reading would stop with less: a recording that is changed is one that is whole.
    pub fn retime<W: Write>(&mut self, clock: &Clock, to: W) -> Result<(W, Written), RetimeError> {
        if let Some(cut) = self.cut() {
            return Err(cut.into());
        }
        let since = self.mono_ns(clock.since_unix_ns).filter(|_| self.relation().steps() == 0);
        let Some((since_mono_ns, _)) = since else {
            return Err(RetimeError::Steps { path: self.path().into(), steps: self.relation().steps() });
        };
        let clocks = Clocks { real: *clock, since_mono_ns };
        let meta = Meta { began_ns: clocks.mono(self.meta().began_ns), ..self.meta().clone() };
        let mut writer = Writer::new(to, &meta).map_err(RetimeError::Write)?;
        let (mut written, mut end, mut events) = (Ok(()), None, 0);
        let path = self.path().to_owned();
        let damaged = |offset, found: String, expected| RecordingError::Damaged {
            path: path.clone(),
            offset,
            found,
            expected,
        };
        let json =
            |offset, error: serde_json::Error| damaged(offset, error.to_string(), "JSON of a known shape");
        self.records(|kind, offset, payload| {
            let done = match kind {
                kind if kind == Kind::Events as u8 => {
                    let mut encoder = Encoder::default();
                    for event in Decoder::new(payload) {
                        let event = event.map_err(|wrong| {
                            let found = format!("something else at byte {} of its events", wrong.at);
                            damaged(offset, found, wrong.expected)
                        })?;
                        encoder.push(&clocks.event(&event));
                    }
                    events += encoder.events();
                    writer.record(kind, &encoder.take())
                }
                kind if kind == Kind::Clocks as u8 => {
                    let reading = parse(payload).map_err(|error| json(offset, error))?;
                    writer.clocks(&clocks.reading(reading))
                }
                kind if kind == Kind::End as u8 => {
                    end = Some(parse::<End>(payload).map_err(|error| json(offset, error))?);
                    Ok(())
                }
                kind => writer.record(kind, payload),
            };
            if written.is_ok() {
                written = done;
            }
            Ok(())
        })?;
        written.map_err(RetimeError::Write)?;
        let end = end.ok_or_else(|| damaged(self.bytes(), "no end".into(), "how the recording ended"))?;
        let end = End { ended_ns: clocks.mono(end.ended_ns), events, ..end };
        writer.finish_as(&end).map_err(RetimeError::Write)
    }
}

fn parse<T: DeserializeOwned>(payload: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(payload)
}

impl Clocks {
    /// A moment of CLOCK_MONOTONIC by the clock that is put in its place.
    fn mono(&self, ns: u64) -> u64 {
        let since = ns.wrapping_sub(self.since_mono_ns).cast_signed();
        ns.wrapping_add_signed(gained(since, self.real.skew_ppm))
    }

    fn reading(&self, reading: Reading) -> Reading {
        let offset_ns = self.real.offset_ns;
        Reading {
            mono_ns: self.mono(reading.mono_ns),
            low_ns: reading.low_ns.saturating_add(offset_ns),
            high_ns: reading.high_ns.saturating_add(offset_ns),
            ..reading
        }
    }

    fn event(&self, event: &Event) -> Event {
        let (before, time_ns) = (event.time_ns, self.mono(event.time_ns));
        // By its two ends, so that what touched before does so afterwards.
        let lasted = |ns: u64| time_ns.wrapping_sub(self.mono(before.wrapping_sub(ns)));
        let what = match event.what {
            What::Switch { prev, left, next, waited_ns, throttled } => {
                What::Switch { prev, left, next, waited_ns: lasted(waited_ns), throttled }
            }
            What::Softirq { vector, device, packets, own, began_ns } => {
                What::Softirq { vector, device, packets, own, began_ns: self.mono(began_ns) }
            }
            What::Hardirq { irq, began_ns } => What::Hardirq { irq, began_ns: self.mono(began_ns) },
            What::Lost { count, since_ns } => What::Lost { count, since_ns: self.mono(since_ns) },
            What::Steal { ns, since_ns } => What::Steal { ns: lasted(ns), since_ns: self.mono(since_ns) },
            What::Woken(woken) => What::Woken(Woken { since_ns: self.mono(woken.since_ns), ..woken }),
            what @ (What::Arrived(_) | What::Read { .. } | What::Wrote { .. }) => what,
        };
        Event { time_ns, what, ..*event }
    }
}
