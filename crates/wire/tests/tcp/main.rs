//! TCP as seen at a tap: connections, streams in order, and the kind of each segment.

mod classification;
mod flows;
mod made;
mod mutations;
mod oracle;
mod streams;
