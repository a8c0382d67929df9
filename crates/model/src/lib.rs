//! The vocabulary of spangap: duration distributions, pairs of services, legs, evidence, the accounting of spans. Pure
//! values: nothing here opens a file or a socket, and nothing here reads a clock.

#![warn(missing_docs)]

pub mod accounting;
pub mod advice;
pub mod cause;
pub mod clock;
pub mod count;
pub mod cpus;
pub mod doing;
pub mod duration;
pub mod evidence;
pub mod histogram;
pub mod leg;
mod named;
pub mod pair;
pub mod shared;
pub mod taker;
pub mod wait;

pub use accounting::Accounting;
pub use cause::{Cause, Culprit, Side};
pub use clock::Clock;
pub use cpus::Cpus;
pub use doing::Doing;
pub use histogram::Histogram;
pub use leg::{Leg, Legs};
pub use pair::{CallStatus, KeptCall, PairKey, PairStats};
pub use taker::Taker;
pub use wait::{WaitClass, WaitReason};
