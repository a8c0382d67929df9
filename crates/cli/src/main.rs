//! spangap.
fn main() {}
