//! One verb, one file. Each parses its raw arguments (`clap`) into validated settings of the crate that does
//! the work, and prints the result.

pub mod actuator;
pub mod agent;
pub mod bench;
pub mod capture;
pub mod client;
pub mod demo;
pub mod dissect;
pub mod gaps;
pub mod generate;
pub mod host;
pub mod hunt;
pub mod isolate;
pub mod lab;
pub mod meter;
pub mod sockets;
pub mod tank;
pub mod target;

use crate::Outcome;
use crate::args::Verb;

/// Runs one verb to its end.
pub fn run(verb: Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::AgentActuator(args) => actuator::run(args),
        Verb::Agent(args) => agent::run(*args),
        Verb::Bench(args) => bench::run(args),
        Verb::Capture(args) => capture::run(*args),
        Verb::Client(args) => client::run(args),
        Verb::Demo(args) => demo::run(*args),
        Verb::Dissect(args) => dissect::run(*args),
        Verb::Meter(args) => meter::run(*args),
        Verb::Gaps(args) => gaps::run(args),
        Verb::Host(args) => host::run(*args),
        Verb::Hunt(args) => hunt::run(args),
        Verb::Isolate(args) => isolate::run(*args),
        Verb::Lab(args) => lab::run(*args),
        Verb::Sockets(args) => sockets::run(*args),
        Verb::Tank(args) => tank::run(*args),
        Verb::Target(args) => target::run(args),
        Verb::Completions(args) => generate::completions(args),
        Verb::Man(args) => generate::man(args),
    }
}
