//! Agents and cases over real connections: a served meter, and agents that replay recordings, lie, or
//! disconnect.

mod agent;
mod attacks;
mod experiments;
mod lies;
mod many;
mod many_slow;
mod meter;
mod parts;
mod path;
mod strangers;
