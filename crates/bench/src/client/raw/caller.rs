//! A thread that calls over the channels assigned to it.

use super::books::Accounts;
use super::lane::{Interest, Lane};
use crate::clock;
use crate::contract::Pace;
use crate::schedule::Schedule;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use tonic::Code;

/// Buffer size of a read.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of events per wait.
const EVENTS: usize = 256;
/// Upper bound on how long a wait may delay noticing a stop.
const LONGEST_WAIT_NS: u64 = 50_000_000;
/// If nothing is due for this long, a read without a separate timer suffices.
const NOTHING_DUE_NS: u64 = 25_000_000;
/// Maximum number of overdue calls sent before responses are read.
const LATE_CALLS: u32 = 64;

/// A calling thread.
pub struct Caller {
    books: Accounts,
    lanes: Vec<Lane>,
    /// Event registration of each lane's socket; `None` without a socket.
    registered: Vec<Option<(i32, Interest)>>,
    epoll: OwnedFd,
    buffer: Vec<u8>,
    /// Lower bound of the time at which a lane has work that no event announces.
    tick_ns: u64,
    /// Whether no call starts any more.
    over: bool,
}

impl Caller {
    /// # Errors The kernel provides no descriptor.
    pub fn new(books: Accounts, lanes: Vec<Lane>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let registered = vec![None; lanes.len()];
        let buffer = vec![0; READ_BYTES];
        Ok(Caller { books, lanes, registered, epoll, buffer, tick_ns: 0, over: false })
    }

    /// Calls until the session is over and every call has ended.
    ///
    /// # Errors
    /// The kernel does not report events.
    pub fn run(mut self, start_ns: u64) -> io::Result<()> {
        clock::cut_timer_slack();
        for at in 0..self.lanes.len() {
            self.attend(at)?;
        }
        match self.books.settings().pace {
            Pace::Closed => self.closed_loop(),
            Pace::Open(schedule) => self.open_loop(schedule, start_ns),
        }
    }

    fn closed_loop(&mut self) -> io::Result<()> {
        loop {
            let now_ns = clock::monotonic_ns();
            if self.is_done(now_ns, u64::MAX) {
                return Ok(());
            }
            self.wait_and_read(now_ns, self.books.session.end_ns())?;
        }
    }

    fn open_loop(&mut self, schedule: Schedule, start_ns: u64) -> io::Result<()> {
        let due_ns = |n| start_ns.saturating_add(schedule.intended_ns(n));
        let (mut next, mut lane) = (0u64, 0usize);
        loop {
            let mut now_ns = clock::monotonic_ns();
            // A call that was due in time is made, however late.
            if self.is_done(now_ns, due_ns(next)) {
                return Ok(());
            }
            let mut looked = false;
            let mut batch = 0;
            while !self.over && batch < LATE_CALLS && due_ns(next) <= now_ns {
                lane = match self.free_lane(lane) {
                    Some(free) => free,
                    // A response that has arrived makes room for this call.
                    None if !looked => {
                        looked = true;
                        self.wait_and_read(now_ns, 0)?;
                        now_ns = clock::monotonic_ns();
                        continue;
                    }
                    None => usize::MAX,
                };
                let due_ns = due_ns(next);
                let Some(phase) = self.books.session.admit(due_ns) else {
                    self.over = true;
                    break;
                };
                next += 1;
                batch += 1;
                match self.lanes.get_mut(lane) {
                    Some(free) => {
                        free.launch(&mut self.books, 1, phase, Some(due_ns), now_ns);
                        self.attend(lane)?;
                        lane += 1;
                        now_ns = clock::monotonic_ns();
                    }
                    None => {
                        self.books.tally.lock().skipped(phase);
                        lane = 0;
                    }
                }
            }
            let until_ns = if self.over { u64::MAX } else { due_ns(next).min(self.books.session.end_ns()) };
            self.wait_and_read(now_ns, until_ns)?;
        }
    }

    /// The first lane at or after `from` with an idle worker.
    fn free_lane(&self, from: usize) -> Option<usize> {
        let count = self.lanes.len();
        (0..count).map(|n| (from + n) % count).find(|&at| self.lanes[at].idle > 0)
    }

    /// Whether every call has ended and none will start; the next one is not due before `next_ns`.
    fn is_done(&mut self, now_ns: u64, next_ns: u64) -> bool {
        let session = &self.books.session;
        let end_ns = session.end_ns();
        self.over |= next_ns >= end_ns && now_ns >= end_ns;
        if now_ns >= session.give_up_ns() {
            let books = &mut self.books;
            let lanes = self.lanes.iter_mut();
            lanes.for_each(|lane| lane.end_all(books, Code::Cancelled, "stopped before the response came"));
        }
        self.over && self.lanes.iter().all(|lane| lane.live() == 0)
    }

    /// Waits for responses from `now_ns` until `until_ns` at most, and handles them.
    fn wait_and_read(&mut self, now_ns: u64, until_ns: u64) -> io::Result<()> {
        if let [lane] = &mut self.lanes[..] {
            self.tick_ns = lane.wake_ns();
            // Saves a system call in the common case.
            if lane.only_reads() && self.tick_ns.min(until_ns) > now_ns.saturating_add(NOTHING_DUE_NS) {
                lane.ready(&mut self.books, &mut self.buffer, true);
                return self.attend(0);
            }
        }
        let mut ahead_ns = self.tick_ns.min(until_ns).saturating_sub(now_ns).min(LONGEST_WAIT_NS);
        if ahead_ns < LONGEST_WAIT_NS {
            // Something is due: epoll alone would wait for whole milliseconds.
            let mut answers = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut answers, Some(&Timespec { tv_sec: 0, tv_nsec: ahead_ns as _ })) {
                Ok(_) | Err(Errno::INTR) => ahead_ns = 0,
                Err(error) => return Err(error.into()),
            }
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: ahead_ns as _ };
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let (ready, _) = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(parts) => parts,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in ready {
            let at = event.data.u64() as usize;
            self.lanes[at].ready(&mut self.books, &mut self.buffer, false);
            self.attend(at)?;
        }
        let now_ns = clock::monotonic_ns();
        if now_ns >= self.tick_ns {
            self.tick_ns = u64::MAX;
            for at in 0..self.lanes.len() {
                self.lanes[at].tick(&mut self.books, now_ns);
                self.attend(at)?;
            }
        }
        Ok(())
    }

    /// Handles a lane after any change: idle workers of a closed loop call, pending bytes are sent, and the
    /// socket's registration is updated.
    fn attend(&mut self, at: usize) -> io::Result<()> {
        let lane = &mut self.lanes[at];
        if lane.idle > 0 && !self.over && self.books.settings().pace == Pace::Closed {
            let now_ns = clock::monotonic_ns();
            match self.books.session.admit_many(now_ns, lane.idle) {
                Some((phase, calls)) => lane.launch(&mut self.books, calls, phase, None, now_ns),
                None => self.over = true,
            }
        }
        lane.flush(&mut self.books);
        self.tick_ns = self.tick_ns.min(lane.wake_ns());
        self.register(at)
    }

    fn register(&mut self, at: usize) -> io::Result<()> {
        use rustix::fd::AsRawFd;
        let lane = &self.lanes[at];
        let Some(socket) = lane.socket() else {
            // Closing a socket removed its registration.
            self.registered[at] = None;
            return Ok(());
        };
        let wanted = Some((socket.as_raw_fd(), lane.interest()));
        if self.registered[at] == wanted {
            return Ok(());
        }
        let Interest { read, write } = lane.interest();
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, read);
        flags.set(epoll::EventFlags::OUT, write);
        let data = epoll::EventData::new_u64(at as u64);
        match epoll::modify(&self.epoll, socket, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, socket, data, flags)?,
            modified => modified?,
        }
        self.registered[at] = wanted;
        Ok(())
    }
}
