//! Notices to whoever runs the meter.

/// Says something beside the output. That nobody may be reading is no reason to stop.
pub(crate) fn tell(what: &dyn std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "spangap: {what}");
}
