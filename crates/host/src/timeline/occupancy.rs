//! Who had each CPU, from start to end.

use super::cpu::Cpu;
use super::{Taker, mostly};
use crate::event::{Event, What};

/// Receives intervals of a CPU: its number, start, end, and who had it (`None`: unknown).
pub type OnStretch<'a> = &'a mut dyn FnMut(u16, u64, u64, Option<Taker>);

/// Turns events into who had each CPU, regardless of watched threads.
pub struct Occupancy {
    began_ns: u64,
    /// Each CPU, and up to when it has been reported.
    cpus: Vec<Option<(Cpu, u64)>>,
}

impl Occupancy {
    /// For events from `began_ns` on. A CPU without events is not reported.
    pub fn new(began_ns: u64) -> Occupancy {
        Occupancy { began_ns, cpus: Vec::new() }
    }

    /// Takes the next event in order of time, and reports what has become certain.
    pub fn on(&mut self, event: &Event, each: OnStretch<'_>) {
        let at = usize::from(event.cpu);
        if self.cpus.len() <= at {
            self.cpus.resize_with(at + 1, || None);
        }
        let began_ns = self.began_ns;
        let (cpu, told_ns) = self.cpus[at].get_or_insert_with(|| (Cpu::new(began_ns), began_ns));
        let time_ns = event.time_ns.max(cpu.seen_ns);
        let certain = match event.what {
            What::Switch { prev, next, .. } => {
                if cpu.task.is_some_and(|task| task != prev) {
                    cpu.lose(cpu.seen_ns, time_ns);
                }
                if cpu.task.is_none() {
                    cpu.learn(prev);
                }
                cpu.switch(next, time_ns);
                true
            }
            What::Softirq { vector, device, packets, own, began_ns } => {
                let own = mostly(own, packets);
                cpu.interrupt(Taker::Softirq { vector, device, own }, began_ns, time_ns);
                cpu.settle();
                cpu.task.is_some()
            }
            What::Hardirq { irq, began_ns } => {
                cpu.interrupt(Taker::Hardirq(irq), began_ns, time_ns);
                let overdue = cpu.is_overdue();
                if overdue {
                    cpu.settle();
                }
                overdue && cpu.task.is_some()
            }
            What::Lost { since_ns, .. } => {
                cpu.lose(since_ns.max(cpu.seen_ns).min(time_ns), time_ns);
                false
            }
            What::Woken(_) | What::Arrived(_) | What::Read { .. } | What::Wrote { .. } => false,
            What::Steal { .. } => return,
        };
        cpu.seen_ns = time_ns;
        if certain {
            tell(event.cpu, cpu, told_ns, time_ns, each);
        }
    }

    /// Tells the rest.
    pub fn finish(mut self, end_ns: u64, each: OnStretch<'_>) {
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            let Some((cpu, told_ns)) = cpu else { continue };
            let end_ns = end_ns.max(cpu.seen_ns);
            cpu.go_on(end_ns);
            tell(number as u16, cpu, told_ns, end_ns, each);
        }
    }
}

fn tell(number: u16, cpu: &Cpu, told_ns: &mut u64, to_ns: u64, each: OnStretch<'_>) {
    cpu.past(*told_ns, to_ns, |from_ns, to_ns, taker| each(number, from_ns, to_ns, taker));
    *told_ns = to_ns;
}
