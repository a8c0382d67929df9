//! Reports intervals each second, and at the end of each phase.

use super::session::Session;
use super::tally::Counts;
use crate::clock;
use crate::contract::{ClientMessage, Histogram, Interval, Phase};
use crate::process::Used;
use std::sync::{Arc, PoisonError};

const SECOND_NS: u64 = 1_000_000_000;

/// Reports until all calls have ended.
pub(super) fn report(session: Arc<Session>) {
    let (spare, sums) = Default::default();
    Reporter { session, spare, sums, usage: Used::so_far(), records_dropped: [0; 2] }.run();
}

struct Reporter {
    session: Arc<Session>,
    /// Empty counts to exchange for those of a tally.
    spare: [Counts; 2],
    /// Accumulated counts of the warm-up and of the measured phase.
    sums: [Counts; 2],
    usage: Used,
    records_dropped: [u64; 2],
}

impl Reporter {
    fn run(mut self) {
        clock::cut_timer_slack();
        let start_ns = self.session.plan.start_ns();
        let mut from_ns = start_ns;
        let mut phase = self.session.plan.first();
        self.begin(phase, start_ns);
        while phase != Phase::Drained {
            let (until_ns, next) = self.wait(phase, start_ns, from_ns);
            self.report(phase, until_ns - from_ns);
            from_ns = until_ns;
            if next != phase {
                phase = next;
                self.begin(phase, until_ns);
            }
        }
        self.report(phase, 0);
    }

    /// Waits for the next full second or the end of the phase, whichever comes first. Returns that planned
    /// time, and the following phase.
    fn wait(&self, phase: Phase, start_ns: u64, from_ns: u64) -> (u64, Phase) {
        let mut state = self.session.lock();
        loop {
            let now_ns = clock::monotonic_ns();
            let next_second_ns = start_ns + ((from_ns - start_ns) / SECOND_NS + 1) * SECOND_NS;
            // After this thread was stalled, one interval covers all the missed seconds.
            let second_ns = next_second_ns.max(now_ns - (now_ns - start_ns) % SECOND_NS);
            let drained = state.drained_ns.filter(|_| phase == Phase::Drain);
            let end = self.session.plan.end_of(phase).or(drained.map(|ns| (ns.max(from_ns), Phase::Drained)));
            let (until_ns, next) =
                end.filter(|(end_ns, _)| *end_ns <= second_ns).unwrap_or((second_ns, phase));
            if now_ns >= until_ns {
                return (until_ns, next);
            }
            state = self.session.wait(state, until_ns - now_ns);
        }
    }

    fn begin(&self, phase: Phase, at_ns: u64) {
        let ago_ns = clock::monotonic_ns().saturating_sub(at_ns);
        self.session.say(&ClientMessage::Phase { phase, unix_ns: clock::unix_ns() - ago_ns });
    }

    /// Reports the phase, of which `duration_ns` have passed, and the other one if calls of it have ended.
    fn report(&mut self, phase: Phase, duration_ns: u64) {
        let usage = Used::so_far();
        let used = usage.since(self.usage);
        self.usage = usage;
        let at_unix_ns = clock::unix_ns();
        let in_flight = self.take();
        let dropped = self.session.records.as_ref().map_or([0; 2], |records| records.dropped());
        for (of, name) in [Phase::Warmup, Phase::Measured].into_iter().enumerate() {
            let records_dropped = dropped[of] - self.records_dropped[of];
            let here = name == phase && duration_ns > 0;
            let counts = &self.sums[of];
            // Counts of a phase that has not been announced yet go into its first interval.
            let too_early = name > phase;
            if too_early || !here && counts.is_empty() && records_dropped == 0 {
                continue;
            }
            let interval = Interval {
                phase: name,
                at_unix_ns,
                duration_ns: if here { duration_ns } else { 0 },
                due: counts.due,
                skipped: counts.skipped,
                ok: counts.ok,
                errors: counts.errors.iter().map(|(name, all)| ((*name).to_owned(), all.clone())).collect(),
                slow: counts.slow,
                latency: Histogram::from(&counts.latency),
                from_send: Histogram::from(&counts.from_send),
                lateness: Histogram::from(&counts.lateness),
                in_flight,
                cpu_ns: if here { used.cpu_ns } else { 0 },
                context_switches: if here { used.context_switches } else { 0 },
                records_dropped,
            };
            self.session.say(&ClientMessage::Interval(Box::new(interval)));
            self.sums[of].clear();
            self.records_dropped[of] = dropped[of];
        }
    }

    /// Collects the tallies' counts. Returns the number of calls in flight.
    fn take(&mut self) -> u64 {
        let tallies = self.session.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = 0;
        for tally in tallies.iter() {
            ended += tally.exchange(&mut self.spare);
            for (sum, part) in self.sums.iter_mut().zip(&mut self.spare) {
                sum.take_from(part);
            }
        }
        // Read after all ends: a call may end on another tally than it was sent on, and none ends that was not
        // sent.
        tallies.iter().map(|tally| tally.sent()).sum::<u64>() - ended
    }
}
