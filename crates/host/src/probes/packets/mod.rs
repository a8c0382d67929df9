//! The latest TCP packets of this network namespace, kept in memory without anybody reading them.
//!
//! The program is the filter of packet sockets, one per interface. It copies the beginning of each packet to memory that this
//! process maps, and passes nothing on: no packet is queued, no reader is woken, and the memory is the history. Nothing of
//! it outlives the process.

mod blocks;
mod taps;

use super::cost::{Cost, Watch};
use super::skeletons::packets::ProbeSkelBuilder;
use crate::kernel::{ProbeError, quiet, refused};
use blocks::{BLOCK_BYTES, Blocks};
pub use blocks::{Counts, Record};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use taps::Taps;

const PROBE: &str = "packets";

/// At most this is kept of a packet, bytes.
pub const MOST_KEPT: u32 = 16 << 10;
/// A CPU leaves its block when all others but one in this many have been taken since.
const MARGIN: usize = 8;

/// What is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Memory, bytes; at least two blocks of 64 KiB per CPU, and some.
    pub bytes: u64,
    /// At most this much of a packet, up to [`MOST_KEPT`].
    pub snap_bytes: u32,
    /// Datagrams to this port are kept, too.
    pub canary_port: Option<u16>,
    /// Names of the interfaces; empty for all. Without loopback among them, only datagrams to the canary's port are kept of it.
    pub interfaces: Vec<String>,
}

/// The packets kept. Dropping it ends that.
pub struct Packets {
    taps: Taps,
    blocks: Blocks,
    number: usize,
    cost: Watch,
}

impl Packets {
    /// Keeps packets from now on.
    ///
    /// # Errors
    /// [`ProbeError`], most often for want of privilege.
    pub fn start(settings: &Settings) -> Result<Packets, ProbeError> {
        quiet();
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| ProbeError::Io { what, source }
        };
        let mut object = MaybeUninit::uninit();
        let mut open =
            ProbeSkelBuilder::default().open(&mut object).map_err(|error| refused(PROBE, error))?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(|error| refused(PROBE, error))?;
        let online = std::thread::available_parallelism().map_or(cpus, usize::from);
        let number = (settings.bytes as usize / BLOCK_BYTES).max(2 * online + MARGIN);
        for (map, entries) in [(&mut open.maps.blocks, number), (&mut open.maps.states, cpus)] {
            map.set_max_entries(entries as u32).map_err(|error| refused(PROBE, error))?;
        }
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.blocks_number = number as u32;
            constants.leaves_after = (number - (number / MARGIN).max(2)) as u32;
            constants.canary_port = settings.canary_port.unwrap_or(0).into();
            let named = &settings.interfaces;
            constants.keeps_loopback = named.is_empty() || named.iter().any(|name| name == "lo");
        }
        let skeleton = open.load().map_err(|error| refused(PROBE, error))?;
        let maps = &skeleton.maps;
        let maps = [maps.blocks.as_fd(), maps.states.as_fd(), maps.shared.as_fd(), maps.openings.as_fd()];
        let blocks =
            Blocks::map(maps, number, cpus).map_err(failed("map the memory of the probe packets"))?;
        blocks.keep_at_most(settings.snap_bytes.min(MOST_KEPT));
        let program = skeleton.progs.packet.as_fd();
        let cost = Watch::new([program]).map_err(failed("watch the probe packets"))?;
        let program = program.try_clone_to_owned().map_err(failed("attach the probe packets"))?;
        let taps =
            Taps::open(program, &settings.interfaces).map_err(failed("open packet sockets (CAP_NET_RAW)"))?;
        Ok(Packets { taps, blocks, number, cost })
    }

    /// Keeps at most this many bytes of each packet from now on.
    pub fn keep_at_most(&self, snap_bytes: u32) {
        self.blocks.keep_at_most(snap_bytes.min(MOST_KEPT));
    }

    /// Waits, and follows interfaces that come and go. Whether packets may have passed unseen meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses a socket for a new interface.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<bool> {
        self.cost.look(self.blocks.counts().packets);
        self.taps.wait(timeout_ms)
    }

    /// What was kept and lost so far.
    pub fn counts(&self) -> Counts {
        self.blocks.counts()
    }

    /// Bytes that hold packets.
    pub fn kept_bytes(&self) -> u64 {
        (self.blocks.filled() * BLOCK_BYTES) as u64
    }

    /// Bytes that hold packets once all blocks do.
    pub fn kept_bytes_at_most(&self) -> u64 {
        (self.number * BLOCK_BYTES) as u64
    }

    /// Time of the last packet, nanoseconds of CLOCK_MONOTONIC.
    pub fn last_ns(&self) -> Option<u64> {
        self.blocks.last_ns()
    }

    /// Shows, in order of time, the packets of all stretches that `wants`, given by the times of their first and their last packet.
    ///
    /// # Errors
    /// Those of `take`, which end it.
    pub fn between<E>(
        &self,
        wants: impl Fn(u64, u64) -> bool,
        take: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.blocks.between(wants, take)
    }

    /// Shows the packets that opened or closed a connection since the last call, cut to their headers. Returns how many were lost.
    pub fn openings(&mut self, see: impl FnMut(&Record<'_>)) -> u64 {
        self.blocks.openings(see)
    }

    /// What the program costs, from samples. `written` of it counts packets. It does not include what the kernel does to hand
    /// a packet to the program.
    pub fn cost(&mut self) -> Option<Cost> {
        self.cost.cost(self.blocks.counts().packets)
    }
}
