use super::*;

fn started(settings: &Settings) -> Option<Intervals> {
    match Intervals::start(settings) {
        Ok(intervals) => Some(intervals),
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::NoBtf { .. } | ProbeError::Lacks { .. })) => {
            eprintln!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn stream_delivers_switches_in_order() {
    let Some(mut intervals) = started(&Settings::default()) else { return };
    let (mut last, mut switches) = (0, 0u64);
    let deadline = Instant::now() + Duration::from_secs(20);
    while switches < 1000 && Instant::now() < deadline {
        intervals
            .poll(Duration::from_millis(20), &mut |event| {
                assert!(event.time_ns >= last);
                last = event.time_ns;
                switches += u64::from(matches!(event.what, What::Switch { .. }));
            })
            .unwrap();
    }
    eprintln!("{:?} {:?}", intervals.counts(), intervals.lacks());
    let ended = intervals.stop(&mut |_| ()).unwrap();
    assert_eq!(ended.counts.late, 0);
    assert!(switches >= 1000);
}
