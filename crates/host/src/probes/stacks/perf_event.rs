//! The kernel's sampling clock of one CPU, and the ring that receives its samples.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// `struct perf_event_attr` of linux/perf_event.h, version 5.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_kind: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}
const _: () = assert!(size_of::<Attr>() == 112);

const TYPE_SOFTWARE: u32 = 1;
const SOFTWARE_CPU_CLOCK: u64 = 0;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const FORMAT_TOTAL_TIME_ENABLED: u64 = 1;
const DISABLED: u64 = 1;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const FLAG_FD_CLOEXEC: u64 = 1 << 3;
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;

/// Offsets in `struct perf_event_mmap_page`: bytes ever written, and read.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Samples once per period of the CPU's clock, into a ring.
pub struct Sampler {
    fd: OwnedFd,
    page: NonNull<u8>,
    page_bytes: usize,
    data_bytes: usize,
    /// Buffer for a record that wraps around the end of the ring.
    wrapped: Vec<u8>,
}

impl Sampler {
    /// Prepares sampling; nothing is sampled before [`Sampler::enable`]. `data_bytes` is the ring's size, a
    /// power of two.
    pub fn open(cpu: u32, period_ns: u64, data_bytes: usize) -> io::Result<Sampler> {
        assert!(data_bytes.is_power_of_two());
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attr>() as u32,
            config: SOFTWARE_CPU_CLOCK,
            period: period_ns,
            sample_type: SAMPLE_TID | SAMPLE_CALLCHAIN,
            read_format: FORMAT_TOTAL_TIME_ENABLED,
            flags: DISABLED | COMM | TASK | WATERMARK | EXCLUDE_CALLCHAIN_USER,
            wakeup_watermark: (data_bytes / 2) as u32,
            ..Attr::default()
        };
        let (pid, cpu) = (-1, cpu as i32);
        // SAFETY: the kernel reads `attr.size` bytes of `attr`, which lives through the call; the rest are
        // numbers.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, cpu, -1, FLAG_FD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // SAFETY: returns a number.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_bytes + data_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).expect("mmap yields no null");
        Ok(Sampler { fd, page, page_bytes, data_bytes, wrapped: Vec::new() })
    }

    fn control(&self, what: u64) -> io::Result<()> {
        // SAFETY: these requests take a number and touch no memory of ours.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), what as _, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Starts sampling.
    pub fn enable(&self) -> io::Result<()> {
        self.control(IOC_ENABLE)
    }

    /// Stops sampling; the ring keeps its content.
    pub fn disable(&self) -> io::Result<()> {
        self.control(IOC_DISABLE)
    }

    /// How long sampling has been enabled, in nanoseconds.
    pub fn enabled_ns(&self) -> io::Result<u64> {
        let mut counts = [0u64; 2];
        let bytes = size_of_val(&counts);
        // SAFETY: the kernel writes at most `bytes` bytes into `counts`.
        match unsafe { libc::read(self.fd.as_raw_fd(), counts.as_mut_ptr().cast(), bytes) } {
            read if read == bytes as isize => Ok(counts[1]),
            0.. => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the counter of a perf event is short")),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn end(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets are inside the first page, which stays mapped as long as `self` lives, and are
        // aligned to eight bytes; the kernel writes them as whole words.
        unsafe { AtomicU64::from_ptr(self.page.as_ptr().add(offset).cast()) }
    }

    /// `length` bytes of the ring, from a position that may be beyond its end.
    fn bytes(&self, at: u64, length: usize) -> &[u8] {
        let at = (at % self.data_bytes as u64) as usize;
        let length = length.min(self.data_bytes - at);
        // SAFETY: `at + length <= data_bytes`, all of it mapped after the first page; the kernel does not write
        // to where the reader has not been yet, and `drain` advances the tail only after a record was used.
        unsafe { std::slice::from_raw_parts(self.page.as_ptr().add(self.page_bytes + at), length) }
    }

    /// Passes on every record in the ring, oldest first, header included, and frees the space.
    pub fn drain(&mut self, on: &mut dyn FnMut(&[u8])) {
        // Pairs with the kernel's barrier between a record and the new head.
        let head = self.end(DATA_HEAD).load(Ordering::Acquire);
        let mut tail = self.end(DATA_TAIL).load(Ordering::Relaxed);
        while tail < head {
            // Records are aligned to eight bytes, so a header never wraps.
            let header = self.bytes(tail, 8);
            let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 || size as u64 > head - tail {
                // Not a record that the kernel writes; skip it, so that it is not read again.
                tail = head;
                break;
            }
            let record = self.bytes(tail, size);
            if record.len() == size {
                on(record);
            } else {
                let mut wrapped = std::mem::take(&mut self.wrapped);
                wrapped.clear();
                let record = self.bytes(tail, size);
                wrapped.extend_from_slice(record);
                wrapped.extend_from_slice(self.bytes(tail + record.len() as u64, size - record.len()));
                on(&wrapped);
                self.wrapped = wrapped;
            }
            tail += size as u64;
        }
        // Pairs with the kernel's read of the tail: nothing is overwritten before it was used.
        self.end(DATA_TAIL).store(tail, Ordering::Release);
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: `open` made this very mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.data_bytes) };
    }
}

/// The CPU that this thread currently runs on.
pub fn this_cpu() -> Option<u32> {
    // SAFETY: returns a number.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Waits until a ring is half full, a signal arrives, or the time is over.
pub fn wait(samplers: &[Sampler], patience: Duration) -> io::Result<()> {
    let mut wanted: Vec<libc::pollfd> = samplers
        .iter()
        .map(|sampler| libc::pollfd { fd: sampler.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the array has as many entries as stated, and lives through the call.
    if unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, ms) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}
