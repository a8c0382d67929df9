//! The store of recent spans: everything sent is found by its trace, across restarts and kills, within limits
//! in bytes and time, on full disks and with damaged files.

mod disk;
mod export;
mod sent;

use proptest::prelude::*;
use sent::{Sent, at, keep, names, open, settings};
use spangap_meter::spool::block::Coding;
use spangap_meter::spool::{Spool, SpoolError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Equivalence with a map, through all codings, restarts, kills and full segments.
    #[test]
    fn every_kept_span_is_found_by_its_trace(
        requests in prop::collection::vec(
            (prop::collection::vec(1u8..40, 1..30), 0usize..3, 0u8..12),
            1..60,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicU64::new(1_700_000_000_000));
        let mut spool = open(folder.path(), 64 << 20, &now);
        let mut model: BTreeMap<u8, Vec<String>> = BTreeMap::new();
        for (number, (traces, coding, then)) in requests.iter().enumerate() {
            let sent = Sent::new(number, traces);
            for (trace, name) in traces.iter().zip(&sent.names) {
                model.entry(*trace).or_default().push(name.clone());
            }
            keep(&spool, &sent, [Coding::Plain, Coding::Gzip, Coding::Zstd][*coding], now.load(Relaxed));
            match then {
                0 => {
                    spool.stop();
                    drop(spool);
                    spool = open(folder.path(), 64 << 20, &now);
                }
                // Killed: only what is on disk remains.
                1 => {
                    spool.flush();
                    let left = tempfile::tempdir().unwrap();
                    disk::copy(folder.path(), left.path());
                    spool.stop();
                    drop(spool);
                    disk::clear(folder.path());
                    disk::copy(left.path(), folder.path());
                    spool = open(folder.path(), 64 << 20, &now);
                }
                // A segment covers a thirtieth of the retention.
                2 => _ = now.fetch_add(61_000, Relaxed),
                _ => {}
            }
        }
        spool.flush();
        let spans: u64 = requests.iter().map(|(traces, ..)| traces.len() as u64).sum();
        prop_assert_eq!(spool.figures().spans, spans);
        for trace in 0..41u8 {
            let kept = spool.find(&[trace; 16]);
            prop_assert_eq!(&kept.incomplete, &Vec::<String>::new());
            let mut expected = model.get(&trace).cloned().unwrap_or_default();
            let mut found = names(&kept);
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected, "trace {}", trace);
        }
    }
}

#[test]
fn only_spans_beyond_the_retention_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(at(0)));
    let spool = open(folder.path(), 64 << 20, &now);
    for minute in 0..60u64 {
        now.store(at(minute), Relaxed);
        keep(&spool, &Sent::new(minute as usize, &[minute as u8 + 1]), Coding::Plain, at(minute));
        spool.flush();
    }
    let found: Vec<u8> = (0..60).filter(|minute| !names(&spool.find(&[minute + 1; 16])).is_empty()).collect();
    // Segments are dropped as a whole: everything up to half an hour old is still there, and some slightly
    // older spans.
    let least = (29..60).collect::<Vec<u8>>();
    assert!(found.ends_with(&least) && found.len() <= least.len() + 2, "{found:?}");
    let figures = spool.figures();
    assert_eq!((figures.spans, figures.forgotten_spans), (found.len() as u64, 60 - found.len() as u64));
    assert_eq!(figures.from_unix_ms, Some(at(60 - found.len() as u64)));
}

#[test]
fn the_byte_limit_holds_and_the_oldest_are_dropped_first() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(at(0)));
    let limit = 3 << 20;
    let spool = open(folder.path(), limit, &now);
    let mut seed = 7;
    for number in 0..600usize {
        keep(
            &spool,
            &Sent::incompressible(number, &[(number % 200) as u8 + 1; 20], &mut seed),
            Coding::Plain,
            at(0),
        );
        if number % 20 == 0 {
            spool.flush();
            assert!(disk::bytes(folder.path()) <= limit, "{} bytes", disk::bytes(folder.path()));
        }
    }
    spool.flush();
    let figures = spool.figures();
    let on_disk = disk::bytes(folder.path());
    assert!(figures.bytes <= limit && on_disk <= figures.bytes, "{on_disk} bytes on disk, {figures:?}");
    assert!(figures.bytes > limit / 2, "{figures:?}");
    assert_eq!(figures.spans + figures.forgotten_spans, 600 * 20, "{figures:?}");
    assert!(names(&spool.find(&[200; 16])).contains(&"599-0".into()), "the last one is there");
    assert!(!names(&spool.find(&[1; 16])).contains(&"0-0".into()), "the first one is not");
}

#[test]
fn a_request_above_the_limit_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), 1 << 20, &Arc::new(AtomicU64::new(at(0))));
    let mut seed = 3;
    let sent = Sent::incompressible(0, &[1; 800], &mut seed);
    assert!(sent.bytes.len() > 1 << 20);
    keep(&spool, &sent, Coding::Plain, at(0));
    keep(&spool, &Sent::new(1, &[2]), Coding::Plain, at(0));
    spool.flush();
    let figures = spool.figures();
    assert_eq!((figures.spans, figures.not_kept_large), (1, 800), "{figures:?}");
}

#[test]
fn a_full_queue_is_counted_and_never_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        spangap_meter::spool::SpoolSettings { queue_bytes: 10, ..settings(folder.path(), 1 << 20) };
    let spool = Spool::open(settings, || at(0)).unwrap();
    keep(&spool, &Sent::new(0, &[1, 2, 3]), Coding::Plain, at(0));
    spool.flush();
    let figures = spool.figures();
    assert_eq!((figures.spans, figures.not_kept_queue, figures.queued_bytes), (0, 3, 0));
}

#[test]
fn a_folder_admits_one_meter() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(at(0)));
    let first = open(folder.path(), 1 << 20, &now);
    let second = Spool::open(settings(folder.path(), 1 << 20), || at(0));
    assert!(matches!(second, Err(SpoolError::InUse { .. })), "{second:?}");
    drop(first);
    open(folder.path(), 1 << 20, &now);
}
