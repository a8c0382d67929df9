//! Any bytes as a journal of `lab`: no panic; what was read is the same after being written and read again;
//! everything in it belongs to the run that the journal is named after; and a truncated journal lists the
//! same things except the last.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spangap_lab::undo::journal::Journal;
use std::path::Path;

const ID: &str = "0123456789";

fuzz_target!(|bytes: &[u8]| {
    let path = format!("/run/{ID}.journal");
    let path = Path::new(&path);
    let journal = match Journal::parse(path, bytes) {
        Ok(journal) => journal,
        Err(error) => return assert!(error.to_string().contains(".journal, line "), "{error}"),
    };
    assert_eq!(Journal::parse(path, journal.text().as_bytes()).ok().as_ref(), Some(&journal));
    assert!(journal.made.iter().all(|made| made.to_string().contains(ID)));
    for cut in 0..bytes.len() {
        let shorter = Journal::parse(path, &bytes[..cut]).expect("what is before it is whole");
        assert!(journal.made.starts_with(&shorter.made));
    }
});
