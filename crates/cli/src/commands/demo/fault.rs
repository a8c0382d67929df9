//! Faults of the demonstration: how calls are made, what begins while they are, and its truth.

use clap::ValueEnum;
use spangap_model::{Cause, Culprit, Leg, Side};

/// What is made to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// The client has no TCP_NODELAY, and the server's host begins to delay its ACKs
    Nagle,
    /// Packets of another network are handled on the CPU of the server
    Softirq,
    /// All calls of the client share a connection, and their number grows
    SharedConnection,
    /// The server's process is stopped, a tenth of a second at a time
    Stopped,
    /// The client's process is stopped, a tenth of a second at a time
    StoppedClient,
    /// A neighbour of higher priority takes the server's CPU in bursts
    RunQueue,
    /// A neighbour of higher priority takes the client's CPU in bursts
    RunQueueClient,
    /// A program in the server's control group uses up its CPU quota
    CpuQuota,
    /// Some requests need more work
    ServerApp,
    /// A batch job takes all workers of the server
    ServerQueue,
    /// The path takes longer by random amounts
    NetworkJitter,
    /// Ends of responses are lost, and retransmitted after a timeout
    Rto,
    /// Parts of large responses are lost
    FastRetransmit,
}

/// What connects the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A cable, as fast as the machine.
    Cable,
    /// A line with these flags in both directions, which can be replaced by another one.
    Line(&'static [&'static str]),
}

/// On which CPUs both ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// Wherever the kernel puts them.
    Any,
    /// Each on one of its own.
    Apart,
    /// Both on the server's, so that there is another one.
    Together,
}

/// How calls are made, before the fault and with it.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Number of tanks, each with a connection of its own.
    pub tanks: usize,
    /// When each calls, as a tank is told.
    pub load: &'static [&'static str],
    /// What else they are told.
    pub tank: &'static [&'static str],
    /// What the target is told.
    pub target: &'static [&'static str],
    /// What connects them.
    pub link: Link,
    /// Where they run.
    pub cpus: Cpus,
    /// They are in the class SCHED_FIFO: whatever else this machine does, it does not hold them up.
    pub real_time: bool,
}

/// Four connections, for an experiment with half of them. A pool would move calls from slow connections to fast ones, and none
/// could be compared.
const SCENE: Scene = Scene {
    tanks: 4,
    load: TEN_A_SECOND,
    tank: &[],
    target: &["--think", "1ms"],
    link: Link::Cable,
    cpus: Cpus::Any,
    real_time: true,
};

/// A response is under way for most of the time, so that a client that does not run is missed.
const BUSY_CLIENT: Scene = Scene { tanks: 1, load: &["--rate", "40"], target: &["--think", "20ms"], ..SCENE };
const TEN_A_SECOND: &[&str] = &["--rate", "10"];
/// With calls at fixed times the next one brings back what this one has lost.
const ONE_BY_ONE: &[&str] = &["--inflight", "1"];
/// 5 ms each way.
const LONG_LINE: Link = Link::Line(&["--delay-a", "5000000", "--delay-b", "5000000"]);

impl Scene {
    /// Who calls, in words.
    pub fn words(&self) -> String {
        let calls = match self.load {
            load if load == ONE_BY_ONE => "one call after the other".to_owned(),
            load => format!("{} times a second", load.last().copied().unwrap_or("some")),
        };
        match self.tanks {
            1 => format!(
                "A client (`spangap tank`) calls a server (`spangap target`), {calls}, over one connection"
            ),
            tanks => format!(
                "{tanks} clients (`spangap tank`) call a server (`spangap target`), {calls} each, each over its own \
                 connection"
            ),
        }
    }
}

impl Fault {
    /// What is to blame.
    pub fn truth(self) -> Culprit {
        match self {
            Fault::Nagle => Culprit::at(Cause::NagleDelayedAck, Side::Client),
            Fault::Softirq => Culprit::at(Cause::SoftirqOnCpu, Side::Server),
            Fault::SharedConnection => Culprit::at(Cause::SharedConnection, Side::Client),
            Fault::Stopped => Culprit::at(Cause::Stopped, Side::Server),
            Fault::StoppedClient => Culprit::at(Cause::Stopped, Side::Client),
            Fault::RunQueue => Culprit::at(Cause::RunQueue, Side::Server),
            Fault::RunQueueClient => Culprit::at(Cause::RunQueue, Side::Client),
            Fault::CpuQuota => Culprit::at(Cause::CpuQuota, Side::Server),
            Fault::ServerApp => Culprit::at(Cause::ServerApp, Side::Server),
            Fault::ServerQueue => Culprit::at(Cause::ServerQueue, Side::Server),
            Fault::NetworkJitter => Culprit::of(Cause::NetworkJitter),
            Fault::Rto => Culprit::of(Cause::Rto),
            Fault::FastRetransmit => Culprit::of(Cause::FastRetransmit),
        }
    }

    /// Where it is, as far as a verdict without a culprit can be right about it.
    pub fn place(self) -> Option<&'static str> {
        match self {
            Fault::SharedConnection => Some(Leg::ClientAppIn.name()),
            // The target waits for a timer, and no thread is seen to work.
            Fault::ServerApp => Some(Leg::ServerApp.name()),
            _ => None,
        }
    }

    /// What happens, in words.
    pub fn words(self) -> &'static str {
        match self {
            Fault::Nagle => {
                "the server's host now delays its ACKs, and the client's sockets lack TCP_NODELAY: the second part \
                 of each request waits for the ACK of the first"
            }
            Fault::Softirq => {
                "700 packets arrive over a second network every 50 ms, in every other half second, and steering \
                 (RPS) puts them on the server's CPU: some 20 ms of work at once"
            }
            Fault::SharedConnection => {
                "the client keeps eight calls in flight over one connection, and spends 8 ms on each response, one \
                 after the other"
            }
            Fault::Stopped => "the server's process is stopped for 100 ms, twice a second",
            Fault::StoppedClient => "the client's process is stopped for 100 ms, twice a second",
            Fault::RunQueue => "a real-time neighbour spins on the server's CPU for 100 ms, twice a second",
            Fault::RunQueueClient => {
                "a real-time neighbour spins on the client's CPU for 100 ms, twice a second"
            }
            Fault::CpuQuota => {
                "a program in the server's control group spins for 200 ms, twice a second; the group has a quota of 20 ms in \
                 100 ms"
            }
            Fault::ServerApp => "20 requests a second take the server 60 ms instead of 1 ms",
            Fault::ServerQueue => {
                "a batch job keeps eight calls of 40 ms in flight, and the server handles two at a time"
            }
            Fault::NetworkJitter => "each packet takes up to 20 ms longer, in each direction",
            Fault::Rto => {
                "every 20th response is lost, and the server retransmits it after a timeout of 200 ms"
            }
            Fault::FastRetransmit => {
                "one in 100 full-size packets from the server is lost; responses have 40 kB"
            }
        }
    }

    /// How calls are made.
    pub fn scene(self) -> Scene {
        match self {
            Fault::Nagle => Scene { tank: &["--nodelay", "off"], target: &["--nodelay", "on"], ..SCENE },
            Fault::Softirq => Scene { cpus: Cpus::Together, target: &[], ..SCENE },
            Fault::SharedConnection => {
                Scene { tanks: 1, load: &["--rate", "20"], target: &["--response-bytes", "1000"], ..SCENE }
            }
            Fault::Stopped | Fault::ServerApp => SCENE,
            Fault::StoppedClient => BUSY_CLIENT,
            Fault::RunQueue => Scene { cpus: Cpus::Apart, ..SCENE },
            Fault::RunQueueClient => Scene { cpus: Cpus::Apart, ..BUSY_CLIENT },
            // A quota does not hold for the class SCHED_FIFO.
            Fault::CpuQuota => Scene { cpus: Cpus::Apart, real_time: false, ..SCENE },
            Fault::ServerQueue => Scene { target: &["--think", "1ms", "--workers", "2"], ..SCENE },
            Fault::NetworkJitter => Scene { link: Link::Line(&[]), ..SCENE },
            Fault::Rto => {
                let tank = &["--response-bytes", "300"];
                Scene { link: LONG_LINE, tanks: 1, load: ONE_BY_ONE, tank, ..SCENE }
            }
            Fault::FastRetransmit => {
                let tank = &["--response-bytes", "40000"];
                Scene { link: LONG_LINE, tanks: 1, load: ONE_BY_ONE, tank, ..SCENE }
            }
        }
    }
}
