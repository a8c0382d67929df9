//! The ring of packets: a thread owns it, verifies that it works, and copies slices out of it.

use crate::copies::{Copies, Passes};
use crate::fit::{Fit, Sizes};
pub(crate) use crate::history::unix_ns;
use crate::history::{History, Opener};
use crate::openings::{Connections, Opened, Openings};
use crate::reach::{self, Reach};
use crate::settings::Settings;
use spangap_fleet::v1;
use spangap_model::Side;
use spangap_sockets::TcpSocket;
use spangap_wire::decode::Decoder;
use spangap_wire::packet::{LinkType, Packet};
use spangap_wire::segment::{Endpoint, Segment};
use spangap_wire::source::ring::{BLOCK_TIMEOUT_MS, RingError};
use spangap_wire::source::write::{Origin, PcapngWriter};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval between canaries.
const CANARY_EVERY: Duration = Duration::from_secs(1);
/// Interval between figures of the program's cost.
const WEIGH_EVERY: Duration = Duration::from_secs(2);
/// Time after which a canary is in a closed block, or lost.
const CANARY_LATE_NS: i64 = 4 * BLOCK_TIMEOUT_MS as i64 * 1_000_000;
/// Part of a copy during which the ring gets no block back.
const PASS_NS: i64 = 1_000_000_000;
/// Consecutive missing canaries that mean that the ring has stopped.
const STOPPED_AFTER: u32 = 4;

/// A requested part of the ring.
#[derive(Clone)]
pub(crate) struct Wanted {
    /// Start, Unix nanoseconds.
    pub from_ns: i64,
    /// End, Unix nanoseconds.
    pub to_ns: i64,
    /// Endpoints of the relevant connections; empty for all.
    pub ends: Vec<End>,
    /// Maximum size of the file in bytes.
    pub most_bytes: u64,
    /// Sockets at that time: they describe connections without recorded SYNs.
    pub sockets: Vec<TcpSocket>,
    /// Packets as they passed next to this end of connections with both ends here; `None` for each packet once.
    pub near: Option<Side>,
}

impl Wanted {
    fn has(&self, segment: &Segment<'_>) -> bool {
        let of_these = |end: &End| end.is(&segment.source) || end.is(&segment.destination);
        self.ends.is_empty() || self.ends.iter().any(of_these)
    }
}

/// An endpoint of a connection; a missing address or port matches any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
}

impl End {
    fn is(&self, endpoint: &Endpoint) -> bool {
        self.address.is_none_or(|address| address.to_canonical() == endpoint.ip())
            && self.port.is_none_or(|port| port == endpoint.port)
    }
}

impl End {
    /// Whether the address matches this endpoint.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        self.address.is_none_or(|own| own.to_canonical() == address.ip().to_canonical())
            && self.port.is_none_or(|port| port == address.port())
    }
}

/// A copied part of the ring.
#[derive(Debug)]
pub(crate) struct Copied {
    /// A pcapng file.
    pub file: Vec<u8>,
    /// Link type of its packets.
    pub link: LinkType,
    /// Time range in which it contains every packet that the ring did not lose, Unix nanoseconds.
    pub from_ns: i64,
    pub to_ns: i64,
    pub packets: u64,
    /// How its connections were opened.
    pub opened: Opened,
    /// Number of omitted copies: packets that passed several interfaces are included once. Near one end, also what did
    /// not pass there.
    pub copies: u64,
    /// Number of connections without an interface next to the end that was asked for.
    pub not_near: u64,
    /// Packets of the time range that were omitted for lack of room, at its end.
    pub left_out: u64,
    /// How much of each packet was kept for lack of room, and which connections.
    pub fit: Fit,
    /// Packets shorter than configured, and the minimum number of bytes of one.
    pub cut: (u64, usize),
    /// Packets lost since the ring was opened.
    pub lost: u64,
    /// Packets that opened or closed connections and came too fast to be kept apart, since then.
    pub unseen: u64,
}

type Reply = Sender<io::Result<Copied>>;

/// The thread that owns the ring.
pub(crate) struct Packets {
    asks: Mutex<Sender<(Wanted, Reply)>>,
    state: Arc<Mutex<v1::Ring>>,
    /// Recent cost of the program that takes packets, as a share of one CPU.
    probe_share: Arc<Mutex<f64>>,
    /// Bytes kept per packet; 0 for the configured number.
    reduced_to: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Description of the captured traffic.
    pub what: String,
    pub lacks: Vec<String>,
}

impl Packets {
    /// Opens the ring. `say` receives messages about later events.
    pub fn start(settings: &Settings, say: crate::settings::Say) -> Result<Packets, RingError> {
        let canary = Canary::new();
        let openings = Arc::new(Mutex::new(Openings::new(settings.shares().openings)));
        let opener = Opener::new(settings, canary.as_ref().map(|canary| canary.port), &openings)?;
        let (history, why_ring) = opener.open()?;
        let mut lacks = Vec::new();
        if canary.is_none() {
            lacks.push(
                "whether the ring of packets has stopped: no packet can be sent over loopback here".into(),
            );
        }
        // Without the right to load programs, the events lack as well, and say why.
        lacks.extend(why_ring.map(|why| {
            format!("what taking packets costs: they are taken by the kernel's own ring, which costs more than a program ({why})")
        }));
        let state = Arc::new(Mutex::new(v1::Ring::default()));
        let probe_share = Arc::new(Mutex::new(0.0));
        let stop = Arc::new(AtomicBool::new(false));
        let (asks, asked) = channel();
        let what = match &settings.interfaces[..] {
            [] => "all interfaces".to_owned(),
            some => some.join(", "),
        };
        let reduced_to = Arc::new(AtomicU32::new(0));
        let mut keeper = Keeper {
            history,
            openings,
            canary,
            state: state.clone(),
            probe_share: probe_share.clone(),
            reduced_to: reduced_to.clone(),
            reach: Reach::new(settings.snap_bytes),
            written: (Instant::now(), 0),
            snap_bytes: settings.snap_bytes,
            gone: None,
            taken: 0,
            lost: 0,
        };
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("packets".into()).spawn(move || {
            keeper.keep(&asked, &stopped, &opener, &say);
        });
        let thread = thread.map_err(|error| RingError::Refused {
            doing: "start a thread for",
            interface: what.clone(),
            error,
            hint: "",
        })?;
        let thread = Mutex::new(Some(thread));
        Ok(Packets { asks: Mutex::new(asks), state, probe_share, reduced_to, stop, thread, what, lacks })
    }

    /// State of the ring.
    pub fn ring(&self) -> v1::Ring {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Recent cost of the program that takes packets, as a share of one CPU; 0 if it is not taken by one.
    pub fn probe_share(&self) -> f64 {
        *self.probe_share.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes kept per packet, if fewer than configured: otherwise the ring would not reach back far enough.
    pub fn reduced_to(&self) -> Option<u32> {
        Some(self.reduced_to.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Copies a part of the ring. Blocks for some tenths of a second.
    ///
    /// # Errors
    /// When the ring is gone.
    pub fn copy(&self, wanted: Wanted) -> io::Result<Copied> {
        let gone = || io::Error::other("the ring of packets is gone");
        let (reply, answer) = channel();
        let asked = self.asks.lock().unwrap_or_else(PoisonError::into_inner).send((wanted, reply));
        asked.map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }

    /// Ends the thread and frees the memory.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A thread that panicked has printed it.
        let _ended = thread.map(JoinHandle::join);
    }
}

fn lock(openings: &Mutex<Openings>) -> MutexGuard<'_, Openings> {
    openings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A datagram from this process to itself.
struct Canary {
    socket: UdpSocket,
    port: u16,
    sent: Option<i64>,
    next: Instant,
    counts: (u64, u64),
    missed: u32,
}

impl Canary {
    fn new() -> Option<Canary> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let own = socket.local_addr().ok()?;
        socket.connect(own).ok()?;
        socket.set_nonblocking(true).ok()?;
        // Loopback may be down, as in a new namespace.
        socket.send(b"spangap canary").ok()?;
        Some(Canary { socket, port: own.port(), sent: None, next: Instant::now(), counts: (0, 0), missed: 0 })
    }

    /// Sends a canary when it is due, and looks for the previous one when it must have arrived.
    fn look(&mut self, history: &History) {
        let now_ns = unix_ns();
        if let Some(sent_ns) = self.sent.filter(|sent_ns| now_ns >= sent_ns + CANARY_LATE_NS) {
            self.sent = None;
            // Half a second is long for a datagram over loopback; its block is closed by now.
            let seen = history.packets_between(sent_ns - 1_000_000, now_ns, |packet| {
                if is_to_port(packet, self.port) { Err(()) } else { Ok(()) }
            });
            if seen.is_err() {
                self.counts.1 += 1;
                self.missed = 0;
            } else {
                self.missed += 1;
            }
        }
        if self.sent.is_none() && Instant::now() >= self.next {
            self.next = Instant::now() + CANARY_EVERY;
            while self.socket.recv(&mut [0; 64]).is_ok() {}
            if self.socket.send(b"spangap canary").is_ok() {
                self.counts.0 += 1;
                self.sent = Some(now_ns);
            }
        }
    }
}

/// Whether the packet is a datagram from this port over IPv4, as in the ring: cooked, without IP options.
fn is_to_port(packet: &Packet<'_>, port: u16) -> bool {
    const COOKED: usize = 20;
    const IPV4: usize = 20;
    packet.link == LinkType::LINUX_SLL2
        && packet.data.get(COOKED + 9) == Some(&17)
        && packet.data.get(COOKED + IPV4 + 2..COOKED + IPV4 + 4) == Some(&port.to_be_bytes()[..])
}

struct Keeper {
    history: History,
    openings: Arc<Mutex<Openings>>,
    canary: Option<Canary>,
    state: Arc<Mutex<v1::Ring>>,
    probe_share: Arc<Mutex<f64>>,
    reduced_to: Arc<AtomicU32>,
    reach: Reach,
    /// Time and position of the last check of bytes written to the ring.
    written: (Instant, u64),
    snap_bytes: u32,
    gone: Option<io::Error>,
    /// Counts of previous rings.
    taken: u64,
    lost: u64,
}

impl Keeper {
    fn keep(
        &mut self,
        asked: &Receiver<(Wanted, Reply)>,
        stop: &AtomicBool,
        opener: &Opener,
        say: &crate::settings::Say,
    ) {
        let mut told = None::<Instant>;
        let mut weighed = Instant::now();
        while !stop.load(Relaxed) {
            if let Err(error) = self.history.go_on() {
                // One interface among all is gone: the others continue.
                self.gone = Some(error);
            }
            match asked.try_recv() {
                Ok((wanted, reply)) => {
                    // The requester may be gone.
                    let _gone = reply.send(self.copy(&wanted));
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            if let Some(canary) = &mut self.canary {
                canary.look(&self.history);
                if canary.missed >= STOPPED_AFTER {
                    canary.missed = 0;
                    say(&format!(
                        "{STOPPED_AFTER} canaries in a row did not reach the ring of packets; reopening it"
                    ));
                    match opener.open() {
                        Ok((history, _)) => self.replace(history),
                        Err(error) => say(&error.to_string()),
                    }
                }
            }
            if self.written.0.elapsed() >= reach::EVERY {
                self.look_at_reach(opener, say);
            }
            if weighed.elapsed() >= WEIGH_EVERY {
                weighed = Instant::now();
                let share = self.history.weigh().unwrap_or(0.0);
                *self.probe_share.lock().unwrap_or_else(PoisonError::into_inner) = share;
            }
            if told.is_none_or(|told| told.elapsed() >= Duration::from_millis(250)) {
                told = Some(Instant::now());
                self.tell();
            }
        }
    }

    /// Adjusts the bytes kept per packet, so that the ring reaches back far enough.
    fn look_at_reach(&mut self, opener: &Opener, say: &crate::settings::Say) {
        let (looked, written) = self.written;
        let now = self.history.written_bytes();
        self.written = (Instant::now(), now);
        let room = self.history.kept_bytes_at_most();
        let before = self.reach.reduced_to();
        let Some(snap_bytes) = self.reach.look(now.saturating_sub(written), looked.elapsed(), room) else {
            return;
        };
        let snap_bytes = if snap_bytes == u32::MAX { 0 } else { snap_bytes };
        match self.history.keep_at_most(snap_bytes, opener) {
            Ok(()) => self.reduced_to.store(self.reach.reduced_to().unwrap_or(0), Relaxed),
            Err(error) => say(&format!("what is kept of each packet cannot be changed: {error}")),
        }
        match (before, self.reach.reduced_to()) {
            (None, Some(_)) => say(
                "traffic is heavy: less of each packet is kept, so that the ring still reaches back half a minute; \
                 the beginning of a packet matters most",
            ),
            (Some(_), None) => say("packets are kept in full length again"),
            _ => {}
        }
    }

    fn replace(&mut self, history: History) {
        if let Ok(counts) = self.history.counts() {
            self.taken += counts.taken;
            self.lost += counts.lost;
        }
        self.history = history;
        self.reach = Reach::new(self.snap_bytes);
        self.reduced_to.store(0, Relaxed);
        self.written = (Instant::now(), 0);
    }

    fn tell(&mut self) {
        let from_unix_ns = self.history.complete_since_ns();
        lock(&self.openings).forget_before(from_unix_ns);
        let Ok(counts) = self.history.counts() else { return };
        let (sent, seen) = self.canary.as_ref().map_or((0, 0), |canary| canary.counts);
        let waits = u64::from(self.canary.as_ref().is_some_and(|canary| canary.sent.is_some()));
        let state = v1::Ring {
            instrument: "capture".into(),
            from_unix_ns,
            to_unix_ns: unix_ns() - self.history.late_ns(),
            bytes: self.history.kept_bytes(),
            taken: self.taken + counts.taken,
            lost: self.lost + counts.lost,
            // A canary in transit is neither seen nor missed.
            canaries_sent: sent - waits,
            canaries_seen: seen,
        };
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Which packets of the time range are copies of others, and what of the rest fits.
    fn choose(&mut self, wanted: &Wanted, room: u64) -> (Copies, Fit) {
        let mut decoder = Decoder::default();
        let history = &mut self.history;
        let mut each = |see: &mut dyn FnMut(&Packet<'_>, &Segment<'_>)| {
            let passed = pass(history, wanted.from_ns, wanted.to_ns, |packet| {
                if let Ok(segment) = decoder.decode(packet)
                    && wanted.has(&segment)
                {
                    see(packet, &segment);
                }
                Ok::<(), std::convert::Infallible>(())
            });
            let Ok(_complete_since) = passed;
        };
        let (mut passes, mut sizes) = (Passes::new(wanted.near), Sizes::default());
        each(&mut |packet, segment| {
            passes.see(packet, segment, |end| wanted.ends.iter().any(|asked| asked.is(end)));
            sizes.see(segment, packet.data.len());
        });
        let mut copies = passes.chosen();
        if copies.are_compared() {
            each(&mut |packet, segment| copies.see(packet, segment));
        }
        if copies.are_possible() {
            sizes = Sizes::default();
            each(&mut |packet, segment| {
                if !copies.is_one(packet, segment) {
                    sizes.see(segment, packet.data.len());
                }
            });
        }
        (copies, sizes.fit(room))
    }

    fn copy(&mut self, wanted: &Wanted) -> io::Result<Copied> {
        self.history.catch_up()?;
        let counts = self.history.counts()?;
        // Earlier SYNs come first.
        let most_bytes = wanted.most_bytes / 16 * 15;
        let (mut copies, fit) = self.choose(wanted, most_bytes);
        let origin = Origin {
            interface: "any",
            link: self.history.link(),
            snap_bytes: 0,
            comment: "A slice of the ring of `spangap agent`",
        };
        let mut copied = Copied {
            from_ns: wanted.from_ns.max(self.history.complete_since_ns()),
            to_ns: wanted.to_ns.min(unix_ns()),
            lost: self.lost + counts.lost,
            file: Vec::new(),
            link: origin.link,
            packets: 0,
            opened: Opened::default(),
            copies: 0,
            not_near: copies.not_near,
            left_out: 0,
            fit: fit.clone(),
            cut: (0, usize::MAX),
            unseen: self.history.unseen(),
        };
        let mut connections = Connections::default();
        let mut writer = PcapngWriter::create(Vec::new(), &origin)?;
        let mut decoder = Decoder::default();
        let complete_since_ns = pass(&mut self.history, wanted.from_ns, wanted.to_ns, |packet| {
            let segment = decoder.decode(packet);
            let matters = match &segment {
                Ok(segment) => wanted.has(segment),
                Err(why) => wanted.ends.is_empty() && !matches!(why, spangap_wire::decode::Unparsed::NotTcp),
            };
            if !matters {
                return Ok(());
            }
            if segment.as_ref().is_ok_and(|segment| copies.is_one(packet, segment)) {
                copied.copies += 1;
                return Ok(());
            }
            if segment.as_ref().is_ok_and(|segment| !fit.keeps(segment)) {
                return Ok(());
            }
            let packet = &Packet { data: &packet.data[..packet.data.len().min(fit.cut)], ..*packet };
            if copied.left_out > 0 || writer.bytes + packet.data.len() as u64 + 64 > most_bytes {
                if copied.left_out == 0 {
                    copied.to_ns = copied.to_ns.min(packet.time_ns - 1);
                }
                copied.left_out += 1;
                return Ok(());
            }
            copied.packets += 1;
            let kept = packet.data.len();
            let is_meant = self.snap_bytes != 0 && kept >= self.snap_bytes as usize;
            if kept < packet.wire_len as usize && !is_meant {
                copied.cut = (copied.cut.0 + 1, copied.cut.1.min(kept));
            }
            if let Ok(segment) = &segment {
                connections.see(segment);
            }
            writer.packet(packet)
        })?;
        copied.from_ns = copied.from_ns.max(complete_since_ns);
        let openings = lock(&self.openings);
        let (begin, most_bytes) = (copied.from_ns, wanted.most_bytes / 16);
        copied.opened = connections.opened(&openings, &wanted.sockets, begin, most_bytes);
        drop(openings);
        copied.file = writer.finish(copied.to_ns, counts.taken + counts.lost, counts.lost)?;
        if !copied.opened.openings.is_empty() {
            put_before(&mut copied.file, &origin, &copied.opened)?;
        }
        Ok(copied)
    }
}

/// Shows the packets of a time, a second at a time: in between, a ring gets blocks back, so that it loses nothing while a copy
/// takes long. Returns since when none of them is missing.
fn pass<E>(
    history: &mut History,
    from_ns: i64,
    to_ns: i64,
    mut take: impl FnMut(&Packet<'_>) -> Result<(), E>,
) -> Result<i64, E> {
    let (mut begin_ns, mut complete_since_ns) = (from_ns, from_ns);
    loop {
        let end_ns = begin_ns.max(history.complete_since_ns()).saturating_add(PASS_NS);
        let is_last = end_ns >= to_ns || history.last_ns().is_none_or(|last_ns| end_ns >= last_ns);
        history.packets_between(begin_ns, if is_last { to_ns } else { end_ns }, &mut take)?;
        // Known afterwards: nothing waits for whoever reads.
        let held_since_ns = history.complete_since_ns();
        if held_since_ns > begin_ns {
            complete_since_ns = held_since_ns;
        }
        if is_last {
            return Ok(complete_since_ns);
        }
        begin_ns = end_ns + 1;
        history.advance();
    }
}

/// Inserts earlier SYNs between the head of a file and its packets.
fn put_before(file: &mut Vec<u8>, origin: &Origin<'_>, opened: &Opened) -> io::Result<()> {
    let mut writer = PcapngWriter::create(Vec::new(), origin)?;
    let head = writer.bytes as usize;
    for opening in &opened.openings {
        writer.opening(opening)?;
    }
    let before = writer.into_inner();
    file.splice(head..head, before.into_iter().skip(head));
    Ok(())
}
