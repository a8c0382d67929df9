//! `make bench-dissect`: makes captures whose truth is known, and measures dissect on them.

fn main() {}
