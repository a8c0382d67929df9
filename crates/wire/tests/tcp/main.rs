//! TCP as a tap sees it: connections, streams in order, and what each segment is.

mod classification;
mod flows;
mod made;
mod mutations;
mod oracle;
mod streams;
