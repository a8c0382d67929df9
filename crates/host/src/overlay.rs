//! A recording laid over a leg of a call: what the thread that had it in hand did.
