//! The sign that a fault acts: something that the kernel or the meter counts, before the fault and with it. On a machine that has
//! much else to do a fault may hardly act, and a verdict that does not name it is then no mistake.

use super::fault::Fault;
use super::stage::Stage;
use spangap_cases::trigger::Counts;
use spangap_lab::counters::{Tcp, run_delay_ns, softirq_ns};
use spangap_lab::stage::children;
use spangap_machine::facts::process_stat;
use spangap_meter::engine::Meter;
use spangap_model::{PairStats, Side};
use std::time::Instant;

/// The fault acts if its sign has grown this many times.
const TIMES: f64 = 3.0;

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A counter of the server's TCP.
    Tcp(&'static str),
    /// Seconds of softirqs on the server's CPU.
    Softirq,
    /// Seconds that the threads of a side's process waited for a CPU.
    RunDelay(Side),
    /// Seconds that a side's process was stopped, as far as was looked.
    Stopped(Side),
    /// Periods in which the control group had used up its quota.
    Throttled,
    /// Calls whose client span, server span or gap took longer than this many milliseconds.
    Calls(Of, u64),
}

/// Which of a call's times.
#[derive(Clone, Copy, Debug)]
enum Of {
    Client,
    Server,
    Gap,
}

/// What a fault is known by: its name, and how much of it there is in a second at the least.
fn of(fault: Fault) -> (What, &'static str, f64) {
    match fault {
        Fault::Nagle => (What::Tcp("TcpExt.DelayedACKs"), "delayed ACKs of the server's host", 5.0),
        Fault::Softirq => (What::Softirq, "seconds of softirqs on the server's CPU", 0.05),
        Fault::SharedConnection => (What::Calls(Of::Client, 20), "calls that took more than 20 ms", 5.0),
        Fault::Stopped => {
            (What::Stopped(Side::Server), "seconds that the server's process was stopped", 0.05)
        }
        Fault::StoppedClient => {
            (What::Stopped(Side::Client), "seconds that the client's process was stopped", 0.05)
        }
        Fault::RunQueue => {
            (What::RunDelay(Side::Server), "seconds that the server's threads waited for a CPU", 0.03)
        }
        Fault::RunQueueClient => {
            (What::RunDelay(Side::Client), "seconds that the client's threads waited for a CPU", 0.03)
        }
        Fault::CpuQuota => {
            (What::Throttled, "periods in which the server's group had used up its quota", 0.5)
        }
        Fault::ServerApp => {
            (What::Calls(Of::Server, 50), "calls for which the server took more than 50 ms", 5.0)
        }
        Fault::ServerQueue => (What::Calls(Of::Gap, 20), "calls with a gap of more than 20 ms", 1.0),
        Fault::NetworkJitter => (What::Calls(Of::Gap, 5), "calls with a gap of more than 5 ms", 5.0),
        Fault::Rto => (What::Tcp("TcpExt.TCPTimeouts"), "retransmission timeouts of the server's host", 0.2),
        Fault::FastRetransmit => {
            (What::Tcp("TcpExt.TCPFastRetrans"), "fast retransmissions of the server's host", 1.0)
        }
    }
}

/// The sign of one fault.
pub struct Sign {
    what: What,
    name: &'static str,
    least: f64,
    /// What looks have added up.
    seen: f64,
    looked: Instant,
    /// Time and value of the first count, and, below, of the count when the fault began.
    since: (Instant, f64),
    fault: Option<(Instant, f64)>,
}

/// A second before the fault and with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub before: f64,
    pub with: f64,
}

impl Sign {
    /// Counts from now on.
    pub fn start(fault: Fault, stage: &Stage, meter: &Meter) -> Sign {
        let (what, name, least) = of(fault);
        let now = Instant::now();
        let mut sign = Sign { what, name, least, seen: 0.0, looked: now, since: (now, 0.0), fault: None };
        sign.since.1 = sign.count(stage, meter);
        sign
    }

    /// To be called again and again: some things show only while somebody looks.
    pub fn look(&mut self, stage: &Stage) {
        let passed = self.looked.elapsed().as_secs_f64();
        self.looked = Instant::now();
        if let What::Stopped(side) = self.what
            && is_stopped(process(stage, side))
        {
            self.seen += passed;
        }
    }

    /// The fault begins.
    pub fn fault_begins(&mut self, stage: &Stage, meter: &Meter) {
        self.fault = Some((Instant::now(), self.count(stage, meter)));
    }

    /// What there was of it in a second, before the fault and since.
    pub fn rates(&self, stage: &Stage, meter: &Meter) -> Option<Rates> {
        let ((begun, first), (fault, second)) = (self.since, self.fault?);
        let rate = |more: f64, seconds: f64| more / seconds.max(1e-3);
        Some(Rates {
            before: rate(second - first, fault.duration_since(begun).as_secs_f64()),
            with: rate(self.count(stage, meter) - second, fault.elapsed().as_secs_f64()),
        })
    }

    /// Whether the fault acts.
    pub fn acts(&self, Rates { before, with }: Rates) -> bool {
        with >= self.least && with >= TIMES * before
    }

    /// In words.
    pub fn words(&self, rates: Rates) -> String {
        let figure = |value: f64| if value < 1.0 { format!("{value:.3}") } else { format!("{value:.1}") };
        let how = if self.acts(rates) { "The fault acts" } else { "The fault hardly acts on this machine" };
        let (with, before) = (figure(rates.with), figure(rates.before));
        format!("{how}: in a second {with} {}, {before} before it", self.name)
    }

    /// So far. What cannot be read has not happened.
    fn count(&self, stage: &Stage, meter: &Meter) -> f64 {
        const S: f64 = 1e9;
        match self.what {
            What::Tcp(name) => {
                Tcp::of_host(stage.hosts.name(Side::Server)).map_or(0.0, |tcp| tcp.get(name) as f64)
            }
            What::Softirq => softirq_ns(stage.cpu(Side::Server)).map_or(0.0, |ns| ns as f64 / S),
            What::RunDelay(side) => {
                let delay = process(stage, side).and_then(|pid| run_delay_ns(pid).ok());
                delay.map_or(0.0, |ns| ns as f64 / S)
            }
            What::Stopped(_) => self.seen,
            What::Throttled => {
                stage.group.as_ref().and_then(|group| group.throttled().ok()).map_or(0.0, |n| n as f64)
            }
            What::Calls(of, ms) => calls_over(meter, of, ms * 1_000_000) as f64,
        }
    }
}

fn calls_over(meter: &Meter, of: Of, ns: u64) -> u64 {
    let over = |stats: &PairStats| {
        let histogram = match of {
            Of::Client => &stats.client,
            Of::Server => &stats.server,
            Of::Gap => &stats.gap,
        };
        Counts::of(histogram).over(ns)
    };
    let totals = meter.totals();
    let pair = totals.iter().filter(|(key, _)| &*key.client == "tank" && &*key.server == "target");
    pair.map(|(_, stats)| over(stats)).sum()
}

/// The process that calls, or that serves.
fn process(stage: &Stage, side: Side) -> Option<u32> {
    let pid = stage.pid(if side == Side::Client { "tank" } else { "target" }).ok()?;
    // The program that calls is a child of the tank.
    if side == Side::Client { children(pid).first().copied().or(Some(pid)) } else { Some(pid) }
}

fn is_stopped(pid: Option<u32>) -> bool {
    let stat = pid.and_then(|pid| process_stat::of(pid).ok().flatten());
    stat.is_some_and(|stat| stat.is_stopped())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_that_adds_nothing_to_what_was_there_does_not_act() {
        let (what, name, least) = of(Fault::CpuQuota);
        let now = Instant::now();
        let sign = Sign { what, name, least, seen: 0.0, looked: now, since: (now, 0.0), fault: None };
        let rates = |before, with| Rates { before, with };
        assert!(sign.acts(rates(0.0, 3.0)) && sign.acts(rates(1.0, 3.0)));
        assert!(!sign.acts(rates(0.0, 0.4)), "too little");
        assert!(!sign.acts(rates(2.0, 5.0)), "it was there before");
        let words = sign.words(rates(0.0, 0.4));
        assert!(words.starts_with("The fault hardly acts") && words.contains("0.400 periods"), "{words}");
    }

    #[test]
    fn who_is_stopped_is_seen_to_be() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let signal = |name: &str| {
            let sent =
                std::process::Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
            assert!(sent.expect("kill starts").success());
        };
        assert!(!is_stopped(Some(child.id())));
        signal("STOP");
        while !is_stopped(Some(child.id())) {
            std::thread::yield_now();
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(!is_stopped(Some(child.id())) && !is_stopped(None));
    }
}
