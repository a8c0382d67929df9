//! A small simulated machine that knows the truth: what every thread did and who had every CPU, nanosecond by
//! nanosecond.

use super::Taker;
use crate::event::{Event, Irq, Left, Tid, What};
use fastrand::Rng;
use spangap_model::Doing;

/// The machine runs for a while before anyone observes it.
pub const BEGAN: u64 = 400;

struct Thread {
    tid: Tid,
    at: At,
    /// The cgroup's quota has kept it from running since it last ran.
    throttled: bool,
    /// Since when it has been on a run queue, or when it left its CPU.
    queued_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Queue(usize),
    On(usize),
    Off(Left),
}

struct Cpu {
    task: Tid,
    /// Running interrupts, with their starts.
    nested: Vec<(Taker, u64)>,
    /// When its current softirq moved on to the packets of another device.
    pieces: Vec<(Taker, u64)>,
}

/// What happened, and the events that report it.
pub struct Machine {
    pub events: Vec<Event>,
    /// What each thread (by number, from 1) did in each nanosecond.
    pub truth: Vec<Vec<Doing>>,
    /// Who had each CPU in each nanosecond.
    pub had: Vec<Vec<Taker>>,
    pub end: u64,
    /// CPU, start and end of each loss.
    pub losses: Vec<(u16, u64, u64)>,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    now: u64,
}

impl Machine {
    /// Runs a machine with this seed; `losses` is how often events are lost.
    pub fn run(seed: u64, losses: bool) -> Machine {
        let mut rng = Rng::with_seed(seed);
        let (cpus, threads) = (rng.usize(1..5), rng.usize(1..9));
        let mut machine = Machine {
            events: Vec::new(),
            truth: vec![Vec::new(); threads],
            had: vec![Vec::new(); cpus],
            end: BEGAN + rng.u64(1..3000),
            losses: Vec::new(),
            threads: (1..=threads as Tid)
                .map(|tid| Thread { tid, at: At::Off(Left::Blocked), throttled: false, queued_ns: 0 })
                .collect(),
            cpus: (0..cpus).map(|_| Cpu { task: 0, nested: Vec::new(), pieces: Vec::new() }).collect(),
            now: 0,
        };
        let step = rng.u64(2..20);
        while machine.now < machine.end {
            // Several things may happen at one moment.
            let until = (machine.now + rng.u64(0..step)).min(machine.end);
            while machine.now < until {
                machine.tick();
            }
            machine.happen(&mut rng);
        }
        for cpu in 0..cpus {
            while !machine.cpus[cpu].nested.is_empty() {
                machine.interrupt_ends(cpu);
            }
        }
        machine.events.retain(|event| event.time_ns >= BEGAN);
        if losses {
            machine.lose(&mut rng);
        }
        machine
    }

    /// Records what everyone does in this nanosecond.
    fn tick(&mut self) {
        for (thread, truth) in self.threads.iter().zip(&mut self.truth) {
            truth.push(match thread.at {
                At::On(cpu) if self.cpus[cpu].nested.is_empty() => Doing::Running,
                At::On(_) => Doing::Interrupted,
                At::Queue(_) if thread.throttled => Doing::Throttled,
                At::Queue(_) => Doing::Runnable,
                At::Off(Left::Stopped) => Doing::Stopped,
                At::Off(_) => Doing::Blocked,
            });
        }
        for (cpu, had) in self.cpus.iter().zip(&mut self.had) {
            had.push(cpu.nested.last().map_or(Taker::Task(cpu.task), |(taker, _)| *taker));
        }
        self.now += 1;
    }

    fn tell(&mut self, cpu: usize, what: What) {
        self.events.push(Event { time_ns: self.now, cpu: cpu as u16, what });
    }

    fn happen(&mut self, rng: &mut Rng) {
        let cpu = rng.usize(..self.cpus.len());
        let depth = self.cpus[cpu].nested.len();
        match rng.u8(..12) {
            0 | 1 if depth > 0 => self.interrupt_ends(cpu),
            2 if depth < 3 => {
                let irq = [Irq::Timer, Irq::Call, Irq::Line(rng.u32(20..22))][rng.usize(..3)];
                self.cpus[cpu].nested.push((Taker::Hardirq(irq), self.now));
            }
            3 if depth == 0 => {
                let taker = Taker::Softirq { vector: 3, device: rng.u32(..3), own: false };
                self.cpus[cpu].nested.push((taker, self.now));
            }
            // A softirq moves on to the packets of another device.
            4 if depth == 1 && matches!(self.cpus[cpu].nested[0].0, Taker::Softirq { .. }) => {
                let now = self.now;
                let cpu = &mut self.cpus[cpu];
                cpu.pieces.push(cpu.nested[0]);
                cpu.nested[0] = (Taker::Softirq { vector: 3, device: rng.u32(..3), own: false }, now);
            }
            5 => self.wake(rng),
            6 => self.migrate(rng),
            _ => {
                // Nested interrupts end first, or a busy machine would hardly ever switch.
                while !self.cpus[cpu].nested.is_empty() {
                    self.interrupt_ends(cpu);
                }
                self.switch(cpu, rng);
            }
        }
    }

    fn interrupt_ends(&mut self, cpu: usize) {
        let (taker, began_ns) = self.cpus[cpu].nested.pop().expect("one that runs");
        match taker {
            Taker::Softirq { .. } => {
                // Its pieces are reported when all of it has ended, each with its own times.
                let mut pieces = std::mem::take(&mut self.cpus[cpu].pieces);
                pieces.push((taker, began_ns));
                for (index, (piece, began_ns)) in pieces.iter().enumerate() {
                    let Taker::Softirq { vector, device, .. } = *piece else { unreachable!() };
                    let time_ns = pieces.get(index + 1).map_or(self.now, |next| next.1);
                    let what = What::Softirq { vector, device, packets: 1, own: 0, began_ns: *began_ns };
                    let event = Event { time_ns, cpu: cpu as u16, what };
                    // The reader has sorted them by their ends.
                    let place = self.events.partition_point(|other| other.time_ns <= time_ns);
                    self.events.insert(place, event);
                }
            }
            Taker::Hardirq(irq) => self.tell(cpu, What::Hardirq { irq, began_ns }),
            Taker::Task(_) => unreachable!("no interrupt"),
        }
    }

    fn wake(&mut self, rng: &mut Rng) {
        let to = rng.usize(..self.cpus.len());
        let now = self.now;
        let sleeps = |thread: &&mut Thread| matches!(thread.at, At::Off(_)) && thread.queued_ns < now;
        let asleep = self.threads.iter_mut().filter(sleeps);
        if let Some(thread) = rng.choice(asleep.collect::<Vec<_>>()) {
            (thread.at, thread.queued_ns) = (At::Queue(to), self.now);
            // Its cgroup may have used up its quota meanwhile.
            thread.throttled = rng.u8(..4) == 0;
        }
    }

    fn migrate(&mut self, rng: &mut Rng) {
        let to = rng.usize(..self.cpus.len());
        let queued = self.threads.iter_mut().filter(|thread| matches!(thread.at, At::Queue(_)));
        if let Some(thread) = rng.choice(queued.collect::<Vec<_>>()) {
            thread.at = At::Queue(to);
        }
    }

    fn switch(&mut self, cpu: usize, rng: &mut Rng) {
        let prev = self.cpus[cpu].task;
        let queued = self.threads.iter().filter(|thread| thread.at == At::Queue(cpu));
        let next = rng.choice(queued.collect::<Vec<_>>()).map_or(0, |thread| thread.tid);
        if prev == next {
            return;
        }
        let mut left = Left::Runnable;
        if prev != 0 {
            left = [Left::Runnable, Left::Throttled, Left::Blocked, Left::Blocked, Left::Stopped]
                [rng.usize(..5)];
            let thread = &mut self.threads[prev as usize - 1];
            thread.throttled = left == Left::Throttled;
            thread.queued_ns = self.now;
            thread.at = match left {
                Left::Runnable | Left::Throttled => At::Queue(cpu),
                _ => At::Off(left),
            };
        }
        let mut what = What::Switch { prev, left, next, waited_ns: 0, throttled: false };
        if next != 0 {
            let thread = &mut self.threads[next as usize - 1];
            thread.at = At::On(cpu);
            let waited = self.now - thread.queued_ns;
            if let What::Switch { waited_ns, throttled, .. } = &mut what {
                (*waited_ns, *throttled) = (waited, thread.throttled);
            }
        }
        self.cpus[cpu].task = next;
        self.tell(cpu, what);
    }

    /// Loses some runs of events of single CPUs, and says so with the next event that is not lost.
    fn lose(&mut self, rng: &mut Rng) {
        for cpu in 0..self.cpus.len() as u16 {
            let (mut kept, mut since_ns, mut losing, mut count) = (Vec::new(), BEGAN, 0, 0);
            for event in std::mem::take(&mut self.events) {
                if event.cpu != cpu || matches!(event.what, What::Lost { .. }) {
                    kept.push(event);
                    continue;
                }
                if losing == 0 && count == 0 && rng.u8(..20) == 0 {
                    losing = rng.u64(1..10);
                }
                if losing > 0 {
                    (losing, count) = (losing - 1, count + 1);
                    continue;
                }
                if count > 0 {
                    self.losses.push((cpu, since_ns, event.time_ns));
                    kept.push(Event { what: What::Lost { count, since_ns }, ..event });
                    count = 0;
                }
                since_ns = event.time_ns;
                kept.push(event);
            }
            if count > 0 {
                self.losses.push((cpu, since_ns, self.end));
                kept.push(Event { time_ns: self.end, cpu, what: What::Lost { count, since_ns } });
            }
            self.events = kept;
        }
        self.events.sort_by_key(|event| event.time_ns);
    }
}
