//! The runs and their order. Pure.

use crate::contract::{Call, Channels, ClientSettings, Nodelay, Pace, Records, Stack};
use crate::method::OtherMethod;
use crate::otlp::ExportSettings;
use crate::report::Asked;
use crate::schedule::Schedule;
use crate::tank::cpus::Cpus;
use spangap_model::duration::format_ns;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Settings of all runs. Every combination of the lists is a run.
#[derive(Clone, Debug)]
pub struct TankSettings {
    /// `HOST:PORT` of each target.
    pub targets: Vec<String>,
    /// The client's stacks.
    pub stacks: Vec<Stack>,
    /// Kinds of call.
    pub calls: Vec<Call>,
    /// Ways to share channels.
    pub channels: Vec<Channels>,
    /// Settings of `TCP_NODELAY`.
    pub nodelay: Vec<Nodelay>,
    /// Threads of the client.
    pub threads: Vec<u32>,
    /// Payloads of a request.
    pub request_bytes: Vec<u64>,
    /// Method to call instead of a ping.
    pub method: Option<OtherMethod>,
    /// Load to sweep within each combination of the other settings.
    pub load: Load,
    /// Payload to request; `None` leaves it to the target.
    pub response_bytes: Option<u64>,
    /// Think time to request; `None` leaves it to the target.
    pub think_ns: Option<u64>,
    /// Whether requests are written in two parts.
    pub split_writes: bool,
    /// Maximum attempts per call.
    pub attempts: u32,
    /// CPUs of the client; `None` for all.
    pub cpus: Option<Cpus>,
    /// Measured time of a run; `None` continues until stopped, and is for a single run.
    pub duration_ns: Option<u64>,
    /// Warm-up, in nanoseconds: its calls are made and traced, but neither counted nor logged as slow.
    pub warmup_ns: u64,
    /// Time after which a call ends as `DEADLINE_EXCEEDED`.
    pub timeout: Duration,
    /// Duration from the send above which a call counts as slow.
    pub slow_ns: u64,
    /// File for slow calls.
    pub slow_log: Option<PathBuf>,
    /// Destination of spans.
    pub export: Option<ExportSettings>,
    /// Whether calls carry a trace context; `None`: if the slow log or the spans need it.
    pub trace: Option<bool>,
    /// Number of repetitions of the whole plan.
    pub repeat: u32,
    /// Whether raw ping-pong under the same load is measured before each run.
    pub floor: bool,
}

/// What triggers a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Numbers of calls in flight.
    Closed(Vec<u32>),
    /// Schedules, and a limit on calls in flight.
    Open {
        /// One per run.
        schedules: Vec<Schedule>,
        /// Due calls above this are skipped.
        max_in_flight: u32,
    },
}

/// A planned run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRun {
    /// Settings, as in the report.
    pub asked: Asked,
    /// The load.
    pub pace: Pace,
    /// Number of calls in flight, or its maximum.
    pub in_flight: u32,
    /// Number of the repetition, from 0.
    pub repeat: u32,
}

impl TankSettings {
    /// Whether calls carry a trace context.
    pub fn traced(&self) -> bool {
        self.trace.unwrap_or(self.slow_log.is_some() || self.export.is_some())
    }

    /// Which calls need records.
    pub fn records(&self) -> Records {
        match (&self.export, &self.slow_log) {
            (Some(_), _) => Records::All,
            (None, Some(_)) => Records::Slow,
            (None, None) => Records::None,
        }
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        let load = match &self.load {
            Load::Closed(in_flight) => in_flight.len(),
            Load::Open { schedules, .. } => schedules.len(),
        };
        let lists = [
            self.targets.len(),
            self.stacks.len(),
            self.calls.len(),
            self.channels.len(),
            self.nodelay.len(),
            self.threads.len(),
            self.request_bytes.len(),
            load,
        ];
        lists.iter().product::<usize>() * self.repeat as usize
    }

    /// The runs in order. Each round makes every configuration, starting with a different one each time, so
    /// that none is always first. The loads of a configuration keep the given order, because sweeping up and
    /// sweeping down are different experiments.
    pub fn plan(&self) -> Vec<PlannedRun> {
        let configurations = self.configurations();
        let mut plan: Vec<PlannedRun> = Vec::new();
        for round in 0..self.repeat as usize {
            let first = round % configurations.len().max(1);
            for configuration in configurations[first..].iter().chain(&configurations[..first]) {
                for (pace, in_flight) in self.loads() {
                    let mut asked = configuration.clone();
                    match pace {
                        Pace::Closed => asked.inflight = Some(in_flight),
                        Pace::Open(schedule) => asked.rate_per_s = Some(schedule.rate_per_s()),
                    }
                    let repeat = plan.iter().filter(|before| before.asked == asked).count() as u32;
                    plan.push(PlannedRun { asked, pace, in_flight, repeat });
                }
            }
        }
        plan
    }

    fn loads(&self) -> Vec<(Pace, u32)> {
        match &self.load {
            Load::Closed(in_flight) => in_flight.iter().map(|&in_flight| (Pace::Closed, in_flight)).collect(),
            Load::Open { schedules, max_in_flight } => {
                schedules.iter().map(|&schedule| (Pace::Open(schedule), *max_in_flight)).collect()
            }
        }
    }

    /// Every combination except for the load; the first list changes slowest.
    fn configurations(&self) -> Vec<Asked> {
        let one = Asked {
            target: String::new(),
            stack: Stack::Rust,
            call: Call::Unary,
            method: self.method.as_ref().map(|method| method.name.to_owned()),
            channels: Channels::Shared,
            inflight: None,
            rate_per_s: None,
            request_bytes: 0,
            response_bytes: self.response_bytes,
            think_ns: self.think_ns,
            nodelay: Nodelay::Default,
            split_writes: self.split_writes,
            attempts: self.attempts,
            threads: 1,
            cpus: self.cpus.as_ref().map(Cpus::to_string),
            trace: self.traced(),
        };
        let mut all = vec![one];
        all = each(&all, &self.targets, |asked, target| asked.target = target);
        all = each(&all, &self.stacks, |asked, stack| asked.stack = stack);
        all = each(&all, &self.calls, |asked, call| asked.call = call);
        all = each(&all, &self.channels, |asked, channels| asked.channels = channels);
        all = each(&all, &self.nodelay, |asked, nodelay| asked.nodelay = nodelay);
        all = each(&all, &self.threads, |asked, threads| asked.threads = threads);
        each(&all, &self.request_bytes, |asked, bytes| asked.request_bytes = bytes)
    }

    /// Settings of a run's client.
    pub fn of_client(&self, planned: &PlannedRun, record_file: &Path) -> ClientSettings {
        let Asked { target, stack, call, channels, request_bytes, nodelay, threads, .. } =
            planned.asked.clone();
        let records = self.records();
        ClientSettings {
            stack,
            target,
            call,
            channels,
            pace: planned.pace,
            in_flight: planned.in_flight,
            threads,
            request_bytes,
            response_bytes: self.response_bytes,
            think_ns: self.think_ns,
            nodelay,
            split_writes: self.split_writes,
            timeout: self.timeout,
            warmup_ns: self.warmup_ns,
            duration_ns: self.duration_ns.unwrap_or(0),
            calls: 0,
            trace: planned.asked.trace,
            records,
            slow_ns: self.slow_ns,
            record_file: if records == Records::None { PathBuf::new() } else { record_file.to_owned() },
            attempts: planned.asked.attempts,
            call_file: self.method.as_ref().map(|method| method.call_file.clone()),
        }
    }
}

fn each<T: Clone>(all: &[Asked], values: &[T], set: impl Fn(&mut Asked, T)) -> Vec<Asked> {
    let with = |asked: &Asked, value: &T| {
        let mut asked = asked.clone();
        set(&mut asked, value.clone());
        asked
    };
    all.iter().flat_map(|asked| values.iter().map(move |value| with(asked, value))).collect()
}

impl PlannedRun {
    /// Why no client can make this run; `None` if one can.
    pub fn impossible(&self) -> Option<String> {
        let Asked { stack, call, method, channels, split_writes, attempts, .. } = &self.asked;
        let cpp = matches!(stack, Stack::CppSync | Stack::CppAsync | Stack::CppCallback);
        if *channels == Channels::LocalPool && !cpp {
            return Some(format!(
                "stack {stack} has no subchannel pools: there every channel has a connection of its own, as with \
                 --channels distinct"
            ));
        }
        if *channels == Channels::PerCall && *stack != Stack::Rust {
            return Some(format!(
                "stack {stack} keeps its connections: --channels per-call is for --stack rust"
            ));
        }
        if *attempts > 1 && (*stack != Stack::Rust || *call != Call::Unary) {
            return Some(format!(
                "stack {stack} makes one attempt of a call in {call}: --attempts is for --stack rust --call unary"
            ));
        }
        if let Some(method) = method
            && (*stack != Stack::Rust || *call != Call::Unary)
        {
            return Some(format!(
                "stack {stack} in {call} only makes pings, not {method}: --method is for --stack rust --call unary"
            ));
        }
        if *split_writes && *stack != Stack::Raw {
            return Some(format!("stack {stack} cannot split its writes: --split-writes is for --stack raw"));
        }
        None
    }
}

impl fmt::Display for PlannedRun {
    /// The run in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { target, stack, call, method, channels, request_bytes, nodelay, threads, .. } =
            &self.asked;
        let call = method.as_deref().unwrap_or(call.name());
        write!(f, "{target} {stack} {call} {channels}, ")?;
        match self.pace {
            Pace::Closed => write!(f, "{} in flight", self.in_flight)?,
            Pace::Open(schedule) if schedule.calls() == 1 => {
                write!(f, "a call every {}", format_ns(schedule.per_ns()))?;
            }
            Pace::Open(schedule) => write!(f, "{} calls/s", schedule.rate_per_s())?,
        }
        if *nodelay != Nodelay::Default {
            write!(f, ", nodelay {nodelay}")?;
        }
        if *threads != 1 {
            write!(f, ", {threads} threads")?;
        }
        if *request_bytes != 0 {
            write!(f, ", {request_bytes} bytes")?;
        }
        if self.repeat > 0 {
            write!(f, ", repetition {}", self.repeat + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    pub fn settings() -> TankSettings {
        TankSettings {
            targets: vec!["127.0.0.1:1".into()],
            stacks: vec![Stack::Rust],
            calls: vec![Call::Unary],
            channels: vec![Channels::Shared],
            nodelay: vec![Nodelay::Default],
            threads: vec![1],
            request_bytes: vec![0],
            method: None,
            load: Load::Closed(vec![1]),
            response_bytes: None,
            think_ns: None,
            split_writes: false,
            attempts: 1,
            cpus: None,
            duration_ns: Some(1),
            warmup_ns: 0,
            timeout: Duration::from_secs(1),
            slow_ns: 0,
            slow_log: None,
            export: None,
            trace: None,
            repeat: 1,
            floor: true,
        }
    }

    #[test]
    fn rounds_begin_with_another_configuration_and_keep_the_order_of_the_loads() {
        let mut settings = settings();
        settings.stacks = vec![Stack::Raw, Stack::Rust];
        settings.load = Load::Closed(vec![4, 1, 2]);
        settings.repeat = 2;
        let plan = settings.plan();
        let order: Vec<_> = plan.iter().map(|run| (run.asked.stack, run.in_flight, run.repeat)).collect();
        let (raw, rust) = (Stack::Raw, Stack::Rust);
        let first = [(raw, 4, 0), (raw, 1, 0), (raw, 2, 0), (rust, 4, 0), (rust, 1, 0), (rust, 2, 0)];
        let second = [(rust, 4, 1), (rust, 1, 1), (rust, 2, 1), (raw, 4, 1), (raw, 1, 1), (raw, 2, 1)];
        assert_eq!(order, [first, second].concat());
    }

    #[test]
    fn load_swept_up_and_down_is_two_repetitions() {
        let mut settings = settings();
        settings.load = Load::Closed(vec![1, 2, 1]);
        let repeats: Vec<_> = settings.plan().iter().map(|run| run.repeat).collect();
        assert_eq!(repeats, [0, 0, 1]);
    }

    #[test]
    fn traces_and_records_are_made_when_something_needs_them() {
        let mut settings = settings();
        assert_eq!((settings.traced(), settings.records()), (false, Records::None));
        settings.slow_log = Some("log".into());
        assert_eq!((settings.traced(), settings.records()), (true, Records::Slow));
        settings.trace = Some(false);
        assert!(!settings.traced());
    }

    #[test]
    fn impossible_runs_are_known_in_advance() {
        let mut settings = settings();
        settings.stacks = Stack::ALL.to_vec();
        settings.channels = vec![Channels::LocalPool];
        let able = |settings: &TankSettings| {
            let able = settings.plan().into_iter().filter(|run| run.impossible().is_none());
            able.map(|run| run.asked.stack).collect::<Vec<_>>()
        };
        assert_eq!(able(&settings), [Stack::CppSync, Stack::CppAsync, Stack::CppCallback]);
        settings.channels = vec![Channels::Shared];
        settings.split_writes = true;
        assert_eq!(able(&settings), [Stack::Raw]);
        settings.split_writes = false;
        settings.channels = vec![Channels::PerCall];
        assert_eq!(able(&settings), [Stack::Rust]);
        settings.channels = vec![Channels::Shared];
        settings.attempts = 2;
        assert_eq!(able(&settings), [Stack::Rust]);
        settings.calls = vec![Call::Stream];
        assert_eq!(able(&settings), []);
    }

    proptest! {
        #[test]
        fn every_combination_is_run_once_a_round(
            stacks in 1usize..=6, calls in 1usize..=2, threads in prop::collection::btree_set(1u32..9, 1..4),
            rates in prop::collection::btree_set(1u32..99, 1..5), repeat in 1u32..5,
        ) {
            let mut settings = settings();
            settings.stacks = Stack::ALL[..stacks].to_vec();
            settings.calls = Call::ALL[..calls].to_vec();
            settings.threads = threads.into_iter().collect();
            let schedules: Vec<_> = rates.iter().map(|&rate| Schedule::per_second(rate).unwrap()).collect();
            settings.load = Load::Open { schedules: schedules.clone(), max_in_flight: 7 };
            settings.repeat = repeat;
            let plan = settings.plan();
            prop_assert_eq!(plan.len(), settings.runs());
            let mut seen: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for run in &plan {
                seen.entry(serde_json::to_string(&run.asked).unwrap()).or_default().push(run.repeat);
            }
            let rounds: Vec<u32> = (0..repeat).collect();
            prop_assert!(seen.values().all(|repeats| *repeats == rounds));
            prop_assert_eq!(seen.len() * repeat as usize, plan.len());
            for configuration in plan.chunks(schedules.len()) {
                let order: Vec<_> = configuration.iter().map(|run| run.pace).collect();
                prop_assert_eq!(order, schedules.iter().map(|&schedule| Pace::Open(schedule)).collect::<Vec<_>>());
            }
        }
    }
}
