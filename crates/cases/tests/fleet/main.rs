//! Agents and cases over real connections: a meter as it is served, and agents that replay recordings, lie, or break off.

mod agent;
mod attacks;
mod experiments;
mod lies;
mod many;
mod many_slow;
mod meter;
mod path;
mod strangers;
