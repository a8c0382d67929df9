//! The recorder on every host: rings in memory, slices of them when the meter asks.
