//! Any bytes as a journal of `isolate`, and as a plan: no panic; what was read is the same after being
//! written and read again; and undoing it on a machine without files changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_isolate::journal::Journal;
use spangap_isolate::kernel::{Kernel, PlaceError, Written};
use spangap_isolate::place::Place;
use spangap_isolate::plan::Plan;
use spangap_isolate::rollback::{rollback, standing};
use spangap_machine::{Host, Kept};
use std::path::Path;

/// A machine without any files.
struct Nothing;

impl Kernel for Nothing {
    fn files(&self) -> Host {
        Host::kept(Kept::default())
    }

    fn get(&self, _: &Place) -> Result<Option<String>, PlaceError> {
        Ok(None)
    }

    fn set(&self, place: &Place, text: &str) -> Result<Written, PlaceError> {
        panic!("{text:?} was written to {place}, which is not there");
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(plan) = serde_json::from_slice::<Plan>(bytes) {
        let again = serde_json::to_vec(&plan).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<Plan>(&again).ok(), Some(plan));
    }
    let Ok(journal) = Journal::parse(Path::new("fuzz"), bytes) else { return };
    let mut text = serde_json::to_string(&journal.head).expect("what was read can be written") + "\n";
    for record in &journal.records {
        text += &serde_json::to_string(record).expect("what was read can be written");
        text.push('\n');
    }
    assert_eq!(Journal::parse(Path::new("fuzz"), text.as_bytes()).ok().as_ref(), Some(&journal));
    let _ = (journal.applied(), journal.confirmed(), journal.rolled_back(), journal.guard(), journal.undoing());
    assert!(standing(&Nothing, &journal).len() <= journal.entries().count());
    let undone = rollback(&Nothing, &journal, true, &mut |_| {});
    assert!(undone.restored.is_empty());
});
