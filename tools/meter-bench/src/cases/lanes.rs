//! What lanes gain: threads that take in spans at once, each on a core of its own, with one lane and with several.
//!
//! Wall time depends on whatever else runs on the machine. So each thread's time is divided: it computes, it waits for a core,
//! which is the others' doing, or it is blocked, which is the lock's. Computing and being blocked are what a span costs a core.

use super::queue::{Costs, speedup};
use super::samples::quartiles;
use crate::process::pin_to;
use crate::workload::Workload;
use serde::Serialize;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::entry::MOST_LANES;
use std::sync::Barrier;
use std::time::Instant;

/// Interval between passes in milliseconds of the meter's clock.
const PASS_MS: u64 = 1_000;

/// Several threads on some lanes; medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct LanesRow {
    pub threads: usize,
    pub lanes: usize,
    /// One for all threads, or one for each: then nothing is shared but caches and memory, which is this machine's limit.
    pub meters: usize,
    /// CPU time per span, microseconds, and its quartiles.
    pub cpu_us_per_span: f64,
    pub cpu_quartiles_us: [f64; 2],
    /// Time per span in which a thread waited for a lane or a shard.
    pub blocked_us_per_span: f64,
    /// Spans per second of wall time.
    pub spans_per_s: f64,
    /// Spans per second of cores that do nothing else, compared with one thread and one lane.
    pub speedup: f64,
    /// First and third quartile over the rounds.
    pub speedup_quartiles: [f64; 2],
}

/// More cores than there are here, by a simulation of the locks with the measured costs.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedRow {
    pub cores: usize,
    pub lanes: usize,
    pub speedup: f64,
}

/// What was measured, and what follows for more cores.
#[derive(Clone, Debug, Serialize)]
pub struct LanesFigure {
    pub rounds: u32,
    pub rows: Vec<LanesRow>,
    pub simulated: Vec<SimulatedRow>,
}

/// Threads that take in spans at once, and the meters among which these are divided.
#[derive(Clone, Copy)]
struct Way {
    threads: usize,
    lanes: usize,
    meters: usize,
}

/// Times of all threads in one round, microseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    cpu_us: f64,
    blocked_us: f64,
    wall_us: f64,
}

impl Times {
    fn occupied_us(&self) -> f64 {
        self.cpu_us + self.blocked_us
    }
}

/// Takes in the workload in each way in turns, on these cores; the first round warms up. `costs` are those of one span.
pub fn run(workload: &Workload, rounds: u32, cpus: &[usize], costs: Costs) -> LanesFigure {
    let spans = workload.spans().max(1) as f64;
    let one = |(threads, lanes)| Way { threads, lanes, meters: 1 };
    let mut ways: Vec<Way> = [(1, 1), (1, 2), (1, 4), (1, 8)].map(one).to_vec();
    if cpus.len() > 1 {
        ways.extend([(2, 1), (2, 2), (2, 8)].map(one));
        ways.push(Way { threads: 2, lanes: 1, meters: 2 });
    }
    let meter = |lanes| Meter::new(Settings { lanes, ..Settings::default() });
    let meters: Vec<Vec<Meter>> =
        ways.iter().map(|way| (0..way.meters).map(|_| meter(way.lanes)).collect()).collect();
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        let requests: Vec<Vec<u8>> = workload.batches.iter().map(|batch| batch.of_pass(round)).collect();
        let now_ms = u64::from(round) * PASS_MS + 1;
        for turn in 0..ways.len() {
            // Each finds the caches in the state that another one left.
            let way = (turn + round as usize) % ways.len();
            let taken = take_in(&meters[way], &requests, now_ms, &cpus[..ways[way].threads.min(cpus.len())]);
            meters[way].iter().for_each(|meter| meter.tick(now_ms));
            if round > 0 {
                times[way].push(taken);
            }
        }
    }
    let rows = ways.iter().zip(&times).map(|(way, rounds)| row(*way, rounds, &times[0], spans)).collect();
    let simulated = [2, 4, 8, 16, 32].into_iter().flat_map(|cores| {
        [1, cores.min(MOST_LANES)].map(|lanes| SimulatedRow {
            cores,
            lanes,
            speedup: speedup(costs, cores, lanes),
        })
    });
    LanesFigure { rounds, rows, simulated: simulated.collect() }
}

fn row(Way { threads, lanes, meters }: Way, rounds: &[Times], one: &[Times], spans: f64) -> LanesRow {
    let of = |each: fn(&Times) -> f64| quartiles(rounds.iter().map(|times| each(times) / spans).collect());
    let [cpu_low, cpu, cpu_high] = of(|times| times.cpu_us);
    let speedups =
        rounds.iter().zip(one).map(|(times, one)| threads as f64 * one.occupied_us() / times.occupied_us());
    let [low, speedup, high] = quartiles(speedups.collect());
    LanesRow {
        threads,
        lanes,
        meters,
        cpu_us_per_span: cpu,
        cpu_quartiles_us: [cpu_low, cpu_high],
        blocked_us_per_span: of(|times| times.blocked_us)[1],
        spans_per_s: 1e6 / of(|times| times.wall_us)[1],
        speedup,
        speedup_quartiles: [low, high],
    }
}

/// The requests divided among threads, one on each of these cores. Of several meters, each takes in all requests, on a thread of its
/// own; the times are those of as many spans as one has.
fn take_in(meters: &[Meter], requests: &[Vec<u8>], now_ms: u64, cpus: &[usize]) -> Times {
    let begin = Barrier::new(cpus.len());
    let of_threads: Vec<Times> = std::thread::scope(|scope| {
        let threads = cpus.iter().enumerate().map(|(thread, cpu)| {
            let begin = &begin;
            scope.spawn(move || {
                pin_to(*cpu);
                begin.wait();
                let (begun, before) = (Instant::now(), scheduled_us());
                let meter = &meters[thread % meters.len()];
                let among = cpus.len() / meters.len();
                for request in requests.iter().skip(thread % among).step_by(among) {
                    let _ = meter.ingest(request, now_ms);
                }
                let (wall_us, after) = (begun.elapsed().as_secs_f64() * 1e6, scheduled_us());
                let [cpu_us, waited_us] = [after[0] - before[0], after[1] - before[1]];
                Times { cpu_us, blocked_us: (wall_us - cpu_us - waited_us).max(0.0), wall_us }
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let times = meters.len() as f64;
    of_threads.iter().fold(Times::default(), |all, one| Times {
        cpu_us: all.cpu_us + one.cpu_us / times,
        blocked_us: all.blocked_us + one.blocked_us / times,
        wall_us: all.wall_us.max(one.wall_us / times),
    })
}

/// Time of this thread on a core, and in wait for one, microseconds.
fn scheduled_us() -> [f64; 2] {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut fields = text.split_whitespace().map(|field| field.parse::<f64>().unwrap_or(f64::NAN) / 1e3);
    [(); 2].map(|()| fields.next().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Shape, generate};
    use crate::process::usable_cpus;

    #[test]
    fn every_span_is_taken_in_whatever_the_threads_and_lanes() {
        let (workload, _) = generate(&Shape { spans: 4_096, ..Shape::default() });
        let requests: Vec<Vec<u8>> = workload.batches.iter().map(|batch| batch.of_pass(1)).collect();
        let cpus = usable_cpus();
        for lanes in [1, 3] {
            let meter = Meter::new(Settings { lanes, ..Settings::default() });
            let meter = [meter];
            let times = take_in(&meter, &requests, 1, &cpus[..cpus.len().min(2)]);
            assert_eq!(meter[0].accounting().received, workload.spans());
            assert!(times.cpu_us > 0.0 && times.wall_us > 0.0);
        }
        let meters = [(); 2].map(|()| Meter::new(Settings::default()));
        take_in(&meters, &requests, 1, &[cpus[0]; 2]);
        assert!(meters.iter().all(|meter| meter.accounting().received == workload.spans()));
    }
}
