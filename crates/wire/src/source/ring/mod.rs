//! A live ring: the kernel writes packets of an interface into memory that this process sees (AF_PACKET with
//! TPACKET_V3, Linux Documentation/networking/packet_mmap.rst), and the last blocks stay there until they are wanted.
//!
//! Nothing is copied while nobody asks: blocks that the kernel has filled are kept, and the oldest is handed back when
//! fewer than an eighth are left for the kernel to write to.
//!
//! Everything `unsafe` about the ring is here and in `socket.rs`.

#![allow(unsafe_code)]

mod frames;
mod geometry;
mod interface;
mod socket;

use super::filter::{Instruction, LoopbackOnce};
use crate::packet::Packet;
use frames::{frames, offset, time_ns, word};
use geometry::{free_blocks, geometry, pause_ms};
pub use interface::{Interface, RingError};
use socket::{attach, bind, get_option, set_option};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Packets that passed the filter, including dropped ones.
    pub received: u64,
    /// Packets that found no room.
    pub dropped: u64,
    /// How often the kernel found every block in use.
    pub stalls: u64,
}

/// How long a block may stay open while packets are rare: packets become visible after this time.
pub const BLOCK_TIMEOUT_MS: u32 = 100;
/// Rounds after which a block that should have been closed is no longer awaited.
const CATCH_UP_ROUNDS: u32 = 40;
/// How far the times of adjacent packets in a block may be out of order.
const BLOCK_SLACK_NS: i64 = 100_000_000;

/// Socket option (include/uapi/linux/if_packet.h, Linux 4.20).
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Memory shared with the kernel.
struct Mapping {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is unmapped once, whichever thread holds it.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `length` are those of a mapping made in `Ring::open`, and nothing borrows from it any
        // more: every borrow of it goes through a borrow of the ring.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// A ring that the kernel is writing to.
pub struct Ring {
    socket: OwnedFd,
    memory: Mapping,
    block_bytes: usize,
    blocks: usize,
    /// The oldest block kept, and the number of kept blocks.
    oldest: usize,
    kept: usize,
    interface: Interface,
    counts: RingCounts,
    complete_since_ns: i64,
    /// Number of packets in all blocks closed so far, and their bytes.
    closed_packets: u64,
    closed_bytes: u64,
    /// Sees packets with one of these TCP flags as soon as their block is closed.
    watcher: Option<(u8, Watcher)>,
}

/// Sees some packets of a ring.
pub type Watcher = Box<dyn FnMut(&Packet<'_>) + Send>;

impl Ring {
    /// Starts to capture with a program that keeps `snap_bytes` of each packet (0: all). About `ring_bytes` of memory are taken;
    /// seven of eight blocks of it hold packets.
    ///
    /// # Errors
    /// [`RingError`], most often for want of privilege.
    pub fn open(
        interface: &Interface,
        program: &[Instruction],
        snap_bytes: u32,
        ring_bytes: u64,
    ) -> Result<Ring, RingError> {
        let refused = |doing, hint| {
            let interface = interface.name.clone();
            move |error| RingError::Refused { doing, interface, error, hint }
        };
        let privilege = "; it needs CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` on the binary";
        let kind = if interface.index == 0 { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
        // Protocol zero: nothing is received before the filter is in place.
        // SAFETY: no memory is passed.
        let descriptor = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
        if descriptor < 0 {
            return Err(refused("capture on", privilege)(io::Error::last_os_error()));
        }
        // SAFETY: it was just opened, and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };

        if interface.once == LoopbackOnce::All {
            // The filter drops what leaves, since it comes in again; but each packet would be cloned for it. Before Linux 4.20
            // the kernel does not know the option, and the filter alone does it.
            let _ = set_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1);
        }
        attach(&socket, program)
            .map_err(refused("set the filter on", "; is it longer than 4096 instructions?"))?;
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(refused("set up the ring of", "; it needs Linux 3.2"))?;
        let (block_bytes, blocks) = geometry(ring_bytes, snap_bytes);
        let request = libc::tpacket_req3 {
            tp_block_size: block_bytes as u32,
            tp_block_nr: blocks as u32,
            // Only a divisor is required: in this version, frames have any length.
            tp_frame_size: 2048,
            tp_frame_nr: (block_bytes / 2048 * blocks) as u32,
            tp_retire_blk_tov: BLOCK_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(refused("set up the ring of", "; try a smaller --ring"))?;
        let length = block_bytes * blocks;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(refused("map the ring of", "")(io::Error::last_os_error()));
        }
        let memory = Mapping { start: start.cast(), length };
        bind(&socket, interface.index).map_err(refused("listen on", ""))?;
        let interface = interface.clone();
        Ok(Ring {
            socket,
            memory,
            block_bytes,
            blocks,
            oldest: 0,
            kept: 0,
            interface,
            counts: RingCounts::default(),
            complete_since_ns: now_ns(),
            closed_packets: 0,
            closed_bytes: 0,
            watcher: None,
        })
    }

    /// From now on `watcher` sees each TCP packet with one of these flags once its block is closed, whether it is kept for
    /// long or not. Packets in tunnels are not looked into.
    pub fn watch(&mut self, flags: u8, watcher: Watcher) {
        self.watcher = Some((flags, watcher));
    }

    /// Packets are taken by another program from now on, which may keep another part of each.
    ///
    /// # Errors
    /// When the kernel refuses it; then the program before it stays.
    pub fn refilter(&self, program: &[Instruction]) -> io::Result<()> {
        attach(&self.socket, program)
    }

    /// Bytes that all packets have used in the ring so far, including those no longer there.
    pub fn written_bytes(&self) -> u64 {
        self.closed_bytes
    }

    /// Shows the packets of a block that was just closed.
    fn show(&mut self, block: usize) {
        let Some((flags, mut watcher)) = self.watcher.take() else { return };
        let (link, mut scratch) = (self.interface.link, Vec::new());
        for frame in frames(self.block(block)) {
            if frame.tcp_flags(link).is_some_and(|has| has & flags != 0) {
                watcher(&frame.packet(0, link, &mut scratch));
            }
        }
        self.watcher = Some((flags, watcher));
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Maximum number of bytes that hold packets when the ring is full.
    pub fn kept_bytes_at_most(&self) -> usize {
        self.block_bytes * (self.blocks - free_blocks(self.blocks))
    }

    /// Waits for a while, or until the interface is gone. Not for packets: the kernel calls a ring readable as long as
    /// its last block has not been handed back, and here it is kept.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn wait(&self, timeout_ms: i32) -> io::Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one pollfd is passed, and its number.
        let ready = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        if poll.revents & libc::POLLERR != 0 {
            let mut pending: libc::c_int = 0;
            get_option(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut pending)?;
            if pending != 0 {
                return Err(io::Error::from_raw_os_error(pending));
            }
        }
        Ok(())
    }

    /// How long may be waited after `filled` blocks came in `after_ms`, so that the kernel does not run out of blocks.
    pub fn pause_ms(&self, filled: usize, after_ms: i32) -> i32 {
        pause_ms(free_blocks(self.blocks), self.block_bytes, filled, after_ms)
    }

    /// Registers newly filled blocks, and returns the oldest ones to the kernel where room is needed. Returns
    /// the number of newly filled blocks.
    pub fn advance(&mut self) -> usize {
        let mut filled = 0;
        while self.kept < self.blocks && self.is_filled((self.oldest + self.kept) % self.blocks) {
            let block = (self.oldest + self.kept) % self.blocks;
            self.kept += 1;
            filled += 1;
            self.closed_packets += word(self.block(block), offset::BLOCK_PACKETS) as u64;
            self.closed_bytes += word(self.block(block), offset::BLOCK_LENGTH) as u64;
            self.show(block);
            if self.kept > self.blocks - free_blocks(self.blocks) {
                self.release_oldest();
            }
        }
        filled
    }

    /// Waits until every packet received by now can be seen: the kernel closes a block that is not full after
    /// [`BLOCK_TIMEOUT_MS`].
    ///
    /// # Errors
    /// When the interface is gone or the kernel does not tell its counts.
    pub fn catch_up(&mut self) -> io::Result<()> {
        let counts = self.counts()?;
        for _ in 0..CATCH_UP_ROUNDS {
            self.advance();
            if self.closed_packets + counts.dropped >= counts.received {
                break;
            }
            self.wait(BLOCK_TIMEOUT_MS as i32 / 4)?;
        }
        Ok(())
    }

    /// Hands every packet kept to `take`, oldest first; numbers count from 1 in the order of the ring.
    ///
    /// # Errors
    /// Those of `take`, which end it.
    pub fn packets<E>(&self, mut take: impl FnMut(&Packet<'_>) -> Result<(), E>) -> Result<u64, E> {
        let mut number = 0;
        let mut scratch = Vec::new();
        for n in 0..self.kept {
            let block = self.block((self.oldest + n) % self.blocks);
            for frame in frames(block) {
                number += 1;
                let link = self.interface.link;
                take(&frame.packet(number, link, &mut scratch))?;
            }
        }
        Ok(number)
    }

    /// Hands every packet kept of a stretch of time to `take`, oldest first; blocks outside of it are not looked at.
    ///
    /// # Errors
    /// Those of `take`, which end it.
    pub fn packets_between<E>(
        &self,
        from_ns: i64,
        to_ns: i64,
        mut take: impl FnMut(&Packet<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut number = 0;
        let mut scratch = Vec::new();
        for n in 0..self.kept {
            let block = self.block((self.oldest + n) % self.blocks);
            if time_ns(block, offset::BLOCK_LAST_TIME) < from_ns {
                continue;
            }
            // Packets from several CPUs enter a block nearly, but not exactly, in order of time.
            if frames(block).next().is_some_and(|first| first.time_ns > to_ns + BLOCK_SLACK_NS) {
                break;
            }
            for frame in frames(block).filter(|frame| (from_ns..=to_ns).contains(&frame.time_ns)) {
                number += 1;
                take(&frame.packet(number, self.interface.link, &mut scratch))?;
            }
        }
        Ok(number)
    }

    /// Time of the last kept packet, Unix nanoseconds.
    pub fn last_ns(&self) -> Option<i64> {
        let last = self.kept.checked_sub(1)?;
        Some(time_ns(self.block((self.oldest + last) % self.blocks), offset::BLOCK_LAST_TIME))
    }

    /// Bytes of the blocks that currently hold packets.
    pub fn kept_bytes(&self) -> usize {
        self.block_bytes * self.kept
    }

    /// Memory of the ring, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.memory.length
    }

    /// Returns every kept block to the kernel.
    pub fn release_all(&mut self) {
        while self.kept > 0 {
            self.release_oldest();
        }
    }

    /// Since when every packet that was not dropped is kept, Unix nanoseconds.
    pub fn complete_since_ns(&self) -> i64 {
        self.complete_since_ns
    }

    /// What the kernel counted since the ring was opened.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn counts(&mut self) -> io::Result<RingCounts> {
        // struct tpacket_stats_v3: packets, drops, stalls; reading sets them to zero.
        let mut since = [0u32; 3];
        get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut since)?;
        self.counts.received += since[0] as u64;
        self.counts.dropped += since[1] as u64;
        self.counts.stalls += since[2] as u64;
        Ok(self.counts)
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        debug_assert!(block < self.blocks);
        // SAFETY: the word lies inside of the mapping, is aligned (blocks begin at pages), lives as long as `self`,
        // and both kernel and process only access it atomically.
        unsafe {
            AtomicU32::from_ptr(
                self.memory.start.add(block * self.block_bytes + offset::BLOCK_STATUS).cast::<u32>(),
            )
        }
    }

    fn is_filled(&self, block: usize) -> bool {
        self.status(block).load(Ordering::Acquire) & 1 != 0
    }

    /// The bytes of a block that is kept.
    fn block(&self, block: usize) -> &[u8] {
        debug_assert!((block + self.blocks - self.oldest) % self.blocks < self.kept);
        // SAFETY: it lies inside of the mapping, and the kernel does not write to a filled block until it is handed
        // back, which takes a mutable borrow of the ring.
        unsafe {
            std::slice::from_raw_parts(self.memory.start.add(block * self.block_bytes), self.block_bytes)
        }
    }

    fn release_oldest(&mut self) {
        let block = self.block(self.oldest);
        let last_ns = time_ns(block, offset::BLOCK_LAST_TIME);
        self.complete_since_ns = self.complete_since_ns.max(last_ns + 1);
        self.status(self.oldest).store(0, Ordering::Release);
        self.oldest = (self.oldest + 1) % self.blocks;
        self.kept -= 1;
    }
}

fn now_ns() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
