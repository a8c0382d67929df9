//! The halves of calls from two captures put together.
