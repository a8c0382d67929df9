//! Explanation and remedy of every cause: the only such table, for every instrument, page and verdict.

use crate::{Cause, Leg, Legs, Side};

/// Explanation and remedy of a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What a call did, after "2 of the 10 slowest calls": `waited for a delayed ACK`.
    pub did: &'static str,
    /// What happens, as a sentence.
    pub meaning: &'static str,
    /// What would fix or confirm it, as a sentence.
    pub next: &'static str,
}

const LOST: &str = "Find where packets are lost: drop counters of NICs, qdiscs and switches on the path. Captures \
at both ends tell that apart from a drop inside the receiving host.";

/// Advice on a cause at a side.
pub fn about(cause: Cause, side: Option<Side>) -> Advice {
    let server = side == Some(Side::Server);
    let (did, meaning, next) = match cause {
        Cause::NagleDelayedAck => (
            "waited for a delayed ACK",
            "the sender wrote a message in pieces; Nagle's algorithm kept the last piece until the piece before it was \
             acknowledged, and the receiver delayed that ACK",
            if server {
                "Set TCP_NODELAY on the server's sockets, or hand each response to the kernel in one write."
            } else {
                "Set TCP_NODELAY on the client's sockets, or hand each request to the kernel in one write."
            },
        ),
        Cause::Rto => (
            "waited for a retransmission timer",
            "a segment was lost and nothing that came back told the sender so; it waited for its timer (at least \
             200 ms on Linux)",
            LOST,
        ),
        Cause::TailLoss => (
            "waited for a tail loss probe",
            "the last segment of a message, or its ACK, was lost; a probe after about two round trips recovered it",
            LOST,
        ),
        Cause::FastRetransmit => (
            "waited for a fast retransmission",
            "a segment was lost; ACKs of later segments told the sender, which retransmitted it about a round trip \
             later",
            LOST,
        ),
        Cause::ReceiverDrop => (
            "waited for bytes that the receiving host dropped",
            "both captures have the first copy, yet the receiver's TCP never got it: between that tap and TCP, a \
             filter, conntrack, a bad checksum, or a full backlog or socket buffer dropped it, and it was \
             retransmitted",
            if server {
                "On the server's host compare the counters of `nft list ruleset` or `iptables -vnL`, `conntrack -S`, and \
                 TCPBacklogDrop, TCPRcvQDrop, PruneCalled and InCsumErrors of `nstat -az`; `perf trace -e skb:kfree_skb` \
                 names the place."
            } else {
                "On the client's host compare the counters of `nft list ruleset` or `iptables -vnL`, `conntrack -S`, and \
                 TCPBacklogDrop, TCPRcvQDrop, PruneCalled and InCsumErrors of `nstat -az`; `perf trace -e skb:kfree_skb` \
                 names the place."
            },
        ),
        Cause::SynLoss => (
            "waited for a connection whose SYN was retransmitted",
            "a SYN or SYN/ACK did not arrive or was not answered; it is retransmitted after 1 s, then 2 s, 4 s",
            "Look at ListenOverflows and ListenDrops of the server (`nstat -az`), at firewalls, and at conntrack \
             tables.",
        ),
        Cause::AcceptOverflow => (
            "waited for a full accept queue",
            "the server's kernel had no room for another connection, so the client tried the handshake again",
            "Raise the listen backlog and net.core.somaxconn, and find out why the server accepts late.",
        ),
        Cause::ReceiveWindow => (
            "waited for a TCP receive window",
            "the receiver's buffer was full, because its application did not read",
            if server {
                "Find what keeps the server's application from reading (CPU, locks, its own backpressure); a larger \
                 buffer only helps against bursts."
            } else {
                "Find what keeps the client's application from reading (CPU, locks, its own backpressure); a larger \
                 buffer only helps against bursts."
            },
        ),
        Cause::StreamLimit => (
            "waited for a free HTTP/2 stream",
            "the connection already had as many calls in flight as the server allows \
             (SETTINGS_MAX_CONCURRENT_STREAMS), so the client held the next one back",
            "Open more connections, or raise the server's limit.",
        ),
        Cause::FlowControl => (
            "waited for an HTTP/2 flow-control window",
            "the sender had used up the window of the stream or the connection and waited for WINDOW_UPDATE",
            "Raise the receiver's initial window sizes (65,535 bytes by default), or find out why its application \
             reads late.",
        ),
        Cause::HeadOfLine => (
            "waited behind another call's bytes",
            "bytes of another message on the same connection went first",
            "Put large messages on a connection of their own.",
        ),
        Cause::SharedConnection => (
            "waited for its turn on a shared connection",
            "the client had calls to send and left the connection idle: its stack handles the calls of one \
             connection in batches",
            "Use several connections (if you use several channels, check that they do not share one), then compare: \
             `spangap tank` makes both runs.",
        ),
        Cause::ConnectionPerCall => (
            "opened a connection first",
            "the handshake, and TLS on top of it, came before the request",
            "Keep connections open and reuse them.",
        ),
        Cause::ServerApp => (
            "spent the time in the server's application",
            "the server's span carries the time",
            "Look inside the server's span: the time is not between client and server.",
        ),
        Cause::ServerHostOrApp => (
            "spent the time at the server's end, in its host or its application",
            "the request was complete at the server's tap, and the first byte of the response left it this much \
             later",
            "The server's spans (`--spans`) tell its application from its host; a recording of the host (`--host`) \
             shows what its threads did.",
        ),
        Cause::ServerQueue => (
            "waited in the server before its application took it",
            "the request was complete at the server's tap long before the server's span began",
            "Look at the server's thread pool and queues, and at the run queue of its host.",
        ),
        Cause::ClientApp => (
            "spent the time in the client's application",
            "the request left late, or the response was read late, with nothing to wait for on the wire",
            "Look at the client's threads, event loop and garbage collector, and at the run queue of its host.",
        ),
        Cause::RunQueue => (
            "waited for a CPU",
            "a thread could have run and did not get a CPU",
            "`spangap host thieves --pid` names who had the CPU; give the service its own CPUs, or the others less \
             weight.",
        ),
        Cause::CpuQuota => (
            "waited for its CPU quota",
            "the cgroup had used up its quota of the period",
            "Compare nr_throttled in cpu.stat; raise or remove the quota.",
        ),
        Cause::SoftirqOnCpu => (
            "lost its CPU to softirqs",
            "the kernel handled packets on the CPU the application needed",
            "Keep interrupts and the application on different CPUs; `spangap host stacks` shows what they did there.",
        ),
        Cause::SoftirqLate => (
            "was delivered late by the kernel",
            "the softirq that hands packets to the application ran late",
            "Compare time_squeeze in /proc/net/softnet_stat and ksoftirqd's waits.",
        ),
        Cause::Coalescing => (
            "waited for an interrupt",
            "the NIC collects packets before it raises an interrupt",
            "Compare `ethtool -c`; lower rx-usecs.",
        ),
        Cause::BatchedArrival => (
            "arrived in a batch",
            "packets sent apart arrived together: the NIC collected them, a softirq ran late, or a queue on the \
             path released them at once; packets alone do not tell which",
            "Compare rx-usecs (`ethtool -c`), time_squeeze in /proc/net/softnet_stat, and queues on the path.",
        ),
        Cause::Steal => (
            "lost its CPU to the hypervisor",
            "the hypervisor gave the CPU to another guest",
            "Compare steal in /proc/stat.",
        ),
        Cause::IdleWake => (
            "woke an idle CPU",
            "a CPU had to leave a deep idle state first",
            "Compare with /dev/cpu_dma_latency held at 0.",
        ),
        Cause::Stopped => (
            "met a stopped process",
            "no thread of the process ran, because a signal or a debugger had stopped it",
            "Find who stops it: a sender of SIGSTOP, a freezer, a debugger, a container runtime that pauses.",
        ),
        Cause::NetworkDelay => (
            "spent the time between the taps",
            "packets left one tap and arrived late at the other, and none was lost",
            "More than cables lies between the taps: the sender's qdisc and NIC queue, switches, the receiver's \
             interrupts. Compare `tc -s qdisc` and NIC queues, or capture closer to the middle.",
        ),
        Cause::NetworkJitter => (
            "spent more time between the taps than other calls did",
            "the time between the taps varies from packet to packet",
            "Look for queues that fill: `tc -s qdisc` of both hosts, switches on the path.",
        ),
        Cause::PathAsymmetry => (
            "had one direction slower than the other",
            "one direction takes longer than the other",
            "Compare the routes in both directions.",
        ),
        Cause::LargePayload => (
            "spent the time sending its bytes",
            "the message is so large that it takes this long at the observed rate",
            "Send less, compress it, or find what limits the rate: window, congestion, link.",
        ),
        Cause::Retries => (
            "was tried several times",
            "one call is several attempts on the wire",
            "Look at the first attempt: that is the one that failed.",
        ),
        Cause::Proxy => (
            "spent the time in a proxy",
            "the proxy had the whole request, or the whole response, and did not pass it on",
            "Look at the proxy: its queues and limits (connections to the servers, rates), filters that make no \
             calls, name lookups, its CPU.",
        ),
        Cause::Clock => (
            "only looks longer, because the clocks differ",
            "the clocks differ; nothing is wrong",
            "Compare only durations that one clock measured.",
        ),
        Cause::NoResponse => (
            "ended without a response",
            "the request had arrived, and no part of a response had come when the call was given up, refused or cut \
             off",
            "Look at the server's log, threads and dependencies at that time; a retry or a longer deadline only helps if \
             the server would have answered.",
        ),
        Cause::BlackHole => (
            "sent a request that never arrived",
            "no copy of the request's bytes reached the server's tap, and none was acknowledged",
            "Find what drops them on the path: firewalls, security groups, conntrack tables, a packet size that the path \
             does not carry.",
        ),
        Cause::Dns => (
            "waited for a DNS lookup",
            "before it opened a connection, the client asked a name server for the server's address, and the answer \
             came late or only to a repeated query",
            "Compare the servers in /etc/resolv.conf with `dig`; shorten `search` and `ndots`, keep answers in a local cache, \
             keep connections open.",
        ),
        Cause::TlsHandshake => (
            "waited for a TLS handshake",
            "the connection was new: it took a round trip to open, and client and server had to agree on keys before the \
             request could be sent",
            "Keep connections open and reuse them; allow session resumption and TLS 1.3, and check the CPU cost of \
             handshakes.",
        ),
        Cause::PoolWait => (
            "waited for a connection of the client's pool",
            "every connection of the pool had a call in flight, so the call waited in the client until one was free",
            "Raise the pool's limit, or find out why the calls that hold its connections take long.",
        ),
        Cause::PathMtu => (
            "sent packets too large for the path",
            "the path dropped large packets again and again while small ones got through",
            "Compare the MTU along the path (`tracepath`); let ICMP type 3 code 4 (IPv6: type 2) pass the firewalls, clamp \
             the MSS at tunnels, or set net.ipv4.tcp_mtu_probing=1.",
        ),
        Cause::Lock => (
            "waited for a lock",
            "the thread that was handling the call waited for a lock that another thread held",
            "`spangap host offcpu` shows who waits and who wakes them; hold the lock for less time, or split what \
             it protects.",
        ),
        Cause::Disk => (
            "waited for a disk",
            "the thread that was handling the call waited for a disk or a remote file system: for a read, or for a \
             write to become durable",
            "Move fsync and disk reads off the call's path, or give them a faster disk; `iostat -x` shows its \
             queue, `/proc/pressure/io` the stalls.",
        ),
        Cause::Memory => (
            "waited for memory",
            "the thread that was handling the call waited for the kernel to free memory, or to read pages of its \
             code, data or mapped files",
            "Compare memory.max, memory.high and `memory.events` of the cgroup, /proc/pressure/memory, and swap; \
             give the service more memory, or make it use less.",
        ),
        Cause::CpuSaturated => ("met a busy host", "every CPU was busy", "Take load off the host."),
        Cause::None => ("shows nothing wrong", "nothing is wrong", "There is nothing to do."),
    };
    Advice { did, meaning, next }
}

/// What would prove or exclude a cause that is only possible, as a sentence; empty if the missing evidence says
/// it all.
pub fn to_be_sure(cause: Cause) -> &'static str {
    match cause {
        Cause::ServerApp | Cause::ServerQueue => {
            "The time passed at the server's end. The server's spans (`--spans`) tell its application from its \
             host; with one capture only, a capture at the other end tells the server from the network."
        }
        Cause::ClientApp => {
            "The time passed at the client's end. The client's spans (`--spans`) tell its application from its host."
        }
        _ => "",
    }
}

/// Where to look if nothing on the wire explains a call and this leg took most of it.
pub fn about_leg(legs: Legs) -> &'static str {
    let within = |first: Leg, last: Leg| first <= legs.first && legs.last <= last;
    if legs == Legs::one(Leg::NoResponse) {
        "Nothing came back before the call was given up: look at the server's log and threads for this request, and \
         at what the server itself waited for."
    } else if legs == Legs::one(Leg::ServerApp) {
        "Look inside the server's span: the time is not between client and server."
    } else if legs.first == Leg::ServerHostIn && legs.last == Leg::ServerHostOut {
        "The packets cannot tell the server's host from its application; the server's spans can (`--spans`)."
    } else if within(Leg::ServerHostIn, Leg::ServerHostOut) {
        "The packets had arrived, but the application did not take them: look at the server's threads and run queue."
    } else if within(Leg::ClientAppOut, Leg::ClientAppOut) || within(Leg::ClientAppIn, Leg::ClientAppIn) {
        "The time passed in the client, not on the wire: look at its threads and run queue."
    } else if within(Leg::ClientSend, Leg::ClientSend) {
        "The request left in pieces over this long: the client's application streams or writes late, or something \
         that no rule here recognises held it back."
    } else if within(Leg::ServerSend, Leg::ServerSend) {
        "The response left in pieces over this long: the server's application streams or writes late, or something \
         that no rule here recognises held it back."
    } else if within(Leg::RequestWire, Leg::RequestWire) || within(Leg::ResponseWire, Leg::ResponseWire) {
        "The time passed between the two taps: the sender's qdisc and NIC, the path, the receiver's interrupts."
    } else if within(Leg::ServerHostIn, Leg::ServerSend) {
        "All of it passed at the server, in several ways: look at its application, its threads and its run queue, \
         one slow call at a time."
    } else if within(Leg::ClientAppOut, Leg::ClientSend) {
        "All of it passed at the client, before the request was out: look at its application, its threads and its \
         run queue, one slow call at a time."
    } else if legs.contains(Leg::ServerHostIn) || legs.contains(Leg::ServerSend) {
        "One capture cannot split it further; another at the server (`spangap capture`) tells the path from the \
         server's end."
    } else {
        "One capture cannot split it further; another at the client (`spangap capture`) tells the path from the \
         client's end."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_capture_is_suggested_only_for_the_path() {
        let answered = || Leg::ALL.into_iter().filter(|leg| *leg != Leg::NoResponse);
        for first in answered() {
            for last in answered().filter(|last| first <= *last) {
                let legs = Legs { first, last };
                let way = legs.contains(Leg::RequestWire) || legs.contains(Leg::ResponseWire);
                let asks = about_leg(legs).contains("One capture");
                assert!(!asks || way, "{legs:?}: {}", about_leg(legs));
            }
        }
    }

    #[test]
    fn every_cause_has_its_sentences() {
        for cause in Cause::ALL {
            for side in [None, Some(Side::Client), Some(Side::Server)] {
                let advice = about(cause, side);
                assert!(advice.next.ends_with('.'), "{cause}");
                assert!(!advice.meaning.ends_with('.') && !advice.did.ends_with('.'), "{cause}");
            }
        }
        let nagle = |side| about(Cause::NagleDelayedAck, Some(side)).next;
        assert_ne!(
            nagle(Side::Client),
            nagle(Side::Server),
            "the socket to set the option on is the sender's"
        );
    }

    #[test]
    fn every_leg_has_its_sentence() {
        for leg in Leg::ALL {
            assert!(!about_leg(Legs::one(leg)).contains("One capture"), "{}", leg.name());
        }
        let between = Legs { first: Leg::RequestWire, last: Leg::ResponseWire };
        assert!(about_leg(between).contains("One capture"));
    }
}
