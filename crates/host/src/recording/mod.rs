//! The file of `host record`: events with names and the relation of the clocks, compact, read as a stream.
