//! The records of a perf ring, as far as this probe requests them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A CPU was sampled.
    Sample {
        /// Process of the current thread; 0 is idle, or a process that is invisible in this pid namespace.
        tgid: u32,
        /// Whether it was in user mode.
        user: bool,
        /// Call chain.
        chain: Chain<'a>,
    },
    /// Number of records that found no room in the ring.
    Lost(u64),
    /// A process has a new name.
    Name {
        /// Process id.
        tgid: u32,
        comm: &'a [u8],
    },
    /// A process forked; the child inherits its name until it sets another one.
    Child {
        /// Process id of the child.
        tgid: u32,
        /// Process id of the parent.
        parent: u32,
    },
    /// The kernel throttled sampling because samples came too fast.
    Throttled,
    /// Any other record.
    Other,
}

/// Kernel addresses: first that of the CPU, then the return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain<'a>(&'a [u8]);

/// Values in a chain from here on are not addresses, but markers of what follows.
const CONTEXT_MAX: u64 = -4095i64 as u64;
const CONTEXT_KERNEL: u64 = -128i64 as u64;

const LOST: u32 = 2;
const COMM: u32 = 3;
const THROTTLE: u32 = 5;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const CPU_MODE: u16 = 7;
const CPU_MODE_USER: u16 = 2;

impl Chain<'_> {
    /// Appends the addresses of the kernel's part to `to`.
    pub fn kernel_frames(self, to: &mut Vec<u64>) {
        to.clear();
        let mut kernel = false;
        for value in self.0.chunks_exact(8).map(word) {
            match value {
                CONTEXT_MAX.. => kernel = value == CONTEXT_KERNEL,
                _ if kernel => to.push(value),
                _ => {}
            }
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

/// Parses one record, header included; `None` if it is shorter than it claims.
pub fn parse(record: &[u8]) -> Option<Record<'_>> {
    let half = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let misc = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    Some(match half(0)? {
        SAMPLE => {
            let frames = usize::try_from(word(record.get(16..24)?)).ok()?;
            let chain = record.get(24..24usize.checked_add(frames.checked_mul(8)?)?)?;
            Record::Sample { tgid: half(8)?, user: misc & CPU_MODE == CPU_MODE_USER, chain: Chain(chain) }
        }
        LOST => Record::Lost(word(record.get(16..24)?)),
        COMM => {
            let (tgid, tid, comm) = (half(8)?, half(12)?, record.get(16..)?);
            let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
            // A process is named after its first thread.
            if tgid == tid { Record::Name { tgid, comm: &comm[..end] } } else { Record::Other }
        }
        FORK => {
            let (tgid, parent) = (half(8)?, half(12)?);
            if tgid == parent { Record::Other } else { Record::Child { tgid, parent } }
        }
        THROTTLE => Record::Throttled,
        _ => Record::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = 8 + body.len() as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn ids(tgid: u32, tid: u32) -> u64 {
        word(&[tgid.to_ne_bytes(), tid.to_ne_bytes()].concat())
    }

    #[test]
    fn a_sample_has_its_kernel_frames() {
        let user = -512i64 as u64;
        let bytes = record(SAMPLE, 1, &words(&[ids(7, 8), 5, CONTEXT_KERNEL, 0x10, 0x20, user, 0x30]));
        let Some(Record::Sample { tgid: 7, user: false, chain }) = parse(&bytes) else {
            panic!("{:?}", parse(&bytes))
        };
        let mut frames = vec![1, 2, 3];
        chain.kernel_frames(&mut frames);
        assert_eq!(frames, [0x10, 0x20]);
        assert!(matches!(
            parse(&record(SAMPLE, 2, &words(&[ids(7, 7), 0]))),
            Some(Record::Sample { user: true, .. })
        ));
    }

    #[test]
    fn truncated_record_is_rejected() {
        assert_eq!(parse(&record(SAMPLE, 1, &words(&[ids(7, 7), 3, CONTEXT_KERNEL]))), None);
        assert_eq!(parse(&record(SAMPLE, 1, &words(&[ids(7, 7), u64::MAX]))), None);
        assert_eq!(parse(&record(LOST, 0, &words(&[1]))), None);
        assert_eq!(parse(&[1, 2]), None);
    }

    #[test]
    fn losses_and_names_are_decoded() {
        assert_eq!(parse(&record(LOST, 0, &words(&[1, 12]))), Some(Record::Lost(12)));
        let name = [&words(&[ids(7, 7)])[..], b"nginx\0\0\0"].concat();
        assert_eq!(parse(&record(COMM, 0, &name)), Some(Record::Name { tgid: 7, comm: b"nginx" }));
        let thread = [&words(&[ids(7, 8)])[..], b"worker\0\0"].concat();
        assert_eq!(parse(&record(COMM, 0, &thread)), Some(Record::Other));
        let fork = words(&[ids(9, 7), ids(9, 7), 0]);
        assert_eq!(parse(&record(FORK, 0, &fork)), Some(Record::Child { tgid: 9, parent: 7 }));
        assert_eq!(parse(&record(THROTTLE, 0, &words(&[0, 0, 0]))), Some(Record::Throttled));
    }
}
