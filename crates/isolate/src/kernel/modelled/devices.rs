//! Interrupts, and queues of interfaces.

use super::{Answer, Irq, Rx, State};
use rustix::io::Errno;
use spangap_model::Cpus;

/// Location of a queue's value.
struct Queue<'a> {
    interface: &'a str,
    queue: usize,
    name: &'a str,
    receive: bool,
}

fn queue(path: &str) -> Option<Queue<'_>> {
    let (interface, rest) = path.strip_prefix("/sys/class/net/")?.split_once("/queues/")?;
    let (folder, name) = rest.split_once('/')?;
    let (kind, queue) = folder.split_once('-')?;
    Some(Queue { interface, queue: queue.parse().ok()?, name, receive: kind == "rx" })
}

fn irq(path: &str) -> Option<(u32, &str)> {
    let (number, name) = path.strip_prefix("/proc/irq/")?.split_once('/')?;
    Some((number.parse().ok()?, name))
}

impl State {
    pub fn read_device(&self, path: &str) -> Option<String> {
        if let Some((number, name)) = irq(path) {
            let irq = self.irqs.get(&number)?;
            return (name == "smp_affinity_list").then(|| irq.affinity.to_string());
        }
        if let Some(at) = queue(path) {
            let interface = self.interfaces.get(at.interface)?;
            return match (at.receive, at.name) {
                (true, "rps_cpus") => Some(self.mask(&interface.rx.get(at.queue)?.rps)),
                (true, "rps_flow_cnt") => Some(interface.rx.get(at.queue)?.flows.to_string()),
                (false, "xps_cpus") => Some(self.mask(interface.xps.get(at.queue)?)),
                _ => None,
            };
        }
        self.files.get(path).cloned()
    }

    /// As wide as the machine, in the kernel's format.
    fn mask(&self, cpus: &Cpus) -> String {
        let digits = self.online.iter().last().map_or(1, |last| last as usize / 4 + 1);
        format!("{:0>digits$}", cpus.mask())
    }

    pub fn write_device(&mut self, path: &str, text: &str) -> Answer {
        let online = self.online.clone();
        if let Some((number, name)) = irq(path) {
            let irq = self.irqs.get_mut(&number).ok_or(Errno::NOENT)?;
            if irq.managed {
                return Err(Errno::IO);
            }
            let cpus = Cpus::parse_list(text).filter(|_| name == "smp_affinity_list").ok_or(Errno::INVAL)?;
            // A CPU beyond the last one is out of range; one that is only offline is ignored.
            if cpus.iter().last() > online.iter().last() {
                return Err(Errno::RANGE);
            }
            if cpus.both(&online).is_empty() {
                return Err(Errno::INVAL);
            }
            irq.affinity = cpus;
            return Ok(());
        }
        let at = queue(path).ok_or(Errno::NOENT)?;
        let interface = self.interfaces.get_mut(at.interface).ok_or(Errno::NOENT)?;
        let mask = || Cpus::parse_mask(text).ok_or(Errno::INVAL);
        match (at.receive, at.name) {
            (true, "rps_cpus") => interface.rx.get_mut(at.queue).ok_or(Errno::NOENT)?.rps = mask()?,
            (true, "rps_flow_cnt") => {
                let flows = text.trim().parse().map_err(|_| Errno::INVAL)?;
                interface.rx.get_mut(at.queue).ok_or(Errno::NOENT)?.flows = flows;
            }
            (false, "xps_cpus") => *interface.xps.get_mut(at.queue).ok_or(Errno::NOENT)? = mask()?,
            _ => return Err(Errno::NOENT),
        }
        Ok(())
    }

    /// `ethtool -L`: removed queues lose their settings; interrupts are either renumbered, or kept and
    /// redistributed.
    pub fn set_queues(&mut self, name: &str, queues: u32) -> Answer {
        let online: Vec<u32> = self.online.iter().collect();
        let interface = self.interfaces.get_mut(name).ok_or(Errno::NODEV)?;
        if queues == 0 || queues > interface.most {
            return Err(Errno::INVAL);
        }
        if queues == interface.now {
            return Ok(());
        }
        interface.now = queues;
        interface.rx.resize(queues as usize, Rx::default());
        interface.xps = (0..queues).map(|queue| Cpus::from_iter([spread(&online, queue)])).collect();
        if self.flavour.renumbers {
            self.irqs.retain(|_, irq| !matches!(&irq.queue, Some((of, _)) if of == name));
            for queue in 0..queues {
                // The kernel assigns the lowest free number: often one that belonged to another interrupt.
                let free = (20..).find(|number| !self.irqs.contains_key(number)).expect("numbers enough");
                let irq = Irq {
                    name: format!("{name}-TxRx-{queue}"),
                    affinity: Cpus::from_iter([spread(&online, queue)]),
                    managed: false,
                    queue: Some((name.to_owned(), queue)),
                };
                self.irqs.insert(free, irq);
            }
        } else {
            for irq in self.irqs.values_mut().filter(|irq| !irq.managed) {
                if let Some((_, queue)) = irq.queue.as_ref().filter(|(of, _)| of == name) {
                    irq.affinity = Cpus::from_iter([spread(&online, *queue)]);
                }
            }
        }
        Ok(())
    }
}

fn spread(online: &[u32], queue: u32) -> u32 {
    online[queue as usize % online.len()]
}
