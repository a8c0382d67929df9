//! Packets in, calls with legs out: reads captures from one or both ends of the same traffic, follows the TCP
//! connections and the calls on them, aligns both ends, and reports which leg of a call took the time, and why.
//!
//! Only `source/` touches files, sockets or clocks: all times come from the packets.

#![warn(missing_docs)]

pub mod align;
pub mod app;
pub mod call;
pub mod causes;
pub mod clock_set;
pub mod decode;
pub mod dissect;
pub mod episode;
pub mod exchange;
mod findings;
pub mod hops;
pub mod hosts;
pub mod join;
pub mod ladder;
mod legs;
pub mod mask;
mod names;
pub mod packet;
pub mod report;
pub mod segment;
pub mod source;
pub mod spans;
pub mod tap;
pub mod tcp;
pub mod totals;
