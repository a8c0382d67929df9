//! The stream written to a file and read back, also if the recording is cut off.

use spangap_host::event::{Event, What};
use spangap_host::kernel::ProbeError;
use spangap_host::probes::intervals::{Settings, monotonic_ns};
use spangap_host::recording::{Meta, RecordError, Recorder, Recording};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// A recording that has completed its first second and has some events; `None` where it is unavailable.
fn begun(path: &Path) -> Option<Recorder<File>> {
    let meta = Meta { host: "here".into(), command: vec!["test".into()], ..Meta::default() };
    let settings = Settings { tgids: vec![std::process::id()], ..Settings::default() };
    let mut recorder = match Recorder::start(&settings, File::create(path).unwrap(), meta) {
        Ok(recorder) => recorder,
        Err(RecordError::Probe(
            error @ (ProbeError::NotRoot { .. } | ProbeError::NoBtf { .. } | ProbeError::Lacks { .. }),
        )) => {
            eprintln!("not run: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let begin = recorder.bytes();
    let deadline = Instant::now() + Duration::from_secs(120);
    // Events are written to the file once a second.
    while recorder.bytes() == begin {
        assert!(Instant::now() < deadline, "nothing was written");
        recorder.poll(Duration::from_millis(50)).unwrap();
    }
    Some(recorder)
}

fn events(recording: &mut Recording) -> Vec<Event> {
    let mut events = Vec::new();
    recording.read(&mut |event| events.push(*event)).unwrap();
    events
}

fn unix_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

#[test]
fn the_file_contains_the_recorded_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it.rec");
    let before = unix_ns();
    let Some(recorder) = begun(&path) else { return };
    let (_, recorded) = recorder.finish().unwrap();
    let after = unix_ns();
    let mut recording = Recording::open(&path).unwrap();
    assert!(recording.cut().is_none());
    let meta = recording.meta().clone();
    assert_eq!((meta.host.as_str(), meta.pids.as_slice()), ("here", &[std::process::id()][..]));
    assert_eq!(meta.began_ns, recorded.began_ns);
    let end = *recording.end().unwrap();
    assert_eq!(
        (end.ended_ns, end.events, end.lost),
        (recorded.ended_ns, recorded.counts.events, recorded.counts.lost)
    );
    let events = events(&mut recording);
    assert_eq!(events.len() as u64, recorded.counts.events);
    assert_eq!(recording.bytes(), recorded.written.bytes);
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    // Every thread that ran has a name.
    for event in &events {
        if let What::Switch { next, .. } = event.what
            && next != 0
        {
            assert!(recording.names().task(next).is_some_and(|task| !task.comm.is_empty()), "{event:?}");
        }
    }
    // Nobody sets the clock of a machine that runs tests; if somebody does, the relation has the step.
    if recording.relation().steps() == 0 {
        let (began, bound) = recording.unix_ns(meta.began_ns).unwrap();
        let (ended, _) = recording.unix_ns(end.ended_ns).unwrap();
        let bound = bound as i64;
        assert!(before - bound <= began && began < ended && ended <= after + bound);
        let (back, bound) = recording.mono_ns(began).unwrap();
        assert!(back.abs_diff(meta.began_ns) <= bound + 1);
    }
}

#[test]
fn an_unfinished_recording_is_read_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it.rec");
    let Some(recorder) = begun(&path) else { return };
    // As a kill would.
    drop(recorder);
    let now = monotonic_ns();
    let mut recording = Recording::open(&path).unwrap();
    let cut = recording.cut().expect("it has no end").to_string();
    assert!(cut.contains("the recorder was killed"), "{cut}");
    assert_eq!(recording.end(), None);
    let events = events(&mut recording);
    assert!(!events.is_empty());
    assert!(events.iter().all(|event| (recording.meta().began_ns..now).contains(&event.time_ns)));
}
