//! The ring of events: a thread drives the probes and stores their events.

use crate::packets::unix_ns;
use crate::settings::{Say, Settings};
use crate::shifts::{PERIOD, Scales, works_at};
use spangap_fleet::v1;
use spangap_host::halted;
use spangap_host::probes::intervals::{self, Waits};
use spangap_host::recording::{Meta, Part, RecordError, Rolling};
use spangap_machine::Host;
use spangap_machine::facts::system_name;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes per event in the kernel's rings.
const EVENT_BYTES: u64 = 32;
/// Maximum delay of an order to this thread.
const POLL: Duration = Duration::from_millis(100);

/// Orders to the thread.
enum Order {
    Copy { from_to: (i64, i64), most_bytes: usize, reply: Sender<Result<Option<Copied>, String>> },
    Watch(BTreeSet<u32>),
    AskFor(Waits),
    Share(f64),
    Stop,
}

/// A copy of part of the ring.
#[derive(Debug)]
pub(crate) struct Copied {
    /// A file in the format of `host record`.
    pub file: Vec<u8>,
    pub part: Part,
    /// Time range of its events, Unix nanoseconds.
    pub from_ns: i64,
    pub to_ns: i64,
}

/// State of the recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub ring: v1::Ring,
    /// Recent cost of the BPF programs, as a share of one CPU; over a whole period, if they rest at times.
    pub probes_share: f64,
    /// Why it has ended, if it has.
    pub failed: Option<String>,
}

/// The thread that owns the probes.
pub(crate) struct Events {
    orders: Mutex<Sender<Order>>,
    state: Arc<Mutex<State>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub lacks: Vec<String>,
}

impl Events {
    /// Loads the probes and records events of these processes and of all CPUs.
    pub fn start(
        settings: &Settings,
        pids: &BTreeSet<u32>,
        waits: Waits,
        say: Say,
    ) -> Result<Events, RecordError> {
        let shares = settings.shares();
        let cpus = thread::available_parallelism().map_or(1, usize::from) as u64;
        let setup = Setup {
            ring_events: (shares.event_rings / EVENT_BYTES / cpus.max(1)) as usize,
            most_bytes: shares.events as usize,
        };
        let rolling = setup.start(pids, waits)?;
        let lacks = rolling.lacks().to_vec();
        let state = Arc::new(Mutex::new(State::default()));
        let (orders, ordered) = channel();
        let mut keeper = Keeper {
            setup,
            rolling: Some(rolling),
            pids: pids.clone(),
            state: state.clone(),
            share: 1.0,
            rests: false,
            scales: Scales::default(),
            of_before: (0, 0),
        };
        let thread = thread::Builder::new().name("events".into()).spawn(move || {
            if let Err(error) = keeper.keep(&ordered) {
                say(&format!("events are no longer recorded: {error}"));
                keeper.rolling = None;
                keeper.lock().failed = Some(error.to_string());
            }
        });
        let thread = thread.map_err(RecordError::Write)?;
        Ok(Events { orders: Mutex::new(orders), state, thread: Mutex::new(Some(thread)), lacks })
    }

    /// Current state.
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A file of a time range, `None` if nothing of it is available.
    ///
    /// # Errors
    /// Why there are no events at all, in words.
    pub fn copy(&self, from_to: (i64, i64), most_bytes: usize) -> Result<Option<Copied>, String> {
        let (reply, answer) = channel();
        self.order(Order::Copy { from_to, most_bytes, reply });
        answer.recv().unwrap_or_else(|_| Err(self.state().failed.unwrap_or_else(|| "it was stopped".into())))
    }

    /// Follows these processes from now on.
    pub fn watch(&self, pids: BTreeSet<u32>) {
        self.order(Order::Watch(pids));
    }

    /// Enables or disables the recording of reasons why threads sleep. Discards the recorded events.
    pub fn ask_for(&self, waits: Waits) {
        self.order(Order::AskFor(waits));
    }

    /// Records during this share of the time from now on.
    pub fn record_for(&self, share: f64) {
        self.order(Order::Share(share));
    }

    /// Unloads the probes.
    pub fn stop(&self) {
        self.order(Order::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A thread that panicked has printed it.
        let _ended = thread.map(JoinHandle::join);
    }

    fn order(&self, order: Order) {
        // It has ended, and its state contains the reason.
        let _ended = self.orders.lock().unwrap_or_else(PoisonError::into_inner).send(order);
    }
}

/// In a sentence without its end.
pub(crate) fn part_of_the_time(share: f64) -> String {
    let (percent, period_s) = (share * 100.0, PERIOD.as_secs_f64());
    format!(
        "events are recorded for {percent:.0} % of every {period_s:.1} s only, so that the agent keeps to its share of the CPUs"
    )
}

struct Setup {
    ring_events: usize,
    most_bytes: usize,
}

impl Setup {
    fn start(&self, pids: &BTreeSet<u32>, waits: Waits) -> Result<Rolling, RecordError> {
        let settings = intervals::Settings {
            tgids: pids.iter().copied().collect(),
            more_later: true,
            ring_events: self.ring_events,
            waits,
        };
        let meta = Meta {
            spangap: env!("CARGO_PKG_VERSION").into(),
            host: system_name::host_here(),
            kernel: system_name::kernel_here(),
            command: vec!["spangap".into(), "agent".into()],
            ..Meta::default()
        };
        Rolling::start(&settings, meta, self.most_bytes)
    }
}

struct Keeper {
    setup: Setup,
    rolling: Option<Rolling>,
    pids: BTreeSet<u32>,
    state: Arc<Mutex<State>>,
    /// Share of the time in which the probes work.
    share: f64,
    /// Whether they rest.
    rests: bool,
    scales: Scales,
    /// Events and losses of the previous stream.
    of_before: (u64, u64),
}

impl Keeper {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&mut self, ordered: &Receiver<Order>) -> Result<(), RecordError> {
        let mut told = None::<Instant>;
        let mut cost_due = Instant::now() + Duration::from_secs(1);
        loop {
            match ordered.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => {
                    self.rolling = None;
                    return Ok(());
                }
                Ok(Order::Copy { from_to, most_bytes, reply }) => {
                    let copied = self.copy(from_to, most_bytes)?;
                    // The requester may be gone.
                    let _gone = reply.send(Ok(copied));
                }
                Ok(Order::Watch(pids)) => {
                    self.pids = pids;
                    if let Some(rolling) = &mut self.rolling {
                        rolling.watch(&self.pids)?;
                    }
                }
                Ok(Order::AskFor(waits)) => self.ask_for(waits)?,
                Ok(Order::Share(share)) => self.share = share,
                Err(TryRecvError::Empty) => {}
            }
            if self.rests == works_at(self.share, unix_ns()) {
                self.change_shift()?;
            }
            let Some(rolling) = &mut self.rolling else { return Ok(()) };
            rolling.poll(POLL)?;
            if Instant::now() >= cost_due {
                cost_due = Instant::now() + Duration::from_secs(2);
                self.weigh();
            }
            if told.is_none_or(|told| told.elapsed() >= Duration::from_millis(500)) {
                told = Some(Instant::now());
                self.tell();
            }
        }
    }

    fn weigh(&mut self) {
        let Some(rolling) = &mut self.rolling else { return };
        self.scales.weigh(rolling, self.rests);
        let share = self.scales.share(self.share < 1.0);
        self.lock().probes_share = share;
    }

    /// From work to rest, or back.
    fn change_shift(&mut self) -> Result<(), RecordError> {
        self.weigh();
        self.rests = !self.rests;
        if let Some(rolling) = &mut self.rolling {
            rolling.rest(self.rests)?;
        }
        Ok(())
    }

    fn tell(&mut self) {
        let Some(rolling) = &self.rolling else { return };
        let (kept, counts) = (rolling.kept(), rolling.counts());
        let unix = |mono_ns| rolling.unix_ns(mono_ns).map_or(0, |(unix_ns, _)| unix_ns);
        let ring = v1::Ring {
            instrument: "host-record".into(),
            from_unix_ns: unix(kept.from_ns),
            to_unix_ns: unix(kept.to_ns),
            bytes: kept.bytes,
            taken: self.of_before.0 + counts.events,
            lost: self.of_before.1 + counts.lost,
            canaries_sent: 0,
            canaries_seen: 0,
        };
        self.lock().ring = ring;
    }

    fn copy(&mut self, (from, to): (i64, i64), most_bytes: usize) -> Result<Option<Copied>, RecordError> {
        let Some(rolling) = &mut self.rolling else { return Ok(None) };
        // Settled events end slightly before now.
        let until = Instant::now() + 5 * POLL;
        while unix_ns() >= to && Instant::now() < until {
            let settled = rolling.settled_unix_ns();
            if settled.is_some_and(|settled| settled >= to) {
                break;
            }
            rolling.poll(POLL)?;
        }
        let pids: Vec<u32> = self.pids.iter().copied().collect();
        let host = Host::below("/");
        let share = self.share;
        let meta = |mut meta: Meta| {
            if share < 1.0 {
                meta.lacks.push(part_of_the_time(share));
            }
            Meta { halted: halted::halted(&host, &pids), ..meta }
        };
        let Some((file, part)) = rolling.part((from, to), most_bytes, meta)? else { return Ok(None) };
        let unix = |mono_ns| rolling.unix_ns(mono_ns).map_or(0, |(unix_ns, _)| unix_ns);
        Ok(Some(Copied { from_ns: unix(part.from_ns), to_ns: unix(part.to_ns), file, part }))
    }

    fn ask_for(&mut self, waits: Waits) -> Result<(), RecordError> {
        let Some(before) = self.rolling.take() else { return Ok(()) };
        let counts = before.counts();
        self.of_before = (self.of_before.0 + counts.events, self.of_before.1 + counts.lost);
        drop(before);
        self.scales = Scales::default();
        self.rests = false;
        self.rolling = Some(self.setup.start(&self.pids, waits)?);
        Ok(())
    }
}
