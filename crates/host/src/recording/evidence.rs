//! A recording as evidence. What it shows of a call stands with the call's legs; by itself it says what it covers.

use super::{Recording, RecordingError};
use crate::event::What;
use spangap_model::evidence::{Coverage, Instrument, Interval, Testimony};
use std::io::{Read, Seek};

/// What a recording covers, and what it lacks, in sentences that name the file. One whose recorder was killed is read
/// through, because it does not say how much it contains.
///
/// # Errors
/// That reading failed.
pub fn evidence<R: Read + Seek>(recording: &mut Recording<R>) -> Result<Testimony, RecordingError> {
    let began_ns = recording.meta().began_ns;
    let (mut events, mut lost, mut ended_ns) = (0_u64, 0_u64, began_ns);
    let mut damage = None;
    match recording.end() {
        Some(end) => (events, lost, ended_ns) = (end.events, end.lost, end.ended_ns),
        None => {
            let read = recording.read(&mut |event| {
                events += 1;
                ended_ns = ended_ns.max(event.time_ns);
                if let What::Lost { count, .. } = event.what {
                    lost = count.saturating_add(lost);
                }
            });
            match read {
                Ok(()) => {}
                Err(error @ RecordingError::Io { .. }) => return Err(error),
                // What comes before it counts.
                Err(error) => damage = Some(error),
            }
        }
    }
    let source = recording.path().to_owned();
    let unix_ns = |mono_ns| Some(recording.unix_ns(mono_ns)?.0);
    let when = unix_ns(began_ns).zip(unix_ns(ended_ns));
    let lacks = recording.meta().lacks.iter();
    let mut cannot: Vec<String> =
        lacks.map(|lack| format!("{source}: {}.", lack.trim_end_matches('.'))).collect();
    if lost > 0 {
        let what = if lost == 1 { "1 event was" } else { &format!("{lost} events were") };
        cannot.push(format!("{source}: {what} lost while recording; what they would have shown is unknown."));
    }
    cannot.extend(recording.cut().map(|cut| format!("{cut}.")));
    cannot.extend(damage.map(|damage| format!("{damage}.")));
    let coverage = Coverage {
        instrument: Instrument::HostRecording,
        source,
        side: None,
        when: when.map(|(from_unix_ns, to_unix_ns)| Interval { from_unix_ns, to_unix_ns }),
        seen: events,
        lost,
        cannot,
    };
    Ok(Testimony::new(coverage, Vec::new()))
}
