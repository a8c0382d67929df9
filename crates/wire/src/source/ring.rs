//! A live ring: the kernel writes packets of an interface into memory that this process sees (AF_PACKET with
//! TPACKET_V3, Linux Documentation/networking/packet_mmap.rst), and the last blocks stay there until they are wanted.
//!
//! Nothing is copied while nobody asks: blocks that the kernel has filled are kept, and the oldest is handed back when
//! fewer than an eighth are left for the kernel to write to.
//!
//! A long file, so that everything `unsafe` about the ring is in one place.

#![allow(unsafe_code)]

use super::filter::{Instruction, LoopbackOnce};
use crate::packet::{LinkType, Packet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// The ring cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refused.
    #[error("cannot {doing} {interface}: {error}{hint}")]
    Refused {
        /// The attempted operation, as a verb.
        doing: &'static str,
        /// On which interface.
        interface: String,
        /// Why not.
        error: io::Error,
        /// A possible remedy, with a separator before it; empty if there is none.
        hint: &'static str,
    },
    /// Interfaces of this kind have headers this does not know.
    #[error(
        "{interface}: interfaces of hardware type {hardware} are not understood; expected Ethernet, loopback or a tunnel without link header"
    )]
    Hardware {
        /// Its name.
        interface: String,
        /// ARPHRD_* of it.
        hardware: u16,
    },
}

/// An interface to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name; `any` for all.
    pub name: String,
    /// Its index; zero for all.
    pub index: u32,
    /// How its packets begin.
    pub link: LinkType,
    /// How to treat packets that pass the tap twice.
    pub once: LoopbackOnce,
}

/// Hardware types (include/uapi/linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_WITHOUT_HEADER: [u16; 6] = [512, 768, 769, 776, 778, 65534];

impl Interface {
    /// Looks an interface up by its name; `any` listens on all.
    ///
    /// # Errors
    /// When there is none, or its packets begin in a way this does not understand.
    pub fn find(name: &str) -> Result<Interface, RingError> {
        let refused = |error| RingError::Refused {
            doing: "find the interface",
            interface: name.into(),
            error,
            hint: "; `ip link` lists them, and `any` is all of them",
        };
        let number = |name: &str, file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"))?;
            text.trim().parse::<u32>().map_err(io::Error::other)
        };
        if name == "any" {
            let once = number("lo", "ifindex").map(LoopbackOnce::Index).unwrap_or(LoopbackOnce::No);
            return Ok(Interface { name: name.into(), index: 0, link: LinkType::LINUX_SLL2, once });
        }
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(refused(io::Error::from(io::ErrorKind::NotFound)));
        }
        let index = number(name, "ifindex").map_err(refused)?;
        let hardware = number(name, "type").map_err(refused)? as u16;
        let (link, once) = match hardware {
            ARPHRD_ETHER => (LinkType::ETHERNET, LoopbackOnce::No),
            ARPHRD_LOOPBACK => (LinkType::ETHERNET, LoopbackOnce::All),
            other if ARPHRD_WITHOUT_HEADER.contains(&other) => (LinkType::RAW, LoopbackOnce::No),
            hardware => return Err(RingError::Hardware { interface: name.into(), hardware }),
        };
        Ok(Interface { name: name.into(), index, link, once })
    }
}

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
/// If at most this is kept of a packet, 32 KiB are enough for it, its header and its neighbours.
const SMALL_SNAP: u32 = 16 << 10;
/// One block in this many is left to the kernel, at least two.
const FREE_SHARE: usize = 8;

/// Bytes that may come in a millisecond after a silence before any is lost: 2.5 Gbit/s of what is kept.
const SUDDEN_BYTES_PER_MS: usize = 312_500;

/// Socket option (include/uapi/linux/if_packet.h, Linux 4.20).
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Fields of `struct tpacket_block_desc` and `tpacket3_hdr` (include/uapi/linux/if_packet.h), by offset.
mod offset {
    pub const BLOCK_STATUS: usize = 8;
    pub const BLOCK_PACKETS: usize = 12;
    pub const BLOCK_FIRST: usize = 16;
    pub const BLOCK_LENGTH: usize = 20;
    pub const BLOCK_LAST_TIME: usize = 40;
    pub const NEXT: usize = 0;
    pub const TIME: usize = 4;
    pub const CAPTURED: usize = 12;
    pub const LENGTH: usize = 16;
    pub const STATUS: usize = 20;
    pub const MAC: usize = 24;
    pub const NET: usize = 26;
    pub const VLAN_TCI: usize = 32;
    pub const VLAN_TPID: usize = 36;
    /// `struct sockaddr_ll` behind the aligned header.
    pub const ADDRESS: usize = 48;
}

/// Memory shared with the kernel.
struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is unmapped once, whichever thread holds it.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` and `length` are those of a mapping made in `Ring::open`, and nothing borrows from it any
        // more: every borrow of it goes through a borrow of the ring.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// A ring that the kernel is writing to.
pub struct Ring {
    socket: OwnedFd,
    memory: Memory,
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
        let memory = Memory { start: start.cast(), length };
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

fn free_blocks(blocks: usize) -> usize {
    (blocks / FREE_SHARE).max(2)
}

/// Each look takes a moment from whoever runs on that CPU, so there are no more of them than needed: at the pace of the last pause, a
/// quarter of the free blocks is filled in the next one. From silence, packets may come at [`SUDDEN_BYTES_PER_MS`] at once.
fn pause_ms(free_blocks: usize, block_bytes: usize, filled: usize, after_ms: i32) -> i32 {
    let free_bytes = free_blocks.saturating_mul(block_bytes);
    let longest_ms = (free_bytes / SUDDEN_BYTES_PER_MS).clamp(10, 40);
    let at_pace_ms = (free_blocks * after_ms.max(1) as usize).checked_div(4 * filled);
    at_pace_ms.unwrap_or(longest_ms).clamp(1, longest_ms) as i32
}

/// Size and number of the blocks: a power of two of pages. While packets are few, each block is closed by its timeout, so that
/// their number says how far a ring reaches back: one of 15 MiB has 480, which is 42 s.
///
/// A packet is in one block, so that `snap_bytes` of it need room there; 0: all of it.
fn geometry(ring_bytes: u64, snap_bytes: u32) -> (usize, usize) {
    let least = match snap_bytes {
        1..=SMALL_SNAP => 32 << 10,
        _ => 128 << 10,
    };
    let block_bytes = (ring_bytes / 1024).next_power_of_two().clamp(least, 1 << 20) as usize;
    (block_bytes, (ring_bytes as usize / block_bytes).max(8))
}

/// One packet as it lies in a block.
struct Frame<'a> {
    bytes: &'a [u8],
    time_ns: i64,
    captured: usize,
    length: u32,
    data_at: usize,
    /// VLAN protocol and tag that the kernel removed from the packet.
    vlan: Option<(u16, u16)>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// Seconds and nanoseconds of Unix time.
fn time_ns(bytes: &[u8], at: usize) -> i64 {
    word(bytes, at) as i64 * 1_000_000_000 + word(bytes, at + 4) as i64
}

fn now_ns() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}

/// The packets of a block. Offsets come from the kernel, and are checked all the same.
fn frames(block: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut left = word(block, offset::BLOCK_PACKETS);
    let mut at = word(block, offset::BLOCK_FIRST) as usize;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let bytes = block.get(at..)?;
        left -= 1;
        match word(bytes, offset::NEXT) {
            0 => left = 0,
            next => at += next as usize,
        }
        let status = word(bytes, offset::STATUS);
        let tag = |flag: u32, at| (status & flag != 0).then(|| half(bytes, at));
        // TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID; a tag without protocol is an ordinary one.
        let vlan =
            tag(1 << 4, offset::VLAN_TCI).map(|tci| (tag(1 << 6, offset::VLAN_TPID).unwrap_or(0x8100), tci));
        Some(Frame {
            bytes,
            time_ns: time_ns(bytes, offset::TIME),
            captured: word(bytes, offset::CAPTURED) as usize,
            length: word(bytes, offset::LENGTH),
            data_at: half(bytes, offset::MAC) as usize,
            vlan,
        })
    })
}

impl<'a> Frame<'a> {
    /// The flags of a TCP segment directly after the headers of its link and IP, read in place.
    fn tcp_flags(&self, link: LinkType) -> Option<u8> {
        let (at, protocol) = match link {
            LinkType::LINUX_SLL2 => {
                (half(self.bytes, offset::NET) as usize, half(self.bytes, offset::ADDRESS + 2))
            }
            LinkType::ETHERNET => (self.data_at + 14, half(self.bytes, self.data_at + 12)),
            _ => return None,
        };
        let ip = self.bytes.get(at..)?;
        const TCP: u8 = 6;
        let tcp = match (u16::from_be(protocol), ip.first()? >> 4) {
            (0x0800, 4) if *ip.get(9)? == TCP => usize::from(ip[0] & 0x0f) * 4,
            (0x86dd, 6) if *ip.get(6)? == TCP => 40,
            _ => return None,
        };
        ip.get(tcp + 13).copied()
    }

    /// The packet as a file has it; if something has to be inserted, it is copied to `scratch`.
    fn packet<'s>(&self, number: u64, link: LinkType, scratch: &'s mut Vec<u8>) -> Packet<'s>
    where
        'a: 's,
    {
        let from =
            if link == LinkType::LINUX_SLL2 { half(self.bytes, offset::NET) as usize } else { self.data_at };
        let to = (from + self.captured).min(self.bytes.len());
        let data = self.bytes.get(from..to).unwrap_or_default();
        let added = match (link, self.vlan) {
            (LinkType::LINUX_SLL2, _) => {
                scratch.clear();
                cooked_header(self.bytes, scratch);
                scratch.len()
            }
            (LinkType::ETHERNET, Some((protocol, tag))) if data.len() >= 12 => {
                scratch.clear();
                scratch.extend_from_slice(&data[..12]);
                scratch.extend_from_slice(&protocol.to_be_bytes());
                scratch.extend_from_slice(&tag.to_be_bytes());
                4
            }
            _ => {
                return Packet {
                    number,
                    time_ns: self.time_ns,
                    interface: 0,
                    link,
                    wire_len: self.length.max(data.len() as u32),
                    data,
                };
            }
        };
        let rest = if link == LinkType::ETHERNET { &data[12..] } else { data };
        scratch.extend_from_slice(rest);
        let wire_len = (self.length + added as u32).max(scratch.len() as u32);
        Packet { number, time_ns: self.time_ns, interface: 0, link, wire_len, data: scratch }
    }
}

/// LINKTYPE_LINUX_SLL2: protocol, two zeros, interface, hardware type, packet type, address length, address.
fn cooked_header(frame: &[u8], out: &mut Vec<u8>) {
    let address = frame.get(offset::ADDRESS..offset::ADDRESS + 20).unwrap_or(&[0; 20]);
    // struct sockaddr_ll: family, protocol (big-endian), index, hardware type, packet type, address length, address.
    out.extend_from_slice(&address[2..4]);
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&word(address, 4).to_be_bytes());
    out.extend_from_slice(&half(address, 8).to_be_bytes());
    out.extend_from_slice(&address[10..20]);
}

fn attach(socket: &OwnedFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jump_true, jf: i.jump_false, k: i.k })
        .collect();
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its length is given.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let pointer = (&raw const *value).cast();
    // SAFETY: the value lives through the call, and its length is given.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn get_option<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to a value that is that long and of plain numbers.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut *value).cast(), &raw mut length)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_the_ring() {
        for ring_bytes in [1u64, 1 << 20, 64 << 20, 256 << 20, 4 << 30] {
            let (block_bytes, blocks) = geometry(ring_bytes, 0);
            assert!(block_bytes.is_power_of_two() && block_bytes % 4096 == 0);
            assert!(blocks >= 8 && free_blocks(blocks) < blocks);
            let total = (block_bytes * blocks) as u64;
            assert!(
                total >= ring_bytes.max(1 << 20) - block_bytes as u64 && total <= ring_bytes.max(1 << 20)
            );
        }
    }

    #[test]
    fn a_ring_of_any_agent_reaches_back_half_a_minute_while_packets_are_few() {
        // An agent with the least memory keeps 12 MiB of packets.
        for ring_bytes in [12_u64 << 20, 31 << 20, 95 << 20, 400 << 20] {
            let (block_bytes, blocks) = geometry(ring_bytes, 16 << 10);
            let back_ms = (blocks - free_blocks(blocks)) as u64 * u64::from(BLOCK_TIMEOUT_MS);
            assert!(back_ms >= 30_000, "{ring_bytes}: {blocks} blocks reach back {back_ms} ms");
            // A packet of the usual snap length fits into one.
            assert!(block_bytes >= 32 << 10);
        }
    }

    #[test]
    fn looks_are_rare_while_packets_are_few_and_in_time_while_they_are_not() {
        for (ring_bytes, longest_ms) in [(64 << 10, 10), (1 << 20, 10), (96_u64 << 20, 40), (1 << 30, 40)] {
            let (block_bytes, blocks) = geometry(ring_bytes, 16 << 10);
            let free = free_blocks(blocks);
            assert_eq!(pause_ms(free, block_bytes, 0, longest_ms), longest_ms, "{ring_bytes}");
            // At any constant pace no pause fills the free blocks, once one was long enough to show it.
            for blocks_per_s in [1, 100, 1_000, 10_000, 50_000] {
                let (mut pause, mut fullest) = (longest_ms, 0);
                for round in 0..50 {
                    let filled = (pause as usize * blocks_per_s).div_ceil(1_000);
                    fullest = if round > 0 { fullest.max(filled) } else { 0 };
                    pause = pause_ms(free, block_bytes, filled, pause);
                }
                assert!(
                    fullest <= free / 2 + 1 || pause == 1,
                    "{ring_bytes}, {blocks_per_s}: {fullest} of {free}"
                );
            }
        }
    }

    #[test]
    fn interfaces_that_are_not_there() {
        let error = Interface::find("no-such-if").unwrap_err().to_string();
        assert!(error.starts_with("cannot find the interface no-such-if: "), "{error}");
        assert!(Interface::find("../net/lo").is_err());
    }

    #[test]
    fn a_tag_that_the_kernel_took_out_is_put_back() {
        let mut bytes = vec![0; 200];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset::CAPTURED, &20u32.to_ne_bytes());
        put(offset::LENGTH, &90u32.to_ne_bytes());
        put(offset::STATUS, &(1u32 | 1 << 4).to_ne_bytes());
        put(offset::MAC, &82u16.to_ne_bytes());
        put(offset::VLAN_TCI, &7u32.to_ne_bytes());
        put(82, &(1..=20).collect::<Vec<u8>>());
        let mut block = vec![0; 48];
        block[offset::BLOCK_PACKETS] = 1;
        block[offset::BLOCK_FIRST] = 48;
        block.extend_from_slice(&bytes);
        let mut scratch = Vec::new();
        let frame = frames(&block).next().unwrap();
        let packet = frame.packet(1, LinkType::ETHERNET, &mut scratch);
        assert_eq!(packet.data[10..18], [11, 12, 0x81, 0, 0, 7, 13, 14]);
        assert_eq!((packet.data.len(), packet.wire_len), (24, 94));
    }

    #[test]
    fn damaged_blocks_are_survived() {
        let mut random = 1u64;
        for _ in 0..20_000 {
            let block: Vec<u8> = (0..256)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if random >> 60 < 8 { 0 } else { (random >> 33) as u8 }
                })
                .collect();
            let mut scratch = Vec::new();
            for (n, frame) in frames(&block).enumerate().take(1000) {
                frame.packet(n as u64, LinkType::LINUX_SLL2, &mut scratch);
                frame.packet(n as u64, LinkType::ETHERNET, &mut scratch);
            }
        }
    }
}
