//! The packets of the latest time: kept by an eBPF program, which nobody has to read, or by the kernel's own ring of a packet
//! socket where eBPF is not allowed, which costs more.

use crate::openings::{Openings, WATCHED};
use crate::settings::Settings;
use spangap_host::probes::cost::UNCOUNTED_AT_SOCKET_NS;
use spangap_host::probes::packets::{self, MOST_KEPT, Record};
use spangap_host::recording::{Reading, Relation, StepWatch};
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::source::filter::{self, Instruction, Interfaces, LoopbackOnce};
use spangap_wire::source::ring::{BLOCK_TIMEOUT_MS, Interface, Ring, RingError};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between looks at the packets that open and close connections, and at the interfaces.
const LOOK_MS: i32 = 50;
/// Interval between readings of the clocks.
const CLOCKS_EVERY: Duration = Duration::from_millis(500);

/// Packets taken and lost so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub taken: u64,
    pub lost: u64,
}

/// The packets kept.
pub(crate) enum History {
    Probe(Box<Probe>),
    Ring { ring: Box<Ring>, pause_ms: i32 },
}

/// What the program keeps, with the relation of its clock to that of packets elsewhere.
pub(crate) struct Probe {
    packets: packets::Packets,
    openings: Arc<Mutex<Openings>>,
    clocks: Relation,
    steps: Option<StepWatch>,
    read: Instant,
    /// Since when nothing has passed unseen, Unix nanoseconds.
    since_ns: i64,
    /// Openings and ends of connections that were not seen.
    unseen: u64,
    /// Packets and seconds of the last sample, and what is known from it.
    sampled: (f64, u64),
    a_packet_seconds: f64,
    weighed: (Instant, u64),
}

/// Opens it, at the start and whenever it has stopped.
pub(crate) struct Opener {
    any: Interface,
    named: Vec<String>,
    interfaces: Interfaces,
    text: String,
    canary_port: Option<u16>,
    snap_bytes: u32,
    bytes: u64,
    openings: Arc<Mutex<Openings>>,
}

impl Opener {
    pub fn new(
        settings: &Settings,
        canary_port: Option<u16>,
        openings: &Arc<Mutex<Openings>>,
    ) -> Result<Opener, RingError> {
        let any = Interface::find("any")?;
        let has_any = settings.interfaces.iter().any(|name| name == "any");
        let named = if has_any { Vec::new() } else { settings.interfaces.clone() };
        let mut indices = Vec::new();
        let mut has_loopback = named.is_empty();
        for name in &named {
            let interface = Interface::find(name)?;
            has_loopback |= any.once == LoopbackOnce::Index(interface.index);
            indices.push(interface.index);
        }
        let tcp = if has_loopback { "tcp" } else { "(tcp and not net 127.0.0.0/8)" };
        // In this order, because nearly all packets are TCP, and each comparison costs a call in the kernel.
        let text = canary_port.map_or(tcp.to_owned(), |port| format!("{tcp} or udp port {port}"));
        let interfaces = match (named.is_empty(), any.once) {
            (true, _) => Interfaces::All,
            // Needed for the canary.
            (false, LoopbackOnce::Index(loopback)) => Interfaces::Only([&indices[..], &[loopback]].concat()),
            (false, _) => Interfaces::Only(indices),
        };
        let (snap_bytes, bytes) = (settings.snap_bytes, settings.shares().packets);
        let openings = openings.clone();
        Ok(Opener { any, named, interfaces, text, canary_port, snap_bytes, bytes, openings })
    }

    /// The filter of a ring, keeping this many bytes per packet.
    fn filter(&self, snap_bytes: u32) -> Result<Vec<Instruction>, RingError> {
        let program = filter::compile_on(&self.interfaces, &self.text, snap_bytes, self.any.once);
        program.map_err(|error| RingError::Refused {
            doing: "make a filter for",
            interface: self.any.name.clone(),
            error: io::Error::other(error.to_string()),
            hint: "",
        })
    }

    /// Opens it. If it is not by the program, says why.
    pub fn open(&self) -> Result<(History, Option<String>), RingError> {
        let why = match self.probe() {
            Ok(probe) => return Ok((History::Probe(Box::new(probe)), None)),
            Err(why) => why,
        };
        let mut ring = Ring::open(&self.any, &self.filter(self.snap_bytes)?, self.snap_bytes, self.bytes)?;
        let openings = self.openings.clone();
        ring.watch(WATCHED, Box::new(move |packet| lock(&openings).see(packet)));
        Ok((History::Ring { ring: Box::new(ring), pause_ms: 0 }, Some(why)))
    }

    fn probe(&self) -> Result<Probe, String> {
        if !(1..=MOST_KEPT).contains(&self.snap_bytes) {
            return Err(format!("--snap is above {MOST_KEPT}"));
        }
        let settings = packets::Settings {
            bytes: self.bytes,
            snap_bytes: self.snap_bytes,
            canary_port: self.canary_port,
            interfaces: self.named.clone(),
        };
        let packets = packets::Packets::start(&settings).map_err(|error| error.to_string())?;
        let mut probe = Probe {
            packets,
            openings: self.openings.clone(),
            clocks: Relation::default(),
            steps: StepWatch::new().ok(),
            read: Instant::now(),
            since_ns: unix_ns(),
            unseen: 0,
            sampled: (0.0, 0),
            a_packet_seconds: 0.0,
            weighed: (Instant::now(), 0),
        };
        probe.read_clocks();
        Ok(probe)
    }
}

fn lock(openings: &Mutex<Openings>) -> std::sync::MutexGuard<'_, Openings> {
    openings.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    /// How its packets begin.
    pub fn link(&self) -> LinkType {
        match self {
            History::Probe(_) => LinkType::LINUX_SLL2,
            History::Ring { ring, .. } => ring.interface().link,
        }
    }

    /// Waits for a while, and does what has to be done now and then.
    ///
    /// # Errors
    /// When an interface is gone, or one that came cannot be listened to; others go on.
    pub fn go_on(&mut self) -> io::Result<()> {
        match self {
            History::Probe(probe) => probe.go_on(),
            History::Ring { ring, pause_ms } => {
                let waited = ring.wait(*pause_ms);
                let filled = ring.advance();
                *pause_ms = ring.pause_ms(filled, *pause_ms);
                waited
            }
        }
    }

    /// Between the parts of a long copy: what cannot wait for its end.
    pub fn advance(&mut self) {
        match self {
            History::Probe(probe) => probe.see_openings(),
            History::Ring { ring, .. } => drop(ring.advance()),
        }
    }

    /// Waits until every packet received by now can be seen.
    pub fn catch_up(&mut self) -> io::Result<()> {
        match self {
            History::Probe(probe) => {
                probe.read_clocks();
                probe.see_openings();
                Ok(())
            }
            History::Ring { ring, .. } => ring.catch_up(),
        }
    }

    /// How old a packet is at most before it can be seen, nanoseconds.
    pub fn late_ns(&self) -> i64 {
        match self {
            History::Probe(_) => 0,
            History::Ring { .. } => i64::from(BLOCK_TIMEOUT_MS) * 1_000_000,
        }
    }

    /// Hands every packet kept of a stretch of time to `take`, oldest first.
    pub fn packets_between<E>(
        &self,
        from_ns: i64,
        to_ns: i64,
        take: impl FnMut(&Packet<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            History::Probe(probe) => probe.packets_between(from_ns, to_ns, take),
            History::Ring { ring, .. } => ring.packets_between(from_ns, to_ns, take).map(drop),
        }
    }

    /// Since when every packet that was not lost is kept, Unix nanoseconds.
    pub fn complete_since_ns(&self) -> i64 {
        match self {
            History::Probe(probe) => {
                let overwritten = probe.packets.counts().overwritten_ns;
                let overwritten = (overwritten > 0).then(|| probe.unix_ns(overwritten)).flatten();
                overwritten.map_or(probe.since_ns, |ns| probe.since_ns.max(ns + 1))
            }
            History::Ring { ring, .. } => ring.complete_since_ns(),
        }
    }

    /// Time of the last kept packet, Unix nanoseconds.
    pub fn last_ns(&self) -> Option<i64> {
        match self {
            History::Probe(probe) => probe.unix_ns(probe.packets.last_ns()?),
            History::Ring { ring, .. } => ring.last_ns(),
        }
    }

    pub fn kept_bytes(&self) -> u64 {
        match self {
            History::Probe(probe) => probe.packets.kept_bytes(),
            History::Ring { ring, .. } => ring.kept_bytes() as u64,
        }
    }

    pub fn kept_bytes_at_most(&self) -> u64 {
        match self {
            History::Probe(probe) => probe.packets.kept_bytes_at_most(),
            History::Ring { ring, .. } => ring.kept_bytes_at_most() as u64,
        }
    }

    /// Bytes that all packets have used so far, including those no longer there.
    pub fn written_bytes(&self) -> u64 {
        match self {
            History::Probe(probe) => probe.packets.counts().bytes,
            History::Ring { ring, .. } => ring.written_bytes(),
        }
    }

    pub fn counts(&mut self) -> io::Result<Counts> {
        match self {
            History::Probe(probe) => {
                let counts = probe.packets.counts();
                Ok(Counts { taken: counts.packets, lost: counts.torn })
            }
            History::Ring { ring, .. } => {
                let counts = ring.counts()?;
                Ok(Counts { taken: counts.received - counts.dropped, lost: counts.dropped })
            }
        }
    }

    /// Packets that opened or closed a connection and were not looked at.
    pub fn unseen(&self) -> u64 {
        if let History::Probe(probe) = self { probe.unseen } else { 0 }
    }

    /// Keeps at most this many bytes of each packet from now on; 0: as many as there are room for.
    pub fn keep_at_most(&self, snap_bytes: u32, opener: &Opener) -> Result<(), String> {
        match self {
            History::Probe(probe) => {
                probe.packets.keep_at_most(if snap_bytes == 0 { MOST_KEPT } else { snap_bytes });
                Ok(())
            }
            History::Ring { ring, .. } => {
                let filter = opener.filter(snap_bytes).map_err(|error| error.to_string())?;
                ring.refilter(&filter).map_err(|error| error.to_string())
            }
        }
    }

    /// Cost of the program since the last call, as a share of one CPU; `None` for the kernel's own ring, whose cost nobody counts.
    pub fn weigh(&mut self) -> Option<f64> {
        let History::Probe(probe) = self else { return None };
        let (now, written) = (Instant::now(), probe.packets.counts().packets);
        if let Some(cost) = probe.packets.cost() {
            let spent = cost.seconds(UNCOUNTED_AT_SOCKET_NS);
            if cost.written > probe.sampled.1 {
                probe.a_packet_seconds = (spent - probe.sampled.0) / (cost.written - probe.sampled.1) as f64;
                probe.sampled = (spent, cost.written);
            }
        }
        let packets = written.saturating_sub(probe.weighed.1) as f64;
        let seconds = now.duration_since(probe.weighed.0).as_secs_f64().max(1e-3);
        probe.weighed = (now, written);
        Some(probe.a_packet_seconds * packets / seconds)
    }
}

impl Probe {
    fn go_on(&mut self) -> io::Result<()> {
        let waited = self.packets.wait(LOOK_MS);
        if let Ok(true) = waited {
            self.since_ns = unix_ns();
        }
        if self.read.elapsed() >= CLOCKS_EVERY {
            self.read_clocks();
        }
        self.see_openings();
        waited.map(drop)
    }

    fn read_clocks(&mut self) {
        self.read = Instant::now();
        let stepped = self.steps.as_ref().is_some_and(|steps| steps.stepped().unwrap_or(false));
        self.clocks.add(Reading { stepped, ..Reading::take() });
    }

    fn see_openings(&mut self) {
        let Probe { packets, openings, clocks, unseen, .. } = self;
        let mut openings = lock(openings);
        let mut scratch = Vec::new();
        *unseen += packets.openings(|record| {
            if let Some(packet) = cooked(record, clocks, &mut scratch) {
                openings.see(&packet);
            }
        });
    }

    fn unix_ns(&self, mono_ns: u64) -> Option<i64> {
        self.clocks.unix_ns(mono_ns).map(|(unix_ns, _)| unix_ns)
    }

    fn packets_between<E>(
        &self,
        from_ns: i64,
        to_ns: i64,
        mut take: impl FnMut(&Packet<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut scratch = Vec::new();
        let mut number = 0;
        let wants = |first, last| {
            self.unix_ns(first).is_some_and(|first| first <= to_ns)
                && self.unix_ns(last).is_some_and(|last| last >= from_ns)
        };
        self.packets.between(wants, |record| {
            let packet = cooked(record, &self.clocks, &mut scratch);
            match packet.filter(|packet| (from_ns..=to_ns).contains(&packet.time_ns)) {
                Some(packet) => {
                    number += 1;
                    take(&Packet { number, ..packet })
                }
                None => Ok(()),
            }
        })
    }
}

/// The packet with a header as `any` has it (LINKTYPE_LINUX_SLL2). `None` if its time is not known.
fn cooked<'a>(record: &Record<'_>, clocks: &Relation, to: &'a mut Vec<u8>) -> Option<Packet<'a>> {
    /// ARPHRD_LOOPBACK, and ARPHRD_VOID: not known, and nothing here depends on it.
    const HARDWARE: [u16; 2] = [772, 0xffff];
    let (time_ns, _) = clocks.unix_ns(record.mono_ns)?;
    to.clear();
    to.extend_from_slice(&record.protocol.to_be_bytes());
    to.extend_from_slice(&[0, 0]);
    to.extend_from_slice(&record.interface.to_be_bytes());
    to.extend_from_slice(&HARDWARE[usize::from(record.interface != 1)].to_be_bytes());
    // Direction, and no address.
    to.extend_from_slice(&[record.kind, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let header = to.len() as u32;
    to.extend_from_slice(record.data);
    let wire_len = (record.length + header).max(to.len() as u32);
    Some(Packet { number: 0, time_ns, interface: 0, link: LinkType::LINUX_SLL2, wire_len, data: to })
}

/// Current time in Unix nanoseconds.
pub(crate) fn unix_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
